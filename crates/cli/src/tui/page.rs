//! What a person looks at: which rank, which lines, and what is being asked.

use super::line::{Line, Lines};

/// The state of the page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Columns and rows.
    pub(super) size: (u16, u16),
    /// The rank that the log pane may be about.
    pub(super) selected: usize,
    /// The first rank in the table.
    pub(super) first: usize,
    /// Whether the table is of hosts, not of ranks.
    pub(super) hosts: bool,
    pub(super) pane: Pane,
    /// The last line that is shown; the newest if there is none.
    pub(super) anchor: Option<u64>,
    /// Columns of lines that are left of the page.
    pub(super) shift: u16,
    /// What shown lines have in them.
    pub(super) filter: String,
    pub(super) mode: Mode,
}

/// Whose lines are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    /// Those of the selected rank.
    #[default]
    Rank,
    /// Those of all.
    All,
}

/// What keys are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Moving around.
    #[default]
    Normal,
    /// Writing the filter.
    Filter,
    /// Reading the help.
    Help,
    /// Answering whether the job is to be stopped.
    AskStop,
    /// Answering whether to stop the job and leave.
    AskQuit,
}

impl Page {
    /// Whether the newest lines are shown.
    pub(super) fn follows(&self) -> bool {
        self.anchor.is_none()
    }

    /// Moves the table so that the selected rank is in it.
    pub(super) fn show_selected(&mut self, ranks: usize, rows: usize) {
        self.selected = self.selected.min(ranks.saturating_sub(1));
        let last = self.first.saturating_add(rows.max(1) - 1);
        if self.selected < self.first {
            self.first = self.selected;
        } else if self.selected > last {
            self.first = self.selected + 1 - rows.max(1);
        }
        // No row stays empty while there are ranks above.
        self.first = self.first.min(ranks.saturating_sub(rows));
    }

    /// The lines that are shown in so many rows.
    pub(super) fn visible<'a>(&self, lines: &'a Lines, rows: usize) -> Vec<&'a Line> {
        let matches = self.matches();
        let matching = || lines.iter().filter(|line| matches(&line.text));
        let before = |line: &&Line| self.anchor.is_none_or(|anchor| line.number <= anchor);
        let mut shown: Vec<&Line> = matching().rev().filter(before).take(rows).collect();
        shown.reverse();
        if shown.len() < rows && self.anchor.is_some() {
            // The top: a whole page of it.
            shown = matching().take(rows).collect();
        }
        shown
    }

    /// Scrolls a page up, or down.
    pub(super) fn scroll(&mut self, lines: &Lines, rows: usize, up: bool) {
        let shown = self.visible(lines, rows);
        // One line stays.
        let most = rows.saturating_sub(1).max(1);
        let (Some(first), Some(last)) = (shown.first(), shown.last()) else {
            return;
        };
        if up {
            let matches = self.matches();
            let above = lines
                .iter()
                .any(|line| line.number < first.number && matches(&line.text));
            if above {
                self.anchor = Some(first.number);
            } else if shown.len() == rows {
                self.anchor = Some(last.number);
            }
        } else if self.anchor.is_some() {
            let matches = self.matches();
            let mut below = lines
                .iter()
                .filter(|line| line.number > last.number && matches(&line.text));
            let next = below.by_ref().take(most).last();
            // At the end new lines are followed.
            let more = below.next().is_some();
            self.anchor = next.filter(|_| more).map(|line| line.number);
        }
    }

    /// Stays at what is shown, or follows the newest lines.
    pub(super) fn toggle_follow(&mut self, lines: &Lines) {
        self.anchor = match self.anchor {
            Some(_) => None,
            None => lines.last().map(|line| line.number),
        };
    }

    /// Whether the filter lets a text through.
    pub(super) fn matches(&self) -> impl Fn(&str) -> bool + use<> {
        let wanted = self.filter.to_lowercase();
        move |text| wanted.is_empty() || text.to_lowercase().contains(&wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u64) -> Lines {
        let mut lines = Lines::new(1000, 1 << 20);
        for number in 0..count {
            lines.push(Line {
                number,
                rank: None,
                text: format!("Line {number}").into(),
            });
        }
        lines
    }

    fn shown(page: &Page, lines: &Lines) -> Vec<u64> {
        page.visible(lines, 4)
            .iter()
            .map(|line| line.number)
            .collect()
    }

    #[test]
    fn pages_are_turned_to_the_top_and_back_to_the_newest_line() {
        let lines = lines(10);
        let mut page = Page::default();
        assert_eq!(shown(&page, &lines), [6, 7, 8, 9]);
        page.scroll(&lines, 4, true);
        assert_eq!(shown(&page, &lines), [3, 4, 5, 6]);
        for _ in 0..5 {
            page.scroll(&lines, 4, true);
        }
        assert_eq!(shown(&page, &lines), [0, 1, 2, 3]);
        page.scroll(&lines, 4, false);
        assert_eq!(shown(&page, &lines), [3, 4, 5, 6]);
        assert!(!page.follows());
        page.scroll(&lines, 4, false);
        assert!(page.follows());
    }

    #[test]
    fn a_page_that_does_not_follow_stays_while_lines_come() {
        let mut page = Page::default();
        page.toggle_follow(&lines(5));
        assert_eq!(shown(&page, &lines(20)), [1, 2, 3, 4]);
        page.toggle_follow(&lines(20));
        assert_eq!(shown(&page, &lines(20)), [16, 17, 18, 19]);
    }

    #[test]
    fn only_lines_that_match_are_shown_whatever_their_case() {
        let page = Page {
            filter: "lINE 1".into(),
            ..Page::default()
        };
        assert_eq!(shown(&page, &lines(13)), [1, 10, 11, 12]);
    }

    #[test]
    fn the_selected_rank_is_always_in_the_table() {
        let mut page = Page::default();
        for (selected, first) in [(0, 0), (3, 0), (4, 1), (255, 252), (253, 252), (10, 10)] {
            page.selected = selected;
            page.show_selected(256, 4);
            assert_eq!(page.first, first, "{selected}");
        }
        page.selected = 500;
        page.show_selected(2, 4);
        assert_eq!((page.selected, page.first), (1, 0));
        page.show_selected(0, 0);
        assert_eq!((page.selected, page.first), (0, 0));
    }
}
