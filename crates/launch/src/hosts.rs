//! From what a person wrote to hosts that can be reached, and how many ranks each gets.
//!
//! A host may be written with a user and a port for SSH beside what a
//! [`HostSpec`](carole_plan::HostSpec) holds: `ann@node-b:4`, `node-b:2222:4`, and in a host file
//! `node-b slots=4 user=ann port=2222`. A number above 1023 behind the first colon is a port: no
//! host has as many slots.

use std::path::Path;
use std::process::Command;

use carole_plan::{HostList, PlanError};

use crate::error::Error;
use crate::fleet::{Destination, Facts, Host, Way};
use crate::request::{BatchSystem, DefaultSlots, Hosts, Ranks};

/// The first number that is a port and not a number of slots.
const FIRST_PORT: u32 = 1024;

/// Hosts in order, with the slots of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How many ranks each holds, if that was written; this machine alone holds any number.
    pub slots: Option<Vec<usize>>,
    /// Of which hosts the number of slots was written.
    written: Vec<bool>,
}

/// What is said of one host beside its spec.
#[derive(Debug, Default)]
struct Access {
    slots: bool,
    user: Option<String>,
    port: Option<u16>,
}

impl Listed {
    /// This machine alone.
    pub fn here() -> Self {
        Self {
            hosts: vec![Host::here()],
            slots: None,
            written: vec![true],
        }
    }

    /// This machine with one slot, whether it is among the hosts or not, and the other hosts with
    /// none: they are only reached from here.
    #[must_use]
    pub fn from_here(&self) -> Self {
        let (mut hosts, others): (Vec<Host>, Vec<Host>) = self
            .hosts
            .iter()
            .cloned()
            .partition(|host| host.way == Way::Here);
        if hosts.is_empty() {
            hosts.push(Host::here());
        }
        hosts.truncate(1);
        hosts.extend(others);
        let slots = (0..hosts.len()).map(|index| usize::from(index == 0));
        Self {
            slots: Some(slots.collect()),
            written: vec![true; hosts.len()],
            hosts,
        }
    }

    /// Finds the hosts where the request says they are.
    pub fn find(hosts: &Hosts) -> Result<Self, Error> {
        match hosts {
            Hosts::Here => Ok(Self::here()),
            Hosts::List(list) => Self::from_list(list),
            Hosts::File(path) => Self::from_file_text(&read(path)?).map_err(|error| match error {
                Error::Hostlist(source) => Error::Hostfile {
                    path: path.clone(),
                    source,
                },
                other => other,
            }),
            Hosts::Script(path) => Self::from_file_text(&output_of(path)?),
            Hosts::Batch(system) => Self::from_batch(*system),
        }
    }

    /// Reads `a:4,ann@b:2222:4`.
    pub fn from_list(text: &str) -> Result<Self, Error> {
        let (mut specs, mut access) = (Vec::new(), Vec::new());
        for part in text.trim().split(',') {
            let (spec, one) = split_access(part.trim());
            specs.push(spec);
            access.push(one);
        }
        let list: HostList = specs.join(",").parse().map_err(wrong)?;
        Ok(Self::new(&list, access))
    }

