//! Memory that the ranks of a host share.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::c_void;
use std::sync::PoisonError;

use crate::memory::{out, reference};
use crate::outcome::{Failure, border, carole_result};
use crate::session::carole_session;

/// Memory for tensors, of `bytes` zeros, that the other ranks of this host can reach: reductions of
/// tensors that lie in such memory on every rank are several times faster.
///
/// It is aligned to 64 bytes. Several tensors may share it; those that begin at multiples of 64 bytes
/// are fast. It is used as any other memory, by any operation. *memory must be given to
/// carole_release, or goes with the session; on failure it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_alloc(
    session: *const carole_session,
    bytes: usize,
    memory: *mut *mut c_void,
) -> carole_result {
    let body = || {
        // SAFETY: the caller passes a place for the answer, or NULL.
        let memory = unsafe { out(memory, "memory") }?;
        *memory = std::ptr::null_mut();
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        let mut tensor = session.worker.session().allocate::<u8>(bytes)?;
        let pointer = tensor.as_mut_ptr();
        let mut shared = session
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // From here on it is kept, and not looked at: what it holds is the caller's.
        shared.insert(pointer.addr(), tensor);
        *memory = pointer.cast();
        Ok(())
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "alloc".to_owned())))
}

/// Gives memory of carole_alloc back. No operation may be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_release(
    session: *const carole_session,
    memory: *mut c_void,
) -> carole_result {
    let body = || {
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        session.check_process()?;
        let mut shared = session
            .shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = shared.remove(&memory.addr());
        drop(shared);
        match found {
            Some(tensor) => drop(tensor),
            None => {
                return Err(Failure::invalid(
                    "memory is not of this session's carole_alloc",
                ));
            }
        }
        Ok(())
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "release".to_owned())))
}
