//! What the page is told, and what it asks for.

use carole_launch::Exit;
use carole_launch::render::Stream;

/// What happens to a job, for the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Happening {
    /// The job is known.
    Named {
        /// What it is called.
        job: String,
        /// How many processes it has.
        size: usize,
    },
    /// A process was started, perhaps again.
    Started {
        /// Its number in the job.
        rank: usize,
        /// What it is called: `rank 2`, `ps 0`.
        name: String,
        /// Where it runs.
        host: String,
        /// Its number there.
        pid: i32,
    },
    /// A process ended.
    Exited {
        /// Which.
        rank: usize,
        /// How.
        exit: Exit,
    },
    /// A process printed something, of which nothing is assumed.
    Printed {
        /// Which.
        rank: usize,
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// How far a process is.
    Progress {
        /// Which.
        rank: usize,
        /// The steps that are done.
        step: u64,
        /// How many there are, if that is known.
        total: Option<u64>,
        /// Steps per second, if that is known.
        rate: Option<f64>,
        /// What else is told, such as a loss.
        text: String,
    },
    /// What a process uses.
    Usage {
        /// Which.
        rank: usize,
        /// Of one core; two busy cores are 200.
        cpu_percent: f64,
        /// Bytes in memory.
        memory: u64,
    },
    /// What a host sends and receives.
    Network {
        /// Which.
        host: String,
        /// Bytes per second that come in.
        received: u64,
        /// Bytes per second that go out.
        sent: u64,
    },
    /// Something that a person should read.
    Notice(String),
    /// The job is over, and how.
    Ended(String),
}

/// What a key asks of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Nothing.
    None,
    /// Stop the job as Ctrl-C does: the first time gently, then at once.
    Interrupt,
    /// The page is left. A job that still runs is to be stopped.
    Quit,
}
