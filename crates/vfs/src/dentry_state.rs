//! The state of a dentry: one word that readers load, and that says whether what they read of the
//! dentry belongs together.
//!
//! `dcache` changes it, and both walks compare it.
//!
//! The word holds flags, the number of mounts on the dentry, and a sequence number. The number
//! changes with each change of the name or the inode. It is odd while parent and name are written.
//!
//! | flag | meaning | set and cleared by |
//! | --- | --- | --- |
//! | `HELD` | a thread has the name locked | that thread |
//! | `AWAITED` | threads wait for the name | a thread that waits; the holder |
//! | `HIDDEN` | the name is being changed | the holder |
//! | `CACHED` | the cache leads from the name to the dentry, or is about to | the cache |
//! | `GONE` | the name was removed | the holder |
//!
//! # Orderings
//! A reader loads the word (R1, `Acquire`), then the name and the inode, and compares the word
//! again (R2, behind an `Acquire` fence). A writer hides the name before it changes anything (W1),
//! and shows it with another sequence number (W2, `Release`). W2 pairs with R1: a reader that
//! starts from a number sees what was written before. W1 is followed by a `Release` fence or a
//! `Release` store of the inode, so a reader that has loaded a later name or inode finds the word
//! changed at R2. [`DentryState::is_still`] at the end of a call pairs in the same way with the
//! attributes of the inode, which are loaded with `Acquire`.
//!
//! `HELD` is a lock: the compare-exchange that sets it is `Acquire`, and each operation that clears
//! it is `Release`. It is set only in a word that a reader has seen, so the name was visible, in
//! the cache and free at that moment. `AWAITED` is set only while the word has the sequence number
//! by which the waiting thread has found the name. So the holder that clears the flag, or changes
//! the number, knows of all threads that wait by the name as it was.

use extern4_sync::primitive::{AtomicU64, Ordering, fence};

const HELD: u64 = 1;
const AWAITED: u64 = 1 << 1;
const HIDDEN: u64 = 1 << 2;
const CACHED: u64 = 1 << 3;
const GONE: u64 = 1 << 4;
/// A mount on the dentry.
const MOUNT: u64 = 1 << 5;
const MOUNTS: u64 = CHANGE - MOUNT;
/// A step of the sequence number. The number does not come back within days.
const CHANGE: u64 = 1 << 24;
/// The part of the word that says what the name is bound to.
const BINDING: u64 = !(CHANGE - 1) | CACHED | HIDDEN;

/// The state of a dentry.
pub(crate) struct DentryState(AtomicU64);

/// The state as a reader saw it. The default is the state of a dentry that the cache does not lead
/// to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenState(u64);

impl SeenState {
    /// Returns whether the cache leads from the name to the dentry.
    #[inline]
    pub(crate) fn is_cached(self) -> bool {
        self.0 & CACHED != 0
    }

    /// Returns whether the name is being changed.
    #[inline]
    pub(crate) fn is_hidden(self) -> bool {
        self.0 & HIDDEN != 0
    }

    /// Returns whether something is mounted on the dentry.
    #[inline]
    pub(crate) fn is_mountpoint(self) -> bool {
        self.0 & MOUNTS != 0
    }

    /// Returns whether the name has been removed.
    pub(crate) fn is_gone(self) -> bool {
        self.0 & GONE != 0
    }

    /// Returns whether parent and name are being written.
    pub(crate) fn is_moving(self) -> bool {
        self.0 & CHANGE != 0
    }

    fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// Returns whether both were seen under one name.
    fn has_name_of(self, other: u64) -> bool {
        (self.0 ^ other) & BINDING & !HIDDEN == 0
    }
}

impl DentryState {
    /// Returns the state of a dentry that the cache does not lead to.
    pub(crate) fn uncached() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the state of a dentry for the cache.
    pub(crate) fn cached() -> Self {
        Self(AtomicU64::new(CACHED))
    }

    /// Returns the state of a dentry for the cache whose name the caller has locked and hidden.
    pub(crate) fn hidden() -> Self {
        Self(AtomicU64::new(CACHED | HIDDEN | HELD))
    }

    /// Returns the state.
    #[inline]
    pub(crate) fn load(&self) -> SeenState {
        // Acquire: R1, which pairs with W2.
        SeenState(self.0.load(Ordering::Acquire))
    }

