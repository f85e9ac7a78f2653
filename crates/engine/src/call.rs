//! The calls of a group: what programs use.
//!
//! The safe calls borrow slices; the started ones own their buffers until they are waited for.
//! [`Prepared`] is the raw door behind both, for other languages.

#![expect(
    unsafe_code,
    reason = "slices become raw spans for as long as a call borrows them"
)]

mod transfer;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use carole_plan::{GraphPair, Topology};

use crate::compress::Codec;
use crate::descriptor::Kind;
use crate::dtype::{DType, ReduceOp};
use crate::error::{Error, Result};
use crate::group::SharedGroup;
use crate::kernels::Scale;
use crate::key::Key;
use crate::local::transfer::Parts;
use crate::operation::{Label, Operation, Request};
use crate::session::Inner;
use crate::span::{Piece, Span};
use crate::started::Started;

/// A type that tensors are made of.
///
/// # Safety
/// The type must be plain data of `DTYPE`'s size for which any bytes are valid.
pub unsafe trait Element: Copy + Send + 'static {
    /// Its number on the wire.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a number of that size, valid for any bytes.
        unsafe impl Element for $type { const DTYPE: DType = DType::$dtype; }
    )*};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
}

/// An ordered subset of a session's ranks, on which collectives are called.
///
/// All members must call the same operations, each under its name in any order; unnamed ones are
/// matched by the order in which they are called.
#[derive(Clone)]
pub struct Group {
    pub(crate) inner: Arc<Inner>,
    pub(crate) group: SharedGroup,
}

impl Group {
    /// This process's place in the group.
    pub fn rank(&self) -> usize {
        self.group.me
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// The session's ranks of the members, in the group's order.
    pub fn ranks(&self) -> &[usize] {
        &self.group.ranks
    }

    /// A call with settings of its own, matched by its place in the order of calls.
    pub fn call(&self) -> Call<'_> {
        Call {
            group: self,
            name: None,
            scale: Scale::NONE,
            timeout: self.inner.options.timeout,
            topology: None,
            codec: Codec::None,
        }
    }

    /// A call under a name: matched by it, in whatever order the ranks get there.
    pub fn named<'a>(&'a self, name: &'a str) -> Call<'a> {
        Call {
            name: Some(name),
            ..self.call()
        }
    }
}

/// One call and its settings.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    group: &'a Group,
    name: Option<&'a str>,
    scale: Scale,
    timeout: Duration,
    topology: Option<&'a Arc<Topology>>,
    codec: Codec,
}

/// A call whose arguments have been checked.
pub struct Prepared<'a> {
    call: Call<'a>,
    request: Request,
    tables: Tables,
    /// For a transfer: between whom.
    between: Option<Between<'a>>,
}

/// Two members, and the name under which they meet.
#[derive(Clone, Copy)]
struct Between<'a> {
    from: usize,
    to: usize,
    name: &'a str,
}

/// What a request's spans and parts point into.
#[derive(Default)]
pub(crate) struct Tables {
    send_parts: Vec<(usize, usize)>,
    recv_parts: Vec<(usize, usize)>,
    send: Vec<Piece>,
    recv: Vec<Piece>,
}

// SAFETY: pieces are descriptions of memory whose validity the maker of the call promised.
unsafe impl Send for Tables {}
// SAFETY: as above; tables are only read.
unsafe impl Sync for Tables {}

thread_local! {
    /// Tables of earlier calls, so that lists take no memory anew.
    static SPARE: RefCell<Vec<Vec<Piece>>> = const { RefCell::new(Vec::new()) };
}

/// A started operation on raw memory.
pub struct Handle {
    started: Arc<Started>,
}

impl Handle {
    /// Whether it is over; moves it on if it is not.
    pub fn test(&self) -> bool {
        self.started.test()
    }

    /// Waits for the end.
    pub fn wait(&self) -> Result<()> {
        self.started.wait()
    }

