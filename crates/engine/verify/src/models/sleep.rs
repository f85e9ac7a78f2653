//! Sleeping and ringing: a lost bell leaves a sleeper behind, which loom reports as a deadlock.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use super::{boards, both, check, descriptor, key, locals};
use crate::local::Local;
use crate::local::board::Place;

fn post(local: &Local) {
    local.board.fill(0, key(1), &descriptor(1));
    local.board.publish(0, 1, Place::None, 0, false);
    local.wake(0b10);
}

fn sleep_until_found(local: &Local) {
    let found = || local.board.find(0, key(1), false, |_| 0).is_some();
    while !found() {
        local.park(Duration::MAX, found);
    }
}

pub fn a_sleeper_is_woken_by_a_posting() {
    check(4, || {
        let [waker, sleeper] = locals();
        both(move || post(&waker), move || sleep_until_found(&sleeper));
    });
}

/// One thread that stops sleeping must not take the other's announcement away.
pub fn two_sleepers_of_a_rank_are_woken() {
    check(2, || {
        let [waker, sleeper] = locals();
        let other = Arc::clone(&sleeper);
        let other = loom::thread::spawn(move || sleep_until_found(&other));
        both(move || post(&waker), move || sleep_until_found(&sleeper));
        other.join().expect("the other sleeper");
    });
}

/// The engine's thread sleeps on its eventfd, not on the bell: whoever rings must see that.
pub fn a_sleeping_engine_is_rung_through_its_eventfd() {
    check(4, || {
        let [waker, sleeper] = boards();
        let eventfd = Arc::new((Mutex::new(false), Condvar::new()));
        let rung = Arc::clone(&eventfd);
        both(
            move || {
                waker.fill(0, key(1), &descriptor(1));
                waker.publish(0, 1, Place::None, 0, false);
                if waker.sleepers(0b10) != 0 && waker.ring(1) {
                    *rung.0.lock().expect("not poisoned") = true;
                    rung.1.notify_all();
                }
            },
            move || {
                sleeper.set_engine_sleeps(true);
                sleeper.announce_sleep();
                if sleeper.find(0, key(1), false, |_| 0).is_none() {
                    let mut rung = eventfd.0.lock().expect("not poisoned");
                    while !*rung {
                        rung = eventfd.1.wait(rung).expect("not poisoned");
                    }
                }
                sleeper.end_sleep();
                sleeper.set_engine_sleeps(false);
                assert!(sleeper.find(0, key(1), false, |_| 0).is_some());
            },
        );
    });
}
