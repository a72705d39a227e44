//! The epochs that [`crate::rcu`] uses: one collector for the process, and each thread's record in
//! a thread local.
//!
//! `rcu` calls it for each pin, retirement and flush. A pin takes no lock and stores only to the
//! record of its thread, except the first pin of a thread.
//!
//! A thread takes a record when it pins for the first time, and gives it back when its thread
//! locals are destroyed. Other locals' destructors may still pin after that; then a record is taken
//! for as long as a guard lasts. Guards that live in thread locals may also outlast [`End`]; then
//! the last of them gives the record back.

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::PoisonError;

use super::bag::Bag;
use super::{Collector, Deferred, LEAVING, Record};
use crate::fork::{AtFork, HeldAtFork};
use crate::primitive::{MutexGuard, Ordering};

pub(super) static COLLECTOR: Collector = Collector::new();

/// Holds the queue of [`COLLECTOR`] while a thread forks, and ends the read sections of the threads
/// that the child does not have.
static AT_FORK: AtFork = {
    static HELD: HeldAtFork<MutexGuard<'static, VecDeque<Box<Bag>>>> = HeldAtFork::new();
    extern "C" fn before() {
        let queue = COLLECTOR
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this is the handler before the fork.
        unsafe { HELD.keep(queue) };
    }
    extern "C" fn parent() {
        // SAFETY: this is the handler after the fork.
        drop(unsafe { HELD.release() });
    }
    extern "C" fn child() {
        // A thread that is pinned has its record here until its last guard goes.
        COLLECTOR.abandon_others(RECORD.try_with(Cell::get).ok().flatten());
        parent();
    }
    AtFork::new(before, parent, child)
};

thread_local! {
    // It has no destructor, so an access is one load, at any time in a thread's life.
    static RECORD: Cell<Option<&'static Record>> = const { Cell::new(None) };
    static END: End = const { End };
}

/// Gives the record back: its destructor runs when the thread ends.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let Some(record) = RECORD.try_with(Cell::get).ok().flatten() else {
            return;
        };
        // Runs destructors while the thread still has its record.
        COLLECTOR.flush(record);
        match record.depth.get() {
            0 => leave(record),
            guards => record.depth.set(guards | LEAVING),
        }
    }
}

pub(crate) struct Guard {
    record: &'static Record,
    /// Neither `Send` nor `Sync`: a record belongs to one thread.
    stays: PhantomData<*mut ()>,
}

#[inline]
pub(crate) fn pin() -> Guard {
    match RECORD.try_with(Cell::get) {
        Ok(Some(record)) => {
            COLLECTOR.pin(record);
            Guard {
                record,
                stays: PhantomData,
            }
        }
        _ => pin_first(),
    }
}

#[cold]
fn pin_first() -> Guard {
    AT_FORK.register();
    let record = COLLECTOR.register();
    COLLECTOR.pin(record);
    if END.try_with(|_| ()).is_err() {
        // The thread local is gone already, so this guard gives the record back.
        record.depth.set(1 | LEAVING);
    }
    // If this thread local is gone too, each guard has a separate record.
    let _ = RECORD.try_with(|own| own.set(Some(record)));
    Guard {
        record,
        stays: PhantomData,
    }
}

/// Returns the number of threads that have pinned and not ended.
pub(crate) fn threads() -> usize {
    COLLECTOR.threads.load(Ordering::Relaxed)
}

#[cold]
fn leave(record: &'static Record) {
    let _ = RECORD.try_with(|own| own.set(None));
    COLLECTOR.leave(record);
}

impl Guard {
    pub(crate) fn flush(&self) {
        COLLECTOR.flush(self.record);
    }

    pub(crate) fn flush_all(&self) {
        COLLECTOR.flush_all(self.record);
    }

    /// # Safety
    /// `retire` must be sound to run on any thread, at any later time.
    pub(crate) unsafe fn defer<F: FnOnce() + 'static>(&self, retire: F) {
        // SAFETY: the caller's promise.
        COLLECTOR.defer(self.record, unsafe { Deferred::new(retire) });
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.record.unpin() {
            leave(self.record);
        }
    }
}
