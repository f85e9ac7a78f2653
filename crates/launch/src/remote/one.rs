//! A command on one host, from its start to what is told of it.

use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::marks::Marked;
use super::script::{GRACE, Script};
use super::{Ending, Means, Outcome};
use crate::exit::Exit;
use crate::fleet::host::{self, Host, Way};
use crate::process::{Group, begin_session};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(30);
/// How long SSH may take to end once the command has.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the network may take on top of what is granted to the command.
const NETWORK: Duration = Duration::from_secs(3);
/// What is read at a time.
const PIECE: usize = 64 << 10;
/// Lines of SSH's own words that are told.
const TOLD_LINES: usize = 8;
/// The code of SSH's own failures.
const SSH_FAILED: i32 = 255;
/// The code of timeout(1).
const TIMED_OUT: i32 = 124;
/// The code of a shell that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Whether to give a host up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    /// The command is asked to end.
    Soon,
    /// It is not waited for.
    Now,
}

/// Why a host was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Timeout(Duration),
    Interrupt,
}

/// What every host does.
#[derive(Clone)]
pub(super) struct Work {
    script: Arc<Script>,
    means: Arc<Means>,
}

impl Work {
    pub(super) fn new(script: Script, means: Means) -> Self {
        Self {
            script: Arc::new(script),
            means: Arc::new(means),
        }
    }

    pub(super) async fn run(
        &self,
        index: usize,
        host: &Host,
        stopped: watch::Receiver<Stop>,
    ) -> Outcome {
        let begin = Instant::now();
        let mut stdout = Marked::new(&self.script.mark);
        let mut stderr = Marked::new(&self.script.mark);
        let ending = match self.start(host) {
            Ok(child) => {
                let watched = self.watch(child, &mut stdout, &mut stderr, stopped).await;
                watched.map(|(status, reason)| ending(host, &stdout, &stderr, status, reason))
            }
            Err(error) => Err(error),
        };
        Outcome {
            index,
            ending: ending.unwrap_or_else(|error| Ending::Failed {
                problem: error.to_string(),
                hint: None,
                code: SSH_FAILED,
            }),
            elapsed: begin.elapsed(),
            stdout: stdout.within,
            stderr: stderr.within,
        }
    }

    fn start(&self, host: &Host) -> io::Result<Child> {
        let (program, mut command) = match &host.way {
            Way::Here => {
                let mut command = Command::new("sh");
                command.args(["-c", &self.script.reader()]);
                begin_session(&mut command);
                ("sh", command)
            }
            Way::Ssh(destination) => {
                let mut command = Command::new("ssh");
                let line = self.script.line();
                let (ssh, seconds) = (&self.means.ssh, CONNECT.as_secs());
                command
                    .args(host::ssh_words(destination, ssh, seconds, &line))
                    // Out of the terminal's reach: Ctrl-C is for the launcher.
                    .process_group(0);
                ("ssh", command)
            }
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot run {program}: {error}")))
    }

    /// Reads to the end, which comes early if the host is given up.
    async fn watch(
        &self,
        mut child: Child,
        stdout: &mut Marked,
        stderr: &mut Marked,
        mut stopped: watch::Receiver<Stop>,
    ) -> io::Result<(ExitStatus, Option<Reason>)> {
        let group = Group::led_by(&child);
        let (Some(stdin), Some(out), Some(err)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("the command was started with pipes");
        };
        let (release, released) = oneshot::channel();
        tokio::spawn(feed(stdin, Arc::clone(&self.script), released));
        let limit = async {
            match self.means.timeout {
                Some(limit) => {
                    sleep(limit).await;
                    Reason::Timeout(limit)
                }
                None => std::future::pending().await,
            }
        };
        let begun = AtomicBool::new(false);
        let mut patience = LAST_WORDS;
        let reason = {
            let reading = async {
                tokio::join!(read(out, stdout, &begun), read(err, stderr, &begun));
            };
            let ended = async {
                let mut reading = pin!(reading);
                tokio::select! {
                    () = &mut reading => {}
                    // A process in the background may hold the streams open for ever.
                    _ = child.wait() => drop(timeout(LAST_WORDS, reading).await),
                }
            };
            let mut ended = pin!(ended);
            let reason = tokio::select! {
                () = &mut ended => None,
                reason = limit => Some(reason),
                () = at_least(&mut stopped, Stop::Soon) => Some(Reason::Interrupt),
            };
            if reason.is_some() {
                // The script on the host sees that nobody is there any more, and ends the command.
                drop(release);
                let grace = if begun.load(Ordering::Relaxed) {
                    GRACE + NETWORK
                } else {
                    Duration::ZERO
                };
                tokio::select! {
                    () = &mut ended => {}
                    () = sleep(grace) => patience = Duration::ZERO,
                    () = at_least(&mut stopped, Stop::Now) => patience = Duration::ZERO,
                }
            }
            reason
        };
        let status = match timeout(patience, child.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                if let Some(group) = group {
                    group.kill();
                }
                child.wait().await?
            }
        };
        stdout.finish();
        stderr.finish();
        Ok((status, reason))
    }
}

