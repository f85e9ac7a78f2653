//! `carole run`: from a request to the end of its job.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use carole_launch::fleet::Way;
use carole_launch::random::random_word;
use carole_launch::request::{ParameterServers, Request, Streams, Talk, Terminal};
use carole_launch::sync::Listing;
use carole_launch::{
    Error, Facts, Fleet, Job, Listed, Order, Output, Reach, RemoteShell, Report, Role, Roles,
    Variable, Verdict, forward_interrupts, program,
};
use carole_plan::PlanError;
use tracing::{info, warn};

use super::job::{self, Orders};
use super::page::{self, Page};
use super::syncing::Syncing;
use super::track::{self, Track};
use super::{agent, detach, job_file};
use super::{mpi, table, tmux};
use crate::args::RunArguments;
use crate::failure::Failure;
use crate::logs;

/// The variable in which ranks look for the path of their table.
const TABLE: &str = "CAROLE_TABLE";
/// The variable that names the file of a timeline.
const TIMELINE: &str = "CAROLE_TIMELINE";
/// How often agents tell what ranks use while somebody looks at the page.
const USAGE_ON_PAGE: Duration = Duration::from_secs(1);
/// How often they do for `carole status`, which may never be asked.
const USAGE_IN_REGISTRY: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: RunArguments) -> Result<ExitCode, Failure> {
    let (detached, background) = (arguments.detach, detach::is_background());
    let mut request = match arguments.job_file()? {
        Some(path) => job_file::read(&path, arguments)?,
        None => arguments.into_request()?,
    };
    if detached {
        check(&request)?;
        return detach::detach(request.name, request.start_timeout);
    }
    let tmux = request.output.terminal == Terminal::Tmux;
    if tmux {
        tmux::check()?;
    }
    if request.output.terminal == Terminal::Tui {
        page::check()?;
    }
    if background || tmux {
        // What is followed must be kept.
        let name = name_of(&request)?;
        let folder = &mut request.output.log_folder;
        *folder = folder.take().or_else(|| track::log_folder(&name));
        request.name = Some(name);
    }
    launch(&request)
}

/// A request, and what has been found out about it.
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) listed: Listed,
    /// What all ranks get.
    pub(super) variables: Vec<Variable>,
    /// How the ranks reach other hosts, where they start something there.
    pub(super) remote_shell: Option<RemoteShell>,
}

/// Carries a request out, whichever command line it came from.
pub(crate) fn launch(request: &Request) -> Result<ExitCode, Failure> {
    logs::set(request.output.talk);
    refuse(request)?;
    let mut work = if request.mpi {
        mpi::under_mpirun(request)?
    } else {
        Work {
            listed: check(request)?,
            variables: variables(request)?,
            request: request.clone(),
            remote_shell: None,
        }
    };
    work.request = completed(&work.request)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::new)?;
    let report = runtime.block_on(attempts(&work))?;
    conclude(report)
}

/// What can be found wrong before anything is started.
fn check(request: &Request) -> Result<Listed, Failure> {
    refuse(request)?;
    let listed = Listed::find(&request.hosts).map_err(wrong_hosts)?;
    if let Some(folder) = sync_folder(request)?
        && listed.hosts.iter().any(|host| host.way != Way::Here)
    {
        Listing::of(&folder).map_err(unusable_folder)?;
    }
    let elsewhere = request.folder.is_some() || request.sync.is_some();
    if listed.hosts.iter().any(|host| host.way == Way::Here) && !elsewhere {
        let search = std::env::var_os("PATH");
        program::find(&request.command[0], search.as_deref()).map_err(unusable_program)?;
    }
    variables(request)?;
    // Before anything is started, as far as the hosts need not be asked.
    let unknown = vec![Facts { cores: 1, gpus: 1 }; listed.hosts.len()];
    listed
        .with_default(request.default_slots, &unknown)
        .counts(request.ranks, request.oversubscribe, &unknown)
        .map_err(wrong_hosts)?;
    Ok(listed)
}

