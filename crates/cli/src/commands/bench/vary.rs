//! Measuring without anything that stays the same: no fast path can be wired to it.
//!
//! Every sample has new tensors, an odd number of elements, begins at an odd place of its own on
//! every rank, and runs under random names, on one of two threads that take turns and both live as
//! long as the case. The checks run on both threads at once.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use carole_engine::{Error, Group, Result};

use super::buffer::{Place, Source};
use super::measure::Sampler;
use super::operation::ROOT;
use super::pattern::{Pattern, Value};
use super::work::{Shape, Work};

/// A name's letters.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789/._-";

/// A sampler whose every sample is different.
pub(super) struct Varying<T> {
    caller: Arc<Mutex<Caller<T>>>,
    other: OtherThread,
    /// Whose turn it is. A turn is many samples: the question is whether calls depend on their
    /// thread, not how fast threads wake up.
    on_other: bool,
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
        let caller = Caller {
            group: group.clone(),
            common: Random(seed[0]),
            own: Random(seed[0] ^ (shape.rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            source,
            shape,
            pattern,
        };
        Ok(Self {
            caller: Arc::new(Mutex::new(caller)),
            other: OtherThread::start()?,
            on_other: false,
        })
    }
}

impl<T: Value> Sampler for Varying<T> {
    fn sample(&mut self, batch: usize, count: usize, times: &mut Vec<f64>) -> Result<()> {
        let caller = Arc::clone(&self.caller);
        let turn = move || lock(&caller).sample(batch, count);
        self.on_other = !self.on_other;
        times.extend(if self.on_other {
            self.other.begin(turn)?.recv().map_err(|_| ended())??
        } else {
            turn()?
        });
        Ok(())
    }

    fn is_right(&mut self) -> Result<bool> {
        let (one, two) = {
            let mut caller = lock(&self.caller);
            (caller.trial()?, caller.trial()?)
        };
        let two = self.other.begin(move || two.run())?;
        let one = one.run();
        let two = two.recv().map_err(|_| ended())?;
        Ok(one? && two?)
    }
}

fn lock<T>(caller: &Mutex<Caller<T>>) -> std::sync::MutexGuard<'_, Caller<T>> {
    caller.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that have nothing in common.
struct Caller<T> {
    group: Group,
    shape: Shape,
    pattern: Pattern<T>,
    /// Draws the same on every rank.
    common: Random,
    /// Draws differently on every rank.
    own: Random,
    source: Source,
}

impl<T: Value> Caller<T> {
    fn sample(&mut self, batch: usize, count: usize) -> Result<Vec<f64>> {
        let once = |_| {
            let mut work = self.fresh()?;
            let names: Vec<_> = (0..batch).map(|_| self.common.name()).collect();
            work.time(&self.group, &names, batch)
        };
        (0..count).map(once).collect()
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

    /// A call on known data, for whichever thread.
    fn trial(&mut self) -> Result<Trial<T>> {
        let mut work = self.fresh()?;
        work.fill(&self.pattern);
        Ok(Trial {
            work,
            group: self.group.clone(),
            name: self.common.name(),
            pattern: self.pattern.clone(),
        })
    }
}

struct Trial<T> {
    work: Work<T>,
    group: Group,
    name: String,
    pattern: Pattern<T>,
}

impl<T: Value> Trial<T> {
    /// Whether the result is right.
    fn run(mut self) -> Result<bool> {
        self.work.time(&self.group, &[self.name], 1)?;
        Ok(self.work.is_right(&self.pattern))
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The second thread. It ends when this is dropped.
struct OtherThread {
    jobs: Option<Sender<Job>>,
    handle: Option<JoinHandle<()>>,
}

impl OtherThread {
    fn start() -> Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let handle = std::thread::Builder::new()
            .name("bench-other".into())
            .spawn(move || todo.into_iter().for_each(|job| job()))
            .map_err(|error| Error::system("starting the second thread", &error))?;
        Ok(Self {
            jobs: Some(jobs),
            handle: Some(handle),
        })
    }

    fn begin<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Receiver<R>> {
        let (done, result) = channel();
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        // Nobody listens any more when the other half failed first.
        let job = Box::new(move || drop(done.send(job())));
        jobs.send(job).map_err(|_| ended())?;
        Ok(result)
    }
}

impl Drop for OtherThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(handle) = self.handle.take() {
            // A panic there was told there, and is an error of the turn it happened in.
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
                    let mut times = Vec::new();
                    varying.sample(batch, 2, &mut times).unwrap();
                    assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0));
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
