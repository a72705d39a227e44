//! The magazines of each thread: the free objects that it keeps, by layout.
//!
//! [`slab`](super) takes and returns objects here. Only the owning thread touches its magazines, so
//! they have no lock. A thread that ends frees its objects. For layouts beyond the first
//! [`CLASSES`], and while a thread ends, the global allocator serves.

use std::alloc::{Layout, dealloc};
use std::cell::RefCell;
use std::mem;
use std::ptr::NonNull;

use super::depot::Depot;
use crate::epoch::local;

/// Layouts that a thread caches, at most.
pub(super) const CLASSES: usize = 64;
/// Entries of the thread cache that a search for a layout looks at.
const PROBES: usize = 4;
/// Objects of a magazine, unless they are large or threads are many. A thread retires about this
/// many before RCU lets it free some.
pub(super) const OBJECTS: usize = 512;
/// Bytes of a magazine, at most.
const MAGAZINE_BYTES: usize = 256 << 10;
/// Objects of a layout in one magazine of every thread together, unless there are very many
/// threads. An idle thread returns none, so this bounds the memory.
const MAX_OBJECTS: usize = 8 * OBJECTS;
/// Objects of a magazine, at least, however many threads there are.
const MIN_OBJECTS: usize = 16;

/// A list of free objects of one layout, all from the global allocator.
pub(super) struct Magazine {
    /// The first object. Each holds the address of the next in its first bytes.
    first: Option<NonNull<Next>>,
    len: usize,
}

struct Next(Option<NonNull<Next>>);

// SAFETY: the list owns its objects.
unsafe impl Send for Magazine {}

/// The free objects of one layout that a thread keeps.
struct SizeClass {
    /// Size 0 while the entry is unused.
    layout: Layout,
    /// Objects of a magazine.
    capacity: usize,
    /// The magazine that objects are taken from and put into.
    current: Magazine,
    /// A full or an empty magazine.
    other: Magazine,
    /// `Some` in each used entry.
    depot: Option<&'static Depot>,
}

/// The size classes of a thread. A layout has the first entry, from its [`home`] on, that was
/// unused when the thread first met the layout.
struct ThreadCache([SizeClass; CLASSES]);

thread_local! {
    static CACHE: RefCell<ThreadCache> = const { RefCell::new(ThreadCache([const { SizeClass::NONE }; CLASSES])) };
}

/// Takes an object from the thread's magazines or from the depot.
#[inline]
pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
    let taken = CACHE.try_with(|cache| cache.borrow_mut().class(layout)?.pop());
    // A thread that is ending has no cache any more.
    taken.ok().flatten().map(NonNull::cast)
}

/// Keeps a free object that was allocated with `layout`. Returns false if the layout is not cached.
#[inline]
pub(super) fn cache(object: NonNull<u8>, layout: Layout) -> bool {
    if layout.size() < size_of::<Next>() {
        return false;
    }
    let kept = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        let Some(class) = cache.class(layout) else {
            return false;
        };
        // SAFETY: the object is free and of this layout.
        unsafe { class.push(object.cast()) };
        true
    });
    kept.unwrap_or(false)
}

/// Returns the entry where the search for a layout begins.
#[inline]
pub(super) fn home(layout: Layout) -> usize {
    layout.size() / 16 % CLASSES
}

impl ThreadCache {
    /// Returns the size class of a layout; `None` if the layout is not cached.
    #[inline]
    fn class(&mut self, layout: Layout) -> Option<&mut SizeClass> {
        let first = home(layout);
        let at = if self.0[first].layout == layout {
            first
        } else {
            self.find(layout)?
        };
        Some(&mut self.0[at])
    }

    fn find(&mut self, layout: Layout) -> Option<usize> {
        let first = home(layout);
        let is_it = |class: &SizeClass| class.layout == layout || class.layout.size() == 0;
        let at = (first..first + PROBES)
            .map(|at| at % CLASSES)
            .find(|&at| is_it(&self.0[at]))?;
        if self.0[at].layout != layout {
            self.0[at] = SizeClass::of(layout)?;
        }
        Some(at)
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        for class in &mut self.0 {
            // SAFETY: the objects are of the class's layout.
            unsafe {
                class.current.release(class.layout);
                class.other.release(class.layout);
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
        let capacity = MAGAZINE_BYTES
            .checked_div(layout.size())?
            .clamp(1, OBJECTS)
            .min(share);
        Some(Self {
            layout,
            capacity,
            depot: Some(Depot::of(layout)?),
            ..Self::NONE
        })
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
    /// `object` is free and of this class's layout.
    #[inline]
    unsafe fn push(&mut self, object: NonNull<Next>) {
        // A magazine from the depot may be longer than this thread's own.
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
            let put = match self.depot {
                Some(depot) => depot.put(full),
                None => Ok(()),
            };
            if let Err(mut full) = put {
                // SAFETY: the objects are of the class's layout.
                unsafe { full.release(self.layout) };
            }
        }
    }
}

impl Magazine {
    pub(super) const EMPTY: Self = Self {
        first: None,
        len: 0,
    };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Next>> {
        let object = self.first?;
        // SAFETY: an object in the list has no other user and holds what `push` wrote.
        self.first = unsafe { object.read_unaligned() }.0;
        self.len -= 1;
        Some(object)
    }

    /// # Safety
    /// `object` is free, of the magazine's layout, and large enough for an address.
    #[inline]
    unsafe fn push(&mut self, object: NonNull<Next>) {
        // SAFETY: the caller's promise.
        unsafe { object.write_unaligned(Next(self.first)) };
        self.first = Some(object);
        self.len += 1;
    }

    /// Returns the objects to the allocator.
    ///
    /// # Safety
    /// The objects are of this layout.
    unsafe fn release(&mut self, layout: Layout) {
        while let Some(object) = self.pop() {
            // SAFETY: the object came from the global allocator with this layout and is free.
            unsafe { dealloc(object.cast().as_ptr(), layout) };
        }
    }
}
