//! Who is in a generation, and where each member can be reached.
//!
//! A [`Membership`] is what the coordinator publishes and what a session is formed from. It holds
//! values only: nothing here opens a socket or reads a clock. Who may join and when a generation is
//! published are the coordinator's to decide.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::layout::HostLayout;
use crate::peer::{PeerId, PeerList};

/// The version of a membership: the coordinator's term, then a counter within it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
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

    /// The generation that [`Generation::as_u64`] turned into this number.
    pub fn from_u64(number: u64) -> Self {
        Self {
            term: (number >> 32) as u32,
            counter: number as u32,
        }
    }

    /// The generation that follows in the same term; `None` when the counter is used up.
    pub fn next(self) -> Option<Self> {
        Some(Self {
            term: self.term,
            counter: self.counter.checked_add(1)?,
        })
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
        self.layout().host_indices()
    }

    /// Which ranks share a machine, as they reported it. Where the plan's host names say otherwise
    /// ([`PeerList::layout`]), this is the truth.
    pub fn layout(&self) -> HostLayout {
        HostLayout::new(self.members.iter().map(|m| m.endpoint.machine.as_str()))
    }

    /// Checks that no two members hold the same slot of the same host.
    pub fn validate(&self) -> Result<(), PlanError> {
        let mut seen = HashMap::new();
        for (second, Member { peer, .. }) in self.members.iter().enumerate() {
            if let Some(first) = seen.insert((peer.host.as_str(), peer.slot), second) {
                return Err(PlanError::DuplicatePeer {
                    peer: peer.to_string(),
                    first,
                    second,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(host: &str, slot: u16, machine: &str) -> Member {
        Member {
            peer: PeerId::new(host, slot, u128::MAX - u128::from(slot)),
            endpoint: Endpoint {
                addresses: vec![
                    "10.0.0.1:7000".parse().unwrap(),
                    "[::1]:7000".parse().unwrap(),
                ],
                local: format!("carole-{host}-{slot}"),
                machine: machine.into(),
                certificate: (slot == 1).then(|| "ab".repeat(32)),
            },
        }
    }

    fn membership(members: Vec<Member>) -> Membership {
        Membership {
            generation: Generation {
                term: 2,
                counter: 7,
            },
            members,
        }
    }

    #[test]
    fn generations_order_as_their_numbers_do() {
        let generations = [
            (0, 0),
            (0, u32::MAX),
            (1, 0),
            (1, 1),
            (2, 0),
            (u32::MAX, u32::MAX),
        ]
        .map(|(term, counter)| Generation { term, counter });
        assert!(generations.is_sorted());
        assert!(generations.map(Generation::as_u64).is_sorted());
        for generation in generations {
            assert_eq!(Generation::from_u64(generation.as_u64()), generation);
        }
    }

    #[test]
    fn next_generation_stays_in_its_term() {
        let generation = Generation {
            term: 3,
            counter: 4,
        };
        assert_eq!(
            generation.next(),
            Some(Generation {
                term: 3,
                counter: 5
            })
        );
        assert_eq!(
            Generation {
                term: 3,
                counter: u32::MAX
            }
            .next(),
            None
        );
    }

    #[test]
    fn first_term_is_left_out_of_the_display() {
        assert_eq!(
            Generation {
                term: 1,
                counter: 4
            }
            .to_string(),
            "4"
        );
        assert_eq!(
            Generation {
                term: 2,
                counter: 4
            }
            .to_string(),
            "2.4"
        );
    }

    #[test]
    fn membership_survives_json() {
        let membership = membership(vec![member("a", 0, "m"), member("a", 1, "m")]);
        let json = serde_json::to_string(&membership).unwrap();
        assert!(
            json.contains(r#""generation":{"term":2,"counter":7}"#),
            "{json}"
        );
        assert!(
            json.contains(r#""incarnation":"ffffffffffffffffffffffffffffffff""#),
            "{json}"
        );
        assert!(
            json.contains(r#""addresses":["10.0.0.1:7000","[::1]:7000"]"#),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<Membership>(&json).unwrap(),
            membership
        );
        // Through a reader that knows no types, as a proxy or a script would.
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            serde_json::from_value::<Membership>(value).unwrap(),
            membership
        );
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        let json = r#"{"generation":{"term":1,"counter":1,"epoch":3},"members":[]}"#;
        let error = serde_json::from_str::<Membership>(json).unwrap_err();
        assert!(error.to_string().contains("epoch"), "{error}");
    }

    #[test]
    fn machines_and_not_host_names_decide_who_shares_a_host() {
        let members = vec![
            member("a", 0, "x"),
            member("b", 0, "y"),
            member("c", 0, "x"),
        ];
        let membership = membership(members);
        assert_eq!(membership.machine_indices(), [0, 1, 0]);
        assert_eq!(membership.layout().local_ranks(2), [0, 2]);
        assert_eq!(membership.peers().host_count(), 3);
        assert_eq!(membership.rank_of(&membership.members[1].peer), Some(1));
    }

    #[test]
    fn two_members_in_one_slot_are_refused() {
        let mut twin = member("a", 0, "m");
        twin.peer.incarnation = 5;
        let membership = membership(vec![member("a", 0, "m"), member("a", 1, "m"), twin]);
        let error = membership.validate().unwrap_err();
        assert_eq!(error.to_string(), "ranks 0 and 2 are both a:0");
    }
}
