//! Reading YAML into checked values, with errors that say where.
//!
//! A YAML text becomes a [`tree`] of nodes that know their lines, and the tree becomes a value
//! through serde ([`deserialize`]). On the way up an error collects the [`path`] of the field it is
//! about; a [`Fault`] is that error. JSON is YAML and is read the same way.
//!
//! What is read is YAML 1.2, less what would mean something else to the readers of YAML 1.1 that
//! Kubernetes' tools use: see [`scalar`]. Anchors and aliases are read, within bounds; merge keys
//! (`<<`) and tags other than `!!str` are not.

pub(crate) mod deserialize;
pub(crate) mod fault;
pub(crate) mod path;
pub(crate) mod scalar;
pub(crate) mod tree;

pub(crate) use fault::Fault;
pub(crate) use path::Path;
pub(crate) use tree::Node;
