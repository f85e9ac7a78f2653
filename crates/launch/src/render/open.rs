//! The line that a rank has not ended yet.
//!
//! Most are ended by the next bytes. Some are prompts (`Continue? `), which a person must see
//! although no newline comes; some are progress bars, which change as often as the program likes.

use std::time::Duration;

use super::states::{States, is_blank};

/// How long a line must be silent to be shown without its end.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// The least time between two states of a progress bar that are shown.
pub(crate) const BETWEEN_STATES: Duration = Duration::from_millis(500);
/// How long a state may take to arrive whole.
pub(crate) const SETTLE: Duration = Duration::from_millis(50);
/// The longest line that is kept together; a longer one is shown in parts, so that a process that
/// never ends a line costs bounded memory.
pub(crate) const LONGEST: usize = 64 * 1024;
/// Marks a part of a line that has another part after it, or before it.
pub(crate) const MORE: &[u8] = "…".as_bytes();

/// What a stream of a rank printed since its last newline.
#[derive(Debug, Default)]
pub(crate) struct OpenLine {
    /// What of it was not shown as a part.
    states: States,
    /// The beginning of the line was shown as a part.
    continued: bool,
    /// The latest state was shown.
    shown: bool,
    /// When something was last added.
    touched: Duration,
    /// When the latest state is to be shown.
    due: Option<Duration>,
    /// When a state was last shown, of this line or another.
    last_shown: Option<Duration>,
}

