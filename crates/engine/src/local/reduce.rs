//! Large reductions, in two phases.
//!
//! The tensor is cut into *chunks*, a chunk into one *segment* for each member, which owns it. A
//! chunk passes through three steps on every member: *stage* copies the segments that others own
//! into this member's buffer; *reduce* combines all members' values of the own segment, in the
//! group's order, and puts the result into the place of the own segment in the buffer; *take*
//! copies the other segments' results from their owners. A member runs ahead as far as its
//! buffers allow, so that members which share a core seldom wait for one another.
//!
//! The order of combination is the group's order for every element, whatever the chunks are: a
//! small tensor that goes through [`super::transfer`] gets the same bits.

#![expect(
    unsafe_code,
    reason = "payload and the caller's tensors are raw memory"
)]

use std::sync::atomic::Ordering;

use super::attend::{Attendance, Failure};
use super::board::Place;
use super::direct::Direct;
use super::transfer::STREAMING_BYTES;
use super::{Party, Space};
use crate::dtype::{DType, ReduceOp};
use crate::kernels::{self, Destination, Filling, Scale, Store, lines};
use crate::region::{MAX_LOCAL, WINDOW_BYTES};
use crate::span::Span;

/// How the values are combined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combine {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) scale: Scale,
    /// What sums are divided by.
    pub(crate) divisor: u32,
}

/// A two-phase reduction of one member.
pub(crate) struct Reduce {
    send: Span,
    recv: Span,
    combine: Combine,
    /// The only member that wants the result, or everybody.
    root: Option<usize>,
    bytes: usize,
    chunk: usize,
    buffers: usize,
    chunks: u32,
    staged: u32,
    reduced: u32,
    taken: u32,
    /// What is known of the slowest other member's counters.
    others_staged: u32,
    others_reduced: u32,
    others_taken: u32,
    began: bool,
    /// All tensors lie in shared memory.
    direct: Option<Direct>,
    store: Store,
}

impl Reduce {
    pub(crate) fn new(
        send: Span,
        recv: Span,
        combine: Combine,
        root: Option<usize>,
        chunk: usize,
    ) -> Self {
        let bytes = send.bytes();
        let chunk = chunk.min(WINDOW_BYTES);
        let store = if bytes >= STREAMING_BYTES {
            Store::Streaming
        } else {
            Store::Cached
        };
        Self {
            send,
            recv,
            combine,
            root,
            bytes,
            chunk,
            buffers: WINDOW_BYTES / chunk,
            chunks: bytes.div_ceil(chunk) as u32,
            staged: 0,
            reduced: 0,
            taken: 0,
            others_staged: 0,
            others_reduced: 0,
            others_taken: 0,
            began: false,
            direct: None,
            store,
        }
    }

    /// Payload space: none for a tensor that is reduced in place where it lies.
    pub(crate) fn space(&self, party: &Party<'_>) -> Space {
        if self.root.is_none()
            && let (Some(send), Some(recv)) = (self.send.contiguous(), self.recv.contiguous())
            && std::ptr::eq(send, recv)
            && let Some(arena) = &party.local.arena
            && let Some(offset) = arena.offset_of(send, self.bytes)
        {
            return Space::Arena(offset);
        }
        Space::Bytes(WINDOW_BYTES)
    }

    /// Fills the buffers before posting; returns the chunks that are staged.
    pub(crate) fn prepare(&mut self, party: &Party<'_>, attendance: &Attendance) -> u32 {
        if matches!(attendance.place(), Place::Pending | Place::Arena { .. }) {
            return 0;
        }
        while (self.staged as usize) < (self.chunks as usize).min(self.buffers) {
            self.stage(party, attendance);
        }
        self.staged
    }

    /// The (offset, length) of a chunk, and the length of its segments.
    fn chunk(&self, chunk: u32, members: usize) -> (usize, usize, usize) {
        let offset = chunk as usize * self.chunk;
        let length = self.chunk.min(self.bytes - offset);
        (
            offset,
            length,
            length.div_ceil(members).next_multiple_of(64),
        )
    }

    /// The bytes that are for another member, and those that come from it: values of the segments
    /// that the reader owns, and results.
    pub(crate) fn traffic(&self, members: usize, me: usize, member: usize) -> (u64, u64) {
        // All chunks but the last are of one length.
        let owned = |member: usize| {
            let of = |chunk: u32| {
                let (_, length, segment) = self.chunk(chunk, members);
                segment.min(length - (member * segment).min(length)) as u64
            };
            match self.chunks {
                0 => 0,
                1 => of(0),
                chunks => of(0) * u64::from(chunks - 1) + of(chunks - 1),
            }
        };
        let result = |reader: usize, owner: usize| {
            if self.root.is_none_or(|root| root == reader) {
                owned(owner)
            } else {
                0
            }
        };
        (
            owned(member) + result(member, me),
            owned(me) + result(me, member),
        )
    }

