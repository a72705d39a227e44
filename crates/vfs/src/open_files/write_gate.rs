//! The write gate: it admits changes to a file system, as Linux's `mnt_want_write` does, and counts
//! them.
//!
//! `SuperBlock` owns the gate. Each call that changes files passes it, through a `WriteGuard` of
//! its mount; remounts and shutdowns close it. After a successful close no change is under way, no
//! file is open for writing, and none begins until it is opened again.
//!
//! Two counts ([`ThreadRefcount`]) cover the files that are open for writing and the changes under
//! way. A thread increments a count by a store to its own line, and then reads the state. A remount
//! or a shutdown sets the state, and then reads the counts. So either it finds the change, or the
//! change finds the new state and does not begin.
//!
//! A third count covers the inodes in use that have no links. The file system frees them when they
//! go out of use, outside of any change. An inode is counted from the change that took its last
//! link, or that made it without one, until the file system has freed it. A remount reads this
//! count last: when no change is under way and none can begin, the count does not grow.
//!
//! Until a remount knows whether a change is under way, the file system is *closing*, and new
//! changes wait for the outcome. In the same way changes wait, *paused*, while a thread reads a
//! state that must not change.

use std::sync::Arc;

use extern4_sync::primitive::{AtomicU32, Ordering, thread};
use extern4_sync::thread_refcount::ThreadRefcount;

use crate::errno::{Errno, Result};
use crate::lock::{self, Mutex, MutexGuard};

bitflags::bitflags! {
    /// The uses that a file system admits at present.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct State: u32 {
        /// The file system is read-only.
        const READ_ONLY = 1;
        /// A remount is finding out whether it can be made read-only.
        const CLOSING = 1 << 1;
        /// It has been shut down.
        const SHUT_DOWN = 1 << 2;
        /// Changes wait while a thread reads a state that must not change.
        const PAUSED = 1 << 3;
    }
}

/// The write gate of one file system.
pub(crate) struct WriteGate {
    state: AtomicU32,
    /// Files open for writing.
    writers: ThreadRefcount,
    /// Changes under way.
    changes: ThreadRefcount,
    /// Inodes in use that have no links. Inodes leave it by themselves, at any time.
    unlinked: Arc<ThreadRefcount>,
    /// Held while a thread changes the state.
    deciding: Mutex<()>,
}

/// A change under way, counted until this is dropped.
pub(crate) struct Changing<'a>(&'a WriteGate);

impl WriteGate {
    pub(crate) fn new(read_only: bool) -> Self {
        let state = if read_only {
            State::READ_ONLY
        } else {
            State::empty()
        };
        Self {
            state: AtomicU32::new(state.bits()),
            writers: ThreadRefcount::new(),
            changes: ThreadRefcount::new(),
            unlinked: Arc::new(ThreadRefcount::new()),
            deciding: Mutex::new(()),
        }
    }

    fn state(&self) -> State {
        // Relaxed: the handshake of `ThreadRefcount` orders it where that matters.
        State::from_bits_retain(self.state.load(Ordering::Relaxed))
    }

    /// Stores the state. Locks: `deciding`.
    fn set(&self, state: State) {
        // Relaxed: as in `state`.
        self.state.store(state.bits(), Ordering::Relaxed);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.state().contains(State::READ_ONLY)
    }

    /// Fails with `EIO` after a shutdown.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.state().contains(State::SHUT_DOWN) {
            Err(Errno::EIO.into())
        } else {
            Ok(())
        }
    }

    /// Begins a change. `EROFS` if nothing may be changed, `EIO` after a shutdown.
    pub(crate) fn change(&self) -> Result<Changing<'_>> {
        self.enter(
            &self.changes,
            State::READ_ONLY,
            State::CLOSING | State::PAUSED,
        )?;
        Ok(Changing(self))
    }

    /// Begins a change through a file that is open for writing, and keeps the file system from
    /// turning read-only by that.
    pub(crate) fn change_opened(&self) -> Result<Changing<'_>> {
        self.enter(
            &self.changes,
            State::empty(),
            State::CLOSING | State::PAUSED,
        )?;
        Ok(Changing(self))
    }

    /// Counts a file that is open for writing; errors as of [`change`](Self::change). It may be
    /// part of a change, so it does not wait for threads that wait for changes.
    pub(crate) fn open_for_writing(&self) -> Result<()> {
        self.enter(&self.writers, State::READ_ONLY, State::CLOSING)
    }

    /// Ends the count of a file that was open for writing.
    pub(crate) fn close_for_writing(&self) {
        self.writers.exit();
    }

    #[inline]
    fn enter(&self, holders: &ThreadRefcount, unless: State, waits: State) -> Result<()> {
        loop {
            holders.enter();
            let state = self.state();
            if state.is_empty() {
                return Ok(());
            }
            if !state.intersects(unless | waits | State::SHUT_DOWN) {
                return Ok(());
            }
            holders.exit();
            self.check()?;
            if state.intersects(unless) {
                return Err(Errno::EROFS.into());
            }
            // Waits for the outcome.
            drop(lock::lock(&self.deciding));
        }
    }

    /// Allows changes.
    pub(crate) fn open(&self) -> Result<()> {
        let _deciding = lock::lock(&self.deciding);
        self.check()?;
        self.set(State::empty());
        Ok(())
    }

    /// Returns the count of inodes in use that have no links.
    pub(crate) fn unlinked(&self) -> &Arc<ThreadRefcount> {
        &self.unlinked
    }

    /// Forbids changes. `EBUSY` where files are open for writing, inodes without links are in use,
    /// or a change is under way.
    pub(crate) fn close(&self) -> Result<()> {
        let _deciding = lock::lock(&self.deciding);
        self.check()?;
        let before = self.state();
        self.set(before | State::CLOSING);
        // In this order: the last count only grows within a change.
        let counts = [&self.writers, &self.changes, &self.unlinked].map(ThreadRefcount::count);
        let outcome = match counts {
            [Some(0), Some(0), Some(0)] => Ok(()),
            [Some(_), Some(_), Some(_)] => Err(Errno::EBUSY.into()),
            _ => Err(Errno::ENOMEM.into()),
        };
        self.set(if outcome.is_ok() {
            State::READ_ONLY
        } else {
            before
        });
        outcome
    }

    /// Calls `then` while no thread changes anything: waits for the changes under way, and makes
    /// new ones wait. The caller holds no lock, and neither begins a change.
    pub(crate) fn pause<T>(&self, then: impl FnOnce() -> T) -> T {
        let deciding = lock::lock(&self.deciding);
        let before = self.state();
        self.set(before | State::PAUSED);
        let _paused = Paused {
            gate: self,
            before,
            _deciding: deciding,
        };
        self.wait_for_changes();
        then()
    }

    /// Lets no further change begin. Returns false if that was so before.
    pub(crate) fn shut_down(&self) -> bool {
        let _deciding = lock::lock(&self.deciding);
        let before = self.state();
        self.set(before | State::SHUT_DOWN);
        !before.contains(State::SHUT_DOWN)
    }

    /// Waits, when no more may begin, for the end of the changes under way. No lock may be held
    /// that one of them may want.
    pub(crate) fn wait_for_changes(&self) {
        while self.changes.count() != Some(0) {
            thread::yield_now();
        }
    }
}

/// A pause: changes wait until this is dropped.
struct Paused<'a> {
    gate: &'a WriteGate,
    before: State,
    _deciding: MutexGuard<'a, ()>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.gate.set(self.before);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changes.exit();
    }
}
