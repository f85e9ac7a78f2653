//! The calls of a group: what programs use.
//!
//! The safe calls borrow slices; the started ones own their buffers until they are waited for.
//! [`Prepared`] is the raw door behind both, for other languages.

#![expect(
    unsafe_code,
    reason = "slices become raw spans for as long as a call borrows them"
)]

mod movement;
mod pending;
mod reduction;
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
use crate::span::Piece;
use crate::started::Started;

pub use movement::{splits_name, splits_row};
pub use pending::Pending;

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

/// Runs a call where it was prepared: it is large enough for a move to take time.
#[inline]
fn run_now(mut prepared: Result<Prepared<'_>>) -> Result<()> {
    match &mut prepared {
        Ok(prepared) => prepared.run_here(),
        Err(_) => prepared.map(drop),
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
    pub fn run(mut self) -> Result<()> {
        self.run_here()
    }

    #[inline]
    fn run_here(&mut self) -> Result<()> {
        let Group { inner, group } = self.call.group;
        inner.check_usable()?;
        self.check_way()?;
        let pair = self.pair();
        let group = pair.as_ref().unwrap_or(group);
        let (key, label) = self.meeting();
        let mut operation = self.operation(group, key);
        let result = inner.drive(group, &mut operation, label, self.call.timeout);
        if self.tables.has_pieces() {
            std::mem::take(&mut self.tables).recycle();
        }
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
    #[inline]
    fn has_pieces(&self) -> bool {
        self.send.capacity() + self.recv.capacity() > 0
    }

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
