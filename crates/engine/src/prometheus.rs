//! Metrics as Prometheus text (exposition format 0.0.4).
//!
//! Counters only ever rise while a session lasts; a new generation begins at zero, which Prometheus
//! takes for a restart. Rates are left to it.

use std::fmt::Write as _;

use crate::metrics::{Histogram, Metrics, SizeMetrics};

/// Nanoseconds in a second.
const NANO: f64 = 1e9;

impl Metrics {
    /// The metrics as Prometheus text, to be served as `text/plain; version=0.0.4`.
    ///
    /// `docs/reference/metrics.md` lists the names and labels.
    pub fn prometheus(&self) -> String {
        let mut text = Text {
            rank: self.rank,
            out: String::with_capacity(8 << 10),
        };
        self.write_session(&mut text);
        self.write_peers(&mut text);
        self.write_kinds(&mut text);
        text.out
    }

    fn write_session(&self, text: &mut Text) {
        text.head(
            "carole_session_info",
            "gauge",
            "The session: its generation and size.",
        );
        let generation = self.generation.to_string();
        let size = self.size.to_string();
        let labels = [("generation", &*generation), ("size", &*size)];
        text.line("carole_session_info", &labels, 1.0);
        let name = "carole_session_seconds";
        text.head(name, "gauge", "How long ago the session was formed.");
        text.line(name, &[], self.elapsed.as_secs_f64());
    }

    fn write_peers(&self, text: &mut Text) {
        let directions = [
            (
                "carole_peer_received_bytes_total",
                "Bytes that came from a peer.",
            ),
            ("carole_peer_sent_bytes_total", "Bytes that went to a peer."),
        ];
        for (index, (name, help)) in directions.into_iter().enumerate() {
            text.head(name, "counter", help);
            for peer in &self.peers {
                let who = peer.peer.to_string();
                for (transport, traffic) in [("tcp", peer.connection), ("shm", peer.shared_memory)]
                {
                    let bytes = [traffic.bytes_in, traffic.bytes_out][index];
                    let labels = [("peer", &*who), ("transport", transport)];
                    text.line(name, &labels, bytes as f64);
                }
            }
        }
    }

    fn write_kinds(&self, text: &mut Text) {
        let name = "carole_operations_total";
        text.head(name, "counter", "Operations that were completed.");
        for kind in &self.kinds {
            let labels = [("kind", kind.kind.name())];
            text.line(name, &labels, kind.operations as f64);
        }
        let name = "carole_operation_bytes_total";
        text.head(name, "counter", "Bytes of completed operations.");
        for kind in &self.kinds {
            let labels = [("kind", kind.kind.name())];
            text.line(name, &labels, kind.bytes as f64);
        }
        let name = "carole_operation_errors_total";
        text.head(name, "counter", "Operations that failed.");
        for kind in &self.kinds {
            for (error, count) in &kind.errors {
                let labels = [("kind", kind.kind.name()), ("error", error)];
                text.line(name, &labels, *count as f64);
            }
        }
        let name = "carole_operation_stalls_total";
        text.head(name, "counter", "Waits that passed the stall limit.");
        for kind in &self.kinds {
            let labels = [("kind", kind.kind.name())];
            text.line(name, &labels, kind.stalls as f64);
        }
        let name = "carole_operation_duration_seconds";
        text.head(name, "histogram", "How long completed operations took.");
        self.write_histograms(text, name, |size| (&size.latency, NANO));
        let name = "carole_operation_bandwidth_bytes_per_second";
        text.head(
            name,
            "histogram",
            "Bytes of an operation by the time it took.",
        );
        self.write_histograms(text, name, |size| (&size.bandwidth, 1.0));
    }

    fn write_histograms(
        &self,
        text: &mut Text,
        name: &str,
        of: impl Fn(&SizeMetrics) -> (&Histogram, f64),
    ) {
        for kind in &self.kinds {
            for size in &kind.sizes {
                let (histogram, unit) = of(size);
                if histogram.count() > 0 {
                    let class = size_label(size.most);
                    let labels = [("kind", kind.kind.name()), ("size", &*class)];
                    text.histogram(name, &labels, histogram, unit);
                }
            }
        }
    }
}

/// `64KiB` for sizes up to that, `more` above all classes.
fn size_label(most: Option<u64>) -> String {
    match most {
        Some(bytes) if bytes >= 1 << 20 => format!("{}MiB", bytes >> 20),
        Some(bytes) => format!("{}KiB", bytes >> 10),
        None => "more".into(),
    }
}

struct Text {
    rank: usize,
    out: String,
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.out, "{name}{{rank=\"{}\"", self.rank);
        for (label, text) in labels {
            let _ = write!(self.out, ",{label}=\"");
            self.escaped(text);
            self.out.push('"');
        }
        let _ = writeln!(self.out, "}} {value}");
    }

    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                other => self.out.push(other),
            }
        }
    }

    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str); 2],
        histogram: &Histogram,
        unit: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in histogram.buckets() {
            below += count;
            let bound = if bound.is_finite() {
                (bound / unit).to_string()
            } else {
                "+Inf".to_owned()
            };
            let labels = [labels[0], labels[1], ("le", &*bound)];
            self.line(&bucket, &labels, below as f64);
        }
        self.line(&format!("{name}_sum"), labels, histogram.sum() / unit);
        self.line(&format!("{name}_count"), labels, below as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(size_label(Some(1 << 10)), "1KiB");
        assert_eq!(size_label(Some(256 << 20)), "256MiB");
        assert_eq!(size_label(None), "more");
    }

    #[test]
    fn labels_are_escaped() {
        let mut text = Text {
            rank: 3,
            out: String::new(),
        };
        text.line("name", &[("peer", "a\\b\"c\nd")], 1.5);
        assert_eq!(text.out, "name{rank=\"3\",peer=\"a\\\\b\\\"c\\nd\"} 1.5\n");
    }
}
