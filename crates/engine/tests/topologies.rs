//! Forced topologies: sums along every graph, bit for bit as the plan simulates them.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use carole_engine::testing::spawn_on;
use carole_engine::{Error, Group, Options, ReduceOp, Transport};
use carole_plan::{Topology, TopologyName};
use half::f16;

/// Host layouts of one to eight ranks.
fn layouts() -> Vec<Vec<usize>> {
    vec![
        vec![0],
        vec![0, 0],
        vec![0, 1],
        vec![0, 0, 0],
        vec![0, 1, 0, 2],
        vec![0, 0, 1, 1, 1],
        vec![0, 1, 2, 0, 1, 2],
        vec![0, 0, 0, 0, 0, 0, 0],
        vec![0, 0, 0, 0, 1, 1, 1, 1],
    ]
}

/// Every name, a chain by its parents, and the tree of some latencies.
fn topologies(hosts: &[usize]) -> Vec<(String, Arc<Topology>)> {
    let size = hosts.len();
    let named = TopologyName::ALL
        .map(|name| (name.to_string(), Topology::named(name, hosts).unwrap()))
        .into_iter();
    // Away from rank 0, so that the root is another one.
    let parents: Vec<usize> = (0..size).map(|rank| (rank + 1).min(size - 1)).collect();
    let latencies: Vec<Vec<f64>> = (0..size)
        .map(|a| {
            (0..size)
                .map(|b| ((a * 7 + b * 7) % 5 + 1) as f64)
                .collect()
        })
        .collect();
    let others = [
        ("parents", Topology::from_parents(&parents).unwrap()),
        ("latencies", Topology::from_latencies(&latencies).unwrap()),
    ]
    .map(|(name, topology)| (name.to_owned(), topology));
    named
        .chain(others)
        .map(|(name, topology)| (name, Arc::new(topology)))
        .collect()
}

/// Numbers of very different sizes, so that another order gives other bits.
fn value(rank: usize, index: usize) -> f32 {
    let mix = (rank as u32).wrapping_mul(2_654_435_761) ^ (index as u32).wrapping_mul(0x9e37_79b9);
    let mix = (mix ^ (mix >> 15)).wrapping_mul(0x85eb_ca6b);
    let exponent = (mix >> 24) % 20;
    (mix & 0xffff) as f32 / 7.0 * 2f32.powi(exponent as i32 - 10) - 100.0
}

fn filled(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|index| value(rank, index)).collect()
}

/// What the plan says the result is.
fn simulated<T: Clone>(
    topology: &Topology,
    length: usize,
    value: impl Fn(usize, usize) -> T,
    combine: impl Fn(T, &T) -> T,
) -> Vec<T> {
    let mut result = Vec::with_capacity(length);
    for (range, pair) in topology.segments(length) {
        let values: Vec<Vec<T>> = (0..topology.size())
            .map(|rank| range.clone().map(|index| value(rank, index)).collect())
            .collect();
        let segments = pair.simulate(&values, |so_far, arrived| {
            let both = so_far.into_iter().zip(arrived);
            both.map(|(a, b)| combine(a, b)).collect()
        });
        result.extend(segments.unwrap().remove(0));
    }
    result
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn still_works(world: &Group) {
    for length in [1usize, 100_000] {
        let mut tensor = vec![1.0f32; length];
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert!(tensor.iter().all(|value| *value == world.size() as f32));
    }
}

#[test]
fn every_topology_sums_as_simulated() {
    let lengths = [0usize, 1, 5, 1000, 50_001];
    for hosts in layouts() {
        let cases: Vec<_> = topologies(&hosts)
            .into_iter()
            .map(|(name, topology)| {
                let expected =
                    lengths.map(|length| bits(&simulated(&topology, length, value, |a, b| a + b)));
                (name, topology, expected)
            })
            .collect();
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            for (name, topology, expected) in &cases {
                for (length, expected) in lengths.into_iter().zip(expected) {
                    let mut tensor = filled(world.rank(), length);
                    let call = world.call().topology(topology);
                    call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                    assert!(bits(&tensor) == *expected, "{name} on {hosts:?}, {length}");
                    // Again under a name, out of place.
                    let send = filled(world.rank(), length);
                    let mut recv = vec![0.0; length];
                    let call = world.named("grad").topology(topology);
                    call.all_reduce_into(&send, &mut recv, ReduceOp::Sum)
                        .unwrap();
                    assert!(bits(&recv) == *expected, "{name} on {hosts:?}, {length}");
                    assert!(bits(&send) == bits(&filled(world.rank(), length)));
                }
            }
        });
    }
}

