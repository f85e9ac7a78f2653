//! The pane of lines.

use std::ops::Range;

use ratatui::style::{Color, Modifier};

use super::pen::Pen;
use crate::tui::model::Model;
use crate::tui::page::Pane;

/// Whose a notice is.
const CAROLE: &str = "carole";

/// Draws a title and the lines that there is room for.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>, rows: Range<u16>) {
    if rows.is_empty() {
        return;
    }
    let style = pen.dim().add_modifier(Modifier::BOLD);
    let title = format!("── {} ", title(model));
    let rest = usize::from(pen.width()).saturating_sub(title.chars().count());
    let title = title + &"─".repeat(rest);
    pen.text(0, rows.start, u16::MAX, &title, style);

    let (page, room) = (&model.page, rows.len() - 1);
    let all = page.pane == Pane::All;
    let mut lines: Vec<(Option<usize>, String)> = page
        .visible(model.lines(), room)
        .into_iter()
        .map(|line| (line.rank, line.text.to_string()))
        .collect();
    if !all
        && page.follows()
        && let Some(rank) = model.job.ranks.get(page.selected)
    {
        let matches = page.matches();
        let open = rank.open_lines().filter(|line| matches(line));
        lines.extend(open.map(|line| (Some(page.selected), line)));
        lines.drain(..lines.len().saturating_sub(room));
    }
    for ((rank, text), row) in lines.iter().zip(rows.start + 1..) {
        let mut column = 0;
        if all {
            let name = match rank.and_then(|rank| model.job.ranks.get(rank)) {
                Some(rank) => &rank.name,
                None => CAROLE,
            };
            column = pen.text(0, row, u16::MAX, &format!("{name}| "), pen.dim());
        }
        let style = match rank {
            Some(_) => ratatui::style::Style::new(),
            None => pen.colour(Color::Yellow),
        };
        pen.shifted(column, row, page.shift, text, style);
    }
}

/// Whose lines they are, and which.
fn title(model: &Model) -> String {
    let page = &model.page;
    let mut parts = Vec::new();
    match (page.pane, model.job.ranks.get(page.selected)) {
        (Pane::Rank, Some(rank)) => {
            let mut of = rank.name.clone();
            if !rank.host.is_empty() {
                of = format!("{of} on {}", rank.host);
            }
            if let Some(pid) = rank.pid {
                of = format!("{of}, process {pid}");
            }
            parts.push(of);
            let traffic = model.job.network(Some(&rank.host));
            parts.extend(traffic.map(|traffic| traffic.to_string()));
        }
        _ => parts.push("all ranks".to_owned()),
    }
    if !page.filter.is_empty() {
        parts.push(format!("with {:?}", page.filter));
    }
    if !page.follows() {
        parts.push("not following".to_owned());
    }
    if page.shift > 0 {
        parts.push(format!("from column {}", page.shift));
    }
    parts.join(" ─ ")
}
