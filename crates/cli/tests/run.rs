//! `carole run` with shells as ranks: what they see, and what becomes of what they do.

mod fixture;

use std::collections::BTreeMap;

use fixture::{Finished, Folder};

#[test]
fn each_rank_sees_its_place_in_every_systems_variables() {
    let folder = Folder::new();
    let script = "echo $CAROLE_RANK/$CAROLE_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE \
                  $HOROVOD_RANK/$HOROVOD_SIZE $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE \
                  $NUM_WORKERS $CAROLE_JOB $TORCHELASTIC_RUN_ID $MASTER_ADDR";
    let finished = folder.run_script(3, &["--name", "digits"], script);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected: Vec<String> = (0..3)
        .map(|r| format!("{r}| {r}/3 {r}/3 {r}/3 {r}/3 {r}/3 3 digits digits 127.0.0.1"))
        .collect();
    assert_eq!(finished.sorted_lines(), expected);
}

#[test]
fn ranks_share_ports_and_job_but_not_their_peer_ids() {
    let folder = Folder::new();
    let script = "echo $MASTER_PORT $CAROLE_COORDINATOR; echo peer $CAROLE_PEER; echo $TF_CONFIG";
    let finished = folder.run_script(2, &[], script);
    let mut kinds: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for line in finished.text().lines() {
        let (rank, text) = line.split_once("| ").unwrap();
        kinds
            .entry(rank.parse().unwrap())
            .or_default()
            .push(text.to_owned());
    }
    assert_eq!(
        kinds[&0][0], kinds[&1][0],
        "the same master port and coordinator"
    );
    for rank in 0..2 {
        let text = kinds[&rank][1].strip_prefix("peer ").unwrap();
        let peer: carole_plan::PeerId = text.parse().unwrap();
        assert_eq!(
            (peer.host.as_str(), usize::from(peer.slot)),
            ("localhost", rank)
        );
        let config: serde_json::Value = serde_json::from_str(&kinds[&rank][2]).unwrap();
        assert_eq!(config["task"]["index"], rank);
        assert_eq!(config["cluster"]["worker"].as_array().unwrap().len(), 2);
    }
    assert_ne!(kinds[&0][1], kinds[&1][1]);
}

#[test]
fn env_none_adds_caroles_variables_only() {
    let folder = Folder::new();
    let mut command = folder.carole(&["run", "--env", "none", "--", "env"]);
    let path = std::env::var_os("PATH").unwrap();
    command
        .env_clear()
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", folder.path());
    let finished = Finished::new(command.output().unwrap());
    let mut names: Vec<String> = finished
        .text()
        .lines()
        .map(|line| {
            line.trim_start_matches("0| ")
                .split('=')
                .next()
                .unwrap()
                .to_owned()
        })
        .filter(|name| name != "PATH" && name != "XDG_RUNTIME_DIR")
        .collect();
    names.sort();
    let expected = [
        "COORDINATOR",
        "GENERATION",
        "HOST_RANK",
        "JOB",
        "LOCAL_RANK",
        "LOCAL_SIZE",
        "PEER",
        "PROGRESS",
        "RANK",
        "RESTART",
        "ROLE",
        "SIZE",
        "TOKEN_FILE",
    ]
    .map(|name| format!("CAROLE_{name}"));
    assert_eq!(names, expected);
}

#[test]
fn the_token_is_readable_by_its_owner_only_and_gone_afterwards() {
    let folder = Folder::new();
    let script = "stat -c %a \"$CAROLE_TOKEN_FILE\" \"$(dirname \"$CAROLE_TOKEN_FILE\")\"; \
                  wc -c < \"$CAROLE_TOKEN_FILE\"; env | grep -c \"$(cat \"$CAROLE_TOKEN_FILE\")\"";
    let finished = folder.run_script(1, &[], script);
    assert_eq!(
        finished.text(),
        "0| 600\n0| 700\n0| 65\n0| 0\n",
        "{}",
        finished.stderr
    );
    assert!(folder.is_empty(), "nothing stays in the runtime folder");
}

#[test]
fn the_first_failure_decides_and_its_code_is_passed_on() {
    let folder = Folder::new();
    let script = "[ $CAROLE_RANK = 2 ] && { echo before; echo boom >&2; exit 7; }; exec sleep 1000";
    let finished = folder.run_script(4, &[], script);
    assert_eq!(finished.code, Some(7));
    let report = finished
        .stderr
        .split_once("error: ")
        .expect("an error is told")
        .1;
    assert!(
        report.starts_with("rank 2 exited with code 7 after "),
        "{report}"
    );
    assert!(report.contains("last lines of rank 2:\n"), "{report}");
    assert!(report.contains("\n  boom\n"), "{report}");
    assert_eq!(finished.text(), "2| before\n");
}

#[test]
fn a_signal_is_named_and_gives_128_and_its_number() {
    let folder = Folder::new();
    let finished = folder.run_script(1, &[], "kill -SEGV $$");
    assert_eq!(finished.code, Some(139));
    let report = "error: rank 0 exited with signal 11 (SIGSEGV) after ";
    assert!(finished.stderr.contains(report), "{}", finished.stderr);
}

#[test]
fn ranks_that_ignore_the_request_to_end_are_killed_after_the_grace_time() {
    let folder = Folder::new();
    folder.fifo("ready");
    let script = "if [ $CAROLE_RANK = 0 ]; then trap '' TERM; echo > ready; sleep 1000; sleep 1000; \
                  else read line < ready; exit 3; fi";
    let finished = folder.run_script(2, &["--grace", "50ms"], script);
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("not ended after 0.1 s"),
        "{}",
        finished.stderr
    );
}

