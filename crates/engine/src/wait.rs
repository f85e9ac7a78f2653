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
    /// Looks before a yield.
    pub(crate) spins: u32,
    /// The same while somebody that is waited for may need this very core.
    pub(crate) spins_beside: u32,
    /// Whether to look as often again after a yield.
    pub(crate) again: bool,
    /// Time of fruitless yielding before the first sleep.
    pub(crate) yielding: Duration,
}

/// Looks while those who are waited for run on other cores: longer than it takes a core to go from
/// one rank to the next.
const FAR: u32 = 120;

impl Patience {
    /// For `ranks` ranks on a host of `cores` cores.
    pub(crate) fn new(ranks: usize, cores: usize) -> Self {
        Self {
            spins: if ranks <= cores { 300 } else { FAR },
            spins_beside: if ranks <= cores { 300 } else { 4 },
            again: ranks > cores,
            yielding: Duration::from_millis(2),
        }
    }
}

/// One wait: from the last progress until the next.
#[derive(Debug)]
pub(crate) struct Waiter {
    patience: Patience,
    looks: u32,
    /// Looks since the last yield.
    spun: u32,
    yields: u32,
    beside: bool,
    /// When the fruitless time began; unknown while spinning, which reads no clock.
    since: Option<Instant>,
}

impl Waiter {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            looks: 0,
            spun: 0,
            yields: 0,
            beside: false,
            since: None,
        }
    }

    /// There was progress.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.looks = 0;
        self.spun = 0;
        self.since = None;
    }

    /// Whether this is a good moment for housekeeping: rare, and never in the first looks.
    #[inline]
    pub(crate) fn is_pause(&self) -> bool {
        self.looks % 64 == 1
    }

    /// Whether it is time to find out if somebody that is waited for may need this core.
    #[inline]
    pub(crate) fn asks_who(&self) -> bool {
        self.patience.again && self.spun % 16 == self.patience.spins_beside - 1
    }

    /// The answer to [`Self::asks_who`].
    #[inline]
    pub(crate) fn answer(&mut self, beside: bool) {
        self.beside = beside;
    }

    #[inline]
    pub(crate) fn step(&mut self) -> Step {
        self.looks = self.looks.wrapping_add(1).max(1);
        let spins = if self.beside {
            self.patience.spins_beside
        } else {
            self.patience.spins
        };
        if self.spun < spins && (self.since.is_none() || self.patience.again) {
            self.spun += 1;
            std::hint::spin_loop();
            return Step::Spin;
        }
        self.spun = 0;
        self.yields = self.yields.wrapping_add(1);
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return Step::Yield;
        };
        if !self.yields.is_multiple_of(16) || since.elapsed() < self.patience.yielding {
            return Step::Yield;
        }
        // Short sleeps first: a missed bell, where the kernel lacks the fence, costs little.
        let limit = since
            .elapsed()
            .clamp(Duration::from_millis(2), Duration::from_millis(100));
        self.yields -= 1;
        Step::Park(limit)
    }
}
