//! Epoch-based reclamation: finds out when no thread can see an unlinked value any more, and runs
//! its destructor then.
//!
//! [`rcu`](crate::rcu) is the one user. A destructor runs once, and never while a thread that was
//! pinned at the unlinking is still pinned.
//!
//! The epoch is a number that only grows. A thread that enters a read section (a *pin*) stores the
//! current epoch in its own record, and zero when it leaves. Destructors of unlinked values
//! are gathered in bags. A full bag is *sealed*: it is stamped with the epoch, and the epoch is
//! incremented. A sealed bag has *expired*, and its destructors may run, once every pin in the
//! records is younger than the stamp.
//!
//! # Why it holds
//! Let R be a reader that found the value x by following pointers, and C a collector that takes the
//! bag of x.
//! 1. C executes `heavy_fence`, then scans the records. R stored its pin, executed `light_fence`,
//!    then followed pointers. So C sees the pin, or R sees everything that happened before
//!    `heavy_fence`. The unlinking of x did: it precedes the sealing, and that precedes C's taking
//!    of the bag. So if R found x, C sees R's pin or a later value of R's record.
//! 2. The pin that C sees is not younger than the stamp. If it were, R would have loaded
//!    (`Acquire`) an epoch stored by the sealing of the bag or by a later one (`Release`; all are
//!    read-modify-writes). Then the unlinking would have happened before, and R would not have
//!    found x.
//! 3. If C sees a later value of the record, zero or another pin, then R has left. Both are stored
//!    by `Release` and loaded by `Acquire`, so R's use of x is over when the destructor runs.
//!
//! Pins are frequent and collections rare, so the barriers differ in cost. Where the kernel offers
//! it, `heavy_fence` makes every thread of the process execute a full barrier, and `light_fence`
//! only keeps the compiler from reordering. Elsewhere both are `fence(SeqCst)`. See [`membarrier`].
//!
//! A thread keeps the bags that it has sealed and frees them itself, several at the cost of one
//! barrier. Their values are then in its own cache, and mostly were allocated by it. A thread that
//! flushes, ends, or keeps more than its share moves bags to a queue that any thread takes from.
//!
//! # Memory
//! An idle thread does not free the bags that it keeps. All threads together therefore keep
//! [`KEPT_IN_ALL`] bags, each an equal share, and at least one (`Collector::share`). Every thread
//! that seals a bag also runs expired bags of the queue. So the bags of ended threads wait at most
//! until another thread has retired one bag.
//!
//! # Rules
//! 1. No thread waits. A pinned sleeper keeps alive the values that are sealed while it is pinned,
//!    and delays nothing else.
//! 2. Destructors run in [`Collector::run`] only: when a thread seals a bag, flushes, or ends,
//!    never when it pins or unpins. One call runs at most [`BAGS_AT_ONCE`] bags of the thread's own
//!    and as many of the queue. They run on any thread, under the locks that it holds when it
//!    retires or flushes.
//! 3. A destructor may pin, retire and flush. Collections do not nest: values that a destructor
//!    retires wait for a later collection, so a long chain of values needs no deep stack. A
//!    destructor that panics does not run again. A later collection runs the others of its bag.
//! 4. In a child of `fork(2)`, the read sections of threads that it does not have are over
//!    (`abandon_others`). The forking thread holds the lock of the queue, so that it is free.
//! 5. Records are never freed, only given back, so that a scan can follow their list without
//!    protection. There are as many as the most threads that lived at one time.
//!
//! | field | written by | read by | orderings |
//! | --- | --- | --- | --- |
//! | `Collector::epoch` | sealing | pin | add `Release`, load `Acquire` (E) |
//! | `Record::pinned` | its thread | collectors | `Release` / `Acquire` (U), and the fences |
//! | `Record::owned` | its owner, `register` | `register` | `Release` / `Acquire` (O) |
//! | `Collector::records`, `Record::next` | register | scans | `Release` / `Acquire` (N) |
//! | `inbox`, `Bag::next` | `push`, collectors | collectors | `Release` / `Acquire` (I) |
//! | `Collector::queued` | `push`, collectors | sealing | `Relaxed`: a hint to look at the queue |
//! | `Collector::threads` | register, leave | sealing | `Relaxed`: sets a share, orders nothing |
//! | the other fields of `Record` | its thread | its thread | none; handed over with `owned` (O) |

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::TryLockError;

