//! The peer store: named, versioned blobs and named queues.
//!
//! A rank saves blobs for others to ask for; the last few versions of a name are kept, each whole,
//! so that a reader never sees a torn one. A queue holds messages that others sent to this rank.
//! Requests are served by the engine thread of the rank that is asked; its caller need not be in
//! any call. This is what pair averaging is made of.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::session::Inner;
use crate::stream::connection::Connection;
use crate::stream::frame::{Frame, FrameKind, MAX_DATA};

/// Versions of a name that are kept.
const WINDOW: usize = 3;
/// Bytes that wait in one queue before further messages are refused.
const QUEUE_BYTES: usize = 256 << 20;
/// Queues that a rank may have; messages for further names are refused.
const QUEUES: usize = 1 << 16;
const LONGEST_NAME: usize = 4096;

/// The versions of a blob that are kept, oldest first.
type Versions = VecDeque<(u64, Arc<[u8]>)>;

#[derive(Default)]
pub(crate) struct Store {
    blobs: Mutex<HashMap<String, Versions>>,
    queues: Mutex<HashMap<String, Queue>>,
    filled: Condvar,
    requests: Mutex<HashMap<u64, Asked>>,
    answered: Condvar,
    next: AtomicU64,
    serving: Mutex<Vec<Serving>>,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of all messages, those still arriving counted whole.
    bytes: usize,
    /// Messages that are still arriving, by sender and number; `None` for one that is refused.
    partial: HashMap<(usize, u64), Option<Vec<u8>>>,
}

impl Queue {
    /// Takes a piece of a message of which `left` bytes follow; true when the message is complete.
    fn take(&mut self, sender: (usize, u64), bytes: &[u8], left: u64) -> bool {
        let mut message = self.partial.remove(&sender).unwrap_or_else(|| {
            let whole = usize::try_from(left).ok()?.checked_add(bytes.len())?;
            let fits = self.bytes.checked_add(whole)? <= QUEUE_BYTES;
            fits.then(|| {
                self.bytes += whole;
                Vec::with_capacity(whole.min(MAX_DATA))
            })
        });
        if let Some(message) = &mut message {
            message.extend_from_slice(bytes);
        }
        if left > 0 {
            self.partial.insert(sender, message);
            return false;
        }
        let complete = message.is_some();
        self.messages.extend(message);
        complete
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.partial.is_empty()
    }
}

/// A request of this rank.
struct Asked {
    rank: usize,
    bytes: Vec<u8>,
    version: u64,
    state: AskState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AskState {
    Waiting,
    Missing,
    Complete,
}

/// An answer that is being sent.
struct Serving {
    rank: usize,
    request: u64,
    version: u64,
    blob: Arc<[u8]>,
    at: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Keeps a blob under a name and version for others to ask for.
    pub(crate) fn save(&self, name: &str, version: u64, bytes: &[u8]) {
        let blob: Arc<[u8]> = bytes.into();
        let mut blobs = lock(&self.blobs);
        let versions = blobs.entry(name.to_owned()).or_default();
        versions.retain(|(known, _)| *known != version);
        versions.push_back((version, blob));
        while versions.len() > WINDOW {
            versions.pop_front();
        }
    }

    fn find(&self, name: &str, version: Option<u64>) -> Option<(u64, Arc<[u8]>)> {
        let blobs = lock(&self.blobs);
        let versions = blobs.get(name)?;
        match version {
            Some(version) => versions
                .iter()
                .find(|(known, _)| *known == version)
                .cloned(),
            None => versions.back().cloned(),
        }
    }

