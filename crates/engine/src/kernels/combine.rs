//! The operations, on single values and on vectors.

use super::element::Float;
use super::vector::Vector;

/// An operation on two values.
pub(super) trait Combine<T> {
    /// The earlier value first.
    fn combine(a: T, b: T) -> T;
}

/// An operation on two vectors of floating-point numbers.
pub(super) trait VectorCombine {
    /// The earlier vector first.
    ///
    /// # Safety
    ///
    /// The processor has the vector's instruction set.
    unsafe fn combine_vectors<V: Vector>(a: V, b: V) -> V;
}

/// An operation on floating-point numbers, however they are held.
pub(super) trait FloatCombine<E: Float>: Combine<E::Wide> + VectorCombine {}
impl<E: Float, O: Combine<E::Wide> + VectorCombine> FloatCombine<E> for O {}

/// The sum; integers wrap.
pub(super) struct Sum;
/// The product; integers wrap.
pub(super) struct Product;
/// The smallest; a NaN wins, and `-0.0` is below `+0.0`.
pub(super) struct Min;
/// The largest; a NaN wins, and `-0.0` is below `+0.0`.
pub(super) struct Max;
/// Bitwise and.
pub(super) struct And;
/// Bitwise or.
pub(super) struct Or;
/// Bitwise exclusive or.
pub(super) struct Xor;

macro_rules! combine {
    ($operation:ty, $($value:ty)+, |$a:ident, $b:ident| $result:expr) => {
        $(impl Combine<$value> for $operation {
            #[inline(always)]
            fn combine($a: $value, $b: $value) -> $value {
                $result
            }
        })+
    };
}

combine!(Sum, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a.wrapping_add(b));
combine!(Product, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a.wrapping_mul(b));
combine!(Min, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a.min(b));
combine!(Max, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a.max(b));
combine!(And, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a & b);
combine!(Or, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a | b);
combine!(Xor, u8 u16 u32 u64 i8 i16 i32 i64, |a, b| a ^ b);
combine!(Sum, f32 f64, |a, b| a + b);
combine!(Product, f32 f64, |a, b| a * b);

macro_rules! combine_ordered {
    ($($value:ident)+) => {
        $(impl Combine<$value> for Min {
            #[inline(always)]
            fn combine(a: $value, b: $value) -> $value {
                // Equal numbers have equal bits, but for the zeros: a set sign wins.
                let equal = $value::from_bits(a.to_bits() | b.to_bits());
                if a < b || a.is_nan() {
                    a
                } else if b < a || b.is_nan() {
                    b
                } else {
                    equal
                }
            }
        }
        impl Combine<$value> for Max {
            #[inline(always)]
            fn combine(a: $value, b: $value) -> $value {
                // Equal numbers have equal bits, but for the zeros: a clear sign wins.
                let equal = $value::from_bits(a.to_bits() & b.to_bits());
                if a > b || a.is_nan() {
                    a
                } else if b > a || b.is_nan() {
                    b
                } else {
                    equal
                }
            }
        })+
    };
}

combine_ordered!(f32 f64);

macro_rules! combine_vectors {
    ($($operation:ident $method:ident)+) => {
        $(impl VectorCombine for $operation {
            #[inline(always)]
            unsafe fn combine_vectors<V: Vector>(a: V, b: V) -> V {
                // SAFETY: the caller has the instruction set.
                unsafe { V::$method(a, b) }
            }
        })+
    };
}

combine_vectors!(Sum add Product multiply Min minimum Max maximum);
