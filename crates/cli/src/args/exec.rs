//! The arguments of `carole exec`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::{OutputChoice, PlaceArguments, duration};

/// Run a command once on every host, all at the same time, over plain ssh.
///
/// Each host's result is printed when it has ended. The exit code is 0 if the command succeeded on
/// all hosts, else that of the first host in the list on which it did not; 255 where ssh failed,
/// 124 where the time was up. Ctrl-C ends the command on all hosts.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  carole exec -H a,b -- nvidia-smi -L
  carole exec -H a,b -- sh -c 'echo $HOME'")]
pub(crate) struct ExecArguments {
    /// How long connecting and the command may take on each host; any time by default
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,

    /// The command and its arguments, after `--`; no shell changes them
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}
