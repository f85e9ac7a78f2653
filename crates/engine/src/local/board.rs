//! The shared memory of the ranks of one host in one generation.
//!
//! Every rank owns an area: a *doorbell*, a table of *slots* in which it posts its operations, and
//! payload space of three sizes: 16 bytes inside the slot, *cells* and *windows*. A rank writes
//! only into its own area, with two exceptions: acknowledgements, and doorbells that it rings. The
//! others read. Nobody is asked for permission, so that a rank that posts early never waits.
//!
//! Expected flow: the owner fills a slot and publishes it with its `state`; a reader that looks
//! for the same key finds it, reads payload and progress counters, and stores the slot's round
//! into its own place among the slot's acknowledgements when it needs the posting no more; the
//! owner reuses slot and payload space when all readers have acknowledged.
//!
//! Guarantees: a posting addressed to a reader stays unchanged until that reader acknowledges.
//! Assumptions: the region is mapped by authenticated members of one generation only.
//! Caveat: a reader may look at a slot that is being rewritten for somebody else; it therefore
//! reads the key between two equal reads of `state`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::descriptor::Descriptor;
#[cfg(doc)]
use crate::kernels::lines;
use crate::key::Key;
use crate::region::{AtomicU32, AtomicU64, LANES, MAX_LOCAL, Region, SLOTS, compiler_fence, fence};
use crate::sys::{self, Mapping};

/// Slots in which an unnamed operation is looked for first. They come in turn: few suffice, and
/// stay in the caches.
const HOMES: usize = 16;
/// The same for names, which fall anywhere: a name whose slot is still in use costs a search.
const NAMED_HOMES: usize = 64;
/// Bytes that travel inside a slot.
pub(crate) const INLINE_BYTES: usize = 16;

/// A slot's status, in the low bits of its state; the round is above them.
const LIVE: u32 = 1;
const ABORTED: u32 = 2;
const STATUS_BITS: u32 = 2;

/// The round of a slot after this one. Rounds fit above the status, and zero is none.
#[inline]
pub(crate) fn next_round(round: u32) -> u32 {
    if round >= u32::MAX >> STATUS_BITS {
        1
    } else {
        round + 1
    }
}

/// What a rank publishes about one operation.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    state: AtomicU32,
    word: AtomicU32,
    key: [AtomicU64; 2],
    count: AtomicU64,
    root: AtomicU32,
    settings: AtomicU32,
    place: AtomicU64,
    pub(crate) inline: [AtomicU64; 2],
    /// Rounds of payload that are ready to be read.
    pub(crate) staged: AtomicU32,
    /// Chunks that the owner has reduced.
    pub(crate) reduced: AtomicU32,
    /// Rounds that the owner has read from everybody.
    pub(crate) taken: AtomicU32,
    _pad: [u32; 13],
}

/// Where an operation's payload lies in its owner's area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing is sent.
    None,
    /// In the slot itself.
    Inline,
    /// In the cell with this number.
    Cell(u16),
    /// In the window with this number.
    Window(u16),
    /// Nowhere yet: the operation waits for a lane.
    Pending,
    /// In the owner's shared arena `id` at an offset: readers go straight to the tensor.
    Arena {
        /// The arena's number.
        id: u16,
        /// Bytes from its beginning, a multiple of 64.
        offset: u64,
    },
}

/// Above a place's other bits: the lane that its operation was granted, plus one.
const LANE_SHIFT: u32 = 56;

impl Place {
    #[inline]
    fn pack(self, staged: u32) -> u64 {
        let low = match self {
            Self::None => 0,
            Self::Inline => 1,
            Self::Cell(index) => 2 | u64::from(index) << 8,
            Self::Window(index) => 3 | u64::from(index) << 8,
            Self::Pending => 4,
            Self::Arena { id, offset } => return 5 | u64::from(id) << 8 | (offset >> 6) << 24,
        };
        low | u64::from(staged) << 24
    }

    #[inline]
    fn unpack(packed: u64) -> (Self, u32) {
        let index = (packed >> 8) as u16;
        let staged = (packed >> 24) as u32;
        let offset = packed << 8 >> 32;
        match packed & 0xff {
            1 => (Self::Inline, staged),
            2 => (Self::Cell(index), staged),
            3 => (Self::Window(index), staged),
            4 => (Self::Pending, staged),
            5 => (
                Self::Arena {
                    id: index,
                    offset: offset << 6,
                },
                0,
            ),
            _ => (Self::None, staged),
        }
    }
}

