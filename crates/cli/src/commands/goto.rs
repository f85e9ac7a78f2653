//! `carole goto`: a shell on the host that is meant.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::anyhow;
use carole_launch::fleet::{Way, ssh_words_for_person};
use carole_launch::remote::command_line;
use carole_launch::request::{Hosts, Ssh};
use carole_launch::{Host, Listed, Target, Whereabouts};

use super::run::wrong_hosts;
use crate::args::GotoArguments;
use crate::failure::Failure;

pub(crate) fn goto(arguments: &GotoArguments) -> Result<ExitCode, Failure> {
    let host = find(arguments)?;
    let mut command = command(&host, &arguments.place.ssh(), &arguments.command);
    let program = command.get_program().to_string_lossy().into_owned();
    // Its terminal is this process's, and its exit code too.
    let error = anyhow::Error::new(command.exec()).context(format!("cannot run {program}"));
    Err(Failure::new(error).with_hint("is it installed, and is its folder in PATH?"))
}

/// The host that is meant: by the list, or by itself where there is none.
fn find(arguments: &GotoArguments) -> Result<Host, Failure> {
    let target = arguments.target()?;
    let hosts = arguments.place.hosts();
    if hosts != Hosts::Here {
        let listed = Listed::find(&hosts).map_err(wrong_hosts)?;
        let found = Whereabouts::of_list(&listed).find(&target).cloned();
        return found.map_err(|error| {
            Failure::usage(error).with_hint("ranks fill the slots of the hosts in their order")
        });
    }
    let error = match target {
        Target::Host(name) => {
            let listed = Listed::from_list(&name).map_err(wrong_hosts)?;
            match <[Host; 1]>::try_from(listed.hosts) {
                Ok([host]) => return Ok(host),
                Err(_) => anyhow!("{name} is more than one host"),
            }
        }
        Target::Rank(rank) => anyhow!("rank {rank} of which hosts?"),
        Target::Role { role, index } => anyhow!("{role} {index} of which hosts?"),
    };
    Err(Failure::usage(error)
        .with_hint("-H a:4,b:4 names the hosts, as in carole goto -H a:4,b:4 5"))
}

/// What this process becomes.
fn command(host: &Host, ssh: &Ssh, words: &[OsString]) -> Command {
    match (&host.way, words.split_first()) {
        (Way::Here, None) => {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            Command::new(shell.unwrap_or_else(|| "/bin/sh".into()))
        }
        (Way::Here, Some((program, arguments))) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        (Way::Ssh(destination), first) => {
            let terminal = std::io::stdin().is_terminal();
            let line = first.map(|_| command_line(words));
            let mut command = Command::new("ssh");
            command.args(ssh_words_for_person(destination, ssh, terminal, line));
            command
        }
    }
}
