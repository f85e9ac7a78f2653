//! Algorithm tables in files, for the commands that take `--table`.

use std::path::Path;

use carole_plan::{AlgorithmTable, PlanError};

use crate::failure::Failure;

/// Reads a table that `carole tune` or a person wrote.
pub(super) fn read(path: &Path) -> Result<AlgorithmTable, Failure> {
    let wrong = |error: anyhow::Error| {
        let error = error.context(format!("--table {}", path.display()));
        Failure::usage(error).with_hint("`carole tune` measures and writes one")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.into()))?;
    text.parse().map_err(|error: PlanError| wrong(error.into()))
}
