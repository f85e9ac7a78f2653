//! A job whose ranks all run on this host.

use std::ffi::OsString;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use carole_coordinator::Token;
use carole_plan::PeerId;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::environment::{EnvironmentSet, RankEnvironment, Variable};
use crate::error::Error;
use crate::exit::Exit;
use crate::guard::{Guard, GuardCommand};
use crate::interrupt::Interrupt;
use crate::output::{Output, Piece, Stream};
use crate::place::Place;
use crate::ports::ReservedPorts;
use crate::private::{self, PrivateFolder};
use crate::process::{Group, Process};
use crate::random::random_incarnation;
use crate::relay::{self, Relay, SharedTail};
use crate::supervision::{Action, Supervision, Verdict};

/// The host's name in a plan of one host.
const HOST: &str = "localhost";
/// How ranks on one host reach each other.
const LOOPBACK: &str = "127.0.0.1";
/// The role of ranks that were given no other.
const ROLE: &str = "worker";
/// How long processes that a rank left behind may go on: Python's resource tracker, for one, needs
/// a moment after its parent to clean up.
const LINGER: Duration = Duration::from_secs(1);
/// How long the pipes of a rank may stay open after its group was killed.
const AFTER_KILL: Duration = Duration::from_millis(500);
/// How long output may take once it was given up.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// What to start, and with what.
#[derive(Clone, Debug)]
pub struct LocalJob {
    /// The job's name.
    pub job: String,
    /// How many ranks.
    pub size: usize,
    /// The program every rank runs.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Which variables the ranks get.
    pub environment: EnvironmentSet,
    /// Further variables, the same for all ranks.
    pub variables: Vec<Variable>,
    /// The coordinator's address, `http://HOST:PORT`.
    pub coordinator: String,
    /// The job's secret.
    pub token: Token,
    /// How long ranks that were asked to end may take.
    pub grace: Duration,
    /// How to start the process that cleans up if this one is killed; none for no guard.
    pub guard: Option<GuardCommand>,
}

/// What whoever runs a job may ask of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A person or the system asks for the end.
    Interrupt(Interrupt),
    /// The job is hopeless, and why.
    GiveUp(String),
}

/// A rank that failed while others run, for the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which rank.
    pub rank: usize,
    /// How it ended.
    pub exit: Exit,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Why it did not end well, if it did not.
    pub verdict: Option<Verdict>,
    /// The last lines of the rank that failed first.
    pub last_lines: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// The code the launcher should exit with.
    pub fn exit_code(&self) -> i32 {
        self.verdict.as_ref().map_or(0, Verdict::exit_code)
    }
}

/// What the task that watches a rank tells.
enum Event {
    Exited {
        rank: usize,
        exit: Exit,
    },
    /// Its group is gone and its output is queued.
    Drained {
        rank: usize,
    },
}

