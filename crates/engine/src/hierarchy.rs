//! Large reductions over several hosts with several ranks each.
//!
//! Inside each host the ranks reduce-scatter through shared memory; then the ranks with the same
//! place on their hosts (a *column*) combine their segment across hosts; then each host gathers.
//! There are as many columns as the smallest host has ranks. A value is combined first over its
//! host in rank order, then over the hosts in order: this depends on the layout alone. f16 and
//! bf16 partial sums are rounded once inside a host and once across. A compressed sum is compressed
//! across hosts only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::compress::Codec;
use crate::descriptor::Descriptor;
use crate::group::GroupInner;
use crate::kernels::Scale;
use crate::key::Key;
use crate::local::attend::Attendance;
use crate::local::reduce::Combine;
use crate::local::transfer::{Parts, Sink, Transfer};
use crate::local::{Party, Refusal, Space};
use crate::operation::{Ended, Request};
use crate::region::{MAX_LOCAL, WINDOW_BYTES};
use crate::session::Inner;
use crate::span::Span;
use crate::stream::Streams;
use crate::stream::compressed::Compressed;
use crate::stream::exchange::{Exchange, Form, Results, Surroundings};

/// How the hosts' segments are combined.
enum Cross {
    Plain(Box<Exchange>),
    Compressed(Box<Compressed>),
}

impl Cross {
    fn poll(&mut self, around: &Surroundings<'_>, moved: &mut bool) -> Result<bool, Ended> {
        match self {
            Self::Plain(exchange) => exchange.poll(around, moved),
            Self::Compressed(compressed) => compressed.poll(around, moved),
        }
    }

    fn waiting_for(&self) -> Vec<usize> {
        match self {
            Self::Plain(exchange) => exchange.waiting_for(),
            Self::Compressed(compressed) => compressed.waiting_for(),
        }
    }

    fn needs(&self, rank: usize) -> bool {
        match self {
            Self::Plain(exchange) => exchange.needs(rank),
            Self::Compressed(compressed) => compressed.needs(rank),
        }
    }

    fn abort(&mut self, streams: &Streams, reason: Option<&str>) {
        match self {
            Self::Plain(exchange) => exchange.abort(streams, reason),
            Self::Compressed(compressed) => compressed.abort(streams, reason),
        }
    }
}

enum Stage {
    Scatter,
    Cross,
    Gather,
    Done,
}

/// A reduction over hosts, as one rank sees it.
pub(crate) struct Hierarchy {
    key: Key,
    /// The key that those of the parts are made from.
    part: Key,
    descriptor: Descriptor,
    combine: Combine,
    send: Span,
    recv: Span,
    columns: Arc<Columns>,
    /// (offset, bytes) for each member of this host; none beyond the columns.
    segments: [(usize, usize); MAX_LOCAL],
    /// The own segment's parts among the members of this rank's column.
    column_parts: Parts,
    stage: Stage,
    /// Open until the end: whoever gives up is heard there.
    meeting: Option<Box<Exchange>>,
    agreed: bool,
    attendance: Option<Attendance>,
    transfer: Option<Transfer>,
    exchange: Option<Cross>,
    /// How values travel between hosts.
    codec: Codec,
}

/// Hierarchies that are over, for the memory that they were in.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<Option<Box<Hierarchy>>>);

impl Shelf {
    fn slot(&self) -> MutexGuard<'_, Option<Box<Hierarchy>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a hierarchy that is over.
    pub(crate) fn put(&self, hierarchy: Box<Hierarchy>) {
        *self.slot() = Some(hierarchy);
    }

    /// Puts a new hierarchy into kept memory, if there is any.
    pub(crate) fn place(&self, hierarchy: Hierarchy) -> Box<Hierarchy> {
        match self.slot().take() {
            Some(mut kept) => {
                *kept = hierarchy;
                kept
            }
            None => Box::new(hierarchy),
        }
    }
}

/// How a group lies on its hosts, as one member sees it.
pub(crate) struct Columns {
    /// Local ranks of the members on this host, and this rank's place among them.
    local: Vec<u8>,
    local_ranks: Vec<usize>,
    me: usize,
    /// As many as the smallest host has members.
    count: usize,
    hosts: usize,
    /// The members of this rank's column, one a host, and this rank's place among them.
    members: Arc<[usize]>,
    column_me: usize,
}