    /// Asks a rank for a blob; `None` when it has no such name or version.
    pub(crate) fn request(
        &self,
        inner: &Inner,
        rank: usize,
        name: &str,
        version: Option<u64>,
        timeout: Duration,
    ) -> Result<Option<(u64, Vec<u8>)>> {
        if rank == inner.rank {
            return Ok(self
                .find(name, version)
                .map(|(version, blob)| (version, blob.to_vec())));
        }
        let operation = || format!("request {name:?} from rank {rank}");
        check_name(name, &operation)?;
        let streams = inner.streams.as_ref().ok_or(Error::Closed)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = Asked {
            rank,
            bytes: Vec::new(),
            version: 0,
            state: AskState::Waiting,
        };
        lock(&self.requests).insert(id, asked);
        let mut frame = streams.frame(FrameKind::Ask, Key(0, 0));
        frame.length = name.len() as u32;
        frame.offset = id;
        frame.extra = version.unwrap_or(u64::MAX);
        let sent = streams.send(rank, &frame, name.as_bytes());
        let deadline = Instant::now() + timeout;
        let mut requests = lock(&self.requests);
        if let Err(error) = sent {
            requests.remove(&id);
            return Err(Error::system(operation(), &error));
        }
        loop {
            match requests.get(&id).map(|asked| asked.state) {
                Some(AskState::Complete) => {
                    let asked = requests.remove(&id).ok_or(Error::Closed)?;
                    return Ok(Some((asked.version, asked.bytes)));
                }
                Some(AskState::Missing) | None => {
                    requests.remove(&id);
                    return Ok(None);
                }
                Some(AskState::Waiting) => {}
            }
            if let Some(error) = inner.loss_of(&[rank], operation()) {
                requests.remove(&id);
                return Err(error);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                requests.remove(&id);
                return Err(Error::Timeout {
                    operation: operation(),
                    after: timeout,
                    waiting_for: inner.name_ranks(&[rank]),
                });
            }
            let step = left.min(Duration::from_millis(100));
            requests = self
                .answered
                .wait_timeout(requests, step)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Puts a message into a rank's queue.
    pub(crate) fn put(&self, inner: &Inner, rank: usize, queue: &str, bytes: &[u8]) -> Result<()> {
        let operation = || format!("put into {queue:?} of rank {rank}");
        check_name(queue, &operation)?;
        if rank == inner.rank {
            let mut queues = lock(&self.queues);
            let queue = queues.entry(queue.to_owned()).or_default();
            queue.bytes += bytes.len();
            queue.messages.push_back(bytes.to_vec());
            self.filled.notify_all();
            return Ok(());
        }
        let streams = inner.streams.as_ref().ok_or(Error::Closed)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let room = MAX_DATA - LONGEST_NAME - 2;
        let mut at = 0;
        loop {
            let take = room.min(bytes.len() - at);
            let mut payload = Vec::with_capacity(2 + queue.len() + take);
            payload.extend_from_slice(&(queue.len() as u16).to_le_bytes());
            payload.extend_from_slice(queue.as_bytes());
            payload.extend_from_slice(&bytes[at..at + take]);
            at += take;
            let mut frame = streams.frame(FrameKind::Enqueue, Key(0, 0));
            frame.length = payload.len() as u32;
            frame.offset = id;
            frame.extra = (bytes.len() - at) as u64;
            while streams.connection(rank).is_ok_and(Connection::is_blocked) {
                if let Some(error) = inner.loss_of(&[rank], operation()) {
                    return Err(error);
                }
                inner.engine.ring();
                std::thread::sleep(Duration::from_micros(100));
            }
            streams
                .send(rank, &frame, &payload)
                .map_err(|e| Error::system(operation(), &e))?;
            if at == bytes.len() {
                // What the socket did not take is the engine thread's to send.
                inner.engine.ring();
                return Ok(());
            }
        }
    }

    /// Takes the oldest message of one of this rank's queues; `None` when the time is over.
    pub(crate) fn get(&self, queue: &str, timeout: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        let mut queues = lock(&self.queues);
        loop {
            if let Some(known) = queues.get_mut(queue)
                && let Some(message) = known.messages.pop_front()
            {
                known.bytes -= message.len();
                if known.is_empty() {
                    queues.remove(queue);
                }
                return Some(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            queues = self
                .filled
                .wait_timeout(queues, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Takes a frame of the store; called by whoever reads the connection.
    pub(crate) fn receive(&self, inner: &Inner, rank: usize, frame: &Frame, payload: &[u8]) {
        match frame.kind {
            FrameKind::Ask => {
                let name = String::from_utf8_lossy(payload);
                let version = (frame.extra != u64::MAX).then_some(frame.extra);
                let (version, blob) = match self.find(&name, version) {
                    Some((version, blob)) => (version, blob),
                    None => (u64::MAX, Arc::from(&[][..])),
                };
                lock(&self.serving).push(Serving {
                    rank,
                    request: frame.offset,
                    version,
                    blob,
                    at: 0,
                });
                self.pump(inner);
            }
            FrameKind::Answer => self.take_answer(rank, frame, payload),
            FrameKind::Enqueue => self.take_message(rank, frame, payload),
            _ => {}
        }
    }

    fn take_answer(&self, rank: usize, frame: &Frame, payload: &[u8]) {
        let mut requests = lock(&self.requests);
        let Some(asked) = requests
            .get_mut(&frame.offset)
            .filter(|asked| asked.rank == rank)
        else {
            return;
        };
        if frame.extra == u64::MAX {
            asked.state = AskState::Missing;
        } else {
            asked.bytes.extend_from_slice(payload);
            asked.version = frame.extra;
            if asked.bytes.len() as u64 >= frame.key.0 {
                asked.state = AskState::Complete;
            }
        }
        self.answered.notify_all();
    }

    fn take_message(&self, rank: usize, frame: &Frame, payload: &[u8]) {
        let Some((length, rest)) = payload.split_at_checked(2) else {
            return;
        };
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some((name, bytes)) = rest.split_at_checked(length) else {
            return;
        };
        let name = String::from_utf8_lossy(name);
        let mut queues = lock(&self.queues);
        if queues.len() >= QUEUES && !queues.contains_key(&*name) {
            tracing::warn!(queue = %name, rank, "too many queues, message dropped");
            return;
        }
        let queue = queues.entry(name.clone().into_owned()).or_default();
        if queue.take((rank, frame.offset), bytes, frame.extra) {
            self.filled.notify_all();
        } else if frame.extra == 0 {
            tracing::warn!(queue = %name, rank, "queue is full, message dropped");
        }
    }

    /// Sends answers as far as the connections take them.
    pub(crate) fn pump(&self, inner: &Inner) {
        let Some(streams) = &inner.streams else {
            return;
        };
        let mut serving = lock(&self.serving);
        serving.retain_mut(|answer| {
            let Ok(connection) = streams.connection(answer.rank) else {
                return false;
            };
            loop {
                if connection.is_blocked() {
                    return true;
                }
                let take = (answer.blob.len() - answer.at).min(MAX_DATA);
                let mut frame = streams.frame(FrameKind::Answer, Key(answer.blob.len() as u64, 0));
                frame.length = take as u32;
                frame.offset = answer.request;
                frame.extra = answer.version;
                let bytes = &answer.blob[answer.at..answer.at + take];
                if connection.send(&frame, &[], bytes).is_err() {
                    return false;
                }
                answer.at += take;
                if answer.at == answer.blob.len() {
                    return false;
                }
            }
        });
    }
}

fn check_name(name: &str, operation: &impl Fn() -> String) -> Result<()> {
    if name.len() > LONGEST_NAME {
        return Err(Error::Invalid {
            operation: operation(),
            problem: format!("a name of {} bytes is too long", name.len()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_does_not_fit_is_refused_whole() {
        let mut queue = Queue::default();
        assert!(!queue.take((1, 7), &[1; 100], QUEUE_BYTES as u64));
        assert!(!queue.take((1, 7), &[1; 100], 0), "the last piece of it");
        assert_eq!((queue.messages.len(), queue.bytes), (0, 0));
        assert!(queue.is_empty());
    }

    #[test]
    fn pieces_become_one_message_and_count_once() {
        let mut queue = Queue::default();
        assert!(!queue.take((1, 7), &[1; 3], 2));
        assert!(queue.take((2, 7), &[9], 0), "another sender's, in between");
        assert!(queue.take((1, 7), &[2; 2], 0));
        assert_eq!(queue.messages, [vec![9], vec![1, 1, 1, 2, 2]]);
        assert_eq!(queue.bytes, 6);
    }
}
