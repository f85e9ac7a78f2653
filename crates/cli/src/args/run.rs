//! The arguments of `carole run`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use carole_launch::EnvironmentSet;
use carole_launch::request::{
    Binding, DefaultSlots, Network, OutputRequest, ParameterServers, Ranks, Request, Talk, Terminal,
};
use carole_plan::PortRange;
use clap::{Args, ValueEnum};

use super::{PlaceArguments, duration};
use crate::failure::Failure;
use crate::fronts::ELASTIC;

/// Start a program's ranks, on this host or on many, and watch them until they end.
///
/// The first rank that fails decides: the others are stopped and its exit code is passed on. The
/// first Ctrl-C asks the ranks to end, the second kills them. Hosts are reached by ssh and need
/// nothing installed but its server.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct RunArguments {
    /// A job file (job.yaml) instead of a program
    #[arg(value_name = "JOB.yaml", conflicts_with = "command")]
    pub(crate) job: Vec<OsString>,

    /// How many ranks to start; one for each slot of the hosts by default
    #[arg(short = 'n', long = "ranks", alias = "workers", value_name = "N", value_parser = ranks)]
    pub(crate) ranks: Option<u16>,

    /// How many ranks to start on every host: a number, `cpu`, `gpu` or `auto`
    #[arg(long, value_name = "N", conflicts_with = "ranks", value_parser = per_node)]
    pub(crate) nproc_per_node: Option<Ranks>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Allow more ranks than slots
    #[arg(long)]
    pub(crate) oversubscribe: bool,

    /// The job's name; a new one is made up by default
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub(crate) name: Option<String>,

    /// Which variables the ranks get beside those they inherit
    #[arg(long, value_name = "SET", value_enum, default_value_t)]
    pub(crate) env: EnvironmentChoice,

    /// A variable for every rank: NAME=VALUE, or NAME to pass this process's own on
    #[arg(short = 'x', long = "variable", value_name = "NAME[=VALUE]")]
    pub(crate) variables: Vec<String>,

    /// The folder in which the ranks start; this one by default
    #[arg(long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,

    /// Send this folder to the hosts, without what git ignores, and start the ranks in it
    #[arg(long, value_name = "DIR")]
    pub(crate) sync: Option<PathBuf>,

    /// A shell command to run once on every host before the ranks start
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,

    /// The network interfaces that ranks use, the first that a host has
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) network_interfaces: Vec<String>,

    /// The port for frameworks that meet at rank 0; a free one by default
    #[arg(long, value_name = "PORT")]
    pub(crate) master_port: Option<u16>,

    /// The ports that ranks and their frameworks listen on, on every host: two for each rank, and two
    /// more on the first host; any free ones by default
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) ports: Option<PortRange>,

    /// Bind each rank to cores
    #[arg(long, value_name = "TO", value_enum, default_value_t)]
    pub(crate) bind: BindChoice,

    /// Let each local rank see its own GPUs only
    #[arg(long)]
    pub(crate) isolate_gpus: bool,

    /// Keep what each rank prints in files of this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) log_dir: Option<PathBuf>,

    /// Where output is shown
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        default_value_t,
        help_heading = "Output"
    )]
    pub(crate) terminal: TerminalChoice,

    /// Show a line that many ranks print at about the same time as often as they do
    #[arg(long, help_heading = "Output")]
    pub(crate) no_collapse: bool,

    /// Do not say whose a line is
    #[arg(long, help_heading = "Output")]
    pub(crate) no_prefix: bool,

    /// Say nothing but what the ranks print, and how the job failed
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Go on in the background, and print the job's name once it runs
    #[arg(long)]
    pub(crate) detach: bool,

    /// How often all ranks may be started again after a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_restarts: u32,

    /// Choose algorithms by this table, as `carole tune` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,

    /// How long hosts may take to answer, and how long to wait for the other ranks once one has
    /// registered with the coordinator
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration::parse)]
    pub(crate) timeout_start: Duration,

    /// How long ranks that were asked to end may take before they are killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// Parameter servers beside the ranks, which are then the workers
    #[arg(long, value_name = "N", default_value_t = 0, requires = "ranks")]
    pub(crate) ps: u16,

    /// A chief beside the workers
    #[arg(long, requires = "ps")]
    pub(crate) chief: bool,

    /// An evaluator beside the workers
    #[arg(long, requires = "ps")]
    pub(crate) evaluator: bool,

    /// Let the installed MPI start the ranks and wire them up
    #[arg(long)]
    pub(crate) mpi: bool,

    /// Stop the job after this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) deadline: Option<Duration>,

    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

