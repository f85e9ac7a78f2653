//! Asking name servers: datagrams first, a connection where the answer does not fit one.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::configuration::Configuration;
use super::message::{self, Answer, Kind};

/// The longest datagram that a server sends unasked for more.
const DATAGRAM: usize = 512;

/// What the servers know.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The name is known; with such addresses, which may be none.
    Addresses(Vec<IpAddr>),
    NoSuchName,
}

/// Asks one server after the other, all of them as often as configured, until one answers.
pub(super) fn ask(
    name: &str,
    kind: Kind,
    configuration: &Configuration,
    deadline: Instant,
) -> io::Result<Outcome> {
    let mut failure = None;
    for server in configuration.servers.repeat(configuration.attempts) {
        let limit = deadline.min(Instant::now() + configuration.timeout);
        match ask_one(name, kind, server, limit) {
            Ok(Some(Answer::Addresses(addresses))) => return Ok(Outcome::Addresses(addresses)),
            Ok(Some(Answer::NoSuchName)) => return Ok(Outcome::NoSuchName),
            // No name for any server.
            Ok(None) => return Ok(Outcome::NoSuchName),
            Ok(Some(Answer::Truncated | Answer::Failed)) => {
                failure = Some(io::Error::other(format!(
                    "the name server {} cannot look up {name}",
                    server.ip()
                )));
            }
            Err(error) => {
                failure = Some(io::Error::new(
                    error.kind(),
                    format!("the name server {} about {name}: {error}", server.ip()),
                ));
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
}

/// One server's answer; none if the name cannot be asked for.
fn ask_one(
    name: &str,
    kind: Kind,
    server: SocketAddr,
    deadline: Instant,
) -> io::Result<Option<Answer>> {
    let mut number = [0; 2];
    getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
    let number = u16::from_ne_bytes(number);
    let Some(question) = message::question(number, name, kind) else {
        return Ok(None);
    };
    let read = |bytes: &[u8]| message::answer(bytes, number, name, kind);
    match by_datagram(&question, server, deadline, read)? {
        Answer::Truncated => by_connection(&question, server, deadline, read).map(Some),
        answer => Ok(Some(answer)),
    }
}

/// The time that is left, for a socket.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    }
    Ok(left)
}

fn by_datagram(
    question: &[u8],
    server: SocketAddr,
    deadline: Instant,
    read: impl Fn(&[u8]) -> Option<Answer>,
) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port that the kernel draws; only the server is heard on it.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.send(question)?;
    let mut bytes = [0; DATAGRAM];
    loop {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.recv(&mut bytes) {
            // What does not answer the question is somebody else's, or nonsense.
            Ok(count) => {
                if let Some(answer) = read(&bytes[..count]) {
                    return Ok(answer);
                }
            }
            Err(error) if is_no_end(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether to go on until the time is over.
fn is_no_end(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn by_connection(
    question: &[u8],
    server: SocketAddr,
    deadline: Instant,
    read: impl Fn(&[u8]) -> Option<Answer>,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, left(deadline)?)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut fill = |bytes: &mut [u8]| {
        let mut filled = 0;
        while filled < bytes.len() {
            stream.set_read_timeout(Some(left(deadline)?))?;
            match stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if is_no_end(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let mut length = [0; 2];
    fill(&mut length)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    fill(&mut bytes)?;
    match read(&bytes) {
        Some(Answer::Truncated) | None => {
            let kind = io::ErrorKind::InvalidData;
            Err(io::Error::new(kind, "its answer makes no sense"))
        }
        Some(answer) => Ok(answer),
    }
}
