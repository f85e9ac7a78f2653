//! From C's arguments to the engine's prepared calls.
//!
//! Each function here serves the blocking and the started form of one operation. They check what
//! can be checked before the engine, whose own functions believe their pointers, gets to see it.

#![expect(
    unsafe_code,
    reason = "the engine's raw calls take the caller's buffers"
)]

use std::ffi::{c_int, c_void};

use carole_engine::compress::Codec;
use carole_engine::span::Piece;
use carole_engine::{DType, ReduceOp};

use crate::codes::{carole_dtype_number, carole_op_number, dtype, op};
use crate::memory::{Buffer, array, bytes_of, index};
use crate::options::carole_tensor;
use crate::outcome::Failure;
use crate::scope::{Action, Scope};
use crate::staged::{MixedList, Splits};

const IN_PLACE: &str = "in place, both are the same pointer";
const OWN_PART: &str = "in place, the shorter is this rank's own part of the longer";

impl Scope<'_> {
    /// The elements of all members together.
    fn all_of(&self, count: usize) -> Result<usize, Failure> {
        bytes_of(count, self.group.size(), "the buffer")
    }

    fn root(&self, root: c_int) -> Result<(usize, bool), Failure> {
        let root = index(root, "root")?;
        Ok((root, root == self.group.rank()))
    }

    pub(crate) fn barrier(&self) -> Action<'_> {
        self.call().prepare_barrier().into()
    }

    /// # Safety
    /// The buffers must be valid, and left alone, until the operation is over.
    pub(crate) unsafe fn broadcast(
        &self,
        tensor: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        root: c_int,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let (root, _) = self.root(root)?;
        let tensor = Buffer::new(tensor, count, dtype, "tensor")?;
        // SAFETY: checked above; that the buffer is what it says is the caller's promise.
        let prepared = unsafe {
            self.call()
                .prepare_broadcast(tensor.pointer, count, dtype, root)
        }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    #[inline]
    pub(crate) unsafe fn all_reduce(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        how: carole_op_number,
    ) -> Result<Action<'_>, Failure> {
        let (dtype, op) = (dtype(number)?, op(how)?);
        let send = Buffer::new(send, count, dtype, "send")?;
        let recv = Buffer::new(recv, count, dtype, "recv")?;
        send.check_part_of(recv, 0, IN_PLACE)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_all_reduce(send.pointer, recv.pointer, count, dtype, op) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn reduce(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        how: carole_op_number,
        root: c_int,
    ) -> Result<Action<'_>, Failure> {
        let (dtype, op) = (dtype(number)?, op(how)?);
        let (root, is_root) = self.root(root)?;
        let send = Buffer::new(send, count, dtype, "send")?;
        let recv = Buffer::new(recv, if is_root { count } else { 0 }, dtype, "recv")?;
        send.check_part_of(recv, 0, IN_PLACE)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_reduce(send.pointer, recv.pointer, count, dtype, op, root) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn reduce_scatter(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        how: carole_op_number,
    ) -> Result<Action<'_>, Failure> {
        let (dtype, op) = (dtype(number)?, op(how)?);
        let send = Buffer::new(send, self.all_of(count)?, dtype, "send")?;
        let recv = Buffer::new(recv, count, dtype, "recv")?;
        recv.check_part_of(send, self.group.rank() * recv.bytes, OWN_PART)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_reduce_scatter(send.pointer, recv.pointer, count, dtype, op) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn all_gather(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let send = Buffer::new(send, count, dtype, "send")?;
        let recv = Buffer::new(recv, self.all_of(count)?, dtype, "recv")?;
        send.check_part_of(recv, self.group.rank() * send.bytes, OWN_PART)?;
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared = unsafe {
            self.call()
                .prepare_all_gather(send.pointer, recv.pointer, count, dtype)
        };
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`]; `counts` has one element a member.
    pub(crate) unsafe fn all_gather_v(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        counts: *const usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        // SAFETY: the caller's array has one element a member.
        let counts = unsafe { array(counts, self.group.size(), "counts") }?;
        let rank = self.group.rank();
        let send = Buffer::new(send, counts[rank], dtype, "send")?;
        let recv = Buffer::new(recv, total(counts, "counts")?, dtype, "recv")?;
        let before: usize = counts[..rank].iter().sum();
        send.check_part_of(recv, before * dtype.size(), OWN_PART)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_all_gather_v(send.pointer, recv.pointer, counts, dtype) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn gather(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        root: c_int,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let (root, is_root) = self.root(root)?;
        let all = self.all_of(count)?;
        let send = Buffer::new(send, count, dtype, "send")?;
        let recv = Buffer::new(recv, if is_root { all } else { 0 }, dtype, "recv")?;
        send.check_part_of(recv, self.group.rank() * send.bytes, OWN_PART)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_gather(send.pointer, recv.pointer, count, dtype, root) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn scatter(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
        root: c_int,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let (root, is_root) = self.root(root)?;
        let all = self.all_of(count)?;
        let send = Buffer::new(send, if is_root { all } else { 0 }, dtype, "send")?;
        let recv = Buffer::new(recv, count, dtype, "recv")?;
        recv.check_part_of(send, self.group.rank() * recv.bytes, OWN_PART)?;
        let call = self.call();
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared =
            unsafe { call.prepare_scatter(send.pointer, recv.pointer, count, dtype, root) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn all_to_all(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let all = self.all_of(count)?;
        let send = Buffer::new(send, all, dtype, "send")?;
        let recv = Buffer::new(recv, all, dtype, "recv")?;
        send.check_apart(recv)?;
        // SAFETY: checked above; that the buffers are what they say is the caller's promise.
        let prepared = unsafe {
            self.call()
                .prepare_all_to_all(send.pointer, recv.pointer, count, dtype)
        };
        Ok(prepared.into())
    }

    /// # Safety
    /// The counts have one element a member.
    pub(crate) unsafe fn all_to_all_v(
        &self,
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let size = self.group.size();
        // SAFETY: the caller's array has one element a member.
        let send_counts = unsafe { array(send_counts, size, "send_counts") }?;
        // SAFETY: as above.
        let recv_counts = unsafe { array(recv_counts, size, "recv_counts") }?;
        let send = Buffer::new(send, total(send_counts, "send_counts")?, dtype, "send")?;
        let recv = Buffer::new(recv, total(recv_counts, "recv_counts")?, dtype, "recv")?;
        send.check_apart(recv)?;
        let (send_counts, recv_counts) = (send_counts.to_vec(), recv_counts.to_vec());
        Ok(Action::Several(Box::new(Splits {
            dtype,
            send,
            send_counts,
            recv,
            recv_counts,
        })))
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn send(
        &self,
        to: c_int,
        tensor: *const c_void,
        count: usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let to = index(to, "to")?;
        let tensor = Buffer::new(tensor, count, dtype, "tensor")?;
        let call = self.call();
        // SAFETY: checked above; that the buffer is what it says is the caller's promise.
        let prepared = unsafe { call.prepare_send(to, tensor.pointer, count, dtype) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`].
    pub(crate) unsafe fn recv(
        &self,
        from: c_int,
        tensor: *mut c_void,
        count: usize,
        number: carole_dtype_number,
    ) -> Result<Action<'_>, Failure> {
        let dtype = dtype(number)?;
        let from = index(from, "from")?;
        let tensor = Buffer::new(tensor, count, dtype, "tensor")?;
        let call = self.call();
        // SAFETY: checked above; that the buffer is what it says is the caller's promise.
        let prepared = unsafe { call.prepare_recv(from, tensor.pointer, count, dtype) }?;
        Ok(prepared.into())
    }

    /// # Safety
    /// As for [`Self::broadcast`]; `tensors` has `count` elements.
    pub(crate) unsafe fn all_reduce_list(
        &self,
        tensors: *const carole_tensor,
        count: usize,
        how: carole_op_number,
    ) -> Result<Action<'_>, Failure> {
        let op = op(how)?;
        // SAFETY: the caller's array has `count` elements.
        let tensors = unsafe { array(tensors, count, "tensors") }?;
        let mut types = [false; DType::ALL.len()];
        let mut bytes = 0usize;
        for (place, tensor) in tensors.iter().enumerate() {
            let (dtype, send) = check_tensor(tensor)
                .map_err(|failure| failure.within(&format!("tensors[{place}]")))?;
            types[dtype as usize] |= tensor.count > 0;
            bytes = bytes
                .checked_add(send.bytes)
                .ok_or_else(|| Failure::invalid("the list is longer than memory"))?;
        }
        let mut used = DType::ALL
            .into_iter()
            .filter(|dtype| types[*dtype as usize]);
        let first = used.next().unwrap_or_else(|| {
            // Nothing at all: of the type that the list says, if it says one.
            tensors
                .first()
                .and_then(|tensor| dtype(tensor.dtype).ok())
                .unwrap_or(DType::U8)
        });
        if used.next().is_some() {
            if self.settings.codec != Codec::None {
                return Err(Failure::invalid(
                    "a list with several types of element cannot be compressed",
                ));
            }
            return Ok(Action::Several(Box::new(mixed(tensors, &types, op))));
        }
        let call = self.call();
        let (send, recv) = (
            tensors.iter().map(send_piece),
            tensors.iter().map(recv_piece),
        );
        // SAFETY: checked above; that the buffers are what they say, and that no two tensors
        // overlap, is the caller's promise.
        let prepared = unsafe { call.prepare_all_reduce_list(send, recv, first, op) }?;
        Ok(prepared.into())
    }
}