impl Columns {
    /// `None` when this rank does not share memory with the other members on its host.
    pub(crate) fn new(inner: &Inner, group: &GroupInner) -> Option<Self> {
        let mut hosts: Vec<(usize, Vec<usize>)> = Vec::new();
        for (member, host) in group.hosts.iter().enumerate() {
            match hosts.iter_mut().find(|(known, _)| known == host) {
                Some((_, members)) => members.push(member),
                None => hosts.push((*host, vec![member])),
            }
        }
        let count = hosts.iter().map(|(_, members)| members.len()).min()?;
        let mine = hosts
            .iter()
            .position(|(host, _)| *host == group.hosts[group.me])?;
        let on_host = &hosts[mine].1;
        let local: Option<Vec<u8>> = if on_host.len() < 2 {
            Some(vec![0])
        } else {
            on_host
                .iter()
                .map(|member| inner.local_ranks[group.ranks[*member]])
                .collect()
        };
        let me = on_host.iter().position(|member| *member == group.me)?;
        let members = if me < count {
            let column = hosts.iter().map(|(_, members)| group.ranks[members[me]]);
            column.collect()
        } else {
            Arc::default()
        };
        Some(Self {
            local: local?,
            local_ranks: on_host.iter().map(|member| group.ranks[*member]).collect(),
            me,
            count,
            hosts: hosts.len(),
            members,
            column_me: mine,
        })
    }
}

impl Hierarchy {
    /// Whether the group has several hosts, some with several members.
    ///
    /// Decided by the layout alone, so that all ranks decide alike.
    pub(crate) fn applies(group: &GroupInner) -> bool {
        let on_host = |host: &usize| group.hosts.iter().filter(|other| *other == host).count();
        let largest = group.hosts.iter().map(on_host).max().unwrap_or(0);
        largest < group.size() && (2..=MAX_LOCAL).contains(&largest)
    }

    /// `None` when this rank does not share memory with the other members on its host; the group
    /// must be one to which this [applies](Self::applies).
    pub(crate) fn new(
        inner: &Inner,
        group: &GroupInner,
        key: Key,
        descriptor: Descriptor,
        request: &Request,
        combine: Combine,
    ) -> Option<Self> {
        let columns = group.columns(inner)?;
        let size = combine.dtype.size();
        let cut = Parts::Cut {
            base: 0,
            count: request.send.bytes() / size,
            parts: columns.count,
            size,
        };
        let mut segments = [(0, 0); MAX_LOCAL];
        for (column, segment) in segments.iter_mut().enumerate().take(columns.count) {
            *segment = cut.of(column);
        }
        let (base, bytes) = segments[columns.me];
        let column_parts = Parts::Cut {
            base,
            count: bytes / size,
            parts: columns.hosts,
            size,
        };
        let streams = inner.streams.as_ref()?;
        let ranks = Arc::clone(&group.ranks);
        let meeting = Exchange::meeting(key, descriptor, ranks, group.me);
        Some(Self {
            key,
            part: key,
            descriptor,
            combine,
            send: request.send,
            recv: request.recv,
            columns,
            segments,
            column_parts,
            stage: Stage::Scatter,
            meeting: Some(Exchange::shelved(streams, meeting)),
            agreed: false,
            attendance: None,
            transfer: None,
            exchange: None,
            codec: request.codec,
        })
    }

    fn party<'a>(&'a self, inner: &'a Inner) -> Option<Party<'a>> {
        Some(Party {
            local: inner.local.as_ref()?,
            members: &self.columns.local,
            me: self.columns.me,
            ranks: &self.columns.local_ranks,
            others: crate::local::others(&self.columns.local, self.columns.me),
        })
    }

    pub(crate) fn poll(&mut self, inner: &Inner, progressed: &mut bool) -> Result<bool, Ended> {
        if let Some(meeting) = &mut self.meeting
            && let Some(around) = inner.surroundings()
        {
            let mut met = false;
            match meeting.poll(&around, &mut met) {
                Ok(true) => {
                    // Keys of the parts are new with every attempt, and never met before.
                    self.part = self.key.part(u32::MAX, meeting.attempt() as u32);
                    *progressed |= met && !std::mem::replace(&mut self.agreed, true);
                }
                // Nothing moves before everybody was seen to agree.
                Ok(false) => {
                    *progressed |= met;
                    return Ok(false);
                }
                Err(ended) => {
                    self.meeting = None;
                    self.abort(inner, Some("the ranks do not agree"));
                    return Err(ended);
                }
            }
        }
        loop {
            let moved = match self.stage {
                Stage::Scatter => self.poll_local(inner, 1, progressed)?,
                Stage::Cross => self.poll_cross(inner, progressed)?,
                Stage::Gather => self.poll_local(inner, 3, progressed)?,
                Stage::Done => {
                    if let (Some(mut meeting), Some(streams)) =
                        (self.meeting.take(), &inner.streams)
                    {
                        meeting.release(streams);
                        streams.shelf.put(meeting);
                    }
                    return Ok(true);
                }
            };
            if !moved {
                return Ok(false);
            }
            *progressed = true;
            self.stage = match self.stage {
                Stage::Scatter => Stage::Cross,
                Stage::Cross => Stage::Gather,
                Stage::Gather | Stage::Done => Stage::Done,
            };
        }
    }

