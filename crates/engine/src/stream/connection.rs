//! One connection to one peer: frames in, frames out.
//!
//! Whoever waits for something reads; a try-lock sees to it that one thread reads at a time. A
//! small frame costs one system call on either side: header and payload leave in one vectored
//! write, and a read takes whatever is there. Payload of large frames goes straight into the
//! operation's memory, the next header coming with the same read.

#![expect(
    unsafe_code,
    reason = "payload is read from and written to the memory of operations"
)]

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::frame::{Frame, FrameKind, HEADER, MAX_DATA};
use super::inbox::{Flow, Flows};
use super::socket::Socket;
use crate::key::Key;
use crate::span::Span;

/// What a connection hands its frames to.
pub(crate) trait Handler {
    /// A whole frame other than data.
    fn message(&self, rank: usize, frame: &Frame, payload: &[u8]) -> io::Result<()>;
    /// Where data of this operation goes, if it is in flight.
    fn flows(&self, key: Key) -> Option<Arc<Flows>>;
    /// The generation of the session.
    fn generation(&self) -> u64;
}

/// A connection to the peer with this rank.
pub(crate) struct Connection {
    pub(crate) rank: usize,
    pub(crate) socket: Socket,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
    /// Rises with everything heard from the peer.
    heard: AtomicU64,
    /// Rises with everything said to the peer.
    said: AtomicU64,
    blocked: AtomicBool,
    closed: AtomicBool,
    /// The descriptor on which the engine thread waits for input; -1 when it does not.
    watched: AtomicI32,
    pub(crate) left: AtomicBool,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

pub(crate) const BUFFER: usize = 64 << 10;
/// Payload shorter than this goes through the buffer.
const DIRECT: usize = 4 << 10;

struct Reader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    body: Option<Body>,
    /// Payload of a message so far.
    message: Vec<u8>,
}

/// A frame whose payload is still arriving.
struct Body {
    frame: Frame,
    left: usize,
    flows: Option<Arc<Flows>>,
}

#[derive(Default)]
struct Writer {
    pending: Vec<u8>,
    sent: usize,
    current: Option<Current>,
}

/// A data frame that has begun.
#[derive(Clone, Copy)]
struct Current {
    key: Key,
    stage: u8,
    /// Payload that has not been sent.
    left: usize,
    header: [u8; HEADER],
    header_sent: usize,
}

impl Connection {
    pub(crate) fn new(rank: usize, socket: Socket) -> Self {
        let blocked = socket.wants_write();
        Self {
            rank,
            socket,
            reader: Mutex::new(Reader {
                buffer: vec![0; BUFFER].into(),
                start: 0,
                end: 0,
                body: None,
                message: Vec::new(),
            }),
            writer: Mutex::new(Writer::default()),
            heard: AtomicU64::new(0),
            said: AtomicU64::new(0),
            blocked: AtomicBool::new(blocked),
            closed: AtomicBool::new(false),
            watched: AtomicI32::new(-1),
            left: AtomicBool::new(false),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        }
    }

    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    /// Whether output waits for the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Descriptors to sleep on, and what for.
    pub(crate) fn descriptors(&self, mut visit: impl FnMut(RawFd, i16)) {
        let (reads, writes) = (self.socket.reads_from(), self.socket.writes_to());
        if !self.is_blocked() {
            visit(reads, libc::POLLIN);
        } else if reads == writes {
            visit(reads, libc::POLLIN | libc::POLLOUT);
        } else {
            visit(reads, libc::POLLIN);
            visit(writes, libc::POLLOUT);
            if let Socket::Bundle(bundle) = &self.socket {
                let waiting = bundle.sockets().iter().filter(|one| one.wants_write());
                waiting.for_each(|one| visit(one.raw(), libc::POLLOUT));
            }
        }
    }

    /// The same for the engine thread, which is rung when input comes elsewhere from then on.
    pub(crate) fn watch(&self, visit: impl FnMut(RawFd, i16)) {
        self.watched
            .store(self.socket.reads_from(), Ordering::SeqCst);
        self.descriptors(visit);
    }

    /// Whether the engine thread waits on a descriptor that is no longer the next one; true once.
    pub(crate) fn is_watched_in_vain(&self) -> bool {
        let watched = self.watched.load(Ordering::SeqCst);
        watched != -1
            && watched != self.socket.reads_from()
            && self.watched.swap(-1, Ordering::SeqCst) != -1
    }

