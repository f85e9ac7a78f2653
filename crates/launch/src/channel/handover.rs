//! Pipes of a rank on their way from its agent to a launcher on the same host.
//!
//! What the rank prints then need not pass through the agent. The agent's standard input is a local
//! socket in this case; the pipes travel on it against the orders.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Gives a rank's standard output and error away; the caller keeps its own descriptors.
pub(crate) fn give(socket: impl AsFd, rank: usize, pipes: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&pipes)) {
        return Err(io::Error::other("no room for two descriptors"));
    }
    let rank = (rank as u32).to_le_bytes();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&rank)], &mut control, flags)?;
    Ok(())
}

/// A rank's standard output and error; none when the agent is gone. Fails with `WouldBlock` where
/// nothing has come.
pub(crate) fn take(socket: impl AsFd) -> io::Result<Option<(usize, [OwnedFd; 2])>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut rank = [0; 4];
    let parts = &mut [IoSliceMut::new(&mut rank)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, parts, &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut pipes = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut pipes = pipes.by_ref().flatten();
    match (received.bytes, pipes.next(), pipes.next()) {
        (4, Some(out), Some(err)) => Ok(Some((u32::from_le_bytes(rank) as usize, [out, err]))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pipes_arrive_in_order_and_apart() {
        let (agent, launcher) = UnixStream::pair().unwrap();
        let mut writers = Vec::new();
        for rank in [3, 70_000] {
            let ((out, to_out), (err, to_err)) = (io::pipe().unwrap(), io::pipe().unwrap());
            give(&agent, rank, [out.as_fd(), err.as_fd()]).unwrap();
            writers.push((to_out, to_err));
        }
        for (rank, (mut to_out, mut to_err)) in [3, 70_000].into_iter().zip(writers) {
            write!(to_out, "out {rank}").unwrap();
            write!(to_err, "err {rank}").unwrap();
            drop((to_out, to_err));
            let (told, pipes) = take(&launcher).unwrap().unwrap();
            let texts = pipes.map(|pipe| {
                let mut text = String::new();
                File::from(pipe).read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(told, rank);
            assert_eq!(texts, [format!("out {rank}"), format!("err {rank}")]);
        }
        let nothing = take(&launcher).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(agent);
        assert!(take(&launcher).unwrap().is_none());
    }
}
