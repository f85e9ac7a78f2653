//! Reductions of tensors that lie in shared memory: nothing is staged.
//!
//! The tensor is cut into one segment for each member. A member combines its segment from all
//! tensors, in the group's order, and writes the result into all of them. Nobody else touches that
//! segment, so that the members only meet at the beginning and at the end.

#![expect(unsafe_code, reason = "the members' tensors are raw shared memory")]

use std::sync::atomic::Ordering;

use super::Party;
use super::attend::Attendance;
use super::board::Place;
use super::reduce::Combine;
use super::transfer::STREAMING_BYTES;
use crate::kernels::{self, Destination, Store};
use crate::region::MAX_LOCAL;

/// A reduction in shared tensors, as one member does it.
pub(crate) struct Direct {
    combine: Combine,
    bytes: usize,
    own: *mut u8,
    done: bool,
}

// SAFETY: the pointer is into a mapping that outlives the operation, whoever polls it.
unsafe impl Send for Direct {}

impl Direct {
    /// `None` unless every member's tensor lies in an arena that this process maps.
    pub(crate) fn new(
        party: &Party<'_>,
        attendance: &Attendance,
        combine: Combine,
        bytes: usize,
        own: *mut u8,
    ) -> Option<Self> {
        let direct = Self {
            combine,
            bytes,
            own,
            done: false,
        };
        let found = |member| direct.tensor(party, attendance, member).is_some();
        (0..party.size()).all(found).then_some(direct)
    }

    /// Where a member's tensor lies in this process.
    fn tensor(&self, party: &Party<'_>, attendance: &Attendance, member: usize) -> Option<*mut u8> {
        if member == party.me {
            return Some(self.own);
        }
        let Place::Arena { offset, .. } = attendance.place_of(party, member).0 else {
            return None;
        };
        let rank = party.members[member].into();
        party.local.arena(rank, offset, self.bytes)
    }

    /// Does the own segment, then waits for the others; true when all are done.
    pub(crate) fn poll(
        &mut self,
        party: &Party<'_>,
        attendance: &Attendance,
        progressed: &mut bool,
    ) -> bool {
        if !self.done {
            self.combine(party, attendance);
            self.done = true;
            let board = &party.local.board;
            let slot = board.slot(party.members[party.me].into(), attendance.slot());
            slot.reduced.store(1, Ordering::Release);
            party.wake_others();
            *progressed = true;
        }
        (0..party.size())
            .filter(|member| *member != party.me)
            .all(|member| {
                let rank = party.members[member].into();
                let slot = party.local.board.slot(rank, attendance.slot_of(member));
                slot.reduced.load(Ordering::Acquire) == 1
            })
    }

    fn combine(&self, party: &Party<'_>, attendance: &Attendance) {
        let members = party.size();
        let segment = self.bytes.div_ceil(members).next_multiple_of(64);
        let begin = (party.me * segment).min(self.bytes);
        let bytes = segment.min(self.bytes - begin);
        let store = if self.bytes >= STREAMING_BYTES {
            Store::Streaming
        } else {
            Store::Cached
        };
        let mut sources = [std::ptr::null::<u8>(); MAX_LOCAL];
        let mut destinations = [Destination {
            pointer: std::ptr::null_mut(),
            store: Store::Cached,
        }; MAX_LOCAL];
        for member in 0..members {
            let tensor = self.tensor(party, attendance, member);
            let pointer = tensor.expect("found when all had come").wrapping_add(begin);
            sources[member] = pointer;
            destinations[member] = Destination { pointer, store };
        }
        let Combine {
            dtype,
            op,
            scale,
            divisor,
        } = self.combine;
        // SAFETY: all members are in this operation with tensors of `bytes` bytes in arenas that
        // are mapped here, and only this member touches its segment; each source is exactly one
        // of the destinations.
        unsafe {
            kernels::reduce(
                dtype,
                op,
                scale,
                divisor,
                &destinations[..members],
                &sources[..members],
                bytes / dtype.size(),
            );
        }
        if store == Store::Streaming {
            kernels::fence_streaming();
        }
    }
}
