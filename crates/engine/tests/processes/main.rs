//! Ranks that are processes, and die: every survivor's wait ends, at once and with the right name.
//!
//! The test binary runs itself again for each rank; memberships travel over pipes, without a
//! coordinator. All waiting is for events.

mod fleet;
mod orders;
mod rank;

use std::time::{Duration, Instant};

use fleet::{Fleet, RankProcess, processes_of, send_signal};
use orders::{FLEET, Order, Reply, Settings};

/// How soon survivors learn of a death while the dead one's kernel still answers.
const SOON: Duration = Duration::from_secs(1);
/// Lengths that go in one piece and in many.
const LENGTHS: [usize; 2] = [3, 3_000_000];

fn all_reduce(name: &str, length: usize) -> Order {
    Order::AllReduce {
        name: name.into(),
        length,
    }
}

/// Has all ranks but the victim wait in an all-reduce.
fn have_survivors_wait(fleet: &mut Fleet, victim: usize, order: &Order) {
    for (rank, process) in fleet.ranks.iter_mut().enumerate() {
        if rank != victim {
            process.tell(order);
            assert_eq!(process.hear(), Reply::Calling);
        }
    }
}

fn kill_before_all_reduce(settings: Settings) {
    for (length, victim) in LENGTHS.into_iter().zip([2, 0]) {
        let mut fleet = Fleet::form(4, settings);
        have_survivors_wait(&mut fleet, victim, &all_reduce("grad", length));
        let since = Instant::now();
        fleet.ranks[victim].kill();
        fleet.all_lose(victim, since, SOON);
        // So does every later call.
        have_survivors_wait(&mut fleet, victim, &all_reduce("next", length));
        fleet.all_lose(victim, Instant::now(), SOON);
    }
}

fn kill_inside_all_reduce(settings: Settings) {
    for (length, victim) in LENGTHS.into_iter().zip([1, 3]) {
        let mut fleet = Fleet::form(4, settings);
        fleet.tell_all(&Order::AllReduceForEver { length });
        fleet.all_answer(&Reply::Moving);
        let since = Instant::now();
        fleet.ranks[victim].kill();
        fleet.all_lose(victim, since, SOON);
    }
}

#[test]
fn a_rank_killed_before_an_all_reduce_is_named_by_all_others() {
    // The rank processes of all tests are this binary again, begun here.
    if std::env::var_os(FLEET).is_some() {
        return rank::run();
    }
    kill_before_all_reduce(Settings::LOCAL);
}

#[test]
fn a_rank_killed_inside_an_all_reduce_is_named_by_all_others() {
    kill_inside_all_reduce(Settings::LOCAL);
}

#[test]
fn a_rank_killed_before_an_all_reduce_over_tcp_is_named_by_all_others() {
    kill_before_all_reduce(Settings::TCP);
}

#[test]
fn a_rank_killed_inside_an_all_reduce_over_tcp_is_named_by_all_others() {
    kill_inside_all_reduce(Settings::TCP);
}

#[test]
fn a_rank_killed_inside_an_all_reduce_over_tls_is_named_by_all_others() {
    let mut fleet = Fleet::form_tls(3);
    fleet.tell_all(&Order::AllReduceForEver { length: 1_000_000 });
    fleet.all_answer(&Reply::Moving);
    let since = Instant::now();
    fleet.ranks[1].kill();
    fleet.all_lose(1, since, SOON);
}

#[test]
fn started_operations_end_when_a_rank_is_killed() {
    for settings in [Settings::LOCAL, Settings::TCP] {
        let mut fleet = Fleet::form(3, settings);
        let order = Order::StartAllReduce {
            name: "grad".into(),
            length: 100_000,
        };
        have_survivors_wait(&mut fleet, 1, &order);
        let since = Instant::now();
        fleet.ranks[1].kill();
        fleet.all_lose(1, since, SOON);
    }
}

#[test]
fn children_that_hold_a_killed_rank_s_sockets_do_not_hide_its_death() {
    let mut fleet = Fleet::form(4, Settings::LOCAL);
    fleet.ranks[2].tell(&Order::Fork);
    let Reply::Forked(child) = fleet.ranks[2].hear() else {
        panic!("no child")
    };
    have_survivors_wait(&mut fleet, 2, &all_reduce("grad", 1000));
    let since = Instant::now();
    fleet.ranks[2].kill();
    fleet.all_lose(2, since, SOON);
    assert!(
        processes_of(&fleet.name).contains(&child),
        "the child has held the sockets all the time"
    );
    send_signal(child, libc::SIGKILL);
}

