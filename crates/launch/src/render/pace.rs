//! How fast a rank prints: many lines at a time are not held back for a person who cannot read
//! them that fast.

use std::time::Duration;

use super::collapse::WINDOW;

/// The most lines of a rank within a window that are still compared with those of other ranks.
pub(crate) const LINES: usize = 400;

/// The lines that one rank printed lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    since: Duration,
    lines: usize,
    fast: bool,
}

impl Pace {
    /// Whether the rank prints too fast for its lines to be held back.
    pub(crate) fn is_fast(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW {
            self.fast = self.lines > LINES && passed < 2 * WINDOW;
            self.since = now;
            self.lines = 0;
        }
        self.fast
    }

    /// The rank printed lines.
    pub(crate) fn count(&mut self, lines: usize) {
        self.lines += lines;
        self.fast |= self.lines > LINES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_fast_from_its_many_lines_until_a_window_with_few() {
        let mut pace = Pace::default();
        pace.count(LINES);
        assert!(!pace.is_fast(Duration::ZERO));
        pace.count(1);
        assert!(pace.is_fast(Duration::ZERO));
        assert!(pace.is_fast(WINDOW), "the window before had many");
        pace.count(LINES);
        assert!(!pace.is_fast(2 * WINDOW));
        pace.count(LINES + 1);
        assert!(!pace.is_fast(5 * WINDOW), "it was quiet for long");
    }
}
