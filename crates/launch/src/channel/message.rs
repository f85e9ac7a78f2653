//! Orders to an agent, and its reports.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use carole_plan::PortRange;
use serde::{Deserialize, Serialize};

use super::examination::{Examine, Examined, Listen, Probe, Probed};
use super::folder::{SyncOrder, SyncReport};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::usage::{Traffic, Usage};

/// What the two sides must agree on: the launcher sends its own binary, so that a difference means
/// a broken installation.
pub(crate) const PROTOCOL: u32 = 1;

/// What the launcher asks of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Take a folder in.
    Sync(SyncOrder),
    Prepare(Prepare),
    Start(Start),
    /// Signals the ranks that run.
    Signal(Signal),
    /// The pipes of a rank that were handed over have ended.
    Closed {
        rank: usize,
    },
    /// A piece of what a remote shell's command printed has been taken; another may be sent.
    Took {
        rank: usize,
    },
    /// Nobody waits for a remote shell's command any more.
    HangUp {
        rank: usize,
    },
    /// What a remote shell asks of the launcher, first of all.
    Shell(Shell),
    Examine(Examine),
    /// Tell the time.
    Clock,
    Listen(Listen),
    Probe(Probe),
    /// Everything ends, at once.
    End,
}

/// What has to be there before ranks can be described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    /// How many ports to reserve.
    pub(crate) ports: usize,
    /// Where they are taken from; any without it.
    pub(crate) within: Option<PortRange>,
    /// Which interface's address is told, the first that exists; none for the one through which
    /// the launcher came.
    pub(crate) interfaces: Vec<String>,
    /// Whether connections to the coordinator go through the channel.
    pub(crate) tunnel: bool,
    /// The job's secret, in hexadecimal digits.
    pub(crate) token: String,
    /// A shell command to run first.
    pub(crate) setup: Option<String>,
    /// The folder in which everything runs.
    pub(crate) folder: Option<Word>,
}

/// The ranks to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) ranks: Vec<RankStart>,
    /// How long ranks may take to end when the launcher is gone.
    pub(crate) grace: Duration,
    /// Whether the launcher reads the ranks' pipes itself, which are handed to it.
    pub(crate) hand_over: bool,
    /// How often to tell what they use, if at all.
    pub(crate) usage: Option<Duration>,
}

/// One rank, and what it sees beside what the agent sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStart {
    pub(crate) rank: usize,
    pub(crate) program: Word,
    pub(crate) arguments: Vec<Word>,
    pub(crate) variables: Vec<(String, Word)>,
    /// The cores that it is bound to; any if empty.
    pub(crate) cores: Vec<usize>,
    /// It is the command of a remote shell: it has an input, and no more of what it prints is sent
    /// than is taken.
    pub(crate) shell: bool,
}

/// A command for a host of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shell {
    /// The job's secret, in hexadecimal digits.
    pub(crate) token: String,
    /// The host's name.
    pub(crate) host: String,
    /// What its shell shall run.
    pub(crate) command: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Signal {
    Terminate,
    Kill,
}

/// What an agent tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The first report.
    Hello(Hello),
    Sync(SyncReport),
    Prepared(Prepared),
    /// Taking a folder in, or preparing, failed; why.
    Refused(String),
    /// A rank could not be started; why. None of this host's run then.
    NotStarted {
        rank: usize,
        problem: String,
    },
    /// All ranks were started: their processes, in the order of the ranks.
    Started(Vec<i32>),
    /// How far a rank is.
    Progress {
        rank: usize,
        progress: Progress,
    },
    /// What the ranks that run use, and the host.
    Usage(HostUsage),
    /// A rank's first process ended.
    Exited {
        rank: usize,
        exit: Exit,
    },
    /// Nothing of a rank is left, and all that it printed has been sent, or is in the pipes that
    /// were handed over.
    Drained {
        rank: usize,
        handed_over: bool,
    },
    /// A piece of the input of a remote shell's command has been taken; another may be sent.
    Took {
        rank: usize,
    },
    Examined(Box<Examined>),
    /// The time, in nanoseconds since 1970.
    Clock(u64),
    /// The port that is listened on, or why none is.
    Listening(Result<u16, String>),
    Probed(Result<Probed, String>),
}

/// What is used on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostUsage {
    pub(crate) ranks: Vec<(usize, Usage)>,
    pub(crate) traffic: Traffic,
}

/// What an agent's host is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) version: String,
    pub(crate) cores: usize,
    /// Cores by NUMA node.
    pub(crate) nodes: Vec<Vec<usize>>,
    pub(crate) gpus: usize,
}

/// What an agent has prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The host's address, for the other hosts.
    pub(crate) address: IpAddr,
    /// The launcher's, as it looks from there.
    pub(crate) launcher: Option<IpAddr>,
    pub(crate) ports: Vec<u16>,
    /// The port on which the agent offers the coordinator, if it does.
    pub(crate) coordinator: Option<u16>,
    /// The file with the job's secret.
    pub(crate) token_file: Word,
}

/// Text of the operating system: mostly text, else bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word {
    Text(String),
    Bytes(Vec<u8>),
}

impl Word {
    pub(crate) fn as_os_str(&self) -> &OsStr {
        match self {
            Self::Text(text) => text.as_ref(),
            Self::Bytes(bytes) => OsStr::from_bytes(bytes),
        }
    }
}

impl From<&OsStr> for Word {
    fn from(word: &OsStr) -> Self {
        match word.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(word.as_bytes().to_vec()),
        }
    }
}

impl From<Word> for OsString {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text.into(),
            Word::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_text_survive() {
        for bytes in [&b"plain"[..], b"\xff\xfe not text", b""] {
            let word = Word::from(OsStr::from_bytes(bytes));
            let json = serde_json::to_string(&word).unwrap();
            let back: Word = serde_json::from_str(&json).unwrap();
            assert_eq!(OsString::from(back), OsStr::from_bytes(bytes));
        }
    }
}
