//! A job: its name, its strategy, its roles, and what holds for all of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::name::Name;
use super::role::Role;
use super::time_span::TimeSpan;

// The descriptions of fields are also those of the schema and of docs/reference/job-file.md.

/// A job as written in a job file.
///
/// Whichever way it was read, its fields fit together; one that was put together in code is checked
/// by [`JobSpec::validate`]. Written out it is JSON, which [`JobSpec::from_yaml`] reads.
///
/// ```
/// let job = carole_plan::JobSpec::from_yaml(
///     "
/// apiVersion: carole.dev/v1alpha1
/// kind: CaroleJob
/// metadata: {name: digits}
/// spec:
///   strategy: AllReduce
///   roles:
///     worker: {replicas: 4, command: [python, digits.py]}
/// ",
/// )?;
/// assert_eq!(job.spec.roles["worker"].replicas.get(), 4);
/// assert_eq!(carole_plan::JobSpec::from_yaml(&job.to_string())?, job);
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(title = "CaroleJob", description = "A job of Carole.")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobSpec {
    /// The version of this format.
    pub api_version: ApiVersion,
    /// What the file describes.
    pub kind: Kind,
    /// The job's name, and what others attach to it.
    pub metadata: Metadata,
    /// What is to be run, and how.
    pub spec: Spec,
}

/// The version of the job file's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ApiVersion {
    /// The only one so far.
    #[default]
    #[serde(rename = "carole.dev/v1alpha1")]
    V1Alpha1,
}

/// What a file describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Kind {
    /// A job.
    #[default]
    CaroleJob,
}

/// A job's name, and what others attach to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The job's name.
    pub name: Name,
    /// The namespace that the job belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    /// Labels for whoever looks for jobs; they mean nothing to Carole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Notes of people and tools; they mean nothing to Carole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What is to be run, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// How the processes work together.
    pub strategy: Strategy,
    /// The groups of identical processes, by name. Which names there may be is the strategy's.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, Role>"))]
    pub roles: BTreeMap<Name, Role>,
    /// How often the processes are started again after a failure.
    #[serde(default)]
    pub retries: u16,
    /// Results of tasks that are kept from one run to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// The job is stopped, and has failed, after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<TimeSpan>,
    /// Which processes or pods go when the job ends.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// The queue in which the job waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
}

/// How the processes of a job work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Strategy {
    /// Workers that combine their values among themselves.
    AllReduce,
    /// Workers that read and write values kept by parameter servers.
    ParameterServer,
    /// Ranks that an installed MPI starts and wires up.
    #[serde(rename = "MPI")]
    Mpi,
    /// A graph of services and programs.
    Program,
}

impl Strategy {
    /// All strategies, in the order in which they are listed to people.
    pub const ALL: [Self; 4] = [
        Self::AllReduce,
        Self::ParameterServer,
        Self::Mpi,
        Self::Program,
    ];

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "AllReduce",
            Self::ParameterServer => "ParameterServer",
            Self::Mpi => "MPI",
            Self::Program => "Program",
        }
    }

    /// The roles that a job of this strategy must have.
    pub fn required_roles(self) -> &'static [&'static str] {
        match self {
            Self::AllReduce | Self::Mpi => &["worker"],
            Self::ParameterServer => &["ps", "worker"],
            Self::Program => &[],
        }
    }

    /// All roles that a job of this strategy may have; none are listed where any name will do.
    pub fn known_roles(self) -> &'static [&'static str] {
        match self {
            Self::AllReduce => &["worker"],
            Self::ParameterServer => &["ps", "worker", "chief", "evaluator"],
            Self::Mpi => &["worker", "launcher"],
            Self::Program => &[],
        }
    }

    /// Those of them that are one process.
    pub fn single_roles(self) -> &'static [&'static str] {
        match self {
            Self::ParameterServer => &["chief", "evaluator"],
            Self::Mpi => &["launcher"],
            Self::AllReduce | Self::Program => &[],
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Results of tasks that are kept from one run to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Results of another version are not used; change it when they should be computed anew.
    pub version: String,
}

/// Which processes or pods go when a job ends.
///
/// The values are those of Kubeflow's `cleanPodPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cleanup {
    /// Those that still run; pods that have ended stay, and with them their logs.
    #[default]
    Running,
    /// All, those that have ended too.
    All,
    /// None: what still runs goes on.
    None,
}
