//! Half precision in integer arithmetic: `f16` and `bf16` from and to `f32`.
//!
//! The same results as the processors' conversion instructions (rounding to nearest even,
//! subnormal numbers kept, NaNs made quiet), but without branches, so that loops over them become
//! vectors on any processor. The `half` crate asks for the processor's features at every call
//! and is what the tests compare with.

/// The exponent biases of `f32` and `f16` differ by 112.
const REBIAS: u32 = 112 << 23;

/// Widens the bits of an `f16`; exact.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff) << 13;
    // A subnormal half has no leading one: give it one, at the smallest normal exponent, and take
    // that one away again as a number.
    let smallest = f32::from_bits(REBIAS + (1 << 23));
    let subnormal = (f32::from_bits(magnitude + REBIAS + (1 << 23)) - smallest).to_bits();
    let normal = magnitude + REBIAS;
    let infinite = magnitude + 2 * REBIAS;
    let bits = if magnitude < 0x0400 << 13 {
        subnormal
    } else {
        normal
    };
    let bits = if magnitude < 0x7c00 << 13 {
        bits
    } else {
        infinite
    };
    let bits = if magnitude <= 0x7c00 << 13 {
        bits
    } else {
        infinite | 0x0040_0000
    };
    f32::from_bits(sign | bits)
}

/// Rounds to the nearest `f16`, ties to even; what is too large becomes infinite.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let normal = magnitude
        .wrapping_sub(REBIAS)
        .wrapping_add(0x0fff + ((magnitude >> 13) & 1))
        >> 13;
    // The last place of 0.5 is the smallest subnormal half, so the addition rounds to it.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
    let half = if magnitude < REBIAS + (1 << 23) {
        subnormal
    } else {
        normal
    };
    let half = if magnitude < 0x4780_0000 {
        half
    } else {
        0x7c00
    };
    let half = if magnitude <= 0x7f80_0000 { half } else { nan };
    (sign | half) as u16
}

/// Widens the bits of a `bf16`; exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Rounds to the nearest `bf16`, ties to even; what is too large becomes infinite.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let half = if bits & 0x7fff_ffff > 0x7f80_0000 {
        (bits >> 16) | 0x0040
    } else {
        rounded
    };
    half as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_agrees_with_the_half_crate_for_every_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32_const());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()));
            let (ours, theirs) = (
                bf16_to_f32(bits),
                half::bf16::from_bits(bits).to_f32_const(),
            );
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()));
        }
    }

    #[test]
    fn narrowing_agrees_with_the_half_crate() {
        // Every exponent and sign, and around every place where rounding turns; the odd stride
        // visits all low bits.
        let near = (0..=u16::MAX).flat_map(|high| {
            [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff]
                .map(|low| u32::from(high) << 16 | low)
        });
        let strided = (0..1u32 << 22).map(|i| i.wrapping_mul(1021));
        for bits in near.chain(strided) {
            let value = f32::from_bits(bits);
            assert_eq!(
                f32_to_f16(value),
                half::f16::from_f32_const(value).to_bits(),
                "f16 of {bits:#x}"
            );
            assert_eq!(
                f32_to_bf16(value),
                half::bf16::from_f32_const(value).to_bits(),
                "bf16 of {bits:#x}"
            );
        }
    }
}
