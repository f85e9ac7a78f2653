//! Operations in one phase: every member writes what the others shall read, and reads theirs.
//!
//! What a member sends is cut into *rounds*; a round fills one *buffer* of its window, and the
//! window holds [`BUFFERS`] of them. In a *common* layout a buffer holds the same bytes for all
//! readers; in a *separate* layout it is divided into one *area* for each member. A buffer is
//! filled again when all of its readers have taken the round before. What fits a cell or the slot
//! itself travels with the posting, and the operation is over when all postings have been seen.

#![expect(
    unsafe_code,
    reason = "payload and the caller's tensors are raw memory"
)]

use std::sync::atomic::Ordering;

use super::Party;
use super::attend::{Attendance, Failure};
use super::board::{INLINE_BYTES, Place};
use super::member_table::MemberTable;
use crate::dtype::{DType, ReduceOp};
use crate::kernels::{self, Destination, Scale, Store, lines};
use crate::region::{CELL_BYTES, WINDOW_BYTES};
use crate::span::Span;

/// Buffers of a window.
pub(crate) const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = WINDOW_BYTES / BUFFERS;

/// Bytes from here on are written around the cache: they will not be read soon.
pub(crate) const STREAMING_BYTES: usize = 8 << 20;

/// Ranges of a span, one for each member.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// No member has a part.
    None,
    /// All members share the whole range.
    Whole(usize),
    /// Equal parts, one after another.
    Equal(usize),
    /// Only this member has a part: the whole range.
    Only(usize, usize),
    /// `count` elements of `size` bytes at `base`, cut into nearly equal parts.
    Cut {
        base: usize,
        count: usize,
        parts: usize,
        size: usize,
    },
    /// One (offset, length) for each member, kept alive by the operation.
    Table(*const (usize, usize)),
}

// SAFETY: a table is only read, and outlives the operation whoever polls it.
unsafe impl Send for Parts {}

impl Parts {
    /// The (offset, length) of a member's part.
    #[inline]
    pub(crate) fn of(self, member: usize) -> (usize, usize) {
        match self {
            Self::None => (0, 0),
            Self::Whole(bytes) => (0, bytes),
            Self::Equal(bytes) => (member * bytes, bytes),
            Self::Only(only, bytes) => (0, if member == only { bytes } else { 0 }),
            Self::Cut {
                base,
                count,
                parts,
                size,
            } => {
                let each = count.div_ceil(parts).next_multiple_of(16);
                let begin = (member * each).min(count);
                let end = (begin + each).min(count);
                (base + begin * size, (end - begin) * size)
            }
            // SAFETY: the table has an entry for each member and outlives the operation.
            Self::Table(table) => unsafe { *table.add(member) },
        }
    }
}

/// What happens to the bytes that arrive.
#[derive(Clone, Copy)]
pub(crate) enum Sink {
    /// They are copied to the sender's part of `recv`.
    Copy,
    /// Those of all members are combined, in the group's order, into `recv`.
    Reduce {
        dtype: DType,
        op: ReduceOp,
        scale: Scale,
        divisor: u32,
    },
}

/// A one-phase operation of one member.
pub(crate) struct Transfer {
    send: Span,
    recv: Span,
    /// What this member sends: the same to all, or a part to each.
    common: bool,
    outgoing: Parts,
    /// Members that read what this one sends, a bit each.
    readers: u64,
    /// Where a combined result begins in `recv`.
    base: usize,
    /// What arrives from each member.
    incoming: Parts,
    sink: Sink,
    rounds_out: u32,
    rounds_in: u32,
    staged: u32,
    taken: u32,
    /// Rounds that all members are known to have ready.
    ready: u32,
    began: bool,
    store: Store,
}

/// Bytes of one round for one reader.
fn area(place: Place, common: bool, members: usize) -> usize {
    let buffer = match place {
        Place::Inline => INLINE_BYTES,
        Place::Cell(_) => CELL_BYTES,
        _ => BUFFER_BYTES,
    };
    match (common, place) {
        (true, _) => buffer,
        // Only between two: with more of them the slot's line would be handed back too often.
        (false, Place::Inline) if members == 2 => buffer / members,
        (false, _) => (buffer / members) & !63,
    }
}