use crate::percpu::Padded;
use crate::primitive::membarrier;
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

/// Sealed bags at which a thread checks whether they have expired, if there are few threads. So one
/// barrier, which interrupts every other thread, frees two thousand values.
const KEPT_BAGS: usize = capacity(32, 1);

/// Sealed bags that all threads keep together, unless there are more threads than that.
const KEPT_IN_ALL: usize = 8 * KEPT_BAGS;

/// The value of [`Record::pinned`] outside of read sections. Not an epoch.
const UNPINNED: u64 = 0;
const FIRST_EPOCH: u64 = 1;

/// A bit of [`Record::depth`]: the thread is ending and gives the record back with its last guard.
const LEAVING: u64 = 1 << 63;

/// A set of threads that pin and retire together.
pub(crate) struct Collector {
    epoch: Padded<AtomicU64>,
    /// The list of all records that were ever made.
    records: AtomicPtr<Record>,
    /// A stack of sealed bags that are not in the queue yet.
    inbox: Padded<AtomicPtr<Bag>>,
    /// Sealed bags, approximately oldest first. No thread waits for this lock: a thread that finds
    /// it taken leaves the work to a later collection.
    queue: Mutex<VecDeque<Box<Bag>>>,
    /// Bags in the inbox and the queue.
    queued: AtomicUsize,
    /// Threads that have a record.
    threads: AtomicUsize,
}

/// The state of one thread, on separate cache lines.
#[repr(align(128))]
pub(crate) struct Record {
    /// The epoch in which the thread pinned, or [`UNPINNED`].
    pinned: AtomicU64,
    /// The number of guards, and perhaps [`LEAVING`].
    depth: Cell<u64>,
    /// The bag that the thread fills.
    bag: Cell<Option<Box<Bag>>>,
    /// Bags that it has sealed and not handed over, oldest first.
    sealed: Cell<VecDeque<Box<Bag>>>,
    /// Empty bags to be filled next, at most the thread's share. Their memory is still in the CPU's
    /// cache.
    empty: Cell<VecDeque<Box<Bag>>>,
    /// Whether the thread is running destructors.
    collecting: Cell<bool>,
    /// Whether a thread has this record.
    owned: AtomicBool,
    next: *const Record,
}

// SAFETY: only the thread that owns the record accesses its cells, and it takes and leaves it
// through `owned` (O). `next` does not change once the record is shared. Any thread may run a bag.
unsafe impl Sync for Record {}

