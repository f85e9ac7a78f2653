//! The agent: the process beside the ranks of one host, which starts, watches and stops them.
//!
//! # Expected flow
//!
//! The launcher starts `carole agent` on every host of a job, here through pipes and elsewhere
//! through SSH, and orders it about over its standard input (see the module `channel`): the
//! agent says what its host is like, prepares, starts its ranks, sends what they print and how they
//! end. Between, it may be told to run the commands of a remote [`shell`](crate::shell). It ends
//! when it is told to, or when the launcher is gone.
//!
//! # Guarantees
//!
//! Nothing of a rank outlives the agent, however either of them dies. Two processes see to that:
//! the first becomes the *guard*, the second is the agent itself. Both adopt orphans, so that even
//! a daemon that has left its parents and its process group behind is found and ended: by the
//! agent, or by the guard if the agent was killed. If the guard is killed, the kernel tells the
//! agent, which ends everything.

mod examine;
mod guard;
mod host;
mod meter;
mod probe;
mod progress;
mod ranks;
mod serve;
pub(crate) mod tunnel;

use std::io;
use std::process::ExitCode;

pub use guard::under_guard;
pub(crate) use host::cache_folder;

/// Is the agent of this host until the launcher is gone. No other thread may run yet.
pub fn run() -> io::Result<ExitCode> {
    under_guard(|folder| {
        // One thread: the kernel ties the ranks' lives to the thread that starts them.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(serve::serve(folder))
    })
}