/// Payload space to ask for, so that `largest` bytes for each reader fit one round if they can.
fn space(common: bool, largest: usize, members: usize) -> usize {
    if largest == 0 {
        0
    } else if largest <= area(Place::Inline, common, members) {
        largest
    } else if largest <= area(Place::Cell(0), common, members) {
        CELL_BYTES
    } else {
        WINDOW_BYTES
    }
}

impl Transfer {
    #[inline]
    pub(crate) fn new(
        send: Span,
        recv: Span,
        common: bool,
        outgoing: Parts,
        readers: u64,
        incoming: Parts,
        sink: Sink,
    ) -> Self {
        let store = if recv.bytes() >= STREAMING_BYTES {
            Store::Streaming
        } else {
            Store::Cached
        };
        Self {
            send,
            recv,
            common,
            outgoing,
            readers,
            base: 0,
            incoming,
            sink,
            rounds_out: 0,
            rounds_in: 0,
            staged: 0,
            taken: 0,
            ready: 0,
            began: false,
            store,
        }
    }

    /// The same with a combined result that begins at `base` in `recv`.
    pub(crate) fn at(mut self, base: usize) -> Self {
        self.base = base;
        self
    }

    /// The bytes that are for another member, and those that come from it.
    #[inline]
    pub(crate) fn traffic(&self, me: usize, member: usize) -> (u64, u64) {
        let to = if self.readers & (1 << member) == 0 {
            0
        } else {
            self.outgoing.of(if self.common { me } else { member }).1
        };
        (to as u64, self.incoming.of(member).1 as u64)
    }

    /// Payload space that this member needs.
    #[inline]
    pub(crate) fn space(&self, party: &Party<'_>) -> usize {
        space(self.common, self.largest_outgoing(party), party.size())
    }

    #[inline]
    fn largest_outgoing(&self, party: &Party<'_>) -> usize {
        if self.common {
            return self.outgoing.of(party.me).1;
        }
        (0..party.size())
            .map(|m| {
                if m == party.me {
                    0
                } else {
                    self.outgoing.of(m).1
                }
            })
            .max()
            .unwrap_or(0)
    }

    /// Whether more than one round may be needed, by anybody.
    #[inline]
    pub(crate) fn is_counted(&self, party: &Party<'_>) -> bool {
        let cell = area(Place::Cell(0), self.common, party.size());
        self.largest_outgoing(party) > cell
            || (0..party.size()).any(|m| m != party.me && self.incoming.of(m).1 > cell)
    }

    /// Fills what fits before posting, so that early arrivals need not wait; returns the rounds.
    #[inline]
    pub(crate) fn prepare(&mut self, party: &Party<'_>, attendance: &Attendance) -> u32 {
        let place = attendance.place();
        match place {
            Place::None => return 0,
            Place::Pending => {
                self.rounds_out = self.count_rounds_out(party, Place::Window(0));
                return 0;
            }
            Place::Inline => {
                let mut bytes = [0u8; INLINE_BYTES];
                let (reader, at) = if self.common {
                    (party.me, 0)
                } else {
                    let other = 1 - party.me;
                    (other, other * area(place, self.common, party.size()))
                };
                let (offset, length) = self.outgoing.of(reader);
                self.send
                    .visit(offset, length, |pointer, distance, length| {
                        // SAFETY: the span vouches for `length` bytes; they fit, for it was inside
                        // the slot that they got their space.
                        unsafe {
                            std::ptr::copy_nonoverlapping(
                                pointer,
                                bytes.as_mut_ptr().add(at + distance),
                                length,
                            );
                        }
                    });
                party.local.board.fill_inline(attendance.slot(), bytes);
                self.rounds_out = 1;
                self.staged = 1;
                return 1;
            }
            Place::Cell(_) => self.rounds_out = 1,
            _ => self.rounds_out = self.count_rounds_out(party, place),
        }
        // Whoever only sends posts early, so that its readers begin while it goes on.
        let reads = (0..party.size()).any(|m| m != party.me && self.incoming.of(m).1 > 0);
        let first = if reads { BUFFERS as u32 } else { 1 };
        while self.staged < self.rounds_out.min(first) {
            self.stage(party, attendance);
        }
        self.staged
    }

