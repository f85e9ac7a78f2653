//! Collectives that return at once, with a handle.
//!
//! Each function prepares what its blocking twin in [`collective`](crate::collective) prepares.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{c_int, c_void};

use crate::codes::{carole_dtype_number, carole_op_number};
use crate::collective::{
    ALL_GATHER, ALL_GATHER_V, ALL_REDUCE, ALL_REDUCE_LIST, ALL_TO_ALL, ALL_TO_ALL_V, BARRIER,
    BROADCAST, GATHER, REDUCE, REDUCE_SCATTER, SCATTER,
};
use crate::options::{carole_options, carole_tensor};
use crate::outcome::carole_result;
use crate::request::carole_request;
use crate::scope::start;
use crate::session::carole_session;

/// A barrier that does not hold the caller up: it is over when all ranks of the group have started
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_barrier(
    session: *const carole_session,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, BARRIER, |scope| {
            Ok(scope.barrier())
        })
    }
}

/// Starts carole_broadcast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_broadcast(
    session: *const carole_session,
    tensor: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, BROADCAST, |scope| {
            scope.broadcast(tensor, count, dtype, root)
        })
    }
}

/// Starts carole_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_reduce(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    root: c_int,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, REDUCE, |scope| {
            scope.reduce(send, recv, count, dtype, op, root)
        })
    }
}

/// Starts carole_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_reduce(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_REDUCE, |scope| {
            scope.all_reduce(send, recv, count, dtype, op)
        })
    }
}

/// Starts carole_all_reduce_list. A list with tensors of several types needs a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_reduce_list(
    session: *const carole_session,
    tensors: *const carole_tensor,
    count: usize,
    op: carole_op_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_REDUCE_LIST, |scope| {
            scope.all_reduce_list(tensors, count, op)
        })
    }
}

/// Starts carole_reduce_scatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_reduce_scatter(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    op: carole_op_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, REDUCE_SCATTER, |scope| {
            scope.reduce_scatter(send, recv, count, dtype, op)
        })
    }
}

/// Starts carole_all_gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_gather(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_GATHER, |scope| {
            scope.all_gather(send, recv, count, dtype)
        })
    }
}

/// Starts carole_all_gather_v.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_gather_v(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_GATHER_V, |scope| {
            scope.all_gather_v(send, recv, counts, dtype)
        })
    }
}

/// Starts carole_gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_gather(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, GATHER, |scope| {
            scope.gather(send, recv, count, dtype, root)
        })
    }
}

/// Starts carole_scatter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_scatter(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    root: c_int,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, SCATTER, |scope| {
            scope.scatter(send, recv, count, dtype, root)
        })
    }
}

/// Starts carole_all_to_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_to_all(
    session: *const carole_session,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_TO_ALL, |scope| {
            scope.all_to_all(send, recv, count, dtype)
        })
    }
}

/// Starts carole_all_to_all_v. It needs a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_all_to_all_v(
    session: *const carole_session,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, ALL_TO_ALL_V, |scope| {
            scope.all_to_all_v(send, send_counts, recv, recv_counts, dtype)
        })
    }
}
