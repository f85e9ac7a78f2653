//! Reductions and broadcasts along the graphs of a topology.
//!
//! The tensor is cut into one *segment* a pair of graphs. Along the reduce graph every member
//! combines its own values with what its predecessors send and passes the result on; what reaches
//! the root goes out again along the broadcast graph. This member's part in one pair is a
//! *branch*, with a [`Channel`] of its own to its neighbours in the two graphs.
//!
//! Expected flow: all members meet and agree; then bytes stream. Contributions come in through
//! rings of bounded size and are combined block by block into the tensor's own memory, from where
//! they are passed on: what a result overwrites has been sent before, since the result contains
//! it. Results go straight into the tensor, and on from there.
//!
//! Guarantees: a member's own value comes first, then its predecessors' in ascending order, as in
//! [`GraphPair::simulate`](carole_plan::GraphPair::simulate). f16 and bf16 are combined in f32 and
//! rounded once a hop; where values are scaled before they are combined, once more for that.
//!
//! It makes no difference which members share a host: whoever forces a topology gets its links.

#![expect(
    unsafe_code,
    reason = "spans of operations in flight are handed to kernels"
)]

use std::sync::Arc;

use carole_plan::{GraphPair, Topology};

use super::Streams;
use super::channel::{Agreement, BLOCK, Channel, Link, Outlet};
use super::frame::MAX_EAGER;
use super::inbox::Intake;
use crate::descriptor::Descriptor;
use crate::dtype::ReduceOp;
use crate::kernels::{self, Destination, Scale, Store};
use crate::key::Key;
use crate::local::reduce::Combine;
use crate::operation::Ended;
use crate::session::Inner;
use crate::span::Span;

/// Memory for all rings of an operation, unless there are very many predecessors.
const RINGS: usize = 4 << 20;
const RING_MAX: usize = 1 << 20;
/// A ring holds at least what travels with a posting.
const RING_MIN: usize = MAX_EAGER;

/// Contributions and results, the two flows of a channel.
const UP: usize = 0;
const DOWN: usize = 1;

/// An operation along a topology, as one member sees it.
pub(crate) struct Tree {
    agreement: Agreement,
    descriptor: Descriptor,
    combine: Combine,
    /// A broadcast has nothing to combine.
    reduces: bool,
    send: Span,
    recv: Span,
    topology: Arc<Topology>,
    branches: Vec<Branch>,
    /// The rings of all branches; what flows write to is in here.
    scratch: Vec<u8>,
    opened: bool,
    over: bool,
}

/// This member's part in one pair of graphs, neighbours by their place in the channel.
struct Branch {
    channel: Channel,
    /// Where the segment begins, in bytes, and how long it is.
    base: usize,
    total: u64,
    is_root: bool,
    /// Own values are combined here; otherwise they are sent from where they are.
    combines: bool,
    /// Who sends contributions, in the order in which they are combined.
    children: Vec<usize>,
    rings: Vec<Span>,
    ring: usize,
    /// Who gets this member's contribution.
    parent: Option<usize>,
    /// Who sends the result.
    source: Option<usize>,
    /// Who gets the result from this member.
    targets: Vec<usize>,
    combined: u64,
    posted: bool,
}

/// A member's neighbours in one pair, by member.
struct Neighbours {
    all: Vec<usize>,
    children: Vec<usize>,
    parent: Option<usize>,
    source: Option<usize>,
    targets: Vec<usize>,
}

impl Neighbours {
    fn new(pair: &GraphPair, me: usize, reduces: bool) -> Self {
        let (children, parent) = if reduces {
            let reduce = pair.reduce();
            (reduce.prevs(me).to_vec(), reduce.nexts(me).first().copied())
        } else {
            (Vec::new(), None)
        };
        let source = pair.broadcast().prevs(me).first().copied();
        let targets = pair.broadcast().nexts(me).to_vec();
        let mut all = children.clone();
        all.extend_from_slice(&targets);
        all.extend(parent);
        all.extend(source);
        all.sort_unstable();
        all.dedup();
        Self {
            all,
            children,
            parent,
            source,
            targets,
        }
    }

