//! Memory for values that are made and ended again and again.
//!
//! What RCU readers look at is allocated one by one and freed in bursts, when no reader can be looking any more; where it is
//! aligned to cache lines, the system's allocator takes long for it. So each thread keeps some of what it frees, still warm in its
//! CPU's cache, for what it makes next.
//!
//! Pieces of one size are kept in lots: lists that run through the pieces themselves, of 512 pieces, or 256 KiB. A thread has
//! two of them, so that making and ending by turns stays within them; a full one beyond that goes to a shelf where a thread that has none
//! takes it. Pieces are of no thread: whoever frees one keeps it. (Bonwick and Adams, *Magazines and Vmem*, 2001.)
//!
//! The shelf matters where one thread makes what another ends, as the threads of a mount do by turns. An allocator that has a
//! heap for each thread gives what is freed back to the heap that it is from, where only its own thread finds it: so caches that
//! hold no more than they may grow every heap to their whole size.

use std::alloc::{Layout, dealloc};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

mod bytes;
#[cfg(not(feature = "loom"))]
mod depot;
#[cfg(not(feature = "loom"))]
mod magazine;

pub use bytes::Bytes;
#[cfg(not(feature = "loom"))]
use magazine::{cache, take};

/// Moves a value to memory of its own.
pub(crate) fn alloc<T>(value: T) -> NonNull<T> {
    let fresh = || NonNull::from(Box::leak(Box::<T>::new_uninit())).cast();
    let at = take(Layout::new::<T>()).unwrap_or_else(fresh).cast::<T>();
    // SAFETY: the memory has the layout of a `T`, and is nobody else's.
    unsafe { at.write(value) };
    at
}

/// Ends a value, and frees its memory.
///
/// # Safety
/// `at` came from [`alloc`], and nobody uses it any more.
pub(crate) unsafe fn free<T>(at: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        at.drop_in_place();
        free_memory(at.cast(), Layout::new::<T>());
    }
}

/// Moves a value out of its memory, which is freed.
///
/// # Safety
/// As [`free`].
pub(crate) unsafe fn take_value<T>(at: NonNull<T>) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        let value = at.read();
        free_memory(at.cast(), Layout::new::<T>());
        value
    }
}

/// # Safety
/// What was in a box there, of this layout, is there no more.
#[inline(always)]
unsafe fn free_memory(at: NonNull<u8>, layout: Layout) {
    if layout.size() > 0 && !cache(at, layout) {
        // SAFETY: memory of a box is the global allocator's for its layout, and nobody else has it.
        unsafe { dealloc(at.as_ptr(), layout) };
    }
}

/// Moves a value to a box, in memory that was kept if there is some.
pub fn new_box<T>(value: T) -> Box<T> {
    // SAFETY: the memory is nobody else's, and the global allocator has given it out for a `T`.
    unsafe { Box::from_raw(alloc(value).as_ptr()) }
}

/// A box whose memory is kept when it ends.
pub struct SlabBox<T: ?Sized>(ManuallyDrop<Box<T>>);

impl<T: ?Sized> From<Box<T>> for SlabBox<T> {
    fn from(value: Box<T>) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: ?Sized> Deref for SlabBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for SlabBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized> Drop for SlabBox<T> {
    fn drop(&mut self) {
        // SAFETY: the value ends here, and nobody looks at it again.
        let value = NonNull::from(Box::leak(unsafe { ManuallyDrop::take(&mut self.0) }));
        // SAFETY: it has not ended yet.
        let layout = Layout::for_value(unsafe { value.as_ref() });
        // SAFETY: as above, and then it has.
        unsafe {
            value.drop_in_place();
            free_memory(value.cast(), layout);
        }
    }
}

/// In models every value has memory of its own, so that they find who looks at it too late.
#[cfg(feature = "loom")]
fn take(_layout: Layout) -> Option<NonNull<u8>> {
    None
}

#[cfg(feature = "loom")]
fn cache(_object: NonNull<u8>, _layout: Layout) -> bool {
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
            let (a, b) = (alloc(Line([1; 128])), alloc([5_u64; 3]));
            assert!(a.is_aligned());
            // SAFETY: nobody uses it any more.
            unsafe { free(a) };
            let c = alloc(Line([2; 128]));
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
        // Of a size that nothing else has.
        type Value = (Arc<()>, [u64; 61]);
        std::thread::spawn(|| {
            let count = Arc::new(());
            let most = (2 + depot::MAGAZINES) * magazine::OBJECTS;
            let values: Vec<NonNull<Value>> =
                (0..most + magazine::OBJECTS).map(|_| alloc((count.clone(), [0; 61]))).collect();
            for value in values {
                // SAFETY: nobody uses it any more.
                unsafe { free(value) };
            }
            assert_eq!(Arc::strong_count(&count), 1);
            let layout = Layout::new::<Value>();
            let kept: Vec<_> = std::iter::from_fn(|| take(layout)).collect();
            assert_eq!(kept.len(), most);
            assert!(kept.into_iter().all(|object| cache(object, layout)));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_one_thread_makes_and_another_frees_is_taken_by_a_third() {
        // As above.
        type Value = [u64; 59];
        struct Made(Vec<NonNull<Value>>);
        // SAFETY: the values are nobody else's.
        unsafe impl Send for Made {}
        let make =
            |magazines| Made((0..magazines * magazine::OBJECTS).map(|n| alloc([n as u64; 59])).collect());
        let made = std::thread::spawn(move || make(3)).join().unwrap();
        let all: Vec<_> = made.0.iter().map(|at| at.addr()).collect();
        let (freed, taken) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in { made }.0 {
                    // SAFETY: nobody uses it any more.
                    unsafe { free(at) };
                }
                freed.wait();
                // As long as it lives it keeps the other two lots.
                taken.wait();
            });
            scope.spawn(|| {
                freed.wait();
                assert!(make(1).0.iter().all(|at| all.contains(&at.addr())));
                taken.wait();
            });
        });
    }

    #[test]
    fn what_a_box_holds_ends_with_it_and_its_memory_is_taken_again() {
        std::thread::spawn(|| {
            // As above.
            let value = || (Arc::new(5), [6_u64; 57]);
            let first = value();
            let count = Arc::downgrade(&first.0);
            let own: SlabBox<dyn std::any::Any> = SlabBox::from(new_box(first) as Box<dyn std::any::Any>);
            assert_eq!(own.downcast_ref::<(Arc<i32>, [u64; 57])>().unwrap().1, [6; 57]);
            let at = std::ptr::from_ref(&*own).addr();
            drop(own);
            assert_eq!(count.strong_count(), 0);
            assert_eq!(std::ptr::from_ref(&*new_box(value())).addr(), at);
            drop(SlabBox::from(Box::new(())));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bytes_are_what_they_are_made_of_wherever_they_are() {
        let mut bytes = Bytes::from(&[7; 1000][..]);
        assert_eq!(*bytes, [7; 1000]);
        bytes[999] = 8;
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(*Bytes::zeroed(1000), [0; 1000]);
        assert_eq!(*Bytes::from(&copy[998..]), [7, 8]);
        assert!(Bytes::zeroed(0).is_empty() && Bytes::default().is_empty());
    }
}
