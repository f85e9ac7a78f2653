//! The plain loops: a block of elements at a time, held in the nearest cache between sources.
//!
//! Each loop walks one source over the whole block, which is the shape compilers turn into vectors
//! for whatever instruction set they compile for. Everything here is inlined into a function
//! of that instruction set.

use std::mem::MaybeUninit;

use super::combine::Combine;
use super::element::{Element, Factors};
use super::{Instructions, Job, Store, stream};

/// Elements of a block: at most 2 KiB held wide.
const BLOCK: usize = 256;

/// A block's results on their way to a streaming destination.
#[repr(align(64))]
struct Aligned<T>([MaybeUninit<T>; BLOCK]);

/// Runs a whole job.
///
/// # Safety
///
/// As [`Instructions::plain`].
#[inline(always)]
pub(super) unsafe fn reduce<I, E, O, const SCALED: bool>(job: Job<'_>)
where
    I: Instructions,
    E: Element,
    O: Combine<E::Wide>,
{
    let mut from = 0;
    while from < job.count {
        let until = job.count.min(from + BLOCK);
        // SAFETY: elements `from..until` are within the job, at most a block of them.
        unsafe { part::<I, E, O, SCALED>(job, from, until - from) }
        from = until;
    }
}

/// Runs `length` elements of a job, at most a block, from element `from` on.
///
/// # Safety
///
/// As [`Instructions::part`].
#[inline(always)]
pub(super) unsafe fn part<I, E, O, const SCALED: bool>(job: Job<'_>, from: usize, length: usize)
where
    I: Instructions,
    E: Element,
    O: Combine<E::Wide>,
{
    debug_assert!(length <= BLOCK && from + length <= job.count);
    let mut wide = [const { MaybeUninit::<E::Wide>::uninit() }; BLOCK];
    let wide = wide.as_mut_ptr().cast::<E::Wide>();
    let [first, others @ ..] = job.sources else {
        return;
    };
    // SAFETY: `from..from + length` is within every source and destination, and a block has room
    // for `length` elements; all of them are written from the first source before they are read.
    unsafe {
        let first = first.cast::<E>().add(from);
        for index in 0..length {
            wide.add(index)
                .write(read::<E, SCALED>(first.add(index), job.factors));
        }
        for other in others {
            let other = other.cast::<E>().add(from);
            for index in 0..length {
                let value = read::<E, SCALED>(other.add(index), job.factors);
                wide.add(index)
                    .write(O::combine(wide.add(index).read(), value));
            }
        }
        for destination in job.destinations {
            let target = destination.pointer.cast::<E>().add(from);
            if destination.store == Store::Cached {
                write::<E, SCALED>(target, wide, length, job.factors);
            } else {
                let mut results = Aligned::<E>([const { MaybeUninit::uninit() }; BLOCK]);
                let results = results.0.as_mut_ptr().cast::<E>();
                write::<E, SCALED>(results, wide, length, job.factors);
                let bytes = length * size_of::<E>();
                stream::copy(
                    I::IMPLEMENTATION,
                    target.cast(),
                    results.cast(),
                    bytes,
                    Store::Streaming,
                );
            }
        }
    }
}

/// Reads one element.
///
/// # Safety
///
/// It is readable.
#[inline(always)]
unsafe fn read<E: Element, const SCALED: bool>(from: *const E, factors: Factors) -> E::Wide {
    // SAFETY: the caller's promise.
    let value = unsafe { from.read_unaligned() }.widen();
    if SCALED {
        E::before(value, factors)
    } else {
        value
    }
}

/// Writes a block's results.
///
/// # Safety
///
/// `wide` is readable and `to` writable for `length` elements.
#[inline(always)]
unsafe fn write<E: Element, const SCALED: bool>(
    to: *mut E,
    wide: *const E::Wide,
    length: usize,
    factors: Factors,
) {
    for index in 0..length {
        // SAFETY: `index` is below `length`.
        unsafe {
            let value = wide.add(index).read();
            let value = if SCALED {
                E::after(value, factors)
            } else {
                value
            };
            to.add(index).write_unaligned(E::narrow(value));
        }
    }
}
