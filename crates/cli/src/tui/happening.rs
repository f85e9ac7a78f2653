//! What the page is told, and what it asks for.

use carole_launch::Event;

/// What happens to a job, for the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Happening {
    /// The job is known.
    Named {
        /// What it is called.
        job: String,
        /// What its processes are called: `rank 2`, `ps 0`.
        ranks: Vec<String>,
    },
    /// Something happened to the job. Of what a process prints nothing is assumed.
    Event(Event),
    /// Something that a person should read.
    Notice(String),
    /// The job is over, and how.
    Ended(String),
}

impl From<Event> for Happening {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
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
