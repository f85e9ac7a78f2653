//! Connections to peers: across hosts by TCP, inside a host by local sockets.
//!
//! A session has one connection to every other member. Data moves on them for operations with
//! members on other hosts; inside a host they hand over shared memory, tell of deaths and serve
//! the peer store. Whoever waits for an operation moves its bytes; the engine thread does it for
//! started operations and when nobody waits.

pub(crate) mod bundle;
pub(crate) mod channel;
pub(crate) mod compressed;
pub(crate) mod congestion;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod inbox;
pub(crate) mod parting;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod tree;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::key::Key;
use crate::sys;
use connection::{Connection, Handler};
use exchange::Shelf;
use frame::{Frame, FrameKind, POST, Post};
use inbox::{Flows, Inbox};
use parting::Parting;

/// Something that a connection brought for the session itself.
pub(crate) trait Events: Send + Sync {
    /// A peer fell, or another reported its fall.
    fn lost(&self, rank: usize, reason: String);
    /// A peer left in good order.
    fn left(&self, rank: usize);
    /// A frame of the peer store.
    fn store(&self, rank: usize, frame: &Frame, payload: &[u8]);
    /// The engine thread waits where nothing more comes.
    fn moved(&self);
}

/// All connections of a session.
pub(crate) struct Streams {
    pub(crate) generation: u64,
    /// By session rank; none for this rank itself.
    pub(crate) connections: Vec<Option<Connection>>,
    pub(crate) inbox: Inbox,
    pub(crate) shelf: Shelf,
    /// Callers that read connections themselves just now.
    pub(crate) drivers: AtomicUsize,
    /// Wakes callers that sleep in `poll` when another thread brought something for them.
    bell: OwnedFd,
    sleepers: AtomicUsize,
}

impl Streams {
    pub(crate) fn new(generation: u64, connections: Vec<Option<Connection>>) -> io::Result<Self> {
        Ok(Self {
            generation,
            connections,
            inbox: Inbox::default(),
            shelf: Shelf::default(),
            drivers: AtomicUsize::new(0),
            bell: sys::eventfd()?,
            sleepers: AtomicUsize::new(0),
        })
    }

    pub(crate) fn connection(&self, rank: usize) -> io::Result<&Connection> {
        self.connections
            .get(rank)
            .and_then(Option::as_ref)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotConnected,
                    format!("no connection to rank {rank}"),
                )
            })
    }

    /// Reads the connections to `ranks`; true when anything came. An error names the rank.
    pub(crate) fn progress(
        &self,
        events: &dyn Events,
        ranks: impl Iterator<Item = usize>,
    ) -> Result<bool, usize> {
        let handler = Dispatch {
            streams: self,
            events,
        };
        let mut any = false;
        let mut failed: Option<(usize, io::Error)> = None;
        for rank in ranks {
            match self.progress_one(&handler, rank) {
                Ok(came) => any |= came,
                Err(error) => failed = failed.or(Some((rank, error))),
            }
        }
        if any {
            self.wake();
        }
        let Some((rank, error)) = failed else {
            return Ok(any);
        };
        // Whoever fell first is the culprit: hear what the others have to say before this one,
        // which may only have followed, is named.
        for other in 0..self.connections.len() {
            let _ = self.progress_one(&handler, other);
        }
        events.lost(rank, reading_failed(&error));
        Err(rank)
    }

    /// Reads one connection and sends what waits on it.
    fn progress_one(&self, handler: &Dispatch<'_>, rank: usize) -> io::Result<bool> {
        let Some(connection) = self.connections[rank].as_ref() else {
            return Ok(false);
        };
        if connection.is_closed() {
            return Ok(false);
        }
        let mut outcome = connection.progress(handler);
        if connection.is_watched_in_vain() {
            handler.events.moved();
        }
        if connection.is_blocked() {
            outcome = outcome.and_then(|came| connection.flush().map(|()| came));
        }
        if outcome.is_err() {
            connection.close();
            if connection.left.load(Ordering::Acquire) {
                return Ok(false);
            }
        }
        outcome
    }

    /// Hears what a rank that has ended said last, without drawing conclusions.
    pub(crate) fn progress_quietly(&self, events: &dyn Events, rank: usize) -> io::Result<bool> {
        self.connection(rank)?.progress(&Dispatch {
            streams: self,
            events,
        })
    }

    /// What is left when the session is over.
    pub(crate) fn into_partings(self) -> Vec<Parting> {
        let connections = self.connections.into_iter().flatten();
        connections.map(Parting::new).collect()
    }

    /// Tells sleeping callers to look again.
    pub(crate) fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            sys::eventfd_ring(self.bell.as_fd());
        }
    }

    /// Sleeps until one of the connections to `ranks` has something, or the bell rings.
    pub(crate) fn sleep(&self, ranks: impl Iterator<Item = usize>, limit: Duration) {
        thread_local! {
            static DESCRIPTORS: RefCell<Vec<libc::pollfd>> = const { RefCell::new(Vec::new()) };
        }
        let mut fds = DESCRIPTORS.take();
        fds.clear();
        fds.push(libc::pollfd {
            fd: self.bell.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        for rank in ranks {
            if let Some(connection) = self.connections[rank].as_ref() {
                connection.descriptors(|fd, events| {
                    fds.push(libc::pollfd {
                        fd,
                        events,
                        revents: 0,
                    });
                });
            }
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let _ = sys::poll(&mut fds, Some(limit));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if fds[0].revents != 0 {
            sys::eventfd_clear(self.bell.as_fd());
        }
        DESCRIPTORS.set(fds);
    }

    /// Sends a frame without payload of an operation to one rank.
    pub(crate) fn send(&self, rank: usize, frame: &Frame, payload: &[u8]) -> io::Result<()> {
        self.connection(rank)?.send(frame, &[], payload)
    }

    /// A frame of this session's generation.
    pub(crate) fn frame(&self, kind: FrameKind, key: Key) -> Frame {
        Frame {
            kind,
            stage: 0,
            length: 0,
            generation: self.generation,
            key,
            offset: 0,
            extra: 0,
        }
    }
}

fn reading_failed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "its connection was closed".into(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "its connection was reset".into()
        }
        _ => format!("its connection failed: {error}"),
    }
}

