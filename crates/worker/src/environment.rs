//! What a launcher tells a process, read once into a typed value.
//!
//! Which variables there are is the launcher's to say; here they are checked, so that a program
//! that was started by hand with half of them gets an error that names the other half. Where the
//! process stands among the hosts is not read: the membership tells it, and is the truth.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use carole_plan::PeerId;

use crate::error::Error;
use crate::settings::Settings;

const COORDINATOR: &str = "CAROLE_COORDINATOR";
const RANK: &str = "CAROLE_RANK";

/// A process's environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// What the launcher said; `None` when there is no launcher.
    pub launched: Option<Launched>,
    /// What a person set.
    pub settings: Settings,
}

/// What a launcher tells each process of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The coordinator's address, `http://HOST:PORT`.
    pub coordinator: String,
    /// The job's name.
    pub job: String,
    /// The file with the job's token.
    pub token_file: PathBuf,
    /// Who this process is.
    pub peer: PeerId,
    /// The rank it was started as.
    pub rank: usize,
    /// How many ranks the job was started with.
    pub size: usize,
    /// The address under which the others reach it; without one, it is found out.
    pub address: Option<IpAddr>,
    /// The role it belongs to.
    pub role: String,
    /// The counter of the generation it was started for.
    pub generation: u32,
    /// How often its role was restarted.
    pub restart: u32,
}

impl Environment {
    /// The environment of this process.
    pub fn read() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// An environment whose variables are looked up by `lookup`.
    ///
    /// ```
    /// use carole_worker::Environment;
    ///
    /// let alone = Environment::from_variables(|_| None).unwrap();
    /// assert_eq!(alone.launched, None);
    /// ```
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let variables = Variables {
            lookup: &lookup,
            present: RANK,
        };
        let settings = Settings::read(&variables)?;
        let present = match (lookup(COORDINATOR), lookup(RANK)) {
            (None, None) => {
                return Ok(Self {
                    launched: None,
                    settings,
                });
            }
            (Some(_), _) => COORDINATOR,
            (None, Some(_)) => RANK,
        };
        let variables = Variables {
            present,
            ..variables
        };
        Ok(Self {
            launched: Some(Launched::read(&variables)?),
            settings,
        })
    }
}

impl Launched {
    fn read(variables: &Variables<'_>) -> Result<Self, Error> {
        let launched = Self {
            coordinator: variables.required(COORDINATOR)?,
            job: variables.required("CAROLE_JOB")?,
            token_file: variables.path("CAROLE_TOKEN_FILE")?,
            peer: variables.parsed("CAROLE_PEER", "HOST:SLOT/INCARNATION")?,
            rank: variables.parsed(RANK, "a rank, 0 or more")?,
            size: variables.parsed("CAROLE_SIZE", "how many ranks there are")?,
            address: match variables.text("CAROLE_ADDRESS")? {
                Some(_) => Some(variables.parsed("CAROLE_ADDRESS", "an IP address")?),
                None => None,
            },
            role: variables
                .text("CAROLE_ROLE")?
                .unwrap_or_else(|| "worker".to_owned()),
            generation: variables.parsed_or("CAROLE_GENERATION", 1)?,
            restart: variables.parsed_or("CAROLE_RESTART", 0)?,
        };
        if launched.rank >= launched.size {
            let expected = format!("a rank below CAROLE_SIZE, which is {}", launched.size);
            return Err(Variables::bad(RANK, launched.rank.to_string(), expected));
        }
        Ok(launched)
    }
}

/// Variables by name, and errors that name them.
#[derive(Clone, Copy)]
pub(crate) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    /// The variable that shows that there is a launcher.
    present: &'static str,
}

