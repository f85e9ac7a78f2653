//! `carole run`: a coordinator in this process, and the ranks beside it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use carole_coordinator::{Coordinator, State, serve};
use carole_launch::random::{random_token, random_word};
use carole_launch::{
    EnvironmentSet, LocalJob, Order, Output, Report, Variable, Verdict, forward_interrupts, program,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::{guard, table};
use crate::args::{EnvironmentChoice, RunArguments};
use crate::failure::Failure;

/// The variable in which ranks look for the path of their table.
const TABLE: &str = "CAROLE_TABLE";

pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let search = std::env::var_os("PATH");
    program::find(&arguments.command[0], search.as_deref()).map_err(unusable_program)?;
    let table = arguments.table.as_deref().map(table_variable).transpose()?;
    // One thread: the kernel ties the ranks' lives to the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::new)?;
    let report = runtime
        .block_on(supervise(arguments, table))
        .map_err(Failure::new)?;
    conclude(report)
}

/// The variable that tells ranks of a table, once it is known to be one.
fn table_variable(path: &Path) -> Result<Variable, Failure> {
    table::read(path)?;
    let path = std::path::absolute(path)
        .with_context(|| format!("--table {}", path.display()))
        .map_err(Failure::usage)?;
    Ok((TABLE, path.into_os_string()))
}

/// Runs the coordinator and the ranks to the end of the job.
async fn supervise(arguments: RunArguments, table: Option<Variable>) -> anyhow::Result<Report> {
    let size = usize::from(arguments.ranks);
    let job = match arguments.name {
        Some(name) => name,
        None => format!("run-{}", random_word()?),
    };
    let token = random_token()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot listen on a loopback port for the coordinator")?;
    let address = listener
        .local_addr()
        .context("the coordinator has no address")?;
    let coordinator = Coordinator::new(State::new(job.as_str(), size), token.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let server = tokio::spawn(serve(listener, shutdown, coordinator.clone()));

    let (orders, received) = mpsc::unbounded_channel();
    forward_interrupts(&orders)?;
    tokio::spawn(watch_start(
        coordinator.clone(),
        arguments.timeout_start,
        orders,
    ));

    let mut command = arguments.command.into_iter();
    let job = LocalJob {
        job,
        size,
        program: command.next().context("no program was given")?,
        arguments: command.collect(),
        environment: match arguments.env {
            EnvironmentChoice::All => EnvironmentSet::All,
            EnvironmentChoice::None => EnvironmentSet::Carole,
        },
        variables: table.into_iter().collect(),
        coordinator: format!("http://{address}"),
        token,
        grace: arguments.grace,
        guard: Some(guard::command()),
    };
    let output = Output::standard().context("cannot start the output's thread")?;
    let report = carole_launch::run(job, output, received, |loss| {
        coordinator.report_lost(loss.rank, &loss.exit.to_string(), Some(loss.exit.code()));
    })
    .await?;

    drop(stop);
    server
        .await
        .context("the coordinator failed")?
        .context("the coordinator failed")?;
    Ok(report)
}

/// Gives the job up when some ranks have registered and the others do not follow.
async fn watch_start(
    coordinator: Coordinator,
    limit: Duration,
    orders: mpsc::UnboundedSender<Order>,
) {
    let reason = coordinator.overdue(limit).await;
    // Nobody listens when the job has ended.
    let _ = orders.send(Order::GiveUp(reason));
}

/// Turns how the job ended into an exit code and, if it did not end well, what a person is told.
fn conclude(report: Report) -> Result<ExitCode, Failure> {
    let code = report.exit_code();
    let Some(verdict) = report.verdict else {
        return Ok(ExitCode::SUCCESS);
    };
    let failure = Failure::new(anyhow!("{verdict}")).with_code(code);
    Err(match verdict {
        Verdict::Failed { rank, .. } if !report.last_lines.is_empty() => {
            let title = format!("last lines of rank {rank}:");
            let lines = report
                .last_lines
                .into_iter()
                .map(|line| format!("  {line}"));
            failure.with_details(std::iter::once(title).chain(lines).collect())
        }
        Verdict::GivenUp(_) => {
            failure.with_hint("--timeout-start TIME waits longer for ranks to register")
        }
        Verdict::Failed { .. } | Verdict::Interrupted(_) => failure,
    })
}

/// A program that cannot be run is a mistake on the command line.
fn unusable_program(error: carole_launch::Error) -> Failure {
    use carole_launch::Error;
    let hint = match &error {
        Error::ProgramNotFound { program } if std::path::Path::new(program).is_file() => {
            format!("a program in this folder is written ./{program}")
        }
        Error::ProgramNotFound { program } if program.contains(' ') => {
            "the program and its arguments are separate words: -- PROGRAM ARGUMENT".to_owned()
        }
        Error::ProgramNotFound { program } if program.contains('/') => {
            "is the path right, seen from this folder?".to_owned()
        }
        Error::ProgramNotExecutable { path } => {
            let path = path.display();
            format!(
                "make it executable (chmod +x {path}) or name its interpreter, as in -- python {path}"
            )
        }
        Error::ProgramIsDirectory { .. } => "name a program in it".to_owned(),
        _ => "is it installed, and is its folder in PATH?".to_owned(),
    };
    Failure::usage(error).with_hint(hint)
}