struct Dispatch<'a> {
    streams: &'a Streams,
    events: &'a dyn Events,
}

impl Handler for Dispatch<'_> {
    fn message(&self, rank: usize, frame: &Frame, payload: &[u8]) -> io::Result<()> {
        let bad = |what: &str| io::Error::other(what.to_owned());
        match frame.kind {
            FrameKind::Post => {
                let post = Post::decode(payload).ok_or_else(|| bad("a posting without meaning"))?;
                let (postings, bytes) = self.streams.inbox.early();
                if postings > MAX_EARLY || bytes > MAX_EARLY_BYTES {
                    return Err(bad("too many operations that this rank has not called"));
                }
                let eager = &payload[POST..];
                self.streams
                    .inbox
                    .post(rank, frame.key, frame.extra, &post, eager);
            }
            FrameKind::Credit => {
                if let Some(flows) = self.streams.inbox.flow(frame.key)
                    && let Some(flow) = flows.of(rank)
                {
                    flow.stages[usize::from(frame.stage)].grant(frame.offset);
                }
            }
            FrameKind::Abort => {
                let reason = String::from_utf8_lossy(payload);
                self.streams
                    .inbox
                    .abort(rank, frame.key, frame.extra, &reason);
            }
            FrameKind::Heartbeat => {}
            FrameKind::Goodbye => {
                if let Some(connection) = &self.streams.connections[rank] {
                    connection.left.store(true, Ordering::Release);
                }
                self.events.left(rank);
            }
            FrameKind::Lost => {
                let lost = frame.offset as usize;
                if lost >= self.streams.connections.len() {
                    return Err(bad("a report about a rank that does not exist"));
                }
                let reason = String::from_utf8_lossy(payload).into_owned();
                self.events
                    .lost(lost, format!("rank {rank} reports: {reason}"));
            }
            FrameKind::Ask | FrameKind::Answer | FrameKind::Enqueue => {
                self.events.store(rank, frame, payload);
            }
            FrameKind::Data => return Err(bad("data is not a message")),
        }
        Ok(())
    }

    fn flows(&self, key: Key) -> Option<Arc<Flows>> {
        self.streams.inbox.flow(key)
    }

    fn generation(&self) -> u64 {
        self.streams.generation
    }
}

/// Postings that may wait for this rank's calls.
const MAX_EARLY: usize = 1 << 16;
const MAX_EARLY_BYTES: usize = 256 << 20;
