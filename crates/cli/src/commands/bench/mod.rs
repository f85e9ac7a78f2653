//! `carole bench`: measuring collectives and checking their results.
//!
//! The command line becomes a [`plan`]; ranks that are processes ([`launch`], [`process`]), threads
//! ([`threads`]) or commands on several hosts ([`join`]) carry it out together ([`member`]) by one
//! method ([`measure`]), and what rank 0 measured is printed ([`report`]). Nothing here chooses how
//! the engine works: a benchmark measures what programs get.

mod buffer;
mod flag;
mod join;
mod launch;
mod list;
mod measure;
mod measurement;
mod member;
mod operation;
mod pattern;
mod plan;
mod plot;
mod process;
mod report;
mod threads;
mod vary;
mod work;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow};
use carole_launch::Listed;
use carole_launch::request::Ranks;

use self::join::Seat;
pub(super) use self::launch::Launcher;
pub(super) use self::measurement::Measurement;
pub(super) use self::operation::Operation;
pub(super) use self::plan::{Budget, Case, Plan};
use self::report::Report;
pub(super) use self::report::judge;
use super::run::wrong_hosts;
use crate::args::{BenchArguments, BenchRankArguments, TransportChoice};
use crate::failure::Failure;

pub(crate) fn bench(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let plan = Plan::new(arguments)?;
    let seat = Seat::new(arguments)?;
    if arguments.plot.is_some() && plan.cases.iter().all(|case| case.bytes == 0) {
        return Err(
            Failure::usage(anyhow!("--plot: a barrier has no sizes to plot over"))
                .with_hint("carole bench all --plot FILE.svg draws the other operations"),
        );
    }
    if seat.is_some() && plan.transport == TransportChoice::Memory {
        return Err(
            Failure::usage(anyhow!("--transport memory does not go with --rank"))
                .with_hint("threads of one process are started by -n"),
        );
    }
    let listed = Listed::find(&arguments.place.hosts()).map_err(wrong_hosts)?;
    let counts: Vec<usize> = match (&seat, &listed.slots) {
        (Some(seat), _) => vec![seat.ranks],
        (None, Some(slots)) if arguments.ranks.is_empty() => vec![slots.iter().sum()],
        (None, None) if arguments.ranks.is_empty() => vec![2],
        (None, _) => arguments.ranks.iter().copied().map(usize::from).collect(),
    };
    for ranks in &counts {
        listed
            .counts(Ranks::Total(*ranks), false, &[])
            .map_err(wrong_hosts)?;
    }
    let plans = counts
        .into_iter()
        .map(|ranks| Ok((ranks, plan.for_ranks(ranks)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    // The other ranks have nothing to draw.
    let prints = seat
        .as_ref()
        .is_none_or(|seat| seat.rank == operation::ROOT);
    let plot = arguments.plot.as_deref().filter(|_| prints);
    let report = Report::new(arguments.output, plot, std::io::stdout())?;
    let report = Arc::new(Mutex::new(report));
    let processes = seat.is_none() && plan.transport != TransportChoice::Memory;
    let mut launcher = processes
        .then(|| Launcher::new(listed, arguments.place.ssh()))
        .transpose()?;

    for (ranks, plan) in &plans {
        if prints {
            announce(plan, *ranks);
        }
        let shared = Arc::clone(&report);
        let add = move |measurement| lock(&shared).add(measurement);
        let mut add_here =
            |measurement| add(measurement).context("cannot write to standard output");
        match (&seat, &mut launcher) {
            (Some(seat), _) => seat.run(plan, &mut add_here)?,
            (None, None) => threads::run(plan, *ranks, &mut add_here).map_err(Failure::new)?,
            (None, Some(launcher)) => launcher.run(plan, *ranks, add)?,
        }
    }
    lock(&report).finish()?;
    Ok(ExitCode::SUCCESS)
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `carole bench-rank`: one of the processes that `carole bench` starts.
pub(crate) fn bench_rank(arguments: &BenchRankArguments) -> Result<ExitCode, Failure> {
    let plan: Plan = serde_json::from_str(&arguments.plan)
        .context("this is no plan of `carole bench`")
        .map_err(Failure::usage)?;
    process::run_launched(&plan).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Says how long it will take, where people look for it.
fn announce(plan: &Plan, ranks: usize) {
    let cases = plan.cases.len();
    let (s, r) = (
        if cases == 1 { "" } else { "s" },
        if ranks == 1 { "" } else { "s" },
    );
    let seconds = plan.expected_seconds().ceil();
    eprintln!("measuring {cases} case{s} on {ranks} rank{r}: about {seconds} s");
}
