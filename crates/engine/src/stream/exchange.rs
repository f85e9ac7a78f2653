//! Operations over connections.
//!
//! Every member posts to every other: descriptor, what it is ready for, and the first bytes. When
//! all have posted and agree, the rest follows. Three forms cover all collectives:
//!
//! - *copy*: bytes go from one member's memory into another's (broadcast, gathers, exchanges);
//! - *flat*: everybody sends everything to everybody, who combines it (small reductions);
//! - *segmented*: each member combines one segment (stage 0: contributions come in through rings
//!   of bounded size) and sends the result to the others (stage 1: straight into their tensors).
//!
//! Values are combined in the group's order for every element, as on one host.

#![expect(
    unsafe_code,
    reason = "spans of operations in flight are handed to kernels"
)]

mod combine;
mod layout;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frame::{FrameKind, MAX_EAGER, POST, Post};
use super::inbox::{Flow, Flows, Stage};
use super::{Events, Streams};
use crate::descriptor::Descriptor;
use crate::kernels::{self, Store};
use crate::key::Key;
use crate::local::reduce::Combine;
use crate::local::transfer::Parts;
use crate::operation::Ended;
use crate::span::Span;

/// What a member sends and gets in an operation over connections.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Nothing moves; members only meet.
    Meet,
    /// Parts of `send` by receiver, parts of `recv` by sender.
    Copy { outgoing: Parts, incoming: Parts },
    /// Everything to everybody in `to` (a member, or all).
    Flat { combine: Combine, to: Option<usize> },
    /// Contributions by segment; results to everybody, to one member, or to nobody.
    Segmented {
        combine: Combine,
        segments: Parts,
        results: Results,
    },
}

/// Who gets the combined segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// All members.
    All,
    /// One member.
    To(usize),
    /// Each owner keeps its own, at the beginning of `recv`.
    Keep,
}

#[derive(Clone, Copy)]
struct Outflow {
    span: Span,
    at: usize,
    total: u64,
    available: u64,
    sent: u64,
    /// The socket took a part only of what was offered last: a frame may have begun.
    begun: bool,
}

impl Outflow {
    const NONE: Self = Self {
        span: Span::EMPTY,
        at: 0,
        total: 0,
        available: 0,
        sent: 0,
        begun: false,
    };

    fn new(span: Span, at: usize, bytes: usize, available: bool) -> Self {
        let total = bytes as u64;
        Self {
            span,
            at,
            total,
            available: if available { total } else { 0 },
            ..Self::NONE
        }
    }
}

/// An operation of one member over connections.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Exchange {
    key: Key,
    descriptor: Descriptor,
    form: Form,
    send: Span,
    recv: Span,
    /// Session ranks of the members, in the group's order.
    ranks: Arc<[usize]>,
    me: usize,
    flows: Option<Arc<Flows>>,
    out: Vec<[Outflow; 2]>,
    /// Rings for contributions, one for each other member.
    scratch: Vec<u8>,
    /// Where the members' values of a block lie.
    sources: Sources,
    /// The first bytes of a list.
    gathered: Vec<u8>,
    /// Flows of an operation before, to be used again.
    spare: Option<Arc<Flows>>,
    ring: usize,
    /// Bytes of the own segment (or of everything) that are combined.
    combined: u64,
    /// The own segment's result is only passed on: it lies in the first ring until it is sent.
    passes_on: bool,
    /// What had come from the others at the last look.
    heard: u64,
    posted: bool,
    verified: bool,
    /// Stays registered when it is done, so that an abort by anybody is still heard.
    held: bool,
    over: bool,
}

/// Pointers to values: first where they begin in their rings, then those of one stretch.
#[derive(Default)]
struct Sources {
    bases: Vec<*const u8>,
    now: Vec<*const u8>,
}

// SAFETY: filled and used within one call.
unsafe impl Send for Sources {}

/// Exchanges that are over, with the memory that the next ones need.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "the boxes are what is kept")]
pub(crate) struct Shelf(Mutex<Vec<Box<Exchange>>>);

