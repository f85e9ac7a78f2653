//! A timeline on request: when each operation of this rank began and ended, in the Chrome trace
//! event format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` show.
//!
//! While no timeline is recorded an operation pays one relaxed load. Events are kept in memory, at
//! most [`MAX_EVENTS`], and written when the timeline is stopped or its session ends: recording
//! never waits for a disk. Each rank writes its own file; times count from an origin that ranks
//! share, so that the files of a run can be joined.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Context, Error, Result};
use crate::operation::{Facts, Label};
use crate::recorder::{Clock, ERRORS, Ending, error_index, simultaneous};
use crate::session::Session;
use crate::sys;

/// Events that are kept; later ones are dropped and counted.
pub const MAX_EVENTS: usize = 1 << 18;

/// Times count from the last multiple of this many microseconds (11 days): near enough for a
/// number with a fraction to be exact, and the same on all ranks of a run.
const ORIGIN_MICROSECONDS: u128 = 1_000_000_000_000;

/// Started operations overlap; they are shown on rows of their own, numbered from here, which is
/// more than threads are.
const STARTED_ROWS: u32 = 1 << 24;

/// What a timeline came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Events that were written.
    pub events: usize,
    /// Events that found no room.
    pub dropped: usize,
}

/// Whether a timeline is recorded, and it.
#[derive(Default)]
pub(crate) struct Switch {
    on: AtomicBool,
    timeline: Mutex<Option<Timeline>>,
}

impl Switch {
    /// Whether operations shall be told of.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn timeline(&self) -> MutexGuard<'_, Option<Timeline>> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation ended.
    #[cold]
    pub(crate) fn record(
        &self,
        ending: Ending,
        label: Label<'_>,
        facts: &Facts,
        ended: u64,
        outcome: &Result<()>,
    ) {
        if let Some(timeline) = &mut *self.timeline() {
            timeline.record(ending, label, facts, ended, outcome);
        }
    }
}

struct Event {
    name: Option<Box<str>>,
    kind: &'static str,
    sequence: u64,
    algorithm: &'static str,
    bytes: u64,
    began: u64,
    ended: u64,
    thread: u32,
    ending: Ending,
    error: Option<&'static str>,
    waited_for: Box<[usize]>,
}

struct Timeline {
    writer: Option<Box<dyn Write + Send>>,
    /// Events of this rank, named so.
    rank: usize,
    peer: String,
    events: Vec<Event>,
    dropped: usize,
    threads: BTreeMap<u32, String>,
    /// Three clocks at the beginning.
    since: Instant,
    ticks: u64,
    unix: u128,
    process: u32,
}

