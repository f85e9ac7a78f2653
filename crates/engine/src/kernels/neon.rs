//! Floats in NEON, which every 64-bit ARM processor has.
//!
//! A vector is a pair of registers, since the streaming store takes a pair.
//!
//! `f16` is converted in assembly: the compiler's own functions for it are newer than the oldest
//! compiler that will do. `bf16` is rounded in integer arithmetic: not every processor has the
//! instruction made for it.

use std::arch::aarch64::{
    float32x4_t, float32x4x2_t, float64x2x2_t, uint16x4_t, uint16x8_t, uint32x4_t, vaddq_f32,
    vaddq_f64, vaddq_u32, vandq_u32, vbslq_u32, vceqq_f32, vdupq_n_f32, vdupq_n_f64, vdupq_n_u32,
    vget_high_u16, vget_low_u16, vld1q_f32, vld1q_f64, vld1q_u16, vmaxq_f32, vmaxq_f64, vminq_f32,
    vminq_f64, vmulq_f32, vmulq_f64, vorrq_u32, vreinterpretq_f32_u32, vreinterpretq_u16_u32,
    vreinterpretq_u32_f32, vshll_high_n_u16, vshll_n_u16, vshrq_n_u32, vst1_u16, vst1q_f32,
    vst1q_f64, vst1q_u16, vuzp2q_u16,
};
use std::arch::asm;

use super::combine::{Combine, FloatCombine};
use super::element::{Element, Float};
use super::vector::{Register, Vector};
use super::{Implementation, Instructions, Job, block, sweep};

/// NEON. The compiler has it in every function, so nothing has to be compiled for it apart.
pub(super) struct Neon;

impl Instructions for Neon {
    const IMPLEMENTATION: Implementation = Implementation::Neon;

    unsafe fn part<E: Element, O: Combine<E::Wide>, const SCALED: bool>(
        job: Job<'_>,
        from: usize,
        length: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { block::part::<Self, E, O, SCALED>(job, from, length) }
    }

    unsafe fn plain<E: Element, O: Combine<E::Wide>, const SCALED: bool>(job: Job<'_>) {
        // SAFETY: the caller's promise.
        unsafe { block::reduce::<Self, E, O, SCALED>(job) }
    }

    unsafe fn float<E: Float, O: FloatCombine<E>, const SCALED: bool>(job: Job<'_>) {
        // SAFETY: the caller's promise.
        unsafe { sweep::reduce::<Self, E, E::Neon, O, SCALED>(job) }
    }
}

/// Eight `f32`.
#[derive(Clone, Copy)]
pub(crate) struct Singles(pub(crate) float32x4x2_t);

/// Four `f64`.
#[derive(Clone, Copy)]
pub(crate) struct Doubles(float64x2x2_t);

/// Eight `f16`, widened.
#[derive(Clone, Copy)]
pub(crate) struct Halves(pub(crate) float32x4x2_t);

/// Eight `bf16`, widened.
#[derive(Clone, Copy)]
pub(crate) struct Brains(float32x4x2_t);

/// Stores a pair of registers, each of them as wide as `$width` says (`q` or `d`), with the hint
/// that they are not read soon. It is ordered as ordinary stores are.
macro_rules! store_pair_around_cache {
    ($width:literal, $to:expr, $first:expr, $second:expr) => {
        asm!(
            concat!("stnp {first:", $width, "}, {second:", $width, "}, [{to}]"),
            first = in(vreg) $first,
            second = in(vreg) $second,
            to = in(reg) $to,
            options(nostack, preserves_flags),
        )
    };
}

impl Register for Singles {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let first = vld1q_f32(from.cast());
            Self(float32x4x2_t(first, vld1q_f32(from.add(16).cast())))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1q_f32(to.cast(), self.0.0);
            vst1q_f32(to.add(16).cast(), self.0.1);
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { store_pair_around_cache!("q", to, self.0.0, self.0.1) }
    }
}

impl Register for Doubles {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let first = vld1q_f64(from.cast());
            Self(float64x2x2_t(first, vld1q_f64(from.add(16).cast())))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1q_f64(to.cast(), self.0.0);
            vst1q_f64(to.add(16).cast(), self.0.1);
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { store_pair_around_cache!("q", to, self.0.0, self.0.1) }
    }
}

impl Register for Halves {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::widen(vld1q_u16(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            vst1_u16(to.cast(), narrow_to_halves(self.0.0));
            vst1_u16(to.add(8).cast(), narrow_to_halves(self.0.1));
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, second) = (narrow_to_halves(self.0.0), narrow_to_halves(self.0.1));
            store_pair_around_cache!("d", to, first, second);
        }
    }
}

