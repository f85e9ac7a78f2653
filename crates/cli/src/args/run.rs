//! The arguments of `carole run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

/// Start a program's ranks on this host and watch them until they end.
///
/// The first rank that fails decides: the others are stopped and its exit code is passed on. The
/// first Ctrl-C asks the ranks to end, the second kills them.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// How many ranks to start
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value = "1", value_parser = ranks)]
    pub(crate) ranks: u16,

    /// The job's name; a new one is made up by default
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub(crate) name: Option<String>,

    /// Which variables the ranks get beside those they inherit
    #[arg(long, value_name = "SET", value_enum, default_value_t)]
    pub(crate) env: EnvironmentChoice,

    /// Choose algorithms by this table, as `carole tune` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,

    /// How long to wait for the other ranks once one has registered with the coordinator
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration::parse)]
    pub(crate) timeout_start: Duration,

    /// How long ranks that were asked to end may take before they are killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// The program and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// The values of `--env`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvironmentChoice {
    /// Carole's own, and those of PyTorch, Horovod, Open MPI and TensorFlow
    #[default]
    All,
    /// Carole's own only
    None,
}

fn ranks(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least one rank".to_owned()),
        Ok(ranks) => Ok(ranks),
        Err(_) => Err("the number of ranks is from 1 to 65535".to_owned()),
    }
}

/// Names appear in variables, file names and (later) Kubernetes, so they are plain.
fn job_name(text: &str) -> Result<String, String> {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain && (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("a name has 1 to 63 lower-case letters, digits and dashes between them".to_owned())
}
