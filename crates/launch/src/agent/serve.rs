//! What the agent does with the launcher's orders.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use carole_coordinator::Token;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::debug;

use super::examine;
use super::host;
use super::meter::Meter;
use super::probe::Probing;
use super::ranks::{NotStarted, Ranks};
use super::tunnel::{self, Tunnels};
use crate::channel::folder::SyncOrder;
use crate::channel::frame::{Frame, Reader};
use crate::channel::message::{Order, Prepare, Prepared, Report, Signal, Word};
use crate::ports::ReservedPorts;
use crate::private;
use crate::relay;
use crate::sync::{Piece, Receiving};

/// Frames that may wait to be sent.
const QUEUE: usize = 64;
/// The longest that ranks may take to end when the launcher is gone.
const LONGEST_GRACE: Duration = Duration::from_secs(5);
/// How long killed ranks may take to disappear.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// The end of what a setup command printed, for an error.
const SETUP_TAIL: usize = 2000;

/// Serves the launcher until it says so or is gone; then nothing of the ranks is left.
pub(super) async fn serve(folder: &Path) -> io::Result<()> {
    let mut reader = Reader::new(pipe::Receiver::from_owned_fd_unchecked(channel_end(
        io::stdin().as_fd(),
    )?)?);
    let mut terminated = signal(SignalKind::terminate())?;
    let (frames, queue) = mpsc::channel::<Vec<u8>>(QUEUE);
    let writing = tokio::spawn(write(channel_end(io::stdout().as_fd())?, queue));
    let (drained_in, mut drained) = mpsc::unbounded_channel();
    let mut agent = Agent {
        folder: folder.to_owned(),
        work: None,
        receiving: None,
        ranks: Ranks::default(),
        meter: None,
        tunnels: Tunnels::default(),
        listener: None,
        ports: None,
        probing: Probing::default(),
        grace: LONGEST_GRACE,
        frames,
        drained: drained_in,
    };
    agent.report(Report::Hello(host::hello())).await;

    let gone = loop {
        tokio::select! {
            frame = reader.next() => match frame {
                Ok(Some(Frame::Order(Order::End))) => break false,
                Ok(Some(Frame::Order(order))) => agent.obey(order).await,
                Ok(Some(Frame::Input { rank, bytes })) => agent.ranks.input(rank, bytes),
                Ok(Some(Frame::FileData(place, bytes))) => {
                    agent.take_in(Piece::Data(place, bytes.to_vec())).await;
                }
                Ok(Some(Frame::TunnelData(id, bytes))) => agent.tunnels.data(id, bytes),
                Ok(Some(Frame::TunnelEnd(id))) => agent.tunnels.end(id),
                Ok(Some(other)) => debug!(?other, "the launcher sent what only agents send"),
                Ok(None) => break true,
                Err(error) => {
                    debug!(%error, "the channel broke");
                    break true;
                }
            },
            Some(rank) = drained.recv() => agent.ranks.forget(rank),
            Ok((stream, _)) = accept(agent.listener.as_ref()) => {
                agent.tunnels.accept(stream, &agent.frames);
            }
            () = due(agent.meter.as_mut()) => agent.measure(),
            _ = terminated.recv() => break true,
        }
    };
    agent.stop(gone, &mut drained).await;
    drop(agent);
    // What is still unsent has a reader only if the launcher asked for the end.
    if !gone {
        let _ = tokio::time::timeout(AFTER_KILL, writing).await;
    }
    Ok(())
}

struct Agent {
    folder: PathBuf,
    /// Where ranks start.
    work: Option<PathBuf>,
    /// A folder that is sent.
    receiving: Option<Receiving>,
    ranks: Ranks,
    /// What the ranks use, where somebody asked.
    meter: Option<Meter>,
    tunnels: Tunnels,
    listener: Option<TcpListener>,
    ports: Option<ReservedPorts>,
    probing: Probing,
    grace: Duration,
    frames: mpsc::Sender<Vec<u8>>,
    drained: mpsc::UnboundedSender<usize>,
}

