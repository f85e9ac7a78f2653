//! One process of the job, as far as the page shows it.

use std::sync::Arc;
use std::time::Duration;

use carole_launch::exit::signal_name;
use carole_launch::render::{States, Stream};
use carole_launch::{Exit, Progress, Usage};

use super::line::{Line, Lines};
use super::text::clean;

/// How many lines of a rank are kept.
const LINES: usize = 2000;
/// How many bytes of them.
const BYTES: usize = 256 << 10;
/// The longest line.
const LONGEST: usize = 4096;

/// One process.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) name: String,
    pub(super) host: String,
    pub(super) pid: Option<i32>,
    pub(super) state: State,
    pub(super) usage: Option<Usage>,
    pub(super) progress: Option<Progress>,
    pub(super) pace: Pace,
    pub(super) lines: Lines,
    /// The line of each stream that was not ended.
    open: [States; 2],
    /// What came last.
    latest: Latest,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running,
    Ended(Exit),
}

/// How fast a process makes steps, by the steps that it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Steps per second, once there are two reports to compare.
    pub(super) rate: Option<f64>,
    /// When a step was told last, and which.
    last: Option<(Duration, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latest {
    Line,
    Open(Stream),
    Progress,
}

impl Rank {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: format!("rank {number}"),
            host: String::new(),
            pid: None,
            state: State::Waiting,
            usage: None,
            progress: None,
            pace: Pace::default(),
            lines: Lines::new(LINES, BYTES),
            open: Default::default(),
            latest: Latest::Line,
        }
    }

    /// The process was started. What an earlier one printed is kept.
    pub(super) fn start(&mut self, host: &str, pid: i32) {
        host.clone_into(&mut self.host);
        self.pid = Some(pid);
        self.state = State::Running;
        (self.usage, self.progress, self.pace) = (None, None, Pace::default());
        self.open = Default::default();
        self.latest = Latest::Line;
    }

    pub(super) fn exit(&mut self, exit: Exit) {
        self.state = State::Ended(exit);
        self.usage = None;
    }

    pub(super) fn progress(&mut self, now: Duration, progress: Progress) {
        if !progress.values.is_empty() {
            self.latest = Latest::Progress;
        }
        if let Some(step) = progress.step {
            self.pace.note(now, step);
        }
        self.progress = Some(progress);
    }

    /// What it uses; of one that has ended nobody wants to know any more.
    pub(super) fn uses(&mut self, usage: Usage) {
        if self.state == State::Running {
            self.usage = Some(usage);
        }
    }

    /// Takes what was printed and gives out the lines that it ended.
    pub(super) fn print(&mut self, stream: Stream, bytes: &[u8], mut ended: impl FnMut(Arc<str>)) {
        let open = &mut self.open[stream as usize];
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            open.extend(line.unwrap_or(piece), LONGEST);
            self.latest = Latest::Open(stream);
            if line.is_some() && !open.take_move_up() {
                ended(clean(open.latest()).into());
                open.clear();
                self.latest = Latest::Line;
            }
        }
    }

    /// Keeps a line that was ended.
    pub(super) fn keep(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// The lines that were not ended, such as prompts and progress bars.
    pub(super) fn open_lines(&self) -> impl Iterator<Item = String> {
        let open = self.open.iter().map(|states| clean(states.latest()));
        open.filter(|line| !line.trim().is_empty())
    }

    /// What the process told last, in a line.
    pub(super) fn latest(&self) -> String {
        let told = match (self.latest, &self.progress) {
            (Latest::Progress, Some(progress)) => clean(progress.others().as_bytes()),
            (Latest::Open(stream), _) => clean(self.open[stream as usize].latest()),
            _ => String::new(),
        };
        if !told.trim().is_empty() {
            return told;
        }
        let line = self.lines.iter().rfind(|line| !line.text.trim().is_empty());
        line.map(|line| line.text.to_string()).unwrap_or_default()
    }
}

impl State {
    /// In a word.
    pub(super) fn word(self) -> String {
        match self {
            Self::Waiting => "waiting".into(),
            Self::Running => "running".into(),
            Self::Ended(exit) if exit.success() => "done".into(),
            Self::Ended(Exit::Code(code)) => format!("code {code}"),
            Self::Ended(Exit::Signal(signal)) => {
                signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
            }
        }
    }

    pub(super) fn failed(self) -> bool {
        matches!(self, Self::Ended(exit) if !exit.success())
    }
}

impl Pace {
    /// Which step was told, and when.
    fn note(&mut self, now: Duration, step: f64) {
        match self.last {
            // It told something else.
            Some((_, before)) if step == before => return,
            Some((then, before)) if step > before && now > then => {
                let rate = (step - before) / now.saturating_sub(then).as_secs_f64();
                // Reports come unevenly: half of it is what it was.
                self.rate = Some(self.rate.map_or(rate, |old| f64::midpoint(old, rate)));
            }
            // It began anew.
            _ => self.rate = None,
        }
        self.last = Some((now, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(rank: &mut Rank, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        rank.print(Stream::Stdout, text.as_bytes(), |line| {
            lines.push(line.to_string());
        });
        lines
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut rank = Rank::new(0);
        assert!(printed(&mut rank, "on").is_empty());
        assert_eq!(rank.latest(), "on");
        assert_eq!(printed(&mut rank, "e\ntwo\nthr"), ["one", "two"]);
        assert_eq!(rank.open_lines().collect::<Vec<_>>(), ["thr"]);
    }

    #[test]
    fn a_progress_bar_is_one_line_in_its_last_state() {
        let mut rank = Rank::new(0);
        for step in 0..10 {
            assert!(printed(&mut rank, &format!("\r\x1b[32m{step}%\x1b[0m")).is_empty());
        }
        assert_eq!(rank.latest(), "9%");
        assert_eq!(printed(&mut rank, "\r10%\n"), ["10%"]);
    }

    #[test]
    fn the_pace_follows_from_the_steps_that_are_told() {
        let mut pace = Pace::default();
        let mut rate = |seconds, step| {
            pace.note(Duration::from_secs(seconds), step);
            pace.rate
        };
        assert_eq!(rate(1, 10.0), None);
        assert_eq!(rate(3, 18.0), Some(4.0));
        assert_eq!(rate(4, 18.0), Some(4.0));
        assert_eq!(rate(5, 34.0), Some(6.0));
        assert_eq!(rate(6, 0.0), None, "it began anew");
    }

    #[test]
    fn the_state_of_a_process_is_a_word() {
        assert_eq!(State::Ended(Exit::Code(0)).word(), "done");
        assert_eq!(State::Ended(Exit::Code(3)).word(), "code 3");
        assert_eq!(State::Ended(Exit::Signal(11)).word(), "SIGSEGV");
        assert!(State::Ended(Exit::Signal(64)).failed());
        assert!(!State::Running.failed());
    }
}
