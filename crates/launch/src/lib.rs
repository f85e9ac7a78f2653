//! Starting, watching and stopping the processes of a job.
//!
//! [`local::run`] starts a job's ranks on this host, relays what they print, and stops the others
//! when one fails. What a process sees is built in [`environment`]; what to do when a process ends,
//! a person interrupts or time passes is decided purely in [`supervision`].
//!
//! # Guarantees
//!
//! - The first failure decides the job's exit code and is the one reported.
//! - Whole lines reach the output, in the order in which a rank wrote them to a stream.
//! - No process of a rank's process group outlives the job, not even when this process is killed:
//!   the kernel kills each rank with its parent, and a [`guard`] process kills the rest.
//!
//! # Caveats
//!
//! A process that leaves its rank's process group (a daemon that calls `setsid`) is not caught.
//! The kernel ties a rank to the *thread* that started it, so [`local::run`] must be driven by a
//! thread that lives as long as the job: a current-thread runtime does that.
//!
//! Nothing here knows about sessions or tensors, and nothing parses command lines.

pub mod environment;
pub mod error;
pub mod exit;
pub mod guard;
pub mod interrupt;
mod lines;
pub mod local;
pub mod output;
pub mod place;
mod ports;
mod private;
mod process;
pub mod program;
pub mod random;
pub mod request;
mod relay;
pub mod supervision;

pub use environment::{EnvironmentSet, Variable};
pub use error::Error;
pub use exit::Exit;
pub use guard::GuardCommand;
pub use interrupt::{Interrupt, forward_interrupts};
pub use local::{LocalJob, Loss, Order, Report, run};
pub use output::Output;
pub use place::Place;
pub use supervision::Verdict;
