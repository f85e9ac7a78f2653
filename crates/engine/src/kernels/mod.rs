//! Reduce kernels: the loops that combine elements and move bytes.
//!
//! [`reduce`] reads one element from every source, combines them strictly from left to right and
//! writes the result to every destination; [`copy`] moves bytes. Both are chosen once, at run
//! time, for the processor at hand ([`Implementation`]); every implementation gives the same bits.
//!
//! # What a result is
//!
//! - Integers wrap. An average is the wrapped sum divided by the divisor, rounded towards zero.
//! - `f32` and `f64` are added and multiplied in their own precision, never fused.
//! - `f16` and `bf16` are widened to `f32`, combined and scaled there, and rounded once, to
//!   nearest even, at the end. Subnormal numbers are kept.
//! - Scaling multiplies every source by [`Scale::before`] and the result by [`Scale::after`]
//!   divided by the divisor; the quotient is taken in `f64`, and both factors are rounded once to
//!   the precision the sum is held in.
//! - Minimum and maximum: a NaN wins over every number, and `-0.0` is smaller than `+0.0`.
//! - Booleans are bytes: zero is false, anything else true, and results are zero or one. Sum and
//!   maximum are *or*, product and minimum are *and*.
//!
//! Which NaN a result is (its sign and payload) is the only thing left open.
//!
//! # Streaming stores
//!
//! [`Store::Streaming`] asks for stores that go around the cache, for memory that will not be read
//! soon. They are weakly ordered: call [`fence_streaming`] before telling anybody else that the
//! data is there. A streaming destination that cannot be brought to a 64-byte boundary in whole
//! elements is written with ordinary stores.
//!
//! # Implementations
//!
//! Floats run on vectors written by hand: for AVX-512 and AVX2 on x86-64, for NEON on aarch64.
//! Integers and booleans are plain loops compiled for those instruction sets. On aarch64 the
//! portable loops are compiled for NEON as well, since it is always there, but they never stream:
//! only [`Implementation::Neon`] does, by stores of pairs with a hint that processors may ignore.
//!
//! # Example
//!
//! ```
//! use carole_engine::kernels::{self, Destination, Scale, Store};
//! use carole_engine::{DType, ReduceOp};
//!
//! let (a, b) = ([1.0f32, 2.0], [10.0f32, 20.0]);
//! let mut sum = [0.0f32; 2];
//! let to = Destination { pointer: sum.as_mut_ptr().cast(), store: Store::Cached };
//! let from = [a.as_ptr().cast(), b.as_ptr().cast()];
//! // SAFETY: all three hold two numbers, and they do not overlap.
//! unsafe { kernels::reduce(DType::F32, ReduceOp::Sum, Scale::NONE, 1, &[to], &from, 2) };
//! assert_eq!(sum, [11.0, 22.0]);
//! ```
//!
//! `examples/kernels.rs` measures all of them on the processor at hand.

#![expect(
    unsafe_code,
    reason = "reduce kernels work on raw memory with vector instructions"
)]
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "the loops by hand have no vectors here")
)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod block;
mod combine;
mod element;
mod fill;
pub(crate) mod half;
pub(crate) mod lines;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod stream;
mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod vector;

use std::sync::OnceLock;

use crate::dtype::{DType, ReduceOp};
use combine::{And, Combine, FloatCombine, Max, Min, Or, Product, Sum, Xor};
use element::{Element, Factors, Float};
pub(crate) use fill::Filling;

/// How a destination is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Ordinary stores: the data is read again soon.
    Cached,
    /// Non-temporal stores, for what will not be read soon; see [`fence_streaming`].
    Streaming,
}

/// Where a result is written, and how.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The first element; need not be aligned.
    pub pointer: *mut u8,
    /// How it is written.
    pub store: Store,
}

/// Factors for floating-point elements; 1.0 is none. Other elements are not scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Multiplies every source before it is combined.
    pub before: f64,
    /// Multiplies the result.
    pub after: f64,
}

