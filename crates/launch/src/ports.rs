//! Ports that are promised to programs before the programs listen on them.
//!
//! A reservation is a socket that is bound and does not listen. The kernel then gives the port to
//! nobody else, yet lets a program bind it that sets `SO_REUSEADDR`, as every framework's listener
//! does (PyTorch's store, gRPC, libuv, Go, Java, Rust). The reservation is held as long as the job.
//!
//! In a range that a person gave, two reservations could get the same port by the same rule. There a
//! *claim* keeps them apart: a local socket in the abstract namespace, named after the port. Such
//! names are the network namespace's, as ports are, and are gone with whoever holds them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddress, UnixListener};

use carole_plan::PortRange;
use tokio::net::TcpSocket;

use crate::error::Error;

/// Ports held until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedPorts {
    sockets: Vec<TcpSocket>,
    claims: Vec<UnixListener>,
    numbers: Vec<u16>,
}

impl ReservedPorts {
    /// Reserves `count` ports on every address of this host, all of them `within` a range if there
    /// is one.
    pub(crate) fn new(count: usize, within: Option<PortRange>) -> Result<Self, Error> {
        let mut ports = Self {
            sockets: Vec::new(),
            claims: Vec::new(),
            numbers: Vec::new(),
        };
        match within {
            Some(range) => ports.reserve_within(range, count)?,
            None => ports.reserve_any(count)?,
        }
        Ok(ports)
    }

    fn reserve_any(&mut self, count: usize) -> Result<(), Error> {
        for index in 1..=count {
            let (socket, number) = reserve(0).map_err(|source| Error::Ports {
                index,
                count,
                source,
            })?;
            self.sockets.push(socket);
            self.numbers.push(number);
        }
        Ok(())
    }

    fn reserve_within(&mut self, range: PortRange, count: usize) -> Result<(), Error> {
        for port in range.starting_at(0) {
            if self.numbers.len() == count {
                break;
            }
            let Ok(claim) = claim(port) else { continue };
            let Ok((socket, number)) = reserve(port) else {
                continue;
            };
            self.claims.push(claim);
            self.sockets.push(socket);
            self.numbers.push(number);
        }
        match self.numbers.len() {
            free if free < count => Err(Error::PortRange { range, count, free }),
            _ => Ok(()),
        }
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> &[u16] {
        &self.numbers
    }
}

/// Says to other jobs that a port of a range is taken, if none has said so.
fn claim(port: u16) -> io::Result<UnixListener> {
    let name = LocalAddress::from_abstract_name(format!("carole-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

/// Reserves a port; any that is free for 0.
fn reserve(port: u16) -> io::Result<(TcpSocket, u16)> {
    // A dual-stack wildcard keeps the port on IPv4 and IPv6; hosts without IPv6 have IPv4 only.
    let any: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    match bind(any[0]) {
        // Taken is taken: on IPv4 alone it might look free.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => bind(any[1]),
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpSocket, u16)> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()
    } else {
        TcpSocket::new_v4()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let number = socket.local_addr()?.port();
    Ok((socket, number))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn reserved_ports_differ_and_can_be_listened_on_while_they_are_held() {
        let ports = ReservedPorts::new(8, None).unwrap();
        let numbers: BTreeSet<u16> = ports.numbers().iter().copied().collect();
        assert_eq!(numbers.len(), 8);
        for &number in ports.numbers() {
            // The standard library sets SO_REUSEADDR as frameworks do.
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).unwrap();
        }
    }

    /// A range that begins with a port that was free a moment ago.
    fn range(ports: u16) -> PortRange {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let first = free.local_addr().unwrap().port().min(u16::MAX - ports);
        let last = first + ports - 1;
        format!("{first}-{last}").parse().unwrap()
    }

    #[test]
    fn two_reservations_in_a_range_share_no_port_and_the_last_is_told_what_is_left() {
        let range = range(40);
        let one = ReservedPorts::new(3, Some(range)).unwrap();
        let other = ReservedPorts::new(3, Some(range)).unwrap();
        let both = one.numbers().iter().chain(other.numbers());
        let numbers: BTreeSet<u16> = both.copied().collect();
        assert_eq!(numbers.len(), 6);
        assert!(numbers.iter().all(|port| range.contains(*port)));
        TcpListener::bind((Ipv4Addr::LOCALHOST, one.numbers()[0])).unwrap();
        let error = ReservedPorts::new(41, Some(range)).unwrap_err().to_string();
        let begin = format!("41 ports of {range} are needed, and ");
        assert!(error.starts_with(&begin), "{error}");
        drop(one);
        ReservedPorts::new(3, Some(range)).unwrap();
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = ReservedPorts::new(1, Some(PortRange::single(port))).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("1 ports of {port}-{port} are needed, and 0 are free")
        );
    }
}
