//! Names of jobs, roles and queues.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{PlanError, excerpt};

/// The longest name there may be: that of a DNS label.
pub(crate) const LONGEST: usize = 63;

/// What a name looks like, in words.
pub(crate) const EXPECTED: &str = "a name of 1 to 63 lower-case letters, digits and hyphens, \
                                   with a letter or digit at both ends";

/// The name of a job, a role or a queue: a DNS label, because hosts and pods are named after it.
///
/// ```
/// let name: carole_plan::job::Name = "digits-2".parse()?;
/// assert_eq!(name.as_str(), "digits-2");
/// assert!("Digits".parse::<carole_plan::job::Name>().is_err());
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

impl Name {
    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let letter_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let well_formed = bytes.len() <= LONGEST
            && bytes
                .iter()
                .all(|byte| letter_or_digit(byte) || *byte == b'-')
            && bytes.first().is_some_and(letter_or_digit)
            && bytes.last().is_some_and(letter_or_digit);
        well_formed.then(|| Self(text.to_owned()))
    }
}

impl FromStr for Name {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        Self::parse(text).ok_or_else(|| PlanError::JobPart {
            found: excerpt(text),
            expected: EXPECTED,
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// So that a role is found by its name in plain text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let found = excerpt(&text);
            D::Error::invalid_value(Unexpected::Str(&found), &EXPECTED)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "7", "digits", "a-b--c", &"x".repeat(63)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a_b",
            "a.b",
            "a b",
            "é",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_error_says_what_a_name_is() {
        let error = "My Job".parse::<Name>().unwrap_err().to_string();
        assert_eq!(
            error,
            "found \"My Job\", expected a name of 1 to 63 lower-case letters, digits and hyphens, \
             with a letter or digit at both ends"
        );
    }
}
