//! What a session says it did, after operations that are known.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use carole_engine::testing::spawn_on;
use carole_engine::{DType, Error, Kind, Metrics, Options, ReduceOp, Session};
use serde_json::Value;

/// Ranks that share memory, ranks on hosts of their own, and a mixture.
const LAYOUTS: [&[usize]; 3] = [&[0, 0, 0], &[0, 1, 2], &[0, 0, 1]];

fn spawn<R: Send>(hosts: &[usize], body: impl Fn(Session) -> R + Sync) -> Vec<R> {
    spawn_on(hosts, &Options::default(), body)
}

fn run_known_operations(session: &Session) {
    let world = session.world();
    for _ in 0..5 {
        let mut tensor = [1.0f32; 100];
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
    }
    let mut large = vec![1.0f32; 100_000];
    world.call().all_reduce(&mut large, ReduceOp::Sum).unwrap();
    world.call().barrier().unwrap();
    let mut values = [0u8; 30];
    world.call().broadcast(&mut values, 1).unwrap();
    let pending = world
        .named("started")
        .start_all_reduce(vec![1.0f32; 100], ReduceOp::Sum)
        .unwrap();
    pending.wait().unwrap();
    match world.rank() {
        0 => world.send(1, "message", &[7u64; 4]).unwrap(),
        1 => world.recv(0, "message", &mut [0u64; 4]).unwrap(),
        _ => {}
    }
}

#[test]
fn counts_and_bytes_are_those_of_the_operations() {
    for hosts in LAYOUTS {
        spawn(hosts, |session| {
            run_known_operations(&session);
            let metrics = session.metrics();
            assert_eq!((metrics.rank, metrics.size), (session.rank(), 3));
            let all_reduce = metrics.kind(Kind::AllReduce).unwrap();
            assert_eq!(all_reduce.operations, 7);
            assert_eq!(all_reduce.bytes, 6 * 400 + 400_000);
            let sizes: Vec<_> = all_reduce
                .sizes
                .iter()
                .map(|size| (size.most, size.operations, size.bytes))
                .collect();
            let expected = [(Some(1 << 10), 6, 2400), (Some(1 << 20), 1, 400_000)];
            assert_eq!(sizes, expected);
            assert_eq!(all_reduce.latency.count(), 7);
            assert_eq!(all_reduce.bandwidth.count(), 7);
            assert!(all_reduce.latency.percentile(0.5).unwrap() > 0.0);
            let barrier = metrics.kind(Kind::Barrier).unwrap();
            assert_eq!((barrier.operations, barrier.bytes), (1, 0));
            assert_eq!(barrier.bandwidth.count(), 0);
            let broadcast = metrics.kind(Kind::Broadcast).unwrap();
            assert_eq!((broadcast.operations, broadcast.bytes), (1, 30));
            let transfers = metrics.kind(Kind::Transfer).map(|kind| kind.bytes);
            assert_eq!(transfers, (session.rank() < 2).then_some(32));
            assert!(metrics.kind(Kind::AllToAll).is_none());
            assert!(metrics.kinds.iter().all(|kind| kind.errors.is_empty()));
        });
    }
}

#[test]
fn shared_memory_counts_what_is_for_each_peer() {
    let all = spawn(&[0, 0, 0], |session| {
        let world = session.world();
        let mut tensor = [1.0f32; 100];
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        let mut values = [0u8; 1000];
        world.call().broadcast(&mut values, 1).unwrap();
        session.metrics()
    });
    for (rank, metrics) in all.iter().enumerate() {
        assert_eq!(metrics.peers.len(), 2);
        assert!(metrics.peer(rank).is_none());
        for peer in &metrics.peers {
            let from_root = if peer.rank == 1 { 1000 } else { 0 };
            let to_others = if rank == 1 { 1000 } else { 0 };
            assert_eq!(peer.shared_memory.bytes_in, 400 + from_root);
            assert_eq!(peer.shared_memory.bytes_out, 400 + to_others);
            assert!(peer.rate_in > 0.0);
        }
    }
}

