//! The small descriptor that opens every operation and is compared before data moves.

use crate::dtype::{DType, ReduceOp};

/// Which collective an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Everybody waits for everybody.
    Barrier = 1,
    /// The root's values reach everybody.
    Broadcast = 2,
    /// Values are combined at the root.
    Reduce = 3,
    /// Values are combined everywhere.
    AllReduce = 4,
    /// Values are combined, each rank keeping its part.
    ReduceScatter = 5,
    /// Everybody gets everybody's values.
    AllGather = 6,
    /// As all-gather, with parts of different lengths.
    AllGatherV = 7,
    /// The root gets everybody's values.
    Gather = 8,
    /// Everybody gets its part of the root's values.
    Scatter = 9,
    /// Everybody sends a part to everybody.
    AllToAll = 10,
    /// As all-to-all, with parts of different lengths.
    AllToAllV = 11,
    /// One rank's values reach one other rank.
    Transfer = 12,
    /// Do all ranks hold the same bytes?
    Consensus = 13,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllGatherV,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Transfer,
        Self::Consensus,
    ];

    /// The name people read, such as `all_reduce`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::AllGatherV => "all_gather_v",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::Transfer => "send/recv",
            Self::Consensus => "consensus",
        }
    }

    pub(crate) const fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::AllReduce | Self::ReduceScatter)
    }

    const fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    const fn unequal_parts(self) -> bool {
        matches!(self, Self::AllGatherV | Self::AllToAllV)
    }

    /// The kind with this number, as it travels on the wire.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value).checked_sub(1)?).copied()
    }
}

/// What a rank asks for under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// Whether this rank's memory can be reached by its local peers.
    pub(crate) shared: bool,
    /// Elements; per rank's part where the kind has parts.
    pub(crate) count: u64,
    pub(crate) root: u32,
    /// A digest of everything else that must agree: scales, wire codec, forced topology.
    pub(crate) settings: u32,
}

const SHARED: u8 = 1;

impl Descriptor {
    /// The first word: kind, type, operation and flags.
    #[inline]
    pub(crate) fn word(&self) -> u32 {
        u32::from_le_bytes([
            self.kind as u8,
            self.dtype as u8,
            self.op as u8,
            if self.shared { SHARED } else { 0 },
        ])
    }

    /// The inverse of [`Self::word`] with the other fields; `None` for numbers without a meaning.
    pub(crate) fn from_parts(word: u32, count: u64, root: u32, settings: u32) -> Option<Self> {
        let [kind, dtype, op, flags] = word.to_le_bytes();
        Some(Self {
            kind: Kind::from_u8(kind)?,
            dtype: DType::from_u8(dtype)?,
            op: ReduceOp::from_u8(op)?,
            shared: flags & SHARED != 0,
            count,
            root,
            settings,
        })
    }

    /// Whether two ranks mean the same operation.
    #[inline]
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.dtype == other.dtype
            && (self.op == other.op || !self.kind.reduces())
            && (self.count == other.count || self.kind.unequal_parts())
            && (self.root == other.root || !self.kind.has_root())
            && self.settings == other.settings
    }
}

impl std::fmt::Display for Descriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} x {}", self.kind.name(), self.count, self.dtype)?;
        if self.kind.reduces() {
            write!(f, ", {}", self.op)?;
        }
        if self.kind.has_root() {
            write!(f, ", root {}", self.root)?;
        }
        if self.settings != 0 {
            write!(f, ", settings {:08x}", self.settings)?;
        }
        Ok(())
    }
}

/// Says which ranks asked for what, ranks that agree together: `ranks 0-2: …; rank 3: …`.
pub(crate) fn describe_disagreement(asked: &[(usize, Descriptor)]) -> String {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, descriptor) in asked {
        let text = descriptor.to_string();
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(*rank),
            None => groups.push((text, vec![*rank])),
        }
    }
    let parts: Vec<String> = groups
        .into_iter()
        .map(|(text, ranks)| format!("{} asked for {text}", ranks_text(&ranks)))
        .collect();
    parts.join("; ")
}

/// `rank 3`, `ranks 0-2`, `ranks 0,2,5-7`.
pub(crate) fn ranks_text(ranks: &[usize]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in sorted {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == rank => *end = rank,
            Some((_, end)) if *end == rank => {}
            _ => runs.push((rank, rank)),
        }
    }
    let texts: Vec<String> = runs
        .iter()
        .map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    let plural = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{plural} {}", texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Descriptor {
        Descriptor {
            kind: Kind::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            shared: false,
            count: 10,
            root: 0,
            settings: 0,
        }
    }

    #[test]
    fn the_word_round_trips() {
        for kind in Kind::ALL {
            let descriptor = Descriptor {
                kind,
                shared: true,
                ..example()
            };
            let back = Descriptor::from_parts(descriptor.word(), 10, 0, 0);
            assert_eq!(back, Some(descriptor));
        }
        assert_eq!(Descriptor::from_parts(0, 0, 0, 0), None);
        assert_eq!(Descriptor::from_parts(u32::MAX, 0, 0, 0), None);
    }

    #[test]
    fn a_disagreement_names_the_odd_rank() {
        let odd = Descriptor {
            count: 11,
            ..example()
        };
        assert!(!odd.agrees_with(&example()));
        let text =
            describe_disagreement(&[(0, example()), (1, example()), (2, odd), (3, example())]);
        assert_eq!(
            text,
            "ranks 0-1,3 asked for all_reduce of 10 x f32, sum; \
             rank 2 asked for all_reduce of 11 x f32, sum"
        );
    }
}
