//! One line of the result, as it is printed and as ranks hand it to whoever started them.

use serde::{Deserialize, Serialize};

use super::measure::Samples;
use super::operation::Operation;

/// What was measured for one case. Its JSON form is what `--output json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) op: Operation,
    /// The model whose tensors were reduced, if it was a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) list: Option<String>,
    pub(crate) ranks: usize,
    pub(crate) bytes: usize,
    pub(crate) median_us: f64,
    pub(crate) min_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) algbw_gbps: f64,
    pub(crate) busbw_gbps: f64,
    pub(crate) transport: String,
    pub(crate) algorithm: String,
    pub(crate) dtype: String,
    pub(crate) reduction: String,
    pub(crate) memory: String,
    pub(crate) vary: bool,
    /// Samples, each of `batch` operations.
    pub(crate) iterations: usize,
    pub(crate) batch: usize,
    /// Whether every result was right; null if nobody looked.
    pub(crate) check: Option<bool>,
    /// The time of a flag between two cores just before; null with one core only.
    pub(crate) flag_ns: Option<f64>,
}

impl Measurement {
    /// Takes the times over, and the bandwidths that follow from `counted` bytes.
    pub(super) fn with_samples(self, samples: &Samples, counted: usize) -> Self {
        let microseconds = |seconds: f64| rounded(seconds * 1e6);
        // Bytes in a nanosecond are gigabytes in a second.
        let bandwidth = counted as f64 / (samples.median() * 1e9);
        let bus = bandwidth * self.op.bus_factor(self.ranks);
        Self {
            median_us: microseconds(samples.median()),
            min_us: microseconds(samples.min()),
            p90_us: microseconds(samples.p90()),
            algbw_gbps: rounded(bandwidth),
            busbw_gbps: rounded(bus),
            iterations: samples.times.len(),
            batch: samples.batch,
            check: samples.check,
            ..self
        }
    }
}

/// Five digits: more than any of these figures is good for.
pub(super) fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn example(op: Operation, ranks: usize, bytes: usize) -> Measurement {
        Measurement {
            op,
            list: None,
            ranks,
            bytes,
            median_us: 0.0,
            min_us: 0.0,
            p90_us: 0.0,
            algbw_gbps: 0.0,
            busbw_gbps: 0.0,
            transport: "shm".into(),
            algorithm: "auto".into(),
            dtype: "f32".into(),
            reduction: "sum".into(),
            memory: "private".into(),
            vary: false,
            iterations: 0,
            batch: 1,
            check: Some(true),
            flag_ns: Some(61.5),
        }
        .with_samples(
            &Samples {
                times: vec![1e-4, 2e-4, 4e-4],
                batch: 1,
                check: Some(true),
            },
            bytes,
        )
    }

    #[test]
    fn bandwidths_follow_from_the_median() {
        let measurement = example(Operation::AllReduce, 4, 1_000_000);
        assert_eq!((measurement.min_us, measurement.median_us), (100.0, 200.0));
        assert_eq!((measurement.algbw_gbps, measurement.busbw_gbps), (5.0, 7.5));
    }

    #[test]
    fn the_json_form_survives_and_has_plain_names() {
        let measurement = example(Operation::AllGatherV, 2, 4096);
        let text = serde_json::to_string(&measurement).unwrap();
        assert!(
            text.starts_with(r#"{"op":"all-gather-v","ranks":2,"bytes":4096,"#),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<Measurement>(&text).unwrap(),
            measurement
        );
    }
}
