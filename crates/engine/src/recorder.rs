//! What a session counts while it works, cheaply enough to be always on.
//!
//! The hot path reads the processor's time-stamp counter and adds to a handful of numbers. Those of
//! blocking calls belong to the calling thread alone (a *shard*), so that adding is a load and a
//! store: a locked instruction would wait for the flags that the operation has just written for its
//! peers. Started operations end on any thread and are slower anyway; they, and threads beyond
//! [`SHARDS`], share one shard and add atomically. Readers add the shards up ([`crate::metrics`]).
//!
//! Left out: anything that needs a lock, memory or text. Only errors and stalls, which are rare,
//! take a slower way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::descriptor::Kind;
use crate::error::Error;
use crate::metrics::{Sample, Totals};
use crate::sys;
use crate::timeline::Switch;

/// Threads with numbers of their own.
const SHARDS: usize = 64;

/// Kinds of operations.
pub(crate) const KINDS: usize = Kind::ALL.len();

/// Operations are counted apart by size: up to so many bytes, or above all of these.
pub(crate) const SIZES: [u64; 5] = [1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
pub(crate) const CLASSES: usize = SIZES.len() + 1;

/// The kinds of errors, as labels.
pub(crate) const ERRORS: [&str; 11] = [
    "peer_lost",
    "mismatch",
    "aborted",
    "timeout",
    "duplicate",
    "invalid",
    "closed",
    "forked",
    "form",
    "refused",
    "system",
];

/// The place of an error in [`ERRORS`].
pub(crate) const fn error_index(error: &Error) -> usize {
    match error {
        Error::PeerLost { .. } => 0,
        Error::Mismatch { .. } => 1,
        Error::Aborted { .. } => 2,
        Error::Timeout { .. } => 3,
        Error::Duplicate { .. } => 4,
        Error::Invalid { .. } => INVALID,
        Error::Closed => 6,
        Error::Forked { .. } => 7,
        Error::Form(_) => 8,
        Error::Refused { .. } => 9,
        Error::System { .. } => 10,
    }
}

const INVALID: usize = 5;

/// Buckets whose upper bounds are powers of two: the first is 2^`lowest`, the last has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub(crate) lowest: u32,
    pub(crate) count: usize,
}

/// Nanoseconds: up to 64 ns, …, up to 69 s, above.
pub(crate) const LATENCY: Buckets = Buckets {
    lowest: 6,
    count: 32,
};

/// Bytes per second: up to 16 KiB/s, …, up to 1 TiB/s, above.
pub(crate) const BANDWIDTH: Buckets = Buckets {
    lowest: 14,
    count: 28,
};

impl Buckets {
    /// The bucket of a value: the first whose bound is not below it.
    #[inline]
    pub(crate) const fn of(self, value: u64) -> usize {
        let index = power(value).saturating_sub(self.lowest) as usize;
        if index < self.count {
            index
        } else {
            self.count - 1
        }
    }
}

/// The least `n` for which 2^n is not below the value.
#[inline]
const fn power(value: u64) -> u32 {
    u64::BITS - value.saturating_sub(1).leading_zeros()
}

/// By power of two: the size class.
const CLASS: [u8; 65] = {
    let mut classes = [0; 65];
    let mut exponent = 0;
    while exponent < classes.len() {
        let mut class = 0;
        while class < SIZES.len() && exponent as u32 > SIZES[class].trailing_zeros() {
            class += 1;
        }
        classes[exponent] = class as u8;
        exponent += 1;
    }
    classes
};

/// The place of a size in [`SIZES`], or beyond.
#[inline]
fn class(bytes: u64) -> usize {
    CLASS[power(bytes) as usize].into()
}

/// What a tick is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Nanoseconds a tick, times 2^32.
    factor: u64,
}

