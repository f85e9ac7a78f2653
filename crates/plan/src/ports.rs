//! A range of ports, as firewalls allow them: `10000-10100`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, excerpt};

/// Ports from the first to the last, both included; there is at least one.
///
/// ```
/// use carole_plan::PortRange;
///
/// let range: PortRange = "10000-10003".parse().unwrap();
/// assert_eq!(range.to_string(), "10000-10003");
/// assert!(range.contains(10003) && !range.contains(10004));
/// // Whoever comes third looks at the third port first.
/// assert_eq!(range.starting_at(2).collect::<Vec<_>>(), [10002, 10003, 10000, 10001]);
/// assert!("10003-10000".parse::<PortRange>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// One port.
    pub fn single(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }

    /// How many ports there are.
    pub fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Whether a port is one of them.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// All ports, once round, the one at `place` first: those who begin at different places do not
    /// ask for the same port as long as there are enough.
    pub fn starting_at(self, place: usize) -> impl Iterator<Item = u16> {
        let middle = self.first + u16::try_from(place % self.count()).unwrap_or_default();
        (middle..=self.last).chain(self.first..middle)
    }
}

impl FromStr for PortRange {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let ends = text.split_once('-');
        match ends.and_then(|(first, last)| Some((port(first)?, port(last)?))) {
            Some((first, last)) if first <= last => Ok(Self { first, last }),
            _ => Err(PlanError::PortRange {
                found: excerpt(text),
            }),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl TryFrom<String> for PortRange {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_goes_once_round_from_any_place() {
        let all: PortRange = "1-65535".parse().unwrap();
        assert_eq!(all.count(), 65535);
        assert_eq!(
            all.starting_at(65534).take(2).collect::<Vec<_>>(),
            [65535, 1]
        );
        assert_eq!(all.starting_at(7).count(), 65535);
        let one = PortRange::single(9);
        assert_eq!(one.starting_at(3).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn what_is_no_range_is_named() {
        for text in ["", "5", "5-", "-5", "5-1", "0-5", "5-65536", "a-b", "1-2-3"] {
            let error = text.parse::<PortRange>().unwrap_err().to_string();
            let expected = format!("{text:?} is no range of ports, expected two, the lower first");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
