//! Sessions whose ranks are threads of this process, for tests and examples.

use std::sync::Arc;

use carole_plan::{Generation, PeerId};

use crate::local::Local;
use crate::local::board::Board;
use crate::session::{Inner, Options, Session};
use crate::sys::Mapping;

/// Runs `body` on `size` ranks, each a thread with its own session, and returns what they return.
///
/// # Panics
/// When a rank panics.
pub fn spawn<R: Send>(size: usize, body: impl Fn(Session) -> R + Sync) -> Vec<R> {
    let sessions = sessions(size, &Options::default());
    std::thread::scope(|scope| {
        let handles: Vec<_> =
            sessions.into_iter().map(|session| scope.spawn(|| body(session))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a rank panicked")).collect()
    })
}

/// The sessions of `size` ranks that share memory in this process.
pub fn sessions(size: usize, options: &Options) -> Vec<Session> {
    let mapping = Arc::new(Mapping::anonymous(Board::bytes(size)).expect("memory"));
    (0..size).map(|rank| member(&mapping, size, rank, options)).collect()
}

fn member(mapping: &Arc<Mapping>, size: usize, rank: usize, options: &Options) -> Session {
    let peers = (0..size)
        .map(|slot| PeerId { host: "local".into(), slot: slot as u16, incarnation: slot as u128 })
        .collect();
    let board = Board::new(Arc::clone(mapping), size, rank);
    let local = Local::new(board, Vec::new());
    Session::from_inner(Inner::new(
        rank,
        peers,
        Generation { term: 1, counter: 1 },
        options.clone(),
        Some(local),
        (0..size).map(|rank| Some(rank as u8)).collect(),
        vec![0; size],
    ))
}

/// A region that forked processes share, for measurements.
#[derive(Clone)]
pub struct Shared {
    mapping: Arc<Mapping>,
    size: usize,
}

impl Shared {
    /// A region for `size` ranks.
    pub fn new(size: usize) -> Self {
        use std::os::fd::AsFd;
        let bytes = Board::bytes(size);
        let fd = crate::sys::memfd(c"spike", bytes).expect("memfd");
        let mapping = Mapping::shared(fd.as_fd(), bytes, true).expect("mapping");
        Self { mapping: Arc::new(mapping), size }
    }

    /// The session of one rank; call it in the process that will use it.
    pub fn session(&self, rank: usize) -> Session {
        member(&self.mapping, self.size, rank, &Options::default())
    }
}
