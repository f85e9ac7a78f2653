//! Signals that end the process: the page is left first.
//!
//! A signal that somebody else handles is left to them, as the launcher handles interrupts by
//! stopping the job in good order; so is one that is ignored.

use std::io;
use std::sync::Mutex;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::terminal;

/// Signals that end a process that does not handle them, and that people and batch systems send.
const ENDING: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU];

/// Has signals that end this process leave the page first. It lasts as long as the process.
pub(super) fn leave_on_signals() -> io::Result<()> {
    static WATCHED: Mutex<bool> = Mutex::new(false);
    let mut watched = WATCHED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if *watched {
        return Ok(());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = Signals::new(unhandled(&status))?;
    std::thread::Builder::new()
        .name("carole-signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                terminal::leave();
                // It fails for signals only that cannot be handled.
                let _ = emulate_default_handler(signal);
            }
        })?;
    *watched = true;
    Ok(())
}

/// The signals that nobody handles or ignores, by what the system tells of this process.
fn unhandled(status: &str) -> Vec<i32> {
    let mask = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    };
    let handled = mask("SigCgt:") | mask("SigIgn:");
    ENDING
        .into_iter()
        .filter(|signal| handled >> (signal - 1) & 1 == 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_others_handle_or_ignore_are_left_to_them() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004002\n";
        assert_eq!(unhandled(status), [SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU]);
        assert_eq!(unhandled(""), ENDING);
    }
}
