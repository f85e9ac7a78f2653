//! What comes out of a rank's pipe, chunk by chunk, until there is no more.

use std::cell::RefCell;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
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

/// Reads a pipe to its end and sends each chunk, with `head` before it and as `wrap` makes it.
///
/// `cut` becomes true when the rank's processes are gone: what is in the pipe is still read, but
/// nobody waits for more, even if a process that got away keeps the pipe open. The same holds when
/// nobody receives any more: the pipe is emptied so that the rank can end.
pub(crate) async fn relay<T>(
    mut pipe: impl AsyncRead + Unpin,
    mut cut: watch::Receiver<bool>,
    head: &[u8],
    to: mpsc::Sender<T>,
    wrap: impl Fn(Vec<u8>) -> T,
) {
    let mut after_cut = 0;
    while after_cut < READ_AFTER_CUT {
        let mut chunk = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        chunk.reserve(head.len() + READ);
        chunk.extend_from_slice(head);
        let read = tokio::select! {
            biased;
            read = pipe.read_buf(&mut chunk) => read,
            // Fails when the sender is gone, which means the same.
            _ = cut.wait_for(|cut| *cut) => return,
        };
        let count = match read {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) => {
                debug!(%error, "a rank's pipe broke");
                return;
            }
        };
        let is_cut = *cut.borrow();
        let received = to.send(wrap(chunk)).await;
        if is_cut || received.is_err() {
            after_cut += count;
        }
    }
}
