//! What travels between a coordinator and those who talk to it, as JSON under `/v1`.
//!
//! | route | request | answer |
//! |---|---|---|
//! | `POST /v1/peers` | [`Register`] | [`Registered`] |
//! | `GET /v1/membership?after=N&wait_ms=M` | | the membership once its counter is above `N`; 204 when the wait is over |
//! | `GET /v1/status` | | [`Status`] |
//! | `POST /v1/lost` | [`ReportLost`] | [`Accepted`] |
//! | `GET /v1/lost?after=N&wait_ms=M` | | [`LostList`] with the losses whose sequence is above `N`; 204 when the wait is over |
//! | `POST /v1/leave` | [`Leave`] | [`Accepted`] |
//!
//! Errors are [`Problem`]s, `application/problem+json`. Unknown fields are refused. A generation's
//! term is 1 for now; `after` compares counters within it.

use std::time::Duration;

use carole_plan::{Endpoint, Generation, PeerId};
use serde::{Deserialize, Serialize};

/// The largest request body a coordinator reads.
pub const MAX_REQUEST_BODY: usize = 64 * 1024;
/// The largest answer a client reads: a membership of many thousand peers.
pub const MAX_ANSWER_BODY: usize = 16 * 1024 * 1024;
/// The longest a single long-poll is held; a longer `wait_ms` is cut to this.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// Media type of an error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A peer takes its rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Who it is.
    pub peer: PeerId,
    /// The rank it was started as.
    pub rank: usize,
    /// Where it listens.
    pub endpoint: Endpoint,
}

/// What became of a registration that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Taken; others are still missing.
    Waiting,
    /// Taken; it was the last one, and the membership is published.
    Published,
    /// The same peer held this rank already; nothing changed but perhaps its endpoint.
    Repeated,
}

/// The answer to [`Register`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// What became of it.
    pub outcome: Outcome,
    /// The same for a person.
    pub reason: String,
    /// How many ranks the job has.
    pub size: usize,
    /// Ranks that have not registered.
    pub missing: Vec<usize>,
}

/// An agent reports a process that ended or was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportLost {
    /// Which rank.
    pub rank: usize,
    /// Why, for a person: `exited with signal 11 (SIGSEGV)`.
    pub reason: String,
    /// The exit code, 128 + n for signal n, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// A member says that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leave {
    /// Who leaves.
    pub peer: PeerId,
}

/// The answer to a request that has nothing else to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// What was done, for a person.
    pub reason: String,
}

/// One lost peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Counts losses from 1; pass the highest seen as `after`.
    pub sequence: u64,
    /// Which rank.
    pub rank: usize,
    /// Who held the rank, if anyone had registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerId>,
    /// Why, for a person.
    pub reason: String,
    /// The exit code, 128 + n for signal n, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Milliseconds after the coordinator began.
    pub at_ms: u64,
}

/// Losses, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostList {
    /// The losses.
    pub lost: Vec<Lost>,
}

/// A job's membership at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The job's name.
    pub job: String,
    /// How many ranks it has.
    pub size: usize,
    /// Ranks that have registered.
    pub registered: Vec<usize>,
    /// Ranks that have not.
    pub missing: Vec<usize>,
    /// Ranks that have left.
    pub left: Vec<usize>,
    /// The published generation, once there is one.
    pub generation: Option<Generation>,
    /// Losses, oldest first.
    pub lost: Vec<Lost>,
}

/// An error as RFC 9457 describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Which problem: `https://carole.dev/problems/NAME`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words, the same every time.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This case of it, naming the things concerned.
    pub detail: String,
}

impl Problem {
    const BASE: &str = "https://carole.dev/problems/";

    /// A problem; `name` becomes the end of its type.
    pub fn new(status: u16, name: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{}{name}", Self::BASE),
            title: title.to_owned(),
            status,
            detail: detail.into(),
        }
    }

    /// The end of the type: `rank-taken`.
    pub fn name(&self) -> &str {
        self.kind.strip_prefix(Self::BASE).unwrap_or(&self.kind)
    }
}
