//! Which algorithm for which size and shape.
//!
//! The table is agreed when a session forms: every rank uses the one of the first rank. It decides
//! speed only; on one host all algorithms combine values in the same order and give the same bits.

/// How a reduction goes among the ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// Everybody reads everybody's values.
    Flat,
    /// Everybody reduces a segment, then takes the others'.
    TwoPhase {
        /// Bytes of a chunk.
        chunk: usize,
    },
}

/// The choices, by number of ranks on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Up to this many bytes, flat.
    pub(crate) flat: usize,
    /// Bytes of a chunk above.
    pub(crate) chunk: usize,
    /// Across hosts: flat while a rank sends at most this many bytes in all.
    pub(crate) flat_across: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            flat: 8 << 10,
            chunk: 256 << 10,
            flat_across: 64 << 10,
        }
    }
}

impl Table {
    /// Whether a reduction across hosts is small enough for everybody to send everything.
    pub(crate) fn is_flat_across(&self, bytes: usize, members: usize) -> bool {
        bytes * (members - 1) <= self.flat_across
    }

    #[inline]
    pub(crate) fn all_reduce(&self, bytes: usize, _members: usize) -> Algorithm {
        if bytes <= self.flat {
            Algorithm::Flat
        } else {
            Algorithm::TwoPhase { chunk: self.chunk }
        }
    }
}