/// Runs a job to its end: starts the ranks, relays their output, stops them when one fails or when
/// ordered, and reports.
///
/// `on_lost` is told of a rank that failed while others run. Nothing of the job is left when this
/// returns. It must be driven by a thread that outlives the job (see the crate's caveats).
pub async fn run(
    job: LocalJob,
    output: Output,
    mut orders: mpsc::UnboundedReceiver<Order>,
    mut on_lost: impl FnMut(Loss),
) -> Result<Report, Error> {
    let mut guard = Guard::start(job.guard.as_ref()).map_err(|source| Error::Guard { source })?;
    let folder = PrivateFolder::new(&private::parents())?;
    guard.watch_folder(folder.path());
    let token_file = folder.write_token(&job.token)?;
    // The first port is the master's, then one a rank.
    let ports = ReservedPorts::new(job.size + 1)?;

    let (events_in, mut events) = mpsc::unbounded_channel();
    let mut ranks = Ranks::default();
    let started = Instant::now();
    let workers: Vec<String> = ports.numbers()[1..]
        .iter()
        .map(|port| format!("{LOOPBACK}:{port}"))
        .collect();
    for rank in 0..job.size {
        let peer = PeerId {
            host: HOST.to_owned(),
            slot: rank as u16,
            incarnation: random_incarnation()?,
        };
        let mut variables = RankEnvironment {
            job: &job.job,
            role: ROLE,
            place: Place::on_one_host(rank, job.size),
            peer: &peer,
            coordinator: &job.coordinator,
            token_file: &token_file,
            generation: 1,
            restart: 0,
            max_restarts: 0,
            master: LOOPBACK,
            master_port: ports.numbers()[0],
            workers: &workers,
        }
        .variables(job.environment);
        variables.extend(job.variables.iter().cloned());
        let process =
            Process::start(&job.program, &job.arguments, &variables).map_err(|source| {
                let program = job.program.to_string_lossy().into_owned();
                Error::Spawn {
                    rank,
                    program,
                    source,
                }
            })?;
        guard.watch(process.group);
        debug!(rank, pid = process.group.number(), "rank started");
        ranks.groups.push(Some(process.group));
        ranks.tails.push(SharedTail::default());
        let relays = relays(rank, job.size, &ranks.tails[rank], &output.sender());
        tokio::spawn(watch(rank, process, relays, events_in.clone()));
    }
    drop(events_in);
    info!(job = job.job, size = job.size, "ranks started");

    let mut supervision = Supervision::new(job.size, job.grace);
    let mut orders_open = true;
    let mut abandoned = false;
    while !abandoned && ranks.groups.iter().any(Option::is_some) {
        let wake_at = supervision.wake_at().map(|at| started + at);
        let timer = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let actions = tokio::select! {
            event = events.recv() => match event {
                Some(Event::Exited { rank, exit }) => {
                    debug!(rank, %exit, "rank ended");
                    supervision.exited(started.elapsed(), rank, exit)
                }
                Some(Event::Drained { rank }) => {
                    if let Some(group) = ranks.groups[rank].take() {
                        guard.forget(group);
                    }
                    Vec::new()
                }
                // Every task has ended, so every rank is drained.
                None => break,
            },
            order = orders.recv(), if orders_open => match order {
                Some(Order::Interrupt(interrupt)) => {
                    supervision.interrupt(started.elapsed(), interrupt)
                }
                Some(Order::GiveUp(reason)) => supervision.give_up(started.elapsed(), reason),
                None => {
                    orders_open = false;
                    Vec::new()
                }
            },
            () = timer => supervision.tick(started.elapsed()),
        };
        for action in actions {
            match action {
                Action::ReportLost { rank, exit } => on_lost(Loss { rank, exit }),
                Action::Terminate(reason) => {
                    let grace = format!("{:.1} s", job.grace.as_secs_f64());
                    let running = supervision.running().len();
                    warn!(reason, running, grace, "stopping the ranks that run");
                    ranks.signal(&supervision, Group::terminate);
                }
                Action::Kill(reason) => {
                    warn!(
                        reason,
                        running = supervision.running().len(),
                        "killing the ranks that run"
                    );
                    ranks.signal(&supervision, Group::kill);
                }
                Action::Abandon => abandoned = true,
            }
        }
    }

    let elapsed = started.elapsed();
    output.finish(abandoned.then_some(LAST_OUTPUT)).await;
    let verdict = supervision.verdict().cloned();
    let last_lines = match &verdict {
        Some(Verdict::Failed { rank, .. }) => ranks.tails[*rank]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .text(),
        _ => Vec::new(),
    };
    Ok(Report {
        verdict,
        last_lines,
        elapsed,
    })
}

/// The ranks that were started; what is left of them is killed when this is dropped.
#[derive(Default)]
struct Ranks {
    groups: Vec<Option<Group>>,
    tails: Vec<SharedTail>,
}

impl Ranks {
    /// Signals the groups of the ranks that still run.
    fn signal(&self, supervision: &Supervision, signal: fn(Group)) {
        supervision
            .running()
            .iter()
            .filter_map(|&rank| self.groups[rank])
            .for_each(signal);
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.groups.iter().flatten().for_each(|group| group.kill());
    }
}

/// The relays of a rank's two streams, and what cuts them.
struct Relays {
    stdout: Relay,
    stderr: Relay,
    cut: watch::Sender<bool>,
}

fn relays(rank: usize, size: usize, tail: &SharedTail, output: &mpsc::Sender<Piece>) -> Relays {
    let (cut, cut_seen) = watch::channel(false);
    let prefix = relay::prefix(rank, size);
    let relay = |stream| Relay {
        stream,
        prefix: prefix.clone(),
        tail: tail.clone(),
        output: output.clone(),
        cut: cut_seen.clone(),
    };
    Relays {
        stdout: relay(Stream::Stdout),
        stderr: relay(Stream::Stderr),
        cut,
    }
}

/// Watches one rank until its group is gone and its output is queued.
async fn watch(
    rank: usize,
    mut process: Process,
    relays: Relays,
    events: mpsc::UnboundedSender<Event>,
) {
    let stdout = process
        .child
        .stdout
        .take()
        .expect("the process was started with a pipe");
    let stderr = process
        .child
        .stderr
        .take()
        .expect("the process was started with a pipe");
    let mut relaying = tokio::spawn(async {
        tokio::join!(relays.stdout.run(stdout), relays.stderr.run(stderr));
    });
    let exit = process.exit().await.unwrap_or_else(|error| {
        warn!(rank, %error, "cannot learn how a rank ended");
        Exit::Code(1)
    });
    // Nobody listens when the job was abandoned.
    let _ = events.send(Event::Exited { rank, exit });
    let drained = tokio::time::timeout(LINGER, &mut relaying).await.is_ok();
    process.reap().await;
    if !drained
        && tokio::time::timeout(AFTER_KILL, &mut relaying)
            .await
            .is_err()
    {
        // A process that got away holds the pipes, or the output is slow: what is in the pipes is
        // still relayed, more is not waited for.
        let _ = relays.cut.send(true);
        let _ = relaying.await;
    }
    let _ = events.send(Event::Drained { rank });
}
