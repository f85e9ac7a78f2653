//! The carole command.
//!
//! It composes the other crates and decides nothing: arguments are parsed ([`args`]), logs are set
//! up ([`logs`]), the command runs ([`commands`]), and what went wrong is told ([`failure`]). The
//! command lines of other launchers are read in [`fronts`]. The page of a job is in [`tui`].

mod args;
mod commands;
mod failure;
mod fronts;
mod logs;
mod tui;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(stop) => return stop.report(),
    };
    let result = logs::init(arguments.command.log_level())
        .and_then(|()| commands::dispatch(arguments.command));
    result.unwrap_or_else(|failure| failure.report())
}
