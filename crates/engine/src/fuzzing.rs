//! What fuzzers feed: the frame decoder with all that stands behind it, and both sides of the
//! handshake.
//!
//! Each function takes arbitrary bytes as what a peer or a stranger sends, in arbitrary cuts, and
//! panics when something that must hold does not: no more memory is held than the bounds allow, no
//! byte is written outside the memory of an operation, nobody is let in who does not hold the
//! token. The targets under `fuzz/` call them under a coverage-guided fuzzer, the tests below with
//! seeded noise.

#![expect(
    unsafe_code,
    reason = "operations are registered with the memory that flows may write to"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use carole_plan::PeerId;

use crate::descriptor::{Descriptor, Kind};
use crate::dtype::{DType, ReduceOp};
use crate::key::Key;
use crate::server::{Server, introduce};
use crate::span::Span;
use crate::stream::connection::{BUFFER, Connection};
use crate::stream::frame::{Frame, FrameKind, MAX_DATA, MAX_MESSAGE, Post};
use crate::stream::handshake::{Hello, PROTOCOL, Secret, job_digest, peer_digest};
use crate::stream::inbox::{Flow, Flows, Intake};
use crate::stream::socket::Socket;
use crate::stream::{Events, Streams};

/// Bytes of the memory into which the operation below takes data.
const MEMORY: usize = 20_000;
/// Bytes before and behind it that nobody may touch.
const FENCE: usize = 4096;
const UNTOUCHED: u8 = 0xa5;

#[derive(Default)]
struct Recorder {
    over: Mutex<Vec<(usize, String)>>,
}

impl Events for Recorder {
    fn lost(&self, rank: usize, reason: String) {
        assert!(rank < 2, "a rank of the session");
        assert!(reason.len() <= 4 * MAX_MESSAGE, "a bounded reason");
        self.over.lock().unwrap().push((rank, reason));
    }

    fn left(&self, rank: usize) {
        assert_eq!(rank, 1);
    }

    fn store(&self, rank: usize, frame: &Frame, payload: &[u8]) {
        assert_eq!(rank, 1);
        assert_eq!(frame.length as usize, payload.len());
        assert!(payload.len() <= MAX_DATA);
    }

    fn moved(&self) {}
}

/// Cuts that depend on the bytes themselves: now a byte, now a header, now all there is.
fn cuts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let limit = [1, 7, 48, 100, 5000, 100_000][(state % 6) as usize];
        let length = 1 + ((state >> 8) as usize % limit).min(rest.len() - 1);
        let (cut, after) = rest.split_at(length);
        rest = after;
        Some(cut)
    })
}

/// Takes the bytes as what rank 1 sends to rank 0 of a session of two in generation 0, in which
/// the operation with the key of zeroes is in flight. Returns why the connection ended, if it did.
pub fn frames(bytes: &[u8]) -> Option<String> {
    let (near, mut far) = UnixStream::pair().expect("two sockets");
    near.set_nonblocking(true).expect("a socket");
    let connections = vec![None, Some(Connection::new(1, Socket::Local(near)))];
    let streams = Streams::new(0, connections).expect("connections");
    let events = Recorder::default();

    let mut memory = vec![UNTOUCHED; MEMORY + 2 * FENCE];
    // SAFETY: the fence is inside the allocation.
    let inside = unsafe { memory.as_mut_ptr().add(FENCE) };
    let key = Key(0, 0);
    let intake = |capacity, total| Intake {
        span: Span::one(inside, MEMORY),
        base: 0,
        capacity,
        total,
    };
    // One flow as a whole, one through a ring that is smaller than it.
    let intakes = [intake(MEMORY, MEMORY as u64), intake(7000, 60_000)];
    let flows = Arc::new(Flows::new(key, vec![Flow::new(1, intakes)]));
    assert!(streams.inbox.register(&flows));

    for cut in cuts(bytes) {
        if far.write_all(cut).is_err() {
            break;
        }
        let _ = streams.progress(&events, 0..2);
        let held = streams.connection(1).map_or(0, Connection::held);
        assert!(
            held <= BUFFER + 2 * MAX_DATA + 1024,
            "{held} bytes are held for one peer"
        );
        if streams.connection(1).is_ok_and(Connection::is_closed) {
            break;
        }
    }
    for stage in &flows.flows[0].stages {
        assert!(stage.received() <= stage.total(), "no more than asked for");
    }
    streams.inbox.give_up(&flows);
    let touched = |bytes: &[u8]| bytes.iter().any(|byte| *byte != UNTOUCHED);
    assert!(!touched(&memory[..FENCE]) && !touched(&memory[FENCE + MEMORY..]));
    let over = events.over.lock().unwrap();
    over.first().map(|(_, reason)| reason.clone())
}

