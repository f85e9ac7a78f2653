//! Groups: ordered subsets of a session's ranks.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::c_int;

use carole_engine::Group;
use carole_worker::Worker;

use crate::memory::{array, index, out, reference};
use crate::outcome::{Failure, border, carole_result};
use crate::session::carole_session;

/// An ordered subset of a session's ranks, on which operations are called. It belongs to its
/// session and lives until carole_finalize: there is nothing to free.
pub struct carole_group {
    pub(crate) group: Group,
    /// The session that it belongs to.
    pub(crate) session: usize,
}

impl carole_group {
    pub(crate) fn new(group: Group, session: usize) -> Self {
        Self { group, session }
    }
}

/// Makes a group and hands out its handle.
unsafe fn give(
    session: *const carole_session,
    group: *mut *const carole_group,
    make: impl FnOnce(&Worker) -> Result<Group, Failure>,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a place for the answer, or NULL.
        let group = unsafe { out(group, "group") }?;
        *group = std::ptr::null();
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        *group = session.handle_of(make(&session.worker)?);
        Ok(())
    })
}

/// The group of some ranks, in the order given: `ranks` holds `count` different ranks, this one
/// among them. A rank's place in the list is its rank in the group.
///
/// Every member makes the group itself; nothing is sent. The same list gives the same group again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_group_of(
    session: *const carole_session,
    ranks: *const c_int,
    count: usize,
    group: *mut *const carole_group,
) -> carole_result {
    let make = |worker: &Worker| {
        // SAFETY: the caller's array has `count` elements.
        let ranks = unsafe { array(ranks, count, "ranks") }?;
        let ranks: Vec<usize> = ranks
            .iter()
            .map(|rank| index(*rank, "a rank"))
            .collect::<Result<_, _>>()?;
        Ok(worker.group(&ranks)?)
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { give(session, group, make) }
}

/// The group of all ranks: what operations use when no group is named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_world_group(
    session: *const carole_session,
    group: *mut *const carole_group,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { give(session, group, |worker| Ok(worker.world())) }
}

/// The group of the ranks on this host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_local_group(
    session: *const carole_session,
    group: *mut *const carole_group,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { give(session, group, |worker| Ok(worker.local_group()?)) }
}

/// The group of the ranks that have this one's place on their hosts, one a host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_cross_group(
    session: *const carole_session,
    group: *mut *const carole_group,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { give(session, group, |worker| Ok(worker.cross_group()?)) }
}

fn number(value: usize) -> Result<c_int, Failure> {
    c_int::try_from(value).map_err(|_| Failure::invalid("more ranks than an int holds"))
}

/// This process's rank in a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_group_rank(
    group: *const carole_group,
    rank: *mut c_int,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a group of a session that lives, or NULL.
        let group = unsafe { reference(group, "group") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        *unsafe { out(rank, "rank") }? = number(group.group.rank())?;
        Ok(())
    })
}

/// How many members a group has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_group_size(
    group: *const carole_group,
    size: *mut c_int,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a group of a session that lives, or NULL.
        let group = unsafe { reference(group, "group") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        *unsafe { out(size, "size") }? = number(group.group.size())?;
        Ok(())
    })
}

/// The session's ranks of a group's members, in the group's order: as many as carole_group_size
/// tells are written to `ranks`, which has room for `room`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_group_ranks(
    group: *const carole_group,
    ranks: *mut c_int,
    room: usize,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a group of a session that lives, or NULL.
        let group = unsafe { reference(group, "group") }?;
        let members = group.group.ranks();
        if room < members.len() {
            let size = members.len();
            return Err(Failure::invalid(format!(
                "room for {room} of the {size} ranks"
            )));
        }
        // SAFETY: the caller passes room for as many as it says, or NULL.
        unsafe { out(ranks, "ranks") }?;
        for (place, rank) in members.iter().enumerate() {
            let rank = number(*rank)?;
            // SAFETY: `ranks` has room for all members, as was checked.
            unsafe { ranks.add(place).write(rank) };
        }
        Ok(())
    })
}
