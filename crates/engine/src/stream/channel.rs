//! Data of operations whose members agree before any of it moves.
//!
//! Where every member talks to a few others only, a posting to those few does not show who else
//! asks for what. Such an operation begins with an [`Agreement`]: all members meet, compare their
//! descriptors, and keep the meeting open until they are through, so that whoever gives up is
//! heard. The data then moves on [`Channel`]s, each with a key of its own that no other attempt at
//! the operation shares.
//!
//! A channel carries up to two flows in either direction between this member and some others. Both
//! ends of a flow may be rings: a peer sends what it was granted, and is granted more when memory
//! is free again.

#![expect(
    unsafe_code,
    reason = "the first bytes of a flow are read from spans of the operation"
)]

use std::sync::Arc;

use super::Streams;
use super::exchange::{Exchange, Surroundings};
use super::frame::{FrameKind, MAX_EAGER, POST, Post};
use super::inbox::{Flow, Flows, Intake, Stage};
use crate::descriptor::Descriptor;
use crate::key::Key;
use crate::operation::Ended;
use crate::span::Span;

/// Bytes are sent and combined in blocks of at least this many, except at the end of a flow.
pub(crate) const BLOCK: u64 = 16 << 10;

/// What the members agree on, held open until the operation is over.
pub(crate) struct Agreement {
    key: Key,
    /// Session ranks of the members, in the group's order.
    pub(crate) ranks: Arc<[usize]>,
    pub(crate) me: usize,
    /// None where the members meet in shared memory.
    meeting: Option<Exchange>,
    /// The attempt's number in the meeting, known from the first look on.
    attempt: Option<u64>,
    part: Option<Key>,
}

impl Agreement {
    /// An agreement over connections.
    pub(crate) fn new(key: Key, descriptor: Descriptor, ranks: Arc<[usize]>, me: usize) -> Self {
        let meeting = Exchange::meeting(key, descriptor, Arc::clone(&ranks), me);
        Self {
            meeting: Some(meeting),
            ..Self::elsewhere(key, ranks, me)
        }
    }

    /// An agreement that somebody else brings about and tells by [`Self::reached`].
    pub(crate) fn elsewhere(key: Key, ranks: Arc<[usize]>, me: usize) -> Self {
        Self {
            key,
            ranks,
            me,
            meeting: None,
            attempt: None,
            part: None,
        }
    }

    /// The members have agreed elsewhere; `number` is the same on all of them, and new.
    pub(crate) fn reached(&mut self, number: (u16, u32)) {
        let (slot, round) = number;
        self.part
            .get_or_insert_with(|| self.key.part(u32::MAX - u32::from(slot), round));
    }

    /// Session ranks of the other members.
    pub(crate) fn other_ranks(&self) -> impl Iterator<Item = usize> + '_ {
        let me = self.ranks[self.me];
        self.ranks.iter().copied().filter(move |rank| *rank != me)
    }

    /// Hears what the others say; the key that channels' keys are made from once all agree.
    pub(crate) fn poll(
        &mut self,
        around: &Surroundings<'_>,
        progressed: &mut bool,
    ) -> Result<Option<Key>, Ended> {
        let Some(meeting) = &mut self.meeting else {
            let heard = around.streams.progress(around.events, self.other_ranks());
            return Ok(self.part.filter(|_| heard.is_ok()));
        };
        let mut met = false;
        let outcome = meeting.poll(around, &mut met);
        let attempt = meeting.attempt();
        match outcome {
            Ok(false) => {
                *progressed |= met;
                self.attempt = Some(attempt);
                return Ok(None);
            }
            Ok(true) => {}
            Err(ended) => {
                self.meeting = None;
                if !matches!(ended, Ended::Aborted(..)) {
                    // Nobody has begun, and the next try has the same number.
                    self.attempt = None;
                }
                return Err(ended);
            }
        }
        if self.part.is_none() {
            *progressed = true;
            self.part = Some(attempt_key(self.key, attempt));
        }
        Ok(self.part)
    }

    /// Session ranks that have not come; all others when everybody has.
    pub(crate) fn waiting_for(&self) -> Vec<usize> {
        match &self.meeting {
            Some(meeting) if self.part.is_none() => meeting.waiting_for(),
            _ => self.other_ranks().collect(),
        }
    }

    /// Whether a rank has not come yet, as far as the meeting over connections tells.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        self.part.is_none() && self.meeting.as_ref().is_some_and(|m| m.needs(rank))
    }

    /// The operation is over.
    pub(crate) fn release(&mut self, streams: &Streams) {
        if let Some(mut meeting) = self.meeting.take() {
            meeting.release(streams);
        }
    }

    /// Gives up and tells the others why; the key under which some of them may have begun.
    pub(crate) fn abort(&mut self, streams: &Streams, reason: Option<&str>) -> Option<Key> {
        let attempt = self.attempt.map(|attempt| attempt_key(self.key, attempt));
        if let Some(mut meeting) = self.meeting.take() {
            meeting.abort(streams, reason);
        }
        self.part.or(attempt)
    }
}

