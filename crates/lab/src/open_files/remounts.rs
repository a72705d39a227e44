//! The workload of remounts: threads open files for writing, while another makes the file system
//! read-only.
//!
//! A remount succeeds if no file is open for writing. While the file system is read-only, no thread
//! may open one. `open_files` measures on each side how long opens and remounts take; the tests
//! check that no file is open for writing during a successful remount.

use std::thread;
use std::time::Instant;

use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_sync::thread_refcount::ThreadRefcount;
use extern4_vfs::lab::Registry;
use extern4_vfs::{OpenFileInfo, OpenFlags};

use super::{Baseline, Extern4, Locks, Moves, PATH, Patch, close, open, sample};
use crate::plan::{Plan, load};
use crate::row::Sample;
use extern4_measure::figures::Figures;

/// Files that are open for reading all the time.
const OPEN: u64 = 1000;
/// Attempts while a figure is taken.
const ATTEMPTS: usize = 3;
/// Files opened between two checks of whether the time is up.
const BATCH: u64 = 256;

/// A registry that can tell whether files are open for writing.
pub(super) trait WriterCheck: Locks {
    /// The count of writers, next to the registry.
    type Writers: Send + Sync;

    /// Returns a count of no writers.
    fn no_writers() -> Self::Writers;

    /// Counts a file open for writing, after it has been entered.
    fn enter(writers: &Self::Writers);

    /// Stops counting a file, before it is removed.
    fn leave(writers: &Self::Writers);

    /// Returns whether a file is open for writing.
    fn any(&self, writers: &Self::Writers) -> bool;
}

/// Lists are searched, under the locks that a thread needs to enter a file.
macro_rules! lists_check_writers {
    ($($list:ty),*) => {$(
        impl WriterCheck for $list {
            type Writers = ();

            fn no_writers() {}

            fn enter((): &()) {}

            fn leave((): &()) {}

            fn any(&self, (): &()) -> bool {
                !self.list(|opened| opened.flags().contains(OpenFlags::WRITE).then_some(())).is_empty()
            }
        }
    )*};
}

lists_check_writers!(Baseline, Patch);

/// Slabs are not searched for that. Writers are counted, by stores to lines of their threads.
impl WriterCheck for Extern4 {
    type Writers = ThreadRefcount;

    fn no_writers() -> ThreadRefcount {
        ThreadRefcount::new()
    }

    fn enter(writers: &ThreadRefcount) {
        writers.enter();
    }

    fn leave(writers: &ThreadRefcount) {
        writers.exit();
    }

    fn any(&self, writers: &ThreadRefcount) -> bool {
        writers.count() != Some(0)
    }
}

/// The open files of a file system.
pub(super) struct Volume<R: WriterCheck> {
    registry: R,
    writers: R::Writers,
    /// The file system is read-only, or a thread is finding out whether it can be.
    closing: AtomicBool,
}

impl<R: WriterCheck> Volume<R> {
    pub(super) fn new() -> Self {
        Self {
            registry: R::default(),
            writers: R::no_writers(),
            closing: AtomicBool::new(false),
        }
    }

    #[cfg(test)]
    pub(super) fn registry(&self) -> &R {
        &self.registry
    }

    /// Opens a file for writing, as soon as the file system is writable.
    pub(super) fn open(&self, ino: u64) -> R::Ticket {
        let mut info = OpenFileInfo::default();
        (info.session, info.uid, info.ino, info.flags) = (1, 1000, ino, OpenFlags::WRITE);
        loop {
            let ticket = self
                .registry
                .add(|opened| opened.fill(&info, PATH))
                .expect("there is room");
            R::enter(&self.writers);
            // Relaxed: a lock of the registry or the handshake of `ThreadRefcount` orders the load.
            if !self.closing.load(Ordering::Relaxed) {
                return ticket;
            }
            self.close(&ticket);
            thread::yield_now();
        }
    }

    pub(super) fn close(&self, ticket: &R::Ticket) {
        R::leave(&self.writers);
        close(&self.registry, ticket);
    }

    /// Makes the file system read-only while `meanwhile` runs. Returns false if a file is open for
    /// writing.
    pub(super) fn remount(&self, meanwhile: impl FnOnce()) -> bool {
        self.closing.store(true, Ordering::Relaxed);
        let can = !self.registry.any(&self.writers);
        if can {
            meanwhile();
        }
        self.closing.store(false, Ordering::Relaxed);
        can
    }
}

pub(super) fn take<R: WriterCheck>(plan: &Plan, threads: usize) -> Sample {
    let volume = Volume::<R>::new();
    let moves = Moves::new();
    let stay: Vec<_> = (0..OPEN).map(|ino| open(&volume.registry, ino)).collect();
    let mut micros = Vec::new();
    let meanwhile = || {
        for _ in 0..ATTEMPTS {
            thread::sleep(plan.period);
            let start = Instant::now();
            volume.remount(|| ());
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
    };
    let batch = |(): &mut ()| {
        for ino in 1..BATCH {
            volume.close(&volume.open(ino));
        }
        let cpu = extern4_sync::percpu::cpu();
        volume.close(&volume.open(BATCH));
        moves.note(cpu);
        BATCH
    };
    let done = load(threads).repeat(meanwhile, |_| (), batch);
    stay.iter()
        .for_each(|ticket| close(&volume.registry, ticket));
    let mut sample = sample(&done, &moves, volume.registry.locks());
    sample.counters.push((
        "an attempt, us",
        Figures(micros).median().unwrap_or(f64::NAN),
    ));
    sample
}