impl Timeline {
    fn new(writer: Box<dyn Write + Send>, rank: usize, peer: String) -> Self {
        let (since, ticks) = simultaneous();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            writer: Some(writer),
            rank,
            peer,
            events: Vec::new(),
            dropped: 0,
            threads: BTreeMap::new(),
            since,
            ticks,
            unix: unix.map_or(0, |unix| unix.as_micros()),
            process: std::process::id(),
        }
    }

    fn record(
        &mut self,
        ending: Ending,
        label: Label<'_>,
        facts: &Facts,
        ended: u64,
        outcome: &Result<()>,
    ) {
        if self.events.len() >= MAX_EVENTS {
            self.dropped += 1;
            return;
        }
        let thread = sys::thread_id();
        if ending == Ending::Blocking {
            self.threads.entry(thread).or_insert_with(|| {
                let current = std::thread::current();
                current.name().unwrap_or("unnamed thread").to_owned()
            });
        }
        self.events.push(Event {
            name: label.name.map(Box::from),
            kind: label.kind.name(),
            sequence: label.sequence,
            algorithm: facts.choice.name(),
            bytes: facts.bytes,
            began: facts.began,
            ended,
            thread,
            ending,
            error: outcome
                .as_ref()
                .err()
                .map(|error| ERRORS[error_index(error)]),
            waited_for: facts.waited_for.as_slice().into(),
        });
    }

    /// Microseconds a tick: measured over the whole timeline where that is long enough.
    fn tick(&self) -> f64 {
        let (until, ticks) = simultaneous();
        let passed = (until - self.since).as_secs_f64();
        if passed > 0.01 && ticks > self.ticks {
            passed * 1e6 / (ticks - self.ticks) as f64
        } else {
            Clock::get().nanoseconds(1 << 32) as f64 / (1u64 << 32) as f64 / 1e3
        }
    }

    fn finish(&mut self) -> io::Result<Traced> {
        let Some(writer) = self.writer.take() else {
            return Ok(Traced::default());
        };
        // A forked child holds a copy of all this, and must leave the file alone.
        if self.process != std::process::id() {
            return Ok(Traced::default());
        }
        self.write(BufWriter::new(writer))?;
        Ok(Traced {
            events: self.events.len(),
            dropped: self.dropped,
        })
    }

    fn write(&mut self, mut out: impl Write) -> io::Result<()> {
        let tick = self.tick();
        let origin = self.unix / ORIGIN_MICROSECONDS * ORIGIN_MICROSECONDS;
        let start = (self.unix - origin) as f64;
        writeln!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"rank\":{},\"peer\":{},\
             \"origin_unix_us\":{origin},\"dropped\":{}}},\"traceEvents\":[",
            self.rank,
            quoted(&self.peer),
            self.dropped
        )?;
        let pid = self.rank;
        let process = quoted(&format!("rank {} ({})", self.rank, self.peer));
        write!(
            out,
            "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{pid},\"args\":{{\"name\":{process}}}}},\n\
             {{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{pid},\"args\":{{\"sort_index\":{pid}}}}}"
        )?;
        self.events.sort_by_key(|event| event.began);
        let rows = rows(&self.events);
        let started = rows.iter().filter(|row| **row >= STARTED_ROWS).max();
        let extra = started.map_or(0..0, |last| STARTED_ROWS..last + 1);
        let names = self
            .threads
            .iter()
            .map(|(thread, name)| (*thread, name.clone()))
            .chain(extra.map(|row| (row, format!("started {}", row - STARTED_ROWS))));
        for (tid, name) in names {
            let name = quoted(&name);
            write!(
                out,
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\
                 \"args\":{{\"name\":{name}}}}}"
            )?;
        }
        for (event, tid) in self.events.iter().zip(rows) {
            let since = event.began.wrapping_sub(self.ticks).cast_signed() as f64;
            let ts = start + since * tick;
            let dur = event.ended.saturating_sub(event.began) as f64 * tick;
            let name = quoted(event.name.as_deref().unwrap_or(event.kind));
            write!(
                out,
                ",\n{{\"name\":{name},\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{ts:.3},\"dur\":{dur:.3},\
                 \"pid\":{pid},\"tid\":{tid},\"args\":{}}}",
                event.kind,
                arguments(event)
            )?;
        }
        out.write_all(b"\n]}\n")?;
        out.flush()
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "the timeline could not be written");
        }
    }
}

/// The row of each event, in the order in which they began: a blocking call is on its thread's, a
/// started operation on the first that is free.
fn rows(events: &[Event]) -> Vec<u32> {
    let mut busy: Vec<u64> = Vec::new();
    let row = |event: &Event| {
        if event.ending == Ending::Blocking {
            return event.thread;
        }
        let free = busy.iter().position(|until| *until <= event.began);
        let row = free.unwrap_or_else(|| {
            busy.push(0);
            busy.len() - 1
        });
        busy[row] = event.ended;
        STARTED_ROWS + row as u32
    };
    events.iter().map(row).collect()
}

fn arguments(event: &Event) -> String {
    let mut text = format!(
        "{{\"kind\":\"{}\",\"bytes\":{},\"algorithm\":\"{}\"",
        event.kind, event.bytes, event.algorithm
    );
    if event.name.is_none() {
        let _ = write!(text, ",\"sequence\":{}", event.sequence);
    }
    if !event.waited_for.is_empty() {
        let _ = write!(text, ",\"waiting_for\":{:?}", event.waited_for);
    }
    if let Some(error) = event.error {
        let _ = write!(text, ",\"error\":\"{error}\"");
    }
    text.push('}');
    text
}

/// The text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

impl Session {
    /// Records a timeline of this rank's operations from now on, to be written to a new file at
    /// `path` by [`Self::stop_timeline`] or when the session ends.
    ///
    /// ```
    /// use carole_engine::testing;
    ///
    /// let folder = std::env::temp_dir();
    /// testing::spawn(2, |session| {
    ///     let path = folder.join(format!("trace-{}-{}.json", std::process::id(), session.rank()));
    ///     session.start_timeline(&path).unwrap();
    ///     session.world().call().barrier().unwrap();
    ///     assert_eq!(session.stop_timeline().unwrap().events, 1);
    ///     std::fs::remove_file(path).unwrap();
    /// });
    /// ```
    pub fn start_timeline(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        // Before the file of the one that runs is made empty.
        check_free(self.inner.recorder.timeline.timeline().as_ref())?;
        let file = File::create(path).context(&format!("creating {}", path.display()))?;
        self.start_timeline_to(file)
    }

