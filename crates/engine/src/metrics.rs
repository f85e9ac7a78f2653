//! What a session has done so far, as plain numbers.
//!
//! [`Session::metrics`] adds up what the session counts anyway; reading disturbs nobody.
//! Percentiles are estimates: they are read off histograms whose buckets double. The same numbers
//! as text for Prometheus: [`Metrics::prometheus`].
//!
//! ```
//! use carole_engine::{Kind, ReduceOp, testing};
//!
//! testing::spawn(2, |session| {
//!     let mut tensor = [1.0f32; 256];
//!     session.world().call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
//!     let metrics = session.metrics();
//!     let all_reduce = metrics.kind(Kind::AllReduce).unwrap();
//!     assert_eq!((all_reduce.operations, all_reduce.bytes), (1, 1024));
//!     println!("{:?} at the median", all_reduce.latency.percentile(0.5));
//! });
//! ```

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carole_plan::{Generation, PeerId};

use crate::descriptor::Kind;
use crate::recorder::{BANDWIDTH, Buckets, CLASSES, ERRORS, LATENCY, SIZES};
use crate::session::{Inner, Session};

/// What a session has done so far, seen from one rank.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The session's generation.
    pub generation: Generation,
    /// How long ago the session was formed.
    pub elapsed: Duration,
    /// One entry for each other rank, in rank order.
    pub peers: Vec<PeerMetrics>,
    /// One entry for each kind of operation that was called.
    pub kinds: Vec<KindMetrics>,
}

/// What went to and came from one other rank.
#[derive(Clone, Debug)]
pub struct PeerMetrics {
    /// Its rank.
    pub rank: usize,
    /// Who it is.
    pub peer: PeerId,
    /// Bytes on connections: frames, heartbeats and the peer store included.
    pub connection: Traffic,
    /// Bytes of completed operations through shared memory.
    pub shared_memory: Traffic,
    /// Bytes a second that came lately, on connections and through shared memory together; see
    /// [`Session::metrics`].
    pub rate_in: f64,
    /// Bytes a second that went lately, likewise.
    pub rate_out: f64,
}

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the peer.
    pub bytes_in: u64,
    /// To the peer.
    pub bytes_out: u64,
}

/// What one kind of operation did.
#[derive(Clone, Debug)]
pub struct KindMetrics {
    /// The kind.
    pub kind: Kind,
    /// How many were completed.
    pub operations: u64,
    /// Bytes of all completed ones; of each the larger of what this rank gave and got.
    pub bytes: u64,
    /// How often a wait passed the stall limit.
    pub stalls: u64,
    /// How many failed, by kind of error; those that did not happen are left out.
    pub errors: Vec<(&'static str, u64)>,
    /// How long completed operations took, in nanoseconds.
    pub latency: Histogram,
    /// Bytes by time of completed operations with bytes, in bytes per second.
    pub bandwidth: Histogram,
    /// The same by size; sizes that did not occur are left out.
    pub sizes: Vec<SizeMetrics>,
}

/// What operations of one kind and of similar size did.
#[derive(Clone, Debug)]
pub struct SizeMetrics {
    /// The most bytes that belong here; `None` for everything above the other classes.
    pub most: Option<u64>,
    /// How many were completed.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took, in nanoseconds.
    pub latency: Histogram,
    /// Bytes by time, in bytes per second.
    pub bandwidth: Histogram,
}

/// Counts of values in buckets that double.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    buckets: Buckets,
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(buckets: Buckets, counts: &[u64], sum: f64) -> Self {
        Self {
            buckets,
            counts: counts.to_vec(),
            sum,
        }
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The values' sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The values' mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }

