//! The last lines that were printed.

use std::collections::VecDeque;
use std::sync::Arc;

/// A line of a rank, or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its place among all lines of the job, which are numbered as they come.
    pub(super) number: u64,
    /// Whose it is; nobody's for a notice.
    pub(super) rank: Option<usize>,
    /// What stands in it, safe to be shown.
    pub(super) text: Arc<str>,
}

/// The newest lines, as many as there is room for.
#[derive(Debug)]
pub(super) struct Lines {
    lines: VecDeque<Line>,
    bytes: usize,
    most_lines: usize,
    most_bytes: usize,
}

impl Lines {
    pub(super) fn new(most_lines: usize, most_bytes: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
            most_lines,
            most_bytes,
        }
    }

    /// Adds a line, for which the oldest may have to go.
    pub(super) fn push(&mut self, line: Line) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > self.most_lines
            || (self.bytes > self.most_bytes && self.lines.len() > 1)
        {
            let oldest = self.lines.pop_front();
            self.bytes -= oldest.map_or(0, |line| line.text.len());
        }
    }

    pub(super) fn last(&self) -> Option<&Line> {
        self.lines.back()
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.lines.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64, text: &str) -> Line {
        Line {
            number,
            rank: None,
            text: text.into(),
        }
    }

    #[test]
    fn the_oldest_lines_go_when_there_are_too_many_or_too_long_ones() {
        let mut lines = Lines::new(3, 10);
        for number in 0..5 {
            lines.push(line(number, "x"));
        }
        let numbers = |lines: &Lines| lines.iter().map(|line| line.number).collect::<Vec<_>>();
        assert_eq!(numbers(&lines), [2, 3, 4]);
        lines.push(line(5, "123456789"));
        assert_eq!(numbers(&lines), [4, 5]);
        lines.push(line(6, "longer than there is room for"));
        assert_eq!(numbers(&lines), [6]);
    }
}