fn job() -> &'static str {
    "fuzzing"
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let incarnation = u128::from(std::process::id());
        let peer = PeerId::new("host", 0, incarnation << 64);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        Server::new(listener, peer, job(), Secret::new(b"a token"), None).expect("a server")
    })
}

/// Takes the bytes as what a stranger says at the door; an odd first byte stands for a hello that
/// is answered. The stranger must not get in.
pub fn stranger(bytes: &[u8]) {
    let server = server();
    let (near, mut far) = UnixStream::pair().expect("two sockets");
    far.set_nonblocking(true).expect("a socket");
    server.welcome(near);
    let (first, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    if first % 2 == 1 {
        let hello = Hello {
            protocol: (*PROTOCOL.start(), *PROTOCOL.end()),
            lane: 0,
            lanes: 1,
            generation: 1,
            job: job_digest(job()),
            from: [1; 32],
            to: peer_digest(&server.peer),
            nonce: [2; 32],
        };
        far.write_all(&hello.encode()).expect("a fresh socket");
        server.progress();
    }
    for cut in cuts(bytes) {
        if far.write_all(cut).is_err() {
            break;
        }
        server.progress();
    }
    let _ = far.shutdown(Shutdown::Write);
    server.progress();
    assert_eq!(server.at_the_door(), 0, "who has hung up is forgotten");
    assert_eq!(server.inside(), 0, "nobody gets in without the token");
}

/// Takes the bytes as what a server answers to this side's hello. It must not be believed.
pub fn impostor(bytes: &[u8]) {
    let (near, mut far) = UnixStream::pair().expect("two sockets");
    near.set_nonblocking(true).expect("a socket");
    far.set_nonblocking(true).expect("a socket");
    let _ = far.write(bytes);
    let _ = far.shutdown(Shutdown::Write);
    let peer = PeerId::new("host", 1, 1);
    let deadline = Instant::now() + Duration::from_secs(10);
    let socket = Socket::Local(near);
    assert!(
        introduce(server(), &socket, &peer, 1, (0, 1), deadline).is_err(),
        "nobody is believed without the token"
    );
    drop(socket);
    let mut heard = Vec::new();
    let _ = far.read_to_end(&mut heard);
    assert!(heard.len() <= 200, "a hello and nothing else");
}

/// The bytes of a frame as fuzzers may begin with it.
pub fn example(kind: u8, stage: u8, offset: u64, extra: u64, payload: &[u8]) -> Vec<u8> {
    let kinds = [
        FrameKind::Post,
        FrameKind::Data,
        FrameKind::Credit,
        FrameKind::Abort,
        FrameKind::Heartbeat,
        FrameKind::Goodbye,
        FrameKind::Lost,
        FrameKind::Ask,
        FrameKind::Answer,
        FrameKind::Enqueue,
    ];
    let frame = Frame {
        kind: kinds[usize::from(kind) % kinds.len()],
        stage,
        length: payload.len() as u32,
        generation: 0,
        key: Key(0, 0),
        offset,
        extra,
    };
    let mut bytes = frame.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// What rank 1 says when it comes to the operation, before the eager bytes.
fn posting() -> Vec<u8> {
    let post = Post {
        descriptor: Descriptor {
            kind: Kind::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            shared: false,
            count: 5000,
            root: 0,
            settings: 0,
        },
        granted: [u64::MAX, 7],
    };
    post.encode().to_vec()
}

/// Takes the bytes as [`frames`] does, after rank 1 has come to the operation.
pub fn frames_in_flight(bytes: &[u8]) -> Option<String> {
    let mut all = example(0, 0, 0, 0, &posting());
    all.extend_from_slice(bytes);
    frames(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failure can be had again from its seed.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        fn below(&mut self, limit: usize) -> usize {
            (self.next() % limit as u64) as usize
        }

        fn bytes(&mut self, length: usize) -> Vec<u8> {
            (0..length).map(|_| self.next() as u8).collect()
        }

        /// A number that somebody may have had in mind to hurt.
        fn number(&mut self) -> u64 {
            let near = self.below(3) as u64;
            match self.below(6) {
                0 => near,
                1 => u64::MAX - near,
                2 => (1 << 32) - near,
                3 => MEMORY as u64 - near,
                4 => self.below(MEMORY) as u64,
                _ => self.next(),
            }
        }
    }

    /// Frames that mostly have a meaning, then flipped here and there.
    fn nearly_valid(noise: &mut Noise) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..noise.below(12) {
            let kind = noise.below(10) as u8;
            let length = [0, 1, 40, 100, 5000, 40_000, MAX_DATA][noise.below(7)];
            let mut payload = if kind == 0 { posting() } else { Vec::new() };
            let length = noise.below(length + 1);
            payload.extend(noise.bytes(length));
            let offset = match noise.below(2) {
                0 => 0,
                _ => noise.number(),
            };
            let extra = noise.number();
            bytes.extend(example(
                kind,
                noise.below(2) as u8,
                offset,
                extra * noise.below(2) as u64,
                &payload,
            ));
        }
        for _ in 0..noise.below(4) {
            if !bytes.is_empty() {
                let at = noise.below(bytes.len());
                bytes[at] = noise.next() as u8;
            }
        }
        bytes
    }

    #[test]
    fn frames_of_any_bytes_end_in_an_error_or_wait() {
        let (mut ended, mut waited) = (0, 0);
        for seed in 0..1500 {
            let mut noise = Noise(seed);
            let bytes = if seed % 5 == 0 {
                let length = noise.below(3000);
                noise.bytes(length)
            } else {
                nearly_valid(&mut noise)
            };
            let outcome = if seed % 2 == 0 {
                frames(&bytes)
            } else {
                frames_in_flight(&bytes)
            };
            match outcome {
                Some(_) => ended += 1,
                None => waited += 1,
            }
        }
        assert!(
            ended > 100 && waited > 100,
            "{ended} ended, {waited} waited"
        );
    }

    #[test]
    fn numbers_at_the_end_of_their_range_are_harmless() {
        let mut bytes = example(0, 0, 0, 0, &posting());
        // Data that begins where no data can be.
        bytes.extend(example(1, 0, 0, 0, &[1; 10_000]));
        assert_eq!(frames(&bytes), None);
        bytes.extend(example(1, 0, u64::MAX - 5, 0, &[1; 10_000]));
        assert!(frames(&bytes).is_some_and(|reason| reason.contains("no place in a flow")));
        // Attempts that cannot be counted on.
        let mut bytes = example(3, 0, 0, u64::MAX, b"given up");
        bytes.extend(example(0, 0, 0, u64::MAX, &posting()));
        bytes.extend(example(3, 0, 0, u64::MAX, b"given up"));
        assert_eq!(frames(&bytes), None);
        // A loss of somebody who does not exist.
        let bytes = example(6, 0, u64::MAX, 0, b"gone");
        assert!(frames(&bytes).is_some_and(|reason| reason.contains("does not exist")));
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_memory_is_taken() {
        for kind in 0..10 {
            let mut bytes = example(kind, 0, 0, 0, &[]);
            bytes[4..8].copy_from_slice(&(MAX_DATA as u32 + 1).to_le_bytes());
            let reason = frames(&bytes).expect("refused");
            assert!(reason.contains("too long"), "{reason}");
        }
    }

    #[test]
    fn postings_that_nobody_calls_for_do_not_pile_up() {
        // The same operation again and again counts as much as many.
        let mut bytes = Vec::new();
        for _ in 0..70_000 {
            bytes.extend(example(0, 0, 0, 0, &posting()));
        }
        let reason = frames(&bytes).expect("refused");
        assert!(reason.contains("too many operations"), "{reason}");
    }

    #[test]
    fn handshakes_of_any_bytes_let_nobody_in() {
        for seed in 0..1000 {
            let mut noise = Noise(seed);
            let length = noise.below(400);
            let bytes = noise.bytes(length);
            stranger(&bytes);
            impostor(&bytes);
        }
        // Answers that say what this side wants to hear, but for the proof.
        for seed in 0..200 {
            let mut bytes = Noise(seed).bytes(72);
            bytes[..2].copy_from_slice(&1u16.to_le_bytes());
            impostor(&bytes);
        }
    }
}
