//! Epochs: finds out when nobody can see an unlinked value any more, and runs its destructor then.
//!
//! The epoch is a number that only grows. A thread that enters a read section (a *pin*) writes the epoch of that
//! moment into a record of its own, and zero when it leaves. Destructors of unlinked values are gathered in bags. A
//! full bag is *sealed*: it is stamped with the epoch, and the epoch moves on. A sealed bag is *expired*, and its
//! destructors may run, once every pin in the records is younger than the stamp.
//!
//! # Why it holds
//! Let R be a reader that found the value x by following pointers, and C a collector that has the bag of x before it.
//! 1. C executes the `heavy_fence` barrier and then scans the records. R wrote its pin, executed the `light_fence` barrier and then
//!    followed pointers. The barriers promise one of two: C sees the pin, or R sees everything that came before
//!    `heavy_fence`. The unlinking of x came before: it precedes the sealing, and that precedes C's getting the bag. So if R
//!    found x, C sees R's pin, or what R's record held later.
//! 2. The pin that C sees is not younger than the stamp. If it were, R would have loaded (`Acquire`) an epoch that the
//!    sealing of the bag or a later one had stored (`Release`; all are read-modify-writes), so the unlinking would
//!    have happened before, and R would not have found x.
//! 3. If C sees what the record held later, zero or another pin, then R has left: both are stored by `Release` and
//!    loaded by `Acquire`, so all that R did with x is over when the destructor runs.
//!
//! The barriers differ in cost because pins are many and collections few. Where the kernel offers it, `heavy_fence` makes
//! every thread of the process execute a full barrier, and `light_fence` only keeps the compiler from reordering. Otherwise
//! both are `fence(SeqCst)`. The module [`membarrier`] has the details.
//!
//! A thread keeps the bags that it has sealed, and frees them itself, several at the cost of one barrier: their values are then in its
//! own cache, and were allocated by it as a rule. When it flushes or ends, or keeps more than its share, they go to a queue that any
//! thread takes from.
//!
//! # Memory
//! An idle thread cannot free the bags that it keeps. All threads together therefore keep [`KEPT_IN_ALL`] bags, each an equal
//! share of them, and at least one (`Collector::share`). Every thread that seals a bag also runs bags of the queue that have
//! expired, so bags of threads that have ended wait no longer than until another thread has retired a bag's worth.
//!
//! # Rules
//! 1. Nobody waits. A pinned sleeper keeps alive what is sealed while it is pinned, and holds up nothing else.
//! 2. Destructors run in [`Collector::run`] and nowhere else, at most [`BAGS_AT_ONCE`] bags at a time of the thread's
//!    own, and as many of the queue: when a thread seals a bag, when it flushes, and when it ends. Never when it pins or unpins. They run on any
//!    thread, under whatever locks that thread holds when it retires or flushes.
//! 3. A destructor may pin, retire and flush. Collections do not nest: what a destructor retires waits for a later
//!    one, so that a long chain of values needs no deep stack. A destructor that panics is not run again; the others
//!    of its bag are, by a later collection.
//! 4. Records are never freed, only given back, so that a scan can follow their list without protection. There are
//!    as many as there have been threads at one time.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `Collector::epoch` | sealing | pin | add `Release`, load `Acquire` (E) |
//! | `Record::pinned` | its thread | collectors | `Release` / `Acquire` (U), and `light_fence` / `heavy_fence` |
//! | `Record::owned` | who takes the record, who leaves it | who looks for one | `Release` / `Acquire` (O) |
//! | `Collector::records`, `Record::next` | register | scans | `Release` / `Acquire` (N) |
//! | `Collector::inbox`, `Bag::next` | sealing, the queue's holder | the queue's holder | `Release` / `Acquire` (I) |
//! | `Collector::queued` | handing over, running | sealing | `Relaxed`: it says whether to look at the queue |
//! | `Collector::threads` | register, leave | sealing | `Relaxed`: it sets a share, and orders nothing |
//! | `depth`, `bag`, `sealed`, `empty`, `collecting` | the record's thread | the same | none; handed over with `owned` (O) |

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::TryLockError;

use crate::membarrier;
use crate::percpu::Padded;
use crate::primitive::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, capacity,
};

mod bag;
#[cfg(not(feature = "loom"))]
pub(crate) mod local;
#[cfg(test)]
mod tests;

use bag::{Bag, Deferred};

/// Bags whose destructors one collection runs.
const BAGS_AT_ONCE: usize = 32;

