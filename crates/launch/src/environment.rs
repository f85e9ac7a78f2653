//! What a launched process sees.
//!
//! Carole's own variables are always set. Those of other systems are set too unless the user asked
//! for none, so that a program written for PyTorch, Horovod, Open MPI or TensorFlow finds its rank
//! where it looks for it. Everything else is inherited; `CUDA_VISIBLE_DEVICES` is left alone.
//!
//! Building the variables is pure: the same place gives the same variables.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use carole_plan::PeerId;
use serde_json::json;

use crate::place::Place;
use crate::role::{Role, Roles, Task};

/// Which variables a process gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvironmentSet {
    /// Carole's own and those that programs written for others read.
    #[default]
    All,
    /// Carole's own only.
    Carole,
    /// None: the process is no rank, but starts ranks in its own way.
    Nothing,
}

/// A variable and its value.
pub type Variable = (Cow<'static, str>, OsString);

/// A variable whose name is known here.
type Named = (&'static str, OsString);

/// Everything a rank's variables are made from.
#[derive(Clone, Copy, Debug)]
pub struct RankEnvironment<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The processes of the job by role.
    pub roles: &'a Roles,
    /// Which of them this is.
    pub task: Task,
    /// Where the rank stands.
    pub place: Place,
    /// Who it is.
    pub peer: &'a PeerId,
    /// The coordinator's address, `http://HOST:PORT`.
    pub coordinator: &'a str,
    /// The file with the job's token.
    pub token_file: &'a Path,
    /// The counter of the generation the rank was started for.
    pub generation: u32,
    /// How often the role was restarted.
    pub restart: u32,
    /// How often it may be.
    pub max_restarts: u32,
    /// The address of rank 0, for frameworks that meet there.
    pub master: &'a str,
    /// A port of rank 0's host that was reserved for them.
    pub master_port: u16,
    /// Where processes of JAX meet, `HOST:PORT`; none where this is not known here.
    pub jax: Option<&'a str>,
    /// For each process an address and a port reserved there, `HOST:PORT`, for frameworks whose
    /// processes all listen.
    pub addresses: &'a [String],
}

impl RankEnvironment<'_> {
    /// The variables of `set`.
    pub fn variables(&self, set: EnvironmentSet) -> Vec<Variable> {
        if set == EnvironmentSet::Nothing {
            return Vec::new();
        }
        let mut variables = self.carole();
        if set == EnvironmentSet::All {
            variables.extend(self.pytorch());
            variables.extend(self.horovod());
            variables.extend(self.open_mpi());
            variables.extend(self.tensorflow());
            variables.extend(self.jax());
            variables.push(self.without_proxy());
        }
        let named = variables.into_iter();
        named.map(|(name, value)| (name.into(), value)).collect()
    }

    fn carole(&self) -> Vec<Named> {
        let Place {
            rank,
            size,
            local_rank,
            local_size,
            host_rank,
            ..
        } = self.place;
        vec![
            ("CAROLE_COORDINATOR", self.coordinator.into()),
            ("CAROLE_JOB", self.job.into()),
            ("CAROLE_TOKEN_FILE", self.token_file.into()),
            ("CAROLE_PEER", format!("{:#}", self.peer).into()),
            ("CAROLE_RANK", number(rank)),
            ("CAROLE_SIZE", number(size)),
            ("CAROLE_LOCAL_RANK", number(local_rank)),
            ("CAROLE_LOCAL_SIZE", number(local_size)),
            ("CAROLE_HOST_RANK", number(host_rank)),
            ("CAROLE_ROLE", self.task.role.name().into()),
            ("CAROLE_GENERATION", number(self.generation)),
            ("CAROLE_RESTART", number(self.restart)),
            // The agent has a pipe for it; where it cannot make one, what is written goes nowhere.
            ("CAROLE_PROGRESS", "/dev/null".into()),
        ]
    }

    /// What torchrun sets.
    fn pytorch(&self) -> Vec<Named> {
        let Place {
            rank,
            size,
            local_rank,
            local_size,
            host_rank,
            hosts,
            ..
        } = self.place;
        vec![
            ("RANK", number(rank)),
            ("WORLD_SIZE", number(size)),
            ("LOCAL_RANK", number(local_rank)),
            ("LOCAL_WORLD_SIZE", number(local_size)),
            ("GROUP_RANK", number(host_rank)),
            ("GROUP_WORLD_SIZE", number(hosts)),
            ("ROLE_RANK", number(rank)),
            ("ROLE_NAME", self.task.role.name().into()),
            ("ROLE_WORLD_SIZE", number(size)),
            ("MASTER_ADDR", self.master.into()),
            ("MASTER_PORT", number(self.master_port)),
            ("TORCHELASTIC_RESTART_COUNT", number(self.restart)),
            ("TORCHELASTIC_MAX_RESTARTS", number(self.max_restarts)),
            ("TORCHELASTIC_RUN_ID", self.job.into()),
        ]
    }

    /// What horovodrun sets, less the address of its own rendezvous server.
    fn horovod(&self) -> Vec<Named> {
        let Place {
            rank,
            size,
            local_rank,
            local_size,
            cross_rank,
            cross_size,
            ..
        } = self.place;
        vec![
            ("HOROVOD_HOSTNAME", self.peer.host.clone().into()),
            ("HOROVOD_RANK", number(rank)),
            ("HOROVOD_SIZE", number(size)),
            ("HOROVOD_LOCAL_RANK", number(local_rank)),
            ("HOROVOD_LOCAL_SIZE", number(local_size)),
            ("HOROVOD_CROSS_RANK", number(cross_rank)),
            ("HOROVOD_CROSS_SIZE", number(cross_size)),
        ]
    }

    /// What Open MPI's mpirun sets for programs that only read their rank. Its node rank counts the
    /// processes of a node, not the nodes.
    fn open_mpi(&self) -> Vec<Named> {
        let Place {
            rank,
            size,
            local_rank,
            local_size,
            ..
        } = self.place;
        vec![
            ("OMPI_COMM_WORLD_RANK", number(rank)),
            ("OMPI_COMM_WORLD_SIZE", number(size)),
            ("OMPI_COMM_WORLD_LOCAL_RANK", number(local_rank)),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", number(local_size)),
            ("OMPI_COMM_WORLD_NODE_RANK", number(local_rank)),
            ("OMPI_UNIVERSE_SIZE", number(size)),
        ]
    }

    /// `TF_CONFIG`: the addresses by role, and what this process is. Where there is no chief, worker
    /// 0 is. An evaluator is outside the cluster.
    fn tensorflow(&self) -> Vec<Named> {
        let mut cluster = serde_json::Map::new();
        for (role, range) in self.roles.ranges() {
            if role != Role::Evaluator && !range.is_empty() {
                cluster.insert(role.name().into(), json!(self.addresses[range]));
            }
        }
        let config = json!({
            "cluster": cluster,
            "task": { "type": self.task.role.name(), "index": self.task.index },
        });
        vec![
            ("TF_CONFIG", config.to_string().into()),
            ("NUM_WORKERS", number(self.roles.worker_count())),
        ]
    }

    /// Where JAX meets. It takes its rank from Open MPI's variables if it sees the one with the
    /// address of Open MPI's own daemon, which Open MPI itself does without.
    fn jax(&self) -> Vec<Named> {
        let Some(address) = self.jax else {
            return Vec::new();
        };
        let daemon = format!("0.0;tcp://{address}");
        vec![
            ("JAX_COORDINATOR_ADDRESS", address.into()),
            ("OMPI_MCA_orte_hnp_uri", daemon.into()),
        ]
    }

    /// gRPC asks a proxy even for the other ranks, unless it is told not to.
    fn without_proxy(&self) -> Named {
        let mut hosts: Vec<&str> = self
            .addresses
            .iter()
            .filter_map(|address| address.rsplit_once(':'))
            .map(|(host, _)| host.trim_matches(['[', ']']))
            .collect();
        hosts.push(self.master);
        hosts.sort_unstable();
        hosts.dedup();
        (NO_PROXY, hosts.join(",").into())
    }
}

