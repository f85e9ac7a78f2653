//! `carole guard`: the process that cleans up after a launcher that was killed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use carole_launch::GuardCommand;
use carole_launch::guard::stand_guard;

use crate::failure::Failure;

/// How to start it: this very binary, even if its file was replaced meanwhile.
pub(crate) fn command() -> GuardCommand {
    GuardCommand {
        program: PathBuf::from("/proc/self/exe"),
        arguments: vec![OsString::from("guard")],
    }
}

#[expect(clippy::unnecessary_wraps, reason = "commands share one signature")]
pub(crate) fn guard() -> Result<ExitCode, Failure> {
    stand_guard(std::io::stdin().lock());
    Ok(ExitCode::SUCCESS)
}