    /// Gives it up, on every member.
    pub fn abort(&self) {
        self.started.abort();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.started.abandon();
    }
}

/// A started operation that owns its buffer.
pub struct Pending<T> {
    // Dropped first: afterwards nobody touches the buffer.
    handle: Handle,
    buffer: Vec<T>,
}

impl<T> Pending<T> {
    /// Whether it is over; moves it on if it is not.
    pub fn test(&self) -> bool {
        self.handle.test()
    }

    /// Gives it up, on every member.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Waits for the end and gives the buffer back.
    pub fn wait(self) -> Result<Vec<T>> {
        self.handle.wait()?;
        Ok(self.buffer)
    }
}

impl<'a> Prepared<'a> {
    #[inline]
    fn operation(&self, group: &SharedGroup, key: Key) -> Operation {
        let inner = &self.call.group.inner;
        match self.call.topology {
            None => Operation::new(inner, group, key, &self.request),
            Some(topology) => Operation::along(inner, group, key, &self.request, topology),
        }
    }

    /// The group of two in which a transfer takes place.
    #[inline]
    fn pair(&self) -> Option<SharedGroup> {
        let Group { inner, group } = self.call.group;
        let Between { from, to, .. } = self.between?;
        Some(inner.pair(group.ranks[from], group.ranks[to]))
    }

    /// Under what the members meet.
    #[inline]
    fn meeting(&self) -> (Key, Label<'a>) {
        let group = &self.call.group.group;
        let (key, sequence) = match self.between {
            None => group.key(self.call.name),
            Some(Between { from, to, name }) => (group.transfer_key(name, from, to), 0),
        };
        let label = Label {
            kind: self.request.kind,
            name: self.call.name,
            sequence,
        };
        (key, label)
    }

    /// Whether the operation can go the way that was asked for.
    #[inline]
    fn check_way(&self) -> Result<()> {
        if self.call.topology.is_none() && self.call.codec == Codec::None {
            return Ok(());
        }
        self.call.check_way(&self.request)
    }

    /// Runs the call on this thread.
    #[inline]
    pub fn run(self) -> Result<()> {
        let Group { inner, group } = self.call.group;
        inner.check_usable()?;
        self.check_way()?;
        let pair = self.pair();
        let group = pair.as_ref().unwrap_or(group);
        let (key, label) = self.meeting();
        let mut operation = self.operation(group, key);
        let result = inner.drive(group, &mut operation, label, self.call.timeout);
        self.tables.recycle();
        result
    }

    /// Starts the call; the engine thread moves it on.
    pub fn start(self) -> Result<Handle> {
        let Group { inner, group } = self.call.group;
        inner.check_usable()?;
        self.check_way()?;
        let pair = self.pair();
        let group = pair.as_ref().unwrap_or(group);
        let (key, label) = self.meeting();
        let operation = self.operation(group, key);
        let (inner, group, timeout) = (Arc::clone(inner), Arc::clone(group), self.call.timeout);
        let started = Started::new(inner, group, operation, label, timeout, self.tables);
        // A first push on this thread: peers see the posting without waiting for the engine.
        if !started.poll().0 {
            self.call.group.inner.engine.take(Arc::clone(&started));
        }
        Ok(Handle { started })
    }
}

impl Tables {
    fn recycle(self) {
        for mut list in [self.send, self.recv] {
            if list.capacity() > 0 {
                list.clear();
                SPARE.with_borrow_mut(|spare| spare.push(list));
            }
        }
    }

    fn pieces(from: impl Iterator<Item = Piece>) -> Vec<Piece> {
        let mut list = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        list.extend(from);
        list
    }
}

impl<'a> Call<'a> {
    /// Multiplies the values before and the result after they are combined (floats only).
    #[must_use]
    pub fn scaled(mut self, before: f64, after: f64) -> Self {
        self.scale = Scale { before, after };
        self
    }

