//! Which stores fill a buffer that another core reads.
//!
//! Where the reader is near, ordinary stores into lines that it [handed back](super::lines) are
//! fastest. Where it is far, behind another cache of the last level, each such line takes a trip
//! there and back, and stores around the cache take half of the time, for the writer and for both
//! together. Which of the two it is cannot be asked, and on virtual machines it changes while a
//! program runs. So a writer takes the time of its fills, goes on with what is faster, and tries
//! the other way now and then.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Store, fence_streaming, lines};

/// Fills of fewer bytes are not measured, and go through the cache: they are read from it.
const MEASURED: usize = 24 << 10;
/// One of so many fills goes the other way.
const TRY: u32 = 128;
/// Time is taken for this many bytes.
const UNIT: usize = 4096;

/// How the buffers of one rank are best filled, as far as is known.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// By way, ordinary stores first: the ticks of a [`UNIT`]; 0 if it was never tried.
    costs: [AtomicU32; 2],
    fills: AtomicU32,
}

/// A fill that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// How it is done.
    pub(crate) store: Store,
    /// When it began, if it is measured.
    began: Option<u64>,
    /// It is not what seems to be best.
    is_try: bool,
}

impl Fill {
    /// One of which nothing is to be learned.
    pub(crate) const PLAIN: Self = Self {
        store: Store::Cached,
        began: None,
        is_try: false,
    };
}

impl Filling {
    /// Begins a fill of so many bytes that one other core will read.
    #[inline]
    pub(crate) fn begin(&self, bytes: usize) -> Fill {
        if bytes < MEASURED || !lines::are_handed_back() {
            return Fill::PLAIN;
        }
        let (store, is_try) = self.choose();
        Fill {
            store,
            began: Some(ticks()),
            is_try,
        }
    }

    /// The fill is complete; what it wrote may be published.
    #[inline]
    pub(crate) fn end(&self, fill: Fill, bytes: usize) {
        if fill.store == Store::Streaming {
            fence_streaming();
        }
        if let Some(began) = fill.began {
            let ticks = ticks().wrapping_sub(began).min(u64::from(u32::MAX));
            self.learn(fill, (ticks as usize * UNIT / bytes.max(1)) as u32);
        }
    }

    /// How to write what goes into the same buffers besides: as most fills now.
    #[inline]
    pub(crate) fn store(&self) -> Store {
        let [cached, streaming] = self.known();
        // Who reads it pays for streaming, too: it must be clearly faster here.
        if streaming != 0 && streaming + streaming / 2 < cached {
            Store::Streaming
        } else {
            Store::Cached
        }
    }

    fn known(&self) -> [u32; 2] {
        [0, 1].map(|way: usize| self.costs[way].load(Ordering::Relaxed))
    }

    /// How the next fill is done, and whether that is a try. Threads may do this at once; what one
    /// of them forgets of another is learned again.
    fn choose(&self) -> (Store, bool) {
        let best = self.store();
        let fills = self.fills.load(Ordering::Relaxed).wrapping_add(1);
        self.fills.store(fills, Ordering::Relaxed);
        if !fills.is_multiple_of(TRY) {
            return (best, false);
        }
        match best {
            Store::Cached => (Store::Streaming, true),
            Store::Streaming => (Store::Cached, true),
        }
    }

    /// A fill cost so many ticks for a [`UNIT`].
    fn learn(&self, fill: Fill, cost: u32) {
        let known = &self.costs[usize::from(fill.store == Store::Streaming)];
        let before = known.load(Ordering::Relaxed);
        // A try is all that is known of its way. Of the way that is usual there is much: single
        // fills, in whose midst something else ran on this core, count for little.
        let now = if fill.is_try || before == 0 {
            cost
        } else {
            (before * 15 + cost.min(before.saturating_mul(2))) / 16
        };
        known.store(now.clamp(1, u32::MAX >> 4), Ordering::Relaxed);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor counts.
    #[expect(unsafe_code, reason = "the processor's counter is an intrinsic")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills at these costs; how many of them streamed.
    fn fills(filling: &Filling, count: usize, cached: u32, streaming: u32) -> usize {
        let mut streamed = 0;
        for number in 0..count {
            let (store, is_try) = filling.choose();
            let fill = Fill {
                store,
                began: None,
                is_try,
            };
            streamed += usize::from(store == Store::Streaming);
            let cost = match store {
                Store::Cached => cached,
                Store::Streaming => streaming,
            };
            // Now and then something else runs meanwhile.
            filling.learn(fill, if number % 50 == 49 { cost * 1000 } else { cost });
        }
        streamed
    }

    #[test]
    fn the_faster_way_is_taken_and_a_change_is_noticed() {
        let filling = Filling::default();
        assert!(fills(&filling, 1000, 150, 210) <= 1000 / TRY as usize);
        // The other core is far now.
        assert!(fills(&filling, 1000, 290, 120) > 900);
        assert_eq!(filling.store(), Store::Streaming);
        // And near again.
        assert!(fills(&filling, 2000, 150, 210) < 2 * TRY as usize + 20);
        assert_eq!(filling.store(), Store::Cached);
    }

    #[test]
    fn little_is_not_measured_and_costs_of_all_sizes_are_kept() {
        let filling = Filling::default();
        assert_eq!(filling.begin(MEASURED - 1).store, Store::Cached);
        assert!(filling.begin(MEASURED - 1).began.is_none());
        for cost in [0, u32::MAX] {
            filling.learn(Fill::PLAIN, cost);
            filling.end(Fill::PLAIN, 0);
        }
        assert_eq!(filling.store(), Store::Cached);
    }
}
