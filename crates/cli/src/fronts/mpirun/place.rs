//! Where mpirun's ranks go: hosts, mapping and binding.

use anyhow::anyhow;
use carole_launch::request::{Binding, Ranks};
use carole_plan::HostSpec;

use super::super::flag::Given;
use super::Draft;
use crate::failure::Failure;

/// How many ranks there are, and where.
///
/// A total beside a number for each host only bounds it. Where the hosts can be counted here and the
/// bound says nothing new, it is left out.
pub(super) fn ranks(draft: &Draft, host_file: bool) -> Result<Ranks, Failure> {
    let hosts = draft.hosts.len();
    match (draft.total, draft.per_host) {
        (None, None) if host_file || hosts > 0 => Ok(Ranks::Slots),
        (None, None) => Ok(Ranks::PerCore),
        (Some(total), None) => Ok(Ranks::Total(total)),
        (None, Some(per_host)) => Ok(Ranks::PerHost(per_host)),
        (Some(total), Some(per_host)) if !host_file && total == per_host * hosts.max(1) => {
            Ok(Ranks::PerHost(per_host))
        }
        (Some(total), Some(per_host)) => Err(Failure::usage(anyhow!(
            "{total} ranks in all and {per_host} on every host may not be the same"
        ))
        .with_hint("give one of the numbers")),
    }
}

/// Reads `a:4,b`. A host that is given again gets more slots, here and in further `-H`.
pub(super) fn hosts(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    for part in given.text()?.split(',') {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(anyhow!("{}: {error}", given.name))
                .with_hint("hosts are written as in -H a:4,b:4")
        };
        let spec: HostSpec = part.trim().parse().map_err(|error| wrong(&error))?;
        if spec.public().is_some() {
            return Err(wrong(&format_args!(
                "{part:?} has more than a host and slots"
            )));
        }
        let known = draft
            .hosts
            .iter_mut()
            .find(|known| known.host().eq_ignore_ascii_case(spec.host()));
        match known {
            None => draft.hosts.push(spec),
            Some(known) => {
                let slots = known.slots().checked_add(spec.slots());
                let slots = slots.ok_or_else(|| wrong(&"a host has at most 65535 slots"))?;
                *known = HostSpec::new(known.host(), slots, None).map_err(|error| wrong(&error))?;
            }
        }
    }
    Ok(())
}

/// Reads `slot`, `ppr:N:node`, and either's modifiers, which may stand alone: `:oversubscribe`.
pub(super) fn map_by(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?.to_ascii_lowercase();
    let mut parts = text.split([':', ',']);
    match parts.next() {
        Some("slot" | "") => {}
        Some("ppr") => per_host(draft, given, parts.next(), parts.next())?,
        _ => return Err(unmapped(given)),
    }
    for modifier in parts {
        match modifier {
            "oversubscribe" => draft.request.oversubscribe = true,
            "nooversubscribe" => draft.request.oversubscribe = false,
            _ => return Err(unmapped(given)),
        }
    }
    Ok(())
}

/// Reads `N:node`.
pub(super) fn pattern(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?.to_ascii_lowercase();
    let (number, object) = text.split_once(':').unwrap_or((&text, ""));
    per_host(draft, given, Some(number), Some(object))
}

fn per_host(
    draft: &mut Draft,
    given: &Given,
    number: Option<&str>,
    object: Option<&str>,
) -> Result<(), Failure> {
    let number = number.and_then(|number| number.parse().ok());
    match (number, object) {
        (Some(number), Some("node")) if number > 0 => {
            draft.per_host = Some(number);
            Ok(())
        }
        _ => Err(unmapped(given)),
    }
}

fn unmapped(given: &Given) -> Failure {
    given.refused(
        "Carole's ranks fill the hosts' slots in order",
        "--map-by slot and --map-by ppr:N:node do that",
    )
}

pub(super) fn rank_by(given: &Given) -> Result<(), Failure> {
    match given.text()?.to_ascii_lowercase().as_str() {
        "slot" | "fill" => Ok(()),
        _ => Err(given.refused(
            "Carole's ranks are counted in the order of the slots",
            "leave it out, or write --rank-by slot",
        )),
    }
}

