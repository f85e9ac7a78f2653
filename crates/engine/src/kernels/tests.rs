//! Every implementation against plain arithmetic, one element at a time.

use super::{Destination, Implementation, Scale, Store, copy_with, fence_streaming, reduce_with};
use crate::dtype::{DType, ReduceOp};

/// A small generator of numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What makes an element special; every so often a source holds one of these.
fn special(dtype: DType, choice: u64) -> u64 {
    let floats = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        1e-310,
        6e-8,
        65504.0,
        65519.9,
        65520.0,
        3.4e38,
        -3.4e38,
        1.7e308,
        1.0,
    ];
    let float = floats[choice as usize % floats.len()];
    match dtype {
        DType::F16 => u64::from(half::f16::from_f64_const(float).to_bits()),
        DType::Bf16 => u64::from(half::bf16::from_f64_const(float).to_bits()),
        DType::F32 => u64::from((float as f32).to_bits()),
        DType::F64 => float.to_bits(),
        _ => [0, 1, u64::MAX, 1 << 63, 1 << 31, 1 << 15, 1 << 7, 0x7f][choice as usize % 8],
    }
}

/// A number of ordinary size.
fn ordinary(dtype: DType, bits: u64) -> u64 {
    let float = (bits >> 11) as f64 / (1u64 << 53) as f64 * 8.0 - 4.0;
    match dtype {
        DType::F16 => u64::from(half::f16::from_f64_const(float).to_bits()),
        DType::Bf16 => u64::from(half::bf16::from_f64_const(float).to_bits()),
        DType::F32 => u64::from((float as f32).to_bits()),
        DType::F64 => float.to_bits(),
        DType::Bool => bits & 3,
        _ => bits,
    }
}

