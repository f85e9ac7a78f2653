//! Where log lines go: nowhere, until a program says so.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{CString, c_char, c_void};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::outcome::{Failure, border, carole_result};

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_log_level {
    /// A person must act.
    CAROLE_LOG_ERROR = 1,
    /// Something is degraded: a wait that goes on for long, a peer that was lost.
    CAROLE_LOG_WARN = 2,
    /// A state changed.
    CAROLE_LOG_INFO = 3,
    /// How it flows.
    CAROLE_LOG_DEBUG = 4,
}

/// A level as it arrives from C, where it may be any number.
pub type carole_log_level_number = u32;

/// Takes one line, without a newline, valid during the call. It is called from any thread, must not
/// call Carole, and must not unwind.
pub type carole_log_function = Option<
    unsafe extern "C" fn(level: carole_log_level_number, line: *const c_char, context: *mut c_void),
>;

#[derive(Clone, Copy)]
struct Receiver {
    level: LevelFilter,
    function: carole_log_function,
    context: *mut c_void,
}

// SAFETY: the context is the caller's, who lets it be used from any thread.
unsafe impl Send for Receiver {}
// SAFETY: as above.
unsafe impl Sync for Receiver {}

static RECEIVER: RwLock<Receiver> = RwLock::new(Receiver {
    level: LevelFilter::OFF,
    function: None,
    context: std::ptr::null_mut(),
});

/// Has log lines of `level` and graver ones given to `function`, or printed to standard error when
/// it is NULL. Without this call nothing is logged. `context` is passed on; it must stay valid for
/// as long as lines may come.
///
/// Such lines tell, for example, for whom a wait has been waiting longer than the stall limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_set_log(
    level: carole_log_level_number,
    function: carole_log_function,
    context: *mut c_void,
) -> carole_result {
    border(|| {
        let level = match level {
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => {
                return Err(Failure::invalid(format!(
                    "{level} is not a carole_log_level"
                )));
            }
        };
        static INSTALL: Once = Once::new();
        // In a Rust program that has a subscriber, that one keeps getting the lines.
        INSTALL.call_once(|| drop(tracing::subscriber::set_global_default(Lines::default())));
        let mut receiver = RECEIVER.write().unwrap_or_else(PoisonError::into_inner);
        *receiver = Receiver {
            level,
            function,
            context,
        };
        drop(receiver);
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    })
}

/// Turns events into lines.
#[derive(Default)]
struct Lines {
    spans: AtomicU64,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let receiver = *RECEIVER.read().unwrap_or_else(PoisonError::into_inner);
        metadata.target().starts_with("carole") && *metadata.level() <= receiver.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(
            RECEIVER
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .level,
        )
    }

    fn event(&self, event: &Event<'_>) {
        let receiver = *RECEIVER.read().unwrap_or_else(PoisonError::into_inner);
        let level = *event.metadata().level();
        let mut line = Line::default();
        event.record(&mut line);
        let text = line.message + &line.fields;
        let Some(function) = receiver.function else {
            eprintln!("carole: {}: {text}", level.as_str().to_lowercase());
            return;
        };
        let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        // SAFETY: the function is what the caller of carole_set_log said it is.
        unsafe { function(number(level), text.as_ptr(), receiver.context) };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn number(level: Level) -> carole_log_level_number {
    use carole_log_level as to;
    let level = match level {
        Level::ERROR => to::CAROLE_LOG_ERROR,
        Level::WARN => to::CAROLE_LOG_WARN,
        Level::INFO => to::CAROLE_LOG_INFO,
        _ => to::CAROLE_LOG_DEBUG,
    };
    level as carole_log_level_number
}

/// An event's message, and its fields as ` name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    unsafe extern "C" fn keep(level: u32, line: *const c_char, context: *mut c_void) {
        // SAFETY: the test passes a list that outlives the logging.
        let lines = unsafe { &*context.cast::<Mutex<Vec<(u32, String)>>>() };
        // SAFETY: a line ends with a zero.
        let line = unsafe { CStr::from_ptr(line) }.to_str().unwrap().to_owned();
        lines.lock().unwrap().push((level, line));
    }

    #[test]
    fn lines_of_the_level_and_graver_ones_arrive_with_their_fields() {
        static LINES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
        let context = (&raw const LINES).cast_mut().cast();
        // SAFETY: the list is static.
        let result = unsafe { carole_set_log(3, Some(keep), context) };
        assert_eq!(result, carole_result::CAROLE_OK);
        tracing::warn!(rank = 3, "peer \"lost\"");
        tracing::debug!("not wanted");
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        assert!(
            lines.contains(&(2, "peer \"lost\" rank=3".to_owned())),
            "{lines:?}"
        );
        assert!(lines.iter().all(|(level, _)| *level <= 3), "{lines:?}");
        // SAFETY: as above.
        let result = unsafe { carole_set_log(0, Some(keep), context) };
        assert_eq!(result, carole_result::CAROLE_ERROR_INVALID);
    }
}
