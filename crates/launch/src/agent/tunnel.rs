//! The coordinator, as an agent offers it to its ranks: each connection is carried by the channel.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::channel::frame::Frame;

const READ: usize = 16 << 10;

/// The connections that are open, by number. The other side numbers nothing.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    open: HashMap<u32, mpsc::UnboundedSender<Vec<u8>>>,
    last: u32,
}

impl Tunnels {
    /// A connection that this side accepted.
    pub(super) fn accept(&mut self, stream: TcpStream, frames: &mpsc::Sender<Vec<u8>>) {
        self.last = self.last.wrapping_add(1);
        let id = self.last;
        let frames = frames.clone();
        let receiver = self.begin(id);
        tokio::spawn(async move {
            if frames.send(Frame::TunnelOpen(id).encode()).await.is_ok() {
                carry(id, stream, receiver, frames).await;
            }
        });
    }

    /// What has come for a connection goes out of the receiver; its end is the connection's.
    pub(crate) fn begin(&mut self, id: u32) -> mpsc::UnboundedReceiver<Vec<u8>> {
        self.open.retain(|_, sender| !sender.is_closed());
        let (sender, receiver) = mpsc::unbounded_channel();
        self.open.insert(id, sender);
        receiver
    }

    pub(crate) fn data(&self, id: u32, bytes: &[u8]) {
        if let Some(sender) = self.open.get(&id) {
            // A connection that was closed here needs no more.
            let _ = sender.send(bytes.to_vec());
        }
    }

    pub(crate) fn end(&mut self, id: u32) {
        self.open.remove(&id);
    }
}

/// A listener on loopback, for this host's ranks.
pub(super) async fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

/// Carries a connection's bytes both ways until both sides have ended.
pub(crate) async fn carry(
    id: u32,
    stream: TcpStream,
    mut incoming: mpsc::UnboundedReceiver<Vec<u8>>,
    frames: mpsc::Sender<Vec<u8>>,
) {
    let (mut from, mut to) = stream.into_split();
    let outwards = async {
        let mut bytes = vec![0; READ];
        loop {
            match from.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let frame = Frame::TunnelData(id, &bytes[..count]).encode();
                    if frames.send(frame).await.is_err() {
                        break;
                    }
                }
            }
        }
        // Nobody receives when the channel has ended.
        let _ = frames.send(Frame::TunnelEnd(id).encode()).await;
    };
    let inwards = async {
        while let Some(bytes) = incoming.recv().await {
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // A connection that is gone cannot be shut down.
        let _ = to.shutdown().await;
    };
    tokio::join!(outwards, inwards);
}