    /// Reads a host file's text.
    pub fn from_file_text(text: &str) -> Result<Self, Error> {
        let (mut lines, mut access) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(first) = words.next() else {
                // Kept, so that errors count lines as the file does.
                lines.push(String::new());
                continue;
            };
            let (spec, mut one) = split_access(first);
            let mut kept = vec![spec];
            for word in words {
                match word.split_once('=') {
                    Some(("user", user)) => one.user = Some(user.to_owned()),
                    Some(("port", port)) if port.parse::<u16>().is_ok() => {
                        one.port = port.parse().ok();
                    }
                    other => {
                        one.slots |= matches!(other, Some(("slots", _)));
                        kept.push(word.to_owned());
                    }
                }
            }
            lines.push(kept.join(" "));
            access.push(one);
        }
        let list = HostList::from_host_file(&lines.join("\n")).map_err(wrong)?;
        Ok(Self::new(&list, access))
    }

    fn from_batch(system: BatchSystem) -> Result<Self, Error> {
        let missing = |what: &str| Error::Batch {
            problem: format!("{what} is not set: this is not a job of that system"),
        };
        match system {
            BatchSystem::Environment => {
                let list = std::env::var("CAROLE_HOSTS").map_err(|_| missing("CAROLE_HOSTS"))?;
                Self::from_list(&list)
            }
            BatchSystem::Slurm => {
                let nodes = std::env::var("SLURM_JOB_NODELIST")
                    .map_err(|_| missing("SLURM_JOB_NODELIST"))?;
                let tasks = std::env::var("SLURM_TASKS_PER_NODE").unwrap_or_else(|_| "1".into());
                Self::from_slurm(&nodes, &tasks)
            }
            BatchSystem::Pbs => {
                let file =
                    std::env::var_os("PBS_NODEFILE").ok_or_else(|| missing("PBS_NODEFILE"))?;
                Self::from_repeated(read(Path::new(&file))?.split_whitespace())
            }
            BatchSystem::Lsf => {
                if let Some(file) = std::env::var_os("LSB_DJOB_HOSTFILE") {
                    return Self::from_repeated(read(Path::new(&file))?.split_whitespace());
                }
                let pairs =
                    std::env::var("LSB_MCPU_HOSTS").map_err(|_| missing("LSB_MCPU_HOSTS"))?;
                let words: Vec<&str> = pairs.split_whitespace().collect();
                let parts: Vec<String> = words
                    .chunks_exact(2)
                    .map(|pair| format!("{}:{}", pair[0], pair[1]))
                    .collect();
                Self::from_list(&parts.join(","))
            }
        }
    }

    /// Slurm's short forms: `node[01-03,7],login` and `2(x3),1`.
    fn from_slurm(nodes: &str, tasks: &str) -> Result<Self, Error> {
        let names = expand_nodes(nodes);
        let counts = expand_tasks(tasks);
        let count = |index: usize| counts.get(index).or(counts.last()).copied().unwrap_or(1);
        let parts: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{name}:{}", count(index)))
            .collect();
        Self::from_list(&parts.join(","))
    }

    /// A host once for each of its slots, as PBS and LSF write them.
    fn from_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, Error> {
        let mut counted: Vec<(&str, usize)> = Vec::new();
        for name in names {
            match counted.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => counted.push((name, 1)),
            }
        }
        let parts: Vec<String> = counted
            .iter()
            .map(|(name, count)| format!("{name}:{count}"))
            .collect();
        Self::from_list(&parts.join(","))
    }

    fn new(list: &HostList, access: Vec<Access>) -> Self {
        let written = access.iter().map(|access| access.slots).collect();
        let host = |(spec, access): (&carole_plan::HostSpec, Access)| {
            let name = spec.host().to_owned();
            let way = if access.user.is_none() && access.port.is_none() && is_here(&name) {
                Way::Here
            } else {
                Way::Ssh(Destination {
                    host: spec.host().to_owned(),
                    user: access.user,
                    port: access.port,
                })
            };
            Host { name, way }
        };
        Self {
            hosts: list.iter().zip(access).map(host).collect(),
            slots: Some(list.iter().map(|spec| usize::from(spec.slots())).collect()),
            written,
        }
    }

    /// The same with another number of slots where none was written.
    #[must_use]
    pub fn with_default(&self, default: DefaultSlots, facts: &[Facts]) -> Self {
        let mut listed = self.clone();
        for (index, slots) in listed.slots.iter_mut().flatten().enumerate() {
            if !listed.written[index] {
                *slots = match default {
                    DefaultSlots::Number(number) => usize::from(number),
                    DefaultSlots::Cores => facts.get(index).map_or(1, |facts| facts.cores),
                };
            }
        }
        listed
    }

    /// How many ranks each host gets.
    pub fn counts(
        &self,
        ranks: Ranks,
        oversubscribe: bool,
        facts: &[Facts],
    ) -> Result<Vec<usize>, Error> {
        let each = |of: fn(&Facts) -> usize| facts.iter().map(of).collect();
        Ok(match ranks {
            Ranks::Slots => self.slots.clone().unwrap_or_else(|| vec![1]),
            Ranks::Total(total) => match &self.slots {
                None => vec![total],
                Some(slots) => fill(slots, total, oversubscribe)?,
            },
            Ranks::PerHost(count) => vec![count; self.hosts.len()],
            Ranks::PerCore => each(|facts| facts.cores),
            Ranks::PerGpu => each(|facts| facts.gpus),
            Ranks::PerDevice => each(|facts| match facts.gpus {
                0 => facts.cores,
                gpus => gpus,
            }),
        })
    }
}

