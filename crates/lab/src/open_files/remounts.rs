//! Threads that open files for writing and close them, while somebody wants to know now and then
//! whether the file system can be made read-only: it can if nobody has a file open for writing, and
//! then nobody may open one.

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
/// Files opened between two looks at whether the time is up.
const BATCH: u64 = 256;

/// A registry, and what tells whether files are open for writing.
pub(super) trait Telling: Locks {
    /// What is counted beside the registry.
    type Writers: Send + Sync;

    /// Nobody.
    fn nobody() -> Self::Writers;

    /// A file has been entered that is open for writing.
    fn enter(writers: &Self::Writers);

    /// It is about to be taken out.
    fn leave(writers: &Self::Writers);

    /// Whether there is one.
    fn any(&self, writers: &Self::Writers) -> bool;
}

/// Lists are looked through, under the locks that one needs to enter a file.
macro_rules! lists_tell {
    ($($list:ty),*) => {$(
        impl Telling for $list {
            type Writers = ();

            fn nobody() {}

            fn enter((): &()) {}

            fn leave((): &()) {}

            fn any(&self, (): &()) -> bool {
                !self.list(|opened| opened.flags().contains(OpenFlags::WRITE).then_some(())).is_empty()
            }
        }
    )*};
}

lists_tell!(Baseline, Patch);

/// Nobody looks through slabs for that: writers are counted, by stores to lines of their threads.
impl Telling for Extern4 {
    type Writers = ThreadRefcount;

    fn nobody() -> ThreadRefcount {
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

/// A file system, as far as it is open.
pub(super) struct Volume<R: Telling> {
    registry: R,
    writers: R::Writers,
    /// It is read-only, or somebody finds out whether it can be.
    closing: AtomicBool,
}

impl<R: Telling> Volume<R> {
    pub(super) fn new() -> Self {
        Self { registry: R::default(), writers: R::nobody(), closing: AtomicBool::new(false) }
    }

    #[cfg(test)]
    pub(super) fn registry(&self) -> &R {
        &self.registry
    }

    /// Opens a file for writing, as soon as one may.
    pub(super) fn open(&self, ino: u64) -> R::Ticket {
        let mut info = OpenFileInfo::default();
        (info.session, info.uid, info.ino, info.flags) = (1, 1000, ino, OpenFlags::WRITE);
        loop {
            let ticket = self.registry.add(|opened| opened.fill(&info, PATH)).expect("there is room");
            R::enter(&self.writers);
            // Relaxed: a lock of the registry orders it, or the handshake of `ThreadRefcount`.
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

    /// Makes the file system read-only for as long as `meanwhile` takes; false if somebody has a
    /// file open for writing.
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

pub(super) fn take<R: Telling>(plan: &Plan, threads: usize) -> Sample {
    let (volume, moves) = (Volume::<R>::new(), Moves::new());
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
    stay.iter().for_each(|ticket| close(&volume.registry, ticket));
    let mut sample = sample(&done, &moves, volume.registry.locks());
    sample.counters.push(("an attempt, us", Figures(micros).median().unwrap_or(f64::NAN)));
    sample
}
