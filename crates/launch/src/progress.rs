//! How far a program is, as it tells itself.
//!
//! `CAROLE_PROGRESS` names a pipe. A program writes lines of `name=value` words to it, for one
//! `step=10 total=100 loss=0.25`; `carole report step=10 total=100` does that from a shell. `step` and
//! `total` are known here, other names are the program's own. A line replaces what the lines before
//! it said under the same names. Nobody waits for anybody: what cannot be read is dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest line that is read.
pub const LONGEST_LINE: usize = 4096;
/// Names beyond this number are not kept.
const NAMES: usize = 32;

/// What a program has told of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps that are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    /// Steps that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What else it told, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

impl Progress {
    /// Takes a line into account; words that say nothing are left out.
    pub fn read(&mut self, line: &str) {
        for word in line.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            let number = value
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite());
            match (name, number) {
                ("step", Some(step)) => self.step = Some(step),
                ("total", Some(total)) => self.total = Some(total),
                ("" | "step" | "total", _) => {}
                _ if self.values.len() < NAMES || self.values.contains_key(name) => {
                    self.values.insert(name.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
    }

    /// The part that is done, from 0 to 1, if that is known.
    pub fn part(&self) -> Option<f64> {
        let (step, total) = (self.step?, self.total?);
        (total > 0.0).then(|| (step / total).clamp(0.0, 1.0))
    }

    /// What it told beside its steps: `loss 0.25`.
    pub fn others(&self) -> String {
        let words = self.values.iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        words.join(", ")
    }
}

/// Writes `step 10 of 100 (10 %), loss 0.25`.
impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        match (self.step, self.total, self.part()) {
            (Some(step), Some(total), Some(part)) => {
                words.push(format!("step {step} of {total} ({:.0} %)", 100.0 * part));
            }
            (Some(step), ..) => words.push(format!("step {step}")),
            _ => {}
        }
        words.extend(Some(self.others()).filter(|others| !others.is_empty()));
        f.write_str(&words.join(", "))
    }
}

/// Why a word cannot be reported.
pub fn check_word(word: &str) -> Result<(), String> {
    match word.split_once('=') {
        Some((name, value))
            if !name.is_empty() && !value.is_empty() && !word.contains(char::is_whitespace) =>
        {
            match name {
                "step" | "total" if value.parse::<f64>().is_err() => {
                    Err(format!("{name} is a number, not {value:?}"))
                }
                _ => Ok(()),
            }
        }
        _ => Err(format!(
            "{word:?} is not written NAME=VALUE, without spaces"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_replace_what_was_said_before() {
        let mut progress = Progress::default();
        progress.read("step=1 total=100 loss=0.5 nonsense =x step=many");
        progress.read("step=25 loss=0.25");
        assert_eq!(progress.to_string(), "step 25 of 100 (25 %), loss 0.25");
        assert_eq!(progress.part(), Some(0.25));
        for name in 0..100 {
            progress.read(&format!("n{name}=1"));
        }
        assert_eq!(progress.values.len(), NAMES);
        progress.read("total=0");
        assert_eq!(progress.part(), None);
    }

    #[test]
    fn words_are_checked_before_they_are_reported() {
        assert!(check_word("step=10").is_ok() && check_word("loss=0.1").is_ok());
        for word in ["step", "=1", "a=", "step=x", "a=b c"] {
            assert!(check_word(word).is_err(), "{word}");
        }
    }
}