#[test]
fn bytes_pass_unchanged_and_a_last_line_is_completed() {
    let folder = Folder::new();
    let finished = folder.run_script(1, &[], r"printf 'a\377\000b\n\nlast'");
    assert_eq!(finished.stdout, b"0| a\xff\x00b\n0| \n0| last\n");
}

#[test]
fn output_and_error_stay_apart_and_in_order_within_a_rank() {
    let folder = Folder::new();
    let script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let finished = folder.run_script(3, &[], script);
    assert_eq!(finished.code, Some(0));
    let check = |text: &str, word: &str| {
        for rank in 0..3 {
            let prefix = format!("{rank}| {word} ");
            let numbers: Vec<u32> = text
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix))
                .map(|number| number.parse().unwrap())
                .collect();
            assert_eq!(numbers, (0..500).collect::<Vec<_>>(), "rank {rank} {word}");
        }
    };
    check(&finished.text(), "out");
    check(&finished.stderr, "err");
    assert!(!finished.text().contains("err"));
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_job() {
    let folder = Folder::new();
    let script = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; echo end >&2";
    let mut child = folder.script(1, &[], script).spawn().unwrap();
    drop(child.stdout.take());
    let finished = Finished::new(child.wait_with_output().unwrap());
    assert_eq!(finished.code, Some(0));
    assert!(finished.stderr.contains("0| end\n"), "{}", finished.stderr);
}

#[test]
fn a_wrong_command_line_is_one_error_with_a_hint_and_starts_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("train.py"), "print()").unwrap();
    for (arguments, error, hint) in [
        (
            &["run", "-n", "0", "--", "touch", "started"][..],
            "a job has at least one rank",
            "--help",
        ),
        (
            &["run", "-n", "x", "--", "touch", "started"],
            "from 1 to 65535",
            "--help",
        ),
        (
            &["run", "--colour", "--", "touch", "started"],
            "'--colour'",
            "usage is carole run",
        ),
        (
            &["run", "--grac", "1s", "--", "touch", "started"],
            "'--grac'",
            "'--grace'",
        ),
        (
            &["run", "--grace", "soon", "--", "touch", "started"],
            "\"soon\"",
            "--help",
        ),
        (
            &["run", "--name", "No Good", "--", "touch", "started"],
            "'No Good'",
            "--help",
        ),
        (&["run", "touch", "started"], "touch", "-- touch started"),
        (&["run"], "what to run", "carole run job.yaml"),
        (&["walk"], "'walk'", "usage is carole"),
        (
            &["run", "--", "no-such-program"],
            "\"no-such-program\"",
            "PATH",
        ),
        (&["run", "--", "./nothing"], "\"./nothing\"", "path"),
        (&["run", "--", "train.py"], "\"train.py\"", "./train.py"),
        (
            &["run", "--", "./train.py"],
            "./train.py is not executable",
            "python ./train.py",
        ),
        (
            &["run", "--", "sh -c true"],
            "\"sh -c true\"",
            "separate words",
        ),
        (&["run", "--", "/tmp"], "/tmp is a directory", "program"),
    ] {
        let finished = Finished::new(folder.carole(arguments).output().unwrap());
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
        let lines: Vec<&str> = finished.stderr.lines().collect();
        let [first, second] = lines[..] else {
            panic!("{arguments:?}: {}", finished.stderr)
        };
        assert!(
            first.starts_with("error: ") && first.contains(error),
            "{arguments:?}: {first}"
        );
        assert!(
            second.starts_with("hint: ") && second.contains(hint),
            "{arguments:?}: {second}"
        );
        assert!(finished.stdout.is_empty());
        assert!(
            !folder.path().join("started").exists(),
            "{arguments:?} started something"
        );
    }
}

#[test]
fn a_log_level_that_does_not_exist_is_named() {
    let folder = Folder::new();
    let mut command = folder.carole(&["version"]);
    command.env("CAROLE_LOG_LEVEL", "LOUD");
    let finished = Finished::new(command.output().unwrap());
    assert_eq!(finished.code, Some(2));
    assert!(
        finished.stderr.contains("CAROLE_LOG_LEVEL is \"LOUD\""),
        "{}",
        finished.stderr
    );
}

#[test]
fn at_log_level_error_only_the_ranks_are_heard() {
    let folder = Folder::new();
    for variable in ["CAROLE_LOG_LEVEL", "KUNGFU_CONFIG_LOG_LEVEL"] {
        let mut command = folder.script(2, &[], "echo hello >&2");
        command.env(variable, "ERROR");
        let finished = Finished::new(command.output().unwrap());
        assert_eq!(finished.stderr.lines().count(), 2, "{}", finished.stderr);
    }
}

#[test]
fn version_and_help_are_data() {
    let folder = Folder::new();
    for arguments in [
        &["version"][..],
        &["--version"],
        &["--help"],
        &["run", "--help"],
    ] {
        let finished = Finished::new(folder.carole(arguments).output().unwrap());
        assert_eq!(finished.code, Some(0));
        assert!(finished.stderr.is_empty(), "{}", finished.stderr);
        assert!(finished.text().contains(if arguments[0] == "version" {
            concat!("carole ", env!("CARGO_PKG_VERSION"), "\n")
        } else {
            "carole"
        }));
    }
}

#[test]
fn a_job_that_has_ended_is_not_waited_for() {
    let folder = Folder::new();
    let begin = std::time::Instant::now();
    let finished = folder.run_script(4, &[], "true");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let took = begin.elapsed();
    assert!(took < std::time::Duration::from_secs(1), "it took {took:?}");
}
