//! A host, its slots and its public address.
//!
//! A [`HostSpec`] is written `host[:slots[:public]]`: `node-a`, `10.0.0.1:4`,
//! `[2001:db8::1]:4:gateway.example`. It is checked when it is made, so that every value of the
//! type can be written and read back. Several hosts together are a
//! [`HostList`](crate::HostList).
//!
//! Nothing here resolves a name or asks a host how many processors it has: a host without a number
//! has one slot.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address;
use crate::error::{Origin, PlanError, excerpt};

/// What a number of slots looks like, in words.
pub(crate) const SLOTS_EXPECTED: &str = "a whole number from 1 to 65535";

/// A host, its slots and its public address: `host[:slots[:public]]`.
///
/// ```
/// let host: carole_plan::HostSpec = "10.0.0.1:4:gateway.example".parse()?;
/// assert_eq!((host.host(), host.slots()), ("10.0.0.1", 4));
/// assert_eq!(host.public_address(), "gateway.example");
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostSpec {
    host: String,
    slots: u16,
    public: Option<String>,
}

impl HostSpec {
    /// A host with this many slots. An IPv6 address may be given with or without brackets.
    pub fn new(host: &str, slots: u16, public: Option<&str>) -> Result<Self, PlanError> {
        let read = |part, text| {
            address::parse_alone(text)
                .ok_or_else(|| bad_part(Origin::Spec, part, text, address::EXPECTED))
        };
        if slots == 0 {
            return Err(bad_part(
                Origin::Spec,
                "the number of slots",
                "0",
                SLOTS_EXPECTED,
            ));
        }
        Ok(Self {
            host: read("the host", host)?,
            slots,
            public: public
                .map(|text| read("the public address", text))
                .transpose()?,
        })
    }

    /// The host's name or address; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How many ranks the host holds at most; at least 1.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// The public address, if one was given.
    pub fn public(&self) -> Option<&str> {
        self.public.as_deref()
    }

    /// Where the host is reached from outside the cluster: its public address, or the host itself.
    pub fn public_address(&self) -> &str {
        self.public().unwrap_or(&self.host)
    }
}

impl FromStr for HostSpec {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        HostParts::parse(text, Origin::Spec).map(HostParts::into_spec)
    }
}

impl fmt::Display for HostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", address::bracketed(&self.host), self.slots)?;
        match &self.public {
            Some(public) => write!(f, ":{}", address::bracketed(public)),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for HostSpec {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl From<HostSpec> for String {
    fn from(spec: HostSpec) -> Self {
        spec.to_string()
    }
}

/// A host spec as written, before what is absent is filled in: a host file may add to it.
pub(crate) struct HostParts {
    pub(crate) host: String,
    pub(crate) slots: Option<u16>,
    pub(crate) public: Option<String>,
}

impl HostParts {
    pub(crate) fn parse(text: &str, origin: Origin) -> Result<Self, PlanError> {
        let bad = |part, found, expected| bad_part(origin, part, found, expected);
        // `a:4::1` could be read as a host with slots and as an address; nobody means the former.
        if text.parse::<Ipv6Addr>().is_ok() {
            let expected = "an IPv6 address in brackets, such as [2001:db8::1]:4";
            return Err(bad("the host", text, expected));
        }
        let (host, rest) = address::split_at_colon(text);
        let host = address::parse(host).ok_or_else(|| bad("the host", host, address::EXPECTED))?;
        let Some(rest) = rest else {
            return Ok(Self {
                host,
                slots: None,
                public: None,
            });
        };
        let (slots, public) = address::split_at_colon(rest);
        let slots = Some(parse_slots(slots, "the number of slots", origin)?);
        let public = public
            .map(|public| {
                address::parse(public)
                    .ok_or_else(|| bad("the public address", public, address::EXPECTED))
            })
            .transpose()?;
        Ok(Self {
            host,
            slots,
            public,
        })
    }

    pub(crate) fn into_spec(self) -> HostSpec {
        HostSpec {
            host: self.host,
            slots: self.slots.unwrap_or(1),
            public: self.public,
        }
    }
}

/// Reads a number of slots; plain digits only, because `+4` is more likely a slip than a wish.
pub(crate) fn parse_slots(
    text: &str,
    part: &'static str,
    origin: Origin,
) -> Result<u16, PlanError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(slots) if slots > 0 && digits => Ok(slots),
        _ => Err(bad_part(origin, part, text, SLOTS_EXPECTED)),
    }
}

pub(crate) fn bad_part(
    origin: Origin,
    part: &'static str,
    found: &str,
    expected: &'static str,
) -> PlanError {
    PlanError::HostPart {
        origin,
        part,
        found: excerpt(found),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostList;

    fn spec(text: &str) -> HostSpec {
        text.parse().unwrap()
    }

    fn list_error(text: &str) -> String {
        text.parse::<HostList>().unwrap_err().to_string()
    }

    #[test]
    fn host_alone_has_one_slot_and_is_its_own_public_address() {
        let host = spec("node-a");
        assert_eq!(
            (host.host(), host.slots(), host.public()),
            ("node-a", 1, None)
        );
        assert_eq!(host.public_address(), "node-a");
        assert_eq!(host.to_string(), "node-a:1");
    }

    #[test]
    fn ipv6_is_written_in_brackets_on_both_ends() {
        let host = spec("[2001:DB8:0::1]:4:[::2]");
        assert_eq!(
            (host.host(), host.slots(), host.public()),
            ("2001:db8::1", 4, Some("::2"))
        );
        assert_eq!(host.to_string(), "[2001:db8::1]:4:[::2]");
    }

    #[test]
    fn new_accepts_ipv6_without_brackets_and_refuses_nonsense() {
        assert_eq!(HostSpec::new("::1", 2, None).unwrap(), spec("[::1]:2"));
        assert!(HostSpec::new("a b", 2, None).is_err());
        assert!(HostSpec::new("a", 0, None).is_err());
        assert!(HostSpec::new("a", 1, Some("")).is_err());
    }

    #[test]
    fn errors_name_the_part_and_what_was_expected() {
        assert_eq!(
            list_error("a:4, b:x"),
            "part 2 of the host list: the number of slots is \"x\", \
             expected a whole number from 1 to 65535"
        );
        let unbracketed = list_error("fe80::1:4");
        assert!(
            unbracketed.contains("an IPv6 address in brackets"),
            "{unbracketed}"
        );
        let public = "a:4:b:c".parse::<HostSpec>().unwrap_err().to_string();
        assert!(
            public.starts_with("host spec: the public address is \"b:c\""),
            "{public}"
        );
    }

    #[test]
    fn slots_must_be_a_plain_positive_number() {
        for bad in [
            "a:", "a:0", "a:-1", "a:+4", "a:65536", "a: 4", "a:4x", "a:4:", "a:4:b:",
        ] {
            assert!(bad.parse::<HostSpec>().is_err(), "{bad}");
        }
        assert_eq!(spec("a:65535").slots(), 65535);
    }
}
