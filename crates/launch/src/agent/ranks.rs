//! The ranks of one host.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
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
use crate::relay::Relaying;

/// How long processes that a rank left behind may go on: Python's resource tracker, for one, needs
/// a moment after its parent to clean up.
const LINGER: Duration = Duration::from_secs(1);
/// How long the pipes of a rank may stay open after its group was killed.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// Pieces of what a remote shell's command prints that may be on their way.
const PIECES: usize = 16;

/// The ranks that were started, and the commands of remote shells; what is left of them is killed
/// when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    groups: Vec<(usize, Option<Group>)>,
    /// Ranks whose pipes the launcher reads, and who is told when they have ended.
    handed_over: Vec<(usize, oneshot::Sender<()>)>,
    shells: Vec<Shell>,
}

/// The command of a remote shell, while it runs.
#[derive(Debug)]
struct Shell {
    rank: usize,
    /// Where its input goes; none once that has ended.
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// One for each piece of output that may be sent; closed when nobody wants any.
    credit: Arc<Semaphore>,
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
            match (!one.shell).then(|| progress::Pipe::new(private, rank)) {
                Some(Ok(pipe)) => {
                    let path = Word::from(pipe.path().as_os_str());
                    variables.retain(|(name, _)| name != progress::VARIABLE);
                    variables.push((progress::VARIABLE.to_owned(), path));
                    tokio::spawn(pipe.listen(frames.downgrade()));
                }
                Some(Err(error)) => debug!(rank, %error, "no pipe for progress"),
                None => {}
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
                input: one.shell,
            });
            let mut process = process.map_err(|source| NotStarted { rank, source })?;
            debug!(rank, pid = process.group.number(), "rank started");
            pids.push(process.group.number());
            self.groups.push((rank, Some(process.group)));
            let ended = start.hand_over.then(|| self.hand_over(rank, &process));
            let credit = process.child.stdin.take().map(|stdin| {
                let (input, pieces) = mpsc::unbounded_channel();
                tokio::spawn(feed(rank, stdin, pieces, frames.clone()));
                let credit = Arc::new(Semaphore::new(PIECES));
                self.shells.push(Shell {
                    rank,
                    input: Some(input),
                    credit: Arc::clone(&credit),
                });
                credit
            });
            tokio::spawn(attend(
                rank,
                process,
                ended.flatten(),
                credit,
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

    /// A piece of the input of a remote shell's command; an empty one ends it. The next one comes
    /// only when this one has been taken.
    pub(super) fn input(&mut self, rank: usize, bytes: &[u8]) {
        if let Some(shell) = self.shell(rank) {
            if bytes.is_empty() {
                shell.input = None;
            } else if let Some(input) = &shell.input {
                // A command that has ended needs no more.
                let _ = input.send(bytes.to_vec());
            }
        }
    }

    /// Another piece of what a remote shell's command prints may be sent.
    pub(super) fn took(&mut self, rank: usize) {
        if let Some(shell) = self.shell(rank) {
            shell.credit.add_permits(1);
        }
    }

    /// Nobody waits for a remote shell's command any more.
    pub(super) fn hang_up(&mut self, rank: usize) {
        if let Some(shell) = self.shell(rank) {
            shell.input = None;
            shell.credit.close();
        }
        let groups = self.groups.iter().filter(|(one, _)| *one == rank);
        groups
            .filter_map(|(_, group)| *group)
            .for_each(Group::terminate);
    }

    /// Nobody takes what remote shells' commands print any more.
    pub(super) fn stop_listening(&self) {
        self.shells.iter().for_each(|shell| shell.credit.close());
    }

    fn shell(&mut self, rank: usize) -> Option<&mut Shell> {
        self.shells.iter_mut().find(|shell| shell.rank == rank)
    }

    /// Nothing of this rank is left.
    pub(super) fn forget(&mut self, rank: usize) {
        self.handed_over.retain(|(one, _)| *one != rank);
        self.shells.retain(|shell| shell.rank != rank);
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

/// Gives a command its input, piece by piece, and tells when one was taken.
async fn feed(
    rank: usize,
    mut stdin: ChildStdin,
    mut pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    frames: mpsc::Sender<Vec<u8>>,
) {
    while let Some(piece) = pieces.recv().await {
        if let Err(error) = stdin.write_all(&piece).await {
            debug!(rank, %error, "a command does not read any more");
        }
        let took = Frame::Report(Report::Took { rank });
        if frames.send(took.encode()).await.is_err() {
            return;
        }
    }
}

/// Watches one rank until its group is gone and its output is sent.
async fn attend(
    rank: usize,
    mut process: Process,
    handed_over: Option<oneshot::Receiver<()>>,
    credit: Option<Arc<Semaphore>>,
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
            let relaying = |stream| Relaying {
                head: printed_head(rank, stream).to_vec(),
                to: frames.clone(),
                wrap: seal,
                credit: credit.clone(),
                cut: cut_seen.clone(),
            };
            let (out, err) = (relaying(Stream::Stdout), relaying(Stream::Stderr));
            Outlet::Relayed(tokio::spawn(async move {
                tokio::join!(out.run(stdout), err.run(stderr));
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
