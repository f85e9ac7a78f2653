//! What the launcher and an agent say to each other, over the agent's standard input and output.
//!
//! The channel is an SSH connection to another host, a socket and a pipe on this one. It carries
//! frames: orders and reports, what ranks print, the files of a folder that is sent, and the bytes of
//! connections to the coordinator, which listens beside the launcher only. On this host the pipes of
//! ranks are handed over instead of what comes out of them. Nothing else is opened between the two.

pub(crate) mod examination;
pub(crate) mod folder;
pub(crate) mod frame;
pub(crate) mod handover;
pub(crate) mod message;
