//! Sums of `f32` across connections, compressed on the way.
//!
//! Each member owns one segment of the tensor. It gets the others' encoded contributions, decodes
//! them, combines them with its own in the group's order, in `f32`, and sends the encoded result
//! to all. It keeps what the others decode, so that all hold the same bits.
//!
//! Everything moves in *pieces*: a few of each flow are in memory at a time, in rings on both ends.
//! Segments and pieces are cut at multiples of the codec's block, so that where they are cut
//! changes no bit. The own contribution is not encoded.
//!
//! How large the error may be is said in `docs/explanation/compression.md`.

#![expect(
    unsafe_code,
    reason = "rings are read and written as slices, and spans handed to kernels"
)]

use std::sync::Arc;

use super::Streams;
use super::channel::{Agreement, Channel, Link, Outlet};
use super::exchange::Surroundings;
use super::inbox::Intake;
use crate::compress::{self, Codec};
use crate::descriptor::Descriptor;
use crate::dtype::{DType, ReduceOp};
use crate::kernels::{self, Destination, Scale, Store};
use crate::key::Key;
use crate::local::reduce::Combine;
use crate::operation::Ended;
use crate::span::Span;

/// Bytes of an `f32`.
const SIZE: usize = 4;
/// Pieces of a flow that are in memory at a time, on either end.
const DEPTH: usize = 4;
/// Memory for all rings of an operation, unless there are very many members.
const RINGS: usize = 8 << 20;
/// Numbers of a piece, at most.
const PIECE: usize = 64 << 10;
/// Numbers that are decoded, combined and encoded in one go, while they are in cache.
const BLOCK: usize = 2048;

/// Contributions and results, the two flows of the channel.
const UP: usize = 0;
const DOWN: usize = 1;

/// A compressed sum, as one member sees it.
pub(crate) struct Compressed {
    agreement: Agreement,
    descriptor: Descriptor,
    combine: Combine,
    send: Span,
    recv: Span,
    /// Where the tensor begins in both spans, in bytes.
    base: usize,
    cut: Cut,
    channel: Option<Channel>,
    posted: bool,
    over: bool,
    /// The rings; what flows write to is in here.
    scratch: Vec<u8>,
    /// For each other member: its contribution coming in, ours going out, its result coming in.
    rings: Vec<[Span; 3]>,
    /// The own segment's result going out, to everybody.
    result: Span,
    /// Blocks of plain numbers: one for each member, in the group's order, and one more.
    plain: Vec<u8>,
    /// For each other member: pieces encoded for it, and pieces of its result decoded.
    encoded: Vec<usize>,
    decoded: Vec<usize>,
    /// Pieces of the own segment that are combined.
    combined: usize,
}

/// How the tensor is cut, in numbers, and what that makes encoded, in bytes.
#[derive(Clone, Copy)]
struct Cut {
    codec: Codec,
    count: usize,
    members: usize,
    segment: usize,
    piece: usize,
}

impl Cut {
    fn new(codec: Codec, count: usize, members: usize) -> Self {
        let segment = count.div_ceil(members).next_multiple_of(compress::BLOCK);
        let rings = 3 * (members - 1) + 1;
        let piece = RINGS / (rings * DEPTH * 2) / compress::BLOCK * compress::BLOCK;
        let piece = piece.clamp(compress::BLOCK, PIECE).min(segment.max(1));
        Self {
            codec,
            count,
            members,
            segment,
            piece,
        }
    }

    /// Where a member's segment begins, and how long it is.
    fn segment(self, member: usize) -> (usize, usize) {
        let begin = (member * self.segment).min(self.count);
        (begin, self.segment.min(self.count - begin))
    }

    fn pieces(self, member: usize) -> usize {
        self.segment(member).1.div_ceil(self.piece)
    }

    /// Where a piece begins in the tensor, and how long it is.
    fn piece(self, member: usize, piece: usize) -> (usize, usize) {
        let (begin, length) = self.segment(member);
        let inside = piece * self.piece;
        (begin + inside, self.piece.min(length - inside))
    }

    /// The bytes of a member's flow up to and with its first `pieces` pieces.
    fn end(self, member: usize, pieces: usize) -> u64 {
        let length = self.segment(member).1.min(pieces * self.piece);
        self.codec.encoded_len(length) as u64
    }

    fn total(self, member: usize) -> u64 {
        self.codec.encoded_len(self.segment(member).1) as u64
    }

