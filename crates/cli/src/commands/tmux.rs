//! `--terminal tmux`: a session of tmux for each host, with a window for each of its ranks.
//!
//! The windows follow what the ranks print, as `carole logs -f` does; the launcher stays where it was
//! started. Whoever wants to look attaches; closing a window or a session stops nothing. When the job
//! is over, a window stays until a key is pressed in it, so that the last lines can be read; with its
//! last window a session is gone.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, ensure};
use carole_launch::registry::{RankRecord, Record};

use crate::failure::Failure;

/// Runs its words, then waits for a key.
const FOLLOW: &str = r#""$@"; printf '\n[the job is over: a key closes this window]'
stty -icanon -echo; dd bs=1 count=1 >/dev/null 2>&1"#;

/// What must be there.
pub(super) fn check() -> Result<(), Failure> {
    if super::run::exists("tmux") {
        return Ok(());
    }
    Err(Failure::usage(anyhow!("--terminal tmux: there is no tmux"))
        .with_hint("install tmux, or use --terminal current"))
}

/// Opens a window for each of a job's processes; the hosts with a session, and its name.
///
/// Sessions that an earlier job of this name left are closed. With `again` the job's own, of an
/// earlier attempt, are used, so that nobody who looks is thrown out.
pub(super) fn open(job: &Record, again: bool) -> anyhow::Result<Vec<(String, String)>> {
    let carole = std::env::current_exe().context("cannot find this binary")?;
    let mut sessions = Vec::new();
    for host in &job.hosts {
        let name = &host.host.name;
        let ranks = job.ranks.iter().enumerate();
        let mut ranks = ranks.filter(|(_, rank)| rank.host == *name).peekable();
        if ranks.peek().is_none() {
            continue;
        }
        let session = session(&job.name, name);
        let mut old = tmux(&["has-session", "-t", &exactly(&session)]).is_ok();
        if old && !again {
            tmux(&["kill-session", "-t", &exactly(&session)])?;
            old = false;
        }
        for (place, (number, rank)) in ranks.enumerate() {
            let follow = follow(&carole, &job.name, number);
            if old {
                renew_window(&session, rank, &follow)?;
            } else {
                new_window(&session, rank, &follow, place == 0)?;
            }
        }
        sessions.push((name.clone(), session));
    }
    Ok(sessions)
}

/// The name of a host's session, without the characters that tmux replaces so itself.
fn session(job: &str, host: &str) -> String {
    format!("carole-{job}-{host}").replace(['.', ':'], "_")
}

/// A session of this name, and not one that begins so.
fn exactly(session: &str) -> String {
    format!("={session}")
}

/// Opens the window of a rank, the first of a session with the session.
fn new_window(
    session: &str,
    rank: &RankRecord,
    follow: &[OsString],
    first: bool,
) -> anyhow::Result<()> {
    let (name, within) = (window(rank), format!("{}:", exactly(session)));
    let words = if first {
        ["new-session", "-d", "-s", session, "-n", &name]
    } else {
        ["new-window", "-d", "-t", &within, "-n", &name]
    };
    tmux(&[&words.map(OsString::from), follow].concat())
}

/// Has the window of a rank begin anew.
fn renew_window(session: &str, rank: &RankRecord, follow: &[OsString]) -> anyhow::Result<()> {
    let old = format!("{}:={}", exactly(session), window(rank));
    let words = ["respawn-window", "-k", "-t", &old].map(OsString::from);
    // Somebody may have closed it.
    tmux(&[&words, follow].concat()).or_else(|_| new_window(session, rank, follow, false))
}

/// The name of a rank's window.
fn window(rank: &RankRecord) -> String {
    rank.name.replace(' ', "-")
}

/// What a window runs.
fn follow(carole: &Path, job: &str, rank: usize) -> Vec<OsString> {
    // The server of tmux may have been started with another environment.
    let mut words: Vec<OsString> = vec!["env".into()];
    for name in ["HOME", "XDG_STATE_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
    }
    words.extend(["sh", "-c", FOLLOW, "sh"].map(OsString::from));
    words.push(carole.into());
    let rank = rank.to_string();
    words.extend(["logs", job, "--rank", &rank, "-f"].map(OsString::from));
    words
}

fn tmux(words: &[impl AsRef<std::ffi::OsStr>]) -> anyhow::Result<()> {
    let done = Command::new("tmux")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("cannot run tmux")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "tmux: {}", said.trim());
    Ok(())
}
