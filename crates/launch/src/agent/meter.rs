//! What the ranks of this host use, and the host's network.
//!
//! A sample is one look at the list of processes, whose groups and parents tell which rank each
//! belongs to, and one at the counters of the network; the rates are what changed since the sample
//! before. Memory is not divided among those who share it: the kernel would have to walk every page
//! for that.

use std::fs;
use std::time::{Duration, Instant};

use rustix::param::{clock_ticks_per_second, page_size};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::channel::message::HostUsage;
use crate::stat::Stat;
use crate::usage::{Traffic, Usage};

/// The shortest time between two samples.
const SHORTEST: Duration = Duration::from_millis(100);
/// No process has more ancestors on this host.
const DEEPEST: usize = 64;

/// Takes samples, at its own pace.
pub(super) struct Meter {
    pace: Interval,
    before: Option<Sample>,
}

/// What was counted at one moment.
struct Sample {
    at: Instant,
    /// Ticks of each rank.
    ticks: Vec<(usize, u64)>,
    /// Bytes since the host's start.
    network: Traffic,
}

impl Meter {
    pub(super) fn new(every: Duration) -> Self {
        let mut pace = interval(every.max(SHORTEST));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { pace, before: None }
    }

    /// Waits until a sample is due.
    pub(super) async fn due(&mut self) {
        self.pace.tick().await;
    }

    /// Takes a sample; what is used, but for the first one. The groups are those of the ranks.
    pub(super) fn measure(&mut self, groups: &[(usize, i32)]) -> Option<HostUsage> {
        let processes = Stat::all();
        let owners = owners(&processes, groups);
        let mut ticks: Vec<(usize, u64)> = groups.iter().map(|(rank, _)| (*rank, 0)).collect();
        let mut memory = vec![Memory::default(); groups.len()];
        for (process, owner) in processes.iter().zip(owners) {
            if let Some(owner) = owner {
                ticks[owner].1 += process.ticks;
                memory[owner].add(process.pid);
            }
        }
        let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let now = Sample {
            at: Instant::now(),
            ticks,
            network: network(&text, is_hardware),
        };
        let before = self.before.replace(now)?;
        let now = self.before.as_ref()?;
        let ranks = cpu_percents(&before, now, clock_ticks_per_second())
            .zip(memory)
            .map(|((rank, cpu_percent), memory)| {
                let memory = memory.pages() * page_size() as u64;
                (
                    rank,
                    Usage {
                        cpu_percent,
                        memory,
                    },
                )
            });
        Some(HostUsage {
            ranks: ranks.collect(),
            traffic: now.traffic_since(&before),
        })
    }
}

impl Sample {
    fn seconds_since(&self, before: &Self) -> f64 {
        let elapsed = self.at.saturating_duration_since(before.at);
        elapsed.max(Duration::from_millis(1)).as_secs_f64()
    }

    fn traffic_since(&self, before: &Self) -> Traffic {
        let seconds = self.seconds_since(before);
        // Counters go back when an interface is taken away.
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        Traffic {
            received: rate(self.network.received, before.network.received),
            sent: rate(self.network.sent, before.network.sent),
        }
    }
}

/// What each rank used of one core between two samples.
fn cpu_percents<'a>(
    before: &'a Sample,
    now: &'a Sample,
    per_second: u64,
) -> impl Iterator<Item = (usize, u32)> + 'a {
    let whole = now.seconds_since(before) * per_second as f64;
    now.ticks.iter().map(move |(rank, ticks)| {
        let earlier = before.ticks.iter().find(|(one, _)| one == rank);
        // A process that ended unseen takes its time with it.
        let used = earlier.map_or(0, |(_, earlier)| ticks.saturating_sub(*earlier));
        (*rank, (100.0 * used as f64 / whole).round() as u32)
    })
}

/// The place among `groups` of each process's rank: by its process group, or by that of the nearest
/// ancestor that is in one.
fn owners(processes: &[Stat], groups: &[(usize, i32)]) -> Vec<Option<usize>> {
    let mut by_pid: Vec<&Stat> = processes.iter().collect();
    by_pid.sort_unstable_by_key(|one| one.pid);
    let find = |pid: i32| {
        let place = by_pid.binary_search_by_key(&pid, |one| one.pid).ok()?;
        Some(by_pid[place])
    };
    let mut by_group: Vec<(i32, usize)> = groups
        .iter()
        .enumerate()
        .map(|(place, (_, group))| (*group, place))
        .collect();
    by_group.sort_unstable();
    let owner = |process: &Stat| {
        std::iter::successors(Some(process), |one| find(one.parent))
            .take(DEEPEST)
            .find_map(|one| {
                let found = by_group.binary_search_by_key(&one.group, |(group, _)| *group);
                found.ok().map(|found| by_group[found].1)
            })
    };
    processes.iter().map(owner).collect()
}

/// The pages of a rank's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// Pages of one process only, as far as the kernel tells.
    own: u64,
    /// Pages of files and of shared memory, of the process that has most.
    shared: u64,
}

