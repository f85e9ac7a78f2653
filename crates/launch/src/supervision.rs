//! What to do when a rank ends, a person interrupts or time passes: a pure state machine.
//!
//! The first failure decides: the others are asked to end and, after the grace time, killed. A
//! first interrupt does the same, a second one kills at once. Time is passed in as a duration since
//! the job began; nothing here signals or waits.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::role::Roles;

/// How long killed processes may take to disappear before they are given up.
const ABANDON: Duration = Duration::from_secs(2);

/// What is to be done. Signals go to all ranks that still run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the coordinator that this rank is lost.
    ReportLost {
        /// Which rank.
        rank: usize,
        /// How it ended.
        exit: Exit,
    },
    /// Ask the ranks to end, for this reason.
    Terminate(String),
    /// Kill the ranks, for this reason.
    Kill(String),
    /// Wait no longer for processes or for output.
    Abandon,
}

/// Why a job did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rank failed first.
    Failed {
        /// Which rank.
        rank: usize,
        /// What it is called: `rank 2`, `ps 0`.
        name: String,
        /// On which host, where there are several.
        host: Option<String>,
        /// How it ended.
        exit: Exit,
        /// How long after the job began.
        after: Duration,
    },
    /// A person or the system stopped it.
    Interrupted(Interrupt),
    /// It was given up, and why.
    GivenUp(String),
}

impl Verdict {
    /// The code the launcher should exit with.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Failed { exit, .. } => exit.code(),
            Self::Interrupted(interrupt) => Exit::Signal(interrupt.signal()).code(),
            Self::GivenUp(_) => 1,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failed {
                name,
                host,
                exit,
                after,
                ..
            } => {
                write!(f, "{name} ")?;
                if let Some(host) = host {
                    write!(f, "on {host} ")?;
                }
                write!(f, "{exit} after {:.1} s", after.as_secs_f64())
            }
            Self::Interrupted(Interrupt::Interrupt) => f.write_str("interrupted"),
            Self::Interrupted(Interrupt::Terminate) => f.write_str("asked to end (SIGTERM)"),
            Self::Interrupted(Interrupt::HangUp) => f.write_str("the terminal closed (SIGHUP)"),
            Self::GivenUp(reason) => f.write_str(reason),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Stopping { kill_at: Duration },
    Killing { abandon_at: Duration },
}

/// The ranks of a job from their start to the end of the last.
#[derive(Debug)]
pub struct Supervision {
    running: BTreeSet<usize>,
    roles: Roles,
    /// Those that go on until they are stopped.
    attendants: BTreeSet<usize>,
    /// The ranks' hosts; empty where there is one only.
    hosts: Vec<String>,
    grace: Duration,
    stage: Stage,
    verdict: Option<Verdict>,
}

impl Supervision {
    /// `size` ranks that have just been started.
    pub fn new(size: usize, grace: Duration) -> Self {
        Self {
            running: (0..size).collect(),
            roles: Roles::workers(size),
            attendants: BTreeSet::new(),
            hosts: Vec::new(),
            grace,
            stage: Stage::Running,
            verdict: None,
        }
    }

    /// Tells the ranks' hosts in verdicts.
    #[must_use]
    pub fn on_hosts(mut self, hosts: Vec<String>) -> Self {
        self.hosts = hosts;
        self
    }

    /// Tells what ranks are, and lets those that attend to others end with them.
    #[must_use]
    pub fn with_roles(mut self, roles: Roles) -> Self {
        self.roles = roles;
        self.attendants = roles.attendants().into_iter().collect();
        self
    }

    /// Ranks that still run.
    pub fn running(&self) -> &BTreeSet<usize> {
        &self.running
    }

    /// Why the job did not end well, if it did not.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Nobody will ever tell how these ranks end, and why.
    pub fn lost(&mut self, now: Duration, ranks: Range<usize>, reason: String) -> Vec<Action> {
        let before = self.running.len();
        self.running.retain(|rank| !ranks.contains(rank));
        if self.running.len() == before || self.stage != Stage::Running {
            return Vec::new();
        }
        self.stop(now, Verdict::GivenUp(reason.clone()), reason)
    }

    /// A rank's process ended.
    pub fn exited(&mut self, now: Duration, rank: usize, exit: Exit) -> Vec<Action> {
        self.running.remove(&rank);
        if self.stage != Stage::Running {
            return Vec::new();
        }
        if exit.success() {
            return self.dismiss_attendants(now);
        }
        let verdict = Verdict::Failed {
            rank,
            name: self.roles.describe(rank),
            host: self.hosts.get(rank).cloned(),
            exit,
            after: now,
        };
        let mut actions = Vec::new();
        if !self.running.is_empty() {
            actions.push(Action::ReportLost { rank, exit });
        }
        let reason = verdict.to_string();
        actions.extend(self.stop(now, verdict, reason));
        actions
    }

