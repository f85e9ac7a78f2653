//! Lines that several ranks print at about the same time become one.
//!
//! # Expected flow
//!
//! A line is held when the first rank prints it. A rank that prints the same bytes to the same
//! stream joins it. The oldest held line is released when its time is over, or when every rank
//! that is awaited has joined it or a later one, so that nobody can join any more.
//!
//! # Guarantees
//!
//! - Lines are released in the order in which they began to be held, and a rank joins only lines
//!   after its latest: what a rank printed stays in order, over both streams.
//! - No line is held for longer than [`WINDOW`], if [`release`](Collapse::release) is called then.
//! - Memory is bounded: [`add`](Collapse::add) is refused when too much is held.
//!
//! # Caveats
//!
//! A rank joins the first line that fits. If it prints only some of what another repeats, it may
//! be shown with an earlier repetition than a person would have chosen.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::out::Stream;

/// How long a line waits for other ranks to print it too.
pub(crate) const WINDOW: Duration = Duration::from_millis(200);
/// The most lines that are held.
const HELD: usize = 1024;
/// The most bytes of lines that are held.
const HELD_BYTES: usize = 1024 * 1024;

/// A line that waits for further ranks.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) stream: Stream,
    pub(crate) line: Vec<u8>,
    /// Who printed it, in the order in which they did.
    pub(crate) members: Vec<usize>,
    until: Duration,
    /// How many awaited members have this as their latest line.
    resting: usize,
}

/// Too much is held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A member's place in the queue.
#[derive(Clone, Debug)]
struct Member {
    /// The number of the latest line that it joined.
    latest: u64,
    /// Whether it may still print.
    awaited: bool,
}

/// The lines that wait, oldest first.
#[derive(Debug)]
pub(crate) struct Collapse {
    held: VecDeque<Held>,
    /// The hashes of the held lines: what is searched.
    hashes: VecDeque<u64>,
    hasher: RandomState,
    bytes: usize,
    /// The number of the oldest held line; lines are counted from one.
    first: u64,
    members: Vec<Member>,
    /// How many awaited members have joined no held line.
    behind: usize,
}

impl Collapse {
    pub(crate) fn new(members: usize) -> Self {
        let member = Member {
            latest: 0,
            awaited: true,
        };
        Self {
            held: VecDeque::new(),
            hashes: VecDeque::new(),
            hasher: RandomState::new(),
            bytes: 0,
            first: 1,
            members: vec![member; members],
            behind: members,
        }
    }

    /// Holds a line that `member` printed.
    pub(crate) fn add(
        &mut self,
        now: Duration,
        member: usize,
        stream: Stream,
        line: &[u8],
    ) -> Result<(), Full> {
        let hash = self.hasher.hash_one((stream, line));
        let after = self
            .index(self.members[member].latest)
            .map_or(0, |at| at + 1);
        let same = self
            .hashes
            .range(after..)
            .zip(self.held.range(after..))
            .position(|(other, held)| *other == hash && held.stream == stream && held.line == line);
        let at = match same {
            Some(distance) => after + distance,
            None if self.held.len() == HELD || self.bytes + line.len() > HELD_BYTES => {
                return Err(Full);
            }
            None => {
                self.bytes += line.len();
                self.hashes.push_back(hash);
                self.held.push_back(Held {
                    stream,
                    line: line.to_vec(),
                    members: Vec::new(),
                    until: now.saturating_add(WINDOW),
                    resting: 0,
                });
                self.held.len() - 1
            }
        };
        self.dismiss(member);
        let held = &mut self.held[at];
        held.members.push(member);
        held.resting += 1;
        self.members[member] = Member {
            latest: self.first + at as u64,
            awaited: true,
        };
        Ok(())
    }

    /// Lines do not wait for `member` until it adds one again.
    pub(crate) fn dismiss(&mut self, member: usize) {
        let Member { latest, awaited } = self.members[member];
        if awaited {
            self.members[member].awaited = false;
            match self.index(latest) {
                Some(at) => self.held[at].resting -= 1,
                None => self.behind -= 1,
            }
        }
    }

    /// Gives up the lines that have waited long enough or that nobody can join any more.
    pub(crate) fn release(&mut self, now: Duration, mut show: impl FnMut(Held)) {
        while let Some(oldest) = self.held.front()
            && (self.behind == 0 || oldest.until <= now)
        {
            show(self.pop());
        }
    }

    /// Gives up all lines up to the latest of `member`.
    pub(crate) fn release_through(&mut self, member: usize, mut show: impl FnMut(Held)) {
        while self.index(self.members[member].latest).is_some() {
            show(self.pop());
        }
    }

    /// Gives up all lines.
    pub(crate) fn release_all(&mut self, mut show: impl FnMut(Held)) {
        while !self.held.is_empty() {
            show(self.pop());
        }
    }

