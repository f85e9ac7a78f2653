//! `carole goto`: a shell on the host that is meant.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::anyhow;
use carole_launch::fleet::{Way, ssh_words_for_person};
use carole_launch::registry::{Phase, Record, Registry};
use carole_launch::remote::command_line;
use carole_launch::request::{Hosts, Ssh};
use carole_launch::{Host, Listed, Target, Whereabouts};

use super::jobs;
use super::run::wrong_hosts;
use crate::args::GotoArguments;
use crate::failure::Failure;

/// Where to go.
struct Place {
    host: Host,
    ssh: Ssh,
    /// The folder of a job's processes there.
    folder: Option<PathBuf>,
}

pub(crate) fn goto(arguments: &GotoArguments) -> Result<ExitCode, Failure> {
    let place = find(arguments)?;
    if let (Way::Here, Some(folder)) = (&place.host.way, &place.folder)
        && !folder.is_dir()
    {
        let error = anyhow!("the job's folder {} is gone", folder.display());
        return Err(Failure::new(error).with_hint("-H localhost goes without it"));
    }
    let mut command = command(&place, &arguments.command);
    let program = command.get_program().to_string_lossy().into_owned();
    // Its terminal is this process's, and its exit code too.
    let error = anyhow::Error::new(command.exec()).context(format!("cannot run {program}"));
    Err(Failure::new(error).with_hint("is it installed, and is its folder in PATH?"))
}

/// The host that is meant: by the list, by a job, or by itself.
fn find(arguments: &GotoArguments) -> Result<Place, Failure> {
    let target = arguments.target()?;
    let ssh = arguments.place.ssh();
    let hosts = arguments.place.hosts();
    let without_folder = |host, ssh| Place {
        host,
        ssh,
        folder: None,
    };
    if hosts != Hosts::Here {
        let listed = Listed::find(&hosts).map_err(wrong_hosts)?;
        let found = Whereabouts::of_list(&listed).find(&target).cloned();
        let host = found.map_err(|error| {
            Failure::usage(error).with_hint("ranks fill the slots of the hosts in their order")
        })?;
        return Ok(without_folder(host, ssh));
    }
    if let Some(job) = job_meant(arguments.job.as_deref(), &target)? {
        return in_job(&job, &target, ssh);
    }
    let error = match target {
        Target::Host(name) => {
            let listed = Listed::from_list(&name).map_err(wrong_hosts)?;
            match <[Host; 1]>::try_from(listed.hosts) {
                Ok([host]) => return Ok(without_folder(host, ssh)),
                Err(_) => anyhow!("{name} is more than one host"),
            }
        }
        Target::Rank(_) | Target::Role { .. } => anyhow!("{target} of which hosts?"),
    };
    Err(Failure::usage(error)
        .with_hint("-H a:4,b:4 names the hosts, and --job NAME a job that was started here"))
}

/// The job of this name; without one, the only job that runs and has what is looked for.
fn job_meant(name: Option<&str>, target: &Target) -> Result<Option<Record>, Failure> {
    if let Some(name) = name {
        return jobs::find(name).map(|(_, job)| Some(job));
    }
    let mut running = Registry::of_user().map_or_else(Vec::new, |registry| registry.all());
    running.retain(|job| job.phase() == Phase::Running);
    if let Target::Host(name) = target {
        // A host is one with or without a job.
        running.retain(|job| job.hosts.iter().any(|one| one.host.name == *name));
        return Ok(running.pop().filter(|_| running.is_empty()));
    }
    if running.len() > 1 {
        let names: Vec<&str> = running.iter().map(|job| &*job.name).collect();
        let error = anyhow!("{target} of which job?");
        let hint = format!("--job NAME says which; {} run", names.join(", "));
        return Err(Failure::usage(error).with_hint(hint));
    }
    Ok(running.pop())
}

/// The place in a job, reached as the job reaches it.
fn in_job(job: &Record, target: &Target, ssh: Ssh) -> Result<Place, Failure> {
    let places = Whereabouts::of_job(job);
    let host = places.find(target).map_err(|error| {
        let hint = format!("carole status {} shows its ranks and their hosts", job.name);
        Failure::usage(error).with_hint(hint)
    })?;
    let known = job.hosts.iter().find(|one| one.host == *host);
    Ok(Place {
        host: host.clone(),
        ssh: ssh.or(&job.ssh),
        folder: known.and_then(|one| one.folder.clone()),
    })
}

/// What this process becomes.
fn command(place: &Place, words: &[OsString]) -> Command {
    match &place.host.way {
        Way::Here => {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            let mut command = match words.split_first() {
                None => Command::new(shell.unwrap_or_else(|| "/bin/sh".into())),
                Some((program, arguments)) => {
                    let mut command = Command::new(program);
                    command.args(arguments);
                    command
                }
            };
            if let Some(folder) = &place.folder {
                command.current_dir(folder);
            }
            command
        }
        Way::Ssh(destination) => {
            let terminal = std::io::stdin().is_terminal();
            let line = match &place.folder {
                Some(folder) => Some(command_line(&in_folder(folder, words))),
                None if words.is_empty() => None,
                None => Some(command_line(words)),
            };
            let mut command = Command::new("ssh");
            command.args(ssh_words_for_person(
                destination,
                &place.ssh,
                terminal,
                line,
            ));
            command
        }
    }
}

/// What runs a command in a folder of another host, or the user's shell there.
fn in_folder(folder: &Path, words: &[OsString]) -> Vec<OsString> {
    let script = if words.is_empty() {
        r#"cd "$1" && exec "${SHELL:-/bin/sh}" -l"#
    } else {
        r#"cd "$1" && shift && exec "$@""#
    };
    let mut all: Vec<OsString> = ["sh", "-c", script, "sh"].map(OsString::from).into();
    all.push(folder.into());
    all.extend_from_slice(words);
    all
}
