//! Host files: one host a line, in the dialects that people already have.
//!
//! ```text
//! # Open MPI's and KungFu's
//! node-a slots=4 public_addr=gateway.example
//! node-b slots=4 max_slots=8
//! # MPICH's and Carole's own
//! node-c:4
//! [2001:db8::1]:4
//! # one slot
//! node-d
//! ```
//!
//! `max_slots` is Open MPI's bound on oversubscription. Carole never lays more ranks on a host than
//! it has slots, so any bound at or above `slots` is kept by itself and a lower one is refused.
//! Other settings, a setting given twice and a host given twice are refused, never ignored. This
//! module reads text; opening the file is the caller's.

use std::fmt::Write as _;

use crate::address;
use crate::error::{Origin, PlanError};
use crate::host::{HostParts, HostSpec, bad_part, parse_slots};
use crate::host_list::HostList;

impl HostList {
    /// Reads the text of a host file.
    ///
    /// ```
    /// let hosts = carole_plan::HostList::from_host_file("a slots=4 # the big one\nb:2\n")?;
    /// assert_eq!(hosts.to_string(), "a:4,b:2");
    /// # Ok::<(), carole_plan::PlanError>(())
    /// ```
    pub fn from_host_file(text: &str) -> Result<Self, PlanError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().enumerate().filter_map(|(i, line)| {
            let origin = Origin::Line(i + 1);
            let line = line
                .split_once('#')
                .map_or(line, |(before, _comment)| before);
            Some(
                parse_line(line, origin)
                    .transpose()?
                    .map(|host| (origin, host)),
            )
        });
        Self::distinct("host file", lines)
    }

    /// Writes the list as a host file that Carole, KungFu and Open MPI read (the latter as long as
    /// no host has a public address).
    pub fn to_host_file(&self) -> String {
        let mut text = String::new();
        for host in self {
            let name = address::bracketed(host.host());
            // Writing to a String cannot fail.
            let _ = write!(text, "{name} slots={}", host.slots());
            if let Some(public) = host.public() {
                let _ = write!(text, " public_addr={public}");
            }
            text.push('\n');
        }
        text
    }
}

/// Reads one line without its comment; `None` when nothing is left.
fn parse_line(line: &str, origin: Origin) -> Result<Option<HostSpec>, PlanError> {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let mut parts = HostParts::parse(first, origin)?;
    let mut max_slots = None;
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            return Err(unknown_setting(word, origin));
        };
        match key {
            "slots" => {
                let slots = parse_slots(value, "slots", origin)?;
                set_once(&mut parts.slots, slots, "slots", origin)?;
            }
            // Open MPI knows both spellings.
            "max_slots" | "max-slots" => {
                let bound = parse_slots(value, "max_slots", origin)?;
                set_once(&mut max_slots, bound, "max_slots", origin)?;
            }
            "public_addr" => {
                let public = address::parse_alone(value)
                    .ok_or_else(|| bad_part(origin, "public_addr", value, address::EXPECTED))?;
                set_once(&mut parts.public, public, "public_addr", origin)?;
            }
            _ => return Err(unknown_setting(word, origin)),
        }
    }
    let host = parts.into_spec();
    match max_slots {
        Some(max_slots) if max_slots < host.slots() => Err(PlanError::MaxSlotsBelowSlots {
            origin,
            slots: host.slots(),
            max_slots,
        }),
        _ => Ok(Some(host)),
    }
}

fn set_once<T>(
    place: &mut Option<T>,
    value: T,
    part: &'static str,
    origin: Origin,
) -> Result<(), PlanError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(PlanError::HostPartTwice { origin, part }),
    }
}

fn unknown_setting(word: &str, origin: Origin) -> PlanError {
    bad_part(
        origin,
        "a setting",
        word,
        "slots=N, max_slots=N or public_addr=ADDRESS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        HostList::from_host_file(text).unwrap().to_string()
    }

    fn error(text: &str) -> String {
        HostList::from_host_file(text).unwrap_err().to_string()
    }

    #[test]
    fn every_dialect_is_read() {
        assert_eq!(
            read(
                "# hosts\n\n10.0.0.1 slots=4 public_addr=gw.example\nb:4\r\nc\n\
                 \t[::1]  slots=2 public_addr=2001:db8::1 # v6\nd slots=4 max_slots=8\ne:2:f"
            ),
            "10.0.0.1:4:gw.example,b:4,c:1,[::1]:2:[2001:db8::1],d:4,e:2:f"
        );
    }

    #[test]
    fn byte_order_mark_and_comment_without_space_are_passed_over() {
        assert_eq!(read("\u{feff}a:2#two\n#b\n"), "a:2");
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        assert_eq!(
            error("a\n\n# c\nb slots=many"),
            "line 4 of the host file: slots is \"many\", expected a whole number from 1 to 65535"
        );
        assert_eq!(
            error("a gpus=4"),
            "line 1 of the host file: a setting is \"gpus=4\", \
             expected slots=N, max_slots=N or public_addr=ADDRESS"
        );
        assert!(error("a slots = 4").contains("a setting is \"slots\""));
        assert!(error("a public_addr=").contains("public_addr is \"\""));
        assert!(error("fe80::1 slots=2").contains("in brackets"));
    }

    #[test]
    fn max_slots_below_slots_is_refused() {
        assert_eq!(
            error("a max_slots=2 slots=4"),
            "line 1 of the host file: max_slots=2 is below slots=4"
        );
        assert_eq!(read("a slots=4 max-slots=4"), "a:4");
    }

    #[test]
    fn settings_given_twice_are_refused() {
        assert_eq!(
            error("a:4 slots=4"),
            "line 1 of the host file: slots is given twice"
        );
        assert!(error("a slots=4 slots=4").contains("given twice"));
        assert!(error("a:4:b public_addr=c").contains("public_addr is given twice"));
        assert!(error("a max_slots=4 max-slots=4").contains("max_slots is given twice"));
    }

    #[test]
    fn hosts_given_twice_are_refused_with_both_lines() {
        assert_eq!(
            error("a\nb\na slots=2"),
            "line 3 of the host file: host a was given already by line 1 of the host file"
        );
    }

    #[test]
    fn file_without_hosts_is_refused() {
        assert_eq!(error("# nothing\n"), "the host file names no host");
    }
}
