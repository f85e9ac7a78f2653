//! Ports that are promised to programs before the programs listen on them.
//!
//! A reservation is a socket that is bound and does not listen. The kernel then gives the port to
//! nobody else, yet lets a program bind it that sets `SO_REUSEADDR`, as every framework's listener
//! does (PyTorch's store, gRPC, libuv, Go, Java, Rust). The reservation is held as long as the job.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpSocket;

use crate::error::Error;

/// Ports held until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedPorts {
    sockets: Vec<TcpSocket>,
    numbers: Vec<u16>,
}

impl ReservedPorts {
    /// Reserves `count` ports on every address of this host.
    pub(crate) fn new(count: usize) -> Result<Self, Error> {
        let mut ports = Self {
            sockets: Vec::new(),
            numbers: Vec::new(),
        };
        for index in 1..=count {
            let (socket, number) = reserve().map_err(|source| Error::Ports {
                index,
                count,
                source,
            })?;
            ports.sockets.push(socket);
            ports.numbers.push(number);
        }
        Ok(ports)
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> &[u16] {
        &self.numbers
    }
}

fn reserve() -> io::Result<(TcpSocket, u16)> {
    // A dual-stack wildcard keeps the port on IPv4 and IPv6; hosts without IPv6 have IPv4 only.
    let any: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, 0).into(),
        (Ipv4Addr::UNSPECIFIED, 0).into(),
    ];
    bind(any[0]).or_else(|_| bind(any[1]))
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
        let ports = ReservedPorts::new(8).unwrap();
        let numbers: BTreeSet<u16> = ports.numbers().iter().copied().collect();
        assert_eq!(numbers.len(), 8);
        for &number in ports.numbers() {
            // The standard library sets SO_REUSEADDR as frameworks do.
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).unwrap();
        }
    }
}
