//! Several TCP connections between two peers that carry one stream of bytes.
//!
//! The stream is cut into *stripes*, which go to the connections in turn. Whoever reads takes them
//! in the same order, so that nothing above knows of more than one connection; meanwhile the kernel
//! moves all of them. A network that gives one connection only a part of its bandwidth gives
//! several of them more.

#![expect(
    unsafe_code,
    reason = "what is received goes to raw memory of operations"
)]

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::socket::Socket;

/// Bytes that go to one connection before it is the next one's turn.
const STRIPE: u64 = 128 << 10;

/// The most connections of a bundle.
pub(crate) const MOST: usize = 16;

/// Slices that are handed to the kernel at a time.
const SLICES: usize = 16;

/// Connections in the order of their stripes.
pub(crate) struct Bundle {
    sockets: Vec<Socket>,
    /// Bytes sent so far; only who holds the connection's writer changes it.
    sent: AtomicU64,
    /// Bytes received so far; only who holds the connection's reader changes it.
    received: AtomicU64,
}

impl Bundle {
    pub(crate) fn new(sockets: Vec<Socket>) -> Self {
        debug_assert!((1..=MOST).contains(&sockets.len()));
        Self {
            sockets,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    pub(crate) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// Whose turn it is after `bytes` bytes, and how many more are its.
    fn turn(&self, bytes: u64) -> (&Socket, usize) {
        let stripe = (bytes / STRIPE) as usize;
        let left = STRIPE - bytes % STRIPE;
        (&self.sockets[stripe % self.sockets.len()], left as usize)
    }

    /// The descriptor on which the next bytes arrive.
    pub(crate) fn reads_from(&self) -> RawFd {
        self.turn(self.received.load(Ordering::Relaxed)).0.raw()
    }

    /// The descriptor that takes the next bytes.
    pub(crate) fn writes_to(&self) -> RawFd {
        self.turn(self.sent.load(Ordering::Relaxed)).0.raw()
    }

    /// Writes what fits; how many bytes were accepted.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let mut done = 0;
        while done < wanted {
            let (socket, left) = self.turn(self.sent.load(Ordering::Relaxed));
            let (slices, count) = cut(parts, done, left);
            let asked: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            let sent = match socket.send(&slices[..count]) {
                Ok(sent) => sent,
                // What was accepted counts; the failure shows the next time.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            self.sent.fetch_add(sent as u64, Ordering::Relaxed);
            done += sent;
            if sent < asked {
                break;
            }
        }
        Ok(done)
    }

    /// Reads what there is, into raw memory and then into `rest`, as [`Socket::receive`] does.
    ///
    /// # Safety
    /// `pointer` must be valid for writes of `bytes` bytes.
    pub(crate) unsafe fn receive(
        &self,
        pointer: *mut u8,
        bytes: usize,
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let room = bytes + rest.len();
        let mut done = 0;
        while done < room {
            let (socket, left) = self.turn(self.received.load(Ordering::Relaxed));
            let direct = bytes.saturating_sub(done).min(left);
            let begin = done.saturating_sub(bytes);
            let end = (begin + left - direct).min(rest.len());
            let behind = if direct + done < bytes {
                &mut []
            } else {
                &mut rest[begin..end]
            };
            let asked = direct + behind.len();
            // SAFETY: `done + direct` is at most `bytes`, for which the caller vouches.
            let received =
                match unsafe { socket.receive(pointer.wrapping_add(done), direct, behind) } {
                    Ok(Some(0)) | Err(_) if done > 0 => break,
                    Ok(Some(received)) => received,
                    Ok(None) if done > 0 => break,
                    other => return other,
                };
            self.received.fetch_add(received as u64, Ordering::Relaxed);
            done += received;
            if received == 0 || received < asked {
                break;
            }
        }
        Ok(Some(done))
    }
}

/// The slices of `parts` from `skip` on, `limit` bytes at the most.
fn cut<'a>(
    parts: &'a [IoSlice<'a>],
    mut skip: usize,
    mut limit: usize,
) -> ([IoSlice<'a>; SLICES], usize) {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut count = 0;
    for part in parts {
        let begin = skip.min(part.len());
        skip -= begin;
        let length = limit.min(part.len() - begin);
        if length > 0 && count < SLICES {
            slices[count] = IoSlice::new(&part[begin..begin + length]);
            count += 1;
            limit -= length;
        }
    }
    (slices, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn bundles(count: usize) -> (Bundle, Bundle) {
        let pairs = (0..count).map(|_| UnixStream::pair().expect("a pair of sockets"));
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
        let bundle = |streams: Vec<UnixStream>| {
            Bundle::new(streams.into_iter().map(Socket::Local).collect())
        };
        (bundle(ours), bundle(theirs))
    }

    #[test]
    fn bytes_come_in_the_order_in_which_they_were_sent() {
        for connections in [1, 2, 3] {
            let (ours, theirs) = bundles(connections);
            let data: Vec<u8> = (0..5 * STRIPE as usize + 77)
                .map(|i| (i * 31 % 251) as u8)
                .collect();
            let mut got = Vec::new();
            let mut sent = 0;
            while got.len() < data.len() {
                // Pieces that fall on either side of the stripes' borders.
                let middle = sent + (data.len() - sent) / 3;
                let parts = [
                    IoSlice::new(&data[sent..middle]),
                    IoSlice::new(&data[middle..]),
                ];
                sent += ours.send(&parts).expect("an open socket");
                let mut direct = vec![0; 70_001];
                let mut rest = vec![0; 4096];
                // SAFETY: the vector has as many bytes.
                let count = unsafe { theirs.receive(direct.as_mut_ptr(), direct.len(), &mut rest) };
                let count = count.expect("an open socket").unwrap_or(0);
                got.extend_from_slice(&direct[..count.min(direct.len())]);
                got.extend_from_slice(&rest[..count.saturating_sub(direct.len())]);
            }
            assert_eq!(got, data, "{connections} connections");
            // SAFETY: no memory but the borrowed buffer is given.
            let empty = unsafe { theirs.receive(std::ptr::null_mut(), 0, &mut [0; 8]) };
            assert_eq!(empty.expect("an open socket"), None);
        }
    }

    #[test]
    fn the_end_of_the_connection_in_turn_is_the_end() {
        let (ours, theirs) = bundles(2);
        assert_eq!(ours.send(&[IoSlice::new(b"last")]).expect("open"), 4);
        drop(ours);
        let mut rest = [0; 8];
        for expected in [Some(4), Some(0)] {
            // SAFETY: no memory but the borrowed buffer is given.
            let count = unsafe { theirs.receive(std::ptr::null_mut(), 0, &mut rest) };
            assert_eq!(count.expect("readable"), expected);
        }
    }
}
