//! What a person asks for, whichever command line it was written on.
//!
//! `carole run`, a job file and the command lines of other launchers all come to a [`Request`].
//! Nothing here parses or resolves: hosts are still where they are to be found, and a number of
//! ranks may depend on them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use carole_plan::PortRange;
use serde::{Deserialize, Serialize};

use crate::environment::EnvironmentSet;

/// A job to be launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The job's name; one is made up if there is none.
    pub name: Option<String>,
    /// Where it runs.
    pub hosts: Hosts,
    /// How many slots a host has whose number is not written.
    pub default_slots: DefaultSlots,
    /// How many ranks, and where.
    pub ranks: Ranks,
    /// More ranks than slots are allowed.
    pub oversubscribe: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables that every rank gets, beside those of its place. Without a value the launcher's
    /// own value is passed on.
    pub variables: Vec<(String, Option<String>)>,
    /// Which variables of other systems the ranks get.
    pub environment: EnvironmentSet,
    /// Parameter servers, a chief and evaluators beside the ranks.
    pub parameter_servers: ParameterServers,
    /// The folder in which the ranks start; the launcher's own by default.
    pub folder: Option<PathBuf>,
    /// A folder that is sent to every host, where the ranks then start.
    pub sync: Option<PathBuf>,
    /// A shell command that runs once on every host before the ranks start.
    pub setup: Option<String>,
    /// How hosts are reached.
    pub ssh: Ssh,
    /// How ranks reach one another.
    pub network: Network,
    /// What becomes of what the ranks print.
    pub output: OutputRequest,
    /// The cores that a rank is bound to.
    pub bind: Binding,
    /// Each local rank sees its own accelerators only.
    pub isolate_gpus: bool,
    /// The installed MPI starts the ranks and wires them up.
    pub mpi: bool,
    /// How often the ranks may be started again after a failure.
    pub max_restarts: u32,
    /// How long hosts and ranks may take to start.
    pub start_timeout: Duration,
    /// How long ranks that were asked to end may take.
    pub grace: Duration,
    /// The job is stopped after this long.
    pub deadline: Option<Duration>,
    /// The algorithm table to use, as `carole tune` writes it.
    pub table: Option<PathBuf>,
    /// Where a timeline of rank 0 is written.
    pub timeline: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            name: None,
            hosts: Hosts::Here,
            default_slots: DefaultSlots::default(),
            ranks: Ranks::Slots,
            oversubscribe: false,
            command: Vec::new(),
            variables: Vec::new(),
            environment: EnvironmentSet::All,
            parameter_servers: ParameterServers::default(),
            folder: None,
            sync: None,
            setup: None,
            ssh: Ssh::default(),
            network: Network::default(),
            output: OutputRequest::default(),
            bind: Binding::None,
            isolate_gpus: false,
            mpi: false,
            max_restarts: 0,
            start_timeout: Duration::from_secs(120),
            grace: Duration::from_secs(10),
            deadline: None,
            table: None,
            timeline: None,
        }
    }
}

/// Where the host list comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// This machine only.
    Here,
    /// As written after `-H`: `a:4,user@b:4`.
    List(String),
    /// A host file.
    File(PathBuf),
    /// A program that prints hosts, one a line.
    Script(PathBuf),
    /// The batch system that this process runs under.
    Batch(BatchSystem),
}

/// Systems that hand hosts to a job in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSystem {
    /// `SLURM_JOB_NODELIST` and `SLURM_TASKS_PER_NODE`.
    Slurm,
    /// `PBS_NODEFILE`.
    Pbs,
    /// `LSB_DJOB_HOSTFILE` or `LSB_MCPU_HOSTS`.
    Lsf,
    /// `CAROLE_HOSTS`, as after `-H`.
    Environment,
}

/// The slots of a host whose number is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultSlots {
    /// This many.
    Number(u16),
    /// As many as the host has cores.
    Cores,
}

impl Default for DefaultSlots {
    fn default() -> Self {
        Self::Number(1)
    }
}

