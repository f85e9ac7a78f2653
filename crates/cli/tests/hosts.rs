//! Jobs on hosts that are reached by SSH.

mod fixture;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use fixture::hosts::{Hosts, files};
use fixture::{Finished, Running, Watched};
use rustix::process::Signal;

fn finished(mut command: Command) -> Finished {
    Finished::new(command.output().unwrap())
}

#[test]
fn ranks_on_two_hosts_find_their_places_and_each_other() {
    let hosts = Hosts::new(2);
    let list = hosts.list(2);
    let script = "echo $RANK $LOCAL_RANK $GROUP_RANK $MASTER_ADDR $CAROLE_ADDRESS $GREETING; pwd";
    let options = [
        "-x",
        "GREETING=hello",
        "--workdir",
        "/",
        "--",
        "sh",
        "-c",
        script,
    ];
    let run = || finished(hosts.carole(&["run", "--no-collapse"], &list, &options));
    let done = run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let (a, b) = (hosts.address(0), hosts.address(1));
    let mut expected = Vec::new();
    for (rank, host, local) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)] {
        let own = if host == 0 { a } else { b };
        expected.push(format!(
            "{rank}@{own}| {rank} {local} {host} {a} {own} hello"
        ));
        expected.push(format!("{rank}@{own}| /"));
    }
    expected.sort();
    assert_eq!(done.sorted_lines(), expected, "{}", done.stderr);

    // The binary was sent once, and is used again.
    let binaries = files(&hosts.cache().join("carole"));
    assert_eq!(binaries.len(), 1, "{binaries:?}");
    let sent = std::fs::metadata(&binaries[0]).unwrap().modified().unwrap();
    assert_eq!(run().code, Some(0));
    let now = std::fs::metadata(&binaries[0]).unwrap().modified().unwrap();
    assert_eq!(sent, now);
    assert!(files(&hosts.private()).is_empty(), "no token stays");

    // And they reduce together, over the network between them.
    let sizes = ["--sizes", "4,1MiB", "--seconds", "0.02", "--output", "json"];
    let done = finished(hosts.carole(&["bench", "all-reduce"], &list, &sizes));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = done.text();
    assert_eq!(text.matches("\"check\":true").count(), 2, "{text}");
    assert_eq!(text.matches("\"ranks\":4").count(), 2, "{text}");
}

#[test]
fn the_first_failure_is_told_with_its_host_and_ends_the_others() {
    let hosts = Hosts::new(2);
    let script = "echo pid $$; if [ $RANK = 2 ]; then sleep 0.3; echo boo >&2; kill -SEGV $$; fi; \
                  sleep 1000";
    let mut running = Running::start(hosts.carole(
        &["run", "--no-collapse"],
        &hosts.list(2),
        &["--workdir", "/", "--", "sh", "-c", script],
    ));
    let pids = running.read_from_each_rank(4, "pid ");
    let ranks: Vec<Watched> = pids.iter().map(|pid| Watched::new(pid)).collect();
    let done = running.finish();
    assert_eq!(done.code, Some(139), "{}", done.stderr);
    let expected = format!(
        "rank 2 on {} exited with signal 11 (SIGSEGV) after",
        hosts.address(1)
    );
    assert!(done.stderr.contains(&expected), "{}", done.stderr);
    assert!(done.stderr.contains("boo"), "{}", done.stderr);
    for rank in &ranks {
        rank.assert_ends();
    }
    assert!(files(&hosts.private()).is_empty(), "no token stays");
}

#[test]
fn nothing_is_left_on_hosts_when_the_launcher_or_a_connection_is_killed() {
    let hosts = Hosts::new(2);
    let script = "daemon=$(setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!'); \
                  echo pids $$ $daemon; sleep 1000";
    let options = ["--workdir", "/", "--", "sh", "-c", script];
    for victim in ["launcher", "connection"] {
        let mut running =
            Running::start(hosts.carole(&["run", "--no-collapse"], &hosts.list(1), &options));
        let pids = running.read_from_each_rank(2, "pids ");
        let processes: Vec<Watched> = pids
            .iter()
            .flat_map(|pids| pids.split(' '))
            .map(Watched::new)
            .collect();
        assert_eq!(processes.len(), 4);
        let connection = running.child_named("ssh");
        match victim {
            "launcher" => running.signal(Signal::KILL),
            _ => connection.kill(),
        }
        for process in &processes {
            process.assert_ends();
        }
        let done = running.finish();
        if victim == "connection" {
            assert_eq!(done.code, Some(1), "{}", done.stderr);
            assert!(done.stderr.contains("lost "), "{}", done.stderr);
        }
        fixture::eventually("no token stays", || files(&hosts.private()).is_empty());
    }
}