    /// Stages the next round and tells the readers.
    fn stage_and_tell(&mut self, party: &Party<'_>, attendance: &Attendance) {
        self.stage(party, attendance);
        let slot = party
            .local
            .board
            .slot(party.members[party.me].into(), attendance.slot());
        slot.staged.store(self.staged, Ordering::Release);
        party.wake_others();
    }

    fn count_rounds_out(&self, party: &Party<'_>, place: Place) -> u32 {
        let area = area(place, self.common, party.size());
        self.largest_outgoing(party).div_ceil(area) as u32
    }

    /// Copies one round of outgoing bytes into this member's buffer.
    fn stage(&mut self, party: &Party<'_>, attendance: &Attendance) {
        let place = attendance.place();
        let round = self.staged as usize;
        let area = area(place, self.common, party.size());
        let buffer = party
            .local
            .board
            .payload(party.members[party.me].into(), attendance.slot(), place)
            .wrapping_add((round % BUFFERS) * BUFFER_BYTES);
        let readers = if self.common {
            party.me..party.me + 1
        } else {
            0..party.size()
        };
        for reader in readers {
            if !self.common && reader == party.me {
                continue;
            }
            let (offset, length) = self.outgoing.of(reader);
            let begin = (round * area).min(length);
            let end = (begin + area).min(length);
            let target = if self.common {
                buffer
            } else {
                buffer.wrapping_add(reader * area)
            };
            party.fill(end - begin, |store| {
                self.send
                    .visit(offset + begin, end - begin, |pointer, distance, length| {
                        let target = target.wrapping_add(distance);
                        // SAFETY: the span vouches for the source; the target is this member's own
                        // buffer, which no reader looks at until it is published.
                        unsafe { lines::copy_into_shared(target, pointer, length, store) };
                    });
            });
        }
        self.staged += 1;
    }

