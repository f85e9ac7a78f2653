//! Findings from made-up facts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::findings::{Finding, Health};
use super::host::{self, Clock, Subject, Use};
use super::network::{self, Pair};
use crate::channel::examination::{
    Cores, Devices, Examined, Features, Folder, Limits, Memory, Ports, Probed,
};
use crate::error::HostProblem;

const GIB: u64 = 1 << 30;
const OWN: &str = env!("CARGO_PKG_VERSION");

/// A host on which nothing is wrong.
fn healthy() -> Examined {
    let folder = |path: &str| Folder {
        path: path.to_owned(),
        free: Ok(100 * GIB),
        writable: true,
    };
    Examined {
        architecture: "x86_64".into(),
        kernel: "6.8.0".into(),
        model: Some("Some CPU".into()),
        address: Ok(address(2)),
        launcher: Some(address(1)),
        interfaces: vec![("eth0".into(), address(2))],
        ports: Ports {
            bound: Ok(8),
            range: Some((32768, 60999)),
        },
        shared_memory: Ok(64 << 20),
        limits: Limits {
            open_files: Some(65536),
            ..Limits::default()
        },
        cache: folder("/home/ann/.cache/carole"),
        temporary: folder("/tmp"),
        cores: Cores {
            online: 16,
            allowed: 16,
            quota: None,
        },
        memory: Memory {
            total: 64 * GIB,
            available: 60 * GIB,
            limit: None,
            left: None,
        },
        devices: Devices {
            gpus: 0,
            on_bus: 0,
            cuda: false,
            nccl: false,
            infiniband: false,
        },
        features: Features {
            membarrier: Ok(()),
            pidfd: Ok(()),
            futex: Ok(()),
        },
    }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn subject(purpose: Use) -> Subject<'static> {
    Subject {
        host: "a",
        remote: true,
        purpose,
    }
}

fn found(seen: &Examined) -> Vec<Finding> {
    host::of_host(&subject(Use::Ranks), OWN, seen, None)
}

/// Changes a healthy host and looks at what one check says.
fn check(name: &str, change: impl FnOnce(&mut Examined)) -> Finding {
    let mut seen = healthy();
    change(&mut seen);
    let all = found(&seen);
    for other in all.iter().filter(|finding| finding.check != name) {
        assert_eq!(other.verdict, Health::Ok, "{other:?}");
    }
    let one = all.into_iter().find(|finding| finding.check == name);
    let one = one.expect("the check is made");
    assert!(one.verdict == Health::Ok || one.hint.is_some(), "{one:?}");
    one
}

fn verdict(name: &str, change: impl FnOnce(&mut Examined)) -> Health {
    check(name, change).verdict
}

#[test]
fn nothing_is_wrong_with_a_healthy_host() {
    let all = found(&healthy());
    assert!(all.iter().all(|one| one.verdict == Health::Ok), "{all:#?}");
    let checks: BTreeSet<&str> = all.iter().map(|one| one.check).collect();
    assert_eq!(checks.len(), all.len(), "each check is made once");
}

#[test]
fn another_version_is_bad() {
    let all = host::of_host(&subject(Use::Ranks), "0.0.0-other", &healthy(), None);
    let bad: Vec<_> = all.iter().filter(|f| f.verdict == Health::Bad).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].check, "carole");
}

#[test]
fn a_clock_is_judged_by_what_is_certain() {
    let second = 1_000_000_000;
    let of = |clock| {
        let all = host::of_host(&subject(Use::Ranks), OWN, &healthy(), Some(clock));
        all.into_iter().find(|one| one.check == "clock").unwrap()
    };
    let quick = Duration::from_millis(2);
    let right = Clock::new(50 * second, quick, 50 * second + 1_000_000);
    assert_eq!(right.ahead, 0);
    assert_eq!(of(right).verdict, Health::Ok);
    let behind = of(Clock::new(50 * second, quick, 40 * second));
    assert_eq!(behind.verdict, Health::Warning);
    assert!(behind.seen.contains("10.0 s behind"), "{}", behind.seen);
    // Slow answers leave it open.
    let slow = Clock::new(50 * second, Duration::from_secs(4), 50 * second);
    assert_eq!(slow.ahead, -2 * second as i64);
    assert_eq!(of(slow).verdict, Health::Ok);
}

#[test]
fn limits_are_told_when_they_are_low() {
    let files = |limit| move |seen: &mut Examined| seen.limits.open_files = Some(limit);
    assert_eq!(verdict("open files", files(1024)), Health::Ok);
    assert_eq!(verdict("open files", files(512)), Health::Warning);
    assert_eq!(verdict("open files", files(16)), Health::Bad);
    let room = |room| move |seen: &mut Examined| seen.limits.cgroup_processes = Some(room);
    assert_eq!(verdict("processes", room(100)), Health::Warning);
    assert_eq!(verdict("processes", room(10)), Health::Bad);
    let locked = |seen: &mut Examined| seen.limits.locked_memory = Some(8 << 20);
    assert_eq!(verdict("locked memory", locked), Health::Ok);
    let with_infiniband = |seen: &mut Examined| {
        locked(seen);
        seen.devices.infiniband = true;
    };
    assert_eq!(verdict("locked memory", with_infiniband), Health::Warning);
    let space = |seen: &mut Examined| seen.limits.address_space = Some(GIB);
    assert_eq!(verdict("shared memory", space), Health::Warning);
}