    fn ring(self) -> usize {
        DEPTH * self.codec.encoded_len(self.piece)
    }

    /// Where a piece lies in a ring.
    fn place(self, piece: usize) -> usize {
        piece % DEPTH * self.codec.encoded_len(self.piece)
    }
}

impl Compressed {
    /// A sum of the `bytes` bytes at `base` of both spans, over `ranks`.
    pub(crate) fn new(
        key: Key,
        descriptor: Descriptor,
        codec: Codec,
        combine: Combine,
        (send, recv): (Span, Span),
        (base, bytes): (usize, usize),
        ranks: Arc<[usize]>,
        me: usize,
    ) -> Self {
        let members = ranks.len();
        Self {
            agreement: Agreement::new(key, descriptor, ranks, me),
            descriptor,
            combine,
            send,
            recv,
            base,
            cut: Cut::new(codec, bytes / SIZE, members),
            channel: None,
            posted: false,
            over: false,
            scratch: Vec::new(),
            rings: Vec::new(),
            result: Span::EMPTY,
            plain: Vec::new(),
            encoded: vec![0; members - 1],
            decoded: vec![0; members - 1],
            combined: 0,
        }
    }

    /// Moves what can be moved; `Ok(true)` when this member is done.
    pub(crate) fn poll(
        &mut self,
        around: &Surroundings<'_>,
        progressed: &mut bool,
    ) -> Result<bool, Ended> {
        let streams = around.streams;
        let outcome = self.agreement.poll(around, progressed);
        let opened = outcome.and_then(|part| match part {
            Some(part) if self.channel.is_none() => self.open(streams, part).map(|()| true),
            part => Ok(part.is_some()),
        });
        match opened {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(ended) => {
                self.abort(streams, Some("the ranks do not agree"));
                return Err(ended);
            }
        }
        let Some(mut channel) = self.channel.take() else {
            return Ok(false);
        };
        let moved = self.advance(streams, &mut channel);
        let done = channel.is_done() && self.is_done();
        if done && !std::mem::replace(&mut self.over, true) {
            channel.close(streams);
            self.agreement.release(streams);
        }
        self.channel = Some(channel);
        match moved {
            Ok(moved) => *progressed |= moved,
            Err(rank) => {
                around.events.lost(rank, "its connection failed".into());
                return Ok(false);
            }
        }
        Ok(done)
    }

    fn is_done(&self) -> bool {
        let me = self.agreement.me;
        let mut others = others(self.cut.members, me).zip(&self.decoded);
        self.combined == self.cut.pieces(me)
            && others.all(|(member, decoded)| *decoded == self.cut.pieces(member))
    }

    /// Lays out the rings and registers the flows.
    fn open(&mut self, streams: &Streams, part: Key) -> Result<(), Ended> {
        let Cut { members, .. } = self.cut;
        let me = self.agreement.me;
        let ring = self.cut.ring();
        self.plain
            .resize((members + 1) * BLOCK.min(self.cut.piece) * SIZE, 0);
        self.scratch.resize((3 * (members - 1) + 1) * ring, 0);
        let mut rings = self
            .scratch
            .chunks_mut(ring.max(1))
            .map(|ring| Span::one(ring.as_mut_ptr(), ring.len()));
        let mut next = || rings.next().unwrap_or(Span::EMPTY);
        self.result = next();
        self.rings = (1..members).map(|_| [next(), next(), next()]).collect();
        let intake = |span: Span, total: u64| Intake {
            span,
            base: 0,
            capacity: span.bytes(),
            total,
        };
        let links = others(members, me)
            .zip(&self.rings)
            .map(|(member, [theirs, ours, results])| {
                let (mine, other) = (self.cut.total(me), self.cut.total(member));
                Link {
                    rank: self.agreement.ranks[member],
                    intakes: [intake(*theirs, mine), intake(*results, other)],
                    outlets: [Outlet::ring(*ours, other), Outlet::ring(self.result, mine)],
                }
            })
            .collect();
        self.channel = Some(Channel::open(streams, part, links)?);
        Ok(())
    }

