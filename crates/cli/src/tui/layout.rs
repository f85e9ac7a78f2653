//! Which rows of the page show what.

use std::ops::Range;

/// A log pane is at least a title and a line.
const LEAST_LOG: u16 = 2;
/// Below this many rows the last notice has none.
const ROOM_FOR_NOTICE: u16 = 10;
/// Below this many rows the table is shown first.
const ROOM_FOR_BOTH: u16 = 6;

/// The rows of each part, from the top of the page; a part without room is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The job.
    pub(super) top: Range<u16>,
    /// The ranks, with a title.
    pub(super) table: Range<u16>,
    /// The lines, with a title.
    pub(super) log: Range<u16>,
    /// The last notice.
    pub(super) notice: Range<u16>,
    /// The keys.
    pub(super) keys: Range<u16>,
}

impl Layout {
    /// Lays out a page of `height` rows for so many ranks.
    pub(super) fn new(height: u16, ranks: usize, notice: bool) -> Self {
        let top = height.min(1);
        let keys = height.saturating_sub(1).max(top);
        let notice_row = keys - u16::from(notice && height >= ROOM_FOR_NOTICE);
        let room = notice_row - top;
        let wanted = u16::try_from(ranks.saturating_add(1)).unwrap_or(u16::MAX);
        let most = if room < ROOM_FOR_BOTH { room } else { room / 2 };
        let mut table = wanted.min(most);
        if room - table < LEAST_LOG {
            table = wanted.min(room);
        }
        let mut log = top + table..notice_row;
        if (log.len() as u16) < LEAST_LOG {
            log = notice_row..notice_row;
        }
        Self {
            top: 0..top,
            table: top..top + table,
            log,
            notice: notice_row..keys,
            keys: keys..height,
        }
    }

    /// How many ranks are shown.
    pub(super) fn table_rows(&self) -> usize {
        self.table.len().saturating_sub(1)
    }

    /// How many lines are shown.
    pub(super) fn log_rows(&self) -> usize {
        self.log.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ranks_leave_the_room_to_the_log_and_many_share_it() {
        let few = Layout::new(24, 4, false);
        assert_eq!((few.table, few.log, few.keys), (1..6, 6..23, 23..24));
        let many = Layout::new(24, 256, true);
        assert_eq!((many.table, many.log, many.notice), (1..11, 11..22, 22..23));
    }

    #[test]
    fn parts_never_overlap_and_never_leave_the_page() {
        for height in 0..100 {
            for ranks in [0, 1, 2, 5, 40, 100_000] {
                for notice in [false, true] {
                    let page = Layout::new(height, ranks, notice);
                    let Layout {
                        top,
                        table,
                        log,
                        notice,
                        keys,
                    } = page;
                    let mut row = 0;
                    for part in [top, table, log, notice, keys] {
                        assert!(
                            part.start >= row && part.start <= part.end,
                            "{height} {ranks}"
                        );
                        row = part.end;
                    }
                    assert!(row <= height);
                }
            }
        }
    }
}
