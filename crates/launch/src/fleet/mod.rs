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

mod binary;
pub(crate) mod host;
mod link;
mod links;
mod pipes;
mod plan;
mod screen;
mod shell;
mod sync;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carole_coordinator::Token;
use carole_plan::PortRange;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

pub use binary::has_digest;
pub use host::{AgentCommand, Destination, Host, Way, ssh_words_for_person};
use link::{Incoming, Link, Means};
use links::Links;
pub(crate) use plan::addresses;

use crate::channel::message::{
    Hello, HostUsage, Order as AgentOrder, PROTOCOL, Report as AgentReport, Signal, Word,
};
use crate::environment::{EnvironmentSet, Variable};
use crate::error::{Error, HostProblem};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{Output, Stream};
use crate::progress::Progress;
use crate::relay;
use crate::render::Exception;
use crate::request::{Binding, OutputRequest, Ssh, Terminal};
use crate::role::{Role, Roles};
use crate::supervision::{Action, Supervision, Verdict};
use crate::sync::SyncProgress;
use crate::usage::{Traffic, Usage};
use screen::{Screen, earlier};
use shell::Shells;

/// How long output may take once it was given up.
const LAST_OUTPUT: Duration = Duration::from_millis(100);
/// How long an agent that has nothing to do may take to end.
const LAST_WORD: Duration = Duration::from_secs(2);

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

/// One host and its agent.
pub(crate) struct Member {
    pub(crate) host: Host,
    link: Link,
    pub(crate) hello: Hello,
    /// What ranks printed before their agent told that they were started.
    early: Vec<Incoming>,
}

/// What came of starting the ranks.
enum Beginning {
    Begun(Box<Begun>),
    /// It was given up before.
    Ended(Verdict),
}

/// A job whose ranks were started.
struct Begun {
    /// How many, by host.
    ranks: Vec<usize>,
    /// Each rank's host.
    hosts: Vec<String>,
    screen: Screen,
    shells: Option<Shells>,
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
            Ok(Beginning::Begun(begun)) => self.follow(*begun, job, output, orders, on_event).await,
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

