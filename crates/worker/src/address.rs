//! The local address under which this process's peers can reach it.
//!
//! It is the one from which the coordinator is reached: loopback when the coordinator listens
//! there, the job's own interface otherwise. A connection is opened to learn it, because only that
//! shows which of a name's addresses answers; nothing is sent on it.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use carole_coordinator::addresses;

/// How long one address of the coordinator may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The local address from which `coordinator`, a `HOST:PORT`, is reached.
pub(crate) fn towards(coordinator: &str) -> io::Result<IpAddr> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses(coordinator, Instant::now() + LIMIT)? {
        match TcpStream::connect_timeout(&address, LIMIT).and_then(|stream| stream.local_addr()) {
            Ok(local) => return Ok(local.ip()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_coordinator_on_loopback_is_reached_from_loopback() {
        for address in ["127.0.0.1:0", "127.0.0.2:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let local = towards(&listener.local_addr().unwrap().to_string()).unwrap();
            assert!(local.is_loopback(), "{local}");
        }
    }

    #[test]
    fn nobody_listening_is_the_systems_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert_eq!(
            towards(&address).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
