//! What carriage returns make of a line.
//!
//! A progress bar writes its next state over the last: `\r 10%`, `\r 20%`. Only the latest state is
//! of interest. A blank one clears the line for the next and is not a state.

use memchr::{memchr, memrchr};

/// Moves up a line. Nested progress bars write it after a state, and a newline before the next:
/// together they mean no new line.
const UP: &[u8] = b"\x1b[A";

/// The latest state of a line that is not ended.
#[derive(Debug, Default)]
pub struct States {
    /// Since the last carriage return.
    text: Vec<u8>,
    /// The latest state that a carriage return ended.
    ended: Vec<u8>,
    returned: bool,
}

impl States {
    /// Whether there was nothing at all.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.returned
    }

    /// Whether there was a carriage return.
    pub fn returned(&self) -> bool {
        self.returned
    }

    /// What came since the last carriage return.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The latest state that has something in it; without a carriage return, all of the line.
    pub fn latest(&self) -> &[u8] {
        if !self.returned {
            &self.text
        } else if is_state(&self.text) {
            without_moves(&self.text)
        } else {
            without_moves(&self.ended)
        }
    }

    /// Adds bytes without a newline, at most `longest` to a state. Tells whether they began or
    /// changed a state.
    pub fn extend(&mut self, bytes: &[u8], longest: usize) -> bool {
        let mut rest = bytes;
        let mut changed = false;
        loop {
            let end = memchr(b'\r', rest);
            let state = &rest[..end.unwrap_or(rest.len())];
            changed |= is_state(state);
            let room = longest.saturating_sub(self.text.len());
            self.text.extend_from_slice(&state[..state.len().min(room)]);
            let Some(end) = end else {
                return changed;
            };
            self.carriage_return();
            rest = &rest[end + 1..];
        }
    }

    /// Takes back a move up at the end, if there is one: with it a newline is none.
    pub fn take_move_up(&mut self) -> bool {
        let latest = if is_blank(&self.text) {
            &mut self.ended
        } else {
            &mut self.text
        };
        let moves = self.returned && latest.ends_with(UP);
        if moves {
            latest.truncate(latest.len() - UP.len());
            self.carriage_return();
        }
        moves
    }

    /// Begins a new line.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ended.clear();
        self.returned = false;
    }

    fn carriage_return(&mut self) {
        self.returned = true;
        if is_state(&self.text) {
            std::mem::swap(&mut self.text, &mut self.ended);
        }
        self.text.clear();
    }
}

/// The latest state of a whole line, and whether a move up takes its newline back.
pub(crate) fn last_state(line: &[u8]) -> (&[u8], bool) {
    let Some(at) = memrchr(b'\r', line) else {
        return (line, false);
    };
    let (mut rest, last) = (&line[..at], &line[at + 1..]);
    if is_state(last) {
        return (without_moves(last), last.ends_with(UP));
    }
    loop {
        let start = memrchr(b'\r', rest).map_or(0, |at| at + 1);
        let state = &rest[start..];
        if is_state(state) {
            return (
                without_moves(state),
                last.ends_with(UP) || state.ends_with(UP),
            );
        }
        if start == 0 {
            return (b"", last.ends_with(UP));
        }
        rest = &rest[..start - 1];
    }
}

/// Whether a person would see nothing.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == b' ')
}

/// Whether what came between carriage returns replaces what was before.
fn is_state(bytes: &[u8]) -> bool {
    !is_blank(without_moves(bytes))
}

/// A state without the moves after it, which are meant for a terminal of its own.
fn without_moves(mut state: &[u8]) -> &[u8] {
    while let Some(shorter) = state.strip_suffix(UP) {
        state = shorter;
    }
    state
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_latest_state_with_something_in_it_is_kept() {
        for (line, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("  ", "  "),
            ("windows\r", "windows"),
            ("\r 10%\r 20%", " 20%"),
            ("10%\r20%\r", "20%"),
            ("\r 10%\r      \r", " 10%"),
            ("\r inner\x1b[A", " inner"),
            (" \r ", ""),
        ] {
            let (state, moved) = last_state(line.as_bytes());
            assert_eq!(state, expected.as_bytes(), "{line:?}");
            assert_eq!(moved, line.contains("[A"), "{line:?}");
        }
    }

    #[test]
    fn a_newline_after_a_move_up_is_none() {
        let mut states = States::default();
        states.extend(b"\r inner\x1b[A\x1b[A", 100);
        assert!(states.take_move_up());
        assert!(states.take_move_up());
        assert!(!states.take_move_up());
        assert_eq!(states.latest(), b" inner");
    }

    proptest! {
        #[test]
        fn states_are_the_same_however_they_arrive(
            pieces in prop::collection::vec("([ab \r]|\x1b\\[A){0,6}", 0..6),
        ) {
            let mut states = States::default();
            for piece in &pieces {
                states.extend(piece.as_bytes(), 100);
            }
            let line = pieces.concat();
            let (state, moved) = last_state(line.as_bytes());
            prop_assert_eq!(states.latest(), state);
            prop_assert_eq!(states.take_move_up(), moved);
        }
    }
}
