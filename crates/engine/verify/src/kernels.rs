//! In the place of the engine's kernels: bytes are summed, and every access to payload is told to
//! the model.

use crate::dtype::{DType, ReduceOp};
use crate::sys::touch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Cached,
    Streaming,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) pointer: *mut u8,
    pub(crate) store: Store,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale;

pub(crate) fn fence_streaming() {}

/// Models do not tell stores apart.
#[derive(Debug, Default)]
pub(crate) struct Filling;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) store: Store,
}

impl Filling {
    pub(crate) fn begin(&self, _bytes: usize) -> Fill {
        Fill {
            store: Store::Cached,
        }
    }

    pub(crate) fn end(&self, _fill: Fill, _bytes: usize) {}

    pub(crate) fn store(&self) -> Store {
        Store::Cached
    }
}

/// # Safety
/// As in the engine.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize, _store: Store) {
    touch(from, bytes, false);
    touch(to, bytes, true);
    // SAFETY: the caller's promise; if it lies to others, loom has said so above.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// # Safety
/// As in the engine.
pub(crate) unsafe fn reduce(
    dtype: DType,
    op: ReduceOp,
    _scale: Scale,
    _divisor: u32,
    destinations: &[Destination],
    sources: &[*const u8],
    count: usize,
) {
    assert_eq!((dtype, op), (DType::U8, ReduceOp::Sum), "what models use");
    for source in sources {
        touch(*source, count, false);
    }
    for destination in destinations {
        touch(destination.pointer, count, true);
    }
    for index in 0..count {
        // SAFETY: the caller's promise, as in `copy`.
        unsafe {
            let sum = sources.iter().map(|source| *source.add(index)).sum::<u8>();
            for destination in destinations {
                *destination.pointer.add(index) = sum;
            }
        }
    }
}

/// Handing back writes what is there already: it must not meet a writer, readers do not mind.
pub(crate) mod lines {
    pub(crate) fn are_handed_back() -> bool {
        true
    }

    pub(crate) fn in_stretches_to(_: *const u8, bytes: usize, read: impl FnMut(usize, usize)) {
        in_stretches(bytes, read);
    }

    pub(crate) fn in_stretches(bytes: usize, mut read: impl FnMut(usize, usize)) {
        read(0, bytes);
    }

    pub(crate) fn ask_for(_pointer: *const u8, _bytes: usize) {}

    pub(crate) unsafe fn copy_into_shared(
        to: *mut u8,
        from: *const u8,
        bytes: usize,
        store: super::Store,
    ) {
        // SAFETY: the caller's promise.
        unsafe { super::copy(to, from, bytes, store) };
    }

    pub(crate) unsafe fn hand_back(pointer: *const u8, bytes: usize) {
        super::touch(pointer, bytes, false);
    }
}