/// A peer's posting, found by key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) slot: u16,
    pub(crate) round: u32,
    pub(crate) aborted: bool,
}

/// What is common to all ranks of the board.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Header {
    /// A bit for each rank that sleeps and wants its bell rung.
    parked: AtomicU64,
    _line0: [u64; 7],
    /// A bit for each lane in use.
    lanes: AtomicU64,
    _line1: [u64; 7],
    /// Members of the lane's operation that have not ended yet.
    lane_users: [AtomicU32; 16],
}

/// The first line of a rank's area.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Bell {
    /// Rises when the bell is rung; sleepers wait for that.
    word: AtomicU32,
    /// Set while the rank's engine thread sleeps on its eventfd with local work in flight.
    engine: AtomicU32,
    /// One more than the highest slot ever used.
    high_water: AtomicU32,
    /// Postings that are not in their key's home.
    displaced: AtomicU32,
    /// One more than the core on which the rank was last seen to wait; zero if it never did.
    core: AtomicU32,
}

/// One rank's view of the shared memory of its host.
pub(crate) struct Board {
    region: Region,
    me: usize,
    /// Whether sleepers pay for the fence, so that ringing needs none.
    asymmetric: bool,
}

impl Board {
    /// Bytes of a board for `ranks` ranks.
    pub(crate) fn bytes(ranks: usize) -> usize {
        Region::bytes(ranks)
    }

    /// The view of local rank `me` of `ranks`.
    pub(crate) fn new(mapping: Arc<Mapping>, ranks: usize, me: usize) -> Self {
        assert!(ranks <= MAX_LOCAL && me < ranks, "a rank of the board");
        Self {
            region: Region::new(mapping, ranks),
            me,
            asymmetric: sys::register_heavy_fence(),
        }
    }

    pub(crate) fn me(&self) -> usize {
        self.me
    }

    pub(crate) fn ranks(&self) -> usize {
        self.region.ranks()
    }

    #[inline]
    fn header(&self) -> &Header {
        self.region.header()
    }

    #[inline]
    fn bell(&self, rank: usize) -> &Bell {
        self.region.bell(rank)
    }

    /// The slot with this number of a rank.
    #[inline]
    pub(crate) fn slot(&self, rank: usize, slot: u16) -> &Slot {
        self.region.slot(rank, slot)
    }

    #[inline]
    fn acknowledgement(&self, rank: usize, slot: u16, reader: usize) -> &AtomicU32 {
        self.region.acknowledgement(rank, slot, reader)
    }

    /// The memory of a posting's payload. Who may touch it is decided by the posting.
    #[inline]
    pub(crate) fn payload(&self, rank: usize, slot: u16, place: Place) -> *mut u8 {
        match place {
            Place::Inline => self.region.inline(rank, slot),
            Place::Cell(index) => self.region.cell(rank, index),
            Place::Window(index) => self.region.window(rank, index),
            _ => std::ptr::null_mut(),
        }
    }

    /// The slot in which a key is posted if it is free, and looked for first.
    #[inline]
    pub(crate) fn home(key: Key) -> u16 {
        let homes = if key.is_named() { NAMED_HOMES } else { HOMES };
        (key.hint() % homes.min(SLOTS)) as u16
    }

    /// Fills one of this rank's own slots, without publishing it.
    #[inline]
    pub(crate) fn fill(&self, slot: u16, key: Key, descriptor: &Descriptor) {
        let line = self.slot(self.me, slot);
        // Nobody may find the new key under the old round while the slot is being filled.
        line.state.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        line.word.store(descriptor.word(), Ordering::Relaxed);
        line.key[0].store(key.0, Ordering::Relaxed);
        line.key[1].store(key.1, Ordering::Relaxed);
        line.count.store(descriptor.count, Ordering::Relaxed);
        line.root.store(descriptor.root, Ordering::Relaxed);
        line.settings.store(descriptor.settings, Ordering::Relaxed);
        if slot != Self::home(key) {
            let bell = self.bell(self.me);
            bell.high_water
                .fetch_max(u32::from(slot) + 1, Ordering::Relaxed);
            bell.displaced.fetch_add(1, Ordering::Release);
        }
    }