/// The fields of a new collector. A static needs a `const` constructor, which loom does not have.
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

    /// Returns a record for the calling thread, which owns it until it calls [`Collector::leave`].
    fn register(&self) -> &'static Record {
        membarrier::register();
        self.threads.fetch_add(1, Ordering::Relaxed);
        let left = self.records().find(|record| {
            // Acquire: O, pairs with the Release of the thread that left the record.
            !record.owned.load(Ordering::Relaxed)
                && record
                    .owned
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
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
            // Release: N, pairs with the Acquire of the scans. Relaxed on failure: `head` is only
            // passed on.
            match self.records.compare_exchange_weak(
                head,
                new,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                // SAFETY: it came from a box that is never freed (rule 5).
                Ok(_) => return unsafe { &*new },
                Err(now) => head = now,
            }
            // SAFETY: it came from the box above, and no other thread has seen it.
            record = unsafe { Box::from_raw(new) };
        }
    }

    fn records(&self) -> impl Iterator<Item = &'static Record> {
        // Acquire: N, pairs with the Release of all `add_record`s so far: they are
        // read-modify-writes.
        let mut next = self.records.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a record of the list: complete (N) and never freed (rule 5).
            let record = unsafe { next.as_ref() }?;
            next = record.next;
            Some(record)
        })
    }

    /// Gives `record` back, and hands its bags over. Runs no destructor.
    fn leave(&self, record: &Record) {
        self.seal(record);
        self.hand_over(record);
        // The next owner may come when there are more threads, and would then keep more than its
        // share.
        record.empty.take();
        self.threads.fetch_sub(1, Ordering::Relaxed);
        record.depth.set(0);
        // Release: U, pairs with the Acquire in `oldest_pin`.
        record.pinned.store(UNPINNED, Ordering::Release);
        // Release: O, pairs with the Acquire of the next owner, which finds the cells as they are
        // now.
        record.owned.store(false, Ordering::Release);
    }

    /// Ends the read sections of all threads but the owner of `own`, in a child of `fork(2)`: the
    /// other threads do not exist. Their bags leak, because the fork may have found them half
    /// changed, and their records are not used again for the same reason.
    #[cfg(not(feature = "loom"))]
    fn abandon_others(&self, own: Option<&Record>) {
        for record in self.records() {
            if !own.is_some_and(|own| ptr::eq(own, record)) {
                // Relaxed, both: the process has one thread.
                record.pinned.store(UNPINNED, Ordering::Relaxed);
            }
        }
        self.threads
            .store(usize::from(own.is_some()), Ordering::Relaxed);
    }

    /// Enters a read section, or one more level of it.
    #[inline]
    fn pin(&self, record: &Record) {
        let depth = record.depth.get();
        record.depth.set(depth + 1);
        if depth == 0 {
            // Acquire: E, pairs with the Release in earlier `seal`s. This reader cannot find their
            // values (2).
            let epoch = self.epoch.load(Ordering::Acquire);
            membarrier::publish(&record.pinned, epoch);
        }
    }

    /// Runs `deferred` once every read section that exists now has ended. Runs others first if that
    /// fills the bag.
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

    /// Returns how many sealed bags each thread keeps for itself.
    fn share(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed).max(1);
        (KEPT_IN_ALL / threads).clamp(1, KEPT_BAGS)
    }

    /// Seals and hands over the bags of the thread, and runs expired bags of any thread.
    fn flush(&self, record: &Record) {
        self.seal(record);
        self.hand_over(record);
        self.run(record, || self.expired_of_all());
    }

    /// Flushes until no more bags expire, and frees the memory of empty bags.
    #[cfg(not(feature = "loom"))]
    fn flush_all(&self, record: &Record) {
        // The first flush hands over the thread's own bags.
        let mut before = usize::MAX;
        while self.queued.load(Ordering::Relaxed) < before {
            self.flush(record);
            before = self.queued.load(Ordering::Relaxed);
            self.flush(record);
        }
        record.empty.take();
    }

    fn seal(&self, record: &Record) {
        let Some(mut bag) = record.bag.take() else {
            return;
        };
        if bag.is_empty() {
            return record.bag.set(Some(bag));
        }
        // Release: E, pairs with the Acquire in `pin`: a reader in a later epoch sees the values
        // unlinked (2).
        bag.stamp = self.epoch.fetch_add(1, Ordering::Release);
        let mut sealed = record.sealed.take();
        sealed.push_back(bag);
        record.sealed.set(sealed);
    }

    /// Moves the sealed bags of this thread to the inbox.
    fn hand_over(&self, record: &Record) {
        record
            .sealed
            .take()
            .into_iter()
            .for_each(|bag| self.push(bag));
    }

    /// Moves the sealed bags beyond this thread's share to the inbox.
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
            // Release: I, pairs with the Acquire in `empty_inbox`. Relaxed on failure: `head` is
            // only passed on.
            match self
                .inbox
                .compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
            // SAFETY: it came from the box above, and no other thread has seen it.
            bag = unsafe { Box::from_raw(new) };
        }
    }

    /// Moves the bags of the inbox to the end of the queue.
    fn empty_inbox(&self, queue: &mut VecDeque<Box<Bag>>) {
        // Acquire: I, pairs with the Release of all pushes since the last time: they are
        // read-modify-writes.
        let mut stack = self.inbox.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut Bag = ptr::null_mut();
        // SAFETY: the swap took the stack from the inbox. Its bags are complete (I) and have no
        // other user.
        while let Some(bag) = unsafe { stack.as_mut() } {
            (oldest, stack, bag.next) = (stack, bag.next, oldest);
        }
        while !oldest.is_null() {
            // SAFETY: as above, and `push` took it out of a box.
            let bag = unsafe { Box::from_raw(oldest) };
            oldest = bag.next;
            queue.push_back(bag);
        }
    }

    /// Runs the destructors of the bags that `expired` returns, unless this thread is running some
    /// already.
    fn run(&self, record: &Record, expired: impl FnOnce() -> [Option<Box<Bag>>; BAGS_AT_ONCE]) {
        if record.collecting.replace(true) {
            return;
        }
        let _collecting = Collecting(record);
        let mut expired = Expired {
            collector: self,
            bags: expired(),
        };
        for slot in &mut expired.bags {
            let Some(bag) = slot else { break };
            while let Some(deferred) = bag.pop() {
                deferred.run();
            }
            slot.take()
                .into_iter()
                .for_each(|empty| record.keep_empty(empty, self.share()));
        }
    }

    /// Takes the expired bags among the bags that the thread keeps, if it keeps its full share.
    /// Hands over the excess: a pinned sleeper may keep the bags from expiring, and this thread may
    /// become idle.
    fn expired_own(&self, record: &Record) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let mut sealed = record.sealed.take();
        let enough = sealed.len() >= self.share();
        let expired = if enough {
            self.expired(&mut sealed)
        } else {
            [const { None }; BAGS_AT_ONCE]
        };
        self.hand_over_excess(&mut sealed);
        record.sealed.set(sealed);
        expired
    }

    /// Takes the expired bags among the bags that were handed over.
    fn expired_of_all(&self) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let Some(mut queue) = self.try_queue() else {
            return [const { None }; BAGS_AT_ONCE];
        };
        self.empty_inbox(&mut queue);
        let expired = self.expired(&mut queue);
        self.queued
            .fetch_sub(expired.iter().flatten().count(), Ordering::Relaxed);
        expired
    }

    fn expired(&self, queue: &mut VecDeque<Box<Bag>>) -> [Option<Box<Bag>>; BAGS_AT_ONCE] {
        let mut expired = [const { None }; BAGS_AT_ONCE];
        // A scan without the barrier may miss pins. It saves the barrier where a pin keeps even the
        // first bag.
        let hopeless = queue
            .front()
            .is_none_or(|bag| bag.stamp >= self.oldest_pin());
        // `heavy_fence`: pairs with `light_fence` in `pin`. The queue's bags were sealed before
        // (1).
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
            // The queue is whole after a panic: at worst it was out of memory while it grew.
            Err(TryLockError::Poisoned(queue)) => Some(queue.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the oldest epoch in which a thread is pinned, as far as this thread sees.
    fn oldest_pin(&self) -> u64 {
        // Acquire, in `read_published`: U, pairs with the Release in `pin` and `unpin`. Earlier
        // sections are over (3).
        let pins = self
            .records()
            .map(|record| membarrier::read_published(&record.pinned));
        pins.filter(|&epoch| epoch != UNPINNED)
            .min()
            .unwrap_or(u64::MAX)
    }
}

impl Record {
    /// Returns a bag to fill.
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

    /// Leaves one level of the read section. Returns true if the thread is ending and this was the
    /// last level: then the caller must give the record back to the collector.
    #[inline]
    #[must_use]
    fn unpin(&self) -> bool {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            // Release: U, pairs with the Acquire in `oldest_pin`: the section precedes the
            // destructors.
            self.pinned.store(UNPINNED, Ordering::Release);
        }
        depth == LEAVING
    }
}

/// Clears `collecting` when it is dropped.
struct Collecting<'a>(&'a Record);

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.collecting.set(false);
    }
}

/// Expired bags. If a destructor panics, the rest of them goes back to the inbox.
struct Expired<'a> {
    collector: &'a Collector,
    bags: [Option<Box<Bag>>; BAGS_AT_ONCE],
}

impl Drop for Expired<'_> {
    fn drop(&mut self) {
        self.bags
            .iter_mut()
            .filter_map(Option::take)
            .for_each(|bag| self.collector.push(bag));
    }
}
