//! Bytes of programs as text that is safe to show, and numbers as a person reads them.

use std::iter::Peekable;
use std::str::Chars;
use std::time::Duration;

use ratatui::text::Span;

/// Where tabs end.
const TAB: usize = 8;

/// The text in a line of output, without what a terminal would act on.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut kept = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => skip_sequence(&mut characters),
            '\t' => {
                let column = Span::raw(&kept).width();
                kept.extend(std::iter::repeat_n(' ', TAB - column % TAB));
            }
            _ if character.is_control() || turns_text(character) => {}
            _ => kept.push(character),
        }
    }
    kept
}

/// Skips what stands after an escape.
fn skip_sequence(characters: &mut Peekable<Chars<'_>>) {
    match characters.next() {
        // Parameters, then a letter.
        Some('[') => while characters.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
        // A text of any length, such as the title of a window, up to a bell or `ESC \`.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(character) = characters.next() {
                if character == '\x07' {
                    break;
                }
                if character == '\x1b' {
                    characters.next_if_eq(&'\\');
                    break;
                }
            }
        }
        // Such as the choice of a character set.
        Some(' '..='/') => while characters.next().is_some_and(|c| (' '..='/').contains(&c)) {},
        _ => {}
    }
}

/// Characters that reverse what stands after them, or break the line.
fn turns_text(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `950`, `1.2k`, `35M`: at most four characters for what there is in practice.
pub(super) fn short(number: f64) -> String {
    let mut value = number.max(0.0);
    for unit in ["", "k", "M", "G", "T"] {
        if value < 999.5 {
            let digits = usize::from(value < 9.95 && !(unit.is_empty() && value.fract() == 0.0));
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0}P")
}

/// `1:02:03`, `02:03` below an hour.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_would_act_on() {
        for (bytes, expected) in [
            (&b"plain"[..], "plain"),
            (b"\x1b[1;31mred\x1b[0m end", "red end"),
            (b"\x1b]0;title\x07after", "after"),
            (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1b(Btext\x1b", "text"),
            (b"\x1b[31", ""),
            (b"\x1b]never ended", ""),
            (b"bell\x07 back\x08 \x9b31m", "bell back \u{fffd}31m"),
            (b"a\tb", "a       b"),
            ("字\tb\t".as_bytes(), "字      b       "),
            ("\u{9b}31m \u{202e}abc".as_bytes(), "31m abc"),
            ("字 \u{1f600}".as_bytes(), "字 \u{1f600}"),
        ] {
            assert_eq!(clean(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn numbers_are_short() {
        for (number, expected) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (7.0, "7"),
            (42.4, "42"),
            (999.6, "1.0k"),
            (1234.0, "1.2k"),
            (35_000_000.0, "35M"),
            (2e18, "2000P"),
            (-1.0, "0"),
        ] {
            assert_eq!(short(number), expected, "{number}");
        }
        assert_eq!(clock(Duration::from_secs(62)), "01:02");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
