//! Result codes, the last error of a thread, and the border that every function passes.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(non_camel_case_types, reason = "the names are C's")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::out;

/// What a call answers. Anything but CAROLE_OK has a text: carole_last_error().
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum carole_result {
    /// It worked.
    CAROLE_OK = 0,
    /// A rank died, left or fell silent; carole_lost_rank() tells which. The session is over:
    /// every later call that needs that rank answers the same.
    CAROLE_ERROR_PEER_LOST = 1,
    /// The ranks asked for different things under one name; the text says which rank asked for
    /// what. Every rank gets this error, and the session stays usable.
    CAROLE_ERROR_MISMATCH = 2,
    /// Some rank gave the operation up. The session stays usable.
    CAROLE_ERROR_ABORTED = 3,
    /// The time limit passed; the text says who had not arrived. The session stays usable.
    CAROLE_ERROR_TIMEOUT = 4,
    /// The same name is already in flight in this group on this rank.
    CAROLE_ERROR_DUPLICATE = 5,
    /// An argument makes no sense: a NULL or misaligned pointer, an unknown number, a rank that
    /// does not exist. Nothing was sent.
    CAROLE_ERROR_INVALID = 6,
    /// The session is closed.
    CAROLE_ERROR_CLOSED = 7,
    /// This process forked since the session was formed; only the parent may use it.
    CAROLE_ERROR_FORKED = 8,
    /// The session could not be formed.
    CAROLE_ERROR_FORM = 9,
    /// Another process could not prove that it belongs to the job, or speaks another protocol.
    CAROLE_ERROR_REFUSED = 10,
    /// The operating system refused something.
    CAROLE_ERROR_SYSTEM = 11,
    /// A defect of the library, stopped at its border. The session may not be usable.
    CAROLE_ERROR_PANIC = 12,
    /// A CAROLE_ variable is missing or cannot be understood.
    CAROLE_ERROR_ENVIRONMENT = 13,
    /// The coordinator could not be reached, or refused.
    CAROLE_ERROR_COORDINATOR = 14,
    /// The rank that was asked has no such blob.
    CAROLE_ERROR_NOT_FOUND = 15,
    /// An error that this version of the interface has no code for.
    CAROLE_ERROR_OTHER = 16,
}

use carole_result::{
    CAROLE_ERROR_ABORTED, CAROLE_ERROR_CLOSED, CAROLE_ERROR_COORDINATOR, CAROLE_ERROR_DUPLICATE,
    CAROLE_ERROR_ENVIRONMENT, CAROLE_ERROR_FORKED, CAROLE_ERROR_FORM, CAROLE_ERROR_INVALID,
    CAROLE_ERROR_MISMATCH, CAROLE_ERROR_NOT_FOUND, CAROLE_ERROR_OTHER, CAROLE_ERROR_PANIC,
    CAROLE_ERROR_PEER_LOST, CAROLE_ERROR_REFUSED, CAROLE_ERROR_SYSTEM, CAROLE_ERROR_TIMEOUT,
    CAROLE_OK,
};

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: carole_result,
    message: String,
    lost: Option<usize>,
    /// Whether the message begins with the operation.
    labelled: bool,
}

impl Failure {
    pub(crate) fn new(code: carole_result, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            lost: None,
            labelled: false,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(CAROLE_ERROR_INVALID, message)
    }

    /// The same, saying in which argument.
    #[must_use]
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same, beginning with the operation if it did not.
    #[must_use]
    pub(crate) fn during(self, operation: impl FnOnce() -> String) -> Self {
        if self.labelled {
            self
        } else {
            Self {
                labelled: true,
                ..self.within(&operation())
            }
        }
    }

    /// A panic that was caught.
    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no reason was given");
        Self::new(CAROLE_ERROR_PANIC, format!("a defect in libcarole: {text}"))
    }
}

impl From<carole_engine::Error> for Failure {
    fn from(error: carole_engine::Error) -> Self {
        use carole_engine::Error;
        let code = match &error {
            Error::PeerLost { .. } => CAROLE_ERROR_PEER_LOST,
            Error::Mismatch { .. } => CAROLE_ERROR_MISMATCH,
            Error::Aborted { .. } => CAROLE_ERROR_ABORTED,
            Error::Timeout { .. } => CAROLE_ERROR_TIMEOUT,
            Error::Duplicate { .. } => CAROLE_ERROR_DUPLICATE,
            Error::Invalid { .. } => CAROLE_ERROR_INVALID,
            Error::Closed => CAROLE_ERROR_CLOSED,
            Error::Forked { .. } => CAROLE_ERROR_FORKED,
            Error::Form(_) => CAROLE_ERROR_FORM,
            Error::Refused { .. } => CAROLE_ERROR_REFUSED,
            Error::System { .. } => CAROLE_ERROR_SYSTEM,
            _ => CAROLE_ERROR_OTHER,
        };
        let lost = match &error {
            Error::PeerLost { rank, .. } => Some(*rank),
            _ => None,
        };
        Self {
            code,
            message: error.to_string(),
            lost,
            labelled: true,
        }
    }
}

