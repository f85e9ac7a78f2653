//! How a session learns that a member is gone, and what its operations are told.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Inner, lock};
use crate::error::Error;
use crate::group::GroupInner;
use crate::key::Key;
use crate::operation::{Label, Operation};
use crate::stream::frame::FrameKind;
use crate::sys;

/// Why a session ended.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) rank: usize,
    pub(crate) reason: String,
}

/// When something was last heard from, and said to, a peer across hosts.
pub(super) struct Heart {
    pub(super) rank: usize,
    pub(super) heard: u64,
    pub(super) heard_at: Instant,
    pub(super) said: u64,
    pub(super) said_at: Instant,
}

impl Inner {
    pub(crate) fn is_over(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Ends the session: every wait in it ends with this loss, and the other members are told.
    pub(crate) fn note_loss(&self, loss: &Loss) {
        if self.departed[loss.rank].load(Ordering::Acquire) {
            return;
        }
        {
            let mut slot = lock(&self.loss);
            if slot.is_some() {
                return;
            }
            tracing::warn!(rank = loss.rank, peer = %self.peers[loss.rank],
                reason = %loss.reason, generation = %self.generation, "peer lost");
            *slot = Some(loss.clone());
        }
        if let Some(streams) = &self.streams {
            let mut frame = streams.frame(FrameKind::Lost, Key(0, 0));
            frame.offset = loss.rank as u64;
            let text = &loss.reason.as_bytes()[..loss.reason.len().min(512)];
            frame.length = text.len() as u32;
            for rank in (0..self.peers.len()).filter(|r| *r != self.rank && *r != loss.rank) {
                let _ = streams.send(rank, &frame, text);
            }
        }
        self.failed.store(true, Ordering::SeqCst);
        self.wake_own();
    }

    /// A member left in good order: only operations that need it fail.
    pub(crate) fn note_departure(&self, rank: usize) {
        self.departed[rank].store(true, Ordering::Release);
        self.anyone_departed.store(true, Ordering::Release);
        self.wake_own();
    }

    /// Has every waiting thread of this process look again.
    pub(crate) fn wake_own(&self) {
        if let Some(local) = &self.local {
            local.ring_self();
        }
        if let Some(streams) = &self.streams {
            streams.wake();
        }
        self.engine.ring();
    }

    fn lost_error(&self, loss: Loss, operation: String) -> Error {
        Error::PeerLost {
            peer: Box::new(self.peers[loss.rank].clone()),
            rank: loss.rank,
            generation: self.generation,
            operation,
            reason: loss.reason,
        }
    }

    /// The error of an operation among `ranks`, if the session cannot complete it any more.
    pub(crate) fn loss_of(&self, ranks: &[usize], operation: String) -> Option<Error> {
        if self.anyone_departed.load(Ordering::Acquire) {
            let gone = |rank: &&usize| self.departed[**rank].load(Ordering::Acquire);
            if let Some(rank) = ranks.iter().copied().find(|rank| gone(&rank)) {
                let loss = Loss {
                    rank,
                    reason: "it left the session".into(),
                };
                return Some(self.lost_error(loss, operation));
            }
        }
        if self.failed.load(Ordering::Acquire) {
            let loss = lock(&self.loss).clone()?;
            return Some(self.lost_error(loss, operation));
        }
        None
    }

    /// The error of an operation that cannot complete any more.
    ///
    /// A member that left in good order has done its part of everything it called: only
    /// operations to which it has not come are hit.
    pub(crate) fn loss_error(
        &self,
        label: Label<'_>,
        group: &GroupInner,
        operation: &Operation,
    ) -> Option<Error> {
        if !self.is_disturbed() {
            return None;
        }
        let needed: Vec<usize> = group
            .ranks
            .iter()
            .copied()
            // In this order: what a member did before it left has arrived once it is seen to be gone.
            .filter(|rank| *rank != self.rank && self.departed[*rank].load(Ordering::Acquire))
            .filter(|rank| operation.needs(self, group, *rank))
            .collect();
        self.loss_of(&needed, label.to_string())
    }

    #[inline]
    pub(crate) fn is_disturbed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.anyone_departed.load(Ordering::Relaxed)
    }