/// What one rank says it gave another is what that one says it got.
fn assert_balanced(all: &[Metrics]) {
    for metrics in all {
        for peer in &metrics.peers {
            let back = all[peer.rank].peer(metrics.rank).unwrap();
            assert_eq!(peer.shared_memory.bytes_out, back.shared_memory.bytes_in);
        }
    }
}

#[test]
fn large_reductions_in_shared_memory_balance() {
    for hosts in [&[0, 0, 0][..], &[0, 0, 1, 1], &[0, 0, 0, 1]] {
        let all = spawn(hosts, |session| {
            let world = session.world();
            for length in [1, 5000, 70_001, 400_003] {
                let mut tensor = vec![1.0f32; length];
                world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                world.call().reduce(&mut tensor, ReduceOp::Sum, 1).unwrap();
            }
            session.metrics()
        });
        assert_balanced(&all);
        let first = all[0].peer(1).unwrap().shared_memory;
        assert!(first.bytes_in > 400_003, "{first:?}");
    }
}

#[test]
fn connections_count_at_least_the_payload() {
    let all = spawn(&[0, 1], |session| {
        let world = session.world();
        let mut tensor = vec![1.0f32; 100_000];
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        let metrics = session.metrics();
        // The other may still be reading; it must not see this one leave.
        world.call().barrier().unwrap();
        metrics
    });
    for metrics in &all {
        let [peer] = &metrics.peers[..] else {
            panic!("one peer, not {}", metrics.peers.len());
        };
        // Half of the tensor to be combined, half as a result.
        assert!(peer.connection.bytes_in >= 400_000, "{peer:?}");
        assert!(peer.connection.bytes_out >= 400_000, "{peer:?}");
        assert!(peer.connection.bytes_out < 420_000, "{peer:?}");
        assert_eq!(peer.shared_memory.bytes_in, 0);
        assert!(peer.rate_out > 0.0);
    }
}

#[test]
fn errors_are_counted_by_kind() {
    spawn(&[0, 0], |session| {
        let world = session.world();
        let mut tensor = vec![1.0f32; 10 + session.rank()];
        let error = world.call().all_reduce(&mut tensor, ReduceOp::Sum);
        assert!(matches!(error, Err(Error::Mismatch { .. })));
        let error = world.call().all_reduce(&mut tensor, ReduceOp::Xor);
        assert!(matches!(error, Err(Error::Invalid { .. })));
        let metrics = session.metrics();
        let all_reduce = metrics.kind(Kind::AllReduce).unwrap();
        assert_eq!(all_reduce.operations, 0);
        assert_eq!(all_reduce.errors, [("mismatch", 1), ("invalid", 1)]);
    });
}

#[test]
fn stalls_and_timeouts_are_counted() {
    let options = Options {
        stall: Duration::from_millis(20),
        ..Options::default()
    };
    spawn_on(&[0, 0], &options, |session| {
        let world = session.world();
        if session.rank() == 0 {
            let wait = Duration::from_millis(150);
            let error = world.named("alone").timeout(wait).barrier();
            assert!(matches!(error, Err(Error::Timeout { .. })));
            let metrics = session.metrics();
            let barrier = metrics.kind(Kind::Barrier).unwrap();
            assert!(barrier.stalls >= 1);
            assert_eq!(barrier.errors, [("timeout", 1)]);
        }
        world.named("together").barrier().unwrap();
    });
}

