//! What was measured for one number of ranks.

use std::collections::BTreeMap;

use super::candidate::Way;

/// Microseconds by way and size, one for each round.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(BTreeMap<(Way, usize), Vec<f64>>);

impl Times {
    pub(super) fn add(&mut self, way: Way, bytes: usize, microseconds: f64) {
        self.0.entry((way, bytes)).or_default().push(microseconds);
    }

    /// The median over the rounds; none for what was not measured.
    pub(super) fn median(&self, way: Way, bytes: usize) -> Option<f64> {
        let mut rounds = self.0.get(&(way, bytes))?.clone();
        rounds.sort_by(f64::total_cmp);
        let upper = rounds.len() / 2;
        let lower = (rounds.len() - 1) / 2;
        Some(f64::midpoint(rounds[lower], rounds[upper]))
    }

    /// All medians, by way and size.
    pub(super) fn medians(&self) -> impl Iterator<Item = (Way, usize, f64)> {
        let keys = self.0.keys();
        keys.filter_map(|&(way, bytes)| Some((way, bytes, self.median(way, bytes)?)))
    }

    /// The chunks that were measured.
    pub(super) fn chunks(&self) -> Vec<usize> {
        let chunk = |(way, _): &(Way, usize)| match *way {
            Way::TwoPhase { chunk } => Some(chunk),
            Way::Flat => None,
        };
        let mut chunks: Vec<usize> = self.0.keys().filter_map(chunk).collect();
        chunks.dedup();
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_counts() {
        let mut times = Times::default();
        assert_eq!(times.median(Way::Flat, 1024), None);
        for (time, median) in [(5.0, 5.0), (1.0, 3.0), (4.0, 4.0)] {
            times.add(Way::Flat, 1024, time);
            assert_eq!(times.median(Way::Flat, 1024), Some(median));
        }
        assert_eq!(times.median(Way::TwoPhase { chunk: 4096 }, 1024), None);
    }

    #[test]
    fn chunks_are_named_once() {
        let mut times = Times::default();
        for chunk in [8192, 4096] {
            for bytes in [1024, 2048] {
                times.add(Way::TwoPhase { chunk }, bytes, 1.0);
            }
        }
        times.add(Way::Flat, 1024, 1.0);
        assert_eq!(times.chunks(), [4096, 8192]);
        assert_eq!(times.medians().count(), 5);
    }
}
