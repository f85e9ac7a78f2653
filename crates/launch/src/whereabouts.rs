//! Where the processes of a job are, and which of them a person means.
//!
//! This follows from a host list alone, by the ranks that `carole run` would place on it, or from
//! what the registry knows of a job.

use std::fmt;
use std::ops::Range;

use crate::error::Error;
use crate::fleet::Host;
use crate::hosts::Listed;
use crate::registry::Record;
use crate::role::{Role, Roles};

/// Hosts, and the processes on them by rank and by role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    hosts: Vec<Host>,
    /// The place of every process's host among them.
    processes: Vec<usize>,
    roles: Roles,
}

/// What a person looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A host by its name.
    Host(String),
    /// The host of a rank.
    Rank(usize),
    /// The host of a role's process.
    Role {
        /// Which role, by its name.
        role: String,
        /// Which of its processes, from 0.
        index: usize,
    },
}

/// Writes `host "b"`, `rank 5` or `worker 0`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(f, "host {name:?}"),
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Role { role, index } => write!(f, "{role} {index}"),
        }
    }
}

impl Whereabouts {
    /// A worker for every slot of a host list.
    pub fn of_list(listed: &Listed) -> Self {
        let slots = listed.slots.clone().unwrap_or_else(|| vec![1]);
        Self::new(&listed.hosts, &slots, Roles::workers(slots.iter().sum()))
    }

    /// The processes of a job, so many on each host.
    pub fn new(hosts: &[Host], counts: &[usize], roles: Roles) -> Self {
        let on_host = |(host, count): (usize, &usize)| std::iter::repeat_n(host, *count);
        Self {
            hosts: hosts.to_vec(),
            processes: counts.iter().enumerate().flat_map(on_host).collect(),
            roles,
        }
    }

    /// The processes of a job that was started here.
    pub fn of_job(job: &Record) -> Self {
        let hosts: Vec<Host> = job.hosts.iter().map(|one| one.host.clone()).collect();
        let place = |name: &str| hosts.iter().position(|host| host.name == name);
        let processes = job.ranks.iter().map_while(|rank| place(&rank.host));
        Self {
            processes: processes.collect(),
            roles: job.roles.unwrap_or(Roles::workers(job.ranks.len())),
            hosts,
        }
    }

    /// The host that is meant.
    pub fn find(&self, target: &Target) -> Result<&Host, Error> {
        let nowhere = |wanted: String, known: String| Error::Nowhere { wanted, known };
        match target {
            Target::Host(name) => {
                let found = self.hosts.iter().find(|host| host.name == *name);
                found.ok_or_else(|| {
                    let names: Vec<&str> = self.hosts.iter().map(|host| &*host.name).collect();
                    let known = format!("the hosts are {}", names.join(", "));
                    nowhere(target.to_string(), known)
                })
            }
            // Ranks are those that train together.
            Target::Rank(rank) => self.process(Role::Worker.name(), *rank).map_err(|count| {
                let known = numbers("ranks", count.unwrap_or(0));
                nowhere(target.to_string(), known)
            }),
            Target::Role { role, index } => self.process(role, *index).map_err(|count| {
                let Some(count) = count else {
                    let known = format!("the roles are {}", self.role_names().join(", "));
                    return nowhere(format!("role {role:?}"), known);
                };
                nowhere(target.to_string(), numbers("indexes", count))
            }),
        }
    }

    /// The host of a role's process; otherwise how many the role has, if there is such a role.
    fn process(&self, role: &str, index: usize) -> Result<&Host, Option<usize>> {
        let ranges = self.roles.ranges();
        let known =
            |(known, range): &&(Role, Range<usize>)| known.name() == role && !range.is_empty();
        let (_, mut range) = ranges.iter().find(known).cloned().ok_or(None)?;
        let count = range.len();
        let number = range.nth(index).ok_or(Some(count))?;
        let place = self.processes.get(number).ok_or(Some(count))?;
        self.hosts.get(*place).ok_or(Some(count))
    }

    fn role_names(&self) -> Vec<&'static str> {
        let there =
            |(role, range): &(Role, Range<usize>)| (!range.is_empty()).then_some(role.name());
        self.roles.ranges().iter().filter_map(there).collect()
    }
}

fn numbers(what: &str, count: usize) -> String {
    match count {
        0 | 1 => "there is 0 only".to_owned(),
        count => format!("the {what} are 0 to {}", count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, target: &Target) -> Result<String, String> {
        let places = Whereabouts::of_list(&Listed::from_list(list).unwrap());
        let host = places.find(target).map_err(|error| error.to_string())?;
        Ok(host.name.clone())
    }

    fn worker(index: usize) -> Target {
        Target::Role {
            role: "worker".into(),
            index,
        }
    }

    #[test]
    fn ranks_and_workers_are_where_the_slots_are() {
        let list = "a:4,ann@b:2222:2,c";
        let hosts = [0, 3, 4, 5, 6].map(|rank| found(list, &Target::Rank(rank)).unwrap());
        assert_eq!(hosts, ["a", "a", "b", "b", "c"]);
        assert_eq!(found(list, &worker(5)).unwrap(), "b");
        assert_eq!(found(list, &Target::Host("b".into())).unwrap(), "b");
    }

    #[test]
    fn a_job_s_roles_are_where_its_processes_are() {
        let listed = Listed::from_list("a:2,b:2").unwrap();
        let roles = Roles::with_servers(1, false, 3, false);
        let places = Whereabouts::new(&listed.hosts, &[2, 2], roles);
        let host = |target: Target| places.find(&target).unwrap().name.clone();
        let server = Target::Role {
            role: "ps".into(),
            index: 0,
        };
        assert_eq!(host(server), "a");
        assert_eq!(host(worker(0)), "a");
        assert_eq!(host(worker(1)), "b");
        assert_eq!(host(Target::Rank(2)), "b");
        assert!(places.find(&Target::Rank(3)).is_err());
    }

    #[test]
    fn a_job_in_the_registry_knows_where_its_processes_are() {
        let listed = Listed::from_list("a:1,ann@b:2222:2").unwrap();
        let mut job = Record::new("one", Vec::new(), None);
        assert!(Whereabouts::of_job(&job).find(&Target::Rank(0)).is_err());
        job.plan(
            &Roles::with_servers(1, false, 2, false),
            &listed.hosts,
            &[1, 2],
        );
        let places = Whereabouts::of_job(&job);
        assert_eq!(places.find(&Target::Rank(0)).unwrap(), &listed.hosts[1]);
        assert_eq!(places.find(&worker(1)).unwrap(), &listed.hosts[1]);
        let server = Target::Role {
            role: "ps".into(),
            index: 0,
        };
        assert_eq!(places.find(&server).unwrap().name, "a");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let told = |target: Target| found("a:4,b:4", &target).unwrap_err();
        assert_eq!(
            told(Target::Rank(8)),
            "there is no rank 8: the ranks are 0 to 7"
        );
        assert_eq!(
            told(Target::Host("c".into())),
            "there is no host \"c\": the hosts are a, b"
        );
        assert_eq!(
            told(worker(8)),
            "there is no worker 8: the indexes are 0 to 7"
        );
        let chief = Target::Role {
            role: "chief".into(),
            index: 0,
        };
        assert_eq!(
            told(chief),
            "there is no role \"chief\": the roles are worker"
        );
        assert_eq!(
            found("a", &Target::Rank(1)).unwrap_err(),
            "there is no rank 1: there is 0 only"
        );
    }
}
