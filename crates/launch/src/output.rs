//! Where what is shown goes.
//!
//! One thread writes to both streams, so that a slow terminal holds up neither the supervision nor
//! the ranks. What it cannot write yet waits in memory up to a limit, and beyond that in a file
//! without a name, in order. What goes into a file, or nowhere, is written at once: nobody has to
//! be waited for.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

pub use crate::render::Stream;

/// How much may wait in memory.
const MEMORY: usize = 8 << 20;
/// A piece in the file begins with its stream and its length.
const HEADER: usize = 5;

/// A thread that writes what is shown.
#[derive(Debug)]
pub struct Output {
    backlog: Arc<Shared>,
    done: oneshot::Receiver<()>,
}

/// The end of an output into which pieces are put.
#[derive(Clone, Debug)]
pub(crate) struct Writer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    more: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    /// Writes what ranks print on their standard output and error to these.
    pub fn new(
        stdout: impl Write + Send + 'static,
        stderr: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        Self::with_prompt(stdout, stderr, [None, None])
    }

    /// The same with files, by stream, that are written to at once while nothing waits.
    fn with_prompt(
        mut stdout: impl Write + Send + 'static,
        mut stderr: impl Write + Send + 'static,
        prompt: [Option<File>; 2],
    ) -> io::Result<Self> {
        let backlog = Backlog {
            prompt,
            ..Backlog::default()
        };
        let backlog = Arc::new(Shared {
            backlog: Mutex::new(backlog),
            more: Condvar::new(),
        });
        let (finished, done) = oneshot::channel();
        let shared = Arc::clone(&backlog);
        std::thread::Builder::new()
            .name("carole-output".into())
            .spawn(move || {
                let (mut out_open, mut err_open) = (true, true);
                while let Some((stream, bytes)) = next(&shared) {
                    match stream {
                        Stream::Stdout => write(&mut stdout, &bytes, &mut out_open),
                        Stream::Stderr => write(&mut stderr, &bytes, &mut err_open),
                    }
                }
                // The receiver is gone when nobody waits for the end.
                let _ = finished.send(());
            })?;
        Ok(Self { backlog, done })
    }

    /// The process's own standard output and error.
    pub fn standard() -> io::Result<Self> {
        let prompt = [
            prompt(io::stdout().as_fd()).unwrap_or_default(),
            prompt(io::stderr().as_fd()).unwrap_or_default(),
        ];
        Self::with_prompt(io::stdout(), io::stderr(), prompt)
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer(Arc::clone(&self.backlog))
    }

    /// Waits until everything is written, or `limit` has passed.
    pub(crate) async fn finish(self, limit: Option<Duration>) {
        self.backlog.lock().closed = true;
        self.backlog.more.notify_all();
        // The thread ends after its last write; if it panicked there is nothing to wait for.
        match limit {
            Some(limit) => drop(tokio::time::timeout(limit, self.done).await),
            None => drop(self.done.await),
        }
    }
}

impl Writer {
    /// Puts whole lines in line. Never waits for who reads them.
    pub(crate) fn put(&self, stream: Stream, bytes: &[u8]) {
        let mut backlog = self.0.lock();
        if backlog.write_promptly(stream, bytes) {
            return;
        }
        backlog.put(stream, bytes, MEMORY);
        drop(backlog);
        self.0.more.notify_one();
    }
}

