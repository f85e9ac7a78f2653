//! Which way an operation goes: decided in one place, for the operation itself and for whoever
//! asks beforehand.
//!
//! The choice depends on what all members know alike (the kind, the bytes, the group's layout and
//! the session's table), so that they choose alike without a word.

use crate::call::Group;
use crate::descriptor::Kind;
use crate::dtype::DType;
use crate::group::GroupInner;
use crate::hierarchy::Hierarchy;
use crate::session::Inner;
use crate::table::Algorithm;

/// How an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nobody else takes part.
    Solo,
    /// One host: members only meet.
    Meet,
    /// One host: everybody reads what it combines from everybody.
    Flat,
    /// One host: everybody combines a segment, then takes the others'.
    TwoPhase {
        /// Bytes of a chunk.
        chunk: usize,
    },
    /// One host: bytes are copied from member to member.
    Copy,
    /// Connections: members only meet.
    ExchangeMeet,
    /// Connections: everybody sends everything to everybody, who combines it.
    ExchangeFlat,
    /// Connections: bytes are copied from member to member.
    ExchangeCopy,
    /// Connections: each member combines a segment and sends the result to the others.
    Segmented,
    /// Inside each host first, then across.
    Hierarchy,
    /// Connections: as segmented, compressed on the way.
    Compressed,
    /// Connections: along the graphs of a topology that was asked for.
    Topology,
}

impl Choice {
    /// Chooses for an operation to which this rank gives `bytes` bytes.
    #[inline]
    pub(crate) fn new(inner: &Inner, group: &GroupInner, kind: Kind, bytes: usize) -> Self {
        let members = group.size();
        if members == 1 {
            Self::Solo
        } else if group.local.is_some() && inner.local.is_some() {
            match kind {
                Kind::Barrier | Kind::Consensus => Self::Meet,
                Kind::AllReduce | Kind::Reduce => match inner.table().all_reduce(bytes, members) {
                    Algorithm::Flat => Self::Flat,
                    Algorithm::TwoPhase { chunk } => Self::TwoPhase { chunk },
                },
                Kind::ReduceScatter => Self::Flat,
                _ => Self::Copy,
            }
        } else {
            match kind {
                Kind::Barrier | Kind::Consensus => Self::ExchangeMeet,
                Kind::AllReduce | Kind::Reduce if inner.table().is_flat_across(bytes, members) => {
                    Self::ExchangeFlat
                }
                Kind::AllReduce if Hierarchy::applies(group) => Self::Hierarchy,
                Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => Self::Segmented,
                _ => Self::ExchangeCopy,
            }
        }
    }

    /// What becomes of the choice for a sum that is compressed on the wire: on one host nothing.
    pub(crate) fn compressed(self, group: &GroupInner) -> Self {
        match self {
            Self::ExchangeFlat | Self::Segmented | Self::Hierarchy => {
                if Hierarchy::applies(group) {
                    Self::Hierarchy
                } else {
                    Self::Compressed
                }
            }
            other => other,
        }
    }

    /// The name people read.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Solo => "solo",
            Self::Meet => "meet",
            Self::Flat => "flat",
            Self::TwoPhase { .. } => "two-phase",
            Self::Copy => "copy",
            Self::ExchangeMeet => "exchange-meet",
            Self::ExchangeFlat => "exchange-flat",
            Self::ExchangeCopy => "exchange-copy",
            Self::Segmented => "segmented",
            Self::Hierarchy => "hierarchy",
            Self::Compressed => "compressed",
            Self::Topology => "topology",
        }
    }
}

impl Group {
    /// The algorithm for an operation to which this rank gives `bytes` bytes of `dtype`.
    ///
    /// ```
    /// use carole_engine::{DType, Kind, testing};
    ///
    /// testing::spawn(2, |session| {
    ///     let world = session.world();
    ///     assert_eq!(world.algorithm_for(Kind::AllReduce, DType::F32, 4), "flat");
    ///     assert_eq!(world.algorithm_for(Kind::AllReduce, DType::F32, 1 << 26), "two-phase");
    /// });
    /// ```
    pub fn algorithm_for(&self, kind: Kind, dtype: DType, bytes: usize) -> &'static str {
        let whole = bytes / dtype.size() * dtype.size();
        Choice::new(&self.inner, &self.group, kind, whole).name()
    }
}