/// For which hosts gRPC does not ask a proxy; a list that is continued where it is set already.
pub(crate) const NO_PROXY: &str = "no_grpc_proxy";

/// The list of hosts that are reached without a proxy, continued by those of the job.
pub(crate) fn continued_no_proxy(job: &OsStr) -> OsString {
    let set = std::env::var_os(NO_PROXY).or_else(|| std::env::var_os("no_proxy"));
    match set.filter(|list| !list.is_empty()) {
        Some(mut list) => {
            list.push(",");
            list.push(job);
            list
        }
        None => job.to_owned(),
    }
}

fn number(value: impl ToString + Copy) -> OsString {
    value.to_string().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn variables(set: EnvironmentSet) -> BTreeMap<Cow<'static, str>, String> {
        let workers: Vec<String> = (0..6)
            .map(|rank| format!("10.0.0.1:{}", 7000 + rank))
            .collect();
        let peer = PeerId {
            host: "node-b".into(),
            slot: 1,
            incarnation: 0xfab,
        };
        let roles = Roles::workers(6);
        let environment = RankEnvironment {
            job: "digits",
            roles: &roles,
            task: roles.task(4),
            place: Place {
                rank: 4,
                size: 6,
                local_rank: 1,
                local_size: 3,
                host_rank: 1,
                hosts: 2,
                cross_rank: 1,
                cross_size: 2,
            },
            peer: &peer,
            coordinator: "http://10.0.0.1:4000",
            token_file: Path::new("/run/carole-x/token"),
            generation: 1,
            restart: 2,
            max_restarts: 3,
            master: "10.0.0.1",
            master_port: 29500,
            jax: Some("10.0.0.1:29501"),
            addresses: &workers,
        };
        let variables = environment.variables(set);
        let count = variables.len();
        let map: BTreeMap<_, _> = variables
            .into_iter()
            .map(|(name, value)| (name, value.into_string().expect("all of these are text")))
            .collect();
        assert_eq!(map.len(), count, "no variable is given twice");
        map
    }

    #[test]
    fn each_system_finds_its_rank_where_it_looks_for_it() {
        let variables = variables(EnvironmentSet::All);
        for (name, value) in [
            ("CAROLE_PEER", "node-b:1/00000000000000000000000000000fab"),
            ("CAROLE_TOKEN_FILE", "/run/carole-x/token"),
            ("CAROLE_RANK", "4"),
            ("CAROLE_HOST_RANK", "1"),
            ("CAROLE_GENERATION", "1"),
            ("CAROLE_RESTART", "2"),
            ("RANK", "4"),
            ("WORLD_SIZE", "6"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "3"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("HOROVOD_CROSS_RANK", "1"),
            ("HOROVOD_CROSS_SIZE", "2"),
            ("OMPI_COMM_WORLD_NODE_RANK", "1"),
            ("NUM_WORKERS", "6"),
            ("JAX_COORDINATOR_ADDRESS", "10.0.0.1:29501"),
            ("OMPI_MCA_orte_hnp_uri", "0.0;tcp://10.0.0.1:29501"),
            ("no_grpc_proxy", "10.0.0.1"),
        ] {
            assert_eq!(
                variables.get(name).map(String::as_str),
                Some(value),
                "{name}"
            );
        }
    }

    #[test]
    fn tf_config_lists_every_worker_and_this_ones_index() {
        let config: serde_json::Value =
            serde_json::from_str(&variables(EnvironmentSet::All)["TF_CONFIG"]).unwrap();
        assert_eq!(config["cluster"]["worker"].as_array().unwrap().len(), 6);
        assert_eq!(config["cluster"]["worker"][4], "10.0.0.1:7004");
        assert_eq!(config["task"], json!({ "type": "worker", "index": 4 }));
    }

    #[test]
    fn tf_config_has_every_role_but_the_evaluator() {
        let roles = Roles::with_servers(1, true, 2, true);
        let addresses: Vec<String> = (0..5).map(|n| format!("10.0.0.1:{n}")).collect();
        let peer = PeerId::new("a", 0, 1);
        let of = |number: usize| {
            let environment = RankEnvironment {
                job: "digits",
                roles: &roles,
                task: roles.task(number),
                place: Place::on_one_host(number, 5),
                peer: &peer,
                coordinator: "http://10.0.0.1:4000",
                token_file: Path::new("/token"),
                generation: 1,
                restart: 0,
                max_restarts: 0,
                master: "10.0.0.1",
                master_port: 29500,
                jax: None,
                addresses: &addresses,
            };
            let variables = environment.variables(EnvironmentSet::All);
            let config = variables
                .iter()
                .find(|(name, _)| name == "TF_CONFIG")
                .unwrap();
            serde_json::from_str::<serde_json::Value>(config.1.to_str().unwrap()).unwrap()
        };
        let cluster = json!({
            "ps": ["10.0.0.1:0"],
            "chief": ["10.0.0.1:1"],
            "worker": ["10.0.0.1:2", "10.0.0.1:3"],
        });
        assert_eq!(
            of(3),
            json!({"cluster": cluster, "task": {"type": "worker", "index": 1}})
        );
        assert_eq!(
            of(4),
            json!({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
        );
    }

    #[test]
    fn carole_alone_means_only_caroles_names() {
        let variables = variables(EnvironmentSet::Carole);
        assert!(variables.keys().all(|name| name.starts_with("CAROLE_")));
        assert_eq!(variables.len(), 13);
    }
}