impl Clock {
    /// The clock of this machine; measured once, which takes two milliseconds.
    pub(crate) fn get() -> Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            if cfg!(not(target_arch = "x86_64")) {
                return Self { factor: 1 << 32 };
            }
            let (since, begin) = simultaneous();
            while since.elapsed() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            let (until, end) = simultaneous();
            let nanoseconds = u128::from((until - since).as_nanos() as u64);
            let ticks = u128::from(end.saturating_sub(begin).max(1));
            Self {
                factor: ((nanoseconds << 32) / ticks) as u64,
            }
        })
    }

    #[inline]
    pub(crate) fn nanoseconds(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.factor)) >> 32) as u64
    }
}

/// Both clocks at one moment: the closest of a few tries, so that being interrupted does no harm.
pub(crate) fn simultaneous() -> (Instant, u64) {
    let mut best = (Duration::MAX, Instant::now(), sys::ticks());
    for _ in 0..8 {
        let before = Instant::now();
        let ticks = sys::ticks();
        let apart = before.elapsed();
        if apart < best.0 {
            best = (apart, before + apart / 2, ticks);
        }
    }
    (best.1, best.2)
}

/// A counter that one thread adds to, or any.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    #[inline]
    fn add(&self, exclusive: bool, value: u64) {
        if exclusive {
            let sum = self.0.load(Ordering::Relaxed).wrapping_add(value);
            self.0.store(sum, Ordering::Relaxed);
        } else {
            self.0.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Operations of one kind and size class.
#[derive(Default)]
struct Cell {
    nanoseconds: Counter,
    bytes: Counter,
    /// The bandwidths' sum, in KiB/s so that it does not overflow.
    speed: Counter,
    latency: [Counter; LATENCY.count],
    bandwidth: [Counter; BANDWIDTH.count],
}

#[derive(Default)]
struct Traffic {
    to: Counter,
    from: Counter,
}

/// What some thread, or several, counted.
struct Shard {
    /// Only one thread adds.
    exclusive: bool,
    cells: Box<[Cell]>,
    /// Bytes through shared memory, by session rank.
    peers: Box<[Traffic]>,
}

impl Shard {
    fn new(exclusive: bool, ranks: usize) -> Self {
        Self {
            exclusive,
            cells: (0..KINDS * CLASSES).map(|_| Cell::default()).collect(),
            peers: (0..ranks).map(|_| Traffic::default()).collect(),
        }
    }

    fn forget(&self) {
        for cell in &self.cells {
            cell.nanoseconds.forget();
            cell.bytes.forget();
            cell.speed.forget();
            cell.latency.iter().for_each(Counter::forget);
            cell.bandwidth.iter().for_each(Counter::forget);
        }
        for peer in &self.peers {
            peer.to.forget();
            peer.from.forget();
        }
    }

    #[inline]
    fn operation(&self, kind: Kind, bytes: u64, nanoseconds: u64) {
        let exclusive = self.exclusive;
        let cell = &self.cells[kind_index(kind) * CLASSES + class(bytes)];
        cell.latency[LATENCY.of(nanoseconds)].add(exclusive, 1);
        cell.nanoseconds.add(exclusive, nanoseconds);
        if bytes > 0 {
            cell.bytes.add(exclusive, bytes);
            let bandwidth = (bytes as f64 * 1e9 / nanoseconds.max(1) as f64) as u64;
            cell.bandwidth[BANDWIDTH.of(bandwidth)].add(exclusive, 1);
            cell.speed.add(exclusive, bandwidth >> 10);
        }
    }
}

/// Where bytes through shared memory are added.
#[derive(Clone, Copy)]
pub(crate) struct Peers<'a>(&'a Shard);

impl Peers<'_> {
    /// Bytes to a rank, and from it.
    #[inline]
    pub(crate) fn add(self, rank: usize, to: u64, from: u64) {
        let peer = &self.0.peers[rank];
        peer.to.add(self.0.exclusive, to);
        peer.from.add(self.0.exclusive, from);
    }
}

