//! The examples and a few programs of our own, compiled by the system's compilers against the built
//! library and run by the built command.

mod toolbox;

use toolbox::{Folder, Language, Linkage, example, language, program, run_alone, run_ranks, tools};

#[test]
fn c_all_reduce_runs_on_three_ranks() {
    let folder = Folder::new("c-all-reduce");
    let binary = language(Language::C).build(&folder, &example("c/all_reduce.c"), Linkage::Shared);
    let output = run_ranks(3, &binary, &[]);
    output.succeeds_with(&["all_reduce: 3 ranks, sum 3, average 1"]);
}

#[test]
fn c_all_reduce_runs_alone() {
    let folder = Folder::new("c-alone");
    let binary = language(Language::C).build(&folder, &example("c/all_reduce.c"), Linkage::Shared);
    run_alone(&binary).succeeds_with(&["all_reduce: 1 ranks, sum 0, average 0"]);
}

#[test]
fn c_all_reduce_runs_with_the_static_library() {
    let folder = Folder::new("c-static");
    let binary = language(Language::C).build(&folder, &example("c/all_reduce.c"), Linkage::Static);
    let output = run_ranks(3, &binary, &[]);
    output.succeeds_with(&["all_reduce: 3 ranks, sum 3, average 1"]);
}

#[test]
fn c_errors_name_who_asked_for_what() {
    let folder = Folder::new("c-errors");
    let binary = language(Language::C).build(&folder, &example("c/errors.c"), Linkage::Shared);
    let output = run_ranks(3, &binary, &[]);
    output.succeeds_with(&[
        "mismatch: all_reduce \"grad/17\": the ranks do not agree",
        "invalid:",
    ]);
}

#[test]
fn c_gradients_run_on_one_host_and_across_hosts_with_tls() {
    let folder = Folder::new("c-gradients");
    let source = example("c/gradients.c");
    let binary = language(Language::C).build(&folder, &source, Linkage::Shared);
    let line = "carole_operations_total{rank=\"0\",kind=\"all_reduce\"} 6";
    run_ranks(3, &binary, &[]).succeeds_with(&[line]);
    let variables = [("CAROLE_TRANSPORT", "tcp"), ("CAROLE_TLS", "on")];
    run_ranks(3, &binary, &variables).succeeds_with(&[line]);
    run_alone(&binary).succeeds_with(&[line]);
}

#[test]
fn c_ring_passes_messages_around() {
    let folder = Folder::new("c-ring");
    let binary = language(Language::C).build(&folder, &example("c/ring.c"), Linkage::Shared);
    run_ranks(3, &binary, &[]).succeeds_with(&["ring: 3 ranks passed on 3 messages"]);
    run_alone(&binary).succeeds_with(&["ring: 1 ranks passed on 0 messages"]);
}

#[test]
fn cpp_all_reduce_runs_on_three_ranks() {
    let folder = Folder::new("cpp");
    let source = example("cpp/all_reduce.cpp");
    let binary = language(Language::Cpp).build(&folder, &source, Linkage::Shared);
    let output = run_ranks(3, &binary, &[]);
    output.succeeds_with(&["all_reduce: 3 ranks, weights 1.5, largest rank 2"]);
}

#[test]
fn go_all_reduce_runs_on_three_ranks() {
    let folder = Folder::new("go");
    let binary = language(Language::Go).build(&folder, &example("go"), Linkage::Shared);
    let output = run_ranks(3, &binary, &[]);
    output.succeeds_with(&["all_reduce: 3 ranks, 4 tensors at once"]);
}

#[test]
fn rust_all_reduce_runs_on_three_ranks() {
    let output = run_ranks(3, &tools().rust_example, &[]);
    output.succeeds_with(&["all_reduce: 3 ranks, average 1, largest rank 2"]);
}

#[test]
fn every_function_works_on_three_ranks_and_alone() {
    let folder = Folder::new("everything");
    let source = program("everything.c");
    let binary = language(Language::C).build(&folder, &source, Linkage::Shared);
    run_ranks(3, &binary, &[]).succeeds_with(&["everything works on 3 ranks"]);
    run_alone(&binary).succeeds_with(&["everything works on 1 ranks"]);
}

#[test]
fn every_function_works_over_tcp() {
    let folder = Folder::new("everything-tcp");
    let source = program("everything.c");
    let binary = language(Language::C).build(&folder, &source, Linkage::Shared);
    let output = run_ranks(3, &binary, &[("CAROLE_TRANSPORT", "tcp")]);
    output.succeeds_with(&["everything works on 3 ranks"]);
}

#[test]
fn values_travel_every_way_on_one_host_and_across_hosts() {
    let folder = Folder::new("ways");
    let binary = language(Language::C).build(&folder, &program("ways.c"), Linkage::Shared);
    let arguments = [folder.path().as_os_str()];
    for variables in [&[][..], &[("CAROLE_TRANSPORT", "tcp")]] {
        let output = toolbox::run_ranks_with(3, &binary, variables, &arguments);
        output.succeeds_with(&["all ways work on 3 ranks"]);
    }
    let output = toolbox::run_ranks_with(1, &binary, &[], &arguments);
    output.succeeds_with(&["all ways work on 1 ranks"]);
}

