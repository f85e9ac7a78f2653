//! Sessions: peers joined in one generation.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carole_plan::{AlgorithmTable, Generation, PeerId};

use crate::arena::{Arena, SharedTensor};
use crate::call::{Element, Group};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::group::{GroupInner, SharedGroup};
use crate::hierarchy::Shelf;
use crate::key::Key;
use crate::local::Local;
use crate::operation::{Label, Operation};
use crate::recorder::{Ending, Recorder};
use crate::store::Store;
use crate::stream::exchange::Surroundings;
use crate::stream::frame::FrameKind;
use crate::stream::{Events, Streams};
use crate::sys;
use crate::table::Table;
use crate::wait::{Patience, Step, Waiter};

/// How ranks of one host reach one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory inside a host, TCP across.
    #[default]
    Auto,
    /// TCP everywhere, as if every rank had a host of its own.
    Tcp,
}

/// How a session behaves; the defaults suit most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// After this long without progress a wait logs whom it waits for.
    pub stall: Duration,
    /// After this long an operation fails, unless its call says otherwise.
    pub timeout: Duration,
    /// A peer across hosts that is silent for this long is lost.
    pub heartbeat: Duration,
    /// Forming the session may take this long.
    pub form: Duration,
    /// How ranks of one host reach one another.
    pub transport: Transport,
    /// TCP connections between two ranks on different hosts, from 1 to 16; more than one helps
    /// where the network gives each of them only a part of its bandwidth.
    pub streams: usize,
    /// Which algorithm for which size and shape; the first rank's is used by all.
    pub table: AlgorithmTable,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(10),
            timeout: Duration::from_secs(1800),
            heartbeat: Duration::from_secs(5),
            form: Duration::from_secs(60),
            transport: Transport::Auto,
            streams: 1,
            table: AlgorithmTable::default(),
        }
    }
}

/// Why a session ended.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) rank: usize,
    pub(crate) reason: String,
}

/// What a session is made of.
pub(crate) struct Parts {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<PeerId>,
    pub(crate) generation: Generation,
    pub(crate) options: Options,
    pub(crate) local: Option<Local>,
    pub(crate) local_ranks: Vec<Option<u8>>,
    pub(crate) hosts: Vec<usize>,
    pub(crate) streams: Option<Streams>,
    pub(crate) deaths: Vec<(usize, OwnedFd)>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) arena: Arc<Arena>,
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
    pub(crate) streams: Option<Streams>,
    /// A descriptor for each other local process, readable when it ends.
    deaths: Vec<(usize, OwnedFd)>,
    pub(crate) engine: Arc<Engine>,
    arena: Arc<Arena>,
    pub(crate) store: Store,
    /// Memory of hierarchies that are over.
    pub(crate) hierarchies: Shelf,
    /// What every rank uses until they have agreed.
    initial_table: Table,
    agreed_table: OnceLock<Table>,
    pub(crate) recorder: Recorder,
    patience: Patience,
    failed: AtomicBool,
    loss: Mutex<Option<Loss>>,
    /// Ranks that left in good order.
    departed: Vec<AtomicBool>,
    anyone_departed: AtomicBool,
    hearts: Mutex<Vec<Heart>>,
    /// When the hearts were last listened to.
    listened: Mutex<Instant>,
    /// Groups of two, for transfers.
    pairs: Mutex<HashMap<(usize, usize), SharedGroup>>,
    process: u32,
    /// Forks between the first session's process and this one; see [`sys::forks`].
    forks: u32,
}