fn attempt_key(key: Key, attempt: u64) -> Key {
    key.part(u32::MAX, attempt as u32)
}

/// Bytes for a peer: `total` of them, from a ring over `span[base..base + capacity]`.
#[derive(Clone, Copy)]
pub(crate) struct Outlet {
    span: Span,
    base: usize,
    capacity: usize,
    pub(crate) total: u64,
    /// Bytes that are ready to be sent, all from the beginning on.
    pub(crate) available: u64,
    pub(crate) sent: u64,
    /// The socket took a part only of what was offered last: a frame may have begun.
    begun: bool,
}

impl Outlet {
    pub(crate) const NONE: Self = Self {
        span: Span::EMPTY,
        base: 0,
        capacity: 0,
        total: 0,
        available: 0,
        sent: 0,
        begun: false,
    };

    /// The `bytes` bytes of a span from `base` on, where they lie.
    pub(crate) fn straight(span: Span, base: usize, bytes: usize) -> Self {
        Self {
            span,
            base,
            capacity: bytes,
            total: bytes as u64,
            ..Self::NONE
        }
    }

    /// `total` bytes that pass through all of a span.
    pub(crate) fn ring(span: Span, total: u64) -> Self {
        Self {
            span,
            capacity: span.bytes(),
            total,
            ..Self::NONE
        }
    }

    /// Where the memory begins in its span.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// The same bytes, coming in.
    pub(crate) fn as_intake(&self) -> Intake {
        Intake {
            span: self.span,
            base: self.base,
            capacity: self.capacity,
            total: self.total,
        }
    }

    /// Where the next bytes lie, and how many of `bytes` in one go.
    fn next(&self, bytes: u64) -> (usize, usize) {
        let inside = (self.sent % self.capacity as u64) as usize;
        let bytes = (self.capacity - inside).min(bytes as usize);
        (self.base + inside, bytes)
    }
}

/// What a channel has with one other member.
pub(crate) struct Link {
    pub(crate) rank: usize,
    pub(crate) intakes: [Intake; 2],
    pub(crate) outlets: [Outlet; 2],
}

/// Flows between this member and some others under a key of their own.
pub(crate) struct Channel {
    key: Key,
    flows: Arc<Flows>,
    pub(crate) outlets: Vec<[Outlet; 2]>,
    heard: u64,
    over: bool,
}

impl Channel {
    /// Registers the flows. Memory behind the links must stay until the channel is closed or
    /// aborted.
    pub(crate) fn open(streams: &Streams, key: Key, links: Vec<Link>) -> Result<Self, Ended> {
        let mut flows = Vec::with_capacity(links.len());
        let mut outlets = Vec::with_capacity(links.len());
        for link in links {
            flows.push(Flow::new(link.rank, link.intakes));
            outlets.push(link.outlets);
        }
        let flows = Arc::new(Flows::new(key, flows));
        if !streams.inbox.register(&flows) {
            return Err(Ended::Duplicate);
        }
        Ok(Self {
            key,
            flows,
            outlets,
            heard: 0,
            over: false,
        })
    }