    /// A member's place in the channel.
    fn place(&self, member: usize) -> usize {
        self.all.binary_search(&member).expect("a neighbour")
    }
}

impl Tree {
    /// An operation over `topology`, which has as many ranks as the group. The members agree by
    /// `agreement`.
    pub(crate) fn new(
        agreement: Agreement,
        descriptor: Descriptor,
        combine: Combine,
        topology: Arc<Topology>,
        send: Span,
        recv: Span,
    ) -> Self {
        Self {
            agreement,
            descriptor,
            combine,
            reduces: descriptor.kind.reduces(),
            send,
            recv,
            topology,
            branches: Vec::new(),
            scratch: Vec::new(),
            opened: false,
            over: false,
        }
    }

    /// The members have agreed in shared memory, under this number.
    pub(crate) fn agreed(&mut self, number: (u16, u32)) {
        self.agreement.reached(number);
    }

    /// Moves what can be moved; `Ok(true)` when this member is done.
    pub(crate) fn poll(&mut self, inner: &Inner, progressed: &mut bool) -> Result<bool, Ended> {
        let Some(around) = inner.surroundings() else {
            return Ok(false);
        };
        let outcome = self.agreement.poll(&around, progressed);
        let outcome = outcome.and_then(|part| match part {
            Some(part) if !self.opened => self.open(around.streams, part).map(|()| Some(part)),
            _ => Ok(part),
        });
        let moved = match outcome {
            Ok(None) => return Ok(false),
            Ok(Some(_)) => self.advance(around.streams),
            Err(ended) => {
                self.abort(inner, Some("the ranks do not agree"));
                return Err(ended);
            }
        };
        match moved {
            Ok(moved) => *progressed |= moved,
            Err(rank) => {
                around.events.lost(rank, "its connection failed".into());
                return Ok(false);
            }
        }
        let done = self.branches.iter().all(Branch::is_done);
        if done && !std::mem::replace(&mut self.over, true) {
            for branch in &mut self.branches {
                branch.channel.close(around.streams);
            }
            self.agreement.release(around.streams);
        }
        Ok(done)
    }

    /// The segments that have elements, with the number of their pair: (pair, offset, bytes).
    fn segments(&self) -> Vec<(usize, usize, usize)> {
        let size = self.combine.dtype.size();
        let segments = self.topology.segments(self.send.bytes() / size);
        segments
            .enumerate()
            .filter(|(_, (range, _))| !range.is_empty())
            .map(|(pair, (range, _))| (pair, range.start * size, range.len() * size))
            .collect()
    }

    /// Lays out the branches and tells the neighbours.
    fn open(&mut self, streams: &Streams, part: Key) -> Result<(), Ended> {
        self.opened = true;
        let me = self.agreement.me;
        let branches: Vec<_> = self
            .segments()
            .into_iter()
            .map(|(pair, base, bytes)| {
                let graphs = &self.topology.pairs()[pair];
                let neighbours = Neighbours::new(graphs, me, self.reduces);
                (pair, graphs.root() == me, neighbours, base, bytes)
            })
            .collect();
        let rings: usize = branches.iter().map(|(_, _, n, ..)| n.children.len()).sum();
        let limit = (RINGS / rings.max(1)).clamp(RING_MIN, RING_MAX) & !63;
        let ring_of = |bytes: usize| bytes.min(limit).next_multiple_of(64);
        let memory = branches
            .iter()
            .map(|(_, _, n, _, bytes)| n.children.len() * ring_of(*bytes));
        self.scratch.resize(memory.sum(), 0);
        let mut free = self.scratch.as_mut_slice();
        for (pair, is_root, neighbours, base, bytes) in branches {
            let ring = ring_of(bytes);
            let (own, rest) = free.split_at_mut(neighbours.children.len() * ring);
            free = rest;
            let rings = own
                .chunks_mut(ring)
                .map(|ring| Span::one(ring.as_mut_ptr(), ring.len()))
                .collect();
            let ranks = &self.agreement.ranks;
            // The own values of a leaf go out as they are, unless they are scaled.
            let combines = self.reduces
                && (!neighbours.children.is_empty() || self.combine.scale.before != 1.0);
            let from = if combines { self.recv } else { self.send };
            let mut branch = Branch::open(
                streams,
                part.part(1, pair as u32),
                &neighbours,
                ranks,
                rings,
                Outlet::straight(from, base, bytes),
                Outlet::straight(self.recv, base, bytes),
            )?;
            branch.is_root = is_root;
            branch.combines = combines;
            branch.ring = ring;
            self.branches.push(branch);
        }
        Ok(())
    }

