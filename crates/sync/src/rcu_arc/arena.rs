//! Arenas: the memory of counted values, in pages of equal places.
//!
//! Each [hash map](crate::rcu_hash_map) has an arena for its values. A value takes its own size and
//! no more. The system's allocator takes up to 112 bytes more for a value that is aligned to a
//! cache line. A page is mapped, and returns to the system with its last value. So a cache that is
//! dropped leaves no memory behind, whatever other caches hold and wherever the allocator keeps
//! free memory. A map also visits its values in the order
//! of their addresses, in which the processor fetches them ahead.
//!
//! A page belongs to the CPU that allocated it. A free place is taken and returned under the lock
//! of that CPU, so threads on other CPUs seldom wait. Each CPU keeps one empty page while the arena
//! lives. (J. Bonwick, "The Slab Allocator", 1994, calls such a page a slab.)
//!
//! A value knows its distance from the start of its page ([`Link`]), so pages need no alignment
//! beyond a line. Each page owns a reference to the pool that it came from, so values may outlive
//! their arena.
//!
//! There are no loom tests of this module, since one lock guards each page. In models each value
//! has a page alone, so that loom finds late accesses.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
// A lock of the standard library, also in models, which have nothing to explore under it.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

#[cfg(not(feature = "loom"))]
use crate::fork::generation;
use crate::percpu::PerCpu;
use crate::primitive::capacity;
use crate::rcu_arc::{Inner, Link, Release};

/// Lines of a page with its header.
const LINES: usize = 512;
/// Whether a CPU keeps an empty page.
const KEEPS_EMPTY: bool = capacity(true, false);
/// Places lie at multiples of this from the start of their page.
const LINE: usize = 64;

/// Memory for values of one type.
pub(crate) struct Arena<T: Release> {
    pool: Arc<Pool>,
    holds: PhantomData<fn() -> T>,
}

/// The pages of an arena. All places are of one size.
struct Pool {
    place: usize,
    page: Layout,
    /// The process that made it, by the number of forks before.
    generation: u32,
    cpus: PerCpu<Mutex<Pages>>,
}

/// The pages of a CPU.
#[derive(Default)]
struct Pages {
    /// Pages that have a free place.
    free: List,
    full: List,
    /// The arena has been dropped.
    is_closed: bool,
}

/// A doubly linked list of pages.
#[derive(Default)]
struct List {
    first: Option<NonNull<Page>>,
}

/// The header of a page. The lock at `pages` guards the fields below it.
#[repr(C, align(64))]
pub(crate) struct Page {
    pool: Arc<Pool>,
    /// In the pool.
    pages: NonNull<Mutex<Pages>>,
    /// A list that runs through the places that were used and are free.
    free: Option<NonNull<Free>>,
    /// Offset of the places that have never been used.
    unused: usize,
    /// Values in the page.
    live: usize,
    next: Option<NonNull<Page>>,
    previous: Option<NonNull<Page>>,
    /// A bit for each line where a value begins.
    values: [u64; LINES / 64],
}

struct Free(Option<NonNull<Free>>);

/// Bytes of a page, unless one value and the header need more.
const fn page_bytes() -> usize {
    capacity(LINES * LINE, 0)
}

const _: () = assert!(size_of::<Page>() == 2 * LINE || size_of::<usize>() != 8);

// SAFETY: the lock guards the pages of the list.
unsafe impl Send for Pages {}

impl<T: Release> Arena<T> {
    /// Creates an arena without a page.
    pub(crate) fn new() -> Self {
        let place = Layout::new::<Inner<T>>();
        assert!(place.align() == LINE, "values are aligned to a line");
        let bytes = page_bytes().max(size_of::<Page>() + place.size());
        let page = Layout::from_size_align(bytes, LINE).expect("a few pages of the system");
        Self {
            pool: Arc::new(Pool {
                place: place.size(),
                page,
                generation: generation(),
                cpus: PerCpu::new(),
            }),
            holds: PhantomData,
        }
    }

