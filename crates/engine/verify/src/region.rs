//! In the place of the engine's `region`: the board's memory as modelled atomics, with tables that
//! are as small as the code allows.

pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
pub(crate) use loom::sync::{Mutex, MutexGuard};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::local::board::{Bell, Header, Slot};
use crate::sys::Mapping;

pub(crate) const MAX_LOCAL: usize = 64;
/// What ledgers count; only the first [`USED_SLOTS`] exist.
pub(crate) const SLOTS: usize = 64;
pub(crate) const USED_SLOTS: usize = 2;
pub(crate) const CELL_BYTES: usize = 32;
pub(crate) const CELLS: usize = 1;
pub(crate) const WINDOW_BYTES: usize = 256;
pub(crate) const WINDOWS: usize = 1;
pub(crate) const LANES: usize = 1;

/// Bytes of payload whose accesses are tracked together.
pub(crate) const BLOCK: usize = 32;

/// Bytes of payload of a rank.
pub(crate) const PAYLOAD: usize = CELLS * CELL_BYTES + (WINDOWS + LANES) * WINDOW_BYTES;

/// The models run the symmetric fences.
pub(crate) fn compiler_fence(_: Ordering) {
    unreachable!("there is no asymmetric fence in a model");
}

pub(crate) struct Area {
    bell: Bell,
    slots: Vec<Slot>,
    /// By reader and slot.
    acknowledgements: Vec<AtomicU32>,
}

impl Area {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            bell: Bell::default(),
            slots: (0..USED_SLOTS).map(|_| Slot::default()).collect(),
            acknowledgements: (0..ranks * USED_SLOTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

pub(crate) struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    pub(crate) fn bytes(_ranks: usize) -> usize {
        0
    }

    pub(crate) fn new(mapping: Arc<Mapping>, ranks: usize) -> Self {
        assert_eq!(mapping.areas.len(), ranks);
        Self { mapping }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.mapping.areas.len()
    }

    pub(crate) fn header(&self) -> &Header {
        &self.mapping.header
    }

    pub(crate) fn bell(&self, rank: usize) -> &Bell {
        &self.mapping.areas[rank].bell
    }

    pub(crate) fn slot(&self, rank: usize, slot: u16) -> &Slot {
        &self.mapping.areas[rank].slots[usize::from(slot)]
    }

    pub(crate) fn acknowledgement(&self, rank: usize, slot: u16, reader: usize) -> &AtomicU32 {
        let index = reader * USED_SLOTS + usize::from(slot);
        &self.mapping.areas[rank].acknowledgements[index]
    }

    pub(crate) fn inline(&self, _rank: usize, _slot: u16) -> *mut u8 {
        unreachable!("the models read the atomics of a slot");
    }

    pub(crate) fn cell(&self, rank: usize, index: u16) -> *mut u8 {
        assert!(usize::from(index) < CELLS);
        self.mapping.payload(rank, usize::from(index) * CELL_BYTES)
    }

    pub(crate) fn window(&self, rank: usize, index: u16) -> *mut u8 {
        assert!(usize::from(index) < WINDOWS + LANES);
        let offset = CELLS * CELL_BYTES + usize::from(index) * WINDOW_BYTES;
        self.mapping.payload(rank, offset)
    }
}
