//! Peers and ordered lists of them.
//!
//! A [`PeerId`] says who a peer is and never where it listens: addresses are registered (see
//! [`crate::membership`]), so that a peer keeps its id when they change. People read `host:slot`;
//! machines read `host:slot/incarnation`, which is also what [`PeerId`] parses.

use std::fmt;
use std::ops::Index;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address;
use crate::error::{PlanError, excerpt};
use crate::layout::HostLayout;

/// Who a peer is: unique and immutable for its life. Addresses are registered, not part of it.
///
/// ```
/// use carole_plan::PeerId;
///
/// let peer = PeerId::new("node-b", 3, 0xfeed);
/// assert_eq!(peer.to_string(), "node-b:3");
/// assert_eq!(format!("{peer:#}"), "node-b:3/0000000000000000000000000000feed");
/// assert_eq!(format!("{peer:#}").parse(), Ok(peer));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerId {
    /// The host's name in the plan.
    pub host: String,
    /// The slot on that host.
    pub slot: u16,
    /// A random number drawn once in the peer's life. In JSON it is 32 hexadecimal digits, because
    /// most readers of JSON hold numbers in 53 bits.
    #[serde(with = "hex_incarnation")]
    pub incarnation: u128,
}

/// How many hexadecimal digits an incarnation has.
const INCARNATION_DIGITS: usize = 32;

impl PeerId {
    /// The peer of this incarnation in `slot` of `host`. An address is kept in its shortest form,
    /// so that one host has one spelling.
    pub fn new(host: impl Into<String>, slot: u16, incarnation: u128) -> Self {
        let host = host.into();
        Self {
            host: address::parse_alone(&host).unwrap_or(host),
            slot,
            incarnation,
        }
    }
}

/// Writes `host:slot`, or with `{:#}` the whole id, `host:slot/incarnation`.
impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", address::bracketed(&self.host), self.slot)?;
        if f.alternate() {
            write!(f, "/{:032x}", self.incarnation)
        } else {
            Ok(())
        }
    }
}

/// Reads the whole id, `host:slot/incarnation`.
impl FromStr for PeerId {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let bad = |expected| PlanError::PeerId {
            found: excerpt(text),
            expected,
        };
        let (host, rest) = address::split_at_colon(text);
        let host = address::parse(host).ok_or_else(|| bad(address::EXPECTED))?;
        let (slot, incarnation) = rest
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| bad("host:slot/incarnation"))?;
        let slot = slot
            .parse()
            .ok()
            .filter(|_| slot.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| bad("a slot from 0 to 65535"))?;
        let incarnation = parse_incarnation(incarnation)
            .ok_or_else(|| bad("an incarnation of 32 hexadecimal digits"))?;
        Ok(Self {
            host,
            slot,
            incarnation,
        })
    }
}

fn parse_incarnation(text: &str) -> Option<u128> {
    let shape = text.len() == INCARNATION_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    shape.then(|| u128::from_str_radix(text, 16).ok())?
}

mod hex_incarnation {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_incarnation(&text).ok_or_else(|| {
            D::Error::custom(format_args!(
                "incarnation {:?}: expected 32 hexadecimal digits",
                crate::error::excerpt(&text)
            ))
        })
    }
}

/// The ordered peers of a session; a peer's place in it is its rank.
///
/// Peers share a host here when the plan's host names are equal; what the peers themselves report
/// is in [`Membership`](crate::Membership).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerList(Vec<PeerId>);

impl PeerList {
    /// A list in rank order.
    pub fn new(peers: Vec<PeerId>) -> Self {
        Self(peers)
    }

    /// How many peers there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The peer of this rank, if there is one.
    pub fn get(&self, rank: usize) -> Option<&PeerId> {
        self.0.get(rank)
    }

    /// The peers in rank order.
    pub fn as_slice(&self) -> &[PeerId] {
        &self.0
    }

    /// The peers in rank order.
    pub fn iter(&self) -> std::slice::Iter<'_, PeerId> {
        self.0.iter()
    }

    /// The rank of `peer`, if it is in the list.
    pub fn rank_of(&self, peer: &PeerId) -> Option<usize> {
        self.0.iter().position(|p| p == peer)
    }

    /// Which ranks share a host. Ask it, rather than the methods below, for more than one answer.
    pub fn layout(&self) -> HostLayout {
        HostLayout::new(self.0.iter().map(|peer| peer.host.as_str()))
    }

    /// The place of `rank` among the ranks of its host.
    pub fn local_rank(&self, rank: usize) -> Option<usize> {
        self.layout()
            .position(rank)
            .map(|position| position.local_rank)
    }

    /// How many peers the host of `rank` has.
    pub fn local_size(&self, rank: usize) -> Option<usize> {
        self.layout()
            .position(rank)
            .map(|position| position.local_size)
    }

    /// The place of the host of `rank` among the hosts, by first appearance.
    pub fn host_rank(&self, rank: usize) -> Option<usize> {
        self.layout()
            .position(rank)
            .map(|position| position.host_rank)
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> usize {
        self.layout().host_count()
    }

    /// The ranks on the host of `rank`, ascending.
    pub fn local_ranks(&self, rank: usize) -> Vec<usize> {
        self.layout().local_ranks(rank).to_vec()
    }

    /// The ranks with the local rank of `rank`, one a host that has it, by host.
    pub fn cross_ranks(&self, rank: usize) -> Vec<usize> {
        self.layout().cross_ranks(rank).to_vec()
    }

    /// The peers of these ranks in this order; `None` if one of them is no rank.
    pub fn select(&self, ranks: &[usize]) -> Option<Self> {
        ranks.iter().map(|&rank| self.get(rank).cloned()).collect()
    }
}

