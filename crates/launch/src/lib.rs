//! Starting, watching and stopping the processes of a job.
//!
//! A [`Fleet`] is an [`agent`] on every host of a job, here or reached by SSH. It starts the ranks,
//! relays what they print, and stops the others when one fails. What a process sees is built in
//! [`environment`]; what to do when a process ends, a person interrupts or time passes is decided
//! purely in [`supervision`].
//!
//! # Guarantees
//!
//! - The first failure decides the job's exit code and is the one reported.
//! - Whole lines reach the output, in the order in which a rank wrote them to a stream.
//! - No process of a rank outlives the job, not even one that has left its process group and its
//!   parents behind, and not even when the launcher, an agent or the connection to it is killed.
//!
//! # Caveats
//!
//! The kernel ties a rank to the *thread* that started it: agents run on one thread.
//!
//! A command that is no job, such as `carole exec`'s, goes to hosts over plain SSH: see [`remote`].
//!
//! Nothing here knows about sessions or tensors, and nothing parses command lines.

pub mod agent;
mod channel;
mod digest;
pub mod doctor;
pub mod environment;
pub mod error;
pub mod exit;
pub mod fleet;
pub mod hosts;
pub mod interrupt;
pub mod output;
pub mod place;
mod ports;
mod private;
mod process;
pub mod program;
pub mod progress;
pub mod random;
pub mod registry;
mod relay;
pub mod remote;
pub mod render;
pub mod request;
pub mod role;
pub mod shell;
mod stat;
pub mod supervision;
pub mod sync;
pub mod usage;
pub mod whereabouts;

pub use environment::{EnvironmentSet, Variable};
pub use error::{Error, HostProblem};
pub use exit::Exit;
pub use fleet::{AgentCommand, Event, Facts, Fleet, Host, Job, Order, Reach, RemoteShell, Report};
pub use hosts::Listed;
pub use interrupt::{Interrupt, forward_interrupts};
pub use output::Output;
pub use place::Place;
pub use progress::Progress;
pub use role::{Role, Roles};
pub use supervision::Verdict;
pub use sync::SyncProgress;
pub use usage::{Traffic, Usage};
pub use whereabouts::{Target, Whereabouts};
