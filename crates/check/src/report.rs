//! A pass on all cores: its items are spread over threads, and their faults are reported in order.
//!
//! Threads take one item after the other and send their faults through a bounded channel to the
//! caller's thread, which alone calls the caller's function. The report sorts the faults of a pass
//! by place before it hands them out, up to [`HELD`] of them. The volume decides how many there
//! are, so the report bounds the memory for them.
//!
//! All passes use it. So the report of a volume is the same on any number of cores, as long as a
//! pass has no more faults than that.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::fault::Fault;
use crate::progress::{Interrupted, Pass, Progress, Watch};

/// How many faults are kept to be sorted.
const HELD: usize = 1 << 16;
/// How many faults may wait between the threads and the caller.
const QUEUED: usize = 256;

/// Where the faults of a pass go.
pub(crate) struct Report<'a> {
    each: &'a mut dyn FnMut(Fault),
    threads: usize,
    watch: Option<&'a Watch<'a>>,
    held: Vec<Fault>,
    /// How many faults there were.
    pub(crate) faults: u64,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        each: &'a mut dyn FnMut(Fault),
        threads: usize,
        watch: Option<&'a Watch<'a>>,
    ) -> Self {
        Self {
            each,
            threads,
            watch,
            held: Vec::new(),
            faults: 0,
        }
    }

    /// Keeps a fault until the pass ends.
    pub(crate) fn push(&mut self, fault: impl Into<Fault>) {
        self.held.push(fault.into());
        self.faults += 1;
        if self.held.len() >= HELD {
            self.end_pass();
        }
    }

    /// Hands out the faults of the pass.
    pub(crate) fn end_pass(&mut self) {
        self.held.sort_by_key(|fault| {
            let place = &fault.place;
            (
                place.group.is_none(),
                place.group,
                place.ino,
                place.block,
                place.offset,
            )
        });
        self.held.drain(..).for_each(&mut self.each);
    }

    /// Calls `work` with each number below `items`, on all threads, each with its own state
    /// that `start` makes. Fails if the caller ends the check, which leaves out items.
    pub(crate) fn each_item<S>(
        &mut self,
        pass: Pass,
        items: usize,
        start: impl Fn(Sink) -> S + Sync,
        work: impl Fn(&mut S, usize) + Sync,
    ) -> Result<(), Interrupted> {
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let is_interrupted = AtomicBool::new(false);
        let watch = self.watch;
        let goes_on = || {
            let done = done.fetch_add(1, Relaxed) as u64 + 1;
            let progress = Progress {
                pass,
                done,
                total: items as u64,
            };
            watch.is_none_or(|watch| watch(progress).is_continue())
        };
        let (sender, receiver) = sync_channel(QUEUED);
        let run = |sink: Sink| {
            let mut state = start(sink);
            loop {
                // Relaxed: the counters hand out numbers and guard nothing, nor does the flag.
                let item = next.fetch_add(1, Relaxed);
                if item >= items || is_interrupted.load(Relaxed) {
                    return;
                }
                work(&mut state, item);
                if !goes_on() {
                    is_interrupted.store(true, Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(items).max(1) {
                let sink = Sink(sender.clone());
                scope.spawn(|| run(sink));
            }
            drop(sender);
            for fault in receiver {
                self.push(fault);
            }
        });
        self.end_pass();
        if is_interrupted.into_inner() {
            Err(Interrupted {
                faults: self.faults,
            })
        } else {
            Ok(())
        }
    }
}

/// Where one thread's faults go.
#[derive(Clone)]
pub(crate) struct Sink(SyncSender<Fault>);

impl Sink {
    /// Reports a fault.
    pub(crate) fn push(&mut self, fault: impl Into<Fault>) {
        // The other end lives as long as the threads of the pass do.
        let _ = self.0.send(fault.into());
    }
}
