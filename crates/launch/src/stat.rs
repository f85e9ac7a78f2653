//! What the kernel tells of processes, in `/proc/PID/stat`.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;

/// More than the kernel writes: the name has at most 64 bytes, and some fifty numbers follow.
const LONGEST: usize = 2048;

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// The time on cores, of the process and of its children that were waited for, in the kernel's
    /// ticks.
    pub(crate) ticks: u64,
    /// When it began, in the same: numbers of processes are used again.
    pub(crate) birth: u64,
}

impl Stat {
    /// Of a process, if it is there.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// Every process that can be seen.
    pub(crate) fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut path = String::new();
        let stat = |entry: fs::DirEntry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            path.clear();
            write!(path, "/proc/{pid}/stat").ok()?;
            // It may have ended meanwhile.
            Self::read(&path)
        };
        entries.filter_map(stat).collect()
    }

    fn read(path: &str) -> Option<Self> {
        // The kernel gives the whole of it at once.
        let mut text = [0; LONGEST];
        let count = File::open(path).ok()?.read(&mut text).ok()?;
        Self::parse(&text[..count])
    }

    /// The number, the name in brackets, which may hold anything, then fields between blanks.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(&text[..open]).ok()?.trim();
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        // The first is the state, which is the third field by the kernel's count.
        let mut fields = rest.split_ascii_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        // Time in programs and in the kernel, its own and of its children.
        let mut fields = fields.skip(8);
        let mut ticks = 0;
        for _ in 0..4 {
            let more: u64 = fields.next()?.parse().ok()?;
            ticks += more;
        }
        Some(Self {
            pid: pid.parse().ok()?,
            parent,
            group,
            ticks,
            birth: fields.nth(4)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_name_is() {
        let line = b"4242 (a) R 1 (\xff x) S 4200 4241 4100 0 -1 4194560 9571 26170 0 3 \
                     100 20 3 4 20 0 7 0 816291 12574720 900 18446744073709551615 0 0 0 0 0\n";
        let expected = Stat {
            pid: 4242,
            parent: 4200,
            group: 4241,
            ticks: 127,
            birth: 816_291,
        };
        assert_eq!(Stat::parse(line), Some(expected));
        for torn in [&line[..9], &line[..40], b"", b")("] {
            assert_eq!(Stat::parse(torn), None);
        }
    }

    #[test]
    fn this_process_is_among_all() {
        let me = std::process::id() as i32;
        let own = Stat::of(me).unwrap();
        assert_eq!(own.pid, me);
        let listed = Stat::all().into_iter().find(|one| one.pid == me).unwrap();
        assert_eq!((listed.parent, listed.birth), (own.parent, own.birth));
        assert_eq!(Stat::of(-1), None);
    }
}
