//! What follows from the times: a rule for a number of ranks, and the table of all rules.
//!
//! Times vary from run to run by some percent, so that a rule is left as it is unless another is
//! clearly better.

use carole_plan::{AlgorithmTable, LocalRule};

use super::candidate::{LARGE, SMALL, Way};
use super::times::Times;

/// The part of the time that a change must save.
const GAIN: f64 = 0.05;

/// The rule for the ranks whose `times` these are, and that have gone by `old` so far.
pub(super) fn choose(times: &Times, old: LocalRule) -> LocalRule {
    let chunk_bytes = chunk(times, old.chunk_bytes);
    LocalRule {
        flat_bytes: crossover(times, old, chunk_bytes),
        chunk_bytes,
        ..old
    }
}

/// The time of two-phase with chunks of `chunk` bytes, or with those of `old` where that is the same.
pub(super) fn two_phase(times: &Times, old: LocalRule, chunk: usize, bytes: usize) -> Option<f64> {
    let time = |chunk| times.median(Way::TwoPhase { chunk }, bytes);
    let same = bytes <= chunk.min(old.chunk_bytes);
    time(chunk).or_else(|| time(old.chunk_bytes).filter(|_| same))
}

/// The chunk with the best sum of times, each relative to the old chunk's.
fn chunk(times: &Times, old: usize) -> usize {
    let relative = |chunk, bytes| {
        let time = times.median(Way::TwoPhase { chunk }, bytes)?;
        Some(time / times.median(Way::TwoPhase { chunk: old }, bytes)?)
    };
    let sum = |chunk| -> Option<f64> { LARGE.iter().map(|&bytes| relative(chunk, bytes)).sum() };
    let sums = times.chunks().into_iter();
    let sums = sums.filter_map(|chunk| Some((chunk, sum(chunk)?)));
    match sums.min_by(|(_, one), (_, other)| one.total_cmp(other)) {
        Some((best, sum)) if sum <= (1.0 - GAIN) * LARGE.len() as f64 => best,
        _ => old,
    }
}

/// The largest size up to which flat is at least as fast.
///
/// It is looked for from the old one on, up and down: an outlier far away changes nothing.
fn crossover(times: &Times, old: LocalRule, chunk: usize) -> usize {
    let relative = |bytes| {
        let flat = times.median(Way::Flat, bytes)?;
        Some(flat / two_phase(times, old, chunk, bytes)?)
    };
    let (below, above): (Vec<usize>, Vec<usize>) =
        SMALL.iter().partition(|bytes| **bytes <= old.flat_bytes);
    let up = above.into_iter().map(|bytes| (bytes, relative(bytes)));
    let down = below.into_iter().rev();
    let down = down.map(|bytes| (bytes, relative(bytes).map(f64::recip)));
    match (worthwhile(up), worthwhile(down)) {
        (Some(last), None) => last,
        // Sizes double. Nothing is known of those below the first, which stay flat.
        (None, Some(last)) => last / 2,
        // If both pay, the times contradict each other.
        (None, None) | (Some(_), Some(_)) => old.flat_bytes,
    }
}

/// The last size of the longest run, from the first one on, over which a change is nowhere slower
/// and saves enough on average. Each size comes with the time after the change, relative to before;
/// one that was not measured ends the run.
fn worthwhile(sizes: impl Iterator<Item = (usize, Option<f64>)>) -> Option<usize> {
    let (mut sum, mut count, mut last) = (0.0, 0.0, None);
    for (bytes, relative) in sizes {
        let Some(relative) = relative.filter(|relative| *relative <= 1.0) else {
            break;
        };
        sum += relative;
        count += 1.0;
        if sum <= (1.0 - GAIN) * count {
            last = Some(bytes);
        }
    }
    last
}

