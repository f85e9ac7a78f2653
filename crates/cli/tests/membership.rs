//! Ranks that join through the coordinator of `carole run`.
//!
//! The ranks are this test binary itself: `carole` starts it to run the one test named
//! [`rank_program`], begun in one of the tests, which plays the part that `PART` gives it.

mod fixture;

use std::path::Path;
use std::time::Duration;

use carole_coordinator::{Client, Token};
use carole_plan::{Endpoint, PeerId};
use fixture::{Finished, Folder};

/// Long enough that a test which reaches it has failed.
const FOREVER: Duration = Duration::from_secs(60);

/// The test in which a rank begins.
const ENTRANCE: &str = "all_ranks_get_the_same_membership_in_rank_order";

/// Runs `part` as `size` ranks under `carole run`.
fn run(folder: &Folder, size: usize, options: &[&str], part: &str) -> Finished {
    let binary = std::env::current_exe().unwrap();
    // A rank that looks at how another failed must not be stopped before it has looked.
    let script = format!(
        "trap '' TERM; exec {} --exact {ENTRANCE} --nocapture",
        binary.display()
    );
    let mut command = folder.script(size, options, &script);
    command.env("PART", part);
    Finished::new(command.output().unwrap())
}

#[test]
fn all_ranks_get_the_same_membership_in_rank_order() {
    if std::env::var_os("PART").is_some() {
        return rank_program();
    }
    let folder = Folder::new();
    let finished = run(&folder, 4, &[], "join");
    assert_eq!(
        finished.code,
        Some(0),
        "{}\n{}",
        finished.text(),
        finished.stderr
    );
    for rank in 0..4 {
        let line = format!("{rank}| generation 1: port 9000, port 9001, port 9002, port 9003");
        assert!(finished.text().contains(&line), "{}", finished.text());
    }
}

#[test]
fn the_others_learn_how_a_rank_failed() {
    let folder = Folder::new();
    let finished = run(&folder, 3, &[], "fail");
    assert_eq!(
        finished.code,
        Some(5),
        "{}\n{}",
        finished.text(),
        finished.stderr
    );
    for rank in [0, 2] {
        let line = format!("{rank}| rank 1 exited with code 5 (5)");
        assert!(finished.text().contains(&line), "{}", finished.text());
    }
}

#[test]
fn a_job_whose_ranks_do_not_all_register_is_given_up_naming_them() {
    let folder = Folder::new();
    let options = ["--timeout-start", "100ms", "--grace", "100ms"];
    let finished = run(&folder, 3, &options, "wait");
    assert_eq!(
        finished.code,
        Some(1),
        "{}\n{}",
        finished.text(),
        finished.stderr
    );
    let error = "error: 2 of 3 ranks had not registered 0.1 s after the first did: ranks 1, 2\n";
    assert!(finished.stderr.contains(error), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("hint: --timeout-start"),
        "{}",
        finished.stderr
    );
}

/// A rank's side of the tests above.
fn rank_program() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let rank: usize = variable("CAROLE_RANK").parse().unwrap();
    let peer: PeerId = variable("CAROLE_PEER").parse().unwrap();
    let token = Token::read(Path::new(&variable("CAROLE_TOKEN_FILE"))).unwrap();
    let client = Client::new(&variable("CAROLE_COORDINATOR"), token).unwrap();
    let endpoint = Endpoint {
        addresses: vec![([127, 0, 0, 1], 9000 + rank as u16).into()],
        local: format!("rank-{rank}"),
        machine: "here".into(),
        certificate: None,
    };
    let join = || {
        client.register(&peer, rank, &endpoint).unwrap();
        client.wait_membership(0, FOREVER).unwrap()
    };
    match variable("PART").as_str() {
        "join" => {
            let membership = join();
            assert_eq!(membership.rank_of(&peer), Some(rank));
            let ports: Vec<String> = membership
                .members
                .iter()
                .map(|member| format!("port {}", member.endpoint.addresses[0].port()))
                .collect();
            // One write: the test harness prints to the same stream.
            println!(
                "\ngeneration {}: {}",
                membership.generation,
                ports.join(", ")
            );
            client.leave(&peer).unwrap();
        }
        "fail" => {
            join();
            if rank == 1 {
                std::process::exit(5);
            }
            let lost = client.wait_lost(0, FOREVER).unwrap();
            let code = lost[0].exit_code.unwrap();
            println!("\nrank {} {} ({code})", lost[0].rank, lost[0].reason);
        }
        "wait" if rank == 0 => drop(join()),
        "wait" => drop(client.wait_lost(0, FOREVER)),
        part => panic!("there is no part {part:?}"),
    }
}
