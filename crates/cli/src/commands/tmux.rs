//! `--terminal tmux`: a session of tmux with a window for each rank.
//!
//! The windows follow what the ranks print, as `carole logs -f` does; the launcher stays where it was
//! started. Whoever wants to look attaches; closing a window or the session stops nothing.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, ensure};

use crate::failure::Failure;

/// The name of a job's session.
pub(super) fn session(job: &str) -> String {
    format!("carole-{job}")
}

/// What must be there.
pub(super) fn check() -> Result<(), Failure> {
    if super::run::exists("tmux") {
        return Ok(());
    }
    Err(Failure::usage(anyhow!("--terminal tmux: there is no tmux"))
        .with_hint("install tmux, or use --terminal current"))
}

/// Opens a window for each of a job's processes.
pub(super) fn open(job: &str, names: &[String]) -> anyhow::Result<()> {
    let session = session(job);
    let carole = std::env::current_exe().context("cannot find this binary")?;
    for (rank, name) in names.iter().enumerate() {
        let window = name.replace(' ', "-");
        let rank = rank.to_string();
        let mut command = Command::new("tmux");
        if rank == "0" {
            command.args(["new-session", "-d", "-s", &session, "-n", &window]);
        } else {
            command.args(["new-window", "-d", "-t", &session, "-n", &window]);
        }
        // The server of tmux may have been started with another environment.
        command.arg("env");
        for name in ["HOME", "XDG_STATE_HOME"] {
            if let Some(value) = std::env::var_os(name) {
                let mut word = OsString::from(format!("{name}="));
                word.push(value);
                command.arg(word);
            }
        }
        command
            .arg(&carole)
            .args(["logs", job, "--rank", &rank, "-f"]);
        run(&mut command)?;
        // What was printed stays to be read when the job is over.
        let target = format!("{session}:{window}");
        run(Command::new("tmux").args([
            "set-option",
            "-w",
            "-t",
            &target,
            "remain-on-exit",
            "on",
        ]))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run tmux")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "tmux: {}", said.trim());
    Ok(())
}
