//! What a person sees of what ranks print, and what is kept.

mod fixture;

use std::time::{Duration, Instant};

use fixture::{Finished, Folder, Running, eventually};

fn run(folder: &Folder, words: &[&str]) -> Finished {
    Finished::new(folder.carole(words).output().unwrap())
}

#[test]
fn lines_that_many_ranks_print_become_one() {
    let folder = Folder::new();
    let script = "echo loading data; sleep 0.5; echo $RANK is ready";
    let done = run(&folder, &["run", "-n", "3", "--", "sh", "-c", script]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let expected = [
        "0| 0 is ready",
        "1| 1 is ready",
        "2| 2 is ready",
        "ranks 0-2| loading data",
    ];
    assert_eq!(done.sorted_lines(), expected);
    let plain = [
        "run",
        "-n",
        "2",
        "--no-prefix",
        "--no-collapse",
        "--",
        "echo",
        "hi",
    ];
    assert_eq!(run(&folder, &plain).text(), "hi\nhi\n");
}

#[test]
fn log_files_hold_what_each_rank_printed_and_nothing_else() {
    let folder = Folder::new();
    let script = "printf \"out $RANK\\npart\"; echo err $RANK >&2";
    let words = |terminal| {
        [
            "run",
            "-n",
            "2",
            "--log-dir",
            "logs/a",
            "--terminal",
            terminal,
            "--",
            "sh",
            "-c",
            script,
        ]
    };
    let done = run(&folder, &words("files"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(done.text(), "");
    let file =
        |name: &str| std::fs::read_to_string(folder.path().join("logs/a").join(name)).unwrap();
    for rank in 0..2 {
        assert_eq!(
            file(&format!("rank-{rank}.stdout")),
            format!("out {rank}\npart")
        );
        assert_eq!(
            file(&format!("rank-{rank}.stderr")),
            format!("err {rank}\n")
        );
    }
    let done = run(&folder, &words("current"));
    assert!(done.text().contains("out 1"), "{}", done.text());
    let bad = ["run", "--log-dir", "/proc/nothing", "--", "true"];
    let done = run(&folder, &bad);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("/proc/nothing"), "{}", done.stderr);
}

#[test]
fn a_python_exception_is_pulled_out_of_the_last_lines() {
    let folder = Folder::new();
    let script = "def step():\n    raise ValueError('bad shape')\nstep()\n";
    std::fs::write(folder.path().join("train.py"), script).unwrap();
    let done = run(&folder, &["run", "-n", "2", "--", "python3", "train.py"]);
    assert_eq!(done.code, Some(1));
    let told = done
        .stderr
        .lines()
        .find(|line| line.starts_with("error: rank "));
    let told = told.unwrap_or_else(|| panic!("{}", done.stderr));
    assert!(told.contains("ValueError: bad shape"), "{told}");
    assert!(told.contains("train.py\", line 2, in step"), "{told}");
}

#[test]
fn a_terminal_that_does_not_read_stalls_nobody() {
    let folder = Folder::new();
    // More than all pipes and the memory for output hold.
    let script = "head -c 40000000 /dev/zero | tr '\\0' x | fold -w 99; touch done-$RANK";
    let begin = Instant::now();
    let running = Running::start(folder.script(2, &[], script));
    eventually("the ranks end although nobody reads", || {
        (0..2).all(|rank| folder.path().join(format!("done-{rank}")).exists())
    });
    assert!(begin.elapsed() < Duration::from_secs(30));
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = done.text();
    for rank in 0..2 {
        let prefix = format!("{rank}| ");
        let bytes: usize = text
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .map(str::len)
            .sum();
        assert_eq!(bytes, 40_000_000, "everything is there in the end");
    }
}

#[test]
fn quiet_shows_the_ranks_and_how_the_job_failed() {
    let folder = Folder::new();
    let talk = "echo out; echo err >&2";
    let words = ["run", "--quiet", "--no-prefix", "--", "sh", "-c", talk];
    let mut command = folder.carole(&words);
    // What a person says now wins over what is usual.
    command.env("CAROLE_LOG_LEVEL", "DEBUG");
    let done = Finished::new(command.output().unwrap());
    assert_eq!(
        (done.text().as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
    let fail = "[ $RANK = 1 ] && exit 3; sleep 100";
    let done = run(&folder, &["kungfu-run", "-q", "-np", "2", "sh", "-c", fail]);
    assert_eq!(done.code, Some(3));
    let report = "error: rank 1 exited with code 3 ";
    assert!(done.stderr.starts_with(report), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    let done = run(&folder, &["horovodrun", "--verbose", "-np", "1", "true"]);
    assert!(done.stderr.contains("DEBUG"), "{}", done.stderr);
}

#[test]
fn torchruns_files_go_to_a_new_folder_where_none_is_named() {
    let folder = Folder::new();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let script = "echo out $RANK; echo err $RANK >&2";
    let words = |flags: &[&'static str]| {
        let front = ["torchrun", "--nproc-per-node", "2", "--rdzv-id", "digits"];
        let program = ["--no-python", "sh", "-c", script];
        [&front[..], flags, &program[..]].concat()
    };
    let start = |flags: &[&'static str]| {
        let mut command = folder.carole(&words(flags));
        command.env("TMPDIR", &temporary);
        Finished::new(command.output().unwrap())
    };
    let done = start(&[
        "--redirects",
        "2",
        "--tee",
        "0:1",
        "--local-ranks-filter",
        "1",
    ]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    // Rank 0 is filtered, and errors go to files only.
    assert_eq!(done.text(), "1| out 1\n", "{}", done.stderr);
    assert!(!done.stderr.contains("err "), "{}", done.stderr);
    let folders: Vec<_> = std::fs::read_dir(&temporary)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("digits-")
        })
        .collect();
    let [kept] = &folders[..] else {
        panic!("{folders:?}: {}", done.stderr)
    };
    assert!(
        done.stderr.contains(kept.to_str().unwrap()),
        "{}",
        done.stderr
    );
    let file = |name: &str| std::fs::read_to_string(kept.join(name)).ok();
    assert_eq!(file("rank-0.stdout").as_deref(), Some("out 0\n"));
    assert_eq!(file("rank-1.stderr").as_deref(), Some("err 1\n"));
    assert_eq!(file("rank-1.stdout"), None);
}

#[test]
fn other_launchers_flags_are_told() {
    let folder = Folder::new();
    for words in [
        ["torchrun", "--help"],
        ["mpirun", "-h"],
        ["horovodrun", "--help"],
        ["kungfu-run", "-h"],
    ] {
        let done = run(&folder, &words);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(done.stderr.is_empty(), "{}", done.stderr);
        let usage = format!("Usage: carole {} [FLAGS] PROGRAM", words[0]);
        assert!(done.text().contains(&usage), "{}", done.text());
        assert!(
            done.text().contains("\n          prints this\n"),
            "{}",
            done.text()
        );
    }
}
