//! Handing cache lines back to whoever wrote them.
//!
//! A buffer that one core fills and another reads, over and over, costs most where it is filled
//! again: the lines are shared by then, and on AMD's processors taking them back one by one is
//! four times slower than fetching them from a core that has written to them. So the only reader
//! of a line writes to it, without changing it. On Intel's processors there is nothing to gain by
//! that; there it helps to ask for lines ahead of writing to them.

#![expect(unsafe_code, reason = "hints and touches of raw shared memory")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const LINE: usize = 64;

/// Bytes that are read before their lines are handed back, while they are near; and that are
/// written while the lines of the next ones are asked for.
const STRETCH: usize = 4096;

/// Whether readers of this processor should hand lines back.
#[inline]
pub(crate) fn are_handed_back() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(ask_processor)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask_processor() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0);
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
    matches!(vendor.as_flattened(), b"AuthenticAMD" | b"HygonGenuine")
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn ask_processor() -> bool {
    false
}

/// Calls `read` with the (offset, length) of stretches of `bytes` bytes that are short enough to
/// be still near when their lines are handed back.
#[inline]
pub(crate) fn in_stretches(bytes: usize, read: impl FnMut(usize, usize)) {
    in_stretches_from(0, bytes, read);
}

/// The same for bytes that are copied to `target`: stretches end with its lines, so that none is
/// written in two ways.
#[inline]
pub(crate) fn in_stretches_to(target: *const u8, bytes: usize, read: impl FnMut(usize, usize)) {
    in_stretches_from(target.addr() % LINE, bytes, read);
}

#[inline]
fn in_stretches_from(into_line: usize, bytes: usize, mut read: impl FnMut(usize, usize)) {
    let mut offset = 0;
    let mut stretch = STRETCH - into_line;
    while offset < bytes {
        let length = stretch.min(bytes - offset);
        read(offset, length);
        offset += length;
        stretch = STRETCH;
    }
}

/// Asks for the lines of `bytes` bytes, to be written soon. Where others hold them too, asking for
/// all at once is faster than for one after the other.
#[inline]
pub(crate) fn ask_for(pointer: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..bytes).step_by(LINE) {
        let line = pointer.wrapping_add(offset);
        // SAFETY: a hint, which touches no memory wherever it points, and nothing on processors
        // that do not know it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }
    let _ = (pointer, bytes);
}

/// Copies into lines that others have read. Streaming stores need a
/// [fence](super::fence_streaming) afterwards.
///
/// # Safety
///
/// As [`super::copy`].
pub(crate) unsafe fn copy_into_shared(
    destination: *mut u8,
    source: *const u8,
    bytes: usize,
    store: super::Store,
) {
    if store == super::Store::Streaming {
        // SAFETY: the caller's promise.
        return unsafe { super::copy(destination, source, bytes, store) };
    }
    if are_handed_back() && bytes > STRETCH {
        // They were handed back, and are quick to get; asking pays for a few only.
        // SAFETY: the caller's promise.
        return unsafe { super::copy(destination, source, bytes, super::Store::Cached) };
    }
    ask_for(destination, STRETCH.min(bytes));
    in_stretches(bytes, |at, length| {
        let next = at + length;
        ask_for(destination.wrapping_add(next), STRETCH.min(bytes - next));
        // SAFETY: a part of what the caller vouches for.
        unsafe {
            super::copy(
                destination.wrapping_add(at),
                source.wrapping_add(at),
                length,
                super::Store::Cached,
            );
        }
    });
}

/// Hands the lines of `bytes` bytes back, unchanged.
///
/// # Safety
///
/// The lines that these bytes lie in are mapped and writable, and nobody else uses them meanwhile.
#[inline]
pub(crate) unsafe fn hand_back(pointer: *const u8, bytes: usize) {
    let begin = pointer.map_addr(|address| address & !(LINE - 1)).cast_mut();
    let end = pointer.addr() + bytes;
    let mut line = begin;
    while line.addr() < end {
        // SAFETY: aligned, mapped and writable, as the caller promises.
        let word = unsafe { AtomicU32::from_ptr(line.cast()) };
        word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        line = line.wrapping_add(LINE);
    }
}
