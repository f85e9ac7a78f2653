//! The ranks of one host.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use super::progress;
use crate::channel::frame::Frame;
use crate::channel::message::{Report, Signal, Start, Word};
use crate::environment::{NO_PROXY, continued_no_proxy};
use crate::exit::Exit;
use crate::output::Stream;
use crate::process::{Group, Launch, Process};

/// How long processes that a rank left behind may go on: Python's resource tracker, for one, needs
/// a moment after its parent to clean up.
const LINGER: Duration = Duration::from_secs(1);
/// How long the pipes of a rank may stay open after its group was killed.
const AFTER_KILL: Duration = Duration::from_millis(500);
/// How much is read at once: a pipe's usual content.
const READ: usize = 64 << 10;
/// How much is still read after the cut: the most a pipe can hold.
const READ_AFTER_CUT: usize = 1 << 20;

/// The ranks that were started; what is left of them is killed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    groups: Vec<(usize, Option<Group>)>,
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
            tokio::spawn(attend(rank, process, frames.clone(), drained.clone()));
        }
        Ok(pids)
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
        for (one, group) in &mut self.groups {
            if *one == rank {
                *group = None;
            }
        }
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

/// Watches one rank until its group is gone and its output is sent.
async fn attend(
    rank: usize,
    mut process: Process,
    frames: mpsc::Sender<Vec<u8>>,
    drained: mpsc::UnboundedSender<usize>,
) {
    let (cut, cut_seen) = watch::channel(false);
    let pipes = (process.child.stdout.take(), process.child.stderr.take());
    let (Some(stdout), Some(stderr)) = pipes else {
        unreachable!("the process was started with pipes");
    };
    let relay = |stream| Relay {
        rank,
        stream,
        frames: frames.clone(),
        cut: cut_seen.clone(),
    };
    let (out, err) = (relay(Stream::Stdout), relay(Stream::Stderr));
    let mut relaying = tokio::spawn(async {
        tokio::join!(out.run(stdout), err.run(stderr));
    });
    let exit = process.exit().await.unwrap_or_else(|error| {
        warn!(rank, %error, "cannot learn how a rank ended");
        Exit::Code(1)
    });
    // Nobody receives when the launcher is gone.
    let report = Frame::Report(Report::Exited { rank, exit });
    let _ = frames.send(report.encode()).await;
    let quiet = tokio::time::timeout(LINGER, &mut relaying).await.is_ok();
    process.reap().await;
    if !quiet
        && tokio::time::timeout(AFTER_KILL, &mut relaying)
            .await
            .is_err()
    {
        // A process that got away holds the pipes, or the launcher is slow: what is in the pipes
        // is still sent, more is not waited for.
        let _ = cut.send(true);
        let _ = relaying.await;
    }
    let _ = frames
        .send(Frame::Report(Report::Drained { rank }).encode())
        .await;
    let _ = drained.send(rank);
}

/// One stream of one rank, on its way into the channel.
struct Relay {
    rank: usize,
    stream: Stream,
    frames: mpsc::Sender<Vec<u8>>,
    /// Becomes true when the rank's processes are gone: what is in the pipe is still read, but
    /// nobody waits for more, even if a process that got away keeps the pipe open.
    cut: watch::Receiver<bool>,
}

impl Relay {
    async fn run(mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; READ];
        let mut after_cut = 0;
        while after_cut < READ_AFTER_CUT {
            let read = tokio::select! {
                biased;
                read = pipe.read(&mut chunk) => read,
                // Fails when the sender is gone, which means the same.
                _ = self.cut.wait_for(|cut| *cut) => break,
            };
            let count = match read {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, "a rank's pipe broke");
                    break;
                }
            };
            if *self.cut.borrow() {
                after_cut += count;
            }
            let printed = Frame::Printed {
                rank: self.rank,
                stream: self.stream,
                bytes: &chunk[..count],
            };
            if self.frames.send(printed.encode()).await.is_err() {
                // Nobody receives any more; the pipe is emptied so that the rank can end.
                after_cut += count;
            }
        }
    }
}
