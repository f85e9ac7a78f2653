//! The promises of the codecs, on numbers of every kind.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{BLOCK, Codec};
use crate::dtype::DType;
use crate::kernels::Implementation;

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|number| f32::from_ne_bytes(*number))
        .collect()
}

fn encode(codec: Codec, values: &[f32]) -> Vec<u8> {
    let mut encoded = vec![0xee; codec.encoded_len(values.len())];
    codec.encode(&bytes(values), &mut encoded);
    encoded
}

fn decode(codec: Codec, encoded: &[u8], count: usize) -> Vec<f32> {
    let mut decoded = vec![0xee; count * 4];
    codec.decode(encoded, &mut decoded);
    numbers(&decoded)
}

fn there_and_back(codec: Codec, values: &[f32]) -> Vec<f32> {
    decode(codec, &encode(codec, values), values.len())
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Any bits at all: subnormal numbers, infinities and NaNs among them.
fn any_bits() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits)
}

/// Runs of numbers that are close in size, of any size, now and then with something in between.
fn runs() -> impl Strategy<Value = Vec<f32>> {
    let run = |rare: u32| {
        (-149..128i32).prop_flat_map(move |exponent| {
            let ordinary = (-1f64..1.0)
                .prop_map(move |fraction| (fraction * f64::from(exponent).exp2()) as f32);
            vec(
                prop_oneof![400 => ordinary, rare => any_bits()],
                0..3 * BLOCK,
            )
        })
    };
    prop_oneof![run(0), run(1), vec(any_bits(), 0..600)]
}

/// The largest finite magnitude, and whether all are finite.
fn peak(block: &[f32]) -> (f64, bool) {
    let finite = block.iter().filter(|value| value.is_finite());
    let peak = finite.fold(0.0, |peak, value| f64::from(value.abs()).max(peak));
    (peak, block.iter().all(|value| value.is_finite()))
}

