//! Whether the fields of a job fit together, and stay within bounds.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;

use super::name::Name;
use super::role::{Elastic, Resources, Role};
use super::spec::{JobSpec, Spec, Strategy};
use crate::error::{FieldProblem, PlanError, excerpt};
use crate::yaml::fault::unknown;
use crate::yaml::{Fault, Path};

/// How many roles a job may have.
const ROLES: usize = 64;
/// How many ranks a job may have in all, spares included.
const RANKS: u64 = u16::MAX as u64;
/// How many words a command may have.
const WORDS: usize = 4096;
/// How many variables, labels or annotations there may be.
const ENTRIES: usize = 1024;
/// The longest image name, folder or version.
const LINE: usize = 1024;
/// The longest name of a variable.
const VARIABLE: usize = 255;

impl JobSpec {
    /// Checks that the fields fit together. What was read has been checked already.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.check().map_err(PlanError::from)
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        let metadata = Path::default().key("metadata");
        check_count(metadata.key("labels"), self.metadata.labels.len())?;
        check_count(metadata.key("annotations"), self.metadata.annotations.len())?;
        check_spec(&Path::default().key("spec"), &self.spec)
    }
}

fn check_spec(path: &Path, spec: &Spec) -> Result<(), Fault> {
    let roles = path.key("roles");
    check_role_names(&roles, spec.strategy, &spec.roles)?;
    for (name, role) in &spec.roles {
        check_role(&roles.key(name.as_str()), role)?;
    }
    for name in spec.strategy.single_roles() {
        if let Some(role) = spec.roles.get(*name) {
            check_single(&roles.key(*name), spec.strategy, name, role)?;
        }
    }
    let ranks = spec.roles.values().map(ranks).sum::<u64>();
    if ranks > RANKS {
        let expected = format!("at most {RANKS} in all");
        return Err(Fault::value(roles, format!("{ranks} ranks"), expected));
    }
    match &spec.cache {
        Some(cache) => check_line(path.key("cache").key("version"), &cache.version),
        None => Ok(()),
    }
}

/// How many ranks a role has at most, spares included.
fn ranks(role: &Role) -> u64 {
    let replicas = role.elastic.map_or(role.replicas.get() as u64, |elastic| {
        elastic.max.get() as u64 + elastic.spares as u64
    });
    replicas * role.slots.get() as u64
}

fn check_role_names(
    path: &Path,
    strategy: Strategy,
    roles: &BTreeMap<Name, Role>,
) -> Result<(), Fault> {
    if roles.is_empty() || roles.len() > ROLES {
        let expected = format!("1 to {ROLES} roles");
        return Err(Fault::value(path.clone(), roles.len(), expected));
    }
    let known = strategy.known_roles();
    for name in roles.keys() {
        if !known.is_empty() && !known.contains(&name.as_str()) {
            let problem = unknown(format!("a role of {strategy}"), name.as_str(), known);
            return Err(Fault::new(path.key(name.as_str()), problem));
        }
    }
    for name in strategy.required_roles() {
        if !roles.contains_key(*name) {
            return Err(Fault::new(path.key(*name), FieldProblem::Missing));
        }
    }
    Ok(())
}

fn check_role(path: &Path, role: &Role) -> Result<(), Fault> {
    if let Some(elastic) = &role.elastic {
        check_elastic(path, role.replicas, *elastic)?;
    }
    check_command(&path.key("command"), &role.command)?;
    if let Some(setup) = &role.setup {
        check_command(&path.key("setup"), setup)?;
    }
    check_variables(&path.key("env"), &role.env)?;
    if let Some(folder) = &role.workdir {
        check_line(path.key("workdir"), folder)?;
    }
    if let Some(image) = &role.image {
        check_line(path.key("image"), image)?;
    }
    match &role.resources {
        Some(resources) => check_resources(&path.key("resources"), resources),
        None => Ok(()),
    }
}

