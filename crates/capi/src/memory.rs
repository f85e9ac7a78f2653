//! Pointers from C, checked as far as a pointer can be: not NULL, aligned, of a length that memory
//! can have, and not overlapping where that is no way to call.
//!
//! That a pointer which passes really points to what it says is the caller's promise.

#![expect(unsafe_code, reason = "pointers from C are read here")]

use std::ffi::{CStr, c_char, c_int, c_void};

use carole_engine::DType;

use crate::outcome::{Failure, carole_result};

fn check<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!(
            "{what} is not aligned to {} bytes",
            align_of::<T>()
        )));
    }
    Ok(())
}

/// Something that C holds a pointer to.
///
/// # Safety
/// The pointer is NULL, or points to a `T` that lives, and is not written, for `'a`.
#[inline]
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    check(pointer, what)?;
    // SAFETY: not NULL and aligned; the rest is the caller's promise.
    Ok(unsafe { &*pointer })
}

/// A place for an answer.
///
/// # Safety
/// The pointer is NULL, or points to a `T` that nobody else uses for `'a`.
#[inline]
pub(crate) unsafe fn out<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    check(pointer, what)?;
    // SAFETY: not NULL and aligned; the rest is the caller's promise.
    Ok(unsafe { &mut *pointer })
}

/// An array; it may be NULL when it has no elements.
///
/// # Safety
/// The pointer is NULL, or points to `count` elements that are not written for `'a`.
pub(crate) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, what)?;
    bytes_of(count, size_of::<T>(), what)?;
    // SAFETY: not NULL, aligned and no longer than memory; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A text in UTF-8.
///
/// # Safety
/// The pointer is NULL, or points to a text that ends with a zero and is not written for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    check(pointer, what)?;
    // SAFETY: not NULL; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// A copy of bytes, and a zero behind them, in memory that C gives back with carole_free.
pub(crate) fn given(bytes: &[u8]) -> Result<*mut c_void, Failure> {
    // SAFETY: malloc has no rules.
    let memory = unsafe { libc::malloc(bytes.len() + 1) };
    if memory.is_null() {
        let message = format!("no memory for {} bytes", bytes.len());
        return Err(Failure::new(carole_result::CAROLE_ERROR_SYSTEM, message));
    }
    let first = memory.cast::<u8>();
    // SAFETY: the memory is new and has room for all bytes and the zero.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
        first.add(bytes.len()).write(0);
    }
    Ok(memory)
}

/// A rank, root or count that C passes as an `int`.
#[inline]
pub(crate) fn index(number: c_int, what: &str) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::invalid(format!("{what} is {number}")))
}

/// `count * each`, when memory can hold it.
#[inline]
pub(crate) fn bytes_of(count: usize, each: usize, what: &str) -> Result<usize, Failure> {
    count
        .checked_mul(each)
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| {
            Failure::invalid(format!(
                "{what} has {count} times {each} bytes, more than memory"
            ))
        })
}

/// A tensor's memory: where it begins and how many bytes it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) pointer: *mut u8,
    pub(crate) bytes: usize,
}

impl Buffer {
    /// `count` elements; a buffer without elements may be NULL.
    #[inline]
    pub(crate) fn new(
        pointer: *const c_void,
        count: usize,
        dtype: DType,
        what: &str,
    ) -> Result<Self, Failure> {
        let bytes = bytes_of(count, dtype.size(), what)?;
        let buffer = Self {
            pointer: pointer.cast_mut().cast(),
            bytes,
        };
        if bytes == 0 {
            return Ok(buffer);
        }
        if pointer.is_null() {
            return Err(Failure::invalid(format!("{what} is NULL")));
        }
        if !pointer.addr().is_multiple_of(dtype.size()) {
            return Err(Failure::invalid(format!(
                "{what} is not aligned to {} bytes, as {dtype} must be",
                dtype.size()
            )));
        }
        if pointer.addr().checked_add(bytes).is_none() {
            return Err(Failure::invalid(format!(
                "{what} reaches past the end of memory"
            )));
        }
        Ok(buffer)
    }

    /// Whether the two have a byte in common.
    #[inline]
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.pointer.addr() < other.pointer.addr() + other.bytes
            && other.pointer.addr() < self.pointer.addr() + self.bytes
    }

    /// Checks that the two are apart, or that `self` lies exactly `offset` bytes into `whole`.
    #[inline]
    pub(crate) fn check_part_of(
        self,
        whole: Self,
        offset: usize,
        rule: &str,
    ) -> Result<(), Failure> {
        if self.overlaps(whole) && self.pointer.addr() != whole.pointer.addr() + offset {
            return Err(Failure::invalid(format!("send and recv overlap: {rule}")));
        }
        Ok(())
    }

    /// Checks that the two are apart.
    pub(crate) fn check_apart(self, other: Self) -> Result<(), Failure> {
        if self.overlaps(other) {
            return Err(Failure::invalid(
                "send and recv overlap: they must be apart",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(address: usize, count: usize) -> Result<Buffer, Failure> {
        Buffer::new(
            std::ptr::without_provenance(address),
            count,
            DType::F32,
            "send",
        )
    }

    #[test]
    fn buffers_that_cannot_be_are_refused() {
        assert!(buffer(0, 1).is_err(), "NULL");
        assert!(buffer(4098, 1).is_err(), "misaligned");
        assert!(buffer(4096, usize::MAX / 2).is_err(), "longer than memory");
        assert!(buffer(usize::MAX - 3, 8).is_err(), "past the end of memory");
        assert!(buffer(0, 0).is_ok(), "nothing may be anywhere");
        assert!(buffer(4099, 0).is_ok(), "nothing may be anywhere");
    }

    #[test]
    fn only_the_own_part_may_overlap() {
        let whole = buffer(4096, 30).unwrap();
        let part = |address| {
            buffer(address, 10)
                .unwrap()
                .check_part_of(whole, 40, "rule")
        };
        assert!(part(4096 + 40).is_ok(), "the own part");
        assert!(part(4096).is_err(), "another's part");
        assert!(part(4096 + 44).is_err(), "across two parts");
        assert!(part(4096 + 120).is_ok(), "behind it");
        assert!(part(4096 - 40).is_ok(), "before it");
        assert!(whole.check_apart(whole).is_err());
    }
}
