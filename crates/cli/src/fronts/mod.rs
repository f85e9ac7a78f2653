//! The command lines of other launchers.
//!
//! `carole torchrun …`, `carole mpirun …`, `carole horovodrun …` and `carole kungfu-run …` take the
//! words that the launcher of that name takes, read them by its rules and not by Carole's, and come
//! to a [`Request`]. Each has a table of the launcher's flags ([`flag`]), which says of every one
//! whether Carole honours it, accepts it because it does the same in another way, or refuses it. A
//! flag that would change what runs is never ignored.
//!
//! Reading is pure: it opens no file, and what depends on the machine is passed in. The same tables
//! make the [`help`] of each; the pages under `docs/how-to` have the flags too, and a test compares
//! them with the tables.

mod flag;
mod help;
pub(crate) mod horovodrun;
pub(crate) mod kungfu_run;
pub(crate) mod mpirun;
mod scan;
#[cfg(test)]
mod testing;
pub(crate) mod torchrun;

use std::path::PathBuf;

use carole_launch::request::{Request, StreamSet, Streams};

/// What another launcher's command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A job.
    Job(Box<Request>),
    /// This text: help or the version.
    Answer(String),
}

/// What a flag is refused with that asks for a range of sizes.
pub(crate) const ELASTIC: &str = "elastic sizes are not available yet";

/// Gives the ranks a variable; the last value counts.
fn set_variable(request: &mut Request, name: &str, value: Option<String>) {
    request.variables.retain(|(other, _)| other != name);
    request.variables.push((name.to_owned(), value));
}

/// Python shows its lines when they are printed.
fn unbuffer_python(request: &mut Request) {
    set_variable(request, "PYTHONUNBUFFERED", Some("1".to_owned()));
}

/// Everything that ranks print goes to files of `folder` too.
fn tee_into(request: &mut Request, folder: PathBuf) {
    request.output.log_folder = Some(folder);
    request.output.tee = all_streams();
}

/// Both streams of every rank.
fn all_streams() -> Streams {
    Streams {
        others: StreamSet {
            stdout: true,
            stderr: true,
        },
        named: Vec::new(),
    }
}