    /// Whether reading it has failed or come to its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.socket.send(parts)?;
        if count > 0 {
            self.said.fetch_add(1, Ordering::Relaxed);
            self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Sends a small frame: at once if the socket takes it, else as soon as it does.
    pub(crate) fn send(&self, frame: &Frame, head: &[u8], body: &[u8]) -> io::Result<()> {
        let header = frame.encode();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sent = 0;
        if writer.current.is_none() {
            self.flush_pending(&mut writer)?;
            if writer.pending.is_empty() {
                sent = self.write(&[
                    IoSlice::new(&header),
                    IoSlice::new(head),
                    IoSlice::new(body),
                ])?;
            }
        }
        for part in [&header[..], head, body] {
            let skip = sent.min(part.len());
            sent -= skip;
            writer.pending.extend_from_slice(&part[skip..]);
        }
        self.note_blocked(&writer);
        Ok(())
    }

    fn note_blocked(&self, writer: &Writer) {
        let blocked =
            !writer.pending.is_empty() || writer.current.is_some() || self.socket.wants_write();
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    fn flush_pending(&self, writer: &mut Writer) -> io::Result<()> {
        while writer.sent < writer.pending.len() {
            let count = self.write(&[IoSlice::new(&writer.pending[writer.sent..])])?;
            if count == 0 {
                return Ok(());
            }
            writer.sent += count;
        }
        writer.pending.clear();
        writer.sent = 0;
        Ok(())
    }

    /// Sends what waits, if no data frame is under way.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let Ok(mut writer) = self.writer.try_lock() else {
            return Ok(());
        };
        self.socket.flush()?;
        if writer.current.is_none() {
            self.flush_pending(&mut writer)?;
        }
        self.note_blocked(&writer);
        Ok(())
    }

    /// Sends bytes of an operation's flow; returns how many the socket took.
    ///
    /// `offset` counts from the beginning of the flow; the bytes are `span[at..at + bytes]`.
    pub(crate) fn send_data(
        &self,
        generation: u64,
        key: Key,
        stage: u8,
        offset: u64,
        span: &mut Span,
        at: usize,
        bytes: usize,
    ) -> io::Result<usize> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = 0;
        while total < bytes {
            let mut current = match &writer.current {
                Some(current) if current.key == key && current.stage == stage => *current,
                Some(_) => break,
                None => {
                    let left = (bytes - total).min(MAX_DATA);
                    let frame = Frame {
                        kind: FrameKind::Data,
                        stage,
                        length: left as u32,
                        generation,
                        key,
                        offset: offset + total as u64,
                        extra: 0,
                    };
                    Current {
                        key,
                        stage,
                        left,
                        header: frame.encode(),
                        header_sent: 0,
                    }
                }
            };
            // What waited goes first, unless this frame has begun already.
            let waiting = if writer.current.is_some() {
                0
            } else {
                writer.pending.len() - writer.sent
            };
            let header = &current.header[current.header_sent..];
            let mut parts: [IoSlice<'_>; 16] = [IoSlice::new(&[]); 16];
            parts[0] = IoSlice::new(&writer.pending[writer.pending.len() - waiting..]);
            parts[1] = IoSlice::new(header);
            let mut count = 2;
            let mut wanted = 0;
            span.visit(
                at + total,
                current.left.min(bytes - total),
                |pointer, _, length| {
                    if count < parts.len() {
                        // SAFETY: the span vouches for the memory until the operation is over, and
                        // the slice is used in this call only.
                        parts[count] =
                            IoSlice::new(unsafe { std::slice::from_raw_parts(pointer, length) });
                        wanted += length;
                        count += 1;
                    }
                },
            );
            let mut sent = self.write(&parts[..count])?;
            let of_waiting = sent.min(waiting);
            let of_header = (sent - of_waiting).min(header.len());
            sent -= of_waiting + of_header;
            if waiting > 0 {
                writer.sent += of_waiting;
                if of_waiting == waiting {
                    writer.pending.clear();
                    writer.sent = 0;
                }
            }
            if of_header == 0 && sent == 0 {
                break;
            }
            current.header_sent += of_header;
            current.left -= sent;
            total += sent;
            writer.current = (current.left > 0).then_some(current);
            if sent < wanted {
                break;
            }
        }
        self.note_blocked(&writer);
        Ok(total)
    }

