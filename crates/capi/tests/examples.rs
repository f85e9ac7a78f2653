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