#[test]
fn hosts_that_cannot_take_part_are_named_and_nothing_runs() {
    let hosts = Hosts::new(1);
    let good = hosts.list(1);
    let program = ["--timeout-start", "5s", "--", "touch", "ran"];
    let refused = |done: &Finished, host: &str, problem: &str, hint: &str| {
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        let line = done
            .stderr
            .lines()
            .find(|line| line.contains(&format!("{host}: ")));
        assert!(
            line.is_some_and(|line| line.contains(problem)),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains(hint), "{}", done.stderr);
        assert!(!hosts.folder().path().join("ran").exists());
    };
    let nobody = format!("{good},127.0.0.9:1999:1");
    let done = finished(hosts.carole(&["run"], &nobody, &program));
    refused(
        &done,
        "127.0.0.9",
        "Connection refused",
        "does an SSH server run there",
    );
    let done = finished(hosts.carole_as("stranger", &["run"], &good, &program));
    refused(
        &done,
        hosts.address(0),
        "Permission denied",
        "is your key there",
    );
    let unknown = format!("{good},no-such-host.invalid");
    let done = finished(hosts.carole(&["run"], &unknown, &program));
    refused(
        &done,
        "no-such-host.invalid",
        "resolve hostname",
        "spelled right",
    );
    let missing = ["--workdir", "/no/such/folder", "--", "true"];
    let done = finished(hosts.carole(&["run"], &good, &missing));
    refused(&done, hosts.address(0), "/no/such/folder", "No such file");
    let absent = ["--workdir", "/", "--", "no-such-program"];
    let done = finished(hosts.carole(&["run"], &good, &absent));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let named = format!("rank 0 on {}: \"no-such-program\"", hosts.address(0));
    assert!(done.stderr.contains(&named), "{}", done.stderr);
}

#[test]
fn a_host_of_another_processor_and_one_without_room_are_named() {
    let hosts = Hosts::apart(3);
    let other = hosts.home(0).join("bin/uname");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "#!/bin/sh\necho Linux riscv64\n").unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
    let cache = hosts.home(1).join(".cache");
    let cache = cache.to_str().unwrap();
    // Only root can make a disk that is full.
    let full = hosts.namespace(1).is_some();
    if full {
        fs::create_dir_all(cache).unwrap();
        let mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", cache];
        assert!(hosts.inside(1, &mount).status().unwrap().success());
    }
    let program = ["--workdir", "/", "--", "true"];
    let done = finished(hosts.carole(&["run"], &hosts.list(1), &program));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let told = |host: usize, problem: &str| {
        let line = format!("{}: {problem}", hosts.address(host));
        assert!(done.stderr.contains(&line), "{line}: {}", done.stderr);
    };
    let own = std::env::consts::ARCH;
    told(
        0,
        &format!("it is a Linux riscv64 machine, and this carole is for Linux {own}"),
    );
    if full {
        told(
            1,
            "head: error writing 'standard output': No space left on device",
        );
        let hint = "hint: the home folder there is full; XDG_CACHE_HOME can name another place";
        assert!(done.stderr.contains(hint), "{}", done.stderr);
        let left = finished(hosts.inside(1, &["find", cache, "-type", "f"]));
        assert_eq!((left.code, left.text().as_str()), (Some(0), ""));
    }
    assert!(
        !done.stderr.contains(&format!("{}: ", hosts.address(2))),
        "{}",
        done.stderr
    );
    assert!(files(&hosts.private()).is_empty(), "no token stays");
}

#[test]
fn a_setup_command_runs_once_a_host_and_its_failure_is_told() {
    let hosts = Hosts::new(2);
    let folder = hosts.folder().path().to_str().unwrap().to_owned();
    let list = hosts.list(2);
    let count = "echo $CAROLE_TEST_HOST >> setups";
    let options = [
        "--workdir",
        &folder,
        "--setup",
        count,
        "--",
        "cat",
        "setups",
    ];
    let done = finished(hosts.carole(&["run", "--no-collapse"], &list, &options));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = fs::read_to_string(hosts.folder().path().join("setups")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    let bad = [
        "--workdir",
        "/",
        "--setup",
        "echo cannot build >&2; exit 7",
        "--",
        "true",
    ];
    let done = finished(hosts.carole(&["run"], &list, &bad));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(
        done.stderr.matches("cannot build").count(),
        2,
        "{}",
        done.stderr
    );
}

#[test]
fn mistakes_in_host_lists_are_told_before_anything_starts() {
    let folder = fixture::Folder::new();
    for (words, told) in [
        (&["-H", "a,a"][..], "a"),
        (&["-H", "a:x"], "\"x\""),
        (&["-H", "a:2", "-n", "3"], "3"),
        (&["--hostfile", "missing"], "missing"),
        (&["-H", "a", "--hostfile", "b"], "--hostfile"),
        (
            &["-H", "a", "-n", "1", "--nproc-per-node", "1"],
            "--nproc-per-node",
        ),
        (&["--hosts-from", "slurm"], "SLURM_JOB_NODELIST"),
    ] {
        let mut command = vec!["run"];
        command.extend(words);
        command.extend(["--", "true"]);
        let done = finished(folder.carole(&command));
        done.is_refused_with(told);
    }
}
