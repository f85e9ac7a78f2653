//! The launcher's end of one agent's channel.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tracing::debug;

use super::binary::{self, Binary};
use super::host::{self, AgentCommand, Host, Way};
use super::pipes::Pipes;
use crate::agent::tunnel::{self, Tunnels};
use crate::channel::frame::{Frame, Reader};
use crate::channel::message::{Order, Report};
use crate::error::HostProblem;
use crate::output::Stream;
use crate::request::Ssh;

/// Frames that may wait to be sent.
const QUEUE: usize = 64;
/// What a shell may print before the script's first word: greetings of all kinds.
const LONGEST_GREETING: usize = 64 << 10;
/// How long SSH's last words may take once it has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Lines of SSH's own words that are kept for an error.
const KEPT_LINES: usize = 8;

/// What comes from an agent.
#[derive(Debug)]
pub(super) enum Incoming {
    Report(Report),
    Printed {
        rank: usize,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The channel has ended, and what is known about it.
    Ended(HostProblem),
}

impl Incoming {
    /// The rank that this is about, if it is about one.
    pub(super) fn rank(&self) -> Option<usize> {
        match self {
            Self::Printed { rank, .. }
            | Self::Report(
                Report::Exited { rank, .. }
                | Report::Drained { rank, .. }
                | Report::NotStarted { rank, .. }
                | Report::Progress { rank, .. }
                | Report::Took { rank },
            ) => Some(*rank),
            Self::Report(_) | Self::Ended(_) => None,
        }
    }
}

/// How agents are started.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) agent: AgentCommand,
    pub(super) ssh: Ssh,
    /// What to send to other hosts; none where all are this one.
    pub(super) binary: Option<Binary>,
    pub(super) connect_seconds: u64,
}

/// A channel to an agent. The agent ends when this is dropped.
pub(super) struct Link {
    orders: mpsc::Sender<Vec<u8>>,
    pub(super) incoming: mpsc::Receiver<Incoming>,
    coordinator: Arc<Mutex<Option<SocketAddr>>>,
}

impl Link {
    /// Starts an agent on a host.
    pub(super) async fn open(host: &Host, means: &Means) -> Result<Self, HostProblem> {
        let problem = |problem: String| HostProblem {
            host: host.name.clone(),
            hint: host::hint(&problem, &host.name),
            problem,
        };
        let (mut child, near) = start(host, means).map_err(|error| problem(error.to_string()))?;
        let Some(stdout) = child.stdout.take() else {
            unreachable!("the agent was started with pipes");
        };
        let mut stdout = BufReader::new(stdout);
        let said = Said::default();
        let stderr = child.stderr.take();
        let hearing = stderr.map(|stderr| tokio::spawn(said.clone().listen(stderr)));
        if let (Way::Ssh(_), Some(binary), Some(stdin)) =
            (&host.way, &means.binary, &mut child.stdin)
            && let Err(error) = install(binary, stdin, &mut stdout).await
        {
            // SSH says why once it ends.
            drop(child.stdin.take());
            let status = child.wait().await;
            if let Some(hearing) = hearing {
                let _ = tokio::time::timeout(LAST_WORDS, hearing).await;
            }
            let words = said.text();
            debug!(?status, %error, words, "no agent");
            let known = error.kind() == io::ErrorKind::Unsupported;
            return Err(problem(if words.is_empty() || known {
                error.to_string()
            } else {
                words
            }));
        }
        let (orders, queue) = mpsc::channel(QUEUE);
        let (events, incoming) = mpsc::channel(QUEUE);
        let coordinator = Arc::default();
        let frames = orders.clone();
        let pipes = match (child.stdin.take(), near) {
            (Some(stdin), _) => {
                tokio::spawn(write(stdin, queue));
                None
            }
            (None, Some(near)) => {
                let (taking, giving) = near.into_split();
                tokio::spawn(write(giving, queue));
                let pipes = Arc::new(Pipes::default());
                let (events, orders) = (events.clone(), orders.downgrade());
                tokio::spawn(Arc::clone(&pipes).serve(taking, events, orders));
                Some(pipes)
            }
            (None, None) => unreachable!("the agent was started with a standard input"),
        };
        let listening = Listening {
            pipes,
            host: host.name.clone(),
            coordinator: Arc::clone(&coordinator),
            frames,
            events,
            said,
        };
        tokio::spawn(listening.run(child, stdout));
        Ok(Self {
            orders,
            incoming,
            coordinator,
        })
    }

