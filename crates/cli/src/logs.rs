//! Logs go to standard error, from the level that the environment names.

use anyhow::anyhow;
use tracing::Level;

use crate::failure::Failure;

/// Where the level is looked for, first found first; the second is KungFu's name for it.
const VARIABLES: [&str; 2] = ["CAROLE_LOG_LEVEL", "KUNGFU_CONFIG_LOG_LEVEL"];

/// Sets logs up for this process.
pub(crate) fn init() -> Result<(), Failure> {
    let level = level(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))?;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init()
        .map_err(|error| Failure::new(anyhow!("cannot set up logs: {error}")))
}

fn level(variable: impl Fn(&str) -> Option<String>) -> Result<Level, Failure> {
    let set = VARIABLES.iter().find_map(|name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some((name, value))
    });
    let Some((name, value)) = set else {
        return Ok(Level::INFO);
    };
    match value.to_ascii_uppercase().as_str() {
        "DEBUG" => Ok(Level::DEBUG),
        "INFO" => Ok(Level::INFO),
        "WARN" => Ok(Level::WARN),
        "ERROR" => Ok(Level::ERROR),
        _ => Err(
            Failure::usage(anyhow!("{name} is {value:?}, which is no log level"))
                .with_hint("use DEBUG, INFO, WARN or ERROR"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caroles_own_variable_wins_and_the_default_is_info() {
        let with = |carole: &str, kungfu: &str| {
            let pairs = [carole.to_owned(), kungfu.to_owned()];
            level(move |name| {
                VARIABLES
                    .iter()
                    .position(|v| *v == name)
                    .map(|i| pairs[i].clone())
            })
        };
        assert_eq!(with("", "").unwrap(), Level::INFO);
        assert_eq!(with("debug", "ERROR").unwrap(), Level::DEBUG);
        assert_eq!(with("", "ERROR").unwrap(), Level::ERROR);
        assert!(with("LOUD", "INFO").is_err());
        assert_eq!(level(|_| None).unwrap(), Level::INFO);
    }
}