    /// Combines and sends what is ready; an error names the rank whose connection failed.
    fn advance(&mut self, streams: &Streams) -> Result<bool, usize> {
        let mut any = false;
        for branch in &mut self.branches {
            if !branch.posted {
                branch.posted = true;
                branch.produce(streams, self.combine, self.send, self.recv);
                branch.channel.post(streams, self.descriptor)?;
                any = true;
            }
            any |= branch.channel.heard_more();
            any |= branch.produce(streams, self.combine, self.send, self.recv);
            any |= branch.channel.send_more(streams)?;
        }
        Ok(any)
    }

    /// Session ranks that this member waits for.
    pub(crate) fn waiting_for(&self) -> Vec<usize> {
        let channels = self.branches.iter().map(|branch| &branch.channel);
        let mut ranks: Vec<usize> = channels.flat_map(Channel::waiting_for).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.is_empty() {
            self.agreement.waiting_for()
        } else {
            ranks
        }
    }

    /// Whether something is still expected from a rank, or owed to it.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        if !self.opened {
            let me = self.agreement.me;
            let is_neighbour = |(pair, ..): &(usize, usize, usize)| {
                let neighbours =
                    Neighbours::new(&self.topology.pairs()[*pair], me, self.reduces).all;
                let mut ranks = neighbours.iter().map(|m| self.agreement.ranks[*m]);
                ranks.any(|neighbour| neighbour == rank)
            };
            return self.agreement.needs(rank) || self.segments().iter().any(is_neighbour);
        }
        self.branches.iter().any(|b| b.channel.needs(rank))
    }

    /// Gives the operation up and tells the others why; quietly without a reason.
    pub(crate) fn abort(&mut self, inner: &Inner, reason: Option<&str>) {
        let Some(streams) = &inner.streams else {
            return;
        };
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let part = self.agreement.abort(streams, reason);
        for branch in &mut self.branches {
            branch.channel.abort(streams);
        }
        if let (Some(part), false) = (part, self.opened) {
            for (pair, ..) in self.segments() {
                let graphs = &self.topology.pairs()[pair];
                let neighbours = Neighbours::new(graphs, self.agreement.me, self.reduces);
                let ranks = neighbours.all.iter().map(|m| self.agreement.ranks[*m]);
                Channel::refuse(streams, part.part(1, pair as u32), ranks);
            }
        }
    }
}

impl Branch {
    /// Opens the channel to the neighbours; `up` is the own contribution and `down` the result.
    fn open(
        streams: &Streams,
        key: Key,
        neighbours: &Neighbours,
        ranks: &[usize],
        rings: Vec<Span>,
        up: Outlet,
        down: Outlet,
    ) -> Result<Self, Ended> {
        let total = down.total;
        let mut links: Vec<Link> = neighbours
            .all
            .iter()
            .map(|member| Link {
                rank: ranks[*member],
                intakes: [Intake::NONE; 2],
                outlets: [Outlet::NONE; 2],
            })
            .collect();
        let places = |members: &[usize]| members.iter().map(|m| neighbours.place(*m)).collect();
        let children: Vec<usize> = places(&neighbours.children);
        let targets: Vec<usize> = places(&neighbours.targets);
        let parent = neighbours.parent.map(|member| neighbours.place(member));
        let source = neighbours.source.map(|member| neighbours.place(member));
        for (child, ring) in children.iter().zip(&rings) {
            links[*child].intakes[UP] = Intake {
                span: *ring,
                base: 0,
                capacity: ring.bytes(),
                total,
            };
        }
        if let Some(parent) = parent {
            links[parent].outlets[UP] = up;
        }
        if let Some(source) = source {
            links[source].intakes[DOWN] = down.as_intake();
        }
        for target in &targets {
            links[*target].outlets[DOWN] = down;
        }
        Ok(Self {
            channel: Channel::open(streams, key, links)?,
            base: down.base(),
            total,
            is_root: false,
            combines: false,
            children,
            rings,
            ring: 0,
            parent,
            source,
            targets,
            combined: 0,
            posted: false,
        })
    }

