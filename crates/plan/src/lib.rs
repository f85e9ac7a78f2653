//! Values and decisions of Carole: ids, host specs, graphs, topologies and membership.
//!
//! This crate opens no socket, reads no clock and no environment, and holds no unsafe code.

pub mod membership;
pub mod peer;

pub use membership::{Endpoint, Generation, Member, Membership};
pub use peer::{PeerId, PeerList};
