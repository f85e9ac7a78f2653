//! The job file: what a person submits, as a value.
//!
//! ```yaml
//! apiVersion: carole.dev/v1alpha1
//! kind: CaroleJob
//! metadata: {name: digits}
//! spec:
//!   strategy: AllReduce
//!   roles:
//!     worker:
//!       replicas: 4
//!       command: [python, digits.py]
//! ```
//!
//! One file means the same on every backend. [`JobSpec::from_yaml`] reads it; what is not a field,
//! or not of the right kind, is refused with its path, its line and the nearest known name. What a
//! backend does not honour is refused too, never ignored: [`JobSpec::refuse_unsupported`].
//!
//! - [`spec`] and [`role`]: the fields.
//! - [`name`], [`quantity`] and [`time_span`]: values that are checked when they are made.
//! - [`support`]: which backend honours what.
//!
//! Nothing here opens the file, resolves a command or starts anything.

pub mod name;
pub mod quantity;
mod read;
pub mod role;
#[cfg(feature = "schema")]
mod schema;
pub mod spec;
pub mod support;
pub mod time_span;
mod validate;

pub use name::Name;
pub use quantity::{Cpu, Memory};
pub use role::{Amounts, Elastic, Resources, Role};
pub use spec::{ApiVersion, Cache, Cleanup, JobSpec, Kind, Metadata, Spec, Strategy};
pub use support::{Backend, REFUSALS, Refusal};
pub use time_span::TimeSpan;
