//! How to wait: spin briefly, then yield the core, then sleep in the kernel.
//!
//! Waking a sleeper costs tens of microseconds, yielding two, a look at a flag a tenth. With more
//! ranks than cores the one that is waited for may need this very core, so that spinning is short;
//! with a core for each rank it may be longer. Nothing here relies on spinning.

use std::time::{Duration, Instant};

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again at once.
    Spin,
    /// Let others run, then look again.
    Yield,
    /// Sleep until woken, at most this long.
    Park(Duration),
}

/// How patient a session's waiters are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Looks before the first yield.
    pub(crate) spins: u32,
    /// Time of fruitless yielding before the first sleep.
    pub(crate) yielding: Duration,
}

impl Patience {
    /// For `ranks` ranks on a host of `cores` cores.
    pub(crate) fn new(ranks: usize, cores: usize) -> Self {
        Self {
            spins: if ranks <= cores { 300 } else { 20 },
            yielding: Duration::from_millis(2),
        }
    }
}

/// One wait: from the last progress until the next.
#[derive(Debug)]
pub(crate) struct Waiter {
    patience: Patience,
    looks: u32,
    /// When the fruitless time began; unknown while spinning, which reads no clock.
    since: Option<Instant>,
}

impl Waiter {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            looks: 0,
            since: None,
        }
    }

    /// There was progress.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.looks = 0;
        self.since = None;
    }

    /// Whether this is a good moment for housekeeping: rare, and never in the first looks.
    #[inline]
    pub(crate) fn is_pause(&self) -> bool {
        self.looks % 64 == 1
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        self.looks = self.looks.wrapping_add(1).max(1);
        if self.looks <= self.patience.spins && self.since.is_none() {
            std::hint::spin_loop();
            return Step::Spin;
        }
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return Step::Yield;
        };
        if !self.looks.is_multiple_of(16) || since.elapsed() < self.patience.yielding {
            return Step::Yield;
        }
        // Short sleeps first: a missed bell, where the kernel lacks the fence, costs little.
        let limit = since
            .elapsed()
            .clamp(Duration::from_millis(2), Duration::from_millis(100));
        self.looks -= 1;
        Step::Park(limit)
    }
}
