//! Carole's sessions: collectives, transports, reduce kernels, stores and monitors.

pub mod call;
mod descriptor;
pub mod dtype;
pub mod error;
mod group;
pub mod kernels;
mod key;
mod local;
mod operation;
pub mod session;
pub mod span;
mod sys;
mod table;
pub mod testing;
mod wait;

pub use call::{Call, Element, Group};
pub use descriptor::Kind;
pub use dtype::{DType, ReduceOp};
pub use error::{Error, Result};
pub use session::{Options, Session};
