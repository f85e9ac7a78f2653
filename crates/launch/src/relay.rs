//! From a rank's pipe to the output, line by line, with the rank in front.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};

use crate::lines::{LineSplitter, Tail};
use crate::output::{Piece, Stream};

/// How much is read at once: a pipe's usual content.
const READ: usize = 64 * 1024;
/// How much is still read after the cut: the most a pipe can hold.
const READ_AFTER_CUT: usize = 1024 * 1024;

/// The last lines of both streams of a rank.
pub(crate) type SharedTail = Arc<Mutex<Tail>>;

/// One stream of one rank.
pub(crate) struct Relay {
    pub(crate) stream: Stream,
    pub(crate) prefix: Arc<[u8]>,
    pub(crate) tail: SharedTail,
    pub(crate) output: mpsc::Sender<Piece>,
    /// Becomes true when the rank's processes are gone: what is in the pipe is still read, but
    /// nobody waits for more, even if a process that got away keeps the pipe open.
    pub(crate) cut: watch::Receiver<bool>,
}

impl Relay {
    /// Passes on everything until the pipe ends or is cut.
    pub(crate) async fn run(mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut splitter = LineSplitter::default();
        let mut chunk = vec![0; READ];
        let mut after_cut = 0;
        while after_cut < READ_AFTER_CUT {
            let read = tokio::select! {
                biased;
                read = pipe.read(&mut chunk) => read,
                // Fails when the sender is gone, which means the same.
                _ = self.cut.wait_for(|cut| *cut) => break,
            };
            let count = match read {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => {
                    tracing::debug!(%error, "a rank's pipe broke");
                    break;
                }
            };
            if *self.cut.borrow() {
                after_cut += count;
            }
            self.emit(|emit| splitter.feed(&chunk[..count], emit)).await;
        }
        self.emit(|emit| splitter.finish(emit)).await;
    }

    /// Renders the lines that `lines` gives and queues them as one piece.
    async fn emit(&self, lines: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let mut bytes = Vec::new();
        {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            lines(&mut |line| {
                tail.push(line);
                bytes.extend_from_slice(&self.prefix);
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            });
        }
        if !bytes.is_empty() {
            // Nobody receives when the output was given up; then there is no one to tell.
            let _ = self
                .output
                .send(Piece {
                    stream: self.stream,
                    bytes,
                })
                .await;
        }
    }
}

/// What stands before a rank's lines: `2| `, right-aligned so that lines of all ranks align.
pub(crate) fn prefix(rank: usize, size: usize) -> Arc<[u8]> {
    let width = size.saturating_sub(1).to_string().len();
    format!("{rank:>width$}| ").into_bytes().into()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn relay() -> (Relay, mpsc::Receiver<Piece>, watch::Sender<bool>) {
        let (output, pieces) = mpsc::channel(1024);
        let (cutter, cut) = watch::channel(false);
        let tail = SharedTail::default();
        (
            Relay {
                stream: Stream::Stdout,
                prefix: prefix(3, 12),
                tail,
                output,
                cut,
            },
            pieces,
            cutter,
        )
    }

    fn text(mut pieces: mpsc::Receiver<Piece>) -> String {
        let mut bytes = Vec::new();
        while let Ok(piece) = pieces.try_recv() {
            bytes.extend(piece.bytes);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn a_last_line_without_a_newline_is_completed() {
        let (relay, pieces, _cutter) = relay();
        let tail = relay.tail.clone();
        relay.run(&b"one\ntwo"[..]).await;
        assert_eq!(text(pieces), " 3| one\n 3| two\n");
        assert_eq!(tail.lock().unwrap().text(), ["one", "two"]);
    }

    #[tokio::test]
    async fn what_is_in_the_pipe_is_read_after_the_cut_and_no_more_is_waited_for() {
        let (relay, pieces, cutter) = relay();
        let (mut writer, reader) = tokio::io::duplex(1024);
        writer.write_all(b"late\nlast").await.unwrap();
        cutter.send(true).unwrap();
        relay.run(reader).await;
        assert_eq!(text(pieces), " 3| late\n 3| last\n");
        drop(writer);
    }

    #[tokio::test]
    async fn an_endless_writer_does_not_outlive_the_cut() {
        let (relay, pieces, cutter) = relay();
        cutter.send(true).unwrap();
        relay.run(tokio::io::repeat(b'\n')).await;
        drop(pieces);
    }
}
