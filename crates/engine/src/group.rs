//! Ordered subsets of a session's ranks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::hierarchy::Columns;
use crate::key::{Key, group_identity};
use crate::session::Inner;

/// What the members of a group share, on one rank.
pub(crate) struct GroupInner {
    identity: u64,
    /// The session's ranks, in the group's order.
    pub(crate) ranks: Arc<[usize]>,
    /// This rank's place among them.
    pub(crate) me: usize,
    /// The local ranks of the members, when all of them share this host's board.
    pub(crate) local: Option<Vec<u8>>,
    /// The other members as bits of local ranks.
    pub(crate) local_others: u64,
    /// The members' hosts: for each member the index of its host.
    pub(crate) hosts: Vec<usize>,
    /// How the members lie on their hosts, where that is asked for.
    columns: OnceLock<Option<Arc<Columns>>>,
    sequence: AtomicU64,
}

impl GroupInner {
    pub(crate) fn new(
        tag: u64,
        ranks: Vec<usize>,
        me: usize,
        local: Option<Vec<u8>>,
        hosts: Vec<usize>,
    ) -> Self {
        let identity = group_identity(tag, &ranks);
        let local_others = local
            .as_ref()
            .map_or(0, |members| crate::local::others(members, me));
        Self {
            identity,
            ranks: ranks.into(),
            me,
            local,
            local_others,
            hosts,
            columns: OnceLock::new(),
            sequence: AtomicU64::new(0),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// How the members lie on their hosts; `None` where this one shares no memory with those on
    /// its host.
    pub(crate) fn columns(&self, inner: &Inner) -> Option<Arc<Columns>> {
        let find = || Columns::new(inner, self).map(Arc::new);
        self.columns.get_or_init(find).clone()
    }

    /// The key of an operation: by its name, or by the group's next number.
    #[inline]
    pub(crate) fn key(&self, name: Option<&str>) -> (Key, u64) {
        match name {
            Some(name) => (Key::named(self.identity, name), 0),
            None => {
                let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
                (Key::unnamed(self.identity, sequence), sequence)
            }
        }
    }

    /// The key of a transfer between two members, which no collective shares.
    pub(crate) fn transfer_key(&self, name: &str, from: usize, to: usize) -> Key {
        Key::named(self.identity ^ 0x5bd1_e995, name).part(from as u32, to as u32)
    }
}

/// The shared handle of a group.
pub(crate) type SharedGroup = Arc<GroupInner>;