/// Sealed bags that a thread has when it looks whether they have expired, if there are few threads: two thousand values for one
/// barrier, which interrupts every other thread.
const KEPT_BAGS: usize = capacity(32, 1);

/// Sealed bags that all threads keep together, unless there are more threads than that.
const KEPT_IN_ALL: usize = 8 * KEPT_BAGS;

/// What [`Record::pinned`] holds outside of read sections, and no epoch.
const UNPINNED: u64 = 0;
const FIRST_EPOCH: u64 = 1;

/// Bit of [`Record::depth`]: the thread is ending, and gives the record back when the last guard goes.
const LEAVING: u64 = 1 << 63;

/// Threads that pin and retire together.
pub(crate) struct Collector {
    epoch: Padded<AtomicU64>,
    /// The list of all records that were ever made.
    records: AtomicPtr<Record>,
    /// A stack of sealed bags that are not in the queue yet.
    inbox: Padded<AtomicPtr<Bag>>,
    /// Sealed bags, the oldest first, give or take a few. No thread waits for this lock: one that finds it taken leaves the
    /// work to a later collection.
    queue: Mutex<VecDeque<Box<Bag>>>,
    /// Bags in the inbox and the queue.
    queued: AtomicUsize,
    /// Threads that have a record.
    threads: AtomicUsize,
}

/// One thread's part, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Record {
    /// The epoch in which the thread pinned, or [`UNPINNED`].
    pinned: AtomicU64,
    /// Guards that the thread has, and perhaps [`LEAVING`].
    depth: Cell<u64>,
    /// What the thread has retired and not sealed.
    bag: Cell<Option<Box<Bag>>>,
    /// What it has sealed and not handed over, the oldest first.
    sealed: Cell<VecDeque<Box<Bag>>>,
    /// Bags to be filled next, at most the thread's share: memory that is still in the CPU's cache.
    empty: Cell<VecDeque<Box<Bag>>>,
    /// Whether the thread is running destructors.
    collecting: Cell<bool>,
    /// Whether a thread has this record.
    owned: AtomicBool,
    next: *const Record,
}

// SAFETY: only the thread that has the record touches its cells, and it gets and leaves it through `owned` (O).
// SAFETY: `next` does not change once the record is shared, and what a bag holds may run on any thread.
unsafe impl Sync for Record {}

/// A static needs a constructor that is `const`, and loom has none.
macro_rules! new_collector {
    () => {
        Self {
            epoch: Padded(AtomicU64::new(FIRST_EPOCH)),
            records: AtomicPtr::new(ptr::null_mut()),
            inbox: Padded(AtomicPtr::new(ptr::null_mut())),
            queue: Mutex::new(VecDeque::new()),
            queued: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
        }
    };
}

impl Collector {
    #[cfg(not(feature = "loom"))]
    const fn new() -> Self {
        new_collector!()
    }

    #[cfg(feature = "loom")]
    fn new() -> Self {
        new_collector!()
    }

