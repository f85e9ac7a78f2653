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
