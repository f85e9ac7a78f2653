//! What `carole doctor` asks of an agent, and what it is told.
//!
//! Facts only: whether they are good is decided beside the launcher, in [`doctor`](crate::doctor).

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Examine the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Examine {
    /// Which interface's address is told, as when a job is prepared.
    pub(crate) interfaces: Vec<String>,
}

/// Listen for one connection of another host, for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listen {
    pub(crate) address: IpAddr,
    /// What the connection must begin with.
    pub(crate) word: String,
}

/// Connect to a host that listens, and measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) address: SocketAddr,
    pub(crate) word: String,
}

/// What a connection between two hosts is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// The address that it was made from.
    pub(crate) from: IpAddr,
    /// The median of some small round trips.
    pub(crate) round_trip_nanos: u64,
    /// What arrived in a burst.
    pub(crate) bytes: u64,
    /// And in what time.
    pub(crate) nanos: u64,
}

/// What a host is like. Where something did not work, the text says why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Examined {
    pub(crate) architecture: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The processor's model, where the kernel tells it.
    pub(crate) model: Option<String>,
    /// The host's own address, for the other hosts.
    pub(crate) address: Result<IpAddr, String>,
    /// The launcher's, as it looks from there.
    pub(crate) launcher: Option<IpAddr>,
    pub(crate) interfaces: Vec<(String, IpAddr)>,
    pub(crate) ports: Ports,
    /// How many bytes of shared memory were made and used.
    pub(crate) shared_memory: Result<u64, String>,
    pub(crate) limits: Limits,
    pub(crate) cache: Folder,
    pub(crate) temporary: Folder,
    pub(crate) cores: Cores,
    pub(crate) memory: Memory,
    pub(crate) devices: Devices,
    pub(crate) features: Features,
}

/// Ports that programs may listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// How many were reserved and listened on.
    pub(crate) bound: Result<usize, String>,
    /// Where free ports come from.
    pub(crate) range: Option<(u16, u16)>,
}

/// What a process may have; none where there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) open_files: Option<u64>,
    /// The highest value that a process may set itself.
    pub(crate) open_files_hard: Option<u64>,
    pub(crate) processes: Option<u64>,
    /// Processes and threads that the cgroup still has room for.
    pub(crate) cgroup_processes: Option<u64>,
    pub(crate) locked_memory: Option<u64>,
    pub(crate) address_space: Option<u64>,
    pub(crate) file_size: Option<u64>,
}

/// A folder, or the nearest one above it that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folder {
    pub(crate) path: String,
    /// Bytes that this user may still write there.
    pub(crate) free: Result<u64, String>,
    pub(crate) writable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cores {
    pub(crate) online: usize,
    /// Those that this process may use.
    pub(crate) allowed: usize,
    /// What the cgroup grants, in thousandths of a core.
    pub(crate) quota: Option<u64>,
}

/// In bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) available: u64,
    /// What the cgroup grants.
    pub(crate) limit: Option<u64>,
    /// What is left of that.
    pub(crate) left: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Devices {
    /// NVIDIA GPUs that the driver shows.
    pub(crate) gpus: usize,
    /// Those that are on the bus, with or without a driver.
    pub(crate) on_bus: usize,
    /// Whether the loader knows CUDA's library.
    pub(crate) cuda: bool,
    /// Whether the loader knows NCCL's.
    pub(crate) nccl: bool,
    /// Whether there are InfiniBand devices.
    pub(crate) infiniband: bool,
}

/// What the engine wants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Features {
    pub(crate) membarrier: Result<(), String>,
    pub(crate) pidfd: Result<(), String>,
    pub(crate) futex: Result<(), String>,
}
