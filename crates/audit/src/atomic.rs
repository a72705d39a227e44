//! The standard library's atomics with a note of each access: the methods that this workspace uses.

use std::sync::atomic::{self as real, Ordering};

use super::{Kind, note, note_full_fence};

/// An access by a read-modify-write, also one that fails: it has had the line for itself.
macro_rules! rmw {
    ($self:ident . $method:ident ( $($argument:expr),* )) => {{
        note($self, Kind::Rmw);
        $self.0.$method($($argument),*)
    }};
}

/// What every atomic can do.
macro_rules! accesses {
    ($value:ty) => {
        /// Loads.
        #[inline]
        #[track_caller]
        pub fn load(&self, order: Ordering) -> $value {
            note(self, Kind::Load);
            self.0.load(order)
        }

        /// Stores.
        #[inline]
        #[track_caller]
        pub fn store(&self, value: $value, order: Ordering) {
            // On x86 a sequentially consistent store is an exchange.
            note(self, if order == Ordering::SeqCst { Kind::Rmw } else { Kind::Store });
            self.0.store(value, order);
        }

        /// Exchanges.
        #[inline]
        #[track_caller]
        pub fn swap(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.swap(value, order))
        }

        /// Exchanges if it is `current`.
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

        /// Exchanges if it is `current`, or fails for no reason.
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

        /// The value, of which there is no other user.
        pub fn get_mut(&mut self) -> &mut $value {
            self.0.get_mut()
        }

        /// The value, of which there is no other user.
        pub fn into_inner(self) -> $value {
            self.0.into_inner()
        }
    };
}

macro_rules! bits {
    ($value:ty) => {
        /// And.
        #[inline]
        #[track_caller]
        pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.fetch_and(value, order))
        }

        /// Or.
        #[inline]
        #[track_caller]
        pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
            rmw!(self.fetch_or(value, order))
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        /// As of the standard library, noted.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$name);

        impl $name {
            /// As of the standard library.
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            accesses!($value);
            bits!($value);

            /// Adds, wrapping.
            #[inline]
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_add(value, order))
            }

            /// Subtracts, wrapping.
            #[inline]
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_sub(value, order))
            }

            /// Raises.
            #[inline]
            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                rmw!(self.fetch_max(value, order))
            }

            /// Exchanges for what `change` makes of it, until nobody has come between.
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

/// As of the standard library, noted.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(real::AtomicBool);

impl AtomicBool {
    /// As of the standard library.
    pub const fn new(value: bool) -> Self {
        Self(real::AtomicBool::new(value))
    }

    accesses!(bool);
    bits!(bool);
}

/// As of the standard library, noted.
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// As of the standard library.
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

/// As of the standard library, noted where it is more than an order to the compiler.
#[inline]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        note_full_fence();
    }
    real::fence(order);
}
