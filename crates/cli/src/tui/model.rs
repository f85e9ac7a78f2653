//! What the page shows and what its keys do: a pure state machine.

use std::time::Duration;

use super::decode::Key;
use super::happening::{Command, Happening};
use super::job::Job;
use super::layout::Layout;
use super::line::Lines;
use super::page::{Mode, Page, Pane};

/// Columns that a key moves lines sideways.
const SIDEWAYS: u16 = 8;
/// The longest filter.
const LONGEST_FILTER: usize = 200;

/// The job and the page.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) job: Job,
    pub(super) page: Page,
    /// Whether colours may be used.
    pub(super) colour: bool,
}

impl Model {
    pub(super) fn new(colour: bool) -> Self {
        Self {
            job: Job::new(),
            page: Page::default(),
            colour,
        }
    }

    /// Something happened to the job, `now` after the page began.
    pub(super) fn happen(&mut self, now: Duration, happening: Happening) {
        self.job.happen(now, happening);
        if self.has_ended() && matches!(self.page.mode, Mode::AskStop | Mode::AskQuit) {
            // The question has answered itself.
            self.page.mode = Mode::Normal;
        }
        self.settle();
    }

    /// The terminal has so many columns and rows.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.page.size = (columns, rows);
        self.settle();
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) -> Command {
        let command = if key == Key::Interrupt {
            self.interrupt_or_leave()
        } else {
            match self.page.mode {
                Mode::Normal => self.press_normal(key),
                Mode::Filter => self.press_filter(key),
                Mode::Help => {
                    self.page.mode = Mode::Normal;
                    Command::None
                }
                Mode::AskStop => self.answer(key, Self::interrupt),
                Mode::AskQuit => self.answer(key, |_| Command::Quit),
            }
        };
        self.settle();
        command
    }

    /// Whether the job is over.
    pub(super) fn has_ended(&self) -> bool {
        self.job.end.is_some()
    }

    pub(super) fn layout(&self) -> Layout {
        let (_, rows) = self.page.size;
        let listed = if self.page.hosts {
            self.job.host_count()
        } else {
            self.job.ranks.len()
        };
        Layout::new(rows, listed, self.job.notice.is_some())
    }

    /// The lines of the pane, all that there are.
    pub(super) fn lines(&self) -> &Lines {
        lines_of(&self.job, self.page.pane, self.page.selected)
    }

    fn press_normal(&mut self, key: Key) -> Command {
        match key {
            Key::Up | Key::Text('k') => self.select(self.neighbour(false)),
            Key::Down | Key::Text('j') => self.select(self.neighbour(true)),
            Key::Text('h') => self.page.hosts = !self.page.hosts,
            Key::Enter | Key::Tab => {
                self.page.pane = match self.page.pane {
                    Pane::Rank => Pane::All,
                    Pane::All => Pane::Rank,
                };
            }
            Key::PageUp => self.scroll(true),
            Key::PageDown => self.scroll(false),
            Key::Home => self.page.anchor = Some(0),
            Key::End => self.page.anchor = None,
            Key::Left => self.page.shift = self.page.shift.saturating_sub(SIDEWAYS),
            Key::Right => self.page.shift = self.page.shift.saturating_add(SIDEWAYS),
            Key::Text('/') => self.page.mode = Mode::Filter,
            Key::Escape => self.page.filter.clear(),
            Key::Text('f') => {
                let lines = lines_of(&self.job, self.page.pane, self.page.selected);
                self.page.toggle_follow(lines);
            }
            Key::Text('s') if !self.has_ended() => self.page.mode = Mode::AskStop,
            Key::Text('q') if self.has_ended() => return Command::Quit,
            Key::Text('q') => self.page.mode = Mode::AskQuit,
            Key::Text('?') => self.page.mode = Mode::Help,
            _ => {}
        }
        Command::None
    }

    fn press_filter(&mut self, key: Key) -> Command {
        match key {
            Key::Text(character) if self.page.filter.len() < LONGEST_FILTER => {
                self.page.filter.push(character);
            }
            Key::Backspace => drop(self.page.filter.pop()),
            Key::Enter => self.page.mode = Mode::Normal,
            Key::Escape => {
                self.page.filter.clear();
                self.page.mode = Mode::Normal;
            }
            _ => {}
        }
        Command::None
    }

    /// Yes does it, no does nothing, and other keys answer nothing.
    fn answer(&mut self, key: Key, yes: impl FnOnce(&mut Self) -> Command) -> Command {
        match key {
            Key::Text('y' | 'Y') => {
                self.page.mode = Mode::Normal;
                yes(self)
            }
            Key::Text('n' | 'N') | Key::Escape => {
                self.page.mode = Mode::Normal;
                Command::None
            }
            _ => Command::None,
        }
    }

    fn interrupt_or_leave(&mut self) -> Command {
        self.page.mode = Mode::Normal;
        if self.has_ended() {
            Command::Quit
        } else {
            self.interrupt()
        }
    }

    fn interrupt(&mut self) -> Command {
        self.job.interrupts = self.job.interrupts.saturating_add(1);
        Command::Interrupt
    }

    /// The rank after the selected one, or before it; among hosts, the first of the next host.
    fn neighbour(&self, after: bool) -> usize {
        let selected = self.page.selected;
        let step = |place: usize| {
            if after {
                place + 1
            } else {
                place.saturating_sub(1)
            }
        };
        if !self.page.hosts {
            return step(selected);
        }
        let host = self.job.ranks.get(selected).map(|rank| &*rank.host);
        let hosts = self.job.hosts();
        let place = hosts.iter().position(|one| Some(one.name) == host);
        let next = place.and_then(|place| hosts.get(step(place)));
        next.map_or(selected, |host| host.first)
    }

    fn select(&mut self, rank: usize) {
        let rank = rank.min(self.job.ranks.len().saturating_sub(1));
        if rank != self.page.selected && self.page.pane == Pane::Rank {
            self.page.anchor = None;
        }
        self.page.selected = rank;
    }

    fn scroll(&mut self, up: bool) {
        let rows = self.layout().log_rows();
        let lines = lines_of(&self.job, self.page.pane, self.page.selected);
        self.page.scroll(lines, rows, up);
    }

    fn settle(&mut self) {
        let rows = self.layout().table_rows();
        self.page.show_selected(self.job.ranks.len(), rows);
    }
}