/// The next piece; none when there will be no more.
fn next(shared: &Shared) -> Option<(Stream, Vec<u8>)> {
    let mut backlog = shared.lock();
    backlog.writing = false;
    loop {
        if let Some(piece) = backlog.take() {
            backlog.writing = true;
            return Some(piece);
        }
        if backlog.closed {
            return None;
        }
        backlog = shared
            .more
            .wait(backlog)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// What waits to be written: first what is in memory, then what is in the file.
#[derive(Debug, Default)]
struct Backlog {
    memory: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    file: Option<Spill>,
    /// By stream: where nobody has to be waited for.
    prompt: [Option<File>; 2],
    /// The thread has a piece that it has not written yet.
    writing: bool,
    closed: bool,
    /// Output was lost, and a person was told.
    lossy: bool,
}

#[derive(Debug)]
struct Spill {
    file: File,
    read: u64,
    written: u64,
}

impl Backlog {
    /// Writes at once what need not wait; false for the rest.
    fn write_promptly(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        let waits = self.writing || !self.memory.is_empty() || self.file.is_some();
        let Some(file) = self.prompt[stream as usize].as_mut().filter(|_| !waits) else {
            return false;
        };
        let mut open = true;
        write(file, bytes, &mut open);
        if !open {
            // The thread finds out for itself, and drops the rest.
            self.prompt[stream as usize] = None;
        }
        true
    }

    fn put(&mut self, stream: Stream, bytes: &[u8], limit: usize) {
        if self.file.is_none() && self.bytes < limit {
            // A piece of the same stream is continued: few large writes are cheap.
            match self.memory.back_mut() {
                Some((last, piece)) if *last == stream && piece.len() < limit / 64 => {
                    piece.extend_from_slice(bytes);
                }
                _ => self.memory.push_back((stream, bytes.to_vec())),
            }
            self.bytes += bytes.len();
        } else if let Err(error) = self.spill(stream, bytes)
            && !self.lossy
        {
            self.lossy = true;
            tracing::warn!(%error, "no room to keep output for a slow terminal; some is lost");
        }
    }

    fn spill(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let spill = match &mut self.file {
            Some(spill) => spill,
            None => self.file.insert(Spill {
                file: nameless_file()?,
                read: 0,
                written: 0,
            }),
        };
        spill.file.seek(SeekFrom::Start(spill.written))?;
        let mut header = [stream as u8; HEADER];
        header[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        spill.file.write_all(&header)?;
        spill.file.write_all(bytes)?;
        spill.written += (HEADER + bytes.len()) as u64;
        Ok(())
    }

    fn take(&mut self) -> Option<(Stream, Vec<u8>)> {
        if let Some((stream, bytes)) = self.memory.pop_front() {
            self.bytes -= bytes.len();
            return Some((stream, bytes));
        }
        let spill = self.file.as_mut()?;
        if spill.read == spill.written {
            // The terminal has caught up.
            self.file = None;
            return None;
        }
        match spill.take() {
            Ok(piece) => Some(piece),
            Err(error) => {
                tracing::warn!(%error, "output that was kept for a slow terminal is lost");
                self.file = None;
                None
            }
        }
    }
}

impl Spill {
    fn take(&mut self) -> io::Result<(Stream, Vec<u8>)> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut header = [0; HEADER];
        self.file.read_exact(&mut header)?;
        let [stream, a, b, c, d] = header;
        let mut bytes = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        self.file.read_exact(&mut bytes)?;
        self.read += (HEADER + bytes.len()) as u64;
        let stream = if stream == Stream::Stdout as u8 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        Ok((stream, bytes))
    }
}

/// The stream once more if it is a file or leads nowhere.
fn prompt(stream: BorrowedFd<'_>) -> io::Result<Option<File>> {
    let file = File::from(stream.try_clone_to_owned()?);
    let kind = file.metadata()?;
    let nowhere =
        kind.file_type().is_char_device() && kind.rdev() == std::fs::metadata("/dev/null")?.rdev();
    Ok((kind.is_file() || nowhere).then_some(file))
}

/// A file that nobody else sees and that goes with this process.
fn nameless_file() -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_memory_waits_in_a_file_in_order() {
        let mut backlog = Backlog::default();
        let piece = |number: usize| {
            let stream = if number.is_multiple_of(3) {
                Stream::Stderr
            } else {
                Stream::Stdout
            };
            (stream, format!("line {number}\n").into_bytes())
        };
        let (mut put, mut taken) = (0, Vec::new());
        for round in 0..50 {
            for _ in 0..20 {
                let (stream, bytes) = piece(put);
                backlog.put(stream, &bytes, 1000);
                put += 1;
            }
            // Slower than it comes, but for the end.
            for _ in 0..if round < 40 { 5 } else { 100 } {
                taken.extend(backlog.take());
            }
        }
        while let Some(piece) = backlog.take() {
            taken.push(piece);
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            let of = |pieces: &[(Stream, Vec<u8>)]| {
                let own = pieces.iter().filter(|(of, _)| *of == stream);
                own.flat_map(|(_, bytes)| bytes.clone())
                    .collect::<Vec<u8>>()
            };
            let all: Vec<_> = (0..put).map(piece).collect();
            assert_eq!(of(&taken), of(&all));
        }
        assert!(backlog.file.is_none() && backlog.bytes == 0);
    }
}