    fn transfer(&self, stage: u32) -> Transfer {
        let members = self.columns.local.len();
        let others = ((1u64 << members) - 1) & !(1 << self.columns.me);
        let table = Parts::Table(self.segments.as_ptr());
        if stage == 1 {
            let Combine {
                dtype, op, scale, ..
            } = self.combine;
            let op = if op == crate::ReduceOp::Average {
                crate::ReduceOp::Sum
            } else {
                op
            };
            let scale = Scale {
                before: scale.before,
                after: 1.0,
            };
            let (base, bytes) = self.segments[self.columns.me];
            let sink = Sink::Reduce {
                dtype,
                op,
                scale,
                divisor: 1,
            };
            Transfer::new(
                self.send,
                self.recv,
                false,
                table,
                others,
                Parts::Whole(bytes),
                sink,
            )
            .at(base)
        } else {
            let outgoing = if self.columns.me < self.columns.count {
                table
            } else {
                Parts::None
            };
            Transfer::new(
                self.recv,
                self.recv,
                true,
                outgoing,
                others,
                table,
                Sink::Copy,
            )
        }
    }

    fn poll_local(&mut self, inner: &Inner, stage: u32, moved: &mut bool) -> Result<bool, Ended> {
        if self.columns.local.len() < 2 {
            if stage == 1 {
                self.alone();
            }
            return Ok(true);
        }
        let mut transfer = self.transfer.take().unwrap_or_else(|| self.transfer(stage));
        let mut attendance = self.attendance.take();
        let outcome = {
            let Some(party) = self.party(inner) else {
                return Ok(false);
            };
            let opened = match &mut attendance {
                Some(attendance) => Ok(attendance),
                None => {
                    let key = self.part.part(stage, 0);
                    let space = Space::Bytes(WINDOW_BYTES);
                    party.local.open(key, space, party.others).map(|ticket| {
                        let mut a = Attendance::new(&party, key, self.descriptor, ticket);
                        let staged = transfer.prepare(&party, &a);
                        a.post(&party, staged, true);
                        attendance.insert(a)
                    })
                }
            };
            match opened {
                Ok(attendance) => transfer
                    .poll(&party, attendance, moved)
                    .map_err(Ended::from),
                Err(Refusal::Busy) => Ok(false),
                Err(Refusal::Duplicate) => Err(Ended::Duplicate),
            }
        };
        match outcome {
            Ok(true) => {
                if let (Some(mut attendance), Some(party)) = (attendance, self.party(inner)) {
                    attendance.finish(&party);
                }
                Ok(true)
            }
            Ok(false) => {
                self.transfer = Some(transfer);
                self.attendance = attendance;
                Ok(false)
            }
            Err(ended) => {
                self.attendance = attendance;
                self.abort(inner, Some("a member of its host gave up"));
                Err(ended)
            }
        }
    }

    /// The only rank of its host: what the others reduce inside theirs is here a copy.
    fn alone(&mut self) {
        let bytes = self.send.bytes();
        let Combine {
            dtype, op, scale, ..
        } = self.combine;
        let op = if op == crate::ReduceOp::Average {
            crate::ReduceOp::Sum
        } else {
            op
        };
        let scale = Scale {
            before: scale.before,
            after: 1.0,
        };
        crate::operation::reduce_alone(
            self.send,
            self.recv,
            bytes,
            Combine {
                dtype,
                op,
                scale,
                divisor: 1,
            },
        );
    }

