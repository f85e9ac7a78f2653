//! A line that tells a person how far the sending of a folder is, if it takes long.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use carole_launch::{Event, SyncProgress};

/// Nobody needs to be told of what is over sooner.
const SOON: Duration = Duration::from_secs(1);

/// The line, on standard error where that is a terminal. It is gone when this is dropped.
pub(super) struct Syncing {
    begin: Instant,
    wanted: bool,
    shown: bool,
}

impl Syncing {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            begin: Instant::now(),
            wanted: wanted && io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Syncing(progress) if self.is_due(*progress) => {
                show(&line(*progress));
                self.shown = true;
            }
            Event::Synced => self.clear(),
            _ => {}
        }
    }

    fn is_due(&self, progress: SyncProgress) -> bool {
        self.wanted && progress.of_files > 0 && self.begin.elapsed() > SOON
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            show("");
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes over the line that is there.
fn show(text: &str) {
    // A terminal that is gone needs no progress.
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
}

fn line(progress: SyncProgress) -> String {
    let SyncProgress {
        files,
        of_files,
        bytes,
        of_bytes,
    } = progress;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (bytes, of_bytes) = (megabytes(bytes), megabytes(of_bytes));
    let digits = usize::from(of_bytes < 10.0);
    format!("syncing: {files} of {of_files} files, {bytes:.digits$} of {of_bytes:.digits$} MB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_files_and_megabytes() {
        let progress = SyncProgress {
            files: 120,
            of_files: 450,
            bytes: 35_200_000,
            of_bytes: 80_000_000,
        };
        assert_eq!(line(progress), "syncing: 120 of 450 files, 35 of 80 MB");
        let small = SyncProgress {
            of_bytes: 1_500_000,
            bytes: 250_000,
            ..progress
        };
        assert_eq!(line(small), "syncing: 120 of 450 files, 0.2 of 1.5 MB");
    }
}
