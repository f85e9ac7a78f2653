//! Matching what arrives on connections with the operations of this rank.
//!
//! A peer's *posting* opens an operation; it may arrive before this rank calls the operation, and
//! is then kept, with its eager bytes, as *early*. Data beyond the eager bytes is sent only to
//! ranks that have posted, so that it always finds a *flow*: where the bytes of one peer in one
//! operation go. A flow's memory is written under its lock, by whichever thread reads the
//! connection; ending an operation takes the lock and the memory away.
//!
//! Names are used again and again, and an operation may be given up by some members while others
//! have not come yet or are through. Each key therefore counts its *attempts*: giving up moves to
//! the next, postings and aborts carry the number, and what belongs to an older attempt is dropped.
//! A member that is behind learns of it from the first posting or abort of a newer attempt.

#![expect(
    unsafe_code,
    reason = "flows write into the memory of an operation in flight"
)]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frame::Post;
use crate::descriptor::Descriptor;
use crate::key::Key;
use crate::span::Span;

/// Where the bytes of a flow go: a ring over `span[base..base + capacity]`.
pub(crate) struct Target {
    span: Span,
    base: usize,
    capacity: usize,
    live: bool,
}

impl Target {
    /// The memory for the flow's bytes from `offset` on: as much as is contiguous.
    fn at(&mut self, offset: u64, bytes: usize) -> Option<(*mut u8, usize)> {
        if !self.live || self.capacity == 0 {
            return None;
        }
        let inside = (offset % self.capacity as u64) as usize;
        let bytes = bytes.min(self.capacity - inside);
        let mut first = None;
        self.span
            .visit(self.base + inside, bytes, |pointer, _, bytes| {
                if first.is_none() {
                    first = Some((pointer, bytes));
                }
            });
        first
    }
}

/// One direction of one stage of an operation: bytes from a peer.
pub(crate) struct Stage {
    target: Mutex<Target>,
    total: u64,
    received: AtomicU64,
    /// How many bytes the peer may send, as it was last told.
    announced: AtomicU64,
    /// How many bytes this rank may send to the peer.
    granted: AtomicU64,
}

impl Stage {
    /// Bytes that have arrived, all from the beginning on.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Bytes of the whole flow.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether everything has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.received() == self.total
    }

    /// Bytes that the peer is ready for.
    pub(crate) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Acquire)
    }

    pub(crate) fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    pub(crate) fn announce(&self, granted: u64) {
        self.announced.store(granted, Ordering::Relaxed);
    }

    pub(crate) fn grant(&self, upto: u64) {
        self.granted.fetch_max(upto, Ordering::Release);
    }

    /// Lets `fill` write the next bytes of the flow; it returns how many it wrote.
    ///
    /// `None` when the flow takes no bytes: it is over, or the peer sends too much.
    pub(crate) fn fill<E>(
        &self,
        offset: u64,
        bytes: usize,
        fill: impl FnOnce(*mut u8, usize) -> Result<usize, E>,
    ) -> Result<Option<usize>, E> {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if offset != self.received() || offset + bytes as u64 > self.total.min(self.announced()) {
            return Ok(None);
        }
        let Some((pointer, room)) = target.at(offset, bytes) else {
            return Ok(None);
        };
        let written = fill(pointer, room)?;
        self.received
            .store(offset + written as u64, Ordering::Release);
        Ok(Some(written))
    }

    fn fill_all(&self, offset: u64, mut bytes: &[u8]) -> bool {
        let mut at = offset;
        while !bytes.is_empty() {
            let filled = self.fill(at, bytes.len(), |pointer, room| {
                // SAFETY: the flow vouches for `room` bytes at the pointer while its lock is held.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, room) };
                Ok::<_, std::convert::Infallible>(room)
            });
            let Ok(Some(count)) = filled else {
                return false;
            };
            bytes = &bytes[count..];
            at += count as u64;
        }
        true
    }

    fn close(&self) {
        self.target
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .live = false;
    }
}

/// What one peer sends in one operation.
pub(crate) struct Flow {
    pub(crate) rank: usize,
    pub(crate) stages: [Stage; 2],
    posted: AtomicBool,
    descriptor: Mutex<Option<Descriptor>>,
    aborted: AtomicBool,
    reason: Mutex<String>,
}

/// What a flow takes in: where to, how much in all, and how much before more is granted.
#[derive(Clone, Copy)]
pub(crate) struct Intake {
    pub(crate) span: Span,
    pub(crate) base: usize,
    pub(crate) capacity: usize,
    pub(crate) total: u64,
}

