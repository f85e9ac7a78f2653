//! Forming a session: connections, shared memory, and the watch over local processes.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carole_plan::{Endpoint, Member, Membership, PeerId, PortRange};

use crate::arena::{self, Arena};
use crate::engine::Engine;
use crate::error::{Context, Error, Result};
use crate::local::Local;
use crate::local::board::Board;
use crate::region::MAX_LOCAL;
use crate::server::{Server, connect};
use crate::session::{Inner, Options, Parts, Session, Transport};
use crate::stream::Streams;
use crate::stream::bundle::{Bundle, MOST};
use crate::stream::connection::Connection;
use crate::stream::handshake::Secret;
use crate::stream::socket::Socket;
use crate::stream::tls::{Fingerprint, Identity, from_hex};
use crate::sys::{self, Mapping};
use crate::table;

/// This process as a peer: it listens, and can form sessions with others.
///
/// A peer is in at most one session at a time; when a generation ends, the next session is formed
/// from the same peer.
pub struct Peer {
    server: Arc<Server>,
    engine: Arc<Engine>,
    arena: Arc<Arena>,
}

/// Where and how a peer listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// The address under which the others reach it.
    pub address: IpAddr,
    /// The ports it may take; any without them. Peers of one host begin to look at different ones.
    pub ports: Option<PortRange>,
    /// TLS on all TCP connections: every member of the job must have it, or none.
    pub tls: bool,
}

impl Door {
    /// Any port of `address`, without TLS.
    pub fn at(address: IpAddr) -> Self {
        Self {
            address,
            ports: None,
            tls: false,
        }
    }
}

impl Peer {
    /// Listens on `address` for the members of `job` that hold `token`.
    pub fn bind(peer: PeerId, job: &str, token: &[u8], address: IpAddr) -> Result<Self> {
        Self::listen(peer, job, token, Door::at(address))
    }

    /// The same with TLS on all TCP connections: every member of the job must be bound so.
    ///
    /// The peer makes a key and a certificate of its own, whose fingerprint is registered as a part
    /// of its [`endpoint`](Self::endpoint); no files and no authorities are needed.
    pub fn bind_tls(peer: PeerId, job: &str, token: &[u8], address: IpAddr) -> Result<Self> {
        let door = Door {
            tls: true,
            ..Door::at(address)
        };
        Self::listen(peer, job, token, door)
    }

    /// Listens at `door` for the members of `job` that hold `token`.
    pub fn listen(peer: PeerId, job: &str, token: &[u8], door: Door) -> Result<Self> {
        let identity = door.tls.then(Identity::new).transpose()?;
        let listener = listener(&door, &peer)?;
        let server = Server::new(listener, peer, job, Secret::new(token), identity)?;
        let server = Arc::new(server);
        let engine = Engine::start().context("starting the engine thread")?;
        engine.serve(Arc::clone(&server));
        let arena = Arc::new(Arena::new(server.peer.slot)?);
        Ok(Self {
            server,
            engine,
            arena,
        })
    }

    /// Who this is.
    pub fn id(&self) -> &PeerId {
        &self.server.peer
    }

    /// Where this peer can be reached; what it registers with the coordinator.
    pub fn endpoint(&self) -> &Endpoint {
        &self.server.endpoint
    }