/// When something was last heard from, and said to, a peer across hosts.
struct Heart {
    rank: usize,
    heard: u64,
    heard_at: Instant,
    said: u64,
    said_at: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            rank,
            peers,
            generation,
            options,
            local,
            local_ranks,
            hosts,
            streams,
            deaths,
            engine,
            arena,
        } = parts;
        let on_host = hosts.iter().filter(|host| **host == hosts[rank]).count();
        let now = Instant::now();
        let hearts = (0..peers.len())
            .filter(|other| hosts[*other] != hosts[rank])
            .map(|rank| Heart {
                rank,
                heard: 0,
                heard_at: now,
                said: 0,
                said_at: now,
            })
            .collect();
        Self {
            rank,
            departed: peers.iter().map(|_| AtomicBool::new(false)).collect(),
            anyone_departed: AtomicBool::new(false),
            recorder: Recorder::new(peers.len()),
            peers,
            generation,
            options,
            local,
            local_ranks,
            hosts,
            streams,
            deaths,
            engine,
            arena,
            store: Store::default(),
            hierarchies: Shelf::default(),
            initial_table: Table::new(&AlgorithmTable::default(), usize::MAX),
            agreed_table: OnceLock::new(),
            patience: Patience::new(on_host, sys::available_cores()),
            failed: AtomicBool::new(false),
            loss: Mutex::new(None),
            hearts: Mutex::new(hearts),
            listened: Mutex::new(now),
            pairs: Mutex::new(HashMap::new()),
            process: std::process::id(),
            forks: sys::forks(),
        }
    }

    /// The group of two ranks, one of them this one.
    pub(crate) fn pair(&self, from: usize, to: usize) -> SharedGroup {
        let mut pairs = lock(&self.pairs);
        let pair = pairs.entry((from, to)).or_insert_with(|| {
            Arc::new(group(self, vec![from, to]).expect("one of the two is this rank"))
        });
        Arc::clone(pair)
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        if sys::forks() != self.forks {
            return Err(Error::Forked {
                owner: self.process,
                process: std::process::id(),
            });
        }
        Ok(())
    }

    /// Which algorithm for which size and shape.
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        self.agreed_table.get().unwrap_or(&self.initial_table)
    }

    /// The members have agreed; called once, before the session is handed out.
    pub(crate) fn set_table(&self, table: Table) {
        let _ = self.agreed_table.set(table);
    }

    pub(crate) fn surroundings(&self) -> Option<Surroundings<'_>> {
        Some(Surroundings {
            streams: self.streams.as_ref()?,
            events: self,
        })
    }

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

    /// Polls an operation on the caller's own thread until it ends, and takes note of it.
    #[inline]
    pub(crate) fn drive(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
        timeout: Duration,
    ) -> Result<()> {
        let outcome = self.conduct(group, operation, label, timeout);
        self.record(Ending::Blocking, group, operation, label, &outcome);
        operation.shelve(self);
        outcome
    }

    /// Takes note of an operation that has ended.
    #[inline]
    pub(crate) fn record(
        &self,
        ending: Ending,
        group: &GroupInner,
        operation: &Operation,
        label: Label<'_>,
        outcome: &Result<()>,
    ) {
        let ended = sys::ticks();
        let facts = &operation.facts;
        match outcome {
            Ok(()) => {
                let ticks = ended.saturating_sub(facts.began);
                let peers = self
                    .recorder
                    .completed(ending, label.kind, facts.bytes, ticks);
                operation.local_traffic(group, |rank, to, from| peers.add(rank, to, from));
            }
            Err(error) => self.recorder.failed(label.kind, error),
        }
        if self.recorder.timeline.is_on() {
            self.recorder
                .timeline
                .record(ending, label, facts, ended, outcome);
        }
    }

    /// A wait has become long: for a timeline, whom it is for.
    pub(crate) fn note_wait(&self, group: &GroupInner, operation: &mut Operation) {
        if self.recorder.timeline.is_on() {
            operation.facts.waited_for = operation.waiting_for(self, group);
        }
    }

    /// Polls an operation on the caller's own thread until it ends.
    #[inline]
    pub(crate) fn conduct(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
        timeout: Duration,
    ) -> Result<()> {
        let _driving = operation
            .uses_connections()
            .then(|| self.streams.as_ref().map(Driving::new));
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
            if waiter.is_pause() {
                // There is time for housekeeping.
                if let Some(local) = &self.local {
                    local.tidy_soon();
                }
                if self.is_disturbed() {
                    self.give_up(group, operation, label)?;
                }
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
                    if self.is_disturbed() {
                        self.give_up(group, operation, label)?;
                    }
                    match operation.park(self, group, slow.limit(limit)) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(ended) => return Err(ended.error(label)),
                    }
                }
            }
        }
    }

    /// The session is disturbed: the operation ends unless it is complete or needs nobody who left.
    #[cold]
    pub(crate) fn give_up(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
    ) -> Result<()> {
        // What the lost member had finished counts: its part may be there already, unseen.
        operation.look_everywhere();
        let mut progressed = false;
        match operation.poll(self, group, &mut progressed) {
            Ok(true) => return Ok(()),
            Ok(false) if progressed => return Ok(()),
            Ok(false) => {}
            Err(ended) => return Err(ended.error(label)),
        }
        match self.loss_error(label, group, operation) {
            Some(error) => {
                operation.abort(self, group, None);
                Err(error)
            }
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.forks != sys::forks() {
            return;
        }
        if let Some(streams) = &self.streams {
            let frame = streams.frame(FrameKind::Goodbye, Key(0, 0));
            for rank in (0..self.peers.len()).filter(|rank| *rank != self.rank) {
                let _ = streams.send(rank, &frame, &[]);
            }
        }
        if let Some(streams) = self.streams.take() {
            self.engine.linger(streams.into_sockets());
        }
    }
}

