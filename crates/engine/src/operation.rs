//! One operation of one rank, from request to result, as a state machine that anybody may poll.
//!
//! A blocking call polls on the caller's own thread; a started operation is polled by the engine
//! thread, or by whoever waits for it. Nothing in here blocks.

mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carole_plan::Topology;

use crate::choice::Choice;
use crate::compress::Codec;
use crate::descriptor::{Descriptor, Kind, describe_disagreement};
use crate::dtype::{DType, ReduceOp};
use crate::error::Error;
use crate::group::GroupInner;
use crate::hierarchy::Hierarchy;
use crate::kernels::Scale;
use crate::key::Key;
use crate::local::attend::{Attendance, Failure};
use crate::local::reduce::{Combine, Reduce};
use crate::local::transfer::{Parts, Transfer};
use crate::local::{Party, Refusal, Space};
use crate::session::Inner;
use crate::span::Span;
use crate::stream::channel::Agreement;
use crate::stream::compressed::Compressed;
use crate::stream::exchange::Exchange;
use crate::stream::tree::Tree;
use crate::sys;

pub(crate) use way::reduce_alone;
use way::{alone, local_body, remote_body};

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
    /// How values travel on connections.
    pub(crate) codec: Codec,
}

impl Request {
    /// Nothing yet.
    pub(crate) const EMPTY: Self = Self {
        kind: Kind::Barrier,
        dtype: DType::U8,
        op: ReduceOp::Sum,
        scale: Scale::NONE,
        root: 0,
        count: 0,
        send: Span::EMPTY,
        recv: Span::EMPTY,
        send_parts: Parts::None,
        recv_parts: Parts::None,
        settings: 0,
        codec: Codec::None,
    };

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            kind: self.kind,
            dtype: self.dtype,
            op: self.op,
            shared: false,
            count: self.count,
            root: self.root as u32,
            settings: self.settings,
        }
    }

    fn combine(&self, members: usize) -> Combine {
        let is_average = self.op == ReduceOp::Average;
        Combine {
            dtype: self.dtype,
            op: self.op,
            scale: self.scale,
            divisor: if is_average { members as u32 } else { 1 },
        }
    }
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
            Self::Mismatch(asked) => Error::Mismatch {
                operation,
                details: describe_disagreement(&asked),
            },
            Self::Aborted(rank, reason) => Error::Aborted {
                operation,
                rank,
                reason,
            },
            Self::Duplicate => Error::Duplicate { operation },
        }
    }
}

enum Body {
    /// Members only meet.
    Meet,
    Transfer(Transfer),
    Reduce(Reduce),
    /// Over connections.
    Exchange(Box<Exchange>),
    /// Over hosts with several ranks each.
    Hierarchy(Box<Hierarchy>),
    /// Over connections, compressed.
    Compressed(Box<Compressed>),
    /// Over connections, along a topology; on one host the members meet in shared memory.
    Tree(Box<Tree>),
}

#[expect(
    clippy::large_enum_variant,
    reason = "small operations must not touch the heap"
)]
enum State {
    /// Waiting for a slot.
    Opening,
    Running(Attendance),
    /// Not in shared memory.
    Elsewhere,
    Over,
}

/// An operation on its way.
pub(crate) struct Operation {
    key: Key,
    descriptor: Descriptor,
    body: Body,
    state: State,
    /// Set by somebody else to have the operation given up.
    pub(crate) cancelled: Option<Arc<AtomicBool>>,
    /// What monitoring is told.
    pub(crate) facts: Facts,
}

/// What monitoring wants to know of an operation.
pub(crate) struct Facts {
    pub(crate) choice: Choice,
    /// The larger of what this rank gives and gets.
    pub(crate) bytes: u64,
    /// When the operation was made, in ticks.
    pub(crate) began: u64,
    /// Session ranks that a long wait was for; filled for a timeline only.
    pub(crate) waited_for: Vec<usize>,
}

