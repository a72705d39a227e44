//! What a thread keeps.

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem;
use std::ptr::NonNull;

use super::shelf::Shelf;
use crate::epoch::local;

/// Layouts of which pieces are kept, at most.
pub(super) const CLASSES: usize = 64;
/// So many places are looked at for a layout.
const PROBES: usize = 4;
/// Pieces of a lot, unless they are large or there are many threads: as many as a thread retires until RCU lets it free some.
pub(super) const LOT: usize = 512;
/// Bytes of a lot, at most.
const LOT_BYTES: usize = 256 << 10;
/// Pieces of a layout that all threads may keep in a lot each, unless there are very many threads: an idle one gives none back.
const PIECES: usize = 8 * LOT;
/// Pieces of a lot, however many threads there are.
const FEWEST: usize = 16;

/// A list of pieces of one layout, which the global allocator has given out and which are nobody's.
pub(super) struct Lot {
    /// The first piece. Each holds the address of the next, wherever it begins.
    first: Option<NonNull<Next>>,
    len: usize,
}

struct Next(Option<NonNull<Next>>);

// SAFETY: the pieces are the list's own.
unsafe impl Send for Lot {}

/// Pieces of one layout that a thread keeps.
struct Class {
    /// Of no size if there has been none yet.
    layout: Layout,
    /// So many are a lot.
    lot: usize,
    /// Taken from, and put to.
    current: Lot,
    /// Full or empty.
    other: Lot,
    /// There is one where there is a layout.
    shelf: Option<&'static Shelf>,
}

/// Each layout is in the first place from its [`home`] on that was free when the thread met it.
struct Spares([Class; CLASSES]);

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares([const { Class::NONE }; CLASSES])) };
}

/// A piece of memory that this thread has kept, or has from a shelf.
#[inline]
pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
    let taken = SPARES.try_with(|spares| spares.borrow_mut().class(layout)?.pop());
    // A thread that is about to end has nothing.
    taken.ok().flatten().map(NonNull::cast)
}

/// Keeps a piece that is nobody's and has been given out for this layout; false if none of it are kept.
#[inline]
pub(super) fn keep(piece: NonNull<u8>, layout: Layout) -> bool {
    if layout.size() < size_of::<Next>() {
        return false;
    }
    let kept = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        let Some(class) = spares.class(layout) else { return false };
        // SAFETY: the piece is nobody's, and of this layout.
        unsafe { class.push(piece.cast()) };
        true
    });
    kept.unwrap_or(false)
}

/// The place where a layout is looked for first.
#[inline]
pub(super) fn home(layout: Layout) -> usize {
    layout.size() / 16 % CLASSES
}

impl Spares {
    /// Where pieces of this layout are kept, if they are.
    #[inline]
    fn class(&mut self, layout: Layout) -> Option<&mut Class> {
        let first = home(layout);
        let at = if self.0[first].layout == layout { first } else { self.find(layout)? };
        Some(&mut self.0[at])
    }

    fn find(&mut self, layout: Layout) -> Option<usize> {
        let first = home(layout);
        let is_it = |class: &Class| class.layout == layout || class.layout.size() == 0;
        let at = (first..first + PROBES).map(|at| at % CLASSES).find(|&at| is_it(&self.0[at]))?;
        if self.0[at].layout != layout {
            self.0[at] = Class::of(layout)?;
        }
        Some(at)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for class in &mut self.0 {
            // SAFETY: the pieces are of its layout.
            unsafe {
                class.current.end(class.layout);
                class.other.end(class.layout);
            }
        }
    }
}

impl Class {
    const NONE: Self =
        Self { layout: Layout::new::<()>(), lot: 0, current: Lot::EMPTY, other: Lot::EMPTY, shelf: None };

    #[cold]
    fn of(layout: Layout) -> Option<Self> {
        let share = (PIECES / local::threads().max(1)).max(FEWEST);
        let lot = LOT_BYTES.checked_div(layout.size())?.clamp(1, LOT).min(share);
        Some(Self { layout, lot, shelf: Some(Shelf::of(layout)?), ..Self::NONE })
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Next>> {
        self.current.pop().or_else(|| self.pop_other())
    }

    fn pop_other(&mut self) -> Option<NonNull<Next>> {
        mem::swap(&mut self.current, &mut self.other);
        if self.current.len == 0 {
            self.current = self.shelf?.take()?;
        }
        self.current.pop()
    }

    /// # Safety
    /// `piece` is nobody's, and of this layout.
    #[inline]
    unsafe fn push(&mut self, piece: NonNull<Next>) {
        // A lot from the shelf may be longer than those of this thread.
        if self.current.len >= self.lot {
            self.begin_lot();
        }
        // SAFETY: the caller's promise.
        unsafe { self.current.push(piece) };
    }

    #[cold]
    fn begin_lot(&mut self) {
        mem::swap(&mut self.current, &mut self.other);
        if self.current.len > 0 {
            let full = mem::replace(&mut self.current, Lot::EMPTY);
            let put = self.shelf.map_or(Ok(()), |shelf| shelf.put(full));
            if let Err(mut full) = put {
                // SAFETY: the pieces are of the class's layout.
                unsafe { full.end(self.layout) };
            }
        }
    }
}

impl Lot {
    pub(super) const EMPTY: Self = Self { first: None, len: 0 };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Next>> {
        let piece = self.first?;
        // SAFETY: a piece in the list is nobody else's, and holds what `push` wrote.
        self.first = unsafe { piece.read_unaligned() }.0;
        self.len -= 1;
        Some(piece)
    }

    /// # Safety
    /// `piece` is nobody's, of the lot's layout, and there is room in it for the address of another.
    #[inline]
    unsafe fn push(&mut self, piece: NonNull<Next>) {
        // SAFETY: the caller's promise.
        unsafe { piece.write_unaligned(Next(self.first)) };
        self.first = Some(piece);
        self.len += 1;
    }

    /// Gives the pieces back to the allocator.
    ///
    /// # Safety
    /// They are of this layout.
    unsafe fn end(&mut self, layout: Layout) {
        while let Some(piece) = self.pop() {
            // SAFETY: the global allocator has given the piece out for the layout, and it is nobody's.
            unsafe { dealloc(piece.cast().as_ptr(), layout) };
        }
    }
}
