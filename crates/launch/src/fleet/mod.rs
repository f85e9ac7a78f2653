//! A job's hosts, from the first connection to the end of the last rank.
//!
//! # Expected flow
//!
//! [`Fleet::connect`] starts an agent on every host, all at once. What the hosts are like may decide
//! how many ranks there are; then [`Fleet::run`] sends the hosts a folder if it is asked to, prepares
//! them, starts the ranks, relays what they print, stops them when one fails or when ordered, and
//! reports.
//!
//! # Guarantees
//!
//! The first failure decides. When a `Fleet` is dropped, or its process is killed, its agents end
//! everything on their hosts.

mod begin;
mod binary;
mod follow;
pub(crate) mod host;
mod link;
mod links;
mod member;
mod pipes;
mod plan;
mod screen;
mod shell;
mod sync;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use carole_coordinator::Token;
use carole_plan::PortRange;
use tokio::sync::mpsc;

use begin::Beginning;
pub use binary::has_digest;
use follow::Following;
pub use host::{AgentCommand, Destination, Host, Way, ssh_words_for_person};
pub(crate) use member::{Member, end_all, join_all};
pub(crate) use plan::addresses;

use crate::environment::{EnvironmentSet, Variable};
use crate::error::Error;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{Output, Stream};
use crate::progress::Progress;
use crate::render::Exception;
use crate::request::{Binding, OutputRequest, Ssh};
use crate::role::{Role, Roles};
use crate::supervision::Verdict;
use crate::sync::SyncProgress;
use crate::usage::{Traffic, Usage};

/// How hosts are reached and agents started.
#[derive(Clone, Debug)]
pub struct Reach {
    /// How to start an agent on this host.
    pub agent: AgentCommand,
    /// The binary that is sent to other hosts.
    pub binary: PathBuf,
    /// How to reach other hosts.
    pub ssh: Ssh,
    /// How long all of them may take.
    pub timeout: Duration,
}

/// What to start, and with what.
#[derive(Clone, Debug)]
pub struct Job {
    /// The job's name.
    pub job: String,
    /// How many processes on each host, in the hosts' order.
    pub ranks: Vec<usize>,
    /// What they are.
    pub roles: Roles,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The same for roles that run another.
    pub commands: Vec<(Role, Vec<OsString>)>,
    /// Which variables the ranks get.
    pub environment: EnvironmentSet,
    /// Further variables, the same for all ranks.
    pub variables: Vec<Variable>,
    /// The folder in which the ranks start, on every host.
    pub folder: Option<PathBuf>,
    /// A folder that is sent to the other hosts; ranks start in it instead.
    pub sync: Option<PathBuf>,
    /// A shell command that runs once on every host first.
    pub setup: Option<String>,
    /// Where the coordinator listens, on this host.
    pub coordinator: SocketAddr,
    /// The job's secret.
    pub token: Token,
    /// Interfaces whose address the ranks use.
    pub interfaces: Vec<String>,
    /// The address for frameworks that meet at rank 0; its host's by default.
    pub master_address: Option<String>,
    /// The port for frameworks that meet at rank 0; one is reserved by default.
    pub master_port: Option<u16>,
    /// The ports that ranks and their frameworks listen on; any by default.
    pub ports: Option<PortRange>,
    /// The cores that ranks are bound to.
    pub bind: Binding,
    /// Each local rank sees its own GPUs only.
    pub isolate_gpus: bool,
    /// How often the ranks were started before.
    pub restart: u32,
    /// How often they may be started again.
    pub max_restarts: u32,
    /// How often to tell what ranks and hosts use, if at all.
    pub usage: Option<Duration>,
    /// How long ranks that were asked to end may take.
    pub grace: Duration,
    /// What becomes of what ranks print.
    pub output: OutputRequest,
    /// Whether it is shown in colours.
    pub colour: bool,
    /// How the ranks run commands on the hosts, if they may. Hosts without a rank then take part
    /// as well.
    pub remote_shell: Option<RemoteShell>,
}

