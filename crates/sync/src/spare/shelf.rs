//! Lots that threads had too many of.

use std::alloc::Layout;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::lots::{CLASSES, Lot, home};

/// Lots of one layout that are kept here, at most.
pub(super) const LOTS: usize = 16;

static SHELVES: [Shelf; CLASSES] = [const { Shelf::new() }; CLASSES];

/// Lots of one layout.
#[repr(align(128))]
pub(super) struct Shelf {
    layout: OnceLock<Layout>,
    /// How many there are, told under the lock: whoever finds none need not take it. It says no more than where to look, so Relaxed.
    stock: AtomicUsize,
    lots: Mutex<([Lot; LOTS], usize)>,
}

impl Shelf {
    const fn new() -> Self {
        let lots = Mutex::new(([const { Lot::EMPTY }; LOTS], 0));
        Self { layout: OnceLock::new(), stock: AtomicUsize::new(0), lots }
    }

    /// The one for this layout, unless others have all that there are.
    pub(super) fn of(layout: Layout) -> Option<&'static Self> {
        let mut shelves = SHELVES.iter().cycle().skip(home(layout)).take(CLASSES);
        shelves.find(|shelf| *shelf.layout.get_or_init(|| layout) == layout)
    }

    /// A full lot.
    pub(super) fn take(&self) -> Option<Lot> {
        if self.stock.load(Relaxed) == 0 {
            return None;
        }
        let (lots, len) = &mut *self.lock();
        *len = len.checked_sub(1)?;
        self.stock.store(*len, Relaxed);
        Some(mem::replace(&mut lots[*len], Lot::EMPTY))
    }

    /// Puts one here; the lot itself, if that were too many.
    pub(super) fn put(&self, lot: Lot) -> Result<(), Lot> {
        let (lots, len) = &mut *self.lock();
        let Some(room) = lots.get_mut(*len) else { return Err(lot) };
        *room = lot;
        *len += 1;
        self.stock.store(*len, Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ([Lot; LOTS], usize)> {
        // Nothing panics that has it.
        self.lots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