#[test]
fn large_tensors_pass_through_small_rings() {
    let length = 1_500_003;
    for hosts in [vec![0, 1, 2], vec![0, 0, 1, 1], vec![0, 0, 0, 0]] {
        for name in [
            TopologyName::Star,
            TopologyName::Ring,
            TopologyName::BinaryTree,
        ] {
            let topology = Arc::new(Topology::named(name, &hosts).unwrap());
            let expected = bits(&simulated(&topology, length, value, |a, b| a + b));
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                for _ in 0..2 {
                    let mut tensor = filled(world.rank(), length);
                    let call = world.named("large").topology(&topology);
                    call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                    assert!(bits(&tensor) == expected, "{name} on {hosts:?}");
                }
            });
        }
    }
}

#[test]
fn halves_are_rounded_once_a_hop() {
    let half = |rank: usize, index: usize| f16::from_f32(value(rank, index) / 64.0);
    let round = |number: f32| f16::from_f32(number).to_f32();
    for hosts in [vec![0, 1, 2, 3, 4], vec![0, 0, 1, 1], vec![0, 0, 0]] {
        for (name, topology) in topologies(&hosts) {
            let length = 3001;
            // What arrives was rounded by the one who sent it; what is held here was not.
            let sums = simulated(
                &topology,
                length,
                |rank, index| half(rank, index).to_f32(),
                |sum, arrived| sum + round(*arrived),
            );
            let expected: Vec<u16> = sums.iter().map(|s| f16::from_f32(*s).to_bits()).collect();
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                let mut tensor: Vec<f16> = (0..length).map(|i| half(world.rank(), i)).collect();
                let call = world.call().topology(&topology);
                call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                let got: Vec<u16> = tensor.iter().map(|number| number.to_bits()).collect();
                assert_eq!(got, expected, "{name} on {hosts:?}");
            });
        }
    }
}

#[test]
fn operations_types_and_scales_are_honoured() {
    for hosts in [vec![0, 1, 2, 0, 1], vec![0, 0, 0, 0]] {
        for (name, topology) in topologies(&hosts) {
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                let (rank, size) = (world.rank(), world.size());
                let call = || world.call().topology(&topology);

                let mut most: Vec<i32> = (0..999).map(|i| (rank as i32 - 2) * i).collect();
                call().all_reduce(&mut most, ReduceOp::Max).unwrap();
                let expected = |i: i32| (0..size as i32).map(|r| (r - 2) * i).max().unwrap();
                assert_eq!(most, (0..999).map(expected).collect::<Vec<_>>(), "{name}");

                let mut average = vec![rank as i64 * 10; 77];
                call().all_reduce(&mut average, ReduceOp::Average).unwrap();
                let sum: i64 = (0..size as i64).map(|rank| rank * 10).sum();
                assert_eq!(average, vec![sum / size as i64; 77], "{name}");

                // Powers of two: exact in any order.
                let mut scaled = vec![(rank + 1) as f64; 40_000];
                call()
                    .scaled(0.5, 4.0)
                    .all_reduce(&mut scaled, ReduceOp::Sum)
                    .unwrap();
                let sum: f64 = (1..=size).map(|value| value as f64).sum();
                assert_eq!(scaled, vec![sum * 2.0; 40_000], "{name}");

                let mut tensors = [vec![1u64; 3], vec![2; 0], vec![3; 20_001]];
                let mut list: Vec<&mut [u64]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
                call().all_reduce_list(&mut list, ReduceOp::Sum).unwrap();
                assert_eq!(tensors[0], vec![size as u64; 3], "{name}");
                assert_eq!(tensors[2], vec![3 * size as u64; 20_001], "{name}");
            });
        }
    }
}