#[test]
fn metrics_and_timelines_tell_what_was_done() {
    let folder = Folder::new("monitor");
    let binary = language(Language::C).build(&folder, &program("monitor.c"), Linkage::Shared);
    let arguments = [folder.path().as_os_str()];
    let output = toolbox::run_ranks_with(2, &binary, &[], &arguments);
    output.succeeds_with(&["monitored on 2 ranks"]);
    for rank in 0..2 {
        let names = trace(&folder, &format!("stopped.{rank}.json"));
        assert_eq!(names, ["grad/17", "barrier"]);
        assert_eq!(trace(&folder, &format!("ended.{rank}.json")), ["barrier"]);
    }
}

#[test]
fn a_session_is_set_up_by_its_configuration() {
    let folder = Folder::new("settings");
    let binary = language(Language::C).build(&folder, &program("settings.c"), Linkage::Shared);
    let table = carole_plan::AlgorithmTable {
        flat_across_bytes: 1 << 20,
        ..Default::default()
    };
    std::fs::write(folder.path().join("table.json"), table.to_string()).unwrap();
    let arguments = [folder.path().as_os_str()];
    let output = toolbox::run_ranks_with(2, &binary, &[], &arguments);
    output.succeeds_with(&["set up on 2 ranks"]);
    for rank in 0..2 {
        let path = folder.path().join(format!("trace.{rank}.json"));
        let text = std::fs::read_to_string(path).unwrap();
        // The large one too goes the way that this table says.
        let flat = text.matches("\"algorithm\":\"exchange-flat\"").count();
        assert_eq!(flat, 2, "{text}");
    }

    let arguments = [folder.path().as_os_str(), "mixed".as_ref()];
    let output = toolbox::run_ranks_with(2, &binary, &[], &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout.matches("refused without TLS").count(), 2);
}

/// The names of a timeline's operations, in order.
fn trace(folder: &Folder, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let operations = events.iter().filter(|event| event["ph"] == "X");
    operations
        .map(|event| event["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn files_that_the_environment_names_are_read_and_written() {
    let folder = Folder::new("environment-files");
    let binary = language(Language::C).build(&folder, &example("c/all_reduce.c"), Linkage::Shared);
    let table = folder.path().join("table.json");
    let timeline = folder.path().join("trace-{rank}.json");
    let (table_text, timeline) = (table.to_str().unwrap(), timeline.to_str().unwrap());
    let variables = [("CAROLE_TABLE", table_text), ("CAROLE_TIMELINE", timeline)];
    std::fs::write(&table, "{\"local\": []}").unwrap();
    let output = toolbox::run_alone_with(&binary, &variables);
    assert_eq!(output.code, Some(1), "{output:?}");
    let named = format!("CAROLE_ERROR_ENVIRONMENT: CAROLE_TABLE is {table_text}: ");
    assert!(output.stderr.contains(&named), "{output:?}");

    let default = carole_plan::AlgorithmTable::default();
    std::fs::write(&table, default.to_string()).unwrap();
    let output = run_ranks(2, &binary, &variables);
    output.succeeds_with(&["all_reduce: 2 ranks, sum 1, average 0.5"]);
    for rank in 0..2 {
        let names = trace(&folder, &format!("trace-{rank}.json"));
        assert_eq!(names, ["gradient", "all_reduce", "barrier"]);
    }
}

#[test]
fn senseless_arguments_are_errors_and_never_crashes() {
    let folder = Folder::new("border");
    let source = program("border.c");
    let binary = language(Language::C).build(&folder, &source, Linkage::Shared);
    run_alone(&binary).succeeds_with(&["the border holds"]);
}

#[test]
fn a_killed_rank_is_named_to_the_others() {
    let folder = Folder::new("loss");
    let binary = language(Language::C).build(&folder, &program("loss.c"), Linkage::Shared);
    let output = toolbox::run_ranks_with(3, &binary, &[], &[folder.path().as_os_str()]);
    assert_eq!(output.code, Some(128 + 9), "{output:?}");
    for rank in ["0", "1"] {
        let error = std::fs::read_to_string(folder.path().join(rank))
            .unwrap_or_else(|_| panic!("rank {rank} wrote its error: {output:?}"));
        assert!(error.starts_with("lost rank 2"), "{error}");
    }
}

#[test]
fn a_half_set_environment_is_named() {
    let folder = Folder::new("environment");
    let binary = language(Language::C).build(&folder, &example("c/all_reduce.c"), Linkage::Shared);
    let output = toolbox::run_alone_with(&binary, &[("CAROLE_RANK", "0")]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output
            .stderr
            .contains("CAROLE_ERROR_ENVIRONMENT: CAROLE_COORDINATOR"),
        "{output:?}"
    );
    assert!(output.stderr.contains("carole run"), "{output:?}");
}