impl OpenLine {
    /// Whether this is the beginning of a line.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && !self.continued
    }

    /// Whether the line is too long to be kept.
    pub(crate) fn is_too_long(&self) -> bool {
        self.states.text().len() > LONGEST
    }

    /// Adds bytes without a newline.
    pub(crate) fn extend(&mut self, now: Duration, bytes: &[u8]) {
        self.touched = now;
        if self.states.extend(bytes, usize::MAX) {
            self.shown = false;
        }
        if self.states.returned()
            && !self.shown
            && self.due.is_none()
            && !self.states.latest().is_empty()
        {
            let settled = now + SETTLE;
            let next = self.last_shown.map(|last| last + BETWEEN_STATES);
            self.due = Some(next.map_or(settled, |next| next.max(settled)));
        }
    }

    /// Ends the line: shows what of it was not shown.
    pub(crate) fn newline(&mut self, show: impl FnOnce(&[u8])) {
        if !self.states.take_move_up() {
            self.end(show);
        }
    }

    /// Shows what was not shown, because no more comes.
    pub(crate) fn finish(&mut self, show: impl FnOnce(&[u8])) {
        if !self.is_empty() {
            self.end(show);
        }
    }

    /// When [`show_quiet`](Self::show_quiet) has something to show.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        if self.states.returned() {
            self.due
        } else if is_blank(self.states.text()) {
            None
        } else {
            Some(self.touched + SILENCE)
        }
    }

    /// Shows the line as it is now, if it is time.
    pub(crate) fn show_quiet(&mut self, now: Duration, show: impl FnOnce(&[u8])) {
        if self.wake_at().is_none_or(|at| at > now) {
            return;
        }
        if self.states.returned() {
            show(self.states.latest());
            self.shown = true;
            self.due = None;
            self.last_shown = Some(now);
        } else {
            self.show_part(show);
        }
    }

    /// Shows what there is, marked as a part of a line.
    pub(crate) fn show_part(&mut self, show: impl FnOnce(&[u8])) {
        let before: &[&[u8]] = if self.continued { &[MORE, b" "] } else { &[] };
        show(
            &[before, &[self.states.text(), b" ", MORE]]
                .concat()
                .concat(),
        );
        self.begin();
        self.continued = true;
    }

    fn end(&mut self, show: impl FnOnce(&[u8])) {
        let latest = self.states.latest();
        // Of a line that was shown already, no newline and no blank state is news.
        let nothing_new = self.shown || (self.continued && latest.is_empty());
        if !nothing_new {
            if self.continued && !self.states.returned() {
                show(&[MORE, b" ", latest].concat());
            } else {
                show(latest);
            }
        }
        self.begin();
    }

    fn begin(&mut self) {
        self.states.clear();
        self.continued = false;
        self.shown = false;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Adds text at the given times, a newline in it last, and lists what is shown and when.
    fn shown(pieces: &[(u64, &str)]) -> Vec<(u64, String)> {
        let mut line = OpenLine::default();
        let mut shown = Vec::new();
        for now in 0..=10_000 {
            let mut show = |text: &[u8]| {
                shown.push((now, String::from_utf8(text.to_vec()).unwrap()));
            };
            line.show_quiet(at(now), &mut show);
            assert!(line.wake_at().is_none_or(|wake| wake > at(now)));
            for (_, piece) in pieces.iter().filter(|(when, _)| *when == now) {
                for piece in piece.split_inclusive('\n') {
                    match piece.strip_suffix('\n') {
                        Some(rest) => {
                            line.extend(at(now), rest.as_bytes());
                            line.newline(&mut show);
                        }
                        None => line.extend(at(now), piece.as_bytes()),
                    }
                }
            }
        }
        let mut show = |text: &[u8]| {
            shown.push((99_999, String::from_utf8(text.to_vec()).unwrap()));
        };
        line.finish(&mut show);
        assert!(line.is_empty());
        shown
    }

    fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        let lines = expected.iter();
        lines.map(|&(when, text)| (when, text.to_owned())).collect()
    }

    #[test]
    fn a_silent_part_of_a_line_is_shown_after_a_second_and_marked() {
        assert_eq!(
            shown(&[(0, "Loading"), (600, "..."), (3000, " done\n")]),
            lines(&[(1600, "Loading... …"), (3000, "…  done")])
        );
        assert_eq!(
            shown(&[(0, "one"), (2000, " two"), (4000, " three\nfour\n")]),
            lines(&[
                (1000, "one …"),
                (3000, "…  two …"),
                (4000, "…  three"),
                (4000, "four")
            ])
        );
    }

    #[test]
    fn the_newline_of_a_line_that_was_shown_is_no_line() {
        for end in ["\n", "\r\n"] {
            assert_eq!(
                shown(&[(0, "Continue? "), (5000, end), (5000, "yes\n")]),
                lines(&[(1000, "Continue?  …"), (5000, "yes")])
            );
        }
    }

    #[test]
    fn blank_parts_wait() {
        assert_eq!(shown(&[(0, "  "), (5000, "x\n")]), lines(&[(5000, "  x")]));
        assert_eq!(shown(&[(0, "\n\r\n")]), lines(&[(0, ""), (0, "")]));
    }

    #[test]
    fn a_line_at_the_end_needs_no_newline() {
        assert_eq!(shown(&[(9900, "bye")]), lines(&[(99_999, "bye")]));
    }

    #[test]
    fn a_progress_bar_is_shown_twice_a_second_and_in_its_last_state() {
        let bar: Vec<(u64, String)> = (0..=100)
            .map(|percent| (1000 + percent * 10, format!("\r {percent}%")))
            .collect();
        let mut pieces: Vec<(u64, &str)> = bar.iter().map(|(at, bar)| (*at, &bar[..])).collect();
        pieces.push((2001, "\n"));
        assert_eq!(
            shown(&pieces),
            lines(&[(1050, " 4%"), (1550, " 54%"), (2001, " 100%")])
        );
        pieces.pop();
        assert_eq!(
            shown(&pieces),
            lines(&[(1050, " 4%"), (1550, " 54%"), (2050, " 100%")]),
            "without a newline too"
        );
    }

    #[test]
    fn a_last_state_that_was_shown_is_not_repeated_by_its_newline() {
        assert_eq!(
            shown(&[
                (0, "\r 50%"),
                (700, "\r100%"),
                (2000, "\n"),
                (2000, "next\n")
            ]),
            lines(&[(50, " 50%"), (750, "100%"), (2000, "next")])
        );
        assert_eq!(
            shown(&[(0, "curl 50%\r"), (700, "        \r"), (2000, "\n")]),
            lines(&[(50, "curl 50%")]),
            "nor by being cleared"
        );
    }

    #[test]
    fn a_state_after_a_part_replaces_it() {
        assert_eq!(
            shown(&[(0, "0%"), (2000, "\r100%\n")]),
            lines(&[(1000, "0% …"), (2000, "100%")])
        );
    }

    #[test]
    fn nested_bars_are_one_changing_line() {
        let mut pieces = vec![(0, "\r outer 0%\n".to_owned())];
        for step in 1..100 {
            let inner = format!("\r inner {step}%\x1b[A\n");
            pieces.push((step * 10, inner));
        }
        let pieces: Vec<(u64, &str)> = pieces.iter().map(|(at, text)| (*at, &text[..])).collect();
        assert_eq!(
            shown(&pieces),
            lines(&[
                (0, " outer 0%"),
                (60, " inner 5%"),
                (560, " inner 55%"),
                (1060, " inner 99%")
            ])
        );
    }
}
