//! Sessions: peers joined in one generation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use carole_plan::{Generation, PeerId};

use crate::error::{Error, Result};
use crate::group::{GroupInner, SharedGroup};
use crate::local::Local;
use crate::operation::{Label, Operation};
use crate::sys;
use crate::table::Table;
use crate::wait::{Patience, Step, Waiter};

/// How a session behaves; the defaults suit most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// After this long without progress a wait logs whom it waits for.
    pub stall: Duration,
    /// After this long an operation fails, unless its call says otherwise.
    pub timeout: Duration,
    /// A peer across hosts that is silent for this long is lost.
    pub heartbeat: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(10),
            timeout: Duration::from_secs(1800),
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// Why a session ended.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) rank: usize,
    pub(crate) reason: String,
}

pub(crate) struct Inner {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<PeerId>,
    pub(crate) generation: Generation,
    pub(crate) options: Options,
    pub(crate) local: Option<Local>,
    /// By session rank: the rank on this host's board.
    pub(crate) local_ranks: Vec<Option<u8>>,
    /// By session rank: the index of its host.
    pub(crate) hosts: Vec<usize>,
    pub(crate) table: Table,
    patience: Patience,
    failed: AtomicBool,
    loss: Mutex<Option<Loss>>,
    process: u32,
}

impl Inner {
    pub(crate) fn new(
        rank: usize,
        peers: Vec<PeerId>,
        generation: Generation,
        options: Options,
        local: Option<Local>,
        local_ranks: Vec<Option<u8>>,
        hosts: Vec<usize>,
    ) -> Self {
        let on_host = local_ranks.iter().flatten().count();
        Self {
            rank,
            peers,
            generation,
            options,
            local,
            local_ranks,
            hosts,
            table: Table::default(),
            patience: Patience::new(on_host, sys::available_cores()),
            failed: AtomicBool::new(false),
            loss: Mutex::new(None),
            process: std::process::id(),
        }
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        let process = std::process::id();
        if process != self.process {
            return Err(Error::Forked { owner: self.process, process });
        }
        Ok(())
    }

    /// Ends the session: every wait in it ends with this loss.
    pub(crate) fn fail(&self, loss: Loss) {
        let mut slot = self.loss.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if slot.is_none() {
            tracing::warn!(rank = loss.rank, peer = %self.peers[loss.rank], reason = %loss.reason,
                generation = %self.generation, "peer lost");
            *slot = Some(loss);
        }
        drop(slot);
        self.failed.store(true, Ordering::SeqCst);
        if let Some(local) = &self.local {
            local.wake(1 << local.board.me());
        }
    }

    pub(crate) fn loss_error(&self, label: Label<'_>) -> Option<Error> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        let loss = self.loss.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()?;
        Some(Error::PeerLost {
            peer: self.peers[loss.rank].clone(),
            rank: loss.rank,
            generation: self.generation,
            operation: label.to_string(),
            reason: loss.reason,
        })
    }

    /// `rank 3 (node-b:1)` for each rank.
    pub(crate) fn name_ranks(&self, ranks: &[usize]) -> String {
        let names: Vec<String> =
            ranks.iter().map(|rank| format!("rank {rank} ({})", self.peers[*rank])).collect();
        names.join(", ")
    }

    /// Polls an operation on the caller's own thread until it ends.
    #[inline]
    pub(crate) fn drive(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
        timeout: Duration,
    ) -> Result<()> {
        let mut waiter = Waiter::new(self.patience);
        let mut slow: Option<Slow> = None;
        loop {
            let mut progressed = false;
            match operation.poll(self, group, &mut progressed) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(ended) => return Err(ended.error(label)),
            }
            if progressed {
                waiter.reset();
                slow = None;
            }
            if waiter.is_pause() && self.failed.load(Ordering::Relaxed) {
                operation.abort(self, group);
                return Err(self.loss_error(label).unwrap_or(Error::Closed));
            }
            match waiter.step() {
                Step::Spin => {}
                Step::Yield => {
                    sys::yield_core();
                    if waiter.is_pause() {
                        let slow = slow.get_or_insert_with(|| Slow::new(self, timeout));
                        slow.look(self, group, operation, label)?;
                    }
                }
                Step::Park(limit) => {
                    let slow = slow.get_or_insert_with(|| Slow::new(self, timeout));
                    slow.look(self, group, operation, label)?;
                    match operation.park(self, group, slow.limit(limit)) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(ended) => return Err(ended.error(label)),
                    }
                    if self.failed.load(Ordering::Acquire) {
                        operation.abort(self, group);
                        return Err(self.loss_error(label).unwrap_or(Error::Closed));
                    }
                }
            }
        }
    }
}

