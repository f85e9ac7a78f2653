//! Names of operations, as they are matched between ranks.
//!
//! An operation is matched by (group, name, generation), not by call order. The name is folded
//! into 128 bits together with the group; an unnamed operation is named by its group's sequence
//! number. Frames and shared memory carry the generation apart.

/// What two ranks compare to know that they mean the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64, pub(crate) u64);

const NAMED: u64 = 1 << 63;

/// One multiplication whose two halves are folded together.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut buffer = [0u8; 8];
    buffer[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(buffer)
}

/// Two independent 64-bit digests of `bytes`.
fn digest(seed: u64, bytes: &[u8]) -> (u64, u64) {
    let mut first = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut second = seed.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let value = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        first = fold(first ^ value, 0xa076_1d64_78bd_642f).rotate_left(23);
        second = fold(second.wrapping_add(value), 0xe703_7ed1_a0b4_28db).rotate_left(41);
    }
    let last = word(chunks.remainder());
    let length = bytes.len() as u64;
    first = fold(first ^ last, 0x8ebc_6af0_9c88_c6e3 ^ length);
    second = fold(
        second.wrapping_add(last),
        0x5899_65cc_7537_4cc3 ^ length.rotate_left(17),
    );
    (
        fold(first, 0x1d8e_4e27_c47d_124f),
        fold(second, 0xeb44_acca_b455_d165),
    )
}

impl Key {
    /// The key of the operation called `name` in a group.
    pub(crate) fn named(group: u64, name: &str) -> Self {
        let (first, second) = digest(group, name.as_bytes());
        Self(first, second | NAMED)
    }

    /// The key of a group's next unnamed operation.
    #[inline]
    pub(crate) fn unnamed(group: u64, sequence: u64) -> Self {
        Self(group, sequence & !NAMED)
    }

    /// The key of one part of a composed operation.
    pub(crate) fn part(self, stage: u32, piece: u32) -> Self {
        let tag = (u64::from(stage) << 32) | u64::from(piece);
        Self(
            fold(self.0 ^ tag, 0xa076_1d64_78bd_642f) ^ self.1,
            fold(self.1.wrapping_add(tag), 0xe703_7ed1_a0b4_28db) ^ self.0 | NAMED,
        )
    }

    #[inline]
    pub(crate) fn is_named(self) -> bool {
        self.1 & NAMED != 0
    }

    /// A small number on which ranks that use this key agree without talking.
    #[inline]
    pub(crate) fn hint(self) -> usize {
        self.1 as usize
    }
}

/// The identity of a group: its ordered ranks.
pub(crate) fn group_identity(tag: u64, ranks: &[usize]) -> u64 {
    let mut bytes = Vec::with_capacity(ranks.len() * 8);
    for rank in ranks {
        bytes.extend_from_slice(&(*rank as u64).to_le_bytes());
    }
    digest(tag ^ 0x2545_f491_4f6c_dd1d, &bytes).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_groups_give_distinct_keys() {
        let mut seen = HashSet::new();
        for group in 0..20u64 {
            for index in 0..2000 {
                assert!(seen.insert(Key::named(group, &format!("grad/{index}"))));
                assert!(seen.insert(Key::unnamed(group, index)));
                assert!(seen.insert(Key::unnamed(group, index).part(1, 7)));
            }
        }
    }

    #[test]
    fn order_of_ranks_matters_to_a_group() {
        assert_ne!(group_identity(0, &[0, 1, 2]), group_identity(0, &[2, 1, 0]));
        assert_ne!(group_identity(0, &[0, 1]), group_identity(1, &[0, 1]));
    }
}
