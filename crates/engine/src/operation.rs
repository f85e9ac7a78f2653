//! One operation of one rank, from request to result, as a state machine that anybody may poll.
//!
//! A blocking call polls on the caller's own thread; a started operation is polled by the engine
//! thread, or by whoever waits for it. Nothing in here blocks.

use std::time::Duration;

use crate::descriptor::{Descriptor, Kind, describe_disagreement};
use crate::dtype::{DType, ReduceOp};
use crate::error::Error;
use crate::group::GroupInner;
use crate::kernels::Scale;
use crate::key::Key;
use crate::local::attend::{Attendance, Failure};
use crate::local::board::WINDOW_BYTES;
use crate::local::reduce::{Combine, Reduce};
use crate::local::transfer::{Parts, Sink, Transfer};
use crate::local::{Party, Refusal};
use crate::session::Inner;
use crate::span::Span;
use crate::table::Algorithm;

/// What a rank asks for.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) scale: Scale,
    /// A member of the group.
    pub(crate) root: usize,
    /// Elements, as the descriptor compares them.
    pub(crate) count: u64,
    pub(crate) send: Span,
    pub(crate) recv: Span,
    /// Parts of `send` by receiver, and of `recv` by sender, where the kind has parts.
    pub(crate) send_parts: Parts,
    pub(crate) recv_parts: Parts,
    pub(crate) settings: u32,
}

/// How an operation is called in messages.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: Option<&'a str>,
    pub(crate) sequence: u64,
}

impl std::fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name {
            Some(name) => write!(f, "{} {name:?}", self.kind.name()),
            None => write!(f, "{} #{}", self.kind.name(), self.sequence),
        }
    }
}

/// Why an operation ended without a result.
#[derive(Debug)]
pub(crate) enum Ended {
    Mismatch(Vec<(usize, Descriptor)>),
    Aborted(usize, String),
    Duplicate,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Mismatch(asked) => Self::Mismatch(asked),
            Failure::Aborted(rank) => Self::Aborted(rank, "it gave the operation up".into()),
        }
    }
}

impl Ended {
    pub(crate) fn error(self, label: Label<'_>) -> Error {
        let operation = label.to_string();
        match self {
            Self::Mismatch(asked) => {
                Error::Mismatch { operation, details: describe_disagreement(&asked) }
            }
            Self::Aborted(rank, reason) => Error::Aborted { operation, rank, reason },
            Self::Duplicate => Error::Duplicate { operation },
        }
    }
}

enum Body {
    /// Members only meet.
    Meet,
    Transfer(Transfer),
    Reduce(Reduce),
}

enum State {
    /// Waiting for a slot.
    Opening,
    Running(Attendance),
    Over,
}

/// An operation on its way.
pub(crate) struct Operation {
    key: Key,
    descriptor: Descriptor,
    body: Body,
    state: State,
}

impl Operation {
    /// Chooses the algorithm. The memory behind the request's spans must stay valid and untouched
    /// until the operation is over or aborted.
    pub(crate) fn new(inner: &Inner, group: &GroupInner, key: Key, request: &Request) -> Self {
        let descriptor = Descriptor {
            kind: request.kind,
            dtype: request.dtype,
            op: request.op,
            shared: false,
            count: request.count,
            root: request.root as u32,
            settings: request.settings,
        };
        Self { key, descriptor, body: local_body(inner, group, request), state: State::Opening }
    }

    /// Moves what can be moved; `Ok(true)` when the result is there.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        progressed: &mut bool,
    ) -> Result<bool, Ended> {
        let Some(party) = party(inner, group) else { return Ok(true) };
        if let State::Opening = self.state {
            let space = match &self.body {
                Body::Meet => 0,
                Body::Transfer(transfer) => transfer.space(&party),
                Body::Reduce(_) => WINDOW_BYTES,
            };
            let mut attendance = match Attendance::open(&party, self.key, self.descriptor, space) {
                Ok(attendance) => attendance,
                Err(Refusal::Busy) => return Ok(false),
                Err(Refusal::Duplicate) => {
                    self.state = State::Over;
                    return Err(Ended::Duplicate);
                }
            };
            let (staged, counted) = match &mut self.body {
                Body::Meet => (0, false),
                Body::Transfer(transfer) => {
                    (transfer.prepare(&party, &attendance), transfer.is_counted(&party))
                }
                Body::Reduce(reduce) => (reduce.prepare(&party, &attendance), true),
            };
            attendance.post(&party, staged, counted);
            self.state = State::Running(attendance);
        }
        let State::Running(attendance) = &mut self.state else { return Ok(true) };
        let done = match &mut self.body {
            Body::Meet => attendance.poll(&party),
            Body::Transfer(transfer) => transfer.poll(&party, attendance, progressed),
            Body::Reduce(reduce) => reduce.poll(&party, attendance, progressed),
        };
        match done {
            Ok(true) => {
                attendance.finish(&party);
                self.state = State::Over;
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(failure) => {
                self.abort(inner, group);
                Err(failure.into())
            }
        }
    }

    /// A slower look at things that seldom happen; called now and then while waiting.
    pub(crate) fn check(&mut self, inner: &Inner, group: &GroupInner) -> Result<(), Ended> {
        let Some(party) = party(inner, group) else { return Ok(()) };
        party.local.tidy();
        if let State::Running(attendance) = &self.state
            && let Some(rank) = attendance.someone_aborted(&party)
        {
            self.abort(inner, group);
            return Err(Failure::Aborted(rank).into());
        }
        Ok(())
    }

    /// Session ranks that this one waits for.
    pub(crate) fn waiting_for(&self, inner: &Inner, group: &GroupInner) -> Vec<usize> {
        match (&self.state, party(inner, group)) {
            (State::Running(attendance), Some(party)) => {
                let absent = attendance.absent(&party);
                if absent.is_empty() {
                    group.ranks.iter().copied().filter(|rank| *rank != inner.rank).collect()
                } else {
                    absent
                }
            }
            _ => group.ranks.iter().copied().filter(|rank| *rank != inner.rank).collect(),
        }
    }

    /// Gives the operation up; its memory is free to go afterwards.
    pub(crate) fn abort(&mut self, inner: &Inner, group: &GroupInner) {
        if let (State::Running(attendance), Some(party)) = (&mut self.state, party(inner, group)) {
            attendance.abort(&party);
        }
        self.state = State::Over;
    }

    /// Sleeps until a local peer publishes something, unless there is progress already.
    pub(crate) fn park(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        limit: Duration,
    ) -> Result<bool, Ended> {
        let Some(local) = &inner.local else { return Ok(false) };
        let mut outcome = Ok(false);
        local.park(limit, || {
            let mut progressed = false;
            outcome = self.poll(inner, group, &mut progressed);
            progressed || !matches!(outcome, Ok(false))
        });
        outcome
    }
}

