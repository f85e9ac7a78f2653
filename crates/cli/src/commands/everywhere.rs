//! What `carole exec` and `carole repo` have in common: a command on every host.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use carole_launch::remote::{self, Ending, Means, Outcome};
use carole_launch::request::Hosts;
use carole_launch::{Host, Listed, Verdict, forward_interrupts};

use super::job::Orders;
use super::run::wrong_hosts;
use crate::args::PlaceArguments;
use crate::failure::Failure;

/// Where a command goes.
pub(super) struct Everywhere {
    pub(super) hosts: Vec<Host>,
    means: Means,
}

impl Everywhere {
    /// The hosts that were given, which must have been.
    pub(super) fn new(place: &PlaceArguments, timeout: Option<Duration>) -> Result<Self, Failure> {
        let hosts = place.hosts();
        if hosts == Hosts::Here {
            return Err(Failure::usage(anyhow!("no hosts were given"))
                .with_hint("-H a,b names them, --hostfile FILE lists them"));
        }
        Ok(Self {
            hosts: Listed::find(&hosts).map_err(wrong_hosts)?.hosts,
            means: Means {
                ssh: place.ssh(),
                timeout,
            },
        })
    }

    /// Runs a command on every host. `told` gets each outcome as it comes; all of them are returned
    /// in the hosts' order.
    pub(super) fn run(
        &self,
        words: &[OsString],
        mut told: impl FnMut(&Host, &Outcome) -> io::Result<()>,
    ) -> Result<Vec<Outcome>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")
            .map_err(Failure::new)?;
        let mut outcomes: Vec<Option<Outcome>> = self.hosts.iter().map(|_| None).collect();
        let told = |outcome: Outcome| {
            let index = outcome.index;
            told(&self.hosts[index], &outcome)?;
            outcomes[index] = Some(outcome);
            io::Result::Ok(())
        };
        let ended = runtime.block_on(async {
            let orders = Orders::new();
            forward_interrupts(&orders.sender)?;
            remote::run(&self.hosts, words, &self.means, orders.received, told).await
        });
        let interrupted = ended
            .map_err(Failure::new)?
            .context("cannot write to standard output")
            .map_err(Failure::new)?;
        if let Some(interrupt) = interrupted {
            let verdict = Verdict::Interrupted(interrupt);
            return Err(Failure::new(anyhow!("{verdict}")).with_code(verdict.exit_code()));
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// The exit code, and what a person is told of the hosts that failed.
    pub(super) fn conclude(&self, outcomes: &[Outcome]) -> Result<ExitCode, Failure> {
        let mut failed = outcomes
            .iter()
            .filter(|one| !one.ending.success())
            .peekable();
        let Some(first) = failed.peek() else {
            return Ok(ExitCode::SUCCESS);
        };
        let code = first.ending.code();
        let mut count = 0;
        let mut lines = Vec::new();
        for outcome in failed {
            count += 1;
            let name = &self.hosts[outcome.index].name;
            lines.push(format!("  {name}: {}", in_words(&outcome.ending)));
            if let Ending::Failed {
                hint: Some(hint), ..
            } = &outcome.ending
            {
                lines.push(format!("    hint: {hint}"));
            }
        }
        let of = self.hosts.len();
        let hosts = if of == 1 { "host" } else { "hosts" };
        let error = anyhow!("it failed on {count} of {of} {hosts}");
        Err(Failure::new(error).with_code(code).with_details(lines))
    }
}

/// How a command ended on a host.
pub(super) fn in_words(ending: &Ending) -> String {
    match ending {
        Ending::Exited(exit) => exit.to_string(),
        Ending::Failed { problem, .. } => problem.clone(),
    }
}
