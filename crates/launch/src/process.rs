//! One process of a rank and its process group.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    pidfd_open, set_parent_process_death_signal, setsid, waitid,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::exit::Exit;

/// A rank's process group, named by its first process.
///
/// The number stays this group's as long as the first process has not been reaped, which
/// [`Process`] does only after the group's last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    /// The group that a child leads which has not been reaped.
    pub(crate) fn led_by(child: &Child) -> Option<Self> {
        let id = i32::try_from(child.id()?).ok()?;
        Pid::from_raw(id).map(Self)
    }

    /// The number, as the guard process knows it.
    pub(crate) fn number(self) -> i32 {
        self.0.as_raw_pid()
    }

    /// Asks the group's processes to end.
    pub(crate) fn terminate(self) {
        self.signal(Signal::TERM);
    }

    /// Ends the group's processes.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    fn signal(self, signal: Signal) {
        match kill_process_group(self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::warn!(group = self.number(), %error, "cannot signal a group"),
        }
    }
}

/// What to start.
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a OsString,
    pub(crate) arguments: &'a [OsString],
    pub(crate) variables: Vec<(String, OsString)>,
    pub(crate) folder: Option<&'a Path>,
    /// The cores that it is bound to; any if empty.
    pub(crate) cores: &'a [usize],
    /// Whether its input is a pipe; else it is empty.
    pub(crate) input: bool,
}

/// A started process, its output in pipes.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) group: Group,
    exited: AsyncFd<OwnedFd>,
}

impl Process {
    /// Starts `program` in a process group of its own. It dies with the thread that calls this.
    pub(crate) fn start(launch: &Launch<'_>) -> io::Result<Self> {
        let mut command = Command::new(launch.program);
        command
            .args(launch.arguments)
            .envs(launch.variables.iter().map(|(name, value)| (name, value)))
            .stdin(if launch.input {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = launch.folder {
            command.current_dir(folder);
        }
        prepare(&mut command, launch.cores);
        let child = command.spawn()?;
        let group =
            Group::led_by(&child).ok_or_else(|| io::Error::other("the process has no id"))?;
        let exited = readable_on_exit(group.0)?;
        Ok(Self {
            child,
            group,
            exited,
        })
    }

    /// Waits for the process to end and leaves it unreaped, so that its group keeps its number.
    pub(crate) async fn exit(&self) -> io::Result<Exit> {
        drop(self.exited.readable().await?);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group.0), options)?;
        let status = status.ok_or_else(|| io::Error::other("the process has not ended"))?;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ok(Exit::Code(code)),
            (None, Some(signal)) => Ok(Exit::Signal(signal)),
            (None, None) => Err(io::Error::other("the process ended in no known way")),
        }
    }

    /// Ends what is left of the group, then lets go of the process.
    pub(crate) async fn reap(mut self) {
        self.group.kill();
        if let Err(error) = self.child.wait().await {
            tracing::warn!(group = self.group.number(), %error, "cannot reap a process");
        }
    }
}

/// A descriptor that becomes readable when the process ends.
#[expect(
    unsafe_code,
    reason = "the runtime cannot know that a descriptor stays open"
)]
fn readable_on_exit(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    // SAFETY: the descriptor was just opened and is moved into the registration, which is the only
    // one that closes it.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// Has the process begin a session, and so a group, of its own: no terminal reaches it, and it can
/// ask no terminal a question.
#[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
pub(crate) fn begin_session(command: &mut Command) {
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed.
    // It makes one system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| setsid().map(drop).map_err(io::Error::from));
    }
}

/// Lets the kernel kill the process when the thread that starts it ends, and binds it to cores.
#[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
fn prepare(command: &mut Command, cores: &[usize]) {
    let parent = getpid();
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    let bound = !cores.is_empty();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed.
    // It makes three system calls, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if bound {
                sched_setaffinity(None, &set)?;
            }
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::NotFound.into())
            }
        });
    }
}