    /// Moves what can be moved; `Ok(true)` when this member is done.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        party: &Party<'_>,
        attendance: &mut Attendance,
        progressed: &mut bool,
    ) -> Result<bool, Failure> {
        if !self.began {
            // Rounds that fit need nobody to have come.
            if matches!(attendance.place(), Place::Window(_))
                && self.staged < self.rounds_out.min(BUFFERS as u32)
            {
                self.stage_and_tell(party, attendance);
                *progressed = true;
            }
            if !attendance.poll(party)? {
                return Ok(false);
            }
            *progressed = true;
            self.begin(party, attendance);
        }
        loop {
            let mut moved = false;
            // In place, a round must be staged before its result overwrites it.
            while self.taken < self.rounds_in
                && (self.staged > self.taken || self.staged == self.rounds_out)
                && self.sources_ready(party, attendance)
            {
                self.take(party, attendance);
                moved = true;
            }
            while self.staged < self.rounds_out && self.buffer_free(party, attendance) {
                self.stage_and_tell(party, attendance);
                moved = true;
            }
            if !moved {
                break;
            }
            *progressed = true;
        }
        Ok(self.taken == self.rounds_in && self.staged == self.rounds_out)
    }

    fn begin(&mut self, party: &Party<'_>, attendance: &Attendance) {
        self.began = true;
        self.copy_own(party);
        let (mut rounds, mut ready) = (0, u32::MAX);
        for member in (0..party.size()).filter(|member| *member != party.me) {
            let (place, staged) = attendance.place_of(party, member);
            let length = self.incoming.of(member).1;
            if length > 0 {
                ready = ready.min(staged);
                rounds = rounds.max(length.div_ceil(area(place, self.common, party.size())));
            }
        }
        self.rounds_in = rounds as u32;
        self.ready = ready;
    }

    /// What this member sends to itself.
    fn copy_own(&mut self, party: &Party<'_>) {
        if !matches!(self.sink, Sink::Copy) {
            return;
        }
        let (from, length) = self.outgoing.of(party.me);
        let (to, room) = self.incoming.of(party.me);
        let (mut send, mut recv, store) = (self.send, self.recv, self.store);
        send.visit(from, length.min(room), |source, distance, length| {
            recv.visit(to + distance, length, |target, inside, length| {
                let source = source.wrapping_add(inside);
                if !std::ptr::eq(source, target) {
                    // SAFETY: both spans vouch for their memory; they are the same or disjoint.
                    unsafe { kernels::copy(target, source, length, store) };
                }
            });
        });
    }

    #[inline]
    fn sources_ready(&mut self, party: &Party<'_>, attendance: &Attendance) -> bool {
        if self.ready > self.taken {
            return true;
        }
        let mut least = u32::MAX;
        for member in (0..party.size()).filter(|member| *member != party.me) {
            let (place, staged) = attendance.place_of(party, member);
            let length = self.incoming.of(member).1;
            let rounds = length.div_ceil(area(place, self.common, party.size())) as u32;
            if self.taken >= rounds {
                continue;
            }
            let mut ready = staged;
            if ready < rounds {
                let rank = party.members[member].into();
                let slot = party.local.board.slot(rank, attendance.slot_of(member));
                ready = ready.max(slot.staged.load(Ordering::Acquire));
            }
            if ready <= self.taken {
                return false;
            }
            least = least.min(ready);
        }
        self.ready = least;
        true
    }

    fn take(&mut self, party: &Party<'_>, attendance: &Attendance) {
        match self.sink {
            Sink::Copy => self.take_copy(party, attendance),
            Sink::Reduce {
                dtype,
                op,
                scale,
                divisor,
            } => {
                self.take_reduce(party, attendance, dtype, op, scale, divisor);
            }
        }
        if self.store == Store::Streaming {
            kernels::fence_streaming();
        }
        self.taken += 1;
        if self.rounds_in > BUFFERS as u32 {
            let slot = party
                .local
                .board
                .slot(party.members[party.me].into(), attendance.slot());
            slot.taken.store(self.taken, Ordering::Release);
            party.wake_others();
        }
    }

    /// Where the bytes of this round from `member` to this member lie.
    #[inline]
    fn source(
        &self,
        party: &Party<'_>,
        attendance: &Attendance,
        place: Place,
        member: usize,
    ) -> *const u8 {
        let slot = attendance.slot_of(member);
        let base = party
            .local
            .board
            .payload(party.members[member].into(), slot, place);
        let buffer = base.wrapping_add((self.taken as usize % BUFFERS) * BUFFER_BYTES);
        if self.common {
            buffer
        } else {
            buffer.wrapping_add(party.me * area(place, self.common, party.size()))
        }
    }

    fn take_copy(&mut self, party: &Party<'_>, attendance: &Attendance) {
        let alone = self.reads_alone(party);
        // With few cores a line has been on all of them soon: from a page on it pays to hand it back
        // although others may still read it, for it is not changed.
        let crowded = party.local.crowded && lines::are_handed_back();
        for step in 1..party.size() {
            // Every reader begins with another sender, so that they do not all pull from one.
            let member = (party.me + step) % party.size();
            let (offset, length) = self.incoming.of(member);
            if length == 0 {
                continue;
            }
            let (place, _) = attendance.place_of(party, member);
            let area = area(place, self.common, party.size());
            let begin = (self.taken as usize * area).min(length);
            let end = (begin + area).min(length);
            let source = self.source(party, attendance, place, member);
            let store = self.store;
            self.recv
                .visit(offset + begin, end - begin, |target, distance, length| {
                    let source = source.wrapping_add(distance);
                    // SAFETY: the span vouches for the target; the source was published by its owner
                    // and stays until this member acknowledges.
                    let copy = |at: usize, length| unsafe {
                        kernels::copy(
                            target.wrapping_add(at),
                            source.wrapping_add(at),
                            length,
                            store,
                        );
                    };
                    if alone || crowded && length >= 4096 {
                        lines::in_stretches_to(target, length, |at, length| {
                            copy(at, length);
                            // SAFETY: the lines are mapped; whoever else reads them sees no change.
                            unsafe { lines::hand_back(source.wrapping_add(at), length) };
                        });
                    } else {
                        copy(0, length);
                    }
                });
        }
    }

    /// Whether what this member reads is read by nobody else, so that lines can be handed back.
    #[inline]
    fn reads_alone(&self, party: &Party<'_>) -> bool {
        (!self.common || party.size() == 2) && lines::are_handed_back()
    }

    #[inline]
    fn take_reduce(
        &mut self,
        party: &Party<'_>,
        attendance: &Attendance,
        dtype: DType,
        op: ReduceOp,
        scale: Scale,
        divisor: u32,
    ) {
        let members = party.size();
        let alone = self.reads_alone(party);
        let mut sources = MemberTable::<*const u8>::new();
        let mut step = 0;
        for member in 0..members {
            if member == party.me {
                continue;
            }
            let (place, _) = attendance.place_of(party, member);
            step = area(place, self.common, members);
            sources.set(member, self.source(party, attendance, place, member));
        }
        let (offset, length) = self.outgoing.of(party.me);
        let begin = (self.taken as usize * step).min(length);
        let end = (begin + step).min(length);
        let (mut send, store, me) = (self.send, self.store, party.me);
        self.recv.visit(
            self.base + begin,
            end - begin,
            |target, distance, length| {
                send.visit(offset + begin + distance, length, |own, inside, length| {
                    let run = |from: usize, length: usize| {
                        let mut at = MemberTable::<*const u8>::new();
                        for member in 0..members {
                            let pointer = if member == me {
                                own.wrapping_add(from).cast_const()
                            } else {
                                sources.get(member).wrapping_add(distance + inside + from)
                            };
                            at.set(member, pointer);
                        }
                        let destination = Destination {
                            pointer: target.wrapping_add(inside + from),
                            store,
                        };
                        // SAFETY: the spans vouch for `own` and the target, which are equal or
                        // disjoint; the peers' bytes were published and stay until this member
                        // acknowledges. Where it reads alone, nobody else uses them any more.
                        unsafe {
                            kernels::reduce(
                                dtype,
                                op,
                                scale,
                                divisor,
                                &[destination],
                                at.first(members),
                                length / dtype.size(),
                            );
                            if alone {
                                for member in (0..members).filter(|member| *member != me) {
                                    lines::hand_back(at.get(member), length);
                                }
                            }
                        }
                    };
                    if alone {
                        lines::in_stretches(length, run);
                    } else {
                        run(0, length);
                    }
                });
            },
        );
    }

    /// Whether the buffer of the next round has been read by everybody.
    fn buffer_free(&self, party: &Party<'_>, attendance: &Attendance) -> bool {
        let Some(before) = self.staged.checked_sub(BUFFERS as u32) else {
            return true;
        };
        let area = area(attendance.place(), self.common, party.size());
        (0..party.size())
            .filter(|member| *member != party.me)
            .all(|member| {
                if self.readers >> member & 1 == 0 {
                    return true;
                }
                // A reader with a shorter part is through with fewer rounds.
                let part = self
                    .outgoing
                    .of(if self.common { party.me } else { member })
                    .1;
                let needed = (before + 1).min(part.div_ceil(area) as u32);
                let slot = party
                    .local
                    .board
                    .slot(party.members[member].into(), attendance.slot_of(member));
                slot.taken.load(Ordering::Acquire) >= needed
            })
    }
}
