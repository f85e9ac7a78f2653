//! Examining hosts before a job.

mod fixture;

use std::process::Command;

use fixture::hosts::{Hosts, files};
use fixture::{Finished, Folder};
use serde_json::Value;

fn finished(mut command: Command) -> Finished {
    Finished::new(command.output().unwrap())
}

/// The findings of `carole doctor --output json`.
fn findings(done: &Finished) -> Vec<Value> {
    let text = done.text();
    let parse = |line| serde_json::from_str(line).expect("one object a line");
    text.lines().map(parse).collect()
}

fn is(finding: &Value, check: &str, host: &str, to: Option<&str>) -> bool {
    finding["check"] == check && finding["host"] == host && finding["to"].as_str() == to
}

/// The verdict and what was seen, of the one finding about this.
fn seen<'a>(all: &'a [Value], check: &str, host: &str, to: Option<&str>) -> (&'a str, &'a str) {
    let mut found = all.iter().filter(|one| is(one, check, host, to));
    let one = found.next().expect("there is such a finding");
    assert!(found.next().is_none(), "only one such finding");
    let text = |field: &str| one[field].as_str().expect("a text");
    (text("verdict"), text("seen"))
}

#[test]
fn this_machine_alone_is_examined_without_hosts() {
    let folder = Folder::new();
    let done = finished(folder.carole(&["doctor"]));
    assert_eq!(done.code, Some(0), "{}{}", done.text(), done.stderr);
    let text = done.text();
    assert!(text.starts_with("VERDICT"), "{text}");
    for check in ["carole", "ports", "shared memory", "cores", "pidfd"] {
        let is_told = |line: &str| line.contains("localhost") && line.contains(check);
        assert!(text.lines().any(is_told), "{check}: {text}");
    }
    assert!(folder.is_empty(), "nothing stays");
}

#[test]
fn hosts_that_are_fine_are_told_so_with_every_pair() {
    let hosts = Hosts::new(2);
    let list = format!("{},localhost", hosts.list(1));
    let done = finished(hosts.carole(&["doctor"], &list, &["--output", "json"]));
    assert_eq!(done.code, Some(0), "{}{}", done.text(), done.stderr);
    let all = findings(&done);
    let (a, b) = (hosts.address(0), hosts.address(1));
    for host in [a, b] {
        for check in ["ssh", "carole", "clock", "shared memory", "ports"] {
            assert_eq!(seen(&all, check, host, None).0, "ok", "{check} {host}");
        }
        let (_, address) = seen(&all, "address", host, None);
        assert!(address.starts_with(host), "{address}");
    }
    for (from, to) in [(a, b), (b, a), (a, "localhost"), ("localhost", b)] {
        let (verdict, what) = seen(&all, "network", from, Some(to));
        assert_ne!(verdict, "bad", "{from} to {to}: {what}");
        let pair = all.iter().find(|one| is(one, "network", from, Some(to)));
        let values = &pair.unwrap()["values"];
        for number in ["round_trip_seconds", "bytes_per_second"] {
            assert!(values[number].as_f64().unwrap() > 0.0, "{what}");
        }
    }
    assert!(files(&hosts.private()).is_empty(), "nothing stays");
}

#[test]
fn a_host_that_cannot_be_reached_is_bad_and_the_others_are_examined() {
    let hosts = Hosts::new(1);
    let list = format!("{},127.0.0.9:1999:1", hosts.list(1));
    let done = finished(hosts.carole(&["doctor"], &list, &["--timeout", "20s"]));
    assert_eq!(done.code, Some(1), "{}{}", done.text(), done.stderr);
    let text = done.text();
    let bad: Vec<&str> = text.lines().filter(|l| l.starts_with("bad")).collect();
    assert_eq!(bad.len(), 1, "{text}");
    for part in [
        "127.0.0.9",
        "ssh",
        "Connection refused",
        "→ does an SSH server run there",
    ] {
        assert!(bad[0].contains(part), "{text}");
    }
    let examined = |line: &str| line.contains(hosts.address(0)) && line.contains("shared memory");
    assert!(text.lines().any(examined), "{text}");
    assert!(done.stderr.contains("checks is bad"), "{}", done.stderr);
}

#[test]
fn two_hosts_that_cannot_connect_are_named() {
    let hosts = Hosts::new(2);
    let (Some(namespace), a, b) = (hosts.namespace(1), hosts.address(0), hosts.address(1)) else {
        eprintln!("SKIPPED: hosts can be kept apart in network namespaces only, which need root");
        return;
    };
    let route = ["-n", namespace, "route", "add", "unreachable", a];
    let cut = Command::new("ip").args(route).status().unwrap();
    assert!(cut.success());
    let list = format!("{},localhost", hosts.list(1));
    let done = finished(hosts.carole(&["doctor"], &list, &["--output", "json"]));
    assert_eq!(done.code, Some(1), "{}{}", done.text(), done.stderr);
    let all = findings(&done);
    let is_bad = |one: &&Value| one["verdict"] == "bad";
    let bad: Vec<&Value> = all.iter().filter(is_bad).collect();
    assert_eq!(bad.len(), 2, "{bad:#?}");
    for (from, to) in [(a, b), (b, a)] {
        let (verdict, what) = seen(&all, "network", from, Some(to));
        assert_eq!(verdict, "bad");
        assert!(
            what.starts_with(&format!("no connection to {to}:")),
            "{what}"
        );
    }
    for host in [a, b] {
        assert_ne!(seen(&all, "network", host, Some("localhost")).0, "bad");
    }
}

#[test]
fn an_interface_that_a_host_does_not_have_is_bad() {
    let folder = Folder::new();
    let words = ["doctor", "--network-interfaces", "nonsense0"];
    let done = finished(folder.carole(&words));
    assert_eq!(done.code, Some(1), "{}{}", done.text(), done.stderr);
    assert!(done.text().contains("nonsense0"), "{}", done.text());
}

#[test]
fn mistakes_on_the_command_line_are_told_first() {
    let folder = Folder::new();
    for words in [&["-H", "a,a"][..], &["--hostfile", "missing"], &["--what"]] {
        let all = [&["doctor"], words].concat();
        let done = finished(folder.carole(&all));
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.stderr);
        assert!(done.text().is_empty(), "{}", done.text());
    }
}