impl Variables<'_> {
    pub(crate) fn bad(variable: &'static str, value: String, expected: impl Into<String>) -> Error {
        Error::BadVariable {
            variable,
            value,
            expected: expected.into(),
        }
    }

    pub(crate) fn text(&self, variable: &'static str) -> Result<Option<String>, Error> {
        let Some(value) = (self.lookup)(variable) else {
            return Ok(None);
        };
        value.into_string().map(Some).map_err(|value| {
            Self::bad(
                variable,
                value.to_string_lossy().into_owned(),
                "text in UTF-8",
            )
        })
    }

    fn missing(&self, variable: &'static str) -> Error {
        Error::MissingVariable {
            variable,
            present: self.present,
        }
    }

    fn required(&self, variable: &'static str) -> Result<String, Error> {
        match self.text(variable)? {
            None => Err(self.missing(variable)),
            Some(text) if text.is_empty() => Err(Self::bad(variable, text, "something")),
            Some(text) => Ok(text),
        }
    }

    /// A path need not be text.
    fn path(&self, variable: &'static str) -> Result<PathBuf, Error> {
        (self.lookup)(variable)
            .map(PathBuf::from)
            .ok_or_else(|| self.missing(variable))
    }

    /// A file that may be named.
    pub(crate) fn file(&self, variable: &'static str) -> Result<Option<PathBuf>, Error> {
        match (self.lookup)(variable) {
            Some(value) if value.is_empty() => Err(Self::bad(variable, String::new(), "a path")),
            value => Ok(value.map(PathBuf::from)),
        }
    }

    fn parsed<T: FromStr>(&self, variable: &'static str, expected: &str) -> Result<T, Error> {
        let text = self.required(variable)?;
        text.parse()
            .map_err(|_| Self::bad(variable, text, expected))
    }

    fn parsed_or(&self, variable: &'static str, default: u32) -> Result<u32, Error> {
        match self.text(variable)? {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Self::bad(variable, text, "a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn launched() -> HashMap<&'static str, &'static str> {
        HashMap::from([
            ("CAROLE_COORDINATOR", "http://127.0.0.1:4000"),
            ("CAROLE_JOB", "digits"),
            ("CAROLE_TOKEN_FILE", "/run/carole-x/token"),
            ("CAROLE_PEER", "node-b:1/00000000000000000000000000000fab"),
            ("CAROLE_RANK", "1"),
            ("CAROLE_SIZE", "4"),
            ("CAROLE_ROLE", "worker"),
            ("CAROLE_GENERATION", "1"),
            ("CAROLE_RESTART", "2"),
        ])
    }

    fn read(variables: &HashMap<&'static str, &'static str>) -> Result<Environment, Error> {
        Environment::from_variables(|name| variables.get(name).map(OsString::from))
    }

    #[test]
    fn a_launchers_variables_become_a_typed_value() {
        let launched = read(&launched()).unwrap().launched.unwrap();
        assert_eq!((launched.rank, launched.size, launched.restart), (1, 4, 2));
        assert_eq!(launched.peer, PeerId::new("node-b", 1, 0xfab));
        assert_eq!(launched.job, "digits");
    }

    #[test]
    fn without_a_launcher_the_rest_is_not_looked_at() {
        let mut variables = launched();
        variables.remove("CAROLE_COORDINATOR");
        variables.remove("CAROLE_RANK");
        assert_eq!(read(&variables).unwrap().launched, None);
    }

    #[test]
    fn every_missing_variable_is_named_with_a_hint() {
        for variable in [
            "CAROLE_COORDINATOR",
            "CAROLE_JOB",
            "CAROLE_TOKEN_FILE",
            "CAROLE_PEER",
            "CAROLE_RANK",
            "CAROLE_SIZE",
        ] {
            let mut variables = launched();
            variables.remove(variable);
            let text = read(&variables).unwrap_err().describe();
            assert!(
                text.starts_with(&format!("{variable} is not set, though")),
                "{text}"
            );
            assert!(text.contains("carole run"), "{text}");
        }
    }

    #[test]
    fn bad_values_are_shown_with_what_was_expected() {
        for (variable, value, expected) in [
            ("CAROLE_RANK", "-1", "a rank, 0 or more"),
            ("CAROLE_RANK", "4", "a rank below CAROLE_SIZE, which is 4"),
            ("CAROLE_SIZE", "many", "how many ranks there are"),
            ("CAROLE_PEER", "node-b", "HOST:SLOT/INCARNATION"),
            ("CAROLE_GENERATION", "x", "a number"),
            ("CAROLE_JOB", "", "something"),
        ] {
            let mut variables = launched();
            variables.insert(variable, value);
            let text = read(&variables).unwrap_err().to_string();
            assert_eq!(
                text,
                format!("{variable} is {value:?}: expected {expected}")
            );
        }
    }
}
