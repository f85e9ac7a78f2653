//! Finding a program before anything is started.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Finds `program` as the system would: a name with a slash is a path, another is looked up in
/// `search` (the value of `PATH`).
pub fn find(program: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Error> {
    let not_found = || Error::ProgramNotFound {
        program: program.to_string_lossy().into_owned(),
    };
    if program.is_empty() {
        return Err(not_found());
    }
    if program.as_encoded_bytes().contains(&b'/') {
        return executable(Path::new(program)).unwrap_or_else(|| Err(not_found()));
    }
    // As the shell does: go on past what cannot be executed, but say so if nothing better comes.
    let mut refused = None;
    for folder in std::env::split_paths(search.unwrap_or_default()) {
        match executable(&folder.join(program)) {
            Some(Ok(path)) => return Ok(path),
            Some(Err(error @ Error::ProgramNotExecutable { .. })) => {
                refused.get_or_insert(error);
            }
            Some(Err(_)) | None => {}
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

/// Whether `path` can be executed; nothing if there is no such file.
fn executable(path: &Path) -> Option<Result<PathBuf, Error>> {
    let metadata = path.metadata().ok()?;
    let path = path.to_owned();
    Some(if metadata.is_dir() {
        Err(Error::ProgramIsDirectory { path })
    } else if metadata.permissions().mode() & 0o111 == 0 {
        Err(Error::ProgramNotExecutable { path })
    } else {
        Ok(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_and_a_path_is_taken_as_it_is() {
        let search = OsStr::new("/nowhere:/bin:/usr/bin");
        let found = find(OsStr::new("sh"), Some(search)).unwrap();
        assert!(found.ends_with("sh"), "{}", found.display());
        assert_eq!(
            find(OsStr::new("/bin/sh"), None).unwrap(),
            Path::new("/bin/sh")
        );
    }

    #[test]
    fn what_cannot_be_run_is_named_with_its_reason() {
        let search = Some(OsStr::new("/bin"));
        let message = |program: &str| find(OsStr::new(program), search).unwrap_err().to_string();
        assert_eq!(
            message("no-such-program"),
            "there is no program \"no-such-program\""
        );
        assert_eq!(
            message("./no/such/file"),
            "there is no program \"./no/such/file\""
        );
        assert_eq!(message(""), "there is no program \"\"");
        assert_eq!(message("/tmp"), "/tmp is a directory, not a program");
        assert_eq!(message("/etc/passwd"), "/etc/passwd is not executable");
    }
}