impl From<carole_worker::Error> for Failure {
    fn from(error: carole_worker::Error) -> Self {
        use carole_worker::Error;
        let code = match error {
            Error::Engine(error) => return error.into(),
            Error::MissingVariable { .. } | Error::BadVariable { .. } | Error::BadFile { .. } => {
                CAROLE_ERROR_ENVIRONMENT
            }
            Error::Coordinator { .. } => CAROLE_ERROR_COORDINATOR,
            Error::System { .. } | Error::Timeline { .. } => CAROLE_ERROR_SYSTEM,
            _ => CAROLE_ERROR_OTHER,
        };
        Self::new(code, error.describe())
    }
}

/// The last error of a thread, as C reads it.
struct Last {
    text: CString,
    lost: c_int,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { text: CString::default(), lost: -1 });
}

fn remember(failure: Failure) -> carole_result {
    let Failure {
        code,
        message,
        lost,
        ..
    } = failure;
    // A text from elsewhere may hold a zero, which C would take for its end.
    let text = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
    let lost = lost
        .and_then(|rank| c_int::try_from(rank).ok())
        .unwrap_or(-1);
    // A thread that is being torn down has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { text, lost });
    code
}

/// Runs the body of a C function: no panic and no `Err` gets past it.
#[inline]
pub(crate) fn border(body: impl FnOnce() -> Result<(), Failure>) -> carole_result {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CAROLE_OK,
        Ok(Err(failure)) => remember(failure),
        Err(payload) => remember(Failure::panic(&*payload)),
    }
}

/// The text of this thread's last error, for a person; "" when there was none.
///
/// It names who was waited for and on what operation. The text stays valid until a call of this
/// thread fails again; a call that works leaves it alone.
#[unsafe(no_mangle)]
pub extern "C" fn carole_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The rank that was lost, when this thread's last error was CAROLE_ERROR_PEER_LOST; -1 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_lost_rank(rank: *mut c_int) -> carole_result {
    border(|| {
        // SAFETY: the caller passes a place for the answer, or NULL.
        let rank = unsafe { out(rank, "rank") }?;
        *rank = LAST.try_with(|last| last.borrow().lost).unwrap_or(-1);
        Ok(())
    })
}

/// The name of a result, such as "CAROLE_ERROR_PEER_LOST"; "CAROLE_ERROR_OTHER" for a number
/// that is none. The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn carole_result_name(result: carole_result_number) -> *const c_char {
    NAMES
        .iter()
        .find(|(known, _)| *known as carole_result_number == result)
        .map_or(c"CAROLE_ERROR_OTHER", |(_, name)| *name)
        .as_ptr()
}

/// A result as it arrives from C, where it may be any number.
pub type carole_result_number = u32;

macro_rules! names {
    ($($name:ident)*) => {
        [$(($name, match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name holds no zero"),
        })),*]
    };
}

const NAMES: [(carole_result, &CStr); 17] = names! {
    CAROLE_OK CAROLE_ERROR_PEER_LOST CAROLE_ERROR_MISMATCH CAROLE_ERROR_ABORTED
    CAROLE_ERROR_TIMEOUT CAROLE_ERROR_DUPLICATE CAROLE_ERROR_INVALID CAROLE_ERROR_CLOSED
    CAROLE_ERROR_FORKED CAROLE_ERROR_FORM CAROLE_ERROR_REFUSED CAROLE_ERROR_SYSTEM
    CAROLE_ERROR_PANIC CAROLE_ERROR_ENVIRONMENT CAROLE_ERROR_COORDINATOR CAROLE_ERROR_NOT_FOUND
    CAROLE_ERROR_OTHER
};

/// The version of the library, such as "0.1.0". The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn carole_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version holds no zero"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text is this thread's and is not replaced while it is read.
        unsafe { CStr::from_ptr(carole_last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_text() {
        let code = border(|| panic!("on {}", "purpose"));
        assert_eq!(code, CAROLE_ERROR_PANIC);
        assert_eq!(last(), "a defect in libcarole: on purpose");
    }

    #[test]
    fn a_call_that_works_leaves_the_last_error_alone() {
        border(|| Err(Failure::invalid("a\0b")));
        assert_eq!(border(|| Ok(())), CAROLE_OK);
        assert_eq!(last(), "a\u{fffd}b");
    }

    #[test]
    fn every_result_has_its_name_and_other_numbers_do_not_crash() {
        for (number, (result, name)) in NAMES.iter().enumerate() {
            assert_eq!(*result as usize, number);
            // SAFETY: the names are constants.
            let found = unsafe { CStr::from_ptr(carole_result_name(number as u32)) };
            assert_eq!(found, *name);
        }
        // SAFETY: as above.
        let other = unsafe { CStr::from_ptr(carole_result_name(u32::MAX)) };
        assert_eq!(other, c"CAROLE_ERROR_OTHER");
    }
}
