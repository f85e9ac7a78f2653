//! Values and decisions of Carole: ids, host specs, graphs, topologies and membership.
//!
//! - [`host`], [`host_list`] and [`hostfile`]: which hosts there are, and which rank goes where.
//! - [`peer`], [`layout`] and [`membership`]: who takes part, which of them share a host, and where
//!   they are reached.
//! - [`graph`], [`topology`] and [`spanning_tree`]: along which links values are combined.
//! - [`table`]: which algorithm for which size and shape.
//! - [`error`]: what can be wrong with any of it.
//!
//! Everything is a pure function of its inputs: all ranks that hold the same inputs come to the
//! same answer, on every run. This crate opens no socket, reads no clock, no file and no
//! environment, and holds no unsafe code.

mod address;
pub mod error;
pub mod graph;
pub mod host;
pub mod host_list;
pub mod hostfile;
pub mod layout;
pub mod membership;
pub mod peer;
pub mod spanning_tree;
pub mod table;
pub mod topology;

pub use error::PlanError;
pub use graph::Graph;
pub use host::HostSpec;
pub use host_list::{HostList, Placement};
pub use layout::{HostLayout, Position};
pub use membership::{Endpoint, Generation, Member, Membership};
pub use peer::{PeerId, PeerList};
pub use spanning_tree::minimum_spanning_tree;
pub use table::{AlgorithmTable, LocalRule};
pub use topology::{GraphPair, Topology, TopologyName};
