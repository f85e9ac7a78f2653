//! Job files: what is read, and how what is wrong is said.

use carole_plan::job::{Cleanup, Strategy};
use carole_plan::{Backend, JobSpec};

const WHOLE: &str = r#"
apiVersion: carole.dev/v1alpha1
kind: CaroleJob
metadata:
  name: digits
  namespace: research
  labels: {team: vision, example.com/tier: "1"}
  annotations: {note: "no, on and off are text"}
spec:
  strategy: AllReduce            # AllReduce | ParameterServer | MPI | Program
  roles:
    worker:
      replicas: 4
      elastic: {min: 2, max: 8, spares: 1}
      command: [python, examples/torch/digits.py, --shuffle, no]
      env: {OMP_NUM_THREADS: "1", EMPTY: "", ANSWER: no}
      workdir: code
      image: registry.example/train:1
      slots: 1
      setup: [sh, code/setup.sh]
      resources: {requests: {cpu: "1", memory: 3000Mi}, limits: {cpu: 2, memory: 6000Mi, gpu: 0}}
  retries: 3
  cache: {version: "0.5"}
  deadline: 2h
  cleanup: running
  queue: research
"#;

const SMALL: &str = "\
apiVersion: carole.dev/v1alpha1
kind: CaroleJob
metadata:
  name: small
spec:
  strategy: AllReduce
  roles:
    worker:
      command: [python, train.py]
";

const SERVERS: &str = "\
apiVersion: carole.dev/v1alpha1
kind: CaroleJob
metadata: {name: servers}
spec:
  strategy: ParameterServer
  roles:
    ps: {replicas: 2, command: [a]}
    worker: {replicas: 4, command: [a]}
    chief: {command: [a]}
    evaluator: {command: [a]}
";

fn read(text: &str) -> JobSpec {
    JobSpec::from_yaml(text).unwrap()
}

