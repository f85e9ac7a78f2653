//! `carole run` when it is told to stop, and when it is not told but killed.

mod fixture;

use fixture::{Folder, Running, Watched};
use rustix::process::Signal;

/// A job of two ranks, each with a child and with a daemon that has left everything behind.
fn with_daemons(folder: &Folder) -> (Running, Vec<Watched>) {
    let script = "sleep 1000 & daemon=$(setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'); \
                  echo processes $! $$ $daemon; wait";
    let mut running = Running::start(folder.script(2, &[], script));
    let lines = running.read_from_each_rank(2, "processes ");
    let processes: Vec<Watched> = lines
        .iter()
        .flat_map(|line| line.split(' '))
        .map(Watched::new)
        .collect();
    assert_eq!(processes.len(), 6);
    assert!(!folder.is_empty(), "the token is there while the job runs");
    (running, processes)
}

#[test]
fn nothing_is_left_behind_when_the_launcher_is_killed() {
    let folder = Folder::new();
    let (running, processes) = with_daemons(&folder);
    let (guard, agent) = running.guard_and_agent();
    running.signal(Signal::KILL);
    for process in processes.iter().chain([&agent, &guard]) {
        process.assert_ends();
    }
    assert!(folder.is_empty(), "the token is gone");
    assert_eq!(running.finish().code, None, "it was killed");
}

#[test]
fn nothing_is_left_behind_when_the_agent_is_killed() {
    let folder = Folder::new();
    let (running, processes) = with_daemons(&folder);
    let (guard, agent) = running.guard_and_agent();
    agent.kill();
    for process in processes.iter().chain([&guard]) {
        process.assert_ends();
    }
    assert!(folder.is_empty(), "the token is gone");
    let finished = running.finish();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("lost localhost"),
        "{}",
        finished.stderr
    );
}

#[test]
fn nothing_is_left_behind_when_the_guard_is_killed() {
    let folder = Folder::new();
    let (running, processes) = with_daemons(&folder);
    let (guard, agent) = running.guard_and_agent();
    guard.kill();
    for process in processes.iter().chain([&agent]) {
        process.assert_ends();
    }
    assert!(folder.is_empty(), "the token is gone");
    let finished = running.finish();
    assert_ne!(finished.code, Some(0), "{}", finished.stderr);
}

#[test]
fn daemons_of_ranks_that_ended_well_do_not_stay() {
    let folder = Folder::new();
    let script = "echo daemon $(setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!')";
    let mut running = Running::start(folder.script(1, &[], script));
    let daemon = Watched::new(&running.read_from_each_rank(1, "daemon ")[0]);
    let finished = running.finish();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    daemon.assert_ends();
}

#[test]
fn nothing_is_left_behind_when_a_rank_fails_and_others_have_children() {
    let folder = Folder::new();
    folder.fifo("ready");
    let script = "sleep 1000 & echo child $!; \
                  if [ $CAROLE_RANK = 0 ]; then read line < ready; kill -KILL $$; fi; \
                  echo > ready; wait";
    let mut running = Running::start(folder.script(2, &[], script));
    let ids = running.read_from_each_rank(2, "child ");
    let children: Vec<Watched> = ids.iter().map(|id| Watched::new(id)).collect();
    let finished = running.finish();
    assert_eq!(finished.code, Some(137), "{}", finished.stderr);
    for child in &children {
        child.assert_ends();
    }
}

#[test]
fn a_child_that_outlives_its_rank_does_not_hold_up_the_job() {
    let folder = Folder::new();
    let mut running = Running::start(folder.script(1, &[], "sleep 1000 & echo child $!"));
    let child = Watched::new(&running.read_from_each_rank(1, "child ")[0]);
    let finished = running.finish();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    child.assert_ends();
}

#[test]
fn the_first_interrupt_lets_ranks_end_in_their_own_way() {
    let folder = Folder::new();
    let script = "trap 'echo draining; kill $child; exit 0' TERM; sleep 1000 & child=$!; \
                  echo ready; wait";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut running = Running::start(folder.script(2, &[], script));
        running.read_from_each_rank(2, "ready");
        running.signal(signal);
        running.read_from_each_rank(2, "draining");
        let finished = running.finish();
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        assert!(folder.is_empty());
    }
}

#[test]
fn the_second_interrupt_kills() {
    let folder = Folder::new();
    let script = "trap '' TERM; echo ready $$; sleep 1000; sleep 1000";
    let mut running = Running::start(folder.script(2, &["--grace", "1h"], script));
    let processes: Vec<Watched> = running
        .read_from_each_rank(2, "ready ")
        .iter()
        .map(|id| Watched::new(id))
        .collect();
    running.signal(Signal::INT);
    running.stderr_until("interrupted; once more kills");
    running.signal(Signal::INT);
    for process in &processes {
        process.assert_ends();
    }
    let finished = running.finish();
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    assert!(folder.is_empty());
}

#[test]
fn a_hang_up_that_the_launcher_was_started_to_ignore_stays_ignored() {
    let folder = Folder::new();
    let fifo = folder.fifo("go");
    let script = "echo ready; read line < go; echo done";
    let command = folder.script_under(&["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"], script);
    let mut running = Running::start(command);
    running.read_from_each_rank(1, "ready");
    running.signal(Signal::HUP);
    std::fs::write(&fifo, "\n").unwrap();
    let finished = running.finish();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.text(), "0| done\n");
}
