//! Every collective on every transport, for sizes 1 to 8 and lengths zero, one, odd and large.

use carole_engine::testing::{spawn_on, spawn_tls};
use carole_engine::{Element, Error, Group, Options, ReduceOp, Session};

/// Host layouts: threads on one host, every rank on its own, and mixtures.
fn layouts() -> Vec<Vec<usize>> {
    vec![
        vec![0],
        vec![0, 0],
        vec![0, 1],
        vec![0, 0, 0],
        vec![0, 1, 2],
        vec![0, 0, 1],
        vec![0, 0, 0, 0],
        vec![0, 0, 1, 1],
        vec![0, 1, 0, 1, 1],
        vec![0, 0, 0, 0, 0, 0, 0, 0],
        vec![0, 0, 0, 0, 1, 1, 1, 1],
    ]
}

const LENGTHS: [usize; 8] = [0, 1, 3, 63, 1001, 5000, 70_001, 400_003];

fn each_layout(body: impl Fn(&Session, &Group) + Sync) {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            body(&session, &world);
        });
    }
}

fn value(rank: usize, index: usize) -> f32 {
    ((rank * 31 + index * 7) % 101) as f32
}

fn filled(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|index| value(rank, index)).collect()
}

#[test]
fn all_reduce_sums_everywhere() {
    each_layout(|_, world| {
        for length in LENGTHS {
            let expected: Vec<f32> = (0..length)
                .map(|index| (0..world.size()).map(|rank| value(rank, index)).sum())
                .collect();
            let mut tensor = filled(world.rank(), length);
            world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert_eq!(tensor, expected);
            let send = filled(world.rank(), length);
            let mut recv = vec![-1.0; length];
            world
                .named("apart")
                .all_reduce_into(&send, &mut recv, ReduceOp::Sum)
                .unwrap();
            assert_eq!(recv, expected);
            assert_eq!(send, filled(world.rank(), length));
        }
    });
}

#[test]
fn lists_are_reduced_as_one() {
    each_layout(|_, world| {
        let lengths = [0usize, 1, 17, 40_000, 0, 90_001, 3];
        let mut tensors: Vec<Vec<f32>> = lengths
            .iter()
            .map(|length| filled(world.rank(), *length))
            .collect();
        let mut list: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
        world
            .call()
            .all_reduce_list(&mut list, ReduceOp::Max)
            .unwrap();
        for tensor in tensors {
            for (index, got) in tensor.iter().enumerate() {
                let most = (0..world.size())
                    .map(|rank| value(rank, index))
                    .fold(0.0, f32::max);
                assert_eq!(*got, most);
            }
        }
    });
}

#[test]
fn every_root_broadcasts_reduces_gathers_and_scatters() {
    each_layout(|_, world| {
        let size = world.size();
        for length in [0usize, 1, 33, 9_000, 300_001] {
            for root in 0..size {
                let mut tensor = filled(world.rank(), length);
                world.call().broadcast(&mut tensor, root).unwrap();
                assert_eq!(tensor, filled(root, length));

                let mut tensor = filled(world.rank(), length);
                world
                    .call()
                    .reduce(&mut tensor, ReduceOp::Sum, root)
                    .unwrap();
                if world.rank() == root {
                    for (index, got) in tensor.iter().enumerate() {
                        let sum: f32 = (0..size).map(|rank| value(rank, index)).sum();
                        assert_eq!(*got, sum);
                    }
                } else {
                    assert_eq!(tensor, filled(world.rank(), length));
                }

                let is_root = world.rank() == root;
                let mut all = vec![0.0; if is_root { length * size } else { 0 }];
                world
                    .call()
                    .gather(&filled(world.rank(), length), &mut all, root)
                    .unwrap();
                if is_root {
                    let expected: Vec<f32> =
                        (0..size).flat_map(|rank| filled(rank, length)).collect();
                    assert_eq!(all, expected);
                }

                let parts: Vec<f32> = if is_root {
                    (0..size)
                        .flat_map(|rank| filled(rank + 5, length))
                        .collect()
                } else {
                    Vec::new()
                };
                let mut part = vec![0.0; length];
                world.call().scatter(&parts, &mut part, root).unwrap();
                assert_eq!(part, filled(world.rank() + 5, length));
            }
        }
    });
}