    fn buffer(
        &self,
        party: &Party<'_>,
        attendance: &Attendance,
        member: usize,
        chunk: u32,
    ) -> *mut u8 {
        let (slot, place) = if member == party.me {
            (attendance.slot(), attendance.place())
        } else {
            (
                attendance.slot_of(member),
                attendance.place_of(party, member).0,
            )
        };
        party
            .local
            .board
            .payload(party.members[member].into(), slot, place)
            .wrapping_add((chunk as usize % self.buffers) * self.chunk)
    }

    fn stage(&mut self, party: &Party<'_>, attendance: &Attendance) {
        let (offset, length, segment) = self.chunk(self.staged, party.size());
        let buffer = self.buffer(party, attendance, party.me, self.staged);
        let begin = (party.me * segment).min(length);
        let end = (begin + segment).min(length);
        party.fill(length - (end - begin), |store| {
            for (from, to) in [(0, begin), (end, length)] {
                self.send
                    .visit(offset + from, to - from, |source, distance, bytes| {
                        let target = buffer.wrapping_add(from + distance);
                        // SAFETY: the span vouches for the source; the target is this member's
                        // buffer, whose readers have all moved on (see `poll`).
                        unsafe { lines::copy_into_shared(target, source, bytes, store) };
                    });
            }
        });
        self.staged += 1;
    }

    fn reduce(&mut self, party: &Party<'_>, attendance: &Attendance) {
        let members = party.size();
        let me = party.me;
        let (offset, length, segment) = self.chunk(self.reduced, members);
        let begin = (me * segment).min(length);
        let bytes = segment.min(length - begin);
        let wanted = self.root.is_none_or(|root| root == me);
        let shown = self.root.is_none_or(|root| root != me);
        let mut base = [std::ptr::null_mut::<u8>(); MAX_LOCAL];
        for (member, base) in base.iter_mut().enumerate().take(members) {
            *base = self
                .buffer(party, attendance, member, self.reduced)
                .wrapping_add(begin);
        }
        let Combine {
            dtype,
            op,
            scale,
            divisor,
        } = self.combine;
        let mut recv = self.recv;
        let handing = lines::are_handed_back();
        let shown_store = party.filling().map_or(Store::Cached, Filling::store);
        self.send
            .visit(offset + begin, bytes, |own, distance, bytes| {
                let run = |own: *mut u8, target: Option<*mut u8>, distance: usize, bytes: usize| {
                    let mut sources = [std::ptr::null::<u8>(); MAX_LOCAL];
                    for member in 0..members {
                        sources[member] = base[member].wrapping_add(distance);
                    }
                    sources[me] = own;
                    let mut destinations = [Destination {
                        pointer: std::ptr::null_mut(),
                        store: Store::Cached,
                    }; 2];
                    let mut count = 0;
                    if let Some(target) = target {
                        destinations[count].pointer = target;
                        count += 1;
                    }
                    if shown {
                        destinations[count] = Destination {
                            pointer: base[me].wrapping_add(distance),
                            store: shown_store,
                        };
                        count += 1;
                    }
                    // SAFETY: the spans vouch for `own` and `target`, which are equal or disjoint; the
                    // peers' segments were staged for this member alone and stay until everybody has
                    // reduced; the own place in the buffer was taken by everybody (see `poll`).
                    unsafe {
                        kernels::reduce(
                            dtype,
                            op,
                            scale,
                            divisor,
                            &destinations[..count],
                            &sources[..members],
                            bytes / dtype.size(),
                        );
                        if handing {
                            for member in (0..members).filter(|member| *member != me) {
                                lines::hand_back(sources[member], bytes);
                            }
                        }
                    }
                };
                let run = |own: *mut u8, target: Option<*mut u8>, distance: usize, bytes: usize| {
                    lines::in_stretches(bytes, |at, bytes| {
                        if shown && !handing {
                            lines::ask_for(base[me].wrapping_add(distance + at), bytes);
                        }
                        let target = target.map(|target| target.wrapping_add(at));
                        run(own.wrapping_add(at), target, distance + at, bytes);
                    });
                };
                if wanted {
                    recv.visit(offset + begin + distance, bytes, |target, inside, bytes| {
                        run(
                            own.wrapping_add(inside),
                            Some(target),
                            distance + inside,
                            bytes,
                        );
                    });
                } else {
                    run(own, None, distance, bytes);
                }
            });
        self.recv = recv;
        if shown_store == Store::Streaming {
            kernels::fence_streaming();
        }
        self.reduced += 1;
    }

