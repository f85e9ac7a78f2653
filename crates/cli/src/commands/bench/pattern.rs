//! The data of the check: small whole numbers that differ by rank and position.
//!
//! An element depends on its position modulo [`PERIOD`] and on its rank, so that what must come out
//! is a table of that length, computed apart from the engine, with which results are compared. Sums
//! stay exact in every type; only averages of floating-point numbers get a little room.

use carole_engine::{DType, Element, ReduceOp};

/// After how many elements the data repeats: a prime, so that no chunk begins like another.
pub(super) const PERIOD: usize = 251;

/// An element that the check can make and compare.
pub(super) trait Value: Element + PartialOrd + Default {
    /// The whole number, wrapped into the type where that has fewer bits.
    fn whole(number: u64) -> Self;
    /// The nearest value.
    fn real(number: f64) -> Self;
}

macro_rules! values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn whole(number: u64) -> Self {
                number as Self
            }

            fn real(number: f64) -> Self {
                number as Self
            }
        }
    )*};
}

values!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! half_values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn whole(number: u64) -> Self {
                Self::from_f64(number as f64)
            }

            fn real(number: f64) -> Self {
                Self::from_f64(number)
            }
        }
    )*};
}

half_values!(half::f16, half::bf16);

/// One period of a tensor.
pub(super) type Table<T> = Vec<T>;

/// What goes in and must come out among `ranks` ranks.
#[derive(Clone)]
pub(super) struct Pattern<T> {
    op: ReduceOp,
    ranks: usize,
    /// The lowest and highest value that the combination of all ranks may have.
    low: Table<T>,
    high: Table<T>,
}

impl<T: Value> Pattern<T> {
    pub(super) fn new(op: ReduceOp, ranks: usize) -> Self {
        let (low, high) = (0..PERIOD).map(|k| combined::<T>(op, ranks, k)).unzip();
        Self {
            op,
            ranks,
            low,
            high,
        }
    }

    /// What `rank` gives to be moved.
    pub(super) fn moved(rank: usize) -> Table<T> {
        (0..PERIOD).map(|k| T::whole(product(rank, k))).collect()
    }

    /// What `rank` gives to be combined.
    pub(super) fn given(&self, rank: usize) -> Table<T> {
        (0..PERIOD)
            .map(|k| T::whole(given(T::DTYPE, self.op, self.ranks, rank, k)))
            .collect()
    }

    /// Whether `tensor`, which begins at `start`, holds the combination of all ranks.
    pub(super) fn is_combined(&self, tensor: &[T], start: usize) -> bool {
        is_between(tensor, start, &self.low, &self.high)
    }
}

/// Fills a tensor that begins at `start`.
pub(super) fn fill<T: Copy>(tensor: &mut [T], start: usize, table: &[T]) {
    let (head, body) = tensor.split_at_mut(to_period(start).min(tensor.len()));
    let at = start % PERIOD;
    head.copy_from_slice(&table[at..at + head.len()]);
    for chunk in body.chunks_mut(PERIOD) {
        chunk.copy_from_slice(&table[..chunk.len()]);
    }
}

/// Whether a tensor that begins at `start` holds what [`fill`] writes.
pub(super) fn holds<T: PartialOrd>(tensor: &[T], start: usize, table: &[T]) -> bool {
    is_between(tensor, start, table, table)
}

fn is_between<T: PartialOrd>(tensor: &[T], start: usize, low: &[T], high: &[T]) -> bool {
    let (head, body) = tensor.split_at(to_period(start).min(tensor.len()));
    let at = start % PERIOD;
    let good = |tensor: &[T], at: usize| {
        let bounds = low[at..].iter().zip(&high[at..]);
        // Counted to the end, so that it is as fast as memory; what cannot be compared is wrong.
        tensor
            .iter()
            .zip(bounds)
            .filter(|(x, (low, high))| !(low <= x && x <= high))
            .count()
            == 0
    };
    good(head, at) && body.chunks(PERIOD).all(|chunk| good(chunk, 0))
}

/// The elements from `start` to the next beginning of a period.
fn to_period(start: usize) -> usize {
    (PERIOD - start % PERIOD) % PERIOD
}

fn product(rank: usize, k: usize) -> u64 {
    (rank as u64 + 1) * (k as u64 + 1)
}

/// Position `k` of what `rank` gives to be combined.
fn given(dtype: DType, op: ReduceOp, ranks: usize, rank: usize, k: usize) -> u64 {
    match op {
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => product(rank, k),
        // One rank's factor counts at each position: products grow too fast for more.
        ReduceOp::Product if rank == k % ranks => k as u64 % 3 + 1,
        ReduceOp::Product => 1,
        // Types of few bits hold only small sums exactly.
        _ if dtype.size() < 4 => (rank as u64 + k as u64) % 3,
        _ => product(rank, k),
    }
}

/// The lowest and highest right result at position `k`.
fn combined<T: Value>(op: ReduceOp, ranks: usize, k: usize) -> (T, T) {
    let values = (0..ranks).map(|rank| given(T::DTYPE, op, ranks, rank, k));
    let exact = |number| (T::whole(number), T::whole(number));
    let of = |result: Option<u64>| exact(result.unwrap_or(0));
    match op {
        ReduceOp::Sum => exact(values.sum()),
        ReduceOp::Average if T::DTYPE.is_float() => {
            let average = values.sum::<u64>() as f64 / ranks as f64;
            let room = average * rounding(T::DTYPE);
            (T::real(average - room), T::real(average + room))
        }
        ReduceOp::Average => exact(values.sum::<u64>() / ranks as u64),
        ReduceOp::Min => of(values.min()),
        ReduceOp::Max => of(values.max()),
        ReduceOp::Product => exact(values.product()),
        ReduceOp::And => of(values.reduce(|a, b| a & b)),
        ReduceOp::Or => of(values.reduce(|a, b| a | b)),
        ReduceOp::Xor => of(values.reduce(|a, b| a ^ b)),
    }
}

/// A few units in the last place: an average may be a quotient or a product.
fn rounding(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::Bf16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        _ => 53,
    };
    0.5_f64.powi(bits - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_is_recognised_wherever_it_begins() {
        let table = Pattern::<f32>::moved(2);
        for length in [0, 1, 5, PERIOD, 3 * PERIOD + 7] {
            for start in [0, 1, PERIOD - 1, PERIOD, 1000] {
                let mut tensor = vec![-1.0; length];
                fill(&mut tensor, start, &table);
                assert!(holds(&tensor, start, &table));
                if length > 0 {
                    assert!(!holds(&tensor, start + 1, &table));
                    tensor[length - 1] = f32::NAN;
                    assert!(!holds(&tensor, start, &table), "{length} from {start}");
                }
            }
        }
    }

    #[test]
    fn combinations_are_what_arithmetic_says() {
        let sum = Pattern::<f32>::new(ReduceOp::Sum, 3);
        assert_eq!(
            (sum.given(1)[4], sum.low[4], sum.high[4]),
            (10.0, 30.0, 30.0)
        );
        let least = Pattern::<i64>::new(ReduceOp::Min, 3);
        assert_eq!((least.low[4], least.high[4]), (5, 5));
        let bits = Pattern::<u8>::new(ReduceOp::Xor, 2);
        assert_eq!(bits.low[250], 0xfb ^ 0xf6);
        let mean = Pattern::<half::f16>::new(ReduceOp::Average, 4);
        assert!(
            mean.low
                .iter()
                .zip(&mean.high)
                .all(|(low, high)| low <= high)
        );
    }
}
