//! A connected socket: TCP across hosts, a local socket inside one.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::sys;

/// One end of a connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Socket {
    /// For the handshake: blocking reads and writes that end by themselves.
    pub(crate) fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(limit))?;
                socket.set_write_timeout(Some(limit))
            }
            Self::Local(socket) => {
                socket.set_read_timeout(Some(limit))?;
                socket.set_write_timeout(Some(limit))
            }
        }
    }

    /// Says no more; what the other side says can still be read.
    pub(crate) fn finish(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(std::net::Shutdown::Write),
            Self::Local(socket) => socket.shutdown(std::net::Shutdown::Write),
        };
    }

    /// Reads and drops what there is; false at the end.
    pub(crate) fn drain(&self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match sys::receive_into(self.as_fd(), &mut buffer) {
                Ok(Some(1..)) => {}
                Ok(None) => return true,
                Ok(Some(0)) | Err(_) => return false,
            }
        }
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Local(socket) => socket.as_fd(),
        }
    }
}

impl io::Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(buffer),
            Socket::Local(socket) => (&*socket).read(buffer),
        }
    }
}

impl io::Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write(buffer),
            Socket::Local(socket) => (&*socket).write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
