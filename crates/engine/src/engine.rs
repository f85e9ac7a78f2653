//! The engine thread: one a process, parked when idle.
//!
//! It admits peers (the server), learns of deaths (pidfds and connections), sends and checks
//! heartbeats, moves started operations on, and serves the peer store. Blocking calls do not need
//! it: they move their own bytes. While callers read the connections themselves the thread leaves
//! those alone and only looks now and then whether they still do.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::session::{Inner, Loss};
use crate::started::Started;
use crate::stream::Events;
use crate::stream::parting::Parting;
use crate::sys;
use crate::wait::{Patience, Step, Waiter};

/// How often the thread checks whether callers still read the connections themselves.
const RECHECK: Duration = Duration::from_millis(2);

/// How often connections that are on their way out are looked after.
const PARTING: Duration = Duration::from_millis(500);

/// The handle of the engine thread.
pub(crate) struct Engine {
    bell: OwnedFd,
    work: Mutex<Work>,
    stop: AtomicBool,
    /// Forks between the first engine's process and this one; see [`sys::forks`].
    forks: u32,
}

#[derive(Default)]
struct Work {
    server: Option<Arc<Server>>,
    sessions: Vec<Weak<Inner>>,
    started: Vec<Arc<Started>>,
    partings: Vec<Parting>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let engine = Arc::new(Self {
            bell: sys::eventfd()?,
            work: Mutex::new(Work::default()),
            stop: AtomicBool::new(false),
            forks: sys::forks(),
        });
        let weak = Arc::downgrade(&engine);
        let bell = engine.bell.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("carole-engine".into())
            .spawn(move || {
                let mut rounds = Rounds::default();
                while let Some(engine) = weak.upgrade() {
                    if engine.stop.load(Ordering::Acquire) {
                        break;
                    }
                    let plan = rounds.work(&engine);
                    drop(engine);
                    Rounds::rest(plan, &bell);
                }
            })?;
        engine.work().thread = Some(thread);
        Ok(engine)
    }

    fn work(&self) -> std::sync::MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        sys::eventfd_ring(self.bell.as_fd());
    }

    /// A copy of the descriptor that wakes the thread, for local peers.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    pub(crate) fn serve(&self, server: Arc<Server>) {
        self.work().server = Some(server);
        self.ring();
    }

    pub(crate) fn attach(&self, session: &Arc<Inner>) {
        self.work().sessions.push(Arc::downgrade(session));
        self.ring();
    }

    /// Sees the connections of a session that is over out.
    pub(crate) fn part(&self, partings: Vec<Parting>) {
        self.work().partings.extend(partings);
        self.ring();
    }

    /// Hands a started operation to the thread.
    pub(crate) fn take(&self, started: Arc<Started>) {
        self.work().started.push(started);
        self.ring();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.forks != sys::forks() {
            // The thread is the parent's, and so is what the connections still have to say.
            return;
        }
        self.stop.store(true, Ordering::Release);
        self.ring();
        let thread = self.work().thread.take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let mut partings = std::mem::take(&mut self.work().partings);
        loop {
            partings.retain_mut(|parting| parting.progress() && !parting.is_delivered());
            if partings.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the thread does until the next round.
enum Plan {
    /// Work is in flight and moved just now.
    Again,
    Spin,
    Yield,
    /// Sleep until one of these is ready, or until the limit.
    Sleep {
        fds: Vec<(RawFd, i16)>,
        limit: Option<Duration>,
        asleep: Vec<Arc<Inner>>,
    },
}

#[derive(Default)]
struct Rounds {
    started: Vec<Arc<Started>>,
    waiter: Option<Waiter>,
}

impl Rounds {
    fn work(&mut self, engine: &Engine) -> Plan {
        let (server, sessions) = {
            let mut work = engine.work();
            self.started.append(&mut work.started);
            work.partings.retain_mut(Parting::progress);
            work.sessions.retain(|session| session.strong_count() > 0);
            let sessions: Vec<Arc<Inner>> =
                work.sessions.iter().filter_map(Weak::upgrade).collect();
            (work.server.clone(), sessions)
        };
        if let Some(server) = &server {
            server.progress();
        }
        let mut watching = Vec::with_capacity(sessions.len());
        for session in &sessions {
            watching.push(watch(session));
        }
        let moved = self.poll_started();
        if self.started.is_empty() {
            self.waiter = None;
        } else {
            let waiter = self.waiter.get_or_insert_with(|| {
                Waiter::new(Patience {
                    spins: 20,
                    spins_beside: 20,
                    again: false,
                    yielding: Duration::from_micros(500),
                })
            });
            if moved {
                waiter.reset();
                return Plan::Again;
            }
            match waiter.step() {
                Step::Spin => return Plan::Spin,
                Step::Yield => return Plan::Yield,
                Step::Park(_) => {}
            }
        }
        // Announce first, look once more, then sleep: a bell in between is not missed.
        let mut asleep = Vec::new();
        if !self.started.is_empty() {
            for session in &sessions {
                if let Some(local) = &session.local {
                    local.board.set_engine_sleeps(true);
                    local.announce();
                    asleep.push(Arc::clone(session));
                }
            }
            if self.poll_started() {
                wake_up(&asleep);
                return Plan::Again;
            }
        }
        let mut fds = vec![(engine.bell.as_raw_fd(), libc::POLLIN)];
        let mut parts = false;
        for parting in &engine.work().partings {
            parting.descriptors(|fd, events| fds.push((fd, events)));
            parts = true;
        }
        if let Some(server) = &server {
            server.descriptors(&mut fds);
        }
        let mut limit = server.and_then(|server| server.deadline()).map(|deadline| {
            deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
        });
        for (session, watching) in sessions.iter().zip(watching) {
            session.death_watches(&mut fds);
            let next = match &watching {
                Watching::Connections(next) => {
                    session.connection_descriptors(&mut fds);
                    *next
                }
                Watching::Callers => Some(RECHECK),
            };
            limit = match (limit, next) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if parts {
            limit = Some(limit.unwrap_or(PARTING).min(PARTING));
        }
        if !self.started.is_empty() {
            limit = Some(
                limit
                    .unwrap_or(Duration::from_millis(100))
                    .min(Duration::from_millis(100)),
            );
        }
        Plan::Sleep { fds, limit, asleep }
    }

    /// Polls every started operation once; true when any moved.
    fn poll_started(&mut self) -> bool {
        let mut moved = false;
        self.started.retain(|started| {
            let (over, progressed) = started.poll();
            moved |= over | progressed;
            !over
        });
        moved
    }

    fn rest(plan: Plan, bell: &OwnedFd) {
        match plan {
            Plan::Again => {}
            Plan::Spin => std::hint::spin_loop(),
            Plan::Yield => sys::yield_core(),
            Plan::Sleep { fds, limit, asleep } => {
                let mut fds: Vec<libc::pollfd> = fds
                    .into_iter()
                    .map(|(fd, events)| libc::pollfd {
                        fd,
                        events,
                        revents: 0,
                    })
                    .collect();
                let _ = sys::poll(&mut fds, limit);
                sys::eventfd_clear(bell.as_fd());
                wake_up(&asleep);
            }
        }
    }
}

fn wake_up(asleep: &[Arc<Inner>]) {
    for session in asleep {
        if let Some(local) = &session.local {
            local.retract();
            local.board.set_engine_sleeps(false);
        }
    }
}

enum Watching {
    /// The thread reads the connections; it must be back after this long.
    Connections(Option<Duration>),
    /// Callers read them.
    Callers,
}

/// Looks after one session: deaths, connections, heartbeats.
fn watch(session: &Arc<Inner>) -> Watching {
    session.check_deaths();
    let Some(streams) = &session.streams else {
        return Watching::Connections(None);
    };
    if session.is_over() {
        return Watching::Connections(None);
    }
    let driven = streams.drivers.load(Ordering::Acquire) > 0;
    // A failed connection ends the session through `Events::lost`.
    let _ = streams.progress(&**session, 0..session.peers.len());
    session.store.pump(session);
    let next = session.heartbeat();
    if driven {
        Watching::Callers
    } else {
        Watching::Connections(next)
    }
}

impl Events for Inner {
    fn lost(&self, rank: usize, reason: String) {
        self.note_loss(&Loss { rank, reason });
    }

    fn left(&self, rank: usize) {
        self.note_departure(rank);
    }

    fn store(&self, rank: usize, frame: &crate::stream::frame::Frame, payload: &[u8]) {
        self.store.receive(self, rank, frame, payload);
    }

    fn moved(&self) {
        self.engine.ring();
    }
}
