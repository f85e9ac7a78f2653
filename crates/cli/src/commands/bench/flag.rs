//! How long a flag takes from one core to another: it explains small figures.
//!
//! Hosts of virtual machines move cores apart and together again, and figures of a microsecond
//! follow. The two threads here are bound to two cores, since the question is about cores and not
//! about the scheduler; nothing else of a benchmark is bound.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Batches to take the median of. Waiting ranks still yield their cores during the first of them.
const BATCHES: usize = 300;
/// Round trips in a batch.
const TURNS: u32 = 100;
/// A busy machine is not waited for longer than this.
const LIMIT: Duration = Duration::from_millis(100);
/// Tells the other thread to stop.
const STOP: u32 = u32::MAX;

/// A flag with room around it, so that it shares its cache lines with nothing.
#[derive(Default)]
#[repr(align(128))]
struct Flag(AtomicU32);

/// Half a round trip between two cores, the median, in nanoseconds; `None` with one core only.
pub(super) fn nanoseconds() -> Option<f64> {
    let (first, last) = two_cores()?;
    let (ping, pong) = (Flag::default(), Flag::default());
    let mut batches = std::thread::scope(|scope| {
        scope.spawn(|| answer(&last, &ping, &pong));
        scope.spawn(|| ask(&first, &ping, &pong)).join().ok()
    })?;
    // The first ones wait for the other thread to start.
    let behind = batches.split_off(batches.len().min(5));
    let mut batches = if behind.is_empty() { batches } else { behind };
    batches.sort_by(f64::total_cmp);
    batches.get(batches.len() / 2).copied()
}

/// The first and the last core that this process may use.
fn two_cores() -> Option<(CpuSet, CpuSet)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let only = |core| {
        let mut set = CpuSet::new();
        set.set(core);
        set
    };
    Some((only(cores.next()?), only(cores.next_back()?)))
}

fn ask(core: &CpuSet, ping: &Flag, pong: &Flag) -> Vec<f64> {
    // Where binding is refused, the scheduler places the threads.
    let _ = sched_setaffinity(None, core);
    let mut batches = Vec::with_capacity(BATCHES);
    let begin = Instant::now();
    let mut turn = 0;
    while batches.len() < BATCHES && begin.elapsed() < LIMIT {
        let start = Instant::now();
        for _ in 0..TURNS {
            turn += 1;
            ping.0.store(turn, Ordering::Release);
            while pong.0.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
        }
        batches.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS) / 2.0);
    }
    ping.0.store(STOP, Ordering::Release);
    batches
}

fn answer(core: &CpuSet, ping: &Flag, pong: &Flag) {
    let _ = sched_setaffinity(None, core);
    let mut last = 0;
    loop {
        let turn = ping.0.load(Ordering::Acquire);
        if turn == STOP {
            return;
        }
        if turn == last {
            std::hint::spin_loop();
        } else {
            pong.0.store(turn, Ordering::Release);
            last = turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_takes_some_time_where_there_are_two_cores() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match nanoseconds() {
            Some(time) => assert!(time > 1.0, "{time} ns"),
            None => assert_eq!(cores, 1),
        }
    }
}