impl Shelf {
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    fn exchanges(&self) -> MutexGuard<'_, Vec<Box<Exchange>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an exchange that is over.
    pub(crate) fn put(&self, mut exchange: Box<Exchange>) {
        if !exchange.over {
            return;
        }
        exchange.spare = exchange.flows.take().or(exchange.spare.take());
        let mut exchanges = self.exchanges();
        if exchanges.len() < KEPT {
            exchanges.push(exchange);
        }
    }

    fn take(&self) -> Option<Box<Exchange>> {
        self.exchanges().pop()
    }
}

/// Exchanges that are kept; each holds [`layout::RINGS`] bytes at the most.
const KEPT: usize = 4;
/// Everything else that an exchange needs to move.
pub(crate) struct Surroundings<'a> {
    pub(crate) streams: &'a Streams,
    pub(crate) events: &'a dyn Events,
}

impl Exchange {
    pub(crate) fn new(
        key: Key,
        descriptor: Descriptor,
        form: Form,
        send: Span,
        recv: Span,
        ranks: Arc<[usize]>,
        me: usize,
    ) -> Self {
        Self {
            key,
            descriptor,
            form,
            send,
            recv,
            ranks,
            me,
            flows: None,
            out: Vec::new(),
            scratch: Vec::new(),
            sources: Sources::default(),
            gathered: Vec::new(),
            spare: None,
            ring: 0,
            combined: 0,
            passes_on: false,
            heard: 0,
            posted: false,
            verified: false,
            held: false,
            over: false,
        }
    }

    /// The same in memory of an exchange that is over, if there is one.
    pub(crate) fn shelved(streams: &Streams, fresh: Self) -> Box<Self> {
        let Some(mut exchange) = streams.shelf.take() else {
            return Box::new(fresh);
        };
        let out = std::mem::take(&mut exchange.out);
        let scratch = std::mem::take(&mut exchange.scratch);
        let sources = std::mem::take(&mut exchange.sources);
        let gathered = std::mem::take(&mut exchange.gathered);
        let spare = exchange.spare.take();
        *exchange = Self {
            out,
            scratch,
            sources,
            gathered,
            spare,
            ..fresh
        };
        exchange
    }

    /// A meeting that stays open until [`Self::release`].
    pub(crate) fn meeting(
        key: Key,
        descriptor: Descriptor,
        ranks: Arc<[usize]>,
        me: usize,
    ) -> Self {
        let (send, recv) = (Span::EMPTY, Span::EMPTY);
        Self {
            held: true,
            ..Self::new(key, descriptor, Form::Meet, send, recv, ranks, me)
        }
    }

    /// The number of this attempt at the operation.
    pub(crate) fn attempt(&self) -> u64 {
        self.flows.as_ref().map_or(0, |flows| flows.attempt())
    }

    /// Ends a meeting that was held open.
    pub(crate) fn release(&mut self, streams: &Streams) {
        if let Some(flows) = &self.flows
            && !std::mem::replace(&mut self.over, true)
        {
            streams.inbox.unregister(flows);
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(|member| *member != self.me)
    }

    /// Session ranks of the other members.
    pub(crate) fn other_ranks(&self) -> impl Iterator<Item = usize> + '_ {
        self.others().map(|member| self.ranks[member])
    }

    /// Session ranks that have not posted; all others when everybody has.
    pub(crate) fn waiting_for(&self) -> Vec<usize> {
        let Some(flows) = &self.flows else {
            return self.other_ranks().collect();
        };
        let absent: Vec<usize> = flows
            .flows
            .iter()
            .filter(|flow| !flow.is_posted())
            .map(|flow| flow.rank)
            .collect();
        if absent.is_empty() {
            self.other_ranks().collect()
        } else {
            absent
        }
    }

