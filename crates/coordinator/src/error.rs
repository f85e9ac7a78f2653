//! What can go wrong when a process talks to its coordinator.

use std::path::PathBuf;
use std::time::Duration;

use crate::state::rank_list;
use crate::wire::Problem;

/// Everything a caller of this crate can be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the coordinator cannot be understood.
    #[error("coordinator address {address:?} is not http://HOST:PORT")]
    Address {
        /// The address as it was given.
        address: String,
    },
    /// No connection to the coordinator.
    #[error("cannot connect to the coordinator at {address}")]
    Connect {
        /// Where the coordinator was expected.
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke in the middle of an exchange.
    #[error("lost the connection to the coordinator at {address} while {doing}")]
    Connection {
        /// Where the coordinator is.
        address: String,
        /// What was being done.
        doing: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The coordinator did not answer in time.
    #[error("the coordinator at {address} did not answer while {doing}")]
    NoAnswer {
        /// Where the coordinator is.
        address: String,
        /// What was being done.
        doing: String,
    },
    /// What answered does not speak as a coordinator does.
    #[error("the answer from {address} is not a coordinator's: {detail}")]
    Protocol {
        /// Where the answer came from.
        address: String,
        /// What was wrong with it.
        detail: String,
    },
    /// The coordinator does not accept this process's token.
    #[error("the coordinator at {address} refused the job's token")]
    Unauthorized {
        /// Where the coordinator is.
        address: String,
    },
    /// The coordinator understood and said no.
    #[error("the coordinator refused: {}", problem.detail)]
    Refused {
        /// Its answer.
        problem: Problem,
    },
    /// The membership was not complete in time.
    #[error(
        "no membership after {:.1} s: {} of {size} ranks have not registered ({})",
        waited.as_secs_f64(), missing.len(), rank_list(missing)
    )]
    MembershipTimeout {
        /// How long was waited.
        waited: Duration,
        /// How many ranks the job has.
        size: usize,
        /// Those who have not registered.
        missing: Vec<usize>,
    },
    /// The file with the job's token cannot be read.
    #[error("cannot read the token file {}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A token is not 64 hexadecimal digits. The text is not repeated here: it may be a secret.
    #[error("a token is 64 hexadecimal digits, not {length} characters of something else")]
    TokenFormat {
        /// How long the text was.
        length: usize,
    },
}
