//! Copies, and the stores that go around the cache.

use super::vector::{Register, prefetch};
use super::{Implementation, Store};

/// A cache line.
const LINE: usize = 64;

/// Below this many bytes, ordinary stores do better.
const STREAM_FROM: usize = 256;

/// How far ahead the source is asked for, in bytes. Further ahead was slower on Zen 4.
const AHEAD: usize = 256;

/// Copies `bytes` bytes.
///
/// # Safety
///
/// As [`super::copy`]; `implementation` is available.
#[inline]
pub(super) unsafe fn copy(
    implementation: Implementation,
    destination: *mut u8,
    source: *const u8,
    bytes: usize,
    store: Store,
) {
    if std::ptr::eq(destination, source) {
        return;
    }
    // SAFETY: the caller promises the memory, which does not overlap, and the processor.
    unsafe {
        // Miri does not know streaming stores.
        if store == Store::Streaming && bytes >= STREAM_FROM && !cfg!(miri) {
            match implementation {
                #[cfg(target_arch = "x86_64")]
                Implementation::Avx512 => return x86::avx512(destination, source, bytes),
                #[cfg(target_arch = "x86_64")]
                Implementation::Avx2 => return x86::avx2(destination, source, bytes),
                #[cfg(target_arch = "x86_64")]
                Implementation::Portable => return x86::sse2(destination, source, bytes),
                #[cfg(target_arch = "aarch64")]
                Implementation::Neon => {
                    return stream::<super::neon::Singles, 8>(destination, source, bytes);
                }
                _ => {}
            }
        }
        destination.copy_from_nonoverlapping(source, bytes);
    }
}

/// Copies whole lines around the cache, `WIDTH` registers at a time, and the ends by ordinary
/// stores.
///
/// # Safety
///
/// As [`super::copy`], and the processor has the register.
#[inline(always)]
unsafe fn stream<R: Register, const WIDTH: usize>(
    destination: *mut u8,
    source: *const u8,
    bytes: usize,
) {
    let head = (destination.addr().wrapping_neg() % LINE).min(bytes);
    // SAFETY: `at` and the step after it stay within `bytes`, and `destination + at` is on
    // a boundary after the head.
    unsafe {
        destination.copy_from_nonoverlapping(source, head);
        let mut at = head;
        while at + WIDTH * R::BYTES <= bytes {
            for line in (0..WIDTH * R::BYTES).step_by(LINE) {
                prefetch(source.wrapping_add(at + AHEAD + line));
            }
            let mut values = [R::load(source.add(at)); WIDTH];
            for (index, value) in values.iter_mut().enumerate() {
                *value = R::load(source.add(at + index * R::BYTES));
            }
            for (index, value) in values.iter().enumerate() {
                value.stream(destination.add(at + index * R::BYTES));
            }
            at += WIDTH * R::BYTES;
        }
        destination
            .add(at)
            .copy_from_nonoverlapping(source.add(at), bytes - at);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128};

    use super::{Register, stream};
    use crate::kernels::{avx2, avx512};

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512(destination: *mut u8, source: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { stream::<avx512::Singles, 4>(destination, source, bytes) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(destination: *mut u8, source: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { stream::<avx2::Singles, 8>(destination, source, bytes) }
    }

    pub(super) unsafe fn sse2(destination: *mut u8, source: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { stream::<Quarter, 8>(destination, source, bytes) }
    }

    /// Sixteen bytes, on every x86-64 processor.
    #[derive(Clone, Copy)]
    struct Quarter(__m128i);

    impl Register for Quarter {
        const BYTES: usize = 16;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller's promise.
            unsafe { Self(_mm_loadu_si128(from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { _mm_storeu_si128(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { _mm_stream_si128(to.cast(), self.0) }
        }
    }
}