impl RunArguments {
    /// The job file, if that is what was given.
    pub(crate) fn job_file(&self) -> Result<Option<PathBuf>, Failure> {
        let [first, rest @ ..] = &self.job[..] else {
            if self.command.is_empty() {
                let error = anyhow!("it is not said what to run");
                let hint = "carole run -n 4 -- PROGRAM, or carole run job.yaml";
                return Err(Failure::usage(error).with_hint(hint));
            }
            return Ok(None);
        };
        let path = PathBuf::from(first);
        let known = ["yaml", "yml", "json"];
        if rest.is_empty()
            && path
                .extension()
                .is_some_and(|end| known.iter().any(|k| end == *k))
        {
            return Ok(Some(path));
        }
        let words = self.job.join(OsStr::new(" "));
        let error = anyhow!("{} is no job file (.yaml)", first.display());
        let hint = format!(
            "a program stands behind --: carole run -- {}",
            words.display()
        );
        Err(Failure::usage(error).with_hint(hint))
    }

    /// What is asked for.
    pub(crate) fn into_request(self) -> Result<Request, Failure> {
        let hosts = self.place.hosts();
        let others = usize::from(self.ps) + usize::from(self.chief) + usize::from(self.evaluator);
        let ranks = match (self.ranks, self.nproc_per_node) {
            (Some(ranks), _) => Ranks::Total(usize::from(ranks) + others),
            (None, Some(per_node)) => per_node,
            (None, None) => Ranks::Slots,
        };
        let variables = self.variables.iter().map(|text| variable(text));
        Ok(Request {
            name: self.name,
            hosts,
            ranks,
            default_slots: DefaultSlots::default(),
            oversubscribe: self.oversubscribe,
            command: self.command,
            variables: variables.collect::<Result<_, _>>()?,
            environment: match self.env {
                EnvironmentChoice::All => EnvironmentSet::All,
                EnvironmentChoice::None => EnvironmentSet::Carole,
            },
            parameter_servers: ParameterServers {
                servers: self.ps.into(),
                chief: self.chief,
                evaluator: self.evaluator,
                ..ParameterServers::default()
            },
            folder: self.workdir,
            sync: self.sync,
            setup: self.setup,
            ssh: self.place.ssh(),
            network: Network {
                interfaces: self.network_interfaces,
                master_port: self.master_port,
                ports: self.ports,
                ..Network::default()
            },
            output: OutputRequest {
                terminal: self.terminal.into(),
                log_folder: self.log_dir,
                collapse: !self.no_collapse,
                prefix: !self.no_prefix,
                talk: if self.quiet { Talk::Quiet } else { Talk::Usual },
                ..OutputRequest::default()
            },
            bind: self.bind.into(),
            isolate_gpus: self.isolate_gpus,
            mpi: self.mpi,
            max_restarts: self.max_restarts,
            start_timeout: self.timeout_start,
            grace: self.grace,
            deadline: self.deadline,
            table: self.table,
            timeline: None,
        })
    }
}

fn variable(text: &str) -> Result<(String, Option<String>), Failure> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() || name.contains('\0') {
        let error = anyhow!("-x {text:?} names no variable");
        return Err(Failure::usage(error).with_hint("write -x NAME=VALUE, or -x NAME"));
    }
    Ok((name.to_owned(), value))
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

/// The values of `--terminal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TerminalChoice {
    /// In this terminal
    #[default]
    Current,
    /// Nowhere: --log-dir keeps it
    Files,
    /// In tmux, a session for each host with a window for each rank
    Tmux,
    /// On a page of this terminal, with hosts, ranks, what they use, and logs
    Tui,
}

impl From<TerminalChoice> for Terminal {
    fn from(choice: TerminalChoice) -> Self {
        match choice {
            TerminalChoice::Current => Self::Current,
            TerminalChoice::Files => Self::Files,
            TerminalChoice::Tmux => Self::Tmux,
            TerminalChoice::Tui => Self::Tui,
        }
    }
}

/// The values of `--bind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BindChoice {
    /// To none
    #[default]
    None,
    /// To an equal share of the host's cores
    Core,
    /// To the cores of one NUMA node
    Numa,
}

impl From<BindChoice> for Binding {
    fn from(choice: BindChoice) -> Self {
        match choice {
            BindChoice::None => Self::None,
            BindChoice::Core => Self::Core,
            BindChoice::Numa => Self::Numa,
        }
    }
}

fn ranks(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least one rank".to_owned()),
        Ok(ranks) => Ok(ranks),
        Err(_) if text.split_once(':').is_some_and(is_range) => Err(format!(
            "{ELASTIC}; one number is the size from beginning to end"
        )),
        Err(_) => Err("a number of ranks is from 1 to 65535".to_owned()),
    }
}

/// Whether these are the bounds of a size: `2` and `4`.
fn is_range((least, most): (&str, &str)) -> bool {
    [least, most]
        .iter()
        .all(|bound| bound.parse::<u16>().is_ok())
}

fn per_node(text: &str) -> Result<Ranks, String> {
    match text {
        "cpu" => Ok(Ranks::PerCore),
        "gpu" => Ok(Ranks::PerGpu),
        "auto" => Ok(Ranks::PerDevice),
        _ => ranks(text).map(|ranks| Ranks::PerHost(usize::from(ranks))),
    }
}

pub(crate) fn job_name(text: &str) -> Result<String, String> {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain && (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("a name has 1 to 63 lower-case letters, digits and dashes between them".to_owned())
}
