//! From what a host told to findings: purely.

use std::net::IpAddr;
use std::time::Duration;

use super::findings::{Finding, GIB, KIB, MIB, bytes, time};
use crate::channel::examination::{Examined, Folder};
use crate::error::HostProblem;

/// A rank has a connection to every other.
const FEW_FILES: u64 = 1024;
const TOO_FEW_FILES: u64 = 64;
/// Frameworks start a thread a core, and more, in every rank.
const FEW_PROCESSES: u64 = 1024;
const TOO_FEW_PROCESSES: u64 = 64;
/// What InfiniBand's libraries register.
const LITTLE_LOCKED: u64 = GIB;
const LITTLE_MEMORY: u64 = GIB;
const TOO_LITTLE_MEMORY: u64 = 128 * MIB;
const LITTLE_DISK: u64 = 512 * MIB;
const TOO_LITTLE_DISK: u64 = MIB;
/// From where on times of two hosts do not fit together, in nanoseconds.
const SKEW: u64 = 500_000_000;

/// What a host is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Ranks would run there.
    Ranks,
    /// Jobs are only started from there.
    Launcher,
}

/// Whom findings are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) host: &'a str,
    pub(super) remote: bool,
    pub(super) purpose: Use,
}

/// A host's clock beside this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// How far it is ahead, in nanoseconds.
    pub(super) ahead: i64,
    pub(super) round_trip: Duration,
}

impl Clock {
    /// From when the question was sent, by this machine's clock, how long the answer took, and what
    /// it was. The host is taken to have looked half way.
    pub(super) fn new(sent: u64, round_trip: Duration, there: u64) -> Self {
        let half = (round_trip / 2).as_nanos() as u64;
        Self {
            ahead: there.wrapping_sub(sent.wrapping_add(half)) as i64,
            round_trip,
        }
    }

    /// How far the clocks are apart at least.
    fn least(self) -> u64 {
        let half = (self.round_trip / 2).as_nanos() as u64;
        self.ahead.unsigned_abs().saturating_sub(half)
    }
}

/// A host that cannot take part.
pub(super) fn unreachable(subject: &Subject, problem: &HostProblem) -> Finding {
    let check = if subject.remote { "ssh" } else { "agent" };
    let hint = problem.hint.clone().unwrap_or_else(|| {
        if subject.remote {
            format!("`ssh {} true` must work without a question", subject.host)
        } else {
            "CAROLE_LOG_LEVEL=DEBUG says more".to_owned()
        }
    });
    Finding::new(subject.host, check, &problem.problem).bad(hint)
}

/// What is to be said of a host that was reached.
pub(super) fn of_host(
    subject: &Subject,
    version: &str,
    seen: &Examined,
    clock: Option<Clock>,
) -> Vec<Finding> {
    let host = subject.host;
    let mut found = Vec::new();
    if let Some(clock) = clock {
        found.push(reached(host, clock));
    }
    found.push(carole(host, version, seen));
    if let Some(clock) = clock {
        found.push(skew(host, clock));
    }
    found.extend([open_files(host, seen), processes(host, seen)]);
    if subject.purpose == Use::Ranks {
        found.extend([
            locked_memory(host, seen),
            address(host, seen),
            ports(host, seen),
            shared_memory(host, seen),
        ]);
    }
    found.push(folder(host, "cache folder", &seen.cache, "XDG_CACHE_HOME"));
    found.push(folder(host, "temporary folder", &seen.temporary, "TMPDIR"));
    if subject.purpose == Use::Ranks {
        found.extend([cores(host, seen), memory(host, seen), gpus(host, seen)]);
        found.extend(kernel(host, seen));
    }
    found
}

fn reached(host: &str, clock: Clock) -> Finding {
    let seconds = clock.round_trip.as_secs_f64();
    let seen = format!("reached; a round trip takes {}", time(seconds));
    Finding::new(host, "ssh", seen).value("round_trip_seconds", seconds)
}

fn carole(host: &str, version: &str, seen: &Examined) -> Finding {
    let (architecture, kernel) = (&seen.architecture, &seen.kernel);
    let text = format!("{version} on {architecture}, Linux {kernel}");
    let finding = Finding::new(host, "carole", text);
    let own = env!("CARGO_PKG_VERSION");
    if version == own {
        finding
    } else {
        finding.bad(format!("this one is {own}: remove ~/.cache/carole there"))
    }
}

fn skew(host: &str, clock: Clock) -> Finding {
    let ahead = clock.ahead as f64 / 1e9;
    let uncertain = clock.round_trip.as_secs_f64() / 2.0;
    let seen = format!(
        "{} {} this machine's, give or take {}",
        time(ahead.abs()),
        if clock.ahead < 0 {
            "behind"
        } else {
            "ahead of"
        },
        time(uncertain)
    );
    let finding = Finding::new(host, "clock", seen)
        .value("ahead_seconds", ahead)
        .value("uncertainty_seconds", uncertain);
    if clock.least() > SKEW {
        finding.warning(
            "logs and timelines of the hosts will not fit together: run a time service (chronyd, \
             systemd-timesyncd)",
        )
    } else {
        finding
    }
}

