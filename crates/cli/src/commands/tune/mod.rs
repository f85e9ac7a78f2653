//! `carole tune`: measuring which algorithm is best for which size and number of ranks.
//!
//! Every way that an all-reduce can go ([`candidate`]) is measured by ranks that `carole bench`'s
//! launcher starts, in turns, so that a slow minute hits all of them. What follows from the
//! [`times`] is decided purely ([`choice`]), told ([`report`]) and saved ([`target`]).
//!
//! Only ways on one host are compared; what happens between hosts is left as it is.

mod candidate;
mod choice;
mod report;
mod target;
mod times;

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;

use anyhow::{Context, anyhow};
use carole_plan::{AlgorithmTable, LocalRule};

use self::candidate::{Candidate, Way};
use self::choice::{choose, with_rules};
use self::report::{Finding, Report};
use self::target::Target;
use self::times::Times;
use carole_launch::Listed;
use carole_launch::request::Ssh;

use super::bench::{Budget, Launcher, Measurement, Plan, judge};
use crate::args::TuneArguments;
use crate::failure::Failure;

pub(crate) fn tune(arguments: &TuneArguments) -> Result<ExitCode, Failure> {
    // As the engine counts them.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let base = AlgorithmTable::default();
    let rule = |ranks| LocalRule {
        ranks,
        crowded: ranks > cores,
        ..base.local_rule(ranks, cores)
    };
    let old: Vec<LocalRule> = arguments.numbers(cores).into_iter().map(rule).collect();
    with_rules(&base, &old)
        .validate()
        .map_err(|error| Failure::usage(error).with_hint("-n takes fewer numbers of ranks"))?;
    let target = arguments.file().map(Target::new).transpose()?;

    let budget = Budget::new(arguments.seconds);
    let jobs: Vec<Job> = old
        .iter()
        .flat_map(|old| Job::all(*old, arguments.rounds, budget))
        .collect();
    let mut left: f64 = jobs.iter().map(|job| job.plan.expected_seconds()).sum();
    let mut launcher = Launcher::new(Listed::here(), Ssh::default())?;
    let mut report = Report::new(arguments.output, std::io::stdout());
    let mut new = Vec::with_capacity(old.len());
    let mut jobs = jobs.into_iter().peekable();
    for old in old {
        let mut times = Times::default();
        let mut round = 0;
        while let Some(job) = jobs.next_if(|job| job.ranks == old.ranks) {
            if round != job.round {
                round = job.round;
                announce(&job, arguments.rounds, left);
            }
            job.run(&mut launcher, &mut times)?;
            left -= job.plan.expected_seconds();
        }
        let rule = choose(&times, old);
        new.push(rule);
        let finding = Finding {
            old,
            new: rule,
            times,
        };
        report
            .add(&finding)
            .context("cannot write to standard output")
            .map_err(Failure::new)?;
    }
    let table = with_rules(&base, &new);
    table.validate().map_err(Failure::new)?;
    if let (Some(target), Some(path)) = (target, arguments.file()) {
        target.write(&table)?;
        tell_how_to_use(path);
    }
    Ok(ExitCode::SUCCESS)
}

/// One start of ranks, which measure one candidate.
struct Job {
    ranks: usize,
    /// Counted from 1.
    round: u16,
    way: Way,
    plan: Plan,
}

impl Job {
    /// All jobs for the ranks that have gone by `old` so far, in order.
    fn all(old: LocalRule, rounds: u16, budget: Budget) -> Vec<Self> {
        let candidates = Candidate::all(old);
        let jobs = (1..=rounds).flat_map(|round| {
            let mut jobs: Vec<Self> = candidates
                .iter()
                .map(|candidate| Self {
                    ranks: old.ranks,
                    round,
                    way: candidate.way,
                    plan: candidate.plan(old, budget),
                })
                .collect();
            // There and back: none is always the first, on a cool machine.
            if round % 2 == 0 {
                jobs.reverse();
            }
            jobs
        });
        jobs.collect()
    }

    fn run(&self, launcher: &mut Launcher, times: &mut Times) -> Result<(), Failure> {
        let (sender, results) = channel::<Measurement>();
        // The receiver stays until all ranks have ended.
        let report = move |measurement| sender.send(measurement).map_err(std::io::Error::other);
        launcher.run(&self.plan, self.ranks, report)?;
        let measurements: Vec<Measurement> = results.try_iter().collect();
        judge(&measurements)?;
        for measurement in measurements {
            let (algorithm, name) = (&measurement.algorithm, self.way.name());
            if algorithm != name {
                let ranks = self.ranks;
                let problem = anyhow!("{ranks} ranks went {algorithm} instead of {name}");
                return Err(Failure::new(problem));
            }
            times.add(self.way, measurement.bytes, measurement.median_us);
        }
        Ok(())
    }
}

/// Says what comes and how long it takes, where people look for it.
fn announce(job: &Job, rounds: u16, left: f64) {
    let Job { ranks, round, .. } = job;
    let left = left.ceil();
    eprintln!("measuring {ranks} ranks, round {round} of {rounds}: about {left} s to go");
}

fn tell_how_to_use(path: &Path) {
    let path = path.display();
    eprintln!("saved {path}; to use it: carole run --table {path} -- PROGRAM");
}