/// Sends the script, and keeps the stream open until it is released.
async fn feed(mut stdin: ChildStdin, script: Arc<Script>, mut released: oneshot::Receiver<()>) {
    let sent = tokio::select! {
        sent = stdin.write_all(&script.text) => sent,
        _ = &mut released => return,
    };
    // A host that does not read is told of by how SSH ends.
    if sent.is_ok() {
        let _ = released.await;
    }
}

/// Reads until nothing of the command can come any more.
async fn read(mut from: impl AsyncRead + Unpin, into: &mut Marked, begun: &AtomicBool) {
    let mut piece = vec![0; PIECE];
    while !into.over() {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(count) => into.push(&piece[..count]),
        }
        if into.begun() {
            begun.store(true, Ordering::Relaxed);
        }
    }
}

/// Waits for an order to stop, or for ever.
async fn at_least(stopped: &mut watch::Receiver<Stop>, level: Stop) {
    if stopped.wait_for(|stop| *stop >= level).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How a command ended, by what is known of it.
fn ending(
    host: &Host,
    stdout: &Marked,
    stderr: &Marked,
    status: ExitStatus,
    reason: Option<Reason>,
) -> Ending {
    if let Some(code) = stderr.code().or(stdout.code()) {
        return Ending::Exited(Exit::from_shell(code));
    }
    let failed = |problem: String, hint: Option<String>, code| Ending::Failed {
        problem,
        hint,
        code,
    };
    let begun = stdout.begun() || stderr.begun();
    match reason {
        Some(Reason::Interrupt) => return failed("interrupted".into(), None, INTERRUPTED),
        Some(Reason::Timeout(limit)) => {
            let after = format!("after {:.1} s", limit.as_secs_f64());
            return if begun {
                failed(
                    format!("still running {after}; it was ended"),
                    None,
                    TIMED_OUT,
                )
            } else {
                let hint = host::hint("timed out", &host.name);
                failed(format!("no answer {after}"), hint, TIMED_OUT)
            };
        }
        None => {}
    }
    if begun {
        // Whoever ended the shell there, or SSH's own last words.
        let said = stderr.within.last_lines(1);
        let why = if status.code() == Some(SSH_FAILED) && !said.is_empty() {
            said
        } else {
            status.to_string()
        };
        let problem = format!("it was lost before the command ended: {why}");
        return failed(problem, None, SSH_FAILED);
    }
    // Where no command begins, everything on the streams is SSH's or the login shell's.
    let said =
        [&stderr.before, &stdout.before].map(|kept| (kept.last_lines(TOLD_LINES), kept.text()));
    match said.into_iter().find(|(lines, _)| !lines.is_empty()) {
        Some((lines, all)) => failed(lines, host::hint(&all, &host.name), SSH_FAILED),
        None => {
            let problem = format!("the command did not start ({status})");
            failed(problem, None, SSH_FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn marked(text: &str) -> Marked {
        let mut marked = Marked::new("mark");
        marked.push(text.as_bytes());
        marked.finish();
        marked
    }

    fn told(stdout: &str, stderr: &str, code: i32, reason: Option<Reason>) -> (String, i32) {
        let status = ExitStatus::from_raw(code << 8);
        let (stdout, stderr) = (marked(stdout), marked(stderr));
        match ending(&Host::here(), &stdout, &stderr, status, reason) {
            Ending::Exited(exit) => (exit.to_string(), exit.code()),
            Ending::Failed {
                problem,
                hint,
                code,
            } => (format!("{problem}|{}", hint.unwrap_or_default()), code),
        }
    }

    #[test]
    fn a_command_s_own_255_is_told_from_ssh_s() {
        let whole = "markbegun;x\nmark255;";
        assert_eq!(
            told(whole, whole, 255, None),
            ("exited with code 255".into(), 255)
        );
        let (text, code) = told(
            "",
            "ssh: connect to host b port 22: Connection refused\r\n",
            255,
            None,
        );
        assert!(
            text.starts_with("ssh: connect to host b port 22: Connection refused|does an"),
            "{text}"
        );
        assert_eq!(code, 255);
        let cut = "markbegun;x\nConnection to b closed by remote host.\r\n";
        let (text, code) = told("markbegun;", cut, 255, None);
        assert!(
            text.contains("lost before the command ended: Connection to b closed"),
            "{text}"
        );
        assert_eq!(code, 255);
    }

    #[test]
    fn what_a_login_shell_says_instead_of_the_command_is_told() {
        let (text, _) = told("This account is currently not available.\n", "", 1, None);
        assert_eq!(text, "This account is currently not available.|");
        let (text, _) = told("", "", 0, None);
        assert!(text.contains("did not start"), "{text}");
    }

    #[test]
    fn giving_up_is_told_unless_the_command_ended_first() {
        let limit = Some(Reason::Timeout(Duration::from_secs(2)));
        let (text, code) = told("markbegun;", "markbegun;", 137, limit);
        assert_eq!(
            (text.as_str(), code),
            ("still running after 2.0 s; it was ended|", 124)
        );
        let (text, code) = told("", "", 137, limit);
        assert!(
            text.starts_with("no answer after 2.0 s|is the host up"),
            "{text}"
        );
        assert_eq!(code, 124);
        assert_eq!(told("markbegun;mark0;", "markbegun;mark0;", 0, limit).1, 0);
        assert_eq!(told("", "", 137, Some(Reason::Interrupt)).1, 130);
    }
}
