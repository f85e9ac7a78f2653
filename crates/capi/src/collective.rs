//! Collectives that return when they are done.
//!
//! Each function prepares, in `prepare`, what its started twin in [`start`](crate::start) prepares
//! too, and runs it on the caller's thread.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{c_int, c_void};

use crate::codes::{carole_dtype_number, carole_op_number};
use crate::memory::{array, out};
use crate::options::{carole_options, carole_tensor};
use crate::outcome::carole_result;
use crate::scope::{Operation, Scope, run, within};
use crate::session::carole_session;

pub(crate) const BARRIER: Operation = Operation::moving("barrier");
pub(crate) const BROADCAST: Operation = Operation::moving("broadcast").following();
pub(crate) const REDUCE: Operation = Operation::reducing("reduce");
pub(crate) const ALL_REDUCE: Operation =
    Operation::reducing("all_reduce").following().compressing();
pub(crate) const ALL_REDUCE_LIST: Operation = Operation::reducing("all_reduce_list")
    .following()
    .compressing();
pub(crate) const REDUCE_SCATTER: Operation = Operation::reducing("reduce_scatter");
pub(crate) const ALL_GATHER: Operation = Operation::moving("all_gather");
pub(crate) const ALL_GATHER_V: Operation = Operation::moving("all_gather_v");
pub(crate) const GATHER: Operation = Operation::moving("gather");
pub(crate) const SCATTER: Operation = Operation::moving("scatter");
pub(crate) const ALL_TO_ALL: Operation = Operation::moving("all_to_all");
pub(crate) const ALL_TO_ALL_V: Operation = Operation::moving("all_to_all_v");
const CONSENSUS: Operation = Operation::moving("consensus");

/// Everybody waits for everybody: returns when all ranks of the group have called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_barrier(
    session: *const carole_session,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe { run(session, options, BARRIER, |scope| Ok(scope.barrier())) }
}

/// The root's `count` elements reach everybody.
///
/// In place: `tensor` is read at the root and written elsewhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_broadcast(
    session: *const carole_session,
    tensor: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, BROADCAST, |scope| {
            scope.broadcast(tensor, count, dtype, root)
        })
    }
}

/// Combines the `count` elements of all ranks at the root. `recv` is used at the root only and may
/// be NULL elsewhere.
///
/// In place: at the root `recv` may be `send`; otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_reduce(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    root: c_int,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, REDUCE, |scope| {
            scope.reduce(send, recv, count, dtype, op, root)
        })
    }
}

/// Combines the `count` elements of all ranks; every rank gets the result, and every rank the same
/// bits.
///
/// In place: `recv` may be `send`; otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_reduce(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_REDUCE, |scope| {
            scope.all_reduce(send, recv, count, dtype, op)
        })
    }
}

/// Combines a list of `count` tensors as carole_all_reduce does each, in one operation for each
/// type of element among them. All ranks pass lists with as many elements of each type, in the same
/// order.
///
/// In place: each tensor's `recv` may be its `send`; otherwise no memory of the list may overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_reduce_list(
    session: *const carole_session,
    tensors: *const carole_tensor,
    count: usize,
    op: carole_op_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_REDUCE_LIST, |scope| {
            scope.all_reduce_list(tensors, count, op)
        })
    }
}

/// Combines the ranks' `send`, which has `count` elements for each rank; rank i of the group gets
/// the i-th part of the result in `recv`, which has `count` elements.
///
/// In place: `recv` may be this rank's own part of `send`, that is send + rank * count elements;
/// otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_reduce_scatter(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, REDUCE_SCATTER, |scope| {
            scope.reduce_scatter(send, recv, count, dtype, op)
        })
    }
}

/// Everybody gets everybody's `count` elements: those of rank i of the group become the i-th part of
/// `recv`, which has `count` elements for each rank.
///
/// In place: `send` may be this rank's own part of `recv`, that is recv + rank * count elements;
/// otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_gather(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_GATHER, |scope| {
            scope.all_gather(send, recv, count, dtype)
        })
    }
}

/// As carole_all_gather, with parts of different lengths: rank i of the group sends counts[i]
/// elements. `counts` has one number for each rank and is the same everywhere; the parts follow one
/// another in `recv`.
///
/// In place: `send` may be this rank's own part of `recv`; otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_gather_v(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_GATHER_V, |scope| {
            scope.all_gather_v(send, recv, counts, dtype)
        })
    }
}

/// The root gets everybody's `count` elements, as carole_all_gather orders them. `recv` is used at
/// the root only and may be NULL elsewhere.
///
/// In place: the root's `send` may be its own part of `recv`; otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_gather(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, GATHER, |scope| {
            scope.gather(send, recv, count, dtype, root)
        })
    }
}

/// Rank i of the group gets the i-th part of the root's `send`, which has `count` elements for each
/// rank. `send` is used at the root only and may be NULL elsewhere.
///
/// In place: the root's `recv` may be its own part of `send`; otherwise they must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_scatter(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, SCATTER, |scope| {
            scope.scatter(send, recv, count, dtype, root)
        })
    }
}

/// Rank i of the group sends the j-th part of its `send` to rank j, where it becomes the i-th part
/// of `recv`. Both have `count` elements for each rank.
///
/// Not in place: `send` and `recv` must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_to_all(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_TO_ALL, |scope| {
            scope.all_to_all(send, recv, count, dtype)
        })
    }
}

/// As carole_all_to_all, with parts of different lengths: this rank sends send_counts[j] elements to
/// rank j of the group and gets recv_counts[j] from it; the parts follow one another. The ranks
/// compare their counts before data moves.
///
/// Not in place: `send` and `recv` must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_all_to_all_v(
    session: *const carole_session,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, ALL_TO_ALL_V, |scope| {
            scope.all_to_all_v(send, send_counts, recv, recv_counts, dtype)
        })
    }
}

/// Do all ranks hold the same `length` bytes? *same becomes 1 or 0, alike on every rank. Ranks may
/// differ in `length`: then they do not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_consensus(
    session: *const carole_session,
    bytes: *const c_void,
    length: usize,
    same: *mut c_int,
    options: *const carole_options,
) -> carole_result {
    let body = |scope: &Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        let bytes = unsafe { array(bytes.cast::<u8>(), length, "bytes") }?;
        // SAFETY: the caller passes a place for the answer, or NULL.
        let same = unsafe { out(same, "same") }?;
        *same = c_int::from(scope.call().consensus(bytes)?);
        Ok(())
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { within(session, options, CONSENSUS, body) }
}