#[test]
fn a_started_operation_stalls_though_nobody_waits() {
    let options = Options {
        stall: Duration::from_millis(20),
        ..Options::default()
    };
    for hosts in [[0, 0], [0, 1]] {
        spawn_on(&hosts, &options, |session| {
            let world = session.world();
            let start = || {
                let call = world.named("late");
                call.start_all_reduce(vec![1.0f32; 4], ReduceOp::Sum)
                    .unwrap()
            };
            if session.rank() == 0 {
                let pending = start();
                // Traffic of other operations is no sign of life of this one.
                for _ in 0..60 {
                    world.named("other").barrier().unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
                let metrics = session.metrics();
                assert!(metrics.kind(Kind::AllReduce).unwrap().stalls >= 1);
                world.named("seen").barrier().unwrap();
                assert_eq!(pending.wait().unwrap(), [2.0; 4]);
            } else {
                for _ in 0..60 {
                    world.named("other").barrier().unwrap();
                }
                world.named("seen").barrier().unwrap();
                assert_eq!(start().wait().unwrap(), [2.0; 4]);
            }
        });
    }
}

/// Name, labels and value of a sample line.
fn parse_sample(line: &str) -> (String, HashMap<String, String>, f64) {
    let (name, rest) = line.split_once('{').expect("labels");
    let (labels, value) = rest.rsplit_once("} ").expect("a value");
    assert!(
        name.bytes()
            .all(|letter| letter.is_ascii_lowercase() || letter == b'_')
    );
    let labels = labels
        .split("\",")
        .map(|label| {
            let (key, text) = label.split_once("=\"").expect("a label");
            (key.to_owned(), text.trim_end_matches('"').to_owned())
        })
        .collect();
    (name.to_owned(), labels, value.parse().expect("a number"))
}

#[test]
fn prometheus_text_parses_line_by_line() {
    for hosts in LAYOUTS {
        spawn(hosts, |session| {
            run_known_operations(&session);
            let text = session.metrics().prometheus();
            assert!(text.ends_with('\n'));
            let mut types: HashMap<&str, &str> = HashMap::new();
            let mut helped = "";
            let mut last_bucket = 0.0;
            let mut samples = Vec::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# HELP ") {
                    let (name, help) = rest.split_once(' ').unwrap();
                    assert!(!help.is_empty());
                    helped = name;
                } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = rest.split_once(' ').unwrap();
                    assert_eq!(name, helped);
                    assert!(types.insert(name, kind).is_none(), "{name} twice");
                } else {
                    let (name, labels, value) = parse_sample(line);
                    assert!(name.starts_with("carole_"));
                    assert_eq!(labels["rank"], session.rank().to_string());
                    let family = if types[helped] == "histogram" {
                        ["_bucket", "_sum", "_count"]
                            .iter()
                            .find_map(|suffix| name.strip_suffix(suffix))
                            .unwrap()
                    } else {
                        &name
                    };
                    assert_eq!(family, helped);
                    if name.ends_with("_bucket") {
                        assert!(labels["le"] == "+Inf" || labels["le"].parse::<f64>().is_ok());
                        assert!(value >= last_bucket, "{line}");
                        last_bucket = value;
                    } else if name.ends_with("_count") {
                        assert!((value - last_bucket).abs() < 0.5);
                        last_bucket = 0.0;
                    }
                    samples.push((name, labels, value));
                }
            }
            let small_all_reduces = samples.iter().find(|(name, labels, _)| {
                name == "carole_operation_duration_seconds_count"
                    && labels["kind"] == "all_reduce"
                    && labels["size"] == "1KiB"
            });
            assert!((small_all_reduces.unwrap().2 - 6.0).abs() < 0.5);
            let sent = "carole_peer_sent_bytes_total";
            let peers = samples.iter().filter(|(name, ..)| name == sent).count();
            assert_eq!(peers, 2 * 2);
        });
    }
}

/// A writer whose bytes can be read afterwards.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Kept {
    /// The complete events.
    fn events(&self) -> Vec<Value> {
        let trace: Value = serde_json::from_slice(&self.0.lock().unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.filter(|event| event["ph"] == "X").cloned().collect()
    }
}

