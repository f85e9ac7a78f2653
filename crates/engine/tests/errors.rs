//! Bad input, aborts, timeouts and departures: an error on every rank, and the session lives on.

use std::time::{Duration, Instant};

use carole_engine::testing::spawn_on;
use carole_engine::{Error, Group, Options, ReduceOp};

fn layouts() -> Vec<Vec<usize>> {
    vec![vec![0, 0, 0], vec![0, 1, 2], vec![0, 0, 1, 1]]
}

fn still_works(world: &Group) {
    for length in [1usize, 100_000] {
        let mut tensor = vec![1.0f32; length];
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert!(tensor.iter().all(|value| *value == world.size() as f32));
    }
}

/// Runs `call` on all ranks, the last of which asks for something else; all must hear of it.
fn all_disagree(call: impl Fn(&Group, bool) -> Result<(), Error> + Sync, expected: &[&str]) {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let odd = world.rank() == world.size() - 1;
            let error = call(&world, odd).expect_err("the ranks do not agree");
            let Error::Mismatch { details, .. } = &error else {
                panic!("{error}")
            };
            for part in expected {
                assert!(details.contains(part), "{error}");
            }
            assert!(
                details.contains(&format!("rank {}", world.size() - 1)),
                "{error}"
            );
            still_works(&world);
        });
    }
}

#[test]
fn different_lengths_are_told_to_every_rank() {
    for length in [10usize, 50_000] {
        all_disagree(
            |world, odd| {
                let mut tensor = vec![0.0f32; length + usize::from(odd)];
                world.named("grad").all_reduce(&mut tensor, ReduceOp::Sum)
            },
            &[
                &format!("all_reduce of {length} x f32"),
                &format!("of {} x f32", length + 1),
            ],
        );
    }
}

#[test]
fn different_types_are_told_to_every_rank() {
    all_disagree(
        |world, odd| {
            if odd {
                world
                    .named("grad")
                    .all_reduce(&mut [0i32; 8], ReduceOp::Sum)
            } else {
                world
                    .named("grad")
                    .all_reduce(&mut [0f32; 8], ReduceOp::Sum)
            }
        },
        &["8 x f32", "8 x i32"],
    );
}

#[test]
fn different_operations_are_told_to_every_rank() {
    all_disagree(
        |world, odd| {
            let op = if odd { ReduceOp::Max } else { ReduceOp::Sum };
            world.call().all_reduce(&mut [0f32; 8], op)
        },
        &["sum", "max"],
    );
    all_disagree(
        |world, odd| {
            if odd {
                world.call().barrier()
            } else {
                world.call().all_reduce(&mut [0f32; 8], ReduceOp::Sum)
            }
        },
        &["barrier", "all_reduce"],
    );
    all_disagree(
        |world, odd| {
            let before = if odd { 0.5 } else { 1.0 };
            world
                .call()
                .scaled(before, 1.0)
                .all_reduce(&mut [0f32; 8], ReduceOp::Sum)
        },
        &["settings"],
    );
}

#[test]
fn different_roots_are_told_to_every_rank() {
    all_disagree(
        |world, odd| world.call().broadcast(&mut [0f32; 8], usize::from(odd)),
        &["root 0", "root 1"],
    );
    all_disagree(
        |world, odd| {
            world
                .call()
                .reduce(&mut [0f32; 30_000], ReduceOp::Sum, usize::from(odd))
        },
        &["root 0", "root 1"],
    );
}

#[test]
fn different_splits_are_told_to_every_rank() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let size = world.size();
            let send = vec![3usize; size];
            let mut recv = vec![3usize; size];
            if world.rank() == 1 {
                recv[0] = 4;
            }
            let mut out = vec![0.0f32; recv.iter().sum()];
            let error = world
                .call()
                .all_to_all_v(&vec![0.0f32; 3 * size], &send, &mut out, &recv)
                .expect_err("the splits do not fit");
            let text = error.to_string();
            assert!(
                text.contains("rank 0 sends 3 elements to rank 1, which expects 4"),
                "{text}"
            );
            still_works(&world);
        });
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_sent() {
    spawn_on(&[0, 0], &Options::default(), |session| {
        let world = session.world();
        let invalid = |result: Result<(), Error>, words: &str| {
            let text = result.expect_err("refused").to_string();
            assert!(text.contains(words), "{text}");
        };
        invalid(
            world.call().all_reduce(&mut [1.0f32], ReduceOp::And),
            "and is not defined for f32",
        );
        invalid(
            world
                .call()
                .scaled(0.5, 1.0)
                .all_reduce(&mut [1i32], ReduceOp::Sum),
            "scaling is not defined for i32",
        );
        invalid(
            world.call().broadcast(&mut [1.0f32], 2),
            "root 2 is not below",
        );
        invalid(
            world.call().all_gather(&[1.0f32], &mut [0.0; 3]),
            "2 and 3 elements",
        );
        invalid(
            world.call().all_to_all(&[1.0f32; 3], &mut [0.0; 3]),
            "do not divide",
        );
        invalid(
            world.call().all_gather_v(&[1.0f32], &mut [0.0; 1], &[1]),
            "counts for 2 ranks",
        );
        still_works(&world);
    });
}