fn open_files(host: &str, seen: &Examined) -> Finding {
    let (soft, hard) = (seen.limits.open_files, seen.limits.open_files_hard);
    let text = match (soft, hard) {
        (Some(soft), Some(hard)) => format!("{soft} a process, {hard} if it asks"),
        (Some(soft), None) => format!("{soft} a process, any number if it asks"),
        (None, _) => "no limit".to_owned(),
    };
    let finding = Finding::new(host, "open files", text);
    let hint = "a rank has a connection to every other: raise it (ulimit -n, or nofile in \
                /etc/security/limits.conf)";
    match soft {
        Some(soft) if soft < TOO_FEW_FILES => finding.bad(hint),
        Some(soft) if soft < FEW_FILES => finding.warning(hint),
        _ => finding,
    }
}

fn processes(host: &str, seen: &Examined) -> Finding {
    let (user, cgroup) = (seen.limits.processes, seen.limits.cgroup_processes);
    let text = match (user, cgroup) {
        (None, None) => "no limit".to_owned(),
        (Some(user), None) => format!("{user} a user"),
        (None, Some(cgroup)) => format!("room for {cgroup} in the cgroup"),
        (Some(user), Some(cgroup)) => format!("{user} a user, room for {cgroup} in the cgroup"),
    };
    let finding = Finding::new(host, "processes", text);
    let hint = "threads count too: raise it (ulimit -u, or the container's limit of processes)";
    match user.into_iter().chain(cgroup).min() {
        Some(least) if least < TOO_FEW_PROCESSES => finding.bad(hint),
        Some(least) if least < FEW_PROCESSES => finding.warning(hint),
        _ => finding,
    }
}

fn locked_memory(host: &str, seen: &Examined) -> Finding {
    let limit = seen.limits.locked_memory;
    let text = limit.map_or_else(|| "no limit".to_owned(), bytes);
    let finding = Finding::new(host, "locked memory", text);
    match limit {
        Some(limit) if seen.devices.infiniband && limit < LITTLE_LOCKED => finding.warning(
            "libraries that use InfiniBand lock their buffers: raise it (ulimit -l unlimited)",
        ),
        Some(limit) if limit < 64 * KIB => {
            finding.warning("GPU libraries lock their buffers: raise it (ulimit -l)")
        }
        _ => finding,
    }
}

fn address(host: &str, seen: &Examined) -> Finding {
    let finding = Finding::new(host, "address", place(seen));
    if seen.address.is_ok() {
        finding
    } else {
        finding.bad("--network-interfaces names interfaces, the first that a host has is used")
    }
}

/// A host's address and interface, or why it has none.
pub(super) fn place(seen: &Examined) -> String {
    match &seen.address {
        Ok(address) => on_interface(seen, *address),
        Err(problem) => problem.clone(),
    }
}

/// An address and the interface that has it.
pub(super) fn on_interface(seen: &Examined, address: IpAddr) -> String {
    let mut interfaces = seen.interfaces.iter();
    match interfaces.find(|(_, own)| *own == address) {
        Some((name, _)) => format!("{address} ({name})"),
        None => address.to_string(),
    }
}

fn ports(host: &str, seen: &Examined) -> Finding {
    let range = seen.ports.range.map(|(first, last)| {
        let text = format!(", out of {first} to {last}");
        (usize::from(last.saturating_sub(first)) + 1, text)
    });
    match (&seen.ports.bound, range) {
        (Ok(count), range) => {
            let (room, range) = range.unwrap_or((usize::MAX, String::new()));
            let text = format!("{count} were reserved and listened on{range}");
            let finding = Finding::new(host, "ports", text);
            if room < 1000 {
                finding.warning("few: widen net.ipv4.ip_local_port_range")
            } else {
                finding
            }
        }
        (Err(problem), _) => Finding::new(host, "ports", problem).bad(
            "are all ports taken (ss -tan)? net.ipv4.ip_local_port_range says how many there are",
        ),
    }
}

fn shared_memory(host: &str, seen: &Examined) -> Finding {
    let check = "shared memory";
    match &seen.shared_memory {
        Ok(size) => {
            let limit = seen.limits.address_space;
            let text = format!("{} were made and used", bytes(*size));
            match limit {
                Some(limit) => Finding::new(
                    host,
                    check,
                    format!("{text}; a process may have {}", bytes(limit)),
                )
                .warning("tensors may not fit: raise it (ulimit -v unlimited)"),
                None => Finding::new(host, check, text),
            }
        }
        Err(problem) => Finding::new(host, check, problem).bad(
            "ranks of one host share memory (memfd_create, mmap): raise ulimit -f and -v, or allow \
             it in the container's profile; /dev/shm is not needed",
        ),
    }
}