#[test]
fn a_stopped_rank_is_lost_when_its_heart_is_silent() {
    let settings = Settings {
        heartbeat: 1.0,
        ..Settings::TCP
    };
    let mut fleet = Fleet::form(3, settings);
    have_survivors_wait(&mut fleet, 1, &all_reduce("grad", 100_000));
    let since = Instant::now();
    fleet.ranks[1].signal(libc::SIGSTOP);
    fleet.all_lose(1, since, Duration::from_secs(1) + SOON);
    assert!(since.elapsed() > Duration::from_millis(500), "not too soon");
    fleet.ranks[1].signal(libc::SIGCONT);
    fleet.ranks[1].kill();
}

#[test]
fn idle_ranks_over_tcp_keep_one_another_alive() {
    let settings = Settings {
        heartbeat: 0.5,
        stall: 2.0,
        ..Settings::TCP
    };
    let mut fleet = Fleet::form(3, settings);
    // Rank 0 waits through several heartbeats, two of which it hears from an idle process.
    fleet.ranks[0].tell(&all_reduce("grad", 10));
    assert_eq!(fleet.ranks[0].hear(), Reply::Calling);
    fleet.ranks[0].read_log(&["waiting 2 s"]);
    for rank in [1, 2] {
        fleet.ranks[rank].tell(&all_reduce("grad", 10));
        assert_eq!(fleet.ranks[rank].hear(), Reply::Calling);
    }
    fleet.all_answer(&Reply::Sum(3.0));
}

#[test]
fn a_stalled_wait_names_who_has_not_come_and_goes_on() {
    for settings in [Settings::LOCAL, Settings::TCP] {
        let settings = Settings {
            stall: 1.0,
            ..settings
        };
        let mut fleet = Fleet::form(4, settings);
        have_survivors_wait(&mut fleet, 3, &all_reduce("grad/17", 10));
        for rank in &mut fleet.ranks[..3] {
            let line = rank.read_log(&["waiting 1 s"]);
            let expected = r#"all_reduce "grad/17": waiting 1 s for rank 3 (host-a:3)"#;
            assert!(line.contains(expected), "{line}");
            assert!(line.contains("WARN"), "{line}");
        }
        // It tells again, and is not impressed otherwise.
        fleet.ranks[0].read_log(&["waiting 2 s for rank 3"]);
        fleet.ranks[3].tell(&all_reduce("grad/17", 10));
        assert_eq!(fleet.ranks[3].hear(), Reply::Calling);
        fleet.all_answer(&Reply::Sum(4.0));
    }
}

#[test]
fn survivors_form_the_next_generation_in_the_same_processes() {
    for settings in [Settings::LOCAL, Settings::TCP] {
        let mut fleet = Fleet::form(3, settings);
        fleet.tell_all(&Order::AllReduceForEver { length: 300_000 });
        fleet.all_answer(&Reply::Moving);
        let since = Instant::now();
        fleet.ranks[1].kill();
        fleet.all_lose(1, since, SOON);
        fleet.ranks.remove(1);
        let mut processes: Vec<i32> = fleet.ranks.iter().map(RankProcess::pid).collect();
        processes.sort_unstable();

        fleet.form_again(settings);
        for length in [1, 1000, 1_000_000] {
            fleet.tell_all(&all_reduce("grad", length));
            fleet.all_answer(&Reply::Calling);
            fleet.all_answer(&Reply::Sum(2.0));
        }
        let mut alive = processes_of(&fleet.name);
        alive.sort_unstable();
        assert_eq!(alive, processes, "nobody restarted");
    }
}

#[test]
fn killed_ranks_leave_nothing_behind() {
    let mut fleet = Fleet::form(4, Settings::LOCAL);
    fleet.tell_all(&Order::AllReduceForEver { length: 1_000_000 });
    fleet.all_answer(&Reply::Moving);
    let sockets = || -> Vec<String> {
        let table = std::fs::read_to_string("/proc/net/unix").expect("the table of sockets");
        let ours = |line: &&str| line.contains(&format!("@carole-{}", &fleet.name[..28]));
        table.lines().filter(ours).map(str::to_owned).collect()
    };
    assert!(sockets().len() >= 4, "the local sockets are found");
    assert_eq!(
        processes_of(&fleet.name).len(),
        4,
        "the processes are found"
    );
    let segments = || std::fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let before = segments();
    for rank in &mut fleet.ranks {
        rank.kill();
    }
    for rank in &mut fleet.ranks {
        rank.reap();
    }
    assert_eq!(sockets(), Vec::<String>::new());
    assert_eq!(processes_of(&fleet.name), Vec::<i32>::new());
    assert!(segments() <= before);
    let carole = std::fs::read_dir("/dev/shm").into_iter().flatten();
    let named = carole.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let named: Vec<String> = named.filter(|name| name.contains("carole")).collect();
    assert_eq!(named, Vec::<String>::new());
}