/// What cannot be honoured, or not yet, is refused, never ignored.
fn refuse(request: &Request) -> Result<(), Failure> {
    if let Some(ports) = request.network.ports.filter(|_| request.mpi) {
        let error = anyhow!("--ports {ports}: under --mpi, ports are the MPI's own to choose");
        let hint = "tell it with a variable, such as -x OMPI_MCA_btl_tcp_port_min_v4=10000";
        return Err(Failure::usage(error).with_hint(hint));
    }
    let wrong = [
        (
            request.sync.is_some() && request.folder.is_some(),
            "--sync and a folder to start in exclude each other: ranks start in the one that is sent",
            "leave --workdir out, or workdir in the job file",
        ),
        (
            request.sync.is_some() && request.mpi,
            "--sync and MPI exclude each other: mpirun starts the ranks in the same folder everywhere",
            "leave --sync out and use a shared file system, or carole repo",
        ),
    ];
    match wrong.into_iter().find(|(asked, ..)| *asked) {
        Some((_, what, hint)) => Err(Failure::usage(anyhow!("{what}")).with_hint(hint)),
        None => Ok(()),
    }
}

/// The folder to send, by the one path that leads to it without links.
fn sync_folder(request: &Request) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = &request.sync else {
        return Ok(None);
    };
    let found = folder
        .canonicalize()
        .with_context(|| format!("--sync {}", folder.display()))
        .map_err(|error| Failure::usage(error).with_hint("is the path right, seen from here?"))?;
    if found.is_dir() {
        Ok(Some(found))
    } else {
        Err(unusable_folder(Error::NoFolder { path: found }))
    }
}

/// A folder that cannot be sent is a mistake on the command line.
fn unusable_folder(error: Error) -> Failure {
    let hint = match &error {
        Error::NoFolder { .. } => "--sync names a folder, which is sent with what is in it",
        Error::LinkOutside { .. } => {
            "let it lead to a place in the folder, by a relative path, or name it in .gitignore"
        }
        Error::TooManyFiles { .. } => "name in .gitignore what the program does not need",
        _ => "may you read it? What .gitignore names is not sent",
    };
    Failure::usage(error).with_hint(hint)
}

/// The job's name, made up if there is none.
fn name_of(request: &Request) -> Result<String, Failure> {
    match &request.name {
        Some(name) => Ok(name.clone()),
        None => Ok(format!("run-{}", random_word().map_err(Failure::new)?)),
    }
}

/// The request with a name, and with a new folder where files are asked for and no folder is named.
fn completed(request: &Request) -> Result<Request, Failure> {
    let name = name_of(request)?;
    let mut output = request.output.clone();
    let files = output.redirect != Streams::default() || output.tee != Streams::default();
    if files && output.log_folder.is_none() {
        let word = random_word().map_err(Failure::new)?;
        let folder = std::env::temp_dir().join(format!("{name}-{word}"));
        // It must be new, or another user could own it.
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make a folder for logs, {}", folder.display()))
            .map_err(Failure::new)?;
        info!(folder = %folder.display(), "what ranks print is kept in files");
        output.log_folder = Some(folder);
    }
    Ok(Request {
        name: Some(name),
        output,
        ..request.clone()
    })
}

/// Whether a program of this name can be run here.
pub(super) fn exists(name: &str) -> bool {
    let search = std::env::var_os("PATH");
    program::find(name.as_ref(), search.as_deref()).is_ok()
}

/// Runs the job, and again after a failure while that is allowed.
async fn attempts(work: &Work) -> Result<Report, Failure> {
    let request = &work.request;
    let name = name_of(request)?;
    let mut track = Track::begin(&name, request)?;
    let begin = Instant::now();
    let mut restart = 0;
    loop {
        let ended = attempt(work, &name, (begin, restart), &mut track).await;
        let report = ended.inspect_err(|failure| track.fail(failure.message()))?;
        match &report.verdict {
            Some(verdict) if restart < request.max_restarts && is_worth_a_restart(verdict) => {
                restart += 1;
                let of = request.max_restarts;
                warn!(why = %verdict, restart, of, "starting the ranks again");
            }
            _ => {
                track.end(&report);
                return Ok(report);
            }
        }
    }
}

/// Whether a job that ended so may end otherwise the next time.
fn is_worth_a_restart(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Failed { .. } => true,
        Verdict::GivenUp(reason) => reason.starts_with("lost "),
        Verdict::Interrupted(_) => false,
    }
}

