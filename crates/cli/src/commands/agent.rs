//! `carole agent`: the process beside the ranks of one host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carole_launch::AgentCommand;

use crate::failure::Failure;

/// How to start one on this host: this very binary, even if its file was replaced meanwhile.
pub(crate) fn command() -> AgentCommand {
    AgentCommand {
        program: PathBuf::from("/proc/self/exe"),
        arguments: vec![OsString::from("agent")],
    }
}

pub(crate) fn agent() -> Result<ExitCode, Failure> {
    carole_launch::agent::run()
        .context("the agent failed")
        .map_err(Failure::new)
}

/// Whether this binary arrived as it was sent.
pub(crate) fn self_check(digest: &str) -> Result<ExitCode, Failure> {
    let same = carole_launch::fleet::has_digest(digest)
        .context("cannot read this binary")
        .map_err(Failure::new)?;
    if same {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::new(anyhow!(
            "this binary is not the one that was sent"
        )))
    }
}
