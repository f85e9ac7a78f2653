//! Peers and ordered lists of them.

use serde::{Deserialize, Serialize};

/// Who a peer is: unique and immutable for its life. Addresses are registered, not part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerId {
    /// The host's name in the plan.
    pub host: String,
    /// The slot on that host.
    pub slot: u16,
    /// A random number drawn once in the peer's life.
    pub incarnation: u128,
}

impl std::fmt::Display for PeerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.slot)
    }
}

/// The ordered peers of a session; a peer's place in it is its rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerList(Vec<PeerId>);

impl PeerList {
    /// A list in rank order.
    pub fn new(peers: Vec<PeerId>) -> Self {
        Self(peers)
    }
}