fn error(text: &str) -> String {
    let error = JobSpec::from_yaml(text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

/// The error after `from` in [`SMALL`] became `to`.
fn changed(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    error(&SMALL.replacen(from, to, 1))
}

/// The error after a line was put under the worker of [`SMALL`].
fn with(line: &str) -> String {
    error(&format!("{SMALL}      {line}\n"))
}

#[test]
fn every_field_is_read() {
    let job = read(WHOLE);
    assert_eq!(job.metadata.name.as_str(), "digits");
    assert_eq!(job.metadata.labels["example.com/tier"], "1");
    assert_eq!(job.spec.strategy, Strategy::AllReduce);
    let worker = &job.spec.roles["worker"];
    let elastic = worker.elastic.unwrap();
    assert_eq!(worker.replicas.get(), 4);
    assert_eq!(
        (elastic.min.get(), elastic.max.get(), elastic.spares),
        (2, 8, 1)
    );
    assert_eq!(worker.command[2..], ["--shuffle", "no"]);
    assert_eq!(worker.env["ANSWER"], "no");
    assert_eq!(worker.env["EMPTY"], "");
    assert_eq!(worker.workdir.as_deref(), Some("code"));
    assert_eq!(worker.image.as_deref(), Some("registry.example/train:1"));
    assert_eq!(worker.setup.as_ref().unwrap()[0], "sh");
    let resources = worker.resources.unwrap();
    assert_eq!(resources.requests.cpu.unwrap().millicores(), 1000);
    assert_eq!(resources.requests.memory.unwrap().bytes(), 3000 << 20);
    assert_eq!(resources.requests.gpu, None);
    assert_eq!(resources.limits.cpu.unwrap().millicores(), 2000);
    assert_eq!(resources.limits.gpu, Some(0));
    assert_eq!(job.spec.retries, 3);
    assert_eq!(job.spec.cache.as_ref().unwrap().version, "0.5");
    assert_eq!(job.spec.deadline.unwrap().seconds(), 7200);
    assert_eq!(job.spec.queue.as_ref().unwrap().as_str(), "research");
    assert_eq!(read(&job.to_string()), job);
}

#[test]
fn what_is_absent_has_a_default() {
    let job = read(SMALL);
    let worker = &job.spec.roles["worker"];
    assert_eq!((worker.replicas.get(), worker.slots.get()), (1, 1));
    assert_eq!((job.spec.retries, job.spec.cleanup), (0, Cleanup::Running));
    assert!(job.spec.deadline.is_none() && job.spec.queue.is_none() && job.spec.cache.is_none());
    assert!(worker.elastic.is_none() && worker.setup.is_none() && worker.resources.is_none());
    let empty = format!("{SMALL}      image:\n  queue: ~\n");
    assert_eq!(
        read(&empty),
        job,
        "an optional field without a value is absent"
    );
}

#[test]
fn json_and_aliases_are_read() {
    let json = serde_json::to_string(&read(WHOLE)).unwrap();
    assert_eq!(read(&json), read(WHOLE));
    assert_eq!(serde_json::from_str::<JobSpec>(&json).unwrap(), read(WHOLE));
    let aliased = SERVERS
        .replacen("command: [a]", "command: &program [a]", 1)
        .replace("{command: [a]}", "{command: *program}");
    assert_eq!(read(&aliased), read(SERVERS));
    assert_eq!(read(&format!("\u{feff}---\n{SMALL}...\n")), read(SMALL));
    assert_eq!(read(&SMALL.replace('\n', "\r\n")), read(SMALL));
}

#[test]
fn an_unknown_field_is_named_with_the_nearest() {
    assert_eq!(
        with("replica: 4"),
        "spec.roles.worker.replica is not a field; did you mean replicas? (line 10)"
    );
    assert_eq!(
        with("elastic: {minimum: 1}"),
        "spec.roles.worker.elastic.minimum is not a field; did you mean min? (line 10)"
    );
    assert_eq!(
        changed("metadata:", "status: {}\nmetadata:"),
        "status is not a field, expected one of apiVersion, kind, metadata, spec (line 3)"
    );
    assert_eq!(
        changed("apiVersion", "apiversion"),
        "apiversion is not a field; did you mean apiVersion? (line 1)"
    );
    assert_eq!(
        with("\"a\\nb\": 4").split(", expected").next().unwrap(),
        "spec.roles.worker[\"a\\nb\"] is not a field"
    );
}

#[test]
fn a_wrong_type_is_named_with_what_was_expected_and_found() {
    for (line, problem) in [
        (
            "replicas: four",
            "replicas is \"four\", expected a whole number from 1 to 65535",
        ),
        (
            "replicas: 0",
            "replicas is 0, expected a whole number from 1 to 65535",
        ),
        (
            "replicas: -1",
            "replicas is -1, expected a whole number from 1 to 65535",
        ),
        (
            "replicas: 65536",
            "replicas is 65536, expected a whole number from 1 to 65535",
        ),
        (
            "replicas: 1.5",
            "replicas is 1.5, expected a whole number from 1 to 65535",
        ),
        (
            "replicas: 010",
            "replicas is \"010\", expected a whole number from 1 to 65535",
        ),
        (
            "replicas: [4]",
            "replicas is a list, expected a whole number from 1 to 65535",
        ),
        (
            "replicas:",
            "replicas is empty, expected a whole number from 1 to 65535",
        ),
        ("elastic: 4", "elastic is 4, expected a mapping"),
        (
            "setup: sh setup.sh",
            "setup is \"sh setup.sh\", expected a list",
        ),
        (
            "setup: [sh, 5]",
            "setup[1] is 5, expected text: write \"5\"",
        ),
        (
            "setup: [sh, {a: b}]",
            "setup[1] is a mapping, expected text",
        ),
        ("env: [A=B]", "env is a list, expected a mapping"),
        (
            "env: {A: 0.50}",
            "env.A is 0.50, expected text: write \"0.50\"",
        ),
        (
            "env: {A: true}",
            "env.A is true, expected text: write \"true\"",
        ),
        ("env: {A: }", "env.A is empty, expected text"),
        (
            "resources: {limits: {memory: lots}}",
            "resources.limits.memory is \"lots\", expected a quantity of bytes such as 3000Mi, \
             6Gi or 2G",
        ),
        (
            "resources: {limits: {cpu: 0.5}}",
            "resources.limits.cpu is 0.5, expected a quantity of cores such as \"2\", \"0.5\" or \
             500m",
        ),
    ] {
        let expected = format!("spec.roles.worker.{problem} (line 10)");
        assert_eq!(with(line), expected);
    }
    assert_eq!(
        error(&format!("{SMALL}  deadline: 90\n")),
        "spec.deadline is 90, expected a span of time such as 2h, 90m, 1h30m or 30s, up to 87600h \
         (line 10)"
    );
    assert_eq!(
        error(&format!("{SMALL}  cache: {{version: 0.5}}\n")),
        "spec.cache.version is 0.5, expected text: write \"0.5\" (line 10)"
    );
    assert_eq!(
        error("- a\n"),
        "the job file is a list, expected a mapping (line 1)"
    );
    assert_eq!(
        error("hello"),
        "the job file is \"hello\", expected a mapping (line 1)"
    );
}

#[test]
fn a_missing_field_is_named() {
    assert_eq!(
        changed("      command: [python, train.py]", "      replicas: 2"),
        "spec.roles.worker.command is missing (line 8)"
    );
    assert_eq!(changed("kind: CaroleJob\n", ""), "kind is missing (line 1)");
    assert_eq!(
        changed("  name: small", "  labels: {}"),
        "metadata.name is missing (line 3)"
    );
    assert_eq!(
        with("elastic: {min: 1}"),
        "spec.roles.worker.elastic.max is missing (line 10)"
    );
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest() {
    for (from, to, problem) in [
        (
            "AllReduce",
            "allreduce",
            "spec.strategy is \"allreduce\"; did you mean AllReduce? (line 6)",
        ),
        (
            "AllReduce",
            "mpi",
            "spec.strategy is \"mpi\"; did you mean MPI? (line 6)",
        ),
        (
            "AllReduce",
            "Magic",
            "spec.strategy is \"Magic\", expected one of AllReduce, ParameterServer, MPI, Program \
             (line 6)",
        ),
        (
            "AllReduce",
            "3",
            "spec.strategy is 3, expected one of AllReduce, ParameterServer, MPI, Program (line 6)",
        ),
        (
            "v1alpha1",
            "v1",
            "apiVersion is \"carole.dev/v1\"; did you mean carole.dev/v1alpha1? (line 1)",
        ),
        (
            "CaroleJob",
            "Deployment",
            "kind is \"Deployment\", expected CaroleJob (line 2)",
        ),
    ] {
        assert_eq!(changed(from, to), problem);
    }
    assert_eq!(
        error(&format!("{SMALL}  cleanup: None\n")),
        "spec.cleanup is \"None\"; did you mean none? (line 10)"
    );
}

#[test]
fn names_are_dns_labels() {
    let rule = "expected a name of 1 to 63 lower-case letters, digits and hyphens, \
                with a letter or digit at both ends";
    assert_eq!(
        changed("name: small", "name: My Job"),
        format!("metadata.name is \"My Job\", {rule} (line 4)")
    );
    assert_eq!(
        changed("    worker:", "    Worker:"),
        format!("spec.roles.Worker is \"Worker\", {rule} (line 8)")
    );
    assert_eq!(
        changed("name: small", "name: 5"),
        "metadata.name is 5, expected text: write \"5\" (line 4)"
    );
    let long = "a".repeat(64);
    assert!(changed("name: small", &format!("name: {long}")).contains(rule));
}

#[test]
fn text_that_is_no_job_file_is_refused_in_one_line() {
    assert_eq!(error(""), "the job file is empty");
    assert_eq!(error("# nothing here\n"), "the job file is empty");
    assert_eq!(
        error(&format!("{SMALL}---\n{SMALL}")),
        "the job file holds a second document: one file is one job (line 10)"
    );
    assert_eq!(
        error(&format!("{SMALL}\timage: x\n")),
        "the job file has a tab in its indentation: use spaces (line 10)"
    );
    assert_eq!(
        with("command: [again]"),
        "spec.roles.worker.command is given twice, first on line 9 (line 10)"
    );
    let large = format!("{SMALL}# {}", "x".repeat(1 << 20));
    assert_eq!(
        error(&large),
        format!(
            "the job file is {} bytes long, expected at most 1 MiB",
            large.len()
        )
    );
}

#[test]
fn elastic_holds_the_replicas() {
    assert_eq!(
        with("elastic: {min: 3, max: 2}"),
        "spec.roles.worker.elastic.min is 3, expected at most 2, which is max (line 10)"
    );
    assert_eq!(
        with("replicas: 9\n      elastic: {min: 2, max: 8}"),
        "spec.roles.worker.replicas is 9, expected 2 to 8, as elastic says (line 10)"
    );
    assert_eq!(
        with("elastic: {min: 2, max: 8}"),
        "spec.roles.worker.replicas is 1, expected 2 to 8, as elastic says (line 8)"
    );
}

#[test]
fn commands_and_variables_can_be_passed_to_a_process() {
    assert_eq!(
        changed("[python, train.py]", "[]"),
        "spec.roles.worker.command is a list of 0, expected a program and its arguments, at most \
         4096 words (line 9)"
    );
    assert_eq!(
        changed("python", "\"\""),
        "spec.roles.worker.command[0] is \"\", expected a program (line 9)"
    );
    assert_eq!(
        changed("train.py", "\"a\\0b\""),
        "spec.roles.worker.command[1] is \"a\\0b\", expected text without a zero character (line 9)"
    );
    assert_eq!(
        with("env: {A=B: c}"),
        "spec.roles.worker.env[\"A=B\"] is \"A=B\", expected a name of 1 to 255 printable \
         characters without = (line 10)"
    );
    assert_eq!(
        with("workdir: \"\""),
        "spec.roles.worker.workdir is \"\", expected one line of 1 to 1024 bytes (line 10)"
    );
}

#[test]
fn requests_stay_within_limits() {
    for (resources, problem) in [
        (
            "{requests: {cpu: 2}, limits: {cpu: 1500m}}",
            "requests.cpu is 2, expected at most 1500m, its limit",
        ),
        (
            "{requests: {memory: 2G}, limits: {memory: 1Gi}}",
            "requests.memory is 2G, expected at most 1Gi, its limit",
        ),
        (
            "{requests: {gpu: 2}, limits: {gpu: 1}}",
            "requests.gpu is 2, expected the same number in limits, where it is 1",
        ),
        (
            "{requests: {gpu: 2}}",
            "requests.gpu is 2, expected the same number in limits, where it is missing",
        ),
    ] {
        let expected = format!("spec.roles.worker.resources.{problem} (line 10)");
        assert_eq!(with(&format!("resources: {resources}")), expected);
    }
}

#[test]
fn a_strategy_has_its_roles() {
    assert_eq!(read(SERVERS).spec.roles.len(), 4);
    assert_eq!(
        changed("    worker:", "    workers:"),
        "spec.roles.workers is not a role of AllReduce; did you mean worker? (line 8)"
    );
    assert_eq!(
        error(&SERVERS.replace("    ps:", "    server:")),
        "spec.roles.server is not a role of ParameterServer, expected one of ps, worker, chief, \
         evaluator (line 7)"
    );
    assert_eq!(
        error(&SERVERS.replace("    ps: {replicas: 2, command: [a]}\n", "")),
        "spec.roles.ps is missing (line 6)"
    );
    assert_eq!(
        error(&SERVERS.replace("chief: {", "chief: {replicas: 2, ")),
        "spec.roles.chief.replicas is 2, expected 1: ParameterServer has one chief (line 9)"
    );
    assert_eq!(
        error(
            "{apiVersion: carole.dev/v1alpha1, kind: CaroleJob, metadata: {name: a}, \
               spec: {strategy: Program, roles: {}}}"
        ),
        "spec.roles is 0, expected 1 to 64 roles (line 1)"
    );
    let many = SERVERS.replace("replicas: 4,", "replicas: 65535, slots: 65535,");
    assert_eq!(
        error(&many),
        "spec.roles is 4294836229 ranks, expected at most 65535 in all (line 6)"
    );
}

#[test]
fn a_job_from_other_hands_is_checked_too() {
    let mut job = read(SMALL);
    job.spec.roles.clear();
    assert_eq!(
        job.validate().unwrap_err().to_string(),
        "spec.roles is 0, expected 1 to 64 roles"
    );
    let json = serde_json::to_string(&job).unwrap();
    let error = serde_json::from_str::<JobSpec>(&json)
        .unwrap_err()
        .to_string();
    assert!(error.contains("spec.roles is 0"), "{error}");
}

#[test]
fn what_a_backend_does_not_honour_is_refused() {
    for backend in Backend::ALL {
        read(SMALL).refuse_unsupported(backend).unwrap();
        read(SERVERS).refuse_unsupported(backend).unwrap();
    }
    let whole = read(WHOLE);
    whole.refuse_unsupported(Backend::Kubernetes).unwrap();
    let error = whole.refuse_unsupported(Backend::Local).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the local backend does not honour metadata.namespace, \
         spec.roles.worker.elastic (min other than max, or spares), spec.roles.worker.image, \
         spec.roles.worker.resources.requests.cpu, spec.roles.worker.resources.requests.memory, \
         spec.roles.worker.resources.limits.cpu, spec.roles.worker.resources.limits.memory, \
         spec.roles.worker.resources.limits.gpu, spec.cache, spec.queue"
    );
}

#[test]
fn only_the_use_that_is_not_honoured_is_refused() {
    let refused = |line: &str| {
        let job = read(&format!("{SMALL}{line}\n"));
        job.refuse_unsupported(Backend::Ssh)
            .err()
            .map(|error| error.to_string())
    };
    let backend = "the ssh backend does not honour";
    assert_eq!(refused("      elastic: {min: 1, max: 1}"), None);
    assert_eq!(refused("  cleanup: all"), None);
    assert_eq!(refused("  retries: 3"), None);
    assert_eq!(
        refused("  cleanup: none"),
        Some(format!("{backend} spec.cleanup (none)"))
    );
    assert_eq!(
        refused("      slots: 2"),
        Some(format!("{backend} spec.roles.worker.slots (more than 1)"))
    );
    let job = read(&SMALL.replace("AllReduce", "Program"));
    let error = job.refuse_unsupported(Backend::Local).unwrap_err();
    assert!(error.to_string().ends_with("spec.strategy (Program)"));
}
