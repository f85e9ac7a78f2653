//! The committed reference page of the job file is the one that the source gives.
//!
//! Fields, types, defaults and meanings come from the schema, and so from the doc comments; who
//! honours what comes from the list of refusals.

use std::fmt::Write as _;
use std::path::Path;

use carole_plan::job::{Cpu, Memory, Name, REFUSALS, Strategy, TimeSpan};
use carole_plan::{Backend, JobSpec, PlanError};
use serde_json::Value;

const EXAMPLE: &str = r#"apiVersion: carole.dev/v1alpha1
kind: CaroleJob
metadata: {name: digits}
spec:
  strategy: AllReduce
  roles:
    worker:
      replicas: 4
      elastic: {min: 2, max: 8, spares: 1}
      command: [python, examples/torch/digits.py]
      env: {OMP_NUM_THREADS: "1"}
      image: registry.example/train:1
      setup: [sh, code/setup.sh]
      resources:
        requests: {cpu: "1", memory: 3000Mi}
        limits: {cpu: "2", memory: 6000Mi, gpu: 1}
  retries: 3
  cache: {version: "0.5"}
  deadline: 2h
  cleanup: running
  queue: research
"#;

const OPENING: &str = "\
<!-- Made from crates/plan: UPDATE_REFERENCE=1 cargo test -p carole-plan --test job_file_reference -->

# Job file

A job file says what a job is: one YAML document, or JSON, of up to 1 MiB. It means the same on
every backend.
";

const FIELDS: &str = "
## Fields

`*` stands for a role's name. A field that is not in this table is an error, and so is a field that
the backend does not honour: nothing is ignored. A backend that is not in this version yet is listed
with what it is meant to honour.

| field | type | default | meaning | honoured by |
|---|---|---|---|---|
";

const CLOSING: &str = "
## How fields fit together

- `elastic.min` is at most `elastic.max`, and `replicas` lies between them.
- A request is at most its limit. GPUs that are requested are the same number in the limits.
- A job has at most 64 roles and 65535 ranks: those of all roles, `slots` and spares included.
- A command has 1 to 4096 words. Variables, labels and annotations are at most 1024 each.
- An image, a folder and a version are one line of at most 1024 bytes.

## What is read

YAML 1.2: `no`, `on` and `yes` are text, the only booleans are `true` and `false`. Where text is
expected, a number or a boolean is an error that says how to write it: in quotes. Kubernetes' tools
read YAML 1.1 and take `no` for a boolean: put such words in quotes if the file is meant for them too.

Anchors and aliases are read. Merge keys (`<<`), tags, directives, a key that is given twice and a
second document in the file are errors.

## What is said when something is wrong

One line, with the field's path, what was expected and the line in the file:

```text
";

/// Slips, each in the place of a line of [`EXAMPLE`].
const SLIPS: [(&str, &str); 5] = [
    ("replicas: 4", "replica: 4"),
    ("replicas: 4", "replicas: four"),
    ("AllReduce", "allreduce"),
    ("version: \"0.5\"", "version: 0.5"),
    (
        "command: [python, examples/torch/digits.py]",
        "workdir: code",
    ),
];

fn generated() -> String {
    let mut page = format!("{OPENING}\n```yaml\n{EXAMPLE}```\n{FIELDS}");
    for field in fields() {
        let Field {
            path,
            kind,
            default,
            meaning,
        } = &field;
        let honoured = honoured_by(path, kind);
        let _ = writeln!(
            page,
            "| `{path}` | {kind} | {default} | {meaning} | {honoured} |"
        );
    }
    page.push_str("\n| type | |\n|---|---|\n");
    for (name, expected) in [
        ("name", "".parse::<Name>().err()),
        ("cores", "".parse::<Cpu>().err()),
        ("bytes", "".parse::<Memory>().err()),
        ("time span", "".parse::<TimeSpan>().err()),
    ] {
        let Some(PlanError::JobPart { expected, .. }) = expected else {
            panic!("nothing is no {name}");
        };
        let _ = writeln!(page, "| {name} | {expected} |");
    }
    page.push_str("\n## Roles\n\n| strategy | roles | of which one process |\n|---|---|---|\n");
    for strategy in Strategy::ALL {
        let roles = strategy.known_roles().iter().map(|role| {
            let required = strategy.required_roles().contains(role);
            format!(
                "`{role}`{}",
                if required { "" } else { " (may be left out)" }
            )
        });
        let roles: Vec<String> = roles.collect();
        let roles = if roles.is_empty() {
            "any".to_owned()
        } else {
            roles.join(", ")
        };
        let single: Vec<String> = strategy
            .single_roles()
            .iter()
            .map(|role| format!("`{role}`"))
            .collect();
        let _ = writeln!(page, "| `{strategy}` | {roles} | {} |", single.join(", "));
    }
    page.push_str(CLOSING);
    for (right, wrong) in SLIPS {
        let error = JobSpec::from_yaml(&EXAMPLE.replacen(right, wrong, 1)).unwrap_err();
        let _ = writeln!(page, "{error}");
    }
    let error = JobSpec::from_yaml("").unwrap_err();
    let _ = writeln!(page, "{error}");
    let error = JobSpec::from_yaml(EXAMPLE)
        .unwrap()
        .refuse_unsupported(Backend::Local);
    let error = error.unwrap_err().to_string();
    // All of them would make a long line; the first three show how it goes on.
    let shown: Vec<&str> = error.split(", ").take(3).collect();
    let _ = writeln!(page, "{}, …\n```", shown.join(", "));
    page
}

