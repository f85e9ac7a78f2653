//! Tensors to measure with.

use std::hint::black_box;

use carole_engine::{Result, Session, SharedTensor};

use super::pattern::Value;

const CACHE_LINE: usize = 64;
const PAGE: usize = 4096;
/// From this size on, tensors are kept a few pages apart from a round distance.
const LARGE: usize = 64 << 10;

/// Where a tensor begins in its memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// At a cache line. Large tensors of different numbers begin at different pages, so that those
    /// of a process never lie a power of two apart and compete for the same cache sets.
    Aligned(usize),
    /// So many elements behind a cache line.
    Behind(usize),
}

/// Where tensors come from.
#[derive(Clone)]
pub(super) enum Source {
    /// The usual allocator.
    Private,
    /// The memory that a session's ranks on a host share.
    Shared(Session),
}

enum Memory<T> {
    Private(Vec<T>),
    Shared(SharedTensor<T>),
}

/// A tensor of zeros at first, all of its pages present.
pub(super) struct Buffer<T> {
    memory: Memory<T>,
    start: usize,
    length: usize,
}

impl<T: Value> Buffer<T> {
    pub(super) fn new(length: usize, place: Place, source: &Source) -> Result<Self> {
        let line = CACHE_LINE / size_of::<T>();
        let bytes = length * size_of::<T>();
        let skip = match (place, source) {
            // The shared allocator keeps distances itself.
            (Place::Aligned(number), Source::Private) if bytes >= LARGE => {
                3 * (number + 1) * PAGE / size_of::<T>()
            }
            (Place::Aligned(_), _) => 0,
            (Place::Behind(elements), _) => elements,
        };
        let (memory, start) = match source {
            Source::Private => {
                // A line of its own before and behind keeps the tensors of ranks that are threads
                // apart. Written out: the allocator would hand out zeros without touching a page.
                let room = length + skip + 2 * line;
                let mut memory = Vec::with_capacity(room);
                black_box(&mut memory).resize(room, T::default());
                let start = memory.as_ptr().align_offset(CACHE_LINE).min(line) + skip;
                (Memory::Private(memory), start)
            }
            Source::Shared(session) => {
                let mut memory = session.allocate(length + skip)?;
                memory.fill(T::default());
                (Memory::Shared(memory), skip)
            }
        };
        Ok(Self {
            memory,
            start,
            length,
        })
    }

    pub(super) fn as_slice(&self) -> &[T] {
        let memory = match &self.memory {
            Memory::Private(memory) => &memory[..],
            Memory::Shared(memory) => memory,
        };
        &memory[self.start..self.start + self.length]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        let memory = match &mut self.memory {
            Memory::Private(memory) => &mut memory[..],
            Memory::Shared(memory) => memory,
        };
        &mut memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use carole_engine::testing;

    use super::*;

    fn address(buffer: &Buffer<f32>) -> usize {
        buffer.as_slice().as_ptr() as usize
    }

    fn check(source: &Source) {
        let aligned = Buffer::<f32>::new(5, Place::Aligned(0), source).unwrap();
        assert_eq!(address(&aligned) % CACHE_LINE, 0);
        let large = Buffer::<f32>::new(LARGE, Place::Aligned(1), source).unwrap();
        assert_eq!(address(&large) % CACHE_LINE, 0);
        let mut behind = Buffer::<f32>::new(5, Place::Behind(3), source).unwrap();
        assert_eq!(address(&behind) % CACHE_LINE, 12);
        behind.as_mut_slice().fill(2.0);
        assert_eq!(behind.as_slice(), [2.0; 5]);
        let empty = Buffer::<f64>::new(0, Place::Behind(7), source).unwrap();
        assert!(empty.as_slice().is_empty());
    }

    #[test]
    fn a_tensor_begins_where_it_is_asked_to() {
        check(&Source::Private);
        testing::spawn(2, |session| check(&Source::Shared(session)));
    }
}
