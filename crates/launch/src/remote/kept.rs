//! What is kept of a stream that may be of any length: its beginning and its end.

use std::collections::VecDeque;

/// What is kept of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut: u64,
}

/// What is kept of a command's stream, beginning and end each.
pub(super) const HALF: usize = 2 << 20;

impl From<&[u8]> for Kept {
    /// What would be kept of these bytes.
    fn from(bytes: &[u8]) -> Self {
        let mut kept = Self::new(HALF);
        kept.push(bytes);
        kept
    }
}

impl Kept {
    /// Keeps at most `2 * half` bytes.
    pub(super) fn new(half: usize) -> Self {
        Self {
            half,
            head: Vec::new(),
            tail: VecDeque::new(),
            cut: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend(first);
        // What would be cut in the same breath need not be copied.
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(self.half));
        let too_many = (self.tail.len() + kept.len()).saturating_sub(self.half);
        self.tail.drain(..too_many);
        self.tail.extend(kept);
        self.cut += (skipped.len() + too_many) as u64;
    }

    /// How many bytes between the beginning and the end were cut.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// The beginning; all of the stream unless something was cut.
    pub fn beginning(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if self.cut == 0 {
            bytes.extend(&self.tail);
        }
        bytes
    }

    /// The end behind the cut; nothing unless something was cut.
    pub fn end(&self) -> Vec<u8> {
        if self.cut == 0 {
            Vec::new()
        } else {
            self.tail.iter().copied().collect()
        }
    }

    /// Both, as a text without the cut.
    pub fn text(&self) -> String {
        let bytes = [self.beginning(), self.end()].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines that are not empty, in one.
    pub fn last_lines(&self, count: usize) -> String {
        let text = self.text();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect();
        lines[lines.len().saturating_sub(count)..].join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_long_stream_is_cut() {
        let all: Vec<u8> = (0..=255).collect();
        for length in [0, 1, 9, 10, 11, 20, 21, 200] {
            for step in [1, 3, 10, 11, 25, 200] {
                let mut kept = Kept::new(10);
                for piece in all[..length].chunks(step) {
                    kept.push(piece);
                }
                let context = format!("{length} bytes by {step}");
                if length <= 20 {
                    assert_eq!(kept.beginning(), &all[..length], "{context}");
                    assert_eq!((kept.cut(), kept.end()), (0, vec![]), "{context}");
                } else {
                    assert_eq!(kept.beginning(), &all[..10], "{context}");
                    assert_eq!(kept.end(), &all[length - 10..length], "{context}");
                    assert_eq!(kept.cut(), length as u64 - 20, "{context}");
                }
            }
        }
    }

    #[test]
    fn the_last_lines_become_one() {
        let mut kept = Kept::new(100);
        kept.push(b"one\r\n\n two\nthree\n");
        assert_eq!(kept.last_lines(2), "two; three");
        assert_eq!(Kept::new(4).last_lines(2), "");
    }
}
