//! What comes out of a rank's pipe, chunk by chunk, until there is no more.

use std::cell::RefCell;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::debug;

/// How much is read at once: a pipe's usual content.
const READ: usize = 64 << 10;
/// How much is still read after the cut: the most a pipe can hold.
const READ_AFTER_CUT: usize = 1 << 20;

/// As many chunks are kept for later.
const KEPT: usize = 16;

thread_local! {
    /// Chunks that are free: memory that was used before costs no page faults.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A chunk that was read is not needed any more.
pub(crate) fn recycle(mut chunk: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            chunk.clear();
            spare.push(chunk);
        }
    });
}

/// Where one stream of a rank goes.
pub(crate) struct Relaying<T, W> {
    /// What comes before each chunk.
    pub(crate) head: Vec<u8>,
    pub(crate) to: mpsc::Sender<T>,
    /// What is sent of a chunk.
    pub(crate) wrap: W,
    /// Where chunks are sent only as they are taken; closed when nobody wants any.
    pub(crate) credit: Option<Arc<Semaphore>>,
    /// Becomes true when the rank's processes are gone: what is in the pipe is still read, but
    /// nobody waits for more, even if a process that got away keeps the pipe open.
    pub(crate) cut: watch::Receiver<bool>,
}

impl<T, W: Fn(Vec<u8>) -> T> Relaying<T, W> {
    /// Reads a pipe to its end. Where nobody receives any more, it is emptied so that the rank can
    /// end.
    pub(crate) async fn run(mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut after_cut = 0;
        while after_cut < READ_AFTER_CUT {
            let mut chunk = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
            chunk.reserve(self.head.len() + READ);
            chunk.extend_from_slice(&self.head);
            let read = tokio::select! {
                biased;
                read = pipe.read_buf(&mut chunk) => read,
                // Fails when the sender is gone, which means the same.
                _ = self.cut.wait_for(|cut| *cut) => return,
            };
            let count = match read {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, "a rank's pipe broke");
                    return;
                }
            };
            if *self.cut.borrow() {
                after_cut += count;
            }
            if let Some(credit) = &self.credit {
                match credit.acquire().await {
                    Ok(permit) => permit.forget(),
                    Err(_) => continue,
                }
            }
            if self.to.send((self.wrap)(chunk)).await.is_err() {
                after_cut += count;
            }
        }
    }
}
