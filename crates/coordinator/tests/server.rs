//! The server and the blocking client against each other, over a real listener on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use carole_coordinator::wire::{Outcome, Problem};
use carole_coordinator::{Client, Coordinator, Error, State, Token, serve};
use carole_plan::{Endpoint, Generation, PeerId};

/// Long enough that a test which reaches it has failed.
const FOREVER: Duration = Duration::from_secs(60);

/// A coordinator on a thread of its own; dropping it stops the server and waits for its end.
struct Fixture {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
}

impl Fixture {
    fn new(size: usize) -> Self {
        let (address, started) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let server = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                address.send(listener.local_addr().unwrap()).unwrap();
                let coordinator = Coordinator::new(State::new("digits", size), token());
                let shutdown = async { drop(stopped.await) };
                serve(listener, shutdown, coordinator).await.unwrap();
            });
        });
        Self {
            address: started.recv().unwrap(),
            stop: Some(stop),
            server: Some(server),
        }
    }

    fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address), token()).unwrap()
    }

    /// Sends `bytes` on a connection of their own and reads what comes until it closes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is as good as a close.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// An authorized request with `body`; returns the status and the problem in the answer.
    fn problem(&self, method: &str, path: &str, body: &str) -> (String, Problem) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            token().to_hex(),
            body.len()
        );
        let answer = self.raw(request.as_bytes());
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .expect("an answer with a head");
        assert!(
            head.contains("content-type: application/problem+json"),
            "{head}"
        );
        let problem: Problem = serde_json::from_str(body).unwrap();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}", problem.status)),
            "{head}"
        );
        (head.to_owned(), problem)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.server.take().unwrap().join();
        assert!(
            ended.is_ok() || thread::panicking(),
            "the server's thread panicked"
        );
    }
}

fn token() -> Token {
    Token::from_bytes([0x5a; 32])
}

fn peer(rank: usize) -> PeerId {
    PeerId {
        host: "node-a".into(),
        slot: rank as u16,
        incarnation: u128::MAX - rank as u128,
    }
}

fn endpoint(rank: usize) -> Endpoint {
    Endpoint {
        addresses: vec![([127, 0, 0, 1], 9000 + rank as u16).into()],
        local: format!("carole-{rank}"),
        machine: "boot/net".into(),
        certificate: None,
    }
}

#[test]
fn ranks_that_register_late_complete_the_membership_for_those_who_wait() {
    let fixture = Fixture::new(3);
    let client = fixture.client();
    let first = client.register(&peer(2), 2, &endpoint(2)).unwrap();
    assert_eq!(
        (first.outcome, first.missing),
        (Outcome::Waiting, vec![0, 1])
    );
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let client = fixture.client();
            thread::spawn(move || client.wait_membership(0, FOREVER).unwrap())
        })
        .collect();
    client.register(&peer(0), 0, &endpoint(0)).unwrap();
    let last = client.register(&peer(1), 1, &endpoint(1)).unwrap();
    assert_eq!(last.outcome, Outcome::Published);
    for waiter in waiting {
        let membership = waiter.join().unwrap();
        assert_eq!(
            membership.generation,
            Generation {
                term: 1,
                counter: 1
            }
        );
        for (rank, member) in membership.members.iter().enumerate() {
            assert_eq!(
                (&member.peer, &member.endpoint),
                (&peer(rank), &endpoint(rank))
            );
        }
    }
    let status = client.status().unwrap();
    assert_eq!(
        status.generation,
        Some(Generation {
            term: 1,
            counter: 1
        })
    );
    assert_eq!(status.registered, [0, 1, 2]);
}

#[test]
fn a_wait_for_the_membership_that_is_over_names_the_missing_ranks() {
    let fixture = Fixture::new(3);
    let client = fixture.client();
    client.register(&peer(1), 1, &endpoint(1)).unwrap();
    match client.wait_membership(0, Duration::from_millis(30)) {
        Err(Error::MembershipTimeout {
            missing, size: 3, ..
        }) => assert_eq!(missing, [0, 2]),
        other => panic!("expected a timeout, got {other:?}"),
    }
}