    /// Joins the other members of a generation.
    pub fn form(&self, membership: &Membership, options: &Options) -> Result<Session> {
        let deadline = Instant::now() + options.form;
        let rank = membership
            .rank_of(&self.server.peer)
            .ok_or_else(|| Error::Form(format!("{} is not a member", self.server.peer)))?;
        let generation = membership.generation.as_u64();
        let size = membership.members.len();
        let hosts = match options.transport {
            Transport::Auto => membership.machine_indices(),
            Transport::Tcp => (0..size).collect(),
        };
        let mut sockets: Vec<Option<Socket>> = Vec::with_capacity(size);
        for (other, member) in membership.members.iter().enumerate() {
            let same_host = hosts[other] == hosts[rank];
            let certificate = if same_host {
                None
            } else {
                self.certificate_of(other, member)?
            };
            let connect = |lane| {
                connect(
                    &self.server,
                    &member.endpoint,
                    &member.peer,
                    generation,
                    lane,
                    same_host,
                    certificate,
                    deadline,
                )
            };
            let wait = |lane| {
                self.server
                    .wait_for(generation, &member.peer, lane, certificate, deadline)
                    .ok_or_else(|| Error::Form(missing(other, &member.peer, options.form)))
            };
            sockets.push(match other.cmp(&rank) {
                std::cmp::Ordering::Less => {
                    let lanes = if same_host { 1 } else { options.streams };
                    let lanes = lanes.clamp(1, MOST) as u16;
                    let sockets = (0..lanes).map(|lane| connect((lane, lanes)));
                    Some(together(sockets.collect::<Result<_>>()?))
                }
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => {
                    let (first, lanes) = wait(0)?;
                    let others = (1..lanes).map(|lane| Ok(wait(lane)?.0));
                    let sockets = std::iter::once(Ok(first)).chain(others);
                    Some(together(sockets.collect::<Result<_>>()?))
                }
            });
        }
        self.server.forget_before(generation);
        let local = self.share_memory(rank, &hosts, &sockets, deadline)?;
        let deaths = watch_processes(&hosts, rank, &sockets)?;
        let connections = sockets
            .into_iter()
            .enumerate()
            .map(|(rank, socket)| Some(Connection::new(rank, socket?)))
            .collect();
        let streams = Streams::new(generation, connections).context("preparing connections")?;
        let mut local_ranks = vec![None; size];
        if local.is_some() {
            let on_host = (0..size).filter(|other| hosts[*other] == hosts[rank]);
            for (index, other) in on_host.enumerate() {
                local_ranks[other] = Some(index as u8);
            }
        }
        let session = Session::from_inner(Inner::new(Parts {
            rank,
            peers: membership
                .members
                .iter()
                .map(|member| member.peer.clone())
                .collect(),
            generation: membership.generation,
            options: options.clone(),
            local,
            local_ranks,
            hosts,
            streams: Some(streams),
            deaths,
            engine: Arc::clone(&self.engine),
            arena: Arc::clone(&self.arena),
        }));
        self.engine.attach(&session.inner);
        let table = table::agree(&session.world(), &options.table, sys::available_cores())?;
        session.inner.set_table(table);
        // What forming took is not the program's doing.
        session.inner.recorder.forget();
        tracing::debug!(rank, size, generation = %membership.generation, "session formed");
        Ok(session)
    }

    /// The certificate that a member on another host must show, where data travels over TLS.
    fn certificate_of(&self, rank: usize, member: &Member) -> Result<Option<Fingerprint>> {
        let problem = match (&self.server.identity, &member.endpoint.certificate) {
            (None, None) => return Ok(None),
            (Some(_), Some(text)) => match from_hex(text) {
                Some(fingerprint) => return Ok(Some(fingerprint)),
                None => "registered a certificate's fingerprint that is no SHA-256",
            },
            (Some(_), None) => "does not use TLS, and this side does: all members must, or none",
            (None, Some(_)) => "uses TLS, and this side does not: all members must, or none",
        };
        Err(Error::Refused {
            address: member.peer.to_string(),
            reason: format!("rank {rank} {problem}"),
        })
    }

