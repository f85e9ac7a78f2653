//! How a session behaves, as a person sets it in the environment.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CAROLE_TRANSPORT` | `auto`: shared memory inside a host; `tcp`: TCP everywhere | `auto` |
//! | `CAROLE_TIMEOUT` | seconds after which an operation, or joining, fails | 1800 |
//! | `CAROLE_STALL` | seconds after which a wait logs whom it waits for | 10 |
//! | `CAROLE_HEARTBEAT` | seconds of silence after which a peer on another host is lost | 5 |
//! | `CAROLE_STREAMS` | TCP connections between two ranks on different hosts, 1 to 16 | 1 |
//! | `CAROLE_TLS` | `on` or `1`: data between hosts is encrypted; `off` or `0`: it is not | `off` |
//! | `CAROLE_PORTS` | ports that a rank may listen on, such as `10000-10100` | any |
//! | `CAROLE_TABLE` | a file with an algorithm table in JSON | built in |
//! | `CAROLE_TIMELINE` | a file for a timeline, with `{rank}` in its name or a rank put there | none |

use std::path::{Path, PathBuf};
use std::time::Duration;

use carole_engine::{Options, Transport};
use carole_plan::{AlgorithmTable, PortRange};

use crate::environment::Variables;
use crate::error::Error;

const TRANSPORT: &str = "CAROLE_TRANSPORT";
const TIMEOUT: &str = "CAROLE_TIMEOUT";
const STALL: &str = "CAROLE_STALL";
const HEARTBEAT: &str = "CAROLE_HEARTBEAT";
const STREAMS: &str = "CAROLE_STREAMS";
const TLS: &str = "CAROLE_TLS";
const PORTS: &str = "CAROLE_PORTS";
const TABLE: &str = "CAROLE_TABLE";
const TIMELINE: &str = "CAROLE_TIMELINE";

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
    /// TCP connections between two ranks on different hosts.
    pub streams: Option<usize>,
    /// Whether data between hosts is encrypted: on every rank, or on none.
    pub tls: Option<bool>,
    /// Ports that this process may listen on; any without them.
    pub ports: Option<PortRange>,
    /// Which algorithm for which size and shape; the first rank's is used by all.
    pub table: Option<AlgorithmTable>,
    /// The file in which each rank records a timeline of all it does, written when the worker ends:
    /// `{rank}` in it becomes the rank, which otherwise goes before the extension.
    pub timeline: Option<PathBuf>,
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
        let streams = match variables.text(STREAMS)? {
            None => None,
            Some(text) => match text.parse().ok().and_then(streams) {
                None => return Err(Variables::bad(STREAMS, text, EXPECTED_STREAMS)),
                some => some,
            },
        };
        let tls = match variables.text(TLS)? {
            None => None,
            Some(text) => match text.as_str() {
                "1" | "on" => Some(true),
                "0" | "off" => Some(false),
                _ => return Err(Variables::bad(TLS, text, "1, 0, on or off")),
            },
        };
        let ports = match variables.text(PORTS)? {
            None => None,
            Some(text) => match text.parse() {
                Ok(ports) => Some(ports),
                Err(_) => return Err(Variables::bad(PORTS, text, EXPECTED_PORTS)),
            },
        };
        let table = match variables.file(TABLE)? {
            None => None,
            Some(path) => Some(table(&path).map_err(|problem| Error::BadFile {
                variable: TABLE,
                path,
                problem,
            })?),
        };
        Ok(Self {
            transport,
            timeout: seconds(TIMEOUT)?,
            stall: seconds(STALL)?,
            heartbeat: seconds(HEARTBEAT)?,
            streams,
            tls,
            ports,
            table,
            timeline: variables.file(TIMELINE)?,
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
            streams: other.streams.or(self.streams),
            tls: other.tls.or(self.tls),
            ports: other.ports.or(self.ports),
            table: other.table.clone().or(self.table),
            timeline: other.timeline.clone().or(self.timeline),
        }
    }

    /// The engine's options with these settings; TLS, ports and the timeline are the worker's to see to.
    pub fn options(&self) -> Options {
        let default = Options::default();
        Options {
            transport: self.transport.unwrap_or(default.transport),
            timeout: self.timeout.unwrap_or(default.timeout),
            stall: self.stall.unwrap_or(default.stall),
            heartbeat: self.heartbeat.unwrap_or(default.heartbeat),
            streams: self.streams.unwrap_or(default.streams),
            table: self.table.clone().unwrap_or(default.table),
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

/// What a person is told when [`streams`] refuses.
pub const EXPECTED_STREAMS: &str = "how many connections, 1 to 16";

/// A number of connections; `None` when the engine would not open so many.
///
/// ```
/// use carole_worker::settings::streams;
///
/// assert_eq!((streams(4), streams(0), streams(17)), (Some(4), None, None));
/// ```
pub fn streams(number: usize) -> Option<usize> {
    (1..=16).contains(&number).then_some(number)
}

/// What a person is told of a range of ports that is none.
const EXPECTED_PORTS: &str = "two ports, the lower first, such as 10000-10100";

/// The algorithm table in a file, or what is wrong with it.
///
/// ```
/// use std::path::Path;
///
/// let problem = carole_worker::settings::table(Path::new("no-such-file")).unwrap_err();
/// assert!(problem.starts_with("it cannot be read: "));
/// ```
pub fn table(path: &Path) -> Result<AlgorithmTable, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    text.parse()
        .map_err(|error: carole_plan::PlanError| error.to_string())
}

/// Whether a person sets this variable, rather than a launcher.
pub(crate) fn is_setting(variable: &str) -> bool {
    [
        TRANSPORT, TIMEOUT, STALL, HEARTBEAT, STREAMS, TLS, PORTS, TABLE, TIMELINE,
    ]
    .contains(&variable)
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
        let options = read("CAROLE_STREAMS", "4").unwrap().options();
        assert_eq!(options.streams, 4);
    }

    #[test]
    fn bad_settings_name_the_variable_and_what_it_takes() {
        let error = read("CAROLE_TRANSPORT", "rdma").unwrap_err();
        assert_eq!(
            error.describe(),
            "CAROLE_TRANSPORT is \"rdma\": expected auto or tcp"
        );
        for bad in ["", "0", "17", "-1", "many"] {
            let text = read("CAROLE_STREAMS", bad).unwrap_err().describe();
            let expected = "expected how many connections, 1 to 16";
            assert_eq!(text, format!("CAROLE_STREAMS is {bad:?}: {expected}"));
        }
        for bad in ["", "0", "-1", "soon", "inf", "nan", "1e12", "1e-300"] {
            let error = read("CAROLE_TIMEOUT", bad).unwrap_err();
            assert!(
                error.to_string().starts_with("CAROLE_TIMEOUT is"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn tls_is_switched_on_and_off() {
        for (text, tls) in [("1", true), ("on", true), ("0", false), ("off", false)] {
            assert_eq!(read("CAROLE_TLS", text).unwrap().tls, Some(tls));
        }
        let error = read("CAROLE_TLS", "yes").unwrap_err();
        assert_eq!(
            error.describe(),
            "CAROLE_TLS is \"yes\": expected 1, 0, on or off"
        );
    }

    #[test]
    fn ports_are_a_range() {
        let ports = read("CAROLE_PORTS", "10000-10100").unwrap().ports.unwrap();
        assert_eq!(ports.count(), 101);
        let text = read("CAROLE_PORTS", "10100-10000").unwrap_err().describe();
        assert_eq!(
            text,
            "CAROLE_PORTS is \"10100-10000\": expected two ports, the lower first, such as \
             10000-10100"
        );
    }

    #[test]
    fn a_table_is_read_from_its_file() {
        let path = std::env::temp_dir().join(format!("carole-table-{}.json", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let lookup = |name: &str| (name == "CAROLE_TABLE").then(|| path.clone().into());
            Environment::from_variables(lookup).map(|environment| environment.settings)
        };
        let mut table = AlgorithmTable::default();
        table.flat_across_bytes += 1;
        let found = read(&table.to_string());
        table.local[1].chunk_bytes = 1000;
        let bad = read(&table.to_string()).unwrap_err().describe();
        let broken = read("{").unwrap_err().describe();
        std::fs::remove_file(&path).unwrap();
        table.local[1] = AlgorithmTable::default().local[1];
        assert_eq!(found.unwrap().options().table, table);
        let begin = format!("CAROLE_TABLE is {}: bad algorithm table: ", path.display());
        for (text, problem) in [(bad, "local[1].chunk_bytes is 1000"), (broken, "line 1")] {
            assert!(text.starts_with(&begin) && text.contains(problem), "{text}");
        }
    }

    #[test]
    fn files_that_are_not_there_are_named() {
        let text = read("CAROLE_TABLE", "/nowhere/table.json")
            .unwrap_err()
            .describe();
        let begin = "CAROLE_TABLE is /nowhere/table.json: it cannot be read: No such file";
        assert!(text.starts_with(begin), "{text}");
        for variable in ["CAROLE_TABLE", "CAROLE_TIMELINE"] {
            let text = read(variable, "").unwrap_err().describe();
            assert_eq!(text, format!("{variable} is \"\": expected a path"));
        }
        let timeline = read("CAROLE_TIMELINE", "trace.json").unwrap().timeline;
        assert_eq!(timeline, Some(PathBuf::from("trace.json")));
    }

    #[test]
    fn what_a_program_sets_wins_over_the_environment() {
        let environment = read("CAROLE_TLS", "on").unwrap();
        let program = Settings {
            tls: Some(false),
            ..Settings::default()
        };
        assert_eq!(environment.overridden_by(&program).tls, Some(false));
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
