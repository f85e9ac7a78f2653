//! Frames: a length, a kind and bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::message::{Order, Report};
use crate::output::Stream;

/// The longest frame that is believed.
const LONGEST: usize = 16 << 20;
/// Bytes before a frame's content: the content's length, and its kind.
const HEADER: usize = 5;
/// How much is read at once.
const READ: usize = 256 << 10;

const ORDER: u8 = 1;
const REPORT: u8 = 2;
const STDOUT: u8 = 3;
const STDERR: u8 = 4;
const TUNNEL_OPEN: u8 = 5;
const TUNNEL_DATA: u8 = 6;
const TUNNEL_END: u8 = 7;
const INPUT: u8 = 8;
const FILE_DATA: u8 = 9;

/// What a frame says.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    Order(Order),
    Report(Report),
    /// What a rank printed.
    Printed {
        rank: usize,
        stream: Stream,
        bytes: &'a [u8],
    },
    /// A piece of a process's input; an empty one ends it.
    Input {
        rank: usize,
        bytes: &'a [u8],
    },
    /// A connection to the coordinator begins.
    TunnelOpen(u32),
    TunnelData(u32, &'a [u8]),
    /// Nothing more comes from this side.
    TunnelEnd(u32),
    /// The next bytes of a file, by its place in the list of those that are sent.
    FileData(u32, &'a [u8]),
}

impl Frame<'_> {
    /// The frame's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let json = |message: Result<Vec<u8>, serde_json::Error>| {
            message.expect("messages are made of text and numbers")
        };
        match self {
            Self::Order(order) => frame(ORDER, &[&json(serde_json::to_vec(order))]),
            Self::Report(report) => frame(REPORT, &[&json(serde_json::to_vec(report))]),
            Self::Printed {
                rank,
                stream,
                bytes,
            } => {
                let mut frame = printed_head(*rank, *stream).to_vec();
                frame.extend_from_slice(bytes);
                seal(frame)
            }
            Self::Input { rank, bytes } => frame(INPUT, &[&(*rank as u32).to_le_bytes(), bytes]),
            Self::TunnelOpen(id) => frame(TUNNEL_OPEN, &[&id.to_le_bytes()]),
            Self::TunnelData(id, bytes) => frame(TUNNEL_DATA, &[&id.to_le_bytes(), bytes]),
            Self::TunnelEnd(id) => frame(TUNNEL_END, &[&id.to_le_bytes()]),
            Self::FileData(place, bytes) => frame(FILE_DATA, &[&place.to_le_bytes(), bytes]),
        }
    }
}

/// What comes before the bytes of a [`Frame::Printed`] that is put together elsewhere, and is then
/// to be [sealed](seal).
pub(crate) fn printed_head(rank: usize, stream: Stream) -> [u8; HEADER + 4] {
    let kind = match stream {
        Stream::Stdout => STDOUT,
        Stream::Stderr => STDERR,
    };
    let [a, b, c, d] = (rank as u32).to_le_bytes();
    [0, 0, 0, 0, kind, a, b, c, d]
}

/// Writes a frame's length into its head.
pub(crate) fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() - HEADER) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER + length);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.push(kind);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Reads frames from a stream of bytes.
pub(crate) struct Reader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// The next frame; none when the other side is gone. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame<'_>>> {
        loop {
            if let Some(length) = self.complete()? {
                let begin = self.at + HEADER;
                let kind = self.buffer[self.at + 4];
                self.at = begin + length;
                return decode(kind, &self.buffer[begin..begin + length]).map(Some);
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            self.buffer.reserve(READ);
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.len() {
                    0 => Ok(None),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// The length of the next frame's content, if all of it is there.
    fn complete(&self) -> io::Result<Option<usize>> {
        let rest = &self.buffer[self.at..];
        let Some(header) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, d, _] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > LONGEST {
            return Err(bad(format!("a frame of {length} bytes")));
        }
        Ok((rest.len() >= HEADER + length).then_some(length))
    }
}

fn decode(kind: u8, content: &[u8]) -> io::Result<Frame<'_>> {
    let numbered = || {
        let (number, rest) = content
            .split_first_chunk::<4>()
            .ok_or_else(|| bad(format!("a frame of kind {kind} without a number")))?;
        Ok::<_, io::Error>((u32::from_le_bytes(*number), rest))
    };
    let printed = |stream| {
        let (rank, bytes) = numbered()?;
        Ok(Frame::Printed {
            rank: rank as usize,
            stream,
            bytes,
        })
    };
    match kind {
        ORDER => Ok(Frame::Order(parse(content)?)),
        REPORT => Ok(Frame::Report(parse(content)?)),
        STDOUT => printed(Stream::Stdout),
        STDERR => printed(Stream::Stderr),
        INPUT => numbered().map(|(rank, bytes)| Frame::Input {
            rank: rank as usize,
            bytes,
        }),
        TUNNEL_OPEN => Ok(Frame::TunnelOpen(numbered()?.0)),
        TUNNEL_DATA => numbered().map(|(id, bytes)| Frame::TunnelData(id, bytes)),
        TUNNEL_END => Ok(Frame::TunnelEnd(numbered()?.0)),
        FILE_DATA => numbered().map(|(place, bytes)| Frame::FileData(place, bytes)),
        _ => Err(bad(format!("a frame of the unknown kind {kind}"))),
    }
}

fn parse<T: serde::de::DeserializeOwned>(content: &[u8]) -> io::Result<T> {
    serde_json::from_slice(content).map_err(|error| bad(format!("a message: {error}")))
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_whole_however_they_are_cut() {
        let mut bytes = Vec::new();
        for frame in [
            Frame::Order(Order::End),
            Frame::Printed {
                rank: 7,
                stream: Stream::Stderr,
                bytes: b"half a line",
            },
            Frame::TunnelData(9, b""),
        ] {
            bytes.extend(frame.encode());
        }
        for step in [1, 3, bytes.len()] {
            let (mut near, far) = tokio::io::duplex(step);
            let sent = bytes.clone();
            tokio::spawn(async move {
                tokio::io::AsyncWriteExt::write_all(&mut near, &sent)
                    .await
                    .unwrap();
            });
            let mut reader = Reader::new(far);
            assert!(matches!(
                reader.next().await.unwrap(),
                Some(Frame::Order(Order::End))
            ));
            let Some(Frame::Printed {
                rank: 7,
                stream: Stream::Stderr,
                bytes: b"half a line",
            }) = reader.next().await.unwrap()
            else {
                panic!("not what was sent");
            };
            assert!(matches!(
                reader.next().await.unwrap(),
                Some(Frame::TunnelData(9, b""))
            ));
            assert!(reader.next().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        for bytes in [
            &b"\xff\xff\xff\xff\x01"[..],
            b"\x00\x00\x00\x00\x99",
            b"\x02\x00\x00\x00\x06ab",
            b"\x02\x00\x00\x00\x01{}",
            b"\x02\x00",
        ] {
            assert!(Reader::new(bytes).next().await.is_err(), "{bytes:?}");
        }
    }
}