    /// A person or the system asks for the end; the second time, for the end at once.
    pub fn interrupt(&mut self, now: Duration, interrupt: Interrupt) -> Vec<Action> {
        match self.stage {
            _ if self.running.is_empty() => {
                // Only output is waited for, and whoever interrupts does not want it.
                self.verdict.get_or_insert(Verdict::Interrupted(interrupt));
                vec![Action::Abandon]
            }
            Stage::Running => {
                let verdict = Verdict::Interrupted(interrupt);
                let reason = format!("{verdict}; once more kills");
                self.stop(now, verdict, reason)
            }
            Stage::Stopping { .. } => self.kill(now, "interrupted again".to_owned()),
            Stage::Killing { .. } => Vec::new(),
        }
    }

    /// Something outside the ranks makes the job hopeless.
    pub fn give_up(&mut self, now: Duration, reason: String) -> Vec<Action> {
        match self.stage {
            Stage::Running if !self.running.is_empty() => {
                self.stop(now, Verdict::GivenUp(reason.clone()), reason)
            }
            _ => Vec::new(),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        match self.stage {
            Stage::Stopping { kill_at } if now >= kill_at && !self.running.is_empty() => {
                let reason = format!("not ended after {:.1} s", self.grace.as_secs_f64());
                self.kill(now, reason)
            }
            Stage::Killing { abandon_at } if now >= abandon_at && self.may_abandon() => {
                vec![Action::Abandon]
            }
            _ => Vec::new(),
        }
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub fn wake_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Stopping { kill_at } if !self.running.is_empty() => Some(kill_at),
            Stage::Killing { abandon_at } if self.may_abandon() => Some(abandon_at),
            _ => None,
        }
    }

    /// Output that is still being written is given up only for a person who interrupted.
    fn may_abandon(&self) -> bool {
        !self.running.is_empty() || matches!(self.verdict, Some(Verdict::Interrupted(_)))
    }

    /// When only attendants are left, they have nothing to attend to.
    fn dismiss_attendants(&mut self, now: Duration) -> Vec<Action> {
        if self.running.is_empty() || !self.running.is_subset(&self.attendants) {
            return Vec::new();
        }
        self.stage = Stage::Stopping {
            kill_at: now.saturating_add(self.grace),
        };
        vec![Action::Terminate("the others have ended well".into())]
    }

    fn stop(&mut self, now: Duration, verdict: Verdict, reason: String) -> Vec<Action> {
        self.verdict = Some(verdict);
        self.stage = Stage::Stopping {
            kill_at: now.saturating_add(self.grace),
        };
        if self.running.is_empty() {
            Vec::new()
        } else {
            vec![Action::Terminate(reason)]
        }
    }

