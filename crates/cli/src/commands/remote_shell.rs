//! `carole remote-shell`: what MPIs call under `carole run --mpi` to reach another host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use carole_launch::shell::{self, ShellError};

use crate::failure::Failure;

/// This very binary, as other processes of this host find it while this one runs, even if its file
/// was replaced meanwhile.
pub(super) fn program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

pub(crate) fn remote_shell(words: &[OsString]) -> Result<ExitCode, Failure> {
    match shell::ask(words) {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error @ ShellError::Words) => {
            Err(Failure::usage(error).with_hint("usage is carole remote-shell HOST COMMAND..."))
        }
        Err(error) => Err(Failure::new(error).with_code(shell::FAILED.into())),
    }
}
