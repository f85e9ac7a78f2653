//! Compressed sums: within their bounds, the same bits on every rank, whatever the hosts.

use std::sync::Arc;
use std::time::Duration;

use carole_engine::compress::Codec;
use carole_engine::testing::spawn_on;
use carole_engine::{Error, Group, Options, ReduceOp};
use carole_plan::{Topology, TopologyName};

const CODECS: [Codec; 3] = [Codec::F16, Codec::Bf16, Codec::Int8];

/// Every rank on its own host, and hosts with several ranks.
fn layouts() -> Vec<Vec<usize>> {
    vec![
        vec![0, 1],
        vec![0, 1, 2],
        vec![0, 1, 2, 3, 4, 5, 6, 7],
        vec![0, 0, 1, 1],
        vec![0, 1, 0, 2, 0],
    ]
}

fn value(rank: usize, index: usize) -> f32 {
    let mix = (rank as u32).wrapping_mul(0x9e37_79b9) ^ (index as u32).wrapping_mul(0x85eb_ca6b);
    let mix = (mix ^ (mix >> 13)).wrapping_mul(0xc2b2_ae35);
    let size = [0.001, 1.0, 30.0][index / 300 % 3];
    (mix as f32 / u32::MAX as f32 - 0.5) * size
}

fn filled(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|index| value(rank, index)).collect()
}

fn exact(ranks: usize, length: usize) -> Vec<f64> {
    (0..length)
        .map(|index| (0..ranks).map(|rank| f64::from(value(rank, index))).sum())
        .collect()
}

/// The bound of one encoding: relative to the number's own magnitude, or to its block's peak.
fn of_number(codec: Codec) -> Option<(f64, f64)> {
    match codec {
        Codec::F16 => Some((2f64.powi(-11), 2f64.powi(-25))),
        Codec::Bf16 => Some((2f64.powi(-8), 2f64.powi(-134))),
        _ => None,
    }
}

/// The bound that the documentation states, for every element of a sum over `ranks` ranks.
fn bounds(codec: Codec, ranks: usize, length: usize) -> Vec<f64> {
    let magnitudes = |index: usize| -> f64 {
        (0..ranks)
            .map(|rank| f64::from(value(rank, index)).abs())
            .sum()
    };
    let rounding = |index: usize| ranks as f64 * 2f64.powi(-23) * magnitudes(index);
    match of_number(codec) {
        Some((relative, tiny)) => (0..length)
            .map(|index| {
                let sum = magnitudes(index) * (1.0 + relative);
                relative * (magnitudes(index) + sum) + (ranks + 1) as f64 * tiny + rounding(index)
            })
            .collect(),
        // A block lies somewhere within the three windows around: segments may begin anywhere.
        None => {
            let windows: Vec<Vec<f64>> = (0..ranks)
                .map(|rank| {
                    filled(rank, length)
                        .chunks(256)
                        .map(|window| window.iter().fold(0.0, |a, b| b.abs().max(a)).into())
                        .collect()
                })
                .collect();
            let peak = |rank: &Vec<f64>, window: usize| {
                let near = &rank[window.saturating_sub(1)..(window + 2).min(rank.len())];
                near.iter().copied().fold(0.0, f64::max)
            };
            (0..length)
                .map(|index| {
                    let peaks: f64 = windows.iter().map(|rank| peak(rank, index / 256)).sum();
                    peaks / 254.0 * (2.0 + 1.0 / 127.0) * (1.0 + 2f64.powi(-12)) + rounding(index)
                })
                .collect()
        }
    }
}

fn still_works(world: &Group) {
    let mut tensor = vec![1.0f32; 100_000];
    world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
    assert!(tensor.iter().all(|value| *value == world.size() as f32));
}