fn folder(host: &str, check: &'static str, folder: &Folder, variable: &str) -> Finding {
    let Folder {
        path,
        free,
        writable,
    } = folder;
    let finding = match free {
        Ok(free) => Finding::new(host, check, format!("{} free in {path}", bytes(*free)))
            .value("free_bytes", *free as f64),
        Err(problem) => Finding::new(host, check, format!("{path}: {problem}")),
    };
    let elsewhere = format!("{variable} can name another place");
    match free {
        Ok(free) if *free < TOO_LITTLE_DISK => finding.bad(format!("make room, or {elsewhere}")),
        _ if !writable => finding.warning(format!("it cannot be written: {elsewhere}")),
        Ok(free) if *free < LITTLE_DISK => finding.warning(format!("make room, or {elsewhere}")),
        Err(_) => finding.warning(elsewhere),
        Ok(_) => finding,
    }
}

fn cores(host: &str, seen: &Examined) -> Finding {
    let cores = &seen.cores;
    let number = match cores.allowed {
        allowed if allowed == cores.online => allowed.to_string(),
        allowed => format!("{allowed} of {}", cores.online),
    };
    let mut text = match &seen.model {
        Some(model) => format!("{number}, {model}"),
        None => number,
    };
    let quota = cores.quota.map(|quota| quota as f64 / 1000.0);
    let tight = quota.filter(|quota| *quota < cores.allowed as f64);
    if let Some(quota) = tight {
        text = format!("{text}; the cgroup grants the time of {quota:.1}");
    }
    let finding = Finding::new(host, "cores", text).value("cores", cores.allowed as f64);
    match tight {
        Some(quota) => finding.value("quota_cores", quota).warning(format!(
            "ranks stand still when that is used up: start at most {:.0}, or raise the \
                 container's limit of cores",
            quota.floor().max(1.0)
        )),
        None => finding,
    }
}

fn memory(host: &str, seen: &Examined) -> Finding {
    let memory = &seen.memory;
    let mut text = format!(
        "{} available of {}",
        bytes(memory.available),
        bytes(memory.total)
    );
    let mut available = memory.available;
    if let Some(limit) = memory.limit {
        available = available.min(memory.left.unwrap_or(limit));
        text = format!("{text}; the cgroup grants {}", bytes(limit));
        if let Some(left) = memory.left {
            text = format!("{text}, {} are left", bytes(left));
        }
    }
    let finding = Finding::new(host, "memory", text).value("available_bytes", available as f64);
    let hint = "end what uses it, or raise the container's limit";
    match available {
        little if little < TOO_LITTLE_MEMORY => finding.bad(hint),
        little if little < LITTLE_MEMORY => finding.warning(hint),
        _ => finding,
    }
}

fn gpus(host: &str, seen: &Examined) -> Finding {
    let devices = &seen.devices;
    let found = |found| if found { "found" } else { "not found" };
    let text = match (devices.gpus, devices.on_bus) {
        (0, 0) => "none".to_owned(),
        (0, on_bus) => format!("{on_bus} on the bus, but the driver shows none"),
        (gpus, _) => format!(
            "{gpus}; libcuda {}, libnccl {}",
            found(devices.cuda),
            found(devices.nccl)
        ),
    };
    let finding = Finding::new(host, "gpus", text).value("gpus", devices.gpus as f64);
    if devices.gpus == 0 && devices.on_bus > 0 {
        finding.warning("load NVIDIA's driver, or let the container have its devices")
    } else if devices.gpus > 0 && !devices.cuda {
        finding.warning("install the driver's libraries, or name their folder in LD_LIBRARY_PATH")
    } else if devices.gpus > 0 && !devices.nccl {
        // Many frameworks bring their own.
        Finding {
            hint: Some("needed only by frameworks that do not bring their own libnccl".into()),
            ..finding
        }
    } else {
        finding
    }
}

fn kernel(host: &str, seen: &Examined) -> Vec<Finding> {
    let features = &seen.features;
    let one = |check, feature: &Result<(), String>| match feature {
        Ok(()) => (Finding::new(host, check, "works"), true),
        Err(problem) => (Finding::new(host, check, problem), false),
    };
    let allow = "use a newer kernel, or allow it in the container's profile";
    vec![
        match one("membarrier", &features.membarrier) {
            (finding, true) => finding,
            (finding, false) => finding.warning(format!(
                "small operations between ranks of one host are slower: {allow}"
            )),
        },
        match one("pidfd", &features.pidfd) {
            (finding, true) => finding,
            (finding, false) => finding.bad(format!(
                "the end of a process would not be noticed (Linux 5.3 has it): {allow}"
            )),
        },
        match one("futex", &features.futex) {
            (finding, true) => finding,
            (finding, false) => finding.bad(format!(
                "ranks of one host could not wake each other: {allow}"
            )),
        },
    ]
}
