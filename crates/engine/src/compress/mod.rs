//! Wire compression of `f32` sums: what travels is smaller, and a little wrong.
//!
//! A [`Codec`] turns a run of `f32` into fewer bytes and back. All processors give the same bytes
//! for the same numbers and the same numbers for the same bytes, and decoding, encoding and
//! decoding again changes nothing: whoever keeps what the others decode holds what they hold.
//!
//! # How wrong
//!
//! One encoding and decoding of `x` gives `y` with
//!
//! | codec | bytes | error |
//! |---|---|---|
//! | [`Codec::F16`] | 2 | `abs(y - x) <= abs(x) * 2^-11` for `2^-14 <= abs(x) < 65520`, at most `2^-25` below that; infinite from 65520 on |
//! | [`Codec::Bf16`] | 2 | `abs(y - x) <= abs(x) * 2^-8` for `2^-126 <= abs(x)`, at most `2^-134` below that; infinite from about `3.396e38` on |
//! | [`Codec::Int8`] | 1.016 | `abs(y - x) <= peak / 254`, where `peak` is the largest magnitude in the block of [`BLOCK`] numbers, and beyond that at most `peak * 2^-21 + 2^-149` for the arithmetic itself; the peak itself is exact, and zeros lose their sign |
//!
//! Everything is rounded to nearest, ties to even. Infinities and NaNs arrive as what they were,
//! where they were (a NaN's payload is left open). In a block of int8 that has any, two codes are
//! theirs, and the error of the block's finite numbers is `peak / 252`, where `peak` is the
//! largest finite magnitude.
//!
//! # Int8 on the wire
//!
//! Each block of [`BLOCK`] numbers, the last one shorter, is its peak (`f32`, little endian) and
//! then one signed byte a number: `q` stands for `q / 127 * peak`. The peak travels rather than the
//! step because a step of a tiny peak would lose its digits. A peak with its sign set marks
//! a block with infinities or NaNs: there -128 is NaN, 127 and -127 are the infinities, and any
//! other `q` stands for `q / 126 * peak`. Any bytes decode to some numbers; nothing is refused.
//!
//! # Example
//!
//! ```
//! use carole_engine::compress::Codec;
//!
//! let numbers: Vec<u8> = [1.0f32, -2.5, 127.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let mut wire = vec![0; Codec::Int8.encoded_len(3)];
//! Codec::Int8.encode(&numbers, &mut wire);
//! let mut arrived = vec![0; numbers.len()];
//! Codec::Int8.decode(&wire, &mut arrived);
//! assert_eq!(arrived[8..], 127.0f32.to_ne_bytes()); // the peak is exact
//! ```

#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(
        unsafe_code,
        reason = "loops are compiled for the processor's instruction set"
    )
)]

mod int8;
#[cfg(test)]
mod tests;

use crate::dtype::DType;
use crate::kernels::Implementation;
use crate::kernels::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Numbers that share a scale in [`Codec::Int8`]. A run that is cut in multiples of this encodes to
/// the same bytes as the whole.
pub const BLOCK: usize = 256;

/// How numbers travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    #[default]
    None = 0,
    /// As IEEE half precision.
    F16 = 1,
    /// As bfloat16.
    Bf16 = 2,
    /// As bytes, with a scale per block.
    Int8 = 3,
}

impl Codec {
    /// Every codec, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::None, Self::F16, Self::Bf16, Self::Int8];

    /// The codec with this number, as it travels on the wire.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// The name people write: `none`, `f16`, `bf16`, `int8`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// Whether elements of `dtype` can travel this way: `f32` can, and with no codec everything.
    pub const fn applies_to(self, dtype: DType) -> bool {
        matches!(self, Self::None) || matches!(dtype, DType::F32)
    }

    /// The bytes that `count` numbers (`f32`) become.
    pub const fn encoded_len(self, count: usize) -> usize {
        match self {
            Self::None => count * 4,
            Self::F16 | Self::Bf16 => count * 2,
            Self::Int8 => count + count.div_ceil(BLOCK) * int8::HEADER,
        }
    }

    /// Encodes the numbers (`f32`, as they lie in memory) of `input` into `output`.
    ///
    /// # Panics
    ///
    /// When `input` is not a whole number of `f32` or `output` is not [`Codec::encoded_len`] long.
    pub fn encode(self, input: &[u8], output: &mut [u8]) {
        self.encode_with(Implementation::selected(), input, output);
    }

    /// Decodes the bytes of `input` into the numbers (`f32`, as they lie in memory) of `output`.
    ///
    /// # Panics
    ///
    /// When `output` is not a whole number of `f32` or `input` is not [`Codec::encoded_len`] long.
    pub fn decode(self, input: &[u8], output: &mut [u8]) {
        self.decode_with(Implementation::selected(), input, output);
    }

    pub(crate) fn encode_with(
        self,
        implementation: Implementation,
        input: &[u8],
        output: &mut [u8],
    ) {
        self.check(input.len(), output.len());
        run(implementation, self, Direction::Encode, input, output);
    }

    pub(crate) fn decode_with(
        self,
        implementation: Implementation,
        input: &[u8],
        output: &mut [u8],
    ) {
        self.check(output.len(), input.len());
        run(implementation, self, Direction::Decode, input, output);
    }