    /// Sends values along the graphs of a topology over this group, whatever hosts its members are
    /// on: for `all_reduce`, and for `broadcast` where every pair's root is the call's.
    ///
    /// Each segment of the tensor is combined in the order that its graphs tell; f16 and bf16 are
    /// rounded once a hop. All members must force the same topology.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use carole_engine::{ReduceOp, testing};
    /// use carole_plan::{Topology, TopologyName};
    ///
    /// testing::spawn(4, |session| {
    ///     let ring = Topology::named(TopologyName::Ring, session.hosts()).unwrap();
    ///     let world = session.world();
    ///     let mut tensor = [1.0f32; 100];
    ///     let call = world.named("grad");
    ///     call.topology(&Arc::new(ring)).all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
    ///     assert_eq!(tensor, [4.0; 100]);
    /// });
    /// ```
    #[must_use]
    pub fn topology(mut self, topology: &'a Arc<Topology>) -> Self {
        self.topology = Some(topology);
        self
    }

    /// Lets values travel between hosts in fewer bytes, at the price of a bounded error: for
    /// `all_reduce` of f32 sums and averages. All members must ask for the same codec, and all get
    /// the same bits.
    ///
    /// Inside a host values stay in shared memory as they are: a group on one host loses nothing.
    ///
    /// ```
    /// use carole_engine::compress::Codec;
    /// use carole_engine::{Options, ReduceOp, testing};
    ///
    /// testing::spawn_on(&[0, 1], &Options::default(), |session| {
    ///     let mut tensor = [0.1f32; 100];
    ///     let call = session.world();
    ///     let call = call.named("grad").compressed(Codec::F16);
    ///     call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
    ///     assert!((tensor[0] - 0.2).abs() < 0.001);
    /// });
    /// ```
    #[must_use]
    pub fn compressed(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Fails when it takes longer than this.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How the call is named in an error that is found before it has a number.
    fn describe(&self, kind: Kind) -> String {
        match self.name {
            Some(name) => format!("{} {name:?}", kind.name()),
            None => kind.name().to_owned(),
        }
    }

    fn invalid<T>(&self, kind: Kind, problem: String) -> Result<T> {
        self.group.inner.recorder.refused(kind);
        let operation = self.describe(kind);
        Err(Error::Invalid { operation, problem })
    }

    #[inline]
    fn prepared(self, request: Request) -> Prepared<'a> {
        let request = Request {
            scale: self.scale,
            settings: self.settings(),
            codec: self.codec,
            ..request
        };
        Prepared {
            call: self,
            request,
            tables: Tables::default(),
            between: None,
        }
    }

