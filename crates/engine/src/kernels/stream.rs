//! Copies, and the stores that go around the cache.

use super::{Implementation, Store};

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
        #[cfg(target_arch = "x86_64")]
        // Miri does not know streaming stores.
        if store == Store::Streaming && bytes >= x86::STREAM_FROM && !cfg!(miri) {
            match implementation {
                Implementation::Avx512 => x86::avx512(destination, source, bytes),
                Implementation::Avx2 => x86::avx2(destination, source, bytes),
                _ => x86::sse2(destination, source, bytes),
            }
            return;
        }
        let _ = (implementation, store);
        destination.copy_from_nonoverlapping(source, bytes);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128, _mm_stream_si128,
    };

    use crate::kernels::vector::Register;
    use crate::kernels::{avx2, avx512};

    /// A cache line.
    const LINE: usize = 64;

    /// Below this many bytes, ordinary stores do better.
    pub(super) const STREAM_FROM: usize = 256;

    /// How far ahead the source is asked for, in bytes. Further ahead was slower on Zen 4.
    const AHEAD: usize = 256;

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

    /// Copies whole lines around the cache, `WIDTH` registers at a time, and the ends by ordinary
    /// stores.
    ///
    /// # Safety
    ///
    /// As [`crate::kernels::copy`], and the processor has the register.
    #[inline(always)]
    unsafe fn stream<R: Register, const WIDTH: usize>(
        destination: *mut u8,
        source: *const u8,
        bytes: usize,
    ) {
        let head = (destination.addr().wrapping_neg() % LINE).min(bytes);
        // SAFETY: `at` and the step after it stay within `bytes`, and `destination + at` is on
        // a boundary after the head; prefetching touches no memory, wherever it points.
        unsafe {
            destination.copy_from_nonoverlapping(source, head);
            let mut at = head;
            while at + WIDTH * R::BYTES <= bytes {
                for line in (0..WIDTH * R::BYTES).step_by(LINE) {
                    _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(at + AHEAD + line).cast());
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
