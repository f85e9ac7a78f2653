//! The command line.
//!
//! Each command's arguments are a struct in a file of its own; what they do is in
//! [`commands`](crate::commands).

mod bench;
mod doctor;
mod duration;
mod exec;
mod goto;
mod jobs;
mod place;
mod repo;
mod run;
pub(crate) mod size;
mod tune;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use carole_launch::shell;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use tracing::Level;

pub(crate) use self::bench::{
    BenchArguments, BenchRankArguments, MemoryChoice, OperationChoice, OutputChoice,
    TransportChoice,
};
pub(crate) use self::doctor::DoctorArguments;
pub(crate) use self::exec::ExecArguments;
pub(crate) use self::goto::GotoArguments;
pub(crate) use self::jobs::{LogsArguments, PsArguments, StatusArguments, StopArguments};
pub(crate) use self::place::PlaceArguments;
pub(crate) use self::repo::{RepoAction, RepoArguments, RepoWork};
pub(crate) use self::run::{RunArguments, job_name};
pub(crate) use self::tune::TuneArguments;
use crate::failure::Failure;
use crate::fronts::ELASTIC;

/// Elastic distributed training, from one machine to many.
#[derive(Debug, Parser)]
#[command(name = "carole", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands. A new one is a variant here and a line in `commands::dispatch`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a program's ranks and watch them
    Run(Box<RunArguments>),
    Ps(PsArguments),
    Status(StatusArguments),
    Logs(LogsArguments),
    Stop(StopArguments),
    /// Tell how far this program is: step=10 total=100
    Report {
        /// What to tell, as NAME=VALUE
        #[arg(required = true, value_name = "NAME=VALUE")]
        words: Vec<String>,
    },
    Doctor(DoctorArguments),
    /// Run a torchrun command line
    #[command(disable_help_flag = true)]
    Torchrun(OthersWords),
    /// Run a command line of Open MPI's mpirun
    #[command(disable_help_flag = true)]
    Mpirun(OthersWords),
    /// Run a horovodrun command line
    #[command(disable_help_flag = true)]
    Horovodrun(OthersWords),
    /// Run a kungfu-run command line
    #[command(disable_help_flag = true)]
    KungfuRun(OthersWords),
    Exec(Box<ExecArguments>),
    Goto(Box<GotoArguments>),
    Repo(Box<RepoArguments>),
    /// Measure collectives, and check their results
    Bench(Box<BenchArguments>),
    Tune(TuneArguments),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages to a folder
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: std::path::PathBuf,
    },
    /// Print the version
    Version,
    /// Start, watch and stop the ranks of one host (started by `carole run`)
    #[command(hide = true)]
    Agent {
        /// Say nothing but errors
        #[arg(long)]
        quiet: bool,
        /// Say every step
        #[arg(long)]
        verbose: bool,
    },
    /// Run a command on a host of the job that this is a process of (started by MPIs)
    #[command(hide = true, disable_help_flag = true)]
    RemoteShell(OthersWords),
    /// Compare this binary with what was sent (started by `carole run`)
    #[command(hide = true)]
    SelfCheck {
        /// The digest of what was sent
        digest: String,
    },
    /// Be one rank of a benchmark (started by `carole bench`)
    #[command(hide = true)]
    BenchRank(BenchRankArguments),
    /// Show the page of a job that does not exist
    #[command(hide = true)]
    TuiDemo {
        /// How many ranks it has
        #[arg(long, default_value_t = 4)]
        ranks: usize,
        /// Panic when interrupted
        #[arg(long)]
        panic: bool,
    },
}

/// The words of another launcher's command line, read by its own rules.
#[derive(Debug, Args)]
pub(crate) struct OthersWords {
    /// What its own command takes
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub(crate) words: Vec<OsString>,
}

impl Command {
    /// The level from which logs are shown unless the environment names one. Tuning starts many
    /// jobs, which nobody wants to read about.
    pub(crate) fn log_level(&self) -> Level {
        match self {
            Self::Tune(_) => Level::WARN,
            _ => Level::INFO,
        }
    }
}

/// Why parsing did not lead to a command.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The person asked for help or the version.
    Answer(clap::Error),
    /// The command line is wrong.
    Wrong(Failure),
}

impl Stop {
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Answer(answer) => {
                // Fails only when nobody reads it.
                let _ = answer.print();
                ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(1))
            }
            Self::Wrong(failure) => failure.report(),
        }
    }
}

/// Parses a command line, the program's name first.
pub(crate) fn parse(
    words: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Arguments, Stop> {
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    // Under this name it needs no word: some MPIs take a program only, without arguments.
    let name = words
        .first()
        .and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == shell::NAME) {
        words.insert(1, shell::COMMAND.into());
    }
    Arguments::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Stop::Answer(error),
        _ => Stop::Wrong(wrong(&error)),
    })
}

/// Flags by which people ask for a range of sizes, in one system or another.
const BOUNDS: [&str; 6] = [
    "--min",
    "--max",
    "--min-np",
    "--max-np",
    "--min-ranks",
    "--max-ranks",
];

/// One line that names the thing, and a hint, out of the parser's page.
fn wrong(error: &clap::Error) -> Failure {
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && BOUNDS.contains(&flag.as_str())
    {
        let hint = "-n gives the size from beginning to end";
        return Failure::usage(anyhow!("{flag}: {ELASTIC}")).with_hint(hint);
    }
    let page = error.to_string();
    let first = page.split("\n\n").next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first);
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = || page.lines().map(str::trim);
    // The parser's advice to put an unknown flag after `--` would make a program of it.
    let tip = lines().filter_map(|line| line.strip_prefix("tip: "));
    let tip = tip
        .filter(|tip| !tip.starts_with("to pass"))
        .map(str::to_owned)
        .next();
    let usage = lines().find_map(|line| line.strip_prefix("Usage: "));
    let usage = usage.map(|usage| format!("usage is {usage}"));
    let hint = tip
        .or(usage)
        .unwrap_or_else(|| "--help lists what can be given".to_owned());
    Failure::usage(anyhow!("{message}")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_range_of_sizes_is_refused_by_its_name() {
        for line in [
            ["carole", "run", "--min", "2", "--", "true"],
            ["carole", "run", "--max-np=4", "-n2", "--", "true"],
            ["carole", "run", "-n", "2:4", "--", "true"],
        ] {
            match parse(line) {
                Err(Stop::Wrong(failure)) => {
                    let told = format!("{failure:?}");
                    assert!(told.contains(ELASTIC), "{told}");
                }
                _ => panic!("{line:?} was not refused"),
            }
        }
    }

    #[test]
    fn a_remote_shell_is_known_by_its_word_or_its_name() {
        for line in [
            ["carole", shell::COMMAND, "-x", "b", "--help"].as_slice(),
            &["/run/carole-remote-shell", "-x", "b", "--help"],
        ] {
            match parse(line).unwrap().command {
                Command::RemoteShell(others) => assert_eq!(others.words, ["-x", "b", "--help"]),
                other => panic!("{other:?}"),
            }
        }
    }
}
