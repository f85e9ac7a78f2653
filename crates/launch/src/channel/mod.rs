//! What the launcher and an agent say to each other, over the agent's standard input and output.
//!
//! The channel is a pipe on this host and an SSH connection to another. It carries frames: orders
//! and reports, what ranks print, and the bytes of connections to the coordinator, which listens
//! beside the launcher only. Nothing else is opened between the two.

pub(crate) mod examination;
pub(crate) mod frame;
pub(crate) mod message;