    /// `rank 3 (node-b:1)` for each rank.
    pub(crate) fn name_ranks(&self, ranks: &[usize]) -> String {
        let names: Vec<String> = ranks
            .iter()
            .map(|rank| format!("rank {rank} ({})", self.peers[*rank]))
            .collect();
        names.join(", ")
    }

    /// Descriptors that tell of deaths.
    pub(crate) fn death_watches(&self, fds: &mut Vec<(RawFd, i16)>) {
        if !self.is_over() {
            let alive = self
                .deaths
                .iter()
                .filter(|(rank, _)| !self.departed[*rank].load(Ordering::Acquire));
            fds.extend(alive.map(|(_, fd)| (fd.as_raw_fd(), libc::POLLIN)));
        }
    }

    /// Descriptors of the connections.
    pub(crate) fn connection_descriptors(&self, fds: &mut Vec<(RawFd, i16)>) {
        let Some(streams) = &self.streams else { return };
        for connection in streams.connections.iter().flatten() {
            if !connection.is_closed() {
                connection.watch(|fd, events| fds.push((fd, events)));
            }
        }
    }

    /// Looks whether a local process has ended.
    pub(crate) fn check_deaths(&self) {
        if self.deaths.is_empty() || self.is_over() {
            return;
        }
        let mut fds: Vec<libc::pollfd> = self
            .deaths
            .iter()
            .map(|(_, fd)| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        if !matches!(sys::poll(&mut fds, Some(Duration::ZERO)), Ok(1..)) {
            return;
        }
        for ((rank, _), fd) in self.deaths.iter().zip(&fds) {
            if fd.revents != 0 {
                // It may have said goodbye before it ended: hear that first.
                if let Some(streams) = &self.streams {
                    let _ = streams.progress_quietly(self, *rank);
                }
                self.note_loss(&Loss {
                    rank: *rank,
                    reason: "its process ended".into(),
                });
            }
        }
    }

    /// Says and hears heartbeats; when to come back.
    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        let streams = self.streams.as_ref()?;
        let mut hearts = lock(&self.hearts);
        if hearts.is_empty() {
            return None;
        }
        let now = Instant::now();
        let interval = self.options.heartbeat / 4;
        // A long gap means that this process was paused: nobody else is to blame for the silence.
        let gap = now - std::mem::replace(&mut *lock(&self.listened), now);
        if gap > self.options.heartbeat / 2 {
            for heart in hearts.iter_mut() {
                heart.heard_at = now;
            }
        }
        let mut lost = None;
        let mut next = interval;
        for heart in hearts.iter_mut() {
            let Ok(connection) = streams.connection(heart.rank) else {
                continue;
            };
            if self.departed[heart.rank].load(Ordering::Acquire) {
                continue;
            }
            if connection.heard() != heart.heard {
                heart.heard = connection.heard();
                heart.heard_at = now;
            } else if now - heart.heard_at >= self.options.heartbeat {
                lost = Some(heart.rank);
            }
            if connection.said() != heart.said {
                heart.said = connection.said();
                heart.said_at = now;
            } else if now - heart.said_at >= interval {
                let frame = streams.frame(FrameKind::Heartbeat, Key(0, 0));
                let _ = connection.send(&frame, &[], &[]);
                heart.said = connection.said();
                heart.said_at = now;
            }
            let due = interval.saturating_sub(now - heart.said_at);
            next = next.min(due.max(Duration::from_millis(1)));
            let due = self.options.heartbeat.saturating_sub(now - heart.heard_at);
            next = next.min(due.max(Duration::from_millis(1)));
        }
        drop(hearts);
        if let Some(rank) = lost {
            let reason = format!("nothing was heard from it for {:?}", self.options.heartbeat);
            self.note_loss(&Loss { rank, reason });
        }
        Some(next)
    }
}