/// `base` with `rules` in place of its own for the same ranks.
pub(super) fn with_rules(base: &AlgorithmTable, rules: &[LocalRule]) -> AlgorithmTable {
    let key = |rule: &LocalRule| (rule.crowded, rule.ranks);
    let kept = base.local.iter();
    let kept = kept.filter(|old| rules.iter().all(|new| key(new) != key(old)));
    let mut local: Vec<LocalRule> = kept.chain(rules).copied().collect();
    // The first that fits is used; beyond all of them the last, which is for crowded hosts.
    local.sort_by_key(key);
    AlgorithmTable {
        local,
        ..base.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;
    const CHUNK: usize = 256 * KIB;

    fn old(flat_kib: usize) -> LocalRule {
        LocalRule {
            ranks: 4,
            crowded: false,
            flat_bytes: flat_kib * KIB,
            chunk_bytes: CHUNK,
        }
    }

    /// Flat takes `flat(size)` of the time of two-phase, in three rounds.
    fn small(flat: impl Fn(usize) -> f64) -> Times {
        let mut times = Times::default();
        for bytes in SMALL {
            for noise in [0.99, 1.0, 1.5] {
                times.add(Way::TwoPhase { chunk: CHUNK }, bytes, 10.0 * noise);
                times.add(Way::Flat, bytes, 10.0 * flat(bytes) * noise);
            }
        }
        times
    }

    fn add_chunk(times: &mut Times, chunk: usize, large: [f64; 2]) {
        for (bytes, time) in LARGE.into_iter().zip(large) {
            times.add(Way::TwoPhase { chunk }, bytes, time);
        }
    }

    #[test]
    fn the_crossover_is_found_above_and_below_the_old_one() {
        let clear = |limit: usize| move |bytes| if bytes <= limit { 0.7 } else { 1.3 };
        for limit in SMALL {
            for start in [0, 1, 8, 12, 256, 1024] {
                let rule = choose(&small(clear(limit)), old(start));
                // Between two sizes nothing is known.
                let expected = if start == 12 && limit == 8 * KIB {
                    12 * KIB
                } else if start == 1024 && limit == 256 * KIB {
                    1024 * KIB
                } else {
                    limit
                };
                assert_eq!(rule.flat_bytes, expected, "{limit} from {start} KiB");
                assert_eq!(rule.chunk_bytes, CHUNK);
                assert_eq!((rule.ranks, rule.crowded), (4, false));
            }
        }
        let never = choose(&small(|_| 1.3), old(8)).flat_bytes;
        assert_eq!(never, 512, "what was not measured stays flat");
    }

    #[test]
    fn less_than_five_percent_changes_nothing() {
        for flat in [0.96, 1.0, 1.04] {
            assert_eq!(choose(&small(|_| flat), old(8)), old(8), "{flat}");
        }
        assert_eq!(choose(&small(|_| 0.94), old(8)).flat_bytes, 256 * KIB);
        assert_eq!(choose(&small(|_| 1.07), old(8)).flat_bytes, 512);
    }

    #[test]
    fn a_run_that_pays_as_a_whole_may_gain_less_at_single_sizes() {
        let flat = |bytes| match bytes / KIB {
            0..=8 => 0.8,
            16 => 0.97,
            32 => 0.85,
            64 => 0.99,
            _ => 1.2,
        };
        assert_eq!(choose(&small(flat), old(8)).flat_bytes, 64 * KIB);
    }

    #[test]
    fn an_outlier_far_from_the_old_value_changes_nothing() {
        let outlier = |at: usize, flat: f64| {
            move |bytes: usize| match bytes {
                _ if bytes == at => flat,
                _ if bytes <= 8 * KIB => 0.8,
                _ => 1.2,
            }
        };
        for (at, flat) in [(KIB, 1.5), (4 * KIB, 1.5), (32 * KIB, 0.5)] {
            assert_eq!(choose(&small(outlier(at, flat)), old(8)), old(8), "{at}");
        }
        let contrary = |bytes| if bytes <= 8 * KIB { 1.2 } else { 0.8 };
        assert_eq!(choose(&small(contrary), old(8)), old(8));
    }

    #[test]
    fn sizes_that_were_not_measured_keep_their_way() {
        assert_eq!(choose(&Times::default(), old(8)), old(8));
        let mut times = Times::default();
        for bytes in SMALL.into_iter().filter(|bytes| *bytes != 64 * KIB) {
            times.add(Way::Flat, bytes, 5.0);
            times.add(Way::TwoPhase { chunk: CHUNK }, bytes, 10.0);
        }
        times.add(Way::Flat, 64 * KIB, 5.0);
        assert_eq!(choose(&times, old(8)).flat_bytes, 32 * KIB);
        // Another chunk needs both sizes, and the old one beside it.
        add_chunk(&mut times, 64 * KIB, [1.0, 1.0]);
        assert_eq!(choose(&times, old(8)).chunk_bytes, CHUNK);
        times.add(Way::TwoPhase { chunk: CHUNK }, LARGE[0], 10.0);
        assert_eq!(choose(&times, old(8)).chunk_bytes, CHUNK);
        times.add(Way::TwoPhase { chunk: CHUNK }, LARGE[1], 10.0);
        assert_eq!(choose(&times, old(8)).chunk_bytes, 64 * KIB);
    }

    #[test]
    fn the_chunk_with_the_best_sum_wins_if_it_saves_enough() {
        let chosen = |others: [[f64; 2]; 2]| {
            let mut times = small(|_| 1.0);
            add_chunk(&mut times, CHUNK, [100.0, 2000.0]);
            add_chunk(&mut times, 128 * KIB, others[0]);
            add_chunk(&mut times, 1024 * KIB, others[1]);
            choose(&times, old(8)).chunk_bytes
        };
        assert_eq!(chosen([[96.0, 1920.0], [110.0, 2100.0]]), CHUNK);
        assert_eq!(chosen([[80.0, 2000.0], [110.0, 1200.0]]), 1024 * KIB);
        assert_eq!(chosen([[80.0, 1900.0], [110.0, 1900.0]]), 128 * KIB);
    }

    #[test]
    fn the_crossover_is_that_against_the_chosen_chunk() {
        let mut times = small(|bytes| if bytes <= 128 * KIB { 0.8 } else { 1.1 });
        add_chunk(&mut times, CHUNK, [100.0, 2000.0]);
        add_chunk(&mut times, 64 * KIB, [50.0, 1000.0]);
        for bytes in [128 * KIB, 256 * KIB] {
            let chunk = 64 * KIB;
            times.add(Way::TwoPhase { chunk }, bytes, 5.0);
        }
        let rule = choose(&times, old(8));
        assert_eq!(
            (rule.flat_bytes, rule.chunk_bytes),
            (64 * KIB, 64 * KIB),
            "128 KiB go in two chunks now"
        );
    }

    #[test]
    fn the_table_holds_what_was_measured_and_the_default_for_the_rest() {
        let base = AlgorithmTable::default();
        let rule = |ranks, crowded| LocalRule {
            ranks,
            crowded,
            flat_bytes: 1000 + ranks,
            chunk_bytes: 4096,
        };
        let measured = [rule(2, false), rule(8, false), rule(16, true)];
        let table = with_rules(&base, &measured);
        table.validate().unwrap();
        let keys: Vec<_> = table.local.iter().map(|r| (r.crowded, r.ranks)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(table.local.len(), base.local.len() + 2);
        assert_eq!(table.local_rule(2, 8), measured[0]);
        assert_eq!(table.local_rule(7, 8), measured[1]);
        assert_eq!(table.local_rule(16, 8), measured[2]);
        for (ranks, cores) in [(2, 1), (4, 8), (20, 32), (17, 8), (100, 2)] {
            assert_eq!(
                table.local_rule(ranks, cores),
                base.local_rule(ranks, cores)
            );
        }
        assert_eq!(with_rules(&base, &[]), base);
    }
}