    /// Returns whether the dentry is still bound as it was. If it is, all that the caller has
    /// loaded since then with `Acquire`, or of name and inode, belongs to that binding.
    #[inline]
    pub(crate) fn is_still(&self, seen: SeenState) -> bool {
        // Acquire: R2, which pairs with W1.
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) ^ seen.0) & BINDING == 0
    }

    /// Locks the name if it is as it was seen: visible and free.
    pub(crate) fn try_lock(&self, seen: SeenState) -> Result<(), LockError> {
        if seen.is_held() || seen.is_hidden() {
            return Err(LockError::Held);
        }
        // Acquire: pairs with the Release of the last holder.
        match self
            .0
            .compare_exchange(seen.0, seen.0 | HELD, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(LockError::Changed),
        }
    }

    /// Asks the holder of the name to wake the caller. Returns false if the name is free, or is no
    /// longer the one that the caller has seen.
    pub(crate) fn ask(&self, seen: SeenState) -> bool {
        let held = |now: u64| now & HELD != 0 && seen.has_name_of(now);
        // Relaxed: the caller reads nothing that depends on it.
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                held(now).then_some(now | AWAITED)
            })
            .is_ok()
    }

    /// Hides the name. The caller has it locked.
    pub(crate) fn hide(&self) {
        self.0.fetch_or(HIDDEN, Ordering::Relaxed);
        // Release: W1.
        fence(Ordering::Release);
    }

    /// Unlocks the name and shows it. Returns whether threads wait for it.
    pub(crate) fn unlock(&self) -> bool {
        self.clear(HELD | AWAITED | HIDDEN)
    }

    /// Unlocks the name and shows it after a change of the inode. Returns whether threads wait.
    pub(crate) fn unlock_changed(&self) -> bool {
        // Two steps, since an odd number says that the name is being written.
        let shown = |now: u64| Some(now.wrapping_add(2 * CHANGE) & !(HELD | AWAITED | HIDDEN));
        // Release: W2.
        let before = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, shown);
        before.is_ok_and(|before| before & AWAITED != 0)
    }

    /// Unlocks the name of a dentry that has left the cache. Returns whether threads wait for it.
    pub(crate) fn unlock_removed(&self) -> bool {
        self.clear(HELD | AWAITED | HIDDEN | CACHED)
    }

    /// Notes that the dentry has left the cache. No thread has its name locked.
    pub(crate) fn evict(&self) {
        self.clear(CACHED);
    }

    fn clear(&self, flags: u64) -> bool {
        // Release: a thread that sees the change sees all that came before it; W2.
        self.0.fetch_and(!flags, Ordering::Release) & AWAITED != 0
    }

    /// Begins to write parent and name, which the caller has hidden and taken out of the cache.
    /// Returns whether threads wait for the old name.
    pub(crate) fn begin_move(&self) -> bool {
        let moving = |now: u64| Some(now.wrapping_add(CHANGE) & !AWAITED);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moving);
        // Release: W1, for readers of the name that do not mind that it is hidden.
        fence(Ordering::Release);
        before.is_ok_and(|before| before & AWAITED != 0)
    }

    /// Ends what [`begin_move`](Self::begin_move) began.
    pub(crate) fn end_move(&self) {
        // Release: W2.
        self.0.fetch_add(CHANGE, Ordering::Release);
    }

    /// Returns whether parent and name are as they were. All that the caller has loaded of them
    /// since then belongs together.
    pub(crate) fn is_unmoved(&self, seen: SeenState) -> bool {
        // Acquire: R2.
        fence(Ordering::Acquire);
        (self.0.load(Ordering::Relaxed) ^ seen.0) & !(CHANGE - 1) == 0
    }

    /// Marks the name as removed.
    pub(crate) fn mark_gone(&self) {
        // Release: a thread that sees the mark sees the removal that came before it.
        self.0.fetch_or(GONE, Ordering::Release);
    }

    /// Counts a mount on the dentry. Returns false if there are too many.
    pub(crate) fn add_mount(&self) -> bool {
        // Relaxed: a thread that mounts on a directory holds its `rwsem`, and so does one that asks
        // for mounts before it removes the directory.
        let add = |now: u64| (now & MOUNTS != MOUNTS).then(|| now + MOUNT);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// Counts a mount less.
    pub(crate) fn remove_mount(&self) {
        // Relaxed: as above.
        self.0.fetch_sub(MOUNT, Ordering::Relaxed);
    }
}

/// The reason why a name could not be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// Another thread has it locked.
    Held,
    /// It is not as it was seen.
    Changed,
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_leaves_what_readers_compare() {
        let state = DentryState::cached();
        let seen = state.load();
        assert!(seen.is_cached() && !seen.is_hidden());
        assert_eq!(state.try_lock(seen), Ok(()));
        assert!(state.is_still(seen) && state.ask(seen));
        assert_eq!(state.try_lock(seen), Err(LockError::Changed));
        assert_eq!(state.try_lock(state.load()), Err(LockError::Held));
        state.hide();
        assert!(!state.is_still(seen) && state.load().is_hidden() && state.ask(seen));
        // Nothing was changed.
        assert!(state.unlock() && state.is_still(seen) && !state.ask(seen));
    }

    #[test]
    fn each_change_of_a_binding_shows() {
        let state = DentryState::hidden();
        let seen = state.load();
        assert!(
            !state.unlock_changed() && state.is_unmoved(state.load()) && !state.is_unmoved(seen)
        );
        let seen = state.load();
        assert_eq!(state.try_lock(seen), Ok(()));
        state.hide();
        assert!(state.ask(seen) && state.begin_move() && state.load().is_moving());
        assert!(!state.ask(seen) && !state.is_unmoved(seen));
        state.end_move();
        assert!(!state.unlock() && !state.is_still(seen) && !state.load().is_moving());
        state.evict();
        assert!(!state.load().is_cached());
    }

    #[test]
    fn mounts_have_a_limit() {
        let state = DentryState(AtomicU64::new(CACHED | (MOUNTS - MOUNT)));
        assert!(state.add_mount() && !state.add_mount() && state.load().is_mountpoint());
        state.remove_mount();
        assert!(state.add_mount());
    }
}