#[test]
fn broadcasts_follow_the_graph() {
    for hosts in [vec![0, 1, 0, 1, 2], vec![0, 0, 0]] {
        let parents: Vec<usize> = (0..hosts.len()).map(|rank| rank.max(1) - 1).collect();
        let chain = Arc::new(Topology::from_parents(&parents).unwrap());
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            for length in [0usize, 1, 300_001] {
                let mut tensor = filled(world.rank(), length);
                let call = world.named("weights").topology(&chain);
                call.broadcast(&mut tensor, 0).unwrap();
                assert_eq!(bits(&tensor), bits(&filled(0, length)));
            }
            let error = world.call().topology(&chain).broadcast(&mut [1.0f32], 1);
            let text = error.unwrap_err().to_string();
            assert!(
                text.contains("the topology's root is 0, the call's 1"),
                "{text}"
            );
            still_works(&world);
        });
    }
}

#[test]
fn groups_and_tcp_only_sessions_can_be_forced() {
    let options = Options {
        transport: Transport::Tcp,
        ..Options::default()
    };
    for options in [Options::default(), options] {
        spawn_on(&[0, 0, 0, 1, 1], &options, |session| {
            let ranks = [4, 0, 3, 1];
            if !ranks.contains(&session.rank()) {
                return;
            }
            let group = session.group(&ranks).unwrap();
            let ring = Topology::named(TopologyName::Ring, &[0, 1, 2, 3]).unwrap();
            let ring = Arc::new(ring);
            let expected = simulated(&ring, 7000, value, |a, b| a + b);
            let mut tensor = filled(group.rank(), 7000);
            let call = group.call().topology(&ring);
            call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert_eq!(bits(&tensor), bits(&expected));
        });
    }
}

#[test]
fn started_operations_go_in_any_order() {
    for hosts in [vec![0, 1, 1], vec![0, 0, 0]] {
        let clique = Arc::new(Topology::named(TopologyName::Clique, &hosts).unwrap());
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let names = ["a", "b", "c", "d"];
            let turn = world.rank();
            let mut pending = Vec::new();
            for index in 0..names.len() {
                let name = names[(index + turn) % names.len()];
                let call = world.named(name).topology(&clique);
                let tensor = vec![1.0f32; 200_000];
                pending.push(call.start_all_reduce(tensor, ReduceOp::Sum).unwrap());
            }
            for pending in pending {
                let sum = pending.wait().unwrap();
                assert!(sum.iter().all(|value| *value == 3.0));
            }
        });
    }
}

fn odd_layouts() -> Vec<Vec<usize>> {
    vec![vec![0, 0, 0], vec![0, 1, 2], vec![0, 0, 1, 1]]
}