impl Operation {
    /// Chooses the algorithm. The memory behind the request's spans must stay valid and untouched
    /// until the operation is over or aborted.
    pub(crate) fn new(inner: &Inner, group: &GroupInner, key: Key, request: &Request) -> Self {
        let began = sys::ticks();
        let mut choice = Choice::new(inner, group, request.kind, request.send.bytes());
        if request.codec != Codec::None {
            choice = choice.compressed(group);
        }
        let descriptor = request.descriptor();
        match choice {
            Choice::Solo => {
                alone(request);
                Self::with(key, request, began, choice, Body::Meet, State::Over)
            }
            Choice::Meet | Choice::Flat | Choice::TwoPhase { .. } | Choice::Copy => {
                let body = local_body(group, request, choice);
                Self::with(key, request, began, choice, body, State::Opening)
            }
            _ => {
                let body = remote_body(inner, group, key, descriptor, request, choice);
                Self::with(key, request, began, choice, body, State::Elsewhere)
            }
        }
    }

    /// An operation that goes along the graphs of a topology over as many ranks as the group has.
    /// The memory behind the request's spans must stay as for [`Self::new`].
    pub(crate) fn along(
        inner: &Inner,
        group: &GroupInner,
        key: Key,
        request: &Request,
        topology: &Arc<Topology>,
    ) -> Self {
        if group.size() == 1 {
            return Self::new(inner, group, key, request);
        }
        let descriptor = request.descriptor();
        let ranks = Arc::clone(&group.ranks);
        // On one host members without the topology wait in shared memory: that is where those
        // with it must be seen, too.
        let (agreement, state) = if party(inner, group).is_some() {
            (Agreement::elsewhere(key, ranks, group.me), State::Opening)
        } else {
            let agreement = Agreement::new(key, descriptor, ranks, group.me);
            (agreement, State::Elsewhere)
        };
        let tree = Tree::new(
            agreement,
            descriptor,
            request.combine(group.size()),
            Arc::clone(topology),
            request.send,
            request.recv,
        );
        let body = Body::Tree(Box::new(tree));
        Self::with(key, request, sys::ticks(), Choice::Topology, body, state)
    }

    #[inline]
    fn with(
        key: Key,
        request: &Request,
        began: u64,
        choice: Choice,
        body: Body,
        state: State,
    ) -> Self {
        Self {
            key,
            descriptor: request.descriptor(),
            body,
            state,
            cancelled: None,
            facts: Facts {
                choice,
                bytes: request.send.bytes().max(request.recv.bytes()) as u64,
                began,
                waited_for: Vec::new(),
            },
        }
    }

