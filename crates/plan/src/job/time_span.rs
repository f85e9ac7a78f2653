//! Spans of time: `2h`, `90m`, `1h30m`, `30s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{PlanError, excerpt};

/// What a span of time looks like, in words.
pub(crate) const EXPECTED: &str = "a span of time such as 2h, 90m, 1h30m or 30s, up to 87600h";

/// Ten years.
const LONGEST: u64 = 87_600 * 3600;

const UNITS: [(char, u64); 3] = [('h', 3600), ('m', 60), ('s', 1)];

/// A span of time in whole seconds: `2h`, `90m`, `1h30m`, `30s`.
///
/// ```
/// let span: carole_plan::job::TimeSpan = "1h30m".parse()?;
/// assert_eq!((span.seconds(), span.to_string()), (5400, "90m".to_owned()));
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

impl TimeSpan {
    /// Its length in seconds; at least 1.
    pub fn seconds(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut seconds: u64 = 0;
        for (unit, length) in UNITS {
            let Some((number, after)) = rest.split_once(unit) else {
                continue;
            };
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let part = number.parse::<u64>().ok()?.checked_mul(length)?;
            seconds = seconds.checked_add(part)?;
            rest = after;
        }
        (rest.is_empty() && (1..=LONGEST).contains(&seconds)).then_some(Self(seconds))
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        Self::from_secs(span.0)
    }
}

impl FromStr for TimeSpan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text).ok_or_else(|| PlanError::JobPart {
            found: excerpt(text),
            expected: EXPECTED,
        })
    }
}

/// Writes the largest unit that leaves a whole number.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, length) = UNITS
            .into_iter()
            .find(|(_, length)| self.0.is_multiple_of(*length))
            .unwrap_or(('s', 1));
        write!(f, "{}{unit}", self.0 / length)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = TimeSpan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TimeSpan, E> {
                TimeSpan::parse(text)
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(&excerpt(text)), &self))
            }
        }

        deserializer.deserialize_str(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, seconds, written) in [
            ("2h", 7200, "2h"),
            ("90m", 5400, "90m"),
            ("1h30m", 5400, "90m"),
            ("30s", 30, "30s"),
            ("1h1s", 3601, "3601s"),
            ("87600h", LONGEST, "87600h"),
        ] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.seconds(), seconds, "{text}");
            assert_eq!(span.to_string(), written);
            assert_eq!(Duration::from(span), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "90",
            "0s",
            "h",
            "2H",
            "2d",
            "-2h",
            "+2h",
            "1.5h",
            "2h 30m",
            "30m2h",
            "1h1h",
            "87601h",
            "99999999999999999999h",
            "18446744073709551615s",
            "2hours",
        ] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }
}
