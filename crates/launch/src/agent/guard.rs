//! The process above the agent, which cleans up if the agent is killed.

#![expect(
    unsafe_code,
    reason = "a process that stays small is forked off before there are threads"
)]

use std::fs;
use std::io;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, setsid, wait,
};

use crate::private::{self, PrivateFolder};
use crate::stat::Stat;

/// Between two looks at processes that were killed.
const PAUSE: Duration = Duration::from_millis(2);
/// How long killed processes may take to disappear; one that cannot is the system's to keep.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs `body`, with a private folder, in a process of its own, while this one waits for it and
/// then ends whatever is left and removes the folder. No other thread may run yet.
pub fn under_guard(body: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<ExitCode> {
    let folder = PrivateFolder::new(&private::parents()).map_err(io::Error::other)?;
    set_child_subreaper(Some(getpid()))?;
    let guard = getpid();
    // SAFETY: there is only this thread, so that the child may do what this process may.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let ended = be_guarded(guard).and_then(|()| body(folder.path()));
            if let Err(error) = &ended {
                tracing::error!(%error, "the agent failed");
            }
            sweep();
            drop(folder);
            std::process::exit(i32::from(ended.is_err()));
        }
        child => {
            // The channel is the agent's: its ends must close when the agent's do.
            for descriptor in [0, 1] {
                // SAFETY: nothing in this process reads or writes them any more.
                drop(unsafe { fs::File::from_raw_fd(descriptor) });
            }
            let code = wait_for(child);
            sweep();
            drop(folder);
            Ok(code)
        }
    }
}

/// In the child: dies after its guard, and adopts orphans itself.
fn be_guarded(guard: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() != Some(guard) {
        return Err(io::Error::other("the guard is gone"));
    }
    set_child_subreaper(Some(getpid()))?;
    // Out of the terminal's reach: Ctrl-C is for the launcher.
    setsid()?;
    Ok(())
}

/// Waits until the child has ended, and lets go of every orphan that ends before it.
fn wait_for(child: i32) -> ExitCode {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid() == child => {
                let code = status.exit_status().unwrap_or(1);
                return ExitCode::from(u8::try_from(code).unwrap_or(1));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// Ends every process that descends from this one.
pub(super) fn sweep() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < LIMIT {
        // Those that have ended first; the killing below may have come from an earlier round.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                // No child at all.
                Err(_) => return,
            }
        }
        for child in children() {
            // A child that is not waited for keeps its number: it is still ours.
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
    tracing::warn!("some processes cannot be ended");
}

/// The children of this process, by what every process says of its parent.
fn children() -> Vec<Pid> {
    let me = getpid().as_raw_pid();
    Stat::all()
        .into_iter()
        .filter(|one| one.parent == me)
        .filter_map(|one| Pid::from_raw(one.pid))
        .collect()
}