fn check_tensor(tensor: &carole_tensor) -> Result<(DType, Buffer), Failure> {
    let dtype = dtype(tensor.dtype)?;
    let send = Buffer::new(tensor.send, tensor.count, dtype, "send")?;
    let recv = Buffer::new(tensor.recv, tensor.count, dtype, "recv")?;
    send.check_part_of(recv, 0, IN_PLACE)?;
    Ok((dtype, send))
}

fn mixed(tensors: &[carole_tensor], types: &[bool], op: ReduceOp) -> MixedList {
    let of = |dtype: DType| {
        let of_type = || {
            tensors
                .iter()
                .filter(move |tensor| tensor.dtype == dtype as u32)
        };
        (
            dtype,
            of_type().map(send_piece).collect(),
            of_type().map(recv_piece).collect(),
        )
    };
    let used = DType::ALL
        .into_iter()
        .filter(|dtype| types[*dtype as usize]);
    MixedList {
        op,
        parts: used.map(of).collect(),
    }
}

/// The bytes of a tensor whose type and length have been checked.
fn piece(tensor: &carole_tensor, pointer: *const c_void) -> Piece {
    let each = dtype(tensor.dtype).map_or(0, DType::size);
    Piece {
        pointer: pointer.cast_mut().cast(),
        bytes: tensor.count * each,
    }
}

fn send_piece(tensor: &carole_tensor) -> Piece {
    piece(tensor, tensor.send)
}

fn recv_piece(tensor: &carole_tensor) -> Piece {
    piece(tensor, tensor.recv)
}

/// The sum of counts.
fn total(counts: &[usize], what: &str) -> Result<usize, Failure> {
    counts
        .iter()
        .try_fold(0usize, |sum, count| sum.checked_add(*count))
        .ok_or_else(|| Failure::invalid(format!("{what} add up to more than memory")))
}
