//! `carole run job.yaml`: a job file and a command line that says where it runs.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow};
use carole_launch::request::{Hosts, ParameterServers, Ranks, Request};
use carole_plan::job::{Role, Strategy};
use carole_plan::{Backend, JobSpec};

use crate::args::RunArguments;
use crate::failure::Failure;

/// Reads a job file; the arguments say where and how it runs, the file what.
pub(super) fn read(path: &Path, arguments: RunArguments) -> Result<Request, Failure> {
    let wrong = |error: anyhow::Error| {
        Failure::usage(error).with_hint("docs/reference/job-file.md has every field")
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(Failure::usage)?;
    let in_file = |error: &dyn std::fmt::Display| wrong(anyhow!("{}: {error}", path.display()));
    let job = JobSpec::from_yaml(&text).map_err(|error| in_file(&error))?;
    if arguments.ranks.is_some() || arguments.nproc_per_node.is_some() {
        let error = anyhow!("a job file says how many ranks there are; -n does not go with it");
        return Err(Failure::usage(error).with_hint("change replicas in the file"));
    }
    let request = arguments.into_request()?;
    let backend = match request.hosts {
        Hosts::Here => Backend::Local,
        _ => Backend::Ssh,
    };
    job.refuse_unsupported(backend)
        .map_err(|error| in_file(&error))?;
    request_of(&job, request).map_err(|error| in_file(&error))
}

/// What the file asks for, where `request` says.
fn request_of(job: &JobSpec, request: Request) -> anyhow::Result<Request> {
    let spec = &job.spec;
    let role = |name: &str| spec.roles.get(name);
    let worker = role("worker").context("spec.roles has no worker")?;
    let words = |role: &Role| role.command.iter().map(OsString::from).collect::<Vec<_>>();
    // One environment and one folder for all: what differs between roles is refused.
    for (name, other) in &spec.roles {
        for (field, same) in [
            ("env", other.env == worker.env),
            ("workdir", other.workdir == worker.workdir),
            ("setup", other.setup == worker.setup),
        ] {
            anyhow::ensure!(
                same,
                "spec.roles.{name}.{field} differs from the workers', which is not available yet"
            );
        }
    }
    let count = |name: &str| role(name).map_or(0, |role| usize::from(role.replicas.get()));
    let own = |name: &str| {
        let command = role(name).map(words);
        command.filter(|command| *command != words(worker))
    };
    let others = count("ps") + count("chief") + count("evaluator");
    let mut variables = request.variables;
    for (name, value) in &worker.env {
        variables.push((name.clone(), Some(value.clone())));
    }
    Ok(Request {
        name: request.name.or(Some(job.metadata.name.to_string())),
        ranks: Ranks::Total(count("worker") + others),
        command: words(worker),
        variables,
        parameter_servers: ParameterServers {
            servers: count("ps"),
            chief: count("chief") > 0,
            evaluator: count("evaluator") > 0,
            server_command: own("ps"),
            chief_command: own("chief"),
            evaluator_command: own("evaluator"),
        },
        folder: request.folder.or(worker.workdir.as_ref().map(Into::into)),
        setup: request.setup.or(worker.setup.as_deref().map(shell_line)),
        mpi: request.mpi || spec.strategy == Strategy::Mpi,
        max_restarts: request.max_restarts.max(spec.retries.into()),
        deadline: request.deadline.or(spec.deadline.map(Into::into)),
        ..request
    })
}

/// Words as one line for a shell, which reads the same words from it.
fn shell_line(words: &[String]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_file_becomes_a_request() {
        let text = "
apiVersion: carole.dev/v1alpha1
kind: CaroleJob
metadata: {name: digits}
spec:
  strategy: ParameterServer
  roles:
    worker: {replicas: 2, command: [python, train.py], env: {A: \"1\"}, setup: [sh, \"it's.sh\"]}
    ps: {replicas: 1, command: [python, serve.py], env: {A: \"1\"}, setup: [sh, \"it's.sh\"]}
  retries: 3
  deadline: 2h
";
        let job = JobSpec::from_yaml(text).unwrap();
        let request = request_of(&job, Request::default()).unwrap();
        assert_eq!(request.name.as_deref(), Some("digits"));
        assert_eq!(request.ranks, Ranks::Total(3));
        assert_eq!(request.command, ["python", "train.py"]);
        assert_eq!(request.max_restarts, 3);
        assert_eq!(request.deadline.unwrap().as_secs(), 7200);
        assert_eq!(request.setup.as_deref(), Some("'sh' 'it'\\''s.sh'"));
        let servers = request.parameter_servers;
        assert_eq!(servers.servers, 1);
        let command = servers.server_command.unwrap();
        assert_eq!(command, ["python", "serve.py"]);
        assert_eq!(request.variables, [("A".to_owned(), Some("1".to_owned()))]);
    }
}
