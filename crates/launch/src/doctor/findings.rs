//! What was found, and how it is written.

use std::collections::BTreeMap;

use serde::Serialize;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Nothing to do.
    Ok,
    /// Jobs run, but something is lost.
    Warning,
    /// Jobs will not run.
    Bad,
}

impl Health {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One check of one host, or of one host that connects to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The host.
    pub host: String,
    /// The host that it connects to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What was checked.
    pub check: &'static str,
    /// How good it is.
    pub verdict: Health,
    /// What was seen.
    pub seen: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What was seen, in numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<&'static str, f64>,
}

impl Finding {
    pub(super) fn new(host: &str, check: &'static str, seen: impl Into<String>) -> Self {
        Self {
            host: host.to_owned(),
            to: None,
            check,
            verdict: Health::Ok,
            seen: seen.into(),
            hint: None,
            values: BTreeMap::new(),
        }
    }

    pub(super) fn warning(mut self, hint: impl Into<String>) -> Self {
        self.verdict = Health::Warning;
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn bad(mut self, hint: impl Into<String>) -> Self {
        self.verdict = Health::Bad;
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn value(mut self, name: &'static str, value: f64) -> Self {
        self.values.insert(name, value);
        self
    }
}

/// Bytes, in the largest unit that fits.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// A time, in the largest unit that fits.
pub(super) fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}
