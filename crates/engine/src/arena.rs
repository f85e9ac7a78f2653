//! Tensors in shared memory.
//!
//! Each peer has one arena: a sparse memory file, mapped by the other ranks of its host when a
//! session forms, from which tensors are allocated. A reduction whose tensors all lie in arenas
//! needs no staging: every rank combines its segment where the values lie and writes the result
//! into everybody's tensor. The file has no name and takes memory only for pages in use; the arena
//! lives as long as the peer or its last tensor, so that tensors outlive sessions.

#![expect(unsafe_code, reason = "allocations are slices of a shared mapping")]

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::Element;
use crate::error::{Context, Error, Result};
use crate::sys::{self, Mapping};

/// The least and the most that an arena may hold; sparse, so that size costs nothing.
const SMALLEST: usize = 16 << 30;
const LARGEST: usize = 240 << 30;
const PAGE: usize = 4096;
/// Freed memory whose pages are kept for the next tensor: every rank that touches a new page pays
/// for it, far more than for zeroing an old one.
const KEPT: usize = 16 << 20;

/// One peer's memory that its host's ranks share.
pub(crate) struct Arena {
    file: OwnedFd,
    mapping: Mapping,
    space: Mutex<Space>,
    /// Tensors begin this far into their pages, so that those of different ranks do not fall into
    /// the same cache sets.
    skew: usize,
    /// See [`sys::forks`].
    forks: u32,
}

impl Arena {
    pub(crate) fn new(slot: u16) -> Result<Self> {
        let bytes = sys::physical_memory().clamp(SMALLEST, LARGEST) / PAGE * PAGE;
        let file = sys::memfd(c"carole-arena", bytes).context("making an arena")?;
        let mapping = Mapping::shared(file.as_fd(), bytes, false).context("mapping an arena")?;
        let skew = usize::from(slot % 12) * 5 * 64;
        Ok(Self {
            file,
            mapping,
            space: Mutex::new(Space::new(bytes)),
            skew,
            forks: sys::forks(),
        })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// The offset of memory that lies in this arena and may be posted.
    pub(crate) fn offset_of(&self, pointer: *const u8, bytes: usize) -> Option<u64> {
        let offset = (pointer as usize).checked_sub(self.mapping.pointer() as usize)?;
        let inside = offset.checked_add(bytes)? <= self.mapping.bytes();
        (inside && offset % 64 == 0).then_some(offset as u64)
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a tensor of so many bytes, a number of pages.
    fn room(&self, bytes: usize) -> Option<usize> {
        let wanted = bytes.checked_add(self.skew)?;
        Some(wanted.checked_next_multiple_of(PAGE)?.max(PAGE))
    }

    /// The offset of room for a tensor, all zeroes.
    fn allocate(&self, bytes: usize) -> Option<usize> {
        let wanted = self.room(bytes)?;
        let mut space = self.space();
        if let Some(offset) = space.take_kept(wanted) {
            drop(space);
            let pointer = self.mapping.pointer().wrapping_add(offset);
            // SAFETY: within the mapping, and this range is nobody's but this tensor's.
            unsafe { pointer.write_bytes(0, wanted) };
            return Some(offset);
        }
        if let Some(offset) = space.take_new(wanted) {
            return Some(offset);
        }
        self.give_back(&mut space, 0);
        space.take_new(wanted)
    }

    fn release(&self, offset: usize, bytes: usize) {
        if sys::forks() != self.forks {
            // A forked child's copy: the memory is still the parent's.
            return;
        }
        let Some(length) = self.room(bytes) else {
            return;
        };
        let mut space = self.space();
        space.kept.push_back((offset, length));
        self.give_back(&mut space, KEPT);
    }

    /// Gives the pages of freed memory back, the oldest first, until no more than `limit` is kept.
    fn give_back(&self, space: &mut Space, limit: usize) {
        while space.kept.iter().map(|(_, length)| length).sum::<usize>() > limit {
            let Some((offset, length)) = space.kept.pop_front() else {
                return;
            };
            sys::punch_hole(self.file.as_fd(), offset, length);
            space.put_back(offset, length);
        }
    }
}

/// What is free in an arena.
struct Space {
    /// Ranges without pages, (offset, bytes), in order, none touching another.
    free: Vec<(usize, usize)>,
    /// Ranges that still have the pages of old tensors, the oldest first.
    kept: VecDeque<(usize, usize)>,
}

impl Space {
    fn new(bytes: usize) -> Self {
        Self {
            free: vec![(0, bytes)],
            kept: VecDeque::new(),
        }
    }

    /// A range of an old tensor that is about as long, the newest first: its pages may still be in
    /// a cache.
    fn take_kept(&mut self, wanted: usize) -> Option<usize> {
        let fits = |length: usize| length >= wanted && length <= wanted.saturating_mul(2);
        let index = self.kept.iter().rposition(|(_, length)| fits(*length))?;
        let (offset, length) = self.kept[index];
        if length == wanted {
            self.kept.remove(index);
        } else {
            self.kept[index] = (offset + wanted, length - wanted);
        }
        Some(offset)
    }

    fn take_new(&mut self, wanted: usize) -> Option<usize> {
        let index = self.free.iter().position(|(_, room)| *room >= wanted)?;
        let (offset, room) = self.free[index];
        if room == wanted {
            self.free.remove(index);
        } else {
            self.free[index] = (offset + wanted, room - wanted);
        }
        Some(offset)
    }

    fn put_back(&mut self, offset: usize, length: usize) {
        let free = &mut self.free;
        let index = free.partition_point(|(start, _)| *start < offset);
        free.insert(index, (offset, length));
        if index + 1 < free.len() && free[index].0 + free[index].1 == free[index + 1].0 {
            free[index].1 += free[index + 1].1;
            free.remove(index + 1);
        }
        if index > 0 && free[index - 1].0 + free[index - 1].1 == free[index].0 {
            free[index - 1].1 += free[index].1;
            free.remove(index);
        }
    }
}

/// Another rank's arena, as this process maps it.
pub(crate) fn map(file: &OwnedFd) -> Result<Mapping> {
    let bytes = sys::file_length(file.as_fd()).context("measuring an arena")?;
    if bytes > LARGEST || bytes % PAGE != 0 {
        return Err(Error::Form(format!("an arena of {bytes} bytes")));
    }
    Mapping::shared(file.as_fd(), bytes, false).context("mapping an arena")
}

/// A tensor in shared memory, zero at first; a slice for all other purposes.
///
/// ```
/// use carole_engine::{ReduceOp, testing};
///
/// testing::spawn(2, |session| {
///     let mut tensor = session.allocate::<f32>(100_000).unwrap();
///     tensor.fill(1.0);
///     session.world().call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
///     assert_eq!(tensor[0], 2.0);
/// });
/// ```
pub struct SharedTensor<T> {
    arena: Arc<Arena>,
    offset: usize,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Element> SharedTensor<T> {
    pub(crate) fn new(arena: Arc<Arena>, length: usize) -> Result<Self> {
        let invalid = || Error::Invalid {
            operation: "allocate".into(),
            problem: format!("there is no room for {length} elements in shared memory"),
        };
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(invalid)?;
        let offset = arena.allocate(bytes).ok_or_else(invalid)?;
        Ok(Self {
            arena,
            offset,
            length,
            element: PhantomData,
        })
    }
}

impl<T> SharedTensor<T> {
    fn pointer(&self) -> *mut T {
        self.arena
            .mapping
            .pointer()
            .wrapping_add(self.offset + self.arena.skew)
            .cast()
    }
}

impl<T> std::ops::Deref for SharedTensor<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the range belongs to this tensor alone in this process, is aligned to a line,
        // and any bytes are valid elements; other processes write only during this one's calls.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.length) }
    }
}

impl<T> std::ops::DerefMut for SharedTensor<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and this borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.length) }
    }
}

