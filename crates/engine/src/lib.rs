//! Carole's sessions: collectives, transports, reduce kernels, stores and monitors.

pub mod arena;
pub mod call;
mod choice;
pub mod compress;
mod descriptor;
pub mod dtype;
mod engine;
pub mod error;
mod form;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod hierarchy;
pub mod kernels;
mod key;
mod local;
pub mod metrics;
mod operation;
mod prometheus;
mod recorder;
mod region;
mod server;
pub mod session;
pub mod span;
mod started;
mod store;
mod stream;
mod sys;
mod table;
pub mod testing;
pub mod timeline;
mod wait;

pub use arena::SharedTensor;
pub use call::{Call, Element, Group, Handle, Pending, Prepared};
pub use descriptor::Kind;
pub use dtype::{DType, ReduceOp};
pub use error::{Error, Result};
pub use form::{Door, Peer};
pub use metrics::Metrics;
pub use session::{Options, Session, Transport};
pub use timeline::Traced;
