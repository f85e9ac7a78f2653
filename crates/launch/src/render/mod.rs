//! What a person sees of the lines that many ranks print.
//!
//! Bytes of all ranks go into a [`Renderer`], bytes for the terminal come out. Time is passed in,
//! and nothing here reads, writes or waits: whoever holds the pipes does.
//!
//! # Guarantees
//!
//! - What a rank prints is shown in the order in which it came. Text of different ranks never
//!   stands in one line.
//! - Lines are bytes: nothing is assumed about their encoding, and nothing in them is changed. With
//!   colours, one that a line leaves on is ended before its newline.
//! - A whole line waits for at most 200 ms to be compared with those of other ranks. It does not
//!   wait when a rank prints hundreds of lines in that time, or when too much waits already.
//! - Memory is bounded, and the ranks that print the most cost the least for each byte.
//!
//! # What is not a whole line
//!
//! A line that is silent for a second without a newline is shown with ` …` after it; what follows
//! is shown as a line with `… ` before it. A progress bar, which replaces itself after carriage
//! returns, is shown as a line twice a second at most, and always in its last state. A carriage
//! return before a newline is left out.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use carole_launch::render::{Label, Out, Renderer, Stream, Style};
//!
//! let labels: Vec<Label> = (0..2)
//!     .map(|rank| Label { rank, host: "a".into(), role: "worker".into() })
//!     .collect();
//! let style = Style { prefix: true, collapse: true, colour: false };
//! let mut renderer = Renderer::new(style, &labels);
//! let mut out = Out::new();
//! let start = Duration::ZERO;
//! renderer.feed(start, 0, Stream::Stdout, b"loading data\n", &mut out);
//! assert!(out.is_empty(), "rank 1 may print the same");
//! renderer.feed(start, 1, Stream::Stdout, b"loading data\nready\n", &mut out);
//! renderer.finish(start, &mut out);
//! assert_eq!(out.of(Stream::Stdout), b"ranks 0-1| loading data\n1| ready\n");
//! ```

mod collapse;
mod colour;
pub mod exception;
mod look;
mod newlines;
mod open;
mod out;
mod pace;
mod prefix;
mod printer;
mod states;
mod tail;
#[cfg(test)]
mod tests;

use std::time::Duration;

use memchr::{memchr, memchr_iter, memrchr};

use self::open::OpenLine;
use self::printer::Printer;
use self::states::last_state;

pub use self::exception::{Exception, last_frame};
pub use self::look::Style;
pub use self::out::{Out, Stream};
pub use self::prefix::Label;
pub use self::states::States;
pub use self::tail::Tail;

/// Turns what the processes of a job print into what is shown.
#[derive(Debug)]
pub struct Renderer {
    printer: Printer,
    /// Both streams of every process.
    sources: Vec<[Source; 2]>,
    /// No open line has something to show before.
    open_wake: Option<Duration>,
}

/// One stream of a process.
#[derive(Debug, Default)]
struct Source {
    open: OpenLine,
    ended: bool,
}

impl Renderer {
    /// Renders the output of the processes in `places`, which are known by their index in it.
    pub fn new(style: Style, places: &[Label]) -> Self {
        Self {
            printer: Printer::new(style, places),
            sources: places.iter().map(|_| Default::default()).collect(),
            open_wake: None,
        }
    }

    /// Takes what the process at `place` printed.
    pub fn feed(
        &mut self,
        now: Duration,
        place: usize,
        stream: Stream,
        bytes: &[u8],
        out: &mut Out,
    ) {
        if self.wake_at().is_some_and(|at| at <= now) {
            self.tick(now, out);
        }
        let Self {
            printer, sources, ..
        } = self;
        let Source { open, ended } = &mut sources[place][stream as usize];
        *ended = false;

        let mut rest = bytes;
        while !open.is_empty()
            && let Some(end) = memchr(b'\n', rest)
        {
            open.extend(now, &rest[..end]);
            open.newline(|line| printer.line(now, place, stream, line, out));
            rest = &rest[end + 1..];
        }
        if open.is_empty() {
            let lines = &rest[..memrchr(b'\n', rest).map_or(0, |end| end + 1)];
            rest = &rest[lines.len()..];
            if lines.is_empty() {
                // Most likely the next bytes bring the newline.
            } else if memchr(b'\r', lines).is_none() {
                printer.lines(now, place, stream, lines, out);
            } else {
                let mut start = 0;
                for newline in memchr_iter(b'\n', lines) {
                    let line = &lines[start..newline];
                    start = newline + 1;
                    let (state, moves_up) = last_state(line);
                    if open.is_empty() && !moves_up {
                        printer.line(now, place, stream, state, out);
                    } else {
                        open.extend(now, line);
                        open.newline(|line| printer.line(now, place, stream, line, out));
                    }
                }
            }
        }
        if !rest.is_empty() {
            open.extend(now, rest);
            if open.is_too_long() {
                open.show_part(|part| printer.line(now, place, stream, part, out));
            }
        }
        self.open_wake = earlier(self.open_wake, open.wake_at());
    }

    /// One stream of the process at `place` has ended: its last line needs no newline.
    pub fn end(&mut self, now: Duration, place: usize, stream: Stream, out: &mut Out) {
        let Self {
            printer, sources, ..
        } = self;
        let source = &mut sources[place][stream as usize];
        source
            .open
            .finish(|line| printer.line(now, place, stream, line, out));
        source.ended = true;
        if sources[place].iter().all(|source| source.ended) {
            printer.leave(now, place, out);
        }
    }

    /// Shows what has waited long enough.
    pub fn tick(&mut self, now: Duration, out: &mut Out) {
        if self.open_wake.is_some_and(|at| at <= now) {
            self.open_wake = None;
            let Self {
                printer, sources, ..
            } = self;
            for (place, both) in sources.iter_mut().enumerate() {
                for (source, stream) in both.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
                    let open = &mut source.open;
                    open.show_quiet(now, |line| printer.line(now, place, stream, line, out));
                    self.open_wake = earlier(self.open_wake, open.wake_at());
                }
            }
        }
        self.printer.tick(now, out);
    }

    /// Shows everything: no more comes from anyone.
    pub fn finish(&mut self, now: Duration, out: &mut Out) {
        for place in 0..self.sources.len() {
            for stream in [Stream::Stdout, Stream::Stderr] {
                self.end(now, place, stream, out);
            }
        }
        self.open_wake = None;
        self.printer.finish(out);
    }

    /// When [`tick`](Self::tick) should next be called; it may then turn out to be too early.
    pub fn wake_at(&self) -> Option<Duration> {
        earlier(self.open_wake, self.printer.wake_at())
    }
}

fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}
