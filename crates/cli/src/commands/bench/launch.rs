//! Ranks as processes of this very program, started and watched as `carole run` does.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use carole_launch::random::random_word;
use carole_launch::request::{Binding, OutputRequest, Ranks, Ssh};
use carole_launch::{
    EnvironmentSet, Fleet, Job, Listed, Order, Output, Reach, Report, Roles, forward_interrupts,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::measurement::Measurement;
use super::plan::Plan;
use crate::commands::job::{self, Orders};
use crate::commands::run::{conclude, failed_start};
use crate::failure::Failure;

/// How long to wait for the other ranks once one has registered.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long ranks that were asked to end may take.
const GRACE: Duration = Duration::from_secs(3);

/// Starts ranks, one job after the other, and hands on what they measured.
///
/// One for all jobs of a command: an interrupt between two of them stops the next.
pub(crate) struct Launcher {
    listed: Listed,
    reach: Reach,
    runtime: Runtime,
    interrupts: mpsc::UnboundedReceiver<Order>,
}

impl Launcher {
    pub(crate) fn new(listed: Listed, ssh: Ssh) -> Result<Self, Failure> {
        // One thread: the kernel ties the ranks' lives to the thread that starts them.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")
            .map_err(Failure::new)?;
        let (orders, interrupts) = mpsc::unbounded_channel();
        let context = runtime.enter();
        forward_interrupts(&orders).map_err(Failure::new)?;
        drop(context);
        Ok(Self {
            listed,
            reach: job::reach(ssh, START_LIMIT),
            runtime,
            interrupts,
        })
    }

    /// Measures with `ranks` processes on this host. `report` gets each result at once, on a
    /// thread of its own, and all of them before this returns.
    pub(crate) fn run(
        &mut self,
        plan: &Plan,
        ranks: usize,
        report: impl FnMut(Measurement) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Failure> {
        let ended = self
            .runtime
            .block_on(supervise(
                (&self.listed, &self.reach),
                plan,
                ranks,
                report,
                &mut self.interrupts,
            ))
            .map_err(|error| match error.downcast() {
                Ok(error) => failed_start(error),
                Err(error) => Failure::new(error),
            })?;
        conclude(ended).map(drop)
    }
}

async fn supervise(
    (listed, reach): (&Listed, &Reach),
    plan: &Plan,
    ranks: usize,
    report: impl FnMut(Measurement) -> io::Result<()> + Send + 'static,
    interrupts: &mut mpsc::UnboundedReceiver<Order>,
) -> anyhow::Result<Report> {
    let name = format!("bench-{}", random_word()?);
    let orders = Orders::new();
    let pass_on = orders.sender.clone();
    // Orders find nobody who listens when the ranks have ended.
    let pass_interrupts_on = async {
        while let Some(interrupt) = interrupts.recv().await {
            let _ = pass_on.send(interrupt);
        }
        std::future::pending::<()>().await;
    };
    let counts = listed.counts(Ranks::Total(ranks), false, &[])?;
    let command = vec![
        // This very binary, even if its file was replaced meanwhile: the agent's own.
        OsString::from("/proc/self/exe"),
        "bench-rank".into(),
        serde_json::to_string(plan)?.into(),
    ];
    let job = |coordinator, token| Job {
        job: name.clone(),
        ranks: counts,
        roles: Roles::workers(ranks),
        command,
        commands: Vec::new(),
        environment: EnvironmentSet::Carole,
        variables: Vec::new(),
        folder: None,
        sync: None,
        setup: None,
        coordinator,
        token,
        interfaces: Vec::new(),
        master_address: None,
        master_port: None,
        ports: None,
        bind: Binding::None,
        isolate_gpus: false,
        restart: 0,
        max_restarts: 0,
        usage: None,
        grace: GRACE,
        output: OutputRequest {
            collapse: false,
            ..OutputRequest::default()
        },
        colour: false,
        remote_shell: None,
    };
    let results = Results {
        report,
        line: Vec::new(),
    };
    let output = Output::new(results, io::stderr()).context("cannot start the output's thread")?;
    let running = async {
        let fleet = Fleet::connect(&listed.hosts, reach).await?;
        job::carry_out(
            fleet,
            &name,
            ranks,
            job,
            output,
            orders,
            START_LIMIT,
            |_| {},
        )
        .await
    };
    tokio::select! {
        ended = running => ended,
        () = pass_interrupts_on => unreachable!("it waits for the end"),
    }
}

/// Takes the ranks' standard output, in which every line begins with a rank, and reports what
/// rank 0 measured.
struct Results<F> {
    report: F,
    line: Vec<u8>,
}

impl<F: FnMut(Measurement) -> io::Result<()>> Results<F> {
    fn take(&mut self, line: &str) -> io::Result<()> {
        let (_, text) = line.split_once("| ").unwrap_or(("", line));
        match serde_json::from_str::<Measurement>(text) {
            Ok(measurement) => (self.report)(measurement),
            // Not a result, so it is talk.
            Err(_) => writeln!(io::stderr(), "{line}"),
        }
    }
}

impl<F: FnMut(Measurement) -> io::Result<()>> Write for Results<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.take(&String::from_utf8_lossy(&line))?;
            } else {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
