//! Evening out ranks over cores when ranks outnumber cores.
//!
//! A scheduler sees ranks that all want to run, whichever of them only wait, and leaves three on
//! one core and one on another for a long while: operations then take twice as long. A rank that
//! waits and finds two more ranks on its core than on another that it may use goes there by itself.
//! It stays free to be moved by the scheduler, and never leaves the cores that it was given.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::lock;
use crate::local::board::Board;
use crate::sys;

/// Yields between two looks at the others' cores.
const YIELDS: u32 = 16;
/// Between two moves of a rank.
const PAUSE: Duration = Duration::from_millis(1);
/// The same for a rank that the scheduler takes back again and again: it knows of other work.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Spread {
    /// The cores that this process may use, in ascending order.
    cores: Vec<u32>,
    yields: AtomicU32,
    last: Mutex<Option<Move>>,
}

/// A rank's last move.
#[derive(Clone, Copy, Debug)]
struct Move {
    at: Instant,
    from: u32,
    pause: Duration,
}

impl Spread {
    /// For a host of `ranks` ranks; `None` where each can have a core, or all have the same.
    pub(super) fn new(ranks: usize) -> Option<Self> {
        let cores = sys::allowed_cores();
        (cores.len() > 1 && ranks > cores.len()).then(|| Self {
            cores,
            yields: AtomicU32::new(0),
            last: Mutex::new(None),
        })
    }

    /// This rank is about to wait once more; if its core is too full, it goes to another.
    #[inline]
    pub(super) fn consider(&self, board: &Board) {
        // Threads that count at the same time may lose one: it does not matter which look it is.
        let yields = self.yields.load(Ordering::Relaxed).wrapping_add(1);
        self.yields.store(yields, Ordering::Relaxed);
        if yields.is_multiple_of(YIELDS) {
            self.look(board);
        }
    }

    #[cold]
    fn look(&self, board: &Board) {
        let core = sys::current_core();
        let seen = |rank: usize| {
            if rank == board.me() {
                Some(core)
            } else {
                board.core_of(rank)
            }
        };
        let Some(to) = better(board.me(), board.ranks(), &self.cores, seen) else {
            return;
        };
        let now = Instant::now();
        let mut last = lock(&self.last);
        let pause = match *last {
            Some(last) if now.duration_since(last.at) < last.pause => return,
            Some(last) => last.pause_before_next(core),
            None => PAUSE,
        };
        if sys::move_to_core(to) {
            board.note_core(to);
        }
        *last = Some(Move {
            at: now,
            from: core,
            pause,
        });
    }
}

impl Move {
    fn pause_before_next(self, core: u32) -> Duration {
        if core == self.from {
            (self.pause * 2).min(LONGEST_PAUSE)
        } else {
            PAUSE
        }
    }
}

/// The core that the rank `me` of `ranks` should go to, if any: only the last rank on a core goes,
/// so that not all of them do.
fn better(
    me: usize,
    ranks: usize,
    cores: &[u32],
    seen: impl Fn(usize) -> Option<u32>,
) -> Option<u32> {
    let mine = seen(me)?;
    if (me + 1..ranks).any(|rank| seen(rank) == Some(mine)) {
        return None;
    }
    let load = |core: u32| (0..ranks).filter(|rank| seen(*rank) == Some(core)).count();
    let least = *cores.iter().min_by_key(|core| load(**core))?;
    (load(mine) >= load(least) + 2).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(seen: &[Option<u32>], cores: &[u32]) -> Vec<Option<u32>> {
        (0..seen.len())
            .map(|me| better(me, seen.len(), cores, |rank| seen[rank]))
            .collect()
    }

    #[test]
    fn the_last_rank_of_a_full_core_goes_to_the_emptiest() {
        let seen = [Some(5), Some(5), Some(7), Some(5)];
        assert_eq!(moves(&seen, &[5, 7]), [None, None, None, Some(7)]);
        let seen = [Some(5), Some(5), Some(7), Some(5)];
        assert_eq!(moves(&seen, &[5, 7, 9]), [None, None, None, Some(9)]);
    }

    #[test]
    fn even_loads_and_unknown_ranks_move_nobody() {
        assert_eq!(moves(&[Some(0), Some(1), Some(0)], &[0, 1]), [None; 3]);
        assert_eq!(moves(&[Some(0), None, None], &[0, 1]), [None; 3]);
        // A core that this process may not use is no place to go.
        assert_eq!(moves(&[Some(0), Some(0), Some(0)], &[0]), [None; 3]);
    }

    #[test]
    fn a_rank_that_is_taken_back_tries_less_often() {
        let mut last = Move {
            at: Instant::now(),
            from: 3,
            pause: PAUSE,
        };
        assert_eq!(last.pause_before_next(4), PAUSE);
        for _ in 0..20 {
            last.pause = last.pause_before_next(3);
        }
        assert_eq!(last.pause, LONGEST_PAUSE);
    }
}
