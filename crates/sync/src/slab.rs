//! A slab cache: memory for values that are allocated and freed often.
//!
//! RCU values, the state of inodes and the bytes of buffers come from it. Memory that it
//! returns is as long and as aligned as the layout asks for. It keeps a bounded number of free
//! objects.
//!
//! Values that RCU readers see are allocated one by one and freed in bursts, when no reader is
//! left. The system's allocator is slow for layouts that are aligned to cache lines. So each thread
//! keeps some of the objects that it frees, still warm in its CPU's cache, for its next
//! allocations.
//!
//! Free objects of one layout are kept in *magazines*: lists that run through the objects
//! themselves, of 512 objects or 256 KiB at most. A thread has two magazines of each layout, so
//! that alternating allocations and frees stay within them. Further full magazines go to the
//! *depot* of the layout, from which a thread without objects takes one. An object belongs to no
//! thread: the thread that frees it keeps it. (J. Bonwick and J. Adams, "Magazines and Vmem",
//! 2001.)
//!
//! The depot matters where one thread allocates what another frees, as the threads of a mount do.
//! An allocator with a heap for each thread returns freed memory to the heap that it came from,
//! where only that heap's thread finds it. A cache of bounded size would then grow every heap to
//! its whole size.
//!
//! There are no loom tests of this module: magazines belong to one thread, and the depot has a
//! lock. In models each value has separate memory, so that loom finds late accesses.

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

/// Moves a value to allocated memory.
pub(crate) fn alloc<T>(value: T) -> NonNull<T> {
    let fresh = || NonNull::from(Box::leak(Box::<T>::new_uninit())).cast();
    let at = take(Layout::new::<T>()).unwrap_or_else(fresh).cast::<T>();
    // SAFETY: the memory has the layout of a `T` and no other user.
    unsafe { at.write(value) };
    at
}

/// Drops a value and frees its memory.
///
/// # Safety
/// `at` came from [`alloc`], and the value has no other user.
pub(crate) unsafe fn free<T>(at: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        at.drop_in_place();
        free_memory(at.cast(), Layout::new::<T>());
    }
}

/// Moves a value out of its memory and frees the memory.
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

/// Caches the memory of a value that has been dropped, or returns it to the allocator.
///
/// # Safety
/// The memory came from a box of this layout and has no user.
#[inline(always)]
unsafe fn free_memory(at: NonNull<u8>, layout: Layout) {
    if layout.size() > 0 && !cache(at, layout) {
        // SAFETY: a box's memory comes from the global allocator with its layout. It has no user.
        unsafe { dealloc(at.as_ptr(), layout) };
    }
}

/// Moves a value to a box. Uses a cached object if the thread has one.
pub fn new_box<T>(value: T) -> Box<T> {
    // SAFETY: the memory has no other user, and came from the global allocator for a `T`.
    unsafe { Box::from_raw(alloc(value).as_ptr()) }
}

/// A box that returns its memory to the slab cache when it is dropped.
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
        // SAFETY: the box is not used after this drop.
        let value = NonNull::from(Box::leak(unsafe { ManuallyDrop::take(&mut self.0) }));
        // SAFETY: the value is dropped only below.
        let layout = Layout::for_value(unsafe { value.as_ref() });
        // SAFETY: `drop` runs once; after the drop of the value its memory has no user.
        unsafe {
            value.drop_in_place();
            free_memory(value.cast(), layout);
        }
    }
}

/// Returns `None`: in models every value has separate memory, so that loom finds late accesses.
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
    fn a_freed_object_is_reused_by_the_next_value_of_its_layout() {
        std::thread::spawn(|| {
            let a = alloc(Line([1; 128]));
            let b = alloc([5_u64; 3]);
            assert!(a.is_aligned());
            // SAFETY: the value has no other user.
            unsafe { free(a) };
            let c = alloc(Line([2; 128]));
            assert_eq!(a, c);
            // SAFETY: the value has no other user.
            assert_eq!(unsafe { c.as_ref() }.0, [2; 128]);
            // SAFETY: the value has no other user.
            assert_eq!(*unsafe { b.as_ref() }, [5; 3]);
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
    fn values_are_dropped_at_once_and_the_cache_is_bounded() {
        // A size that no other test uses.
        type Value = (Arc<()>, [u64; 61]);
        std::thread::spawn(|| {
            let count = Arc::new(());
            let most = (2 + depot::MAGAZINES) * magazine::OBJECTS;
            let values: Vec<NonNull<Value>> = (0..most + magazine::OBJECTS)
                .map(|_| alloc((count.clone(), [0; 61])))
                .collect();
            for value in values {
                // SAFETY: the value has no other user.
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
    fn a_third_thread_reuses_memory_that_one_allocated_and_another_freed() {
        // As above.
        type Value = [u64; 59];
        struct Made(Vec<NonNull<Value>>);
        // SAFETY: the values have no other user.
        unsafe impl Send for Made {}
        let make = |magazines| {
            Made(
                (0..magazines * magazine::OBJECTS)
                    .map(|n| alloc([n as u64; 59]))
                    .collect(),
            )
        };
        let made = std::thread::spawn(move || make(3)).join().unwrap();
        let all: Vec<_> = made.0.iter().map(|at| at.addr()).collect();
        let freed = std::sync::Barrier::new(2);
        let taken = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in { made }.0 {
                    // SAFETY: the value has no other user.
                    unsafe { free(at) };
                }
                freed.wait();
                // This thread keeps the other two magazines while it lives.
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
    fn a_slab_box_drops_its_value_and_its_memory_is_reused() {
        std::thread::spawn(|| {
            // As above.
            let value = || (Arc::new(5), [6_u64; 57]);
            let first = value();
            let count = Arc::downgrade(&first.0);
            let own: SlabBox<dyn std::any::Any> =
                SlabBox::from(new_box(first) as Box<dyn std::any::Any>);
            assert_eq!(
                own.downcast_ref::<(Arc<i32>, [u64; 57])>().unwrap().1,
                [6; 57]
            );
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
    fn bytes_hold_their_source_in_fresh_and_in_reused_memory() {
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