    /// Connections to the coordinator that come through the channel go here.
    pub(super) fn serve_coordinator(&self, address: SocketAddr) {
        let mut coordinator = self
            .coordinator
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *coordinator = Some(address);
    }

    /// The way to the agent, for whoever must not keep it open.
    pub(super) fn orders(&self) -> mpsc::WeakSender<Vec<u8>> {
        self.orders.downgrade()
    }

    /// Where frames for the agent are put; waits while many wait to be sent.
    pub(super) fn frames(&self) -> &mpsc::Sender<Vec<u8>> {
        &self.orders
    }

    pub(super) async fn order(&self, order: Order) {
        // An agent that is gone is told of by its last event.
        let _ = self.orders.send(Frame::Order(order).encode()).await;
    }
}

/// Starts an agent. The standard input of one on this host is the other end of the socket, so that
/// it can hand pipes over.
fn start(host: &Host, means: &Means) -> io::Result<(Child, Option<UnixStream>)> {
    let mut near = None;
    let mut command = match &host.way {
        Way::Here => {
            let mut command = Command::new(&means.agent.program);
            command.args(&means.agent.arguments);
            let (own, far) = StdUnixStream::pair()?;
            own.set_nonblocking(true)?;
            near = Some(UnixStream::from_std(own)?);
            command.stdin(OwnedFd::from(far));
            command
        }
        Way::Ssh(destination) => {
            let script = means.binary.as_ref().map(Binary::script);
            let script = script.unwrap_or_else(|| "exit 1".into());
            let mut command = Command::new("ssh");
            command.args(host::ssh_words(
                destination,
                &means.ssh,
                means.connect_seconds,
                &script,
            ));
            command.stdin(Stdio::piped()).stderr(Stdio::piped());
            command
        }
    };
    command
        .stdout(Stdio::piped())
        // Out of the terminal's reach: Ctrl-C is for the launcher.
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn().map_err(|error| {
        let program = command
            .as_std()
            .get_program()
            .to_string_lossy()
            .into_owned();
        io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
    })?;
    Ok((child, near))
}

