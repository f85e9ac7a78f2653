//! Telling what a command prints from what is printed around it.
//!
//! Before a command comes whatever SSH and the user's shell have to say, and behind it may come
//! more. The script marks both borders with a word that was drawn for this call; behind the word
//! stands `begun` or the command's code, and a semicolon.

use super::kept::{HALF, Kept};

/// What is kept of what comes before it.
const HALF_BEFORE: usize = 32 << 10;

/// The longest word of a mark.
const LONGEST_WORD: usize = 16;

/// One output stream of a host.
#[derive(Debug)]
pub(super) struct Marked {
    mark: Vec<u8>,
    /// What may be a part of a mark.
    pending: Vec<u8>,
    stage: Stage,
    pub(super) before: Kept,
    pub(super) within: Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Within,
    Over { code: Option<i32> },
}

impl Marked {
    pub(super) fn new(mark: &str) -> Self {
        Self {
            mark: mark.as_bytes().to_vec(),
            pending: Vec::new(),
            stage: Stage::Before,
            before: Kept::new(HALF_BEFORE),
            within: Kept::new(HALF),
        }
    }

    /// Whether the command has begun.
    pub(super) fn begun(&self) -> bool {
        self.stage != Stage::Before
    }

    /// Whether nothing more of the command will come.
    pub(super) fn over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    /// The command's code, once it has ended.
    pub(super) fn code(&self) -> Option<i32> {
        match self.stage {
            Stage::Over { code } => code,
            _ => None,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend(bytes);
        while !self.over() {
            let length = self.mark.len();
            let found = self.pending.windows(length).position(|w| w == self.mark);
            let Some(at) = found else {
                // The end may be the beginning of a mark.
                let sure = self.pending.len().saturating_sub(length - 1);
                self.pass(sure);
                return;
            };
            self.pass(at);
            let Some(end) = self.pending.iter().position(|byte| *byte == b';') else {
                if self.pending.len() < length + LONGEST_WORD {
                    return;
                }
                // No mark after all.
                self.pass(1);
                continue;
            };
            let word = String::from_utf8_lossy(&self.pending[length..end]);
            self.stage = match self.stage {
                Stage::Before => Stage::Within,
                _ => Stage::Over {
                    code: word.parse().ok(),
                },
            };
            self.pending.drain(..=end);
        }
        self.pending.clear();
    }

    /// The stream has ended.
    pub(super) fn finish(&mut self) {
        self.pass(self.pending.len());
    }

    /// Passes so many bytes on.
    fn pass(&mut self, count: usize) {
        let kept = match self.stage {
            Stage::Before => &mut self.before,
            Stage::Within => &mut self.within,
            Stage::Over { .. } => return,
        };
        kept.push(&self.pending[..count]);
        self.pending.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "mamark";

    fn read(text: &str, step: usize) -> Marked {
        let mut marked = Marked::new(MARK);
        for piece in text.as_bytes().chunks(step) {
            marked.push(piece);
        }
        marked.finish();
        marked
    }

    #[test]
    fn a_command_s_part_is_told_from_what_is_around_it() {
        let text = "hello\nmamamarkbegun;one mam two\nmamark17;bye mamark3;";
        for step in 1..text.len() {
            let marked = read(text, step);
            assert_eq!(marked.before.text(), "hello\nma", "by {step}");
            assert_eq!(marked.within.text(), "one mam two\n", "by {step}");
            assert_eq!(marked.code(), Some(17), "by {step}");
        }
    }

    #[test]
    fn a_stream_may_end_anywhere() {
        let marked = read("no such user", 5);
        assert_eq!(marked.before.text(), "no such user");
        assert!(!marked.begun());
        let marked = read("mamarkbegun;some mam", 5);
        assert_eq!(marked.within.text(), "some mam");
        assert!(marked.begun() && !marked.over());
        assert_eq!(marked.code(), None);
        let marked = read("mamarkbegun;mamark0;", 30);
        assert_eq!(
            (marked.within.text(), marked.code()),
            (String::new(), Some(0))
        );
    }
}
