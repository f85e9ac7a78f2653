//! Commands that go to hosts over plain SSH: `carole exec` and `carole goto`.

mod fixture;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use fixture::hosts::Hosts;
use fixture::{Finished, Folder, Running, Watched};
use rustix::process::Signal;

fn finished(mut command: Command) -> Finished {
    Finished::new(command.output().unwrap())
}

/// What a host's heading and output look like, without the time.
fn blocks(done: &Finished) -> Vec<String> {
    let text = done.text();
    let mut blocks: Vec<String> = text
        .split("== ")
        .skip(1)
        .map(|block| {
            let (heading, rest) = block.split_once('\n').unwrap();
            let (ending, time) = heading.rsplit_once(", ").unwrap();
            assert!(time.ends_with(" s"), "{heading}");
            format!("{ending}\n{rest}")
        })
        .collect();
    blocks.sort();
    blocks
}

#[test]
fn a_command_runs_once_on_every_host_with_its_words_as_given() {
    let hosts = Hosts::new(2);
    let (a, b) = (hosts.address(0).to_owned(), hosts.address(1).to_owned());
    let list = format!("{},localhost", hosts.list(4));
    let odd = "it's $HOME `x` \\n \"q\" * ! \n two";
    let script = "printf '%s|' \"$@\"; echo \"$CAROLE_TEST_HOST\"; echo talk >&2";
    let options = ["--", "sh", "-c", script, "name", odd, "", "-x"];
    let done = finished(hosts.carole(&["exec"], &list, &options));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let mut expected: Vec<String> = [(&*a, &*a), (&*b, &*b), ("localhost", "")]
        .map(|(host, own)| format!("{host}: exited with code 0\n{odd}||-x|{own}\n"))
        .into();
    expected.sort();
    assert_eq!(blocks(&done), expected);
    for host in [&*a, &*b, "localhost"] {
        assert!(
            done.stderr.contains(&format!("{host}| talk\n")),
            "{}",
            done.stderr
        );
    }
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
}

#[test]
fn variables_are_the_host_s_own() {
    let hosts = Hosts::new(1);
    let options = ["--", "sh", "-c", "echo $HOME"];
    let done = finished(hosts.carole(&["exec"], &hosts.list(1), &options));
    let home = hosts.home(0);
    let expected = format!(
        "{}: exited with code 0\n{}\n",
        hosts.address(0),
        home.display()
    );
    assert_eq!(blocks(&done), [expected]);
}

#[test]
fn the_first_host_that_failed_gives_the_code() {
    let hosts = Hosts::new(2);
    let list = hosts.list(1);
    let (a, b) = (hosts.address(0), hosts.address(1));
    // The first in the list is the last to end.
    let script = format!("[ $CAROLE_TEST_HOST = {b} ] && exit 255; sleep 0.3; kill -KILL $$");
    let done = finished(hosts.carole(&["exec"], &list, &["--", "sh", "-c", &script]));
    assert_eq!(done.code, Some(137), "{}", done.stderr);
    let expected = format!(
        "error: it failed on 2 of 2 hosts\n  {a}: exited with signal 9 (SIGKILL)\n  {b}: exited with code 255\n"
    );
    assert!(done.stderr.ends_with(&expected), "{}", done.stderr);

    let done = finished(hosts.carole(&["exec"], &list, &["--", "no such program"]));
    assert_eq!(done.code, Some(127), "{}", done.stderr);
    assert!(done.stderr.contains("-- sh -c 'TEXT'"), "{}", done.stderr);
}

