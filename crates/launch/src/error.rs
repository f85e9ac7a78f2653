//! What can go wrong before a job's processes run. How they end is a [`Report`](crate::Report).

use std::io;
use std::path::PathBuf;

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not on `PATH`, or there is no such file.
    #[error("there is no program {program:?}")]
    ProgramNotFound {
        /// The program as it was given.
        program: String,
    },
    /// The program is a file that may not be executed.
    #[error("{} is not executable", path.display())]
    ProgramNotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The program is not a file.
    #[error("{} is a directory, not a program", path.display())]
    ProgramIsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The folder for the job's secrets could not be made.
    #[error("cannot make a private folder in {}", parent.display())]
    PrivateFolder {
        /// Where it should have been.
        parent: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No port could be reserved.
    #[error("cannot reserve port {index} of {count}")]
    Ports {
        /// Which of them, from 1.
        index: usize,
        /// How many are needed.
        count: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The guard process could not be started.
    #[error("cannot start the guard process")]
    Guard {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A rank's process could not be started. Those that were have been stopped.
    #[error("cannot start rank {rank}: {program:?}")]
    Spawn {
        /// Which rank.
        rank: usize,
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system's random source failed.
    #[error("cannot draw random numbers: {detail}")]
    Random {
        /// What the system said.
        detail: String,
    },
    /// Signals to this process cannot be watched.
    #[error("cannot watch for signals")]
    Signals {
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