    /// Tells the others that this member is there, with the first bytes. An error names the rank
    /// whose connection failed.
    pub(crate) fn post(&mut self, streams: &Streams, descriptor: Descriptor) -> Result<(), usize> {
        for (flow, outlets) in self.flows.flows.iter().zip(&mut self.outlets) {
            let post = Post {
                descriptor,
                granted: [flow.stages[0].announced(), flow.stages[1].announced()],
            };
            let out = &mut outlets[0];
            let mut eager = Vec::new();
            if out.available > 0 {
                let (at, bytes) = out.next(out.available.min(MAX_EAGER as u64));
                eager.reserve(bytes);
                out.span.visit(at, bytes, |pointer, _, length| {
                    // SAFETY: the span vouches for its memory until the channel is over.
                    let bytes = unsafe { std::slice::from_raw_parts(pointer, length) };
                    eager.extend_from_slice(bytes);
                });
            }
            let mut frame = streams.frame(FrameKind::Post, self.key);
            frame.length = (POST + eager.len()) as u32;
            frame.extra = self.flows.attempt();
            let connection = streams.connection(flow.rank).map_err(|_| flow.rank)?;
            connection
                .send(&frame, &post.encode(), &eager)
                .map_err(|_| flow.rank)?;
            out.sent = eager.len() as u64;
        }
        Ok(())
    }

    /// Bytes of a flow that have arrived from the `peer`-th member of the channel.
    pub(crate) fn received(&self, peer: usize, stage: usize) -> u64 {
        self.flows.flows[peer].stages[stage].received()
    }

    /// Whether anything arrived since the last time this was asked.
    pub(crate) fn heard_more(&mut self) -> bool {
        let stages = self.flows.flows.iter().flat_map(|flow| &flow.stages);
        let heard = stages.map(Stage::received).sum();
        std::mem::replace(&mut self.heard, heard) != heard
    }

    /// Memory for `ring` bytes of a flow beyond the first `free` is there; the peer is told when
    /// that is worth a frame.
    pub(crate) fn grant(
        &self,
        streams: &Streams,
        peer: usize,
        stage: usize,
        free: u64,
        ring: usize,
    ) {
        let flow = &self.flows.flows[peer];
        let target = &flow.stages[stage];
        let upto = (free + ring as u64).min(target.total());
        let announced = target.announced();
        if announced < upto && (upto - announced >= ring as u64 / 4 || upto == target.total()) {
            target.announce(upto);
            let mut frame = streams.frame(FrameKind::Credit, self.key);
            frame.stage = stage as u8;
            frame.offset = upto;
            // A broken connection is found by reading it.
            let _ = streams.send(flow.rank, &frame, &[]);
        }
    }

    /// Sends what is ready and granted; an error names the rank whose connection failed.
    pub(crate) fn send_more(&mut self, streams: &Streams) -> Result<bool, usize> {
        let mut any = false;
        for (flow, outlets) in self.flows.flows.iter().zip(&mut self.outlets) {
            if !flow.is_posted() {
                continue;
            }
            for (stage, out) in outlets.iter_mut().enumerate() {
                loop {
                    let upto = out.available.min(flow.stages[stage].granted());
                    let ready = upto.saturating_sub(out.sent);
                    // Few headers and system calls: more will be ready soon. But a frame that has
                    // begun goes to its end: what others wait for may stand behind it.
                    let few = BLOCK.min(out.capacity as u64 / 4);
                    let little = ready < few && upto == out.available && upto < out.total;
                    if ready == 0 || (little && !out.begun) {
                        break;
                    }
                    let (at, bytes) = out.next(ready);
                    let (key, stage) = (self.key, stage as u8);
                    let sent = streams
                        .connection(flow.rank)
                        .and_then(|connection| {
                            let (generation, offset) = (streams.generation, out.sent);
                            let span = &mut out.span;
                            connection.send_data(generation, key, stage, offset, span, at, bytes)
                        })
                        .map_err(|_| flow.rank)?;
                    out.sent += sent as u64;
                    out.begun = sent < bytes;
                    any |= sent > 0;
                    if out.begun {
                        break;
                    }
                }
            }
        }
        Ok(any)
    }

    /// Whether everything has been sent and has arrived, the others' postings included: one that
    /// came later would be taken for that of the next operation under the same key.
    pub(crate) fn is_done(&self) -> bool {
        let sent = self.outlets.iter().flatten().all(|o| o.sent == o.total);
        let mut flows = self.flows.flows.iter();
        sent && flows.all(|f| f.is_posted() && f.stages.iter().all(Stage::is_complete))
    }

