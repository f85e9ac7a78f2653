//! Which hosts, and how they are reached: the same for every command that goes to hosts.

use std::path::PathBuf;

use carole_launch::request::{BatchSystem, Hosts, Ssh};
use clap::{ArgGroup, Args, ValueEnum};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Hosts")]
#[command(group = ArgGroup::new("where").args(["hosts", "hostfile", "host_discovery_script", "hosts_from"]))]
pub(crate) struct PlaceArguments {
    /// The hosts: `NAME[:SLOTS]`, `user@NAME`, `NAME:PORT[:SLOTS]`
    #[arg(short = 'H', long, value_name = "HOST,…")]
    pub(crate) hosts: Option<String>,

    /// A file of hosts, one a line: `NAME slots=4`
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,

    /// A program that prints hosts, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) host_discovery_script: Option<PathBuf>,

    /// Take the hosts from the batch system that this runs under
    #[arg(long, value_name = "SYSTEM", value_enum)]
    pub(crate) hosts_from: Option<BatchChoice>,

    /// The user for ssh
    #[arg(long, value_name = "NAME")]
    pub(crate) ssh_user: Option<String>,

    /// The port for ssh
    #[arg(long, value_name = "PORT")]
    pub(crate) ssh_port: Option<u16>,

    /// The key for ssh
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_identity: Option<PathBuf>,

    /// A further option for ssh, as after its -o
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) ssh_option: Vec<String>,

    /// Do not check host keys
    #[arg(long)]
    pub(crate) ssh_trust: bool,
}

impl PlaceArguments {
    /// Where the hosts are to be found.
    pub(crate) fn hosts(&self) -> Hosts {
        let Self {
            hosts,
            hostfile,
            host_discovery_script,
            hosts_from,
            ..
        } = self.clone();
        match (hosts, hostfile, host_discovery_script, hosts_from) {
            (Some(list), ..) => Hosts::List(list),
            (_, Some(file), ..) => Hosts::File(file),
            (_, _, Some(script), _) => Hosts::Script(script),
            (.., Some(system)) => Hosts::Batch(system.into()),
            _ => Hosts::Here,
        }
    }

    /// How they are reached.
    pub(crate) fn ssh(&self) -> Ssh {
        Ssh {
            user: self.ssh_user.clone(),
            port: self.ssh_port,
            identity: self.ssh_identity.clone(),
            options: self.ssh_option.clone(),
            trust_any_host: self.ssh_trust,
        }
    }
}

/// The values of `--hosts-from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchChoice {
    /// `SLURM_JOB_NODELIST` and `SLURM_TASKS_PER_NODE`
    Slurm,
    /// `PBS_NODEFILE`
    Pbs,
    /// `LSB_DJOB_HOSTFILE` or `LSB_MCPU_HOSTS`
    Lsf,
    /// `CAROLE_HOSTS`, as after -H
    Env,
}

impl From<BatchChoice> for BatchSystem {
    fn from(choice: BatchChoice) -> Self {
        match choice {
            BatchChoice::Slurm => Self::Slurm,
            BatchChoice::Pbs => Self::Pbs,
            BatchChoice::Lsf => Self::Lsf,
            BatchChoice::Env => Self::Environment,
        }
    }
}
