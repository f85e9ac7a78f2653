//! Logs, which must not be written over a page: while there is one they become notices on it.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use super::happening::Happening;

type Send = Box<dyn Fn(Happening) -> bool + std::marker::Send>;

/// Where logs go; to standard error if there is nothing.
static PAGE: Mutex<Option<Send>> = Mutex::new(None);

/// Where logs are written: to the page if there is one, else to standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

/// Turns logs into notices until it is dropped.
#[derive(Debug)]
#[must_use = "logs go to standard error again when it is dropped"]
pub(crate) struct Redirected(());

/// Turns logs into notices, which `send` passes to the page. Where it says that it cannot, they go
/// to standard error as usual. It must neither wait nor log.
pub(crate) fn redirect(
    send: impl Fn(Happening) -> bool + std::marker::Send + 'static,
) -> Redirected {
    *page() = Some(Box::new(send));
    Redirected(())
}

impl Drop for Redirected {
    fn drop(&mut self) {
        *page() = None;
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

/// What is written at once is one log: a subscriber writes each whole.
impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = page().as_ref().is_some_and(|send| {
            let text = String::from_utf8_lossy(bytes);
            send(Happening::Notice(without_time(text.trim()).to_owned()))
        });
        if sent {
            Ok(bytes.len())
        } else {
            io::stderr().write(bytes)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The page has a clock of its own.
fn without_time(log: &str) -> &str {
    match log.split_once(' ') {
        Some((time, rest))
            if time.starts_with(|c: char| c.is_ascii_digit()) && time.ends_with('Z') =>
        {
            rest.trim_start()
        }
        _ => log,
    }
}

fn page() -> MutexGuard<'static, Option<Send>> {
    PAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn logs_become_notices_while_there_is_a_page() {
        let (sender, notices) = mpsc::channel();
        let redirected = redirect(move |happening| sender.send(happening).is_ok());
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Log)
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(rank = 3, "stopping the ranks that run");
        });
        let notice = Happening::Notice("WARN stopping the ranks that run rank=3".into());
        assert_eq!(notices.try_recv(), Ok(notice));
        drop(redirected);
        assert!(page().is_none());
    }

    #[test]
    fn only_a_time_is_left_out() {
        assert_eq!(without_time("2026-01-02T03:04:05.6Z  INFO hi"), "INFO hi");
        assert_eq!(without_time("3 ranks started"), "3 ranks started");
        assert_eq!(without_time("started"), "started");
    }
}
