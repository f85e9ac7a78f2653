//! What the kernels ask of a vector register, whichever instruction set it belongs to.

/// Vectors that a sweep works on at once; enough of them to hide the latency of an addition.
pub(crate) const UNROLL: usize = 4;

/// Asks for the cache line of `from`, to be read soon. Touches no memory, wherever it points. On
/// aarch64 it does nothing: whether it would gain anything there has not been measured.
#[inline(always)]
pub(crate) fn prefetch(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which every x86-64 processor has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    let _ = from;
}

/// A register, and its way from and to memory.
pub(crate) trait Register: Copy {
    /// The bytes it covers in memory.
    const BYTES: usize;

    /// Loads [`Register::BYTES`] bytes.
    ///
    /// # Safety
    ///
    /// The processor has the instruction set; the bytes are readable.
    unsafe fn load(from: *const u8) -> Self;

    /// Stores [`Register::BYTES`] bytes.
    ///
    /// # Safety
    ///
    /// The processor has the instruction set; the bytes are writable.
    unsafe fn store(self, to: *mut u8);

    /// Stores [`Register::BYTES`] bytes around the cache.
    ///
    /// # Safety
    ///
    /// As [`Register::store`], and `to` is a multiple of [`Register::BYTES`].
    unsafe fn stream(self, to: *mut u8);
}

/// A register of floating-point numbers.
///
/// # Safety
///
/// For every method: the processor has the instruction set.
pub(crate) trait Vector: Register {
    /// The same number in every lane, rounded to the lane's precision.
    unsafe fn splat(value: f64) -> Self;
    /// `a + b`.
    unsafe fn add(a: Self, b: Self) -> Self;
    /// `a * b`.
    unsafe fn multiply(a: Self, b: Self) -> Self;
    /// The smaller; a NaN wins, and `-0.0` is below `+0.0`.
    unsafe fn minimum(a: Self, b: Self) -> Self;
    /// The larger; a NaN wins, and `-0.0` is below `+0.0`.
    unsafe fn maximum(a: Self, b: Self) -> Self;
}
