//! Handles of operations that were started.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carole_engine::Handle;

use crate::memory::{out, reference};
use crate::outcome::{Failure, border, carole_result};
use crate::session::carole_session;
use crate::staged::Staged;

/// An operation that was started. Its buffers must stay valid, and be left alone, until it is over
/// or its request has been freed.
pub struct carole_request {
    work: Work,
    /// The process that started it.
    process: u32,
    /// Counts the session's requests that have not been freed.
    open: Arc<AtomicUsize>,
}

/// What goes on behind a request.
pub(crate) enum Work {
    /// One operation of the engine.
    One(Handle),
    /// Several, one after another.
    Staged(Staged),
}

impl carole_request {
    /// A forked child has a copy of the handle, but not the threads behind it.
    fn check_process(&self) -> Result<(), Failure> {
        let (owner, process) = (self.process, std::process::id());
        if owner != process {
            return Err(carole_engine::Error::Forked { owner, process }.into());
        }
        Ok(())
    }
}

/// Hands out a request.
pub(crate) fn give(session: &carole_session, work: Work) -> *mut carole_request {
    let open = Arc::clone(&session.requests);
    open.fetch_add(1, Ordering::AcqRel);
    Box::into_raw(Box::new(carole_request {
        work,
        process: std::process::id(),
        open,
    }))
}

/// Whether the operation is over; *done becomes 1 or 0. Moves it on if it is not.
///
/// Whether it went well is told by carole_wait, which then returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_test(
    request: *const carole_request,
    done: *mut c_int,
) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a request that has not been freed, or NULL.
        let request = unsafe { reference(request, "request") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        let done = unsafe { out(done, "done") }?;
        request.check_process()?;
        *done = c_int::from(match &request.work {
            Work::One(handle) => handle.test(),
            Work::Staged(staged) => staged.is_over(),
        });
        Ok(())
    })
}

/// Waits until the operation is over and answers what became of it: what the blocking call would
/// have answered. It may be called again, and by several threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_wait(request: *const carole_request) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a request that has not been freed, or NULL.
        let request = unsafe { reference(request, "request") }?;
        request.check_process()?;
        match &request.work {
            Work::One(handle) => Ok(handle.wait()?),
            Work::Staged(staged) => staged.wait(),
        }
    })
}

/// Gives the operation up, on every member: their waits end with CAROLE_ERROR_ABORTED. Does
/// nothing when it is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_abort(request: *const carole_request) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a request that has not been freed, or NULL.
        let request = unsafe { reference(request, "request") }?;
        request.check_process()?;
        match &request.work {
            Work::One(handle) => handle.abort(),
            Work::Staged(staged) => staged.abort(),
        }
        Ok(())
    })
}

/// Frees a request; an operation that is not over is given up first. Afterwards nobody touches its
/// buffers any more. No other call may be using the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_request_free(request: *mut carole_request) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a request that has not been freed, or NULL.
        unsafe { reference(request, "request") }?.check_process()?;
        // SAFETY: made by `Box::into_raw` in `give`, and not used after this call.
        let carole_request { work, open, .. } = *unsafe { Box::from_raw(request) };
        drop(work);
        open.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    })
}
