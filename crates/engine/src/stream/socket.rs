//! A connected socket: TCP across hosts, with TLS where it is asked for; a local socket inside one.
//!
//! Reading and writing never block and never raise a signal, whatever mode the descriptor is in.

#![expect(
    unsafe_code,
    reason = "what is received goes to raw memory of operations"
)]

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::bundle::Bundle;
use super::tls::{Fingerprint, TlsSocket};
use crate::sys;

/// One end of a connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsSocket>),
    Local(UnixStream),
    /// Several of the others.
    Bundle(Box<Bundle>),
}

impl Socket {
    pub(crate) fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// The descriptor on which the next bytes arrive.
    pub(crate) fn reads_from(&self) -> RawFd {
        match self {
            Self::Bundle(bundle) => bundle.reads_from(),
            _ => self.raw(),
        }
    }

    /// The descriptor that takes the next bytes.
    pub(crate) fn writes_to(&self) -> RawFd {
        match self {
            Self::Bundle(bundle) => bundle.writes_to(),
            _ => self.raw(),
        }
    }

    /// Writes what fits; how many bytes were accepted.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tls(tls) => tls.send(parts),
            Self::Bundle(bundle) => bundle.send(parts),
            _ => sys::send(self.as_fd(), parts),
        }
    }

    /// Sends what was accepted and still waits here.
    pub(crate) fn flush(&self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush().map(drop),
            Self::Bundle(bundle) => bundle.sockets().iter().try_for_each(Self::flush),
            _ => Ok(()),
        }
    }

    /// Whether something that was accepted waits here for the network.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.wants_write(),
            Self::Bundle(bundle) => bundle.sockets().iter().any(Self::wants_write),
            _ => false,
        }
    }

    /// Reads what there is, into raw memory and then into `rest`.
    ///
    /// `None` when there is nothing now; zero at the end of the stream. Less than there is room
    /// for means that the descriptor will tell when more comes.
    ///
    /// # Safety
    /// `pointer` must be valid for writes of `bytes` bytes.
    pub(crate) unsafe fn receive(
        &self,
        pointer: *mut u8,
        bytes: usize,
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let tls = match self {
            Self::Tls(tls) => tls,
            // SAFETY: the caller vouches for the memory.
            Self::Bundle(bundle) => return unsafe { bundle.receive(pointer, bytes, rest) },
            // SAFETY: as above.
            _ => return unsafe { sys::receive(self.as_fd(), pointer, bytes, rest) },
        };
        let mut filled = 0;
        tls.receive(|mut received| {
            let before = filled;
            if filled < bytes {
                let count = received.len().min(bytes - filled);
                // SAFETY: the caller vouches for `bytes` bytes at the pointer, of which `filled`
                // are written; they are no part of the TLS buffers.
                unsafe {
                    std::ptr::copy_nonoverlapping(received.as_ptr(), pointer.add(filled), count);
                };
                filled += count;
                received = &received[count..];
            }
            if filled >= bytes {
                let at = filled - bytes;
                let count = received.len().min(rest.len() - at);
                rest[at..at + count].copy_from_slice(&received[..count]);
                filled += count;
            }
            filled - before
        })
    }

    /// What proofs are bound to: a secret of this channel, or nothing where it has none.
    pub(crate) fn channel(&self) -> io::Result<Option<[u8; 32]>> {
        match self {
            Self::Tls(tls) => tls.channel().map(Some),
            _ => Ok(None),
        }
    }

    /// The certificate that the other end has shown.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Self::Tls(tls) => tls.fingerprint(),
            _ => None,
        }
    }

    /// Fills the buffer, waiting until the deadline.
    pub(crate) fn read_by(&self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut socket = self;
        while !buffer.is_empty() {
            match socket.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(libc::POLLIN, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of the buffer, waiting until the deadline.
    pub(crate) fn write_by(&self, mut buffer: &[u8], deadline: Instant) -> io::Result<()> {
        let mut socket = self;
        while !buffer.is_empty() {
            match socket.write(buffer) {
                Ok(count) => buffer = &buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(libc::POLLOUT, deadline)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self, events: i16, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let output = if self.wants_write() { libc::POLLOUT } else { 0 };
        let mut fds = [libc::pollfd {
            fd: self.raw(),
            events: events | output,
            revents: 0,
        }];
        sys::poll(&mut fds, Some(left))?;
        self.flush()
    }

    /// Says no more; what the other side says can still be read.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Self::Tls(tls) => tls.finish(),
            Self::Local(socket) => socket.shutdown(Shutdown::Write),
            Self::Bundle(bundle) => {
                bundle.sockets().iter().for_each(Self::finish);
                Ok(())
            }
        };
    }

    /// Reads and drops what there is; false at the end.
    pub(crate) fn drain(&self) -> bool {
        if let Self::Bundle(bundle) = self {
            return bundle
                .sockets()
                .iter()
                .map(Self::drain)
                .fold(false, |a, b| a | b);
        }
        let mut buffer = [0; 16 << 10];
        loop {
            // What is dropped need not be decrypted.
            match sys::receive_into(self.as_fd(), &mut buffer) {
                Ok(Some(1..)) => {}
                Ok(None) => return true,
                Ok(Some(0)) | Err(_) => return false,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
            Self::Local(socket) => socket.as_fd(),
            Self::Bundle(bundle) => bundle.sockets()[0].as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: no raw memory is involved; the buffer is borrowed.
        let count = unsafe { self.receive(std::ptr::null_mut(), 0, buffer) }?;
        count.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self.send(&[IoSlice::new(buffer)])? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Socket::flush(self)
    }
}
