//! Collectives among ranks of one host, through shared memory.
//!
//! The parts: [`board`] is the memory and its protocol; the ledger here knows which of this
//! rank's slots, cells and windows are free; [`attend`] brings the members of one operation
//! together and compares what they ask for; [`transfer`] moves data in one phase (broadcast,
//! gathers, exchanges, small reductions), [`reduce`] in two (large reductions).
//!
//! Threads as ranks (the `memory` transport) and processes as ranks (`shm`) run the same code;
//! they differ in who maps the region.

pub(crate) mod attend;
pub(crate) mod board;
pub(crate) mod direct;
pub(crate) mod member_table;
pub(crate) mod reduce;
pub(crate) mod transfer;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use self::member_table::MemberTable;
use crate::arena::Arena;
use crate::descriptor::Descriptor;
use crate::kernels::{Filling, Store, lines};
use crate::key::Key;
use crate::region::{CELL_BYTES, CELLS, LANES, Mutex, MutexGuard, SLOTS, WINDOWS};
use crate::sys::{self, Mapping};
use attend::OpenGrant;
use board::{Board, INLINE_BYTES, Place};

/// This rank's side of the shared memory: the board and the book-keeping of its own area.
pub(crate) struct Local {
    pub(crate) board: Board,
    ledger: Mutex<Ledger>,
    /// By slot: whether the operation is still running on this rank.
    active: Box<[AtomicBool]>,
    /// By (rank, slot): the last round that this rank acknowledged.
    consumed: Box<[AtomicU32]>,
    /// Threads of this rank that sleep on the bell.
    sleepers: Mutex<usize>,
    /// The eventfd of every local rank's engine thread.
    bells: Vec<Option<OwnedFd>>,
    /// The arena of every other local rank, as this process maps it.
    arenas: Vec<Option<Mapping>>,
    /// This peer's own arena.
    pub(crate) arena: Option<Arc<Arena>>,
    /// Whether ranks outnumber cores.
    pub(crate) crowded: bool,
    /// How this rank's buffers are filled where one other core reads them.
    filling: Filling,
}

/// A posting of this rank that some reader may still need.
struct Outstanding {
    slot: u16,
    round: u32,
    key: Key,
    readers: u64,
    place: Place,
}

/// An operation that this rank gave up before these ranks had posted it.
struct Debt {
    key: Key,
    ranks: u64,
    /// While it is open whether this operation is still granted a lane, of which this rank would
    /// be a user.
    grant: Option<OpenGrant>,
}

struct Ledger {
    clean: [u64; SLOTS / 64],
    rounds: Box<[u32]>,
    cells: u64,
    windows: u64,
    /// The window that was handed out last.
    last_window: u32,
    outstanding: Vec<Outstanding>,
    debts: Vec<Debt>,
}

/// A slot that an operation holds, and where its payload goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) slot: u16,
    pub(crate) round: u32,
    pub(crate) place: Place,
}

/// What an operation's payload needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Space {
    /// Up to this many bytes at a time.
    Bytes(usize),
    /// Nothing: the tensor lies in this rank's arena, at this offset.
    Arena(u64),
}

/// Why an operation cannot be opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The same name is running on this rank.
    Duplicate,
    /// The last posting of this name, or of too many names, has not been read by everyone.
    Busy,
}

