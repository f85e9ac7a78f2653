//! Measuring without anything that stays the same: no fast path can be wired to it.
//!
//! Every sample has new tensors, an odd number of elements, begins at an odd place of its own on
//! every rank, and runs under random names, on one of two threads that take turns and both live as
//! long as the case. The checks run on both threads at once.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carole_engine::{Error, Group, Result};

use super::buffer::{Place, Source};
use super::measure::Sampler;
use super::operation::ROOT;
use super::pattern::{Pattern, Value};
use super::work::{Shape, Work};

/// How long one thread calls before the other does. Longer than the scheduler needs to give the
/// threads of different ranks cores of their own: the question is whether calls depend on their
/// thread, not how fast threads wake up.
const TURN: Duration = Duration::from_millis(20);
/// A name's letters.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789/._-";

/// A sampler whose every sample is different.
pub(super) struct Varying<T> {
    group: Group,
    shape: Shape,
    pattern: Pattern<T>,
    /// Draws the same on every rank.
    common: Random,
    /// Draws differently on every rank.
    own: Random,
    other: OtherThread<T>,
    on_other: bool,
    /// When this thread's turn, or the other's, began.
    turn: Instant,
    source: Source,
}

impl<T: Value> Varying<T> {
    pub(super) fn new(
        group: &Group,
        shape: Shape,
        pattern: Pattern<T>,
        source: Source,
    ) -> Result<Self> {
        let mut seed = [carole_launch::random::random_incarnation().map_or(1, |n| n as u64)];
        group.call().broadcast(&mut seed, ROOT)?;
        Ok(Self {
            group: group.clone(),
            common: Random(seed[0]),
            own: Random(seed[0] ^ (shape.rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            other: OtherThread::start(group.clone())?,
            on_other: false,
            turn: Instant::now(),
            source,
            shape,
            pattern,
        })
    }

    /// New tensors of a new length, at new places.
    fn fresh(&mut self) -> Result<Work<T>> {
        let mut shape = self.shape.clone();
        let length = |length: usize, random: &mut Random| match length {
            0..16 => length | 1,
            _ => (length - 2 * random.below(8)) | 1,
        };
        if shape.list.is_empty() {
            shape.count = length(shape.count, &mut self.common);
        }
        for one in &mut shape.list {
            *one = length(*one, &mut self.common);
        }
        let own = &mut self.own;
        Work::new(&shape, &self.source, |_| {
            Place::Behind(2 * own.below(8) + 1)
        })
    }

    /// Hands the calls to the other thread when a turn is over.
    fn take_turns(&mut self) {
        if self.turn.elapsed() >= TURN {
            self.turn = Instant::now();
            self.on_other = !self.on_other;
        }
    }

    fn names(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.common.name()).collect()
    }
}

impl<T: Value> Sampler for Varying<T> {
    fn sample(&mut self, batch: usize) -> Result<f64> {
        let mut work = self.fresh()?;
        work.clear();
        let names = self.names(batch);
        self.take_turns();
        if self.on_other {
            self.other.begin(Round { work, names })?;
            return self.other.end()?.1;
        }
        work.time(&self.group, &names, batch)
    }

    fn is_right(&mut self) -> Result<bool> {
        let mut works = [self.fresh()?, self.fresh()?];
        for work in &mut works {
            work.fill(&self.pattern);
        }
        let [mut one, two] = works;
        let names = self.names(2);
        self.other.begin(Round {
            work: two,
            names: names[..1].to_vec(),
        })?;
        let first = one.time(&self.group, &names[1..], 1);
        let (two, second) = self.other.end()?;
        first?;
        second?;
        Ok(one.is_right(&self.pattern) && two.is_right(&self.pattern))
    }
}

/// Tensors and the names of the calls on them.
struct Round<T> {
    work: Work<T>,
    names: Vec<String>,
}

/// The second thread. It ends when this is dropped.
struct OtherThread<T> {
    rounds: Option<Sender<Round<T>>>,
    results: Receiver<(Work<T>, Result<f64>)>,
    handle: Option<JoinHandle<()>>,
}

impl<T: Value> OtherThread<T> {
    fn start(group: Group) -> Result<Self> {
        let (rounds, todo) = channel::<Round<T>>();
        let (done, results) = channel();
        let handle = std::thread::Builder::new()
            .name("bench-other".into())
            .spawn(move || {
                for Round { mut work, names } in todo {
                    let result = work.time(&group, &names, names.len());
                    if done.send((work, result)).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| Error::system("starting the second thread", &error))?;
        Ok(Self {
            rounds: Some(rounds),
            results,
            handle: Some(handle),
        })
    }

    fn begin(&self, round: Round<T>) -> Result<()> {
        let rounds = self.rounds.as_ref().ok_or_else(ended)?;
        rounds.send(round).map_err(|_| ended())
    }

    fn end(&self) -> Result<(Work<T>, Result<f64>)> {
        self.results.recv().map_err(|_| ended())
    }
}

impl<T> Drop for OtherThread<T> {
    fn drop(&mut self) {
        drop(self.rounds.take());
        if let Some(handle) = self.handle.take() {
            // A panic there was told there, and is an error of the round it happened in.
            let _ = handle.join();
        }
    }
}

fn ended() -> Error {
    let message = "it ended early".into();
    Error::System {
        context: "the second thread".into(),
        message,
    }
}

/// Numbers that look random: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A name of 3 to 40 letters.
    fn name(&mut self) -> String {
        let length = 3 + self.below(38);
        (0..length)
            .map(|_| LETTERS[self.below(LETTERS.len())] as char)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use carole_engine::{ReduceOp, testing};

    use super::*;
    use crate::commands::bench::operation::Operation;

    #[test]
    fn varied_operations_are_right_on_two_threads_at_once() {
        for operation in Operation::ALL {
            testing::spawn(3, |session| {
                let shape = Shape {
                    operation,
                    op: ReduceOp::Sum,
                    rank: session.rank(),
                    ranks: 3,
                    count: 500,
                    list: Vec::new(),
                };
                let pattern = Pattern::<f32>::new(ReduceOp::Sum, 3);
                let mut varying =
                    Varying::new(&session.world(), shape, pattern, Source::Private).unwrap();
                for batch in [1, 5, 2] {
                    assert!(varying.sample(batch).unwrap() > 0.0);
                    assert!(varying.is_right().unwrap(), "{operation:?}");
                }
            });
        }
    }

    #[test]
    fn ranks_draw_the_same_names() {
        let (mut one, mut other) = (Random(7), Random(7));
        assert_eq!(one.name(), other.name());
        assert_ne!(one.name(), one.name());
    }
}