/// The place of a kind in [`Kind::ALL`].
#[inline]
const fn kind_index(kind: Kind) -> usize {
    kind as usize - 1
}

/// The numbers of threads that have ended.
static FREE: Mutex<Free> = Mutex::new(Free {
    next: 0,
    returned: Vec::new(),
});

struct Free {
    next: usize,
    returned: Vec<usize>,
}

/// A small number that no other living thread has.
struct Number(usize);

impl Number {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        Self(free.returned.pop().unwrap_or_else(|| {
            free.next += 1;
            free.next - 1
        }))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.push(self.0);
    }
}

thread_local! {
    static NUMBER: Number = Number::take();
}

/// Who ended an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The thread that called it.
    Blocking,
    /// Some thread, perhaps the engine's.
    Started,
}

/// What a session counts.
pub(crate) struct Recorder {
    clock: Clock,
    shards: [OnceLock<Shard>; SHARDS],
    shared: Shard,
    errors: [[Counter; ERRORS.len()]; KINDS],
    stalls: [Counter; KINDS],
    pub(crate) timeline: Switch,
    pub(crate) formed: Instant,
    /// Earlier snapshots' bytes, for rates.
    pub(crate) samples: Mutex<[Sample; 2]>,
}

impl Recorder {
    pub(crate) fn new(ranks: usize) -> Self {
        let formed = Instant::now();
        let sample = || Sample::new(formed, ranks);
        Self {
            clock: Clock::get(),
            shards: [const { OnceLock::new() }; SHARDS],
            shared: Shard::new(false, ranks),
            errors: Default::default(),
            stalls: Default::default(),
            timeline: Switch::default(),
            formed,
            samples: Mutex::new([sample(), sample()]),
        }
    }

    /// The shard of this thread.
    #[inline]
    fn shard(&self, ending: Ending) -> &Shard {
        if ending == Ending::Started {
            return &self.shared;
        }
        // A thread that is being taken down has no number any more.
        let number = NUMBER.try_with(|number| number.0).unwrap_or(SHARDS);
        match self.shards.get(number) {
            Some(shard) => shard.get_or_init(|| Shard::new(true, self.shared.peers.len())),
            None => &self.shared,
        }
    }