#[test]
fn a_timeline_has_one_event_for_each_operation() {
    for hosts in LAYOUTS {
        spawn(hosts, |session| {
            let world = session.world();
            world.call().barrier().unwrap();
            let kept = Kept::default();
            session.start_timeline_to(kept.clone()).unwrap();
            run_known_operations(&session);
            let traced = session.stop_timeline().unwrap();
            world.call().barrier().unwrap();
            let expected = if session.rank() < 2 { 10 } else { 9 };
            assert_eq!((traced.events, traced.dropped), (expected, 0));
            let events = kept.events();
            assert_eq!(events.len(), expected);
            let mut last = 0.0;
            for event in &events {
                assert_eq!(event["pid"], session.rank());
                assert!(event["tid"].as_u64().unwrap() > 0);
                let began = event["ts"].as_f64().unwrap();
                assert!(began >= last);
                last = began;
                assert!(event["dur"].as_f64().unwrap() > 0.0);
                assert_eq!(event["cat"], event["args"]["kind"]);
            }
            let large = &events[5];
            assert_eq!(large["args"]["bytes"], 400_000);
            let algorithm = world.algorithm_for(Kind::AllReduce, DType::F32, 400_000);
            assert_eq!(large["args"]["algorithm"], algorithm);
            let named: Vec<_> = events.iter().filter(|e| e["name"] == "started").collect();
            assert_eq!(named.len(), 1);
        });
    }
}

#[test]
fn a_timeline_is_written_when_its_session_ends() {
    spawn(&[0, 0], |session| {
        let kept = Kept::default();
        session.start_timeline_to(kept.clone()).unwrap();
        session.world().call().barrier().unwrap();
        drop(session);
        // The engine thread may hold the session for a moment.
        let began = Instant::now();
        while serde_json::from_slice::<Value>(&kept.0.lock().unwrap()).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert_eq!(kept.events().len(), 1);
    });
}

#[test]
fn only_one_timeline_at_a_time() {
    spawn(&[0], |session| {
        assert_eq!(session.stop_timeline().unwrap().events, 0);
        let first = Kept::default();
        session.start_timeline_to(first.clone()).unwrap();
        let again = session.start_timeline_to(Kept::default());
        assert!(matches!(again, Err(Error::Invalid { .. })));
        let missing = session.start_timeline("/nonexistent/trace.json");
        assert!(matches!(missing, Err(Error::Invalid { .. })));
        session.stop_timeline().unwrap();
        assert!(first.events().is_empty());
        let missing = session.start_timeline("/nonexistent/trace.json");
        assert!(matches!(missing, Err(Error::System { .. })));
    });
}

#[test]
fn a_long_wait_says_for_whom_in_the_timeline() {
    spawn(&[0, 0], |session| {
        let world = session.world();
        if session.rank() == 0 {
            let kept = Kept::default();
            session.start_timeline_to(kept.clone()).unwrap();
            let wait = Duration::from_millis(100);
            world.named("alone").timeout(wait).barrier().unwrap_err();
            session.stop_timeline().unwrap();
            let events = kept.events();
            assert_eq!(events[0]["args"]["waiting_for"], serde_json::json!([1]));
            assert_eq!(events[0]["args"]["error"], "timeout");
        }
        world.named("together").barrier().unwrap();
    });
}

#[test]
fn the_algorithm_follows_size_and_layout() {
    let names = |hosts: &[usize], kind| -> Vec<&'static str> {
        let sizes = [4, 64 << 20];
        spawn(hosts, |session| {
            sizes.map(|bytes| session.world().algorithm_for(kind, DType::F32, bytes))
        })[0]
            .to_vec()
    };
    assert_eq!(names(&[0], Kind::AllReduce), ["solo", "solo"]);
    assert_eq!(names(&[0, 0], Kind::AllReduce), ["flat", "two-phase"]);
    let across = ["exchange-flat", "segmented"];
    assert_eq!(names(&[0, 1], Kind::AllReduce), across);
    let mixed = ["exchange-flat", "hierarchy"];
    assert_eq!(names(&[0, 0, 1, 1], Kind::AllReduce), mixed);
    assert_eq!(names(&[0, 0, 1, 1], Kind::Reduce), across);
    assert_eq!(names(&[0, 0], Kind::Broadcast), ["copy", "copy"]);
    assert_eq!(names(&[0, 1], Kind::Barrier), ["exchange-meet"; 2]);
}
