//! `carole version`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use crate::failure::Failure;

pub(crate) fn version() -> Result<ExitCode, Failure> {
    answer(&text())
}

/// What is printed.
pub(crate) fn text() -> String {
    format!("carole {}\n", env!("CARGO_PKG_VERSION"))
}

/// Prints what a person asked for.
pub(super) fn answer(text: &str) -> Result<ExitCode, Failure> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
