//! The loops by hand: a few vectors of elements at a time, held in registers from the first source
//! to the last destination, so that every byte is loaded once and stored once.

use super::combine::FloatCombine;
use super::element::{Factors, Float};
use super::vector::{UNROLL, Vector, prefetch};
use super::{Destination, Instructions, Job, Store};

/// A cache line; streaming destinations are brought to this boundary.
const LINE: usize = 64;

/// Below this many bytes, aligning costs more than it saves and nothing is streamed.
const ALIGN_FROM: usize = 1024;

/// How far ahead sources are asked for, in bytes: about one step. On Zen 4 that gains up to a tenth
/// out of cache and costs nothing in cache; further ahead loses.
const AHEAD: usize = 256;

/// Runs a whole job, with loops unrolled for the numbers of sources and destinations that
/// collectives have most.
///
/// # Safety
///
/// As [`Instructions::float`], and `V` is the instruction set's vector of `E`.
#[inline(always)]
pub(super) unsafe fn reduce<I, E, V, O, const SCALED: bool>(job: Job<'_>)
where
    I: Instructions,
    E: Float,
    V: Vector,
    O: FloatCombine<E>,
{
    // SAFETY: the caller's promise.
    unsafe {
        match (job.sources.len(), job.destinations.len()) {
            (2, 1) => sweep::<I, E, V, O, SCALED, 2, 1>(job),
            (2, 2) => sweep::<I, E, V, O, SCALED, 2, 2>(job),
            _ => sweep::<I, E, V, O, SCALED, 0, 0>(job),
        }
    }
}

/// Runs a whole job. `SOURCES` and `DESTINATIONS` are their numbers where they are known, so that
/// the loops over them vanish, and zero where they are not.
///
/// # Safety
///
/// As [`reduce`].
#[inline(always)]
unsafe fn sweep<I, E, V, O, const SCALED: bool, const SOURCES: usize, const DESTINATIONS: usize>(
    job: Job<'_>,
) where
    I: Instructions,
    E: Float,
    V: Vector,
    O: FloatCombine<E>,
{
    let sources = if SOURCES == 0 {
        job.sources
    } else {
        &job.sources[..SOURCES]
    };
    let destinations = if DESTINATIONS == 0 {
        job.destinations
    } else {
        &job.destinations[..DESTINATIONS]
    };
    let size = size_of::<E>();
    let lanes = V::BYTES / size;
    let mut from = 0;
    let mut streaming = 0;
    // SAFETY: no step goes beyond the job's count, and a head is shorter than a line and so than
    // a block; memory and processor are the caller's promise.
    unsafe {
        if job.count * size >= ALIGN_FROM {
            from = elements_to_boundary(destinations, size);
            if from > 0 {
                I::part::<E, O, SCALED>(job, 0, from);
            }
            streaming = streamable(destinations, from * size);
        }
        while from + UNROLL * lanes <= job.count {
            for source in sources {
                for line in (0..UNROLL * V::BYTES).step_by(LINE) {
                    // It may point beyond the end.
                    prefetch(source.wrapping_add(from * size + AHEAD + line));
                }
            }
            step::<E, V, O, SCALED, UNROLL>(
                destinations,
                sources,
                from * size,
                streaming,
                job.factors,
            );
            from += UNROLL * lanes;
        }
        while from + lanes <= job.count {
            step::<E, V, O, SCALED, 1>(destinations, sources, from * size, 0, job.factors);
            from += lanes;
        }
        if from < job.count {
            I::part::<E, O, SCALED>(job, from, job.count - from);
        }
    }
}

/// Elements until the destination that gains most from it lies on a boundary; zero where whole
/// elements never get there.
#[inline(always)]
fn elements_to_boundary(destinations: &[Destination], size: usize) -> usize {
    let lead = destinations
        .iter()
        .find(|destination| destination.store == Store::Streaming)
        .unwrap_or(&destinations[0]);
    let bytes = lead.pointer.addr().wrapping_neg() % LINE;
    if bytes.is_multiple_of(size) {
        bytes / size
    } else {
        0
    }
}

/// The destinations that are to be streamed and lie on a boundary at `offset`, one bit each.
#[inline(always)]
fn streamable(destinations: &[Destination], offset: usize) -> u64 {
    destinations
        .iter()
        .enumerate()
        .fold(0, |bits, (index, destination)| {
            let aligned = (destination.pointer.addr() + offset).is_multiple_of(LINE);
            bits | u64::from(aligned && destination.store == Store::Streaming) << index
        })
}

/// Combines `WIDTH` vectors at byte `at`. All sources are loaded before anything is stored, so
/// a destination may be a source.
///
/// # Safety
///
/// As [`reduce`]; the vectors are within the job's memory, and the destinations whose bit is set in
/// `streaming` lie on a boundary at `at`.
#[inline(always)]
unsafe fn step<E, V, O, const SCALED: bool, const WIDTH: usize>(
    destinations: &[Destination],
    sources: &[*const u8],
    at: usize,
    streaming: u64,
    factors: Factors,
) where
    E: Float,
    V: Vector,
    O: FloatCombine<E>,
{
    // SAFETY: the caller's promise.
    unsafe {
        let before = V::splat(factors.before);
        let mut values = [before; WIDTH];
        for (index, value) in values.iter_mut().enumerate() {
            *value = load::<V, SCALED>(sources[0].add(at + index * V::BYTES), before);
        }
        for source in &sources[1..] {
            for (index, value) in values.iter_mut().enumerate() {
                let next = load::<V, SCALED>(source.add(at + index * V::BYTES), before);
                *value = O::combine_vectors(*value, next);
            }
        }
        if SCALED {
            let after = V::splat(factors.after);
            for value in &mut values {
                *value = V::multiply(*value, after);
            }
        }
        for (number, destination) in destinations.iter().enumerate() {
            let to = destination.pointer.add(at);
            if streaming >> number & 1 == 1 {
                for (index, value) in values.iter().enumerate() {
                    value.stream(to.add(index * V::BYTES));
                }
            } else {
                for (index, value) in values.iter().enumerate() {
                    value.store(to.add(index * V::BYTES));
                }
            }
        }
    }
}

/// Loads one vector of a source.
///
/// # Safety
///
/// As [`super::vector::Register::load`].
#[inline(always)]
unsafe fn load<V: Vector, const SCALED: bool>(from: *const u8, before: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let value = V::load(from);
        if SCALED {
            V::multiply(value, before)
        } else {
            value
        }
    }
}
