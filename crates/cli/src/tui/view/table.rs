//! The table of ranks.

use std::ops::Range;

use ratatui::style::{Color, Modifier, Style};

use super::pen::Pen;
use crate::tui::job::Job;
use crate::tui::model::Model;
use crate::tui::rank::{Rank, State};
use crate::tui::text::short;
use carole_launch::Progress;
use carole_launch::usage::bytes;

/// Columns that are left for what a rank told last, before other columns get any.
const LEAST_TOLD: u16 = 12;
/// Columns of a bar.
const BAR: usize = 6;

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Host,
    State,
    Cpu,
    Memory,
    Progress,
    Told,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Name => "RANK",
            Self::Host => "HOST",
            Self::State => "STATE",
            Self::Cpu => "CPU",
            Self::Memory => "MEMORY",
            Self::Progress => "STEP",
            Self::Told => "LAST LINE",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Cpu | Self::Memory)
    }

    fn cell(self, rank: &Rank, width: u16) -> String {
        let usage = rank.usage;
        match self {
            Self::Name => rank.name.clone(),
            Self::Host => rank.host.clone(),
            Self::State => rank.state.word(),
            Self::Cpu => usage.map_or_else(String::new, |usage| format!("{} %", usage.cpu_percent)),
            Self::Memory => usage.map_or_else(String::new, |usage| bytes(usage.memory)),
            Self::Progress => {
                let progress = rank.progress.as_ref();
                let rate = rank.pace.rate;
                progress.map_or_else(String::new, |progress| steps(progress, rate, width.into()))
            }
            Self::Told => rank.latest(),
        }
    }
}

/// Draws a title and the ranks that there is room for.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>, rows: Range<u16>) {
    if rows.is_empty() {
        return;
    }
    let columns = columns(&model.job, pen.width());
    let mut at = 0;
    for &(column, width) in &columns {
        let title = aligned(column, column.title(), width);
        let style = pen.dim().add_modifier(Modifier::BOLD);
        pen.text(at, rows.start, width, &title, style);
        at += width + 1;
    }
    let shown = model.job.ranks.iter().enumerate().skip(model.page.first);
    for ((number, rank), row) in shown.zip(rows.start + 1..rows.end) {
        let mut at = 0;
        for &(column, width) in &columns {
            let style = match column {
                Column::State => state_style(rank.state, pen),
                _ => Style::new(),
            };
            let cell = aligned(column, &column.cell(rank, width), width);
            pen.text(at, row, width, &cell, style);
            at += width + 1;
        }
        if number == model.page.selected {
            pen.fill(row, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// The columns that there is room for, in their order, with their widths.
fn columns(job: &Job, width: u16) -> Vec<(Column, u16)> {
    let longest = |text: fn(&Rank) -> &str, most: usize| {
        let longest = job
            .ranks
            .iter()
            .map(|rank| text(rank).chars().count())
            .max();
        longest.unwrap_or_default().clamp(4, most) as u16
    };
    let used = job.ranks.iter().any(|rank| rank.usage.is_some());
    // As a rule `98 %` or `100 %`; a rank may have dozens of threads.
    let most = job
        .ranks
        .iter()
        .filter_map(|rank| rank.usage)
        .max_by_key(|u| u.cpu_percent);
    let cpu = if most.is_some_and(|usage| usage.cpu_percent > 999) {
        6
    } else {
        5
    };
    let steps = job.ranks.iter().any(|rank| rank.progress.is_some());
    let mut columns = vec![
        (Column::Name, longest(|rank| &rank.name, 12)),
        (Column::State, 8),
    ];
    let mut room = columns
        .iter()
        .fold(width, |room, (_, width)| room.saturating_sub(width + 1))
        .saturating_sub(LEAST_TOLD);
    let progress = if width >= 100 { 28 } else { 18 };
    for (column, wanted, width) in [
        (Column::Progress, steps, progress),
        (
            Column::Host,
            job.has_several_hosts(),
            longest(|rank| &rank.host, 16),
        ),
        (Column::Cpu, used, cpu),
        (Column::Memory, used, 6),
    ] {
        if wanted && room > width {
            room -= width + 1;
            columns.push((column, width));
        }
    }
    columns.sort_by_key(|(column, _)| *column as usize);
    let told = room.saturating_add(LEAST_TOLD);
    columns.push((Column::Told, told));
    columns
}

fn aligned(column: Column, text: &str, width: u16) -> String {
    if column.is_number() {
        format!("{text:>width$}", width = width.into())
    } else {
        text.to_owned()
    }
}

fn state_style(state: State, pen: &Pen<'_>) -> Style {
    match state {
        State::Waiting => pen.dim(),
        State::Running => Style::new(),
        state if state.failed() => pen.colour(Color::Red).add_modifier(Modifier::BOLD),
        State::Ended(_) => pen.colour(Color::Green),
    }
}

/// `120/1000 ███░░░ 3.4/s`, as much of it as fits.
fn steps(progress: &Progress, rate: Option<f64>, width: usize) -> String {
    let Some(step) = progress.step else {
        return String::new();
    };
    let mut text = match progress.total {
        Some(total) => format!("{step}/{total}"),
        None => step.to_string(),
    };
    if text.len() > width {
        text = short(step);
    }
    let bar = progress.part().map(|part| {
        let full = (part * BAR as f64).round() as usize;
        format!(" {}{}", "█".repeat(full), "░".repeat(BAR - full))
    });
    let rate = rate.map(|rate| format!(" {}/s", short(rate)));
    let mut room = width.saturating_sub(text.len());
    for part in [bar, rate].into_iter().flatten() {
        let columns = part.chars().count();
        if columns <= room {
            room -= columns;
            text += &part;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_as_many_columns_as_there_are() {
        let progress = Progress {
            step: Some(120.0),
            total: Some(240.0),
            ..Progress::default()
        };
        let told = |progress: &Progress, width| steps(progress, Some(3.44), width);
        assert_eq!(told(&progress, 30), "120/240 ███░░░ 3.4/s");
        assert_eq!(told(&progress, 15), "120/240 ███░░░");
        assert_eq!(told(&progress, 7), "120/240");
        assert_eq!(told(&progress, 4), "120");
        let endless = Progress {
            total: None,
            ..progress.clone()
        };
        assert_eq!(told(&endless, 30), "120 3.4/s");
        let beyond = Progress {
            step: Some(500.0),
            total: Some(0.0),
            ..progress
        };
        assert_eq!(told(&beyond, 30), "500/0 3.4/s");
        assert_eq!(told(&Progress::default(), 30), "");
    }
}