/// What a long wait watches: the stall limit and the timeout.
struct Slow {
    since: Instant,
    stall_at: Instant,
    timeout: Duration,
}

impl Slow {
    #[cold]
    fn new(inner: &Inner, timeout: Duration) -> Self {
        let since = Instant::now();
        Self { since, stall_at: since + inner.options.stall, timeout }
    }

    fn limit(&self, limit: Duration) -> Duration {
        let left = self.timeout.saturating_sub(self.since.elapsed());
        limit.min(left).max(Duration::from_micros(50))
    }

    #[cold]
    fn look(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
    ) -> Result<()> {
        operation.check(inner, group).map_err(|ended| ended.error(label))?;
        let now = Instant::now();
        if now >= self.stall_at {
            let waited = now - self.since;
            let whom = inner.name_ranks(&operation.waiting_for(inner, group));
            tracing::warn!("{label}: waiting {} s for {whom}", waited.as_secs());
            self.stall_at = now + inner.options.stall;
        }
        if now - self.since >= self.timeout {
            let waiting_for = inner.name_ranks(&operation.waiting_for(inner, group));
            operation.abort(inner, group);
            return Err(Error::Timeout {
                operation: label.to_string(),
                after: self.timeout,
                waiting_for,
            });
        }
        Ok(())
    }
}

/// Peers joined in one generation, seen from one of them.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
    pub(crate) world: SharedGroup,
}

impl Session {
    pub(crate) fn from_inner(inner: Inner) -> Self {
        let ranks: Vec<usize> = (0..inner.peers.len()).collect();
        let inner = Arc::new(inner);
        let world = Arc::new(group(&inner, 0, ranks).expect("this rank is in the world"));
        Self { inner, world }
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.inner.peers.len()
    }

    /// The session's generation.
    pub fn generation(&self) -> Generation {
        self.inner.generation
    }

    /// The group of all ranks.
    pub fn world(&self) -> crate::call::Group {
        crate::call::Group { inner: Arc::clone(&self.inner), group: Arc::clone(&self.world) }
    }

    /// A group of some ranks in the order given. Every member must make it; groups of the same
    /// ranks are the same group.
    pub fn group(&self, ranks: &[usize]) -> Result<crate::call::Group> {
        let invalid = |problem: String| Error::Invalid { operation: "group".into(), problem };
        let mut seen = vec![false; self.size()];
        for rank in ranks {
            let slot = seen
                .get_mut(*rank)
                .ok_or_else(|| invalid(format!("rank {rank} is not below {}", self.size())))?;
            if std::mem::replace(slot, true) {
                return Err(invalid(format!("rank {rank} is listed twice")));
            }
        }
        let group = group(&self.inner, 0, ranks.to_vec())
            .ok_or_else(|| invalid(format!("rank {} is not a member", self.rank())))?;
        Ok(crate::call::Group { inner: Arc::clone(&self.inner), group: Arc::new(group) })
    }
}

fn group(inner: &Inner, tag: u64, ranks: Vec<usize>) -> Option<GroupInner> {
    let me = ranks.iter().position(|rank| *rank == inner.rank)?;
    let local = ranks.iter().map(|rank| inner.local_ranks[*rank]).collect();
    let hosts = ranks.iter().map(|rank| inner.hosts[*rank]).collect();
    Some(GroupInner::new(tag, ranks, me, local, hosts))
}
