//! What is compared: the ways that an all-reduce can go on one host, and at which sizes.

use carole_engine::{DType, ReduceOp};
use carole_plan::{AlgorithmTable, LocalRule};

use crate::args::{MemoryChoice, TransportChoice};
use crate::commands::bench::{Budget, Case, Operation, Plan};

/// Where everybody reading everybody's values stops being best: somewhere here.
pub(super) const SMALL: [usize; 9] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
];
/// Where the size of chunks shows.
pub(super) const LARGE: [usize; 2] = [1 << 20, 16 << 20];
/// Sizes of chunks to try.
const CHUNKS: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// More than all of the small sizes.
const ALWAYS_FLAT: usize = 1 << 20;

/// A way that an all-reduce can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Everybody reads everybody's values.
    Flat,
    /// Chunks of so many bytes, each rank combining a part of each.
    TwoPhase { chunk: usize },
}

impl Way {
    /// As the engine calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::TwoPhase { .. } => "two-phase",
        }
    }
}

/// A way, and the sizes at which it is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) way: Way,
    sizes: Vec<usize>,
}

impl Candidate {
    /// All of them, for ranks that have gone by the rule `old` so far.
    pub(super) fn all(old: LocalRule) -> Vec<Self> {
        let mut chunks = CHUNKS.to_vec();
        if !chunks.contains(&old.chunk_bytes) {
            chunks.push(old.chunk_bytes);
        }
        let flat = Self {
            way: Way::Flat,
            sizes: SMALL.to_vec(),
        };
        let two_phase = chunks.into_iter().map(|chunk| {
            // A tensor that is no longer than the chunks goes the same way with either.
            let same = if chunk == old.chunk_bytes {
                0
            } else {
                chunk.min(old.chunk_bytes)
            };
            let small = SMALL.into_iter().filter(|bytes| *bytes > same);
            Self {
                way: Way::TwoPhase { chunk },
                sizes: small.chain(LARGE).collect(),
            }
        });
        std::iter::once(flat).chain(two_phase).collect()
    }

    /// What the ranks that have gone by `old` so far have to do to measure it.
    pub(super) fn plan(&self, old: LocalRule, budget: Budget) -> Plan {
        let (flat_bytes, chunk_bytes) = match self.way {
            Way::Flat => (ALWAYS_FLAT, old.chunk_bytes),
            Way::TwoPhase { chunk } => (0, chunk),
        };
        let rule = LocalRule {
            flat_bytes,
            chunk_bytes,
            ..old
        };
        let table = AlgorithmTable {
            local: vec![rule],
            ..AlgorithmTable::default()
        };
        let case = |&bytes| Case {
            operation: Operation::AllReduce,
            bytes,
            list: None,
        };
        Plan {
            cases: self.sizes.iter().map(case).collect(),
            dtype: DType::F32,
            op: ReduceOp::Sum,
            transport: TransportChoice::Shm,
            memory: MemoryChoice::Private,
            streams: 1,
            budget,
            vary: false,
            table: Some(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(chunk_bytes: usize) -> LocalRule {
        LocalRule {
            ranks: 4,
            crowded: false,
            flat_bytes: 8 << 10,
            chunk_bytes,
        }
    }

    #[test]
    fn the_chunk_in_use_is_measured_at_every_size_and_others_where_they_differ() {
        for old in [256 << 10, 32 << 10] {
            let all = Candidate::all(rule(old));
            assert_eq!(all[0].sizes, SMALL);
            let mut seen_old = false;
            for candidate in &all[1..] {
                let Way::TwoPhase { chunk } = candidate.way else {
                    panic!("flat is there once")
                };
                assert!(candidate.sizes.ends_with(&LARGE));
                let small = &candidate.sizes[..candidate.sizes.len() - LARGE.len()];
                if chunk == old {
                    seen_old = true;
                    assert_eq!(small, SMALL);
                } else {
                    assert!(small.iter().all(|bytes| *bytes > chunk.min(old)));
                }
            }
            assert!(seen_old);
        }
    }

    #[test]
    fn every_candidate_has_a_valid_table_that_makes_ranks_go_its_way() {
        let old = rule(256 << 10);
        for candidate in Candidate::all(old) {
            let plan = candidate.plan(old, Budget::new(0.1));
            let table = plan.table.unwrap();
            table.validate().unwrap();
            let rule = table.local_rule(old.ranks, old.ranks);
            match candidate.way {
                Way::Flat => assert!(rule.flat_bytes >= SMALL[SMALL.len() - 1]),
                Way::TwoPhase { chunk } => {
                    assert_eq!((rule.flat_bytes, rule.chunk_bytes), (0, chunk));
                }
            }
        }
    }
}
