//! Calls that move values from member to member, unchanged.

use super::{Call, Element, Prepared, run_now};
use crate::compress::Codec;
use crate::descriptor::Kind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::Scale;
use crate::local::transfer::Parts;
use crate::operation::Request;
use crate::span::Span;

impl<'a> Call<'a> {
    /// The root's `count` elements reach everybody, in place.
    ///
    /// # Safety
    /// The pointer must be valid for `count` elements until the call is over.
    pub unsafe fn prepare_broadcast(
        self,
        pointer: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_root(Kind::Broadcast, root)?;
        let span = Span::one(pointer, count * dtype.size());
        Ok(self.prepared(Request {
            kind: Kind::Broadcast,
            dtype,
            root,
            count: count as u64,
            send: span,
            recv: span,
            ..Request::EMPTY
        }))
    }

    /// The root's values reach everybody.
    pub fn broadcast<T: Element>(self, tensor: &mut [T], root: usize) -> Result<()> {
        // SAFETY: the slice is borrowed mutably until the call is over.
        run_now(unsafe { self.broadcast_on(tensor, root) })
    }

    /// # Safety
    /// The slice must stay what it is until the call is over.
    pub(super) unsafe fn broadcast_on<T: Element>(
        self,
        tensor: &mut [T],
        root: usize,
    ) -> Result<Prepared<'a>> {
        let pointer = tensor.as_mut_ptr().cast();
        // SAFETY: the caller's promise.
        unsafe { self.prepare_broadcast(pointer, tensor.len(), T::DTYPE, root) }
    }

    /// Everybody gets everybody's `count` elements.
    ///
    /// # Safety
    /// `send` must be valid for `count` elements and `recv` for `count` a member until the call
    /// is over; `send` may be the own part of `recv`, else they must be disjoint.
    pub unsafe fn prepare_all_gather(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
    ) -> Prepared<'a> {
        let bytes = count * dtype.size();
        self.prepared(Request {
            kind: Kind::AllGather,
            dtype,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes),
            recv: Span::one(recv, bytes * self.group.size()),
            recv_parts: Parts::Equal(bytes),
            ..Request::EMPTY
        })
    }

    /// Everybody gets everybody's values.
    pub fn all_gather<T: Element>(self, send: &[T], recv: &mut [T]) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.all_gather_on(send, recv) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn all_gather_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
    ) -> Result<Prepared<'a>> {
        self.same_length(Kind::AllGather, send.len() * self.group.size(), recv.len())?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        Ok(unsafe { self.prepare_all_gather(from, to, send.len(), T::DTYPE) })
    }

    /// Everybody gets everybody's values; member `i` sends `counts[i]` elements.
    ///
    /// # Safety
    /// As for [`Self::prepare_all_gather`], with the lengths that `counts` tells.
    pub unsafe fn prepare_all_gather_v(
        self,
        send: *const u8,
        recv: *mut u8,
        counts: &[usize],
        dtype: DType,
    ) -> Result<Prepared<'a>> {
        let recv_parts = self.parts(Kind::AllGatherV, counts, dtype)?;
        let own = recv_parts[self.group.rank()].1;
        let total = recv_parts
            .last()
            .map_or(0, |(offset, bytes)| offset + bytes);
        let mut prepared = self.prepared(Request {
            kind: Kind::AllGatherV,
            dtype,
            count: (own / dtype.size()) as u64,
            send: Span::one(send.cast_mut(), own),
            recv: Span::one(recv, total),
            recv_parts: Parts::Table(recv_parts.as_ptr()),
            ..Request::EMPTY
        });
        // All members must hold the same counts.
        prepared.request.settings ^= counts_digest(counts);
        prepared.tables.recv_parts = recv_parts;
        Ok(prepared)
    }

    /// Everybody gets everybody's values; member `i` sends `counts[i]` elements.
    pub fn all_gather_v<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.all_gather_v_on(send, recv, counts) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn all_gather_v_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<Prepared<'a>> {
        self.parts(Kind::AllGatherV, counts, T::DTYPE)?;
        let own = counts[self.group.rank()];
        self.same_length(Kind::AllGatherV, send.len(), own)?;
        self.same_length(Kind::AllGatherV, counts.iter().sum(), recv.len())?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        unsafe { self.prepare_all_gather_v(from, to, counts, T::DTYPE) }
    }

    /// The root gets everybody's `count` elements; elsewhere `recv` may be null.
    ///
    /// # Safety
    /// As for [`Self::prepare_all_gather`], `recv` only at the root.
    pub unsafe fn prepare_gather(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_root(Kind::Gather, root)?;
        let bytes = count * dtype.size();
        let is_root = self.group.rank() == root;
        let recv = if is_root {
            Span::one(recv, bytes * self.group.size())
        } else {
            Span::EMPTY
        };
        Ok(self.prepared(Request {
            kind: Kind::Gather,
            dtype,
            root,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes),
            recv,
            recv_parts: Parts::Equal(bytes),
            ..Request::EMPTY
        }))
    }

    /// The root gets everybody's values; elsewhere `recv` may be empty.
    pub fn gather<T: Element>(self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.gather_on(send, recv, root) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn gather_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<Prepared<'a>> {
        if self.group.rank() == root {
            self.same_length(Kind::Gather, send.len() * self.group.size(), recv.len())?;
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        unsafe { self.prepare_gather(from, to, send.len(), T::DTYPE, root) }
    }

    /// Member `i` gets the root's `i`-th part of `count` elements; elsewhere `send` may be null.
    ///
    /// # Safety
    /// `recv` must be valid for `count` elements and the root's `send` for `count` a member until
    /// the call is over; the root's `recv` may be its own part, else they must be disjoint.
    pub unsafe fn prepare_scatter(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_root(Kind::Scatter, root)?;
        let bytes = count * dtype.size();
        let is_root = self.group.rank() == root;
        let total = bytes * self.group.size();
        let send = if is_root {
            Span::one(send.cast_mut(), total)
        } else {
            Span::EMPTY
        };
        Ok(self.prepared(Request {
            kind: Kind::Scatter,
            dtype,
            root,
            count: count as u64,
            send,
            recv: Span::one(recv, bytes),
            send_parts: Parts::Equal(bytes),
            ..Request::EMPTY
        }))
    }

    /// Member `i` gets the `i`-th part of the root's values; elsewhere `send` may be empty.
    pub fn scatter<T: Element>(self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.scatter_on(send, recv, root) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn scatter_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<Prepared<'a>> {
        if self.group.rank() == root {
            self.same_length(Kind::Scatter, send.len(), recv.len() * self.group.size())?;
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        unsafe { self.prepare_scatter(from, to, recv.len(), T::DTYPE, root) }
    }

    /// Member `i` sends its `j`-th part of `count` elements to member `j`.
    ///
    /// # Safety
    /// Both pointers must be valid for `count` elements a member until the call is over, and
    /// disjoint.
    pub unsafe fn prepare_all_to_all(
        self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
    ) -> Prepared<'a> {
        let bytes = count * dtype.size();
        self.prepared(Request {
            kind: Kind::AllToAll,
            dtype,
            count: count as u64,
            send: Span::one(send.cast_mut(), bytes * self.group.size()),
            recv: Span::one(recv, bytes * self.group.size()),
            send_parts: Parts::Equal(bytes),
            recv_parts: Parts::Equal(bytes),
            ..Request::EMPTY
        })
    }

    /// Everybody sends a part to everybody.
    pub fn all_to_all<T: Element>(self, send: &[T], recv: &mut [T]) -> Result<()> {
        // SAFETY: both slices are borrowed until the call is over.
        run_now(unsafe { self.all_to_all_on(send, recv) })
    }

    /// # Safety
    /// The slices must stay what they are until the call is over.
    pub(super) unsafe fn all_to_all_on<T: Element>(
        self,
        send: &[T],
        recv: &mut [T],
    ) -> Result<Prepared<'a>> {
        self.same_length(Kind::AllToAll, send.len(), recv.len())?;
        let size = self.group.size();
        if !send.len().is_multiple_of(size) {
            let problem = format!("{} elements do not divide among {size} ranks", send.len());
            return self.invalid(Kind::AllToAll, problem);
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: the caller's promise, and slices of which one is mutable cannot overlap.
        Ok(unsafe { self.prepare_all_to_all(from, to, send.len() / size, T::DTYPE) })
    }

    /// Member `i` sends `send_counts[j]` elements to member `j` and gets `recv_counts[j]`.
    ///
    /// # Safety
    /// The pointers must be valid for the sums of the counts until the call is over, and disjoint.
    pub unsafe fn prepare_all_to_all_v(
        self,
        send: *const u8,
        send_counts: &[usize],
        recv: *mut u8,
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<Prepared<'a>> {
        let send_parts = self.parts(Kind::AllToAllV, send_counts, dtype)?;
        let recv_parts = self.parts(Kind::AllToAllV, recv_counts, dtype)?;
        let total = |parts: &[(usize, usize)]| parts.last().map_or(0, |(at, bytes)| at + bytes);
        let mut prepared = self.prepared(Request {
            kind: Kind::AllToAllV,
            dtype,
            count: (total(&send_parts) / dtype.size()) as u64,
            send: Span::one(send.cast_mut(), total(&send_parts)),
            recv: Span::one(recv, total(&recv_parts)),
            send_parts: Parts::Table(send_parts.as_ptr()),
            recv_parts: Parts::Table(recv_parts.as_ptr()),
            ..Request::EMPTY
        });
        prepared.tables.send_parts = send_parts;
        prepared.tables.recv_parts = recv_parts;
        Ok(prepared)
    }

    /// Everybody sends a part of its own length to everybody.
    ///
    /// The lengths are exchanged first: where they do not fit, every member gets an error.
    pub fn all_to_all_v<T: Element>(
        self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<()> {
        self.same_length(Kind::AllToAllV, send_counts.iter().sum(), send.len())?;
        self.same_length(Kind::AllToAllV, recv_counts.iter().sum(), recv.len())?;
        self.check_splits(send_counts, recv_counts)?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        run_now(unsafe { self.prepare_all_to_all_v(from, send_counts, to, recv_counts, T::DTYPE) })
    }

    /// Compares what members send one another with what they expect, before data moves.
    pub fn check_splits(self, send_counts: &[usize], recv_counts: &[usize]) -> Result<()> {
        self.parts(Kind::AllToAllV, send_counts, DType::U8)?;
        self.parts(Kind::AllToAllV, recv_counts, DType::U8)?;
        let mine = splits_row(send_counts, recv_counts);
        let mut rows = vec![0u64; mine.len() * self.group.size()];
        let name = self.name.map(splits_name);
        let call = Call {
            name: name.as_deref(),
            scale: Scale::NONE,
            topology: None,
            codec: Codec::None,
            ..self
        };
        call.all_gather(&mine, &mut rows)?;
        self.compare_splits(&rows)
    }

    /// The second half of [`Self::check_splits`], for whoever gathers the members' rows itself: each
    /// is a [`splits_row`], gathered under [`splits_name`] where the call has a name.
    pub fn compare_splits(&self, rows: &[u64]) -> Result<()> {
        let size = self.group.size();
        let ranks = &self.group.group.ranks;
        for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
            let sent = rows[from * 2 * size + to];
            let expected = rows[to * 2 * size + size + from];
            if sent != expected {
                let (from, to) = (ranks[from], ranks[to]);
                return Err(Error::Mismatch {
                    operation: self.describe(Kind::AllToAllV),
                    details: format!(
                        "rank {from} sends {sent} elements to rank {to}, which expects {expected}"
                    ),
                });
            }
        }
        Ok(())
    }
}

/// What a member tells the others about an all-to-all: what it sends each, then what it expects.
pub fn splits_row(send_counts: &[usize], recv_counts: &[usize]) -> Vec<u64> {
    let counts = send_counts.iter().chain(recv_counts);
    counts.map(|count| *count as u64).collect()
}

/// The name under which the rows of the all-to-all `name` are gathered.
pub fn splits_name(name: &str) -> String {
    format!("{name}/splits")
}

fn counts_digest(counts: &[usize]) -> u32 {
    counts.iter().fold(0x811c_9dc5_u32, |digest, count| {
        (digest ^ *count as u32 ^ (*count >> 32) as u32)
            .wrapping_mul(0x0100_0193)
            .rotate_left(5)
    })
}