fn lines_of(job: &Job, pane: Pane, selected: usize) -> &Lines {
    match (pane, job.ranks.get(selected)) {
        (Pane::Rank, Some(rank)) => &rank.lines,
        _ => &job.lines,
    }
}

#[cfg(test)]
mod tests {
    use carole_launch::render::Stream;
    use carole_launch::{Event, Exit, Traffic};

    use super::super::job::Counts;
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A job of two ranks that run.
    fn running() -> Model {
        let mut model = Model::new(false);
        model.resize(80, 24);
        let named = Happening::Named {
            job: "train".into(),
            ranks: vec!["rank 0".into(), "rank 1".into()],
        };
        model.happen(at(1), named);
        for rank in 0..2 {
            start(&mut model, 2, rank, "a");
        }
        model
    }

    fn start(model: &mut Model, second: u64, rank: usize, host: &str) {
        let (host, pid) = (host.into(), 10);
        model.happen(at(second), Event::Started { rank, host, pid }.into());
    }

    fn end(model: &mut Model, second: u64, rank: usize, exit: Exit) {
        model.happen(at(second), Event::Exited { rank, exit }.into());
    }

    fn print(model: &mut Model, rank: usize, text: &str) {
        let printed = Event::Printed {
            rank,
            stream: Stream::Stdout,
            bytes: text.into(),
        };
        model.happen(at(3), printed.into());
    }

    fn texts(model: &Model) -> Vec<&str> {
        model.lines().iter().map(|line| &*line.text).collect()
    }

    fn type_in(model: &mut Model, text: &str) -> Vec<Command> {
        text.chars().map(|c| model.press(Key::Text(c))).collect()
    }

    #[test]
    fn the_job_is_followed_to_its_end() {
        let mut model = Model::new(false);
        assert_eq!(model.job.state(), "starting");
        model = running();
        assert_eq!(model.job.state(), "running");
        end(&mut model, 5, 0, Exit::Code(0));
        end(&mut model, 6, 1, Exit::Signal(9));
        let expected = Counts {
            done: 1,
            failed: 1,
            ..Counts::default()
        };
        assert_eq!(model.job.counts(), expected);
        model.happen(at(7), Happening::Ended("rank 1 exited".into()));
        assert_eq!(model.job.state(), "ended");
        assert_eq!(model.job.elapsed(at(100)), at(5));
    }

