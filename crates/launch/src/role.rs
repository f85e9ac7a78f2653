//! The roles of a job's processes.
//!
//! In an all-reduce job all are workers. A job with parameter servers has those, perhaps a chief
//! and an evaluator, and workers; they are numbered in the order in which they are started.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A role that a process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves parameters until it is stopped.
    Server,
    /// Leads the workers.
    Chief,
    /// Trains.
    Worker,
    /// Evaluates, outside the cluster.
    Evaluator,
}

impl Role {
    /// Its name, as in `CAROLE_ROLE` and in `TF_CONFIG`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "ps",
            Self::Chief => "chief",
            Self::Worker => "worker",
            Self::Evaluator => "evaluator",
        }
    }
}

/// How many processes of each role a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    servers: usize,
    chief: bool,
    workers: usize,
    evaluator: bool,
}

/// A process's role, and its place among those of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The role.
    pub role: Role,
    /// The place.
    pub index: usize,
    /// How many there are.
    pub size: usize,
}

impl Roles {
    /// Workers only.
    pub const fn workers(workers: usize) -> Self {
        Self {
            servers: 0,
            chief: false,
            workers,
            evaluator: false,
        }
    }

    /// With parameter servers.
    pub const fn with_servers(
        servers: usize,
        chief: bool,
        workers: usize,
        evaluator: bool,
    ) -> Self {
        Self {
            servers,
            chief,
            workers,
            evaluator,
        }
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.ranges().iter().map(|(_, range)| range.len()).sum()
    }

    /// How many of them train together.
    pub fn worker_count(&self) -> usize {
        self.workers
    }

    /// Whether all are workers.
    pub fn are_equal(&self) -> bool {
        self.workers == self.size()
    }

    /// The numbers of each role's processes.
    pub fn ranges(&self) -> [(Role, Range<usize>); 4] {
        let chief = self.servers + usize::from(self.chief);
        let workers = chief + self.workers;
        [
            (Role::Server, 0..self.servers),
            (Role::Chief, self.servers..chief),
            (Role::Worker, chief..workers),
            (
                Role::Evaluator,
                workers..workers + usize::from(self.evaluator),
            ),
        ]
    }

    /// What the process of this number is.
    pub fn task(&self, number: usize) -> Task {
        let all = self.ranges();
        let (role, range) = all
            .iter()
            .find(|(_, range)| range.contains(&number))
            .unwrap_or(&all[2]);
        Task {
            role: *role,
            index: number.saturating_sub(range.start),
            size: range.len(),
        }
    }

    /// The processes that go on until they are stopped: the job is over when all others are. Where
    /// there is a chief, it alone decides.
    pub fn attendants(&self) -> Vec<usize> {
        if self.are_equal() {
            return Vec::new();
        }
        let decides = |role: Role| match role {
            Role::Chief => true,
            Role::Worker => !self.chief,
            Role::Server | Role::Evaluator => false,
        };
        (0..self.size())
            .filter(|number| !decides(self.task(*number).role))
            .collect()
    }

    /// What all processes are called, in their order.
    pub fn names(&self) -> Vec<String> {
        (0..self.size())
            .map(|number| self.describe(number))
            .collect()
    }

    /// What a process is called in logs and reports.
    pub fn describe(&self, number: usize) -> String {
        if self.are_equal() {
            return format!("rank {number}");
        }
        let task = self.task(number);
        format!("{} {}", task.role.name(), task.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_numbered_in_the_order_of_their_start() {
        let roles = Roles::with_servers(2, true, 3, true);
        let names = roles.names();
        let expected = [
            "ps 0",
            "ps 1",
            "chief 0",
            "worker 0",
            "worker 1",
            "worker 2",
            "evaluator 0",
        ];
        assert_eq!(names, expected);
        assert_eq!(roles.task(4).size, 3);
        assert_eq!(roles.attendants(), [0, 1, 3, 4, 5, 6]);
        let roles = Roles::with_servers(1, false, 2, false);
        assert_eq!(roles.attendants(), [0]);
    }

    #[test]
    fn workers_alone_are_ranks() {
        let roles = Roles::workers(2);
        assert_eq!(roles.describe(1), "rank 1");
        assert!(roles.attendants().is_empty());
    }
}
