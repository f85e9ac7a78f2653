//! What the commands do, one file each.

mod agent;
mod bench;
mod detach;
mod doctor;
mod everywhere;
mod exec;
mod generate;
mod goto;
mod job;
mod job_file;
mod jobs;
mod mpi;
mod page;
mod remote_shell;
mod repo;
mod report;
mod run;
mod syncing;
mod table;
mod tmux;
mod track;
mod tune;
pub(crate) mod version;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::Failure;
use crate::fronts::{Asked, horovodrun, kungfu_run, mpirun, torchrun};
use crate::tui::demo;

/// Runs a command to its exit code.
pub(crate) fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Ps(arguments) => jobs::ps(&arguments),
        Command::Status(arguments) => jobs::status(&arguments),
        Command::Logs(arguments) => jobs::logs(&arguments),
        Command::Stop(arguments) => jobs::stop(&arguments),
        Command::Report { words } => report::report(&words),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Torchrun(others) => carry_out(torchrun::parse(&others.words, run::exists)?),
        Command::Mpirun(others) => carry_out(mpirun::parse(&others.words, variable)?),
        Command::Horovodrun(others) => carry_out(horovodrun::parse(&others.words)?),
        Command::KungfuRun(others) => carry_out(kungfu_run::parse(&others.words)?),
        Command::Exec(arguments) => exec::exec(&arguments),
        Command::Goto(arguments) => goto::goto(&arguments),
        Command::Repo(arguments) => repo::repo(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Tune(arguments) => tune::tune(&arguments),
        Command::BenchRank(arguments) => bench::bench_rank(&arguments),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { folder } => generate::man(&folder),
        Command::TuiDemo { ranks, panic } => demo::demo(ranks, panic),
        Command::Version => version::version(),
        Command::Agent { quiet, verbose } => agent::agent(quiet, verbose),
        Command::RemoteShell(others) => remote_shell::remote_shell(&others.words),
        Command::SelfCheck { digest } => agent::self_check(&digest),
    }
}

/// Does what another launcher's command line asks for.
fn carry_out(asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Job(request) => run::launch(&request),
        Asked::Answer(text) => version::answer(&text),
    }
}

/// A variable of this process, if it is text.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