    fn kill(&mut self, now: Duration, reason: String) -> Vec<Action> {
        self.stage = Stage::Killing {
            abandon_at: now.saturating_add(ABANDON),
        };
        vec![Action::Kill(reason)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_job_whose_ranks_all_end_well_has_no_verdict() {
        let mut job = Supervision::new(2, GRACE);
        assert!(job.exited(at(1), 0, Exit::Code(0)).is_empty());
        assert!(job.exited(at(2), 1, Exit::Code(0)).is_empty());
        assert_eq!(job.verdict(), None);
        assert_eq!(job.wake_at(), None);
    }

    #[test]
    fn the_first_failure_decides_and_stops_the_others() {
        let mut job = Supervision::new(3, GRACE);
        let actions = job.exited(Duration::from_millis(3240), 2, Exit::Signal(11));
        let reason = "rank 2 exited with signal 11 (SIGSEGV) after 3.2 s";
        assert_eq!(
            actions,
            [
                Action::ReportLost {
                    rank: 2,
                    exit: Exit::Signal(11)
                },
                Action::Terminate(reason.into()),
            ]
        );
        assert!(
            job.exited(at(4), 0, Exit::Code(7)).is_empty(),
            "it was stopped, it did not fail"
        );
        assert_eq!(job.verdict().unwrap().to_string(), reason);
        assert_eq!(job.verdict().unwrap().exit_code(), 139);
    }

    #[test]
    fn the_last_rank_that_fails_has_nobody_to_be_reported_to() {
        let mut job = Supervision::new(1, GRACE);
        assert!(job.exited(at(1), 0, Exit::Code(4)).is_empty());
        assert_eq!(job.verdict().unwrap().exit_code(), 4);
        assert_eq!(job.wake_at(), None);
    }

    #[test]
    fn ranks_that_do_not_end_in_the_grace_time_are_killed_and_then_given_up() {
        let mut job = Supervision::new(2, GRACE);
        job.exited(at(5), 0, Exit::Code(1));
        assert_eq!(job.wake_at(), Some(at(15)));
        assert!(job.tick(at(14)).is_empty());
        assert_eq!(
            job.tick(at(15)),
            [Action::Kill("not ended after 10.0 s".into())]
        );
        assert_eq!(job.wake_at(), Some(at(17)));
        assert_eq!(job.tick(at(17)), [Action::Abandon]);
    }

    #[test]
    fn killed_ranks_that_ended_leave_time_for_their_output() {
        let mut job = Supervision::new(2, GRACE);
        job.exited(at(5), 0, Exit::Code(1));
        job.tick(at(15));
        job.exited(at(15), 1, Exit::Signal(9));
        assert_eq!(job.wake_at(), None);
        assert_eq!(
            job.interrupt(at(60), Interrupt::Interrupt),
            [Action::Abandon]
        );
        assert_eq!(
            job.verdict().unwrap().exit_code(),
            1,
            "the failure came first"
        );
    }

    #[test]
    fn a_first_interrupt_drains_and_a_second_kills() {
        let mut job = Supervision::new(2, GRACE);
        let first = job.interrupt(at(1), Interrupt::Interrupt);
        assert_eq!(
            first,
            [Action::Terminate("interrupted; once more kills".into())]
        );
        assert!(job.exited(at(2), 0, Exit::Signal(15)).is_empty());
        let second = job.interrupt(at(2), Interrupt::Interrupt);
        assert_eq!(second, [Action::Kill("interrupted again".into())]);
        assert!(job.interrupt(at(2), Interrupt::Interrupt).is_empty());
        assert_eq!(job.verdict().unwrap().exit_code(), 130);
    }

    #[test]
    fn each_interrupt_has_its_own_exit_code() {
        for (interrupt, code) in [
            (Interrupt::HangUp, 129),
            (Interrupt::Interrupt, 130),
            (Interrupt::Terminate, 143),
        ] {
            let mut job = Supervision::new(1, GRACE);
            job.interrupt(at(0), interrupt);
            assert_eq!(job.verdict().unwrap().exit_code(), code);
        }
    }

    #[test]
    fn servers_end_with_the_workers_they_serve() {
        let roles = Roles::with_servers(1, false, 2, false);
        let mut job = Supervision::new(3, GRACE).with_roles(roles);
        assert!(job.exited(at(1), 1, Exit::Code(0)).is_empty());
        let actions = job.exited(at(2), 2, Exit::Code(0));
        assert_eq!(
            actions,
            [Action::Terminate("the others have ended well".into())]
        );
        assert!(job.exited(at(3), 0, Exit::Signal(15)).is_empty());
        assert_eq!(job.verdict(), None);
        let mut job = Supervision::new(3, GRACE).with_roles(roles);
        job.exited(at(1), 0, Exit::Code(3));
        assert_eq!(
            job.verdict().unwrap().to_string(),
            "ps 0 exited with code 3 after 1.0 s"
        );
    }

    #[test]
    fn ranks_that_nobody_can_tell_of_end_the_job_unless_they_had_ended() {
        let mut job = Supervision::new(3, GRACE);
        job.exited(at(1), 2, Exit::Code(0));
        assert!(job.lost(at(1), 2..3, "lost c".into()).is_empty());
        let actions = job.lost(at(2), 0..1, "lost a".into());
        assert_eq!(actions, [Action::Terminate("lost a".into())]);
        assert!(job.lost(at(3), 1..2, "lost b".into()).is_empty());
        assert!(job.running().is_empty());
        assert_eq!(job.verdict().unwrap().to_string(), "lost a");
    }

    #[test]
    fn a_job_is_given_up_once_and_only_while_it_runs() {
        let mut job = Supervision::new(2, GRACE);
        let actions = job.give_up(at(1), "rank 1 is missing".into());
        assert_eq!(actions, [Action::Terminate("rank 1 is missing".into())]);
        assert!(job.give_up(at(2), "again".into()).is_empty());
        assert_eq!(
            job.verdict(),
            Some(&Verdict::GivenUp("rank 1 is missing".into()))
        );
        assert_eq!(job.verdict().unwrap().exit_code(), 1);
    }
}