    /// An operation was completed; what it moved through shared memory is to be added to the
    /// peers.
    #[inline]
    pub(crate) fn completed(
        &self,
        ending: Ending,
        kind: Kind,
        bytes: u64,
        ticks: u64,
    ) -> Peers<'_> {
        let shard = self.shard(ending);
        shard.operation(kind, bytes, self.clock.nanoseconds(ticks));
        Peers(shard)
    }

    /// An operation failed.
    #[cold]
    pub(crate) fn failed(&self, kind: Kind, error: &Error) {
        self.errors[kind_index(kind)][error_index(error)].add(false, 1);
    }

    /// A call made no sense, and no operation came of it.
    #[cold]
    pub(crate) fn refused(&self, kind: Kind) {
        self.errors[kind_index(kind)][INVALID].add(false, 1);
    }

    /// A wait passed the stall limit.
    #[cold]
    pub(crate) fn stalled(&self, kind: Kind) {
        self.stalls[kind_index(kind)].add(false, 1);
    }

    /// Begins anew, while no operation is under way.
    pub(crate) fn forget(&self) {
        self.all_shards().for_each(Shard::forget);
        self.errors.iter().flatten().for_each(Counter::forget);
        self.stalls.iter().for_each(Counter::forget);
    }

    fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        let own = self.shards.iter().filter_map(OnceLock::get);
        own.chain(std::iter::once(&self.shared))
    }

    /// What all threads counted of a kind and a size class.
    pub(crate) fn totals(&self, kind: Kind, class: usize) -> Totals {
        let mut totals = Totals::default();
        for shard in self.all_shards() {
            let cell = &shard.cells[kind_index(kind) * CLASSES + class];
            totals.nanoseconds += cell.nanoseconds.get();
            totals.bytes += cell.bytes.get();
            totals.speed += cell.speed.get();
            for (sum, counter) in totals.latency.iter_mut().zip(&cell.latency) {
                *sum += counter.get();
            }
            for (sum, counter) in totals.bandwidth.iter_mut().zip(&cell.bandwidth) {
                *sum += counter.get();
            }
        }
        totals
    }

    /// Bytes through shared memory to a rank, and from it.
    pub(crate) fn shared_memory(&self, rank: usize) -> (u64, u64) {
        self.all_shards().fold((0, 0), |(to, from), shard| {
            let peer = &shard.peers[rank];
            (to + peer.to.get(), from + peer.from.get())
        })
    }

    /// Errors of a kind of operation, as in [`ERRORS`].
    pub(crate) fn errors(&self, kind: Kind) -> [u64; ERRORS.len()] {
        std::array::from_fn(|error| self.errors[kind_index(kind)][error].get())
    }

    /// Stalls of a kind of operation.
    pub(crate) fn stalls(&self, kind: Kind) -> u64 {
        self.stalls[kind_index(kind)].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket() {
        assert_eq!(LATENCY.of(0), 0);
        assert_eq!(LATENCY.of(64), 0);
        assert_eq!(LATENCY.of(65), 1);
        assert_eq!(LATENCY.of(128), 1);
        assert_eq!(LATENCY.of(1 << 36), 30);
        assert_eq!(LATENCY.of((1 << 36) + 1), 31);
        assert_eq!(LATENCY.of(u64::MAX), 31);
        assert_eq!(BANDWIDTH.of(u64::MAX), BANDWIDTH.count - 1);
    }

    #[test]
    fn sizes_fall_into_classes() {
        for (bytes, expected) in [
            (0, 0),
            (1, 0),
            (1024, 0),
            (1025, 1),
            (64 << 10, 1),
            ((64 << 10) + 1, 2),
            (1 << 20, 2),
            (16 << 20, 3),
            (256 << 20, 4),
            ((256 << 20) + 1, 5),
            (u64::MAX, 5),
        ] {
            assert_eq!(class(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn the_clock_agrees_with_the_systems() {
        let clock = Clock::get();
        let (since, begin) = simultaneous();
        while since.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let (until, end) = simultaneous();
        let expected = (until - since).as_nanos() as f64;
        let got = clock.nanoseconds(end - begin) as f64;
        assert!((got / expected - 1.0).abs() < 0.01, "{got} of {expected}");
    }

    #[test]
    fn threads_add_up() {
        let recorder = Recorder::new(2);
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    for ending in [Ending::Blocking, Ending::Started] {
                        for _ in 0..100 {
                            recorder
                                .completed(ending, Kind::AllReduce, 8, 1000)
                                .add(1, 8, 4);
                        }
                    }
                });
            }
        });
        let totals = recorder.totals(Kind::AllReduce, 0);
        assert_eq!(totals.latency.iter().sum::<u64>(), 20_000);
        assert_eq!(totals.bandwidth.iter().sum::<u64>(), 20_000);
        assert_eq!(totals.bytes, 160_000);
        assert_eq!(recorder.shared_memory(1), (160_000, 80_000));
        assert_eq!(recorder.shared_memory(0), (0, 0));
        recorder.forget();
        assert_eq!(recorder.totals(Kind::AllReduce, 0).bytes, 0);
        assert_eq!(recorder.shared_memory(1), (0, 0));
    }

    #[test]
    fn every_error_has_a_name() {
        let operation = || "barrier #0".to_owned();
        let error = Error::Invalid {
            operation: operation(),
            problem: String::new(),
        };
        assert_eq!(ERRORS[error_index(&error)], "invalid");
        assert_eq!(ERRORS[error_index(&Error::Closed)], "closed");
        let error = Error::Duplicate {
            operation: operation(),
        };
        assert_eq!(ERRORS[error_index(&error)], "duplicate");
    }
}
