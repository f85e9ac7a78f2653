//! What each host is told: purely from the job and from what the hosts have prepared.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use carole_plan::{HostLayout, PeerId, PortRange};

use super::host::{Host, Way};
use super::{Job, Member};
use crate::channel::message::{Prepare, RankStart, Start, Word};
use crate::environment::{EnvironmentSet, RankEnvironment};
use crate::error::Error;
use crate::place::Place;
use crate::random::random_incarnation;
use crate::request::Binding;

/// The variable in which a rank finds the ports that it may listen on.
const PORTS: &str = "CAROLE_PORTS";

/// What a host has prepared, as its ranks see it.
pub(super) struct Prepared {
    pub(super) address: IpAddr,
    /// One for each rank's framework; in a range, one for each rank's data; on the first host, the
    /// master's.
    pub(super) ports: Vec<u16>,
    pub(super) coordinator: SocketAddr,
    pub(super) token_file: OsString,
}

/// The addresses under which the hosts reach each other, from what each tells: how it is reached,
/// its own address, and the launcher's as it sees it.
///
/// A host that is this one is reached by the others as they see the launcher, unless interfaces were
/// `named`.
pub(crate) fn addresses(told: &[(&Way, IpAddr, Option<IpAddr>)], named: bool) -> Vec<IpAddr> {
    let seen = told.iter().find_map(|(_, _, launcher)| *launcher);
    let here = seen
        .filter(|_| told.len() > 1)
        .unwrap_or(Ipv4Addr::LOCALHOST.into());
    told.iter()
        .map(|(way, own, _)| match way {
            Way::Here if !named => here,
            _ => *own,
        })
        .collect()
}

/// Ports that are reserved on the first host for frameworks that meet there: PyTorch's and JAX's.
const MEETING_PORTS: usize = 2;

/// The order to prepare, for a host with so many ranks, which start in `folder`; the first host has
/// the meeting ports, too.
///
/// Ranks find a port for their data themselves, unless it must be in a range: then it is promised to
/// them like the others, so that no framework's is taken.
pub(super) fn prepare(
    job: &Job,
    host: &Host,
    folder: Option<&Path>,
    ranks: usize,
    first: bool,
) -> Prepare {
    let data = if job.ports.is_some() { ranks } else { 0 };
    Prepare {
        ports: ranks + data + if first { MEETING_PORTS } else { 0 },
        within: job.ports,
        interfaces: job.interfaces.clone(),
        tunnel: host.way != Way::Here,
        token: job.token.to_hex(),
        setup: job.setup.clone(),
        folder: folder.map(|folder| Word::from(folder.as_os_str())),
    }
}

