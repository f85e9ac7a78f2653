//! The job, as far as the page shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use carole_launch::{Event, Traffic, Usage};

use super::happening::Happening;
use super::line::{Line, Lines};
use super::rank::{Rank, State};
use super::text::clean;

/// How many lines of all ranks together are kept in their order.
const LINES: usize = 10_000;
/// How many bytes of them.
const BYTES: usize = 4 << 20;
/// No job has more processes; a number beyond is a mistake that must not cost memory.
const MOST_RANKS: usize = 1 << 16;

/// What is known of the job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) ranks: Vec<Rank>,
    /// The lines of all ranks and the notices, as they came.
    pub(super) lines: Lines,
    pub(super) notice: Option<String>,
    /// How it ended, and when.
    pub(super) end: Option<(String, Duration)>,
    /// How often it was asked to stop.
    pub(super) interrupts: u32,
    /// What comes in and goes out at each host, once that is known.
    network: BTreeMap<String, Option<Traffic>>,
    /// When the first process was started.
    begin: Option<Duration>,
    next_line: u64,
}

/// How many processes are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) waiting: usize,
    pub(super) running: usize,
    pub(super) done: usize,
    pub(super) failed: usize,
}

/// A host, and its ranks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host<'a> {
    pub(super) name: &'a str,
    /// The number of its first rank.
    pub(super) first: usize,
    pub(super) counts: Counts,
    /// What its ranks use, as far as that is known.
    pub(super) usage: Option<Usage>,
    pub(super) traffic: Option<Traffic>,
}

impl Counts {
    fn add(&mut self, state: State) {
        *match state {
            State::Waiting => &mut self.waiting,
            State::Running => &mut self.running,
            state if state.failed() => &mut self.failed,
            State::Ended(_) => &mut self.done,
        } += 1;
    }
}

impl Job {
    pub(super) fn new() -> Self {
        Self {
            name: String::new(),
            ranks: Vec::new(),
            lines: Lines::new(LINES, BYTES),
            notice: None,
            end: None,
            interrupts: 0,
            network: BTreeMap::new(),
            begin: None,
            next_line: 0,
        }
    }

    /// Notes what happened at `now`.
    pub(super) fn happen(&mut self, now: Duration, happening: Happening) {
        match happening {
            Happening::Named { job, ranks } => {
                self.name = clean(job.as_bytes());
                for (number, name) in ranks.iter().enumerate() {
                    if let Some(rank) = self.rank(number) {
                        rank.name = clean(name.as_bytes());
                    }
                }
            }
            Happening::Event(event) => self.follow(now, event),
            Happening::Notice(text) => self.notice(&text),
            Happening::Ended(verdict) => {
                self.notice(&verdict);
                self.end = Some((clean(verdict.as_bytes()), now));
            }
        }
    }

    fn follow(&mut self, now: Duration, event: Event) {
        match event {
            Event::Started { rank, host, pid } => {
                self.begin.get_or_insert(now);
                let host = clean(host.as_bytes());
                if let Some(rank) = self.rank(rank) {
                    rank.start(&host, pid);
                }
                self.network.entry(host).or_default();
            }
            Event::Exited { rank, exit } => {
                if let Some(rank) = self.rank(rank) {
                    rank.exit(exit);
                }
            }
            Event::Printed {
                rank: number,
                stream,
                bytes,
            } => {
                let mut ended = Vec::new();
                if let Some(rank) = self.rank(number) {
                    rank.print(stream, &bytes, |line| ended.push(line));
                }
                for text in ended {
                    self.keep(Some(number), text);
                }
            }
            Event::Progress { rank, progress } => {
                if let Some(rank) = self.rank(rank) {
                    rank.progress(now, progress);
                }
            }
            Event::Usage {
                host,
                ranks,
                traffic,
            } => {
                for (rank, usage) in ranks {
                    if let Some(rank) = self.rank(rank) {
                        rank.uses(usage);
                    }
                }
                let host = clean(host.as_bytes());
                self.network.insert(host, Some(traffic));
            }
            // It has been told as ended.
            Event::Syncing(_) | Event::Synced | Event::Located { .. } | Event::Lost { .. } => {}
        }
    }

    /// What it does, in a word.
    pub(super) fn state(&self) -> &'static str {
        match self.interrupts {
            _ if self.end.is_some() => "ended",
            0 if self.begin.is_none() => "starting",
            0 => "running",
            1 => "stopping",
            _ => "killing",
        }
    }

    /// How long it has run.
    pub(super) fn elapsed(&self, now: Duration) -> Duration {
        let end = self.end.as_ref().map_or(now, |(_, end)| *end);
        self.begin
            .map_or(Duration::ZERO, |begin| end.saturating_sub(begin))
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.ranks.iter().for_each(|rank| counts.add(rank.state));
        counts
    }

    /// The hosts of the ranks, in the ranks' order.
    pub(super) fn hosts(&self) -> Vec<Host<'_>> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut hosts: Vec<Host<'_>> = Vec::new();
        for (number, rank) in self.ranks.iter().enumerate() {
            if rank.host.is_empty() {
                continue;
            }
            let place = *places.entry(&rank.host).or_insert_with(|| {
                hosts.push(Host {
                    name: &rank.host,
                    first: number,
                    counts: Counts::default(),
                    usage: None,
                    traffic: self.network(Some(&rank.host)),
                });
                hosts.len() - 1
            });
            let host = &mut hosts[place];
            host.counts.add(rank.state);
            if let Some(usage) = rank.usage {
                let sum = host.usage.get_or_insert_default();
                sum.cpu_percent = sum.cpu_percent.saturating_add(usage.cpu_percent);
                sum.memory = sum.memory.saturating_add(usage.memory);
            }
        }
        hosts
    }

    /// What comes in and goes out at a host; at all hosts without one.
    pub(super) fn network(&self, host: Option<&str>) -> Option<Traffic> {
        match host {
            Some(host) => self.network.get(host).copied().flatten(),
            None => {
                let known = self.network.values().copied().flatten();
                known.reduce(|sum, one| sum + one)
            }
        }
    }

    /// How many hosts there are.
    pub(super) fn host_count(&self) -> usize {
        self.network.len()
    }

    /// Whether it runs on more than one host.
    pub(super) fn has_several_hosts(&self) -> bool {
        let mut hosts = self.ranks.iter().map(|rank| &rank.host);
        let mut known = hosts.by_ref().filter(|host| !host.is_empty());
        let first = known.next();
        first.is_some_and(|first| known.any(|host| host != first))
    }

    fn notice(&mut self, text: &str) {
        for line in text.lines() {
            let line = clean(line.as_bytes());
            self.keep(None, line.as_str().into());
            self.notice = Some(line);
        }
    }

    fn keep(&mut self, rank: Option<usize>, text: Arc<str>) {
        let line = Line {
            number: self.next_line,
            rank,
            text,
        };
        self.next_line += 1;
        if let Some(rank) = rank.and_then(|rank| self.ranks.get_mut(rank)) {
            rank.keep(line.clone());
        }
        self.lines.push(line);
    }

    /// The process of this number. Those below it become known with it.
    fn rank(&mut self, number: usize) -> Option<&mut Rank> {
        if number >= MOST_RANKS {
            return None;
        }
        for missing in self.ranks.len()..=number {
            self.ranks.push(Rank::new(missing));
        }
        self.ranks.get_mut(number)
    }
}