impl<T> Drop for SharedTensor<T> {
    fn drop(&mut self) {
        self.arena
            .release(self.offset, self.length * size_of::<T>());
    }
}

// SAFETY: the tensor owns its memory as a Vec does.
unsafe impl<T: Send> Send for SharedTensor<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SharedTensor<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_zero_and_used_again() {
        let arena = Arc::new(Arena::new(3).unwrap());
        let mut tensors: Vec<SharedTensor<f32>> = (1..20)
            .map(|n| SharedTensor::new(Arc::clone(&arena), n * 1000).unwrap())
            .collect();
        for (index, tensor) in tensors.iter_mut().enumerate() {
            tensor.fill(index as f32);
        }
        for (index, tensor) in tensors.iter().enumerate() {
            assert!(tensor.iter().all(|value| *value == index as f32));
            assert!(
                arena
                    .offset_of(tensor.as_ptr().cast(), tensor.len() * 4)
                    .is_some()
            );
        }
        while !tensors.is_empty() {
            tensors.swap_remove(tensors.len() / 2);
        }
        arena.give_back(&mut arena.space(), 0);
        assert_eq!(arena.space().free.len(), 1, "everything is one range again");
        let tensor = SharedTensor::<f32>::new(Arc::clone(&arena), 50_000).unwrap();
        assert!(tensor.iter().all(|value| *value == 0.0));
        let stranger = [0u8; 64];
        assert_eq!(arena.offset_of(stranger.as_ptr(), 64), None);
        assert!(SharedTensor::<f64>::new(Arc::clone(&arena), usize::MAX / 8).is_err());
    }

    #[test]
    fn a_little_freed_memory_keeps_its_pages() {
        let arena = Arc::new(Arena::new(0).unwrap());
        let make = |pages: usize| {
            let mut tensor = SharedTensor::<u8>::new(Arc::clone(&arena), pages * PAGE).unwrap();
            assert!(tensor.iter().all(|byte| *byte == 0));
            tensor.fill(7);
            tensor
        };
        let kept = || {
            arena
                .space()
                .kept
                .iter()
                .map(|(_, length)| length)
                .sum::<usize>()
        };
        let first = make(100);
        let place = first.as_ptr();
        drop(first);
        assert_eq!(kept(), 100 * PAGE);
        let again = make(90);
        assert_eq!(again.as_ptr(), place, "the same pages");
        assert_eq!(kept(), 10 * PAGE);
        drop(again);
        drop(make(KEPT / PAGE + 1));
        assert_eq!(
            kept(),
            0,
            "what is long is given back, and what is older with it"
        );
        assert_eq!(arena.space().free.len(), 1);
    }
}