    /// Makes ready to be sent what can be; true when anything was combined.
    fn produce(&mut self, streams: &Streams, combine: Combine, send: Span, recv: Span) -> bool {
        let any = self.combines && self.combine_more(streams, combine, send, recv);
        let own = if self.combines {
            self.combined
        } else {
            self.total
        };
        if let Some(parent) = self.parent {
            self.channel.outlets[parent][UP].available = own;
        }
        let result = match self.source {
            Some(source) => self.channel.received(source, DOWN),
            None => own,
        };
        for target in &self.targets {
            self.channel.outlets[*target][DOWN].available = result;
        }
        any
    }

    /// Combines what all predecessors have delivered; true when anything was.
    fn combine_more(
        &mut self,
        streams: &Streams,
        combine: Combine,
        send: Span,
        recv: Span,
    ) -> bool {
        let size = combine.dtype.size() as u64;
        let ring = self.ring as u64;
        let mut any = false;
        while self.combined < self.total {
            let arrived = self.children.iter().map(|c| self.channel.received(*c, UP));
            let ready = arrived.min().unwrap_or(self.total);
            let inside = self.combined % ring;
            let bytes = ((ready - self.combined) / size * size).min(ring - inside);
            let ends = self.combined + bytes == self.total || inside + bytes == ring;
            if bytes == 0 || (bytes < BLOCK && !ends) {
                break;
            }
            self.combine_block(combine, send, recv, inside as usize, bytes as usize);
            self.combined += bytes;
            any = true;
            for child in &self.children {
                self.channel
                    .grant(streams, *child, UP, self.combined, self.ring);
            }
            if self.children.is_empty() {
                // One ring's worth at a time, so that sending begins.
                break;
            }
        }
        any
    }

    fn combine_block(
        &self,
        combine: Combine,
        mut send: Span,
        mut recv: Span,
        inside: usize,
        bytes: usize,
    ) {
        let Combine {
            dtype,
            op,
            scale,
            divisor,
        } = combine;
        // Averages are sums until they reach the root.
        let (op, after) = match op {
            _ if self.is_root => (op, scale.after),
            ReduceOp::Average => (ReduceOp::Sum, 1.0),
            op => (op, 1.0),
        };
        let before = Scale {
            before: scale.before,
            after: 1.0,
        };
        let after = Scale { before: 1.0, after };
        let is_scaled = before != Scale::NONE;
        let arrived: Vec<*const u8> = self
            .rings
            .iter()
            .map(|ring| {
                let ring = ring.contiguous().expect("a ring is in one piece");
                ring.wrapping_add(inside).cast_const()
            })
            .collect();
        let mut sources = vec![std::ptr::null(); arrived.len() + 1];
        let at = self.base + self.combined as usize;
        recv.visit(at, bytes, |target, distance, length| {
            send.visit(at + distance, length, |own, within, length| {
                let count = length / dtype.size();
                let target = target.wrapping_add(within);
                let to = [Destination {
                    pointer: target,
                    store: Store::Cached,
                }];
                sources[0] = if is_scaled { target } else { own };
                for (source, ring) in sources[1..].iter_mut().zip(&arrived) {
                    *source = ring.wrapping_add(distance + within);
                }
                // SAFETY: the spans vouch for `own` and the target, which are equal or disjoint;
                // the rings hold `length` bytes that have arrived and are not overwritten before
                // more is granted.
                unsafe {
                    if is_scaled {
                        kernels::reduce(dtype, ReduceOp::Sum, before, 1, &to, &[own], count);
                    }
                    if self.is_root || !arrived.is_empty() {
                        kernels::reduce(dtype, op, after, divisor, &to, &sources, count);
                    }
                }
            });
        });
    }

    fn is_done(&self) -> bool {
        (!self.combines || self.combined == self.total) && self.channel.is_done()
    }
}