#[test]
fn gathers_and_exchanges_deliver_every_part() {
    each_layout(|_, world| {
        let size = world.size();
        let me = world.rank();
        for length in [0usize, 1, 33, 9_000, 200_001] {
            let mut all = vec![0.0; length * size];
            world
                .call()
                .all_gather(&filled(me, length), &mut all)
                .unwrap();
            let expected: Vec<f32> = (0..size).flat_map(|rank| filled(rank, length)).collect();
            assert_eq!(all, expected);

            let counts: Vec<usize> = (0..size).map(|rank| length * rank / 2).collect();
            let mut all = vec![0.0; counts.iter().sum()];
            world
                .call()
                .all_gather_v(&filled(me, counts[me]), &mut all, &counts)
                .unwrap();
            let expected: Vec<f32> = (0..size)
                .flat_map(|rank| filled(rank, counts[rank]))
                .collect();
            assert_eq!(all, expected);

            let send: Vec<f32> = (0..size)
                .flat_map(|to| filled(me * 10 + to, length))
                .collect();
            let mut recv = vec![0.0; length * size];
            world.call().all_to_all(&send, &mut recv).unwrap();
            let expected: Vec<f32> = (0..size)
                .flat_map(|from| filled(from * 10 + me, length))
                .collect();
            assert_eq!(recv, expected);

            let split = |from: usize, to: usize| (from * 3 + to) * length / 8;
            let send_counts: Vec<usize> = (0..size).map(|to| split(me, to)).collect();
            let recv_counts: Vec<usize> = (0..size).map(|from| split(from, me)).collect();
            let send: Vec<f32> = (0..size)
                .flat_map(|to| filled(me * 10 + to, split(me, to)))
                .collect();
            let mut recv = vec![0.0; recv_counts.iter().sum()];
            world
                .call()
                .all_to_all_v(&send, &send_counts, &mut recv, &recv_counts)
                .unwrap();
            let expected: Vec<f32> = (0..size)
                .flat_map(|from| filled(from * 10 + me, split(from, me)))
                .collect();
            assert_eq!(recv, expected);

            let send: Vec<f32> = (0..size).flat_map(|_| filled(me, length)).collect();
            let mut part = vec![0.0; length];
            world
                .call()
                .reduce_scatter(&send, &mut part, ReduceOp::Sum)
                .unwrap();
            for (index, got) in part.iter().enumerate() {
                let sum: f32 = (0..size).map(|rank| value(rank, index)).sum();
                assert_eq!(*got, sum);
            }
        }
    });
}

#[test]
fn transfers_find_their_receiver() {
    each_layout(|_, world| {
        let (size, me) = (world.size(), world.rank());
        if size == 1 {
            return;
        }
        for length in [0usize, 1, 1000, 300_000] {
            let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
            let mut got = vec![0.0; length];
            if me % 2 == 0 {
                world.send(next, "round", &filled(me, length)).unwrap();
                world.recv(previous, "round", &mut got).unwrap();
            } else {
                world.recv(previous, "round", &mut got).unwrap();
                world.send(next, "round", &filled(me, length)).unwrap();
            }
            assert_eq!(got, filled(previous, length));
        }
        assert!(matches!(
            world.send(size, "x", &[1.0f32]),
            Err(Error::Invalid { .. })
        ));
    });
}

#[test]
fn consensus_tells_equal_from_different() {
    each_layout(|_, world| {
        assert!(world.call().consensus(b"the same").unwrap());
        let mine = if world.rank() == world.size() - 1 {
            "odd"
        } else {
            "even"
        };
        assert_eq!(
            world.call().consensus(mine.as_bytes()).unwrap(),
            world.size() == 1
        );
        world.call().barrier().unwrap();
    });
}

fn check_type<T: Element + PartialEq + std::fmt::Debug>(world: &Group, from: impl Fn(usize) -> T) {
    let size = world.size();
    let mut tensor: Vec<T> = (0..777).map(|_| from(1)).collect();
    world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
    assert!(tensor.iter().all(|value| *value == from(size)));
    let mut tensor: Vec<T> = vec![from(world.rank() + 1); 30_000];
    world.call().all_reduce(&mut tensor, ReduceOp::Max).unwrap();
    assert!(tensor.iter().all(|value| *value == from(size)));
    let mut tensor: Vec<T> = vec![from(2); 5];
    world
        .call()
        .all_reduce(&mut tensor, ReduceOp::Average)
        .unwrap();
    assert!(tensor.iter().all(|value| *value == from(2)));
}

#[test]
fn all_types_are_reduced() {
    each_layout(|_, world| {
        check_type(world, |n| n as u8);
        check_type(world, |n| n as u16);
        check_type(world, |n| n as u32);
        check_type(world, |n| n as u64);
        check_type(world, |n| n as i8);
        check_type(world, |n| n as i16);
        check_type(world, |n| n as i32);
        check_type(world, |n| n as i64);
        check_type(world, |n| half::f16::from_f32(n as f32));
        check_type(world, |n| half::bf16::from_f32(n as f32));
        check_type(world, |n| n as f32);
        check_type(world, |n| n as f64);
    });
}

#[test]
fn groups_work_side_by_side() {
    each_layout(|session, world| {
        let evens: Vec<usize> = (0..world.size()).filter(|rank| rank % 2 == 0).collect();
        let odds: Vec<usize> = (0..world.size())
            .rev()
            .filter(|rank| rank % 2 == 1)
            .collect();
        let mine = if session.rank() % 2 == 0 {
            &evens
        } else {
            &odds
        };
        let group = session.group(mine).unwrap();
        for length in [1usize, 500, 100_000] {
            let mut tensor = vec![session.rank() as f64; length];
            group.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            let sum: usize = mine.iter().sum();
            assert!(tensor.iter().all(|value| *value == sum as f64));
            let mut tensor = vec![1.0f64; length];
            world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert!(tensor.iter().all(|value| *value == world.size() as f64));
        }
        session.local_group().unwrap().call().barrier().unwrap();
        session.cross_group().unwrap().call().barrier().unwrap();
        assert!(session.group(&[0, 0]).is_err());
        assert!(session.group(&[99]).is_err());
    });
}

