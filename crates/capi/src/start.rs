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
use crate::prepare::List;
use crate::request::carole_request;
use crate::scope::{Scope, start};
use crate::session::carole_session;

/// A barrier that does not hold the caller up: it is over when all ranks of the group have started
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_barrier(
    session: *const carole_session,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    let body = |scope: Scope<'_>| Ok(scope.give(scope.barrier().start()?));
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, BARRIER, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.broadcast(tensor, count, dtype, root) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, BROADCAST, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.reduce(send, recv, count, dtype, op, root) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, REDUCE, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.all_reduce(send, recv, count, dtype, op) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_REDUCE, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        match unsafe { scope.all_reduce_list(tensors, count, op) }? {
            List::Uniform(prepared) => Ok(scope.give(prepared.start()?)),
            List::Mixed(plan) => scope.start_plan(plan),
        }
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_REDUCE_LIST, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.reduce_scatter(send, recv, count, dtype, op) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, REDUCE_SCATTER, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.all_gather(send, recv, count, dtype) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_GATHER, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.all_gather_v(send, recv, counts, dtype) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_GATHER_V, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.gather(send, recv, count, dtype, root) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, GATHER, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.scatter(send, recv, count, dtype, root) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, SCATTER, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        Ok(scope.give(unsafe { scope.all_to_all(send, recv, count, dtype) }?.start()?))
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_TO_ALL, body) }
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
    let body = |scope: Scope<'_>| {
        // SAFETY: the caller keeps the header's rules.
        let plan = unsafe { scope.all_to_all_v(send, send_counts, recv, recv_counts, dtype) }?;
        scope.start_plan(plan)
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { start(session, options, request, ALL_TO_ALL_V, body) }
}
