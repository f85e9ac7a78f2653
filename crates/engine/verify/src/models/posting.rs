//! Posting, finding, acknowledging.

use std::sync::atomic::Ordering;

use super::{boards, both, check, descriptor, key, wait_for};
use crate::kernels::{self, Store};
use crate::local::board::{Board, Place};
use crate::region::CELL_BYTES;

fn post(board: &Board, slot: u16, number: u64, round: u32, place: Place) {
    board.fill(slot, key(number), &descriptor(number));
    board.fill_inline(slot, [number as u8; 16]);
    board.publish(slot, round, place, 0, false);
}

fn inline(board: &Board, slot: u16) -> [u64; 2] {
    let line = board.slot(0, slot);
    [0, 1].map(|half| line.inline[half].load(Ordering::Relaxed))
}

/// The owner reuses a slot that was never for this reader, which looks on meanwhile: it may take
/// neither the new key with the old round, nor the new round with anything old.
pub fn a_slot_that_is_filled_anew_is_not_taken_for_the_old_round() {
    check(3, || {
        let [owner, reader] = boards();
        post(&owner, 0, 1, 1, Place::Inline);
        both(
            move || post(&owner, 0, 2, 2, Place::Inline),
            move || {
                let found = wait_for(|| reader.find(0, key(2), false, |_| 0));
                assert_eq!((found.slot, found.round, found.aborted), (0, 2, false));
                assert_eq!(reader.descriptor(0, 0), Some(descriptor(2)));
                assert_eq!(reader.place(0, 0).0, Place::Inline);
                assert_eq!(inline(&reader, 0), [0x0202_0202_0202_0202; 2]);
            },
        );
    });
}

/// The same name twice in one cell: each round is read whole before the owner writes the next.
pub fn a_posting_stays_until_it_is_acknowledged() {
    check(3, || {
        let [owner, reader] = boards();
        both(
            move || {
                for round in 1..=2 {
                    let bytes = [round as u8; CELL_BYTES];
                    let cell = owner.payload(0, 0, Place::Cell(0));
                    // SAFETY: a cell, and as many bytes.
                    unsafe { kernels::copy(cell, bytes.as_ptr(), CELL_BYTES, Store::Cached) };
                    post(&owner, 0, 1, round, Place::Cell(0));
                    wait_for(|| owner.is_acknowledged(0, round, 0b10).then_some(()));
                }
            },
            move || {
                for round in 1..=2 {
                    let found = wait_for(|| reader.find(0, key(1), false, |_| round - 1));
                    assert_eq!(found.round, round);
                    let cell = reader.payload(0, found.slot, reader.place(0, found.slot).0);
                    let mut bytes = [0; CELL_BYTES];
                    // SAFETY: a cell, and as many bytes.
                    unsafe { kernels::copy(bytes.as_mut_ptr(), cell, CELL_BYTES, Store::Cached) };
                    assert_eq!(bytes, [round as u8; CELL_BYTES]);
                    reader.hand_slot_back(0, found.slot);
                    reader.acknowledge(0, found.slot, found.round);
                }
            },
        );
    });
}

/// A posting outside its key's home is found by who looks everywhere, and can be aborted.
pub fn a_displaced_posting_is_found() {
    check(3, || {
        let [owner, reader] = boards();
        both(
            move || {
                post(&owner, 1, 3, 1, Place::Inline);
                owner.abort(1, 1);
            },
            move || {
                let found = wait_for(|| reader.find(0, key(3), true, |_| 0));
                assert_eq!((found.slot, found.round), (1, 1));
                assert_eq!(reader.descriptor(0, 1), Some(descriptor(3)));
                wait_for(|| reader.is_aborted(0, 1).then_some(()));
            },
        );
    });
}
