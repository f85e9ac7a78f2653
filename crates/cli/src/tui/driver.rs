//! Drives the page: tells the model what happens, draws it, and reads keys.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::decode::{Decoder, Key};
use super::happening::{Command, Happening};
use super::model::Model;
use super::terminal::Terminal;
use super::view;

/// The least time between two drawings.
const BETWEEN: Duration = Duration::from_millis(50);
/// How long happenings are noted before keys are looked at again.
const NOTING: Duration = Duration::from_millis(25);

/// Shows the page until a person leaves it, or until nobody can tell of happenings any more.
///
/// A job that has [ended](Happening::Ended) stays on the page until a person leaves. Whoever does
/// not want that drops the sender without telling of the end. `commands` gets what a person asks
/// for; when it gets [`Command::Quit`], the terminal is as it was before.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the receiver ends with the page, so that senders notice"
)]
pub(crate) fn run(happenings: Receiver<Happening>, commands: impl Fn(Command)) -> io::Result<()> {
    let mut terminal = Terminal::enter()?;
    let mut decoder = Decoder::default();
    let mut model = Model::new(colours());
    let (columns, rows) = terminal.size();
    model.resize(columns, rows);

    let begin = Instant::now();
    let mut due = begin;
    let mut changed = true;
    let mut second = 0;
    loop {
        match note(&happenings, &mut model, begin) {
            Noted::Some => changed = true,
            Noted::Nothing => {}
            Noted::End if model.has_ended() => {}
            Noted::End => return Ok(()),
        }
        if terminal.has_resized()? {
            let (columns, rows) = terminal.size();
            model.resize(columns, rows);
            changed = true;
        }
        let now = begin.elapsed();
        if now.as_secs() != second && !model.has_ended() {
            // The page has a clock.
            second = now.as_secs();
            changed = true;
        }
        if changed && Instant::now() >= due {
            terminal.show(|buffer| view::draw(&model, now, buffer))?;
            due = Instant::now() + BETWEEN;
            changed = false;
        }
        let limit = if changed {
            due.saturating_duration_since(Instant::now())
        } else {
            BETWEEN
        };
        let bytes = terminal.read(limit)?;
        let keys: Vec<Key> = if bytes.is_empty() {
            decoder.settle().into_iter().collect()
        } else {
            decoder.feed(&bytes)
        };
        for key in keys {
            changed = true;
            if key == Key::Redraw {
                terminal.redraw()?;
            }
            match model.press(key) {
                Command::None => {}
                Command::Interrupt => commands(Command::Interrupt),
                Command::Quit => {
                    drop(terminal);
                    commands(Command::Quit);
                    return Ok(());
                }
            }
        }
    }
}

/// What there was to note.
enum Noted {
    Nothing,
    Some,
    /// Nothing more will be.
    End,
}

/// Tells the model what has happened, for a while at most.
fn note(happenings: &Receiver<Happening>, model: &mut Model, begin: Instant) -> Noted {
    let until = begin.elapsed() + NOTING;
    let mut noted = Noted::Nothing;
    loop {
        let now = begin.elapsed();
        if now >= until {
            return noted;
        }
        match happenings.try_recv() {
            Ok(happening) => {
                model.happen(now, happening);
                noted = Noted::Some;
            }
            Err(TryRecvError::Empty) => return noted,
            Err(TryRecvError::Disconnected) if matches!(noted, Noted::Some) => return noted,
            Err(TryRecvError::Disconnected) => return Noted::End,
        }
    }
}

/// Whether nobody minds colours.
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
