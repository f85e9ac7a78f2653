//! Cutting what a process writes into lines.
//!
//! Lines are bytes: nothing is assumed about their encoding and nothing in them is changed.

use std::collections::VecDeque;

/// The longest line that is kept together; a longer one is cut, so that a process that never ends
/// a line costs bounded memory.
const MAX_LINE: usize = 64 * 1024;

/// Collects bytes and gives back whole lines.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    partial: Vec<u8>,
}

impl LineSplitter {
    /// Takes `bytes` and passes every line they complete to `emit`, without its newline.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(line) if self.partial.is_empty() => emit(line),
                Some(rest) => {
                    self.partial.extend_from_slice(rest);
                    emit(&self.partial);
                    self.partial.clear();
                }
                None => self.partial.extend_from_slice(piece),
            }
        }
        while self.partial.len() > MAX_LINE {
            emit(&self.partial[..MAX_LINE]);
            self.partial.drain(..MAX_LINE);
        }
    }

    /// Passes on a last line that had no newline.
    pub(crate) fn finish(&mut self, mut emit: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            emit(&self.partial);
            self.partial.clear();
        }
    }
}

/// The last lines of a process, for the report when it fails.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<Vec<u8>>,
}

impl Tail {
    const LINES: usize = 12;
    const LINE_BYTES: usize = 500;

    pub(crate) fn push(&mut self, line: &[u8]) {
        let mut kept = if self.lines.len() == Self::LINES {
            self.lines.pop_front().unwrap_or_default()
        } else {
            Vec::new()
        };
        kept.clear();
        kept.extend_from_slice(&line[..line.len().min(Self::LINE_BYTES)]);
        self.lines.push_back(kept);
    }

    /// The lines as text, oldest first.
    pub(crate) fn text(&self) -> Vec<String> {
        self.lines
            .iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `pieces` when they arrive one after the other.
    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            splitter.feed(piece, |line| lines.push(line.to_vec()));
        }
        splitter.finish(|line| lines.push(line.to_vec()));
        lines
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let text = b"one\n\ntwo\xff\x00\nthree";
        let expected: Vec<&[u8]> = vec![b"one", b"", b"two\xff\x00", b"three"];
        for cut in 0..=text.len() {
            let (a, b) = text.split_at(cut);
            assert_eq!(split(&[a, b]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(&bytes), expected);
    }

    #[test]
    fn nothing_gives_no_line() {
        assert!(split(&[]).is_empty());
        assert!(split(&[b""]).is_empty());
    }

    #[test]
    fn an_endless_line_is_cut_and_nothing_of_it_is_lost() {
        let endless = vec![b'x'; 3 * MAX_LINE + 5];
        let lines = split(&[&endless]);
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE));
        assert_eq!(lines.concat(), endless);
    }

    #[test]
    fn a_tail_keeps_the_last_lines_and_bounds_their_length() {
        let mut tail = Tail::default();
        for number in 0..100 {
            tail.push(format!("line {number}").as_bytes());
        }
        tail.push(&vec![b'y'; 10_000]);
        let text = tail.text();
        assert_eq!(text.len(), Tail::LINES);
        assert_eq!(text[Tail::LINES - 2], "line 99");
        assert_eq!(text[Tail::LINES - 1].len(), Tail::LINE_BYTES);
    }
}
