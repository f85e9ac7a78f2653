//! Joining a job, and leaving it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use carole_coordinator::{Client, Token};
use carole_engine::{Door, Group, Options, Peer, Session};
use carole_plan::{Generation, HostLayout, Member, Membership, PeerId, Position};

use crate::environment::{Environment, Launched};
use crate::error::Error;
use crate::settings::Settings;
use crate::{address, timeline, watch};

/// This process as a member of its job.
///
/// See `examples/rust` for a whole program.
pub struct Worker {
    /// Taken only when the worker is dropped.
    joined: Option<Joined>,
    layout: HostLayout,
    position: Position,
    /// The process that joined: a forked child holds a copy that must not speak for it.
    process: u32,
}

/// What ends in order: the session first, then the membership, then the peer.
struct Joined {
    groups: Mutex<HashMap<Vec<usize>, Group>>,
    session: Arc<Session>,
    client: Option<Client>,
    peer: Peer,
}

impl Worker {
    /// Joins the job that this process was started for, or a session of one without a launcher.
    ///
    /// Returns when all ranks have joined.
    pub fn join() -> Result<Self, Error> {
        Self::join_as(&Environment::read()?)
    }

    /// Joins as `environment` says.
    pub fn join_as(environment: &Environment) -> Result<Self, Error> {
        let settings = &environment.settings;
        let worker = match &environment.launched {
            Some(launched) => Self::join_job(launched, settings)?,
            None => Self::join_nobody(&settings.options())?,
        };
        if let Some(file) = &settings.timeline {
            let path = timeline::path(file, worker.rank());
            let started = worker.session().start_timeline(&path);
            started.map_err(|source| Error::Timeline { path, source })?;
        }
        Ok(worker)
    }

    fn join_job(launched: &Launched, settings: &Settings) -> Result<Self, Error> {
        let options = &settings.options();
        let failed = |attempted: &str| {
            let attempted = format!("{attempted} as rank {} of {}", launched.rank, launched.job);
            move |source| Error::Coordinator { attempted, source }
        };
        let token = Token::read(&launched.token_file).map_err(failed("join"))?;
        let client = Client::new(&launched.coordinator, token.clone()).map_err(failed("join"))?;
        let address = match launched.address {
            Some(address) => address,
            None => address::towards(client.address()).map_err(|source| Error::System {
                attempted: format!("reach the coordinator at {}", client.address()),
                source,
            })?,
        };
        let door = Door {
            address,
            ports: settings.ports,
            tls: settings.tls == Some(true),
        };
        let (id, job) = (launched.peer.clone(), &launched.job);
        let peer = Peer::listen(id, job, token.as_bytes(), door)?;
        client
            .register(peer.id(), launched.rank, peer.endpoint())
            .map_err(failed("register"))?;
        let membership = client
            .wait_membership(0, options.timeout)
            .map_err(|error| {
                // The rank is free again for whoever comes next; the error is what matters here.
                let _ = client.leave(peer.id());
                failed("join the others")(error)
            })?;
        let session = Arc::new(peer.form(&membership, options)?);
        watch::start(client.clone(), &session).map_err(|source| Error::System {
            attempted: "start the thread that hears of losses".to_owned(),
            source,
        })?;
        Ok(Self::new(&membership, session, Some(client), peer))
    }

    /// A session of one, which needs no coordinator.
    fn join_nobody(options: &Options) -> Result<Self, Error> {
        let mut random = [0; 48];
        getrandom::fill(&mut random).map_err(|error| Error::System {
            attempted: "draw random numbers".to_owned(),
            source: error.into(),
        })?;
        let (incarnation, token) = random.split_first_chunk().expect("48 is more than 16");
        let id = PeerId::new("localhost", 0, u128::from_le_bytes(*incarnation));
        let peer = Peer::bind(id, "alone", token, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let member = Member {
            peer: peer.id().clone(),
            endpoint: peer.endpoint().clone(),
        };
        let generation = Generation {
            term: 1,
            counter: 1,
        };
        let membership = Membership {
            generation,
            members: vec![member],
        };
        let session = Arc::new(peer.form(&membership, options)?);
        Ok(Self::new(&membership, session, None, peer))
    }

    fn new(
        membership: &Membership,
        session: Arc<Session>,
        client: Option<Client>,
        peer: Peer,
    ) -> Self {
        let layout = membership.layout();
        let position = layout
            .position(session.rank())
            .expect("a session's rank is a member");
        let world: Vec<usize> = (0..session.size()).collect();
        let groups = Mutex::new(HashMap::from([(world, session.world())]));
        Self {
            joined: Some(Joined {
                groups,
                session,
                client,
                peer,
            }),
            layout,
            position,
            process: std::process::id(),
        }
    }

    fn joined(&self) -> &Joined {
        self.joined.as_ref().expect("taken only when dropped")
    }

    /// The session that was joined. It ends when the worker and every group are dropped.
    pub fn session(&self) -> &Session {
        &self.joined().session
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.position.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.position.size
    }

    /// Where this rank stands among the hosts, whatever transport is used between them.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Who this process is.
    pub fn peer(&self) -> &PeerId {
        self.joined().peer.id()
    }

    /// All ranks.
    pub fn world(&self) -> Group {
        self.session().world()
    }

    /// The ranks on this host.
    pub fn local_group(&self) -> Result<Group, Error> {
        self.group(self.layout.local_ranks(self.rank()))
    }

    /// The ranks with this one's place on their hosts, one a host.
    pub fn cross_group(&self) -> Result<Group, Error> {
        self.group(self.layout.cross_ranks(self.rank()))
    }

    /// The group of some ranks in the order given.
    ///
    /// Asking again for the same ranks gives the same group: its unnamed operations stay numbered
    /// in one row, however often it was asked for on each rank.
    pub fn group(&self, ranks: &[usize]) -> Result<Group, Error> {
        let Joined {
            groups, session, ..
        } = self.joined();
        let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.get(ranks) {
            return Ok(group.clone());
        }
        let group = session.group(ranks)?;
        groups.insert(ranks.to_vec(), group.clone());
        Ok(group)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(joined) = self.joined.take() else {
            return;
        };
        if self.process != std::process::id() {
            // The threads behind it are the parent's: nothing here may be waited for.
            std::mem::forget(joined);
            return;
        }
        let Joined {
            groups,
            session,
            client,
            peer,
        } = joined;
        // Here rather than with the session, which groups that the program still holds keep alive.
        if let Err(error) = session.stop_timeline() {
            tracing::warn!(%error, "the timeline could not be written");
        }
        drop((groups, session));
        if let Some(client) = client
            && !std::thread::panicking()
            && let Err(error) = client.leave(peer.id())
        {
            tracing::debug!(%error, "left without a word to the coordinator");
        }
    }
}
