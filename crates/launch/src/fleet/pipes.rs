//! The pipes of ranks on this host, which their agent hands over.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::net::unix::{OwnedReadHalf, pipe};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tracing::debug;

use super::link::Incoming;
use crate::channel::frame::Frame;
use crate::channel::handover;
use crate::channel::message::Order;
use crate::output::Stream;
use crate::relay::Relaying;

/// The ranks whose pipes are read here.
#[derive(Default)]
pub(super) struct Pipes {
    readings: Mutex<Readings>,
    changed: Notify,
}

#[derive(Default)]
struct Readings {
    by_rank: HashMap<usize, Reading>,
    /// No more pipes come.
    over: bool,
}

struct Reading {
    cut: watch::Sender<bool>,
    done: JoinHandle<()>,
}

impl Pipes {
    /// Takes what comes on the socket until the agent is gone, and reads it.
    pub(super) async fn serve(
        self: Arc<Self>,
        socket: OwnedReadHalf,
        events: mpsc::Sender<Incoming>,
        orders: mpsc::WeakSender<Vec<u8>>,
    ) {
        let stream = socket.as_ref();
        let next = async || {
            stream
                .async_io(Interest::READABLE, || handover::take(stream))
                .await
        };
        let ended = loop {
            let (rank, [out, err]) = match next().await {
                Ok(Some(one)) => one,
                ended => break ended.map(drop),
            };
            let (cut, cut_seen) = watch::channel(false);
            let read = |stream, pipe| read(rank, stream, pipe, events.clone(), cut_seen.clone());
            let (out, err) = (read(Stream::Stdout, out), read(Stream::Stderr, err));
            let orders = orders.clone();
            let done = tokio::spawn(async move {
                tokio::join!(out, err);
                // Only now does the agent know that nobody holds the pipes any more.
                if let Some(orders) = orders.upgrade() {
                    let closed = Frame::Order(Order::Closed { rank });
                    let _ = orders.send(closed.encode()).await;
                }
            });
            let reading = Reading { cut, done };
            self.readings().by_rank.insert(rank, reading);
            self.changed.notify_waiters();
        };
        debug!(?ended, "no more pipes come from the agent");
        self.readings().over = true;
        self.changed.notify_waiters();
    }

    /// Nothing is left of a rank whose pipes were handed over: returns when all that it printed has
    /// been passed on.
    pub(super) async fn drain(&self, rank: usize) {
        let reading = loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Counts what comes from here on.
            changed.as_mut().enable();
            {
                let mut readings = self.readings();
                match readings.by_rank.remove(&rank) {
                    Some(reading) => break reading,
                    None if readings.over => return,
                    None => {}
                }
            }
            changed.await;
        };
        reading.end().await;
    }

    /// The agent is gone, and all ranks with it.
    pub(super) async fn end(&self) {
        let all = std::mem::take(&mut self.readings().by_rank);
        for reading in all.into_values() {
            reading.end().await;
        }
    }

    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    async fn end(self) {
        let _ = self.cut.send(true);
        // A reader that panicked has told so.
        let _ = self.done.await;
    }
}

/// Reads one stream of a rank to its end.
async fn read(
    rank: usize,
    stream: Stream,
    pipe: OwnedFd,
    events: mpsc::Sender<Incoming>,
    cut: watch::Receiver<bool>,
) {
    let pipe = match pipe::Receiver::from_owned_fd(pipe) {
        Ok(pipe) => pipe,
        Err(error) => {
            debug!(rank, %error, "a rank's pipe cannot be read");
            return;
        }
    };
    let wrap = |bytes| Incoming::Printed {
        rank,
        stream,
        bytes,
    };
    let relaying = Relaying {
        head: Vec::new(),
        to: events,
        wrap,
        credit: None,
        cut,
    };
    relaying.run(pipe).await;
}
