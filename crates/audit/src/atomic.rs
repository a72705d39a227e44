//! The standard library's atomics with a record of each access: the methods that this workspace
//! uses.
//!
//! `extern4-sync` takes them in place of the standard ones when its feature `audit` is set. Values
//! and orders are the same as in the standard library; only the record is added.

use std::sync::atomic::{self as real, Ordering};

use super::{Kind, note, note_full_fence};

/// Records a read-modify-write, also one that fails: it needs the line exclusively, too.
macro_rules! rmw {
    ($self:ident . $method:ident ( $($argument:expr),* )) => {{
        note($self, Kind::Rmw);
        $self.0.$method($($argument),*)
    }};
}

/// The methods that every atomic has.
macro_rules! accesses {
    ($value:ty) => {
        /// Loads the value.
        #[inline]
        #[track_caller]
        pub fn load(&self, order: Ordering) -> $value {
            note(self, Kind::Load);
            self.0.load(order)
        }

        /// Stores `value`.
        #[inline]
        #[track_caller]
        pub fn store(&self, value: $value, order: Ordering) {
            // On x86 a sequentially consistent store is an exchange.
            note(
                self,
                if order == Ordering::SeqCst {
                    Kind::Rmw
                } else {
                    Kind::Store
                },
            );
            self.0.store(value, order);
        }

        /// Stores `value`, and returns the old one.
        #[inline]
        #[track_caller]
        pub fn swap(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.swap(value, order))
        }

        /// Stores the new value if the old one is `current`.
        #[inline]
        #[track_caller]
        pub fn compare_exchange(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            rmw!(self.compare_exchange(current, new, success, failure))
        }

        /// Stores the new value if the old one is `current`; may fail without a reason.
        #[inline]
        #[track_caller]
        pub fn compare_exchange_weak(
            &self,
            current: $value,
            new: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            rmw!(self.compare_exchange_weak(current, new, success, failure))
        }

        /// Returns the value, of which there is no other user.
        pub fn get_mut(&mut self) -> &mut $value {
            self.0.get_mut()
        }

        /// Returns the value, of which there is no other user.
        pub fn into_inner(self) -> $value {
            self.0.into_inner()
        }
    };
}

macro_rules! bits {
    ($value:ty) => {
        /// Stores the bitwise and with `value`, and returns the old value.
        #[inline]
        #[track_caller]
        pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.fetch_and(value, order))
        }

        /// Stores the bitwise or with `value`, and returns the old value.
        #[inline]
        #[track_caller]
        pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.fetch_or(value, order))
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        /// The standard library's type, with a record of each access.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$name);

        impl $name {
            /// Returns a new one, as in the standard library.
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            accesses!($value);
            bits!($value);

            /// Adds `value`, wrapping, and returns the old value.
            #[inline]
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_add(value, order))
            }

            /// Subtracts `value`, wrapping, and returns the old value.
            #[inline]
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_sub(value, order))
            }

            /// Stores the greater of the value and `value`, and returns the old one.
            #[inline]
            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_max(value, order))
            }

            /// Stores what `change` returns for the value, and retries if another thread has
            /// changed the value meanwhile.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                rmw!(self.fetch_update(set, fetch, change))
            }
        }
    };
}

integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);

/// The standard library's type, with a record of each access.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(real::AtomicBool);

impl AtomicBool {
    /// Returns a new one, as in the standard library.
    pub const fn new(value: bool) -> Self {
        Self(real::AtomicBool::new(value))
    }

    accesses!(bool);
    bits!(bool);
}

/// The standard library's type, with a record of each access.
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// Returns a new one, as in the standard library.
    pub const fn new(value: *mut T) -> Self {
        Self(real::AtomicPtr::new(value))
    }

    accesses!(*mut T);
}

impl<T> std::fmt::Debug for AtomicPtr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The standard library's function. Records a fence that is more than an order to the compiler.
#[inline]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        note_full_fence();
    }
    real::fence(order);
}
