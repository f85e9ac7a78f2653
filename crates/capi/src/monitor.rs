//! What a session does: metrics, and a timeline on request.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::c_char;

use crate::memory::{given, out, reference, text};
use crate::outcome::{Failure, border, carole_result};
use crate::session::carole_session;

/// What the session has done so far, as Prometheus text (exposition format 0.0.4): operations,
/// bytes, latencies, bandwidths, stalls and errors by kind, and traffic by peer.
///
/// *metrics becomes memory to be given to carole_free, and *length, unless `length` is NULL, the
/// text's length. Reading disturbs nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_metrics(
    session: *const carole_session,
    metrics: *mut *mut c_char,
    length: *mut usize,
) -> carole_result {
    let body = || {
        // SAFETY: the caller passes a place for the answer, or NULL.
        let metrics = unsafe { out(metrics, "metrics") }?;
        *metrics = std::ptr::null_mut();
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        let prometheus = session.worker.session().metrics().prometheus();
        // SAFETY: the caller passes a place for the answer, or NULL.
        unsafe { answer(length, prometheus.len(), "length") }?;
        *metrics = given(prometheus.as_bytes())?.cast();
        Ok(())
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "metrics".to_owned())))
}

/// Records from now on when each operation of this rank begins and ends, to be written to a new file
/// at `path` in Chrome's trace event format. Each rank needs a file of its own.
///
/// The file is created at once, and written by carole_timeline_stop or carole_finalize; up to then
/// the events, at most 262144, are in memory. One timeline at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_timeline_start(
    session: *const carole_session,
    path: *const c_char,
) -> carole_result {
    let body = || {
        // SAFETY: the caller keeps the header's rules.
        let (session, path) = unsafe { (reference(session, "session")?, text(path, "path")?) };
        session.check_process()?;
        Ok(session.worker.session().start_timeline(path)?)
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "timeline".to_owned())))
}

/// Ends the timeline and writes its file; without a timeline nothing happens.
///
/// *events becomes the number of events written and *dropped that of events that found no room,
/// unless these are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_timeline_stop(
    session: *const carole_session,
    events: *mut usize,
    dropped: *mut usize,
) -> carole_result {
    let body = || {
        // SAFETY: the caller passes a session that has not been finalized, or NULL.
        let session = unsafe { reference(session, "session") }?;
        session.check_process()?;
        // SAFETY: the caller passes places for the answers, or NULL.
        unsafe {
            answer(events, 0, "events")?;
            answer(dropped, 0, "dropped")?;
        }
        let traced = session.worker.session().stop_timeline()?;
        // SAFETY: as above.
        unsafe {
            answer(events, traced.events, "events")?;
            answer(dropped, traced.dropped, "dropped")
        }
    };
    border(|| body().map_err(|failure: Failure| failure.during(|| "timeline".to_owned())))
}

/// Writes an answer for which there may be no place.
unsafe fn answer(place: *mut usize, value: usize, what: &str) -> Result<(), Failure> {
    if !place.is_null() {
        // SAFETY: the caller passes a place for the answer.
        *unsafe { out(place, what) }? = value;
    }
    Ok(())
}
