//! The operations that are measured: how long their tensors are and how many bytes count.

use serde::{Deserialize, Serialize};

use crate::args::OperationChoice;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    AllReduce,
    Reduce,
    Broadcast,
    ReduceScatter,
    AllGather,
    AllGatherV,
    Gather,
    Scatter,
    AllToAll,
    Barrier,
    SendRecv,
}

/// The rank that broadcasts, reduces, gathers and scatters are rooted at.
pub(super) const ROOT: usize = 0;

impl Operation {
    pub(super) const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::ReduceScatter,
        Self::AllGather,
        Self::AllGatherV,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::Barrier,
        Self::SendRecv,
    ];

    /// What a choice on the command line means.
    pub(super) fn chosen(choice: OperationChoice) -> Vec<Self> {
        vec![match choice {
            OperationChoice::All => return Self::ALL.to_vec(),
            OperationChoice::AllReduce => Self::AllReduce,
            OperationChoice::Reduce => Self::Reduce,
            OperationChoice::Broadcast => Self::Broadcast,
            OperationChoice::ReduceScatter => Self::ReduceScatter,
            OperationChoice::AllGather => Self::AllGather,
            OperationChoice::AllGatherV => Self::AllGatherV,
            OperationChoice::Gather => Self::Gather,
            OperationChoice::Scatter => Self::Scatter,
            OperationChoice::AllToAll => Self::AllToAll,
            OperationChoice::Barrier => Self::Barrier,
            OperationChoice::SendRecv => Self::SendRecv,
        }]
    }

    /// The name that the command line takes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::AllGatherV => "all-gather-v",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all-to-all",
            Self::Barrier => "barrier",
            Self::SendRecv => "send-recv",
        }
    }

    /// Whether values are combined, and not only moved.
    pub(super) const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    /// What turns the algorithm bandwidth into the bus bandwidth: the share of the bytes counted
    /// that must pass the busiest link, as nccl-tests define it.
    pub(super) fn bus_factor(self, ranks: usize) -> f64 {
        let ranks = ranks as f64;
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::ReduceScatter
            | Self::AllGather
            | Self::AllGatherV
            | Self::Gather
            | Self::Scatter
            | Self::AllToAll => (ranks - 1.0) / ranks,
            Self::Reduce | Self::Broadcast | Self::SendRecv => 1.0,
            Self::Barrier => 0.0,
        }
    }
}

/// How an operation's tensors are cut, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    operation: Operation,
    ranks: usize,
    /// A rank's part, or the whole tensor where nothing is cut.
    pub(super) part: usize,
    /// The lengths of unequal parts.
    pub(super) counts: Vec<usize>,
}

impl Layout {
    /// The layout for `count` elements, counted as the command line's sizes are.
    pub(super) fn new(operation: Operation, count: usize, ranks: usize) -> Self {
        let part = match operation {
            // Everybody has a part, of one element at the least.
            Operation::ReduceScatter | Operation::AllToAll => (count / ranks).max(1),
            Operation::Barrier => 0,
            _ => count,
        };
        let counts = match operation {
            Operation::AllGatherV => ramp(count, ranks),
            _ => Vec::new(),
        };
        Self {
            operation,
            ranks,
            part,
            counts,
        }
    }

    /// The length of what `rank` gives; in-place operations have this tensor only.
    pub(super) fn send(&self, rank: usize) -> usize {
        match self.operation {
            Operation::ReduceScatter | Operation::AllToAll => self.part * self.ranks,
            Operation::Scatter if rank == ROOT => self.part * self.ranks,
            Operation::Scatter => 0,
            Operation::AllGatherV => self.counts[rank],
            _ => self.part,
        }
    }

    /// The length of what `rank` gets; zero for in-place operations.
    pub(super) fn recv(&self, rank: usize) -> usize {
        match self.operation {
            Operation::ReduceScatter | Operation::Scatter | Operation::SendRecv => self.part,
            Operation::AllGather | Operation::AllToAll => self.part * self.ranks,
            Operation::Gather if rank == ROOT => self.part * self.ranks,
            Operation::AllGatherV => self.counts.iter().sum(),
            _ => 0,
        }
    }

    /// The elements that the algorithm bandwidth counts, as nccl-tests count them.
    pub(super) fn counted(&self) -> usize {
        match self.operation {
            Operation::AllGatherV => self.counts.iter().sum(),
            Operation::ReduceScatter
            | Operation::AllGather
            | Operation::Gather
            | Operation::Scatter
            | Operation::AllToAll => self.part * self.ranks,
            _ => self.part,
        }
    }
}

/// Lengths that fall from one and a half times `count` to half of it, `count` on average.
fn ramp(count: usize, ranks: usize) -> Vec<usize> {
    let last = ranks.saturating_sub(1) as isize;
    (0..ranks as isize)
        .map(|rank| {
            // Rounded towards zero, so that opposite ranks cancel out exactly.
            let more = if last == 0 {
                0
            } else {
                (count / 2) as isize * (last - 2 * rank) / last
            };
            count.saturating_add_signed(more)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_parts_are_the_size_asked_for_on_average() {
        for ranks in 1..9 {
            for count in [0, 1, 2, 7, 1000] {
                let counts = ramp(count, ranks);
                assert_eq!(counts.iter().sum::<usize>(), count * ranks, "{counts:?}");
            }
        }
        assert_eq!(ramp(1000, 3), [1500, 1000, 500]);
    }

    #[test]
    fn a_part_has_one_element_at_the_least() {
        let layout = Layout::new(Operation::ReduceScatter, 1, 4);
        assert_eq!((layout.send(2), layout.recv(2)), (4, 1));
        assert_eq!(layout.counted(), 4);
    }

    #[test]
    fn bandwidths_count_what_nccl_tests_count() {
        let of = |operation| {
            (
                Layout::new(operation, 100, 4).counted(),
                Operation::bus_factor(operation, 4),
            )
        };
        assert_eq!(of(Operation::AllReduce), (100, 1.5));
        assert_eq!(of(Operation::AllGather), (400, 0.75));
        assert_eq!(of(Operation::ReduceScatter), (100, 0.75));
        assert_eq!(of(Operation::Broadcast), (100, 1.0));
        assert_eq!(of(Operation::Barrier), (0, 0.0));
    }
}