proptest! {
    #[test]
    fn f16_is_within_its_bound(values in runs()) {
        for (x, y) in values.iter().zip(there_and_back(Codec::F16, &values)) {
            let (x, y) = (f64::from(*x), f64::from(y));
            if x.is_nan() {
                prop_assert!(y.is_nan());
            } else if x.abs() >= 65520.0 {
                prop_assert!(y.is_infinite() && (y > 0.0) == (x > 0.0), "{x} became {y}");
            } else {
                let bound = if x.abs() < 2f64.powi(-14) {
                    2f64.powi(-25)
                } else {
                    x.abs() * 2f64.powi(-11)
                };
                prop_assert!((y - x).abs() <= bound, "{x} became {y}");
            }
        }
    }

    #[test]
    fn bf16_is_within_its_bound(values in runs()) {
        // Half way between the largest number and the one that would follow it.
        let infinite_from = (2.0 - 2f64.powi(-8)) * 2f64.powi(127);
        for (x, y) in values.iter().zip(there_and_back(Codec::Bf16, &values)) {
            let (x, y) = (f64::from(*x), f64::from(y));
            if x.is_nan() {
                prop_assert!(y.is_nan());
            } else if x.abs() >= infinite_from {
                prop_assert!(y.is_infinite() && (y > 0.0) == (x > 0.0), "{x} became {y}");
            } else {
                let bound = if x.abs() < 2f64.powi(-126) {
                    2f64.powi(-134)
                } else {
                    x.abs() * 2f64.powi(-8)
                };
                prop_assert!((y - x).abs() <= bound, "{x} became {y}");
            }
        }
    }

    #[test]
    fn int8_is_within_its_bound_and_keeps_what_is_not_finite(values in runs()) {
        let decoded = there_and_back(Codec::Int8, &values);
        for (block, decoded) in values.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            let (peak, all_finite) = peak(block);
            let steps = if all_finite { 254.0 } else { 252.0 };
            let bound = peak / steps + peak * 2f64.powi(-21) + 2f64.powi(-149);
            for (x, y) in block.iter().zip(decoded) {
                if x.is_finite() {
                    let error = (f64::from(*y) - f64::from(*x)).abs();
                    prop_assert!(error <= bound, "{x} became {y}, peak {peak}");
                    if f64::from(x.abs()) >= peak && peak > 0.0 {
                        prop_assert!(same(*x, *y), "the peak {x} became {y}");
                    }
                } else {
                    prop_assert!(same(*x, *y), "{x} became {y}");
                }
            }
        }
    }

    #[test]
    fn what_was_decoded_survives_another_trip(values in runs()) {
        for codec in Codec::ALL {
            let once = there_and_back(codec, &values);
            let twice = there_and_back(codec, &once);
            for (a, b) in once.iter().zip(twice) {
                prop_assert!(same(*a, b), "{codec}: {a} became {b}");
            }
        }
    }

    #[test]
    fn every_implementation_gives_the_same_bytes(values in runs(), offset in 0usize..4) {
        for codec in Codec::ALL {
            let encoded = encode(codec, &values);
            let decoded = decode(codec, &encoded, values.len());
            for implementation in Implementation::ALL.into_iter().filter(|i| i.is_available()) {
                // Away from any boundary.
                let mut input = vec![0; offset];
                input.extend(bytes(&values));
                let mut output = vec![0; offset + encoded.len()];
                codec.encode_with(implementation, &input[offset..], &mut output[offset..]);
                prop_assert_eq!(&output[offset..], &encoded, "{} {:?}", codec, implementation);
                codec.decode_with(implementation, &output[offset..], &mut input[offset..]);
                for (a, b) in numbers(&input[offset..]).iter().zip(&decoded) {
                    prop_assert!(same(*a, *b), "{codec} {implementation:?}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_decode(encoded in vec(any::<u8>(), 0..600)) {
        for codec in Codec::ALL {
            let count = (0..=encoded.len())
                .rev()
                .find(|count| codec.encoded_len(*count) <= encoded.len())
                .unwrap();
            let length = codec.encoded_len(count);
            prop_assert_eq!(decode(codec, &encoded[..length], count).len(), count);
        }
    }

    #[test]
    fn int8_may_be_cut_between_blocks(values in vec(any_bits(), 3 * BLOCK + 7)) {
        let whole = encode(Codec::Int8, &values);
        let (head, tail) = values.split_at(2 * BLOCK);
        let parts = [encode(Codec::Int8, head), encode(Codec::Int8, tail)].concat();
        prop_assert_eq!(whole, parts);
    }
}

#[test]
fn lengths_are_as_documented() {
    for (codec, empty, one, block, more) in [
        (Codec::None, 0, 4, 1024, 1028),
        (Codec::F16, 0, 2, 512, 514),
        (Codec::Bf16, 0, 2, 512, 514),
        (Codec::Int8, 0, 5, 260, 265),
    ] {
        let lengths = [0, 1, BLOCK, BLOCK + 1].map(|count| codec.encoded_len(count));
        assert_eq!(lengths, [empty, one, block, more], "{codec}");
    }
}

#[test]
fn nothing_is_changed_without_a_codec() {
    let values = [1.5, -0.0, f32::INFINITY, 1e-45];
    let arrived = there_and_back(Codec::None, &values);
    assert!(values.iter().zip(arrived).all(|(a, b)| same(*a, b)));
}

#[test]
fn int8_halves_round_to_even() {
    // With a peak of 127, a step is one.
    let values = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5];
    let codes: Vec<i8> = encode(Codec::Int8, &values)[4..]
        .iter()
        .map(|q| *q as i8)
        .collect();
    assert_eq!(codes, [127, 0, 2, 2, 0, -2, -126]);
}

#[test]
fn names_and_numbers_lead_back() {
    for codec in Codec::ALL {
        assert_eq!(codec.name().parse(), Ok(codec));
        assert_eq!(Codec::from_u8(codec as u8), Some(codec));
    }
    assert_eq!("fp16".parse(), Ok(Codec::F16));
    assert!("zip".parse::<Codec>().is_err());
    assert_eq!(Codec::from_u8(4), None);
}

#[test]
fn only_single_precision_is_compressed() {
    for dtype in DType::ALL {
        assert!(Codec::None.applies_to(dtype));
        for codec in [Codec::F16, Codec::Bf16, Codec::Int8] {
            assert_eq!(codec.applies_to(dtype), dtype == DType::F32);
        }
    }
}

#[test]
#[should_panic(expected = "encoded length of 2 f32")]
fn a_wrong_length_is_refused() {
    Codec::Int8.encode(&[0; 8], &mut [0; 8]);
}
