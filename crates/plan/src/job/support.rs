//! Which backend honours what.
//!
//! A field that a backend does not honour is refused, never ignored: a job file means the same on
//! every backend, or it does not run there. [`REFUSALS`] is the whole list; a version that learns
//! to honour something takes a line out. Kubernetes is meant to honour every field.

use std::fmt;

use super::role::{Amounts, Resources, Role};
use super::spec::{Cleanup, JobSpec, Strategy};
use crate::error::PlanError;

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// On this machine.
    Local,
    /// On hosts that are reached over SSH.
    Ssh,
    /// In pods.
    Kubernetes,
}

impl Backend {
    /// All backends, in the order in which they are listed to people.
    pub const ALL: [Self; 3] = [Self::Local, Self::Ssh, Self::Kubernetes];

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A field, or a use of it, that some backends do not honour.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The field's path; `*` stands for any role.
    pub field: &'static str,
    /// Which use is refused, in words; none for every use.
    pub only: Option<&'static str>,
    /// Who refuses.
    pub backends: &'static [Backend],
    used: Used,
}

/// Whether a job has it.
#[derive(Clone, Copy, Debug)]
enum Used {
    Job(fn(&JobSpec) -> bool),
    Role(fn(&Role) -> bool),
}

/// Backends that start processes on hosts as they are.
const HOSTS: &[Backend] = &[Backend::Local, Backend::Ssh];

/// What is refused in this version.
pub const REFUSALS: &[Refusal] = &[
    of_job("metadata.namespace", |job| job.metadata.namespace.is_some()),
    of_job("spec.strategy", |job| {
        job.spec.strategy == Strategy::Program
    })
    .only("Program"),
    of_role("spec.roles.*.elastic", |role| {
        role.elastic.is_some_and(|elastic| !elastic.is_fixed())
    })
    .only("min other than max, or spares"),
    of_role("spec.roles.*.image", |role| role.image.is_some()),
    of_role("spec.roles.*.slots", |role| role.slots.get() > 1).only("more than 1"),
    of_role("spec.roles.*.resources.requests.cpu", |role| {
        requests(role).cpu.is_some()
    }),
    of_role("spec.roles.*.resources.requests.memory", |role| {
        requests(role).memory.is_some()
    }),
    of_role("spec.roles.*.resources.requests.gpu", |role| {
        requests(role).gpu.is_some()
    }),
    of_role("spec.roles.*.resources.limits.cpu", |role| {
        limits(role).cpu.is_some()
    }),
    of_role("spec.roles.*.resources.limits.memory", |role| {
        limits(role).memory.is_some()
    }),
    of_role("spec.roles.*.resources.limits.gpu", |role| {
        limits(role).gpu.is_some()
    }),
    of_job("spec.cache", |job| job.spec.cache.is_some()),
    of_job("spec.cleanup", |job| job.spec.cleanup == Cleanup::None).only("none"),
    of_job("spec.queue", |job| job.spec.queue.is_some()),
];

const fn of_job(field: &'static str, used: fn(&JobSpec) -> bool) -> Refusal {
    Refusal {
        field,
        only: None,
        backends: HOSTS,
        used: Used::Job(used),
    }
}

const fn of_role(field: &'static str, used: fn(&Role) -> bool) -> Refusal {
    Refusal {
        field,
        only: None,
        backends: HOSTS,
        used: Used::Role(used),
    }
}

impl Refusal {
    const fn only(self, only: &'static str) -> Self {
        Self {
            only: Some(only),
            ..self
        }
    }

    /// Where `job` uses it, as paths.
    fn uses(&self, job: &JobSpec) -> Vec<String> {
        match self.used {
            Used::Job(used) if used(job) => vec![self.field.to_owned()],
            Used::Job(_) => Vec::new(),
            Used::Role(used) => job
                .spec
                .roles
                .iter()
                .filter(|(_, role)| used(role))
                .map(|(name, _)| self.field.replacen('*', name.as_str(), 1))
                .collect(),
        }
    }
}

fn requests(role: &Role) -> Amounts {
    resources(role).requests
}

fn limits(role: &Role) -> Amounts {
    resources(role).limits
}

fn resources(role: &Role) -> Resources {
    role.resources.unwrap_or_default()
}

impl JobSpec {
    /// Refuses the job if it has what `backend` does not honour in this version; the error names
    /// every such field.
    pub fn refuse_unsupported(&self, backend: Backend) -> Result<(), PlanError> {
        let mut fields = Vec::new();
        for refusal in REFUSALS {
            if !refusal.backends.contains(&backend) {
                continue;
            }
            for path in refusal.uses(self) {
                fields.push(match refusal.only {
                    Some(only) => format!("{path} ({only})"),
                    None => path,
                });
            }
        }
        if fields.is_empty() {
            Ok(())
        } else {
            Err(PlanError::JobUnsupported { backend, fields })
        }
    }
}
