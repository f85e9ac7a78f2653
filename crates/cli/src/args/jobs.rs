//! The arguments of the commands about jobs that were started here.

use std::time::Duration;

use clap::Args;

use super::{OutputChoice, duration};

/// List the jobs that were started on this machine.
#[derive(Debug, Args)]
pub(crate) struct PsArguments {
    /// Those that have ended too
    #[arg(short, long)]
    pub(crate) all: bool,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,
}

/// Tell how a job and its ranks are.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The job's name
    pub(crate) job: String,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,
}

/// Show what a job printed.
#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The job's name
    pub(crate) job: String,

    /// Only what this rank printed
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<usize>,

    /// Go on as long as the job runs
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Stop a job: its ranks are asked to end, and killed after its grace time.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// The job's name
    pub(crate) job: String,

    /// Kill its ranks at once
    #[arg(long)]
    pub(crate) kill: bool,

    /// How long to wait for its end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
}