    /// Prepares the hosts and starts the ranks.
    async fn begin(
        &mut self,
        job: &Job,
        output: &Output,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Beginning, Error> {
        let mut ranks = job.ranks.clone();
        if job.remote_shell.is_none() {
            // Hosts that get no rank have nothing to do.
            let mut counts = job.ranks.iter();
            self.members
                .retain(|_| counts.next().is_some_and(|ranks| *ranks > 0));
            ranks.retain(|count| *count > 0);
        }
        let folders = tokio::select! {
            folders = self.folders(job, on_event) => folders?,
            verdict = ordered_to_end(orders) => return Ok(Beginning::Ended(verdict)),
        };
        let prepared = self.prepare(job, &ranks, &folders).await?;
        let mut starts = plan::starts(job, &ranks, &self.members, &prepared)?;
        let shells = match &job.remote_shell {
            Some(shell) => {
                let shells = Shells::open(&shell.program, job, &self.members, &prepared)?;
                for (start, host) in starts.iter_mut().zip(&prepared) {
                    let words = shell.address_option.as_deref().map(|option| {
                        let address = host.address.to_string();
                        [Word::from(option), Word::Text(address)]
                    });
                    for rank in &mut start.ranks {
                        rank.variables.extend(shells.variables());
                        let words = words.clone().into_iter().flatten();
                        rank.arguments.splice(0..0, words);
                    }
                }
                Some(shells)
            }
            None => None,
        };
        let hosts = self.rank_hosts(&ranks);
        let local: Vec<usize> = ranks.iter().flat_map(|count| 0..*count).collect();
        let screen = Screen::new(&job.output, job.colour, &job.roles, &hosts, &local, output)?;
        for (member, start) in self.members.iter().zip(starts) {
            member.link.order(AgentOrder::Start(start)).await;
        }
        for event in self.started(job, &ranks).await? {
            on_event(event);
        }
        info!(job = job.job, size = job.size(), "ranks started");
        Ok(Beginning::Begun(Box::new(Begun {
            ranks,
            hosts,
            screen,
            shells,
        })))
    }

    /// Watches the ranks to their end.
    async fn follow(
        self,
        begun: Begun,
        job: &Job,
        output: Output,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut on_event: impl FnMut(Event),
    ) -> Result<Report, Error> {
        let Begun {
            ranks,
            hosts,
            mut screen,
            shells,
        } = begun;
        let started = Instant::now();
        let mut supervision = Supervision::new(job.size(), job.grace)
            .on_hosts(hosts)
            .with_roles(job.roles);
        // Ranks of which something may be left, or to be printed.
        let mut open: BTreeSet<usize> = (0..job.size()).collect();
        let names: Vec<String> = self.members.iter().map(|m| m.host.name.clone()).collect();
        let mut links = Links::new(self.members);
        let mut orders_open = true;
        let mut abandoned = false;
        while !abandoned && !open.is_empty() {
            let wake_at = earlier(
                supervision.wake_at().map(|at| started + at),
                screen.wake_at(),
            );
            let timer = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let now = || started.elapsed();
            let actions = tokio::select! {
                event = links.next() => match event {
                    Some((_, incoming)) if incoming.rank() >= Some(job.size()) => {
                        if let Some(shells) = &shells {
                            shells.deliver(incoming);
                        }
                        continue;
                    }
                    Some((_, Incoming::Printed { rank, stream, bytes })) => {
                        screen.print(rank, stream, &bytes);
                        if job.output.terminal == Terminal::Tui {
                            on_event(Event::Printed { rank, stream, bytes });
                        } else {
                            relay::recycle(bytes);
                        }
                        continue;
                    }
                    Some((_, Incoming::Report(AgentReport::Exited { rank, exit }))) => {
                        debug!(rank, %exit, "rank ended");
                        on_event(Event::Exited { rank, exit });
                        supervision.exited(now(), rank, exit)
                    }
                    Some((_, Incoming::Report(AgentReport::Progress { rank, progress }))) => {
                        on_event(Event::Progress { rank, progress });
                        continue;
                    }
                    Some((index, Incoming::Report(AgentReport::Usage(usage)))) => {
                        let host = names[index].clone();
                        let HostUsage { ranks, traffic } = usage;
                        on_event(Event::Usage { host, ranks, traffic });
                        continue;
                    }
                    Some((_, Incoming::Report(AgentReport::Drained { rank, .. }))) => {
                        screen.finish(rank);
                        open.remove(&rank);
                        continue;
                    }
                    Some((_, Incoming::Report(other))) => {
                        debug!(?other, "an unexpected report");
                        continue;
                    }
                    Some((index, Incoming::Ended(problem))) => {
                        let first = ranks[..index].iter().sum::<usize>();
                        let lost = first..first + ranks[index];
                        open.retain(|rank| !lost.contains(rank));
                        if let Some(shells) = &shells {
                            shells.lost(index, &problem);
                        }
                        let HostProblem { host, problem, .. } = problem;
                        let reason = format!("lost {host}: {problem}");
                        match ranks[index] {
                            // What the others started there is gone.
                            0 => supervision.give_up(now(), reason),
                            _ => supervision.lost(now(), lost, reason),
                        }
                    }
                    None => break,
                },
                order = orders.recv(), if orders_open => match order {
                    Some(Order::Interrupt(interrupt)) => supervision.interrupt(now(), interrupt),
                    Some(Order::GiveUp(reason)) => supervision.give_up(now(), reason),
                    None => {
                        orders_open = false;
                        continue;
                    }
                },
                () = timer => {
                    screen.tick();
                    supervision.tick(now())
                }
            };
            for action in actions {
                let running = supervision.running().len();
                let signal = match action {
                    Action::ReportLost { rank, exit } => {
                        on_event(Event::Lost { rank, exit });
                        continue;
                    }
                    Action::Terminate(reason) => {
                        let grace = format!("{:.1} s", job.grace.as_secs_f64());
                        warn!(reason, running, grace, "stopping the ranks that run");
                        Signal::Terminate
                    }
                    Action::Kill(reason) => {
                        warn!(reason, running, "killing the ranks that run");
                        Signal::Kill
                    }
                    Action::Abandon => {
                        abandoned = true;
                        continue;
                    }
                };
                for (link, ranks) in links.links.iter().zip(&ranks) {
                    // What ranks started elsewhere is theirs to end, in their own way.
                    if *ranks > 0 || signal == Signal::Kill {
                        link.order(AgentOrder::Signal(signal)).await;
                    }
                }
            }
        }
        let elapsed = started.elapsed();
        links.order(&AgentOrder::End).await;
        let ending = async {
            // Each agent's last event comes when nothing is left on its host.
            while links.next().await.is_some() {}
        };
        let _ = tokio::time::timeout(job.grace, ending).await;
        let verdict = supervision.verdict().cloned();
        screen.end();
        let (last_lines, exception) = match &verdict {
            Some(Verdict::Failed { rank, .. }) => {
                (screen.last_lines(*rank), screen.exception(*rank))
            }
            _ => (Vec::new(), None),
        };
        drop(screen);
        output.finish(abandoned.then_some(LAST_OUTPUT)).await;
        Ok(Report {
            verdict,
            last_lines,
            exception,
            elapsed,
        })
    }

    /// The host of every rank, in words, where there is more than one.
    fn rank_hosts(&self, ranks: &[usize]) -> Vec<String> {
        if ranks.iter().filter(|count| **count > 0).count() < 2 {
            return Vec::new();
        }
        let each = self.members.iter().zip(ranks);
        each.flat_map(|(member, ranks)| std::iter::repeat_n(member.host.name.clone(), *ranks))
            .collect()
    }

    /// Where ranks start, for each host; what is to be sent is sent for that.
    async fn folders(
        &mut self,
        job: &Job,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Vec<Option<PathBuf>>, Error> {
        match &job.sync {
            Some(root) => {
                let folders = self.send_folder(root, on_event).await?;
                Ok(folders.into_iter().map(Some).collect())
            }
            None => Ok(vec![job.folder.clone(); self.members.len()]),
        }
    }

    /// Has every host prepare, and waits for all.
    async fn prepare(
        &mut self,
        job: &Job,
        ranks: &[usize],
        folders: &[Option<PathBuf>],
    ) -> Result<Vec<plan::Prepared>, Error> {
        for (index, member) in self.members.iter().enumerate() {
            member.link.serve_coordinator(job.coordinator);
            let order = plan::prepare(
                job,
                &member.host,
                folders[index].as_deref(),
                ranks[index],
                index == 0,
            );
            member.link.order(AgentOrder::Prepare(order)).await;
        }
        let mut prepared = Vec::new();
        let mut problems = Vec::new();
        for member in &mut self.members {
            match member.next_report().await {
                Ok(AgentReport::Prepared(one)) => prepared.push(one),
                Ok(AgentReport::Refused(problem)) => problems.push(member.problem(problem)),
                Ok(other) => problems.push(member.problem(format!("it reported {other:?}"))),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Hosts(problems));
        }
        let told: Vec<_> = prepared
            .iter()
            .zip(&self.members)
            .map(|(one, member)| (&member.host.way, one.address, one.launcher))
            .collect();
        let addresses = plan::addresses(&told, !job.interfaces.is_empty());
        Ok(prepared
            .into_iter()
            .zip(addresses)
            .map(|(one, address)| plan::Prepared {
                address,
                ports: one.ports,
                coordinator: one.coordinator.map_or(job.coordinator, |port| {
                    (IpAddr::from([127, 0, 0, 1]), port).into()
                }),
                token_file: one.token_file.into(),
            })
            .collect())
    }

    /// Waits until every host has started its ranks.
    async fn started(&mut self, job: &Job, ranks: &[usize]) -> Result<Vec<Event>, Error> {
        let mut problems = Vec::new();
        let mut events = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let first: usize = ranks[..index].iter().sum();
            match member.next_report().await {
                Ok(AgentReport::Started(pids)) => {
                    events.extend(pids.into_iter().enumerate().map(|(local, pid)| {
                        Event::Started {
                            rank: first + local,
                            host: member.host.name.clone(),
                            pid,
                        }
                    }));
                }
                Ok(AgentReport::NotStarted { rank, problem }) => {
                    return Err(Error::Spawn {
                        rank,
                        host: member.host.name.clone(),
                        program: job.command_of(job.roles.task(rank).role)[0]
                            .to_string_lossy()
                            .into_owned(),
                        problem,
                    });
                }
                Ok(other) => problems.push(member.problem(format!("it reported {other:?}"))),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(events)
        } else {
            Err(Error::Hosts(problems))
        }
    }
}

/// Waits until somebody wants the job to end before it has begun.
async fn ordered_to_end(orders: &mut mpsc::UnboundedReceiver<Order>) -> Verdict {
    match orders.recv().await {
        Some(Order::Interrupt(interrupt)) => Verdict::Interrupted(interrupt),
        Some(Order::GiveUp(reason)) => Verdict::GivenUp(reason),
        None => std::future::pending().await,
    }
}

impl Member {
    /// Gives an order and waits for the report that answers it.
    pub(crate) async fn ask(
        &mut self,
        order: AgentOrder,
        limit: Duration,
    ) -> Result<AgentReport, HostProblem> {
        self.link.order(order).await;
        match tokio::time::timeout(limit, self.next_report()).await {
            Ok(report) => report,
            Err(_) => Err(self.problem(format!("no answer after {:.0} s", limit.as_secs_f64()))),
        }
    }

    /// Ends the agent, and waits for that a little.
    pub(crate) async fn end(mut self) {
        self.link.order(AgentOrder::End).await;
        let ended = async { while self.link.incoming.recv().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORD, ended).await;
    }

    async fn next_report(&mut self) -> Result<AgentReport, HostProblem> {
        loop {
            match self.link.incoming.recv().await {
                Some(Incoming::Report(report)) => return Ok(report),
                Some(Incoming::Ended(problem)) => return Err(problem),
                Some(printed @ Incoming::Printed { .. }) => self.early.push(printed),
                None => return Err(self.problem("its agent is gone".into())),
            }
        }
    }

    pub(crate) fn problem(&self, problem: String) -> HostProblem {
        HostProblem {
            host: self.host.name.clone(),
            hint: host::hint(&problem, &self.host.name),
            problem,
        }
    }
}

/// Ends agents, and waits for that a little.
pub(crate) async fn end_all(members: impl IntoIterator<Item = Member>) {
    let ending: JoinSet<()> = members.into_iter().map(Member::end).collect();
    ending.join_all().await;
}

/// Starts an agent on every host, all at once; in the hosts' order, who takes part or why not.
pub(crate) async fn join_all(
    hosts: &[Host],
    reach: &Reach,
) -> Result<Vec<Result<Member, HostProblem>>, Error> {
    let remote = hosts.iter().any(|host| host.way != Way::Here);
    let binary = remote
        .then(|| {
            binary::Binary::find(&reach.binary, &binary::memory()).map_err(|source| {
                Error::Unreadable {
                    path: reach.binary.clone(),
                    source,
                }
            })
        })
        .transpose()?;
    let means = Means {
        agent: reach.agent.clone(),
        ssh: reach.ssh.clone(),
        binary,
        connect_seconds: reach.timeout.as_secs(),
    };
    let mut joining = JoinSet::new();
    for (index, host) in hosts.iter().cloned().enumerate() {
        let (means, limit) = (means.clone(), reach.timeout);
        joining.spawn(async move {
            let joined = tokio::time::timeout(limit, join(&host, &means)).await;
            let late = || HostProblem {
                host: host.name.clone(),
                problem: format!("no answer after {:.0} s", limit.as_secs_f64()),
                hint: host::hint("timed out", &host.name),
            };
            (index, joined.unwrap_or_else(|_| Err(late())))
        });
    }
    let mut all = Vec::new();
    while let Some(joined) = joining.join_next().await {
        all.push(joined.map_err(|error| Error::Internal(error.to_string()))?);
    }
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, joined)| joined).collect())
}

/// Starts an agent and waits for its first report.
async fn join(host: &Host, means: &Means) -> Result<Member, HostProblem> {
    let link = Link::open(host, means).await?;
    let mut member = Member {
        host: host.clone(),
        link,
        hello: Hello {
            protocol: 0,
            version: String::new(),
            cores: 0,
            nodes: Vec::new(),
            gpus: 0,
        },
        early: Vec::new(),
    };
    match member.next_report().await? {
        AgentReport::Hello(hello) if hello.protocol == PROTOCOL => {
            member.hello = hello;
            Ok(member)
        }
        AgentReport::Hello(hello) => {
            let problem = format!("its agent is version {}", hello.version);
            Err(member.problem(problem))
        }
        other => Err(member.problem(format!("it began with {other:?}"))),
    }
}