    /// Whether something is still expected from a rank, or owed to it.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        let mut links = self.flows.flows.iter().zip(&self.outlets);
        links.any(|(flow, out)| {
            flow.rank == rank
                && (!flow.is_posted()
                    || flow.stages.iter().any(|stage| !stage.is_complete())
                    || out.iter().any(|out| out.sent < out.total))
        })
    }

    /// Session ranks from which something is still expected, or to which it is owed.
    pub(crate) fn waiting_for(&self) -> impl Iterator<Item = usize> + '_ {
        let ranks = self.flows.flows.iter().map(|flow| flow.rank);
        ranks.filter(|rank| self.needs(*rank))
    }

    /// Ends the channel when all is done; afterwards nobody touches its memory.
    pub(crate) fn close(&mut self, streams: &Streams) {
        if !std::mem::replace(&mut self.over, true) {
            streams.inbox.unregister(&self.flows);
        }
    }

    /// Ends the channel in the middle; afterwards nobody touches its memory.
    pub(crate) fn abort(&mut self, streams: &Streams) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        streams.inbox.give_up(&self.flows);
        for flow in &self.flows.flows {
            if let Ok(connection) = streams.connection(flow.rank) {
                connection.abandon(self.key);
            }
        }
    }

    /// Drops what others may send on a channel that this member will never open.
    pub(crate) fn refuse(streams: &Streams, key: Key, ranks: impl Iterator<Item = usize>) {
        let flows: Vec<Flow> = ranks
            .map(|rank| Flow::new(rank, [Intake::NONE; 2]))
            .collect();
        let flows = Arc::new(Flows::new(key, flows));
        if streams.inbox.register(&flows) {
            streams.inbox.give_up(&flows);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::stream::connection::Connection;
    use crate::stream::frame::{HEADER, MAX_DATA};
    use crate::stream::socket::Socket;

    /// What can be read just now.
    fn read_some(socket: &mut &UnixStream) -> usize {
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0;
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            got += count;
        }
        got
    }

    #[test]
    fn a_frame_that_has_begun_goes_to_its_end() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        theirs.set_nonblocking(true).expect("a socket");
        let connection = Connection::new(1, Socket::Local(ours));
        let streams = Streams::new(1, vec![None, Some(connection)]).expect("an eventfd");
        let mut tensor = vec![0u8; 1 << 20];
        let span = Span::one(tensor.as_mut_ptr(), tensor.len());
        let key = Key(1, 2);
        let link = Link {
            rank: 1,
            intakes: [Intake::NONE; 2],
            outlets: [Outlet::straight(span, 0, tensor.len()), Outlet::NONE],
        };
        let mut channel = Channel::open(&streams, key, vec![link]).expect("a new key");
        let descriptor = Descriptor::from_parts(1, 0, 0, 0).expect("a barrier");
        let post = Post {
            descriptor,
            granted: [1 << 20, 0],
        };
        streams.inbox.post(1, key, 0, &post, &[]);

        // More than the socket takes is ready; it is read until less than a block is left.
        let available = MAX_DATA as u64;
        channel.outlets[0][0].available = available;
        let mut got = 0;
        let mut left = available;
        while left >= BLOCK {
            channel.send_more(&streams).expect("open");
            left = available - channel.outlets[0][0].sent;
            let mut some = [0; 4 << 10];
            got += (&theirs).read(&mut some).expect("there is something");
        }
        assert!(left > 0, "the socket takes everything");

        // Something that the other side waits for stands behind it.
        let credit = streams.frame(FrameKind::Credit, key);
        streams.send(1, &credit, &[]).expect("open");
        got += read_some(&mut &theirs);
        channel.send_more(&streams).expect("open");
        streams.connections[1]
            .as_ref()
            .expect("it")
            .flush()
            .expect("open");
        got += read_some(&mut &theirs);
        assert_eq!(channel.outlets[0][0].sent, available);
        assert_eq!(got, MAX_DATA + 2 * HEADER);
        channel.close(&streams);
    }
}