#[test]
fn a_loss_reaches_those_who_wait_for_it_once() {
    let fixture = Fixture::new(2);
    let client = fixture.client();
    for rank in 0..2 {
        client.register(&peer(rank), rank, &endpoint(rank)).unwrap();
    }
    let waiter = {
        let client = fixture.client();
        thread::spawn(move || client.wait_lost(0, FOREVER).unwrap())
    };
    client
        .report_lost(1, "exited with signal 11 (SIGSEGV)", Some(139))
        .unwrap();
    let lost = waiter.join().unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].rank, lost[0].exit_code), (1, Some(139)));
    assert_eq!(lost[0].peer, Some(peer(1)));
    assert!(
        client
            .wait_lost(lost[0].sequence, Duration::ZERO)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_rank_lost_before_the_membership_is_complete_ends_the_wait_with_its_reason() {
    let fixture = Fixture::new(2);
    let waiter = {
        let client = fixture.client();
        thread::spawn(move || client.wait_membership(0, FOREVER))
    };
    fixture
        .client()
        .report_lost(1, "exited with 3", Some(3))
        .unwrap();
    match waiter.join().unwrap() {
        Err(Error::Refused { problem }) => {
            assert_eq!(problem.name(), "cannot-form");
            assert!(
                problem.detail.contains("rank 1 was lost (exited with 3)"),
                "{problem:?}"
            );
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn another_peer_for_a_taken_rank_is_refused_and_the_first_may_repeat_itself() {
    let fixture = Fixture::new(2);
    let client = fixture.client();
    client.register(&peer(0), 0, &endpoint(0)).unwrap();
    match client.register(&peer(7), 0, &endpoint(7)) {
        Err(Error::Refused { problem }) => assert_eq!(problem.name(), "rank-taken"),
        other => panic!("expected a refusal, got {other:?}"),
    }
    let again = client.register(&peer(0), 0, &endpoint(0)).unwrap();
    assert_eq!(again.outcome, Outcome::Repeated);
}

#[test]
fn one_who_leaves_is_in_the_status_and_not_among_the_lost() {
    let fixture = Fixture::new(1);
    let client = fixture.client();
    client.register(&peer(0), 0, &endpoint(0)).unwrap();
    client.leave(&peer(0)).unwrap();
    client.report_lost(0, "exited with 1", Some(1)).unwrap();
    let status = client.status().unwrap();
    assert_eq!(status.left, [0]);
    assert!(status.lost.is_empty());
}

#[test]
fn a_wrong_or_missing_token_is_refused_on_every_route() {
    let fixture = Fixture::new(1);
    let address = format!("http://{}", fixture.address);
    let stranger = Client::new(&address, Token::from_bytes([1; 32])).unwrap();
    assert!(matches!(stranger.status(), Err(Error::Unauthorized { .. })));
    let result = stranger.register(&peer(0), 0, &endpoint(0));
    assert!(
        matches!(result, Err(Error::Unauthorized { .. })),
        "{result:?}"
    );
    let answer = fixture.raw(b"GET /v1/nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    assert_eq!(
        fixture.client().status().unwrap().missing,
        [0],
        "nobody got in"
    );
}

#[test]
fn malformed_json_is_refused_by_the_name_of_its_field() {
    let fixture = Fixture::new(2);
    let good = r#"{"peer":{"host":"a","slot":0,"incarnation":"00000000000000000000000000000001"},"rank":0,"endpoint":{"addresses":[],"local":"l","machine":"m"}}"#;
    for (body, named) in [
        (good.replace("\"rank\":0", "\"rank\":\"zero\""), "rank"),
        (good.replace("\"slot\":0", "\"slot\":99999"), "peer.slot"),
        (good.replace("[]", "[\"nowhere\"]"), "endpoint.addresses[0]"),
        (
            good.replace("\"rank\":0", "\"rank\":0,\"colour\":1"),
            "colour",
        ),
        (good.replace("\"rank\":0,", ""), "rank"),
        (good.replace("}}", "}} true"), "trailing"),
        ("{".into(), "EOF"),
        (String::new(), "EOF"),
    ] {
        let (_, problem) = fixture.problem("POST", "/v1/peers", &body);
        assert_eq!(
            (problem.status, problem.name()),
            (400, "malformed"),
            "{body}"
        );
        assert!(
            problem.detail.contains(named),
            "{body} gave {:?}",
            problem.detail
        );
    }
}

#[test]
fn wrong_parameters_routes_and_methods_are_problems_too() {
    let fixture = Fixture::new(1);
    for (method, path, status, named) in [
        ("GET", "/v1/membership?after=soon", 400, "after"),
        ("GET", "/v1/membership?before=1", 400, "before"),
        ("GET", "/v1/lost?wait_ms=-1", 400, "wait_ms"),
        ("GET", "/v2/status", 404, "/v2/status"),
        ("DELETE", "/v1/status", 405, "DELETE"),
    ] {
        let (_, problem) = fixture.problem(method, path, "");
        assert_eq!(problem.status, status, "{method} {path}");
        assert!(
            problem.detail.contains(named),
            "{method} {path} gave {:?}",
            problem.detail
        );
    }
}

#[test]
fn an_oversized_body_is_refused_with_413() {
    let fixture = Fixture::new(1);
    for size in [64 * 1024 + 1, 900 * 1024] {
        let (_, problem) = fixture.problem("POST", "/v1/lost", &" ".repeat(size));
        assert_eq!((problem.status, problem.name()), (413, "too-large"));
    }
    // Just fits: it is refused for what it says, not for its size.
    let (_, problem) = fixture.problem("POST", "/v1/lost", &" ".repeat(64 * 1024));
    assert_eq!(problem.status, 400);
}

#[test]
fn garbage_on_the_port_disturbs_nobody() {
    let fixture = Fixture::new(1);
    let noise: Vec<u8> = (0..20_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for garbage in [
        &noise[..],
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(fixture.address).unwrap();
        stream.write_all(garbage).unwrap();
        drop(stream);
    }
    let endless = format!("GET /{} HTTP/1.1\r\n", "a".repeat(100_000));
    let mut stream = TcpStream::connect(fixture.address).unwrap();
    // The server may have closed before all of it was sent.
    let _ = stream.write_all(endless.as_bytes());
    let registered = fixture
        .client()
        .register(&peer(0), 0, &endpoint(0))
        .unwrap();
    assert_eq!(registered.outcome, Outcome::Published);
}

#[test]
fn connections_that_send_one_byte_and_wait_disturb_nobody() {
    let fixture = Fixture::new(1);
    let slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(fixture.address).unwrap();
            stream.write_all(b"P").unwrap();
            stream
        })
        .collect();
    let registered = fixture
        .client()
        .register(&peer(0), 0, &endpoint(0))
        .unwrap();
    assert_eq!(registered.outcome, Outcome::Published);
    drop(slow);
}

#[test]
fn a_coordinator_that_is_away_is_tried_again_until_the_timeout() {
    // Bound but not listening: nobody else gets the port, and nobody answers on it.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let client = Client::new(&address.to_string(), token()).unwrap();
    match client.wait_membership(0, Duration::from_millis(450)) {
        Err(Error::Connect { address: named, .. }) => assert_eq!(named, address.to_string()),
        other => panic!("expected no connection, got {other:?}"),
    }
}

#[test]
fn a_stopping_server_ends_the_waits_it_holds() {
    let fixture = Fixture::new(1);
    let request = format!(
        "GET /v1/membership?after=0&wait_ms=60000 HTTP/1.1\r\nHost: a\r\n\
         Authorization: Bearer {}\r\n\r\n",
        token().to_hex()
    );
    let mut stream = TcpStream::connect(fixture.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    // One who asked afterwards has been answered, so the wait above is held by now or not read
    // yet; both must end.
    fixture.client().status().unwrap();
    drop(fixture);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 204"),
        "{answer}"
    );
}

/// Sends `bytes` to a server whose time flies, and reads until it closes the connection.
async fn answer_to_a_slow_sender(bytes: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let coordinator = Coordinator::new(State::new("digits", 1), token());
    tokio::spawn(serve(listener, std::future::pending(), coordinator));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_finish_its_head_is_closed() {
    answer_to_a_slow_sender(b"P").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let request = format!(
        "POST /v1/lost HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 100\r\n\r\n{{",
        token().to_hex()
    );
    let answer = answer_to_a_slow_sender(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}
