//! What an agent tells of its host.

use std::env;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::channel::message::{Hello, PROTOCOL};

/// The first report.
pub(super) fn hello() -> Hello {
    let cores = allowed_cores();
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nodes: nodes(&cores),
        cores: cores.len(),
        gpus: gpus(),
    }
}

/// The cores that this process may use.
pub(super) fn allowed_cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// The cores of each NUMA node, without those that this process may not use.
fn nodes(allowed: &[usize]) -> Vec<Vec<usize>> {
    let mut nodes = Vec::new();
    for number in 0.. {
        let path = format!("/sys/devices/system/node/node{number}/cpulist");
        let Ok(list) = fs::read_to_string(path) else {
            break;
        };
        let mut cores = cores_of(list.trim());
        cores.retain(|core| allowed.contains(core));
        if !cores.is_empty() {
            nodes.push(cores);
        }
    }
    if nodes.is_empty() {
        nodes.push(allowed.to_vec());
    }
    nodes
}

/// Reads `0-3,8,10-11`.
pub(super) fn cores_of(list: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            cores.extend(first..=last);
        }
    }
    cores
}

/// How many NVIDIA GPUs the driver shows.
pub(super) fn gpus() -> usize {
    fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count)
}

/// The address under which the other hosts reach this one: that of the first interface that
/// exists, else the one through which SSH was reached, else loopback.
pub(super) fn address(interfaces: &[String]) -> io::Result<IpAddr> {
    if interfaces.is_empty() {
        return Ok(ssh_address().unwrap_or(Ipv4Addr::LOCALHOST.into()));
    }
    let known = interface_addresses()?;
    interfaces
        .iter()
        .find_map(|wanted| {
            let mut all = known.iter().filter(|(name, _)| name == wanted);
            let first = all.clone().next();
            // IPv4 where there is a choice: link-local IPv6 addresses need a scope.
            all.find(|(_, address)| address.is_ipv4())
                .or(first)
                .map(|(_, address)| *address)
        })
        .ok_or_else(|| {
            let mut names: Vec<_> = known.into_iter().map(|(name, _)| name).collect();
            names.dedup();
            io::Error::other(format!(
                "no interface {} with an address; there are {}",
                interfaces.join(" or "),
                names.join(", ")
            ))
        })
}

/// This host's address in `SSH_CONNECTION`: client, its port, server, its port.
fn ssh_address() -> Option<IpAddr> {
    let connection = env::var("SSH_CONNECTION").ok()?;
    connection.split(' ').nth(2)?.parse().ok()
}

/// The launcher's address, as SSH saw it.
pub(super) fn launcher_address() -> Option<IpAddr> {
    let connection = env::var("SSH_CONNECTION").ok()?;
    connection.split(' ').next()?.parse().ok()
}

/// Where this user's cache is, as the script that sends the binary finds it.
pub(crate) fn cache_folder() -> PathBuf {
    let named = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let cache = named.map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"),
        PathBuf::from,
    );
    cache.join("carole")
}

/// Every interface's addresses.
#[expect(unsafe_code, reason = "the system's list of interfaces is a C list")]
pub(super) fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is written to a local variable, and freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the list, which is not freed yet; names are C strings, and an
        // address is what its family says.
        unsafe {
            let one = &*at;
            at = one.ifa_next;
            let address = match one.ifa_addr.as_ref().map(|a| i32::from(a.sa_family)) {
                Some(libc::AF_INET) => {
                    let inet = one.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::from(inet.sin_addr.s_addr.to_ne_bytes())
                }
                Some(libc::AF_INET6) => {
                    let inet = one.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::from(inet.sin6_addr.s6_addr)
                }
                _ => continue,
            };
            let name = std::ffi::CStr::from_ptr(one.ifa_name);
            found.push((name.to_string_lossy().into_owned(), address));
        }
    }
    // SAFETY: the list came from getifaddrs and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores_of("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cores_of(""), [0; 0]);
    }

    #[test]
    fn an_interface_has_its_address_or_is_named() {
        assert_eq!(
            address(&["nonsense0".into(), "lo".into()]).unwrap(),
            IpAddr::from([127, 0, 0, 1])
        );
        let error = address(&["nonsense0".into()]).unwrap_err().to_string();
        assert!(
            error.contains("nonsense0") && error.contains("lo"),
            "{error}"
        );
    }

    #[test]
    fn a_host_has_cores() {
        let hello = hello();
        assert!(hello.cores > 0);
        assert_eq!(hello.nodes.iter().map(Vec::len).sum::<usize>(), hello.cores);
    }
}