    fn check(self, plain: usize, encoded: usize) {
        assert!(
            plain.is_multiple_of(4),
            "{plain} bytes are no whole number of f32"
        );
        assert_eq!(
            encoded,
            self.encoded_len(plain / 4),
            "encoded length of {} f32",
            plain / 4
        );
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = match text {
            "fp16" | "float16" => "f16",
            "bfloat16" => "bf16",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == wanted)
            .ok_or_else(|| format!("unknown compression {text:?}"))
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Encode,
    Decode,
}

/// Runs a loop compiled for `implementation`, or the portable one where it is not available.
fn run(
    implementation: Implementation,
    codec: Codec,
    direction: Direction,
    input: &[u8],
    output: &mut [u8],
) {
    match implementation {
        #[cfg(target_arch = "x86_64")]
        Implementation::Avx512 | Implementation::Avx2 if implementation.is_available() => {
            // SAFETY: the processor has the instruction set, as just seen.
            unsafe {
                match implementation {
                    Implementation::Avx512 => x86::avx512(codec, direction, input, output),
                    _ => x86::avx2(codec, direction, input, output),
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        Implementation::Neon if implementation.is_available() => {
            body::<arm::Neon>(codec, direction, input, output);
        }
        _ => body::<Software>(codec, direction, input, output),
    }
}

/// The `f16` loops, which processors have instructions for.
trait Halves {
    /// Encodes; `output` has half the length of `input`.
    fn encode(input: &[u8], output: &mut [u8]);
    /// Decodes; `input` has half the length of `output`.
    fn decode(input: &[u8], output: &mut [u8]);
}

/// Half precision in integer arithmetic.
struct Software;

impl Halves for Software {
    #[inline(always)]
    fn encode(input: &[u8], output: &mut [u8]) {
        narrow(input, output, f32_to_f16);
    }

    #[inline(always)]
    fn decode(input: &[u8], output: &mut [u8]) {
        widen(input, output, f16_to_f32);
    }
}

/// All loops; inlined into a function of each instruction set.
#[inline(always)]
fn body<H: Halves>(codec: Codec, direction: Direction, input: &[u8], output: &mut [u8]) {
    match (codec, direction) {
        (Codec::None, _) => output.copy_from_slice(input),
        (Codec::F16, Direction::Encode) => H::encode(input, output),
        (Codec::F16, Direction::Decode) => H::decode(input, output),
        (Codec::Bf16, Direction::Encode) => narrow(input, output, f32_to_bf16),
        (Codec::Bf16, Direction::Decode) => widen(input, output, bf16_to_f32),
        (Codec::Int8, Direction::Encode) => int8::encode(input, output),
        (Codec::Int8, Direction::Decode) => int8::decode(input, output),
    }
}

#[inline(always)]
fn narrow(input: &[u8], output: &mut [u8], convert: impl Fn(f32) -> u16) {
    let (input, _) = input.as_chunks::<4>();
    let (output, _) = output.as_chunks_mut::<2>();
    for (to, from) in output.iter_mut().zip(input) {
        *to = convert(f32::from_ne_bytes(*from)).to_le_bytes();
    }
}

#[inline(always)]
fn widen(input: &[u8], output: &mut [u8], convert: impl Fn(u16) -> f32) {
    let (input, _) = input.as_chunks::<2>();
    let (output, _) = output.as_chunks_mut::<4>();
    for (to, from) in output.iter_mut().zip(input) {
        *to = convert(u16::from_le_bytes(*from)).to_ne_bytes();
    }
}

/// Half precision by the processor's instructions; what does not fill a vector is software's.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! halves {
    ($level:ident, $module:ident, $lanes:literal) => {
        impl Halves for $level {
            #[inline(always)]
            fn encode(input: &[u8], output: &mut [u8]) {
                let (vectors, rest) = input.as_chunks::<{ $lanes * 4 }>();
                let (results, rest_of_results) = output.as_chunks_mut::<{ $lanes * 2 }>();
                for (to, from) in results.iter_mut().zip(vectors) {
                    // SAFETY: chunks are as long as the vectors; only run where the processor
                    // has them.
                    unsafe {
                        let singles = $module::Singles::load(from.as_ptr());
                        $module::Halves(singles.0).store(to.as_mut_ptr());
                    }
                }
                Software::encode(rest, rest_of_results);
            }

            #[inline(always)]
            fn decode(input: &[u8], output: &mut [u8]) {
                let (vectors, rest) = input.as_chunks::<{ $lanes * 2 }>();
                let (results, rest_of_results) = output.as_chunks_mut::<{ $lanes * 4 }>();
                for (to, from) in results.iter_mut().zip(vectors) {
                    // SAFETY: chunks are as long as the vectors; only run where the processor
                    // has them.
                    unsafe {
                        let halves = $module::Halves::load(from.as_ptr());
                        $module::Singles(halves.0).store(to.as_mut_ptr());
                    }
                }
                Software::decode(rest, rest_of_results);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Codec, Direction, Halves, Software, body};
    use crate::kernels::vector::Register;
    use crate::kernels::{avx2, avx512};

    /// # Safety
    ///
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn avx512(
        codec: Codec,
        direction: Direction,
        input: &[u8],
        output: &mut [u8],
    ) {
        body::<Avx512>(codec, direction, input, output);
    }

    /// # Safety
    ///
    /// The processor has AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn avx2(codec: Codec, direction: Direction, input: &[u8], output: &mut [u8]) {
        body::<Avx2>(codec, direction, input, output);
    }

    /// Half precision by AVX-512; used only in [`avx512`].
    struct Avx512;

    /// Half precision by F16C; used only in [`avx2`].
    struct Avx2;

    halves!(Avx512, avx512, 16);
    halves!(Avx2, avx2, 8);
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{Halves, Software};
    use crate::kernels::neon;
    use crate::kernels::vector::Register;

    /// Half precision by NEON, which every processor of the architecture has.
    pub(super) struct Neon;

    halves!(Neon, neon, 8);
}