    /// A digest of the settings on which all members must agree.
    #[inline]
    fn settings(&self) -> u32 {
        if self.scale == Scale::NONE && self.topology.is_none() && self.codec == Codec::None {
            return 0;
        }
        let mut bits = self.scale.before.to_bits() ^ self.scale.after.to_bits().rotate_left(17);
        bits ^= (self.codec as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(topology) = self.topology {
            bits ^= topology_digest(topology);
        }
        (bits ^ (bits >> 32)) as u32 | 1
    }

    /// Whether an operation can go along the topology, or through the codec, that was asked for.
    #[cold]
    fn check_way(&self, request: &Request) -> Result<()> {
        let Request {
            kind, dtype, op, ..
        } = *request;
        if let Some(topology) = self.topology {
            let (ranks, size) = (topology.size(), self.group.size());
            if ranks != size {
                let problem = format!("a topology over {ranks} ranks in a group of {size}");
                return self.invalid(kind, problem);
            }
            if kind == Kind::Broadcast {
                let mut roots = topology.pairs().iter().map(GraphPair::root);
                if let Some(other) = roots.find(|root| *root != request.root) {
                    let root = request.root;
                    let problem = format!("the topology's root is {other}, the call's {root}");
                    return self.invalid(kind, problem);
                }
            } else if kind != Kind::AllReduce {
                return self.invalid(kind, "no topology can be forced on it".into());
            }
        }
        if self.codec != Codec::None {
            let codec = self.codec;
            let is_sum = matches!(op, ReduceOp::Sum | ReduceOp::Average);
            if kind != Kind::AllReduce || !is_sum || !codec.applies_to(dtype) {
                let what = if kind.reduces() {
                    format!(" of {dtype}, {op}")
                } else {
                    String::new()
                };
                let problem = format!(
                    "{codec} compression is for all_reduce of f32, sum or average, not for {}{what}",
                    kind.name()
                );
                return self.invalid(kind, problem);
            }
            if self.topology.is_some() {
                let problem = format!("{codec} compression along a forced topology");
                return self.invalid(kind, problem);
            }
        }
        Ok(())
    }

    fn check_op(&self, kind: Kind, dtype: DType, op: ReduceOp) -> Result<()> {
        if !op.applies_to(dtype) {
            return self.invalid(kind, format!("{op} is not defined for {dtype}"));
        }
        if self.scale != Scale::NONE && !dtype.is_float() {
            return self.invalid(kind, format!("scaling is not defined for {dtype}"));
        }
        Ok(())
    }

    fn check_root(&self, kind: Kind, root: usize) -> Result<()> {
        if root >= self.group.size() {
            let size = self.group.size();
            return self.invalid(kind, format!("root {root} is not below the size {size}"));
        }
        Ok(())
    }

    /// Cuts a tensor that several hosts reduce together into one segment for each member.
    fn cut(&self, count: usize, dtype: DType) -> Parts {
        Parts::Cut {
            base: 0,
            count,
            parts: self.group.size(),
            size: dtype.size(),
        }
    }

    /// Everybody waits for everybody.
    pub fn barrier(self) -> Result<()> {
        self.prepare_barrier().run()
    }

    /// A barrier, to be run or started.
    pub fn prepare_barrier(self) -> Prepared<'a> {
        self.prepared(Request {
            kind: Kind::Barrier,
            ..Request::EMPTY
        })
    }

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
        let pointer = tensor.as_mut_ptr().cast::<u8>();
        // SAFETY: the slice is borrowed mutably until the call is over.
        unsafe { self.prepare_all_reduce(pointer, pointer, tensor.len(), T::DTYPE, op) }?.run()
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
        unsafe { self.prepare_all_reduce(from, to, send.len(), T::DTYPE, op) }?.run()
    }

    /// Starts combining the values of all members in place.
    pub fn start_all_reduce<T: Element>(
        self,
        mut tensor: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<T>> {
        let pointer = tensor.as_mut_ptr().cast::<u8>();
        // SAFETY: the buffer's memory belongs to the result, which ends the operation first.
        let prepared =
            unsafe { self.prepare_all_reduce(pointer, pointer, tensor.len(), T::DTYPE, op) }?;
        Ok(Pending {
            handle: prepared.start()?,
            buffer: tensor,
        })
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
        let pieces: Vec<Piece> = tensors
            .iter_mut()
            .map(|tensor| Piece {
                pointer: tensor.as_mut_ptr().cast(),
                bytes: size_of_val::<[T]>(&**tensor),
            })
            .collect();
        let list = || pieces.iter().copied();
        // SAFETY: the slices are borrowed mutably until the call is over, so none overlap.
        unsafe { self.prepare_all_reduce_list(list(), list(), T::DTYPE, op) }?.run()
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
        let pointer = tensor.as_mut_ptr().cast::<u8>();
        // SAFETY: the slice is borrowed mutably until the call is over.
        unsafe { self.prepare_reduce(pointer, pointer, tensor.len(), T::DTYPE, op, root) }?.run()
    }

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
        let pointer = tensor.as_mut_ptr().cast();
        // SAFETY: the slice is borrowed mutably until the call is over.
        unsafe { self.prepare_broadcast(pointer, tensor.len(), T::DTYPE, root) }?.run()
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
        self.same_length(
            Kind::ReduceScatter,
            send.len(),
            recv.len() * self.group.size(),
        )?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_reduce_scatter(from, to, recv.len(), T::DTYPE, op) }?.run()
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
        self.same_length(Kind::AllGather, send.len() * self.group.size(), recv.len())?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_all_gather(from, to, send.len(), T::DTYPE) }.run()
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
        self.parts(Kind::AllGatherV, counts, T::DTYPE)?;
        let own = counts[self.group.rank()];
        self.same_length(Kind::AllGatherV, send.len(), own)?;
        self.same_length(Kind::AllGatherV, counts.iter().sum(), recv.len())?;
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_all_gather_v(from, to, counts, T::DTYPE) }?.run()
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
        if self.group.rank() == root {
            self.same_length(Kind::Gather, send.len() * self.group.size(), recv.len())?;
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_gather(from, to, send.len(), T::DTYPE, root) }?.run()
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
        if self.group.rank() == root {
            self.same_length(Kind::Scatter, send.len(), recv.len() * self.group.size())?;
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_scatter(from, to, recv.len(), T::DTYPE, root) }?.run()
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
        self.same_length(Kind::AllToAll, send.len(), recv.len())?;
        let size = self.group.size();
        if !send.len().is_multiple_of(size) {
            let problem = format!("{} elements do not divide among {size} ranks", send.len());
            return self.invalid(Kind::AllToAll, problem);
        }
        let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices are borrowed until the call is over, and cannot overlap.
        unsafe { self.prepare_all_to_all(from, to, send.len() / size, T::DTYPE) }.run()
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
        let prepared =
            unsafe { self.prepare_all_to_all_v(from, send_counts, to, recv_counts, T::DTYPE) }?;
        prepared.run()
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

    /// Do all members hold the same bytes?
    pub fn consensus(self, bytes: &[u8]) -> Result<bool> {
        let mut mine = [0u8; 40];
        mine[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        mine[8..].copy_from_slice(digest.as_ref());
        let mut all = vec![0u8; mine.len() * self.group.size()];
        self.all_gather(&mine, &mut all)?;
        Ok(all.chunks(mine.len()).all(|one| one == mine))
    }

    fn parts(&self, kind: Kind, counts: &[usize], dtype: DType) -> Result<Vec<(usize, usize)>> {
        if counts.len() != self.group.size() {
            let size = self.group.size();
            return self.invalid(kind, format!("{} counts for {size} ranks", counts.len()));
        }
        let mut offset = 0usize;
        let mut parts = Vec::with_capacity(counts.len());
        for count in counts {
            let bytes = count.checked_mul(dtype.size());
            let Some(next) = bytes.and_then(|bytes| offset.checked_add(bytes)) else {
                return self.invalid(kind, "the counts add up to more than memory".into());
            };
            parts.push((offset, next - offset));
            offset = next;
        }
        Ok(parts)
    }

    fn same_length(&self, kind: Kind, one: usize, other: usize) -> Result<()> {
        if one == other {
            return Ok(());
        }
        self.invalid(
            kind,
            format!("buffers of {one} and {other} elements do not fit"),
        )
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

/// A digest of all edges, the same on every machine.
fn topology_digest(topology: &Topology) -> u64 {
    let graphs = topology
        .pairs()
        .iter()
        .flat_map(|pair| [pair.reduce(), pair.broadcast()]);
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |value: u64| {
        digest = (digest ^ value).wrapping_mul(0x0100_0000_01b3);
        digest ^= digest.rotate_right(29);
    };
    for graph in graphs {
        add(graph.len() as u64);
        for (from, to) in graph.edges() {
            add((from as u64) << 32 | to as u64);
        }
    }
    digest
}