    /// The buckets in order: (upper bound, values in it); the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let last = self.counts.len() - 1;
        self.counts.iter().enumerate().map(move |(index, count)| {
            let bound = if index == last {
                f64::INFINITY
            } else {
                self.bound(index)
            };
            (bound, *count)
        })
    }

    fn bound(&self, index: usize) -> f64 {
        f64::from(self.buckets.lowest + index as u32).exp2()
    }

    /// An estimate of the value below which the share `share` (0 to 1) of all values lies; `None`
    /// without values. It is at most a factor of two away, in the last bucket a lower limit.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * count as f64;
        let mut below = 0.0;
        for (index, here) in self.counts.iter().enumerate() {
            let here = *here as f64;
            if here > 0.0 && below + here >= wanted {
                let upper = self.bound(index);
                if index == self.counts.len() - 1 {
                    return Some(upper / 2.0);
                }
                // As if the logarithms of the values lay evenly between the bounds.
                return Some(upper * ((wanted - below) / here - 1.0).exp2());
            }
            below += here;
        }
        None
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum += other.sum;
    }
}

/// What all threads counted of a kind and a size class.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) nanoseconds: u64,
    pub(crate) bytes: u64,
    /// In KiB/s.
    pub(crate) speed: u64,
    pub(crate) latency: [u64; LATENCY.count],
    pub(crate) bandwidth: [u64; BANDWIDTH.count],
}

/// The bytes of all peers at some time.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: Instant,
    /// By session rank: in and out.
    bytes: Vec<(u64, u64)>,
}

impl Sample {
    pub(crate) fn new(at: Instant, ranks: usize) -> Self {
        Self {
            at,
            bytes: vec![(0, 0); ranks],
        }
    }
}

/// Rates cover at least this long, if the session is that old.
const RATE_SPAN: Duration = Duration::from_secs(1);

impl Metrics {
    /// What a kind of operation did; `None` if it was not called.
    pub fn kind(&self, kind: Kind) -> Option<&KindMetrics> {
        self.kinds.iter().find(|metrics| metrics.kind == kind)
    }

    /// What went to and came from a rank; `None` for this one.
    pub fn peer(&self, rank: usize) -> Option<&PeerMetrics> {
        self.peers.iter().find(|metrics| metrics.rank == rank)
    }
}

impl Session {
    /// What this session has done so far.
    ///
    /// Rates are those since an earlier call of this (by anybody, a second ago or longer), at first
    /// since the session was formed.
    pub fn metrics(&self) -> Metrics {
        let inner = &*self.inner;
        let now = Instant::now();
        let others = (0..self.size()).filter(|rank| *rank != inner.rank);
        let mut peers: Vec<PeerMetrics> = others.map(|rank| peer_metrics(inner, rank)).collect();
        fill_rates(inner, now, &mut peers);
        Metrics {
            rank: inner.rank,
            size: self.size(),
            generation: inner.generation,
            elapsed: now - inner.recorder.formed,
            peers,
            kinds: Kind::ALL
                .into_iter()
                .filter_map(|kind| kind_metrics(inner, kind))
                .collect(),
        }
    }
}

fn peer_metrics(inner: &Inner, rank: usize) -> PeerMetrics {
    let connection = inner
        .streams
        .as_ref()
        .and_then(|streams| streams.connections[rank].as_ref())
        .map_or(Traffic::default(), |connection| Traffic {
            bytes_in: connection.bytes_in.load(Ordering::Relaxed),
            bytes_out: connection.bytes_out.load(Ordering::Relaxed),
        });
    let (bytes_out, bytes_in) = inner.recorder.shared_memory(rank);
    PeerMetrics {
        rank,
        peer: inner.peers[rank].clone(),
        connection,
        shared_memory: Traffic {
            bytes_in,
            bytes_out,
        },
        rate_in: 0.0,
        rate_out: 0.0,
    }
}

fn fill_rates(inner: &Inner, now: Instant, peers: &mut [PeerMetrics]) {
    let mut current = Sample::new(now, inner.peers.len());
    for peer in peers.iter() {
        let (connection, shared) = (peer.connection, peer.shared_memory);
        current.bytes[peer.rank] = (
            connection.bytes_in + shared.bytes_in,
            connection.bytes_out + shared.bytes_out,
        );
    }
    let mut samples = inner
        .recorder
        .samples
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let [older, newer] = &mut *samples;
    if now.saturating_duration_since(newer.at) >= RATE_SPAN {
        *older = std::mem::replace(newer, current.clone());
    }
    let seconds = now.saturating_duration_since(older.at).as_secs_f64();
    if seconds <= 0.0 {
        return;
    }
    for peer in peers {
        let (now_in, now_out) = current.bytes[peer.rank];
        let (then_in, then_out) = older.bytes[peer.rank];
        peer.rate_in = now_in.saturating_sub(then_in) as f64 / seconds;
        peer.rate_out = now_out.saturating_sub(then_out) as f64 / seconds;
    }
}

