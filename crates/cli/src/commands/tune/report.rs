//! What a person or a program is told about a number of ranks.

use std::io::{self, Write};

use carole_plan::LocalRule;
use serde_json::json;

use super::candidate::{LARGE, SMALL, Way};
use super::choice::two_phase;
use super::times::Times;
use crate::args::{OutputChoice, size};

/// The rules of one number of ranks before and after, and why.
pub(super) struct Finding {
    pub(super) old: LocalRule,
    pub(super) new: LocalRule,
    pub(super) times: Times,
}

/// Prints findings as they come.
pub(super) struct Report<W> {
    output: OutputChoice,
    out: W,
    begun: bool,
}

impl<W: Write> Report<W> {
    pub(super) fn new(output: OutputChoice, out: W) -> Self {
        Self {
            output,
            out,
            begun: false,
        }
    }

    pub(super) fn add(&mut self, finding: &Finding) -> io::Result<()> {
        match self.output {
            OutputChoice::Json => writeln!(self.out, "{}", finding.json())?,
            OutputChoice::Table => {
                if !self.begun {
                    let header = line(&"ranks", "rule", "old", "", "new", "measured, us");
                    writeln!(self.out, "{header}")?;
                }
                write!(self.out, "{}", finding.lines())?;
            }
        }
        self.begun = true;
        self.out.flush()
    }
}

impl Finding {
    fn lines(&self) -> String {
        let Self { old, new, .. } = self;
        let row = |name, old, new, measured: String| {
            let (old, new) = (size::text(old), size::text(new));
            line(&self.new.ranks, name, &old, "->", &new, &measured) + "\n"
        };
        row("flat", old.flat_bytes, new.flat_bytes, self.crossover())
            + &row("chunk", old.chunk_bytes, new.chunk_bytes, self.chunks())
    }

    /// The times on both sides of the new crossover.
    fn crossover(&self) -> String {
        let limit = self.new.flat_bytes;
        let last = SMALL.into_iter().rfind(|bytes| *bytes <= limit);
        let next = SMALL.into_iter().find(|bytes| *bytes > limit);
        let texts = last.into_iter().chain(next).filter_map(|bytes| {
            let flat = self.times.median(Way::Flat, bytes)?;
            let two_phase = two_phase(&self.times, self.old, self.new.chunk_bytes, bytes)?;
            let bytes = size::text(bytes);
            Some(format!("{bytes}: flat {flat:.2}, two-phase {two_phase:.2}"))
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    /// The times of large tensors with the old chunks and, if they are others, with the new.
    fn chunks(&self) -> String {
        let texts = LARGE.into_iter().filter_map(|bytes| {
            let time = |chunk| self.times.median(Way::TwoPhase { chunk }, bytes);
            let (old, new) = (time(self.old.chunk_bytes)?, time(self.new.chunk_bytes)?);
            let bytes = size::text(bytes);
            Some(if self.old.chunk_bytes == self.new.chunk_bytes {
                format!("{bytes}: {new:.2}")
            } else {
                format!("{bytes}: {old:.2} -> {new:.2}")
            })
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    fn json(&self) -> serde_json::Value {
        let rule = |rule: &LocalRule| json!({ "flat_bytes": rule.flat_bytes, "chunk_bytes": rule.chunk_bytes });
        let time = |(way, bytes, median): (Way, usize, f64)| {
            let chunk = match way {
                Way::Flat => None,
                Way::TwoPhase { chunk } => Some(chunk),
            };
            json!({
                "algorithm": way.name(),
                "chunk_bytes": chunk,
                "bytes": bytes,
                "median_us": median,
            })
        };
        json!({
            "ranks": self.new.ranks,
            "crowded": self.new.crowded,
            "old": rule(&self.old),
            "new": rule(&self.new),
            "times": self.times.medians().map(time).collect::<Vec<_>>(),
        })
    }
}

fn line(
    ranks: &dyn std::fmt::Display,
    rule: &str,
    old: &str,
    arrow: &str,
    new: &str,
    measured: &str,
) -> String {
    let text = format!("{ranks:>5}  {rule:<5} {old:>8} {arrow:2} {new:<8}  {measured}");
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        let rule = |flat_kib: usize, chunk_kib: usize| LocalRule {
            ranks: 4,
            crowded: true,
            flat_bytes: flat_kib << 10,
            chunk_bytes: chunk_kib << 10,
        };
        let mut times = Times::default();
        for (bytes, flat, two_phase) in [(32, 7.0, 9.0), (64, 12.5, 10.25)] {
            times.add(Way::Flat, bytes << 10, flat);
            times.add(Way::TwoPhase { chunk: 256 << 10 }, bytes << 10, two_phase);
        }
        for (chunk, one, sixteen) in [(256, 143.0, 3100.0), (512, 120.0, 2800.0)] {
            let chunk = chunk << 10;
            times.add(Way::TwoPhase { chunk }, 1 << 20, one);
            times.add(Way::TwoPhase { chunk }, 16 << 20, sixteen);
        }
        Finding {
            old: rule(16, 256),
            new: rule(32, 512),
            times,
        }
    }

    fn printed(output: OutputChoice, findings: &[Finding]) -> String {
        let mut page = Vec::new();
        let mut report = Report::new(output, &mut page);
        for finding in findings {
            report.add(finding).unwrap();
        }
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn a_table_has_old_and_new_values_and_the_times_beside_the_crossover() {
        let same = Finding {
            new: finding().old,
            times: Times::default(),
            ..finding()
        };
        let expected = "\
ranks  rule       old    new       measured, us
    4  flat    16 KiB -> 32 KiB    32 KiB: flat 7.00, two-phase 9.00; 64 KiB: flat 12.50, two-phase 10.25
    4  chunk  256 KiB -> 512 KiB   1 MiB: 143.00 -> 120.00; 16 MiB: 3100.00 -> 2800.00
    4  flat    16 KiB -> 16 KiB
    4  chunk  256 KiB -> 256 KiB
";
        assert_eq!(printed(OutputChoice::Table, &[finding(), same]), expected);
    }

    #[test]
    fn json_is_one_object_a_line_with_every_time() {
        let text = printed(OutputChoice::Json, &[finding()]);
        assert_eq!(text.lines().count(), 1);
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["ranks"], 4);
        assert_eq!(object["crowded"], true);
        assert_eq!(object["old"]["flat_bytes"], 16 << 10);
        assert_eq!(object["new"]["chunk_bytes"], 512 << 10);
        let times = object["times"].as_array().unwrap();
        assert_eq!(times.len(), 8);
        assert!(times[0]["chunk_bytes"].is_null() && times[0]["algorithm"] == "flat");
    }
}