    /// Moves what can be moved; `Ok(true)` when the result is there.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        progressed: &mut bool,
    ) -> Result<bool, Ended> {
        if let State::Opening = self.state {
            match self.open(inner, group) {
                Ok(true) => {}
                other => return other,
            }
        }
        let done = match (&mut self.state, &mut self.body) {
            (State::Over, _) => return Ok(true),
            (State::Running(attendance), Body::Tree(tree)) => {
                let Some(party) = party(inner, group) else {
                    return Ok(true);
                };
                let done = match attendance.poll(&party) {
                    Ok(true) => {
                        tree.agreed(attendance.number(&party));
                        tree.poll(inner, progressed)
                    }
                    other => other.map_err(Ended::from),
                };
                if matches!(done, Ok(true) | Err(Ended::Mismatch(_))) {
                    attendance.finish(&party);
                    self.state = State::Over;
                }
                done
            }
            (State::Running(attendance), body) => {
                let Some(party) = party(inner, group) else {
                    return Ok(true);
                };
                let done = match body {
                    Body::Transfer(transfer) => transfer.poll(&party, attendance, progressed),
                    Body::Reduce(reduce) => reduce.poll(&party, attendance, progressed),
                    _ => attendance.poll(&party),
                };
                // On a mismatch everybody has come and comes to the same verdict by itself.
                if matches!(done, Ok(true) | Err(Failure::Mismatch(_))) {
                    attendance.finish(&party);
                    self.state = State::Over;
                }
                done.map_err(Ended::from)
            }
            (_, Body::Exchange(exchange)) => match inner.surroundings() {
                Some(around) => exchange.poll(&around, progressed),
                None => Ok(false),
            },
            (_, Body::Hierarchy(hierarchy)) => hierarchy.poll(inner, progressed),
            (_, Body::Compressed(compressed)) => match inner.surroundings() {
                Some(around) => compressed.poll(&around, progressed),
                None => Ok(false),
            },
            (_, Body::Tree(tree)) => tree.poll(inner, progressed),
            _ => return Ok(true),
        };
        match done {
            Ok(true) => self.state = State::Over,
            Ok(false) => {}
            Err(_) => self.abort(inner, group, Some("the ranks do not agree")),
        }
        done
    }

    /// Leaves what the next operation can use; to be called when this one is over.
    #[inline]
    pub(crate) fn shelve(&mut self, inner: &Inner) {
        if matches!(self.body, Body::Exchange(_) | Body::Hierarchy(_))
            && let State::Over = self.state
        {
            match (
                std::mem::replace(&mut self.body, Body::Meet),
                &inner.streams,
            ) {
                (Body::Exchange(exchange), Some(streams)) => streams.shelf.put(exchange),
                (Body::Hierarchy(hierarchy), _) => inner.hierarchies.put(hierarchy),
                _ => {}
            }
        }
    }

    /// Takes a slot and posts; false when that must wait.
    #[inline]
    fn open(&mut self, inner: &Inner, group: &GroupInner) -> Result<bool, Ended> {
        let Some(party) = party(inner, group) else {
            return Ok(false);
        };
        let space = match &self.body {
            Body::Transfer(transfer) => Space::Bytes(transfer.space(&party)),
            Body::Reduce(reduce) => reduce.space(&party),
            _ => Space::Bytes(0),
        };
        let ticket = match party.local.open(self.key, space, party.others) {
            Ok(ticket) => ticket,
            Err(Refusal::Busy) => return Ok(false),
            Err(Refusal::Duplicate) => {
                self.state = State::Over;
                return Err(Ended::Duplicate);
            }
        };
        // In its place before anything is written that other cores hold: a copy would wait for that.
        self.state = State::Running(Attendance::new(&party, self.key, self.descriptor, ticket));
        let State::Running(attendance) = &mut self.state else {
            return Ok(false);
        };
        let (staged, counted) = match &mut self.body {
            Body::Transfer(transfer) => (
                transfer.prepare(&party, attendance),
                transfer.is_counted(&party),
            ),
            Body::Reduce(reduce) => (reduce.prepare(&party, attendance), true),
            _ => (0, false),
        };
        attendance.post(&party, staged, counted);
        Ok(true)
    }

    /// A slower look at things that seldom happen; called now and then while waiting.
    pub(crate) fn check(&mut self, inner: &Inner, group: &GroupInner) -> Result<(), Ended> {
        if self
            .cancelled
            .as_ref()
            .is_some_and(|cancelled| cancelled.load(Ordering::Acquire))
        {
            self.abort(inner, group, Some("it was aborted"));
            return Err(Ended::Aborted(inner.rank, "it was aborted".into()));
        }
        if let Body::Hierarchy(hierarchy) = &mut self.body {
            return hierarchy.check(inner);
        }
        let Some(party) = party(inner, group) else {
            return Ok(());
        };
        party.local.tidy();
        if let State::Running(attendance) = &self.state
            && let Some(rank) = attendance.someone_aborted(&party)
        {
            self.abort(inner, group, Some("another rank gave up"));
            return Err(Failure::Aborted(rank).into());
        }
        Ok(())
    }

    /// Session ranks that this one waits for.
    pub(crate) fn waiting_for(&self, inner: &Inner, group: &GroupInner) -> Vec<usize> {
        let absent = match (&self.state, &self.body, party(inner, group)) {
            (State::Running(attendance), body, Some(party)) => {
                match (attendance.absent(&party), body) {
                    (absent, Body::Tree(tree)) if absent.is_empty() => tree.waiting_for(),
                    (absent, _) => absent,
                }
            }
            (_, Body::Exchange(exchange), _) => exchange.waiting_for(),
            (_, Body::Hierarchy(hierarchy), _) => hierarchy.waiting_for(inner),
            (_, Body::Compressed(compressed), _) => compressed.waiting_for(),
            (_, Body::Tree(tree), _) => tree.waiting_for(),
            _ => Vec::new(),
        };
        if absent.is_empty() {
            group
                .ranks
                .iter()
                .copied()
                .filter(|rank| *rank != inner.rank)
                .collect()
        } else {
            absent
        }
    }

    /// Whether somebody that this one waits for may need the core that it runs on.
    #[inline]
    pub(crate) fn awaits_core(&self, inner: &Inner, group: &GroupInner, core: u32) -> bool {
        let (State::Running(attendance), Some(party)) = (&self.state, party(inner, group)) else {
            return true;
        };
        match &self.body {
            Body::Reduce(reduce) if attendance.is_complete() => {
                reduce.awaits_core(&party, attendance, core)
            }
            _ => attendance.awaits_core(&party, core),
        }
    }

    /// Has the next poll look for members in unlikely places too.
    pub(crate) fn look_everywhere(&mut self) {
        match (&mut self.state, &mut self.body) {
            (State::Running(attendance), _) => attendance.look_everywhere(),
            (_, Body::Hierarchy(hierarchy)) => hierarchy.look_everywhere(),
            _ => {}
        }
    }

    /// Whether something is still expected from a rank.
    pub(crate) fn needs(&self, inner: &Inner, group: &GroupInner, rank: usize) -> bool {
        match (&self.state, &self.body, party(inner, group)) {
            (State::Running(attendance), body, Some(party)) => {
                attendance.lacks(&party, rank)
                    || matches!(body, Body::Tree(tree) if tree.needs(rank))
            }
            (_, Body::Exchange(exchange), _) => exchange.needs(rank),
            (_, Body::Hierarchy(hierarchy), _) => hierarchy.needs(inner, rank),
            (_, Body::Compressed(compressed), _) => compressed.needs(rank),
            (State::Elsewhere, Body::Tree(tree), _) => tree.needs(rank),
            _ => true,
        }
    }

    /// Gives the operation up; its memory is free to go afterwards.
    ///
    /// The others are told why; without a reason they find out by themselves.
    pub(crate) fn abort(&mut self, inner: &Inner, group: &GroupInner, reason: Option<&str>) {
        if let (State::Running(attendance), Some(party)) = (&mut self.state, party(inner, group)) {
            attendance.abort(&party, reason.is_none());
            if let Body::Tree(tree) = &mut self.body {
                tree.abort(inner, reason);
            }
        }
        if let State::Elsewhere = self.state {
            match (&mut self.body, &inner.streams) {
                (Body::Exchange(exchange), Some(streams)) => exchange.abort(streams, reason),
                (Body::Hierarchy(hierarchy), _) => hierarchy.abort(inner, reason),
                (Body::Compressed(compressed), Some(streams)) => compressed.abort(streams, reason),
                (Body::Tree(tree), _) => tree.abort(inner, reason),
                _ => {}
            }
        }
        self.state = State::Over;
    }

    /// What a completed operation moved through shared memory: for each local peer its session
    /// rank, the bytes that were for it and the bytes that came from it.
    #[inline]
    pub(crate) fn local_traffic(&self, group: &GroupInner, mut visit: impl FnMut(usize, u64, u64)) {
        let others = || (0..group.size()).filter(|member| *member != group.me);
        match &self.body {
            Body::Transfer(transfer) => {
                for member in others() {
                    let (to, from) = transfer.traffic(group.me, member);
                    visit(group.ranks[member], to, from);
                }
            }
            Body::Reduce(reduce) => {
                for member in others() {
                    let (to, from) = reduce.traffic(group.size(), group.me, member);
                    visit(group.ranks[member], to, from);
                }
            }
            Body::Hierarchy(hierarchy) => hierarchy.local_traffic(visit),
            Body::Meet | Body::Exchange(_) | Body::Compressed(_) | Body::Tree(_) => {}
        }
    }

    /// Whether bytes of this operation travel on connections.
    pub(crate) fn uses_connections(&self) -> bool {
        matches!(
            self.body,
            Body::Exchange(_) | Body::Hierarchy(_) | Body::Compressed(_) | Body::Tree(_)
        )
    }

    /// Sleeps until something arrives, unless there is progress already.
    pub(crate) fn park(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        limit: Duration,
    ) -> Result<bool, Ended> {
        let on_connections = match &self.body {
            Body::Exchange(_) | Body::Compressed(_) => true,
            // Waits on both sides: short sleeps on the connections, which bring aborts.
            Body::Hierarchy(_) | Body::Tree(_) => true,
            _ => false,
        };
        if on_connections {
            if let Some(streams) = &inner.streams {
                let others = group
                    .ranks
                    .iter()
                    .copied()
                    .filter(|rank| *rank != inner.rank);
                // Started operations of a hierarchy also wait for local peers: look often.
                let limit = match (&self.body, &self.state) {
                    (Body::Hierarchy(_), _)
                    | (Body::Tree(_), State::Opening | State::Running(_)) => {
                        limit.min(Duration::from_millis(1))
                    }
                    _ => limit,
                };
                streams.sleep(others, limit);
            }
            return Ok(false);
        }
        let Some(local) = &inner.local else {
            return Ok(false);
        };
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
        others: group.local_others,
    })
}