    /// The first rank of a host makes the memory; all ranks of the host get it and one another's
    /// bells, over the local sockets.
    fn share_memory(
        &self,
        rank: usize,
        hosts: &[usize],
        sockets: &[Option<Socket>],
        deadline: Instant,
    ) -> Result<Option<Local>> {
        let ranks: Vec<usize> = (0..hosts.len())
            .filter(|other| hosts[*other] == hosts[rank])
            .collect();
        if ranks.len() < 2 || ranks.len() > MAX_LOCAL {
            return Ok(None);
        }
        let me = ranks
            .iter()
            .position(|other| *other == rank)
            .expect("this rank is on its host");
        let bytes = Board::bytes(ranks.len());
        let own = if me == 0 {
            Some(sys::memfd(c"carole", bytes).context("making shared memory")?)
        } else {
            None
        };
        let bell = self.engine.bell().as_raw_fd();
        for other in ranks.iter().filter(|other| **other != rank) {
            let mut fds = vec![bell, self.arena.file().as_raw_fd()];
            fds.extend(own.as_ref().map(AsRawFd::as_raw_fd));
            let socket = sockets[*other]
                .as_ref()
                .expect("a socket to every other rank");
            sys::send_descriptors(socket.as_fd(), &fds).context("handing over shared memory")?;
        }
        let mut bells: Vec<Option<OwnedFd>> = Vec::with_capacity(ranks.len());
        let mut arenas: Vec<Option<Mapping>> = Vec::with_capacity(ranks.len());
        let mut memory = own;
        for other in &ranks {
            if *other == rank {
                bells.push(None);
                arenas.push(None);
                continue;
            }
            let socket = sockets[*other]
                .as_ref()
                .expect("a socket to every other rank");
            let mut fds = receive_descriptors(socket, deadline)
                .context("receiving shared memory")?
                .into_iter();
            bells.push(fds.next());
            arenas.push(fds.next().map(|file| arena::map(&file)).transpose()?);
            if *other == ranks[0] {
                memory = fds.next();
            }
        }
        let memory =
            memory.ok_or_else(|| Error::Form("no shared memory was handed over".into()))?;
        let length = sys::file_length(memory.as_fd()).context("measuring shared memory")?;
        if length != bytes {
            return Err(Error::Form(format!(
                "shared memory has {length} bytes, not {bytes}"
            )));
        }
        let mapping =
            Mapping::shared(memory.as_fd(), bytes, true).context("mapping shared memory")?;
        let board = Board::new(Arc::new(mapping), ranks.len(), me);
        Ok(Some(Local::new(
            board,
            bells,
            arenas,
            Some(Arc::clone(&self.arena)),
        )))
    }
}

/// Listens on the first port that is free, from the one at the peer's slot on.
fn listener(door: &Door, peer: &PeerId) -> Result<TcpListener> {
    let address = door.address;
    let Some(ports) = door.ports else {
        return TcpListener::bind((address, 0)).context("listening for peers");
    };
    for port in ports.starting_at(peer.slot.into()) {
        match TcpListener::bind((address, port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.context(&format!("listening for peers on port {port}")),
        }
    }
    Err(Error::System {
        context: format!("listening for peers on {} ({address})", peer.host),
        message: format!("every port of {ports} is taken"),
    })
}

/// A pair's connections as one.
fn together(mut sockets: Vec<Socket>) -> Socket {
    if sockets.len() == 1 {
        return sockets.remove(0);
    }
    Socket::Bundle(Box::new(Bundle::new(sockets)))
}

fn missing(rank: usize, peer: &PeerId, limit: Duration) -> String {
    format!("rank {rank} ({peer}) did not connect within {limit:?}")
}

fn receive_descriptors(socket: &Socket, deadline: Instant) -> std::io::Result<Vec<OwnedFd>> {
    let mut fds = [libc::pollfd {
        fd: socket.raw(),
        events: libc::POLLIN,
        revents: 0,
    }];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if sys::poll(&mut fds, Some(left))? > 0 {
            return sys::receive_descriptors(socket.as_fd());
        }
        if Instant::now() >= deadline {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
}

/// A descriptor for each other process on this host, readable when that process ends.
fn watch_processes(
    hosts: &[usize],
    rank: usize,
    sockets: &[Option<Socket>],
) -> Result<Vec<(usize, OwnedFd)>> {
    let mut deaths = Vec::new();
    for (other, socket) in sockets.iter().enumerate() {
        if hosts[other] != hosts[rank] {
            continue;
        }
        let Some(socket @ Socket::Local(_)) = socket else {
            continue;
        };
        let pid = sys::peer_pid(socket.as_fd()).context("asking for a peer's process")?;
        if pid as u32 != std::process::id() {
            let watch = sys::peer_pidfd(socket.as_fd()).context("watching a peer's process")?;
            deaths.push((other, watch));
        }
    }
    Ok(deaths)
}
