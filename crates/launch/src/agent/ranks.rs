//! The ranks of one host.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::progress;
use crate::channel::frame::{Frame, printed_head, seal};
use crate::channel::handover;
use crate::channel::message::{Report, Signal, Start, Word};
use crate::environment::{NO_PROXY, continued_no_proxy};
use crate::exit::Exit;
use crate::output::Stream;
use crate::process::{Group, Launch, Process};
use crate::relay::relay;

/// How long processes that a rank left behind may go on: Python's resource tracker, for one, needs
/// a moment after its parent to clean up.
const LINGER: Duration = Duration::from_secs(1);
/// How long the pipes of a rank may stay open after its group was killed.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// The ranks that were started; what is left of them is killed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    groups: Vec<(usize, Option<Group>)>,
    /// Ranks whose pipes the launcher reads, and who is told when they have ended.
    handed_over: Vec<(usize, oneshot::Sender<()>)>,
}

/// A rank that could not be started.
pub(super) struct NotStarted {
    pub(super) rank: usize,
    pub(super) source: io::Error,
}

impl Ranks {
    /// Starts all of them or none; their processes.
    pub(super) fn start(
        &mut self,
        start: Start,
        folder: Option<&Path>,
        private: &Path,
        frames: &mpsc::Sender<Vec<u8>>,
        drained: &mpsc::UnboundedSender<usize>,
    ) -> Result<Vec<i32>, NotStarted> {
        let mut pids = Vec::with_capacity(start.ranks.len());
        for one in start.ranks {
            let rank = one.rank;
            let program = OsString::from(one.program);
            let arguments: Vec<OsString> = one.arguments.into_iter().map(Into::into).collect();
            let mut variables = one.variables;
            match progress::Pipe::new(private, rank) {
                Ok(pipe) => {
                    let path = Word::from(pipe.path().as_os_str());
                    variables.retain(|(name, _)| name != progress::VARIABLE);
                    variables.push((progress::VARIABLE.to_owned(), path));
                    tokio::spawn(pipe.listen(frames.downgrade()));
                }
                Err(error) => debug!(rank, %error, "no pipe for progress"),
            }
            let variables = variables.into_iter().map(|(name, value)| {
                let value = OsString::from(value);
                if name == NO_PROXY {
                    let value = continued_no_proxy(&value);
                    return (name, value);
                }
                (name, value)
            });
            let process = Process::start(&Launch {
                program: &program,
                arguments: &arguments,
                variables: variables.collect(),
                folder,
                cores: &one.cores,
            });
            let process = process.map_err(|source| NotStarted { rank, source })?;
            debug!(rank, pid = process.group.number(), "rank started");
            pids.push(process.group.number());
            self.groups.push((rank, Some(process.group)));
            let ended = start.hand_over.then(|| self.hand_over(rank, &process));
            tokio::spawn(attend(
                rank,
                process,
                ended.flatten(),
                frames.clone(),
                drained.clone(),
            ));
        }
        Ok(pids)
    }

    /// Hands a rank's pipes to the launcher; who tells that they have ended. None where that fails:
    /// what the rank prints then goes through the channel.
    fn hand_over(&mut self, rank: usize, process: &Process) -> Option<oneshot::Receiver<()>> {
        let (out, err) = (&process.child.stdout, &process.child.stderr);
        let pipes = [out.as_ref()?.as_fd(), err.as_ref()?.as_fd()];
        if let Err(error) = handover::give(io::stdin(), rank, pipes) {
            debug!(rank, %error, "the pipes cannot be handed over");
            return None;
        }
        let (ended, told) = oneshot::channel();
        self.handed_over.push((rank, ended));
        Some(told)
    }

    /// The pipes of a rank that were handed over have ended.
    pub(super) fn closed(&mut self, rank: usize) {
        let known = self.handed_over.iter().position(|(one, _)| *one == rank);
        if let Some(known) = known {
            // Nobody is told who does not wait any more.
            let _ = self.handed_over.swap_remove(known).1.send(());
        }
    }

    /// Signals the groups of the ranks that are not over.
    pub(super) fn signal(&self, signal: Signal) {
        let send = match signal {
            Signal::Terminate => Group::terminate,
            Signal::Kill => Group::kill,
        };
        let groups = self.groups.iter().filter_map(|(_, group)| *group);
        groups.for_each(send);
    }

    /// Nothing of this rank is left.
    pub(super) fn forget(&mut self, rank: usize) {
        self.handed_over.retain(|(one, _)| *one != rank);
        for (one, group) in &mut self.groups {
            if *one == rank {
                *group = None;
            }
        }
    }

    /// The ranks that are not over, and the numbers of their groups.
    pub(super) fn running(&self) -> Vec<(usize, i32)> {
        let number = |(rank, group): &(usize, Option<Group>)| Some((*rank, (*group)?.number()));
        self.groups.iter().filter_map(number).collect()
    }

    pub(super) fn are_over(&self) -> bool {
        self.groups.iter().all(|(_, group)| group.is_none())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}

/// What becomes of a rank's output.
enum Outlet {
    /// It goes through the channel.
    Relayed(JoinHandle<()>),
    /// The launcher reads it, and tells when it has ended.
    HandedOver(oneshot::Receiver<()>),
}

impl Outlet {
    /// Returns when the output has ended.
    async fn ended(&mut self) {
        match self {
            Self::Relayed(relaying) => drop(relaying.await),
            Self::HandedOver(ended) => drop(ended.await),
        }
    }
}

/// Watches one rank until its group is gone and its output is sent.
async fn attend(
    rank: usize,
    mut process: Process,
    handed_over: Option<oneshot::Receiver<()>>,
    frames: mpsc::Sender<Vec<u8>>,
    drained: mpsc::UnboundedSender<usize>,
) {
    let (cut, cut_seen) = watch::channel(false);
    let pipes = (process.child.stdout.take(), process.child.stderr.take());
    let (Some(stdout), Some(stderr)) = pipes else {
        unreachable!("the process was started with pipes");
    };
    let is_handed_over = handed_over.is_some();
    let mut outlet = match handed_over {
        Some(ended) => {
            drop((stdout, stderr));
            Outlet::HandedOver(ended)
        }
        None => {
            let send = |stream| (printed_head(rank, stream), frames.clone(), cut_seen.clone());
            let (to_out, to_err) = (send(Stream::Stdout), send(Stream::Stderr));
            Outlet::Relayed(tokio::spawn(async move {
                tokio::join!(
                    relay(stdout, to_out.2, &to_out.0, to_out.1, seal),
                    relay(stderr, to_err.2, &to_err.0, to_err.1, seal),
                );
            }))
        }
    };
    let exit = process.exit().await.unwrap_or_else(|error| {
        warn!(rank, %error, "cannot learn how a rank ended");
        Exit::Code(1)
    });
    // Nobody receives when the launcher is gone.
    let report = Frame::Report(Report::Exited { rank, exit });
    let _ = frames.send(report.encode()).await;
    let quiet = tokio::time::timeout(LINGER, outlet.ended()).await.is_ok();
    process.reap().await;
    if !quiet
        && tokio::time::timeout(AFTER_KILL, outlet.ended())
            .await
            .is_err()
    {
        // A process that got away holds the pipes, or the launcher is slow: what is in the pipes
        // is still sent, more is not waited for. The launcher does the same by itself.
        let _ = cut.send(true);
        if !is_handed_over {
            outlet.ended().await;
        }
    }
    let report = Report::Drained {
        rank,
        handed_over: is_handed_over,
    };
    let _ = frames.send(Frame::Report(report).encode()).await;
    let _ = drained.send(rank);
}