fn wrong(error: PlanError) -> Error {
    Error::Hostlist(Box::new(error))
}

/// Fills the slots in order; what is left over goes round again if that is allowed.
fn fill(slots: &[usize], total: usize, oversubscribe: bool) -> Result<Vec<usize>, Error> {
    let all: usize = slots.iter().sum();
    if total > all && !oversubscribe {
        return Err(wrong(PlanError::NotEnoughSlots {
            ranks: total,
            slots: all,
        }));
    }
    let mut counts = vec![0; slots.len()];
    let mut left = total;
    while left > 0 {
        for (count, slots) in counts.iter_mut().zip(slots) {
            let taken = left.min(*slots);
            *count += taken;
            left -= taken;
        }
    }
    Ok(counts)
}

/// Takes user and port off a host, leaving a spec.
fn split_access(text: &str) -> (String, Access) {
    let (user, rest) = match text.split_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    // The colons of an IPv6 address are in brackets.
    let behind = rest.rfind(']').map_or(0, |at| at + 1);
    let (host, numbers) = match rest[behind..].find(':') {
        Some(colon) => rest.split_at(behind + colon),
        None => (rest, ""),
    };
    let mut parts = numbers.split(':').skip(1);
    let port = parts
        .next()
        .filter(|part| part.parse().is_ok_and(|number: u32| number >= FIRST_PORT))
        .and_then(|part| part.parse().ok());
    let spec = match port {
        Some(_) => {
            let rest: Vec<&str> = parts.collect();
            if rest.is_empty() {
                host.to_owned()
            } else {
                format!("{host}:{}", rest.join(":"))
            }
        }
        None => rest.to_owned(),
    };
    let slots = spec[spec.rfind(']').map_or(0, |at| at + 1)..].contains(':');
    (spec, Access { slots, user, port })
}

/// Whether a name is this machine's, as far as that is certain.
fn is_here(name: &str) -> bool {
    if ["localhost", "127.0.0.1", "::1"].contains(&name) {
        return true;
    }
    let own = rustix::system::uname();
    own.nodename().to_str() == Ok(name)
}

/// `node[01-03,7],login` as single names.
fn expand_nodes(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in split_outside_brackets(text) {
        let Some((prefix, rest)) = part.split_once('[') else {
            names.push(part.to_owned());
            continue;
        };
        let (ranges, suffix) = rest.split_once(']').unwrap_or((rest, ""));
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let width = first.len();
            let bounds = (first.parse::<usize>(), last.parse::<usize>());
            if let (Ok(first), Ok(last)) = bounds {
                names.extend((first..=last).map(|n| format!("{prefix}{n:0width$}{suffix}")));
            }
        }
    }
    names
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// `2(x3),1` as 2, 2, 2, 1.
fn expand_tasks(text: &str) -> Vec<usize> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (count, times) = part.split_once("(x").unwrap_or((part, "1)"));
        let times = times.trim_end_matches(')').parse().unwrap_or(1);
        if let Ok(count) = count.trim().parse::<usize>() {
            counts.extend(std::iter::repeat_n(count, times));
        }
    }
    counts
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::HostfileRead {
        path: path.to_owned(),
        source,
    })
}

