//! A value for each member of an operation, without the cost of blank ones.
//!
//! Operations of two members are the most frequent, those of 64 must work: a table has room for
//! all, and touches only what is put into it.

#![expect(unsafe_code, reason = "most of a table is never written")]

use std::mem::MaybeUninit;

use crate::region::MAX_LOCAL;

/// Values by member.
pub(crate) struct MemberTable<T> {
    /// A bit for each member that has a value.
    known: u64,
    values: [MaybeUninit<T>; MAX_LOCAL],
}

impl<T: Copy> MemberTable<T> {
    /// Nobody has a value.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            known: 0,
            values: [const { MaybeUninit::uninit() }; MAX_LOCAL],
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, member: usize, value: T) {
        self.values[member].write(value);
        self.known |= 1 << member;
    }

    /// The member's value.
    ///
    /// # Panics
    ///
    /// When it has none.
    #[inline]
    pub(crate) fn get(&self, member: usize) -> T {
        assert!(self.known >> member & 1 == 1, "a member with a value");
        // SAFETY: the bit is set after the value was written.
        unsafe { self.values[member].assume_init() }
    }

    /// The values of the first `count` members.
    ///
    /// # Panics
    ///
    /// When one of them has none.
    #[inline]
    pub(crate) fn first(&self, count: usize) -> &[T] {
        let wanted = u64::MAX >> (MAX_LOCAL - count.clamp(1, MAX_LOCAL));
        assert!(self.known & wanted == wanted, "members with values");
        let values = &self.values[..count];
        // SAFETY: the bits are set after the values were written, and `MaybeUninit` changes neither
        // size nor alignment.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_found() {
        let mut table = MemberTable::new();
        for member in [1, 0, 63] {
            table.set(member, member * 10);
        }
        assert_eq!((table.get(0), table.get(63)), (0, 630));
        assert_eq!(table.first(2), [0, 10]);
    }

    #[test]
    #[should_panic(expected = "a member with a value")]
    fn what_was_not_set_is_refused() {
        MemberTable::<u32>::new().get(3);
    }
}