impl Local {
    pub(crate) fn new(
        board: Board,
        bells: Vec<Option<OwnedFd>>,
        arenas: Vec<Option<Mapping>>,
        arena: Option<Arc<Arena>>,
    ) -> Self {
        let ranks = board.ranks();
        Self {
            board,
            ledger: Mutex::new(Ledger {
                clean: [u64::MAX; SLOTS / 64],
                rounds: vec![0; SLOTS].into(),
                cells: u64::MAX,
                windows: (1 << WINDOWS) - 1,
                last_window: 0,
                outstanding: Vec::with_capacity(SLOTS),
                debts: Vec::with_capacity(16),
            }),
            active: (0..SLOTS).map(|_| AtomicBool::new(false)).collect(),
            consumed: (0..SLOTS * ranks).map(|_| AtomicU32::new(0)).collect(),
            sleepers: Mutex::new(0),
            bells,
            arenas,
            arena,
            crowded: ranks > sys::available_cores(),
            filling: Filling::default(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes a slot for `key` and space for its payload, to be read by `readers`.
    #[inline]
    pub(crate) fn open(&self, key: Key, space: Space, readers: u64) -> Result<Ticket, Refusal> {
        let mut ledger = self.ledger();
        if !ledger.debts.is_empty() {
            self.pay_debts(&mut ledger);
            if ledger.debts.iter().any(|debt| debt.key == key) {
                return Err(Refusal::Busy);
            }
        }
        if let Some(index) = ledger.outstanding.iter().position(|o| o.key == key) {
            let slot = ledger.outstanding[index].slot;
            if self.active[usize::from(slot)].load(Ordering::Acquire) {
                return Err(Refusal::Duplicate);
            }
            if !self.reclaim(&mut ledger, index) {
                return Err(Refusal::Busy);
            }
        }
        let bytes = match space {
            Space::Bytes(bytes) => bytes,
            Space::Arena(_) => 0,
        };
        if bytes > CELL_BYTES || ledger.outstanding.len() > 12 {
            self.reclaim_all(&mut ledger);
        }
        let home = Board::home(key);
        if !ledger.is_clean(home)
            && let Some(index) = ledger.outstanding.iter().position(|o| o.slot == home)
        {
            // Often it was read long ago, and nobody has looked.
            self.reclaim(&mut ledger, index);
        }
        let Some(slot) = ledger.take_slot(home) else {
            return Err(Refusal::Busy);
        };
        let place = match space {
            Space::Bytes(bytes) => ledger.take_place(bytes),
            Space::Arena(offset) => Place::Arena { id: 0, offset },
        };
        let round = board::next_round(ledger.rounds[usize::from(slot)]);
        ledger.rounds[usize::from(slot)] = round;
        ledger.outstanding.push(Outstanding {
            slot,
            round,
            key,
            readers,
            place,
        });
        self.active[usize::from(slot)].store(true, Ordering::Relaxed);
        Ok(Ticket { slot, round, place })
    }

    /// The operation in this slot has ended on this rank; readers may still need the posting.
    #[inline]
    pub(crate) fn close(&self, slot: u16) {
        self.active[usize::from(slot)].store(false, Ordering::Release);
    }

    /// Remembers postings that will have to be acknowledged unread.
    pub(crate) fn owe(&self, key: Key, ranks: u64, grant: Option<OpenGrant>) {
        if ranks != 0 || grant.is_some() {
            self.ledger().debts.push(Debt { key, ranks, grant });
        }
    }

    /// Frees what readers have acknowledged; called while waiting, when there is time.
    pub(crate) fn tidy(&self) {
        if let Ok(mut ledger) = self.ledger.try_lock() {
            self.pay_debts(&mut ledger);
            self.reclaim_all(&mut ledger);
        }
    }

    /// The same, if there is enough to make it worth a look.
    pub(crate) fn tidy_soon(&self) {
        if let Ok(mut ledger) = self.ledger.try_lock()
            && ledger.outstanding.len() > 6
        {
            self.reclaim_all(&mut ledger);
        }
    }

    fn reclaim_all(&self, ledger: &mut Ledger) {
        let mut index = 0;
        while index < ledger.outstanding.len() {
            if !self.reclaim(ledger, index) {
                index += 1;
            }
        }
    }

    fn reclaim(&self, ledger: &mut Ledger, index: usize) -> bool {
        let o = &ledger.outstanding[index];
        if self.active[usize::from(o.slot)].load(Ordering::Acquire)
            || !self.board.is_acknowledged(o.slot, o.round, o.readers)
        {
            return false;
        }
        let o = ledger.outstanding.swap_remove(index);
        self.board.clear(o.slot, o.key);
        ledger.clean[usize::from(o.slot) / 64] |= 1 << (o.slot % 64);
        match o.place {
            Place::Cell(cell) => ledger.cells |= 1 << cell,
            Place::Window(window) if usize::from(window) < WINDOWS => ledger.windows |= 1 << window,
            _ => {}
        }
        true
    }

    fn pay_debts(&self, ledger: &mut Ledger) {
        for debt in &mut ledger.debts {
            let mut left = debt.ranks;
            while left != 0 {
                let rank = left.trailing_zeros() as usize;
                left &= left - 1;
                let consumed = |slot| self.consumed(rank, slot);
                let Some(found) = self.board.find(rank, debt.key, true, consumed) else {
                    continue;
                };
                debt.ranks &= !(1 << rank);
                if let Some(grant) = &mut debt.grant {
                    grant.verdict.hear(&self.board, rank, found.slot);
                    if grant.first == rank {
                        grant.posting = Some((found.slot, found.round));
                        continue;
                    }
                }
                self.acknowledge(rank, found.slot, found.round);
            }
            if let Some(grant) = debt.grant
                && let Some((slot, round)) = grant.posting
            {
                // In this order: who has given up grants nothing any more.
                let aborted = self.board.is_aborted(grant.first, slot);
                if let Some(lane) = self.board.granted_lane(grant.first, slot) {
                    self.board.leave_lane(lane);
                } else if !aborted && (debt.ranks != 0 || grant.verdict.needs_lane()) {
                    continue;
                }
                self.acknowledge(grant.first, slot, round);
                debt.grant = None;
            }
        }
        ledger
            .debts
            .retain(|debt| debt.ranks != 0 || debt.grant.is_some());
    }

    #[inline]
    pub(crate) fn consumed(&self, rank: usize, slot: u16) -> u32 {
        self.consumed[rank * SLOTS + usize::from(slot)].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn acknowledge(&self, rank: usize, slot: u16, round: u32) {
        self.consumed[rank * SLOTS + usize::from(slot)].store(round, Ordering::Relaxed);
        self.board.acknowledge(rank, slot, round);
    }

    /// Memory of another rank's arena, if it lies inside.
    pub(crate) fn arena(&self, rank: usize, offset: u64, bytes: usize) -> Option<*mut u8> {
        let mapping = self.arenas.get(rank)?.as_ref()?;
        let end = usize::try_from(offset).ok()?.checked_add(bytes)?;
        (end <= mapping.bytes()).then(|| mapping.pointer().wrapping_add(offset as usize))
    }

    /// Wakes the sleepers among `ranks` after something was published.
    #[inline]
    pub(crate) fn wake(&self, ranks: u64) {
        let sleepers = self.board.sleepers(ranks);
        if sleepers != 0 {
            self.ring(sleepers);
        }
    }

    /// Has every sleeping thread of this rank look again.
    pub(crate) fn ring_self(&self) {
        self.board.ring(self.board.me());
    }

    #[cold]
    fn ring(&self, mut ranks: u64) {
        while ranks != 0 {
            let rank = ranks.trailing_zeros() as usize;
            ranks &= ranks - 1;
            if self.board.ring(rank)
                && let Some(bell) = self.bells.get(rank).and_then(Option::as_ref)
            {
                sys::eventfd_ring(bell.as_fd());
            }
        }
    }

    /// Sleeps until the bell rings or `limit` passes, unless `ready` says there is no need.
    pub(crate) fn park(&self, limit: Duration, ready: impl FnOnce() -> bool) {
        let word = self.announce();
        if !ready() {
            self.board.sleep(word, limit);
        }
        self.retract();
    }

    /// Announces a sleeper of this rank; [`Self::retract`] must follow.
    pub(crate) fn announce(&self) -> u32 {
        let mut sleepers = self
            .sleepers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *sleepers += 1;
        self.board.announce_sleep()
    }

    /// One sleeper less.
    pub(crate) fn retract(&self) {
        let mut sleepers = self
            .sleepers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *sleepers -= 1;
        if *sleepers == 0 {
            self.board.end_sleep();
        }
    }
}

impl Ledger {
    #[inline]
    fn is_clean(&self, slot: u16) -> bool {
        self.clean[usize::from(slot) / 64] >> (slot % 64) & 1 == 1
    }

    fn take_slot(&mut self, home: u16) -> Option<u16> {
        let slot = if self.is_clean(home) {
            home
        } else {
            // Slots outside the homes first, so that a stranger does not sit in a key's home.
            let (word, bits) = (0..self.clean.len())
                .map(|word| {
                    (
                        word,
                        self.clean[word] & if word == 0 { !0xffff } else { u64::MAX },
                    )
                })
                .chain(std::iter::once((0, self.clean[0])))
                .find(|(_, bits)| *bits != 0)?;
            (word * 64) as u16 + bits.trailing_zeros() as u16
        };
        self.clean[usize::from(slot) / 64] &= !(1 << (slot % 64));
        Some(slot)
    }

    fn take_place(&mut self, bytes: usize) -> Place {
        if bytes == 0 {
            Place::None
        } else if bytes <= INLINE_BYTES {
            Place::Inline
        } else if bytes <= CELL_BYTES {
            match self.cells.trailing_zeros() {
                CELL_LIMIT.. => Place::Pending,
                cell => {
                    self.cells &= !(1 << cell);
                    Place::Cell(cell as u16)
                }
            }
        } else {
            // In turn, where lines are not handed back: a window that was read just now is slow to
            // fill again. Else the same ones, which are in cache.
            let behind = self.windows & !((2 << self.last_window) - 1);
            let free = if behind == 0 || lines::are_handed_back() {
                self.windows
            } else {
                behind
            };
            match free.trailing_zeros() {
                WINDOW_LIMIT.. => Place::Pending,
                window => {
                    self.windows &= !(1 << window);
                    self.last_window = window;
                    Place::Window(window as u16)
                }
            }
        }
    }
}

const CELL_LIMIT: u32 = CELLS as u32;
const WINDOW_LIMIT: u32 = WINDOWS as u32;

/// Members other than `me` as bits of local ranks.
pub(crate) fn others(members: &[u8], me: usize) -> u64 {
    members.iter().fold(0u64, |mask, member| mask | 1 << member) & !(1 << members[me])
}

/// The window that a lane gives to a rank.
pub(crate) fn lane_window(lane: u32) -> Place {
    Place::Window(WINDOWS as u16 + (lane as u16 % LANES as u16))
}

/// The members of an operation, all on this host.
#[derive(Clone, Copy)]
pub(crate) struct Party<'a> {
    pub(crate) local: &'a Local,
    /// Local ranks in the group's order.
    pub(crate) members: &'a [u8],
    /// This rank's place among them.
    pub(crate) me: usize,
    /// The session's rank of every member, for messages.
    pub(crate) ranks: &'a [usize],
    /// The other members as bits of local ranks.
    pub(crate) others: u64,
}

impl Party<'_> {
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// How buffers are filled, where that is to be found out: between two ranks with a core each.
    #[inline]
    pub(crate) fn filling(&self) -> Option<&Filling> {
        (self.size() == 2 && !self.local.crowded).then_some(&self.local.filling)
    }

    /// Fills a buffer with so many bytes.
    #[inline]
    pub(crate) fn fill(&self, bytes: usize, fill: impl FnOnce(Store)) {
        match self.filling() {
            Some(filling) => {
                let begun = filling.begin(bytes);
                fill(begun.store);
                filling.end(begun, bytes);
            }
            None => fill(Store::Cached),
        }
    }

    #[inline]
    pub(crate) fn wake_others(&self) {
        self.local.wake(self.others);
    }

    pub(crate) fn asked(
        &self,
        slots: &MemberTable<u16>,
        mine: &Descriptor,
    ) -> Vec<(usize, Descriptor)> {
        (0..self.size())
            .filter_map(|member| {
                let descriptor = if member == self.me {
                    *mine
                } else {
                    self.local
                        .board
                        .descriptor(self.members[member].into(), slots.get(member))?
                };
                Some((self.ranks[member], descriptor))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Kind;
    use crate::dtype::{DType, ReduceOp};

    fn locals() -> [Local; 2] {
        let mapping = Arc::new(Mapping::anonymous(Board::bytes(2)).expect("memory"));
        [0, 1].map(|me| {
            let board = Board::new(Arc::clone(&mapping), 2, me);
            Local::new(board, vec![None, None], vec![None, None], None)
        })
    }

    #[test]
    fn a_slot_that_was_read_is_its_next_keys_home_again() {
        let [one, other] = locals();
        let descriptor = Descriptor {
            kind: Kind::Barrier,
            dtype: DType::U8,
            op: ReduceOp::Sum,
            shared: false,
            count: 0,
            root: 0,
            settings: 0,
        };
        // Two keys with one home.
        let (first, second) = (Key::unnamed(1, 3), Key::unnamed(2, 3));
        let ticket = one.open(first, Space::Bytes(0), 0b10).expect("a slot");
        assert_eq!(ticket.slot, Board::home(first));
        one.board.fill(ticket.slot, first, &descriptor);
        one.board
            .publish(ticket.slot, ticket.round, ticket.place, 0, false);
        one.close(ticket.slot);
        let early = one.open(second, Space::Bytes(0), 0b10).expect("a slot");
        assert_ne!(early.slot, ticket.slot, "not read yet");
        other.acknowledge(0, ticket.slot, ticket.round);
        let third = Key::unnamed(4, 3);
        let ticket = one.open(third, Space::Bytes(0), 0b10).expect("a slot");
        assert_eq!(ticket.slot, Board::home(third));
    }
}