#[test]
fn what_does_not_work_is_bad_and_said_in_the_systems_words() {
    let why = || Err("Operation not permitted".to_owned());
    let ports = check("ports", |seen| seen.ports.bound = why().map(|()| 0));
    let memory = check("shared memory", |seen| {
        seen.shared_memory = why().map(|()| 0);
    });
    let pidfd = check("pidfd", |seen| seen.features.pidfd = why());
    let futex = check("futex", |seen| seen.features.futex = why());
    let address = check("address", |seen| {
        seen.address = Err("no interface eth9".into());
    });
    for one in [&ports, &memory, &pidfd, &futex, &address] {
        assert_eq!(one.verdict, Health::Bad, "{one:?}");
    }
    assert_eq!(ports.seen, "Operation not permitted");
    let lost = check("membarrier", |seen| seen.features.membarrier = why());
    assert_eq!(lost.verdict, Health::Warning);
    assert!(lost.hint.unwrap().contains("slower"));
}

#[test]
fn a_cgroup_that_limits_is_told() {
    let cores = check("cores", |seen| seen.cores.quota = Some(2500));
    assert_eq!(cores.verdict, Health::Warning);
    assert!(cores.seen.contains("2.5"), "{}", cores.seen);
    assert!(cores.hint.unwrap().contains("at most 2"));
    assert_eq!(
        verdict("cores", |seen| seen.cores.quota = Some(32_000)),
        Health::Ok
    );
    let few = check("cores", |seen| seen.cores.allowed = 4);
    assert!(few.seen.starts_with("4 of 16"), "{}", few.seen);
    let memory = check("memory", |seen| {
        seen.memory.limit = Some(2 * GIB);
        seen.memory.left = Some(GIB / 2);
    });
    assert_eq!(memory.verdict, Health::Warning);
    assert_eq!(
        verdict("memory", |seen| seen.memory.available = 1),
        Health::Bad
    );
}

#[test]
fn folders_need_room_and_rights() {
    let cache = |free| move |seen: &mut Examined| seen.cache.free = Ok(free);
    assert_eq!(verdict("cache folder", cache(GIB)), Health::Ok);
    assert_eq!(verdict("cache folder", cache(GIB / 4)), Health::Warning);
    assert_eq!(verdict("cache folder", cache(0)), Health::Bad);
    let closed = check("temporary folder", |seen| seen.temporary.writable = false);
    assert_eq!(closed.verdict, Health::Warning);
    assert!(closed.hint.unwrap().contains("TMPDIR"));
}

#[test]
fn gpus_without_driver_or_library_are_told() {
    let gpus = |gpus, on_bus, cuda, nccl| {
        check("gpus", move |seen| {
            seen.devices = Devices {
                gpus,
                on_bus,
                cuda,
                nccl,
                infiniband: false,
            };
        })
        .verdict
    };
    assert_eq!(gpus(0, 2, false, false), Health::Warning);
    assert_eq!(gpus(2, 2, false, true), Health::Warning);
    assert_eq!(gpus(2, 2, true, false), Health::Ok);
    assert_eq!(gpus(2, 2, true, true), Health::Ok);
}

#[test]
fn a_machine_that_only_launches_is_not_judged_by_what_ranks_need() {
    let mut seen = healthy();
    seen.features.membarrier = Err("no".into());
    seen.memory.available = 0;
    seen.ports.bound = Err("no".into());
    let all = host::of_host(&subject(Use::Launcher), OWN, &seen, None);
    assert!(all.iter().all(|one| one.verdict == Health::Ok), "{all:#?}");
}

#[test]
fn a_host_that_cannot_be_reached_keeps_its_hint() {
    let problem = HostProblem {
        host: "a".into(),
        problem: "Connection refused".into(),
        hint: Some("does an SSH server run there?".into()),
    };
    let finding = host::unreachable(&subject(Use::Ranks), &problem);
    assert_eq!((finding.check, finding.verdict), ("ssh", Health::Bad));
    assert_eq!(finding.seen, "Connection refused");
    assert_eq!(finding.hint, problem.hint);
}

fn of_pair(probed: &Result<Probed, String>) -> Finding {
    let (near, far) = (healthy(), healthy());
    let pair = Pair {
        from: "a",
        to: "b",
        near: &near,
        far: &far,
    };
    network::of_pair(&pair, probed)
}

#[test]
fn a_pair_is_judged_by_its_connection() {
    let probed = |micros: u64, bytes: u64| {
        Ok(Probed {
            from: address(2),
            round_trip_nanos: micros * 1000,
            bytes,
            nanos: 200_000_000,
        })
    };
    let good = of_pair(&probed(80, 220_000_000));
    let expected = "10.0.0.2 (eth0) to 10.0.0.2 (eth0): round trip 80 µs, 1.1 GB/s";
    assert_eq!((good.verdict, good.seen.as_str()), (Health::Ok, expected));
    assert_eq!(good.to.as_deref(), Some("b"));
    assert_eq!(
        of_pair(&probed(20_000, 220_000_000)).verdict,
        Health::Warning
    );
    assert_eq!(of_pair(&probed(80, 1000)).verdict, Health::Warning);
    let closed = of_pair(&Err("no connection to 10.0.0.2:4000: no answer".into()));
    assert_eq!(closed.verdict, Health::Bad);
    assert!(closed.hint.unwrap().contains("32768 to 60999"));
}

#[test]
fn every_host_connects_to_every_other_and_does_one_thing_at_a_time() {
    for count in 0..9 {
        let mut seen = BTreeSet::new();
        for round in network::rounds(count) {
            let mut busy = BTreeSet::new();
            for (from, to) in round {
                assert!(busy.insert(from) && busy.insert(to), "{count}");
                assert!(seen.insert((from, to)), "{count}");
            }
        }
        assert_eq!(seen.len(), count * count.saturating_sub(1), "{count}");
    }
}