async fn attempt(
    work: &Work,
    name: &str,
    (begin, restart): (Instant, u32),
    track: &mut Track,
) -> Result<Report, Failure> {
    let Work {
        request, listed, ..
    } = work;
    let mut orders = Orders::new();
    forward_interrupts(&orders.sender).map_err(Failure::new)?;
    let reach = Reach {
        agent: agent::command(request.output.talk),
        ..job::reach(request.ssh.clone(), request.start_timeout)
    };
    let fleet = tokio::select! {
        fleet = Fleet::connect(&listed.hosts, &reach) => fleet.map_err(failed_start)?,
        order = orders.received.recv() => {
            let verdict = match order {
                Some(Order::Interrupt(interrupt)) => Verdict::Interrupted(interrupt),
                _ => Verdict::GivenUp("given up while hosts were started".into()),
            };
            return Ok(Report { verdict: Some(verdict), ..Report::default() });
        }
    };
    let facts = fleet.facts();
    let ranks = listed
        .with_default(request.default_slots, &facts)
        .counts(request.ranks, request.oversubscribe, &facts)
        .map_err(wrong_hosts)?;
    let size = ranks.iter().sum();
    if size == 0 {
        return Err(Failure::usage(anyhow!("the hosts have room for no rank"))
            .with_hint("-n N says how many ranks there are"));
    }
    let roles = roles(request, size)?;
    let folder = folder(request, listed);
    track.plan(&roles, &listed.hosts, &ranks, folder.as_deref());
    let usage = match request.output.terminal {
        Terminal::Tui => Some(USAGE_ON_PAGE),
        _ => track.is_kept().then_some(USAGE_IN_REGISTRY),
    };
    let sync = sync_folder(request)?;
    let job = |coordinator, token| Job {
        job: name.to_owned(),
        ranks,
        roles,
        command: request.command.clone(),
        commands: commands(request),
        environment: request.environment,
        variables: work.variables.clone(),
        folder,
        sync,
        setup: request.setup.clone(),
        coordinator,
        token,
        interfaces: request.network.interfaces.clone(),
        master_address: request.network.master_address.clone(),
        master_port: request.network.master_port,
        ports: request.network.ports,
        bind: request.bind,
        isolate_gpus: request.isolate_gpus,
        restart,
        max_restarts: request.max_restarts,
        usage,
        grace: request.grace,
        output: request.output.clone(),
        colour: colours(),
        remote_shell: work.remote_shell.clone(),
    };
    let page = (request.output.terminal == Terminal::Tui)
        .then(|| Page::open(name, &roles, orders.sender.clone()))
        .transpose()?;
    let output = match page {
        // The terminal is the page's.
        Some(_) => Output::new(std::io::sink(), std::io::sink()),
        None => Output::standard(),
    };
    let output = output
        .context("cannot start the output's thread")
        .map_err(Failure::new)?;
    let watching = request.deadline.map(|limit| {
        let orders = orders.sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until((begin + limit).into()).await;
            let limit = limit.as_secs_f64();
            let reason = format!("it took longer than its deadline of {limit:.1} s");
            // Nobody listens when the job has ended.
            let _ = orders.send(Order::GiveUp(reason));
        })
    });
    let mut syncing = Syncing::new(page.is_none() && request.output.talk != Talk::Quiet);
    let ended = job::carry_out(
        fleet,
        name,
        roles.worker_count(),
        job,
        output,
        orders,
        request.start_timeout,
        |event| {
            syncing.note(event);
            if let Some(page) = &page {
                page.note(event);
            }
            if track.note(event) && request.output.terminal == Terminal::Tmux {
                match tmux::open(track.record(), restart > 0) {
                    Ok(sessions) => {
                        for (host, session) in sessions {
                            eprintln!("tmux attach -t {session} shows the ranks on {host}");
                        }
                    }
                    Err(error) => warn!(%error, "no windows"),
                }
            }
        },
    )
    .await;
    drop(syncing);
    if let Some(watching) = watching {
        watching.abort();
    }
    if let Some(page) = page {
        page.close(ended.as_ref().ok());
    }
    ended.map_err(|error| match error.downcast::<Error>() {
        Ok(error) => failed_start(error),
        Err(error) => Failure::new(error),
    })
}

/// What the processes of a job are, of which there are `size`.
fn roles(request: &Request, size: usize) -> Result<Roles, Failure> {
    let ParameterServers {
        servers,
        chief,
        evaluator,
        ..
    } = request.parameter_servers;
    let others = servers + usize::from(chief) + usize::from(evaluator);
    if others == 0 {
        return Ok(Roles::workers(size));
    }
    match size.checked_sub(others) {
        Some(workers) if workers > 0 => Ok(Roles::with_servers(servers, chief, workers, evaluator)),
        _ => Err(Failure::usage(anyhow!(
            "{size} processes leave none for workers beside {others} others"
        ))
        .with_hint("--workers N says how many workers there are")),
    }
}