#[test]
fn started_operations_complete_in_any_order() {
    each_layout(|_, world| {
        let me = world.rank();
        let mut order: Vec<usize> = (0..40).collect();
        if me % 2 == 1 {
            order.reverse();
        }
        let names: Vec<String> = (0..40).map(|index| format!("grad/{index}")).collect();
        let mut pending: Vec<_> = order
            .iter()
            .map(|index| {
                let tensor = vec![(me + index) as f32; [3, 3000, 60_000][index % 3]];
                let call = world.named(&names[*index]);
                (
                    *index,
                    call.start_all_reduce(tensor, ReduceOp::Sum).unwrap(),
                )
            })
            .collect();
        pending.sort_by_key(|(index, _)| *index);
        for (index, pending) in pending {
            let tensor = pending.wait().unwrap();
            let sum: usize = (0..world.size()).map(|rank| rank + index).sum();
            assert!(
                tensor.iter().all(|value| *value == sum as f32),
                "operation {index}"
            );
        }
    });
}

#[test]
fn several_threads_call_at_once() {
    each_layout(|_, world| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let name = format!("thread {thread} round {round}");
                        let mut tensor = vec![1.0f32; 1 + 20_000 * (thread % 2)];
                        world
                            .named(&name)
                            .all_reduce(&mut tensor, ReduceOp::Sum)
                            .unwrap();
                        assert!(tensor.iter().all(|value| *value == world.size() as f32));
                    }
                });
            }
        });
    });
}

#[test]
fn tensors_in_shared_memory_are_reduced_where_they_lie() {
    each_layout(|session, world| {
        for length in [0usize, 1, 5000, 70_001, 1_000_003] {
            let mut tensor = session.allocate::<f32>(length).unwrap();
            tensor.copy_from_slice(&filled(world.rank(), length));
            world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            for (index, got) in tensor.iter().enumerate() {
                let sum: f32 = (0..world.size()).map(|rank| value(rank, index)).sum();
                assert_eq!(*got, sum);
            }
            // Some tensors in shared memory, some not.
            let mut private = filled(world.rank(), length);
            tensor.copy_from_slice(&private);
            let mixed = if world.rank() % 2 == 0 {
                &mut tensor[..]
            } else {
                &mut private[..]
            };
            world.call().all_reduce(mixed, ReduceOp::Sum).unwrap();
            for (index, got) in mixed.iter().enumerate() {
                let sum: f32 = (0..world.size()).map(|rank| value(rank, index)).sum();
                assert_eq!(*got, sum);
            }
        }
    });
}

#[test]
fn barriers_and_transfers_of_two_threads_do_not_mix() {
    for hosts in [vec![0, 0, 0], vec![0, 1, 1]] {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let (me, size) = (world.rank(), world.size());
            let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
            std::thread::scope(|scope| {
                for (label, length) in [("a", 16_381), ("b", 12)] {
                    let world = &world;
                    scope.spawn(move || {
                        for round in 0..400 {
                            let name = format!("{label}{round}");
                            world.named(&format!("barrier {name}")).barrier().unwrap();
                            let tensor = vec![(me * 1000 + round) as f32; length];
                            let mut got = vec![-1.0f32; length];
                            if me % 2 == 0 {
                                world.send(next, &name, &tensor).unwrap();
                                world.recv(previous, &name, &mut got).unwrap();
                            } else {
                                world.recv(previous, &name, &mut got).unwrap();
                                world.send(next, &name, &tensor).unwrap();
                            }
                            let expected = (previous * 1000 + round) as f32;
                            assert!(got.iter().all(|value| *value == expected));
                        }
                    });
                }
            });
        });
    }
}

/// Sums, copies and messages over several connections a pair come out as over one.
#[test]
fn several_streams_carry_one_order() {
    let options = Options {
        streams: 3,
        ..Options::default()
    };
    let body = |session: Session| {
        let world = session.world();
        let (rank, size) = (world.rank(), world.size());
        for length in [1usize, 5_000, 100_003, 900_001] {
            for round in 0..3 {
                let mut tensor = filled(rank + round, length);
                let expected: Vec<f32> = (0..length)
                    .map(|index| (0..size).map(|other| value(other + round, index)).sum())
                    .collect();
                world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                assert_eq!(tensor, expected, "{length} elements, round {round}");
                world.call().broadcast(&mut tensor, round % size).unwrap();
                assert_eq!(tensor, expected, "{length} elements, round {round}");
            }
        }
    };
    spawn_on(&[0, 1, 2], &options, body);
    spawn_on(&[0, 0, 1, 1], &options, body);
    spawn_tls(&[0, 1], &options, body);
}