#[test]
fn sums_stay_within_their_bounds_and_are_the_same_everywhere() {
    for hosts in layouts() {
        for codec in CODECS {
            let lengths = [0usize, 1, 255, 257, 5000, 150_001];
            let results = spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                lengths.map(|length| {
                    let mut tensor = filled(world.rank(), length);
                    let call = world.named("grad").compressed(codec);
                    call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                    let send = filled(world.rank(), length);
                    let mut recv = vec![f32::NAN; length];
                    let call = world.call().compressed(codec);
                    call.all_reduce_into(&send, &mut recv, ReduceOp::Sum)
                        .unwrap();
                    let bits = |numbers: &[f32]| -> Vec<u32> {
                        numbers.iter().map(|number| number.to_bits()).collect()
                    };
                    assert!(bits(&tensor) == bits(&recv));
                    assert!(bits(&send) == bits(&filled(world.rank(), length)));
                    tensor
                })
            });
            for (case, length) in lengths.into_iter().enumerate() {
                let exact = exact(hosts.len(), length);
                let bounds = bounds(codec, hosts.len(), length);
                for rank in &results {
                    assert!(
                        rank[case] == results[0][case],
                        "{codec} on {hosts:?}: ranks differ"
                    );
                    for index in 0..length {
                        let error = (f64::from(rank[case][index]) - exact[index]).abs();
                        assert!(
                            error <= bounds[index],
                            "{codec} on {hosts:?}, {length}: {error} > {} at {index}",
                            bounds[index]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn large_tensors_pass_through_small_rings() {
    let length = 3_000_001;
    for hosts in [vec![0, 1, 2], vec![0, 0, 1, 1]] {
        for codec in CODECS {
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                for _ in 0..2 {
                    // Powers of two, the same in every block: all codecs keep them.
                    let mut tensor = vec![0.5f32; length];
                    let call = world.named("large").compressed(codec);
                    call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                    let sum = 0.5 * world.size() as f32;
                    assert!(tensor.iter().all(|value| *value == sum), "{codec}");
                }
            });
        }
    }
}

#[test]
fn averages_scales_and_lists_are_honoured() {
    for hosts in layouts() {
        for codec in CODECS {
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                let rank = world.rank() as f32;
                let mut average = vec![rank; 1000];
                let call = world.call().compressed(codec);
                call.all_reduce(&mut average, ReduceOp::Average).unwrap();
                let expected = (world.size() - 1) as f32 / 2.0;
                assert!(
                    average
                        .iter()
                        .all(|value| (value - expected).abs() < 0.05 * expected),
                    "{codec} {}",
                    average[0]
                );
                // Too large for f16, unless it is scaled before it is sent.
                let mut scaled = vec![131_072.0f32; 5000];
                let call = world.call().compressed(codec).scaled(2f64.powi(-17), 8.0);
                call.all_reduce(&mut scaled, ReduceOp::Sum).unwrap();
                assert!(scaled.iter().all(|v| *v == 8.0 * world.size() as f32));

                let mut tensors = [vec![1.0f32; 3], vec![1.0; 0], vec![1.0; 20_001]];
                let mut list: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
                let call = world.call().compressed(codec);
                call.all_reduce_list(&mut list, ReduceOp::Sum).unwrap();
                let sum = world.size() as f32;
                assert!(tensors.iter().flatten().all(|value| *value == sum));
            });
        }
    }
}

#[test]
fn infinities_and_nans_arrive_as_what_they_are() {
    for hosts in layouts() {
        for codec in CODECS {
            spawn_on(&hosts, &Options::default(), |session| {
                let world = session.world();
                let mut tensor = vec![1.0f32; 600];
                if world.rank() == 1 {
                    tensor[3] = f32::INFINITY;
                    tensor[500] = f32::NAN;
                }
                let call = world.call().compressed(codec);
                call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                assert!(
                    tensor[3] == f32::INFINITY && tensor[500].is_nan(),
                    "{codec}"
                );
                assert!(tensor[4].is_finite() && tensor[499].is_finite(), "{codec}");
            });
        }
    }
}

#[test]
fn one_host_has_no_wire_and_no_loss() {
    for size in [1usize, 4] {
        spawn_on(&vec![0; size], &Options::default(), |session| {
            let world = session.world();
            let mut compressed = filled(world.rank(), 40_000);
            let mut plain = compressed.clone();
            let call = world.call().compressed(Codec::Int8);
            call.all_reduce(&mut compressed, ReduceOp::Sum).unwrap();
            world.call().all_reduce(&mut plain, ReduceOp::Sum).unwrap();
            assert_eq!(compressed, plain);
        });
    }
}

#[test]
fn what_cannot_be_compressed_is_refused() {
    for hosts in [vec![0, 1], vec![0, 0]] {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let refused = |result: Result<(), Error>, words: &str| {
                let error = result.expect_err("refused");
                assert!(matches!(error, Error::Invalid { .. }), "{error}");
                assert!(error.to_string().contains(words), "{error}");
            };
            let call = world.call().compressed(Codec::F16);
            refused(
                call.all_reduce(&mut [1i32], ReduceOp::Sum),
                "not for all_reduce of i32, sum",
            );
            refused(
                call.all_reduce(&mut [1f32], ReduceOp::Max),
                "not for all_reduce of f32, max",
            );
            refused(call.broadcast(&mut [1f32], 0), "not for broadcast");
            refused(
                call.reduce(&mut [1f32], ReduceOp::Sum, 0),
                "not for reduce of f32, sum",
            );
            let star = Arc::new(Topology::named(TopologyName::Star, &hosts).unwrap());
            refused(
                call.topology(&star).all_reduce(&mut [1f32], ReduceOp::Sum),
                "along a forced topology",
            );
            still_works(&world);
        });
    }
}

