//! The table of hosts.

use std::ops::Range;

use carole_launch::usage::bytes;
use ratatui::style::{Modifier, Style};

use super::counted;
use super::pen::Pen;
use crate::tui::job::Host;
use crate::tui::model::Model;

/// The longest name that is shown.
const LONGEST: usize = 24;

/// Draws a title and the hosts that there is room for, the selected rank's among them.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>, rows: Range<u16>) {
    if rows.is_empty() {
        return;
    }
    let hosts = model.job.hosts();
    let longest = hosts.iter().map(|host| host.name.chars().count()).max();
    let width = longest.unwrap_or_default().clamp(4, LONGEST);
    let style = pen.dim().add_modifier(Modifier::BOLD);
    let title = ["HOST", "CPU", "MEMORY", "RX", "TX", "RANKS"].map(str::to_owned);
    write(pen, rows.start, width, &title, style);

    let rank = model.job.ranks.get(model.page.selected);
    let selected = hosts
        .iter()
        .position(|host| rank.is_some_and(|rank| rank.host == host.name));
    let room = rows.len() - 1;
    let first = selected.map_or(0, |selected| (selected + 1).saturating_sub(room));
    let shown = hosts.iter().enumerate().skip(first);
    for ((place, host), row) in shown.zip(rows.start + 1..rows.end) {
        write(pen, row, width, &cells(host), Style::new());
        if Some(place) == selected {
            pen.fill(row, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

fn cells(host: &Host<'_>) -> [String; 6] {
    let text = |text: Option<String>| text.unwrap_or_default();
    let rate = |count: u64| format!("{}/s", bytes(count));
    [
        host.name.to_owned(),
        text(host.usage.map(|usage| format!("{} %", usage.cpu_percent))),
        text(host.usage.map(|usage| bytes(usage.memory))),
        text(host.traffic.map(|traffic| rate(traffic.received))),
        text(host.traffic.map(|traffic| rate(traffic.sent))),
        counted(host.counts),
    ]
}

fn write(pen: &mut Pen<'_>, row: u16, width: usize, cells: &[String; 6], style: Style) {
    let [name, cpu, memory, received, sent, ranks] = cells;
    let end = pen.text(0, row, width as u16, name, style);
    let end = end.max(width as u16);
    let numbers = format!(" {cpu:>7} {memory:>6} {received:>8} {sent:>8}  {ranks}");
    pen.text(end, row, u16::MAX, &numbers, style);
}