impl Halves {
    /// As [`super::half::f16_to_f32`].
    #[inline(always)]
    unsafe fn widen(halves: uint16x8_t) -> Self {
        let (first, second): (float32x4_t, float32x4_t);
        // SAFETY: every 64-bit ARM processor has the instructions, which touch registers only.
        // They may leave notes in the floating-point status, so flags are not preserved.
        unsafe {
            asm!(
                "fcvtl {wide:v}.4s, {halves:v}.4h",
                wide = out(vreg) first,
                halves = in(vreg) halves,
                options(pure, nomem, nostack),
            );
            asm!(
                "fcvtl2 {wide:v}.4s, {halves:v}.8h",
                wide = out(vreg) second,
                halves = in(vreg) halves,
                options(pure, nomem, nostack),
            );
        }
        Self(float32x4x2_t(first, second))
    }
}

/// As [`super::half::f32_to_f16`].
#[inline(always)]
fn narrow_to_halves(values: float32x4_t) -> uint16x4_t {
    let halves: uint16x4_t;
    // SAFETY: every 64-bit ARM processor has the instruction, which touches registers only. It may
    // leave notes in the floating-point status, so flags are not preserved.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {values:v}.4s",
            halves = out(vreg) halves,
            values = in(vreg) values,
            options(pure, nomem, nostack),
        );
    }
    halves
}

impl Register for Brains {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let brains = vld1q_u16(from.cast());
            let first = vshll_n_u16::<16>(vget_low_u16(brains));
            let second = vshll_high_n_u16::<16>(brains);
            Self(float32x4x2_t(
                vreinterpretq_f32_u32(first),
                vreinterpretq_f32_u32(second),
            ))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_u16(to.cast(), self.narrow()) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let brains = self.narrow();
            let (first, second) = (vget_low_u16(brains), vget_high_u16(brains));
            store_pair_around_cache!("d", to, first, second);
        }
    }
}

impl Brains {
    /// As [`super::half::f32_to_bf16`].
    #[inline(always)]
    unsafe fn narrow(self) -> uint16x8_t {
        // SAFETY: the caller's promise.
        unsafe {
            let first = vreinterpretq_u16_u32(round_to_brain(self.0.0));
            let second = vreinterpretq_u16_u32(round_to_brain(self.0.1));
            // Registers of sixteen-bit numbers: the odd ones of both, which are the high halves.
            vuzp2q_u16(first, second)
        }
    }
}

/// Rounds to `bf16` in the high halves; the low halves are left over.
///
/// # Safety
///
/// The processor has NEON.
#[inline(always)]
unsafe fn round_to_brain(values: float32x4_t) -> uint32x4_t {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = vreinterpretq_u32_f32(values);
        let last = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let half = vaddq_u32(bits, vdupq_n_u32(0x7fff));
        let number = vceqq_f32(values, values);
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
        vbslq_u32(number, vaddq_u32(half, last), quiet)
    }
}

macro_rules! arithmetic {
    ($($vector:ident)+, $pair:ident, $lane:ident, $splat:ident, $add:ident, $multiply:ident,
     $min:ident, $max:ident) => {
        $(impl Vector for $vector {
            #[inline(always)]
            unsafe fn splat(value: f64) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($pair($splat(value as $lane), $splat(value as $lane))) }
            }

            #[inline(always)]
            unsafe fn add(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($pair($add(a.0.0, b.0.0), $add(a.0.1, b.0.1))) }
            }

            #[inline(always)]
            unsafe fn multiply(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($pair($multiply(a.0.0, b.0.0), $multiply(a.0.1, b.0.1))) }
            }

            // The instructions order zeros and NaNs just as is asked for.
            #[inline(always)]
            unsafe fn minimum(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($pair($min(a.0.0, b.0.0), $min(a.0.1, b.0.1))) }
            }

            #[inline(always)]
            unsafe fn maximum(a: Self, b: Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { Self($pair($max(a.0.0, b.0.0), $max(a.0.1, b.0.1))) }
            }
        })+
    };
}

arithmetic!(
    Singles Halves Brains, float32x4x2_t, f32, vdupq_n_f32, vaddq_f32, vmulq_f32, vminq_f32,
    vmaxq_f32
);
arithmetic!(
    Doubles,
    float64x2x2_t,
    f64,
    vdupq_n_f64,
    vaddq_f64,
    vmulq_f64,
    vminq_f64,
    vmaxq_f64
);
