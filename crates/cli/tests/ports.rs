//! `carole run --ports`: whoever listens does so in the range.
//!
//! The ranks of one test are this test binary itself, as in `membership.rs`.

mod fixture;

use std::path::Path;
use std::time::Duration;

use carole_coordinator::{Client, Token};
use carole_plan::PortRange;
use carole_worker::Worker;
use fixture::hosts::Hosts;
use fixture::{Finished, Folder};

/// The test in which a rank begins.
const ENTRANCE: &str = "ranks_and_their_frameworks_listen_in_the_range";

/// A range below the ports that the kernel gives out by itself, and not every run's.
fn range(offset: u32, ports: u32) -> PortRange {
    let first = 12000 + std::process::id() % 100 * 100 + offset;
    format!("{first}-{}", first + ports - 1).parse().unwrap()
}

#[test]
fn ranks_and_their_frameworks_listen_in_the_range() {
    if std::env::var_os("CAROLE_RANK").is_some() {
        return rank_program();
    }
    let folder = Folder::new();
    let range = range(0, 40);
    let binary = std::env::current_exe().unwrap();
    let script = format!("exec {} --exact {ENTRANCE} --nocapture", binary.display());
    // By another launcher's flag, which comes to the same.
    let words = [
        "kungfu-run",
        "-np",
        "3",
        "-port-range",
        &range.to_string(),
        "sh",
        "-c",
        &script,
    ];
    let done = Finished::new(folder.carole(&words).output().unwrap());
    assert_eq!(done.code, Some(0), "{}\n{}", done.text(), done.stderr);
    let text = done.text();
    let line = text.lines().find_map(|line| line.split_once("ports: "));
    let ports: Vec<u16> = line
        .unwrap_or_else(|| panic!("{text}"))
        .1
        .split_whitespace()
        .map(|port| port.parse().unwrap())
        .collect();
    // Three for data, three in TF_CONFIG, and the master's.
    assert_eq!(ports.len(), 7, "{text}");
    assert!(ports.iter().all(|port| range.contains(*port)), "{text}");
    let mut different = ports.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), ports.len(), "{text}");
}

/// A rank: all of them listen while rank 0 tells where.
fn rank_program() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let worker = Worker::join().unwrap();
    let token = Token::read(Path::new(&variable("CAROLE_TOKEN_FILE"))).unwrap();
    let client = Client::new(&variable("CAROLE_COORDINATOR"), token).unwrap();
    let membership = client.wait_membership(0, Duration::from_secs(30)).unwrap();
    let data = membership.members.iter();
    let mut ports: Vec<String> = data
        .map(|member| member.endpoint.addresses[0].port().to_string())
        .collect();
    let config = variable("TF_CONFIG");
    let frameworks = config.split('"').filter_map(|word| word.split_once(':'));
    ports.extend(
        frameworks
            .filter_map(|(_, port)| port.parse::<u16>().ok())
            .map(|p| p.to_string()),
    );
    ports.push(variable("MASTER_PORT"));
    if worker.rank() == 0 {
        println!("\nports: {}", ports.join(" "));
    }
    worker.world().call().barrier().unwrap();
}

#[test]
fn every_host_takes_ports_of_the_range_or_says_that_it_is_too_narrow() {
    let hosts = Hosts::new(2);
    let run = |range: PortRange, slots: usize| {
        let script = "echo $CAROLE_PORTS $MASTER_PORT";
        let range = range.to_string();
        let words = ["--ports", &range, "--no-prefix", "--", "sh", "-c", script];
        let list = hosts.list(slots);
        let mut command = hosts.carole(&["run", "--no-collapse"], &list, &words);
        Finished::new(command.output().unwrap())
    };
    let wide = range(50, 40);
    let done = run(wide, 2);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.text().lines().count(), 4, "{}", done.text());
    for line in done.text().lines() {
        let (own, master) = line.split_once(' ').unwrap();
        let own: PortRange = own.parse().unwrap();
        assert_eq!(own.count(), 1, "{line}");
        let own = own.starting_at(0).next().unwrap();
        assert!(wide.contains(own), "{line}");
        assert!(wide.contains(master.parse().unwrap()), "{line}");
    }
    // Three ranks need six ports, and the first host two more.
    let narrow = range(50, 4);
    let done = run(narrow, 3);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    for (host, needed) in [(0, 8), (1, 6)] {
        let host = hosts.address(host);
        let told = format!("  {host}: {needed} ports of {narrow} are needed, and ");
        assert!(done.stderr.contains(&told), "{}", done.stderr);
    }
    assert!(done.stderr.contains("(--ports)"), "{}", done.stderr);
}

#[test]
fn what_is_no_range_is_a_mistake_on_the_command_line() {
    let folder = Folder::new();
    let run = |words: &[&str]| Finished::new(folder.carole(words).output().unwrap());
    for bad in ["10100-10000", "10000", "0-5", "many"] {
        let done = run(&["run", "--ports", bad, "--", "true"]);
        assert_eq!(done.code, Some(2), "{}", done.stderr);
        let told = format!("\"{bad}\" is no range of ports");
        assert!(done.stderr.contains(&told), "{}", done.stderr);
    }
    let done = run(&["run", "--mpi", "--ports", "10000-10100", "--", "true"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("under --mpi"), "{}", done.stderr);
    let done = run(&["kungfu-run", "-port-range", "9-1", "true"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}