/// A row of the table.
struct Field {
    path: String,
    kind: String,
    default: String,
    meaning: String,
}

/// Every field of the schema: what must be there first, then by name.
fn fields() -> Vec<Field> {
    let mut found = Vec::new();
    collect(&JobSpec::schema(), "", &mut found);
    found
}

fn collect(schema: &Value, above: &str, found: &mut Vec<Field>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let required = |name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|required| required == name))
    };
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| (!required(name), *name));
    for name in names {
        let property = present(&properties[name]);
        let path = match above {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        let default = match &properties[name]["default"] {
            Value::Null if required(name) => "required".to_owned(),
            Value::Null => "none".to_owned(),
            Value::String(default) => format!("`{default}`"),
            default => format!("`{default}`"),
        };
        found.push(Field {
            kind: kind(property),
            default,
            meaning: meaning(&properties[name]),
            path: path.clone(),
        });
        collect(property, &path, found);
        collect(
            &property["additionalProperties"],
            &format!("{path}.*"),
            found,
        );
    }
}

/// The schema of a field that is there: one that may be left out may also be null.
fn present(schema: &Value) -> &Value {
    let null = |schema: &&Value| schema["type"] == "null";
    match schema["anyOf"].as_array() {
        Some(any) if any.iter().any(|schema| null(&schema)) => {
            any.iter().find(|schema| !null(schema)).unwrap()
        }
        _ => schema,
    }
}

/// A field's description, and those of the values it may have.
fn meaning(schema: &Value) -> String {
    let description = |schema: &Value| {
        let text = schema["description"].as_str().unwrap_or_default();
        text.replace('\n', " ")
    };
    let mut meaning = description(schema);
    let choices = schema["oneOf"]
        .as_array()
        .filter(|choices| choices.len() > 1);
    for choice in choices.into_iter().flatten() {
        let name = choice["const"].as_str().unwrap();
        let _ = write!(meaning, "<br>`{name}`: {}", description(choice));
    }
    meaning
}

fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices: Vec<String> = choices
            .iter()
            .map(|choice| format!("`{}`", choice["const"].as_str().unwrap()))
            .collect();
        return choices.join(", ");
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => &kinds[0],
        kind => kind,
    };
    match (schema["format"].as_str(), kind.as_str()) {
        (Some(format), None | Some("string")) => format.to_owned(),
        (_, Some("integer")) => format!("{} to {}", schema["minimum"], schema["maximum"]),
        (_, Some("string")) => "text".to_owned(),
        (_, Some("array")) => "list of text".to_owned(),
        (_, Some("object")) if schema["additionalProperties"]["type"] == "string" => {
            "mapping of text".to_owned()
        }
        (_, Some("object")) => "mapping".to_owned(),
        other => panic!("{other:?} has no name"),
    }
}

/// Who honours the field at `path`. A mapping has no answer of its own, only its fields have.
fn honoured_by(path: &str, kind: &str) -> String {
    let holds = |field: &str| {
        path.strip_prefix(field)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let Some(refusal) = REFUSALS.iter().find(|refusal| holds(refusal.field)) else {
        return if kind == "mapping" { "" } else { "all" }.to_owned();
    };
    let others: Vec<&str> = Backend::ALL
        .iter()
        .filter(|backend| !refusal.backends.contains(backend))
        .map(|backend| backend.as_str())
        .collect();
    match refusal.only {
        None => others.join(", "),
        Some(only) => format!("all; {only}: {}", others.join(", ")),
    }
}

#[test]
fn reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/job-file.md");
    let generated = generated();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &generated).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/reference/job-file.md is not what the source gives; make it anew with\n\
         UPDATE_REFERENCE=1 cargo test -p carole-plan --test job_file_reference"
    );
}

#[test]
fn every_field_has_a_meaning() {
    for field in fields() {
        assert!(
            field.meaning.ends_with('.'),
            "{}: {}",
            field.path,
            field.meaning
        );
    }
}

#[test]
fn every_refusal_is_of_a_field_and_leaves_a_backend() {
    let fields = fields();
    for refusal in REFUSALS {
        let known = fields.iter().any(|field| field.path == refusal.field);
        assert!(known, "{}", refusal.field);
        assert!(!refusal.backends.is_empty(), "{}", refusal.field);
        assert!(
            refusal.backends.len() < Backend::ALL.len(),
            "{}",
            refusal.field
        );
    }
}
