//! Where the ranks' lines go.
//!
//! One thread writes to both streams, so that a slow terminal holds up neither the supervision nor
//! the coordinator, and lines of different ranks never mix within a line. The queue before it is
//! bounded: a rank that prints faster than the terminal shows waits, as it would without Carole.

use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Pieces (each up to a pipe's content) that may wait to be written.
const QUEUE: usize = 64;

/// Which stream a line came from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Whole lines for a stream.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) stream: Stream,
    pub(crate) bytes: Vec<u8>,
}

/// A thread that writes the ranks' lines.
#[derive(Debug)]
pub struct Output {
    pieces: mpsc::Sender<Piece>,
    done: oneshot::Receiver<()>,
}

impl Output {
    /// Writes what ranks print on their standard output and error to these.
    pub fn new(
        mut stdout: impl Write + Send + 'static,
        mut stderr: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (pieces, mut queue) = mpsc::channel::<Piece>(QUEUE);
        let (finished, done) = oneshot::channel();
        std::thread::Builder::new()
            .name("carole-output".into())
            .spawn(move || {
                let (mut out_open, mut err_open) = (true, true);
                while let Some(piece) = queue.blocking_recv() {
                    match piece.stream {
                        Stream::Stdout => write(&mut stdout, &piece.bytes, &mut out_open),
                        Stream::Stderr => write(&mut stderr, &piece.bytes, &mut err_open),
                    }
                }
                // The receiver is gone when nobody waits for the end.
                let _ = finished.send(());
            })?;
        Ok(Self { pieces, done })
    }

    /// The process's own standard output and error.
    pub fn standard() -> io::Result<Self> {
        Self::new(io::stdout(), io::stderr())
    }

    pub(crate) fn sender(&self) -> mpsc::Sender<Piece> {
        self.pieces.clone()
    }

    /// Waits until everything is written, or `limit` has passed.
    pub(crate) async fn finish(self, limit: Option<Duration>) {
        drop(self.pieces);
        // The thread ends after its last write; if it panicked there is nothing to wait for.
        match limit {
            Some(limit) => drop(tokio::time::timeout(limit, self.done).await),
            None => drop(self.done.await),
        }
    }
}

/// Writes unless an earlier write failed: a reader that went away (`| head`) is no reason to stop
/// the job.
fn write(stream: &mut impl Write, bytes: &[u8], open: &mut bool) {
    if !*open {
        return;
    }
    if let Err(error) = stream.write_all(bytes).and_then(|()| stream.flush()) {
        *open = false;
        tracing::warn!(%error, "cannot write the ranks' output; the rest of it is dropped");
    }
}
