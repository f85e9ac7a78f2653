//! `--mpi`: the installed MPI starts the ranks and wires them up.
//!
//! An MPI program finds its world through its own MPI only. Carole then starts one process,
//! `mpirun`, on this host. On the others there are agents as for any job: they start the MPI's
//! daemons, for which `mpirun` finds Carole's [remote shell](carole_launch::shell) in its
//! environment, and end what these leave.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};
use carole_launch::request::{Binding, Hosts, OutputRequest, Ranks, Request};
use carole_launch::{EnvironmentSet, Listed, RemoteShell, program};

use super::remote_shell;
use super::run::{Work, variables, wrong_hosts};
use crate::failure::Failure;

/// MPIs whose starters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    OpenMpi,
    /// MPICH and Intel MPI.
    Hydra,
}

/// The work of one process that starts the others.
pub(super) fn under_mpirun(request: &Request) -> Result<Work, Failure> {
    let search = std::env::var_os("PATH");
    let starter = ["mpirun", "mpiexec"]
        .into_iter()
        .find_map(|name| program::find(name.as_ref(), search.as_deref()).ok())
        .map(|found| where_installed(&found))
        .ok_or_else(|| {
            Failure::usage(anyhow!("there is no mpirun and no mpiexec"))
                .with_hint("install an MPI, or put its folder into PATH; a program that needs none runs with carole run")
        })?;
    let said = Command::new(&starter)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", starter.display()))
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
    let root = rustix::process::geteuid().is_root();
    let mut command = vec![starter.into_os_string()];
    command.extend(words(flavour, ranks, &hosts, root, request));
    let under_mpirun = Request {
        hosts: Hosts::Here,
        ranks: Ranks::Total(1),
        command,
        environment: EnvironmentSet::Nothing,
        output: OutputRequest {
            // It is mpirun's own to say whose a line is.
            prefix: false,
            ..request.output.clone()
        },
        // What ranks are bound to is mpirun's to see to.
        bind: Binding::None,
        ..request.clone()
    };
    let listed = listed.from_here();
    let remote_shell = (listed.hosts.len() > 1).then(|| RemoteShell {
        program: remote_shell::program(),
        // Open MPI tells all addresses that it has, Hydra a name that hosts may not know.
        address_option: (flavour == Flavour::Hydra).then(|| "-localhost".into()),
    });
    Ok(Work {
        variables: variables(&under_mpirun)?,
        request: under_mpirun,
        listed,
        remote_shell,
    })
}

/// The program as it is called in the folder where it really lies, by which an MPI knows where its
/// parts are on other hosts.
fn where_installed(found: &Path) -> PathBuf {
    let Ok(real) = found.canonicalize() else {
        return found.to_owned();
    };
    let named = found.file_name().map(|name| real.with_file_name(name));
    named.filter(|named| named.exists()).unwrap_or(real)
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

/// What follows the starter's name.
fn words(
    flavour: Flavour,
    ranks: usize,
    hosts: &[(String, usize)],
    root: bool,
    request: &Request,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["-n".into(), ranks.to_string().into()];
    let list: Vec<String> = hosts
        .iter()
        .map(|(host, count)| format!("{host}:{count}"))
        .collect();
    let list = list.join(",");
    match flavour {
        Flavour::OpenMpi => {
            // The hosts' slots are what they get: with leave for more, Open MPI 5 would fill the
            // first host with all ranks.
            if hosts.is_empty() {
                words.push("--oversubscribe".into());
            } else {
                words.extend(["--host".into(), list.into()]);
            }
            let binding = match request.bind {
                Binding::None => "none",
                Binding::Core => "core",
                Binding::Numa => "numa",
            };
            words.extend(["--bind-to".into(), binding.into()]);
            if root {
                words.push("--allow-run-as-root".into());
            }
            for (name, _) in &request.variables {
                words.extend(["-x".into(), name.into()]);
            }
        }
        Flavour::Hydra => {
            if !hosts.is_empty() {
                words.extend(["-hosts".into(), list.into()]);
            }
        }
    }
    words.extend(request.command.iter().cloned());
    words
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
        let line = |flavour, hosts: &[_]| {
            let words = words(flavour, 3, hosts, false, &request);
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            line(Flavour::OpenMpi, &hosts),
            "-n 3 --host a:2,b:1 --bind-to none -x A ./program"
        );
        assert_eq!(
            line(Flavour::Hydra, &hosts),
            "-n 3 -hosts a:2,b:1 ./program"
        );
        assert_eq!(line(Flavour::Hydra, &[]), "-n 3 ./program");
    }
}
