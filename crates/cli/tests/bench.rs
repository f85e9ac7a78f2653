//! `carole bench`: what it measures, prints and refuses.

mod fixture;

use fixture::{Finished, Folder};
use serde_json::Value;

const OPERATIONS: [&str; 11] = [
    "all-reduce",
    "reduce",
    "broadcast",
    "reduce-scatter",
    "all-gather",
    "all-gather-v",
    "gather",
    "scatter",
    "all-to-all",
    "barrier",
    "send-recv",
];

fn bench(folder: &Folder, arguments: &[&str]) -> Finished {
    let arguments: Vec<&str> = ["bench"].iter().chain(arguments).copied().collect();
    Finished::new(folder.carole(&arguments).output().unwrap())
}

/// The objects of a run that must end well.
fn objects(folder: &Folder, arguments: &[&str]) -> Vec<Value> {
    let arguments: Vec<&str> = arguments
        .iter()
        .chain(&["--output", "json"])
        .copied()
        .collect();
    let finished = bench(folder, &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    parse(&finished.text())
}

fn parse(text: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text.lines().map(object).collect()
}

#[test]
fn each_size_gives_one_object_with_its_figures_and_a_checked_result() {
    let folder = Folder::new();
    let arguments = [
        "all-reduce",
        "-n",
        "4",
        "--sizes",
        "4,1KiB,1MiB",
        "--seconds",
        "0.1",
    ];
    let objects = objects(&folder, &arguments);
    let sizes: Vec<u64> = objects
        .iter()
        .map(|o| o["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [4, 1024, 1 << 20]);
    for object in &objects {
        assert_eq!(object["op"], "all-reduce");
        assert_eq!(object["ranks"], 4);
        assert_eq!(object["dtype"], "f32");
        assert_eq!(object["transport"], "shm");
        assert_eq!(object["check"], true);
        assert!(object["algorithm"].is_string() && object["memory"] == "private");
        let figure = |name: &str| object[name].as_f64().unwrap_or_else(|| panic!("{object}"));
        assert!(0.0 < figure("min_us") && figure("min_us") <= figure("median_us"));
        assert!(figure("median_us") <= figure("p90_us"), "{object}");
        assert!(figure("iterations") >= 5.0 && figure("batch") >= 1.0);
        let expected = 1.5 * figure("bytes") / figure("median_us") / 1e3;
        assert!(
            (figure("busbw_gbps") - expected).abs() <= 1e-3 + 0.01 * expected,
            "{object}"
        );
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(object["flag_ns"].is_number(), cores > 1, "{object}");
    }
    assert!(folder.is_empty(), "nothing stays behind");
}

#[test]
fn every_operation_is_right_over_every_transport() {
    let folder = Folder::new();
    for transport in ["shm", "tcp", "memory"] {
        let arguments = [
            "all",
            "-n",
            "3",
            "--sizes",
            "4,20004",
            "--seconds",
            "0.001",
            "--transport",
            transport,
        ];
        let objects = objects(&folder, &arguments);
        let seen: Vec<(&str, u64)> = objects
            .iter()
            .map(|o| (o["op"].as_str().unwrap(), o["bytes"].as_u64().unwrap()))
            .collect();
        let expected: Vec<(&str, u64)> = OPERATIONS
            .iter()
            .flat_map(|op| match *op {
                "barrier" => vec![(*op, 0)],
                op => vec![(op, 4), (op, 20004)],
            })
            .collect();
        assert_eq!(seen, expected);
        for object in objects {
            assert_eq!(object["check"], true, "{object}");
            assert_eq!(object["transport"], transport);
        }
    }
}

#[test]
fn other_types_and_operations_are_checked_too() {
    let folder = Folder::new();
    for (dtype, op) in [
        ("f16", "sum"),
        ("bf16", "average"),
        ("f64", "product"),
        ("u8", "xor"),
        ("i16", "min"),
        ("i64", "average"),
    ] {
        let arguments = [
            "all-reduce",
            "-n",
            "3",
            "--sizes",
            "8,4KiB",
            "--seconds",
            "0.001",
            "--transport",
            "memory",
            "--dtype",
            dtype,
            "--op",
            op,
        ];
        for object in objects(&folder, &arguments) {
            assert_eq!(object["check"], true, "{object}");
            assert_eq!(
                (object["dtype"].as_str(), object["reduction"].as_str()),
                (Some(dtype), Some(op))
            );
        }
    }
}

#[test]
fn several_numbers_of_ranks_are_measured_in_turn_and_one_rank_alone_works() {
    let folder = Folder::new();
    let objects = objects(
        &folder,
        &["all", "-n", "1,2", "--sizes", "64", "--seconds", "0.001"],
    );
    let ranks: Vec<u64> = objects
        .iter()
        .map(|o| o["ranks"].as_u64().unwrap())
        .collect();
    assert_eq!(
        ranks.iter().filter(|ranks| **ranks == 1).count(),
        OPERATIONS.len() - 1
    );
    assert_eq!(
        ranks.iter().filter(|ranks| **ranks == 2).count(),
        OPERATIONS.len()
    );
    assert!(ranks.is_sorted());
}

#[test]
fn lists_are_reduced_in_one_call() {
    let folder = Folder::new();
    for (list, elements) in [("resnet50", 25_557_032_u64), ("bert", 109_482_240)] {
        // Half precision, for the sake of memory.
        let arguments = [
            "all-reduce",
            "-n",
            "2",
            "--list",
            list,
            "--seconds",
            "0.01",
            "--dtype",
            "f16",
        ];
        let objects = objects(&folder, &arguments);
        let [object] = &objects[..] else {
            panic!("{objects:?}")
        };
        assert_eq!(
            (&object["list"], &object["bytes"]),
            (&list.into(), &(2 * elements).into())
        );
        assert_eq!(
            (&object["check"], &object["batch"]),
            (&true.into(), &1.into())
        );
    }
}

#[test]
fn varied_calls_and_shared_memory_are_measured_and_right() {
    let folder = Folder::new();
    for extra in [
        &["--vary"][..],
        &["--memory", "shared"],
        &["--vary", "--memory", "shared"],
    ] {
        let mut arguments = vec![
            "all-reduce",
            "-n",
            "2",
            "--sizes",
            "4,1KiB,300000",
            "--seconds",
            "0.05",
        ];
        arguments.extend(extra);
        for object in objects(&folder, &arguments) {
            assert_eq!(object["check"], true, "{object}");
            assert_eq!(object["vary"], extra.contains(&"--vary"));
            assert_eq!(object["memory"] == "shared", extra.contains(&"shared"));
        }
    }
}

#[test]
fn unchecked_results_say_so() {
    let folder = Folder::new();
    let arguments = [
        "broadcast",
        "--no-check",
        "--sizes",
        "4",
        "--seconds",
        "0.001",
    ];
    let objects = objects(&folder, &arguments);
    assert!(objects[0]["check"].is_null(), "{objects:?}");
}

#[test]
fn a_table_is_for_people_and_a_plot_is_drawn_beside_it() {
    let folder = Folder::new();
    let arguments = [
        "all-gather",
        "-n",
        "2",
        "--sizes",
        "1KiB,64KiB",
        "--seconds",
        "0.001",
        "--plot",
        "out.svg",
    ];
    let finished = bench(&folder, &arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let text = finished.text();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0][..4], ["operation", "ranks", "size", "median"]);
    assert_eq!(lines[2][..4], ["all-gather", "2", "1", "KiB"]);
    assert!(lines[3].ends_with(&["ok"]), "{text}");
    let plot = std::fs::read_to_string(folder.path().join("out.svg")).unwrap();
    assert!(plot.starts_with("<svg ") && plot.ends_with("</svg>\n"));
    assert_eq!(plot.matches("<circle").count(), 4);
    for word in [
        "bus bandwidth",
        "time of one operation",
        "64 KiB",
        "all-gather, 2 ranks",
    ] {
        assert!(plot.contains(word), "{word}");
    }
}

#[test]
fn commands_on_several_hosts_meet_at_rank_0_which_prints() {
    let folder = Folder::new();
    let token = folder.path().join("token");
    std::fs::write(&token, "5a".repeat(32)).unwrap();
    // Free now; nobody else asks for it in the moment until rank 0 does.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let address = format!("127.0.0.1:{port}");
    let start = |rank: &str| {
        let mut command = folder.carole(&[
            "bench",
            "all-reduce",
            "--sizes",
            "4,64KiB",
            "--seconds",
            "0.01",
            "--output",
            "json",
            "--transport",
            "tcp",
            "--rank",
            rank,
            "--size",
            "2",
            "--coordinator-address",
            &address,
        ]);
        command.arg("--token-file").arg(&token).spawn().unwrap()
    };
    let late = start("1");
    let first = Finished::new(start("0").wait_with_output().unwrap());
    let second = Finished::new(late.wait_with_output().unwrap());
    assert_eq!(
        (first.code, second.code),
        (Some(0), Some(0)),
        "{}{}",
        first.stderr,
        second.stderr
    );
    assert!(second.stdout.is_empty());
    let objects = parse(&first.text());
    assert_eq!(objects.len(), 2);
    for object in objects {
        assert_eq!(
            (&object["check"], &object["transport"]),
            (&true.into(), &"tcp".into())
        );
    }
}

#[test]
fn bad_input_is_one_error_with_a_hint_and_measures_nothing() {
    let folder = Folder::new();
    let joining = [
        "all-reduce",
        "--rank",
        "2",
        "--size",
        "2",
        "--coordinator-address",
        "a:1",
    ];
    let joining: Vec<&str> = joining.into_iter().chain(["--token-file", "t"]).collect();
    for (arguments, error) in [
        (&["all-reduc"][..], "'all-reduc'"),
        (&[], "<OP>"),
        (&["all-reduce", "--sizes", "12XB"], "\"12XB\""),
        (&["all-reduce", "--sizes", "4,,8"], "\"\""),
        (&["all-reduce", "--sizes", "6"], "6 bytes"),
        (&["all-reduce", "--sizes", "0"], "0 bytes"),
        (&["all-reduce", "-n", "0"], "at least one rank"),
        (&["all-reduce", "-n", "2,x"], "'x'"),
        (&["send-recv", "-n", "1"], "send-recv needs two ranks"),
        (&["all-reduce", "--dtype", "f31"], "\"f31\""),
        (&["all-reduce", "--dtype", "bool"], "booleans"),
        (&["all-reduce", "--op", "and"], "--op and"),
        (&["all-reduce", "--op", "plus"], "\"plus\""),
        (&["all-reduce", "--transport", "rdma"], "'rdma'"),
        (&["all-reduce", "--memory", "gpu"], "'gpu'"),
        (&["all-reduce", "--seconds", "-1"], "'-1'"),
        (
            &["broadcast", "--list", "bert"],
            "--list does not go with broadcast",
        ),
        (&["all", "--list", "bert"], "--list does not go with all"),
        (&["all-reduce", "--list", "vgg"], "\"vgg\""),
        (&["all-reduce", "--list", "bert", "--sizes", "4"], "--sizes"),
        (&["barrier", "--plot", "x.svg"], "--plot"),
        (
            &["all-reduce", "--plot", "no/such/folder/x.svg"],
            "no/such/folder/x.svg",
        ),
        (&["all-reduce", "--rank", "0"], "--size"),
        (&["all-reduce", "--size", "2"], "--rank"),
        (&joining, "--rank 2 is not below --size 2"),
    ] {
        let finished = bench(&folder, arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stdout.is_empty(), "{arguments:?}");
        let lines: Vec<&str> = finished.stderr.lines().collect();
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(error),
            "{lines:?}"
        );
        assert!(lines.last().unwrap().starts_with("hint: "), "{lines:?}");
        assert!(lines.len() <= 3, "{lines:?}");
    }
    assert!(folder.is_empty(), "nothing was started or written");
}