fn elements(dtype: DType, count: usize, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let choice = numbers.next();
        let element = match choice % 16 {
            0 => special(dtype, choice >> 8),
            // Any bits at all: also odd NaNs and subnormal numbers.
            1 => numbers.next(),
            _ => ordinary(dtype, numbers.next()),
        };
        bytes.extend_from_slice(&element.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

macro_rules! expected_integer {
    ($integer:ty, $wide:ty, $op:expr, $divisor:expr, $elements:expr) => {{
        let values = $elements.iter().map(|e| {
            let mut bytes = [0; size_of::<$integer>()];
            bytes.copy_from_slice(e);
            <$integer>::from_le_bytes(bytes)
        });
        let result = values
            .reduce(|a, b| match $op {
                ReduceOp::Sum | ReduceOp::Average => a.wrapping_add(b),
                ReduceOp::Product => a.wrapping_mul(b),
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
                ReduceOp::And => a & b,
                ReduceOp::Or => a | b,
                ReduceOp::Xor => a ^ b,
            })
            .unwrap();
        let result = match $op {
            ReduceOp::Average => (<$wide>::from(result) / <$wide>::from($divisor)) as $integer,
            _ => result,
        };
        result.to_le_bytes().to_vec()
    }};
}

macro_rules! expected_float {
    ($float:ty, $op:expr, $scale:expr, $divisor:expr, $values:expr) => {{
        let divisor = if $op == ReduceOp::Average {
            $divisor
        } else {
            1
        };
        let before = $scale.before as $float;
        let after = ($scale.after / f64::from(divisor)) as $float;
        let result = $values
            .map(|value| value * before)
            .reduce(|a, b| match $op {
                ReduceOp::Sum | ReduceOp::Average => a + b,
                ReduceOp::Product => a * b,
                _ if a.is_nan() => a,
                _ if b.is_nan() => b,
                ReduceOp::Min if a.total_cmp(&b).is_le() => a,
                ReduceOp::Max if a.total_cmp(&b).is_ge() => a,
                _ => b,
            })
            .unwrap();
        result * after
    }};
}

/// The result for one element, given as bytes, of every source.
fn expected(dtype: DType, op: ReduceOp, scale: Scale, divisor: u32, elements: &[&[u8]]) -> Vec<u8> {
    let halves = elements
        .iter()
        .map(|e| u16::from_le_bytes([e[0], *e.get(1).unwrap_or(&0)]));
    match dtype {
        DType::U8 => expected_integer!(u8, u64, op, divisor, elements),
        DType::U16 => expected_integer!(u16, u64, op, divisor, elements),
        DType::U32 => expected_integer!(u32, u64, op, divisor, elements),
        DType::U64 => expected_integer!(u64, u64, op, divisor, elements),
        DType::I8 => expected_integer!(i8, i64, op, divisor, elements),
        DType::I16 => expected_integer!(i16, i64, op, divisor, elements),
        DType::I32 => expected_integer!(i32, i64, op, divisor, elements),
        DType::I64 => expected_integer!(i64, i64, op, divisor, elements),
        DType::F16 => {
            let values = halves.map(|h| half::f16::from_bits(h).to_f32_const());
            let result: f32 = expected_float!(f32, op, scale, divisor, values);
            half::f16::from_f32_const(result).to_le_bytes().to_vec()
        }
        DType::Bf16 => {
            let values = halves.map(|h| half::bf16::from_bits(h).to_f32_const());
            let result: f32 = expected_float!(f32, op, scale, divisor, values);
            half::bf16::from_f32_const(result).to_le_bytes().to_vec()
        }
        DType::F32 => {
            let values = elements
                .iter()
                .map(|e| f32::from_le_bytes((*e).try_into().unwrap()));
            let result: f32 = expected_float!(f32, op, scale, divisor, values);
            result.to_le_bytes().to_vec()
        }
        DType::F64 => {
            let values = elements
                .iter()
                .map(|e| f64::from_le_bytes((*e).try_into().unwrap()));
            let result: f64 = expected_float!(f64, op, scale, divisor, values);
            result.to_le_bytes().to_vec()
        }
        DType::Bool => {
            let mut values = elements.iter().map(|e| e[0] != 0);
            let result = match op {
                ReduceOp::Sum | ReduceOp::Max | ReduceOp::Or => values.any(|value| value),
                ReduceOp::Xor => values.filter(|value| *value).count() % 2 == 1,
                _ => values.all(|value| value),
            };
            vec![u8::from(result)]
        }
    }
}

/// A NaN's payload is left open: every NaN becomes the same one.
fn without_payloads(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for element in bytes.chunks_exact_mut(dtype.size()) {
        let nan = match dtype {
            DType::F16 => half::f16::from_le_bytes([element[0], element[1]]).is_nan(),
            DType::Bf16 => half::bf16::from_le_bytes([element[0], element[1]]).is_nan(),
            DType::F32 => f32::from_le_bytes((&*element).try_into().unwrap()).is_nan(),
            DType::F64 => f64::from_le_bytes((&*element).try_into().unwrap()).is_nan(),
            _ => false,
        };
        if nan {
            element.fill(0xff);
        }
    }
    bytes
}

/// Memory at a chosen distance from a boundary, with a fence around it.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    const FENCE: u8 = 0xa5;

    fn new(contents: &[u8], offset: usize) -> Self {
        let mut memory = vec![Self::FENCE; contents.len() + 256];
        let start = memory.as_ptr().addr().wrapping_neg() % 64 + 64 + offset;
        memory[start..start + contents.len()].copy_from_slice(contents);
        Self {
            memory,
            start,
            length: contents.len(),
        }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn contents(&self) -> &[u8] {
        let (before, rest) = self.memory.split_at(self.start);
        let (contents, after) = rest.split_at(self.length);
        assert!(
            before.iter().chain(after).all(|byte| *byte == Self::FENCE),
            "wrote outside"
        );
        contents
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    op: ReduceOp,
    scale: Scale,
    divisor: u32,
    count: usize,
    sources: usize,
    destinations: usize,
    /// Bytes off a boundary; each buffer gets another multiple of it.
    offset: usize,
    store: Store,
    /// How many destinations are sources.
    in_place: usize,
}

fn check(case: Case, numbers: &mut Numbers) {
    let inputs: Vec<Vec<u8>> = (0..case.sources)
        .map(|_| elements(case.dtype, case.count, numbers))
        .collect();
    check_inputs(case, &inputs);
}

fn check_inputs(case: Case, inputs: &[Vec<u8>]) {
    let Case {
        dtype,
        op,
        scale,
        divisor,
        count,
        ..
    } = case;
    let size = dtype.size();
    let mut wanted = Vec::with_capacity(count * size);
    for index in 0..count {
        let at: Vec<&[u8]> = inputs
            .iter()
            .map(|input| &input[index * size..(index + 1) * size])
            .collect();
        wanted.extend(expected(dtype, op, scale, divisor, &at));
    }
    let wanted = without_payloads(dtype, &wanted);
    for implementation in Implementation::ALL.into_iter().filter(|i| i.is_available()) {
        let mut buffers: Vec<Buffer> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| Buffer::new(input, case.offset * index % 64))
            .collect();
        for index in case.in_place..case.destinations {
            buffers.push(Buffer::new(
                &vec![0x5a; count * size],
                case.offset * (index + 1) % 64,
            ));
        }
        let pointers: Vec<*mut u8> = buffers.iter_mut().map(Buffer::pointer).collect();
        let sources: Vec<*const u8> = pointers[..case.sources]
            .iter()
            .map(|pointer| pointer.cast_const())
            .collect();
        // The last sources are destinations too, then come buffers of their own.
        let first = case.sources - case.in_place;
        let destinations: Vec<Destination> = pointers[first..first + case.destinations]
            .iter()
            .enumerate()
            .map(|(index, &pointer)| {
                // The last of several destinations is written the other way.
                let other = index > 0 && index + 1 == case.destinations;
                let store = if other { Store::Cached } else { case.store };
                Destination { pointer, store }
            })
            .collect();
        // SAFETY: each buffer has room for `count` elements, and they do not overlap.
        unsafe {
            reduce_with(
                implementation,
                dtype,
                op,
                scale,
                divisor,
                &destinations,
                &sources,
                count,
            );
        }
        fence_streaming();
        for (index, buffer) in buffers.iter().enumerate() {
            if index < first {
                assert!(
                    buffer.contents() == inputs[index],
                    "{implementation:?} changed a source"
                );
            } else {
                let result = without_payloads(dtype, buffer.contents());
                if result != wanted {
                    let at = result
                        .iter()
                        .zip(&wanted)
                        .position(|(a, b)| a != b)
                        .unwrap()
                        / size;
                    panic!(
                        "{implementation:?} {case:?}: element {at} is {:x?}, not {:x?}",
                        &result[at * size..][..size],
                        &wanted[at * size..][..size]
                    );
                }
            }
        }
    }
}

const NONE: Case = Case {
    dtype: DType::F32,
    op: ReduceOp::Sum,
    scale: Scale::NONE,
    divisor: 1,
    count: 0,
    sources: 2,
    destinations: 1,
    offset: 0,
    store: Store::Cached,
    in_place: 0,
};

/// Every type with every operation that applies to it.
fn types_and_operations() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL.into_iter().flat_map(|dtype| {
        ReduceOp::ALL
            .into_iter()
            .filter(move |op| op.applies_to(dtype))
            .map(move |op| (dtype, op))
    })
}

#[test]
fn every_length_reduces_as_arithmetic_says() {
    let mut numbers = Numbers(1);
    for (dtype, op) in types_and_operations() {
        for count in [
            0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 100, 255, 256, 257, 1001, 4099,
        ] {
            for store in [Store::Cached, Store::Streaming] {
                check(
                    Case {
                        dtype,
                        op,
                        count,
                        store,
                        divisor: 3,
                        ..NONE
                    },
                    &mut numbers,
                );
            }
        }
    }
}

#[test]
fn every_number_of_sources_and_destinations_works() {
    let mut numbers = Numbers(2);
    for (dtype, op) in types_and_operations() {
        for sources in 1..=8 {
            for destinations in 1..=3 {
                for in_place in 0..=sources.min(destinations) {
                    let store = [Store::Cached, Store::Streaming][(sources + in_place) % 2];
                    let divisor = sources as u32;
                    let case = Case {
                        dtype,
                        op,
                        divisor,
                        count: 531,
                        sources,
                        destinations,
                        store,
                        in_place,
                        ..NONE
                    };
                    check(case, &mut numbers);
                }
            }
        }
    }
    for count in [1, 600] {
        let case = Case {
            count,
            sources: 64,
            destinations: 64,
            in_place: 5,
            ..NONE
        };
        check(case, &mut numbers);
    }
}

#[test]
fn pointers_need_not_be_aligned() {
    let mut numbers = Numbers(3);
    for (dtype, op) in types_and_operations() {
        for offset in [1, 2, 3, 4, 6, 8, 12, 16, 31, 32, 60] {
            for (sources, destinations, in_place) in [(2, 1, 0), (2, 2, 1), (3, 1, 1)] {
                for store in [Store::Cached, Store::Streaming] {
                    let case = Case {
                        dtype,
                        op,
                        divisor: 2,
                        count: 1111,
                        sources,
                        destinations,
                        offset,
                        store,
                        in_place,
                        ..NONE
                    };
                    check(case, &mut numbers);
                }
            }
        }
    }
}

#[test]
fn floats_are_scaled_before_and_after() {
    let mut numbers = Numbers(4);
    for (dtype, op) in types_and_operations().filter(|(dtype, _)| dtype.is_float()) {
        for (before, after) in [
            (0.5, 1.0),
            (1.0, 0.1),
            (1.0 / 3.0, 7.0),
            (-1e-3, 1e3),
            (0.0, 1.0),
        ] {
            for (count, sources, destinations) in [(5, 3, 1), (333, 2, 1), (2050, 2, 2), (70, 5, 3)]
            {
                let scale = Scale { before, after };
                let case = Case {
                    dtype,
                    op,
                    scale,
                    divisor: 7,
                    count,
                    sources,
                    destinations,
                    ..NONE
                };
                check(case, &mut numbers);
            }
        }
    }
}

#[test]
fn every_half_is_widened_and_rounded_as_arithmetic_says() {
    let every: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    // A NaN that rounding would carry over into the sign.
    let nan = f64::from_bits(u64::MAX >> 1);
    // As they are; ties; and numbers that round, also to subnormal ones and to infinity.
    for before in [1.0, 0.5, 1.5, 1.0 / 3.0, 1e-3, 1e5, nan] {
        for (dtype, store) in [
            (DType::F16, Store::Cached),
            (DType::F16, Store::Streaming),
            (DType::Bf16, Store::Cached),
            (DType::Bf16, Store::Streaming),
        ] {
            let case = Case {
                dtype,
                scale: Scale { before, after: 1.0 },
                count: 1 << 16,
                sources: 1,
                store,
                ..NONE
            };
            check_inputs(case, std::slice::from_ref(&every));
        }
    }
}

#[test]
fn integers_are_not_scaled_and_divide_by_more_than_they_can_hold() {
    let mut numbers = Numbers(5);
    for (dtype, op) in types_and_operations().filter(|(dtype, _)| !dtype.is_float()) {
        let scale = Scale {
            before: 2.0,
            after: 3.0,
        };
        check(
            Case {
                dtype,
                op,
                scale,
                divisor: 1000,
                count: 300,
                ..NONE
            },
            &mut numbers,
        );
    }
}

#[test]
fn a_nan_wins_and_zeros_are_ordered() {
    let cases: [(f32, f32, f32, f32); 6] = [
        (0.0, -0.0, -0.0, 0.0),
        (-0.0, 0.0, -0.0, 0.0),
        (-0.0, -0.0, -0.0, -0.0),
        (f32::NAN, 1.0, f32::NAN, f32::NAN),
        (1.0, f32::NAN, f32::NAN, f32::NAN),
        (
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            f32::INFINITY,
        ),
    ];
    for implementation in Implementation::ALL.into_iter().filter(|i| i.is_available()) {
        for (a, b, smallest, largest) in cases {
            for (op, wanted) in [(ReduceOp::Min, smallest), (ReduceOp::Max, largest)] {
                let (a, b, mut result) = ([a; 21], [b; 21], [0f32; 21]);
                let to = Destination {
                    pointer: result.as_mut_ptr().cast(),
                    store: Store::Cached,
                };
                let sources = [a.as_ptr().cast(), b.as_ptr().cast()];
                // SAFETY: all three arrays hold 21 numbers.
                unsafe {
                    let none = Scale::NONE;
                    reduce_with(implementation, DType::F32, op, none, 1, &[to], &sources, 21);
                }
                for value in result {
                    assert!(
                        value.to_bits() == wanted.to_bits() || (value.is_nan() && wanted.is_nan()),
                        "{implementation:?} {op} of {} and {}: {value}",
                        a[0],
                        b[0]
                    );
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "and is not defined for f32")]
fn an_operation_that_does_not_apply_is_refused() {
    let mut value = [1f32];
    let to = Destination {
        pointer: value.as_mut_ptr().cast(),
        store: Store::Cached,
    };
    let sources = [to.pointer.cast_const()];
    // SAFETY: one number is there, and in place is allowed.
    unsafe {
        super::reduce(
            DType::F32,
            ReduceOp::And,
            Scale::NONE,
            1,
            &[to],
            &sources,
            1,
        );
    }
}

#[test]
fn copies_arrive_whole() {
    let mut numbers = Numbers(6);
    for implementation in Implementation::ALL.into_iter().filter(|i| i.is_available()) {
        for store in [Store::Cached, Store::Streaming] {
            let lengths = [0, 1, 63, 64, 65, 255, 256, 257, 319, 1000, 4096, 70_001];
            // Under Miri the longest takes too long.
            for length in lengths.into_iter().filter(|l| !cfg!(miri) || *l < 1001) {
                for (from, to) in [(0, 0), (1, 0), (0, 3), (17, 32), (63, 61)] {
                    let contents = elements(DType::U8, length, &mut numbers);
                    let mut source = Buffer::new(&contents, from);
                    let mut destination = Buffer::new(&vec![0; length], to);
                    // SAFETY: both buffers hold `length` bytes.
                    unsafe {
                        let (to, from) = (destination.pointer(), source.pointer());
                        copy_with(implementation, to, from, length, store);
                        copy_with(implementation, to, to, length, store);
                    }
                    fence_streaming();
                    assert!(
                        destination.contents() == contents,
                        "{implementation:?} {length}"
                    );
                    assert!(source.contents() == contents);
                }
            }
        }
    }
}

#[test]
fn the_selected_implementation_is_the_first_available() {
    let first = Implementation::ALL
        .into_iter()
        .find(|i| i.is_available())
        .unwrap();
    assert_eq!(Implementation::selected(), first);
    assert_eq!(super::instruction_set(), first.name());
}
