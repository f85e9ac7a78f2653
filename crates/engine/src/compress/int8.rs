//! One byte a number, with a peak a block. The module above defines the format.

use super::BLOCK;

/// Bytes of a block's peak.
pub(super) const HEADER: usize = 4;

/// The codes of a plain block are `-STEPS..=STEPS`.
const STEPS: f32 = 127.0;

/// The finite codes of a block that also has infinities or NaNs.
const MIXED_STEPS: f32 = 126.0;

/// The codes that are not finite.
const NAN: i8 = -128;
const INFINITE: i8 = 127;

// The largest code stands for exactly the peak.
const _: () = assert!(STEPS * (1.0 / STEPS) == 1.0 && MIXED_STEPS * (1.0 / MIXED_STEPS) == 1.0);

/// From this magnitude on, the bits of an `f32` are an infinity or a NaN.
const NOT_FINITE: u32 = 0x7f80_0000;

/// Encodes numbers into blocks.
#[inline(always)]
pub(super) fn encode(input: &[u8], output: &mut [u8]) {
    let blocks = input
        .chunks(BLOCK * 4)
        .zip(output.chunks_mut(HEADER + BLOCK));
    for (input, output) in blocks {
        let (numbers, _) = input.as_chunks::<4>();
        // A short block is filled up with zeros, so that every loop has one length.
        let mut values = [0f32; BLOCK];
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = f32::from_ne_bytes(*number);
        }
        let (header, codes) = output.split_at_mut(HEADER);
        let peak = values
            .iter()
            .fold(0, |peak, value| magnitude(*value).max(peak));
        if peak < NOT_FINITE {
            let peak = f32::from_bits(peak);
            header.copy_from_slice(&peak.to_le_bytes());
            let scale = Scale::new(peak, STEPS);
            let mut results = [0u8; BLOCK];
            for (result, value) in results.iter_mut().zip(&values) {
                *result = scale.code(*value).cast_unsigned();
            }
            codes.copy_from_slice(&results[..codes.len()]);
        } else {
            encode_mixed(&values, header, codes);
        }
    }
}

/// Decodes blocks into numbers.
#[inline(always)]
pub(super) fn decode(input: &[u8], output: &mut [u8]) {
    let blocks = input
        .chunks(HEADER + BLOCK)
        .zip(output.chunks_mut(BLOCK * 4));
    for (input, output) in blocks {
        let (numbers, _) = output.as_chunks_mut::<4>();
        let Some((header, codes)) = input.split_first_chunk::<HEADER>() else {
            return;
        };
        let peak = f32::from_le_bytes(*header);
        if peak.is_sign_positive() {
            for (number, code) in numbers.iter_mut().zip(codes) {
                *number = value(code.cast_signed(), peak, STEPS).to_ne_bytes();
            }
        } else {
            decode_mixed(peak, codes, numbers);
        }
    }
}

/// The bits without the sign: they order as magnitudes do, with NaNs above infinity.
#[inline(always)]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// From numbers to codes.
#[derive(Clone, Copy)]
struct Scale {
    /// Brings tiny numbers up first, exactly, so that the inverse of their peak is finite.
    lift: f32,
    inverse: f32,
}

impl Scale {
    #[inline(always)]
    fn new(peak: f32, steps: f32) -> Self {
        const TINY: f32 = f32::from_bits((127 - 64) << 23);
        let lift = if peak < TINY { 1.0 / TINY } else { 1.0 };
        let inverse = if peak == 0.0 {
            0.0
        } else {
            steps / (peak * lift)
        };
        Self { lift, inverse }
    }

    /// Rounds to nearest, ties to even.
    #[inline(always)]
    fn code(self, value: f32) -> i8 {
        // Added to this, a small number loses its fraction, rounded, and its integer is in the low
        // bits.
        const SHIFT: f32 = 12_582_912.0;
        (value * self.lift * self.inverse + SHIFT).to_bits() as i8
    }
}

/// The number a code stands for.
#[inline(always)]
fn value(code: i8, peak: f32, steps: f32) -> f32 {
    // Too small a number is a zero, and a zero has no sign here: added, it loses it.
    f32::from(code) * (1.0 / steps) * peak + 0.0
}

/// A block with infinities or NaNs.
#[cold]
#[inline(never)]
fn encode_mixed(values: &[f32; BLOCK], header: &mut [u8], codes: &mut [u8]) {
    let finite = values
        .iter()
        .map(|value| magnitude(*value))
        .filter(|bits| *bits < NOT_FINITE);
    let peak = f32::from_bits(finite.max().unwrap_or(0));
    header.copy_from_slice(&(-peak).to_le_bytes());
    let scale = Scale::new(peak, MIXED_STEPS);
    for (code, value) in codes.iter_mut().zip(values) {
        let result = if value.is_nan() {
            NAN
        } else if value.is_infinite() {
            if *value > 0.0 { INFINITE } else { -INFINITE }
        } else {
            scale.code(*value)
        };
        *code = result.cast_unsigned();
    }
}

/// A block with infinities or NaNs.
#[cold]
#[inline(never)]
fn decode_mixed(peak: f32, codes: &[u8], numbers: &mut [[u8; 4]]) {
    for (number, code) in numbers.iter_mut().zip(codes) {
        let result = match code.cast_signed() {
            NAN => f32::NAN,
            INFINITE => f32::INFINITY,
            code if code == -INFINITE => f32::NEG_INFINITY,
            code => value(code, -peak, MIXED_STEPS),
        };
        *number = result.to_ne_bytes();
    }
}