/// How many ranks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// One for each slot of the hosts; one on this machine alone.
    Slots,
    /// This many in all, filling the hosts' slots in their order.
    Total(usize),
    /// This many on every host.
    PerHost(usize),
    /// One for each core of every host.
    PerCore,
    /// One for each GPU of every host.
    PerGpu,
    /// One for each GPU, or for each core where a host has none.
    PerDevice,
}

/// What `ParameterServer` jobs have beside workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterServers {
    /// How many parameter servers; none makes the job an all-reduce one.
    pub servers: usize,
    /// One more task, the chief, which leads the workers.
    pub chief: bool,
    /// One more task, which evaluates.
    pub evaluator: bool,
    /// What parameter servers run, if it is not what workers run.
    pub server_command: Option<Vec<OsString>>,
    /// What the chief runs, if it is not what workers run.
    pub chief_command: Option<Vec<OsString>>,
    /// What the evaluator runs, if it is not what workers run.
    pub evaluator_command: Option<Vec<OsString>>,
}

/// How hosts are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ssh {
    /// The user, unless a host names one.
    pub user: Option<String>,
    /// The port, unless a host names one.
    pub port: Option<u16>,
    /// The key to use.
    pub identity: Option<PathBuf>,
    /// Further options for `ssh`, each as after `-o`.
    pub options: Vec<String>,
    /// Host keys are not checked.
    pub trust_any_host: bool,
}

impl Ssh {
    /// With what `other` says where this says nothing.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        self.user = self.user.or_else(|| other.user.clone());
        self.port = self.port.or(other.port);
        self.identity = self.identity.or_else(|| other.identity.clone());
        // With SSH the first value of an option counts.
        self.options.extend_from_slice(&other.options);
        self.trust_any_host |= other.trust_any_host;
        self
    }
}

/// How ranks reach one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Network interfaces to use, the first that a host has.
    pub interfaces: Vec<String>,
    /// The address under which rank 0's host is reached, where it was given.
    pub master_address: Option<String>,
    /// The port for frameworks that meet at rank 0, where it was given.
    pub master_port: Option<u16>,
    /// The ports that ranks and their frameworks listen on; any without them.
    pub ports: Option<PortRange>,
}

/// What becomes of what the ranks print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRequest {
    /// Where it is shown.
    pub terminal: Terminal,
    /// A folder for a file of each rank's each stream.
    pub log_folder: Option<PathBuf>,
    /// Which streams of which ranks go to files only.
    pub redirect: Streams,
    /// Which streams of which ranks go to files and to the terminal.
    pub tee: Streams,
    /// Local ranks whose output is shown; all if empty.
    pub only_local_ranks: Vec<usize>,
    /// Whose line it is stands in front of it.
    pub prefix: bool,
    /// Lines that many ranks print at about the same time become one.
    pub collapse: bool,
    /// What Carole itself says.
    pub talk: Talk,
}

impl Default for OutputRequest {
    fn default() -> Self {
        Self {
            terminal: Terminal::Current,
            log_folder: None,
            redirect: Streams::default(),
            tee: Streams::default(),
            only_local_ranks: Vec::new(),
            prefix: true,
            collapse: true,
            talk: Talk::Usual,
        }
    }
}

/// Where output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The terminal that the launcher runs in.
    Current,
    /// Files only.
    Files,
    /// A session of tmux for each host, with a window for each rank.
    Tmux,
    /// A page of the terminal with hosts, ranks and logs.
    Tui,
}

/// What Carole itself says of a job; how it failed is always told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Talk {
    /// Nothing: only what the ranks print is shown.
    Quiet,
    /// What the environment asks for, else what changes.
    #[default]
    Usual,
    /// Every step.
    Verbose,
}

/// Streams of local ranks, as torchrun writes them: `3`, or `0:1,1:2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// For every rank that is not named.
    pub others: StreamSet,
    /// For the local ranks that are.
    pub named: Vec<(usize, StreamSet)>,
}

/// Some of a process's two streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSet {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

/// The cores that a rank is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Any.
    #[default]
    None,
    /// An equal share of the host's cores.
    Core,
    /// The cores of one NUMA node, the ranks spread over the nodes.
    Numa,
}
