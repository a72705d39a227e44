//! Depots: full magazines that threads had too many of.
//!
//! [`magazine`](super::magazine) puts full ones here and takes them. There is one depot for each
//! layout, under a lock, and it holds at most [`MAGAZINES`]. One that it refuses is freed by the
//! thread that offered it.

use std::alloc::Layout;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::magazine::{CLASSES, Magazine, home};
use crate::fork::{AtFork, HeldAtFork};

/// Magazines in a depot, at most.
pub(super) const MAGAZINES: usize = 16;

static DEPOTS: [Depot; CLASSES] = [const { Depot::new() }; CLASSES];

/// Holds the locks of all depots while a thread forks. In the child, the magazines of threads that
/// it does not have leak.
static AT_FORK: AtFork = {
    static HELD: HeldAtFork<[MutexGuard<'static, Stock>; CLASSES]> = HeldAtFork::new();
    extern "C" fn before() {
        // SAFETY: this is the handler before the fork.
        unsafe { HELD.keep(DEPOTS.each_ref().map(Depot::lock)) };
    }
    extern "C" fn after() {
        // SAFETY: this is the handler after the fork.
        drop(unsafe { HELD.release() });
    }
    AtFork::new(before, after, after)
};

/// Magazines, and their number.
type Stock = ([Magazine; MAGAZINES], usize);

/// The full magazines of one layout.
#[repr(align(128))]
pub(super) struct Depot {
    /// The layout as one word (see [`word_of`]), zero until a thread claims the depot for it.
    /// Relaxed: it guards no data. No thread waits for another one that claims it: in a child of
    /// `fork(2)`, that thread may be missing.
    layout: AtomicU64,
    /// Number of magazines, stored under the lock. A thread that loads zero need not take the lock.
    /// Relaxed: it only says whether to look, and guards no data.
    stock: AtomicUsize,
    magazines: Mutex<Stock>,
}

impl Depot {
    const fn new() -> Self {
        let magazines = Mutex::new(([const { Magazine::EMPTY }; MAGAZINES], 0));
        Self {
            layout: AtomicU64::new(0),
            stock: AtomicUsize::new(0),
            magazines,
        }
    }

    /// Returns the depot of a layout; `None` if other layouts have all depots.
    pub(super) fn of(layout: Layout) -> Option<&'static Self> {
        AT_FORK.register();
        let mut depots = DEPOTS.iter().cycle().skip(home(layout)).take(CLASSES);
        let word = word_of(layout);
        depots.find(|depot| depot.is_claimed_for(word))
    }

    /// Claims the depot unless it is claimed. Returns whether it is for the layout of `word`.
    fn is_claimed_for(&self, word: u64) -> bool {
        let claimed = self.layout.compare_exchange(0, word, Relaxed, Relaxed);
        claimed.is_ok() || claimed == Err(word)
    }

    /// Takes a full magazine.
    pub(super) fn take(&self) -> Option<Magazine> {
        if self.stock.load(Relaxed) == 0 {
            return None;
        }
        let (magazines, len) = &mut *self.lock();
        *len = len.checked_sub(1)?;
        self.stock.store(*len, Relaxed);
        Some(mem::replace(&mut magazines[*len], Magazine::EMPTY))
    }

    /// Stores a magazine. Returns it as the error if the depot is full.
    pub(super) fn put(&self, magazine: Magazine) -> Result<(), Magazine> {
        let (magazines, len) = &mut *self.lock();
        let Some(slot) = magazines.get_mut(*len) else {
            return Err(magazine);
        };
        *slot = magazine;
        *len += 1;
        self.stock.store(*len, Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Stock> {
        // No code panics while it holds the lock.
        self.magazines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a layout of at least one byte as a word that is not zero. OK: no value of an address
/// space has 2^58 bytes.
fn word_of(layout: Layout) -> u64 {
    (layout.size() as u64) << 6 | u64::from(layout.align().trailing_zeros())
}