    fn poll_cross(&mut self, inner: &Inner, moved: &mut bool) -> Result<bool, Ended> {
        if self.columns.me >= self.columns.count {
            return Ok(true);
        }
        let Some(around) = inner.surroundings() else {
            return Ok(false);
        };
        let exchange = self.exchange.get_or_insert_with(|| {
            let Combine {
                dtype,
                op,
                scale,
                divisor,
            } = self.combine;
            let scale = Scale {
                before: 1.0,
                after: scale.after,
            };
            let combine = Combine {
                dtype,
                op,
                scale,
                divisor,
            };
            let key = self.part.part(2, self.columns.me as u32);
            if self.codec != Codec::None {
                return Cross::Compressed(Box::new(Compressed::new(
                    key,
                    self.descriptor,
                    self.codec,
                    combine,
                    (self.recv, self.recv),
                    self.segments[self.columns.me],
                    Arc::clone(&self.columns.members),
                    self.columns.column_me,
                )));
            }
            let exchange = Exchange::new(
                key,
                self.descriptor,
                Form::Segmented {
                    combine,
                    segments: self.column_parts,
                    results: Results::All,
                },
                self.recv,
                self.recv,
                Arc::clone(&self.columns.members),
                self.columns.column_me,
            );
            Cross::Plain(Exchange::shelved(around.streams, exchange))
        });
        match exchange.poll(&around, moved) {
            Ok(true) => {
                if let Some(Cross::Plain(exchange)) = self.exchange.take() {
                    around.streams.shelf.put(exchange);
                }
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(ended) => {
                self.exchange = None;
                self.abort(inner, Some("a member of its column gave up"));
                Err(ended)
            }
        }
    }

    /// What moved through shared memory: for each local peer its session rank, the bytes that were
    /// for it and the bytes that came from it, to be combined and then as results.
    pub(crate) fn local_traffic(&self, mut visit: impl FnMut(usize, u64, u64)) {
        let own = self.segments[self.columns.me].1;
        for (member, rank) in self.columns.local_ranks.iter().enumerate() {
            if member != self.columns.me {
                let bytes = (own + self.segments[member].1) as u64;
                visit(*rank, bytes, bytes);
            }
        }
    }

    pub(crate) fn waiting_for(&self, inner: &Inner) -> Vec<usize> {
        if let (Some(meeting), false) = (&self.meeting, self.agreed) {
            return meeting.waiting_for();
        }
        if let Some(exchange) = &self.exchange {
            return exchange.waiting_for();
        }
        match (&self.attendance, self.party(inner)) {
            (Some(attendance), Some(party)) => attendance.absent(&party),
            _ => self.columns.local_ranks.clone(),
        }
    }

    /// Has the next poll look for members in unlikely places too.
    pub(crate) fn look_everywhere(&mut self) {
        if let Some(attendance) = &mut self.attendance {
            attendance.look_everywhere();
        }
    }

    /// Whether something is still expected from a rank.
    pub(crate) fn needs(&self, inner: &Inner, rank: usize) -> bool {
        if self
            .meeting
            .as_ref()
            .is_some_and(|meeting| meeting.needs(rank))
            || self
                .exchange
                .as_ref()
                .is_some_and(|exchange| exchange.needs(rank))
        {
            return true;
        }
        match (&self.attendance, self.party(inner)) {
            (Some(attendance), Some(party)) => attendance.lacks(&party, rank),
            // Between two stages: the next will tell.
            _ => false,
        }
    }

    /// Looks whether somebody gave up.
    pub(crate) fn check(&mut self, inner: &Inner) -> Result<(), Ended> {
        let Some(party) = self.party(inner) else {
            return Ok(());
        };
        party.local.tidy();
        let aborted = self
            .attendance
            .as_ref()
            .and_then(|a| a.someone_aborted(&party));
        if let Some(rank) = aborted {
            self.abort(inner, Some("a member of its host gave up"));
            return Err(Ended::Aborted(rank, "it gave the operation up".into()));
        }
        Ok(())
    }

    pub(crate) fn abort(&mut self, inner: &Inner, reason: Option<&str>) {
        if let Some(mut attendance) = self.attendance.take()
            && let Some(party) = self.party(inner)
        {
            attendance.abort(&party, reason.is_none());
        }
        if let Some(streams) = &inner.streams {
            if let Some(mut meeting) = self.meeting.take() {
                meeting.abort(streams, reason);
            }
            if let Some(mut exchange) = self.exchange.take() {
                exchange.abort(streams, reason);
            }
        }
        self.stage = Stage::Done;
    }
}
