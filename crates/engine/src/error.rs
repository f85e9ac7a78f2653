//! What can go wrong in a session, with the facts as fields.

use std::time::Duration;

use carole_plan::{Generation, PeerId};

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine. Every variant names who and what, so that a person can act on it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A member died, left or fell silent. The session is over; form a new generation.
    #[error("lost rank {rank} ({peer}) in generation {generation} during {operation}: {reason}")]
    PeerLost {
        /// Who was lost.
        peer: Box<PeerId>,
        /// Its rank in the session.
        rank: usize,
        /// The session's generation.
        generation: Generation,
        /// What this rank was doing, such as `all_reduce "grad/17"`.
        operation: String,
        /// How the loss was learnt.
        reason: String,
    },
    /// Ranks asked for different things under one name. The session stays usable.
    #[error("{operation}: the ranks do not agree: {details}")]
    Mismatch {
        /// The operation as this rank named it.
        operation: String,
        /// Which rank asked for what.
        details: String,
    },
    /// Some rank aborted the operation. The session stays usable.
    #[error("{operation} was aborted by rank {rank}: {reason}")]
    Aborted {
        /// The operation.
        operation: String,
        /// Who aborted it.
        rank: usize,
        /// Why, in that rank's words.
        reason: String,
    },
    /// The operation's own time limit passed. The session stays usable.
    #[error("{operation} timed out after {after:?} waiting for {waiting_for}")]
    Timeout {
        /// The operation.
        operation: String,
        /// The limit that passed.
        after: Duration,
        /// The ranks that had not arrived.
        waiting_for: String,
    },
    /// The same name is already in flight in this group on this rank.
    #[error("{operation} is already in flight on this rank")]
    Duplicate {
        /// The operation.
        operation: String,
    },
    /// The request itself makes no sense; nothing was sent.
    #[error("{operation}: {problem}")]
    Invalid {
        /// The operation.
        operation: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The session was closed by this rank, or never formed.
    #[error("the session is closed")]
    Closed,
    /// This process forked since the session was formed; only the parent may use it.
    #[error("the session belongs to process {owner}; it cannot be used after fork in {process}")]
    Forked {
        /// The process that formed the session.
        owner: u32,
        /// The process that called.
        process: u32,
    },
    /// Forming the session failed.
    #[error("cannot form the session: {0}")]
    Form(String),
    /// A peer could not prove that it belongs to the job, or speaks another protocol.
    #[error("refused {address}: {reason}")]
    Refused {
        /// The other end.
        address: String,
        /// Why it was refused.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{context}: {message}")]
    System {
        /// What was attempted.
        context: String,
        /// What the system answered.
        message: String,
    },
}

impl Error {
    /// Wraps an operating-system error with what was attempted.
    pub fn system(context: impl Into<String>, error: &std::io::Error) -> Self {
        Self::System {
            context: context.into(),
            message: error.to_string(),
        }
    }
}

/// Adds what was attempted to an `io::Result`.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|error| Error::system(what, &error))
    }
}
