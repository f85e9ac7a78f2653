//! Logs go to standard error, or to a page that has the terminal, from the level that the
//! environment names.

use std::sync::OnceLock;

use anyhow::anyhow;
use carole_launch::request::Talk;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::failure::Failure;
use crate::tui::Log;

/// Where the level is looked for, first found first; the second is KungFu's name for it.
const VARIABLES: [&str; 2] = ["CAROLE_LOG_LEVEL", "KUNGFU_CONFIG_LOG_LEVEL"];

/// The level, which a flag may change once the command line is read.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Sets logs up for this process; from level `usual` on if the environment names none.
pub(crate) fn init(usual: Level) -> Result<(), Failure> {
    let variable = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let level = level(variable, usual)?;
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
    let lines = fmt::layer().with_writer(Log).with_target(false);
    registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| Failure::new(anyhow!("cannot set up logs: {error}")))?;
    LEVEL.get_or_init(|| handle);
    Ok(())
}

/// Changes the level as a flag asks, whatever the environment says.
pub(crate) fn set(talk: Talk) {
    let level = match talk {
        Talk::Usual => return,
        Talk::Quiet => LevelFilter::ERROR,
        Talk::Verbose => LevelFilter::DEBUG,
    };
    if let Some(handle) = LEVEL.get() {
        // Fails only when the subscriber is gone, and with it all logs.
        let _ = handle.reload(level);
    }
}

fn level(variable: impl Fn(&str) -> Option<String>, usual: Level) -> Result<Level, Failure> {
    let set = VARIABLES.iter().find_map(|name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some((name, value))
    });
    let Some((name, value)) = set else {
        return Ok(usual);
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
    fn caroles_own_variable_wins_over_kungfus_and_over_what_is_usual() {
        let with = |carole: &str, kungfu: &str| {
            let pairs = [carole.to_owned(), kungfu.to_owned()];
            let variable = move |name: &str| {
                let position = VARIABLES.iter().position(|v| *v == name);
                position.map(|i| pairs[i].clone())
            };
            level(variable, Level::INFO)
        };
        assert_eq!(with("", "").unwrap(), Level::INFO);
        assert_eq!(with("debug", "ERROR").unwrap(), Level::DEBUG);
        assert_eq!(with("", "ERROR").unwrap(), Level::ERROR);
        assert!(with("LOUD", "INFO").is_err());
        assert_eq!(level(|_| None, Level::WARN).unwrap(), Level::WARN);
    }
}