/// Has the host say whether it needs the binary, and sends it. An error that says all there is to
/// say, whatever SSH says besides, is one of [`io::ErrorKind::Unsupported`].
async fn install(
    binary: &Binary,
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
) -> io::Result<()> {
    let word = script_word(stdout).await?;
    let Some(platform) = word.strip_prefix(binary::NEED) else {
        return Ok(());
    };
    let (platform, own) = (platform.trim(), binary::platform());
    if platform != own {
        let problem = format!("it is a {platform} machine, and this carole is for {own}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    stdin.write_all(b"go\n").await?;
    stdin.write_all(binary.bytes()?).await?;
    stdin.flush().await?;
    match script_word(stdout).await? {
        word if word == binary::STORED => Ok(()),
        word => Err(io::Error::other(format!("it said {word:?}"))),
    }
}

/// The next word of the script, past whatever the shell prints.
async fn script_word(stdout: &mut BufReader<ChildStdout>) -> io::Result<String> {
    let mut greeting = stdout.take(LONGEST_GREETING as u64);
    loop {
        let mut line = Vec::new();
        if greeting.read_until(b'\n', &mut line).await? == 0 {
            return Err(io::Error::other("the agent did not start"));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if [binary::HAVE, binary::NEED, binary::STORED]
            .iter()
            .any(|word| text.starts_with(word))
        {
            return Ok(text.to_owned());
        }
    }
}

/// Sends orders until nobody gives any, then closes the channel.
async fn write(mut to: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = to.write_all(&frame).await {
            debug!(%error, "an agent does not read any more");
            return;
        }
    }
}

/// The side that listens to an agent.
struct Listening {
    host: String,
    coordinator: Arc<Mutex<Option<SocketAddr>>>,
    frames: mpsc::Sender<Vec<u8>>,
    events: mpsc::Sender<Incoming>,
    said: Said,
    /// Those that an agent on this host hands over.
    pipes: Option<Arc<Pipes>>,
}

impl Listening {
    async fn run(self, mut child: Child, stdout: BufReader<ChildStdout>) {
        let mut reader = Reader::new(stdout);
        let mut tunnels = Tunnels::default();
        // The link's own sender is the last but this one: without it the orders would never end.
        let frames = self.frames.downgrade();
        drop(self.frames);
        let broken = loop {
            let event = match reader.next().await {
                Ok(Some(Frame::Report(report))) => {
                    if let (
                        Report::Drained {
                            rank,
                            handed_over: true,
                        },
                        Some(pipes),
                    ) = (&report, &self.pipes)
                    {
                        pipes.drain(*rank).await;
                    }
                    Incoming::Report(report)
                }
                Ok(Some(Frame::Printed {
                    rank,
                    stream,
                    bytes,
                })) => Incoming::Printed {
                    rank,
                    stream,
                    bytes: bytes.to_vec(),
                },
                Ok(Some(Frame::TunnelOpen(id))) => {
                    let address = *self
                        .coordinator
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    if let (Some(address), Some(frames)) = (address, frames.upgrade()) {
                        tokio::spawn(reach(id, address, tunnels.begin(id), frames));
                    }
                    continue;
                }
                Ok(Some(Frame::TunnelData(id, bytes))) => {
                    tunnels.data(id, bytes);
                    continue;
                }
                Ok(Some(Frame::TunnelEnd(id))) => {
                    tunnels.end(id);
                    continue;
                }
                Ok(Some(Frame::Order(_) | Frame::Input { .. } | Frame::FileData(..))) => {
                    break Some("it gave an order".to_owned());
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            };
            if self.events.send(event).await.is_err() {
                break None;
            }
        };
        drop(reader);
        if let Some(pipes) = &self.pipes {
            pipes.end().await;
        }
        let ended = child.wait().await;
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = self.said.text();
        let problem = match (broken, words.is_empty()) {
            (Some(broken), _) => format!("the channel broke: {broken}"),
            (None, false) => words,
            (None, true) => format!("its agent ended ({status})"),
        };
        // Nobody listens when the job is over.
        let _ = self
            .events
            .send(Incoming::Ended(HostProblem {
                hint: host::hint(&problem, &self.host),
                host: self.host,
                problem,
            }))
            .await;
    }
}

/// Connects a rank's connection to the coordinator.
async fn reach(
    id: u32,
    address: SocketAddr,
    incoming: mpsc::UnboundedReceiver<Vec<u8>>,
    frames: mpsc::Sender<Vec<u8>>,
) {
    match TcpStream::connect(address).await {
        Ok(stream) => tunnel::carry(id, stream, incoming, frames).await,
        Err(error) => {
            debug!(%error, "no connection to the coordinator");
            let _ = frames.send(Frame::TunnelEnd(id).encode()).await;
        }
    }
}

/// The last lines of what SSH, or the agent there, said on its standard error.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    async fn listen(self, from: impl AsyncRead + Unpin) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut from).take(4096).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line).trim().to_owned();
                    debug!(text, "an agent's standard error");
                    // No reason for anything.
                    if text.starts_with("Warning: Permanently added") {
                        continue;
                    }
                    let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    if lines.len() == KEPT_LINES {
                        lines.pop_front();
                    }
                    lines.push_back(text);
                }
            }
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.join("; ")
    }
}