/// A job's [remote shell](crate::shell), as its ranks find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteShell {
    /// The program: it calls [`shell::ask`](crate::shell::ask) when its first word is
    /// [`shell::COMMAND`](crate::shell::COMMAND) or its own name is
    /// [`shell::NAME`](crate::shell::NAME).
    pub program: PathBuf,
    /// The option by which the ranks' program is told their host's address, as the others see it.
    pub address_option: Option<OsString>,
}

impl Job {
    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.ranks.iter().sum()
    }

    /// What processes of a role run.
    fn command_of(&self, role: Role) -> &[OsString] {
        let own = self.commands.iter().find(|(of, _)| *of == role);
        own.map_or(&self.command, |(_, command)| command)
    }
}

/// What whoever runs a job may ask of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A person or the system asks for the end.
    Interrupt(Interrupt),
    /// The job is hopeless, and why.
    GiveUp(String),
}

/// What happens to a job, for whoever follows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A folder is being sent to the hosts.
    Syncing(SyncProgress),
    /// That is over, well or not.
    Synced,
    /// A folder was sent to a host, and this is where it is there.
    Located {
        /// The host.
        host: String,
        /// The folder, in which processes start there.
        folder: PathBuf,
    },
    /// A process of it was started.
    Started {
        /// Which.
        rank: usize,
        /// On which host.
        host: String,
        /// Its number there.
        pid: i32,
    },
    /// A process ended.
    Exited {
        /// Which.
        rank: usize,
        /// How.
        exit: Exit,
    },
    /// A process printed something; told only where a page shows it.
    Printed {
        /// Which.
        rank: usize,
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// A process told how far it is.
    Progress {
        /// Which.
        rank: usize,
        /// How far.
        progress: Progress,
    },
    /// What is used on a host.
    Usage {
        /// Which.
        host: String,
        /// Its processes that run, and what they use.
        ranks: Vec<(usize, Usage)>,
        /// What it receives and sends.
        traffic: Traffic,
    },
    /// A process failed while others run.
    Lost {
        /// Which.
        rank: usize,
        /// How it ended.
        exit: Exit,
    },
}

/// How a job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Why it did not end well, if it did not.
    pub verdict: Option<Verdict>,
    /// The last lines of the rank that failed first.
    pub last_lines: Vec<String>,
    /// The error that those lines tell of, if they do.
    pub exception: Option<Exception>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// The code the launcher should exit with.
    pub fn exit_code(&self) -> i32 {
        self.verdict.as_ref().map_or(0, Verdict::exit_code)
    }
}

/// What a host is like, for deciding how many ranks it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Cores that may be used.
    pub cores: usize,
    /// NVIDIA GPUs.
    pub gpus: usize,
}

/// An agent on every host.
pub struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    /// Starts an agent on every host. If some cannot take part, the others' end.
    pub async fn connect(hosts: &[Host], reach: &Reach) -> Result<Self, Error> {
        let (mut members, mut problems) = (Vec::new(), Vec::new());
        for joined in join_all(hosts, reach).await? {
            match joined {
                Ok(member) => members.push(member),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(Self { members })
        } else {
            end_all(members).await;
            Err(Error::Hosts(problems))
        }
    }

    /// What the hosts are like, in their order.
    pub fn facts(&self) -> Vec<Facts> {
        let facts = |member: &Member| Facts {
            cores: member.hello.cores,
            gpus: member.hello.gpus,
        };
        self.members.iter().map(facts).collect()
    }

    /// Runs a job to its end. `on_event` is told what happens to it.
    pub async fn run(
        mut self,
        job: &Job,
        output: Output,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut on_event: impl FnMut(Event),
    ) -> Result<Report, Error> {
        match self.begin(job, &output, &mut orders, &mut on_event).await {
            Ok(Beginning::Begun(begun)) => {
                let following = Following::new(self.members, *begun, job, on_event);
                Ok(following.run(output, orders).await)
            }
            Ok(Beginning::Ended(verdict)) => {
                end_all(self.members).await;
                Ok(Report {
                    verdict: Some(verdict),
                    ..Report::default()
                })
            }
            Err(error) => {
                end_all(self.members).await;
                Err(error)
            }
        }
    }
}
