//! How a case is measured; `bench/README.md` says why, and the peers' programs do the same.
//!
//! A check, a warm-up, then samples until the time is spent, and a check again. A sample is a
//! barrier and a batch of operations; its time is the maximum over the ranks. Rank 0's clock decides
//! for all how long to go on.

use std::time::Instant;

use carole_engine::{Group, ReduceOp, Result};

use super::operation::ROOT;
use super::plan::Budget;

/// Below this size a sample is a batch of operations.
const BATCH_BELOW: usize = 64 << 10;
const MIN_BATCH: f64 = 4.0;
const MAX_BATCH: f64 = 1000.0;
/// The time that a batch should take.
const BATCH_SECONDS: f64 = 0.002;
const MIN_WARM_UPS: usize = 2;
const MAX_WARM_UPS: usize = 1000;
const MIN_SAMPLES: usize = 5;
const MAX_SAMPLES: usize = 20_000;
/// Samples are taken for about this part of the budget before the clock is asked again.
const TURN: f64 = 0.1;
/// The budget may be exceeded this many times for the least number of samples.
const PATIENCE: f64 = 4.0;

/// Something that can be timed and checked.
pub(super) trait Sampler {
    /// Takes so many samples, each of them the operation `batch` times after a barrier: adds the
    /// seconds for one, on this rank.
    fn sample(&mut self, batch: usize, count: usize, times: &mut Vec<f64>) -> Result<()>;
    /// Runs the operation on known data; whether all of this rank's results are right.
    fn is_right(&mut self) -> Result<bool>;
}

/// What was measured; times are complete on rank 0 only.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Samples {
    /// Seconds for one operation, in ascending order.
    pub(super) times: Vec<f64>,
    /// Operations in a sample.
    pub(super) batch: usize,
    /// Whether every rank's results were right; `None` if nobody looked.
    pub(super) check: Option<bool>,
}

impl Samples {
    pub(super) fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }

    pub(super) fn min(&self) -> f64 {
        self.times[0]
    }

    pub(super) fn p90(&self) -> f64 {
        self.times[self.times.len() * 9 / 10]
    }
}

/// Whether operations of this size are timed in batches; lists never are.
pub(super) fn is_batched(bytes: usize, is_list: bool) -> bool {
    bytes < BATCH_BELOW && !is_list
}

/// Measures; every rank of `group` calls this.
pub(super) fn measure(
    group: &Group,
    sampler: &mut impl Sampler,
    budget: Budget,
    batched: bool,
) -> Result<Samples> {
    let mut times = Vec::with_capacity(MAX_SAMPLES);
    let before = checked(group, sampler, budget)?;

    let mut warm = 0;
    let start = Instant::now();
    loop {
        let cold = start.elapsed().as_secs_f64() < budget.warmup && warm < MAX_WARM_UPS;
        if agreed(group, usize::from(warm < MIN_WARM_UPS || cold))? == 0 {
            break;
        }
        sampler.sample(1, 1, &mut times)?;
        warm += 1;
    }
    let fastest = times.drain(..).fold(f64::MAX, f64::min);
    let batch = if batched {
        let wanted = BATCH_SECONDS / fastest.max(1e-8);
        agreed(group, wanted.clamp(MIN_BATCH, MAX_BATCH) as usize)?
    } else {
        1
    };

    let start = Instant::now();
    loop {
        let spent = start.elapsed().as_secs_f64();
        let each = if times.is_empty() {
            fastest * batch as f64
        } else {
            spent / times.len() as f64
        };
        let more = if spent < budget.seconds {
            (TURN * budget.seconds / each.max(1e-9)) as usize + 1
        } else {
            usize::from(times.len() < MIN_SAMPLES && spent < PATIENCE * budget.seconds)
        };
        // One sample there must be, whatever the budget.
        let more = more.max(usize::from(times.is_empty()));
        let more = agreed(group, more.min(MAX_SAMPLES - times.len()))?;
        if more == 0 {
            break;
        }
        sampler.sample(batch, more, &mut times)?;
    }
    group.call().reduce(&mut times, ReduceOp::Max, ROOT)?;
    let after = checked(group, sampler, budget)?;

    times.sort_by(f64::total_cmp);
    let check = before.zip(after).map(|(before, after)| before && after);
    Ok(Samples {
        times,
        batch,
        check,
    })
}

/// Whether every rank's results are right.
fn checked(group: &Group, sampler: &mut impl Sampler, budget: Budget) -> Result<Option<bool>> {
    if !budget.check {
        return Ok(None);
    }
    let mut right = [u8::from(sampler.is_right()?)];
    group.call().all_reduce(&mut right, ReduceOp::Min)?;
    Ok(Some(right[0] == 1))
}

/// Rank 0's number, on every rank.
fn agreed(group: &Group, number: usize) -> Result<usize> {
    let mut number = [number as u64];
    group.call().broadcast(&mut number, ROOT)?;
    Ok(number[0] as usize)
}

#[cfg(test)]
mod tests {
    use carole_engine::testing;

    use super::*;

    struct Fixed {
        seconds: f64,
        right: bool,
    }

    impl Sampler for Fixed {
        fn sample(&mut self, _: usize, count: usize, times: &mut Vec<f64>) -> Result<()> {
            times.extend(std::iter::repeat_n(self.seconds, count));
            Ok(())
        }

        fn is_right(&mut self) -> Result<bool> {
            Ok(self.right)
        }
    }

    fn measured(seconds: [f64; 2], right: [bool; 2], budget: Budget, batched: bool) -> Samples {
        let samples = testing::spawn(2, |session| {
            let rank = session.rank();
            let mut sampler = Fixed {
                seconds: seconds[rank],
                right: right[rank],
            };
            measure(&session.world(), &mut sampler, budget, batched).unwrap()
        });
        samples.into_iter().next().unwrap()
    }

    #[test]
    fn a_time_is_that_of_the_slowest_rank() {
        let budget = Budget {
            seconds: 0.001,
            warmup: 0.0,
            check: true,
        };
        let samples = measured([1e-5, 3e-5], [true, true], budget, true);
        assert!(samples.times.iter().all(|time| (time - 3e-5).abs() < 1e-12));
        assert_eq!((samples.batch, samples.check), (200, Some(true)));
    }

    #[test]
    fn one_wrong_rank_fails_the_check_of_all() {
        let budget = Budget {
            seconds: 0.0,
            warmup: 0.0,
            check: true,
        };
        let samples = measured([1e-5, 1e-5], [true, false], budget, false);
        assert_eq!((samples.times.len(), samples.batch), (1, 1));
        assert_eq!(samples.check, Some(false));
        let unchecked = Budget {
            check: false,
            ..budget
        };
        assert_eq!(measured([1e-5; 2], [false; 2], unchecked, true).check, None);
    }
}
