//! What is in a folder that is to be sent, without what git ignores.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use tracing::warn;

use super::MOST_ENTRIES;
use super::rules;
use crate::channel::folder::{Content, Entry};
use crate::channel::message::Word;
use crate::digest::digest_of_file;
use crate::error::Error;

/// A folder, and what of it is to be sent.
#[derive(Debug)]
pub struct Listing {
    root: PathBuf,
    found: Vec<(PathBuf, Kind)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    Link(PathBuf),
    File { executable: bool },
}

impl Listing {
    /// Lists a folder, in the order of names. What is ignored is decided as git does, by the
    /// `.gitignore` files in the folder and, if it is in a repository, above it; without a repository
    /// those in it count all the same.
    pub fn of(root: &Path) -> Result<Self, Error> {
        if !root.is_dir() {
            return Err(Error::NoFolder {
                path: root.to_owned(),
            });
        }
        let in_repository = root.ancestors().any(|above| above.join(".git").exists());
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false)
            .git_ignore(true)
            .git_exclude(true)
            .git_global(true)
            .parents(in_repository)
            .require_git(in_repository)
            .filter_entry(|entry| entry.file_name() != ".git")
            .sort_by_file_name(Ord::cmp);
        let mut found = Vec::new();
        for entry in walk.build() {
            let entry = entry.map_err(|error| unreadable(root, io::Error::other(error)))?;
            if let Some(error) = entry.error() {
                warn!(%error, "a .gitignore is not fully understood");
            }
            // The folder itself is none of its entries.
            let Ok(path) = entry.path().strip_prefix(root) else {
                continue;
            };
            if path.as_os_str().is_empty() {
                continue;
            }
            if let Some(kind) = Kind::of(entry.path(), path)? {
                found.push((path.to_owned(), kind));
            }
            if found.len() > MOST_ENTRIES {
                return Err(Error::TooManyFiles {
                    folder: root.to_owned(),
                    limit: MOST_ENTRIES,
                });
            }
        }
        Ok(Self {
            root: root.to_owned(),
            found,
        })
    }

    /// What agents are told: the files are read for that. One that is gone by now is left out.
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(self.found.len());
        for (path, kind) in &self.found {
            let content = match kind {
                Kind::Folder => Content::Folder,
                Kind::Link(target) => Content::Link {
                    target: Word::from(target.as_os_str()),
                },
                Kind::File { executable } => {
                    let full = self.root.join(path);
                    match digest_of_file(&full).await {
                        Ok((digest, size)) => Content::File {
                            size,
                            digest,
                            executable: *executable,
                        },
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(unreadable(&full, error)),
                    }
                }
            };
            entries.push(Entry::new(path, content));
        }
        Ok(entries)
    }
}

impl Kind {
    /// What is at a place; nothing if it is not to be sent.
    fn of(full: &Path, path: &Path) -> Result<Option<Self>, Error> {
        let metadata = match fs::symlink_metadata(full) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(full, error)),
        };
        let kind = metadata.file_type();
        Ok(if kind.is_dir() {
            Some(Self::Folder)
        } else if kind.is_file() {
            Some(Self::File {
                executable: metadata.permissions().mode() & 0o111 != 0,
            })
        } else if kind.is_symlink() {
            let target = fs::read_link(full).map_err(|error| unreadable(full, error))?;
            if !rules::leads_inside(path, &target) {
                return Err(Error::LinkOutside {
                    path: full.to_owned(),
                    target,
                });
            }
            Some(Self::Link(target))
        } else {
            warn!(path = %full.display(), "neither a file nor a folder nor a link: it is not sent");
            None
        })
    }
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Unreadable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::private::PrivateFolder;

    fn folder(files: &[(&str, &str)]) -> PrivateFolder {
        let folder = PrivateFolder::new(&[std::env::temp_dir()]).unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn paths(folder: &Path) -> Vec<String> {
        let listing = Listing::of(folder).unwrap();
        let paths = listing.found.iter();
        paths.map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn what_git_ignores_is_left_out_at_all_levels() {
        let files = [
            (".gitignore", "*.pyc\n/data\n!keep.pyc\n"),
            (".git/config", ""),
            ("a.pyc", ""),
            ("data/huge", ""),
            ("keep.pyc", ""),
            ("sub/.env", ""),
            ("sub/.gitignore", "local\n"),
            ("sub/data/small", ""),
            ("sub/local", ""),
            ("train.py", ""),
        ];
        let expected = [
            ".gitignore",
            "keep.pyc",
            "sub",
            "sub/.env",
            "sub/.gitignore",
            "sub/data",
            "sub/data/small",
            "train.py",
        ];
        let repository = folder(&files);
        assert_eq!(paths(repository.path()), expected);
        // The rules above a folder of a repository hold in it.
        let below = [".env", ".gitignore", "data", "data/small"];
        assert_eq!(paths(&repository.path().join("sub")), below);
        fs::remove_dir_all(repository.path().join(".git")).unwrap();
        assert_eq!(paths(repository.path()), expected, "without a repository");
        // And without a repository those above do not.
        fs::write(repository.path().join("sub/b.pyc"), "").unwrap();
        assert!(paths(&repository.path().join("sub")).contains(&"b.pyc".to_owned()));
    }

    #[test]
    fn links_that_lead_out_are_named() {
        let folder = folder(&[("sub/file", "")]);
        symlink("sub/file", folder.path().join("inside")).unwrap();
        assert_eq!(paths(folder.path()), ["inside", "sub", "sub/file"]);
        symlink("../../elsewhere", folder.path().join("sub/outside")).unwrap();
        let error = Listing::of(folder.path()).unwrap_err().to_string();
        let link = folder.path().join("sub/outside");
        assert!(
            error.starts_with(&format!("{} is a link to ../../elsewhere", link.display())),
            "{error}"
        );
    }

    #[tokio::test]
    async fn files_are_told_with_size_digest_and_whether_they_can_be_run() {
        let folder = folder(&[("run", "abc"), ("gone", "")]);
        let run = folder.path().join("run");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        let listing = Listing::of(folder.path()).unwrap();
        fs::remove_file(folder.path().join("gone")).unwrap();
        let content = Content::File {
            size: 3,
            digest: crate::digest::digest_of(b"abc"),
            executable: true,
        };
        let entries = listing.entries().await.unwrap();
        assert_eq!(entries, [Entry::new(Path::new("run"), content)]);
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let folder = folder(&[("file", "")]);
        for path in ["file", "missing"] {
            let error = Listing::of(&folder.path().join(path)).unwrap_err();
            assert!(error.to_string().ends_with("is no folder"), "{error}");
        }
    }
}
