//! Who is in a generation, and where each member can be reached.
//!
//! A [`Membership`] is what the coordinator publishes and what a session is formed from. It holds
//! values only: nothing here opens a socket or reads a clock.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::peer::{PeerId, PeerList};

/// The version of a membership: the coordinator's term, then a counter within it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Generation {
    /// Rises each time a coordinator takes over.
    pub term: u32,
    /// Rises with every published membership of a term.
    pub counter: u32,
}

impl Generation {
    /// The generation as one number that orders as the pair does.
    pub fn as_u64(self) -> u64 {
        (u64::from(self.term) << 32) | u64::from(self.counter)
    }
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.term <= 1 {
            write!(f, "{}", self.counter)
        } else {
            write!(f, "{}.{}", self.term, self.counter)
        }
    }
}

/// Where a peer listens, and what decides whether two peers share a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Addresses of the TCP listener, best first.
    pub addresses: Vec<SocketAddr>,
    /// Abstract name of the local socket through which shared memory is handed over.
    pub local: String,
    /// Equal on two peers exactly when they share a kernel (boot id) and a network namespace.
    pub machine: String,
    /// SHA-256 of the peer's ephemeral certificate in hex, when data travels over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// One peer of a membership and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Who it is.
    pub peer: PeerId,
    /// Where it listens.
    pub endpoint: Endpoint,
}

/// The members of one generation, in rank order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// The version of this membership.
    pub generation: Generation,
    /// The members; a member's place is its rank.
    pub members: Vec<Member>,
}

impl Membership {
    /// The peers alone, in rank order.
    pub fn peers(&self) -> PeerList {
        PeerList::new(self.members.iter().map(|m| m.peer.clone()).collect())
    }

    /// The rank of `peer`, if it is a member.
    pub fn rank_of(&self, peer: &PeerId) -> Option<usize> {
        self.members.iter().position(|m| &m.peer == peer)
    }

    /// For each rank, the index of its machine in order of first appearance.
    pub fn machine_indices(&self) -> Vec<usize> {
        let mut seen: Vec<&str> = Vec::new();
        self.members
            .iter()
            .map(|m| {
                seen.iter().position(|s| *s == m.endpoint.machine).unwrap_or_else(|| {
                    seen.push(&m.endpoint.machine);
                    seen.len() - 1
                })
            })
            .collect()
    }
}
