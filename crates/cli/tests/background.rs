//! Jobs that are found again: in the background, listed, told of, followed and stopped.

mod fixture;

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
        told.contains("state    running") && told.contains("rank 1 on localhost"),
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

#[test]
fn tmux_shows_a_window_for_each_rank() {
    let folder = Folder::new();
    folder.fifo("done");
    let job = format!("panes-{}", std::process::id());
    let script = "echo hello from $RANK; [ $RANK = 1 ] || read line < done";
    let words = [
        "run",
        "-n",
        "2",
        "--name",
        &job,
        "--terminal",
        "tmux",
        "--",
        "sh",
        "-c",
        script,
    ];
    let running = Running::start(folder.carole(&words));
    let session = format!("carole-{job}");
    let tmux = |words: &[&str]| {
        let done = std::process::Command::new("tmux")
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    fixture::eventually("there are two windows", || {
        let list = tmux(&["list-windows", "-t", &session, "-F", "#{window_name}"]);
        list.lines().eq(["rank-0", "rank-1"])
    });
    fixture::eventually("each shows its rank", || {
        (0..2).all(|rank| {
            let pane = tmux(&[
                "capture-pane",
                "-p",
                "-t",
                &format!("{session}:rank-{rank}"),
            ]);
            pane.contains(&format!("hello from {rank}"))
        })
    });
    std::fs::write(folder.path().join("done"), "now\n").unwrap();
    let done = running.finish();
    tmux(&["kill-session", "-t", &session]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.text().is_empty(), "the windows show it");
}
