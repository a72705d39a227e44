//! The link of a counted value in a hash map, which is part of the value's allocation.
//!
//! [`RcuHashMap`](crate::rcu_hash_map::RcuHashMap) uses it. A value is in one map at a time.

use std::ptr;
// Not an atomic of models: it is read under a lock of the standard library.
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::entry_age::Uses;
use crate::percpu::Line;
use crate::primitive::{AtomicPtr, AtomicU64};

/// The link of a value in the chain of a hash map, which describes the fields.
#[derive(Debug)]
pub struct Link {
    pub(crate) next: AtomicPtr<()>,
    pub(crate) hash: AtomicU64,
    pub(crate) uses: Uses,
    /// Whether the value is in a map.
    linked: AtomicBool,
    /// Its distance from its page in an arena, in lines; 0 if it has no page.
    pub(crate) lines: u16,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            hash: AtomicU64::new(0),
            uses: Uses::none(),
            linked: AtomicBool::new(false),
            lines: 0,
        }
    }
}

impl Link {
    /// Claims the link for a map. Returns false if the value is in one.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: pairs with the Release in `release`, so the link is out of its chain.
        !self.linked.swap(true, Acquire)
    }

    /// Ends the claim, after the link was taken out of its chain.
    pub(crate) fn release(&self) {
        self.linked.store(false, Release);
    }

    /// Returns whether the value is in a map.
    pub(crate) fn is_linked(&self) -> bool {
        // Acquire: pairs with the Release in `release`.
        self.linked.load(Acquire)
    }
}

/// The place of a link in the allocation of its value: [`First`], [`FirstPacked`] or [`Last`].
pub trait Place: 'static {
    /// The part of the allocation before the value.
    type Before: Default + Send + Sync;
    /// A part between the value and the count, for its alignment.
    type Apart: Default + Send + Sync;
    /// The part behind the value and the count.
    type Behind: Default + Send + Sync;

    /// Returns the link.
    fn link<'a>(before: &'a Self::Before, behind: &'a Self::Behind) -> &'a Link;

    /// Returns the link of a value that no other thread has seen.
    fn link_mut<'a>(before: &'a mut Self::Before, behind: &'a mut Self::Behind) -> &'a mut Link;
}

/// The link lies before the value, on the line that a lookup reads in any case. The count begins a
/// line.
#[derive(Debug)]
pub enum First {}

/// The link lies as with [`First`], and the count directly behind the value. Holders that count
/// disturb readers of the value's last line.
#[derive(Debug)]
pub enum FirstPacked {}

/// The link lies next to the count, directly behind the value. Holders that count disturb lookups
/// in the map, and readers of the value's last line.
#[derive(Debug)]
pub enum Last {}

impl Place for First {
    type Before = Link;
    type Apart = Line<()>;
    type Behind = ();

    #[inline]
    fn link<'a>(before: &'a Link, (): &'a ()) -> &'a Link {
        before
    }

    fn link_mut<'a>(before: &'a mut Link, (): &'a mut ()) -> &'a mut Link {
        before
    }
}

impl Place for FirstPacked {
    type Before = Link;
    type Apart = ();
    type Behind = ();

    #[inline]
    fn link<'a>(before: &'a Link, (): &'a ()) -> &'a Link {
        before
    }

    fn link_mut<'a>(before: &'a mut Link, (): &'a mut ()) -> &'a mut Link {
        before
    }
}

impl Place for Last {
    type Before = ();
    type Apart = ();
    type Behind = Link;

    #[inline]
    fn link<'a>((): &'a (), behind: &'a Link) -> &'a Link {
        behind
    }

    fn link_mut<'a>((): &'a mut (), behind: &'a mut Link) -> &'a mut Link {
        behind
    }
}
