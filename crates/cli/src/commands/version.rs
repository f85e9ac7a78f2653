//! `carole version`

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

use crate::failure::Failure;

pub(crate) fn version() -> Result<ExitCode, Failure> {
    writeln!(std::io::stdout(), "carole {}", env!("CARGO_PKG_VERSION"))
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
