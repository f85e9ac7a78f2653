//! `carole ps`, `carole status`, `carole logs` and `carole stop`: jobs that were started here.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use carole_launch::registry::{Phase, Record, Registry};
use carole_launch::usage::bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::detach::OUTPUT;
use crate::args::{LogsArguments, OutputChoice, PsArguments, StatusArguments, StopArguments};
use crate::failure::Failure;

/// Between two looks at a job that is followed or stopped.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn ps(arguments: &PsArguments) -> Result<ExitCode, Failure> {
    let mut jobs = registry()?.all();
    jobs.retain(|job| arguments.all || job.phase() == Phase::Running);
    let mut lines = Vec::new();
    for job in &jobs {
        lines.push(match arguments.output {
            OutputChoice::Json => object(job).to_string(),
            OutputChoice::Table => format!(
                "{:<20} {:<8} {:>6} {:>6} {:>9}  {}",
                job.name,
                job.phase().name(),
                job.pid,
                job.ranks.len(),
                age(job.age()),
                job.command.join(" ")
            ),
        });
    }
    if arguments.output == OutputChoice::Table {
        let title = format!(
            "{:<20} {:<8} {:>6} {:>6} {:>9}  {}",
            "JOB", "STATE", "PID", "RANKS", "TIME", "COMMAND"
        );
        lines.insert(0, title);
    }
    print(&lines)
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<ExitCode, Failure> {
    let (_, job) = find(&arguments.job)?;
    if arguments.output == OutputChoice::Json {
        return print(&[object(&job).to_string()]);
    }
    let mut lines = vec![
        format!("job      {}", job.name),
        format!("state    {}", job.phase().name()),
        format!("time     {}", age(job.age())),
        format!("launcher {}", job.pid),
        format!("command  {}", job.command.join(" ")),
    ];
    if let Some(logs) = &job.logs {
        lines.push(format!("logs     {}", logs.display()));
    }
    if let Some(verdict) = job.end.as_ref().and_then(|end| end.verdict.as_ref()) {
        lines.push(format!("verdict  {verdict}"));
    }
    let running = job.phase() == Phase::Running;
    for one in job.hosts.iter().filter(|_| running) {
        if let Some(traffic) = one.traffic {
            lines.push(format!("network  {}: {traffic}", one.host.name));
        }
    }
    lines.extend(rank_lines(&job, running));
    print(&lines)
}

/// A table of a job's processes.
fn rank_lines(job: &Record, running: bool) -> Vec<String> {
    let titles = ["RANK", "HOST", "STATE", "CPU", "MEM", "PROGRESS"];
    let mut rows = vec![titles.map(str::to_owned)];
    for rank in &job.ranks {
        let state = match (&rank.exit, rank.pid) {
            (Some(exit), _) => exit.to_string(),
            (None, Some(pid)) if running => format!("process {pid}"),
            (None, Some(_)) => "ended".to_owned(),
            (None, None) => "not started".to_owned(),
        };
        let usage = rank.usage.filter(|_| running);
        let text = |text: Option<String>| text.unwrap_or_default();
        rows.push([
            rank.name.clone(),
            rank.host.clone(),
            state,
            text(usage.map(|usage| format!("{} %", usage.cpu_percent))),
            text(usage.map(|usage| bytes(usage.memory))),
            text(rank.progress.as_ref().map(ToString::to_string)),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [name, host, state, cpu, memory] = std::array::from_fn(width);
    rows.iter()
        .map(|[rank, on, how, busy, used, progress]| {
            let line = format!(
                "{rank:<name$}  {on:<host$}  {how:<state$}  {busy:>cpu$}  {used:>memory$}  {progress}"
            );
            line.trim_end().to_owned()
        })
        .collect()
}

pub(crate) fn logs(arguments: &LogsArguments) -> Result<ExitCode, Failure> {
    let (registry, job) = find(&arguments.job)?;
    let missing = || {
        Failure::new(anyhow!("what {} printed was not kept", job.name))
            .with_hint("--log-dir DIR or --detach keeps it")
    };
    let mut files: Vec<PathBuf> = match arguments.rank {
        None => vec![registry.folder_of(&job.name).join(OUTPUT)],
        Some(rank) => {
            let one = job.ranks.get(rank).ok_or_else(|| {
                Failure::usage(anyhow!("{} has no rank {rank}", job.name)).with_hint(format!(
                    "its ranks are 0 to {}",
                    job.ranks.len().saturating_sub(1)
                ))
            })?;
            let folder = job.logs.clone().ok_or_else(missing)?;
            let name = one.name.replace(' ', "-");
            ["stdout", "stderr"]
                .map(|stream| folder.join(format!("{name}.{stream}")))
                .into()
        }
    };
    files.retain(|file| file.exists());
    if files.is_empty() {
        return Err(missing());
    }
    let mut offsets = vec![0; files.len()];
    loop {
        // Looked at before the files, so that nothing written meanwhile is missed.
        let running = registry
            .read(&job.name)
            .is_some_and(|job| job.phase() == Phase::Running);
        for (file, offset) in files.iter().zip(&mut offsets) {
            show(file, offset).map_err(Failure::new)?;
        }
        if !arguments.follow || !running {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(PAUSE);
    }
}

pub(crate) fn stop(arguments: &StopArguments) -> Result<ExitCode, Failure> {
    let (registry, job) = find(&arguments.job)?;
    if job.phase() != Phase::Running {
        println!("{} is {} already", job.name, job.phase().name());
        return Ok(ExitCode::SUCCESS);
    }
    let send = |signal| {
        let pid = Pid::from_raw(job.pid).context("no process")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal process {}", job.pid))
    };
    send(Signal::TERM).map_err(Failure::new)?;
    if arguments.kill {
        // The second time means at once.
        std::thread::sleep(PAUSE);
        let _ = send(Signal::TERM);
    }
    let begin = Instant::now();
    while begin.elapsed() < arguments.timeout {
        match registry.read(&job.name) {
            Some(now) if now.phase() == Phase::Running => std::thread::sleep(PAUSE),
            _ => {
                println!("{} is stopped", job.name);
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    Err(Failure::new(anyhow!("{} still runs", job.name)).with_hint("carole stop --kill JOB"))
}

fn registry() -> Result<Registry, Failure> {
    Registry::of_user().ok_or_else(|| {
        Failure::new(anyhow!("there is no folder in which jobs are kept"))
            .with_hint("set HOME or XDG_STATE_HOME")
    })
}

/// The job of this name.
pub(super) fn find(name: &str) -> Result<(Registry, Record), Failure> {
    let registry = registry()?;
    match registry.read(name) {
        Some(job) => Ok((registry, job)),
        None => Err(Failure::usage(anyhow!("there is no job {name:?} here"))
            .with_hint("carole ps --all lists the jobs that were started on this machine")),
    }
}

fn object(job: &Record) -> serde_json::Value {
    let mut value = json!(job);
    if let Some(map) = value.as_object_mut() {
        map.remove("birth");
        map.insert("state".into(), json!(job.phase()));
        map.insert("seconds".into(), json!(job.age().as_secs_f64()));
    }
    value
}

fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn print(lines: &[String]) -> Result<ExitCode, Failure> {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what a file holds behind `offset`, and moves it on.
fn show(path: &Path, offset: &mut u64) -> anyhow::Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    file.seek(SeekFrom::Start(*offset))?;
    *offset += std::io::copy(&mut file, &mut std::io::stdout().lock())?;
    std::io::stdout().flush()?;
    Ok(())
}
