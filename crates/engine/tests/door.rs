//! Strangers at the door: scanners, garbage, forgeries and dawdlers disturb no member, are refused
//! with one line in the log, and cost no memory.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use carole_engine::testing::{membership, peers};
use carole_engine::{Error, Options, Peer, ReduceOp};
use carole_plan::{Membership, PeerId};

const HOSTS: [usize; 3] = [0, 1, 2];
/// Bytes of the handshake's messages.
const HELLO: usize = 152;
const ANSWER: usize = 72;
const PROOF: usize = 32;
/// Less than the time that a stranger has for its handshake, so that waiting for one would show;
/// enough for a busy machine.
const UNHURRIED: Duration = Duration::from_millis(4500);
const PATIENCE: Duration = Duration::from_secs(40);

/// Everything that this process logs; one test at a time, so that it knows its lines.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<String>, Condvar)>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let (text, grown) = &*self.0;
        text.lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(bytes));
        grown.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Begins anew, when no other test uses it.
    fn begin() -> MutexGuard<'static, Self> {
        static LOG: OnceLock<Mutex<Log>> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            Mutex::new(log)
        });
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.0.0.lock().unwrap().clear();
        log
    }

    /// Waits until so many were refused, each with one line and for one of these reasons.
    fn wait_for_refusals(&self, strangers: usize, reasons: &[&str]) {
        let (text, grown) = &*self.0;
        let refusals = |text: &str| text.matches("connection refused").count();
        let guard = text.lock().unwrap();
        let waited = grown.wait_timeout_while(guard, PATIENCE, |text| refusals(text) < strangers);
        let text = std::mem::take(&mut *waited.unwrap().0);
        assert_eq!(refusals(&text), strangers, "{text}");
        for line in text.lines() {
            assert!(line.contains(" address="), "{line}");
            assert!(reasons.iter().any(|r| line.contains(r)), "{line}");
        }
    }
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Has members reduce without a pause while `attack` runs against rank 0; all must go well.
fn disturb(attack: impl FnOnce(&Peer, &Log)) {
    let log = Log::begin();
    let peers = peers(&HOSTS);
    let membership = membership(&peers, &HOSTS, 1);
    let over = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for peer in &peers {
            scope.spawn(|| {
                let session = peer.form(&membership, &Options::default()).unwrap();
                let world = session.world();
                let mut slowest = Duration::ZERO;
                loop {
                    let began = Instant::now();
                    let mut tensor = vec![1.0f32; 20_000];
                    world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                    slowest = slowest.max(began.elapsed());
                    assert!(tensor.iter().all(|value| value.to_bits() == 3f32.to_bits()));
                    let mut stop = [u8::from(over.load(Ordering::Acquire))];
                    world.call().broadcast(&mut stop, 0).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    if stop[0] != 0 {
                        break;
                    }
                }
                assert!(slowest < UNHURRIED, "disturbed for {slowest:?}");
            });
        }
        while rounds.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // Also when the attack does not go as expected.
        let _end = Flag(&over);
        let before = resident_bytes();
        attack(&peers[0], &log);
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 48 << 20, "the attack cost {grown} bytes");
    });
}

