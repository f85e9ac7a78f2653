//! `carole run --sync`: a folder is sent to hosts, and ranks start in it.

mod fixture;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::hosts::{Hosts, files};
use fixture::{Finished, Folder, Running};
use rustix::process::Signal;

fn finished(mut command: Command) -> Finished {
    Finished::new(command.output().unwrap())
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A folder with a program in it, and with something that is ignored.
fn code(folder: &Folder) -> PathBuf {
    let code = folder.path().join("code");
    for (path, text) in [
        (".git/config", ""),
        (".gitignore", "*.log\n"),
        ("noise.log", "noise"),
        ("lib/words", "one"),
        (
            "train.sh",
            "#!/bin/sh\necho $PWD $(cat link) $(ls -A | tr '\\n' ' ')",
        ),
        ("empty/.gitignore", ""),
    ] {
        write(&code, path, text);
    }
    fs::set_permissions(code.join("train.sh"), Permissions::from_mode(0o755)).unwrap();
    symlink("lib/words", code.join("link")).unwrap();
    code
}

/// Where the folder is on a host.
fn sent_to(hosts: &Hosts, index: usize) -> PathBuf {
    let all = files(&hosts.home(index).join(".cache/carole/sync"));
    let mut folders = all.into_iter().filter(|path| path.is_dir());
    let folder = folders.next().expect("a folder was sent");
    assert!(folders.next().is_none());
    folder
}

#[test]
fn a_folder_is_sent_once_and_then_what_changed() {
    let hosts = Hosts::apart(2);
    let code = code(hosts.folder());
    let run = |told: &str| {
        let setup = [
            "--sync",
            "code",
            "--setup",
            "echo $PWD > made",
            "--",
            "./train.sh",
        ];
        let done = finished(hosts.carole(&["run", "--no-collapse"], &hosts.list(1), &setup));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let told = format!("folder sent hosts=2 {told}");
        assert!(done.stderr.contains(&told), "{told}: {}", done.stderr);
        done.sorted_lines()
    };
    // What each rank prints, in the order of the hosts.
    let lines = |word: &str, names: &str| -> Vec<String> {
        let line = |rank: usize| {
            let (host, folder) = (hosts.address(rank), sent_to(&hosts, rank));
            format!("{rank}@{host}| {} {word} {names}", folder.display())
        };
        vec![line(0), line(1)]
    };
    let names = ".gitignore empty lib link made train.sh";
    let printed = run("files=4 sent=8 ");
    assert_eq!(printed, lines("one", names));
    assert_eq!(run("files=4 sent=0 bytes=0 removed=0"), lines("one", names));
    for index in 0..2 {
        let folder = sent_to(&hosts, index);
        let made = fs::read_to_string(folder.join("made")).unwrap();
        assert_eq!(Path::new(made.trim()), folder, "the setup ran there");
        let link = fs::read_link(folder.join("link")).unwrap();
        assert_eq!(link, Path::new("lib/words"));
        let mode = |path| {
            fs::metadata(folder.join(path))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("train.sh") & 0o777, 0o755);
        assert_eq!(mode("lib/words") & 0o777, 0o644);
    }

    // A changed file alone, though it is as long as it was.
    write(&code, "lib/words", "two");
    assert_eq!(run("files=4 sent=2 bytes=6 removed=0"), lines("two", names));
    // What is gone here goes there, and what was made there stays.
    fs::remove_dir_all(code.join("empty")).unwrap();
    let names = ".gitignore lib link made train.sh";
    assert_eq!(run("files=3 sent=0 bytes=0 removed=2"), lines("two", names));
    // A new file, which is larger than a piece and than a pipe.
    write(&code, "data", &"x".repeat(3_000_000));
    run("files=4 sent=2 bytes=6000000 removed=0");
    for index in 0..2 {
        let data = sent_to(&hosts, index).join("data");
        assert_eq!(fs::metadata(data).unwrap().len(), 3_000_000);
    }
}

#[test]
fn going_to_a_rank_ends_in_the_folder_that_was_sent() {
    let hosts = Hosts::apart(2);
    code(hosts.folder());
    let start = ["run", "--detach", "--name", "sent"];
    let rest = ["--sync", "code", "--", "sleep", "100"];
    let done = finished(hosts.carole(&start, &hosts.list(1), &rest));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let done = finished(hosts.folder().carole(&["goto", "1", "--", "pwd"]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(Path::new(done.text().trim()), sent_to(&hosts, 1));
    let done = finished(hosts.folder().carole(&["stop", "sent"]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

#[test]
fn this_host_uses_the_folder_itself_and_hosts_that_share_a_home_get_it_once() {
    let hosts = Hosts::new(2);
    let code = code(hosts.folder());
    let list = format!("{},localhost:1", hosts.list(1));
    let options = ["--sync", "code", "--", "pwd"];
    let done = finished(hosts.carole(&["run", "--no-collapse", "--no-prefix"], &list, &options));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let told = "folder sent hosts=2 files=4 sent=4 ";
    assert!(done.stderr.contains(told), "{}", done.stderr);
    let all = files(&hosts.cache().join("carole/sync"));
    let there = all.iter().find(|path| path.is_dir()).unwrap();
    let mut expected = [&code, there, there].map(|path| path.display().to_string());
    expected.sort();
    assert_eq!(done.sorted_lines(), expected);

    let mut command = hosts
        .folder()
        .carole(&["run", "--sync", "code", "--", "./train.sh"]);
    let done = Finished::new(command.output().unwrap());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.text().contains("noise.log"), "{}", done.text());
    assert!(!done.stderr.contains("folder sent"), "{}", done.stderr);
}

#[test]
fn a_host_that_cannot_take_the_folder_is_named_and_nothing_runs() {
    let hosts = Hosts::apart(2);
    code(hosts.folder());
    let ran = hosts.folder().path().join("ran");
    let run = |program: &[&str]| {
        let options = [&["--sync", "code", "--"], program].concat();
        finished(hosts.carole(&["run"], &hosts.list(1), &options))
    };
    assert_eq!(run(&["true"]).code, Some(0));
    let words = sent_to(&hosts, 1).join("lib/words");
    fs::remove_file(&words).unwrap();
    write(&words, "result", "made there");
    let done = run(&["touch", ran.to_str().unwrap()]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let told = format!(
        "error: 1 host cannot take part; nothing was left running\n  {}: {} should be a file",
        hosts.address(1),
        words.display()
    );
    assert!(done.stderr.contains(&told), "{}", done.stderr);
    assert!(!ran.exists());
    assert!(files(&hosts.private()).is_empty(), "no token stays");
}

#[test]
fn a_sending_that_waits_is_interrupted() {
    let hosts = Hosts::apart(1);
    code(hosts.folder());
    let command = || hosts.carole(&["run"], &hosts.list(1), &["--sync", "code", "--", "true"]);
    assert_eq!(finished(command()).code, Some(0));
    let mut lock = sent_to(&hosts, 0).into_os_string();
    lock.push(".lock");
    let lock = File::open(lock).unwrap();
    lock.lock().unwrap();
    let mut waiting = command();
    waiting.env("CAROLE_LOG_LEVEL", "DEBUG");
    let mut running = Running::start(waiting);
    running.stderr_until("the folder is listed");
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    assert!(!done.stderr.contains("ranks started"), "{}", done.stderr);
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    let folder = Folder::new();
    let code = code(&folder);
    symlink("../../elsewhere", code.join("lib/outside")).unwrap();
    let job = "apiVersion: carole.dev/v1alpha1\nkind: CaroleJob\nmetadata: {name: x}\nspec: \
               {strategy: AllReduce, roles: {worker: {replicas: 1, command: [x], workdir: /}}}\n";
    write(folder.path(), "job.yaml", job);
    let link = code.join("lib/outside").display().to_string();
    for (words, told) in [
        (&["--sync", "code", "--", "true"][..], link.as_str()),
        (&["--sync", "missing", "--", "true"], "--sync missing"),
        (&["--sync", "job.yaml", "--", "true"], "is no folder"),
        (
            &["--sync", "code", "--workdir", "/", "--", "true"],
            "--sync and a folder to start in",
        ),
        (
            &["--sync", "code", "job.yaml"],
            "--sync and a folder to start in",
        ),
        (&["--sync", "code", "--mpi", "--", "true"], "--sync and MPI"),
    ] {
        let command = [&["run", "-H", "no-such-host.invalid"], words].concat();
        let done = finished(folder.carole(&command));
        done.is_refused_with(told);
    }
}
