//! The job, as far as the page shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::happening::Happening;
use super::line::{Line, Lines};
use super::rank::{Progress, Rank, State, Usage};
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
    /// What comes in and goes out at each host.
    network: BTreeMap<String, (u64, u64)>,
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
            Happening::Named { job, size } => {
                self.name = clean(job.as_bytes());
                if let Some(last) = size.checked_sub(1) {
                    self.rank(last);
                }
            }
            Happening::Started {
                rank,
                name,
                host,
                pid,
            } => {
                self.begin.get_or_insert(now);
                if let Some(rank) = self.rank(rank) {
                    rank.start(&name, &host, pid);
                }
            }
            Happening::Exited { rank, exit } => {
                if let Some(rank) = self.rank(rank) {
                    rank.exit(exit);
                }
            }
            Happening::Printed {
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
            Happening::Progress {
                rank,
                step,
                total,
                rate,
                text,
            } => {
                if let Some(rank) = self.rank(rank) {
                    rank.progress(Progress {
                        step,
                        total,
                        rate,
                        text: clean(text.as_bytes()),
                    });
                }
            }
            Happening::Usage {
                rank,
                cpu_percent,
                memory,
            } => {
                if let Some(rank) = self.rank(rank) {
                    rank.usage = Some(Usage {
                        cpu_percent,
                        memory,
                    });
                }
            }
            Happening::Network {
                host,
                received,
                sent,
            } => {
                self.network.insert(host, (received, sent));
            }
            Happening::Notice(text) => self.notice(&text),
            Happening::Ended(verdict) => {
                self.notice(&verdict);
                self.end = Some((clean(verdict.as_bytes()), now));
            }
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
        for rank in &self.ranks {
            *match rank.state {
                State::Waiting => &mut counts.waiting,
                State::Running => &mut counts.running,
                state if state.failed() => &mut counts.failed,
                State::Ended(_) => &mut counts.done,
            } += 1;
        }
        counts
    }

    /// What comes in and goes out at a host, in bytes per second; at all hosts without one.
    pub(super) fn network(&self, host: Option<&str>) -> Option<(u64, u64)> {
        if let Some(host) = host {
            return self.network.get(host).copied();
        }
        self.network
            .values()
            .copied()
            .reduce(|sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)))
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