    /// Encodes, combines, decodes and sends what is ready; an error names the rank whose
    /// connection failed.
    fn advance(&mut self, streams: &Streams, channel: &mut Channel) -> Result<bool, usize> {
        let mut any = channel.heard_more();
        for (peer, member) in others(self.cut.members, self.agreement.me).enumerate() {
            any |= self.encode(channel, peer, member);
        }
        if !std::mem::replace(&mut self.posted, true) {
            channel.post(streams, self.descriptor)?;
        }
        any |= self.combine(streams, channel);
        for (peer, member) in others(self.cut.members, self.agreement.me).enumerate() {
            any |= self.decode(streams, channel, peer, member);
        }
        any |= channel.send_more(streams)?;
        Ok(any)
    }

    /// Encodes the next piece for a member, if there is room in the ring.
    fn encode(&mut self, channel: &mut Channel, peer: usize, member: usize) -> bool {
        let piece = self.encoded[peer];
        let out = &mut channel.outlets[peer][UP];
        if piece == self.cut.pieces(member)
            || out.sent < self.cut.end(member, (piece + 1).saturating_sub(DEPTH))
        {
            return false;
        }
        let (begin, length) = self.cut.piece(member, piece);
        let mut ring = Cursor::new(self.cut.codec, self.rings[peer][1], self.cut.place(piece));
        for (at, count) in blocks(begin, length) {
            let own = &mut self.plain[..count * SIZE];
            gather(self.send, self.base + at * SIZE, own, self.combine.scale);
            self.cut.codec.encode(own, ring.next(count));
        }
        self.encoded[peer] += 1;
        out.available = self.cut.end(member, piece + 1);
        true
    }

    /// Combines the pieces of the own segment that all others have delivered.
    fn combine(&mut self, streams: &Streams, channel: &mut Channel) -> bool {
        let me = self.agreement.me;
        let mut any = false;
        while self.combined < self.cut.pieces(me) {
            let piece = self.combined;
            let end = self.cut.end(me, piece + 1);
            let reused = self.cut.end(me, (piece + 1).saturating_sub(DEPTH));
            let peers = 0..self.rings.len();
            if peers.clone().any(|peer| channel.received(peer, UP) < end)
                || channel.outlets.iter().any(|out| out[DOWN].sent < reused)
            {
                break;
            }
            self.combine_piece(piece);
            self.combined += 1;
            any = true;
            for peer in peers {
                channel.outlets[peer][DOWN].available = end;
                channel.grant(streams, peer, UP, end, self.cut.ring());
            }
        }
        any
    }

    fn combine_piece(&mut self, piece: usize) {
        let Cut { codec, members, .. } = self.cut;
        let me = self.agreement.me;
        let Combine {
            dtype,
            op,
            scale,
            divisor,
        } = self.combine;
        let after = Scale {
            before: 1.0,
            after: scale.after,
        };
        let (begin, length) = self.cut.piece(me, piece);
        let cursor = |ring: Span| Cursor::new(codec, ring, self.cut.place(piece));
        let mut arrived: Vec<Cursor> = self.rings.iter().map(|rings| cursor(rings[0])).collect();
        let mut result = cursor(self.result);
        let stride = self.plain.len() / (members + 1);
        let mut sources = Vec::with_capacity(members);
        for (at, count) in blocks(begin, length) {
            let bytes = count * SIZE;
            let mut peers = arrived.iter_mut();
            for (member, block) in self.plain.chunks_mut(stride).take(members).enumerate() {
                let block = &mut block[..bytes];
                if member == me {
                    gather(self.send, self.base + at * SIZE, block, scale);
                } else if let Some(peer) = peers.next() {
                    codec.decode(peer.next(count), block);
                }
            }
            let (values, sum) = self.plain.split_at_mut(members * stride);
            let sum = &mut sum[..bytes];
            sources.clear();
            sources.extend(values.chunks(stride).map(<[u8]>::as_ptr));
            let to = Destination {
                pointer: sum.as_mut_ptr(),
                store: Store::Cached,
            };
            // SAFETY: there is a block of `count` numbers for every member, and one for the sum.
            unsafe { kernels::reduce(dtype, op, after, divisor, &[to], &sources, count) };
            // What the others will hold is kept here, too.
            let wire = result.next(count);
            codec.encode(sum, wire);
            codec.decode(wire, sum);
            scatter(sum, self.recv, self.base + at * SIZE);
        }
    }

