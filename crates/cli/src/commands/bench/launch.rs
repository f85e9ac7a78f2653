//! Ranks as processes of this very program, started and watched as `carole run` does.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use carole_coordinator::{Coordinator, State, serve};
use carole_launch::random::{random_token, random_word};
use carole_launch::{EnvironmentSet, LocalJob, Order, Output, Report, Verdict, forward_interrupts};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::measurement::Measurement;
use super::plan::Plan;
use super::report;
use crate::commands::guard;
use crate::failure::Failure;

/// How long to wait for the other ranks once one has registered.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long ranks that were asked to end may take.
const GRACE: Duration = Duration::from_secs(3);

/// Measures with `ranks` processes on this host.
pub(super) fn run(
    plan: &Plan,
    ranks: usize,
    report: &Arc<Mutex<report::Report>>,
) -> Result<(), Failure> {
    // One thread: the kernel ties the ranks' lives to the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::new)?;
    let ended = runtime
        .block_on(supervise(plan, ranks, report))
        .map_err(Failure::new)?;
    conclude(ended)
}

async fn supervise(
    plan: &Plan,
    ranks: usize,
    report: &Arc<Mutex<report::Report>>,
) -> anyhow::Result<Report> {
    let name = format!("bench-{}", random_word()?);
    let token = random_token()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot listen on a loopback port for the coordinator")?;
    let address = listener
        .local_addr()
        .context("the coordinator has no address")?;
    let coordinator = Coordinator::new(State::new(name.as_str(), ranks), token.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(
        listener,
        async { drop(stopped.await) },
        coordinator.clone(),
    ));

    let (orders, received) = mpsc::unbounded_channel();
    forward_interrupts(&orders)?;
    let watched = coordinator.clone();
    tokio::spawn(async move {
        let reason = watched.overdue(START_LIMIT).await;
        // Nobody listens when the ranks have ended.
        let _ = orders.send(Order::GiveUp(reason));
    });

    let job = LocalJob {
        job: name,
        size: ranks,
        // This very binary, even if its file was replaced meanwhile.
        program: OsString::from("/proc/self/exe"),
        arguments: vec!["bench-rank".into(), serde_json::to_string(plan)?.into()],
        environment: EnvironmentSet::Carole,
        coordinator: format!("http://{address}"),
        token,
        grace: GRACE,
        guard: Some(guard::command()),
    };
    let results = Results {
        report: Arc::clone(report),
        line: Vec::new(),
    };
    let output = Output::new(results, io::stderr()).context("cannot start the output's thread")?;
    let ended = carole_launch::run(job, output, received, |loss| {
        coordinator.report_lost(loss.rank, &loss.exit.to_string(), Some(loss.exit.code()));
    })
    .await?;
    drop(stop);
    server
        .await
        .context("the coordinator failed")?
        .context("the coordinator failed")?;
    Ok(ended)
}

/// Turns how the ranks ended into what a person is told.
fn conclude(ended: Report) -> Result<(), Failure> {
    let code = ended.exit_code();
    let Some(verdict) = ended.verdict else {
        return Ok(());
    };
    let failure = Failure::new(anyhow!("{verdict}")).with_code(code);
    Err(match verdict {
        Verdict::Failed { rank, .. } if !ended.last_lines.is_empty() => {
            let title = format!("last lines of rank {rank}:");
            let lines = ended.last_lines.into_iter().map(|line| format!("  {line}"));
            failure.with_details(std::iter::once(title).chain(lines).collect())
        }
        _ => failure,
    })
}

/// Takes the ranks' standard output, in which every line begins with a rank, and reports what
/// rank 0 measured.
struct Results {
    report: Arc<Mutex<report::Report>>,
    line: Vec<u8>,
}

impl Results {
    fn take(&self, line: &str) -> io::Result<()> {
        let (_, text) = line.split_once("| ").unwrap_or(("", line));
        match serde_json::from_str::<Measurement>(text) {
            Ok(measurement) => self
                .report
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .add(measurement),
            // Not a result, so it is talk.
            Err(_) => writeln!(io::stderr(), "{line}"),
        }
    }
}

impl Write for Results {
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
