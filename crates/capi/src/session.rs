//! Joining, leaving, and where this rank stands.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carole_engine::{Group, SharedTensor};
use carole_plan::{Position, Topology, TopologyName};
use carole_worker::{Environment, Worker};

use crate::group::carole_group;
use crate::memory::{out, reference};
use crate::options::{carole_config, settings};
use crate::outcome::{Failure, border, carole_result};
use crate::scope::no_topology;

/// This process as a member of its job.
pub struct carole_session {
    pub(crate) worker: Worker,
    pub(crate) world: Group,
    /// Handles that were given out; they live as long as the session.
    groups: Mutex<HashMap<Vec<usize>, Box<carole_group>>>,
    /// Topologies that were asked for, by the address of their group, which stays where it is.
    topologies: Mutex<HashMap<(usize, TopologyName), Arc<Topology>>>,
    /// Memory that carole_alloc gave, by its address.
    pub(crate) shared: Mutex<HashMap<usize, SharedTensor<u8>>>,
    /// Requests that have not been freed.
    pub(crate) requests: Arc<AtomicUsize>,
    /// The process that joined.
    process: u32,
}

impl carole_session {
    fn new(worker: Worker) -> Self {
        Self {
            world: worker.world(),
            worker,
            groups: Mutex::new(HashMap::new()),
            topologies: Mutex::new(HashMap::new()),
            shared: Mutex::new(HashMap::new()),
            requests: Arc::new(AtomicUsize::new(0)),
            process: std::process::id(),
        }
    }

    /// A forked child has a copy of the session, and may not act for its parent.
    pub(crate) fn check_process(&self) -> Result<(), Failure> {
        let (owner, process) = (self.process, std::process::id());
        if owner != process {
            return Err(carole_engine::Error::Forked { owner, process }.into());
        }
        Ok(())
    }

    /// What tells this session's groups from another's.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The handle of a group; the same one whenever the same ranks are asked for.
    pub(crate) fn handle_of(&self, group: Group) -> *const carole_group {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = groups
            .entry(group.ranks().to_vec())
            .or_insert_with(|| Box::new(carole_group::new(group, self.identity())));
        std::ptr::from_ref(&**handle)
    }

    /// A named topology over one of this session's groups; made once.
    pub(crate) fn topology(
        &self,
        group: &Group,
        name: TopologyName,
    ) -> Result<Arc<Topology>, Failure> {
        let key = (std::ptr::from_ref(group).addr(), name);
        let mut topologies = self
            .topologies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(topology) = topologies.get(&key) {
            return Ok(Arc::clone(topology));
        }
        let all = self.worker.session().hosts();
        let hosts: Vec<usize> = group.ranks().iter().map(|rank| all[*rank]).collect();
        let topology = Arc::new(Topology::named(name, &hosts).map_err(no_topology)?);
        topologies.insert(key, Arc::clone(&topology));
        Ok(topology)
    }
}

impl Drop for carole_session {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // In a forked child the memory is the parent's, which goes on using it.
            let shared = self
                .shared
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(shared));
        }
    }
}

/// Joins the job that this process was started for, and waits until all of its ranks have joined.
///
/// Under `carole run -n N -- PROGRAM` the job is told by environment variables. Without a launcher
/// the process is a session of one, so that the same program also runs alone. A process joins once.
/// `config` may be NULL. On success *session must be given to carole_finalize in the end; on
/// failure it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_init(
    config: *const carole_config,
    session: *mut *mut carole_session,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a place for the answer, or NULL.
        let session = unsafe { out(session, "session") }?;
        *session = std::ptr::null_mut();
        // SAFETY: the caller's struct has the size that its first field tells.
        let settings = unsafe { settings(config) }?;
        let mut environment = Environment::read()?;
        environment.settings = environment.settings.overridden_by(&settings);
        let worker = Worker::join_as(&environment)?;
        *session = Box::into_raw(Box::new(carole_session::new(worker)));
        Ok(())
    })
}

/// Leaves the job in good order and frees the session, its groups and its shared memory.
///
/// Other ranks' operations that need this one fail from now on, so ranks usually meet in a
/// carole_barrier before. Refused with CAROLE_ERROR_INVALID while a request has not been freed; no
/// other call may be using the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_finalize(session: *mut carole_session) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let open = unsafe { reference(session, "session") }?
            .requests
            .load(Ordering::Acquire);
        if open > 0 {
            return Err(Failure::invalid(format!(
                "carole_finalize: {open} requests have not been given to carole_request_free"
            )));
        }
        // SAFETY: made by `Box::into_raw` in carole_init, and not used after this call.
        drop(unsafe { Box::from_raw(session) });
        Ok(())
    })
}

/// Answers one number about where a rank stands.
unsafe fn answer(
    session: *const carole_session,
    place: *mut c_int,
    which: fn(Position) -> usize,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        let place = unsafe { out(place, "the place for the answer") }?;
        *place = c_int::try_from(which(session.worker.position()))
            .map_err(|_| Failure::invalid("more ranks than an int holds"))?;
        Ok(())
    })
}

/// This process's rank, from 0 to size - 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_rank(
    session: *const carole_session,
    rank: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, rank, |position| position.rank) }
}

/// How many ranks there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_size(
    session: *const carole_session,
    size: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, size, |position| position.size) }
}

/// This rank's place among the ranks of its host: what a program picks its GPU by.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_local_rank(
    session: *const carole_session,
    local_rank: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, local_rank, |position| position.local_rank) }
}

/// How many ranks this host has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_local_size(
    session: *const carole_session,
    local_size: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, local_size, |position| position.local_size) }
}

/// This host's place among the hosts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_host_rank(
    session: *const carole_session,
    host_rank: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, host_rank, |position| position.host_rank) }
}

/// How many hosts there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_host_count(
    session: *const carole_session,
    host_count: *mut c_int,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { answer(session, host_count, |position| position.host_count) }
}

/// The generation of the session's membership: rises with every change of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_generation(
    session: *const carole_session,
    generation: *mut u64,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        let generation = unsafe { out(generation, "generation") }?;
        *generation = session.worker.session().generation().as_u64();
        Ok(())
    })
}
