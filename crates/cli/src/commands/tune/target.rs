//! The file that a table is saved in: it has the old content or all of the new, never a part.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use carole_launch::random::random_word;
use carole_plan::AlgorithmTable;

use crate::failure::Failure;

/// Where a table will be saved.
pub(super) struct Target(PathBuf);

impl Target {
    /// Makes sure that `path` can be written: better now than after the measuring.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let wrong = |error: anyhow::Error| {
            Failure::usage(error.context(format!("--save: cannot write {}", path.display())))
                .with_hint("is the folder there, and may you write to it?")
        };
        // A link stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.exists() && !target.is_file() {
            return Err(wrong(anyhow!("there is something that is no file")));
        }
        drop(Draft::new(&target).map_err(wrong)?);
        Ok(Self(target))
    }

    /// Saves a table.
    pub(super) fn write(&self, table: &AlgorithmTable) -> Result<(), Failure> {
        let write = || -> anyhow::Result<()> {
            let mut draft = Draft::new(&self.0)?;
            writeln!(draft.file, "{table}")?;
            draft.file.sync_all()?;
            Ok(fs::rename(&draft.path, &self.0)?)
        };
        let context = || format!("cannot write {}", self.0.display());
        write().with_context(context).map_err(Failure::new)
    }
}

/// A file beside the target; what is left of it is removed when this is dropped.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn new(target: &Path) -> anyhow::Result<Self> {
        let name = target.file_name().context("it names no file")?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", random_word()?));
        let path = target.with_file_name(hidden);
        let file = File::create_new(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It has gone if it became the target.
        let _ = fs::remove_file(&self.path);
    }
}
