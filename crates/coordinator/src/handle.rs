//! The coordinator as its own process holds it: the state machine, a clock and those who wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carole_plan::{Endpoint, PeerId};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::decision::{Answer, Change, Decision, Registration};
use crate::state::State;
use crate::token::Token;
use crate::wire::{Lost, Outcome, Status};

/// A running coordinator; clones are the same one.
#[derive(Clone, Debug)]
pub struct Coordinator {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    token: Token,
    started: Instant,
    state: Mutex<State>,
    pulse: watch::Sender<Pulse>,
}

/// Rises with every change, so that those who wait look again.
#[derive(Clone, Copy, Debug, Default)]
struct Pulse {
    changes: u64,
    closing: bool,
}

impl Coordinator {
    /// A coordinator that starts from `state` and believes whoever holds `token`.
    pub fn new(state: State, token: Token) -> Self {
        let (pulse, _) = watch::channel(Pulse::default());
        let shared = Shared {
            token,
            started: Instant::now(),
            state: Mutex::new(state),
            pulse,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// See [`State::register`].
    pub fn register(
        &self,
        peer: PeerId,
        rank: usize,
        endpoint: Endpoint,
    ) -> (Decision<Registration>, Status) {
        let now = self.now();
        let mut state = self.state();
        let decision = state.register(now, peer, rank, endpoint);
        let status = state.status();
        drop(state);
        self.changed();
        match decision.outcome {
            Registration::Accepted(Outcome::Published) => {
                info!(size = status.size, "membership published");
            }
            Registration::Accepted(_) => debug!(rank, reason = decision.reason, "registration"),
            Registration::Refused(_) => {
                warn!(rank, reason = decision.reason, "registration refused");
            }
        }
        (decision, status)
    }

    /// See [`State::report_lost`].
    pub fn report_lost(
        &self,
        rank: usize,
        reason: &str,
        exit_code: Option<i32>,
    ) -> Decision<Change> {
        let now = self.now();
        let decision = self.state().report_lost(now, rank, reason, exit_code);
        self.changed();
        debug!(rank, reason = decision.reason, "loss reported");
        decision
    }

    /// See [`State::leave`].
    pub fn leave(&self, peer: &PeerId) -> Decision<Change> {
        let decision = self.state().leave(peer);
        self.changed();
        debug!(%peer, reason = decision.reason, "farewell");
        decision
    }

    /// The job at a glance.
    pub fn status(&self) -> Status {
        self.state().status()
    }

    /// Waits for a membership newer than `after`; [`Answer::Wait`] when the wait is over.
    pub async fn membership_after(&self, after: u32, wait: Duration) -> Answer {
        self.until(wait, |state| match state.membership_after(after) {
            Answer::Wait => None,
            answer => Some(answer),
        })
        .await
        .unwrap_or(Answer::Wait)
    }

    /// Waits for losses after `after`; none when the wait is over.
    pub async fn lost_after(&self, after: u64, wait: Duration) -> Vec<Lost> {
        self.until(wait, |state| {
            let lost = state.lost_after(after);
            (!lost.is_empty()).then(|| lost.to_vec())
        })
        .await
        .unwrap_or_default()
    }

    /// Completes, with the reason, when the job is [overdue](State::overdue); otherwise never.
    pub async fn overdue(&self, limit: Duration) -> String {
        let mut pulse = self.shared.pulse.subscribe();
        loop {
            pulse.mark_unchanged();
            let (since, reason) = {
                let now = self.now();
                let state = self.state();
                (state.waiting_since(), state.overdue(now, limit))
            };
            if let Some(reason) = reason {
                return reason;
            }
            let due = since.and_then(|since| self.shared.started.checked_add(since + limit));
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                // The sender lives in `self`, so this cannot fail.
                _ = pulse.changed() => {}
            }
        }
    }

    /// Ends every wait; the server calls this when it stops.
    pub(crate) fn close(&self) {
        self.shared.pulse.send_modify(|pulse| pulse.closing = true);
    }

    pub(crate) fn token(&self) -> &Token {
        &self.shared.token
    }

    pub(crate) fn size(&self) -> usize {
        self.state().size()
    }

    /// Waits until `look` finds something; nothing when `wait` has passed or the server stops.
    async fn until<T>(&self, wait: Duration, look: impl Fn(&State) -> Option<T>) -> Option<T> {
        let mut pulse = self.shared.pulse.subscribe();
        let deadline = Instant::now() + wait;
        loop {
            // Marked before the look, so that a change in between is not slept through.
            let closing = pulse.borrow_and_update().closing;
            let found = look(&self.state());
            if found.is_some() || closing {
                return found;
            }
            match tokio::time::timeout_at(deadline, pulse.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    fn changed(&self) {
        self.shared.pulse.send_modify(|pulse| pulse.changes += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method of the state panics half-way through a change.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(coordinator: &Coordinator, rank: usize) {
        let peer = PeerId {
            host: "a".into(),
            slot: rank as u16,
            incarnation: rank as u128,
        };
        let endpoint = Endpoint {
            addresses: Vec::new(),
            local: "socket".into(),
            machine: "m".into(),
            certificate: None,
        };
        coordinator.register(peer, rank, endpoint);
    }

    fn coordinator(size: usize) -> Coordinator {
        Coordinator::new(State::new("test", size), Token::from_bytes([1; 32]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_is_overdue_exactly_when_the_limit_has_passed_since_the_first_rank() {
        let coordinator = coordinator(2);
        let limit = Duration::from_secs(30);
        let watcher = {
            let coordinator = coordinator.clone();
            tokio::spawn(async move { (coordinator.overdue(limit).await, Instant::now()) })
        };
        tokio::time::sleep(Duration::from_secs(100)).await;
        register(&coordinator, 0);
        let first = Instant::now();
        let (reason, at) = watcher.await.unwrap();
        assert_eq!(at - first, limit);
        assert!(reason.ends_with("rank 1"), "{reason}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_coordinator_closes() {
        let coordinator = coordinator(2);
        let (answer, ()) = tokio::join!(
            coordinator.membership_after(0, Duration::from_secs(3600)),
            async { coordinator.close() }
        );
        assert_eq!(answer, Answer::Wait);
    }
}
