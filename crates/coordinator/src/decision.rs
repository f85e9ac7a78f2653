//! What the state machine decides, and why it refuses.

use carole_plan::Membership;

use crate::wire::Outcome;

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<T> {
    /// The decision.
    pub outcome: T,
    /// The reason, for a person.
    pub reason: String,
}

impl<T> Decision<T> {
    pub(crate) fn new(outcome: T, reason: impl Into<String>) -> Self {
        Self {
            outcome,
            reason: reason.into(),
        }
    }
}

/// What became of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It stands.
    Accepted(Outcome),
    /// It does not.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field holds something that cannot be used.
    Invalid,
    /// The job has no such rank.
    NoSuchRank,
    /// Another peer holds the rank.
    RankTaken,
    /// The peer, or another incarnation in its slot, holds another rank.
    OtherRank,
    /// The peer is a member already, with another endpoint.
    EndpointChanged,
    /// The peer is not registered.
    NotRegistered,
    /// A rank was lost before the membership was complete, so there will be none.
    CannotForm,
}

/// What became of a report or of a farewell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was recorded.
    Recorded,
    /// It was known already; nothing changed.
    Known,
    /// It was refused.
    Refused(Refusal),
}

/// What one who asks for a membership gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Here it is.
    Ready(Membership),
    /// Not yet.
    Wait,
    /// There will be none, and why.
    Never(String),
}