impl Scale {
    /// No scaling.
    pub const NONE: Self = Self {
        before: 1.0,
        after: 1.0,
    };
}

impl Default for Scale {
    fn default() -> Self {
        Self::NONE
    }
}

/// The instruction sets that kernels exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// What every processor of the architecture can run.
    Portable,
    /// AVX2 with half-precision conversion.
    Avx2,
    /// AVX-512 (F, BW, DQ and VL).
    Avx512,
    /// NEON, on every aarch64 processor.
    Neon,
}

impl Implementation {
    /// Every implementation, the most preferred first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Portable];

    /// Whether this processor can run it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            // Miri does not know assembly.
            Self::Neon => cfg!(all(target_arch = "aarch64", not(miri))),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The one that [`reduce`] and [`copy`] use here.
    #[inline]
    pub fn selected() -> Self {
        static SELECTED: OnceLock<Implementation> = OnceLock::new();
        *SELECTED.get_or_init(|| {
            Self::ALL
                .into_iter()
                .find(|implementation| implementation.is_available())
                .unwrap_or(Self::Portable)
        })
    }

    /// The name people read: `avx512`, `avx2`, `neon`, `portable`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

/// The instruction set in use: `avx512`, `avx2`, `neon` or `portable`.
pub fn instruction_set() -> &'static str {
    Implementation::selected().name()
}

/// Combines `count` elements of every source, strictly from left to right, and writes the result
/// to every destination:
/// `after / divisor * ((before * s0[i]) op (before * s1[i]) op …)`.
///
/// `divisor` belongs to [`ReduceOp::Average`] and is ignored otherwise.
///
/// # Panics
///
/// When there are no sources, no destinations or more than 64 destinations, when `op` does not
/// apply to `dtype`, or when an average is to be divided by zero.
///
/// # Safety
///
/// - Every source is readable and every destination writable for `count * dtype.size()` bytes
///   during the call, and no other thread writes the former or touches the latter.
/// - A destination may be exactly equal to a source; otherwise a destination overlaps neither a
///   source nor another destination.
/// - Pointers need not be aligned.
/// - After a streaming destination, [`fence_streaming`] is called before the data is published.
#[inline]
pub unsafe fn reduce(
    dtype: DType,
    op: ReduceOp,
    scale: Scale,
    divisor: u32,
    destinations: &[Destination],
    sources: &[*const u8],
    count: usize,
) {
    let implementation = Implementation::selected();
    // SAFETY: the selected implementation is available, the rest is the caller's promise.
    unsafe {
        dispatch(
            implementation,
            dtype,
            op,
            scale,
            divisor,
            destinations,
            sources,
            count,
        );
    }
}

/// [`reduce`] with a given implementation.
///
/// # Panics
///
/// As [`reduce`], and when this processor cannot run `implementation`.
///
/// # Safety
///
/// As [`reduce`].
pub unsafe fn reduce_with(
    implementation: Implementation,
    dtype: DType,
    op: ReduceOp,
    scale: Scale,
    divisor: u32,
    destinations: &[Destination],
    sources: &[*const u8],
    count: usize,
) {
    assert!(
        implementation.is_available(),
        "this processor has no {}",
        implementation.name()
    );
    // SAFETY: available as just seen, the rest is the caller's promise.
    unsafe {
        dispatch(
            implementation,
            dtype,
            op,
            scale,
            divisor,
            destinations,
            sources,
            count,
        );
    }
}

/// Copies `bytes` bytes.
///
/// # Safety
///
/// `source` is readable and `destination` writable for `bytes` bytes, and they are equal or do not
/// overlap. After [`Store::Streaming`], [`fence_streaming`] is called before the data is published.
#[inline]
pub unsafe fn copy(destination: *mut u8, source: *const u8, bytes: usize, store: Store) {
    // SAFETY: the selected implementation is available, the rest is the caller's promise.
    unsafe {
        stream::copy(
            Implementation::selected(),
            destination,
            source,
            bytes,
            store,
        );
    }
}

