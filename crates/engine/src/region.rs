//! Where things lie in the shared memory of a board, and typed access to them.
//!
//! [`crate::local::board`] is the protocol: who writes what when. This module is the only part of
//! it that knows of raw memory, so that `verify/` can put another one in its place and run the
//! protocol over modelled atomics. For the same reason the atomics and locks of the protocol come from here.

#![expect(unsafe_code, reason = "typed access to a shared mapping")]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "the layout aligns what it places"
)]

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::Arc;

use crate::local::board::{Bell, Header, Slot};
use crate::sys::Mapping;

/// The most ranks that share one board; the doorbells of all fit one word.
pub(crate) const MAX_LOCAL: usize = 64;
/// Operations that one rank may have posted at a time.
pub(crate) const SLOTS: usize = 1024;
/// Bytes of a cell.
pub(crate) const CELL_BYTES: usize = 8 << 10;
/// Cells of a rank.
pub(crate) const CELLS: usize = 64;
/// Bytes of a window: small enough that the windows in use stay in cache.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
/// Windows that a rank hands to its operations as they come.
pub(crate) const WINDOWS: usize = 4;
/// Sets of windows, one a rank, that are granted only to operations in which everybody takes part
/// already: the way out when all windows are held by operations that wait for others.
pub(crate) const LANES: usize = 2;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Where things lie.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ranks: usize,
    acks_stride: usize,
    slots: usize,
    acks: usize,
    cells: usize,
    windows: usize,
    area: usize,
}

impl Layout {
    fn new(ranks: usize) -> Self {
        let acks_stride = (SLOTS * 4).next_multiple_of(LINE);
        let slots = LINE * 2;
        let acks = slots + SLOTS * size_of::<Slot>();
        let cells = (acks + ranks * acks_stride).next_multiple_of(PAGE);
        let windows = cells + CELLS * CELL_BYTES;
        // Areas are skewed by a few lines, so that the same place in all windows does not fall
        // into the same cache set.
        let area = windows + (WINDOWS + LANES) * WINDOW_BYTES + PAGE + 11 * LINE;
        Self {
            ranks,
            acks_stride,
            slots,
            acks,
            cells,
            windows,
            area,
        }
    }

    fn bytes(&self) -> usize {
        (size_of::<Header>() + self.ranks * self.area).next_multiple_of(PAGE)
    }
}

/// The mapping of a board, divided.
pub(crate) struct Region {
    mapping: Arc<Mapping>,
    layout: Layout,
}

impl Region {
    /// Bytes of the region of a board for `ranks` ranks.
    pub(crate) fn bytes(ranks: usize) -> usize {
        Layout::new(ranks).bytes()
    }

    pub(crate) fn new(mapping: Arc<Mapping>, ranks: usize) -> Self {
        #[cfg(carole_one_mapping)]
        let mapping = crate::sys::the_one_mapping(mapping);
        let layout = Layout::new(ranks);
        assert!(
            mapping.bytes() >= layout.bytes(),
            "a mapping of the board's size"
        );
        Self { mapping, layout }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.layout.ranks
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.mapping.bytes());
        self.mapping.pointer().wrapping_add(offset)
    }

    #[inline]
    fn area(&self, rank: usize) -> usize {
        debug_assert!(rank < self.layout.ranks);
        size_of::<Header>() + rank * self.layout.area
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header begins the mapping, is aligned with it, and holds only atomics, for
        // which any bytes are valid and which may be shared.
        unsafe { &*self.at(0).cast::<Header>() }
    }

    #[inline]
    pub(crate) fn bell(&self, rank: usize) -> &Bell {
        // SAFETY: as for `header`: aligned by the layout, atomics only.
        unsafe { &*self.at(self.area(rank)).cast::<Bell>() }
    }

    /// The slot with this number of a rank.
    #[inline]
    pub(crate) fn slot(&self, rank: usize, slot: u16) -> &Slot {
        let index = usize::from(slot) & (SLOTS - 1);
        // SAFETY: as for `header`: within the area, aligned by the layout, atomics only.
        unsafe {
            &*self
                .at(self.area(rank) + self.layout.slots + index * size_of::<Slot>())
                .cast()
        }
    }

    /// A reader's acknowledgements lie together, so that the owner learns of many with one look.
    #[inline]
    pub(crate) fn acknowledgement(&self, rank: usize, slot: u16, reader: usize) -> &AtomicU32 {
        let index = usize::from(slot) & (SLOTS - 1);
        let offset = self.layout.acks + reader * self.layout.acks_stride + index * 4;
        // SAFETY: as for `header`: within the area, aligned, an atomic.
        unsafe { &*self.at(self.area(rank) + offset).cast() }
    }

    /// The payload that travels inside a slot.
    #[inline]
    pub(crate) fn inline(&self, rank: usize, slot: u16) -> *mut u8 {
        let slot = std::ptr::from_ref(self.slot(rank, slot)).cast_mut();
        slot.cast::<u8>()
            .wrapping_add(std::mem::offset_of!(Slot, inline))
    }

    /// The memory of a cell.
    #[inline]
    pub(crate) fn cell(&self, rank: usize, index: u16) -> *mut u8 {
        let offset = self.layout.cells + (usize::from(index) % CELLS) * CELL_BYTES;
        self.at(self.area(rank) + offset)
    }

    /// The memory of a window.
    #[inline]
    pub(crate) fn window(&self, rank: usize, index: u16) -> *mut u8 {
        let number = usize::from(index) % (WINDOWS + LANES);
        self.at(self.area(rank) + self.layout.windows + number * WINDOW_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_within_the_promise() {
        for ranks in 1..=MAX_LOCAL {
            assert!(Layout::new(ranks).area < 16 << 20);
        }
    }
}
