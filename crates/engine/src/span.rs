//! A tensor or a list of tensors, seen as one run of bytes.
//!
//! Spans are raw: whoever makes one promises that its memory stays valid, and is not touched by
//! anyone else, until the operation that uses it has ended. The public calls keep that promise by
//! borrowing or by owning the buffers.

#![expect(
    unsafe_code,
    reason = "offsets into memory that the caller vouches for"
)]

/// One contiguous stretch of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    /// Where it begins.
    pub pointer: *mut u8,
    /// How long it is, in bytes.
    pub bytes: usize,
}

/// Pieces in order, as one run of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    first: Piece,
    /// Null for a single piece.
    list: *const Piece,
    count: usize,
    bytes: usize,
    /// Where the last access ended: index of a piece and the offset at which it begins.
    cursor: (usize, usize),
}

// SAFETY: a span is a description of memory; the promise made at its creation covers threads.
unsafe impl Send for Span {}

impl Span {
    /// No memory at all.
    pub(crate) const EMPTY: Self = Self {
        first: Piece {
            pointer: std::ptr::null_mut(),
            bytes: 0,
        },
        list: std::ptr::null(),
        count: 0,
        bytes: 0,
        cursor: (0, 0),
    };

    /// A single piece.
    #[inline]
    pub(crate) fn one(pointer: *mut u8, bytes: usize) -> Self {
        Self {
            first: Piece { pointer, bytes },
            count: 1,
            bytes,
            ..Self::EMPTY
        }
    }

    /// A list of pieces, which must stay where it is as long as the span is used.
    pub(crate) fn many(pieces: &[Piece]) -> Self {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        match pieces {
            [] => Self::EMPTY,
            [piece] => Self::one(piece.pointer, piece.bytes),
            _ => Self {
                list: pieces.as_ptr(),
                count: pieces.len(),
                bytes,
                ..Self::EMPTY
            },
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pointer of a span in one piece.
    #[inline]
    pub(crate) fn contiguous(&self) -> Option<*mut u8> {
        self.list.is_null().then_some(self.first.pointer)
    }

    /// The part `[offset, offset + bytes)`, cut at the borders of the pieces.
    ///
    /// `visit` gets the memory and its distance from `offset`.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(*mut u8, usize, usize),
    ) {
        debug_assert!(offset + bytes <= self.bytes, "range within the span");
        if bytes == 0 {
            return;
        }
        if self.list.is_null() {
            visit(self.first.pointer.wrapping_add(offset), 0, bytes);
        } else {
            self.visit_list(offset, bytes, visit);
        }
    }

    fn visit_list(
        &mut self,
        offset: usize,
        bytes: usize,
        mut visit: impl FnMut(*mut u8, usize, usize),
    ) {
        let (mut index, mut start) = self.cursor;
        while start > offset {
            index -= 1;
            start -= self.piece(index).bytes;
        }
        let mut done = 0;
        while done < bytes {
            let piece = self.piece(index);
            let inside = offset + done - start;
            if inside >= piece.bytes {
                start += piece.bytes;
                index += 1;
                continue;
            }
            let take = (piece.bytes - inside).min(bytes - done);
            visit(piece.pointer.wrapping_add(inside), done, take);
            done += take;
        }
        self.cursor = (index, start);
    }

    fn piece(&self, index: usize) -> Piece {
        assert!(index < self.count, "a range within the span");
        // SAFETY: the index was checked and the list outlives the span, as its maker promised.
        unsafe { *self.list.add(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_visited_like_one_run() {
        let mut data: Vec<u8> = (0..100).collect();
        let base = data.as_mut_ptr();
        let lengths = [0usize, 7, 1, 0, 30, 12, 50, 0];
        let mut offset = 0;
        let pieces: Vec<Piece> = lengths
            .iter()
            .map(|bytes| {
                let piece = Piece {
                    pointer: base.wrapping_add(offset),
                    bytes: *bytes,
                };
                offset += bytes;
                piece
            })
            .collect();
        let mut span = Span::many(&pieces);
        assert_eq!(span.bytes(), 100);
        for (offset, bytes) in [
            (0, 100),
            (50, 50),
            (3, 10),
            (99, 1),
            (0, 1),
            (40, 0),
            (8, 91),
        ] {
            let mut next = offset;
            span.visit(offset, bytes, |pointer, distance, length| {
                assert_eq!(pointer, base.wrapping_add(next));
                assert_eq!(distance, next - offset);
                next += length;
            });
            assert_eq!(next, offset + bytes);
        }
    }
}
