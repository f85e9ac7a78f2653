//! The peer store: named, versioned blobs, and named queues.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use carole_worker::settings::{EXPECTED_SECONDS, seconds};

use crate::memory::{array, given, index, out, reference, text};
use crate::outcome::{Failure, border, carole_result};
use crate::session::carole_session;

/// Ask for whatever version was saved last.
pub const CAROLE_LATEST: u64 = u64::MAX;

/// Gives bytes to C, which gives them back with carole_free.
unsafe fn give(blob: &[u8], bytes: *mut *mut c_void, length: *mut usize) -> Result<(), Failure> {
    // SAFETY: the caller passes places for the answers, or NULL.
    let (bytes, length) = unsafe { (out(bytes, "bytes")?, out(length, "length")?) };
    (*bytes, *length) = (given(blob)?, blob.len());
    Ok(())
}

/// Checks the places for an answer and empties them.
unsafe fn empty(bytes: *mut *mut c_void, length: *mut usize) -> Result<(), Failure> {
    // SAFETY: the caller passes places for the answers, or NULL.
    unsafe {
        *out(bytes, "bytes")? = std::ptr::null_mut();
        *out(length, "length")? = 0;
    }
    Ok(())
}

/// Keeps a copy of `length` bytes under a name and a version, for other ranks to ask for with
/// carole_request_saved. The last three versions of a name are kept, each whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_save(
    session: *const carole_session,
    name: *const c_char,
    version: u64,
    bytes: *const c_void,
    length: usize,
) -> carole_result {
    let body = || {
        // SAFETY: the caller keeps the header's rules.
        let (session, name, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), length, "bytes")?;
            (reference(session, "session")?, text(name, "name")?, bytes)
        };
        if version == CAROLE_LATEST {
            return Err(Failure::invalid("CAROLE_LATEST is not a version"));
        }
        Ok(session.worker.session().save(name, version, bytes)?)
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "save".to_owned())))
}

/// Asks a rank for a blob that it saved: one version, or CAROLE_LATEST. The rank need not be in any
/// call.
///
/// *bytes becomes memory to be given to carole_free, *length its length, and *found, unless `found`
/// is NULL, the version. CAROLE_ERROR_NOT_FOUND when the rank has no such name or version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_request_saved(
    session: *const carole_session,
    rank: c_int,
    name: *const c_char,
    version: u64,
    bytes: *mut *mut c_void,
    length: *mut usize,
    found: *mut u64,
) -> carole_result {
    let body = || {
        // SAFETY: the caller keeps the header's rules.
        let (session, name) = unsafe {
            empty(bytes, length)?;
            (reference(session, "session")?, text(name, "name")?)
        };
        let rank = index(rank, "rank")?;
        let wanted = (version != CAROLE_LATEST).then_some(version);
        let Some((version, blob)) = session.worker.session().request(rank, name, wanted)? else {
            let which = wanted.map_or("no version".to_owned(), |v| format!("no version {v}"));
            let message = format!("rank {rank} has {which} of {name:?}");
            return Err(Failure::new(carole_result::CAROLE_ERROR_NOT_FOUND, message));
        };
        // SAFETY: the caller keeps the header's rules.
        unsafe {
            if !found.is_null() {
                *out(found, "found")? = version;
            }
            give(&blob, bytes, length)
        }
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "request".to_owned())))
}

/// Puts a copy of `length` bytes into a rank's queue, where carole_get takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_put(
    session: *const carole_session,
    rank: c_int,
    queue: *const c_char,
    bytes: *const c_void,
    length: usize,
) -> carole_result {
    let body = || {
        // SAFETY: the caller keeps the header's rules.
        let (session, queue, bytes) = unsafe {
            let bytes = array(bytes.cast::<u8>(), length, "bytes")?;
            (reference(session, "session")?, text(queue, "queue")?, bytes)
        };
        Ok(session
            .worker
            .session()
            .put(index(rank, "rank")?, queue, bytes)?)
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "put".to_owned())))
}

/// Takes the oldest message of one of this rank's queues, waiting up to `timeout_seconds`; 0 does
/// not wait. CAROLE_ERROR_TIMEOUT when there is none by then.
///
/// *bytes becomes memory to be given to carole_free, and *length its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_get(
    session: *const carole_session,
    queue: *const c_char,
    timeout_seconds: f64,
    bytes: *mut *mut c_void,
    length: *mut usize,
) -> carole_result {
    let body = || {
        // SAFETY: the caller keeps the header's rules.
        let (session, queue) = unsafe {
            empty(bytes, length)?;
            (reference(session, "session")?, text(queue, "queue")?)
        };
        let limit = if timeout_seconds == 0.0 {
            Duration::ZERO
        } else {
            seconds(timeout_seconds).ok_or_else(|| {
                let expected = format!("0, or {EXPECTED_SECONDS}");
                Failure::invalid(format!(
                    "timeout_seconds is {timeout_seconds}: expected {expected}"
                ))
            })?
        };
        let Some(message) = session.worker.session().get(queue, limit)? else {
            let message = format!("nothing came into queue {queue:?} within {limit:?}");
            return Err(Failure::new(carole_result::CAROLE_ERROR_TIMEOUT, message));
        };
        // SAFETY: the caller keeps the header's rules.
        unsafe { give(&message, bytes, length) }
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "get".to_owned())))
}

/// Frees memory that carole_request_saved, carole_get or carole_metrics gave; NULL is fine. Memory of
/// carole_alloc goes to carole_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_free(bytes: *mut c_void) {
    // SAFETY: the memory is malloc's, or NULL.
    unsafe { libc::free(bytes) };
}
