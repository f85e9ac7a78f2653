//! The last lines of a process, for the report when it fails.

use std::collections::VecDeque;

use memchr::{memchr, memchr_iter, memrchr};

use super::out::Stream;
use super::states::{States, last_state};

/// The last lines of both streams of a process, in the order in which they were ended.
///
/// Of a line that replaced itself, as progress bars do, only the last state is kept.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<Vec<u8>>,
    /// The newest line is a state of a nested progress bar: the next line replaces it.
    replaced: bool,
    /// The line of each stream that was not ended.
    open: [States; 2],
}

impl Tail {
    /// How many lines a person is shown.
    const SHOWN: usize = 12;
    /// How many lines are kept. An exception can be further up than a person is shown: torch puts
    /// the frames of its own code after it.
    const KEPT: usize = 64;
    const LINE_BYTES: usize = 500;

    /// Takes what the process printed. It costs little more for many lines than for a few.
    pub fn feed(&mut self, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        let open = &mut self.open[stream as usize];
        if !open.is_empty()
            && let Some(end) = memchr(b'\n', rest)
        {
            open.extend(&rest[..end], Self::LINE_BYTES);
            let mut line = std::mem::take(open);
            let moves_up = line.take_move_up();
            self.keep(line.latest(), moves_up);
            line.clear();
            self.open[stream as usize] = line;
            rest = &rest[end + 1..];
        }
        if let Some(end) = memrchr(b'\n', rest) {
            let all = &rest[..end];
            let mut lines = last_lines(all, Self::KEPT);
            // Of states that replace one another, any number make one line.
            if memchr(b'\r', lines).is_some() {
                lines = all;
            }
            let mut start = 0;
            for newline in memchr_iter(b'\n', lines).chain([lines.len()]) {
                self.push(&lines[start..newline]);
                start = newline + 1;
            }
            rest = &rest[end + 1..];
        }
        self.open[stream as usize].extend(rest, Self::LINE_BYTES);
    }

    /// Takes a line, without its newline.
    pub fn push(&mut self, line: &[u8]) {
        let (state, moves_up) = last_state(line);
        self.keep(state, moves_up);
    }

    /// The lines that a person is shown, oldest first.
    pub fn text(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.drain(..lines.len().saturating_sub(Self::SHOWN));
        lines
    }

    /// All lines that are kept, oldest first; those that were not ended come last.
    pub fn lines(&self) -> Vec<String> {
        let open = self.open.iter().map(States::latest);
        let ended = self.lines.iter().map(Vec::as_slice);
        ended
            .chain(open.filter(|line| !line.is_empty()))
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }

    fn keep(&mut self, line: &[u8], replaced: bool) {
        let mut kept = if self.replaced {
            self.lines.pop_back()
        } else if self.lines.len() == Self::KEPT {
            self.lines.pop_front()
        } else {
            None
        }
        .unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(&line[..line.len().min(Self::LINE_BYTES)]);
        self.lines.push_back(kept);
        self.replaced = replaced;
    }
}

/// At most the last `count` of lines that newlines are between. The others are not looked at.
fn last_lines(lines: &[u8], count: usize) -> &[u8] {
    let mut start = lines.len();
    for _ in 0..count {
        match memrchr(b'\n', &lines[..start]) {
            Some(newline) => start = newline,
            None => return lines,
        }
    }
    &lines[start + 1..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tail_keeps_the_last_lines_and_bounds_their_length() {
        let mut tail = Tail::default();
        for number in 0..100 {
            tail.push(format!("line {number}").as_bytes());
        }
        tail.push(&vec![b'y'; 10_000]);
        let text = tail.text();
        assert_eq!(text.len(), Tail::SHOWN);
        assert_eq!(text[Tail::SHOWN - 2], "line 99");
        assert_eq!(text[Tail::SHOWN - 1].len(), Tail::LINE_BYTES);
        assert_eq!(tail.lines().len(), Tail::KEPT);
    }

    #[test]
    fn progress_bars_do_not_push_lines_out() {
        let mut tail = Tail::default();
        tail.feed(Stream::Stdout, b"epoch 1\n");
        for step in 0..1000 {
            tail.feed(Stream::Stderr, format!("\r {step}/1000").as_bytes());
        }
        assert_eq!(tail.text(), ["epoch 1", " 999/1000"]);
        tail.feed(Stream::Stderr, b"\nValueError: bad shape\n");
        assert_eq!(
            tail.text(),
            ["epoch 1", " 999/1000", "ValueError: bad shape"]
        );

        let mut nested = Tail::default();
        nested.feed(Stream::Stderr, b"\r outer 0%\n");
        for step in 0..1000 {
            nested.feed(
                Stream::Stderr,
                format!("\r inner {step}\x1b[A\n").as_bytes(),
            );
        }
        assert_eq!(nested.text(), [" outer 0%", " inner 999"]);
    }

    #[test]
    fn streams_do_not_mix_within_a_line() {
        let mut tail = Tail::default();
        tail.feed(Stream::Stdout, b"out");
        tail.feed(Stream::Stderr, b"err\n");
        tail.feed(Stream::Stdout, b"put\nlast");
        assert_eq!(tail.text(), ["err", "output", "last"]);
    }

    proptest! {
        #[test]
        fn a_tail_is_the_same_however_the_bytes_arrive(
            pieces in prop::collection::vec("([ab\n]|\r|\n\n|(x\n){40}|\x1b\\[A){0,8}", 0..8),
        ) {
            let mut tail = Tail::default();
            for piece in &pieces {
                tail.feed(Stream::Stdout, piece.as_bytes());
            }
            let text = pieces.concat();
            let mut lines = Tail::default();
            let (ended, open) = text.rsplit_once('\n').map_or((None, &text[..]), |(a, b)| (Some(a), b));
            for line in ended.iter().flat_map(|lines| lines.split('\n')) {
                lines.push(line.as_bytes());
            }
            lines.feed(Stream::Stdout, open.as_bytes());
            prop_assert_eq!(tail.lines(), lines.lines());
        }
    }
}
