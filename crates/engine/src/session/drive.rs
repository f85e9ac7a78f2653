//! Moving an operation on the caller's own thread until it ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Inner;
use crate::error::{Error, Result};
use crate::group::GroupInner;
use crate::operation::{Label, Operation};
use crate::recorder::Ending;
use crate::stream::Streams;
use crate::sys;
use crate::wait::{Step, Waiter};

impl Inner {
    /// Polls an operation on the caller's own thread until it ends, and takes note of it.
    #[inline]
    pub(crate) fn drive(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
        timeout: Duration,
    ) -> Result<()> {
        let outcome = self.conduct(group, operation, label, timeout);
        self.record(Ending::Blocking, group, operation, label, &outcome);
        operation.shelve(self);
        outcome
    }

    /// Takes note of an operation that has ended.
    #[inline]
    pub(crate) fn record(
        &self,
        ending: Ending,
        group: &GroupInner,
        operation: &Operation,
        label: Label<'_>,
        outcome: &Result<()>,
    ) {
        let ended = sys::ticks();
        let facts = &operation.facts;
        match outcome {
            Ok(()) => {
                let ticks = ended.saturating_sub(facts.began);
                let peers = self
                    .recorder
                    .completed(ending, label.kind, facts.bytes, ticks);
                operation.local_traffic(group, |rank, to, from| peers.add(rank, to, from));
            }
            Err(error) => self.recorder.failed(label.kind, error),
        }
        if self.recorder.timeline.is_on() {
            self.recorder
                .timeline
                .record(ending, label, facts, ended, outcome);
        }
    }

    /// A wait has become long: for a timeline, whom it is for.
    pub(crate) fn note_wait(&self, group: &GroupInner, operation: &mut Operation) {
        if self.recorder.timeline.is_on() {
            operation.facts.waited_for = operation.waiting_for(self, group);
        }
    }

    /// Polls an operation on the caller's own thread until it ends.
    #[inline]
    pub(crate) fn conduct(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
        timeout: Duration,
    ) -> Result<()> {
        let _driving = operation
            .uses_connections()
            .then(|| self.streams.as_ref().map(Driving::new));
        let mut waiter = Waiter::new(self.patience);
        let mut slow: Option<Slow> = None;
        loop {
            let mut progressed = false;
            match operation.poll(self, group, &mut progressed) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(ended) => return Err(ended.error(label)),
            }
            if progressed {
                waiter.reset();
                slow = None;
            }
            if waiter.is_pause() {
                // There is time for housekeeping.
                if let Some(local) = &self.local {
                    local.tidy_soon();
                }
                if self.is_disturbed() {
                    self.give_up(group, operation, label)?;
                }
            }
            if waiter.asks_who() {
                let core = sys::current_core();
                if let Some(local) = &self.local {
                    local.board.note_core(core);
                }
                waiter.answer(operation.awaits_core(self, group, core));
            }
            match waiter.step() {
                Step::Spin => {}
                Step::Yield => {
                    if let (Some(spread), Some(local)) = (&self.spread, &self.local) {
                        spread.consider(&local.board);
                    }
                    sys::yield_core();
                    if waiter.is_pause() {
                        let slow = slow.get_or_insert_with(|| Slow::new(self, timeout));
                        slow.look(self, group, operation, label)?;
                    }
                }
                Step::Park(limit) => {
                    let slow = slow.get_or_insert_with(|| Slow::new(self, timeout));
                    slow.look(self, group, operation, label)?;
                    if self.is_disturbed() {
                        self.give_up(group, operation, label)?;
                    }
                    match operation.park(self, group, slow.limit(limit)) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(ended) => return Err(ended.error(label)),
                    }
                }
            }
        }
    }

    /// The session is disturbed: the operation ends unless it is complete or needs nobody who left.
    #[cold]
    pub(crate) fn give_up(
        &self,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
    ) -> Result<()> {
        // What the lost member had finished counts: its part may be there already, unseen.
        operation.look_everywhere();
        let mut progressed = false;
        match operation.poll(self, group, &mut progressed) {
            Ok(true) => return Ok(()),
            Ok(false) if progressed => return Ok(()),
            Ok(false) => {}
            Err(ended) => return Err(ended.error(label)),
        }
        match self.loss_error(label, group, operation) {
            Some(error) => {
                operation.abort(self, group, None);
                Err(error)
            }
            None => Ok(()),
        }
    }
}

/// Marks that a caller reads the connections itself.
struct Driving<'a>(&'a Streams);

impl<'a> Driving<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.drivers.fetch_add(1, Ordering::AcqRel);
        Self(streams)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.drivers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a long wait watches: the stall limit and the timeout.
pub(crate) struct Slow {
    since: Instant,
    stall_at: Instant,
    timeout: Duration,
}

impl Slow {
    #[cold]
    pub(crate) fn new(inner: &Inner, timeout: Duration) -> Self {
        let since = Instant::now();
        Self {
            since,
            stall_at: since + inner.options.stall,
            timeout,
        }
    }

    fn limit(&self, limit: Duration) -> Duration {
        let left = self.timeout.saturating_sub(self.since.elapsed());
        limit.min(left).max(Duration::from_micros(50))
    }

    #[cold]
    pub(crate) fn look(
        &mut self,
        inner: &Inner,
        group: &GroupInner,
        operation: &mut Operation,
        label: Label<'_>,
    ) -> Result<()> {
        operation
            .check(inner, group)
            .map_err(|ended| ended.error(label))?;
        inner.note_wait(group, operation);
        let now = Instant::now();
        if now >= self.stall_at {
            inner.recorder.stalled(label.kind);
            let waited = now - self.since;
            let whom = inner.name_ranks(&operation.waiting_for(inner, group));
            tracing::warn!("{label}: waiting {} s for {whom}", waited.as_secs());
            self.stall_at = now + inner.options.stall;
        }
        if now - self.since >= self.timeout {
            let waiting_for = inner.name_ranks(&operation.waiting_for(inner, group));
            operation.abort(inner, group, Some("it timed out"));
            return Err(Error::Timeout {
                operation: label.to_string(),
                after: self.timeout,
                waiting_for,
            });
        }
        Ok(())
    }
}