/// Is set when dropped.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn knock(peer: &Peer) -> TcpStream {
    let stream = TcpStream::connect(peer.endpoint().addresses[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Says something and hears how the other end hangs up.
fn hears_nothing(mut stream: TcpStream, said: &[u8]) {
    // The other end may hang up while this one is still talking.
    let _ = stream.write_all(said);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.is_empty(), "{heard:?}");
}

#[test]
fn a_port_scanner_disturbs_nobody() {
    disturb(|peer, log| {
        for index in 0..200 {
            let stream = knock(peer);
            if index % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        log.wait_for_refusals(200, &["it hung up", "its connection failed"]);
        // So is the local socket.
        let name = std::os::unix::net::SocketAddr::from_abstract_name(&peer.endpoint().local);
        let name = name.unwrap();
        for _ in 0..200 {
            UnixStream::connect_addr(&name).unwrap();
        }
        log.wait_for_refusals(200, &["it hung up"]);
    });
}

#[test]
fn garbage_and_other_protocols_are_refused() {
    disturb(|peer, log| {
        let mut noise = 0x9e37_79b9_7f4a_7c15u64;
        for bytes in [HELLO, 1000, 3_000_000] {
            for _ in 0..8 {
                let garbage: Vec<u8> = (0..bytes)
                    .map(|_| {
                        noise ^= noise << 13;
                        noise ^= noise >> 7;
                        noise ^= noise << 17;
                        noise as u8
                    })
                    .collect();
                hears_nothing(knock(peer), &garbage);
            }
        }
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\nuser-agent: {}\r\n\r\n",
            "scanner ".repeat(30)
        );
        hears_nothing(knock(peer), request.as_bytes());
        log.wait_for_refusals(25, &["it does not speak Carole's protocol"]);
        // A short request ends when whoever sent it gives up.
        knock(peer).write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        log.wait_for_refusals(1, &["it hung up"]);
    });
}

/// What went through a [`Proxy`] from the one that connected.
struct Recording {
    /// The client's bytes, as they came.
    said: Receiver<Vec<u8>>,
    to_client: TcpStream,
}

/// Stands between a peer and those who connect to it, and writes down what they say.
fn record(peer: &mut carole_plan::Endpoint) -> std::thread::JoinHandle<Recording> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = peer.addresses[0];
    peer.addresses = vec![listener.local_addr().unwrap()];
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(target).unwrap();
        let (sender, said) = channel();
        let forward = |mut from: TcpStream, mut to: TcpStream, tell: Option<_>| {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    if let Some(sender) = &tell {
                        let sender: &std::sync::mpsc::Sender<Vec<u8>> = sender;
                        let _ = sender.send(buffer[..count].to_vec());
                    }
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        };
        let to_client = client.try_clone().unwrap();
        forward(
            server.try_clone().unwrap(),
            client.try_clone().unwrap(),
            None,
        );
        forward(client, server, Some(sender));
        Recording { said, to_client }
    })
}

impl Recording {
    /// The client's hello and its proof.
    fn handshake(&self) -> ([u8; HELLO], [u8; PROOF]) {
        let mut bytes = Vec::new();
        while bytes.len() < HELLO + PROOF {
            bytes.extend(self.said.recv_timeout(PATIENCE).unwrap());
        }
        let (hello, rest) = bytes.split_at(HELLO);
        (hello.try_into().unwrap(), rest[..PROOF].try_into().unwrap())
    }
}

/// A session of two, rank 1 having reached rank 0 through a recorder; `body` runs on both.
fn recorded(
    counter: u32,
    body: impl Fn(Result<carole_engine::Session, Error>) + Sync,
    meanwhile: impl FnOnce(&[Peer], &Membership, Recording),
) {
    let peers = peers(&[0, 1]);
    let mut membership = membership(&peers, &[0, 1], counter);
    let recorder = record(&mut membership.members[0].endpoint);
    std::thread::scope(|scope| {
        for peer in &peers {
            scope.spawn(|| body(peer.form(&membership, &Options::default())));
        }
        meanwhile(&peers, &membership, recorder.join().unwrap());
    });
}

#[test]
fn a_recorded_handshake_opens_nothing() {
    let log = Log::begin();
    let over = AtomicBool::new(false);
    recorded(
        1,
        |session| {
            let session = session.unwrap();
            let world = session.world();
            loop {
                let mut more = [u8::from(!over.load(Ordering::Acquire))];
                world.call().all_reduce(&mut more, ReduceOp::Min).unwrap();
                if more[0] == 0 {
                    break;
                }
            }
        },
        |peers, _, recording| {
            let _end = Flag(&over);
            let (hello, proof) = recording.handshake();
            let unproven = ["could not prove that it holds the job's token"];
            let forgeries: [&[u8]; 3] = [&proof, &[0; PROOF], &hello[120..]];
            for forged in forgeries {
                let mut stream = knock(&peers[0]);
                stream.write_all(&hello).unwrap();
                stream.read_exact(&mut [0; ANSWER]).unwrap();
                hears_nothing(stream, forged);
                log.wait_for_refusals(1, &unproven);
            }
            // The server's own proof is no proof of the client.
            let mut stream = knock(&peers[0]);
            stream.write_all(&hello).unwrap();
            let mut answer = [0; ANSWER];
            stream.read_exact(&mut answer).unwrap();
            hears_nothing(stream, &answer[40..]);
            log.wait_for_refusals(1, &unproven);
            // A hello for one peer is nothing to another.
            hears_nothing(knock(&peers[1]), &hello);
            log.wait_for_refusals(1, &["it looks for another peer"]);
        },
    );
}