    /// Whether something is still expected from a rank, or owed to it.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        let Some(flows) = &self.flows else {
            return true;
        };
        flows.flows.iter().zip(&self.out).any(|(flow, out)| {
            flow.rank == rank
                && (!flow.is_posted()
                    || flow.stages.iter().any(|stage| !stage.is_complete())
                    || out.iter().any(|out| out.sent < out.total))
        })
    }

    /// The own segment of a segmented reduction, or all of a flat one: (offset, bytes).
    fn own(&self) -> (usize, usize) {
        match self.form {
            Form::Segmented { segments, .. } => segments.of(self.me),
            Form::Flat { .. } => (0, self.send.bytes()),
            _ => (0, 0),
        }
    }

    fn post(&mut self, streams: &Streams, flows: &Flows) -> Result<(), usize> {
        for (flow, out) in flows.flows.iter().zip(&mut self.out) {
            let out = &mut out[0];
            let eager = out.available.min(MAX_EAGER as u64) as usize;
            let post = Post {
                descriptor: self.descriptor,
                granted: [flow.stages[0].announced(), flow.stages[1].announced()],
            };
            let mut frame = streams.frame(FrameKind::Post, self.key);
            frame.length = (POST + eager) as u32;
            frame.extra = flows.attempt();
            let connection = streams.connection(flow.rank).map_err(|_| flow.rank)?;
            let head = post.encode();
            let mut result = Ok(());
            if let (Some(pointer), true) = (out.span.contiguous(), eager > 0) {
                // SAFETY: the span vouches for the memory; the slice lives for this call.
                let bytes = unsafe {
                    std::slice::from_raw_parts(pointer.wrapping_add(out.at).cast_const(), eager)
                };
                result = connection.send(&frame, &head, bytes);
            } else {
                let gathered = &mut self.gathered;
                gathered.clear();
                out.span.visit(out.at, eager, |pointer, _, length| {
                    // SAFETY: as above.
                    gathered.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(pointer.cast_const(), length)
                    });
                });
                result = result.and_then(|()| connection.send(&frame, &head, gathered));
            }
            result.map_err(|_| flow.rank)?;
            out.sent = eager as u64;
        }
        Ok(())
    }

    /// Moves what can be moved; `Ok(true)` when this member is done.
    pub(crate) fn poll(
        &mut self,
        around: &Surroundings<'_>,
        progressed: &mut bool,
    ) -> Result<bool, Ended> {
        let streams = around.streams;
        let flows = match &self.flows {
            Some(flows) => Arc::clone(flows),
            None => {
                self.copy_own();
                let flows = self.open();
                if !streams.inbox.register(&flows) {
                    self.over = true;
                    return Err(Ended::Duplicate);
                }
                self.flows = Some(Arc::clone(&flows));
                if let Some(ended) = self.find_abort(streams, &flows) {
                    return Err(ended);
                }
                self.posted = true;
                if let Err(rank) = self.post(streams, &flows) {
                    around.events.lost(rank, "its connection failed".into());
                    return Ok(false);
                }
                *progressed = true;
                flows
            }
        };
        if streams.progress(around.events, self.other_ranks()).is_err() {
            return Ok(false);
        }
        // What came for other operations is no progress of this one.
        let heard = flows.heard();
        *progressed |= std::mem::replace(&mut self.heard, heard) != heard;
        if let Some(ended) = self.find_abort(streams, &flows) {
            return Err(ended);
        }
        if !self.verified {
            if !flows.flows.iter().all(Flow::is_posted) {
                return Ok(false);
            }
            self.verify(streams, &flows)?;
            *progressed = true;
        }
        if matches!(self.form, Form::Segmented { .. } | Form::Flat { .. }) {
            *progressed |= self.combine(streams, &flows);
        }
        match self.send_more(streams, &flows) {
            Ok(any) => *progressed |= any,
            Err(rank) => {
                around.events.lost(rank, "its connection failed".into());
                return Ok(false);
            }
        }
        let done = self.is_done(&flows);
        if done && !self.held {
            streams.inbox.unregister(&flows);
            self.over = true;
        }
        Ok(done)
    }

    /// Gives up when another member has.
    fn find_abort(&mut self, streams: &Streams, flows: &Flows) -> Option<Ended> {
        let (rank, reason) = flows
            .flows
            .iter()
            .find_map(|flow| flow.abort_reason().map(|reason| (flow.rank, reason)))?;
        self.abort(streams, Some(&reason));
        Some(Ended::Aborted(rank, reason))
    }

    fn verify(&mut self, streams: &Streams, flows: &Flows) -> Result<(), Ended> {
        self.verified = true;
        let agree = flows.flows.iter().all(|flow| {
            flow.descriptor()
                .is_some_and(|d| d.agrees_with(&self.descriptor))
        });
        if agree {
            return Ok(());
        }
        streams.inbox.unregister(flows);
        self.over = true;
        let mut asked: Vec<(usize, Descriptor)> = flows
            .flows
            .iter()
            .filter_map(|flow| Some((flow.rank, flow.descriptor()?)))
            .collect();
        asked.push((self.ranks[self.me], self.descriptor));
        asked.sort_by_key(|(rank, _)| *rank);
        Err(Ended::Mismatch(asked))
    }

    fn copy_own(&mut self) {
        let Form::Copy { outgoing, incoming } = self.form else {
            return;
        };
        let (from, length) = outgoing.of(self.me);
        let (to, room) = incoming.of(self.me);
        copy_spans(self.send, from, self.recv, to, length.min(room));
    }

    fn send_more(&mut self, streams: &Streams, flows: &Flows) -> Result<bool, usize> {
        let mut any = false;
        for (index, flow) in flows.flows.iter().enumerate() {
            for stage in 0..2 {
                let granted = flow.stages[stage].granted();
                let out = &mut self.out[index][stage];
                let upto = out.available.min(granted);
                // Results go in blocks, so that headers and system calls stay few. But a frame
                // that has begun goes to its end: what others wait for may stand behind it.
                let ready = upto.saturating_sub(out.sent);
                let little = stage == 1 && ready < combine::BLOCK && upto < out.total;
                if ready == 0 || (little && !out.begun) {
                    continue;
                }
                let mut bytes = ready as usize;
                let mut at = out.at + out.sent as usize;
                if stage == 1 && self.passes_on {
                    at = (out.sent % self.ring as u64) as usize;
                    bytes = bytes.min(self.ring - at);
                }
                let sent = send_data(streams, flow.rank, self.key, stage as u8, out, at, bytes)
                    .map_err(|_| flow.rank)?;
                out.sent += sent as u64;
                out.begun = sent < bytes;
                any |= sent > 0;
            }
        }
        if any && self.passes_on {
            self.give_credit(streams, flows, self.own().1 as u64);
        }
        Ok(any)
    }

    fn is_done(&self, flows: &Flows) -> bool {
        let sent = self.out.iter().flatten().all(|out| out.sent == out.total);
        let received = flows
            .flows
            .iter()
            .all(|flow| flow.stages.iter().all(Stage::is_complete));
        let combined = match self.form {
            Form::Segmented { .. } | Form::Flat { .. } => self.combined == self.own().1 as u64,
            _ => true,
        };
        sent && received && combined
    }

    /// Gives the operation up and tells the others why; quietly without a reason.
    pub(crate) fn abort(&mut self, streams: &Streams, reason: Option<&str>) {
        let Some(flows) = self.flows.take() else {
            return;
        };
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        streams.inbox.give_up(&flows);
        for rank in self.other_ranks() {
            if let Ok(connection) = streams.connection(rank) {
                connection.abandon(self.key);
                let (Some(reason), true) = (reason, self.posted) else {
                    continue;
                };
                let mut frame = streams.frame(FrameKind::Abort, self.key);
                let text = &reason.as_bytes()[..reason.len().min(1024)];
                frame.length = text.len() as u32;
                frame.extra = flows.attempt();
                let _ = connection.send(&frame, &[], text);
            }
        }
    }
}

fn send_data(
    streams: &Streams,
    rank: usize,
    key: Key,
    stage: u8,
    out: &mut Outflow,
    at: usize,
    bytes: usize,
) -> io::Result<usize> {
    streams.connection(rank)?.send_data(
        streams.generation,
        key,
        stage,
        out.sent,
        &mut out.span,
        at,
        bytes,
    )
}

/// Copies between two spans that are the same memory or disjoint.
pub(crate) fn copy_spans(mut from: Span, at: usize, mut to: Span, into: usize, bytes: usize) {
    from.visit(at, bytes, |source, distance, length| {
        to.visit(into + distance, length, |target, inside, length| {
            let source = source.wrapping_add(inside);
            if !std::ptr::eq(source, target) {
                // SAFETY: both spans vouch for their memory; they are the same or disjoint.
                unsafe { kernels::copy(target, source, length, Store::Cached) };
            }
        });
    });
}