/// The order to start, for each host.
pub(super) fn starts(
    job: &Job,
    ranks: &[usize],
    members: &[Member],
    prepared: &[Prepared],
) -> Result<Vec<Start>, Error> {
    let hosts: Vec<usize> = ranks
        .iter()
        .enumerate()
        .flat_map(|(host, ranks)| std::iter::repeat_n(host, *ranks))
        .collect();
    let layout = HostLayout::new(hosts.iter().copied());
    let master = &prepared[0];
    // Those of the frameworks come last.
    let others = master.ports.len().saturating_sub(MEETING_PORTS);
    let mut meeting = master.ports[others..].iter().copied();
    let master_port = job.master_port.or(meeting.next());
    // Where the master is somebody else's, its free ports are not known here.
    let jax = meeting
        .next()
        .filter(|_| job.master_address.is_none())
        .map(|port| SocketAddr::from((master.address, port)).to_string());
    let addresses: Vec<String> = ranks
        .iter()
        .zip(prepared)
        .flat_map(|(ranks, host)| {
            let at = |port: &u16| SocketAddr::from((host.address, *port)).to_string();
            host.ports[..*ranks].iter().map(at)
        })
        .collect();
    let master_address = job
        .master_address
        .clone()
        .unwrap_or_else(|| master.address.to_string());
    let several = ranks.iter().filter(|count| **count > 0).count() > 1;
    let mut starts = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let host = &prepared[index];
        let first = ranks[..index].iter().sum::<usize>();
        let mut rank_starts = Vec::new();
        for local in 0..ranks[index] {
            let rank = first + local;
            let position = layout.position(rank).ok_or_else(|| {
                Error::Internal(format!("rank {rank} has no place among the hosts"))
            })?;
            let peer = PeerId::new(
                member.host.name.as_str(),
                local as u16,
                random_incarnation()?,
            );
            let task = job.roles.task(rank);
            let environment = RankEnvironment {
                job: &job.job,
                roles: &job.roles,
                task,
                place: Place {
                    // In a job of several roles, ranks count within the role.
                    rank: task.index,
                    size: task.size,
                    local_rank: position.local_rank,
                    local_size: position.local_size,
                    host_rank: position.host_rank,
                    hosts: position.host_count,
                    cross_rank: position.cross_rank,
                    cross_size: position.cross_size,
                },
                peer: &peer,
                coordinator: &format!("http://{}", host.coordinator),
                token_file: &PathBuf::from(&host.token_file),
                generation: 1,
                restart: job.restart,
                max_restarts: job.max_restarts,
                master: master_address.as_str(),
                master_port: master_port.unwrap_or_default(),
                jax: jax.as_deref(),
                addresses: &addresses,
            };
            let mut variables = environment.variables(job.environment);
            if several {
                variables.push(("CAROLE_ADDRESS".into(), host.address.to_string().into()));
            }
            if job.ports.is_some() {
                let own = PortRange::single(host.ports[ranks[index] + local]);
                variables.push((PORTS.into(), own.to_string().into()));
            }
            let cores = cores(job.bind, local, ranks[index], &member.hello.nodes);
            let unset = std::env::var_os("OMP_NUM_THREADS").is_none();
            if unset && job.environment == EnvironmentSet::All {
                let threads = match cores.len() {
                    0 => (member.hello.cores / ranks[index]).max(1),
                    bound => bound,
                };
                variables.push(("OMP_NUM_THREADS".into(), threads.to_string().into()));
            }
            if job.isolate_gpus {
                let own = share(local, ranks[index], member.hello.gpus);
                let list: Vec<String> = own.map(|gpu| gpu.to_string()).collect();
                variables.push(("CUDA_VISIBLE_DEVICES".into(), list.join(",").into()));
            }
            variables.extend(job.variables.iter().cloned());
            let words = job.command_of(task.role);
            let mut words = words.iter().map(|word| Word::from(word.as_os_str()));
            rank_starts.push(RankStart {
                rank,
                program: words.next().unwrap_or_else(|| Word::Text(String::new())),
                arguments: words.collect(),
                variables: variables
                    .into_iter()
                    .map(|(name, value)| (name.into_owned(), Word::from(value.as_os_str())))
                    .collect(),
                cores,
                shell: false,
            });
        }
        starts.push(Start {
            ranks: rank_starts,
            grace: job.grace,
            hand_over: member.host.way == Way::Here,
            usage: job.usage,
        });
    }
    Ok(starts)
}

/// The part of `count` things that falls to one of `ranks`: equal parts, or one thing in turn where
/// there are fewer things than ranks.
fn share(local: usize, ranks: usize, count: usize) -> std::ops::Range<usize> {
    if count == 0 {
        0..0
    } else if count < ranks {
        local % count..local % count + 1
    } else {
        local * count / ranks..(local + 1) * count / ranks
    }
}

/// The cores that a rank is bound to; none for any.
fn cores(bind: Binding, local: usize, ranks: usize, nodes: &[Vec<usize>]) -> Vec<usize> {
    match bind {
        Binding::None => Vec::new(),
        Binding::Core => {
            let all: Vec<usize> = nodes.iter().flatten().copied().collect();
            all[share(local, ranks, all.len())].to_vec()
        }
        Binding::Numa => nodes[share(local, ranks, nodes.len())].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_cores_equally_and_then_in_turn() {
        let nodes = [vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
        let bound = |bind, ranks| -> Vec<Vec<usize>> {
            (0..ranks)
                .map(|local| cores(bind, local, ranks, &nodes))
                .collect()
        };
        assert_eq!(bound(Binding::Core, 2), nodes);
        assert_eq!(
            bound(Binding::Core, 3),
            [vec![0, 1], vec![2, 3, 4], vec![5, 6, 7]]
        );
        assert_eq!(bound(Binding::Core, 9)[8], [0]);
        assert_eq!(bound(Binding::Numa, 3)[2], nodes[0]);
        assert_eq!(bound(Binding::Numa, 1), [[0, 1, 2, 3, 4, 5, 6, 7]]);
        assert_eq!(bound(Binding::None, 1), [[0; 0]]);
    }

    #[test]
    fn a_host_without_gpus_gives_none() {
        assert_eq!(share(1, 4, 0), 0..0);
        assert_eq!(share(1, 4, 8), 2..4);
        assert_eq!(share(5, 6, 4), 1..2);
    }
}