/// `None` if nothing happened.
fn kind_metrics(inner: &Inner, kind: Kind) -> Option<KindMetrics> {
    let recorder = &inner.recorder;
    let sizes: Vec<SizeMetrics> = (0..CLASSES)
        .map(|class| size_metrics(class, &recorder.totals(kind, class)))
        .filter(|size| size.operations > 0)
        .collect();
    let errors: Vec<(&'static str, u64)> = ERRORS
        .into_iter()
        .zip(recorder.errors(kind))
        .filter(|(_, count)| *count > 0)
        .collect();
    let stalls = recorder.stalls(kind);
    if sizes.is_empty() && errors.is_empty() && stalls == 0 {
        return None;
    }
    let mut latency = Histogram::new(LATENCY, &[0; LATENCY.count], 0.0);
    let mut bandwidth = Histogram::new(BANDWIDTH, &[0; BANDWIDTH.count], 0.0);
    for size in &sizes {
        latency.add(&size.latency);
        bandwidth.add(&size.bandwidth);
    }
    Some(KindMetrics {
        kind,
        operations: latency.count(),
        bytes: sizes.iter().map(|size| size.bytes).sum(),
        stalls,
        errors,
        latency,
        bandwidth,
        sizes,
    })
}

fn size_metrics(class: usize, totals: &Totals) -> SizeMetrics {
    let latency = Histogram::new(LATENCY, &totals.latency, totals.nanoseconds as f64);
    let speed = totals.speed as f64 * 1024.0;
    SizeMetrics {
        most: SIZES.get(class).copied(),
        operations: latency.count(),
        bytes: totals.bytes,
        latency,
        bandwidth: Histogram::new(BANDWIDTH, &totals.bandwidth, speed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[u64]) -> Histogram {
        let mut counts = [0; LATENCY.count];
        for value in values {
            counts[LATENCY.of(*value)] += 1;
        }
        let sum = values.iter().sum::<u64>() as f64;
        Histogram::new(LATENCY, &counts, sum)
    }

    #[test]
    fn without_values_there_is_no_percentile() {
        let empty = histogram(&[]);
        assert_eq!(empty.percentile(0.5), None);
        assert_eq!(empty.mean(), None);
    }

    #[test]
    fn percentiles_are_at_most_a_factor_of_two_away() {
        let mut values: Vec<u64> = (1..=10_000).map(|n| n * 37 % 9973 * 91 + 100).collect();
        let estimates = histogram(&values);
        values.sort_unstable();
        for percent in [1, 10, 25, 50, 75, 90, 99, 100] {
            let exact = values[(values.len() * percent / 100).max(1) - 1] as f64;
            let estimate = estimates.percentile(percent as f64 / 100.0).unwrap();
            let ratio = estimate / exact;
            assert!((0.5..=2.0).contains(&ratio), "{percent}: {ratio}");
        }
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        assert!((estimates.mean().unwrap() - mean).abs() < 1e-6);
    }

    #[test]
    fn percentiles_rise_and_stay_in_their_bucket() {
        let three = histogram(&[100, 1000, 100_000]);
        let quantile = |share| three.percentile(share).unwrap();
        assert!((64.0..=128.0).contains(&quantile(0.2)));
        assert!((512.0..=1024.0).contains(&quantile(0.5)));
        assert!((65_536.0..=131_072.0).contains(&quantile(1.0)));
        assert!(quantile(0.4) < quantile(0.6));
    }

    #[test]
    fn beyond_the_last_bound_only_a_lower_limit_is_known() {
        let long = histogram(&[u64::MAX / 2]);
        assert_eq!(long.percentile(0.5), Some(36f64.exp2()));
        assert_eq!(long.buckets().last(), Some((f64::INFINITY, 1)));
    }
}
