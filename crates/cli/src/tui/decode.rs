//! Keys, out of the bytes that a terminal sends for them.
//!
//! Only the keys of the page are known; the sequences of all others are skipped.

/// The longest sequence; what is longer is none.
const LONGEST: usize = 32;
const ESCAPE: u8 = 0x1b;

/// A key of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Tab,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-L.
    Redraw,
    Text(char),
}

/// What came and is no whole key yet.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    pending: Vec<u8>,
}

/// What the beginning of some bytes is.
enum Beginning {
    /// A key, or one that nobody knows, and how many bytes it takes.
    Whole(Option<Key>, usize),
    /// More must come.
    Part,
}

impl Decoder {
    /// Takes bytes and gives the keys that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut at = 0;
        while at < self.pending.len()
            && let Beginning::Whole(key, used) = beginning(&self.pending[at..])
        {
            keys.extend(key);
            at += used;
        }
        self.pending.drain(..at);
        keys
    }

    /// Nothing followed for a while: an escape alone is the key of that name.
    pub(super) fn settle(&mut self) -> Option<Key> {
        let alone = self.pending == [ESCAPE];
        self.pending.clear();
        alone.then_some(Key::Escape)
    }
}

fn beginning(bytes: &[u8]) -> Beginning {
    let single = |key| Beginning::Whole(key, 1);
    match bytes {
        [ESCAPE] => Beginning::Part,
        [ESCAPE, b'[' | b'O', rest @ ..] => sequence(rest),
        // With Alt held, or two keys: either way the escape is one.
        [ESCAPE, ..] => single(Some(Key::Escape)),
        [0x03, ..] => single(Some(Key::Interrupt)),
        [0x0c, ..] => single(Some(Key::Redraw)),
        [b'\r' | b'\n', ..] => single(Some(Key::Enter)),
        [b'\t', ..] => single(Some(Key::Tab)),
        [0x08 | 0x7f, ..] => single(Some(Key::Backspace)),
        [0..0x20, ..] => single(None),
        _ => character(bytes),
    }
}

/// What stands after `ESC [`: parameters, then a letter.
fn sequence(rest: &[u8]) -> Beginning {
    let Some(end) = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        return if rest.len() > LONGEST {
            Beginning::Whole(None, 2)
        } else {
            Beginning::Part
        };
    };
    let first = rest[..end].split(|byte| *byte == b';').next();
    let key = match (rest[end], first.unwrap_or_default()) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        _ => None,
    };
    Beginning::Whole(key, end + 3)
}

/// A character in UTF-8.
fn character(bytes: &[u8]) -> Beginning {
    let length = match bytes[0] {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    let Some(one) = bytes.get(..length) else {
        return Beginning::Part;
    };
    match std::str::from_utf8(one)
        .ok()
        .and_then(|one| one.chars().next())
    {
        Some(character) => {
            let key = (!character.is_control()).then_some(Key::Text(character));
            Beginning::Whole(key, length)
        }
        None => Beginning::Whole(None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let mut decoder = Decoder::default();
        let keys = decoder.feed(b"j\x1b[A\x1bOB\x1b[5~\x1b[6;5~\x1b[H\x1b[4~\r\t\x7f\x03\x01");
        let expected = [
            Key::Text('j'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::Enter,
            Key::Tab,
            Key::Backspace,
            Key::Interrupt,
        ];
        assert_eq!(keys, expected);
        assert_eq!(decoder.settle(), None);
    }

    #[test]
    fn keys_may_come_in_pieces() {
        let mut decoder = Decoder::default();
        for piece in [&b"\x1b"[..], b"[", b"1;5"] {
            assert_eq!(decoder.feed(piece), []);
        }
        assert_eq!(decoder.feed(b"C\xe5\xad"), [Key::Right]);
        assert_eq!(decoder.feed(b"\x97"), [Key::Text('字')]);
    }

    #[test]
    fn an_escape_alone_is_a_key_once_nothing_follows() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert_eq!(decoder.settle(), Some(Key::Escape));
        assert_eq!(decoder.feed(b"\x1bq"), [Key::Escape, Key::Text('q')]);
    }

    #[test]
    fn what_is_no_key_is_skipped() {
        let mut decoder = Decoder::default();
        assert_eq!(
            decoder.feed(b"\x1b[200~\xff\xc3(x"),
            [Key::Text('('), Key::Text('x')]
        );
        let mut long = b"\x1b[".to_vec();
        long.extend([b'1'; 100]);
        decoder.feed(&long);
        assert_eq!(decoder.feed(b"q").last(), Some(&Key::Text('q')));
    }
}
