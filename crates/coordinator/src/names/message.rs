//! Questions to a name server and its answers, as RFC 1035 writes them.

use std::net::IpAddr;

use super::MOST;

const HEADER: usize = 12;
/// The longest name, dots included.
const LONGEST_NAME: usize = 253;
/// The longest part of a name.
const LONGEST_LABEL: usize = 63;
/// Names that lead to another before an address comes.
const MOST_ALIASES: usize = 16;
const ALIAS: u16 = 5;
const INTERNET: u16 = 1;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    V4 = 1,
    V6 = 28,
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// There is more than fits a datagram.
    Truncated,
    /// It cannot, or does not want to.
    Failed,
}

/// The bytes of a question; none if the name cannot be one.
pub(super) fn question(number: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    // One question, which the server shall pursue.
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    if name.len() > LONGEST_NAME {
        return None;
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok()?;
        if length == 0 || label.len() > LONGEST_LABEL || !label.is_ascii() {
            return None;
        }
        bytes.push(length);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes.extend((kind as u16).to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    Some(bytes)
}

/// What `message` answers to this question; none if it does not, or makes no sense.
pub(super) fn answer(message: &[u8], number: u16, name: &str, kind: Kind) -> Option<Answer> {
    let mut at = Cursor { message, at: 0 };
    let (found, flags) = (at.number()?, at.number()?);
    let (questions, records) = (at.number()?, at.number()?);
    at.at = HEADER;
    let is_answer = flags & 0x8000 != 0 && flags & 0x7800 == 0;
    if found != number || !is_answer || questions != 1 {
        return None;
    }
    let same = at.name()?.eq_ignore_ascii_case(name);
    if !same || at.number()? != kind as u16 || at.number()? != INTERNET {
        return None;
    }
    match flags & 0xf {
        _ if flags & 0x0200 != 0 => return Some(Answer::Truncated),
        0 => {}
        3 => return Some(Answer::NoSuchName),
        _ => return Some(Answer::Failed),
    }
    let mut aliases = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..records {
        let owner = at.name()?;
        let (of, class) = (at.number()?, at.number()?);
        at.take(4)?;
        let length = usize::from(at.number()?);
        let begin = at.at;
        let data = at.take(length)?;
        if class != INTERNET || aliases.len() + addresses.len() > MOST + MOST_ALIASES {
            continue;
        }
        if of == ALIAS {
            let mut inside = Cursor { message, at: begin };
            aliases.push((owner, inside.name()?));
        } else if of == kind as u16 {
            let address = match kind {
                Kind::V4 => <[u8; 4]>::try_from(data).ok()?.into(),
                Kind::V6 => <[u8; 16]>::try_from(data).ok()?.into(),
            };
            addresses.push((owner, address));
        }
    }
    let mut name = name;
    for _ in 0..MOST_ALIASES {
        let own = addresses
            .iter()
            .filter(|(owner, _)| owner.eq_ignore_ascii_case(name));
        let own: Vec<IpAddr> = own.map(|(_, address)| *address).take(MOST).collect();
        let alias = aliases
            .iter()
            .find(|(owner, _)| owner.eq_ignore_ascii_case(name));
        match alias {
            Some((_, other)) if own.is_empty() => name = other,
            _ => return Some(Answer::Addresses(own)),
        }
    }
    None
}

/// A place in a message.
struct Cursor<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name, which may go on at an earlier place.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut here = Cursor { ..*self };
        // Where this name goes on behind, once it has gone on elsewhere.
        let mut behind = None;
        loop {
            let begin = here.at;
            let length = here.take(1)?[0];
            match length {
                0 => break,
                1..=63 => {
                    let label = here.take(usize::from(length))?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    // Other bytes are no part of a host's name.
                    name.push_str(
                        std::str::from_utf8(label)
                            .ok()
                            .filter(|text| text.is_ascii())?,
                    );
                    if name.len() > LONGEST_NAME {
                        return None;
                    }
                }
                192.. => {
                    let low = here.take(1)?[0];
                    let place = usize::from(u16::from_be_bytes([length & 63, low]));
                    behind.get_or_insert(here.at);
                    // Only backwards, so that it comes to an end.
                    if place >= begin {
                        return None;
                    }
                    here.at = place;
                }
                _ => return None,
            }
        }
        self.at = behind.unwrap_or(here.at);
        Some(name)
    }
}