    #[test]
    fn a_rank_that_starts_again_runs_again_and_keeps_its_lines() {
        let mut model = running();
        print(&mut model, 1, "before\n");
        end(&mut model, 5, 1, Exit::Code(1));
        start(&mut model, 6, 1, "b");
        assert_eq!(model.job.counts().running, 2);
        model.press(Key::Down);
        assert_eq!(texts(&model), ["before"]);
        assert!(model.job.has_several_hosts());
    }

    #[test]
    fn the_pane_is_the_selected_ranks_or_everybodys() {
        let mut model = running();
        print(&mut model, 0, "zero\n");
        print(&mut model, 1, "one\n");
        model.happen(at(4), Happening::Notice("note".into()));
        assert_eq!(texts(&model), ["zero"]);
        model.press(Key::Text('j'));
        assert_eq!(texts(&model), ["one"]);
        model.press(Key::Down);
        assert_eq!(texts(&model), ["one"], "there is no third");
        model.press(Key::Tab);
        assert_eq!(texts(&model), ["zero", "one", "note"]);
        model.press(Key::Enter);
        model.press(Key::Up);
        assert_eq!(texts(&model), ["zero"]);
    }

    #[test]
    fn among_hosts_keys_go_from_host_to_host() {
        let mut model = running();
        start(&mut model, 3, 2, "b");
        start(&mut model, 3, 3, "b");
        let mut selected = |key| {
            model.press(key);
            model.page.selected
        };
        let keys = [Key::Text('h'), Key::Down, Key::Down, Key::Up];
        assert_eq!(keys.map(&mut selected), [0, 2, 2, 0]);
        assert_eq!([Key::Text('h'), Key::Down].map(selected), [0, 1]);
    }

    #[test]
    fn stopping_asks_and_control_c_does_not() {
        let mut model = running();
        assert_eq!(type_in(&mut model, "sn"), [Command::None; 2]);
        assert_eq!(model.job.state(), "running");
        assert_eq!(
            type_in(&mut model, "sxy"),
            [Command::None, Command::None, Command::Interrupt]
        );
        assert_eq!(model.job.state(), "stopping");
        assert_eq!(model.press(Key::Interrupt), Command::Interrupt);
        assert_eq!(model.job.state(), "killing");
    }

    #[test]
    fn leaving_asks_while_the_job_runs() {
        let mut model = running();
        assert_eq!(type_in(&mut model, "qn"), [Command::None; 2]);
        assert_eq!(type_in(&mut model, "qy"), [Command::None, Command::Quit]);
        assert_eq!(type_in(&mut model, "q"), [Command::None]);
        model.happen(at(9), Happening::Ended("all ranks ended well".into()));
        assert_eq!(model.page.mode, Mode::Normal, "nothing is left to ask");
        assert_eq!(type_in(&mut model, "s"), [Command::None]);
        assert_eq!(type_in(&mut model, "q"), [Command::Quit]);
        assert_eq!(model.press(Key::Interrupt), Command::Quit);
    }

    #[test]
    fn a_filter_is_written_kept_and_cleared() {
        let mut model = running();
        assert_eq!(type_in(&mut model, "/sqx"), [Command::None; 4]);
        model.press(Key::Backspace);
        model.press(Key::Enter);
        assert_eq!(model.page.filter, "sq");
        assert_eq!(model.page.mode, Mode::Normal);
        model.press(Key::Escape);
        assert_eq!(model.page.filter, "");
        type_in(&mut model, "/a");
        model.press(Key::Escape);
        assert_eq!(
            (model.page.filter.as_str(), model.page.mode),
            ("", Mode::Normal)
        );
    }

    #[test]
    fn a_rank_with_an_absurd_number_costs_no_memory() {
        let mut model = running();
        print(&mut model, usize::MAX, "x\n");
        assert_eq!(model.job.ranks.len(), 2);
    }

    #[test]
    fn hosts_traffic_is_summed() {
        let mut model = running();
        assert_eq!(model.job.network(None), None);
        let traffic = |received, sent| Traffic { received, sent };
        for (host, received) in [("a", 5), ("b", 7), ("a", 6)] {
            let used = Event::Usage {
                host: host.into(),
                ranks: Vec::new(),
                traffic: traffic(received, 1),
            };
            model.happen(at(4), used.into());
        }
        assert_eq!(model.job.network(None), Some(traffic(13, 2)));
        assert_eq!(model.job.network(Some("a")), Some(traffic(6, 1)));
    }
}
