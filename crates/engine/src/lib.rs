//! Carole's sessions: collectives, transports, reduce kernels, stores and monitors.

pub mod arena;
pub mod call;
pub mod compress;
mod descriptor;
pub mod dtype;
mod engine;
pub mod error;
mod form;
mod group;
mod hierarchy;
pub mod kernels;
mod key;
mod local;
mod operation;
mod server;
pub mod session;
pub mod span;
mod started;
mod store;
mod stream;
mod sys;
mod table;
pub mod testing;
mod wait;

pub use arena::SharedTensor;
pub use call::{Call, Element, Group, Handle, Pending, Prepared};
pub use descriptor::Kind;
pub use dtype::{DType, ReduceOp};
pub use error::{Error, Result};
pub use form::Peer;
pub use session::{Options, Session, Transport};
