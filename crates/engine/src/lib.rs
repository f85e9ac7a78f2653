//! Carole's sessions: collectives, transports, reduce kernels, stores and monitors.

pub mod dtype;

pub use dtype::{DType, ReduceOp};
