//! What the page looks like. It only draws: all that it shows is in the model.

mod hosts;
mod log;
mod pen;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use self::pen::Pen;
use super::job::Counts;
use super::model::Model;
use super::page::Mode;
use super::text::clock;

/// What the help says, a key and its meaning a line.
const HELP: [(&str, &str); 13] = [
    ("up down j k", "select a rank, or a host"),
    ("h", "table of hosts, or of ranks"),
    ("Enter Tab", "lines of the rank, or of all"),
    ("PageUp PageDown", "scroll the lines"),
    ("Home End", "oldest lines, newest lines"),
    ("left right", "move the lines sideways"),
    ("f", "follow new lines, or stay"),
    ("/", "show lines with a text only"),
    ("Esc", "show all lines again"),
    ("s", "stop the job; again kills it"),
    ("Ctrl-C", "the same without a question"),
    ("q", "leave"),
    ("?", "this help; any key closes it"),
];

/// Draws the page as it is `now` after its beginning.
pub(super) fn draw(model: &Model, now: Duration, buffer: &mut Buffer) {
    let layout = model.layout();
    let mut pen = Pen::new(buffer, model.colour);
    if !layout.top.is_empty() {
        top(model, now, &mut pen, layout.top.start);
    }
    if model.page.hosts {
        hosts::draw(model, &mut pen, layout.table);
    } else {
        table::draw(model, &mut pen, layout.table);
    }
    log::draw(model, &mut pen, layout.log);
    if let (false, Some(notice)) = (layout.notice.is_empty(), &model.job.notice) {
        let style = pen.colour(Color::Yellow);
        pen.text(0, layout.notice.start, u16::MAX, notice, style);
    }
    if !layout.keys.is_empty() {
        keys(model, &mut pen, layout.keys.start);
    }
    if model.page.mode == Mode::Help {
        help(&mut pen);
    }
}

/// The job: its name, what it does, for how long, and with how many ranks.
fn top(model: &Model, now: Duration, pen: &mut Pen<'_>, row: u16) {
    let job = &model.job;
    let name = if job.name.is_empty() {
        "job"
    } else {
        &job.name
    };
    let (state, time) = (job.state(), clock(job.elapsed(now)));
    let style = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    pen.fill(row, style);
    let text = format!(" {name}  {state} {time}  {}", counted(job.counts()));
    let end = pen.text(0, row, u16::MAX, &text, style);
    if let Some(traffic) = job.network(None) {
        let text = format!("{traffic} ");
        let start = pen.width().saturating_sub(text.len() as u16);
        if start > end + 1 {
            pen.text(start, row, u16::MAX, &text, style);
        }
    }
}

/// `4 ranks: 3 running, 1 failed`.
fn counted(counts: Counts) -> String {
    let each = [
        (counts.failed, "failed"),
        (counts.running, "running"),
        (counts.waiting, "waiting"),
        (counts.done, "done"),
    ];
    let total: usize = each.iter().map(|(count, _)| count).sum();
    let noun = if total == 1 { "rank" } else { "ranks" };
    let parts: Vec<String> = each
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    format!("{total} {noun}{colon}{}", parts.join(", "))
}

/// The last row: a question, the filter as it is written, or the keys.
fn keys(model: &Model, pen: &mut Pen<'_>, row: u16) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let (text, style) = match model.page.mode {
        Mode::AskStop if model.job.interrupts == 0 => (
            "stop the job? y/n  (ranks are asked to end)".to_owned(),
            bold,
        ),
        Mode::AskStop => ("kill the ranks that still run? y/n".to_owned(), bold),
        Mode::AskQuit => ("stop the job and leave? y/n".to_owned(), bold),
        Mode::Filter => {
            let text = format!("/{}_  (Enter keeps, Esc clears)", model.page.filter);
            (text, bold)
        }
        Mode::Normal | Mode::Help => {
            let stop = if model.has_ended() { "" } else { "s stop  " };
            let pane = "Tab all/rank  h hosts  / filter  f follow  PageUp scroll";
            (format!("? help  q leave  {stop}{pane}"), pen.dim())
        }
    };
    pen.text(0, row, u16::MAX, &text, style);
}

/// A box over the middle of the page, as much of it as there is room for.
fn help(pen: &mut Pen<'_>) {
    const KEYS: usize = 16;
    let lines: Vec<String> = HELP
        .iter()
        .map(|(key, meaning)| format!("  {key:KEYS$} {meaning}  "))
        .collect();
    let width = lines.iter().map(String::len).max().unwrap_or_default();
    let column = pen.width().saturating_sub(width as u16) / 2;
    let height = lines.len() as u16 + 2;
    let row = pen.height().saturating_sub(height) / 2;
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let blank = String::new();
    let rows = [&blank].into_iter().chain(&lines).chain([&blank]);
    for (offset, line) in rows.enumerate() {
        pen.text(
            column,
            row + offset as u16,
            u16::MAX,
            &format!("{line:width$}"),
            style,
        );
    }
}
