//! `carole agent`: the process beside the ranks of one host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carole_launch::AgentCommand;
use carole_launch::request::Talk;

use crate::failure::Failure;
use crate::logs;

/// How to start one on this host, which says as much as this process: this very binary, even if its
/// file was replaced meanwhile.
pub(crate) fn command(talk: Talk) -> AgentCommand {
    let words = match talk {
        Talk::Usual => &["agent"][..],
        Talk::Quiet => &["agent", "--quiet"],
        Talk::Verbose => &["agent", "--verbose"],
    };
    AgentCommand {
        program: PathBuf::from("/proc/self/exe"),
        arguments: words.iter().map(OsString::from).collect(),
    }
}

pub(crate) fn agent(quiet: bool, verbose: bool) -> Result<ExitCode, Failure> {
    logs::set(match (quiet, verbose) {
        (true, _) => Talk::Quiet,
        (false, true) => Talk::Verbose,
        (false, false) => Talk::Usual,
    });
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