fn check_elastic(path: &Path, replicas: NonZeroU16, elastic: Elastic) -> Result<(), Fault> {
    let Elastic { min, max, .. } = elastic;
    if min > max {
        let expected = format!("at most {max}, which is max");
        return Err(Fault::value(path.key("elastic").key("min"), min, expected));
    }
    if !(min..=max).contains(&replicas) {
        let expected = format!("{min} to {max}, as elastic says");
        return Err(Fault::value(path.key("replicas"), replicas, expected));
    }
    Ok(())
}

/// A role that is one process has one replica with one slot.
fn check_single(path: &Path, strategy: Strategy, name: &str, role: &Role) -> Result<(), Fault> {
    let expected = format!("1: {strategy} has one {name}");
    if role.replicas.get() > 1 {
        return Err(Fault::value(path.key("replicas"), role.replicas, expected));
    }
    if role.slots.get() > 1 {
        return Err(Fault::value(path.key("slots"), role.slots, expected));
    }
    match role.elastic {
        Some(elastic) if !elastic.is_fixed() => {
            let problem = format!("cannot be: {strategy} has one {name}");
            Err(Fault::other(path.key("elastic"), problem))
        }
        _ => Ok(()),
    }
}

fn check_command(path: &Path, command: &[String]) -> Result<(), Fault> {
    if command.is_empty() || command.len() > WORDS {
        let found = format!("a list of {}", command.len());
        let expected = format!("a program and its arguments, at most {WORDS} words");
        return Err(Fault::value(path.clone(), found, expected));
    }
    if command[0].is_empty() {
        return Err(Fault::value(path.index(0), "\"\"", "a program"));
    }
    for (index, word) in command.iter().enumerate() {
        check_no_zero(path.index(index), word)?;
    }
    Ok(())
}

fn check_variables(path: &Path, variables: &BTreeMap<String, String>) -> Result<(), Fault> {
    check_count(path.clone(), variables.len())?;
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    for (name, value) in variables {
        if !(1..=VARIABLE).contains(&name.len()) || !name.bytes().all(printable) {
            let found = format!("{:?}", excerpt(name));
            let expected = format!("a name of 1 to {VARIABLE} printable characters without =");
            return Err(Fault::value(path.key(name), found, expected));
        }
        check_no_zero(path.key(name), value)?;
    }
    Ok(())
}

/// A request is never above its limit, and GPUs are given whole.
fn check_resources(path: &Path, resources: &Resources) -> Result<(), Fault> {
    let path = path.key("requests");
    let (requests, limits) = (&resources.requests, &resources.limits);
    check_within(path.key("cpu"), requests.cpu, limits.cpu)?;
    check_within(path.key("memory"), requests.memory, limits.memory)?;
    match (requests.gpu, limits.gpu) {
        (Some(request), limit) if limit != Some(request) => {
            let limit = limit.map_or_else(|| "missing".to_owned(), |limit| limit.to_string());
            let expected = format!("the same number in limits, where it is {limit}");
            Err(Fault::value(path.key("gpu"), request, expected))
        }
        _ => Ok(()),
    }
}

fn check_within<T: PartialOrd + fmt::Display>(
    path: Path,
    request: Option<T>,
    limit: Option<T>,
) -> Result<(), Fault> {
    match (request, limit) {
        (Some(request), Some(limit)) if request > limit => {
            let expected = format!("at most {limit}, its limit");
            Err(Fault::value(path, request, expected))
        }
        _ => Ok(()),
    }
}

fn check_count(path: Path, count: usize) -> Result<(), Fault> {
    if count > ENTRIES {
        let found = format!("a mapping of {count}");
        return Err(Fault::value(path, found, format!("at most {ENTRIES}")));
    }
    Ok(())
}

fn check_line(path: Path, text: &str) -> Result<(), Fault> {
    if !(1..=LINE).contains(&text.len()) || text.chars().any(char::is_control) {
        let found = format!("{:?}", excerpt(text));
        let expected = format!("one line of 1 to {LINE} bytes");
        return Err(Fault::value(path, found, expected));
    }
    Ok(())
}

/// The system ends texts at a zero.
fn check_no_zero(path: Path, text: &str) -> Result<(), Fault> {
    if text.contains('\0') {
        let found = format!("{:?}", excerpt(text));
        return Err(Fault::value(path, found, "text without a zero character"));
    }
    Ok(())
}
