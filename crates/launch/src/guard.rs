//! A small process that outlives the launcher just long enough to clean up after it.
//!
//! # Expected flow
//!
//! The launcher starts the guard with a pipe as its standard input and writes one line for each
//! process group it starts (`group N`), each it has ended (`forget N`) and each private folder it
//! makes (`folder PATH`). When the pipe ends, however the launcher died, the guard kills the groups
//! that are left and removes the folders.
//!
//! # Guarantees
//!
//! A launcher killed with SIGKILL leaves no process of a rank's group and no token behind.
//!
//! # Caveats
//!
//! A group that was started but not yet announced is not known here; its first process dies with
//! the launcher all the same.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::private;
use crate::process::Group;

/// How to start the guard: a program that calls [`stand_guard`].
#[derive(Clone, Debug)]
pub struct GuardCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The launcher's end of a guard.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Option<(Child, ChildStdin)>,
}

impl Guard {
    /// Starts a guard; without a command there is none, and nothing is done.
    pub(crate) fn start(command: Option<&GuardCommand>) -> io::Result<Self> {
        let Some(command) = command else {
            return Ok(Self { process: None });
        };
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of the terminal's reach: Ctrl-C is for the launcher.
            .process_group(0)
            .spawn()?;
        let pipe = child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("the guard has no pipe"))?;
        Ok(Self {
            process: Some((child, pipe)),
        })
    }

    pub(crate) fn watch(&mut self, group: Group) {
        self.tell(format!("group {}\n", group.number()).as_bytes());
    }

    pub(crate) fn forget(&mut self, group: Group) {
        self.tell(format!("forget {}\n", group.number()).as_bytes());
    }

    pub(crate) fn watch_folder(&mut self, path: &Path) {
        let line = [b"folder ", path.as_os_str().as_bytes(), b"\n"].concat();
        self.tell(&line);
    }

    fn tell(&mut self, line: &[u8]) {
        let Some((_, pipe)) = &mut self.process else {
            return;
        };
        if let Err(error) = pipe.write_all(line) {
            tracing::warn!(%error, "the guard process is gone");
            self.dismiss();
        }
    }

    /// Closes the pipe and waits for the guard to end, which it does at once.
    fn dismiss(&mut self) {
        let Some((mut child, pipe)) = self.process.take() else {
            return;
        };
        drop(pipe);
        if let Err(error) = child.wait() {
            tracing::debug!(%error, "cannot wait for the guard process");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// What the guard process does: reads what the launcher tells it and cleans up when that ends.
pub fn stand_guard(input: impl BufRead) {
    let mut charge = Charge::default();
    for line in input.split(b'\n') {
        // A pipe that breaks ends the launcher's story as its end does.
        let Ok(line) = line else { break };
        charge.note(&line);
    }
    charge.clean_up();
}

/// What a guard is to clean up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Charge {
    groups: BTreeSet<i32>,
    folders: BTreeSet<PathBuf>,
}

impl Charge {
    fn note(&mut self, line: &[u8]) {
        let Some(space) = line.iter().position(|&byte| byte == b' ') else {
            return;
        };
        let (verb, value) = (&line[..space], &line[space + 1..]);
        let number = || std::str::from_utf8(value).ok()?.parse::<i32>().ok();
        match verb {
            b"group" => self.groups.extend(number()),
            b"forget" => {
                number().map(|number| self.groups.remove(&number));
            }
            b"folder" => {
                let path = PathBuf::from(OsStr::from_bytes(value));
                let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
                if path.is_absolute() && name.starts_with(private::PREFIX.as_bytes()) {
                    self.folders.insert(path);
                }
            }
            _ => {}
        }
    }

    fn clean_up(self) {
        for group in self.groups.into_iter().filter_map(Group::from_number) {
            group.kill();
        }
        for folder in self.folders {
            // Gone already when the launcher ended well.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_keeps_what_was_not_forgotten_and_ignores_nonsense() {
        let mut charge = Charge::default();
        for line in [
            "group 10",
            "group 20",
            "forget 10",
            "folder /tmp/carole-1",
            "folder /home",
            "folder relative/carole-1",
            "group x",
            "group",
            "",
            "dance 30",
        ] {
            charge.note(line.as_bytes());
        }
        let expected = Charge {
            groups: BTreeSet::from([20]),
            folders: BTreeSet::from([PathBuf::from("/tmp/carole-1")]),
        };
        assert_eq!(charge, expected);
    }

    #[test]
    fn numbers_that_name_no_group_of_ours_are_never_signalled() {
        for number in [i32::MIN, -1, 0, 1] {
            assert_eq!(Group::from_number(number), None);
        }
    }
}