    /// When [`release`](Self::release) next has something to do.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.held.front().map(|held| held.until)
    }

    /// Where the line with this number is held, if it is.
    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).map(|at| at as usize)
    }

    fn pop(&mut self) -> Held {
        self.hashes.pop_front();
        let held = self.held.pop_front().expect("the callers look first");
        self.bytes -= held.line.len();
        self.behind += held.resting;
        self.first += 1;
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Adds lines at the given times and lists what is released, and when: `members: line`.
    fn released(members: usize, lines: &[(u64, usize, &str)]) -> Vec<(u64, String)> {
        let mut collapse = Collapse::new(members);
        let mut shown = Vec::new();
        for now in 0..1000 {
            for &(when, member, line) in lines {
                if when == now {
                    let line = line.as_bytes();
                    collapse.add(at(now), member, Stream::Stdout, line).unwrap();
                }
            }
            collapse.release(at(now), |held| {
                let line = String::from_utf8(held.line).unwrap();
                shown.push((now, format!("{:?}: {line}", held.members)));
            });
        }
        assert_eq!(collapse.wake_at(), None);
        assert_eq!((collapse.bytes, collapse.behind), (0, members));
        shown
    }

    #[test]
    fn a_line_that_all_print_is_shown_once_and_at_once() {
        let lines = [(1, 2, "load"), (5, 0, "load"), (9, 1, "load")];
        assert_eq!(released(3, &lines), [(9, "[2, 0, 1]: load".into())]);
    }

    #[test]
    fn a_line_that_some_print_waits_for_the_window_only() {
        let lines = [(1, 2, "load"), (5, 0, "load"), (230, 1, "load")];
        assert_eq!(
            released(3, &lines),
            [(201, "[2, 0]: load".into()), (430, "[1]: load".into())]
        );
    }

    #[test]
    fn a_line_that_nobody_can_join_any_more_does_not_wait() {
        let lines = [(1, 0, "a"), (2, 1, "b"), (3, 0, "c")];
        assert_eq!(
            released(2, &lines),
            [
                (2, "[0]: a".into()),
                (3, "[1]: b".into()),
                (203, "[0]: c".into())
            ]
        );
    }

    #[test]
    fn a_rank_that_repeats_a_line_is_not_merged_with_itself() {
        let lines = [
            (1, 0, "."),
            (2, 0, "."),
            (3, 1, "."),
            (4, 1, "."),
            (5, 1, "."),
        ];
        assert_eq!(
            released(2, &lines),
            [
                (3, "[0, 1]: .".into()),
                (4, "[0, 1]: .".into()),
                (205, "[1]: .".into())
            ]
        );
    }

    #[test]
    fn order_within_a_rank_is_kept_when_ranks_disagree_about_it() {
        let lines = [(1, 0, "a"), (2, 0, "b"), (3, 1, "b"), (4, 1, "a")];
        assert_eq!(
            released(2, &lines),
            [
                (3, "[0]: a".into()),
                (3, "[0, 1]: b".into()),
                (204, "[1]: a".into())
            ]
        );
    }

    #[test]
    fn the_streams_are_not_merged_with_one_another() {
        let mut collapse = Collapse::new(2);
        collapse.add(at(0), 0, Stream::Stdout, b"x").unwrap();
        collapse.add(at(0), 1, Stream::Stderr, b"x").unwrap();
        let mut shown = Vec::new();
        collapse.release_all(|held| shown.push((held.stream, held.members)));
        assert_eq!(
            shown,
            [(Stream::Stdout, vec![0]), (Stream::Stderr, vec![1])]
        );
    }

    #[test]
    fn ranks_that_are_dismissed_are_not_waited_for() {
        let mut collapse = Collapse::new(3);
        collapse.add(at(0), 0, Stream::Stdout, b"x").unwrap();
        collapse.add(at(0), 1, Stream::Stdout, b"x").unwrap();
        collapse.release(at(1), |_| panic!("rank 2 may still print it"));
        collapse.dismiss(2);
        collapse.dismiss(2);
        let mut shown = Vec::new();
        collapse.release(at(1), |held| shown.push(held.members));
        assert_eq!(shown, [[0, 1]]);
        collapse.add(at(2), 2, Stream::Stdout, b"y").unwrap();
        collapse.release(at(2), |_| panic!("the others may still print it"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut collapse = Collapse::new(2);
        for number in 0..HELD {
            let line = format!("{number}");
            collapse
                .add(at(0), 0, Stream::Stdout, line.as_bytes())
                .unwrap();
        }
        assert_eq!(collapse.add(at(0), 0, Stream::Stdout, b"more"), Err(Full));
        assert_eq!(collapse.add(at(0), 1, Stream::Stdout, b"7"), Ok(()));
        let mut count = 0;
        collapse.release_through(1, |_| count += 1);
        assert_eq!(count, 8);
        collapse.release_all(|_| ());
        let long = vec![b'x'; HELD_BYTES];
        assert_eq!(collapse.add(at(0), 0, Stream::Stdout, &long), Ok(()));
        assert_eq!(collapse.add(at(0), 0, Stream::Stdout, b"x"), Err(Full));
    }
}