#[test]
fn a_program_reads_one_object_a_host() {
    let hosts = Hosts::new(1);
    let list = format!("{},127.0.0.9:1999:1", hosts.list(1));
    let script = "echo out; echo err >&2; head -c 6000000 /dev/zero | tr '\\0' x; exit 7";
    let options = ["--output", "json", "--", "sh", "-c", script];
    let done = finished(hosts.carole(&["exec"], &list, &options));
    assert_eq!(done.code, Some(7), "{}", done.stderr);
    let mut lines = done.sorted_lines();
    assert_eq!(lines.len(), 2);
    lines.sort_by_key(|line| line.contains("127.0.0.9"));
    let line = &lines[0];
    let begin = format!(
        "{{\"host\":\"{}\",\"code\":7,\"seconds\":",
        hosts.address(0)
    );
    assert!(line.starts_with(&begin), "{}", &line[..200]);
    assert!(line.contains("\"stdout\":\"out\\nxxx"), "{}", &line[..200]);
    let rest = &line[line.len() - 200..];
    assert!(rest.contains("\"stderr\":\"err\\n\""), "{rest}");
    let bytes = 6_000_004 - (4 << 20);
    let cut = format!("\"stdout_cut\":{{\"at\":2097152,\"bytes\":{bytes}}}");
    assert!(rest.contains(&cut), "{rest}");
    assert!(line.len() < 5 << 20, "{}", line.len());
    let line = &lines[1];
    assert!(
        line.contains("\"error\":\"ssh: connect to host 127.0.0.9"),
        "{line}"
    );
    assert!(
        line.contains("\"hint\":\"does an SSH server run there"),
        "{line}"
    );
}

#[test]
fn a_host_that_cannot_be_reached_is_told_with_what_ssh_said() {
    let hosts = Hosts::new(1);
    let list = format!("127.0.0.9:1999:1,{}", hosts.list(1));
    let done = finished(hosts.carole(&["exec"], &list, &["--", "echo", "there"]));
    assert_eq!(done.code, Some(255), "{}", done.stderr);
    assert!(done.text().contains("\nthere\n"), "{}", done.text());
    let expected = "error: it failed on 1 of 2 hosts\n  127.0.0.9: ssh: connect to host 127.0.0.9 \
                    port 1999: Connection refused\n    hint: does an SSH server run there";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
    let done = finished(hosts.carole_as("stranger", &["exec"], &hosts.list(1), &["--", "true"]));
    assert_eq!(done.code, Some(255), "{}", done.stderr);
    assert!(done.stderr.contains("Permission denied"), "{}", done.stderr);
    assert!(done.stderr.contains("is your key there"), "{}", done.stderr);
}

/// A command that tells its process and a child of it in a file for each host, and then waits.
fn waiting(hosts: &Hosts) -> String {
    let folder = hosts.folder().path().display();
    format!(
        "sleep 1000 & echo $$ $! > {folder}/$CAROLE_TEST_HOST.new; \
         mv {folder}/$CAROLE_TEST_HOST.new {folder}/$CAROLE_TEST_HOST.pids; wait"
    )
}

/// The processes that [`waiting`] told of, the files removed.
fn processes(hosts: &Hosts, count: usize) -> Vec<Watched> {
    let mut found = Vec::new();
    for index in 0..count {
        let file = format!("{}.pids", hosts.address(index));
        let file = hosts.folder().path().join(file);
        fixture::eventually("the command starts", || file.exists());
        let text = fs::read_to_string(&file).unwrap();
        found.extend(text.split_whitespace().map(Watched::new));
        fs::remove_file(file).unwrap();
    }
    assert_eq!(found.len(), 2 * count);
    found
}

#[test]
fn nothing_is_left_on_hosts_by_an_interrupt_or_a_kill() {
    let hosts = Hosts::new(2);
    let script = waiting(&hosts);
    for victim in ["interrupted", "killed", "connection"] {
        let command = hosts.carole(&["exec"], &hosts.list(1), &["--", "sh", "-c", &script]);
        let running = Running::start(command);
        let processes = processes(&hosts, 2);
        match victim {
            "interrupted" => running.signal(Signal::INT),
            "killed" => running.signal(Signal::KILL),
            _ => {
                for (index, connection) in running.children_named("ssh").iter().enumerate() {
                    connection.kill();
                    // Its own command ends, and no other.
                    let ended = || processes.iter().filter(|one| one.has_ended()).count();
                    fixture::eventually("a command ends", || ended() == 2 * (index + 1));
                }
            }
        }
        let begin = Instant::now();
        for process in &processes {
            process.assert_ends();
        }
        let done = running.finish();
        match victim {
            "interrupted" => {
                assert_eq!(done.code, Some(130), "{}", done.stderr);
                assert!(
                    done.stderr.ends_with("error: interrupted\n"),
                    "{}",
                    done.stderr
                );
                // What ends when it is asked to is not waited for any longer.
                assert!(begin.elapsed() < Duration::from_secs(7));
            }
            "connection" => {
                assert_eq!(done.code, Some(255), "{}", done.stderr);
                assert!(
                    done.stderr.contains("lost before the command ended"),
                    "{}",
                    done.stderr
                );
            }
            _ => {}
        }
    }
}