    /// Decodes the pieces of a member's result that have arrived.
    fn decode(
        &mut self,
        streams: &Streams,
        channel: &mut Channel,
        peer: usize,
        member: usize,
    ) -> bool {
        let mut any = false;
        while self.decoded[peer] < self.cut.pieces(member) {
            let piece = self.decoded[peer];
            let end = self.cut.end(member, piece + 1);
            if channel.received(peer, DOWN) < end {
                break;
            }
            let (begin, length) = self.cut.piece(member, piece);
            let mut ring = Cursor::new(self.cut.codec, self.rings[peer][2], self.cut.place(piece));
            for (at, count) in blocks(begin, length) {
                let numbers = &mut self.plain[..count * SIZE];
                self.cut.codec.decode(ring.next(count), numbers);
                scatter(numbers, self.recv, self.base + at * SIZE);
            }
            self.decoded[peer] += 1;
            any = true;
            channel.grant(streams, peer, DOWN, end, self.cut.ring());
        }
        any
    }

    /// Session ranks that this member waits for.
    pub(crate) fn waiting_for(&self) -> Vec<usize> {
        let owing = self.channel.iter().flat_map(Channel::waiting_for);
        let ranks: Vec<usize> = owing.collect();
        if ranks.is_empty() {
            self.agreement.waiting_for()
        } else {
            ranks
        }
    }

    /// Whether something is still expected from a rank, or owed to it.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        match &self.channel {
            Some(channel) => channel.needs(rank),
            None => self.agreement.other_ranks().any(|other| other == rank),
        }
    }

    /// Gives the operation up and tells the others why; quietly without a reason.
    pub(crate) fn abort(&mut self, streams: &Streams, reason: Option<&str>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let part = self.agreement.abort(streams, reason);
        match (&mut self.channel, part) {
            (Some(channel), _) => channel.abort(streams),
            (None, Some(part)) => Channel::refuse(streams, part, self.agreement.other_ranks()),
            (None, None) => {}
        }
    }
}

/// The other members, in the group's order.
fn others(members: usize, me: usize) -> impl Iterator<Item = usize> {
    (0..members).filter(move |member| *member != me)
}

/// Cuts numbers into blocks: (begin, length).
fn blocks(begin: usize, length: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..length)
        .step_by(BLOCK)
        .map(move |at| (begin + at, BLOCK.min(length - at)))
}

/// Takes numbers from a span, scaled.
fn gather(mut from: Span, at: usize, into: &mut [u8], scale: Scale) {
    let into_bytes = into.len();
    let target = into.as_mut_ptr();
    from.visit(at, into_bytes, |source, distance, length| {
        let to = Destination {
            pointer: target.wrapping_add(distance),
            store: Store::Cached,
        };
        let scale = Scale {
            before: scale.before,
            after: 1.0,
        };
        let (source, count) = (source.cast_const(), length / SIZE);
        // SAFETY: the span vouches for its memory, and the block is somewhere else.
        unsafe {
            if scale == Scale::NONE {
                kernels::copy(to.pointer, source, length, Store::Cached);
            } else {
                kernels::reduce(DType::F32, ReduceOp::Sum, scale, 1, &[to], &[source], count);
            }
        }
    });
}

/// Puts numbers into a span.
fn scatter(numbers: &[u8], mut to: Span, at: usize) {
    to.visit(at, numbers.len(), |target, distance, length| {
        let source = numbers[distance..].as_ptr();
        // SAFETY: the span vouches for its memory, and the numbers are somewhere else.
        unsafe { kernels::copy(target, source, length, Store::Cached) };
    });
}

/// A piece in a ring, from its beginning on.
struct Cursor {
    codec: Codec,
    pointer: *mut u8,
    left: usize,
}

impl Cursor {
    /// The piece at this place of a ring, whose memory is the operation's for now: all of the
    /// piece has arrived, or none of it is on its way.
    fn new(codec: Codec, ring: Span, place: usize) -> Self {
        let pointer = ring.contiguous().expect("a ring is in one piece");
        Self {
            codec,
            pointer: pointer.wrapping_add(place),
            left: ring.bytes() - place,
        }
    }

    /// The bytes of the next `count` numbers.
    fn next(&mut self, count: usize) -> &mut [u8] {
        let bytes = self.codec.encoded_len(count);
        assert!(bytes <= self.left, "within the ring");
        let pointer = self.pointer;
        self.pointer = pointer.wrapping_add(bytes);
        self.left -= bytes;
        // SAFETY: within the ring, as just seen, which lives as long as the operation; nobody else
        // touches the piece, as its maker promised.
        unsafe { std::slice::from_raw_parts_mut(pointer, bytes) }
    }
}