#[test]
fn a_peer_with_another_token_or_job_is_refused_and_told_so() {
    let log = Log::begin();
    let ours = peers(&[0, 1]);
    let mut membership = membership(&ours, &[0, 1], 1);
    let options = Options {
        form: Duration::from_secs(2),
        ..Options::default()
    };
    for (job, token, reason) in [
        ("testing", "another token", "could not prove that it holds"),
        ("other", "a token for tests", "it hung up"),
    ] {
        let id = PeerId::new("host-1", 1, membership.members[1].peer.incarnation + 1);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let stranger = Peer::bind(id, job, token.as_bytes(), address).unwrap();
        membership.members[1].peer = stranger.id().clone();
        membership.members[1].endpoint.addresses = stranger.endpoint().addresses.clone();
        let error = stranger.form(&membership, &options).map(drop).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        log.wait_for_refusals(1, &["it hung up", "it belongs to another job"]);
    }
}

#[test]
fn dawdlers_make_room_for_newcomers_and_are_sent_away() {
    disturb(|peer, log| {
        let mut dawdlers: Vec<TcpStream> = (0..100).map(|_| knock(peer)).collect();
        let hello = b"CAROLE\x00\x01 and so on, very slowly";
        for byte in hello {
            for stream in &mut dawdlers {
                let _ = stream.write(&[*byte]);
            }
        }
        // Meanwhile a new session forms at the same door, and works.
        let newcomers = peers(&[0, 1]);
        let membership = membership(&newcomers, &[0, 1], 1);
        let crowd: Vec<TcpStream> = (0..100).map(|_| knock(&newcomers[0])).collect();
        std::thread::scope(|scope| {
            for newcomer in &newcomers {
                scope.spawn(|| {
                    let session = newcomer.form(&membership, &Options::default()).unwrap();
                    session.world().call().barrier().unwrap();
                });
            }
        });
        drop(crowd);
        let reasons = [
            "the door is full",
            "too slow to introduce itself",
            "it hung up",
        ];
        log.wait_for_refusals(200, &reasons);
        for stream in dawdlers {
            hears_nothing(stream, &[]);
        }
    });
}

/// What comes after the handshake is checked as well: here somebody on the path writes into it.
#[test]
fn an_oversized_frame_ends_the_connection_and_takes_no_memory() {
    let _log = Log::begin();
    let before = resident_bytes();
    let formed = std::sync::Barrier::new(3);
    let over = std::sync::Barrier::new(2);
    recorded(
        1,
        |session| {
            let session = session.unwrap();
            formed.wait();
            if session.rank() == 1 {
                let world = session.world();
                let call = world.named("grad");
                let error = call.all_reduce(&mut [1.0f32; 100], ReduceOp::Sum);
                let Err(Error::PeerLost { rank, reason, .. }) = error else {
                    panic!("{error:?}")
                };
                assert_eq!(rank, 0);
                assert!(reason.contains("4294967295 bytes is too long"), "{reason}");
            }
            over.wait();
        },
        |_, _, recording| {
            recording.handshake();
            formed.wait();
            let mut header = [0u8; 48];
            header[..3].copy_from_slice(&[0x01, 0xca, 8]);
            header[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
            (&recording.to_client).write_all(&header).unwrap();
        },
    );
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes");
}
