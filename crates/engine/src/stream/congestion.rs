//! How TCP connections share the network.
//!
//! The kernel's choice stands, with one exception. BBR spreads what is sent evenly over time, at
//! the rate that it has seen so far. A collective sends in bursts and waits in between, which BBR
//! takes for a slow network: between two hosts on one switch it halves the bandwidth. Where it is
//! the default, connections use CUBIC instead, or Reno where a process may not choose CUBIC.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

/// What to use in place of BBR, the most preferred first.
const INSTEAD: [&[u8]; 2] = [b"cubic", b"reno"];

/// Connections that a listener accepts from now on.
pub(crate) fn prepare(listener: &TcpListener) {
    replace_bbr(&SockRef::from(listener));
}

/// Connects within a time.
pub(crate) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
    // A connection keeps what it has begun with.
    replace_bbr(&socket);
    socket.connect_timeout(&(*address).into(), limit)?;
    Ok(socket.into())
}

fn replace_bbr(socket: &Socket) {
    let is_bbr = |name: Vec<u8>| name.starts_with(b"bbr");
    if socket.tcp_congestion().is_ok_and(is_bbr) {
        // Where neither is allowed, BBR has to do.
        let _ = INSTEAD
            .iter()
            .find(|name| socket.set_tcp_congestion(name).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_go_without_bbr() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        prepare(&listener);
        let address = listener.local_addr().expect("an address");
        let ours = connect(&address, Duration::from_secs(5)).expect("a connection");
        let theirs = listener.accept().expect("a connection").0;
        for end in [&ours, &theirs] {
            let name = SockRef::from(end).tcp_congestion().expect("a name");
            let name = String::from_utf8_lossy(&name).into_owned();
            assert!(!name.starts_with("bbr"), "{name}");
        }
    }
}