/// What a discovery script prints: a host a line, as in a host file.
fn output_of(path: &Path) -> Result<String, Error> {
    let failed = |problem: String| Error::Batch {
        problem: format!("the host discovery script {}: {problem}", path.display()),
    };
    let done = Command::new(path)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(failed(format!("{}: {said}", done.status)));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(host: &str, user: Option<&str>, port: Option<u16>) -> Way {
        Way::Ssh(Destination {
            host: host.into(),
            user: user.map(str::to_owned),
            port,
        })
    }

    #[test]
    fn users_and_ports_are_told_from_slots() {
        let listed = Listed::from_list("a:4,ann@b:2222:3, [fe80::1]:2200 ,localhost:2").unwrap();
        let ways: Vec<Way> = listed.hosts.iter().map(|host| host.way.clone()).collect();
        assert_eq!(
            ways,
            [
                ssh("a", None, None),
                ssh("b", Some("ann"), Some(2222)),
                ssh("fe80::1", None, Some(2200)),
                Way::Here
            ]
        );
        assert_eq!(listed.slots.unwrap(), [4, 3, 1, 2]);
        assert_eq!(
            Listed::from_list("me@localhost").unwrap().hosts[0].way,
            ssh("localhost", Some("me"), None)
        );
    }

    #[test]
    fn a_host_file_may_name_user_and_port() {
        let text = "# hosts\na slots=2\n\nann@b:4 port=2222\nc user=bob slots=1 # last\n";
        let listed = Listed::from_file_text(text).unwrap();
        assert_eq!(listed.slots.unwrap(), [2, 4, 1]);
        assert_eq!(listed.hosts[1].way, ssh("b", Some("ann"), Some(2222)));
        assert_eq!(listed.hosts[2].way, ssh("c", Some("bob"), None));
        let error = Listed::from_file_text("a\n\na slots=x\n").unwrap_err();
        assert!(error.to_string().contains('3'), "{error}");
    }

    #[test]
    fn a_number_of_slots_that_is_not_written_can_be_another() {
        let facts = [8, 8, 8].map(|cores| Facts { cores, gpus: 0 });
        let listed = Listed::from_file_text("a\nb slots=2\nc:3\n").unwrap();
        let cores = listed.with_default(DefaultSlots::Cores, &facts);
        assert_eq!(cores.slots.unwrap(), [8, 2, 3]);
        let listed = Listed::from_list("a,b:1,[::5]:2222").unwrap();
        let four = listed.with_default(DefaultSlots::Number(4), &facts);
        assert_eq!(four.slots.unwrap(), [4, 1, 4]);
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["a,a", "", "a:x", "b:0"] {
            assert!(Listed::from_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranks_fill_hosts_in_order() {
        let listed = Listed::from_list("a:2,b:3").unwrap();
        let counts = |ranks, over| listed.counts(ranks, over, &[]);
        assert_eq!(counts(Ranks::Slots, false).unwrap(), [2, 3]);
        assert_eq!(counts(Ranks::Total(3), false).unwrap(), [2, 1]);
        assert_eq!(counts(Ranks::PerHost(4), false).unwrap(), [4, 4]);
        assert!(counts(Ranks::Total(6), false).is_err());
        assert_eq!(counts(Ranks::Total(8), true).unwrap(), [4, 4]);
        assert_eq!(
            Listed::here().counts(Ranks::Total(9), false, &[]).unwrap(),
            [9]
        );
        let facts = [(4, 0), (8, 2)].map(|(cores, gpus)| Facts { cores, gpus });
        let per = |ranks| listed.counts(ranks, false, &facts).unwrap();
        assert_eq!(per(Ranks::PerCore), [4, 8]);
        assert_eq!(per(Ranks::PerDevice), [4, 2]);
    }

    #[test]
    fn slurms_short_forms_are_expanded() {
        let listed = Listed::from_slurm("node[01-03,7]x,login", "2(x3),1(x2)").unwrap();
        let names: Vec<&str> = listed.hosts.iter().map(|host| &*host.name).collect();
        assert_eq!(names, ["node01x", "node02x", "node03x", "node7x", "login"]);
        assert_eq!(listed.slots.unwrap(), [2, 2, 2, 1, 1]);
        let listed = Listed::from_repeated("a a b a".split(' ')).unwrap();
        assert_eq!(listed.slots.unwrap(), [3, 1]);
    }
}
