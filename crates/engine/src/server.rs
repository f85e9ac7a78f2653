//! Where other peers connect to: listening, and letting in who proves itself.
//!
//! The server belongs to the process, not to a session: a newcomer may connect for a generation
//! that this peer has not heard of yet, and waits here until its session forms. It runs on the
//! engine thread and never blocks it; who sends garbage, or nothing, costs one log line and a
//! bounded, short-lived entry.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carole_plan::{Endpoint, PeerId};

use crate::error::{Context, Error, Result};
use crate::stream::congestion;
use crate::stream::handshake::{
    ANSWER, Admission, Digest, HELLO, Hello, PROOF, PROTOCOL, Secret, answer, job_digest, nonce,
    peer_digest, prove,
};
use crate::stream::socket::Socket;
use crate::stream::tls::{Fingerprint, Identity, to_hex};
use crate::sys;

/// Strangers that may be at the door at a time.
const AT_THE_DOOR: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How the first message of a TLS client begins.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// A connection that has proven itself, by generation, peer and lane; and how many lanes the pair
/// has.
type Admitted = HashMap<(u64, Digest, u16), (Socket, u16)>;

/// The listening side of a peer.
pub(crate) struct Server {
    pub(crate) peer: PeerId,
    pub(crate) job: Digest,
    pub(crate) secret: Secret,
    pub(crate) endpoint: Endpoint,
    /// Where data travels over TLS.
    pub(crate) identity: Option<Identity>,
    tcp: TcpListener,
    local: UnixListener,
    door: Mutex<Vec<Guest>>,
    admitted: Mutex<Admitted>,
    arrived: Condvar,
}

/// Somebody who has connected and not proven anything yet.
struct Guest {
    socket: Socket,
    /// None for a process of this host.
    from: Option<SocketAddr>,
    deadline: Instant,
    buffer: [u8; HELLO],
    filled: usize,
    admission: Option<Admission>,
}

enum Step {
    Waiting,
    Admitted,
    Refused(String),
}

impl Server {
    /// Listens through `tcp` and on an abstract local socket.
    pub(crate) fn new(
        tcp: TcpListener,
        peer: PeerId,
        job: &str,
        secret: Secret,
        identity: Option<Identity>,
    ) -> Result<Self> {
        tcp.set_nonblocking(true).context("listening for peers")?;
        congestion::prepare(&tcp);
        let local_name = format!("carole-{:032x}", peer.incarnation);
        let name = std::os::unix::net::SocketAddr::from_abstract_name(&local_name)
            .context("naming the local socket")?;
        let local = UnixListener::bind_addr(&name).context("listening on a local socket")?;
        local
            .set_nonblocking(true)
            .context("listening on a local socket")?;
        let endpoint = Endpoint {
            addresses: vec![tcp.local_addr().context("reading the own address")?],
            local: local_name,
            machine: sys::machine_identity().context("reading the boot id")?,
            certificate: identity.as_ref().map(|own| to_hex(&own.fingerprint())),
        };
        Ok(Self {
            peer,
            job: job_digest(job),
            secret,
            endpoint,
            identity,
            tcp,
            local,
            door: Mutex::new(Vec::new()),
            admitted: Mutex::new(HashMap::new()),
            arrived: Condvar::new(),
        })
    }

    /// Descriptors to watch.
    pub(crate) fn descriptors(&self, fds: &mut Vec<(RawFd, i16)>) {
        fds.push((self.tcp.as_raw_fd(), libc::POLLIN));
        fds.push((self.local.as_raw_fd(), libc::POLLIN));
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        fds.extend(door.iter().map(|guest| {
            let output = if guest.socket.wants_write() {
                libc::POLLOUT
            } else {
                0
            };
            (guest.socket.raw(), libc::POLLIN | output)
        }));
    }