/// What roles run that do not run what workers run.
fn commands(request: &Request) -> Vec<(Role, Vec<OsString>)> {
    let others = &request.parameter_servers;
    [
        (Role::Server, &others.server_command),
        (Role::Chief, &others.chief_command),
        (Role::Evaluator, &others.evaluator_command),
    ]
    .into_iter()
    .filter_map(|(role, command)| Some((role, command.clone()?)))
    .collect()
}

/// Whether output goes to a terminal that shows colours, and nobody minds.
fn colours() -> bool {
    let unset = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
    std::io::stdout().is_terminal()
        && unset("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Where ranks start: what the person said, else on other hosts the same folder as here.
fn folder(request: &Request, listed: &Listed) -> Option<PathBuf> {
    let remote = listed.hosts.iter().any(|host| host.way != Way::Here);
    match &request.folder {
        Some(folder) => Some(folder.clone()),
        None if remote => std::env::current_dir().ok(),
        None => None,
    }
}

/// The variables that all ranks get.
pub(super) fn variables(request: &Request) -> Result<Vec<Variable>, Failure> {
    let mut variables: Vec<Variable> = Vec::new();
    for (name, value) in &request.variables {
        let value = match value {
            Some(value) => OsString::from(value),
            // Without a value: the launcher's own, if it has one.
            None => match std::env::var_os(name) {
                Some(value) => value,
                None => continue,
            },
        };
        variables.push((name.clone().into(), value));
    }
    if let Some(path) = &request.table {
        variables.push(table_variable(path)?);
    }
    if let Some(path) = &request.timeline {
        variables.push((TIMELINE.into(), path.clone().into_os_string()));
    }
    Ok(variables)
}

/// The variable that tells ranks of a table, once it is known to be one.
fn table_variable(path: &Path) -> Result<Variable, Failure> {
    table::read(path)?;
    let path = std::path::absolute(path)
        .with_context(|| format!("--table {}", path.display()))
        .map_err(Failure::usage)?;
    Ok((TABLE.into(), path.into_os_string()))
}

/// Turns how the job ended into an exit code and, if it did not end well, what a person is told.
pub(super) fn conclude(report: Report) -> Result<ExitCode, Failure> {
    let code = report.exit_code();
    let Some(verdict) = report.verdict else {
        return Ok(ExitCode::SUCCESS);
    };
    let told = match &report.exception {
        Some(exception) => anyhow!("{verdict}: {exception}"),
        None => anyhow!("{verdict}"),
    };
    let failure = Failure::new(told).with_code(code);
    Err(match verdict {
        Verdict::Failed { name, .. } if !report.last_lines.is_empty() => {
            let title = format!("last lines of {name}:");
            let lines = report
                .last_lines
                .into_iter()
                .map(|line| format!("  {line}"));
            failure.with_details(std::iter::once(title).chain(lines).collect())
        }
        Verdict::GivenUp(reason) if reason.contains("registered") => {
            failure.with_hint("--timeout-start TIME waits longer for ranks to register")
        }
        _ => failure,
    })
}

/// Hosts that cannot take part are told one by one.
pub(super) fn failed_start(error: Error) -> Failure {
    let Error::Hosts(problems) = &error else {
        return Failure::new(error);
    };
    let lines = problems
        .iter()
        .flat_map(|one| {
            let hint = one.hint.as_ref().map(|hint| format!("    hint: {hint}"));
            [Some(format!("  {}: {}", one.host, one.problem)), hint]
        })
        .flatten()
        .collect();
    let count = problems.len();
    let hosts = if count == 1 { "host" } else { "hosts" };
    Failure::new(anyhow!(
        "{count} {hosts} cannot take part; nothing was left running"
    ))
    .with_details(lines)
}

/// A host list that is wrong is a mistake on the command line.
pub(super) fn wrong_hosts(error: Error) -> Failure {
    let hint = match &error {
        Error::Hostlist(error) if matches!(**error, PlanError::NotEnoughSlots { .. }) => {
            "give hosts more slots (a:8), or pass --oversubscribe"
        }
        Error::HostfileRead { .. } => "is the path right, seen from this folder?",
        _ => "hosts are written a:4,b:4 or ann@a:2222:4; a host file has one a line, a slots=4",
    };
    Failure::usage(error).with_hint(hint)
}

/// A program that cannot be run is a mistake on the command line.
fn unusable_program(error: Error) -> Failure {
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
