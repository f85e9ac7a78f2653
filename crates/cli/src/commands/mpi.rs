//! `--mpi`: the installed MPI starts the ranks and wires them up.
//!
//! An MPI program finds its world through its own MPI only. Carole then starts one process,
//! `mpirun`, watches it and cleans up after it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, anyhow};
use carole_launch::fleet::Way;
use carole_launch::request::{Hosts, OutputRequest, Ranks, Request, Ssh};
use carole_launch::{EnvironmentSet, Listed};

use super::run::wrong_hosts;
use crate::failure::Failure;

/// MPIs whose starters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    OpenMpi,
    /// MPICH and Intel MPI.
    Hydra,
}

/// The request whose one process starts the others.
pub(super) fn under_mpirun(request: &Request) -> Result<Request, Failure> {
    let starter = ["mpirun", "mpiexec"]
        .into_iter()
        .find(|name| super::run::exists(name))
        .ok_or_else(|| {
            Failure::usage(anyhow!("there is no mpirun and no mpiexec"))
                .with_hint("install an MPI, or put its folder into PATH")
        })?;
    let said = Command::new(starter)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {starter}"))
        .map_err(Failure::new)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let flavour = if said.contains("Open MPI") || said.contains("OpenRTE") || said.contains("PRTE")
    {
        Flavour::OpenMpi
    } else {
        Flavour::Hydra
    };
    let listed = Listed::find(&request.hosts).map_err(wrong_hosts)?;
    let (ranks, hosts) = place(request, &listed)?;
    let remote = listed.hosts.iter().any(|host| host.way != Way::Here);
    let shell = remote.then(|| remote_shell(&request.ssh));
    let root = rustix::process::geteuid().is_root();
    Ok(Request {
        hosts: Hosts::Here,
        ranks: Ranks::Total(1),
        command: words(
            starter,
            flavour,
            ranks,
            &hosts,
            shell.as_deref(),
            root,
            request,
        ),
        mpi: false,
        environment: EnvironmentSet::Nothing,
        output: OutputRequest {
            // It is mpirun's own to say whose a line is.
            prefix: false,
            ..request.output.clone()
        },
        ..request.clone()
    })
}

/// How many ranks, and the hosts with their slots; no hosts for this machine alone.
fn place(request: &Request, listed: &Listed) -> Result<(usize, Vec<(String, usize)>), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = vec![carole_launch::Facts { cores, gpus: 0 }; listed.hosts.len()];
    let counts = listed
        .with_default(request.default_slots, &facts)
        .counts(request.ranks, request.oversubscribe, &facts)
        .map_err(wrong_hosts)?;
    let ranks = counts.iter().sum();
    let named = listed
        .hosts
        .iter()
        .map(|host| host.name.clone())
        .zip(counts);
    let hosts = match listed.slots {
        None => Vec::new(),
        Some(_) => named.filter(|(_, count)| *count > 0).collect(),
    };
    Ok((ranks, hosts))
}

fn words(
    starter: &str,
    flavour: Flavour,
    ranks: usize,
    hosts: &[(String, usize)],
    shell: Option<&str>,
    root: bool,
    request: &Request,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![starter.into(), "-n".into(), ranks.to_string().into()];
    let list: Vec<String> = hosts
        .iter()
        .map(|(host, count)| format!("{host}:{count}"))
        .collect();
    let list = list.join(",");
    match flavour {
        Flavour::OpenMpi => {
            words.push("--oversubscribe".into());
            if root {
                words.push("--allow-run-as-root".into());
            }
            if !hosts.is_empty() {
                words.extend(["--host".into(), list.into()]);
            }
            if let Some(shell) = shell {
                words.extend(["--mca".into(), "plm_rsh_agent".into(), shell.into()]);
            }
            for (name, _) in &request.variables {
                words.extend(["-x".into(), name.into()]);
            }
        }
        Flavour::Hydra => {
            if !hosts.is_empty() {
                words.extend(["-hosts".into(), list.into()]);
            }
            if let Some(shell) = shell {
                words.extend(["-launcher".into(), "ssh".into()]);
                words.extend(["-launcher-exec".into(), shell.into()]);
            }
        }
    }
    words.extend(request.command.iter().cloned());
    words
}

/// SSH with the options that hosts are reached with.
fn remote_shell(ssh: &Ssh) -> String {
    let mut words = vec!["ssh".to_owned()];
    for option in &ssh.options {
        words.extend(["-o".into(), option.clone()]);
    }
    if let Some(identity) = &ssh.identity {
        words.extend(["-i".into(), identity.display().to_string()]);
    }
    if let Some(port) = ssh.port {
        words.extend(["-p".into(), port.to_string()]);
    }
    if let Some(user) = &ssh.user {
        words.extend(["-l".into(), user.clone()]);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_starter_gets_its_own_words() {
        let request = Request {
            command: vec!["./program".into()],
            variables: vec![("A".into(), Some("1".into()))],
            ..Request::default()
        };
        let hosts = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        let line = |flavour, hosts: &[_], shell| {
            let words = words("mpirun", flavour, 3, hosts, shell, false, &request);
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            line(Flavour::OpenMpi, &hosts, Some("ssh -p 22")),
            "mpirun -n 3 --oversubscribe --host a:2,b:1 --mca plm_rsh_agent ssh -p 22 -x A ./program"
        );
        assert_eq!(line(Flavour::Hydra, &[], None), "mpirun -n 3 ./program");
    }
}
