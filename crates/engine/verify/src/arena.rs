//! No tensor of a model lies in an arena.

pub(crate) struct Arena;

impl Arena {
    pub(crate) fn offset_of(&self, _pointer: *mut u8, _bytes: usize) -> Option<u64> {
        None
    }
}
