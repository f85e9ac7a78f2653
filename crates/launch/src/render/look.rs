//! How a line looks: the prefix, the line as it is, and an end to colours that it left on.

use memchr::memchr_iter;

use super::colour;
use super::out::{Out, Stream};
use super::prefix::{Label, Prefixes};

/// How lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whose line it is stands in front of it.
    pub prefix: bool,
    /// Lines that several ranks print at about the same time become one. It needs prefixes:
    /// without them nobody could tell whose the line was.
    pub collapse: bool,
    /// Prefixes have colours, and a line's colours end with it.
    pub colour: bool,
}

/// Writes lines of a job's processes.
#[derive(Debug)]
pub(crate) struct Look {
    style: Style,
    prefixes: Prefixes,
    ranks: Vec<usize>,
}

impl Look {
    pub(crate) fn new(style: Style, labels: &[Label]) -> Self {
        Self {
            style,
            prefixes: Prefixes::new(labels, style.colour),
            ranks: labels.iter().map(|label| label.rank).collect(),
        }
    }

    /// Writes a line, given without its newline.
    pub(crate) fn line(&self, place: usize, stream: Stream, line: &[u8], out: &mut Out) {
        out.begin(stream);
        out.add(self.prefix(place));
        self.rest_of_line(line, out);
    }

    /// Writes lines, each given with its newline, and tells how many there were.
    ///
    /// This is the path that must keep up with ranks that print as fast as they can: nothing in it
    /// looks at single bytes or allocates for a line.
    pub(crate) fn lines(&self, place: usize, stream: Stream, lines: &[u8], out: &mut Out) -> usize {
        out.begin(stream);
        if self.style.colour && colour::may_colour(lines) {
            let (mut start, mut count) = (0, 0);
            for newline in memchr_iter(b'\n', lines) {
                out.add(self.prefix(place));
                self.rest_of_line(&lines[start..newline], out);
                start = newline + 1;
                count += 1;
            }
            count
        } else if self.style.prefix {
            out.add_lines(self.prefix(place), lines)
        } else {
            out.add(lines);
            // Lines are not compared without prefixes, so nobody counts them.
            0
        }
    }

    /// Writes a line that the processes at `places` printed, which are called `title` together.
    pub(crate) fn shared_line(
        &self,
        title: &str,
        places: impl Iterator<Item = usize>,
        stream: Stream,
        line: &[u8],
        out: &mut Out,
    ) {
        let mut ranks: Vec<usize> = places.map(|place| self.ranks[place]).collect();
        ranks.sort_unstable();
        out.begin(stream);
        out.add(self.prefixes.shared(title, &ranks).as_bytes());
        self.rest_of_line(line, out);
    }

    fn prefix(&self, place: usize) -> &[u8] {
        if self.style.prefix {
            self.prefixes.of(place)
        } else {
            b""
        }
    }

    /// Writes what stands after the prefix.
    fn rest_of_line(&self, line: &[u8], out: &mut Out) {
        out.add(line);
        if self.style.colour && colour::is_left_on(line) {
            out.add(colour::RESET);
        }
        out.add(b"\n");
    }
}
