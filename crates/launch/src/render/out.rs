//! What is to be written, and to which stream.

use memchr::memchr_iter;

use super::newlines::each_newline;

/// As much is copied of a prefix that is not longer.
const PREFIX: usize = 32;
/// As much is copied of a line that is not longer.
const LINE: usize = 128;

/// Which stream a line came from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes for both streams, in the order in which they are to be written.
///
/// It is meant to be used again: write the [pieces](Self::pieces), then [clear](Self::clear).
#[derive(Clone, Debug, Default)]
pub struct Out {
    /// What is to be written, and after it room that was used before.
    buffer: Vec<u8>,
    used: usize,
    /// Where each piece begins, and its stream; neighbours differ in their stream.
    starts: Vec<(Stream, usize)>,
}

impl Out {
    /// Nothing to write.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many bytes there are for both streams.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Forgets what was written and keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
        self.starts.clear();
    }

    /// Whole lines, as few pieces as the order of the two streams allows.
    pub fn pieces(&self) -> impl Iterator<Item = (Stream, &[u8])> {
        let ends = self.starts.iter().skip(1).map(|&(_, start)| start);
        self.starts
            .iter()
            .zip(ends.chain([self.used]))
            .map(|(&(stream, start), end)| (stream, &self.buffer[start..end]))
    }

    /// Everything for one stream.
    pub fn of(&self, stream: Stream) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (of, piece) in self.pieces() {
            if of == stream {
                bytes.extend_from_slice(piece);
            }
        }
        bytes
    }

    /// What is added next is for `stream`.
    pub(crate) fn begin(&mut self, stream: Stream) {
        if self.starts.last().is_none_or(|&(last, _)| last != stream) {
            self.starts.push((stream, self.used));
        }
    }

    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// Adds lines, each given with its newline, with a prefix before each, and tells how many
    /// there were.
    pub(crate) fn add_lines(&mut self, prefix: &[u8], lines: &[u8]) -> usize {
        // Counting first costs as much as a fifth of the rest; room for the most lines that there
        // can be is little where prefixes are short.
        let most = if prefix.len() <= PREFIX {
            lines.len()
        } else {
            memchr_iter(b'\n', lines).count()
        };
        let room = self.room(lines.len() + most * prefix.len() + PREFIX + LINE);
        let (written, count) = weave(prefix, lines, room);
        self.used += written;
        count
    }

    /// At least this many bytes after those that are to be written.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let needed = self.used + bytes;
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
        &mut self.buffer[self.used..]
    }
}

/// Copies lines with a prefix before each and tells how many bytes it wrote, and how many lines. The
/// target must have room for a prefix and a line more.
///
/// Where they are short, as most are, a fixed number of bytes is copied beyond their end, and what
/// is too much is overwritten by the next. That is up to twice as fast as exact copies: the compiler
/// knows the size, and the processor need not guess it.
fn weave(prefix: &[u8], lines: &[u8], target: &mut [u8]) -> (usize, usize) {
    let mut short_prefix = [0; PREFIX];
    let is_short = prefix.len() <= PREFIX;
    if is_short {
        short_prefix[..prefix.len()].copy_from_slice(prefix);
    }
    let (mut start, mut at, mut count) = (0, 0, 0);
    each_newline(lines, |newline| {
        if is_short {
            target[at..at + PREFIX].copy_from_slice(&short_prefix);
        } else {
            target[at..at + prefix.len()].copy_from_slice(prefix);
        }
        at += prefix.len();
        let length = newline + 1 - start;
        if length <= LINE && start + LINE <= lines.len() {
            target[at..at + LINE].copy_from_slice(&lines[start..start + LINE]);
        } else {
            target[at..at + length].copy_from_slice(&lines[start..=newline]);
        }
        at += length;
        start = newline + 1;
        count += 1;
    });
    (at, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_the_order_of_the_streams_and_neighbours_are_one() {
        let mut out = Out::new();
        assert_eq!(out.pieces().count(), 0);
        for (stream, text) in [
            (Stream::Stdout, "a"),
            (Stream::Stdout, "b"),
            (Stream::Stderr, "c"),
            (Stream::Stdout, "d"),
        ] {
            out.begin(stream);
            out.add(text.as_bytes());
        }
        let pieces: Vec<_> = out.pieces().collect();
        let expected: [(Stream, &[u8]); 3] = [
            (Stream::Stdout, b"ab"),
            (Stream::Stderr, b"c"),
            (Stream::Stdout, b"d"),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(out.of(Stream::Stdout), b"abd");
        out.clear();
        assert!(out.is_empty());
        assert_eq!(out.pieces().count(), 0);
    }

    #[test]
    fn lines_of_all_lengths_are_woven_with_prefixes_of_all_lengths() {
        for prefix in [0, 3, PREFIX, PREFIX + 1, 200] {
            let prefix = vec![b'>'; prefix];
            let mut out = Out::new();
            out.begin(Stream::Stdout);
            let (mut lines, mut expected) = (Vec::new(), Vec::new());
            for length in (0..2 * LINE).chain([10_000, 0, 1, LINE - 1, LINE, 5]) {
                let line = [vec![b'a' + (length % 26) as u8; length], vec![b'\n']].concat();
                lines.extend_from_slice(&line);
                expected.extend_from_slice(&prefix);
                expected.extend_from_slice(&line);
            }
            assert_eq!(out.add_lines(&prefix, &lines), 2 * LINE + 6);
            assert_eq!(out.add_lines(&prefix, b""), 0);
            out.add(b"end");
            expected.extend_from_slice(b"end");
            assert_eq!(out.of(Stream::Stdout), expected);
        }
    }
}