    /// A record for the calling thread, which has it alone until it calls [`Collector::leave`].
    fn register(&self) -> &'static Record {
        membarrier::register();
        self.threads.fetch_add(1, Ordering::Relaxed);
        let left = self.records().find(|record| {
            // Acquire: O, pairs with the Release of the thread that left the record.
            !record.owned.load(Ordering::Relaxed)
                && record.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        left.unwrap_or_else(|| self.add_record())
    }

    fn add_record(&self) -> &'static Record {
        let mut record = Box::new(Record {
            pinned: AtomicU64::new(UNPINNED),
            depth: Cell::new(0),
            bag: Cell::new(None),
            sealed: Cell::default(),
            empty: Cell::default(),
            collecting: Cell::new(false),
            owned: AtomicBool::new(true),
            next: ptr::null(),
        });
        let mut head = self.records.load(Ordering::Relaxed);
        loop {
            record.next = head;
            let new = Box::into_raw(record);
            // Release: N, pairs with the Acquire of the scans. Relaxed on failure: `head` is only passed on.
            match self.records.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: it came from a box that nobody frees any more (rule 4).
                Ok(_) => return unsafe { &*new },
                Err(now) => head = now,
            }
            // SAFETY: it came from the box above, and nobody else has seen it.
            record = unsafe { Box::from_raw(new) };
        }
    }

    fn records(&self) -> impl Iterator<Item = &'static Record> {
        // Acquire: N, pairs with the Release of every `add_record` so far, all being read-modify-writes.
        let mut next = self.records.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a record of the list: complete (N) and never freed (rule 4).
            let record = unsafe { next.as_ref() }?;
            next = record.next;
            Some(record)
        })
    }

    /// Gives `record` back, and seals what its thread has retired. Runs no destructor.
    fn leave(&self, record: &Record) {
        self.seal(record);
        self.hand_over(record);
        // The next owner may come when there are more threads, and would keep more than its share.
        record.empty.take();
        self.threads.fetch_sub(1, Ordering::Relaxed);
        record.depth.set(0);
        // Release: U, as in `unpin`.
        record.pinned.store(UNPINNED, Ordering::Release);
        // Release: O, pairs with the Acquire of the next owner, who finds the cells as they are now.
        record.owned.store(false, Ordering::Release);
    }

    /// Enters a read section, or one more level of it.
    #[inline]
    fn pin(&self, record: &Record) {
        let depth = record.depth.get();
        record.depth.set(depth + 1);
        if depth == 0 {
            // Acquire: E, pairs with the Release of the sealings before: what they hold cannot be found (2).
            let epoch = self.epoch.load(Ordering::Acquire);
            membarrier::publish(&record.pinned, epoch);
        }
    }

    /// Runs `deferred` once every read section that exists now has ended. Runs others first if that fills the bag.
    #[inline]
    fn defer(&self, record: &Record, deferred: Deferred) {
        let mut bag = record.bag.take().unwrap_or_else(|| record.take_empty());
        bag.push(deferred);
        let full = bag.is_full();
        record.bag.set(Some(bag));
        if full {
            self.seal_and_run(record);
        }
    }

    #[cold]
    fn seal_and_run(&self, record: &Record) {
        self.seal(record);
        self.run(record, || self.expired_own(record));
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.run(record, || self.expired_of_all());
        }
    }

    /// Sealed bags that each thread keeps for itself.
    fn share(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        (KEPT_IN_ALL / threads).clamp(1, KEPT_BAGS)
    }

    /// Seals what the thread has retired, and runs destructors that have expired, whoever retired them.
    fn flush(&self, record: &Record) {
        self.seal(record);
        self.hand_over(record);
        self.run(record, || self.expired_of_all());
    }

    /// Flushes until nothing more has expired, and gives the memory of empty bags back.
    #[cfg(not(feature = "loom"))]
    fn flush_all(&self, record: &Record) {
        // The first one hands over the thread's own bags.
        let mut before = usize::MAX;
        while self.queued.load(Ordering::Relaxed) < before {
            self.flush(record);
            before = self.queued.load(Ordering::Relaxed);
            self.flush(record);
        }
        record.empty.take();
    }

    fn seal(&self, record: &Record) {
        let Some(mut bag) = record.bag.take() else { return };
        if bag.is_empty() {
            return record.bag.set(Some(bag));
        }
        // Release: E, pairs with the Acquire of `pin`: who pins in a later epoch sees the values unlinked (2).
        bag.stamp = self.epoch.fetch_add(1, Ordering::Release);
        let mut sealed = record.sealed.take();
        sealed.push_back(bag);
        record.sealed.set(sealed);
    }

    /// Lets any thread have what this one has sealed.
    fn hand_over(&self, record: &Record) {
        record.sealed.take().into_iter().for_each(|bag| self.push(bag));
    }

    /// Lets any thread have the sealed bags that are more than this thread's share.
    fn hand_over_excess(&self, sealed: &mut VecDeque<Box<Bag>>) {
        let excess = sealed.len().saturating_sub(self.share());
        sealed.drain(..excess).for_each(|bag| self.push(bag));
    }

    fn push(&self, mut bag: Box<Bag>) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let mut head = self.inbox.load(Ordering::Relaxed);
        loop {
            bag.next = head;
            let new = Box::into_raw(bag);
            // Release: I, pairs with the Acquire of `empty_inbox`. Relaxed on failure: `head` is only passed on.
            match self.inbox.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
            // SAFETY: it came from the box above, and nobody else has seen it.
            bag = unsafe { Box::from_raw(new) };
        }
    }

    /// Moves the sealed bags to the end of the queue.
    fn empty_inbox(&self, queue: &mut VecDeque<Box<Bag>>) {
        // Acquire: I, pairs with the Release of every push since the last time, all being read-modify-writes.
        let mut stack = self.inbox.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut Bag = ptr::null_mut();
        // SAFETY: the swap took the stack from the inbox, so its bags are complete (I) and ours alone.
        while let Some(bag) = unsafe { stack.as_mut() } {
            (oldest, stack, bag.next) = (stack, bag.next, oldest);
        }
        while !oldest.is_null() {
            // SAFETY: as above; `push` took it out of a box.
            let bag = unsafe { Box::from_raw(oldest) };
            oldest = bag.next;
            queue.push_back(bag);
        }
    }

    /// Runs the destructors of the bags that `expired` finds, unless this thread is at it already.
    fn run(&self, record: &Record, expired: impl FnOnce() -> [Option<Box<Bag>>; BAGS_AT_ONCE]) {
        if record.collecting.replace(true) {
            return;
        }
        let _collecting = Collecting(record);
        let mut expired = Expired { collector: self, bags: expired() };
        for slot in &mut expired.bags {
            let Some(bag) = slot else { break };
            while let Some(deferred) = bag.pop() {
                deferred.run();
            }
            slot.take().into_iter().for_each(|empty| record.keep_empty(empty, self.share()));
        }
    }

    /// Takes bags that have expired, of those that the thread has kept, if there are enough to be worth it. Hands over
    /// those that have not, and are more than its share: a sleeper may be pinned, and this thread may do nothing more.
    fn expired_own(&self, record: &Record) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let mut sealed = record.sealed.take();
        let enough = sealed.len() >= self.share();
        let expired = if enough { self.expired(&mut sealed) } else { [const { None }; BAGS_AT_ONCE] };
        self.hand_over_excess(&mut sealed);
        record.sealed.set(sealed);
        expired
    }

    /// Takes bags that have expired, of those that have been handed over.
    fn expired_of_all(&self) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let Some(mut queue) = self.try_queue() else { return [const { None }; BAGS_AT_ONCE] };
        self.empty_inbox(&mut queue);
        let expired = self.expired(&mut queue);
        self.queued.fetch_sub(expired.iter().flatten().count(), Ordering::Relaxed);
        expired
    }

    fn expired(&self, queue: &mut VecDeque<Box<Bag>>) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let mut expired = [const { None }; BAGS_AT_ONCE];
        // A look without the barrier, which may miss pins, saves it where a pin is sure to keep everything.
        let hopeless = queue.front().is_none_or(|bag| bag.stamp >= self.oldest_pin());
        // `heavy_fence`: pairs with `light_fence` in `publish`. The queue's bags were sealed before (1).
        if hopeless || !membarrier::heavy_fence() {
            return expired;
        }
        let oldest = self.oldest_pin();
        expired.fill_with(|| queue.pop_front_if(|bag| bag.stamp < oldest));
        expired
    }

    fn try_queue(&self) -> Option<MutexGuard<'_, VecDeque<Box<Bag>>>> {
        match self.queue.try_lock() {
            Ok(queue) => Some(queue),
            // The queue is whole whatever panicked: out of memory at worst, while it grew.
            Err(TryLockError::Poisoned(queue)) => Some(queue.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The oldest epoch in which a thread is pinned, as far as this thread sees.
    fn oldest_pin(&self) -> u64 {
        // Acquire, within: U, pairs with the Release of `pin` and `unpin`: the sections before are over (3).
        let pins = self.records().map(|record| membarrier::read_published(&record.pinned));
        pins.filter(|&epoch| epoch != UNPINNED).min().unwrap_or(u64::MAX)
    }
}

impl Record {
    /// A bag to fill.
    #[cold]
    fn take_empty(&self) -> Box<Bag> {
        let mut empty = self.empty.take();
        let bag = empty.pop_back();
        self.empty.set(empty);
        bag.unwrap_or_default()
    }

    fn keep_empty(&self, bag: Box<Bag>, most: usize) {
        let mut empty = self.empty.take();
        empty.truncate(most);
        if empty.len() < most {
            empty.push_back(bag);
        }
        self.empty.set(empty);
    }

    /// Leaves one level of the read section. True if the thread is ending and this was the last one: then the caller
    /// has the collector take the record back.
    #[inline]
    #[must_use]
    fn unpin(&self) -> bool {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            // Release: U, pairs with the Acquire of `oldest_pin`: what the section did comes before the destructors.
            self.pinned.store(UNPINNED, Ordering::Release);
        }
        depth == LEAVING
    }
}

/// The thread of the record is running destructors.
struct Collecting<'a>(&'a Record);

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.collecting.set(false);
    }
}

/// Bags whose time has come. Those that a panicking destructor leaves go back to where they came from.
struct Expired<'a> {
    collector: &'a Collector,
    bags: [Option<Box<Bag>>; BAGS_AT_ONCE],
}

impl Drop for Expired<'_> {
    fn drop(&mut self) {
        self.bags.iter_mut().filter_map(Option::take).for_each(|bag| self.collector.push(bag));
    }
}
