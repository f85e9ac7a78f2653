//! Tensors from one rank to one other.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{c_int, c_void};

use crate::codes::carole_dtype_number;
use crate::options::carole_options;
use crate::outcome::carole_result;
use crate::request::carole_request;
use crate::scope::{Operation, run, start};
use crate::session::carole_session;

const SEND: Operation = Operation::moving("send");
const RECV: Operation = Operation::moving("recv");

/// Sends `count` elements to rank `to` of the group, which receives them with carole_recv under the
/// same name; returns when `tensor` may be used again. `options` must name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_send(
    session: *const carole_session,
    to: c_int,
    tensor: *const c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, SEND, |scope| {
            scope.send(to, tensor, count, dtype)
        })
    }
}

/// Receives `count` elements that rank `from` of the group sends with carole_send under the same
/// name; type and count must be the sender's. `options` must name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_recv(
    session: *const carole_session,
    from: c_int,
    tensor: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        run(session, options, RECV, |scope| {
            scope.recv(from, tensor, count, dtype)
        })
    }
}

/// Starts carole_send. Ranks that start both can send to one another at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_send(
    session: *const carole_session,
    to: c_int,
    tensor: *const c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, SEND, |scope| {
            scope.send(to, tensor, count, dtype)
        })
    }
}

/// Starts carole_recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_start_recv(
    session: *const carole_session,
    from: c_int,
    tensor: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
    request: *mut *mut carole_request,
) -> carole_result {
    // SAFETY: the caller keeps the header's rules.
    unsafe {
        start(session, options, request, RECV, |scope| {
            scope.recv(from, tensor, count, dtype)
        })
    }
}