    /// Bytes of memory that this connection holds.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn held(&self) -> usize {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        reader.buffer.len() + reader.message.capacity() + writer.pending.capacity()
    }

    /// An operation is given up in the middle of a frame: the rest of the frame is filled up.
    pub(crate) fn abandon(&self, key: Key) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = writer.current
            && current.key == key
        {
            writer.current = None;
            let sent = writer.sent;
            let waiting = writer.pending.split_off(sent);
            writer.sent = 0;
            writer.pending.clear();
            writer
                .pending
                .extend_from_slice(&current.header[current.header_sent..]);
            let length = writer.pending.len() + current.left;
            writer.pending.resize(length, 0);
            writer.pending.extend_from_slice(&waiting);
            self.note_blocked(&writer);
        }
    }

    /// Reads what there is and hands it on; true when anything came but heartbeats, which tell
    /// nothing to those who wait.
    pub(crate) fn progress(&self, handler: &impl Handler) -> io::Result<bool> {
        let Ok(mut reader) = self.reader.try_lock() else {
            return Ok(false);
        };
        let mut any = false;
        loop {
            any |= reader.consume(self.rank, handler)?;
            let (count, full) = match reader.read(self)? {
                None => break,
                Some((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(outcome) => outcome,
            };
            // What goes straight into an operation's memory does not show in the buffer.
            any |= reader.body.is_some();
            self.heard.fetch_add(1, Ordering::Relaxed);
            self.bytes_in.fetch_add(count as u64, Ordering::Relaxed);
            if !full {
                any |= reader.consume(self.rank, handler)?;
                break;
            }
        }
        // TLS may have something to say on its own.
        if self.socket.wants_write() {
            self.blocked.store(true, Ordering::Relaxed);
        }
        Ok(any)
    }
}

impl Reader {
    /// One read; how many bytes came and whether there may be more.
    fn read(&mut self, connection: &Connection) -> io::Result<Option<(usize, bool)>> {
        let socket = &connection.socket;
        // Only the beginning of a header is ever left over.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if let Some(body) = &mut self.body
            && body.left >= DIRECT
            && let Some(flows) = &body.flows
            && let Some(flow) = flows.of(connection.rank)
        {
            let offset = body.frame.offset + (body.frame.length as usize - body.left) as u64;
            let stage = &flow.stages[usize::from(body.frame.stage)];
            let buffer = &mut self.buffer;
            let left = body.left;
            let mut outcome = None;
            let mut overflow = 0;
            let filled = stage.fill(offset, left, |pointer, room| {
                // The rest of the buffer takes the next header, if this read reaches it.
                let rest = if room == left { DIRECT } else { 0 };
                // SAFETY: the flow vouches for `room` bytes at the pointer under its lock.
                let count = unsafe { socket.receive(pointer, room, &mut buffer[..rest]) }?;
                outcome = count.map(|count| (count, count >= room));
                overflow = count.unwrap_or(0).saturating_sub(room);
                Ok::<_, io::Error>(count.unwrap_or(0).min(room))
            })?;
            if let Some(written) = filled {
                body.left -= written;
                self.end = overflow;
                return Ok(outcome);
            }
            body.flows = None;
        }
        let room = BUFFER - self.end;
        // SAFETY: no raw memory is involved; the buffer is borrowed.
        let count =
            unsafe { socket.receive(std::ptr::null_mut(), 0, &mut self.buffer[self.end..]) }?;
        self.end += count.unwrap_or(0);
        Ok(count.map(|count| (count, count == room)))
    }

    /// Takes apart what the buffer holds; true when there was anything but heartbeats.
    fn consume(&mut self, rank: usize, handler: &impl Handler) -> io::Result<bool> {
        let mut any = false;
        loop {
            let available = self.end - self.start;
            let Some(body) = &mut self.body else {
                if available < HEADER {
                    return Ok(any);
                }
                let header = self.buffer[self.start..self.start + HEADER]
                    .try_into()
                    .expect("a header's length");
                let frame = Frame::decode(&header).map_err(io::Error::other)?;
                self.start += HEADER;
                any |= frame.kind != FrameKind::Heartbeat;
                let data = frame.kind == FrameKind::Data;
                let current = frame.generation == handler.generation();
                let flows = if data && current {
                    handler.flows(frame.key)
                } else {
                    None
                };
                let flows = flows.filter(|flows| flows.of(rank).is_some_and(Flow::is_posted));
                let left = frame.length as usize;
                self.body = Some(Body { frame, left, flows });
                self.message.clear();
                continue;
            };
            let take = available.min(body.left);
            let bytes = &self.buffer[self.start..self.start + take];
            if body.frame.kind == FrameKind::Data {
                if let Some(flows) = &body.flows {
                    deliver(flows, rank, &body.frame, body.left, bytes);
                }
                self.start += take;
                body.left -= take;
            } else if body.left == take && self.message.is_empty() {
                self.start += take;
                let frame = body.frame;
                self.body = None;
                if frame.generation == handler.generation() {
                    handler.message(rank, &frame, bytes)?;
                }
                continue;
            } else {
                self.message.extend_from_slice(bytes);
                self.start += take;
                body.left -= take;
                if body.left == 0 {
                    let frame = body.frame;
                    self.body = None;
                    if frame.generation == handler.generation() {
                        handler.message(rank, &frame, &self.message)?;
                    }
                    continue;
                }
            }
            if body.left > 0 {
                return Ok(any);
            }
            self.body = None;
        }
    }
}

fn deliver(flows: &Flows, rank: usize, frame: &Frame, left: usize, mut bytes: &[u8]) {
    let Some(flow) = flows.of(rank) else { return };
    let mut offset = frame.offset + (frame.length as usize - left) as u64;
    while !bytes.is_empty() {
        let filled =
            flow.stages[usize::from(frame.stage)].fill(offset, bytes.len(), |pointer, room| {
                // SAFETY: the flow vouches for `room` bytes at the pointer under its lock.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, room) };
                Ok::<_, std::convert::Infallible>(room)
            });
        let Ok(Some(count)) = filled else { return };
        bytes = &bytes[count..];
        offset += count as u64;
    }
}