    fn take(&mut self, party: &Party<'_>, attendance: &Attendance) {
        if self.root.is_none_or(|root| root == party.me) {
            let members = party.size();
            let (offset, length, segment) = self.chunk(self.taken, members);
            let store = self.store;
            // With few cores a line has been on all of them soon: it pays to hand it back although
            // others may still read it, for it is not changed.
            let handing = (members == 2 || party.local.crowded) && lines::are_handed_back();
            for step in 1..members {
                let member = (party.me + step) % members;
                let begin = (member * segment).min(length);
                let bytes = segment.min(length - begin);
                let source = self
                    .buffer(party, attendance, member, self.taken)
                    .wrapping_add(begin);
                self.recv
                    .visit(offset + begin, bytes, |target, distance, bytes| {
                        let source = source.wrapping_add(distance);
                        // SAFETY: the span vouches for the target; the owner has published the
                        // segment's result and keeps it until everybody has taken it.
                        let copy = |at: usize, bytes| unsafe {
                            kernels::copy(
                                target.wrapping_add(at),
                                source.wrapping_add(at),
                                bytes,
                                store,
                            );
                        };
                        if handing {
                            lines::in_stretches_to(target, bytes, |at, bytes| {
                                copy(at, bytes);
                                // SAFETY: the line is mapped, and whoever else reads it sees no change.
                                unsafe { lines::hand_back(source.wrapping_add(at), bytes) };
                            });
                        } else {
                            copy(0, bytes);
                        }
                    });
            }
            if store == Store::Streaming {
                kernels::fence_streaming();
            }
        }
        self.taken += 1;
    }

    /// Whether a member that is behind this one was last seen on this core.
    pub(crate) fn awaits_core(
        &self,
        party: &Party<'_>,
        attendance: &Attendance,
        core: u32,
    ) -> bool {
        let board = &party.local.board;
        let behind = |member: usize| {
            let slot = board.slot(party.members[member].into(), attendance.slot_of(member));
            slot.staged.load(Ordering::Relaxed) < self.staged
                || slot.reduced.load(Ordering::Relaxed) < self.reduced
        };
        (0..party.size()).any(|member| {
            member != party.me
                && board.is_on_core(party.members[member].into(), core)
                && behind(member)
        })
    }

    /// The smallest of a counter over the other members.
    fn slowest(
        party: &Party<'_>,
        attendance: &Attendance,
        counter: impl Fn(&super::board::Slot) -> u32,
    ) -> u32 {
        let mut least = u32::MAX;
        for member in (0..party.size()).filter(|member| *member != party.me) {
            let rank = party.members[member].into();
            least = least.min(counter(
                party.local.board.slot(rank, attendance.slot_of(member)),
            ));
        }
        least
    }

    /// Moves what can be moved; `Ok(true)` when this member is done.
    pub(crate) fn poll(
        &mut self,
        party: &Party<'_>,
        attendance: &mut Attendance,
        progressed: &mut bool,
    ) -> Result<bool, Failure> {
        if !self.began {
            if !attendance.poll(party)? {
                return Ok(false);
            }
            *progressed = true;
            self.began = true;
            if attendance.is_shared()
                && let Some(own) = self.send.contiguous()
            {
                self.direct = Direct::new(party, attendance, self.combine, self.bytes, own);
            }
        }
        if let Some(direct) = &mut self.direct {
            return Ok(direct.poll(party, attendance, progressed));
        }
        let buffers = self.buffers as u32;
        let board = &party.local.board;
        let mine = board.slot(party.members[party.me].into(), attendance.slot());
        loop {
            let mut moved = false;
            if self.taken < self.reduced {
                if self.others_reduced <= self.taken {
                    self.others_reduced = Self::slowest(party, attendance, |slot| {
                        slot.reduced.load(Ordering::Acquire)
                    });
                }
                if self.others_reduced > self.taken {
                    self.take(party, attendance);
                    mine.taken.store(self.taken, Ordering::Release);
                    moved = true;
                }
            }
            if self.reduced < self.staged {
                if self.others_staged <= self.reduced {
                    self.others_staged = Self::slowest(party, attendance, |slot| {
                        slot.staged.load(Ordering::Acquire)
                    });
                }
                if self.others_staged > self.reduced && self.reduced + 1 > buffers {
                    // The own place in the buffer still shows an older result.
                    let needed = self.reduced + 1 - buffers;
                    if self.others_taken < needed {
                        self.others_taken = Self::slowest(party, attendance, |slot| {
                            slot.taken.load(Ordering::Acquire)
                        });
                    }
                }
                let shown =
                    self.reduced < buffers || self.others_taken >= self.reduced + 1 - buffers;
                if self.others_staged > self.reduced && shown {
                    self.reduce(party, attendance);
                    mine.reduced.store(self.reduced, Ordering::Release);
                    moved = true;
                }
            }
            // A buffer is staged again when all members have reduced from it.
            if self.staged < self.chunks {
                if self.staged >= buffers && self.others_reduced + buffers <= self.staged {
                    self.others_reduced = Self::slowest(party, attendance, |slot| {
                        slot.reduced.load(Ordering::Acquire)
                    });
                }
                let mut free = self.staged < buffers
                    || (self.others_reduced + buffers > self.staged
                        && self.reduced + buffers > self.staged);
                // A short last chunk has shorter segments, which fall on an older result.
                if free && self.staged >= buffers && self.staged + 1 == self.chunks {
                    self.others_taken =
                        Self::slowest(party, attendance, |slot| slot.taken.load(Ordering::Acquire));
                    free = self.others_taken + buffers > self.staged;
                }
                if free {
                    self.stage(party, attendance);
                    mine.staged.store(self.staged, Ordering::Release);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
            party.wake_others();
            *progressed = true;
        }
        Ok(self.taken == self.chunks)
    }
}
