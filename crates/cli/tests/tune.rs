//! `carole tune`: what it writes, prints and refuses, and who takes what it wrote.

mod fixture;

use carole_plan::AlgorithmTable;
use fixture::{Finished, Folder, Running};
use rustix::process::Signal;
use serde_json::Value;

fn carole(folder: &Folder, arguments: &[&str]) -> Finished {
    Finished::new(folder.carole(arguments).output().unwrap())
}

/// The names of what is in a folder.
fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn the_table_is_saved_and_bench_and_run_take_it() {
    let folder = Folder::new();
    let finished = carole(
        &folder,
        &["tune", "-n", "2", "--seconds", "0.01", "--rounds", "1"],
    );
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let text = finished.text();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[0][..4], ["ranks", "rule", "old", "new"]);
    assert_eq!(lines[1][..5], ["2", "flat", "32", "KiB", "->"]);
    assert_eq!(lines[2][..5], ["2", "chunk", "256", "KiB", "->"]);
    assert!(text.contains("two-phase ") && text.contains("16 MiB: "));
    let talk: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(talk.len(), 2, "{talk:?}");
    assert!(talk[0].starts_with("measuring 2 ranks, round 1 of 1: about "));
    assert!(talk[1].starts_with("saved carole-table.json; "));

    assert_eq!(names(&folder), ["carole-table.json"]);
    let path = folder.path().join("carole-table.json");
    let table: AlgorithmTable = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    let default = AlgorithmTable::default();
    assert!(table.local.len() >= default.local.len());
    assert_eq!(table.flat_across_bytes, default.flat_across_bytes);

    let arguments = ["bench", "all-reduce", "--sizes", "4", "--seconds", "0.001"];
    let arguments = [&arguments[..], &["--table", "carole-table.json"]].concat();
    let finished = carole(&folder, &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);

    let options = ["--table", "carole-table.json"];
    let finished = folder.run_script(2, &options, "echo $CAROLE_TABLE");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected = [0, 1].map(|rank| format!("{rank}| {}", path.display()));
    assert_eq!(finished.sorted_lines(), expected);
}

#[test]
fn json_has_the_measured_times_and_nothing_need_be_saved() {
    let folder = Folder::new();
    let arguments = ["tune", "-n", "2", "--seconds", "0.001", "--rounds", "1"];
    let arguments = [&arguments[..], &["--save", "-", "--output", "json"]].concat();
    let finished = carole(&folder, &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(folder.is_empty(), "{:?}", names(&folder));
    let object: Value = serde_json::from_str(&finished.text()).unwrap();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(
        (&object["ranks"], &object["crowded"]),
        (&2.into(), &(2 > cores).into())
    );
    assert_eq!(object["old"]["flat_bytes"], 32 << 10);
    assert!(object["new"]["chunk_bytes"].is_u64());
    let times = object["times"].as_array().unwrap();
    let count = |algorithm: &str, bytes: usize| {
        let fits = |time: &&Value| time["algorithm"] == algorithm && time["bytes"] == bytes;
        times.iter().filter(fits).count()
    };
    for bytes in (10..=18).map(|power| 1 << power) {
        assert_eq!(count("flat", bytes), 1, "{bytes}");
        assert!(count("two-phase", bytes) >= 1, "{bytes}");
    }
    for bytes in [1 << 20, 16 << 20] {
        assert_eq!(count("two-phase", bytes), 5, "{bytes}");
    }
    assert!(
        times
            .iter()
            .all(|time| time["median_us"].as_f64() > Some(0.0))
    );
}

#[test]
fn an_interrupt_leaves_the_old_table_and_nothing_else() {
    let folder = Folder::new();
    let path = folder.path().join("table.json");
    std::fs::write(&path, "old").unwrap();
    let mut running = Running::start(folder.carole(&["tune", "-n", "2", "--save", "table.json"]));
    running.stderr_until("measuring 2 ranks");
    running.signal(Signal::INT);
    let finished = running.finish();
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("error: interrupted"),
        "{}",
        finished.stderr
    );
    assert!(finished.stdout.is_empty());
    assert_eq!(names(&folder), ["table.json"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn a_broken_table_is_a_usage_error_that_names_the_field() {
    let folder = Folder::new();
    let mut wrong = AlgorithmTable::default();
    wrong.local[2].chunk_bytes = 1000;
    for (text, problem) in [
        (wrong.to_string(), "local[2].chunk_bytes is 1000"),
        ("{\"local\": []}".to_owned(), "`flat_across_bytes`"),
        ("{\"locals\": []}".to_owned(), "`locals`"),
        (String::new(), "line 1"),
    ] {
        std::fs::write(folder.path().join("table.json"), text).unwrap();
        for arguments in [
            &["bench", "all-reduce", "--table", "table.json"][..],
            &["run", "--table", "table.json", "--", "touch", "started"],
        ] {
            let finished = carole(&folder, arguments);
            assert_eq!(finished.code, Some(2), "{}", finished.stderr);
            let lines: Vec<&str> = finished.stderr.lines().collect();
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert_eq!(lines[0], "error: --table table.json");
            assert!(lines[1].contains(problem), "{lines:?}");
            assert!(lines[2].starts_with("hint: `carole tune`"), "{lines:?}");
        }
    }
    assert_eq!(names(&folder), ["table.json"], "nothing was started");
}

#[test]
fn bad_input_is_one_error_with_a_hint_and_measures_nothing() {
    let folder = Folder::new();
    let many: Vec<String> = (2..=64).map(|ranks| ranks.to_string()).collect();
    for (arguments, error) in [
        (&["-n", "1"][..], "2 to 64 ranks"),
        (&["-n", "2,65"], "'65'"),
        (&["-n", &many.join(",")], "rules, not 1 to 64"),
        (&["--rounds", "0"], "'0'"),
        (&["--seconds", "-1"], "'-1'"),
        (&["--output", "yaml"], "'yaml'"),
        (&["--save", "."], "--save: cannot write ."),
        (&["--save", "no/such/folder"], "no/such/folder"),
    ] {
        let arguments = [&["tune"], arguments].concat();
        let finished = carole(&folder, &arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stdout.is_empty(), "{arguments:?}");
        let lines: Vec<&str> = finished.stderr.lines().collect();
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(error),
            "{lines:?}"
        );
        assert!(lines.last().unwrap().starts_with("hint: "), "{lines:?}");
    }
    assert!(folder.is_empty(), "nothing was started or written");
}

#[test]
fn help_has_an_example() {
    let folder = Folder::new();
    let finished = carole(&folder, &["tune", "--help"]);
    assert_eq!(finished.code, Some(0));
    let text = finished.text();
    for part in [
        "Example:\n  carole tune -n 2,4,8 --save table.json\n",
        "5 % better",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