#[test]
fn different_codecs_are_told_to_every_rank() {
    for hosts in [vec![0, 0, 0], vec![0, 1, 2], vec![0, 0, 1, 1]] {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let odd = world.rank() == world.size() - 1;
            for length in [3usize, 90_000] {
                for other in [Codec::Int8, Codec::None] {
                    let codec = if odd { other } else { Codec::F16 };
                    let call = world.named("grad").compressed(codec);
                    let error = call
                        .all_reduce(&mut vec![1.0f32; length], ReduceOp::Sum)
                        .expect_err("the ranks do not agree");
                    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                }
                let mut tensor = vec![1.0f32; length];
                let call = world.named("grad").compressed(Codec::F16);
                call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                assert!(tensor.iter().all(|value| *value == world.size() as f32));
            }
            still_works(&world);
        });
    }
}

#[test]
fn aborts_and_timeouts_end_it_on_every_rank() {
    for hosts in [vec![0, 1, 2], vec![0, 0, 1, 1]] {
        spawn_on(&hosts, &Options::default(), |session| {
            let world = session.world();
            let call = world.named("never").compressed(Codec::F16);
            if world.rank() == 0 {
                let pending = call.start_all_reduce(vec![1.0f32; 400_000], ReduceOp::Sum);
                let pending = pending.unwrap();
                pending.abort();
                let _ = pending.wait();
            } else {
                // It may have come through before rank 0 gave it up.
                let outcome = call.all_reduce(&mut vec![1.0f32; 400_000], ReduceOp::Sum);
                assert!(
                    matches!(outcome, Ok(()) | Err(Error::Aborted { .. })),
                    "{outcome:?}"
                );
            }
            world.call().barrier().unwrap();
            if world.rank() != 1 {
                let call = world.named("late").compressed(Codec::Int8);
                let error = call
                    .timeout(Duration::from_millis(100))
                    .all_reduce(&mut [1.0f32; 9], ReduceOp::Sum)
                    .unwrap_err();
                assert!(
                    matches!(error, Error::Timeout { .. } | Error::Aborted { .. }),
                    "{error}"
                );
            }
            world.named("gate").barrier().unwrap();
            if world.rank() == 1 {
                let call = world.named("late").compressed(Codec::Int8);
                let error = call.all_reduce(&mut [1.0f32; 9], ReduceOp::Sum);
                assert!(matches!(error, Err(Error::Aborted { .. })));
            }
            let mut tensor = [1.0f32; 9];
            let call = world.named("late").compressed(Codec::Int8);
            call.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
            assert_eq!(tensor, [world.size() as f32; 9]);
            still_works(&world);
        });
    }
}