impl Index<usize> for PeerList {
    type Output = PeerId;

    fn index(&self, rank: usize) -> &PeerId {
        &self.0[rank]
    }
}

impl FromIterator<PeerId> for PeerList {
    fn from_iter<I: IntoIterator<Item = PeerId>>(peers: I) -> Self {
        Self(peers.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a PeerList {
    type Item = &'a PeerId;
    type IntoIter = std::slice::Iter<'a, PeerId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for PeerList {
    type Item = PeerId;
    type IntoIter = std::vec::IntoIter<PeerId>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str]) -> PeerList {
        let peer = |(i, host): (usize, &&str)| PeerId::new(*host, i as u16, i as u128);
        hosts.iter().enumerate().map(peer).collect()
    }

    #[test]
    fn people_read_host_and_slot_and_machines_the_whole_id() {
        let peer = PeerId::new("2001:db8::1", 2, u128::MAX);
        assert_eq!(peer.to_string(), "[2001:db8::1]:2");
        assert_eq!(
            format!("{peer:#}"),
            format!("[2001:db8::1]:2/{}", "f".repeat(32))
        );
        assert_eq!(format!("{peer:#}").parse(), Ok(peer));
    }

    #[test]
    fn peer_id_errors_say_what_was_expected() {
        let error = |text: &str| text.parse::<PeerId>().unwrap_err().to_string();
        assert_eq!(
            error("a:1"),
            "peer id \"a:1\": expected host:slot/incarnation"
        );
        assert!(error("a:+1/0").ends_with("a slot from 0 to 65535"));
        assert!(error("a:1/0").ends_with("an incarnation of 32 hexadecimal digits"));
        assert!(error(&format!("a:1/+{}", "0".repeat(31))).ends_with("hexadecimal digits"));
        assert!(error("a b:1/0").contains("host name"));
    }

    #[test]
    fn incarnation_is_32_hexadecimal_digits_in_json() {
        let peer = PeerId::new("a", 1, 1 << 127 | 0xabc);
        let json = serde_json::to_string(&peer).unwrap();
        assert_eq!(
            json,
            r#"{"host":"a","slot":1,"incarnation":"80000000000000000000000000000abc"}"#
        );
        assert_eq!(serde_json::from_str::<PeerId>(&json).unwrap(), peer);
    }

    #[test]
    fn incarnations_of_another_form_and_unknown_fields_are_refused() {
        for bad in [
            "12",
            "\"12\"",
            "\"+0000000000000000000000000000abc\"",
            "null",
        ] {
            let json = format!(r#"{{"host":"a","slot":1,"incarnation":{bad}}}"#);
            assert!(serde_json::from_str::<PeerId>(&json).is_err(), "{json}");
        }
        let digits = "0".repeat(32);
        let json = format!(r#"{{"host":"a","slot":1,"incarnation":"{digits}","port":2}}"#);
        assert!(
            serde_json::from_str::<PeerId>(&json)
                .unwrap_err()
                .to_string()
                .contains("port")
        );
    }

    #[test]
    fn list_tells_each_rank_its_place_among_hosts() {
        let peers = list(&["b", "b", "a", "b", "a"]);
        assert_eq!(peers.rank_of(&peers[3]), Some(3));
        assert_eq!(peers.rank_of(&PeerId::new("b", 3, 99)), None);
        assert_eq!(
            (peers.local_rank(3), peers.local_size(3)),
            (Some(2), Some(3))
        );
        assert_eq!((peers.host_rank(4), peers.host_count()), (Some(1), 2));
        assert_eq!(peers.local_ranks(4), [2, 4]);
        assert_eq!(peers.cross_ranks(4), [1, 4]);
        assert_eq!(peers.cross_ranks(3), [3]);
        assert_eq!(peers.local_rank(5), None);
    }

    #[test]
    fn select_keeps_the_order_asked_for() {
        let peers = list(&["a", "a", "b"]);
        let chosen = peers.select(&[2, 0]).unwrap();
        assert_eq!(chosen.as_slice(), [peers[2].clone(), peers[0].clone()]);
        assert_eq!(peers.select(&[3]), None);
    }

    #[test]
    fn list_is_a_plain_array_in_json() {
        let peers = list(&["a"]);
        let json = serde_json::to_string(&peers).unwrap();
        assert!(json.starts_with(r#"[{"host":"a""#), "{json}");
        assert_eq!(serde_json::from_str::<PeerList>(&json).unwrap(), peers);
    }
}
