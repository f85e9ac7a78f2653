//! What Rust, C++ and C print before a process ends.

use super::{Exception, Found};

/// A panic of Rust:
///
/// ```text
/// thread 'main' (15491) panicked at src/main.rs:4:5:
/// index out of bounds: the len is 3 but the index is 99
/// ```
pub(super) fn panic(lines: &[&str]) -> Option<Found> {
    let panics = || (0..lines.len()).rev().filter_map(|at| panic_at(lines, at));
    // A thread that joins one that panicked panics with its payload: the other one tells why.
    panics()
        .find(|found| !found.exception.text.ends_with("Any { .. }"))
        .or_else(|| panics().next())
}

fn panic_at(lines: &[&str], at: usize) -> Option<Found> {
    let (thread, rest) = lines[at]
        .strip_prefix("thread '")?
        .split_once(" panicked at ")?;
    let (thread, _) = thread.rsplit_once('\'')?;
    // Until Rust 1.73 the message came first: `'lost', src/main.rs:4:5`.
    let old = rest
        .strip_prefix('\'')
        .and_then(|rest| rest.rsplit_once("', "));
    let (message, place) = match old {
        Some((message, place)) => (message, place),
        None => {
            let message = lines.get(at + 1).copied().unwrap_or_default();
            (message.trim(), rest.strip_suffix(':')?)
        }
    };
    Some(Found {
        line: at,
        exception: Exception {
            text: format!("panic: {message}"),
            frame: Some(format!("{place}, in thread '{thread}'")),
        },
    })
}

/// An exception of C++ that nobody caught:
///
/// ```text
/// terminate called after throwing an instance of 'std::runtime_error'
///   what():  bad shape
/// ```
pub(super) fn terminate(lines: &[&str]) -> Option<Found> {
    (0..lines.len()).rev().find_map(|at| {
        let text = terminate_at(lines, at)?;
        // torch tells where it was thrown.
        let frame = lines[at..].iter().find_map(|line| {
            line.strip_prefix("Exception raised from ")?
                .strip_suffix(" (most recent call first):")
        });
        let frame = frame.map(str::to_owned);
        Some(Found {
            line: at,
            exception: Exception { text, frame },
        })
    })
}

fn terminate_at(lines: &[&str], at: usize) -> Option<String> {
    // With LLVM's library all is in one line.
    if let Some(rest) = lines[at].strip_prefix("libc++abi: ") {
        return rest
            .split_once("uncaught exception of type ")
            .map(|(_, text)| text.to_owned());
    }
    let kind = lines[at]
        .strip_prefix("terminate called after throwing an instance of '")?
        .strip_suffix('\'')?;
    let what = lines
        .get(at + 1)
        .and_then(|line| line.trim_start().strip_prefix("what():"));
    Some(match what {
        Some(what) => format!("{kind}: {}", what.trim()),
        None => kind.to_owned(),
    })
}

/// A process of C++ that ended without an exception, such as one whose threads still ran.
pub(super) fn terminate_without_exception(lines: &[&str]) -> Option<Found> {
    let text = "terminate called without an active exception";
    let at = lines.iter().rposition(|line| *line == text)?;
    Some(Found {
        line: at,
        exception: Exception {
            text: text.to_owned(),
            frame: None,
        },
    })
}

/// An assertion of C: ``program: main.c:4: main: Assertion `size > 0' failed.``
pub(super) fn assertion(lines: &[&str]) -> Option<Found> {
    lines.iter().enumerate().rev().find_map(|(at, line)| {
        let (place, text) = line
            .strip_suffix("' failed.")?
            .split_once(": Assertion `")?;
        let (_, frame) = place.split_once(": ")?;
        Some(Found {
            line: at,
            exception: Exception {
                text: format!("assertion failed: {text}"),
                frame: Some(frame.to_owned()),
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::render::exception::tests::found;

    #[test]
    fn panics_of_all_versions_of_rust_are_found() {
        let expected = "panic: index out of bounds: the len is 3 but the index is 99 \
                        (src/main.rs:4:5, in thread 'main')";
        for text in [
            "\nthread 'main' (15491) panicked at src/main.rs:4:5:\n\
             index out of bounds: the len is 3 but the index is 99\n\
             note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
            "thread 'main' panicked at src/main.rs:4:5:\n\
             index out of bounds: the len is 3 but the index is 99\n\
             stack backtrace:\n   0: rust_begin_unwind\n             at panicking.rs:689:5\n",
            "thread 'main' panicked at 'index out of bounds: the len is 3 but the index is 99', \
             src/main.rs:4:5\n",
        ] {
            assert_eq!(found(text).unwrap(), expected);
        }
    }

    #[test]
    fn the_panic_of_a_thread_matters_more_than_that_of_who_joined_it() {
        let text = "\nthread 'reader' (15493) panicked at src/main.rs:1:171:\n\
                    two\nlines\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\
                    \nthread 'main' (15492) panicked at src/main.rs:1:210:\n\
                    called `Result::unwrap()` on an `Err` value: Any { .. }\n";
        assert_eq!(
            found(text).unwrap(),
            "panic: two (src/main.rs:1:171, in thread 'reader')"
        );
    }

    #[test]
    fn exceptions_of_cpp_are_found() {
        assert_eq!(
            found(
                "terminate called after throwing an instance of 'std::runtime_error'\n  \
                 what():  bad thing\n"
            )
            .unwrap(),
            "std::runtime_error: bad thing"
        );
        assert_eq!(
            found("terminate called after throwing an instance of 'int'\n").unwrap(),
            "int"
        );
        assert_eq!(
            found("terminate called without an active exception\n").unwrap(),
            "terminate called without an active exception"
        );
        assert_eq!(
            found(
                "libc++abi: terminating due to uncaught exception of type \
                 std::runtime_error: bad thing\n"
            )
            .unwrap(),
            "std::runtime_error: bad thing"
        );
    }

    #[test]
    fn torch_tells_where_it_threw() {
        let text = "terminate called after throwing an instance of 'c10::DistBackendError'\n  \
            what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread \
            terminated with exception: [Rank 3] Watchdog caught collective operation timeout\n\
            Exception raised from checkTimeout at /pytorch/torch/csrc/distributed/c10d/\
            ProcessGroupNCCL.cpp:632 (most recent call first):\n\
            frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (in libc10.so)\n";
        assert_eq!(
            found(text).unwrap(),
            "c10::DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog \
             thread terminated with exception: [Rank 3] Watchdog caught collective operation \
             timeout (checkTimeout at /pytorch/torch/csrc/distributed/c10d/\
             ProcessGroupNCCL.cpp:632)"
        );
    }

    #[test]
    fn assertions_of_c_are_found() {
        assert_eq!(
            found("t: t.cpp:4: int main(int, char**): Assertion `c==3' failed.\n").unwrap(),
            "assertion failed: c==3 (t.cpp:4: int main(int, char**))"
        );
    }
}
