//! Floats in AVX2, with the half-precision conversions of F16C.

use std::arch::x86_64::{
    __m128i, __m256, __m256d, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128,
    _mm_storeu_si128, _mm_stream_si128, _mm256_add_epi32, _mm256_add_pd, _mm256_add_ps,
    _mm256_and_pd, _mm256_and_ps, _mm256_and_si256, _mm256_blend_epi16, _mm256_blendv_epi8,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_pd, _mm256_cmp_ps, _mm256_cvtph_ps,
    _mm256_cvtps_ph, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_max_pd, _mm256_max_ps, _mm256_min_pd,
    _mm256_min_ps, _mm256_mul_pd, _mm256_mul_ps, _mm256_or_pd, _mm256_or_ps, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_set1_pd, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_pd, _mm256_storeu_ps, _mm256_stream_pd, _mm256_stream_ps,
};

use super::combine::{Combine, FloatCombine};
use super::element::{Element, Float};
use super::vector::{Register, Vector};
use super::{Implementation, Instructions, Job, block, sweep};

/// AVX2 and F16C.
pub(super) struct Avx2;

impl Instructions for Avx2 {
    const IMPLEMENTATION: Implementation = Implementation::Avx2;

    unsafe fn part<E: Element, O: Combine<E::Wide>, const SCALED: bool>(
        job: Job<'_>,
        from: usize,
        length: usize,
    ) {
        #[target_feature(enable = "avx2,f16c")]
        unsafe fn run<E: Element, O: Combine<E::Wide>, const SCALED: bool>(
            job: Job<'_>,
            from: usize,
            length: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe { block::part::<Avx2, E, O, SCALED>(job, from, length) }
        }
        // SAFETY: the caller's promise.
        unsafe { run::<E, O, SCALED>(job, from, length) }
    }

    unsafe fn plain<E: Element, O: Combine<E::Wide>, const SCALED: bool>(job: Job<'_>) {
        #[target_feature(enable = "avx2,f16c")]
        unsafe fn run<E: Element, O: Combine<E::Wide>, const SCALED: bool>(job: Job<'_>) {
            // SAFETY: the caller's promise.
            unsafe { block::reduce::<Avx2, E, O, SCALED>(job) }
        }
        // SAFETY: the caller's promise.
        unsafe { run::<E, O, SCALED>(job) }
    }

    unsafe fn float<E: Float, O: FloatCombine<E>, const SCALED: bool>(job: Job<'_>) {
        #[target_feature(enable = "avx2,f16c")]
        unsafe fn run<E: Float, O: FloatCombine<E>, const SCALED: bool>(job: Job<'_>) {
            // SAFETY: the caller's promise.
            unsafe { sweep::reduce::<Avx2, E, E::Avx2, O, SCALED>(job) }
        }
        // SAFETY: the caller's promise.
        unsafe { run::<E, O, SCALED>(job) }
    }
}

/// Eight `f32`.
#[derive(Clone, Copy)]
pub(crate) struct Singles(pub(crate) __m256);

/// Four `f64`.
#[derive(Clone, Copy)]
pub(crate) struct Doubles(__m256d);

/// Eight `f16`, widened.
#[derive(Clone, Copy)]
pub(crate) struct Halves(pub(crate) __m256);

/// Sixteen `bf16`, widened: those at even places, then those at odd places, which takes less
/// moving about than keeping them in order.
#[derive(Clone, Copy)]
pub(crate) struct Brains(Singles, Singles);

/// The high half of every 32-bit lane.
const HIGH: i32 = 0xffff_0000_u32.cast_signed();

impl Register for Singles {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(_mm256_loadu_ps(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_ps(to.cast(), self.0) }
    }
}

impl Register for Doubles {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(_mm256_loadu_pd(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_pd(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_pd(to.cast(), self.0) }
    }
}

impl Register for Halves {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), self.narrow()) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_stream_si128(to.cast(), self.narrow()) }
    }
}

impl Halves {
    #[inline(always)]
    unsafe fn narrow(self) -> __m128i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(self.0) }
    }
}

impl Register for Brains {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = _mm256_castps_si256(_mm256_loadu_ps(from.cast()));
            let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(HIGH));
            let even = _mm256_slli_epi32::<16>(pairs);
            Self(
                Singles(_mm256_castsi256_ps(even)),
                Singles(_mm256_castsi256_ps(odd)),
            )
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to.cast(), self.narrow()) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_ps(to.cast(), self.narrow()) }
    }
}

impl Brains {
    /// As [`super::half::f32_to_bf16`].
    #[inline(always)]
    unsafe fn narrow(self) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let even = _mm256_srli_epi32::<16>(round_to_brain(self.0.0));
            let odd = round_to_brain(self.1.0);
            // A register of sixteen-bit numbers: the odd ones from the second.
            _mm256_castsi256_ps(_mm256_blend_epi16::<0b1010_1010>(even, odd))
        }
    }
}

/// Rounds to `bf16` in the high halves; the low halves are left over.
///
/// # Safety
///
/// The processor has AVX2.
#[inline(always)]
unsafe fn round_to_brain(values: __m256) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm256_castps_si256(values);
        let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let half = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        _mm256_blendv_epi8(_mm256_add_epi32(half, last), quiet, nan)
    }
}

impl Vector for Brains {
    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(Singles::splat(value), Singles::splat(value)) }
    }

    #[inline(always)]
    unsafe fn add(a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(Singles::add(a.0, b.0), Singles::add(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn multiply(a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(Singles::multiply(a.0, b.0), Singles::multiply(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn minimum(a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(Singles::minimum(a.0, b.0), Singles::minimum(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn maximum(a: Self, b: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self(Singles::maximum(a.0, b.0), Singles::maximum(a.1, b.1)) }
    }
}

macro_rules! arithmetic {
    ($($vector:ident)+, $lane:ident, $splat:ident, $add:ident, $multiply:ident, $min:ident,
     $max:ident, $or:ident, $and:ident, $compare:ident) => {
        $(impl Vector for $vector {
            #[inline(always)]
            unsafe fn splat(value: f64) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($splat(value as $lane)) }
            }

            #[inline(always)]
            unsafe fn add(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($add(a.0, b.0)) }
            }

            #[inline(always)]
            unsafe fn multiply(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($multiply(a.0, b.0)) }
            }

            // The instruction gives its second operand for two zeros and for a NaN. Both orders
            // together see every sign and every NaN: *or* keeps either.
            #[inline(always)]
            unsafe fn minimum(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($or($min(a.0, b.0), $min(b.0, a.0))) }
            }

            // *And* clears the sign of two zeros, and might clear a NaN, so that is put back.
            #[inline(always)]
            unsafe fn maximum(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe {
                    let larger = $and($max(a.0, b.0), $max(b.0, a.0));
                    let nan = $compare::<_CMP_UNORD_Q>(a.0, b.0);
                    Self($or(larger, nan))
                }
            }
        })+
    };
}

arithmetic!(
    Singles Halves, f32, _mm256_set1_ps, _mm256_add_ps, _mm256_mul_ps, _mm256_min_ps,
    _mm256_max_ps, _mm256_or_ps, _mm256_and_ps, _mm256_cmp_ps
);
arithmetic!(
    Doubles,
    f64,
    _mm256_set1_pd,
    _mm256_add_pd,
    _mm256_mul_pd,
    _mm256_min_pd,
    _mm256_max_pd,
    _mm256_or_pd,
    _mm256_and_pd,
    _mm256_cmp_pd
);