/// Marks that a caller reads the connections itself.
struct Driving<'a>(&'a Streams);

impl<'a> Driving<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.drivers.fetch_add(1, Ordering::AcqRel);
        Self(streams)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.drivers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a long wait watches: the stall limit and the timeout.
pub(crate) struct Slow {
    since: Instant,
    stall_at: Instant,
    timeout: Duration,
}

impl Slow {
    #[cold]
    pub(crate) fn new(inner: &Inner, timeout: Duration) -> Self {
        let since = Instant::now();
        Self {
            since,
            stall_at: since + inner.options.stall,
            timeout,
        }
    }

    fn limit(&self, limit: Duration) -> Duration {
        let left = self.timeout.saturating_sub(self.since.elapsed());
        limit.min(left).max(Duration::from_micros(50))
    }

    #[cold]
    pub(crate) fn look(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
    ) -> Result<()> {
        operation
            .check(inner, group)
            .map_err(|ended| ended.error(label))?;
        inner.note_wait(group, operation);
        let now = Instant::now();
        if now >= self.stall_at {
            inner.recorder.stalled(label.kind);
            let waited = now - self.since;
            let whom = inner.name_ranks(&operation.waiting_for(inner, group));
            tracing::warn!("{label}: waiting {} s for {whom}", waited.as_secs());
            self.stall_at = now + inner.options.stall;
        }
        if now - self.since >= self.timeout {
            let waiting_for = inner.name_ranks(&operation.waiting_for(inner, group));
            operation.abort(inner, group, Some("it timed out"));
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
///
/// Clones share the session; it ends, with a word to the other members, when the last is dropped.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
    pub(crate) world: SharedGroup,
}

impl Session {
    pub(crate) fn from_inner(inner: Inner) -> Self {
        let ranks: Vec<usize> = (0..inner.peers.len()).collect();
        let inner = Arc::new(inner);
        let world = Arc::new(group(&inner, ranks).expect("this rank is in the world"));
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

    /// The members, in rank order.
    pub fn peers(&self) -> &[PeerId] {
        &self.inner.peers
    }

    /// For each rank the index of its host.
    pub fn hosts(&self) -> &[usize] {
        &self.inner.hosts
    }

    /// The group of all ranks.
    pub fn world(&self) -> Group {
        Group {
            inner: Arc::clone(&self.inner),
            group: Arc::clone(&self.world),
        }
    }

    /// A group of some ranks in the order given. Every member must make it; groups of the same
    /// ranks in the same order are the same group, and share the numbers of unnamed operations
    /// only as long as the handle is the same.
    pub fn group(&self, ranks: &[usize]) -> Result<Group> {
        let invalid = |problem: String| Error::Invalid {
            operation: "group".into(),
            problem,
        };
        let mut seen = vec![false; self.size()];
        for rank in ranks {
            let slot = seen
                .get_mut(*rank)
                .ok_or_else(|| invalid(format!("rank {rank} is not below {}", self.size())))?;
            if std::mem::replace(slot, true) {
                return Err(invalid(format!("rank {rank} is listed twice")));
            }
        }
        let group = group(&self.inner, ranks.to_vec())
            .ok_or_else(|| invalid(format!("rank {} is not a member", self.rank())))?;
        Ok(Group {
            inner: Arc::clone(&self.inner),
            group: Arc::new(group),
        })
    }

    /// The ranks on this host.
    pub fn local_group(&self) -> Result<Group> {
        let mine = self.inner.hosts[self.rank()];
        let ranks: Vec<usize> = (0..self.size())
            .filter(|rank| self.inner.hosts[*rank] == mine)
            .collect();
        self.group(&ranks)
    }

    /// The ranks that have the same place on their hosts as this one.
    pub fn cross_group(&self) -> Result<Group> {
        let place = |rank: usize| {
            (0..rank)
                .filter(|other| self.inner.hosts[*other] == self.inner.hosts[rank])
                .count()
        };
        let mine = place(self.rank());
        let ranks: Vec<usize> = (0..self.size())
            .filter(|rank| place(*rank) == mine)
            .collect();
        self.group(&ranks)
    }

    /// A tensor of `length` zeroes in memory that the ranks of this host share; reductions of such
    /// tensors are several times faster.
    pub fn allocate<T: Element>(&self, length: usize) -> Result<SharedTensor<T>> {
        self.inner.check_usable()?;
        SharedTensor::new(Arc::clone(&self.inner.arena), length)
    }

    /// Keeps a blob under a name and version for others to ask for; the last three versions of a
    /// name are kept.
    pub fn save(&self, name: &str, version: u64, bytes: &[u8]) -> Result<()> {
        self.inner.check_usable()?;
        self.inner.store.save(name, version, bytes);
        Ok(())
    }

    /// Asks a rank for a blob, by version or the latest; `None` when it has none.
    pub fn request(
        &self,
        rank: usize,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<(u64, Vec<u8>)>> {
        self.check_rank("request", rank)?;
        let timeout = self.inner.options.timeout;
        self.inner
            .store
            .request(&self.inner, rank, name, version, timeout)
    }

    /// Puts a message into a rank's queue.
    pub fn put(&self, rank: usize, queue: &str, bytes: &[u8]) -> Result<()> {
        self.check_rank("put", rank)?;
        self.inner.store.put(&self.inner, rank, queue, bytes)
    }

    /// Takes the oldest message of one of this rank's queues; `None` when the time is over.
    pub fn get(&self, queue: &str, timeout: Duration) -> Result<Option<Vec<u8>>> {
        self.inner.check_usable()?;
        Ok(self.inner.store.get(queue, timeout))
    }

    fn check_rank(&self, operation: &str, rank: usize) -> Result<()> {
        self.inner.check_usable()?;
        if rank >= self.size() {
            return Err(Error::Invalid {
                operation: operation.into(),
                problem: format!("rank {rank} is not below {}", self.size()),
            });
        }
        Ok(())
    }

    /// Ends the session as lost, as if `rank` had died: for agents that know it before the
    /// connections do.
    pub fn report_lost(&self, rank: usize, reason: &str) {
        if rank < self.size() {
            self.inner.lost(rank, reason.to_owned());
        }
    }
}

fn group(inner: &Inner, ranks: Vec<usize>) -> Option<GroupInner> {
    let me = ranks.iter().position(|rank| *rank == inner.rank)?;
    let local = ranks.iter().map(|rank| inner.local_ranks[*rank]).collect();
    let hosts = ranks.iter().map(|rank| inner.hosts[*rank]).collect();
    Some(GroupInner::new(0, ranks, me, local, hosts))
}