/// [`copy`] with a given implementation.
///
/// # Panics
///
/// When this processor cannot run `implementation`.
///
/// # Safety
///
/// As [`copy`].
pub unsafe fn copy_with(
    implementation: Implementation,
    destination: *mut u8,
    source: *const u8,
    bytes: usize,
    store: Store,
) {
    assert!(
        implementation.is_available(),
        "this processor has no {}",
        implementation.name()
    );
    // SAFETY: available as just seen, the rest is the caller's promise.
    unsafe { stream::copy(implementation, destination, source, bytes, store) }
}

/// Ends a run of streaming stores: what they wrote is visible before anything stored afterwards.
/// To be called after the last of them and before the data is published.
#[inline]
pub fn fence_streaming() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `sfence` is part of every x86-64 processor.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier for the stores of this thread, and for the compiler; it touches nothing.
    unsafe {
        std::arch::asm!("dmb ishst", options(nostack, preserves_flags));
    }
}

/// The memory a kernel works on.
#[derive(Clone, Copy)]
struct Job<'a> {
    destinations: &'a [Destination],
    sources: &'a [*const u8],
    count: usize,
    factors: Factors,
}

/// One instruction set's way to run a job.
trait Instructions {
    /// Which they are.
    const IMPLEMENTATION: Implementation;

    /// Runs a few elements of a job, at most a block, from element `from` on.
    ///
    /// # Safety
    ///
    /// As [`Instructions::plain`], and `from + length` is at most the job's count.
    unsafe fn part<E: Element, O: Combine<E::Wide>, const SCALED: bool>(
        job: Job<'_>,
        from: usize,
        length: usize,
    );

    /// Runs a job on elements of any kind.
    ///
    /// # Safety
    ///
    /// The processor has the instruction set; memory is as [`reduce`] asks.
    unsafe fn plain<E: Element, O: Combine<E::Wide>, const SCALED: bool>(job: Job<'_>);

    /// Runs a job on floating-point numbers.
    ///
    /// # Safety
    ///
    /// As [`Instructions::plain`].
    unsafe fn float<E: Float, O: FloatCombine<E>, const SCALED: bool>(job: Job<'_>);
}

/// What every processor of the architecture runs.
struct Portable;

impl Instructions for Portable {
    const IMPLEMENTATION: Implementation = Implementation::Portable;

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
        unsafe { block::reduce::<Self, E, O, SCALED>(job) }
    }
}

/// # Safety
///
/// As [`reduce`], and `implementation` is available.
unsafe fn dispatch(
    implementation: Implementation,
    dtype: DType,
    op: ReduceOp,
    scale: Scale,
    divisor: u32,
    destinations: &[Destination],
    sources: &[*const u8],
    count: usize,
) {
    assert!(
        !sources.is_empty() && !destinations.is_empty(),
        "nothing to reduce"
    );
    assert!(destinations.len() <= 64, "too many destinations");
    assert!(op.applies_to(dtype), "{op} is not defined for {dtype}");
    let divisor = if op == ReduceOp::Average { divisor } else { 1 };
    assert!(divisor != 0, "an average needs a divisor");
    let scale = if dtype.is_float() { scale } else { Scale::NONE };
    let factors = Factors {
        before: scale.before,
        after: scale.after / f64::from(divisor),
        divisor,
    };
    let job = Job {
        destinations,
        sources,
        count,
        factors,
    };
    // SAFETY: the caller promises the instruction set and the memory.
    unsafe {
        match implementation {
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512 => by_type::<avx512::Avx512>(dtype, op, job),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2 => by_type::<avx2::Avx2>(dtype, op, job),
            #[cfg(target_arch = "aarch64")]
            Implementation::Neon => by_type::<neon::Neon>(dtype, op, job),
            _ => by_type::<Portable>(dtype, op, job),
        }
    }
}

/// # Safety
///
/// As [`Instructions::plain`].
unsafe fn by_type<I: Instructions>(dtype: DType, op: ReduceOp, job: Job<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::U8 => integer::<I, u8>(op, job),
            DType::U16 => integer::<I, u16>(op, job),
            DType::U32 => integer::<I, u32>(op, job),
            DType::U64 => integer::<I, u64>(op, job),
            DType::I8 => integer::<I, i8>(op, job),
            DType::I16 => integer::<I, i16>(op, job),
            DType::I32 => integer::<I, i32>(op, job),
            DType::I64 => integer::<I, i64>(op, job),
            DType::F16 => float::<I, element::F16>(op, job),
            DType::Bf16 => float::<I, element::Bf16>(op, job),
            DType::F32 => float::<I, f32>(op, job),
            DType::F64 => float::<I, f64>(op, job),
            DType::Bool => boolean::<I>(op, job),
        }
    }
}

