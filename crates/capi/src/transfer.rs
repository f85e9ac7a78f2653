//! Tensors from one rank to one other.

#![expect(unsafe_code, reason = "functions of a C interface")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header's rules hold for every function"
)]

use std::ffi::{c_int, c_void};

use crate::codes::{carole_dtype_number, dtype};
use crate::memory::{Buffer, index};
use crate::options::carole_options;
use crate::outcome::{Failure, carole_result};
use crate::scope::{Operation, Scope, run};
use crate::session::carole_session;

const SEND: Operation = Operation::moving("send");
const RECV: Operation = Operation::moving("recv");

/// The name under which both ends meet.
fn name<'a>(scope: &Scope<'a>) -> Result<&'a str, Failure> {
    if scope.settings.timeout.is_some() {
        return Err(Failure::invalid(
            "it takes the session's timeout, not one of its own",
        ));
    }
    scope
        .name
        .ok_or_else(|| Failure::invalid("it needs carole_options.name"))
}

/// Sends `count` elements to rank `to` of the group, which receives them with carole_recv under the
/// same name; returns when `tensor` may be used again. `options` must name it; its time limit is
/// the session's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_send(
    session: *const carole_session,
    to: c_int,
    tensor: *const c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    let body = |scope: Scope<'_>| {
        let dtype = self::dtype(dtype)?;
        let to = index(to, "to")?;
        let tensor = Buffer::new(tensor, count, dtype, "tensor")?;
        let name = name(&scope)?;
        // SAFETY: checked above; that the buffer is what it says is the caller's promise.
        Ok(unsafe { scope.group.send_raw(to, name, tensor.pointer, count, dtype) }?)
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { run(session, options, SEND, body) }
}

/// Receives `count` elements that rank `from` of the group sends with carole_send under the same
/// name; type and count must be the sender's. `options` must name it; its time limit is the
/// session's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carole_recv(
    session: *const carole_session,
    from: c_int,
    tensor: *mut c_void,
    count: usize,
    dtype: carole_dtype_number,
    options: *const carole_options,
) -> carole_result {
    let body = |scope: Scope<'_>| {
        let dtype = self::dtype(dtype)?;
        let from = index(from, "from")?;
        let tensor = Buffer::new(tensor, count, dtype, "tensor")?;
        let name = name(&scope)?;
        // SAFETY: checked above; that the buffer is what it says is the caller's promise.
        Ok(unsafe {
            scope
                .group
                .recv_raw(from, name, tensor.pointer, count, dtype)
        }?)
    };
    // SAFETY: the caller keeps the header's rules.
    unsafe { run(session, options, RECV, body) }
}
