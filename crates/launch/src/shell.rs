//! The remote shell of a job: `rsh HOST COMMAND` through the agents' channel.
//!
//! # Expected flow
//!
//! An MPI starts its daemons on other hosts with a program that takes the words of `rsh` or `ssh`.
//! Under Carole that is this binary: [`ask`] tells the launcher, over a socket in the private folder
//! of the job's first agent, which command is wanted where. The launcher has that host's agent run
//! it, and carries input, output and the exit code (`fleet/shell.rs`). No other way leads to the
//! hosts, and what the daemons leave there ends with the agents.
//!
//! # Guarantees
//!
//! Only who can read the job's token is served. Neither side holds more than a few pieces of what
//! the other does not take. When this program ends first, the command is asked to end.
//!
//! # Caveats
//!
//! Options of `rsh` and `ssh` are read and have no effect: the agents are there already, as whom and
//! how the job said. There is no terminal at the other end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use carole_coordinator::Token;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::channel::frame::{Frame, Reader};
use crate::channel::message::{Order, Report, Shell, Word};
use crate::output::Stream;
use crate::private::TOKEN;

/// The first word with which a program is a remote shell.
pub const COMMAND: &str = "remote-shell";
/// The name of a program under which it is one without that word.
pub const NAME: &str = "carole-remote-shell";
/// The variable that names the folder of the socket.
pub const VARIABLE: &str = "CAROLE_REMOTE_SHELL";
/// The code of a command that could not be run, as SSH's.
pub const FAILED: u8 = 255;

/// The socket's name in that folder.
pub(crate) const SOCKET: &str = "shell";
/// How much input is sent at once.
const PIECE: usize = 16 << 10;
/// The options of `ssh` and `rsh` that have a value.
const VALUED: &[u8] = b"BbcDEeFIiJLlmOopQRSWw";

/// Why a command was not run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// No host or no command among the words.
    #[error("a host and a command are needed")]
    Words,
    /// Not started by a job.
    #[error("{VARIABLE} is not set: this is no process of a job with a remote shell")]
    NoJob,
    /// The launcher cannot be asked.
    #[error("cannot ask the launcher")]
    Launcher(#[source] io::Error),
    /// The job's token cannot be read.
    #[error(transparent)]
    Token(#[from] carole_coordinator::Error),
    /// The host cannot run it.
    #[error("{host}: {problem}")]
    Host {
        /// The host.
        host: String,
        /// Why not.
        problem: String,
    },
}

/// A host and what it shall run, as the words of `rsh` say.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    host: String,
    command: OsString,
}

impl Wanted {
    /// Options may stand before the host and behind it.
    fn read(words: &[OsString]) -> Result<Self, ShellError> {
        let rest = skip_options(words);
        let (host, rest) = rest.split_first().ok_or(ShellError::Words)?;
        let command = skip_options(rest).join(OsStr::new(" "));
        let host = host.to_string_lossy();
        let host = host.rsplit_once('@').map_or(&*host, |(_, host)| host);
        if host.is_empty() || command.is_empty() {
            return Err(ShellError::Words);
        }
        Ok(Self {
            host: host.to_owned(),
            command,
        })
    }
}

/// The words from the first on that is no option and no option's value.
fn skip_options(mut words: &[OsString]) -> &[OsString] {
    while let Some((first, rest)) = words.split_first() {
        let letters = match first.as_bytes() {
            b"--" => return rest,
            [b'-', letters @ ..] if !letters.is_empty() => letters,
            _ => break,
        };
        // A value is the rest of the word or, where that is empty, the next word.
        let valued = letters.iter().position(|letter| VALUED.contains(letter));
        let apart = valued.is_some_and(|at| at + 1 == letters.len());
        words = rest.get(usize::from(apart)..).unwrap_or_default();
    }
    words
}

/// Has the launcher run what `words` say, as `rsh` takes them, and is its input and output; the exit
/// code.
pub fn ask(words: &[OsString]) -> Result<u8, ShellError> {
    let wanted = Wanted::read(words)?;
    let folder = std::env::var_os(VARIABLE).ok_or(ShellError::NoJob)?;
    let token = Token::read(&Path::new(&folder).join(TOKEN))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ShellError::Launcher)?;
    runtime.block_on(converse(Path::new(&folder), &token, wanted))
}

async fn converse(folder: &Path, token: &Token, wanted: Wanted) -> Result<u8, ShellError> {
    let host = wanted.host;
    let failed = |problem: String| ShellError::Host {
        host: host.clone(),
        problem,
    };
    let opened = File::open(folder).map_err(ShellError::Launcher)?;
    let stream = UnixStream::connect(socket_in(&opened)).await;
    let (from, mut to) = stream.map_err(ShellError::Launcher)?.into_split();
    let mut reader = Reader::new(from);
    let first = Frame::Order(Order::Shell(Shell {
        token: token.to_hex(),
        host: host.clone(),
        command: Word::from(wanted.command.as_os_str()),
    }));
    to.write_all(&first.encode())
        .await
        .map_err(ShellError::Launcher)?;
    let mut input = standard_input();
    // Whether the last piece has been taken.
    let mut may_send = true;
    loop {
        tokio::select! {
            piece = input.recv(), if may_send => {
                let piece = piece.unwrap_or_default();
                may_send = false;
                let frame = Frame::Input { rank: 0, bytes: &piece };
                // A launcher that is gone is noticed below.
                let _ = to.write_all(&frame.encode()).await;
            }
            frame = reader.next() => match frame.map_err(ShellError::Launcher)? {
                Some(Frame::Printed { stream, bytes, .. }) => {
                    print(stream, bytes).map_err(|error| failed(error.to_string()))?;
                }
                Some(Frame::Report(Report::Took { .. })) => may_send = true,
                Some(Frame::Report(Report::Exited { exit, .. })) => {
                    return Ok(u8::try_from(exit.code()).unwrap_or(FAILED));
                }
                Some(Frame::Report(Report::NotStarted { problem, .. })) => {
                    return Err(failed(problem));
                }
                Some(_) => {}
                None => return Err(failed("the launcher is gone".into())),
            }
        }
    }
}

/// The pieces of this process's input; nothing more after its end.
fn standard_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    // A thread that may wait for ever: it ends with the process.
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = vec![0; PIECE];
        while let Ok(count @ 1..) = stdin.read(&mut bytes) {
            if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn print(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let write = |to: &mut dyn Write| to.write_all(bytes).and_then(|()| to.flush());
    match stream {
        Stream::Stdout => write(&mut io::stdout().lock()),
        Stream::Stderr => write(&mut io::stderr().lock()),
    }
}

/// The socket's path by way of the open folder: paths of sockets may not be long.
pub(crate) fn socket_in(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, String), ShellError> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let wanted = Wanted::read(&words)?;
        Ok((wanted.host, wanted.command.into_string().unwrap()))
    }

    #[test]
    fn the_words_of_rsh_and_ssh_name_a_host_and_a_command() {
        for line in [
            "b orted -x 1",
            "-x b orted -x 1",
            "-x -n -q -l ann b orted -x 1",
            "-nql ann -p2222 -o Compression=yes ann@b orted -x 1",
            "b -l ann -n orted -x 1",
            "-T -- b orted -x 1",
        ] {
            let expected = ("b".to_owned(), "orted -x 1".to_owned());
            assert_eq!(read(line).unwrap(), expected, "{line}");
        }
        for line in ["b", "-l ann", "-x", "ann@ true", "-l"] {
            assert!(matches!(read(line), Err(ShellError::Words)), "{line}");
        }
    }
}
