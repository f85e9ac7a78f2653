//! A connection of a session that is over.
//!
//! What was said last, the goodbye among it, may still wait for the socket to take it. And a
//! socket that is closed with unread data resets the connection, so that the other side may lose
//! what is on its way. So first all that waits is sent, then no more is said, and what still comes
//! is read and dropped.

use std::os::fd::{AsFd, RawFd};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::socket::Socket;
use crate::sys;

/// How long a peer that does not read is given.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long what the peer still sends is read.
const LINGER: Duration = Duration::from_secs(1);

/// A connection on its way out.
pub(crate) struct Parting {
    connection: Connection,
    until: Instant,
    /// Nothing more is said here.
    finished: bool,
    /// Nothing more comes from there.
    ended: bool,
}

impl Parting {
    pub(crate) fn new(connection: Connection) -> Self {
        let mut parting = Self {
            connection,
            until: Instant::now() + PATIENCE,
            finished: false,
            ended: false,
        };
        parting.progress();
        parting
    }

    /// Moves on; false when the socket can be closed.
    pub(crate) fn progress(&mut self) -> bool {
        let now = Instant::now();
        if !self.finished {
            if self.connection.flush().is_err() {
                return false;
            }
            if !self.connection.is_blocked() {
                self.connection.socket.finish();
                self.finished = true;
                self.until = now + LINGER;
            }
        }
        self.ended = self.ended || !self.connection.socket.drain();
        // Someone who has said all there is to say may still listen.
        now < self.until && !(self.ended && self.finished)
    }

    /// Whether the other side has all that was said, as far as its kernel is concerned.
    pub(crate) fn is_delivered(&self) -> bool {
        self.finished && is_delivered(&self.connection.socket)
    }

    /// Descriptors to sleep on, and what for.
    pub(crate) fn descriptors(&self, mut visit: impl FnMut(RawFd, i16)) {
        let ignored = if self.ended { libc::POLLIN } else { 0 };
        let wanted = |fd, events| visit(fd, events & !ignored);
        self.connection.descriptors(wanted);
    }
}

fn is_delivered(socket: &Socket) -> bool {
    match socket {
        // What a local socket has taken is with the other side, whatever happens to this one.
        Socket::Local(_) => true,
        Socket::Bundle(bundle) => bundle.sockets().iter().all(is_delivered),
        Socket::Tcp(_) | Socket::Tls(_) => sys::unacknowledged(socket.as_fd()) == 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::key::Key;
    use crate::stream::frame::{Frame, FrameKind, HEADER};

    fn frame(kind: FrameKind, length: usize) -> Frame {
        Frame {
            kind,
            stage: 0,
            length: length as u32,
            generation: 1,
            key: Key(0, 0),
            offset: 0,
            extra: 0,
        }
    }

    /// Fills the connection until its socket takes no more, then says goodbye; the bytes said.
    fn fill(connection: &Connection) -> usize {
        let payload = vec![7; 32 << 10];
        let mut said = 0;
        while !connection.is_blocked() {
            let data = frame(FrameKind::Enqueue, payload.len());
            connection.send(&data, &[], &payload).expect("open");
            said += HEADER + payload.len();
        }
        let goodbye = frame(FrameKind::Goodbye, 0);
        connection.send(&goodbye, &[], &[]).expect("open");
        said + HEADER
    }

    fn read_all(mut stream: impl Read) -> usize {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("the end, no reset");
        got.len()
    }

    fn leave(mut parting: Parting) {
        while parting.progress() && !parting.is_delivered() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_waits_for_the_socket_is_still_said() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let connection = Connection::new(1, Socket::Local(ours));
        let said = fill(&connection);
        let reader = std::thread::spawn(move || read_all(theirs));
        leave(Parting::new(connection));
        assert_eq!(reader.join().expect("a reader"), said);
    }

    #[test]
    fn what_was_never_read_takes_nothing_from_the_other_side() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let theirs = TcpStream::connect(address).expect("a connection");
        let (ours, _) = listener.accept().expect("a connection");
        // Unread data on the side that leaves: closed as it is, it would reset the connection.
        std::io::Write::write_all(&mut &theirs, &[1; 1000]).expect("room");
        let connection = Connection::new(1, Socket::Tcp(ours));
        let said = fill(&connection);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            read_all(theirs)
        });
        leave(Parting::new(connection));
        assert_eq!(reader.join().expect("a reader"), said);
    }

    #[test]
    fn a_peer_that_is_gone_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let connection = Connection::new(1, Socket::Local(ours));
        fill(&connection);
        drop(theirs);
        assert!(!Parting::new(connection).progress());
    }
}