fn party<'a>(inner: &'a Inner, group: &'a GroupInner) -> Option<Party<'a>> {
    if group.size() < 2 {
        return None;
    }
    Some(Party {
        local: inner.local.as_ref()?,
        members: group.local.as_deref()?,
        me: group.me,
        ranks: &group.ranks,
    })
}

/// The way an operation goes when all members share a host.
#[inline]
fn local_body(inner: &Inner, group: &GroupInner, request: &Request) -> Body {
    let members = group.size();
    let me = group.me;
    let everyone = if members == 64 { u64::MAX } else { (1 << members) - 1 };
    let others = everyone & !(1 << me);
    let Request { kind, dtype, op, scale, root, send, recv, .. } = *request;
    let divisor = if op == ReduceOp::Average { members as u32 } else { 1 };
    let sink = Sink::Reduce { dtype, op, scale, divisor };
    let transfer = |common, outgoing, readers, incoming, sink| {
        Body::Transfer(Transfer::new(send, recv, common, outgoing, readers, incoming, sink))
    };
    match kind {
        Kind::Barrier => Body::Meet,
        Kind::AllReduce | Kind::Reduce => {
            let bytes = send.bytes();
            let only = (kind == Kind::Reduce).then_some(root);
            match inner.table.all_reduce(bytes, members) {
                Algorithm::Flat if only.is_none() => {
                    transfer(true, Parts::Whole(bytes), others, Parts::Whole(bytes), sink)
                }
                Algorithm::Flat if only == Some(me) => {
                    transfer(true, Parts::Whole(bytes), 0, Parts::Whole(bytes), sink)
                }
                Algorithm::Flat => {
                    transfer(true, Parts::Whole(bytes), 1 << root, Parts::None, Sink::Copy)
                }
                Algorithm::TwoPhase { chunk } => Body::Reduce(Reduce::new(
                    send,
                    recv,
                    Combine { dtype, op, scale, divisor },
                    only,
                    chunk,
                )),
            }
        }
        Kind::ReduceScatter => {
            let mine = request.send_parts.of(me).1;
            transfer(false, request.send_parts, others, Parts::Whole(mine), sink)
        }
        Kind::Broadcast => {
            let (outgoing, readers) =
                if me == root { (Parts::Whole(send.bytes()), others) } else { (Parts::None, 0) };
            let incoming = if me == root { Parts::None } else { Parts::Only(root, recv.bytes()) };
            transfer(true, outgoing, readers, incoming, Sink::Copy)
        }
        Kind::AllGather | Kind::AllGatherV => {
            transfer(true, Parts::Whole(send.bytes()), others, request.recv_parts, Sink::Copy)
        }
        Kind::Gather => {
            let readers = if me == root { 0 } else { 1 << root };
            let incoming = if me == root { request.recv_parts } else { Parts::None };
            transfer(true, Parts::Whole(send.bytes()), readers, incoming, Sink::Copy)
        }
        Kind::Scatter => {
            let (outgoing, readers) =
                if me == root { (request.send_parts, others) } else { (Parts::None, 0) };
            transfer(false, outgoing, readers, Parts::Only(root, recv.bytes()), Sink::Copy)
        }
        Kind::AllToAll | Kind::AllToAllV => {
            transfer(false, request.send_parts, others, request.recv_parts, Sink::Copy)
        }
        Kind::Transfer => {
            let (outgoing, readers) =
                if me == root { (Parts::Whole(send.bytes()), others) } else { (Parts::None, 0) };
            let incoming = if me == root { Parts::None } else { Parts::Only(root, recv.bytes()) };
            transfer(true, outgoing, readers, incoming, Sink::Copy)
        }
        Kind::Consensus => Body::Meet,
    }
}
