//! Frames: what travels on a connection after the handshake.
//!
//! A frame is a header of 48 bytes and a payload whose length the header tells. Every header
//! carries the generation. Lengths are bounded before memory is taken.

use crate::descriptor::Descriptor;
use crate::key::Key;

/// Bytes of a header.
pub(crate) const HEADER: usize = 48;
/// The largest payload of a data frame.
pub(crate) const MAX_DATA: usize = 256 << 10;
/// The most bytes that travel with a posting, before the other end has said it is there.
pub(crate) const MAX_EAGER: usize = 32 << 10;
/// The largest payload of any other frame.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

const MAGIC: u16 = 0xca01;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// An operation's descriptor and the first of its bytes.
    Post = 1,
    /// Bytes of an operation.
    Data = 2,
    /// The other end may send more of an operation: up to `offset`.
    Credit = 3,
    /// The sender gave an operation up; the payload says why.
    Abort = 4,
    /// The sender is alive.
    Heartbeat = 5,
    /// The sender leaves the session in good order.
    Goodbye = 6,
    /// The sender saw the rank in `offset` die; the payload says how.
    Lost = 7,
    /// Asks for a named blob; `offset` is the request's number, `extra` the version.
    Ask = 8,
    /// A piece of the answer to `Ask`: `offset` is the request's number.
    Answer = 9,
    /// A message for a named queue.
    Enqueue = 10,
}

impl FrameKind {
    fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Post,
            2 => Self::Data,
            3 => Self::Credit,
            4 => Self::Abort,
            5 => Self::Heartbeat,
            6 => Self::Goodbye,
            7 => Self::Lost,
            8 => Self::Ask,
            9 => Self::Answer,
            10 => Self::Enqueue,
            _ => return None,
        })
    }

    fn limit(self) -> usize {
        match self {
            Self::Data | Self::Answer | Self::Enqueue => MAX_DATA,
            Self::Post => POST + MAX_EAGER,
            _ => MAX_MESSAGE,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    /// Which of an operation's two flows.
    pub(crate) stage: u8,
    /// Bytes of payload.
    pub(crate) length: u32,
    pub(crate) generation: u64,
    pub(crate) key: Key,
    pub(crate) offset: u64,
    pub(crate) extra: u64,
}

/// Why a header is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error("not a frame")]
    Magic,
    #[error("unknown kind of frame {0}")]
    Kind(u8),
    #[error("a payload of {0} bytes is too long")]
    Length(u32),
    #[error("unknown stage {0}")]
    Stage(u8),
    #[error("data at {0} has no place in a flow")]
    Offset(u64),
}

impl Frame {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = self.kind as u8;
        bytes[3] = self.stage;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key.1.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.extra.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, BadFrame> {
        let number =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[0..2] != MAGIC.to_le_bytes() {
            return Err(BadFrame::Magic);
        }
        let kind = FrameKind::from_u8(bytes[2]).ok_or(BadFrame::Kind(bytes[2]))?;
        let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        if length as usize > kind.limit() {
            return Err(BadFrame::Length(length));
        }
        if bytes[3] > 1 {
            return Err(BadFrame::Stage(bytes[3]));
        }
        let offset = number(32);
        if kind == FrameKind::Data && offset.checked_add(length.into()).is_none() {
            return Err(BadFrame::Offset(offset));
        }
        Ok(Self {
            kind,
            stage: bytes[3],
            length,
            generation: number(8),
            key: Key(number(16), number(24)),
            offset,
            extra: number(40),
        })
    }
}

/// Bytes of a posting before the eager ones.
pub(crate) const POST: usize = 40;

/// What a posting says besides its eager bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) descriptor: Descriptor,
    /// How many bytes of each flow the poster is ready for.
    pub(crate) granted: [u64; 2],
}

impl Post {
    pub(crate) fn encode(&self) -> [u8; POST] {
        let mut bytes = [0; POST];
        bytes[0..4].copy_from_slice(&self.descriptor.word().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.descriptor.root.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.descriptor.count.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.descriptor.settings.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.granted[0].to_le_bytes());
        bytes[32..40].copy_from_slice(&self.granted[1].to_le_bytes());
        bytes
    }

    /// `None` for numbers without a meaning.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; POST] = bytes.get(..POST)?.try_into().ok()?;
        let number =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let descriptor = Descriptor::from_parts(half(0), number(8), half(4), half(16))?;
        Some(Self {
            descriptor,
            granted: [number(24), number(32)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Kind;
    use crate::dtype::{DType, ReduceOp};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::array::uniform32(any::<u8>()),
                                           rest in proptest::array::uniform16(any::<u8>()),
                                           framed in any::<bool>()) {
            let mut header = [0u8; HEADER];
            header[..32].copy_from_slice(&bytes);
            header[32..].copy_from_slice(&rest);
            if framed {
                header[..2].copy_from_slice(&MAGIC.to_le_bytes());
                header[2] %= 12;
                header[3] %= 3;
                header[7] = 0;
            }
            if let Ok(frame) = Frame::decode(&header) {
                prop_assert!(frame.length as usize <= frame.kind.limit());
                prop_assert_eq!(frame.encode(), header);
            }
        }

        #[test]
        fn any_posting_decodes_or_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Post::decode(&bytes);
        }
    }

    #[test]
    fn a_posting_round_trips() {
        let post = Post {
            descriptor: Descriptor {
                kind: Kind::ReduceScatter,
                dtype: DType::Bf16,
                op: ReduceOp::Max,
                shared: false,
                count: 1 << 40,
                root: 3,
                settings: 77,
            },
            granted: [1 << 20, u64::MAX],
        };
        assert_eq!(Post::decode(&post.encode()), Some(post));
    }
}
