//! What a test says to its rank processes and what they answer: JSON, one a line.

use std::time::Duration;

use carole_engine::{Options, Transport};
use carole_plan::{Member, Membership};
use serde::{Deserialize, Serialize};

/// Replies begin with this; other lines of a rank are its log.
pub(crate) const MARK: &str = "@ ";
/// The environment variable that makes the test binary a rank; its value names the fleet.
pub(crate) const FLEET: &str = "CAROLE_TEST_FLEET";
/// The environment variable that asks for TLS.
pub(crate) const TLS: &str = "CAROLE_TEST_TLS";
/// The environment variable with the rank's slot.
pub(crate) const SLOT: &str = "CAROLE_TEST_SLOT";

/// How the sessions of a test behave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// TCP between all ranks.
    pub(crate) tcp: bool,
    /// The heartbeat limit in seconds.
    pub(crate) heartbeat: f64,
    /// The stall limit in seconds.
    pub(crate) stall: f64,
}

impl Settings {
    pub(crate) const LOCAL: Self = Self {
        tcp: false,
        heartbeat: 5.0,
        stall: 10.0,
    };
    pub(crate) const TCP: Self = Self {
        tcp: true,
        ..Self::LOCAL
    };

    pub(crate) fn options(&self) -> Options {
        Options {
            stall: Duration::from_secs_f64(self.stall),
            heartbeat: Duration::from_secs_f64(self.heartbeat),
            // Whatever goes wrong, a rank does not outlive its test by much.
            timeout: Duration::from_secs(60),
            transport: if self.tcp {
                Transport::Tcp
            } else {
                Transport::Auto
            },
            ..Options::default()
        }
    }
}

/// What a rank is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Form a session; the one before is dropped.
    Form(Membership, Settings),
    /// Reduce `length` ones and report.
    AllReduce { name: String, length: usize },
    /// The same with the engine thread doing the work.
    StartAllReduce { name: String, length: usize },
    /// Reduce again and again until that fails.
    AllReduceForEver { length: usize },
    /// Fork a child that does nothing but keep what it inherited.
    Fork,
}

/// What a rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It listens.
    Listening(Member),
    /// The session is there.
    Formed,
    /// The next thing is the call.
    Calling,
    /// The call that goes on for ever has succeeded once.
    Moving,
    /// The sum.
    Sum(f32),
    /// A rank was lost.
    Lost { rank: usize, message: String },
    /// Anything else that went wrong.
    Failed(String),
    /// A child was forked.
    Forked(i32),
}