    /// When the door must be looked at even if nothing comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.iter().map(|guest| guest.deadline).min()
    }

    /// Lets in who is there; never blocks.
    pub(crate) fn progress(&self) {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.accept(&mut door);
        self.attend(&mut door);
    }

    /// Moves the handshakes of those at the door on.
    fn attend(&self, door: &mut Vec<Guest>) {
        let me = peer_digest(&self.peer);
        let now = Instant::now();
        let mut index = 0;
        while index < door.len() {
            let step = match door[index].progress(self, &me) {
                Ok(Step::Waiting) if now >= door[index].deadline => {
                    Step::Refused("it was too slow to introduce itself".into())
                }
                Ok(step) => step,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    Step::Refused(error.to_string())
                }
                Err(error) => Step::Refused(format!("its connection failed: {error}")),
            };
            match step {
                Step::Waiting => index += 1,
                Step::Refused(reason) => door.swap_remove(index).refuse(&reason),
                Step::Admitted => {
                    let guest = door.swap_remove(index);
                    let Some(admission) = guest.admission else {
                        continue;
                    };
                    let hello = admission.hello;
                    let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
                    let key = (hello.generation, hello.from, hello.lane);
                    admitted.insert(key, (guest.socket, hello.lanes));
                    self.arrived.notify_all();
                }
            }
        }
    }

    fn accept(&self, door: &mut Vec<Guest>) {
        // However many there are, the thread has other things to do in between.
        for _ in 0..AT_THE_DOOR {
            let (socket, from) = match self.tcp.accept() {
                Ok((socket, from)) => (Socket::Tcp(socket), Some(from)),
                Err(_) => match self.local.accept() {
                    Ok((socket, _)) => (Socket::Local(socket), None),
                    Err(_) => return,
                },
            };
            let Some(socket) = self.prepare(socket) else {
                continue;
            };
            if door.len() >= AT_THE_DOOR {
                // Whoever is ready goes in, whoever has gone makes room.
                self.attend(door);
            }
            if door.len() >= AT_THE_DOOR {
                let dawdler = dawdler(door);
                door.swap_remove(dawdler).refuse("the door is full");
            }
            door.push(Guest::new(socket, from));
        }
    }

    fn prepare(&self, socket: Socket) -> Option<Socket> {
        match (socket, &self.identity) {
            (Socket::Tcp(tcp), identity) => {
                tcp.set_nodelay(true).ok()?;
                match identity {
                    Some(identity) => Some(Socket::Tls(identity.accept(tcp).ok()?.into())),
                    None => Some(Socket::Tcp(tcp)),
                }
            }
            (other, _) => Some(other),
        }
    }

    /// Waits for a peer's connection for a generation; also tells how many the pair has. Over TLS
    /// it counts only with the certificate that the peer has registered.
    pub(crate) fn wait_for(
        &self,
        generation: u64,
        from: &PeerId,
        lane: u16,
        certificate: Option<Fingerprint>,
        deadline: Instant,
    ) -> Option<(Socket, u16)> {
        let key = (generation, peer_digest(from), lane);
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((socket, lanes)) = admitted.remove(&key) {
                if matches!(socket, Socket::Local(_)) || socket.fingerprint() == certificate {
                    return Some((socket, lanes));
                }
                tracing::warn!(peer = %from, "connection refused: its certificate is not the one \
                    that it registered");
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.arrived.wait_timeout(admitted, left);
            admitted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets somebody come to the door without the network.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn welcome(&self, socket: std::os::unix::net::UnixStream) {
        socket.set_nonblocking(true).expect("a socket");
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.push(Guest::new(Socket::Local(socket), None));
    }

    /// How many are at the door.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn at_the_door(&self) -> usize {
        self.door
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// How many were let in and are not asked for yet.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn inside(&self) -> usize {
        self.admitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Forgets connections for generations before this one.
    pub(crate) fn forget_before(&self, generation: u64) {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.retain(|(of, _, _), _| *of >= generation);
    }
}

/// Who makes room: of the host that crowds the door most, the one that has been there longest.
fn dawdler(door: &[Guest]) -> usize {
    let host = |guest: &Guest| guest.from.map(|from| from.ip());
    let crowd = |guest: &Guest| door.iter().filter(|g| host(g) == host(guest)).count();
    (0..door.len())
        .max_by_key(|index| (crowd(&door[*index]), Reverse(door[*index].deadline)))
        .expect("the door is full")
}

impl Guest {
    fn new(socket: Socket, from: Option<SocketAddr>) -> Self {
        Self {
            socket,
            from,
            deadline: Instant::now() + HANDSHAKE,
            buffer: [0; HELLO],
            filled: 0,
            admission: None,
        }
    }

    fn refuse(self, reason: &str) {
        match self.from {
            Some(address) => tracing::warn!(%address, %reason, "connection refused"),
            None => tracing::warn!(address = "local", %reason, "connection refused"),
        }
    }

    fn progress(&mut self, server: &Server, me: &Digest) -> io::Result<Step> {
        loop {
            let wanted = if self.admission.is_some() {
                PROOF
            } else {
                HELLO
            };
            match (&self.socket).read(&mut self.buffer[self.filled..wanted]) {
                Ok(0) => return Ok(Step::Refused("it hung up".into())),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Step::Waiting);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if self.filled < wanted {
                continue;
            }
            self.filled = 0;
            if let Some(admission) = &self.admission {
                let proof = self.buffer[..PROOF].try_into().expect("a proof's length");
                return Ok(match admission.admit(&server.secret, &proof) {
                    Ok(()) => Step::Admitted,
                    Err(reason) => Step::Refused(reason),
                });
            }
            let nonce = match nonce() {
                Ok(nonce) => nonce,
                Err(reason) => return Ok(Step::Refused(reason)),
            };
            if self.buffer.starts_with(&TLS_HANDSHAKE) {
                return Ok(Step::Refused(
                    "it speaks TLS, and this side does not".into(),
                ));
            }
            let channel = self.socket.channel()?;
            match answer(
                &server.secret,
                &server.job,
                me,
                &self.buffer,
                nonce,
                channel,
            ) {
                Ok((admission, reply)) => {
                    // A fresh socket takes an answer of this size in one piece.
                    if (&self.socket).write(&reply)? != ANSWER {
                        return Ok(Step::Refused("it does not read".into()));
                    }
                    self.admission = Some(admission);
                }
                Err(reason) => return Ok(Step::Refused(reason)),
            }
        }
    }
}

/// Connects to a peer and proves ourselves, within the deadline; `lane` is the connection's number
/// and how many the pair has.
pub(crate) fn connect(
    server: &Server,
    endpoint: &Endpoint,
    peer: &PeerId,
    generation: u64,
    lane: (u16, u16),
    same_host: bool,
    certificate: Option<Fingerprint>,
    deadline: Instant,
) -> Result<Socket> {
    let unreachable = |error: io::Error| Error::Refused {
        address: peer.to_string(),
        reason: format!("cannot connect: {error}"),
    };
    let socket = if same_host {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(&endpoint.local)
            .context("naming a peer's local socket")?;
        let connect = || std::os::unix::net::UnixStream::connect_addr(&name);
        Socket::Local(retry(deadline, connect).map_err(unreachable)?)
    } else {
        let stream = connect_tcp(&endpoint.addresses, deadline).map_err(unreachable)?;
        stream.set_nodelay(true).context("preparing a connection")?;
        match (&server.identity, certificate) {
            (Some(identity), Some(certificate)) => {
                Socket::Tls(identity.connect(stream, certificate)?.into())
            }
            _ => Socket::Tcp(stream),
        }
    };
    introduce(server, &socket, peer, generation, lane, deadline)?;
    Ok(socket)
}

/// The client's side of the handshake.
pub(crate) fn introduce(
    server: &Server,
    socket: &Socket,
    peer: &PeerId,
    generation: u64,
    (lane, lanes): (u16, u16),
    deadline: Instant,
) -> Result<()> {
    let refused = |reason: String| Error::Refused {
        address: peer.to_string(),
        reason,
    };
    let talk = |error: io::Error| {
        refused(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it hung up during the handshake".into(),
            io::ErrorKind::TimedOut => "it did not answer in time".into(),
            io::ErrorKind::InvalidData => error.to_string(),
            _ => format!("the handshake failed: {error}"),
        })
    };
    let hello = Hello {
        protocol: (*PROTOCOL.start(), *PROTOCOL.end()),
        lane,
        lanes,
        generation,
        job: server.job,
        from: peer_digest(&server.peer),
        to: peer_digest(peer),
        nonce: nonce().map_err(refused)?,
    }
    .encode();
    socket.write_by(&hello, deadline).map_err(talk)?;
    let mut reply = [0; ANSWER];
    socket.read_by(&mut reply, deadline).map_err(talk)?;
    let channel = socket.channel().map_err(talk)?;
    let proof = prove(&server.secret, &hello, &reply, &channel).map_err(refused)?;
    socket.write_by(&proof, deadline).map_err(talk)
}

fn connect_tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<std::net::TcpStream> {
    let mut last = io::Error::new(
        io::ErrorKind::InvalidInput,
        "the peer registered no address",
    );
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match retry(deadline, || congestion::connect(address, left)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Tries again while the other side's queue is full; a listener exists before it is registered.
fn retry<T>(deadline: Instant, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
