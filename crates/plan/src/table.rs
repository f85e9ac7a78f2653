//! Which algorithm for which size and shape.
//!
//! A table decides speed only: whatever it says, values are combined in the same order. It is a
//! value that can be measured (`carole tune`), saved, and handed to a session; the members of a
//! session use the table of its first rank.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;

/// How reductions go among ranks that share a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalRule {
    /// The rule holds for groups of up to this many ranks.
    pub ranks: usize,
    /// Whether it holds for more ranks than cores, or for at least a core for each.
    pub crowded: bool,
    /// Up to this many bytes everybody reads everybody's values.
    pub flat_bytes: usize,
    /// Above, tensors go in chunks of this many bytes, each rank combining a part of each.
    pub chunk_bytes: usize,
}

/// The choices of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmTable {
    /// Rules for one host; the first that fits is used, else the last.
    pub local: Vec<LocalRule>,
    /// Across hosts: everybody sends everything to everybody, up to 1 MiB, while a rank sends at
    /// most this many bytes more in all than if each combined a part.
    pub flat_across_bytes: usize,
}

impl Default for AlgorithmTable {
    fn default() -> Self {
        let rule = |ranks, crowded, flat_kib: usize, chunk_kib: usize| LocalRule {
            ranks,
            crowded,
            flat_bytes: flat_kib << 10,
            chunk_bytes: chunk_kib << 10,
        };
        Self {
            local: vec![
                rule(2, false, 32, 256),
                rule(4, false, 8, 256),
                rule(64, false, 2, 256),
                rule(2, true, 32, 256),
                rule(4, true, 16, 256),
                rule(64, true, 8, 256),
            ],
            flat_across_bytes: 64 << 10,
        }
    }
}

impl AlgorithmTable {
    /// The rule for a group of `ranks` ranks on a host with `cores` cores.
    pub fn local_rule(&self, ranks: usize, cores: usize) -> LocalRule {
        let crowded = ranks > cores;
        let fits = |rule: &&LocalRule| rule.crowded == crowded && ranks <= rule.ranks;
        let last = AlgorithmTable::default().local[0];
        *self
            .local
            .iter()
            .find(fits)
            .or(self.local.last())
            .unwrap_or(&last)
    }

    /// Checks what a person or another peer wrote.
    pub fn validate(&self) -> Result<(), PlanError> {
        let bad = |problem: String| Err(PlanError::Table { problem });
        if self.local.is_empty() || self.local.len() > 64 {
            return bad(format!("local has {} rules, not 1 to 64", self.local.len()));
        }
        for (index, rule) in self.local.iter().enumerate() {
            let chunk = rule.chunk_bytes;
            if !(4096..=1 << 20).contains(&chunk) || !chunk.is_power_of_two() {
                return bad(format!(
                    "local[{index}].chunk_bytes is {chunk}, not a power of two from 4096 to 1048576"
                ));
            }
            if rule.flat_bytes > 1 << 20 {
                return bad(format!(
                    "local[{index}].flat_bytes is {}, above 1 MiB",
                    rule.flat_bytes
                ));
            }
        }
        if self.flat_across_bytes > 16 << 20 {
            return bad(format!(
                "flat_across_bytes is {}, above 16 MiB",
                self.flat_across_bytes
            ));
        }
        Ok(())
    }
}

/// The form in which a table is kept in a file: JSON.
impl fmt::Display for AlgorithmTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl FromStr for AlgorithmTable {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let bad = |problem| PlanError::Table { problem };
        let mut json = serde_json::Deserializer::from_str(text);
        let table: Self =
            serde_path_to_error::deserialize(&mut json).map_err(|error| bad(error.to_string()))?;
        json.end().map_err(|error| bad(error.to_string()))?;
        table.validate()?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_survives_json() {
        let table = AlgorithmTable::default();
        table.validate().unwrap();
        let text = table.to_string();
        assert_eq!(text.parse::<AlgorithmTable>().unwrap(), table);
    }

    #[test]
    fn the_first_rule_that_fits_is_used() {
        let table = AlgorithmTable::default();
        assert_eq!(table.local_rule(2, 16), table.local[0]);
        assert_eq!(table.local_rule(3, 16), table.local[1]);
        assert_eq!(table.local_rule(8, 2), table.local[5]);
        assert_eq!(
            table.local_rule(100, 2),
            table.local[5],
            "beyond all rules: the last"
        );
    }

    #[test]
    fn nonsense_is_refused_with_the_field() {
        let mut table = AlgorithmTable::default();
        table.local[2].chunk_bytes = 1000;
        let text = table.validate().unwrap_err().to_string();
        assert!(text.contains("local[2].chunk_bytes is 1000"), "{text}");
        let text = "{\"local\": 3}".parse::<AlgorithmTable>().unwrap_err();
        assert!(text.to_string().contains("local: invalid type"), "{text}");
        let text = table.to_string().replacen("true", "\"yes\"", 1);
        let text = text.parse::<AlgorithmTable>().unwrap_err();
        assert!(text.to_string().contains("local[3].crowded: "), "{text}");
        let text = format!("{table} more").parse::<AlgorithmTable>();
        assert!(
            text.unwrap_err()
                .to_string()
                .contains("trailing characters")
        );
        assert!(
            AlgorithmTable {
                local: Vec::new(),
                ..table
            }
            .validate()
            .is_err()
        );
    }
}
