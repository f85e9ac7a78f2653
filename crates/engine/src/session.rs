//! Sessions: peers joined in one generation.

mod drive;
mod loss;
mod spread;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
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
use crate::recorder::Recorder;
use crate::store::Store;
use crate::stream::exchange::Surroundings;
use crate::stream::frame::FrameKind;
use crate::stream::{Events, Streams};
use crate::sys;
use crate::table::Table;
use crate::wait::Patience;

pub(crate) use drive::Slow;
use loss::Heart;
pub(crate) use loss::Loss;
use spread::Spread;

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
    /// While ranks of this host outnumber its cores.
    spread: Option<Spread>,
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
            spread: Spread::new(on_host),
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
            self.engine.part(streams.into_partings());
        }
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
