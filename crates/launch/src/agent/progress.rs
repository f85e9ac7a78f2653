//! The pipe through which a rank tells how far it is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::channel::frame::Frame;
use crate::channel::message::Report;
use crate::progress::{LONGEST_LINE, Progress};

/// The variable that names it.
pub(super) const VARIABLE: &str = "CAROLE_PROGRESS";
/// A rank's progress is sent at most this often.
const PACE: Duration = Duration::from_millis(500);

/// A named pipe in the private folder.
pub(super) struct Pipe {
    rank: usize,
    path: PathBuf,
    receiver: pipe::Receiver,
}

impl Pipe {
    pub(super) fn new(folder: &Path, rank: usize) -> io::Result<Self> {
        let path = folder.join(format!("progress-{rank}"));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for writing too: the pipe has no end while nobody writes, and writers find a reader.
        let receiver = pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(&path)?;
        Ok(Self {
            rank,
            path,
            receiver,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends what the rank tells, the latest only. Does not keep the channel open.
    pub(super) async fn listen(mut self, frames: mpsc::WeakSender<Vec<u8>>) {
        let mut progress = Progress::default();
        let mut line = Vec::new();
        let mut bytes = vec![0; LONGEST_LINE];
        let mut changed = false;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                read = self.receiver.read(&mut bytes) => {
                    let Ok(count) = read else { return };
                    for byte in &bytes[..count] {
                        if *byte == b'\n' {
                            progress.read(&String::from_utf8_lossy(&line));
                            line.clear();
                            changed = true;
                        } else if line.len() < LONGEST_LINE {
                            line.push(*byte);
                        }
                    }
                }
                () = tokio::time::sleep_until(due), if changed => {
                    changed = false;
                    due = Instant::now() + PACE;
                    let report = Report::Progress { rank: self.rank, progress: progress.clone() };
                    let Some(frames) = frames.upgrade() else { return };
                    if frames.send(Frame::Report(report).encode()).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
