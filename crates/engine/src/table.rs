//! The algorithm table of a session, agreed when it forms.
//!
//! Every rank uses the table of the first rank, and that rank's number of cores: members must
//! choose alike. What the table decides is speed only; on one host all algorithms combine values
//! in the same order and give the same bits.

use carole_plan::{AlgorithmTable, LocalRule};

use crate::call::Group;
use crate::error::{Error, Result};
use crate::region::MAX_LOCAL;

/// How a reduction goes among the ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// Everybody reads everybody's values.
    Flat,
    /// Everybody reduces a segment, then takes the others'.
    TwoPhase {
        /// Bytes of a chunk.
        chunk: usize,
    },
}

/// Above, two trips cost less than waiting for all bytes before any is combined.
const MOST_FLAT_ACROSS: usize = 1 << 20;

/// The choices, by number of ranks of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// (most bytes for flat, bytes of a chunk above), by number of ranks.
    local: [(usize, usize); MAX_LOCAL + 1],
    flat_across: usize,
}

impl Table {
    /// The choices for hosts of `cores` cores.
    pub(crate) fn new(table: &AlgorithmTable, cores: usize) -> Self {
        let mut local = [(0, 0); MAX_LOCAL + 1];
        for (ranks, entry) in local.iter_mut().enumerate() {
            let rule = table.local_rule(ranks, cores);
            *entry = (rule.flat_bytes, rule.chunk_bytes);
        }
        Self {
            local,
            flat_across: table.flat_across_bytes,
        }
    }

    /// Whether everybody sends everything in a reduction across hosts: that takes one trip instead
    /// of two, and more bytes where there are more than two members.
    pub(crate) fn is_flat_across(&self, bytes: usize, members: usize) -> bool {
        let segmented = 2 * bytes / members * (members - 1);
        let more = (bytes * (members - 1)).saturating_sub(segmented);
        bytes <= MOST_FLAT_ACROSS && more <= self.flat_across
    }

    #[inline]
    pub(crate) fn all_reduce(&self, bytes: usize, members: usize) -> Algorithm {
        let (flat, chunk) = self.local[members.min(MAX_LOCAL)];
        if bytes <= flat {
            Algorithm::Flat
        } else {
            Algorithm::TwoPhase { chunk }
        }
    }
}

/// Tells the first rank's table to all members of the world.
pub(crate) fn agree(world: &Group, mine: &AlgorithmTable, cores: usize) -> Result<Table> {
    let mut words = if world.rank() == 0 {
        encode(mine, cores)
    } else {
        Vec::new()
    };
    let mut length = [words.len() as u64];
    world
        .named("carole/table length")
        .broadcast(&mut length, 0)?;
    let length = length[0] as usize;
    if length > MOST_WORDS {
        return Err(Error::Form(format!("an algorithm table of {length} words")));
    }
    words.resize(length, 0);
    world.named("carole/table").broadcast(&mut words, 0)?;
    let (table, cores) =
        decode(&words).ok_or_else(|| Error::Form("an algorithm table without meaning".into()))?;
    table
        .validate()
        .map_err(|error| Error::Form(error.to_string()))?;
    Ok(Table::new(&table, cores))
}

const MOST_WORDS: usize = 1024;

fn encode(table: &AlgorithmTable, cores: usize) -> Vec<u64> {
    let mut words = vec![cores as u64, table.flat_across_bytes as u64];
    for rule in &table.local {
        let LocalRule {
            ranks,
            crowded,
            flat_bytes,
            chunk_bytes,
        } = *rule;
        words.extend([
            ranks as u64,
            u64::from(crowded),
            flat_bytes as u64,
            chunk_bytes as u64,
        ]);
    }
    words
}

fn decode(words: &[u64]) -> Option<(AlgorithmTable, usize)> {
    let (head, rules) = words.split_at_checked(2)?;
    if rules.len() % 4 != 0 {
        return None;
    }
    let local = rules
        .chunks_exact(4)
        .map(|rule| LocalRule {
            ranks: rule[0] as usize,
            crowded: rule[1] != 0,
            flat_bytes: rule[2] as usize,
            chunk_bytes: rule[3] as usize,
        })
        .collect();
    Some((
        AlgorithmTable {
            local,
            flat_across_bytes: head[1] as usize,
        },
        head[0] as usize,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sends_everything_while_that_is_little_more() {
        let table = Table::new(&AlgorithmTable::default(), 4);
        let most = |members: usize| {
            let flat = |bytes: &usize| table.is_flat_across(*bytes, members);
            (0..=4096).map(|kib| kib << 10).take_while(flat).count() - 1
        };
        assert_eq!([2, 3, 4, 8, 64].map(most), [1024, 96, 42, 12, 1]);
    }

    #[test]
    fn a_table_survives_the_way_to_other_ranks() {
        let table = AlgorithmTable::default();
        assert_eq!(decode(&encode(&table, 7)), Some((table, 7)));
        assert_eq!(decode(&[1, 2, 3]), None);
        assert_eq!(decode(&[]), None);
    }
}
