//! Counters that many threads add to without meeting on a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lock::Padded;

const STRIPES: usize = 16;

thread_local! {
    /// The stripe of this thread; handed out in turn.
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: any spread will do.
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES)
    };
}

/// `N` sums.
pub(crate) struct Counters<const N: usize>([Padded<[AtomicU64; N]>; STRIPES]);

impl<const N: usize> Counters<N> {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Padded(std::array::from_fn(|_| AtomicU64::new(0)))))
    }

    /// Adds to each sum.
    pub(crate) fn add(&self, amounts: [u64; N]) {
        let stripe = &self.0[STRIPE.get()].0;
        for (sum, amount) in stripe.iter().zip(amounts) {
            if amount > 0 {
                // Relaxed: statistics order nothing.
                sum.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// The sums; exact once nobody adds.
    pub(crate) fn sums(&self) -> [u64; N] {
        std::array::from_fn(|n| {
            self.0.iter().fold(0, |sum: u64, stripe| sum.wrapping_add(stripe.0[n].load(Ordering::Relaxed)))
        })
    }
}