    /// Moves a value to the memory of the arena. The caller frees it by [`Page::free`].
    pub(crate) fn alloc(&self, mut value: Inner<T>) -> NonNull<Inner<T>> {
        // Under the lock: the values of a page are complete.
        self.pool.alloc(move |place, lines| {
            // OK: a page is shorter than 65,536 lines.
            value.link_mut().lines = lines as u16;
            let place = place.cast();
            // SAFETY: the place is of the size of an `Inner<T>`, and has no other user.
            unsafe { place.write(value) };
            place
        })
    }

    /// Returns whether a value came from this arena.
    pub(crate) fn has(&self, value: &Link, at: NonNull<Inner<T>>) -> bool {
        // SAFETY: the value has a page if it is some lines away from it.
        let pool = || unsafe { &Page::of(at, value.lines).as_ref().pool };
        value.lines != 0 && Arc::ptr_eq(pool(), &self.pool)
    }

    /// Returns all values in a map, page by page in the order of their addresses. In a child of the
    /// process that made the arena, values of a CPU whose pages are locked are left out.
    pub(crate) fn linked(&self) -> Vec<NonNull<Inner<T>>> {
        let mut linked = Vec::new();
        for cpu in self.pool.cpus.iter() {
            let Some(pages) = self.pool.lock_to_free(cpu) else {
                continue;
            };
            for page in pages.full.iter().chain(pages.free.iter()) {
                // SAFETY: the lock guards the page.
                let values = unsafe { Page::values::<T>(page) };
                // SAFETY: the memory of a value is filled and freed under the lock.
                linked.extend(values.filter(|at| unsafe { Inner::link_at(*at) }.is_linked()));
            }
        }
        linked
    }
}

impl<T: Release> Drop for Arena<T> {
    fn drop(&mut self) {
        for cpu in self.pool.cpus.iter() {
            let Some(mut pages) = self.pool.lock_to_free(cpu) else {
                continue;
            };
            let empty = pages.close();
            drop(pages);
            // SAFETY: `close` took it out of its list, and it has no value.
            empty.into_iter().for_each(|page| unsafe { release(page) });
        }
    }
}

impl<T: Release> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").finish_non_exhaustive()
    }
}

impl Pool {
    /// Returns what `fill` returns for a free place and its distance from its page in lines.
    #[inline]
    fn alloc<R>(self: &Arc<Self>, fill: impl FnOnce(NonNull<u8>, usize) -> R) -> R {
        let cpu = self.cpus.local();
        let mut pages = lock(cpu);
        let page = match pages.free.first {
            Some(page) => page,
            None => {
                drop(pages);
                let page = self.new_page(cpu);
                pages = lock(cpu);
                // SAFETY: the page is new, and the lock is held.
                unsafe { pages.free.insert(page) };
                page
            }
        };
        // SAFETY: the lock is held, and a page in the list has a free place.
        unsafe {
            let place = Page::take(page);
            if !self.has_room(page) {
                pages.free.remove(page);
                pages.full.insert(page);
            }
            fill(place, line(page, place))
        }
    }

