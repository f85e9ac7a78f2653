//! Lanes: granted by the first member, freed by the last that leaves.

use super::{boards, both, check, descriptor, key, wait_for};
use crate::kernels::{self, Store};
use crate::local::board::{Board, Place};
use crate::local::lane_window;
use crate::region::WINDOW_BYTES;

fn write(board: &Board, place: Place, value: u8) {
    let bytes = [value; WINDOW_BYTES];
    let window = board.payload(board.me(), 0, place);
    // SAFETY: a window, and as many bytes.
    unsafe { kernels::copy(window, bytes.as_ptr(), WINDOW_BYTES, Store::Cached) };
}

/// Two operations, one after the other, in the only lane; both ranks write into its windows as
/// soon as they hold it, and read the other's. Who leaves last is left open.
pub fn the_windows_of_a_lane_are_free_when_it_is_granted() {
    check(3, || {
        let [first, second] = boards();
        first.fill(0, key(1), &descriptor(1));
        first.publish(0, 1, Place::Pending, 0, true);
        second.fill(0, key(1), &descriptor(1));
        second.publish(0, 1, Place::Pending, 0, true);
        both(
            move || {
                let lane = first.take_lane(2).expect("nobody holds it");
                write(&first, lane_window(lane), 1);
                first.grant_lane(0, lane);
                first.leave_lane(lane);
                // The next operation, of this rank only as far as its window goes.
                let lane = wait_for(|| first.take_lane(1));
                write(&first, lane_window(lane), 2);
                first.leave_lane(lane);
            },
            move || {
                let lane = wait_for(|| second.granted_lane(0, 0));
                let window = second.payload(0, 0, lane_window(lane));
                let mut bytes = [0; WINDOW_BYTES];
                // SAFETY: a window, and as many bytes.
                unsafe { kernels::copy(bytes.as_mut_ptr(), window, WINDOW_BYTES, Store::Cached) };
                assert_eq!(bytes, [1; WINDOW_BYTES]);
                second.leave_lane(lane);
            },
        );
    });
}
