//! Operations in one phase: a broadcast whose rounds fill every buffer of a window and one again,
//! and a small exchange that finds no free cell.

use super::{both, check, descriptor, key, locals, party, wait_for};
use crate::key::Key;
use crate::local::attend::Attendance;
use crate::local::transfer::{BUFFERS, Parts, Sink, Transfer};
use crate::local::{Local, Space};
use crate::region::{CELL_BYTES, WINDOW_BYTES};
use crate::span::Span;

fn run(local: &Local, key: Key, mut transfer: Transfer) {
    let party = party(local);
    let space = Space::Bytes(transfer.space(&party));
    let ticket = wait_for(|| party.local.open(key, space, party.others).ok());
    let mut attendance = Attendance::new(&party, key, descriptor(1), ticket);
    let staged = transfer.prepare(&party, &attendance);
    let counted = transfer.is_counted(&party);
    attendance.post(&party, staged, counted);
    wait_for(|| {
        let done = transfer.poll(&party, &mut attendance, &mut false);
        done.expect("nobody gives up").then_some(())
    });
    attendance.finish(&party);
}

fn broadcast(local: &Local, bytes: usize) {
    let mut tensor: Vec<u8> = match local.board.me() {
        0 => (0..bytes).map(|index| index as u8).collect(),
        _ => vec![0; bytes],
    };
    let span = Span::one(tensor.as_mut_ptr(), bytes);
    let only = Parts::Only(0, bytes);
    let transfer = match local.board.me() {
        0 => Transfer::new(span, Span::EMPTY, true, only, 0b10, Parts::None, Sink::Copy),
        _ => Transfer::new(Span::EMPTY, span, true, Parts::None, 0, only, Sink::Copy),
    };
    run(local, key(1), transfer);
    assert!((0..bytes).all(|index| tensor[index] == index as u8));
}

pub fn a_buffer_is_filled_again_when_its_round_was_taken() {
    check(2, || {
        let [first, second] = locals();
        let bytes = WINDOW_BYTES + WINDOW_BYTES / BUFFERS;
        both(
            move || broadcast(&first, bytes),
            move || broadcast(&second, bytes),
        );
    });
}

fn all_gather(local: &Local, name: Key, value: u8) {
    let me = local.board.me();
    let mut mine = [value + me as u8; CELL_BYTES];
    let mut all = [0u8; 2 * CELL_BYTES];
    let send = Span::one(mine.as_mut_ptr(), mine.len());
    let recv = Span::one(all.as_mut_ptr(), all.len());
    let transfer = Transfer::new(
        send,
        recv,
        true,
        Parts::Whole(CELL_BYTES),
        1 << (1 - me),
        Parts::Equal(CELL_BYTES),
        Sink::Copy,
    );
    run(local, name, transfer);
    assert_eq!(all[..CELL_BYTES], [value; CELL_BYTES]);
    assert_eq!(all[CELL_BYTES..], [value + 1; CELL_BYTES]);
}

/// The slot's counters were left behind by a larger operation; the only cell is taken.
pub fn a_small_operation_without_a_cell_waits_for_its_lane() {
    check(2, || {
        let [first, second] = locals();
        for local in [&first, &second] {
            local.board.fill(0, key(9), &descriptor(1));
            local
                .board
                .publish(0, 0, crate::local::board::Place::None, 4, true);
            // Takes home and cell away, and keeps them.
            local
                .open(Key::unnamed(8, 1), Space::Bytes(CELL_BYTES), 0b11)
                .expect("a free cell");
        }
        both(
            move || all_gather(&first, key(1), 10),
            move || all_gather(&second, key(1), 10),
        );
    });
}
