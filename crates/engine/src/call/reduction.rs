//! Calls that combine the members' values.

use super::{Call, Element, Prepared, Tables, run_now};
use crate::descriptor::Kind;
use crate::dtype::{DType, ReduceOp};
use crate::error::Result;
use crate::local::transfer::Parts;
use crate::operation::Request;
use crate::span::{Piece, Span};

impl<'a> Call<'a> {
    /// Combines `count` elements of all members; `send` and `recv` may be the same.
    ///
    /// # Safety
    /// Both pointers must be valid for `count` elements until the call is over, equal or disjoint.
    #[inline]
    pub unsafe fn prepare_all_reduce(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        self.check_op(Kind::AllReduce, dtype, op)?;
        let bytes = count * dtype.size();
        Ok(self.prepared(Request {
            kind: Kind::AllReduce,
            dtype,
            op,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes),
            recv: Span::one(recv, bytes),
            send_parts: self.cut(count, dtype),
            ..Request::EMPTY
        }))
    }

    /// Combines the values of all members in place.
    #[inline]
    pub fn all_reduce<T: Element>(self, tensor: &mut [T], op: ReduceOp) -> Result<()> {
        // SAFETY: the slice is borrowed mutably until the call is over.
        run_now(unsafe { self.all_reduce_on(tensor, op) })
    }

    /// # Safety
    /// The slice must stay what it is until the call is over.
    #[inline]
    pub(super) unsafe fn all_reduce_on<T: Element>(
        self,
        tensor: &mut [T],
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        let pointer = tensor.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise.
        unsafe { self.prepare_all_reduce(pointer, pointer, tensor.len(), T::DTYPE, op) }
    }

    /// Combines the values of all members into another slice of the same length.
    pub fn all_reduce_into<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.same_length(Kind::AllReduce, send.len(), recv.len())?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        run_now(unsafe { self.prepare_all_reduce(from, to, send.len(), T::DTYPE, op) })
    }

    /// Combines a list of tensors of one type as if they were one.
    ///
    /// # Safety
    /// All pieces must be valid until the call is over; the i-th pieces of both lists must have
    /// the same length and be equal or disjoint, and no other pieces may overlap.
    pub unsafe fn prepare_all_reduce_list(
        self,
        send: impl Iterator<Item = Piece>,
        recv: impl Iterator<Item = Piece>,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        self.check_op(Kind::AllReduce, dtype, op)?;
        let (send, recv) = (Tables::pieces(send), Tables::pieces(recv));
        let (from, to) = (Span::many(&send), Span::many(&recv));
        if from.bytes() != to.bytes() || from.bytes() % dtype.size() != 0 {
            let problem = format!("lists of {} and {} bytes", from.bytes(), to.bytes());
            return self.invalid(Kind::AllReduce, problem);
        }
        let count = from.bytes() / dtype.size();
        let mut prepared = self.prepared(Request {
            kind: Kind::AllReduce,
            dtype,
            op,
            count: count as u64,
            send: from,
            recv: to,
            send_parts: self.cut(count, dtype),
            ..Request::EMPTY
        });
        prepared.tables = Tables {
            send,
            recv,
            ..Tables::default()
        };
        Ok(prepared)
    }

    /// Combines every tensor of a list in place, in one operation.
    pub fn all_reduce_list<T: Element>(self, tensors: &mut [&mut [T]], op: ReduceOp) -> Result<()> {
        // SAFETY: the slices are borrowed mutably until the call is over.
        run_now(unsafe {
            self.all_reduce_list_on(tensors.iter_mut().map(|tensor| &mut **tensor), op)
        })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn all_reduce_list_on<'t, T: Element>(
        self,
        tensors: impl Iterator<Item = &'t mut [T]>,
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        let piece = |tensor: &mut [T]| Piece {
            pointer: tensor.as_mut_ptr().cast(),
            bytes: size_of_val(tensor),
        };
        let pieces: Vec<Piece> = tensors.map(piece).collect();
        let list = || pieces.iter().copied();
        // SAFETY: the caller's promise, and mutable slices cannot overlap.
        unsafe { self.prepare_all_reduce_list(list(), list(), T::DTYPE, op) }
    }

    /// Combines values at the root; elsewhere `recv` is not touched and may be null.
    ///
    /// # Safety
    /// `send`, and `recv` at the root, must be valid for `count` elements until the call is over,
    /// equal or disjoint.
    pub unsafe fn prepare_reduce(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_op(Kind::Reduce, dtype, op)?;
        self.check_root(Kind::Reduce, root)?;
        let bytes = count * dtype.size();
        let recv = if self.group.rank() == root {
            Span::one(recv, bytes)
        } else {
            Span::EMPTY
        };
        Ok(self.prepared(Request {
            kind: Kind::Reduce,
            dtype,
            op,
            root,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes),
            recv,
            send_parts: self.cut(count, dtype),
            ..Request::EMPTY
        }))
    }

    /// Combines the values of all members in the root's slice; the others' stay as they are.
    pub fn reduce<T: Element>(self, tensor: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        // SAFETY: the slice is borrowed mutably until the call is over.
        run_now(unsafe { self.reduce_on(tensor, op, root) })
    }

    /// # Safety
    /// The slice must stay what it is until the call is over.
    pub(super) unsafe fn reduce_on<T: Element>(
        self,
        tensor: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<Prepared<'a>> {
        let pointer = tensor.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's promise.
        unsafe { self.prepare_reduce(pointer, pointer, tensor.len(), T::DTYPE, op, root) }
    }

    /// Combines all members' values; member `i` keeps the `i`-th part of `count` elements.
    ///
    /// # Safety
    /// `send` must be valid for `count` elements a member, `recv` for `count`, until the call is
    /// over; `recv` may be the own part of `send`, else they must be disjoint.
    pub unsafe fn prepare_reduce_scatter(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        self.check_op(Kind::ReduceScatter, dtype, op)?;
        let bytes = count * dtype.size();
        Ok(self.prepared(Request {
            kind: Kind::ReduceScatter,
            dtype,
            op,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes * self.group.size()),
            recv: Span::one(recv, bytes),
            send_parts: Parts::Equal(bytes),
            ..Request::EMPTY
        }))
    }

    /// Combines all members' values; each keeps its part.
    pub fn reduce_scatter<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.reduce_scatter_on(send, recv, op) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn reduce_scatter_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<Prepared<'a>> {
        self.same_length(
            Kind::ReduceScatter,
            send.len(),
            recv.len() * self.group.size(),
        )?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        unsafe { self.prepare_reduce_scatter(from, to, recv.len(), T::DTYPE, op) }
    }
}
