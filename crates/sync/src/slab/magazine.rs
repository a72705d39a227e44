//! What a thread keeps.

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem;
use std::ptr::NonNull;

use super::depot::Depot;
use crate::epoch::local;

/// Layouts of which pieces are kept, at most.
pub(super) const CLASSES: usize = 64;
/// So many places are looked at for a layout.
const PROBES: usize = 4;
/// Pieces of a lot, unless they are large or there are many threads: as many as a thread retires until RCU lets it free some.
pub(super) const OBJECTS: usize = 512;
/// Bytes of a lot, at most.
const MAGAZINE_BYTES: usize = 256 << 10;
/// Pieces of a layout that all threads may keep in a lot each, unless there are very many threads: an idle one gives none back.
const MAX_OBJECTS: usize = 8 * OBJECTS;
/// Pieces of a lot, however many threads there are.
const MIN_OBJECTS: usize = 16;

/// A list of pieces of one layout, which the global allocator has given out and which are nobody's.
pub(super) struct Magazine {
    /// The first piece. Each holds the address of the next, wherever it begins.
    first: Option<NonNull<Next>>,
    len: usize,
}

struct Next(Option<NonNull<Next>>);

// SAFETY: the pieces are the list's own.
unsafe impl Send for Magazine {}

/// Pieces of one layout that a thread keeps.
struct SizeClass {
    /// Of no size if there has been none yet.
    layout: Layout,
    /// So many are a lot.
    capacity: usize,
    /// Taken from, and put to.
    current: Magazine,
    /// Full or empty.
    other: Magazine,
    /// There is one where there is a layout.
    depot: Option<&'static Depot>,
}

/// Each layout is in the first place from its [`home`] on that was free when the thread met it.
struct ThreadCache([SizeClass; CLASSES]);

thread_local! {
    static CACHE: RefCell<ThreadCache> = const { RefCell::new(ThreadCache([const { SizeClass::NONE }; CLASSES])) };
}

/// A piece of memory that this thread has kept, or has from a shelf.
#[inline]
pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
    let taken = CACHE.try_with(|cache| cache.borrow_mut().class(layout)?.pop());
    // A thread that is about to end has nothing.
    taken.ok().flatten().map(NonNull::cast)
}

/// Keeps a piece that is nobody's and has been given out for this layout; false if none of it are kept.
#[inline]
pub(super) fn cache(object: NonNull<u8>, layout: Layout) -> bool {
    if layout.size() < size_of::<Next>() {
        return false;
    }
    let kept = CACHE.try_with(|cache| {
        let mut spares = cache.borrow_mut();
        let Some(class) = spares.class(layout) else { return false };
        // SAFETY: the piece is nobody's, and of this layout.
        unsafe { class.push(object.cast()) };
        true
    });
    kept.unwrap_or(false)
}

/// The place where a layout is looked for first.
#[inline]
pub(super) fn home(layout: Layout) -> usize {
    layout.size() / 16 % CLASSES
}

impl ThreadCache {
    /// Where pieces of this layout are kept, if they are.
    #[inline]
    fn class(&mut self, layout: Layout) -> Option<&mut SizeClass> {
        let first = home(layout);
        let at = if self.0[first].layout == layout { first } else { self.find(layout)? };
        Some(&mut self.0[at])
    }

    fn find(&mut self, layout: Layout) -> Option<usize> {
        let first = home(layout);
        let is_it = |class: &SizeClass| class.layout == layout || class.layout.size() == 0;
        let at = (first..first + PROBES).map(|at| at % CLASSES).find(|&at| is_it(&self.0[at]))?;
        if self.0[at].layout != layout {
            self.0[at] = SizeClass::of(layout)?;
        }
        Some(at)
    }
}

impl Drop for ThreadCache {
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

impl SizeClass {
    const NONE: Self = Self {
        layout: Layout::new::<()>(),
        capacity: 0,
        current: Magazine::EMPTY,
        other: Magazine::EMPTY,
        depot: None,
    };

    #[cold]
    fn of(layout: Layout) -> Option<Self> {
        let share = (MAX_OBJECTS / local::threads().max(1)).max(MIN_OBJECTS);
        let capacity = MAGAZINE_BYTES.checked_div(layout.size())?.clamp(1, OBJECTS).min(share);
        Some(Self { layout, capacity, depot: Some(Depot::of(layout)?), ..Self::NONE })
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Next>> {
        self.current.pop().or_else(|| self.pop_other())
    }

    fn pop_other(&mut self) -> Option<NonNull<Next>> {
        mem::swap(&mut self.current, &mut self.other);
        if self.current.len == 0 {
            self.current = self.depot?.take()?;
        }
        self.current.pop()
    }

    /// # Safety
    /// `object` is nobody's, and of this layout.
    #[inline]
    unsafe fn push(&mut self, object: NonNull<Next>) {
        // A lot from the shelf may be longer than those of this thread.
        if self.current.len >= self.capacity {
            self.begin_magazine();
        }
        // SAFETY: the caller's promise.
        unsafe { self.current.push(object) };
    }

    #[cold]
    fn begin_magazine(&mut self) {
        mem::swap(&mut self.current, &mut self.other);
        if self.current.len > 0 {
            let full = mem::replace(&mut self.current, Magazine::EMPTY);
            let put = self.depot.map_or(Ok(()), |depot| depot.put(full));
            if let Err(mut full) = put {
                // SAFETY: the pieces are of the class's layout.
                unsafe { full.end(self.layout) };
            }
        }
    }
}

impl Magazine {
    pub(super) const EMPTY: Self = Self { first: None, len: 0 };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Next>> {
        let object = self.first?;
        // SAFETY: a piece in the list is nobody else's, and holds what `push` wrote.
        self.first = unsafe { object.read_unaligned() }.0;
        self.len -= 1;
        Some(object)
    }

    /// # Safety
    /// `object` is nobody's, of the lot's layout, and there is room in it for the address of another.
    #[inline]
    unsafe fn push(&mut self, object: NonNull<Next>) {
        // SAFETY: the caller's promise.
        unsafe { object.write_unaligned(Next(self.first)) };
        self.first = Some(object);
        self.len += 1;
    }

    /// Gives the pieces back to the allocator.
    ///
    /// # Safety
    /// They are of this layout.
    unsafe fn end(&mut self, layout: Layout) {
        while let Some(object) = self.pop() {
            // SAFETY: the global allocator has given the piece out for the layout, and it is nobody's.
            unsafe { dealloc(object.cast().as_ptr(), layout) };
        }
    }
}