impl Intake {
    pub(crate) const NONE: Self = Self {
        span: Span::EMPTY,
        base: 0,
        capacity: 0,
        total: 0,
    };

    /// Bytes that may arrive at once.
    pub(crate) fn granted(&self) -> u64 {
        self.total.min(self.capacity as u64)
    }
}

impl Flow {
    pub(crate) fn new(rank: usize, intakes: [Intake; 2]) -> Self {
        Self {
            rank,
            stages: intakes.map(|intake| Stage {
                target: Mutex::new(Target {
                    span: intake.span,
                    base: intake.base,
                    capacity: intake.capacity,
                    live: true,
                }),
                total: intake.total,
                received: AtomicU64::new(0),
                announced: AtomicU64::new(intake.granted()),
                granted: AtomicU64::new(0),
            }),
            posted: AtomicBool::new(false),
            descriptor: Mutex::new(None),
            aborted: AtomicBool::new(false),
            reason: Mutex::new(String::new()),
        }
    }

    pub(crate) fn is_posted(&self) -> bool {
        self.posted.load(Ordering::Acquire)
    }

    pub(crate) fn descriptor(&self) -> Option<Descriptor> {
        *self
            .descriptor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn abort_reason(&self) -> Option<String> {
        self.aborted.load(Ordering::Acquire).then(|| {
            self.reason
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        })
    }

    fn accept(&self, post: &Post, eager: &[u8]) -> bool {
        *self
            .descriptor
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(post.descriptor);
        for (stage, granted) in self.stages.iter().zip(post.granted) {
            stage.grant(granted);
        }
        // Eager bytes of an operation on which the ranks do not agree may not fit; the verdict
        // over the descriptors comes before anybody looks at them.
        let fits = self.stages[0].fill_all(0, eager);
        self.posted.store(true, Ordering::Release);
        fits
    }

    fn abort(&self, reason: &str) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.aborted.store(true, Ordering::Release);
    }
}

/// The flows of one operation in flight.
pub(crate) struct Flows {
    pub(crate) key: Key,
    attempt: AtomicU64,
    /// One for each other member, in the group's order.
    pub(crate) flows: Vec<Flow>,
}

impl Flows {
    pub(crate) fn new(key: Key, flows: Vec<Flow>) -> Self {
        Self {
            key,
            attempt: AtomicU64::new(0),
            flows,
        }
    }

    /// The same for another operation; the flows are to be filled in.
    pub(crate) fn renew(&mut self, key: Key) -> &mut Vec<Flow> {
        self.key = key;
        *self.attempt.get_mut() = 0;
        self.flows.clear();
        &mut self.flows
    }

    /// The number of this attempt, known once the operation is registered.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempt.load(Ordering::Acquire)
    }

    /// Rises with everything that comes for the operation.
    pub(crate) fn heard(&self) -> u64 {
        let flow = |flow: &Flow| {
            let bytes: u64 = flow.stages.iter().map(Stage::received).sum();
            let granted: u64 = flow.stages.iter().map(Stage::granted).sum();
            bytes.wrapping_add(granted) + u64::from(flow.is_posted())
        };
        self.flows.iter().map(flow).fold(0, u64::wrapping_add)
    }

    pub(crate) fn of(&self, rank: usize) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.rank == rank)
    }
}

/// A posting for an operation that this rank has not called yet.
struct Early {
    attempt: u64,
    post: Post,
    eager: Vec<u8>,
    aborted: Option<String>,
}

#[derive(Default)]
struct Tables {
    registered: HashMap<Key, Arc<Flows>>,
    early: HashMap<(Key, usize), VecDeque<Early>>,
    /// How many postings `early` holds in all, and how many bytes came with them.
    waiting: usize,
    waiting_bytes: usize,
    /// Attempts by key, where any was given up.
    attempts: HashMap<Key, u64>,
    spare: Vec<Vec<u8>>,
    spare_queues: Vec<VecDeque<Early>>,
}

impl Tables {
    fn attempt(&self, key: Key) -> u64 {
        if self.attempts.is_empty() {
            return 0;
        }
        self.attempts.get(&key).copied().unwrap_or(0)
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < 64 {
            self.spare.push(buffer);
        }
    }

