//! Where lines end.

use memchr::memchr_iter;

/// As many bytes are looked at together.
const BLOCK: usize = 64;

/// Calls `found` with the place of every newline, in order.
///
/// A search that begins anew after each newline costs more than half of what a line of usual length
/// costs altogether; this one does not.
pub(crate) fn each_newline(bytes: &[u8], mut found: impl FnMut(usize)) {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for (index, block) in blocks.iter().enumerate() {
        let mut newlines = newlines_of(block);
        while newlines != 0 {
            found(index * BLOCK + newlines.trailing_zeros() as usize);
            newlines &= newlines - 1;
        }
    }
    for newline in memchr_iter(b'\n', rest) {
        found(blocks.len() * BLOCK + newline);
    }
}

/// A bit for each byte, the lowest for the first: whether it is a newline.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a load of 16 bytes has no safe form")]
#[expect(clippy::cast_ptr_alignment, reason = "the load needs no alignment")]
fn newlines_of(block: &[u8; BLOCK]) -> u64 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    let (lanes, _) = block.as_chunks::<16>();
    let mut bits = 0;
    for (index, lane) in lanes.iter().enumerate() {
        // SAFETY: the lane has the 16 bytes that are read, and need not be aligned. Every x86-64
        // processor has these instructions.
        let equal = unsafe {
            let bytes = _mm_loadu_si128(lane.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\n' as i8)))
        };
        bits |= u64::from(equal as u32) << (index * 16);
    }
    bits
}

#[cfg(not(target_arch = "x86_64"))]
fn newlines_of(block: &[u8; BLOCK]) -> u64 {
    memchr_iter(b'\n', block).fold(0, |bits, newline| bits | 1 << newline)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_newline_is_found(bytes in prop::collection::vec(prop_oneof![
            Just(b'\n'), Just(0x0b), Just(0x8a), any::<u8>(),
        ], 0..400), skip in 0_usize..20) {
            let bytes = &bytes[skip.min(bytes.len())..];
            let mut found = Vec::new();
            each_newline(bytes, |newline| found.push(newline));
            prop_assert_eq!(found, memchr_iter(b'\n', bytes).collect::<Vec<_>>());
        }
    }
}
