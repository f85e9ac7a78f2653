//! How a session behaves, as a person sets it in the environment.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CAROLE_TRANSPORT` | `auto`: shared memory inside a host; `tcp`: TCP everywhere | `auto` |
//! | `CAROLE_TIMEOUT` | seconds after which an operation, or joining, fails | 1800 |
//! | `CAROLE_STALL` | seconds after which a wait logs whom it waits for | 10 |
//! | `CAROLE_HEARTBEAT` | seconds of silence after which a peer on another host is lost | 5 |

use std::time::Duration;

use carole_engine::{Options, Transport};

use crate::environment::Variables;
use crate::error::Error;

const TRANSPORT: &str = "CAROLE_TRANSPORT";
const TIMEOUT: &str = "CAROLE_TIMEOUT";
const STALL: &str = "CAROLE_STALL";
const HEARTBEAT: &str = "CAROLE_HEARTBEAT";

/// Some thirty years: longer than any wait, and short enough to be added to any moment.
const LONGEST: f64 = 1e9;

/// How a session behaves; whatever is `None` has the engine's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// How ranks of one host reach one another.
    pub transport: Option<Transport>,
    /// After this long an operation fails, unless its call says otherwise; joining too.
    pub timeout: Option<Duration>,
    /// After this long without progress a wait logs whom it waits for.
    pub stall: Option<Duration>,
    /// A peer on another host that is silent for this long is lost.
    pub heartbeat: Option<Duration>,
}

impl Settings {
    pub(crate) fn read(variables: &Variables<'_>) -> Result<Self, Error> {
        let transport = match variables.text(TRANSPORT)? {
            None => None,
            Some(text) => match text.as_str() {
                "auto" => Some(Transport::Auto),
                "tcp" => Some(Transport::Tcp),
                _ => return Err(Variables::bad(TRANSPORT, text, "auto or tcp")),
            },
        };
        let seconds = |variable| -> Result<Option<Duration>, Error> {
            let Some(text) = variables.text(variable)? else {
                return Ok(None);
            };
            match text.parse().ok().and_then(seconds) {
                Some(duration) => Ok(Some(duration)),
                None => Err(Variables::bad(variable, text, EXPECTED_SECONDS)),
            }
        };
        Ok(Self {
            transport,
            timeout: seconds(TIMEOUT)?,
            stall: seconds(STALL)?,
            heartbeat: seconds(HEARTBEAT)?,
        })
    }

    /// The same, with whatever `other` sets in its place.
    #[must_use]
    pub fn overridden_by(self, other: &Self) -> Self {
        Self {
            transport: other.transport.or(self.transport),
            timeout: other.timeout.or(self.timeout),
            stall: other.stall.or(self.stall),
            heartbeat: other.heartbeat.or(self.heartbeat),
        }
    }

    /// The engine's options with these settings.
    pub fn options(&self) -> Options {
        let default = Options::default();
        Options {
            transport: self.transport.unwrap_or(default.transport),
            timeout: self.timeout.unwrap_or(default.timeout),
            stall: self.stall.unwrap_or(default.stall),
            heartbeat: self.heartbeat.unwrap_or(default.heartbeat),
            ..default
        }
    }
}

/// What a person is told when [`seconds`] refuses.
pub const EXPECTED_SECONDS: &str = "seconds, more than 0 and at most 1e9, such as 30 or 0.5";

/// A limit given in seconds; `None` when it is not above zero, or is too long to be reckoned with.
///
/// ```
/// use std::time::Duration;
/// use carole_worker::settings::seconds;
///
/// assert_eq!(seconds(0.5), Some(Duration::from_millis(500)));
/// assert_eq!(seconds(0.0), None);
/// assert_eq!(seconds(f64::NAN), None);
/// ```
pub fn seconds(number: f64) -> Option<Duration> {
    let fits = number > 0.0 && number <= LONGEST;
    fits.then(|| Duration::from_secs_f64(number))
        .filter(|duration| !duration.is_zero())
}

/// Whether a person sets this variable, rather than a launcher.
pub(crate) fn is_setting(variable: &str) -> bool {
    [TRANSPORT, TIMEOUT, STALL, HEARTBEAT].contains(&variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;

    fn read(variable: &'static str, value: &'static str) -> Result<Settings, Error> {
        let environment =
            Environment::from_variables(|name| (name == variable).then(|| value.into()))?;
        Ok(environment.settings)
    }

    #[test]
    fn settings_are_read_and_the_rest_keeps_its_default() {
        let options = read("CAROLE_TRANSPORT", "tcp").unwrap().options();
        assert_eq!(options.transport, Transport::Tcp);
        assert_eq!(options.timeout, Options::default().timeout);
        let options = read("CAROLE_STALL", "0.25").unwrap().options();
        assert_eq!(options.stall, Duration::from_millis(250));
        let options = read("CAROLE_HEARTBEAT", "3").unwrap().options();
        assert_eq!(options.heartbeat, Duration::from_secs(3));
    }

    #[test]
    fn bad_settings_name_the_variable_and_what_it_takes() {
        let error = read("CAROLE_TRANSPORT", "rdma").unwrap_err();
        assert_eq!(
            error.describe(),
            "CAROLE_TRANSPORT is \"rdma\": expected auto or tcp"
        );
        for bad in ["", "0", "-1", "soon", "inf", "nan", "1e12", "1e-300"] {
            let error = read("CAROLE_TIMEOUT", bad).unwrap_err();
            assert!(
                error.to_string().starts_with("CAROLE_TIMEOUT is"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn what_a_program_sets_wins_over_the_environment() {
        let environment = read("CAROLE_TIMEOUT", "7").unwrap();
        let program = Settings {
            timeout: Some(Duration::from_secs(9)),
            ..Settings::default()
        };
        let both = environment.clone().overridden_by(&program);
        assert_eq!(both.timeout, Some(Duration::from_secs(9)));
        let both = environment.overridden_by(&Settings::default());
        assert_eq!(both.timeout, Some(Duration::from_secs(7)));
    }
}
