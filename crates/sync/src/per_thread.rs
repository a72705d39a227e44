//! A value for each thread that no other thread ever sees.
//!
//! The value is in the thread's slot ([`thread_slots`](crate::thread_slots)), and no two threads
//! have the same slot at one time. A lock hands the number of a slot on, so a thread finds the
//! value that the last owner left there. Threads without a slot, and threads that are
//! ending, have no value.
//!
//! Unlike a thread local, it belongs to an object, and its values are dropped with the object.
//!
//! The journal keeps the credits of a thread's handles in one, `ext4` its group hints, and the FUSE
//! server its sessions and counters.

#[cfg(not(feature = "loom"))]
pub use real::PerThread;

#[cfg(feature = "loom")]
pub use model::PerThread;

#[cfg(not(feature = "loom"))]
mod real {
    use std::cell::OnceCell;

    use crate::thread_slots::ThreadSlots;

    /// One `T` for each thread, created on its first use. The shared slot stays empty.
    pub struct PerThread<T>(ThreadSlots<OnceCell<Box<T>>>);

    // SAFETY: only the thread that has the number of a slot uses it, and a lock hands numbers on.
    // So `T` moves from thread to thread, and no two threads access it at once.
    unsafe impl<T: Send> Sync for PerThread<T> {}

    impl<T: Default> PerThread<T> {
        /// Creates an object without values.
        pub fn new() -> Self {
            Self(ThreadSlots::new())
        }

        /// Calls `act` with the value of this thread; returns `None` if it has none. A reference
        /// cannot leave `act`, so it ends before the thread gives its number back.
        #[inline(always)]
        pub fn with<R>(&self, act: impl FnOnce(&T) -> R) -> Option<R> {
            Some(act(self.0.own()?.get_or_init(Box::default)))
        }
    }
}

/// The implementation for models, whose threads all run on one thread of the system.
#[cfg(feature = "loom")]
mod model {
    use std::any::Any;
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::marker::PhantomData;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A standard atomic: it only distinguishes objects.
    static LAST_ID: AtomicU64 = AtomicU64::new(0);

    crate::primitive::scheduled::thread_local! {
        static VALUES: RefCell<HashMap<u64, Rc<dyn Any>>> = RefCell::default();
    }

    /// One `T` for each thread, created on its first use.
    pub struct PerThread<T> {
        id: u64,
        values: PhantomData<T>,
    }

    // SAFETY: it holds no value; the values are in thread locals.
    unsafe impl<T: Send> Sync for PerThread<T> {}

    impl<T: Default + 'static> PerThread<T> {
        /// Creates an object without values.
        pub fn new() -> Self {
            // Relaxed: only uniqueness matters.
            Self {
                id: LAST_ID.fetch_add(1, Ordering::Relaxed),
                values: PhantomData,
            }
        }

        /// Calls `act` with the value of this thread; returns `None` if it has none.
        pub fn with<R>(&self, act: impl FnOnce(&T) -> R) -> Option<R> {
            let value = VALUES
                .try_with(|values| {
                    let mut values = values.borrow_mut();
                    Rc::clone(
                        values
                            .entry(self.id)
                            .or_insert_with(|| Rc::new(T::default())),
                    )
                })
                .ok()?;
            value.downcast_ref().map(act)
        }
    }
}

impl<T: Default + 'static> Default for PerThread<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn each_thread_has_its_own() {
        let sums = &PerThread::<Cell<u64>>::new();
        let add = |n: u64| sums.with(|sum| sum.replace(sum.get() + n) + n);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || (add(0), (0..1000).fold(None, |_, _| add(1)))))
                .map(|thread| thread.join().unwrap())
                .collect();
            for (first, last) in threads {
                // Another thread may have had the number before, but none adds at the same time.
                assert!(
                    first
                        .zip(last)
                        .is_none_or(|(first, last)| last - first == 1000)
                );
            }
        });
        assert!(add(0).is_some_and(|sum| sum <= 8000));
    }

    #[test]
    fn a_thread_that_ends_has_none() {
        struct Late(&'static PerThread<Cell<u64>>, std::sync::mpsc::Sender<bool>);
        impl Drop for Late {
            fn drop(&mut self) {
                let _ = self.1.send(self.0.with(|_| ()).is_some());
            }
        }
        thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });

        let values: &'static PerThread<Cell<u64>> = Box::leak(Box::default());
        let (sender, receiver) = std::sync::mpsc::channel();
        // Created before the thread has a number, so it is dropped after the number is given back.
        std::thread::spawn(move || {
            LATE.set(Some(Late(values, sender)));
            assert!(values.with(|_| ()).is_some());
        })
        .join()
        .unwrap();
        assert!(!receiver.recv().unwrap());
    }
}