#[test]
fn arithmetic_on_strange_values_is_arithmetic() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let first = world.rank() == 0;
            let mut tensor = if first {
                [f32::NAN, f32::INFINITY, f32::INFINITY, -0.0]
            } else {
                [1.0, 1.0, f32::NEG_INFINITY, -0.0]
            };
            world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert!(tensor[0].is_nan() && tensor[1] == f32::INFINITY && tensor[2].is_nan());
            assert_eq!(tensor[3].to_bits(), (-0.0f32).to_bits());
            let mut tensor = if first { [f32::NAN, 2.0] } else { [1.0, 3.0] };
            world.call().all_reduce(&mut tensor, ReduceOp::Max).unwrap();
            assert!(tensor[0].is_nan() && tensor[1] == 3.0);
        });
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_by_the_timeout() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            if world.rank() == 1 {
                // Comes late, and finds that the others have given up.
                std::thread::sleep(Duration::from_millis(400));
                let error = world
                    .named("late")
                    .all_reduce(&mut [1.0f32; 9], ReduceOp::Sum)
                    .unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
            } else {
                let call = world.named("late").timeout(Duration::from_millis(200));
                let error = call
                    .all_reduce(&mut [1.0f32; 9], ReduceOp::Sum)
                    .unwrap_err();
                match &error {
                    Error::Timeout { waiting_for, .. } => {
                        assert!(waiting_for.contains("rank 1"), "{error}");
                    }
                    // Another rank's clock was faster.
                    Error::Aborted { .. } => {}
                    _ => panic!("{error}"),
                }
            }
            // The same name works again, on all ranks.
            let mut tensor = [1.0f32; 9];
            world
                .named("late")
                .all_reduce(&mut tensor, ReduceOp::Sum)
                .unwrap();
            assert_eq!(tensor[0], world.size() as f32);
            still_works(&world);
        });
    }
}

#[test]
fn an_aborted_operation_ends_on_every_rank() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            if world.rank() == 0 {
                let call = world.named("never");
                let pending = call
                    .start_all_reduce(vec![1.0f32; 50_000], ReduceOp::Sum)
                    .unwrap();
                assert!(!pending.test(), "nobody else has come");
                pending.abort();
                assert!(matches!(
                    pending.wait(),
                    Err(Error::Aborted { rank: 0, .. })
                ));
                world.named("gate").barrier().unwrap();
            } else {
                world.named("gate").barrier().unwrap();
                let mut tensor = vec![1.0f32; 50_000];
                let call = world.named("never");
                let error = call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
            }
            still_works(&world);
        });
    }
}

#[test]
fn a_dropped_operation_ends_everywhere_and_its_memory_is_free() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            if world.rank() == 0 {
                let call = world.named("dropped");
                drop(
                    call.start_all_reduce(vec![1.0f32; 300_000], ReduceOp::Sum)
                        .unwrap(),
                );
            } else {
                let mut tensor = vec![1.0f32; 300_000];
                match world
                    .named("dropped")
                    .all_reduce(&mut tensor, ReduceOp::Sum)
                {
                    // Through before rank 0 dropped it.
                    Ok(()) => assert_eq!(tensor[0], world.size() as f32),
                    Err(error) => assert!(matches!(error, Error::Aborted { .. }), "{error}"),
                }
            }
            still_works(&world);
        });
    }
}

#[test]
fn the_same_name_twice_in_flight_is_refused() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            // Nobody completes the first before everybody has tried the second.
            let gate = world.named("gate");
            let started = if world.rank() == 0 {
                let pending = world
                    .named("twice")
                    .start_all_reduce(vec![1.0f32; 4], ReduceOp::Sum)
                    .unwrap();
                let error = world
                    .named("twice")
                    .all_reduce(&mut [1.0f32; 4], ReduceOp::Sum);
                assert!(matches!(error, Err(Error::Duplicate { .. })));
                Some(pending)
            } else {
                None
            };
            gate.barrier().unwrap();
            let sum = match started {
                Some(pending) => pending.wait().unwrap(),
                None => {
                    let mut tensor = vec![1.0f32; 4];
                    world
                        .named("twice")
                        .all_reduce(&mut tensor, ReduceOp::Sum)
                        .unwrap();
                    tensor
                }
            };
            assert_eq!(sum[0], world.size() as f32);
        });
    }
}

#[test]
fn a_rank_that_leaves_is_named_to_those_who_need_it() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            world.call().barrier().unwrap();
            if world.rank() == 2 {
                return;
            }
            let began = Instant::now();
            let error = world
                .call()
                .all_reduce(&mut [1.0f32], ReduceOp::Sum)
                .unwrap_err();
            let Error::PeerLost { rank, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(rank, 2);
            assert!(began.elapsed() < Duration::from_secs(2));
        });
    }
}

#[test]
fn blobs_and_queues_reach_other_ranks() {
    for hosts in layouts() {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let me = session.rank();
            let next = (me + 1) % session.size();
            let blob = |rank: usize, version: u64| vec![(rank + version as usize) as u8; 700_000];
            for version in 0..5 {
                session.save("model", version, &blob(me, version)).unwrap();
            }
            world.call().barrier().unwrap();
            assert_eq!(
                session.request(next, "model", None).unwrap(),
                Some((4, blob(next, 4)))
            );
            assert_eq!(
                session.request(next, "model", Some(2)).unwrap(),
                Some((2, blob(next, 2)))
            );
            assert_eq!(
                session.request(next, "model", Some(1)).unwrap(),
                None,
                "out of the window"
            );
            assert_eq!(session.request(next, "nothing", None).unwrap(), None);
            assert!(session.request(99, "model", None).is_err());
            for index in 0..10u8 {
                session
                    .put(next, "mail", &vec![index; 1 + usize::from(index) * 70_000])
                    .unwrap();
            }
            for index in 0..10u8 {
                let message = session
                    .get("mail", Duration::from_secs(20))
                    .unwrap()
                    .unwrap();
                assert_eq!(message, vec![index; 1 + usize::from(index) * 70_000]);
            }
            assert_eq!(session.get("mail", Duration::from_millis(5)).unwrap(), None);
            world.call().barrier().unwrap();
        });
    }
}
