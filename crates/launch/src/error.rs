//! What can go wrong before a job's processes run. How they end is a [`Report`](crate::Report).

use std::io;
use std::path::PathBuf;

use carole_plan::{PlanError, PortRange};

/// Why a host cannot take part, or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProblem {
    /// The host.
    pub host: String,
    /// What is wrong.
    pub problem: String,
    /// What may help.
    pub hint: Option<String>,
}

fn told(problems: &[HostProblem]) -> String {
    let one = |problem: &HostProblem| format!("{}: {}", problem.host, problem.problem);
    let all: Vec<String> = problems.iter().map(one).collect();
    all.join("; ")
}

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
    /// Remote shells cannot be listened to.
    #[error("cannot listen for remote shells in {}", folder.display())]
    RemoteShell {
        /// The folder of the socket.
        folder: PathBuf,
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
    /// A range has too few free ports.
    #[error("{count} ports of {range} are needed, and {free} are free")]
    PortRange {
        /// The range.
        range: PortRange,
        /// How many are needed.
        count: usize,
        /// How many of them were found.
        free: usize,
    },
    /// A rank's process could not be started. Those that were have been stopped.
    #[error("cannot start rank {rank} on {host}: {program:?}: {problem}")]
    Spawn {
        /// Which rank.
        rank: usize,
        /// On which host.
        host: String,
        /// The program.
        program: String,
        /// What the system said.
        problem: String,
    },
    /// Some hosts cannot take part. Whatever ran on the others has been stopped.
    #[error("{}", told(.0))]
    Hosts(Vec<HostProblem>),
    /// A file cannot be read that is to be sent to other hosts: this program's own binary, or one
    /// of a folder.
    #[error("cannot read {}, to send it to the hosts", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder is to be sent that is none.
    #[error("{} is no folder", path.display())]
    NoFolder {
        /// Its path.
        path: PathBuf,
    },
    /// A link in a folder that is to be sent leads out of it.
    #[error("{} is a link to {}, which will not be there on other hosts", path.display(), target.display())]
    LinkOutside {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A folder has more in it than is sent.
    #[error("{} holds more than {limit} files that git does not ignore", folder.display())]
    TooManyFiles {
        /// The folder.
        folder: PathBuf,
        /// How many are sent at most.
        limit: usize,
    },
    /// Log files cannot be made.
    #[error("cannot make log files in {}", folder.display())]
    LogFolder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A host list that is wrong.
    #[error(transparent)]
    Hostlist(Box<PlanError>),
    /// A host file that is wrong.
    #[error("{}: {source}", path.display())]
    Hostfile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<PlanError>,
    },
    /// A host file that cannot be read.
    #[error("cannot read the host file {}", path.display())]
    HostfileRead {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A batch system or a script that does not give hosts.
    #[error("{problem}")]
    Batch {
        /// Why.
        problem: String,
    },
    /// A host, rank or role that is not there.
    #[error("there is no {wanted}: {known}")]
    Nowhere {
        /// What was looked for.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// A mistake of this program.
    #[error("a mistake in carole: {0}")]
    Internal(String),
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
