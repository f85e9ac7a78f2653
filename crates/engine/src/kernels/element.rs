//! What a kernel must know of an element: how wide it is combined, and how it is scaled.

use super::half;
#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vector::Vector;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// The factors of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    /// Multiplies every source (floats).
    pub(super) before: f64,
    /// Multiplies the result (floats); the divisor is in it.
    pub(super) after: f64,
    /// Divides the result (integers).
    pub(super) divisor: u32,
}

impl Factors {
    /// Whether floats have anything to be multiplied with.
    #[expect(
        clippy::float_cmp,
        reason = "exactly one is the one factor that changes nothing"
    )]
    pub(super) fn scales(self) -> bool {
        self.before != 1.0 || self.after != 1.0
    }
}

/// An element in memory.
pub(super) trait Element: Copy {
    /// What it is combined as.
    type Wide: Copy;

    /// From memory.
    fn widen(self) -> Self::Wide;
    /// To memory, rounded to nearest even where that is needed.
    fn narrow(value: Self::Wide) -> Self;
    /// Scales a source.
    fn before(value: Self::Wide, factors: Factors) -> Self::Wide;
    /// Scales or divides a result.
    fn after(value: Self::Wide, factors: Factors) -> Self::Wide;
}

/// A floating-point element, with the vectors it is held in.
pub(super) trait Float: Element {
    /// In AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector;
    /// In AVX2.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector;
    /// In NEON.
    #[cfg(target_arch = "aarch64")]
    type Neon: Vector;
}

/// The bits of an `f16`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct F16(u16);

/// The bits of a `bf16`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

/// A byte that is zero or not.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Bool(u8);

macro_rules! integer_element {
    ($widest:ident: $($integer:ident)+) => {
        $(impl Element for $integer {
            type Wide = $integer;

            #[inline(always)]
            fn widen(self) -> $integer {
                self
            }

            #[inline(always)]
            fn narrow(value: $integer) -> $integer {
                value
            }

            #[inline(always)]
            fn before(value: $integer, _factors: Factors) -> $integer {
                value
            }

            #[inline(always)]
            fn after(value: $integer, factors: Factors) -> $integer {
                // The divisor may be larger than the integer can say.
                ($widest::from(value) / $widest::from(factors.divisor)) as $integer
            }
        })+
    };
}

integer_element!(u64: u8 u16 u32 u64);
integer_element!(i64: i8 i16 i32 i64);

impl Element for Bool {
    type Wide = u8;

    #[inline(always)]
    fn widen(self) -> u8 {
        u8::from(self.0 != 0)
    }

    #[inline(always)]
    fn narrow(value: u8) -> Self {
        Self(value)
    }

    #[inline(always)]
    fn before(value: u8, _factors: Factors) -> u8 {
        value
    }

    #[inline(always)]
    fn after(value: u8, _factors: Factors) -> u8 {
        value
    }
}

macro_rules! float_element {
    ($element:ident as $wide:ident, $vector:ident, $widen:expr, $narrow:expr) => {
        impl Element for $element {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(value: $wide) -> Self {
                $narrow(value)
            }

            #[inline(always)]
            fn before(value: $wide, factors: Factors) -> $wide {
                value * (factors.before as $wide)
            }

            #[inline(always)]
            fn after(value: $wide, factors: Factors) -> $wide {
                value * (factors.after as $wide)
            }
        }

        impl Float for $element {
            #[cfg(target_arch = "x86_64")]
            type Avx512 = avx512::$vector;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = avx2::$vector;
            #[cfg(target_arch = "aarch64")]
            type Neon = neon::$vector;
        }
    };
}

float_element!(f32 as f32, Singles, |element| element, |value| { value });
float_element!(f64 as f64, Doubles, |element| element, |value| { value });
float_element!(
    F16 as f32,
    Halves,
    |element: F16| half::f16_to_f32(element.0),
    |value| { F16(half::f32_to_f16(value)) }
);
float_element!(
    Bf16 as f32,
    Brains,
    |element: Bf16| half::bf16_to_f32(element.0),
    |value| { Bf16(half::f32_to_bf16(value)) }
);
