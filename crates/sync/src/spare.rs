//! Memory for values that are made and ended again and again.
//!
//! What RCU readers look at is allocated one by one and freed in bursts, when no reader can be looking any more; where it is
//! aligned to cache lines, the system's allocator takes long for it. So each thread keeps some of what it frees, still warm in its
//! CPU's cache, for what it makes next.
//!
//! Of each size so many pieces are kept, in a list that runs through the pieces themselves. They are of no thread: whoever frees a
//! piece keeps it.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Moves a value to memory of its own.
pub(crate) fn boxed<T>(value: T) -> NonNull<T> {
    let fresh = || NonNull::from(Box::leak(Box::<T>::new_uninit())).cast();
    let at = take(Layout::new::<T>()).unwrap_or_else(fresh).cast::<T>();
    // SAFETY: the memory has the layout of a `T`, and is nobody else's.
    unsafe { at.write(value) };
    at
}

/// Ends a value, and frees its memory.
///
/// # Safety
/// `at` came from [`boxed`], and nobody uses it any more.
pub(crate) unsafe fn free<T>(at: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        at.drop_in_place();
        give_back(at);
    }
}

/// Moves a value out of its memory, which is freed.
///
/// # Safety
/// As [`free`].
pub(crate) unsafe fn unboxed<T>(at: NonNull<T>) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        let value = at.read();
        give_back(at);
        value
    }
}

/// # Safety
/// `at` came from [`boxed`], and the value is there no more.
unsafe fn give_back<T>(at: NonNull<T>) {
    if !keep(at.cast(), Layout::new::<T>()) {
        // SAFETY: the global allocator has given it out for this layout, and nobody else has it.
        drop(unsafe { Box::from_raw(at.cast::<MaybeUninit<T>>().as_ptr()) });
    }
}

#[cfg(not(feature = "loom"))]
use kept::{keep, take};

#[cfg(not(feature = "loom"))]
mod kept {
    use std::alloc::{Layout, dealloc};
    use std::cell::RefCell;
    use std::ptr::NonNull;

    /// Places for sizes of which a thread keeps pieces. Of those that share a place, it keeps the first that it frees.
    const CLASSES: usize = 32;
    /// Pieces of one size that a thread keeps: what it retires until RCU lets it free some, and as much again.
    pub(super) const MOST: usize = 1024;

    /// Pieces of one size.
    struct Class {
        /// Of no size if nothing is kept here yet.
        layout: Layout,
        /// The first piece. Each holds the address of the next.
        first: Option<NonNull<Next>>,
        len: usize,
    }

    struct Next(Option<NonNull<Next>>);

    struct Spares([Class; CLASSES]);

    impl Spares {
        #[inline]
        fn class(&mut self, layout: Layout) -> &mut Class {
            &mut self.0[layout.size() / 16 % CLASSES]
        }
    }

    thread_local! {
        static SPARES: RefCell<Spares> = const { RefCell::new(Spares([Class::EMPTY; CLASSES])) };
    }

    impl Class {
        const EMPTY: Self = Self { layout: Layout::new::<()>(), first: None, len: 0 };

        fn pop(&mut self) -> Option<NonNull<Next>> {
            let piece = self.first?;
            // SAFETY: a piece in the list is nobody else's, and holds what `push` wrote.
            self.first = unsafe { piece.read() }.0;
            self.len -= 1;
            Some(piece)
        }

        /// # Safety
        /// `piece` is a piece of this size that is nobody's.
        unsafe fn push(&mut self, piece: NonNull<Next>) {
            // SAFETY: the caller's promise; `keep` takes no layout that is too small.
            unsafe { piece.write(Next(self.first)) };
            self.first = Some(piece);
            self.len += 1;
        }
    }

    impl Drop for Spares {
        fn drop(&mut self) {
            for class in &mut self.0 {
                while let Some(piece) = class.pop() {
                    // SAFETY: the global allocator has given the piece out for this layout, and it is nobody's.
                    unsafe { dealloc(piece.cast().as_ptr(), class.layout) };
                }
            }
        }
    }

    /// A piece of memory that this thread has kept.
    #[inline]
    pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
        let taken = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            let class = spares.class(layout);
            if class.layout == layout { class.pop() } else { None }
        });
        // A thread that is about to end has nothing.
        taken.ok().flatten().map(NonNull::cast)
    }

    /// Keeps a piece that is nobody's; false if this thread has enough of them.
    #[inline]
    pub(super) fn keep(piece: NonNull<u8>, layout: Layout) -> bool {
        if layout.size() < size_of::<Next>() || layout.align() < align_of::<Next>() {
            return false;
        }
        let kept = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            let class = spares.class(layout);
            if class.layout.size() == 0 {
                class.layout = layout;
            }
            if class.layout != layout || class.len >= MOST {
                return false;
            }
            // SAFETY: the piece is nobody's, and of this size.
            unsafe { class.push(piece.cast()) };
            true
        });
        kept.unwrap_or(false)
    }
}

/// In models every value has memory of its own, so that they find who looks at it too late.
#[cfg(feature = "loom")]
fn take(_layout: Layout) -> Option<NonNull<u8>> {
    None
}

#[cfg(feature = "loom")]
fn keep(_piece: NonNull<u8>, _layout: Layout) -> bool {
    false
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[repr(align(128))]
    struct Line([u8; 128]);

    #[test]
    fn what_was_freed_is_taken_again_by_values_of_its_size() {
        std::thread::spawn(|| {
            let (a, b) = (boxed(Line([1; 128])), boxed([5_u64; 3]));
            assert!(a.is_aligned());
            // SAFETY: nobody uses it any more.
            unsafe { free(a) };
            let c = boxed(Line([2; 128]));
            // SAFETY: both are this function's.
            assert_eq!((a, unsafe { c.as_ref() }.0, *unsafe { b.as_ref() }), (c, [2; 128], [5; 3]));
            // SAFETY: as above.
            unsafe {
                free(b);
                free(c);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn values_end_when_they_are_freed_and_no_more_memory_is_kept_than_is_said() {
        std::thread::spawn(|| {
            let count = Arc::new(());
            let values: Vec<_> = (0..3 * kept::MOST).map(|_| boxed([count.clone(), count.clone()])).collect();
            for value in values {
                // SAFETY: nobody uses it any more.
                unsafe { free(value) };
            }
            assert_eq!(Arc::strong_count(&count), 1);
            let layout = Layout::new::<[Arc<()>; 2]>();
            let kept: Vec<_> = std::iter::from_fn(|| take(layout)).collect();
            assert_eq!(kept.len(), kept::MOST);
            assert!(kept.into_iter().all(|piece| keep(piece, layout)));
        })
        .join()
        .unwrap();
    }
}
