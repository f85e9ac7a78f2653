//! One connection between two hosts, made to see whether and how well it works.
//!
//! # Expected flow
//!
//! One agent listens on a fresh port of the address that ranks would use, another connects and
//! sends the word that both were told. Some small messages go to and fro; then the one that
//! connected sends as much as it can until the other, which keeps the time, says how much came.
//!
//! # Guarantees
//!
//! Connections that do not begin with the word are dropped. Both sides end within a fixed time, and
//! listening ends with the first connection that knows the word.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::channel::examination::{Listen, Probe, Probed};
use crate::channel::frame::Frame;
use crate::channel::message::Report;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a new connection may take to say the word.
const WORD: Duration = Duration::from_secs(1);
/// How long all of it may take.
const WHOLE: Duration = Duration::from_secs(8);
/// How long the burst takes.
const BURST: Duration = Duration::from_millis(200);
/// Round trips, and the bytes of each.
const ROUNDS: usize = 15;
const MESSAGE: usize = 8;
/// What is written and read at once in the burst.
const PIECE: usize = 256 << 10;

/// What an agent probes at present.
#[derive(Debug, Default)]
pub(super) struct Probing {
    listening: Option<JoinHandle<()>>,
    probing: Option<JoinHandle<()>>,
}

impl Probing {
    /// Listens for one connection, in place of any before; returns the port.
    pub(super) async fn listen(&mut self, order: Listen) -> Result<u16, String> {
        stop(&mut self.listening);
        let (listener, port) = bind(order.address)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", order.address))?;
        self.listening = Some(tokio::spawn(async move {
            // Whoever connects tells how it went.
            let _ = timeout(WHOLE, answer(listener, order.word.as_bytes())).await;
        }));
        Ok(port)
    }

    /// Connects and measures, in place of any before; the report goes to `frames`.
    pub(super) fn probe(&mut self, order: Probe, frames: &mpsc::Sender<Vec<u8>>) {
        stop(&mut self.probing);
        let frames = frames.clone();
        self.probing = Some(tokio::spawn(async move {
            let address = order.address;
            let probed = timeout(WHOLE, probe(&order)).await;
            let late = || Err(format!("{address} answered, then nothing came any more"));
            let report = Report::Probed(probed.unwrap_or_else(|_| late()));
            // Nobody reads when the launcher is gone.
            let _ = frames.send(Frame::Report(report).encode()).await;
        }));
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        stop(&mut self.listening);
        stop(&mut self.probing);
    }
}

fn stop(task: &mut Option<JoinHandle<()>>) {
    if let Some(task) = task.take() {
        task.abort();
    }
}

async fn bind(address: IpAddr) -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((address, 0)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Waits for the connection that knows the word, and serves it.
async fn answer(listener: TcpListener, word: &[u8]) -> io::Result<()> {
    let mut stream = loop {
        let (mut stream, _) = listener.accept().await?;
        let mut said = vec![0; word.len()];
        let heard = timeout(WORD, stream.read_exact(&mut said)).await;
        if matches!(heard, Ok(Ok(_))) && said == word {
            break stream;
        }
    };
    drop(listener);
    stream.set_nodelay(true)?;
    let mut message = [0; MESSAGE];
    for _ in 0..ROUNDS {
        stream.read_exact(&mut message).await?;
        stream.write_all(&message).await?;
    }
    let mut piece = vec![0; PIECE];
    // The time begins with the first bytes, which are not counted.
    let first = stream.read(&mut piece).await?;
    let (begin, mut bytes, mut open) = (Instant::now(), 0, first > 0);
    while open {
        let left = BURST.saturating_sub(begin.elapsed());
        match timeout(left, stream.read(&mut piece)).await {
            Ok(count) => {
                let count = count?;
                bytes += count as u64;
                open = count > 0 && begin.elapsed() < BURST;
            }
            Err(_) => break,
        }
    }
    let nanos = begin.elapsed().as_nanos() as u64;
    stream.write_all(&bytes.to_le_bytes()).await?;
    stream.write_all(&nanos.to_le_bytes()).await?;
    // Closing while bytes are on their way could lose the answer: the other side closes first.
    while stream.read(&mut piece).await? > 0 {}
    Ok(())
}

async fn probe(order: &Probe) -> Result<Probed, String> {
    let address = order.address;
    let mut stream = match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(format!("no connection to {address}: {error}")),
        Err(_) => {
            let limit = CONNECT.as_secs();
            return Err(format!(
                "no connection to {address}: no answer after {limit} s"
            ));
        }
    };
    measure(&mut stream, order.word.as_bytes())
        .await
        .map_err(|error| format!("{address} answered, but then: {error}"))
}

async fn measure(stream: &mut TcpStream, word: &[u8]) -> io::Result<Probed> {
    stream.set_nodelay(true)?;
    // What is not sent yet when the answer comes is of no use to anybody.
    stream.set_zero_linger()?;
    let from = stream.local_addr()?.ip();
    stream.write_all(word).await?;
    let mut trips = Vec::new();
    let mut message = [0; MESSAGE];
    for round in 0..ROUNDS {
        let begin = Instant::now();
        message[0] = round as u8;
        stream.write_all(&message).await?;
        let mut back = [0; MESSAGE];
        stream.read_exact(&mut back).await?;
        if back != message {
            return Err(io::Error::other("it is not the agent that answers"));
        }
        trips.push(begin.elapsed());
    }
    trips.sort();
    let (mut from_there, mut to_there) = stream.split();
    let piece = vec![0x5a; PIECE];
    let send = async {
        loop {
            if let Err(error) = to_there.write_all(&piece).await {
                return error;
            }
        }
    };
    let receive = async {
        let mut numbers = [[0; 8]; 2];
        for number in &mut numbers {
            from_there.read_exact(number).await?;
        }
        io::Result::Ok(numbers.map(u64::from_le_bytes))
    };
    let [bytes, nanos] = tokio::select! {
        numbers = receive => numbers?,
        error = send => return Err(error),
    };
    Ok(Probed {
        from,
        round_trip_nanos: trips[ROUNDS / 2].as_nanos() as u64,
        bytes,
        nanos,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    async fn listening(word: &str) -> (Probing, u16) {
        let mut probing = Probing::default();
        let word = word.to_owned();
        let order = Listen {
            address: HERE,
            word,
        };
        let port = probing.listen(order).await.unwrap();
        (probing, port)
    }

    fn order(port: u16, word: &str) -> Probe {
        Probe {
            address: (HERE, port).into(),
            word: word.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_connection_is_measured_and_strangers_are_dropped() {
        let (_probing, port) = listening("the word").await;
        let stranger = probe(&order(port, "no entry")).await;
        assert!(stranger.unwrap_err().contains("answered, but then"));
        let probed = probe(&order(port, "the word")).await.unwrap();
        assert_eq!(probed.from, HERE);
        assert!(probed.bytes > 0 && probed.nanos > 0 && probed.round_trip_nanos > 0);
    }

    #[tokio::test]
    async fn a_port_is_closed_after_its_connection() {
        let (_probing, port) = listening("w").await;
        probe(&order(port, "w")).await.unwrap();
        let again = probe(&order(port, "w")).await.unwrap_err();
        assert!(again.contains("no connection to"), "{again}");
    }

    #[tokio::test]
    async fn an_address_of_another_host_cannot_be_listened_on() {
        let address = "192.0.2.1".parse().unwrap();
        let word = String::new();
        let order = Listen { address, word };
        let error = Probing::default().listen(order).await.unwrap_err();
        assert!(error.contains("192.0.2.1"), "{error}");
    }
}
