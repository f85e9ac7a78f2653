//! Job files, and jobs of several roles.

mod fixture;

use std::time::{Duration, Instant};

use fixture::{Finished, Folder};

fn run(folder: &Folder, words: &[&str]) -> Finished {
    Finished::new(folder.carole(words).output().unwrap())
}

fn job(folder: &Folder, spec: &str) -> Finished {
    let text = format!(
        "apiVersion: carole.dev/v1alpha1\nkind: CaroleJob\nmetadata: {{name: digits}}\nspec:\n{spec}"
    );
    std::fs::write(folder.path().join("job.yaml"), text).unwrap();
    run(folder, &["run", "--no-collapse", "job.yaml"])
}

#[test]
fn a_job_file_runs_as_its_command_line_would() {
    let folder = Folder::new();
    let done = job(
        &folder,
        "  strategy: AllReduce
  roles:
    worker:
      replicas: 2
      command: [sh, -c, 'echo $CAROLE_JOB $RANK $WORLD_SIZE $GREETING']
      env: {GREETING: hello}
",
    );
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.sorted_lines(),
        ["0| digits 0 2 hello", "1| digits 1 2 hello"]
    );
}

#[test]
fn parameter_servers_serve_until_the_workers_have_ended() {
    let folder = Folder::new();
    let script = "echo $CAROLE_ROLE $CAROLE_RANK $NUM_WORKERS; \
                  [ $CAROLE_ROLE = worker ] || exec sleep 1000";
    let begin = Instant::now();
    let words = [
        "run",
        "--no-collapse",
        "--ps",
        "1",
        "--workers",
        "2",
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = run(&folder, &words);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(begin.elapsed() < Duration::from_secs(20));
    let expected = [
        "    ps 0| ps 0 2",
        "worker 0| worker 0 2",
        "worker 1| worker 1 2",
    ];
    assert_eq!(done.sorted_lines(), expected);
    let failing = "[ $CAROLE_ROLE = worker ] || exit 4; exec sleep 1000";
    let words = [
        "run",
        "--ps",
        "1",
        "--workers",
        "2",
        "--",
        "sh",
        "-c",
        failing,
    ];
    let done = run(&folder, &words);
    assert_eq!(done.code, Some(4), "{}", done.stderr);
    assert!(
        done.stderr.contains("ps 0 exited with code 4"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_deadline_ends_a_job_and_restarts_follow_failures() {
    let folder = Folder::new();
    let done = run(
        &folder,
        &["run", "--deadline", "300ms", "--", "sleep", "1000"],
    );
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("deadline"), "{}", done.stderr);
    let script =
        "echo start $CAROLE_RESTART of $TORCHELASTIC_MAX_RESTARTS; [ $CAROLE_RESTART = 2 ]";
    let words = [
        "run",
        "--no-collapse",
        "--max-restarts",
        "3",
        "--",
        "sh",
        "-c",
        script,
    ];
    let done = run(&folder, &words);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.text(),
        "0| start 0 of 3\n0| start 1 of 3\n0| start 2 of 3\n"
    );
}

#[test]
fn mistakes_in_a_job_file_are_one_line_with_the_field() {
    let folder = Folder::new();
    for (spec, told) in [
        (
            "  strategy: AllReduce\n  roles: {worker: {replica: 1, command: [a]}}\n",
            "did you mean replicas",
        ),
        (
            "  strategy: AllRedduce\n  roles: {worker: {command: [touch, x]}}\n",
            "AllReduce",
        ),
        (
            "  strategy: AllReduce\n  queue: research\n  roles: {worker: {command: [touch, x]}}\n",
            "spec.queue",
        ),
    ] {
        let done = job(&folder, spec);
        assert_eq!(done.code, Some(2), "{}", done.stderr);
        let first = done.stderr.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("error: job.yaml: ") && first.contains(told),
            "{}",
            done.stderr
        );
        assert!(!folder.path().join("x").exists());
    }
    let done = run(&folder, &["run", "missing.yaml"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let done = run(&folder, &["run", "-n", "3", "job.yaml"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}