#[test]
fn a_command_that_will_not_end_is_killed() {
    let hosts = Hosts::new(1);
    let script = format!("trap '' TERM; {}", waiting(&hosts));
    let options = ["--", "sh", "-c", &script];
    let running = Running::start(hosts.carole(&["exec"], &hosts.list(1), &options));
    let processes = processes(&hosts, 1);
    running.signal(Signal::TERM);
    for process in &processes {
        process.assert_ends();
    }
    let done = running.finish();
    assert_eq!(done.code, Some(143), "{}", done.stderr);
}

#[test]
fn a_host_that_does_not_answer_delays_nobody_and_can_be_interrupted() {
    let folder = Folder::new();
    // Accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let list = format!("me@127.0.0.1:{port}:1,localhost");
    let limited = [
        "exec",
        "-H",
        &list,
        "--timeout",
        "5s",
        "--",
        "echo",
        "there",
    ];
    let done = finished(folder.carole(&limited));
    assert_eq!(done.code, Some(124), "{}", done.stderr);
    assert!(done.text().contains("\nthere\n"), "{}", done.text());
    assert!(
        done.stderr.contains("127.0.0.1: no answer after 5.0 s"),
        "{}",
        done.stderr
    );
    let endless = ["exec", "-H", &list, "--", "echo", "there"];
    let mut running = Running::start(folder.carole(&endless));
    running.stdout_until("there");
    let begin = Instant::now();
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    // Connecting alone may take 30 s.
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_is_wrong_is_told_before_anything_runs() {
    let folder = Folder::new();
    for (words, told) in [
        (&["exec", "--", "true"][..], "no hosts were given"),
        (&["exec", "-H", "a"], "required"),
        (&["exec", "-H", "a,a", "--", "true"], "a"),
        (
            &["exec", "-H", "a", "--timeout", "x", "--", "true"],
            "\"x\"",
        ),
        (&["goto"], "required"),
        (&["goto", "5"], "rank 5 of which hosts?"),
        (&["goto", "worker", "0"], "worker 0 of which hosts?"),
        (
            &["goto", "-H", "a:4,b:4", "8"],
            "no rank 8: the ranks are 0 to 7",
        ),
        (&["goto", "-H", "a:4,b:4", "c"], "no host \"c\""),
        (
            &["goto", "-H", "a:4,b:4", "chief", "0"],
            "no role \"chief\"",
        ),
        (&["goto", "a,b"], "more than one host"),
        (&["goto", "b", "ls"], "an index is a number"),
        (&["repo", "checkout", "main"], "no hosts were given"),
        (&["repo", "update", "a;b", "-H", "a"], "';'"),
        (&["repo", "update", "../x", "-H", "a"], "no branch's name"),
    ] {
        let done = finished(folder.carole(words));
        done.is_refused_with(told);
    }
}

#[test]
fn going_to_a_rank_goes_to_its_host() {
    let hosts = Hosts::new(2);
    let odd = "it's \\ $HOME !";
    let script = "echo \"$CAROLE_TEST_HOST $1\"; exit 3";
    for (target, host) in [
        (&["5"][..], 1),
        (&["worker", "0"], 0),
        (&[hosts.address(1)], 1),
    ] {
        let command: Vec<&str> = ["goto"].iter().chain(target).copied().collect();
        let rest = ["--", "sh", "-c", script, "name", odd];
        let done = finished(hosts.carole(&command, &hosts.list(4), &rest));
        assert_eq!(done.code, Some(3), "{}", done.stderr);
        assert_eq!(done.text(), format!("{} {odd}\n", hosts.address(host)));
    }
    let mut here = hosts.carole(&["goto", "0"], "localhost", &["--", "echo", odd]);
    let done = Finished::new(here.output().unwrap());
    assert_eq!(done.text(), format!("{odd}\n"));
    let done = finished({
        here = hosts.carole(&["goto", "localhost"], "localhost", &[]);
        here.env("SHELL", "/bin/pwd");
        here
    });
    assert_eq!(done.text().trim(), hosts.folder().path().to_str().unwrap());
}

#[test]
fn going_to_a_job_s_rank_needs_no_list_and_ends_in_its_folder() {
    let hosts = Hosts::new(2);
    let work = hosts.folder().path().join("the job's work");
    fs::create_dir(&work).unwrap();
    let start = |name: &str| {
        let work = work.to_str().unwrap();
        let command = ["run", "--detach", "--name", name, "--workdir", work];
        let rest = ["--", "sleep", "100"];
        let done = finished(hosts.carole(&command, &hosts.list(2), &rest));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    };
    let goto = |words: &[&str], rest: &[&str]| {
        let words = [&["goto"], words, rest].concat();
        hosts.folder().carole(&words)
    };
    start("one");
    let tell = [
        "--",
        "sh",
        "-c",
        "echo \"$CAROLE_TEST_HOST $PWD $1\"; exit 3",
        "sh",
        "it's",
    ];
    for (target, host) in [
        (&["--job", "one", "worker", "0"][..], 0),
        (&["--job", "one", "3"], 1),
        (&["2"], 1),
        (&[hosts.address(1)], 1),
    ] {
        let done = finished(goto(target, &tell));
        assert_eq!(done.code, Some(3), "{target:?}: {}", done.stderr);
        let expected = format!("{} {} it's\n", hosts.address(host), work.display());
        assert_eq!(done.text(), expected, "{target:?}");
    }
    // A shell, which has no terminal here.
    let input = hosts.folder().path().join("input");
    fs::write(&input, "echo on-$CAROLE_TEST_HOST in-$PWD; exit 4\n").unwrap();
    let mut shell = goto(&["worker", "2"], &[]);
    shell.stdin(fs::File::open(&input).unwrap());
    let done = finished(shell);
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    let expected = format!("on-{} in-{}", hosts.address(1), work.display());
    assert!(done.text().contains(&expected), "{}", done.text());

    start("two");
    for (words, told) in [
        (&["0"][..], "rank 0 of which job?"),
        (&["--job", "one", "4"], "no rank 4: the ranks are 0 to 3"),
        (&["--job", "one", "elsewhere"], "no host \"elsewhere\""),
        (&["--job", "three", "0"], "no job \"three\""),
        (&["--job", "one", "-H", "a", "0"], "cannot be used with"),
    ] {
        let done = finished(goto(words, &[]));
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains(told), "{}", done.stderr);
    }
    for job in ["one", "two"] {
        let done = finished(hosts.folder().carole(&["stop", job]));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
}

#[test]
fn a_person_at_a_terminal_gets_one_on_the_host() {
    let hosts = Hosts::new(1);
    let plain = hosts.carole(&["goto", "0"], &hosts.list(1), &[]);
    let words = std::iter::once(plain.get_program()).chain(plain.get_args());
    let line: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let input = hosts.folder().path().join("input");
    fs::write(&input, "tty; echo on-$CAROLE_TEST_HOST; exit 4\n").unwrap();
    let mut command = Command::new("script");
    command
        .args(["-q", "-e", "-c", &line.join(" "), "/dev/null"])
        .stdin(fs::File::open(&input).unwrap());
    let done = finished(command);
    assert_eq!(done.code, Some(4), "{}", done.text());
    let text = done.text();
    assert!(text.contains("/dev/pts/"), "{text}");
    assert!(text.contains(&format!("on-{}", hosts.address(0))), "{text}");
}
