//! Writing into a buffer: never outside it, and with colours only where they are wanted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Widget};

/// What stands for the rest of a text that does not fit.
const MORE: &str = "…";

/// Writes into a page.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    colour: bool,
}

impl<'a> Pen<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, colour: bool) -> Self {
        Self { buffer, colour }
    }

    pub(super) fn width(&self) -> u16 {
        self.buffer.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.buffer.area.height
    }

    /// A colour, or none where nobody wants colours.
    pub(super) fn colour(&self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    /// What matters less.
    pub(super) fn dim(&self) -> Style {
        if self.colour {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }

    /// Styles a whole row.
    pub(super) fn fill(&mut self, row: u16, style: Style) {
        let row = Rect::new(0, row, self.width(), 1);
        let row = row.intersection(self.buffer.area);
        self.buffer.set_style(row, style);
    }

    /// Writes a text into at most `width` columns and tells the column after it.
    pub(super) fn text(
        &mut self,
        column: u16,
        row: u16,
        width: u16,
        text: &str,
        style: Style,
    ) -> u16 {
        let width = width.min(self.width().saturating_sub(column));
        if width == 0 || row >= self.height() {
            return column;
        }
        // A text of so few bytes cannot be wider.
        let fits = text.len() <= usize::from(width) || Span::raw(text).width() <= width.into();
        let room = if fits { width } else { width - 1 };
        let (end, _) = self
            .buffer
            .set_stringn(column, row, text, room.into(), style);
        if fits {
            return end;
        }
        // A wide character that does not fit leaves one more column.
        let (end, _) = self.buffer.set_stringn(end, row, MORE, 1, style);
        end
    }

    /// Writes a text without its first `shift` columns.
    pub(super) fn shifted(&mut self, column: u16, row: u16, shift: u16, text: &str, style: Style) {
        if shift == 0 {
            self.text(column, row, u16::MAX, text, style);
            return;
        }
        let area = Rect::new(column, row, self.width().saturating_sub(column), 1);
        let area = area.intersection(self.buffer.area);
        let line = Paragraph::new(text).style(style).scroll((0, shift));
        line.render(area, self.buffer);
    }
}
