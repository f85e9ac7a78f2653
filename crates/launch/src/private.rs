//! A folder that only this user can look into, for the job's token.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use carole_coordinator::Token;

use crate::error::Error;
use crate::random::random_incarnation;

/// How the names of such folders begin.
pub(crate) const PREFIX: &str = "carole-";
/// The name of the token's file in such a folder.
pub(crate) const TOKEN: &str = "token";

/// A folder of mode 0700, removed with its content when this is dropped.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    path: PathBuf,
}

impl PrivateFolder {
    /// Makes a folder in the first of `parents` that allows it.
    pub(crate) fn new(parents: &[PathBuf]) -> Result<Self, Error> {
        let name = format!("{PREFIX}{:032x}", random_incarnation()?);
        let mut failure = None;
        for parent in parents {
            let path = parent.join(&name);
            // Not recursive: it must be new, or another user could own it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(source) => {
                    failure = Some(Error::PrivateFolder {
                        parent: parent.clone(),
                        source,
                    });
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::PrivateFolder {
            parent: PathBuf::new(),
            source: io::ErrorKind::NotFound.into(),
        }))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes the token into a file of mode 0600 in a private folder and returns its path.
pub(crate) fn write_token(folder: &Path, token: &Token) -> Result<PathBuf, Error> {
    let path = folder.join(TOKEN);
    let written: io::Result<()> = (|| {
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(format!("{}\n", token.to_hex()).as_bytes())
    })();
    written.map_err(|source| Error::PrivateFolder {
        parent: folder.to_owned(),
        source,
    })?;
    Ok(path)
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.path);
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the private folder");
        }
    }
}

/// The places for private folders on this host, best first.
pub(crate) fn parents() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime
        .into_iter()
        .filter(|path| path.is_absolute())
        .chain([std::env::temp_dir()])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_the_owner_can_read_the_token_and_nothing_stays() {
        let parents = [PathBuf::from("/nowhere"), std::env::temp_dir()];
        let folder = PrivateFolder::new(&parents).unwrap();
        let token = Token::from_bytes([9; 32]);
        let file = write_token(folder.path(), &token).unwrap();
        assert_eq!((mode(folder.path()), mode(&file)), (0o700, 0o600));
        assert_eq!(Token::read(&file).unwrap().as_bytes(), token.as_bytes());
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let error = PrivateFolder::new(&[PathBuf::from("/nowhere")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot make a private folder in /nowhere"
        );
    }
}
