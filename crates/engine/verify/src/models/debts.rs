//! Giving up an operation that waits for a lane: however it ends, the lane is free afterwards.

use super::{both, check, descriptor, key, locals, party, wait_for};
use crate::key::Key;
use crate::local::attend::Attendance;
use crate::local::{Local, Space};
use crate::region::WINDOW_BYTES;

/// Takes this rank's only window away.
fn hold_window(local: &Local) {
    let other = Key::unnamed(8, 1);
    local
        .open(other, Space::Bytes(WINDOW_BYTES), 0b11)
        .expect("a free window");
}

fn attend(local: &Local) -> Attendance {
    let party = party(local);
    let space = Space::Bytes(WINDOW_BYTES);
    let ticket = party.local.open(key(1), space, party.others);
    let ticket = ticket.expect("a free slot");
    let mut attendance = Attendance::new(&party, key(1), descriptor(1), ticket);
    attendance.post(&party, 0, true);
    attendance
}

/// Gives up after one look, whatever it showed, and settles what it owes.
fn give_up(local: &Local) {
    let mut attendance = attend(local);
    let _ = attendance.poll(&party(local));
    attendance.abort(&party(local), false);
    settle(local);
}

fn settle(local: &Local) {
    // The name can be used again when nothing is owed under it, and nothing held.
    wait_for(|| local.open(key(1), Space::Bytes(0), 0).ok());
}

fn assert_lane_is_free(local: &Local) {
    assert!(local.board.take_lane(1).is_some(), "the lane is free again");
}

pub fn both_give_up() {
    check(2, || {
        let [first, second] = locals();
        hold_window(&first);
        hold_window(&second);
        let after = first.clone();
        both(move || give_up(&first), move || give_up(&second));
        assert_lane_is_free(&after);
    });
}

/// Only the first member lacks a window: the one that gives up may not know of the lane yet.
pub fn one_gives_up_before_it_knows_that_a_lane_is_needed() {
    check(2, || {
        let [first, second] = locals();
        hold_window(&first);
        let after = first.clone();
        both(move || give_up(&first), move || give_up(&second));
        assert_lane_is_free(&after);
    });
}