impl Agent {
    async fn report(&self, report: Report) {
        // The writer ends only when the launcher is gone, which the reader notices too.
        let _ = self.frames.send(Frame::Report(report).encode()).await;
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Sync(order) => self.take_in(Piece::Order(order)).await,
            Order::Prepare(prepare) => {
                let prepared = self.prepare(prepare).await;
                self.report(match prepared {
                    Ok(prepared) => Report::Prepared(prepared),
                    Err(problem) => Report::Refused(problem),
                })
                .await;
            }
            Order::Start(start) => {
                self.grace = start.grace.min(LONGEST_GRACE);
                self.meter = start.usage.map(Meter::new);
                let work = self.work.clone();
                let started = self.ranks.start(
                    start,
                    work.as_deref(),
                    &self.folder,
                    &self.frames,
                    &self.drained,
                );
                self.report(match started {
                    Ok(pids) => Report::Started(pids),
                    Err(NotStarted { rank, source }) => Report::NotStarted {
                        rank,
                        problem: source.to_string(),
                    },
                })
                .await;
            }
            Order::Signal(signal) => self.ranks.signal(signal),
            Order::Closed { rank } => self.ranks.closed(rank),
            Order::Took { rank } => self.ranks.took(rank),
            Order::HangUp { rank } => self.ranks.hang_up(rank),
            Order::Examine(order) => {
                let examined = examine::examine(&order.interfaces);
                self.report(Report::Examined(Box::new(examined))).await;
            }
            Order::Clock => self.report(Report::Clock(examine::clock())).await,
            Order::Listen(order) => {
                let port = self.probing.listen(order).await;
                self.report(Report::Listening(port)).await;
            }
            Order::Probe(order) => self.probing.probe(order, &self.frames),
            // The one is done by whoever calls, the other is for launchers.
            Order::End | Order::Shell(_) => {}
        }
    }

    /// Tells what the ranks use.
    fn measure(&mut self) {
        let running = self.ranks.running();
        if running.is_empty() {
            self.meter = None;
        }
        let usage = self
            .meter
            .as_mut()
            .and_then(|meter| meter.measure(&running));
        if let Some(usage) = usage {
            // Where other frames wait, this one has no news worth waiting for.
            let _ = self
                .frames
                .try_send(Frame::Report(Report::Usage(usage)).encode());
        }
    }

    async fn take_in(&mut self, piece: Piece) {
        if let Piece::Order(SyncOrder::Begin { .. }) = piece {
            let base = host::cache_folder().join("sync");
            self.receiving = match std::path::absolute(base) {
                Ok(base) => Some(Receiving::begin(base, self.frames.clone())),
                Err(error) => {
                    self.report(Report::Refused(format!("no cache folder: {error}")))
                        .await;
                    None
                }
            };
        }
        if let Some(receiving) = &self.receiving {
            receiving.take(piece).await;
        }
    }

    async fn prepare(&mut self, order: Prepare) -> Result<Prepared, String> {
        let told = |error: &dyn std::error::Error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        if let Some(folder) = order.folder {
            let folder = PathBuf::from(OsString::from(folder));
            std::fs::metadata(&folder)
                .map_err(|error| format!("the folder {}: {error}", folder.display()))?;
            self.work = Some(folder);
        }
        let token = Token::parse(&order.token).map_err(|error| told(&error))?;
        let token_file = private::write_token(&self.folder, &token).map_err(|e| told(&e))?;
        let address = host::address(&order.interfaces).map_err(|error| told(&error))?;
        let ports = ReservedPorts::new(order.ports, order.within).map_err(|error| told(&error))?;
        let numbers = ports.numbers().to_vec();
        self.ports = Some(ports);
        if order.tunnel {
            let listener = tunnel::listen().await.map_err(|error| told(&error))?;
            self.listener = Some(listener);
        }
        if let Some(command) = order.setup {
            set_up(&command, self.work.as_deref()).await?;
        }
        let port = |listener: &TcpListener| listener.local_addr().ok().map(|a| a.port());
        Ok(Prepared {
            address,
            launcher: host::launcher_address(),
            ports: numbers,
            coordinator: self.listener.as_ref().and_then(port),
            token_file: Word::from(token_file.as_os_str()),
        })
    }

    /// Ends the ranks: with some grace if the launcher is gone without a word.
    async fn stop(&mut self, gone: bool, drained: &mut mpsc::UnboundedReceiver<usize>) {
        self.ranks.stop_listening();
        if gone && !self.ranks.are_over() {
            self.ranks.signal(Signal::Terminate);
            let _ = tokio::time::timeout(self.grace, self.all_drained(drained)).await;
        }
        self.ranks.signal(Signal::Kill);
        let _ = tokio::time::timeout(AFTER_KILL, self.all_drained(drained)).await;
    }

    async fn all_drained(&mut self, drained: &mut mpsc::UnboundedReceiver<usize>) {
        while !self.ranks.are_over() {
            match drained.recv().await {
                Some(rank) => self.ranks.forget(rank),
                None => return,
            }
        }
    }
}

/// Runs the setup command in a shell, its output kept for an error.
async fn set_up(command: &str, folder: Option<&Path>) -> Result<(), String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null());
    if let Some(folder) = folder {
        shell.current_dir(folder);
    }
    let done = shell
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("cannot run the setup command: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let printed = [done.stdout, done.stderr].concat();
    let tail = &printed[printed.len().saturating_sub(SETUP_TAIL)..];
    Err(format!(
        "the setup command ended with {}: {}",
        done.status,
        String::from_utf8_lossy(tail).trim()
    ))
}

/// Accepts a connection; waits for ever where there is no listener.
async fn accept(
    listener: Option<&TcpListener>,
) -> io::Result<(tokio::net::TcpStream, std::net::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Waits until a sample is due; for ever where nobody asked for any.
async fn due(meter: Option<&mut Meter>) {
    match meter {
        Some(meter) => meter.due().await,
        None => std::future::pending().await,
    }
}

/// A descriptor of the channel for the runtime: a pipe, or a socket where SSH uses one.
fn channel_end(descriptor: impl AsFd) -> io::Result<OwnedFd> {
    let own = descriptor.as_fd().try_clone_to_owned()?;
    fcntl_setfl(&own, fcntl_getfl(&own)? | OFlags::NONBLOCK)?;
    Ok(own)
}

/// Writes frames until nobody sends or nobody reads any more.
async fn write(to: OwnedFd, mut queue: mpsc::Receiver<Vec<u8>>) {
    let Ok(mut to) = pipe::Sender::from_owned_fd_unchecked(to) else {
        return;
    };
    while let Some(frame) = queue.recv().await {
        if let Err(error) = to.write_all(&frame).await {
            debug!(%error, "the launcher does not read any more");
            return;
        }
        relay::recycle(frame);
    }
}
