//! Jobs that are found again: in the background, listed, told of, followed and stopped.

mod fixture;

use fixture::hosts::Hosts;
use fixture::{Finished, Folder, Running, Watched};

fn run(folder: &Folder, words: &[&str]) -> Finished {
    Finished::new(folder.carole(words).output().unwrap())
}

#[test]
fn a_detached_job_is_found_followed_and_stopped() {
    let folder = Folder::new();
    folder.fifo("go");
    let script = "echo pid $$; [ $RANK = 1 ] || { read line < go; echo went; }; exec sleep 1000";
    let words = [
        "run",
        "-n",
        "2",
        "--detach",
        "--name",
        "bg",
        "--no-collapse",
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = run(&folder, &words);
    assert_eq!(
        (done.code, done.text().trim()),
        (Some(0), "bg"),
        "{}",
        done.stderr
    );
    let list = run(&folder, &["ps", "--output", "json"]);
    let job: serde_json::Value = serde_json::from_str(list.text().trim()).unwrap();
    assert_eq!(
        (&job["name"], &job["state"]),
        (&"bg".into(), &"running".into())
    );
    assert_eq!(job["ranks"].as_array().unwrap().len(), 2);
    let ranks: Vec<Watched> = (0..2)
        .map(|rank| Watched::new(&job["ranks"][rank]["pid"].to_string()))
        .collect();

    // Followed while it goes on; the other stream of lines is a rank's own.
    let mut following = Running::start(folder.carole(&["logs", "-f", "bg"]));
    std::fs::write(folder.path().join("go"), "now\n").unwrap();
    following.stdout_until("0| went");
    let own = run(&folder, &["logs", "bg", "--rank", "1"]);
    assert_eq!(own.text(), format!("pid {}\n", job["ranks"][1]["pid"]));
    let clash = run(&folder, &["run", "--name", "bg", "--", "true"]);
    assert_eq!(clash.code, Some(2), "{}", clash.stderr);
    assert!(clash.stderr.contains("runs already"), "{}", clash.stderr);

    let told = run(&folder, &["status", "bg"]).text();
    assert!(
        told.contains("state    running") && told.contains("rank 1  localhost  process "),
        "{told}"
    );
    let stopped = run(&folder, &["stop", "bg"]);
    assert_eq!(stopped.text().trim(), "bg is stopped", "{}", stopped.stderr);
    for rank in &ranks {
        rank.assert_ends();
    }
    assert_eq!(following.finish().code, Some(0), "it ends with the job");
    assert!(!run(&folder, &["ps"]).text().contains("bg"));
    let all = run(&folder, &["ps", "--all"]).text();
    assert!(all.contains("bg") && all.contains("failed"), "{all}");
    let again = run(&folder, &["stop", "bg"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

#[test]
fn a_detached_job_that_does_not_start_says_why() {
    let folder = Folder::new();
    let done = run(
        &folder,
        &[
            "run",
            "--detach",
            "--setup",
            "echo no compiler >&2; exit 1",
            "--",
            "true",
        ],
    );
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("no compiler"), "{}", done.stderr);
    let done = run(&folder, &["run", "--detach", "--", "no-such-program"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}

#[test]
fn jobs_that_are_not_there_are_named() {
    let folder = Folder::new();
    for words in [
        &["status", "nobody"][..],
        &["logs", "nobody"],
        &["stop", "nobody"],
    ] {
        let done = run(&folder, words);
        assert_eq!(done.code, Some(2), "{}", done.stderr);
        assert!(done.stderr.contains("\"nobody\""), "{}", done.stderr);
    }
    // A job in the foreground is known too, but its output is not kept.
    assert_eq!(
        run(&folder, &["run", "--name", "fore", "--", "true"]).code,
        Some(0)
    );
    let told = run(&folder, &["status", "fore", "--output", "json"]).text();
    let job: serde_json::Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!(
        (&job["state"], &job["end"]["code"]),
        (&"done".into(), &0.into())
    );
    let done = run(&folder, &["logs", "fore"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("not kept"), "{}", done.stderr);
}

#[test]
fn a_program_tells_how_far_it_is() {
    let folder = Folder::new();
    folder.fifo("done");
    let carole = env!("CARGO_BIN_EXE_carole");
    let script = format!(
        "{carole} report step=10 total=40 loss=0.5; echo step=20 > $CAROLE_PROGRESS; \
         read line < done"
    );
    let words = [
        "run", "--detach", "--name", "far", "--", "sh", "-c", &script,
    ];
    let done = run(&folder, &words);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    fixture::eventually("the progress is told", || {
        let told = run(&folder, &["status", "far"]).text();
        told.contains("step 20 of 40 (50 %), loss 0.5")
    });
    std::fs::write(folder.path().join("done"), "now\n").unwrap();
    fixture::eventually("the job ends", || {
        run(&folder, &["status", "far"])
            .text()
            .contains("state    done")
    });
    let wrong = run(&folder, &["report", "step=ten"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert_eq!(
        run(&folder, &["report", "step=1"]).code,
        Some(0),
        "not under carole"
    );
}

/// What tmux answers.
fn tmux(words: &[&str]) -> String {
    let done = std::process::Command::new("tmux").args(words).output();
    String::from_utf8_lossy(&done.unwrap().stdout).into_owned()
}

fn windows(session: &str) -> Vec<String> {
    let session = format!("={session}");
    let list = tmux(&["list-windows", "-t", &session, "-F", "#{window_name}"]);
    list.lines().map(str::to_owned).collect()
}

fn pane(session: &str, rank: usize) -> String {
    let window = format!("={session}:=rank-{rank}");
    tmux(&["capture-pane", "-p", "-t", &window])
}

/// Sessions that are closed at the end, whatever that is.
struct Sessions(Vec<String>);

impl Drop for Sessions {
    fn drop(&mut self) {
        for session in &self.0 {
            tmux(&["kill-session", "-t", &format!("={session}")]);
        }
    }
}

#[test]
fn tmux_has_a_session_for_each_host_with_a_window_for_each_rank() {
    let hosts = Hosts::new(2);
    hosts.folder().fifo("done");
    let job = format!("panes-{}", std::process::id());
    let session = |host| format!("carole-{job}-{}", hosts.address(host)).replace('.', "_");
    let sessions = Sessions((0..2).map(session).collect());
    let script = "echo hello from $RANK; [ $RANK != 0 ] || read line < done";
    let command = ["run", "-n", "3", "--name", &job, "--terminal", "tmux"];
    let mut running =
        Running::start(hosts.carole(&command, &hosts.list(2), &["--", "sh", "-c", script]));
    for (host, session) in sessions.0.iter().enumerate() {
        let host = hosts.address(host);
        running.stderr_until(&format!(
            "tmux attach -t {session} shows the ranks on {host}"
        ));
    }
    let expected = [&["rank-0", "rank-1"][..], &["rank-2"]];
    for (session, expected) in sessions.0.iter().zip(expected) {
        assert_eq!(windows(session), expected);
    }
    fixture::eventually("each shows its rank", || {
        (0..3).all(|rank| {
            let pane = pane(&sessions.0[rank / 2], rank);
            pane.contains(&format!("hello from {rank}")) && !pane.contains("over")
        })
    });
    std::fs::write(hosts.folder().path().join("done"), "now\n").unwrap();
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.text().is_empty(), "the windows show it");
    fixture::eventually("the last lines stay", || {
        (0..3).all(|rank| {
            let pane = pane(&sessions.0[rank / 2], rank);
            pane.contains("hello") && pane.contains("[the job is over: a key closes this window]")
        })
    });
    for rank in 0..3 {
        let window = format!("={}:=rank-{rank}", sessions.0[rank / 2]);
        tmux(&["send-keys", "-t", &window, "x"]);
    }
    fixture::eventually("a key closes them", || {
        sessions.0.iter().all(|session| windows(session).is_empty())
    });
}

#[test]
fn windows_of_a_job_that_is_started_again_begin_anew() {
    let folder = Folder::new();
    folder.fifo("done");
    let job = format!("again-{}", std::process::id());
    let session = format!("carole-{job}-localhost");
    let sessions = Sessions(vec![session]);
    let run = |script: &str| {
        let words = [
            "run",
            "--name",
            &job,
            "--max-restarts",
            "1",
            "--terminal",
            "tmux",
            "--",
            "sh",
            "-c",
            script,
        ];
        Running::start(folder.carole(&words))
    };
    // A window of an earlier job of the name is in nobody's way.
    assert_eq!(run("echo earlier").finish().code, Some(0));
    let running =
        run("echo start $CAROLE_RESTART; [ $CAROLE_RESTART = 1 ] || exit 5; read line < done");
    fixture::eventually("the second attempt is shown", || {
        pane(&sessions.0[0], 0).contains("start 1")
    });
    assert_eq!(windows(&sessions.0[0]), ["rank-0"]);
    assert!(!pane(&sessions.0[0], 0).contains("earlier"));
    std::fs::write(folder.path().join("done"), "now\n").unwrap();
    assert_eq!(running.finish().code, Some(0));
}

#[test]
fn what_ranks_and_hosts_use_is_told() {
    let folder = Folder::new();
    // The work is a child's, which is in no group of the rank.
    let script = "[ $RANK = 1 ] && exec sleep 100; setsid sh -c 'while :; do :; done'";
    let words = [
        "run", "-n", "2", "--detach", "--name", "busy", "--", "sh", "-c", script,
    ];
    let done = run(&folder, &words);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let job = || {
        let told = run(&folder, &["status", "busy", "--output", "json"]).text();
        serde_json::from_str::<serde_json::Value>(told.trim()).unwrap()
    };
    let usage = |rank: usize, what: &str| job()["ranks"][rank]["usage"][what].as_u64();
    fixture::eventually("the first rank is busy, the other is not", || {
        let percent = |rank| usage(rank, "cpu_percent");
        percent(0).is_some_and(|busy| busy > 50) && percent(1).is_some_and(|idle| idle < 10)
    });
    for rank in 0..2 {
        let memory = usage(rank, "memory").unwrap();
        assert!((100_000..100_000_000).contains(&memory), "{memory}");
    }
    assert!(
        job()["hosts"][0]["traffic"]["received"].is_u64(),
        "{}",
        job()
    );
    let told = run(&folder, &["status", "busy"]).text();
    let rows: Vec<&str> = told
        .lines()
        .skip_while(|line| !line.starts_with("RANK"))
        .collect();
    let title: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(title, ["RANK", "HOST", "STATE", "CPU", "MEM", "PROGRESS"]);
    assert!(rows[1].contains(" %  ") && rows[1].ends_with('B'), "{told}");
    assert!(told.contains("network  localhost: rx "), "{told}");
    assert_eq!(run(&folder, &["stop", "busy"]).code, Some(0));
    assert_eq!(usage(0, "memory"), None, "it uses nothing any more");
}