    /// The oldest early posting of a rank that is not from an attempt before `attempt`.
    fn take_early(&mut self, at: (Key, usize), attempt: u64) -> Option<Early> {
        loop {
            let queue = self.early.get_mut(&at)?;
            match queue.front() {
                Some(early) if early.attempt <= attempt => {}
                _ => return None,
            }
            let early = queue.pop_front();
            if queue.is_empty()
                && let Some(queue) = self.early.remove(&at)
                && self.spare_queues.len() < 64
            {
                self.spare_queues.push(queue);
            }
            let early = early?;
            self.waiting -= 1;
            self.waiting_bytes -= early.eager.len();
            if early.attempt == attempt {
                return Some(early);
            }
            self.recycle(early.eager);
        }
    }
}

/// Operations of this rank, and postings that came before them.
#[derive(Default)]
pub(crate) struct Inbox {
    tables: Mutex<Tables>,
}

const MOVED_ON: &str = "it has given this operation up and called it again";

impl Inbox {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an operation known; what came early is delivered. False for a duplicate.
    pub(crate) fn register(&self, flows: &Arc<Flows>) -> bool {
        let mut tables = self.tables();
        if tables.registered.contains_key(&flows.key) {
            return false;
        }
        let attempt = tables.attempt(flows.key);
        flows.attempt.store(attempt, Ordering::Release);
        for flow in &flows.flows {
            let at = (flows.key, flow.rank);
            if let Some(early) = tables.take_early(at, attempt) {
                flow.accept(&early.post, &early.eager);
                if let Some(reason) = early.aborted {
                    flow.abort(&reason);
                }
                tables.recycle(early.eager);
            } else if tables.early.contains_key(&at) {
                flow.abort(MOVED_ON);
            }
        }
        tables.registered.insert(flows.key, Arc::clone(flows));
        true
    }

    /// Forgets an operation; afterwards nobody writes into its memory.
    pub(crate) fn unregister(&self, flows: &Flows) {
        self.tables().registered.remove(&flows.key);
        for flow in &flows.flows {
            for stage in &flow.stages {
                stage.close();
            }
        }
    }

    /// Forgets an operation that is given up; what belongs to it is dropped from now on.
    pub(crate) fn give_up(&self, flows: &Flows) {
        let next = flows.attempt().saturating_add(1);
        self.tables().attempts.insert(flows.key, next);
        self.unregister(flows);
    }

    pub(crate) fn flow(&self, key: Key) -> Option<Arc<Flows>> {
        self.tables().registered.get(&key).cloned()
    }

    /// Takes a peer's posting with its eager bytes.
    pub(crate) fn post(&self, rank: usize, key: Key, attempt: u64, post: &Post, eager: &[u8]) {
        let mut tables = self.tables();
        if attempt < tables.attempt(key) {
            return;
        }
        if let Some(flows) = tables.registered.get(&key)
            && let Some(flow) = flows.of(rank)
        {
            if attempt == flows.attempt() && !flow.is_posted() {
                flow.accept(post, eager);
                return;
            }
            if attempt > flows.attempt() {
                flow.abort(MOVED_ON);
            }
        }
        let mut kept = tables.spare.pop().unwrap_or_default();
        kept.extend_from_slice(eager);
        let early = Early {
            attempt,
            post: *post,
            eager: kept,
            aborted: None,
        };
        tables.waiting += 1;
        tables.waiting_bytes += eager.len();
        let Tables {
            early: queues,
            spare_queues,
            ..
        } = &mut *tables;
        queues
            .entry((key, rank))
            .or_insert_with(|| spare_queues.pop().unwrap_or_default())
            .push_back(early);
    }

    /// Takes a peer's word that it gave an operation up. Its posting came before.
    pub(crate) fn abort(&self, rank: usize, key: Key, attempt: u64, reason: &str) {
        let mut tables = self.tables();
        if attempt < tables.attempt(key) {
            return;
        }
        if let Some(flows) = tables.registered.get(&key)
            && attempt == flows.attempt()
            && let Some(flow) = flows.of(rank)
        {
            flow.abort(reason);
            return;
        }
        let queue = tables.early.get_mut(&(key, rank));
        let early = queue.and_then(|queue| queue.iter_mut().find(|e| e.attempt == attempt));
        if let Some(early) = early {
            early.aborted = Some(reason.to_owned());
        } else {
            // This rank is through with that attempt.
            tables.attempts.insert(key, attempt.saturating_add(1));
        }
    }

    /// How many postings wait for this rank's call, and how many bytes came with them: for a bound
    /// on what peers may pile up.
    pub(crate) fn early(&self) -> (usize, usize) {
        let tables = self.tables();
        (tables.waiting, tables.waiting_bytes)
    }
}
