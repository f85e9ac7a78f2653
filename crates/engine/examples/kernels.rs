//! Measures the reduce kernels of this processor:
//! `cargo run --release -p carole-engine --example kernels`.
//!
//! One line per implementation and case, in gigabytes per second of memory touched (read and
//! written; what a cache reads before it writes is not counted). The median of several rounds,
//! with the best beside it.

#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::time::{Duration, Instant};

use carole_engine::compress::Codec;
use carole_engine::kernels::{
    Destination, Implementation, Scale, Store, copy_with, fence_streaming, instruction_set,
    reduce_with,
};
use carole_engine::{DType, ReduceOp};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const ROUNDS: usize = 9;

/// Memory on a page boundary, with an odd number of lines behind each so that buffers do not fall
/// on the same cache sets.
struct Arena {
    memory: Vec<u8>,
    next: usize,
}

impl Arena {
    fn new(buffers: usize, bytes: usize) -> Self {
        let memory = vec![0u8; buffers * (bytes + 2 * 4096) + 4096];
        let next = memory.as_ptr().addr().wrapping_neg() % 4096;
        Self { memory, next }
    }

    fn take(&mut self, bytes: usize) -> *mut u8 {
        let buffer = &mut self.memory[self.next..][..bytes];
        buffer.fill(1);
        self.next += bytes.next_multiple_of(4096) + 17 * 64;
        buffer.as_mut_ptr()
    }
}

/// Gigabytes per second: the median and the best of some rounds.
fn measure(touched: usize, mut run: impl FnMut()) -> (f64, f64) {
    let repeats = (64 * MIB).div_ceil(touched);
    run();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                run();
            }
            start.elapsed()
        })
        .collect();
    times.sort();
    let rate = |time: Duration| (touched * repeats) as f64 / time.as_secs_f64() / 1e9;
    (rate(times[ROUNDS / 2]), rate(times[0]))
}

fn available() -> impl Iterator<Item = Implementation> {
    Implementation::ALL
        .into_iter()
        .filter(|implementation| implementation.is_available())
}

fn reductions(dtype: DType, bytes: usize) {
    let mut arena = Arena::new(10, bytes);
    let pointers: Vec<*mut u8> = (0..10).map(|_| arena.take(bytes)).collect();
    for (sources, destinations) in [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2)] {
        for store in [Store::Cached, Store::Streaming] {
            let from: Vec<*const u8> = pointers[..sources].iter().map(|p| p.cast_const()).collect();
            let to: Vec<Destination> = pointers[8..8 + destinations]
                .iter()
                .map(|&pointer| Destination { pointer, store })
                .collect();
            let touched = bytes * (sources + destinations);
            let count = bytes / dtype.size();
            let none = Scale::NONE;
            for implementation in available() {
                let (median, best) = measure(touched, || {
                    // SAFETY: every buffer holds `count` elements, and they do not overlap.
                    unsafe {
                        let op = ReduceOp::Sum;
                        reduce_with(implementation, dtype, op, none, 1, &to, &from, count);
                    }
                    fence_streaming();
                });
                let what = format!("{} {sources} to {destinations}", dtype.name());
                report(&what, bytes, store, implementation, median, best);
            }
        }
    }
}

fn report(
    what: &str,
    bytes: usize,
    store: Store,
    implementation: Implementation,
    median: f64,
    best: f64,
) {
    let (bytes, store) = (bytes / KIB, format!("{store:?}"));
    let implementation = implementation.name();
    println!("{what:<12} {bytes:>6} {store:<10} {implementation:<9} {median:>7.1} {best:>7.1}");
}

fn copies(bytes: usize) {
    let mut arena = Arena::new(2, bytes);
    let (from, to) = (arena.take(bytes), arena.take(bytes));
    for store in [Store::Cached, Store::Streaming] {
        for implementation in available() {
            let (median, best) = measure(2 * bytes, || {
                // SAFETY: both buffers hold `bytes` bytes, and they do not overlap.
                unsafe { copy_with(implementation, to, from, bytes, store) }
                fence_streaming();
            });
            report("copy", bytes, store, implementation, median, best);
        }
    }
}

fn codecs(count: usize) {
    let plain: Vec<u8> = (0..count)
        .flat_map(|i| (i as f32 - 99.0).to_ne_bytes())
        .collect();
    let mut decoded = plain.clone();
    for codec in [Codec::F16, Codec::Bf16, Codec::Int8] {
        let mut encoded = vec![0; codec.encoded_len(count)];
        let touched = plain.len() + encoded.len();
        let selected = Implementation::selected();
        let (median, best) = measure(touched, || codec.encode(&plain, &mut encoded));
        let what = format!("encode {codec}");
        report(&what, plain.len(), Store::Cached, selected, median, best);
        let (median, best) = measure(touched, || codec.decode(&encoded, &mut decoded));
        let what = format!("decode {codec}");
        report(&what, plain.len(), Store::Cached, selected, median, best);
    }
}

fn main() {
    println!("selected here: {}", instruction_set());
    println!("case            KiB store      kernel     median    best");
    for bytes in [256 * KIB, 64 * MIB] {
        copies(bytes);
        reductions(DType::F32, bytes);
    }
    codecs(64 * KIB);
    for dtype in [DType::F64, DType::F16, DType::Bf16, DType::I32, DType::U8] {
        reductions(dtype, 64 * KIB);
    }
}