    /// Locks the pages of a CPU; `None` in a child of the process that made the pool, if they are
    /// locked. Then a thread that the child does not have may hold the lock, and the memory leaks.
    fn lock_to_free<'a>(&self, cpu: &'a Mutex<Pages>) -> Option<MutexGuard<'a, Pages>> {
        if self.generation == generation() {
            return Some(lock(cpu));
        }
        match cpu.try_lock() {
            Ok(pages) => Some(pages),
            Err(TryLockError::Poisoned(pages)) => Some(pages.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn new_page(self: &Arc<Self>, cpu: &Mutex<Pages>) -> NonNull<Page> {
        let page = map(self.page).cast::<Page>();
        let header = Page {
            pool: Arc::clone(self),
            pages: NonNull::from(cpu),
            free: None,
            unused: size_of::<Page>(),
            live: 0,
            next: None,
            previous: None,
            values: [0; LINES / 64],
        };
        // SAFETY: the memory is aligned for a header, and has no other user.
        unsafe { page.write(header) };
        page
    }

    /// # Safety
    /// The page is one of this pool, and the lock of its CPU is held.
    unsafe fn has_room(&self, page: NonNull<Page>) -> bool {
        // SAFETY: the caller's promise.
        let page = unsafe { page.as_ref() };
        page.free.is_some() || page.unused + self.place <= self.page.size()
    }
}

impl Page {
    /// Takes a free place.
    ///
    /// # Safety
    /// The page has one, and the lock is held.
    unsafe fn take(page: NonNull<Self>) -> NonNull<u8> {
        // SAFETY: the lock guards the header.
        let header = unsafe { &mut *page.as_ptr() };
        let place = match header.free {
            Some(place) => {
                // SAFETY: a free place holds what `put` wrote.
                header.free = unsafe { place.read() }.0;
                place.cast()
            }
            None => {
                let offset = header.unused;
                header.unused += header.pool.place;
                // SAFETY: the offset lies in the page, since it has a free place.
                unsafe { page.byte_add(offset) }.cast()
            }
        };
        header.live += 1;
        header.flip(line(page, place));
        place
    }

    /// Notes that a value begins or ends to be at a line.
    fn flip(&mut self, line: usize) {
        self.values[line / 64] ^= 1 << (line % 64);
    }

    /// Returns the values of a page.
    ///
    /// # Safety
    /// The lock is held, and the page is one of an arena for `T`.
    unsafe fn values<T: Release>(page: NonNull<Self>) -> impl Iterator<Item = NonNull<Inner<T>>> {
        // SAFETY: the lock guards the header.
        let words = unsafe { page.as_ref() }.values.into_iter();
        let lines = (0..).step_by(64).zip(words).flat_map(|(first, mut left)| {
            std::iter::from_fn(move || {
                let line = (left != 0).then(|| first + left.trailing_zeros() as usize);
                left &= left.wrapping_sub(1);
                line
            })
        });
        // SAFETY: the line is one of the page.
        lines.map(move |line| unsafe { page.byte_add(line * LINE) }.cast())
    }

    /// Returns the page of a value that is `lines` away from its start.
    ///
    /// # Safety
    /// [`Arena::alloc`] returned both, and the value has not been freed.
    pub(crate) unsafe fn of<T: Release>(value: NonNull<Inner<T>>, lines: u16) -> NonNull<Self> {
        // SAFETY: the page begins at that distance.
        unsafe { value.byte_sub(usize::from(lines) * LINE) }.cast()
    }

    /// Frees the places of values that have been dropped.
    ///
    /// # Safety
    /// All are places of this page that [`Arena::alloc`] returned, and none has a user.
    pub(crate) unsafe fn free<T: Release>(page: NonNull<Self>, places: &[NonNull<Inner<T>>]) {
        // SAFETY: the page exists as long as it has values, and it keeps its pool, with the lock.
        let cpu = unsafe { (*page.as_ptr()).pages.as_ref() };
        // SAFETY: as above, and the pool of a page does not change.
        let Some(mut pages) = (unsafe { (*page.as_ptr()).pool.lock_to_free(cpu) }) else {
            return;
        };
        // SAFETY: the lock is held.
        let is_empty = unsafe {
            if !(*page.as_ptr()).pool.has_room(page) {
                pages.full.remove(page);
                pages.free.insert(page);
            }
            for place in places {
                Page::put(page, place.cast());
            }
            (*page.as_ptr()).live == 0
        };
        let is_kept = KEEPS_EMPTY && !pages.is_closed && pages.free.has_only(page);
        if is_empty && !is_kept {
            // SAFETY: a page with a free place is in the list, and the lock is held.
            unsafe { pages.free.remove(page) };
            drop(pages);
            // SAFETY: no list has the page, and it has no value.
            unsafe { release(page) };
        }
    }

    /// Returns a place.
    ///
    /// # Safety
    /// The place is one of this page, and has no user. The lock is held.
    unsafe fn put(page: NonNull<Self>, place: NonNull<Free>) {
        // SAFETY: the lock guards the header.
        let header = unsafe { &mut *page.as_ptr() };
        // SAFETY: a place is larger than a pointer, and aligned to a line.
        unsafe { place.write(Free(header.free)) };
        header.free = Some(place);
        header.live -= 1;
        header.flip(line(page, place.cast()));
    }
}

/// Returns the distance of a place from its page.
fn line(page: NonNull<Page>, place: NonNull<u8>) -> usize {
    (place.addr().get() - page.addr().get()) / LINE
}

impl Pages {
    /// Has pages released as soon as they are empty. Returns the empty page that was kept.
    fn close(&mut self) -> Option<NonNull<Page>> {
        self.is_closed = true;
        // SAFETY: the lock guards the pages of the list.
        let is_empty = |page: &NonNull<Page>| unsafe { page.as_ref() }.live == 0;
        let empty = self.free.iter().find(is_empty)?;
        // SAFETY: as above.
        unsafe { self.free.remove(empty) };
        Some(empty)
    }
}

impl List {
    /// # Safety
    /// The page is in no list, and the lock is held.
    unsafe fn insert(&mut self, page: NonNull<Page>) {
        // SAFETY: the lock guards the pages of the list, and the caller has this one.
        unsafe {
            (*page.as_ptr()).next = self.first;
            (*page.as_ptr()).previous = None;
            if let Some(next) = self.first {
                (*next.as_ptr()).previous = Some(page);
            }
        }
        self.first = Some(page);
    }

    /// # Safety
    /// The page is in this list, and the lock is held.
    unsafe fn remove(&mut self, page: NonNull<Page>) {
        // SAFETY: the lock guards the pages of the list.
        unsafe {
            let &Page { next, previous, .. } = page.as_ref();
            match previous {
                Some(previous) => (*previous.as_ptr()).next = next,
                None => self.first = next,
            }
            if let Some(next) = next {
                (*next.as_ptr()).previous = previous;
            }
        }
    }

    /// Returns the pages. The caller holds the lock as long as it uses them.
    fn iter(&self) -> impl Iterator<Item = NonNull<Page>> {
        // SAFETY: the lock guards the pages of the list.
        std::iter::successors(self.first, |page| unsafe { page.as_ref() }.next)
    }

    /// Returns whether the list has no other page. The page is in the list.
    fn has_only(&self, page: NonNull<Page>) -> bool {
        self.first == Some(page) && self.iter().nth(1).is_none()
    }
}

/// Returns a page to the system.
///
/// # Safety
/// No list has the page, and it has no value.
unsafe fn release(page: NonNull<Page>) {
    // SAFETY: the header is not used again.
    let Page { pool, .. } = unsafe { page.read() };
    // SAFETY: the memory came from `map` with this layout, and has no user.
    unsafe { unmap(page.cast(), pool.page) };
}

/// Bytes of the pages of all arenas. Relaxed: a statistic.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of the pages of all arenas.
pub(crate) fn mapped_bytes() -> usize {
    MAPPED.load(Relaxed)
}

fn map(page: Layout) -> NonNull<u8> {
    MAPPED.fetch_add(page.size(), Relaxed);
    let flags = MapFlags::PRIVATE;
    // SAFETY: this maps new memory, at an address that is free.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            page.size(),
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    };
    let memory = mapped.ok().and_then(|at| NonNull::new(at.cast()));
    memory.unwrap_or_else(|| handle_alloc_error(page))
}

