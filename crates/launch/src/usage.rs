//! What ranks and hosts use, as agents measure it and as a person reads it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a rank uses, all of its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of one core; two busy cores are 200.
    pub cpu_percent: u32,
    /// Bytes in memory. Files and shared memory that several of its processes map count once.
    pub memory: u64,
}

/// What a host receives and sends on its network, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// What comes in.
    pub received: u64,
    /// What goes out.
    pub sent: u64,
}

/// Writes `rx 12 MB/s tx 3.4 MB/s`.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rx {}/s tx {}/s", bytes(self.received), bytes(self.sent))
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            received: self.received.saturating_add(other.received),
            sent: self.sent.saturating_add(other.sent),
        }
    }
}

/// A number of bytes in at most six characters for what there is in practice: `950 B`, `1.2 GB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            let digits = usize::from(unit != "B" && value < 9.95);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.0} PB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_a_few_characters() {
        for (count, told) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9_960, "10 kB"),
            (999_600, "1.0 MB"),
            (1_240_000_000, "1.2 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(count), told);
        }
        let traffic = Traffic {
            received: 12_000_000,
            sent: 3_400,
        };
        assert_eq!(traffic.to_string(), "rx 12 MB/s tx 3.4 kB/s");
        let most = Traffic {
            received: u64::MAX,
            ..traffic
        };
        assert_eq!((traffic + most).received, u64::MAX);
    }
}
