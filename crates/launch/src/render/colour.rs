//! Colours of ranks, and colours that a program forgot to end.

use memchr::memchr_iter;

/// Ends all colours and other attributes.
pub(crate) const RESET: &[u8] = b"\x1b[0m";
const ESCAPE: u8 = 0x1b;

/// Of the 256 colours of terminals, some that differ and can be read on black and on white. Red is
/// left to errors.
const PALETTE: [u8; 8] = [32, 130, 133, 29, 99, 100, 66, 162];

/// What begins the colour of `rank`: the same in every job.
pub(crate) fn of_rank(rank: usize) -> String {
    format!("\x1b[38;5;{}m", PALETTE[rank % PALETTE.len()])
}

/// Whether there is any escape sequence in `bytes`.
pub(crate) fn may_colour(bytes: &[u8]) -> bool {
    memchr::memchr(ESCAPE, bytes).is_some()
}

/// Whether a colour or another attribute is still on at the end of `line`.
pub(crate) fn is_left_on(line: &[u8]) -> bool {
    let mut on = false;
    for at in memchr_iter(ESCAPE, line) {
        let Some(rest) = line[at + 1..].strip_prefix(b"[") else {
            continue;
        };
        // Digits, colons and semicolons, in the order of their codes.
        let end = rest.iter().position(|byte| !(b'0'..=b';').contains(byte));
        if let Some(end) = end
            && rest[end] == b'm'
        {
            on = turns_on(&rest[..end]);
        }
    }
    on
}

/// Whether a sequence with these parameters leaves an attribute on.
fn turns_on(parameters: &[u8]) -> bool {
    let mut on = false;
    let mut parameters = parameters.split(|&byte| byte == b';');
    while let Some(parameter) = parameters.next() {
        on = !parameter.iter().all(|&byte| byte == b'0');
        if matches!(parameter, b"38" | b"48" | b"58") {
            // The numbers that follow are a colour: one of 256, or red, green and blue.
            match parameters.next() {
                Some(b"5") => drop(parameters.next()),
                Some(b"2") => drop(parameters.nth(2)),
                _ => {}
            }
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How bright one of the 216 colours of the cube is, as contrast is computed from it.
    fn luminance(colour: u8) -> f64 {
        let cube = colour - 16;
        [
            (cube / 36, 0.2126),
            (cube / 6 % 6, 0.7152),
            (cube % 6, 0.0722),
        ]
        .into_iter()
        .map(|(level, weight)| {
            let value = [0.0, 95.0, 135.0, 175.0, 215.0, 255.0][level as usize] / 255.0;
            let linear = if value <= 0.04045 {
                value / 12.92
            } else {
                f64::powf((value + 0.055) / 1.055, 2.4)
            };
            weight * linear
        })
        .sum()
    }

    #[test]
    fn every_colour_can_be_read_on_black_and_on_white() {
        for colour in PALETTE {
            let luminance = luminance(colour);
            let (on_black, on_white) = ((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05));
            assert!(
                on_black >= 3.5 && on_white >= 3.5,
                "{colour}: {on_black:.1} on black, {on_white:.1} on white"
            );
        }
    }

    #[test]
    fn a_rank_has_the_same_colour_whatever_the_size_of_the_job() {
        assert_eq!(of_rank(3), of_rank(3 + PALETTE.len()));
        assert_ne!(of_rank(3), of_rank(4));
    }

    #[test]
    fn what_is_left_on_is_noticed() {
        let on: [&[u8]; 7] = [
            b"\x1b[31mred",
            b"\x1b[1;31mbold",
            b"\x1b[0;31mred",
            b"\x1b[0mplain \x1b[4munderlined",
            b"\x1b[38;5;0mblack of 256",
            b"\x1b[48;2;0;0;0mon black",
            b"\x1b[38:5:0mblack, with colons",
        ];
        for line in on {
            assert!(is_left_on(line), "{}", line.escape_ascii());
        }
        let off: [&[u8]; 7] = [
            b"",
            b"\x1b[31mred\x1b[0m",
            b"\x1b[31mred\x1b[m",
            b"\x1b[31mred\x1b[38;5;0;0m",
            b"\x1b[2K\x1b[1A",
            b"\x1b[31",
            b"[31m \x1b",
        ];
        for line in off {
            assert!(!is_left_on(line), "{}", line.escape_ascii());
        }
    }
}
