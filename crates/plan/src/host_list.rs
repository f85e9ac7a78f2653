//! Several hosts, and how ranks are laid over them.
//!
//! A [`HostList`] is written as host specs with commas between, `a:4,b:4`, or as a host file (see
//! [`crate::hostfile`]). No host is in it twice: the second entry is more likely a slip than a wish
//! for more slots.
//!
//! Only one order is offered, filling each host before the next; spreading ranks over hosts is done
//! by giving fewer slots.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Origin, PlanError};
use crate::host::{HostParts, HostSpec};

/// Distinct hosts in the order in which ranks fill them: `a:4,b:4`.
///
/// ```
/// let hosts: carole_plan::HostList = "a:2,b:2".parse()?;
/// let laid: Vec<_> = hosts.place(3)?.iter().map(|p| (p.host.host(), p.slot)).collect();
/// assert_eq!(laid, [("a", 0), ("a", 1), ("b", 0)]);
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<HostSpec>", into = "Vec<HostSpec>")]
pub struct HostList(Vec<HostSpec>);

impl HostList {
    /// A list of these hosts: at least one, none twice.
    pub fn new(hosts: Vec<HostSpec>) -> Result<Self, PlanError> {
        let numbered = hosts.into_iter().enumerate();
        Self::distinct(
            "host list",
            numbered.map(|(i, host)| Ok((Origin::ListPart(i + 1), host))),
        )
    }

    /// Gathers hosts and refuses the second of two equal ones. Names are compared without regard
    /// to case, as the name system does.
    pub(crate) fn distinct(
        input: &'static str,
        hosts: impl Iterator<Item = Result<(Origin, HostSpec), PlanError>>,
    ) -> Result<Self, PlanError> {
        let mut seen: HashMap<String, Origin> = HashMap::new();
        let mut list = Vec::new();
        for host in hosts {
            let (origin, host) = host?;
            if let Some(&first) = seen.get(&host.host().to_ascii_lowercase()) {
                return Err(PlanError::DuplicateHost {
                    origin,
                    host: host.host().to_owned(),
                    first,
                });
            }
            seen.insert(host.host().to_ascii_lowercase(), origin);
            list.push(host);
        }
        if list.is_empty() {
            Err(PlanError::NoHosts { input })
        } else {
            Ok(Self(list))
        }
    }

    /// The hosts, in order.
    pub fn as_slice(&self) -> &[HostSpec] {
        &self.0
    }

    /// The hosts, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, HostSpec> {
        self.0.iter()
    }

    /// The slots of all hosts together.
    pub fn total_slots(&self) -> usize {
        self.0.iter().map(|host| usize::from(host.slots())).sum()
    }

    /// Lays `ranks` ranks over the hosts, filling each host before the next; the result's place
    /// is the rank.
    pub fn place(&self, ranks: usize) -> Result<Vec<Placement<'_>>, PlanError> {
        let slots = self.total_slots();
        if ranks > slots {
            return Err(PlanError::NotEnoughSlots { ranks, slots });
        }
        let all = |host| (0..HostSpec::slots(host)).map(move |slot| Placement { host, slot });
        Ok(self.0.iter().flat_map(all).take(ranks).collect())
    }
}

/// Where one rank goes: a slot of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The host.
    pub host: &'a HostSpec,
    /// The slot on it, counted from 0.
    pub slot: u16,
}

impl<'a> IntoIterator for &'a HostList {
    type Item = &'a HostSpec;
    type IntoIter = std::slice::Iter<'a, HostSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromStr for HostList {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let text = text.trim();
        // Without this, the empty text would be one part that is empty.
        let parts = (!text.is_empty())
            .then(|| text.split(','))
            .into_iter()
            .flatten();
        let read = |(i, part): (usize, &str)| {
            let origin = Origin::ListPart(i + 1);
            Ok((origin, HostParts::parse(part.trim(), origin)?.into_spec()))
        };
        Self::distinct("host list", parts.enumerate().map(read))
    }
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, host) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{host}")?;
        }
        Ok(())
    }
}

impl TryFrom<Vec<HostSpec>> for HostList {
    type Error = PlanError;

    fn try_from(hosts: Vec<HostSpec>) -> Result<Self, PlanError> {
        Self::new(hosts)
    }
}

impl From<HostList> for Vec<HostSpec> {
    fn from(list: HostList) -> Self {
        list.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_error(text: &str) -> String {
        text.parse::<HostList>().unwrap_err().to_string()
    }

    #[test]
    fn duplicate_hosts_are_refused_whatever_their_spelling() {
        assert_eq!(
            list_error("a:1,b,A:2"),
            "part 3 of the host list: host A was given already by part 1 of the host list"
        );
        assert!(list_error("[::1]:2,[0::1]:2").contains("given already"));
    }

    #[test]
    fn empty_lists_and_empty_parts_are_refused() {
        assert_eq!(list_error(" "), "the host list names no host");
        assert!(list_error("a,,b").starts_with("part 2 of the host list: the host is \"\""));
        assert!(list_error("a,").starts_with("part 2"));
    }

    #[test]
    fn ranks_fill_hosts_in_order() {
        let hosts: HostList = "b:2,a:1,c:2".parse().unwrap();
        let laid: Vec<_> = hosts
            .place(4)
            .unwrap()
            .iter()
            .map(|p| (p.host.host(), p.slot))
            .collect();
        assert_eq!(laid, [("b", 0), ("b", 1), ("a", 0), ("c", 0)]);
        assert_eq!(hosts.place(0).unwrap(), []);
    }

    #[test]
    fn too_many_ranks_says_how_many_slots_there_are() {
        let hosts: HostList = "a:2,b:3".parse().unwrap();
        let error = hosts.place(6).unwrap_err();
        assert_eq!(
            error.to_string(),
            "6 ranks do not fit: the hosts have 5 slots in all"
        );
    }

    #[test]
    fn json_uses_the_same_words_and_the_same_checks() {
        let hosts: HostList = "a:2,[::1]:1:b".parse().unwrap();
        let json = serde_json::to_string(&hosts).unwrap();
        assert_eq!(json, r#"["a:2","[::1]:1:b"]"#);
        assert_eq!(serde_json::from_str::<HostList>(&json).unwrap(), hosts);
        assert!(serde_json::from_str::<HostList>(r#"["a:2","a:3"]"#).is_err());
        assert!(serde_json::from_str::<HostSpec>(r#""a:0""#).is_err());
    }
}
