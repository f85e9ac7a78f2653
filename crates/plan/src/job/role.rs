//! A role: a named group of identical processes in a job.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::quantity::{Cpu, Memory};

/// A named group of identical processes in a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// How many there are of it; of an elastic role, how many to begin with.
    #[serde(default = "one")]
    pub replicas: NonZeroU16,
    /// How far the role may shrink and grow while it runs. Absent: it keeps its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,
    /// The program and its arguments. No shell reads them.
    pub command: Vec<String>,
    /// Variables that each process gets beside those of its place in the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The folder in which the processes start. Absent: the one that the job is started in, or the
    /// image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The container image that the processes run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How many ranks each replica holds.
    #[serde(default = "one")]
    pub slots: NonZeroU16,
    /// A program and its arguments that run once in every host or pod, replacements included, before
    /// its processes start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Vec<String>>,
    /// What each replica needs and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// How far a role may shrink and grow while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Elastic {
    /// With fewer replicas than this the job waits.
    pub min: NonZeroU16,
    /// There are never more replicas than this at work.
    pub max: NonZeroU16,
    /// So many more are kept ready to take the place of those that are lost.
    #[serde(default)]
    pub spares: u16,
}

impl Elastic {
    /// Whether the size cannot change.
    pub fn is_fixed(self) -> bool {
        self.min == self.max && self.spares == 0
    }
}

/// What each replica needs and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// What is set aside for it.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub requests: Amounts,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub limits: Amounts,
}

/// Amounts of a host's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Processor time, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// GPUs. Those that are requested and those that are allowed are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u16>,
}

impl Amounts {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}