#[test]
fn different_topologies_are_told_to_every_rank() {
    for hosts in odd_layouts() {
        let star = Arc::new(Topology::named(TopologyName::Star, &hosts).unwrap());
        let ring = Arc::new(Topology::named(TopologyName::Ring, &hosts).unwrap());
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let odd = world.rank() == world.size() - 1;
            for length in [3usize, 60_000] {
                for other in [Some(&ring), None] {
                    let call = world.named("grad");
                    let call = match (odd, other) {
                        (false, _) => call.topology(&star),
                        (true, Some(ring)) => call.topology(ring),
                        (true, None) => call,
                    };
                    let error = call
                        .all_reduce(&mut vec![1.0f32; length], ReduceOp::Sum)
                        .expect_err("the ranks do not agree");
                    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                    assert!(error.to_string().contains("settings"), "{error}");
                }
                // The same name works again.
                let mut tensor = vec![1.0f32; length];
                let call = world.named("grad").topology(&star);
                call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                assert!(tensor.iter().all(|value| *value == world.size() as f32));
            }
            still_works(&world);
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    spawn_on(&[0, 1], &Options::default(), |session| {
        let world = session.world();
        let three = Arc::new(Topology::named(TopologyName::Star, &[0, 0, 0]).unwrap());
        let two = Arc::new(Topology::named(TopologyName::Star, &[0, 0]).unwrap());
        let refused = |result: Result<(), Error>, words: &str| {
            let error = result.expect_err("refused");
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        let call = world.call().topology(&three);
        refused(
            call.all_reduce(&mut [1.0f32], ReduceOp::Sum),
            "a topology over 3 ranks in a group of 2",
        );
        let call = world.call().topology(&two);
        refused(call.barrier(), "no topology can be forced on it");
        refused(
            call.reduce(&mut [1.0f32], ReduceOp::Sum, 0),
            "no topology can be forced on it",
        );
        still_works(&world);
    });
}

#[test]
fn a_rank_that_does_not_come_ends_by_the_timeout() {
    for hosts in odd_layouts() {
        let ring = Arc::new(Topology::named(TopologyName::Ring, &hosts).unwrap());
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let mut tensor = vec![1.0f32; 60_000];
            let call = world.named("late").topology(&ring);
            if world.rank() == 1 {
                // Comes when another has given up.
                let gone = session.get("gone", Duration::from_secs(20)).unwrap();
                assert!(gone.is_some(), "the others give up");
                let error = call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
            } else {
                let call = call.timeout(Duration::from_millis(150));
                let error = call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap_err();
                match &error {
                    Error::Timeout { waiting_for, .. } => {
                        assert!(waiting_for.contains("rank 1"), "{error}");
                    }
                    // Another rank's clock was faster.
                    Error::Aborted { .. } => {}
                    _ => panic!("{error}"),
                }
                session.put(1, "gone", b"timed out").unwrap();
            }
            let mut tensor = vec![1.0f32; 60_000];
            let call = world.named("late").topology(&ring);
            call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert!(tensor.iter().all(|value| *value == world.size() as f32));
            still_works(&world);
        });
    }
}

#[test]
fn aborts_end_it_on_every_rank() {
    for hosts in odd_layouts() {
        let ring = Arc::new(Topology::named(TopologyName::Ring, &hosts).unwrap());
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            for round in 0..5u32 {
                let length = 400_000;
                let call = world.named("never").topology(&ring);
                if world.rank() == 0 {
                    // Given up before, in the middle of, or after the others' coming.
                    let pending = call.start_all_reduce(vec![1.0f32; length], ReduceOp::Sum);
                    let pending = pending.unwrap();
                    let until = Instant::now() + Duration::from_micros(400) * round;
                    while Instant::now() < until {
                        pending.test();
                    }
                    pending.abort();
                    let _ = pending.wait();
                } else {
                    let mut tensor = vec![1.0f32; length];
                    match call.all_reduce(&mut tensor, ReduceOp::Sum) {
                        // Rank 0 came through before it gave up.
                        Ok(()) => assert_eq!(tensor[0], world.size() as f32),
                        Err(error) => assert!(matches!(error, Error::Aborted { .. }), "{error}"),
                    }
                }
                world.call().barrier().unwrap();
            }
            still_works(&world);
        });
    }
}

#[test]
fn a_rank_that_leaves_is_named() {
    for hosts in odd_layouts() {
        let star = Arc::new(Topology::named(TopologyName::Star, &hosts).unwrap());
        // Nobody else leaves before all have heard of the one who did.
        let heard = Barrier::new(hosts.len() - 1);
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let mut tensor = vec![1.0f32; 100_000];
            let call = world.call().topology(&star);
            call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            if world.rank() == 2 {
                return;
            }
            let began = Instant::now();
            let call = world.call().topology(&star);
            let error = call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap_err();
            assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
            assert!(began.elapsed() < Duration::from_secs(5));
            heard.wait();
        });
    }
}