    /// The posting of `key` in this rank's own slot is gone.
    #[inline]
    pub(crate) fn clear(&self, slot: u16, key: Key) {
        if slot != Self::home(key) {
            self.bell(self.me).displaced.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Puts up to [`INLINE_BYTES`] bytes into a slot that is not published yet.
    #[inline]
    pub(crate) fn fill_inline(&self, slot: u16, bytes: [u8; INLINE_BYTES]) {
        let line = self.slot(self.me, slot);
        let value = u128::from_le_bytes(bytes);
        line.inline[0].store(value as u64, Ordering::Relaxed);
        line.inline[1].store((value >> 64) as u64, Ordering::Relaxed);
    }

    /// Publishes a filled slot: from here on readers find it. The progress counters are reset
    /// where the operation will use them: it says so (`counted`), or has its payload yet to come.
    #[inline]
    pub(crate) fn publish(&self, slot: u16, round: u32, place: Place, staged: u32, counted: bool) {
        let line = self.slot(self.me, slot);
        if counted || place == Place::Pending {
            line.staged.store(staged, Ordering::Relaxed);
            line.reduced.store(0, Ordering::Relaxed);
            line.taken.store(0, Ordering::Relaxed);
        }
        line.place.store(place.pack(staged), Ordering::Relaxed);
        line.state
            .store(round << STATUS_BITS | LIVE, Ordering::Release);
    }

    /// Marks this rank's posting as aborted; readers give the operation up.
    pub(crate) fn abort(&self, slot: u16, round: u32) {
        self.slot(self.me, slot)
            .state
            .store(round << STATUS_BITS | ABORTED, Ordering::Release);
    }

    /// The round of a found posting, which stays until this rank acknowledges it.
    #[inline]
    pub(crate) fn round(&self, rank: usize, slot: u16) -> u32 {
        self.slot(rank, slot).state.load(Ordering::Relaxed) >> STATUS_BITS
    }

    /// Whether a found posting has been aborted since.
    pub(crate) fn is_aborted(&self, rank: usize, slot: u16) -> bool {
        let state = self.slot(rank, slot).state.load(Ordering::Acquire);
        state & ((1 << STATUS_BITS) - 1) == ABORTED
    }

    /// Looks for a rank's posting of `key` that this rank has not acknowledged yet.
    ///
    /// `consumed` tells the last round of a slot that was acknowledged.
    #[inline]
    pub(crate) fn find(
        &self,
        rank: usize,
        key: Key,
        everywhere: bool,
        consumed: impl Fn(u16) -> u32,
    ) -> Option<Found> {
        let home = Self::home(key);
        if let Some(found) = self.matches(rank, home, key, &consumed) {
            return Some(found);
        }
        if !everywhere {
            return None;
        }
        let bell = self.bell(rank);
        if bell.displaced.load(Ordering::Acquire) == 0 {
            return None;
        }
        let high = bell.high_water.load(Ordering::Relaxed).min(SLOTS as u32) as u16;
        (0..high)
            .filter(|slot| *slot != home)
            .find_map(|slot| self.matches(rank, slot, key, &consumed))
    }

    #[inline]
    fn matches(
        &self,
        rank: usize,
        slot: u16,
        key: Key,
        consumed: &impl Fn(u16) -> u32,
    ) -> Option<Found> {
        let line = self.slot(rank, slot);
        let state = line.state.load(Ordering::Acquire);
        if line.key[0].load(Ordering::Relaxed) != key.0
            || line.key[1].load(Ordering::Relaxed) != key.1
            || state & ((1 << STATUS_BITS) - 1) == 0
        {
            return None;
        }
        fence(Ordering::Acquire);
        let again = line.state.load(Ordering::Relaxed);
        let round = state >> STATUS_BITS;
        if again >> STATUS_BITS != round || consumed(slot) == round {
            return None;
        }
        Some(Found {
            slot,
            round,
            aborted: again & ((1 << STATUS_BITS) - 1) == ABORTED,
        })
    }

    /// What a found posting asks for; `None` if its owner wrote nonsense.
    #[inline]
    pub(crate) fn descriptor(&self, rank: usize, slot: u16) -> Option<Descriptor> {
        let line = self.slot(rank, slot);
        Descriptor::from_parts(
            line.word.load(Ordering::Relaxed),
            line.count.load(Ordering::Relaxed),
            line.root.load(Ordering::Relaxed),
            line.settings.load(Ordering::Relaxed),
        )
    }

    /// Where a found posting's payload lies, and how many rounds were ready when it was posted.
    #[inline]
    pub(crate) fn place(&self, rank: usize, slot: u16) -> (Place, u32) {
        Place::unpack(self.slot(rank, slot).place.load(Ordering::Relaxed))
    }

    /// Tells a posting's owner that this rank needs it no more.
    #[inline]
    pub(crate) fn acknowledge(&self, rank: usize, slot: u16, round: u32) {
        self.acknowledgement(rank, slot, self.me)
            .store(round, Ordering::Release);
    }

    /// Hands the line of a posting back to its owner; for its only reader, see [`lines`].
    #[inline]
    pub(crate) fn hand_slot_back(&self, rank: usize, slot: u16) {
        let word = &self.slot(rank, slot).word;
        word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether all `readers` (a bit each) have acknowledged this rank's own posting.
    pub(crate) fn is_acknowledged(&self, slot: u16, round: u32, readers: u64) -> bool {
        let mut left = readers;
        while left != 0 {
            let reader = left.trailing_zeros() as usize;
            let seen = self
                .acknowledgement(self.me, slot, reader)
                .load(Ordering::Acquire);
            if seen != round {
                return false;
            }
            left &= left - 1;
        }
        true
    }

    /// Tells the members of this rank's operation which lane they were granted.
    pub(crate) fn grant_lane(&self, slot: u16, lane: u32) {
        let line = self.slot(self.me, slot);
        let place = line.place.load(Ordering::Relaxed);
        line.place
            .store(place | u64::from(lane + 1) << LANE_SHIFT, Ordering::Release);
    }

    /// The lane that a posting's owner was granted.
    pub(crate) fn granted_lane(&self, rank: usize, slot: u16) -> Option<u32> {
        let place = self.slot(rank, slot).place.load(Ordering::Acquire);
        ((place >> LANE_SHIFT) as u32).checked_sub(1)
    }

    /// Takes a free lane for an operation of `users` ranks.
    pub(crate) fn take_lane(&self, users: usize) -> Option<u32> {
        let lanes = &self.header().lanes;
        let mut taken = lanes.load(Ordering::Relaxed);
        loop {
            let lane = (!taken).trailing_zeros();
            if lane as usize >= LANES {
                return None;
            }
            match lanes.compare_exchange_weak(
                taken,
                taken | 1 << lane,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.header().lane_users[lane as usize].store(users as u32, Ordering::Release);
                    return Some(lane);
                }
                Err(now) => taken = now,
            }
        }
    }

    /// One user of a lane has ended; the last one frees it.
    pub(crate) fn leave_lane(&self, lane: u32) {
        if self.header().lane_users[lane as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.header()
                .lanes
                .fetch_and(!(1 << lane), Ordering::Release);
        }
    }

    /// The sleepers among `ranks` (a bit each) that want to be woken after a publication.
    #[inline]
    pub(crate) fn sleepers(&self, ranks: u64) -> u64 {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        self.header().parked.load(Ordering::Relaxed) & ranks
    }

    /// Rings a rank's bell; true when its engine thread must be woken through its eventfd too.
    pub(crate) fn ring(&self, rank: usize) -> bool {
        let bell = self.bell(rank);
        bell.word.fetch_add(1, Ordering::Release);
        sys::futex_wake_all(&bell.word);
        bell.engine.load(Ordering::Acquire) != 0
    }

    /// Announces that a thread of this rank is about to sleep. What it waits for must be looked at
    /// once more after this; the result is what [`Self::sleep`] compares.
    pub(crate) fn announce_sleep(&self) -> u32 {
        let word = self.bell(self.me).word.load(Ordering::Acquire);
        self.header()
            .parked
            .fetch_or(1 << self.me, Ordering::SeqCst);
        if self.asymmetric {
            sys::heavy_fence();
        } else {
            fence(Ordering::SeqCst);
        }
        word
    }

    /// Sleeps until the bell rings or `limit` passes.
    pub(crate) fn sleep(&self, word: u32, limit: std::time::Duration) {
        sys::futex_wait(&self.bell(self.me).word, word, limit);
    }

    /// No thread of this rank sleeps any more.
    pub(crate) fn end_sleep(&self) {
        self.header()
            .parked
            .fetch_and(!(1 << self.me), Ordering::SeqCst);
    }

    /// Says on which core this rank runs; it seldom changes.
    #[inline]
    pub(crate) fn note_core(&self, core: u32) {
        let noted = &self.bell(self.me).core;
        if noted.load(Ordering::Relaxed) != core + 1 {
            noted.store(core + 1, Ordering::Relaxed);
        }
    }

    /// The core on which a rank was last seen to wait.
    pub(crate) fn core_of(&self, rank: usize) -> Option<u32> {
        self.bell(rank).core.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether a rank was last seen on this core.
    #[inline]
    pub(crate) fn is_on_core(&self, rank: usize, core: u32) -> bool {
        self.bell(rank).core.load(Ordering::Relaxed) == core + 1
    }

    /// Says whether this rank's engine thread sleeps on its eventfd with local work in flight.
    pub(crate) fn set_engine_sleeps(&self, sleeps: bool) {
        self.bell(self.me)
            .engine
            .store(u32::from(sleeps), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Kind;
    use crate::dtype::{DType, ReduceOp};

    fn boards(ranks: usize) -> Vec<Board> {
        let mapping = Arc::new(Mapping::anonymous(Board::bytes(ranks)).unwrap());
        (0..ranks)
            .map(|me| Board::new(Arc::clone(&mapping), ranks, me))
            .collect()
    }

    fn descriptor(count: u64) -> Descriptor {
        Descriptor {
            kind: Kind::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            shared: false,
            count,
            root: 0,
            settings: 0,
        }
    }

    #[test]
    fn a_posting_is_found_until_it_is_acknowledged() {
        let boards = boards(3);
        let key = Key::named(1, "x");
        assert!(boards[1].find(0, key, true, |_| 0).is_none());
        boards[0].fill(700, key, &descriptor(5));
        boards[0].fill_inline(700, [7; INLINE_BYTES]);
        assert!(
            boards[1].find(0, key, true, |_| 0).is_none(),
            "not published yet"
        );
        boards[0].publish(700, 1, Place::Inline, 1, false);
        let found = boards[1].find(0, key, true, |_| 0).expect("published");
        assert_eq!((found.slot, found.round, found.aborted), (700, 1, false));
        assert_eq!(boards[1].descriptor(0, 700), Some(descriptor(5)));
        assert_eq!(boards[1].place(0, 700), (Place::Inline, 1));
        assert!(!boards[0].is_acknowledged(700, 1, 0b110));
        boards[1].acknowledge(0, 700, 1);
        assert!(!boards[0].is_acknowledged(700, 1, 0b110));
        boards[2].acknowledge(0, 700, 1);
        assert!(boards[0].is_acknowledged(700, 1, 0b110));
        assert!(
            boards[1].find(0, key, true, |_| 1).is_none(),
            "already consumed"
        );
    }

    #[test]
    fn rounds_begin_again_before_they_outgrow_the_state() {
        let boards = boards(2);
        let key = Key::named(1, "x");
        let last = u32::MAX >> STATUS_BITS;
        assert_eq!((next_round(0), next_round(last - 1)), (1, last));
        let mut consumed = last - 1;
        for round in [last, next_round(last)] {
            boards[0].fill(3, key, &descriptor(5));
            boards[0].publish(3, round, Place::None, 0, false);
            let found = boards[1].find(0, key, true, |_| consumed).expect("new");
            assert_eq!(found.round, round);
            boards[1].acknowledge(0, 3, found.round);
            assert!(boards[0].is_acknowledged(3, round, 0b10));
            consumed = round;
        }
    }

    #[test]
    fn a_posting_whose_payload_is_yet_to_come_begins_to_count_anew() {
        let boards = boards(2);
        let key = Key::named(1, "x");
        boards[0].fill(3, key, &descriptor(5));
        boards[0].publish(3, 1, Place::Window(0), 4, true);
        boards[0].fill(3, key, &descriptor(5));
        boards[0].publish(3, 2, Place::Pending, 0, false);
        assert_eq!(boards[1].slot(0, 3).staged.load(Ordering::Acquire), 0);
    }

    #[test]
    fn places_round_trip() {
        for place in [
            Place::None,
            Place::Inline,
            Place::Cell(63),
            Place::Window(5),
            Place::Pending,
        ] {
            assert_eq!(Place::unpack(place.pack(3)), (place, 3));
        }
        let arena = Place::Arena {
            id: 9,
            offset: 1 << 37,
        };
        assert_eq!(Place::unpack(arena.pack(0)).0, arena);
    }

    #[test]
    fn the_last_user_frees_a_lane() {
        let boards = boards(2);
        let lanes: Vec<u32> = (0..LANES)
            .map(|_| boards[0].take_lane(2).unwrap())
            .collect();
        assert!(boards[1].take_lane(2).is_none());
        boards[0].leave_lane(lanes[0]);
        assert!(boards[1].take_lane(2).is_none());
        boards[1].leave_lane(lanes[0]);
        assert_eq!(boards[1].take_lane(2), Some(lanes[0]));
    }
}