    /// The same with any writer.
    pub fn start_timeline_to(&self, writer: impl Write + Send + 'static) -> Result<()> {
        let inner = &self.inner;
        let peer = inner.peers[inner.rank].to_string();
        let switch = &inner.recorder.timeline;
        let mut timeline = switch.timeline();
        check_free(timeline.as_ref())?;
        *timeline = Some(Timeline::new(Box::new(writer), inner.rank, peer));
        switch.on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the timeline and writes it; without one nothing happens.
    pub fn stop_timeline(&self) -> Result<Traced> {
        let switch = &self.inner.recorder.timeline;
        switch.on.store(false, Ordering::Relaxed);
        let timeline = switch.timeline().take();
        let Some(mut timeline) = timeline else {
            return Ok(Traced::default());
        };
        let traced = timeline.finish().context("writing the timeline")?;
        if traced.dropped > 0 {
            let Traced { events, dropped } = traced;
            tracing::warn!(events, dropped, "the timeline was full");
        }
        Ok(traced)
    }
}

fn check_free(timeline: Option<&Timeline>) -> Result<()> {
    if timeline.is_none() {
        return Ok(());
    }
    Err(Error::Invalid {
        operation: "start_timeline".into(),
        problem: "a timeline is being recorded".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Choice;
    use crate::descriptor::Kind;

    fn timeline() -> (Timeline, std::sync::Arc<Mutex<Vec<u8>>>) {
        struct Shared(std::sync::Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let bytes = std::sync::Arc::new(Mutex::new(Vec::new()));
        let writer = Box::new(Shared(std::sync::Arc::clone(&bytes)));
        (Timeline::new(writer, 2, "node-\"b\":1".into()), bytes)
    }

    fn facts(began: u64) -> Facts {
        Facts {
            choice: Choice::Flat,
            bytes: 64,
            began,
            waited_for: vec![0, 1],
        }
    }

    const LABEL: Label<'_> = Label {
        kind: Kind::AllReduce,
        name: Some("a\n\"name\"\\"),
        sequence: 0,
    };

    #[test]
    fn odd_names_survive() {
        let (mut timeline, bytes) = timeline();
        let began = timeline.ticks;
        timeline.record(
            Ending::Blocking,
            LABEL,
            &facts(began),
            began + 1000,
            &Ok(()),
        );
        let unnamed = Label {
            name: None,
            sequence: 7,
            ..LABEL
        };
        let failed = Err(Error::Closed);
        timeline.record(Ending::Blocking, unnamed, &facts(began), began, &failed);
        assert_eq!(timeline.finish().unwrap().events, 2);
        drop(timeline);
        let bytes = bytes.lock().unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let events: Vec<_> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["ph"] == "X")
            .collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0]["name"], "a\n\"name\"\\");
        assert_eq!(events[0]["pid"], 2);
        assert_eq!(events[0]["args"]["algorithm"], "flat");
        assert_eq!(events[0]["args"]["waiting_for"], serde_json::json!([0, 1]));
        assert_eq!(events[1]["name"], "all_reduce");
        assert_eq!(events[1]["args"]["sequence"], 7);
        assert_eq!(events[1]["args"]["error"], "closed");
    }

    #[test]
    fn a_full_timeline_counts_what_it_drops() {
        let (mut timeline, _) = timeline();
        for _ in 0..MAX_EVENTS + 3 {
            timeline.record(Ending::Started, LABEL, &facts(0), 1, &Ok(()));
        }
        assert_eq!(timeline.events.len(), MAX_EVENTS);
        assert_eq!(timeline.dropped, 3);
        // Nothing to write: a quarter of a million rows would take long to lay out.
        timeline.events.clear();
    }

    #[test]
    fn overlapping_started_operations_get_rows_of_their_own() {
        let (mut timeline, _) = timeline();
        for (began, ended) in [(10, 20), (12, 30), (20, 25), (31, 40)] {
            timeline.record(Ending::Started, LABEL, &facts(began), ended, &Ok(()));
        }
        let rows: Vec<u32> = rows(&timeline.events)
            .into_iter()
            .map(|row| row - STARTED_ROWS)
            .collect();
        assert_eq!(rows, [0, 1, 0, 0]);
    }
}
