//! Depots: full magazines that threads had too many of.
//!
//! [`magazine`](super::magazine) puts full ones here and takes them. There is one depot for each
//! layout, under a lock, and it holds at most [`MAGAZINES`]. One that it refuses is freed by the
//! thread that offered it.

use std::alloc::Layout;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::magazine::{CLASSES, Magazine, home};

/// Magazines in a depot, at most.
pub(super) const MAGAZINES: usize = 16;

static DEPOTS: [Depot; CLASSES] = [const { Depot::new() }; CLASSES];

/// The full magazines of one layout.
#[repr(align(128))]
pub(super) struct Depot {
    layout: OnceLock<Layout>,
    /// Number of magazines, stored under the lock. A thread that loads zero need not take the lock.
    /// Relaxed: it only says whether to look, and guards no data.
    stock: AtomicUsize,
    magazines: Mutex<([Magazine; MAGAZINES], usize)>,
}

impl Depot {
    const fn new() -> Self {
        let magazines = Mutex::new(([const { Magazine::EMPTY }; MAGAZINES], 0));
        Self {
            layout: OnceLock::new(),
            stock: AtomicUsize::new(0),
            magazines,
        }
    }

    /// Returns the depot of a layout; `None` if other layouts have all depots.
    pub(super) fn of(layout: Layout) -> Option<&'static Self> {
        let mut depots = DEPOTS.iter().cycle().skip(home(layout)).take(CLASSES);
        depots.find(|depot| *depot.layout.get_or_init(|| layout) == layout)
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

    fn lock(&self) -> MutexGuard<'_, ([Magazine; MAGAZINES], usize)> {
        // No code panics while it holds the lock.
        self.magazines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