/// # Safety
///
/// As [`Instructions::plain`].
unsafe fn integer<I: Instructions, E: Element<Wide = E>>(op: ReduceOp, job: Job<'_>)
where
    Sum: Combine<E>,
    Product: Combine<E>,
    Min: Combine<E>,
    Max: Combine<E>,
    And: Combine<E>,
    Or: Combine<E>,
    Xor: Combine<E>,
{
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            ReduceOp::Average if job.factors.divisor != 1 => I::plain::<E, Sum, true>(job),
            ReduceOp::Sum | ReduceOp::Average => I::plain::<E, Sum, false>(job),
            ReduceOp::Product => I::plain::<E, Product, false>(job),
            ReduceOp::Min => I::plain::<E, Min, false>(job),
            ReduceOp::Max => I::plain::<E, Max, false>(job),
            ReduceOp::And => I::plain::<E, And, false>(job),
            ReduceOp::Or => I::plain::<E, Or, false>(job),
            ReduceOp::Xor => I::plain::<E, Xor, false>(job),
        }
    }
}

/// # Safety
///
/// As [`Instructions::plain`].
unsafe fn boolean<I: Instructions>(op: ReduceOp, job: Job<'_>) {
    type Bool = element::Bool;
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Or => I::plain::<Bool, Or, false>(job),
            ReduceOp::Product | ReduceOp::Min | ReduceOp::And => I::plain::<Bool, And, false>(job),
            ReduceOp::Xor => I::plain::<Bool, Xor, false>(job),
            ReduceOp::Average => unreachable!("refused by `dispatch`"),
        }
    }
}

/// # Safety
///
/// As [`Instructions::plain`].
unsafe fn float<I: Instructions, E: Float>(op: ReduceOp, job: Job<'_>)
where
    Sum: FloatCombine<E>,
    Product: FloatCombine<E>,
    Min: FloatCombine<E>,
    Max: FloatCombine<E>,
{
    // SAFETY: the caller's promise.
    unsafe {
        match (op, job.factors.scales()) {
            (ReduceOp::Sum | ReduceOp::Average, false) => I::float::<E, Sum, false>(job),
            (ReduceOp::Sum | ReduceOp::Average, true) => I::float::<E, Sum, true>(job),
            (ReduceOp::Product, false) => I::float::<E, Product, false>(job),
            (ReduceOp::Product, true) => I::float::<E, Product, true>(job),
            (ReduceOp::Min, false) => I::float::<E, Min, false>(job),
            (ReduceOp::Min, true) => I::float::<E, Min, true>(job),
            (ReduceOp::Max, false) => I::float::<E, Max, false>(job),
            (ReduceOp::Max, true) => I::float::<E, Max, true>(job),
            _ => unreachable!("refused by `dispatch`"),
        }
    }
}