impl Memory {
    /// Takes a process into account, if it is still there.
    fn add(&mut self, pid: i32) {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        self.add_process(&text);
    }

    /// The same, by what the kernel writes: pages in all, in memory, and of those shared.
    fn add_process(&mut self, text: &str) {
        let mut fields = text.split_ascii_whitespace().skip(1);
        let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok());
        if let (Some(resident), Some(shared)) = (next(), next()) {
            self.own += resident.saturating_sub(shared);
            self.shared = self.shared.max(shared);
        }
    }

    fn pages(self) -> u64 {
        self.own + self.shared
    }
}

/// The bytes that came in and went out so far, by the text of `/proc/net/dev`.
///
/// Only hardware counts, so that what goes through a bond, a bridge or a tunnel counts once; in a
/// container, which sees none, everything but loopback.
fn network(text: &str, is_hardware: impl Fn(&str) -> bool) -> Traffic {
    let (mut hardware, mut others) = (None, Traffic::default());
    for (name, traffic) in text.lines().filter_map(interface) {
        if name == "lo" {
            continue;
        }
        if is_hardware(name) {
            hardware = Some(hardware.unwrap_or_default() + traffic);
        }
        others = others + traffic;
    }
    hardware.unwrap_or(others)
}

/// An interface's name and what it has received and sent: the first and the ninth number.
fn interface(line: &str) -> Option<(&str, Traffic)> {
    let (name, rest) = line.rsplit_once(':')?;
    let mut fields = rest.split_ascii_whitespace();
    let received = fields.next()?.parse().ok()?;
    let sent = fields.nth(7)?.parse().ok()?;
    Some((name.trim(), Traffic { received, sent }))
}

fn is_hardware(name: &str) -> bool {
    fs::exists(format!("/sys/class/net/{name}/device")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9000000    5000    0    0    0     0          0         0  9000000    5000    0    0    0     0       0          0
  eth0: 1500       20      0    0    0     0          0         0  700        10      0    0    0     0       0          0
  eth1:25          1       0    0    0     0          0         0  5          1       0    0    0     0       0          0
 bond0: 1525       21      0    0    0     0          0         0  705        11      0    0    0     0       0          0
";

    fn process(pid: i32, parent: i32, group: i32) -> Stat {
        Stat {
            pid,
            parent,
            group,
            ticks: 0,
            birth: 0,
        }
    }

    #[test]
    fn what_goes_through_a_bond_counts_once_and_loopback_never() {
        let traffic = |received, sent| Traffic { received, sent };
        let by_device = network(NETWORK, |name| name.starts_with("eth"));
        assert_eq!(by_device, traffic(1525, 705));
        // In a container none is.
        assert_eq!(network(NETWORK, |_| false), traffic(3050, 1410));
        assert_eq!(network("", |_| true), Traffic::default());
    }

    #[test]
    fn processes_belong_to_the_rank_of_their_group_or_of_their_ancestors() {
        let processes = [
            process(1, 0, 1),
            process(10, 1, 10),  // the agent
            process(20, 10, 20), // rank 4
            process(21, 20, 20), // its child
            process(22, 21, 22), // which has left the group
            process(23, 10, 20), // an orphan that has not
            process(30, 10, 30), // rank 5
            process(9, 30, 9),   // numbers of processes begin anew
            process(50, 51, 50), // a loop, by a number that was used again meanwhile
            process(51, 50, 51),
        ];
        let owners = owners(&processes, &[(4, 20), (5, 30)]);
        let first = [None, None, Some(0), Some(0), Some(0), Some(0)];
        assert_eq!(owners[..6], first);
        assert_eq!(owners[6..], [Some(1), Some(1), None, None]);
    }

    #[test]
    fn memory_that_processes_share_counts_once() {
        let mut memory = Memory::default();
        memory.add_process("5000 300 100 10 0 900 0\n");
        memory.add_process("5000 150 120 10 0 900 0\n");
        // It has ended.
        memory.add_process("");
        memory.add_process("0 0 0 0 0 0 0\n");
        assert_eq!(memory.pages(), 200 + 30 + 120);
    }

    #[test]
    fn rates_are_what_changed_by_the_time_between() {
        let sample = |at, ticks: &[(usize, u64)], received| Sample {
            at,
            ticks: ticks.to_vec(),
            network: Traffic { received, sent: 7 },
        };
        let begin = Instant::now();
        let before = sample(begin, &[(0, 100), (1, 900)], 1000);
        let now = sample(
            begin + Duration::from_secs(2),
            &[(0, 400), (1, 0), (2, 50)],
            5000,
        );
        let percents: Vec<_> = cpu_percents(&before, &now, 100).collect();
        assert_eq!(percents, [(0, 150), (1, 0), (2, 0)]);
        let traffic = now.traffic_since(&before);
        assert_eq!((traffic.received, traffic.sent), (2000, 0));
    }
}
