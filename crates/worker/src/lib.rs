//! One training process's view of its job.
//!
//! A launcher (`carole run`) starts a job's processes with a few `CAROLE_*` variables. This crate
//! reads them once, registers the process with the job's coordinator, waits for the others and
//! forms the session in which collectives run. Outside a launcher a process is a session of one,
//! so that the same program also runs alone.
//!
//! # Expected flow
//!
//! ```
//! use carole_engine::ReduceOp;
//! use carole_worker::Worker;
//!
//! # fn main() -> Result<(), carole_worker::Error> {
//! let worker = Worker::join()?;
//! let mut tensor = [worker.rank() as f32; 4];
//! worker.world().call().all_reduce(&mut tensor, ReduceOp::Sum)?;
//! // Dropping the worker leaves the job in good order.
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - A variable that is missing or cannot be understood is an error that names it.
//! - A loss that the coordinator learns of ends the session's waits here, also when no connection
//!   has broken.
//! - A worker that is dropped has said goodbye to its peers and to the coordinator, unless its
//!   thread is panicking: then its end is a loss, as it should be.
//!
//! # Caveats
//!
//! The membership is fixed: a process joins once. Nothing here starts processes, parses arguments
//! or talks to Kubernetes.

mod address;
pub mod environment;
pub mod error;
pub mod settings;
mod timeline;
mod watch;
pub mod worker;

pub use environment::{Environment, Launched};
pub use error::Error;
pub use settings::Settings;
pub use worker::Worker;
