//! One command on many hosts at the same time, over plain SSH.
//!
//! Hosts need an SSH server and `sh`, nothing of Carole's. A job's ranks are started another way,
//! by an agent: see [`fleet`](crate::fleet).
//!
//! # Expected flow
//!
//! [`run`] starts the command on every host, here by `sh` and elsewhere through SSH, and tells of
//! each when it has ended: how, after how long, and what it printed.
//!
//! # Guarantees
//!
//! - The command's words arrive as they were given, whichever shell the user has on a host.
//! - What is kept of what a host prints is bounded.
//! - A command whose host is given up, for a timeout, an interrupt or a lost connection, is ended
//!   there, with its process group (see `script.rs`).

mod kept;
mod marks;
mod one;
mod quote;
mod script;

use std::ffi::OsString;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use kept::Kept;
pub use quote::command_line;

use self::one::{Stop, Work};
use self::script::Script;
use crate::error::Error;
use crate::exit::Exit;
use crate::fleet::{Host, Order};
use crate::interrupt::Interrupt;
use crate::random::random_word;
use crate::request::Ssh;

/// How the hosts are reached, and how long each may take.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// How SSH gets there.
    pub ssh: Ssh,
    /// How long connecting and the command may take together.
    pub timeout: Option<Duration>,
}

/// What came of a command on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The host's place in the list.
    pub index: usize,
    /// How it ended.
    pub ending: Ending,
    /// How long it took.
    pub elapsed: Duration,
    /// What the command printed.
    pub stdout: Kept,
    /// What it printed to its standard error.
    pub stderr: Kept,
}

/// How a command on a host ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Exited(Exit),
    /// It could not be started, or its end is not known, or it was given up.
    Failed {
        /// Why: what SSH said, where it said something.
        problem: String,
        /// What may help.
        hint: Option<String>,
        /// The code for it: 255 as SSH has it, 124 for a timeout as timeout(1) has it.
        code: i32,
    },
}

impl Ending {
    /// Whether the command ended well.
    pub fn success(&self) -> bool {
        self.code() == 0
    }

    /// The code a shell would give.
    pub fn code(&self) -> i32 {
        match self {
            Self::Exited(exit) => exit.code(),
            Self::Failed { code, .. } => *code,
        }
    }
}

/// Runs a command on every host, and tells of each as it ends. `told` may say that it is enough.
///
/// The first interrupt ends the command on all hosts and is returned when that is done; the second
/// does not wait any longer.
pub async fn run<E>(
    hosts: &[Host],
    words: &[OsString],
    means: &Means,
    mut orders: mpsc::UnboundedReceiver<Order>,
    mut told: impl FnMut(Outcome) -> Result<(), E>,
) -> Result<Result<Option<Interrupt>, E>, Error> {
    let script = Script::new(words, &random_word()?, &random_word()?);
    let work = Work::new(script, means.clone());
    let (stop, stopped) = watch::channel(Stop::No);
    let mut running = JoinSet::new();
    for (index, host) in hosts.iter().cloned().enumerate() {
        let (work, stopped) = (work.clone(), stopped.clone());
        running.spawn(async move { work.run(index, &host, stopped).await });
    }
    let mut interrupted = None;
    let mut orders_open = true;
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(Ok(outcome)) => if let Err(enough) = told(outcome) {
                    return Ok(Err(enough));
                },
                Some(Err(error)) => return Err(Error::Internal(error.to_string())),
                None => return Ok(Ok(interrupted)),
            },
            order = orders.recv(), if orders_open => match order {
                Some(Order::Interrupt(interrupt)) => {
                    let again = interrupted.replace(interrupt).is_some();
                    stop.send_replace(if again { Stop::Now } else { Stop::Soon });
                }
                Some(Order::GiveUp(_)) => {
                    stop.send_replace(Stop::Soon);
                }
                None => orders_open = false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn here(words: &[&str], timeout: Option<Duration>) -> Outcome {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let means = Means {
            timeout,
            ..Means::default()
        };
        let (_orders, received) = mpsc::unbounded_channel();
        let mut outcomes = Vec::new();
        let told = |outcome| {
            outcomes.push(outcome);
            Ok::<(), ()>(())
        };
        let interrupted = run(&[Host::here()], &words, &means, received, told).await;
        assert_eq!(interrupted.unwrap(), Ok(None));
        outcomes.remove(0)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_command_on_this_host_is_told_with_all_it_printed() {
        let outcome = block_on(here(
            &["sh", "-c", "echo a; echo b >&2; kill -SEGV $$"],
            None,
        ));
        assert_eq!(outcome.ending, Ending::Exited(Exit::Signal(11)));
        assert_eq!(outcome.stdout.text(), "a\n");
        assert!(outcome.stderr.text().starts_with("b\n"), "{outcome:?}");
    }

    #[test]
    fn long_output_loses_its_middle() {
        let script = "head -c 10000000 /dev/zero; echo end";
        let outcome = block_on(here(&["sh", "-c", script], None));
        assert_eq!(outcome.ending, Ending::Exited(Exit::Code(0)));
        assert_eq!(outcome.stdout.cut(), 10_000_004 - (4 << 20));
        assert!(outcome.stdout.end().ends_with(b"\0end\n"));
    }

    #[test]
    fn what_a_command_leaves_in_the_background_is_not_waited_for() {
        // It holds the streams, and is ended through the number that was printed.
        let outcome = block_on(here(&["sh", "-c", "sleep 1000 & echo $!"], None));
        assert_eq!(outcome.ending, Ending::Exited(Exit::Code(0)));
        let id = outcome.stdout.text().trim().parse().unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("it still runs");
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let script = "trap 'echo cleaned; exit 0' TERM; sleep 1000 & echo $!; wait";
        let limit = Duration::from_secs(2);
        let outcome = block_on(here(&["sh", "-c", script], Some(limit)));
        assert_eq!(outcome.ending.code(), 124, "{outcome:?}");
        let text = outcome.stdout.text();
        let (id, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "cleaned\n");
        let ended = || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"));
            status.map_or(true, |status| status.contains("State:\tZ"))
        };
        let begin = std::time::Instant::now();
        while !ended() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it is left behind"
            );
            std::thread::yield_now();
        }
    }
}
