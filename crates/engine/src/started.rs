//! Operations that were started and go on while the caller does something else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::Tables;
use crate::descriptor::Kind;
use crate::error::{Error, Result};
use crate::group::SharedGroup;
use crate::operation::{Label, Operation};
use crate::recorder::Ending;
use crate::session::{Inner, Slow};

/// An operation in flight, polled by the engine thread or by whoever waits for it.
pub(crate) struct Started {
    inner: Arc<Inner>,
    group: SharedGroup,
    kind: Kind,
    name: Option<String>,
    sequence: u64,
    deadline: Instant,
    timeout: Duration,
    operation: Mutex<Operation>,
    /// What the operation's spans point into.
    _tables: Tables,
    cancelled: Arc<AtomicBool>,
    over: AtomicBool,
    outcome: Mutex<Option<Result<()>>>,
    ended: Condvar,
    /// While nothing moves and nobody waits: since when, and when that is said.
    slow: Mutex<Option<Slow>>,
}

impl Started {
    pub(crate) fn new(
        inner: Arc<Inner>,
        group: SharedGroup,
        mut operation: Operation,
        label: Label<'_>,
        timeout: Duration,
        tables: Tables,
    ) -> Arc<Self> {
        let cancelled = Arc::new(AtomicBool::new(false));
        operation.cancelled = Some(Arc::clone(&cancelled));
        Arc::new(Self {
            cancelled,
            inner,
            group,
            kind: label.kind,
            name: label.name.map(str::to_owned),
            sequence: label.sequence,
            deadline: Instant::now() + timeout,
            timeout,
            operation: Mutex::new(operation),
            _tables: tables,
            over: AtomicBool::new(false),
            outcome: Mutex::new(None),
            ended: Condvar::new(),
            slow: Mutex::new(None),
        })
    }

    fn label(&self) -> Label<'_> {
        Label {
            kind: self.kind,
            name: self.name.as_deref(),
            sequence: self.sequence,
        }
    }

    fn end(&self, operation: &Operation, outcome: Result<()>) {
        let mut slot = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let (group, label) = (&self.group, self.label());
            self.inner
                .record(Ending::Started, group, operation, label, &outcome);
            *slot = Some(outcome);
        }
        self.over.store(true, Ordering::Release);
        self.ended.notify_all();
    }

    /// Moves the operation on, unless another thread is at it: (is it over, did it move).
    pub(crate) fn poll(&self) -> (bool, bool) {
        if self.over.load(Ordering::Acquire) {
            return (true, false);
        }
        let Ok(mut operation) = self.operation.try_lock() else {
            return (false, false);
        };
        if self.over.load(Ordering::Acquire) {
            return (true, false);
        }
        let mut progressed = false;
        let polled = operation.poll(&self.inner, &self.group, &mut progressed);
        let outcome = match polled {
            Ok(true) => Ok(()),
            Ok(false) if progressed => {
                *self.slow() = None;
                return (false, true);
            }
            Ok(false) => match self.look(&mut operation) {
                Ok(()) => return (false, false),
                Err(error) => Err(error),
            },
            Err(ended) => Err(ended.error(self.label())),
        };
        self.end(&operation, outcome);
        (true, true)
    }

    /// What a fruitless poll checks: the session, aborts by others, the timeout.
    fn look(&self, operation: &mut Operation) -> Result<()> {
        if self.inner.is_disturbed() {
            self.inner.give_up(&self.group, operation, self.label())?;
        }
        let left = || self.deadline.saturating_duration_since(Instant::now());
        let mut slow = self.slow();
        let slow = slow.get_or_insert_with(|| Slow::new(&self.inner, left()));
        slow.look(&self.inner, &self.group, operation, self.label())
            .map_err(|error| self.since_start(error))
    }

    fn slow(&self) -> MutexGuard<'_, Option<Slow>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is over; moves it on if it is not.
    pub(crate) fn test(&self) -> bool {
        self.poll().0
    }

    /// Waits for the end, moving the operation on this thread.
    pub(crate) fn wait(&self) -> Result<()> {
        if !self.over.load(Ordering::Acquire) {
            let mut operation = self
                .operation
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if !self.over.load(Ordering::Acquire) {
                let left = self.deadline.saturating_duration_since(Instant::now());
                let outcome = self
                    .inner
                    .conduct(&self.group, &mut operation, self.label(), left)
                    .map_err(|error| self.since_start(error));
                self.end(&operation, outcome);
            }
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        while outcome.is_none() {
            outcome = self
                .ended
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
        outcome.clone().unwrap_or(Err(Error::Closed))
    }

    /// The limit that passed is the operation's, not what was left of it when the wait began.
    fn since_start(&self, error: Error) -> Error {
        match error {
            Error::Timeout {
                operation,
                waiting_for,
                ..
            } => Error::Timeout {
                operation,
                after: self.timeout,
                waiting_for,
            },
            other => other,
        }
    }

    /// Gives it up, on every member.
    pub(crate) fn abort(&self) {
        self.cancelled.store(true, Ordering::Release);
        // A thread that is waiting for it holds the operation, and sees the mark by itself.
        self.inner.wake_own();
        if let Ok(mut operation) = self.operation.try_lock()
            && !self.over.load(Ordering::Acquire)
        {
            operation.abort(&self.inner, &self.group, Some("it was aborted"));
            let aborted = Error::Aborted {
                operation: self.label().to_string(),
                rank: self.inner.rank,
                reason: "it was aborted".into(),
            };
            self.end(&operation, Err(aborted));
        }
    }

    /// Aborts and waits until nobody touches the operation's memory any more.
    pub(crate) fn abandon(&self) {
        self.abort();
        drop(
            self.operation
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
