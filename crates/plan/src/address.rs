//! How a host is written: an IPv4 address, an IPv6 address or a name.
//!
//! Addresses are kept without brackets and in their shortest form, so that two spellings of one
//! address are one host; wherever a colon follows, an IPv6 address is written in brackets. Names
//! are checked for shape only: nothing here resolves them. A user before the host (`user@host`)
//! is deliberately not part of it; that is the launcher's business.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What [`parse`] accepts, in words.
pub(crate) const EXPECTED: &str =
    "an IPv4 address, an IPv6 address in brackets such as [2001:db8::1], or a host name";

/// The longest host name, and the longest label in one (RFC 1035).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;
/// The longest name of a network interface that Linux has.
const MAX_ZONE: usize = 15;

/// Splits `text` at the first colon that is not inside brackets.
pub(crate) fn split_at_colon(text: &str) -> (&str, Option<&str>) {
    let name_end = if text.starts_with('[') {
        text.find(']').map_or(text.len(), |i| i + 1)
    } else {
        0
    };
    match text[name_end..].find(':') {
        Some(colon) => (
            &text[..name_end + colon],
            Some(&text[name_end + colon + 1..]),
        ),
        None => (text, None),
    }
}

/// Reads an IPv4 address, an IPv6 address in brackets or a name.
pub(crate) fn parse(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('[') {
        return parse_ipv6(inner.strip_suffix(']')?);
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return text
            .parse::<Ipv4Addr>()
            .ok()
            .map(|address| address.to_string());
    }
    is_name(text).then(|| text.to_owned())
}

/// Reads what [`parse`] reads, and an IPv6 address without brackets: for places where no colon
/// can follow.
pub(crate) fn parse_alone(text: &str) -> Option<String> {
    parse(text).or_else(|| parse_ipv6(text))
}

/// The host as it is written before a colon.
pub(crate) fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') {
        Cow::Owned(format!("[{host}]"))
    } else {
        Cow::Borrowed(host)
    }
}

/// Reads an IPv6 address with an optional zone, as in `fe80::1%eth0`.
fn parse_ipv6(text: &str) -> Option<String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    match zone {
        None => Some(address.to_string()),
        Some(zone) => {
            let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let fits = (1..=MAX_ZONE).contains(&zone.len()) && zone.bytes().all(good);
            fits.then(|| format!("{address}%{zone}"))
        }
    }
}

/// Whether `text` has the shape of a host name. Underscores are no part of RFC 1123, but container
/// networks use them.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_NAME && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read() {
        for good in ["localhost", "node-1.rack.example", "a_b", "10.0.0.1", "N1"] {
            assert_eq!(parse(good).as_deref(), Some(good));
        }
    }

    #[test]
    fn ipv6_is_kept_in_its_shortest_form_without_brackets() {
        assert_eq!(parse("[0:0:0:0:0:0:0:1]").as_deref(), Some("::1"));
        assert_eq!(parse("[FE80::1%eth0]").as_deref(), Some("fe80::1%eth0"));
        assert_eq!(bracketed("::1"), "[::1]");
        assert_eq!(bracketed("node"), "node");
    }

    #[test]
    fn ipv6_without_brackets_is_read_only_where_it_stands_alone() {
        assert_eq!(parse("::1"), None);
        assert_eq!(parse_alone("::1").as_deref(), Some("::1"));
    }

    #[test]
    fn malformed_hosts_are_refused() {
        let label = "a".repeat(MAX_LABEL + 1);
        let name = vec!["a"; MAX_NAME].join(".");
        for bad in [
            "",
            ".",
            "a..b",
            "a.",
            "-a",
            "a-",
            "a b",
            "a@b",
            "é",
            "1.2.3",
            "300.1.1.1",
            "7",
            "[",
            "[]",
            "[::1",
            "[::1]x",
            "[a]",
            "[10.0.0.1]",
            "[::1%]",
            "[::1%a/b]",
            "a/b",
            &label,
            &name,
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn colons_inside_brackets_do_not_split() {
        assert_eq!(split_at_colon("[::1]:4"), ("[::1]", Some("4")));
        assert_eq!(split_at_colon("[::1]"), ("[::1]", None));
        assert_eq!(split_at_colon("a:4:b"), ("a", Some("4:b")));
        assert_eq!(split_at_colon("[::1"), ("[::1", None));
        assert_eq!(split_at_colon("[::1]x:4"), ("[::1]x", Some("4")));
    }
}
