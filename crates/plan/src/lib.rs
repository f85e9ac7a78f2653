//! Values and decisions of Carole: ids, host specs, graphs, topologies, membership and job files.
//!
//! - [`host`], [`host_list`] and [`hostfile`]: which hosts there are, and which rank goes where.
//! - [`peer`], [`layout`] and [`membership`]: who takes part, which of them share a host, and where
//!   they are reached.
//! - [`ports`]: which ports may be listened on.
//! - [`graph`], [`topology`] and [`spanning_tree`]: along which links values are combined.
//! - [`table`]: which algorithm for which size and shape.
//! - [`job`]: what a person submits, as written in a job file.
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
pub mod job;
pub mod layout;
pub mod membership;
mod nearest;
pub mod peer;
pub mod ports;
pub mod spanning_tree;
pub mod table;
pub mod topology;
mod yaml;

pub use error::PlanError;
pub use graph::Graph;
pub use host::HostSpec;
pub use host_list::{HostList, Placement};
pub use job::{Backend, JobSpec};
pub use layout::{HostLayout, Position};
pub use membership::{Endpoint, Generation, Member, Membership};
pub use nearest::nearest;
pub use peer::{PeerId, PeerList};
pub use ports::PortRange;
pub use spanning_tree::minimum_spanning_tree;
pub use table::{AlgorithmTable, LocalRule};
pub use topology::{GraphPair, Topology, TopologyName};