/// Reads `core`, `numa` or `none`. What the modifiers allow, Carole allows anyway.
pub(super) fn bind_to(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?.to_ascii_lowercase();
    let mut parts = text.split(':');
    let object = parts.next();
    let modifiers = parts.all(|it| matches!(it, "overload-allowed" | "if-supported"));
    draft.request.bind = match object {
        Some("core") if modifiers => Binding::Core,
        Some("numa") if modifiers => Binding::Numa,
        Some("none") if modifiers => Binding::None,
        _ => {
            return Err(given.refused(
                "Carole binds to core, numa or none",
                "such as --bind-to numa",
            ));
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use carole_launch::request::{Hosts, Request};

    use super::super::super::testing::{message, request, words};
    use super::super::parse;
    use super::*;

    fn read(line: &str) -> Request {
        request(parse(&words(line), |_| None))
    }

    fn error(line: &str) -> String {
        message(parse(&words(line), |_| None))
    }

    #[test]
    fn hosts_that_are_given_again_have_more_slots() {
        let hosts = |line: &str| match read(line).hosts {
            Hosts::List(hosts) => hosts,
            other => panic!("{other:?}"),
        };
        assert_eq!(hosts("-H a:4,b a"), "a:4,b:1");
        assert_eq!(
            hosts("-host a,b -H a:2,[::1] --host b a"),
            "a:3,b:2,[::1]:1"
        );
        assert_eq!(hosts("-H node,NODE a"), "node:2");
        for (line, reason) in [
            ("-H a:x a", "the number of slots is \"x\""),
            ("-H a,,b a", "the host is \"\""),
            ("-H a:4:b a", "\"a:4:b\" has more than a host and slots"),
            ("-H a:65535,a a", "at most 65535 slots"),
        ] {
            let message = error(line);
            assert!(message.starts_with("error: -H: "), "{message}");
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn mapping_by_slot_and_by_host_is_understood() {
        assert_eq!(read("--map-by slot -n 2 a"), read("-n 2 a"));
        assert!(read("--map-by :OVERSUBSCRIBE -n 2 a").oversubscribe);
        assert!(read("--map-by slot:oversubscribe -n 2 a").oversubscribe);
        assert!(!read("--oversubscribe --map-by slot:nooversubscribe -n 2 a").oversubscribe);
        for line in ["--map-by ppr:2:node", "--ppr 2:node", "-N 2", "-npernode 2"] {
            assert_eq!(
                read(&format!("{line} a")).ranks,
                Ranks::PerHost(2),
                "{line}"
            );
        }
        for line in [
            "node",
            "ppr:2:socket",
            "ppr:x:node",
            "ppr:0:node",
            "slot:pe=2",
            "ppr",
        ] {
            let message = error(&format!("--map-by {line} a"));
            assert!(
                message.starts_with(&format!("error: --map-by {line}: ")),
                "{message}"
            );
        }
        assert!(error("--rank-by node a").contains("--rank-by node: "));
    }

    #[test]
    fn a_total_beside_a_number_for_each_host_must_agree() {
        assert_eq!(read("-np 8 -N 4 -H a,b a").ranks, Ranks::PerHost(4));
        assert_eq!(read("-np 4 -N 4 a").ranks, Ranks::PerHost(4));
        for line in ["-np 6 -N 4 -H a,b a", "-np 8 -N 4 --hostfile f a"] {
            assert!(
                error(line).contains("and 4 on every host may not be the same"),
                "{line}"
            );
        }
    }

    #[test]
    fn binding_is_to_cores_to_numa_nodes_or_off() {
        for (line, expected) in [
            ("--bind-to core", Binding::Core),
            ("--bind-to-core", Binding::Core),
            ("-bind-to numa:overload-allowed", Binding::Numa),
            ("--bind-to core --bind-to none", Binding::None),
            ("--bind-to core --bind-to-none", Binding::None),
            ("", Binding::None),
        ] {
            assert_eq!(read(&format!("{line} a")).bind, expected, "{line}");
        }
        assert!(error("--bind-to socket a").contains("--bind-to socket: Carole binds to core"));
        assert!(error("--bind-to-socket a").contains("--bind-to numa"));
    }
}