/// # Safety
/// The memory came from [`map`] with this layout, and has no user.
unsafe fn unmap(at: NonNull<u8>, page: Layout) {
    MAPPED.fetch_sub(page.size(), Relaxed);
    let at = at.as_ptr().cast();
    // SAFETY: the caller's promise.
    unsafe {
        // A process that has as many mappings as it may cannot split one, but its memory is free
        // after this.
        if munmap(at, page.size()).is_err() {
            let _ = madvise(at, page.size(), Advice::LinuxDontNeed);
        }
    }
}

/// Returns 0: models do not fork.
#[cfg(feature = "loom")]
fn generation() -> u32 {
    0
}

fn lock(cpu: &Mutex<Pages>) -> MutexGuard<'_, Pages> {
    // No code panics while it holds the lock.
    cpu.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::rcu::pin;
    use crate::rcu_arc::{Last, RcuArc};

    struct Value(u64);

    impl Release for Value {
        type Link = Last;
    }

    /// Returns the pages of all CPUs.
    fn pages<T: Release>(arena: &Arena<T>) -> usize {
        let count = |cpu: &Mutex<Pages>| {
            let pages = lock(cpu);
            pages.full.iter().chain(pages.free.iter()).count()
        };
        arena.pool.cpus.iter().map(count).sum()
    }

    fn made(arena: &Arena<Value>, values: u64) -> Vec<RcuArc<Value>> {
        let make = |value| RcuArc::new_in(Value(value), arena);
        (0..values).map(make).collect()
    }

    /// Frees what has been dropped. Readers of other tests delay that.
    fn wait_until(is_done: impl Fn() -> bool) {
        while !is_done() {
            pin().flush_all();
            std::thread::yield_now();
        }
    }

    #[test]
    fn values_of_a_page_lie_next_to_each_other_and_keep_their_contents() {
        let arena = Arena::new();
        let values = made(&arena, 10_000);
        assert!(
            (0..)
                .zip(&values)
                .all(|(number, value)| (**value).0 == number)
        );
        let bytes = RcuArc::<Value>::BYTES * values.len();
        assert!((1..=2 + bytes / (page_bytes() * 99 / 100)).contains(&pages(&arena)));
        let mut addresses: Vec<_> = values.iter().map(|value| &raw const **value).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), values.len());
    }

    #[test]
    fn a_page_is_freed_with_its_last_value() {
        let arena = Arena::new();
        let mut values = made(&arena, 10_000);
        let full = pages(&arena);
        let last = values.swap_remove(5_000);
        values.truncate(5_000);
        wait_until(|| pages(&arena) < full * 2 / 3);
        drop(values);
        // The page of the last value, and an empty one a CPU.
        wait_until(|| pages(&arena) <= 1 + arena.pool.cpus.iter().count());
        assert_eq!((*last).0, 5_000);
    }

    #[test]
    fn freed_places_are_used_again() {
        let arena = Arena::new();
        let values = made(&arena, 10_000);
        let full = pages(&arena);
        let kept: Vec<_> = values.into_iter().step_by(2).collect();
        let free = || {
            let cpus = arena.pool.cpus.iter();
            cpus.map(|cpu| lock(cpu).free.iter().count()).sum::<usize>()
        };
        wait_until(|| free() >= full - 1);
        let more = made(&arena, 4_000);
        // A thread may have moved to a CPU that has no page.
        assert!(pages(&arena) <= full + arena.pool.cpus.iter().count());
        assert!(kept.iter().step_by(9).all(|value| (**value).0 % 2 == 0) && more.len() == 4_000);
    }

    #[test]
    fn values_outlive_their_arena() {
        let arena = Arena::new();
        let pool = Arc::downgrade(&arena.pool);
        let values = made(&arena, 1_000);
        drop(arena);
        assert!(values.iter().all(|value| (**value).0 < 1_000) && pool.strong_count() > 0);
        drop(values);
        wait_until(|| pool.strong_count() == 0);
    }
}
