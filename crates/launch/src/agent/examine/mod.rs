//! What an agent finds out about its host for `carole doctor`.
//!
//! Everything is tried the way a job would use it, and nothing is left behind. Whether a fact is
//! good is not decided here.

mod cgroup;
mod devices;
mod kernel;

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};

use super::host;
use crate::channel::examination::{Cores, Examined, Folder, Limits, Memory, Ports};
use crate::ports::ReservedPorts;

/// How many ports are tried.
const PORTS: usize = 8;

/// Examines this host.
pub(super) fn examine(interfaces: &[String]) -> Examined {
    let system = rustix::system::uname();
    let cgroup = cgroup::limits();
    let limits = limits(cgroup.processes);
    Examined {
        architecture: env::consts::ARCH.to_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        model: model(&read("/proc/cpuinfo")),
        address: host::address(interfaces).map_err(|error| error.to_string()),
        launcher: host::launcher_address(),
        interfaces: host::interface_addresses().unwrap_or_default(),
        ports: Ports {
            bound: bind_ports(),
            range: port_range(&read("/proc/sys/net/ipv4/ip_local_port_range")),
        },
        shared_memory: kernel::shared_memory(&limits),
        limits,
        cache: folder(&host::cache_folder()),
        temporary: folder(&env::temp_dir()),
        cores: cores(cgroup.cores),
        memory: memory(&read("/proc/meminfo"), cgroup.memory, cgroup.memory_left),
        devices: devices::devices(),
        features: kernel::features(),
    }
}

/// The time, in nanoseconds since 1970.
pub(super) fn clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first model that the kernel lists.
fn model(processors: &str) -> Option<String> {
    let fields = processors.lines().filter_map(|line| line.split_once(':'));
    let mut models = fields.filter(|(name, _)| name.trim() == "model name");
    models.next().map(|(_, model)| model.trim().to_owned())
}

/// Reserves ports as for ranks, and listens on them as ranks would.
fn bind_ports() -> Result<usize, String> {
    let told = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let ports = ReservedPorts::new(PORTS, None).map_err(|error| told(&error))?;
    for port in ports.numbers() {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))
            .map_err(|error| format!("cannot listen on the reserved port {port}: {error}"))?;
    }
    Ok(PORTS)
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Some((first, last)),
        _ => None,
    }
}

fn limits(cgroup_processes: Option<u64>) -> Limits {
    let soft = |resource| getrlimit(resource).current;
    Limits {
        open_files: soft(Resource::Nofile),
        open_files_hard: getrlimit(Resource::Nofile).maximum,
        processes: soft(Resource::Nproc),
        cgroup_processes,
        locked_memory: soft(Resource::Memlock),
        address_space: soft(Resource::As),
        file_size: soft(Resource::Fsize),
    }
}

fn folder(path: &Path) -> Folder {
    let nearest = path.ancestors().find(|folder| folder.is_dir());
    let free = match nearest {
        Some(nearest) => statvfs(nearest)
            .map(|system| system.f_bavail.saturating_mul(system.f_frsize))
            .map_err(|error| io::Error::from(error).to_string()),
        None => Err("there is no such folder".to_owned()),
    };
    Folder {
        path: path.to_string_lossy().into_owned(),
        free,
        writable: nearest.is_some_and(|nearest| access(nearest, Access::WRITE_OK).is_ok()),
    }
}

fn cores(quota: Option<u64>) -> Cores {
    let allowed = host::allowed_cores().len();
    let online = host::cores_of(read("/sys/devices/system/cpu/online").trim()).len();
    Cores {
        online: online.max(allowed),
        allowed,
        quota,
    }
}

fn memory(information: &str, limit: Option<u64>, left: Option<u64>) -> Memory {
    let field = |name: &str| {
        let line = information.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0) << 10
    };
    let total = field("MemTotal:");
    Memory {
        total,
        available: field("MemAvailable:"),
        // A limit above what there is limits nothing.
        limit: limit.filter(|limit| *limit < total),
        left: left.filter(|_| limit.is_some_and(|limit| limit < total)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_examined() {
        let seen = examine(&["lo".into()]);
        assert_eq!(seen.address, Ok([127, 0, 0, 1].into()));
        assert_eq!(seen.ports.bound, Ok(PORTS));
        assert!(seen.shared_memory.is_ok(), "{:?}", seen.shared_memory);
        assert!(seen.features.pidfd.is_ok(), "{:?}", seen.features);
        assert!(seen.features.futex.is_ok(), "{:?}", seen.features);
        assert!(seen.cores.allowed > 0 && seen.cores.online >= seen.cores.allowed);
        assert!(seen.memory.total > 0 && seen.memory.available > 0);
        assert!(seen.temporary.writable && seen.temporary.free.is_ok());
        let json = serde_json::to_string(&seen).unwrap();
        assert_eq!(serde_json::from_str::<Examined>(&json).unwrap(), seen);
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(port_range("32768\t60999\n"), Some((32768, 60999)));
        assert_eq!(port_range(""), None);
        let processors = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(model(processors).unwrap(), "Some CPU @ 2 GHz");
        let information = "MemTotal:        8 kB\nMemAvailable:   4 kB\n";
        let memory = memory(information, Some(9000), Some(1));
        assert_eq!((memory.total, memory.available), (8192, 4096));
        assert_eq!((memory.limit, memory.left), (None, None));
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let missing = folder(&env::temp_dir().join("carole-no-such-folder/inner"));
        assert!(missing.writable && missing.free.is_ok());
    }
}
