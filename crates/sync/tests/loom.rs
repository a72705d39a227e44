//! Models of the protocols.
#![cfg(feature = "loom")]

use std::sync::Arc as StdArc;

use extern4_sync::anchor::{Anchor, Local};
use extern4_sync::hash_table::{Found, HashTable};
use extern4_sync::holders::Holders;
use extern4_sync::lglock::LgLock;
use extern4_sync::model::{explore, race, race_for};
use extern4_sync::percpu::Counter;
use extern4_sync::primitive::latch::Latch;
use extern4_sync::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, thread};
use extern4_sync::rcu::{self, Rcu, RcuOption, pin};
use extern4_sync::seqcount::SeqCount;
use extern4_sync::shared::{Lease, Link, Release, Shared};
use extern4_sync::supply::Supply;
use extern4_sync::table::{Held, Table};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

/// A value whose destructor poisons it, so that a use after the free is seen, and whose contents are a plain cell, so
/// that a use before the publication is seen.
struct Poisoned {
    value: UnsafeCell<u64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

// SAFETY: nothing writes the cell after it was made; that its making comes first is what the models check.
unsafe impl Sync for Poisoned {}

impl Poisoned {
    fn new(value: u64) -> Self {
        Self { value: UnsafeCell::new(value), alive: StdArc::new(true.into()) }
    }

    fn value(&self) -> u64 {
        assert!(self.alive.load(Ordering::Relaxed), "used after it was freed");
        // SAFETY: loom's cell gives a valid pointer, and panics where the read would be a race.
        self.value.with(|value| unsafe { *value })
    }
}

impl Drop for Poisoned {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
        // SAFETY: as in `value`; the write is the model's stand-in for the memory's next use.
        self.value.with_mut(|value| unsafe { *value = u64::MAX });
    }
}

#[test]
fn seqlock_reader_writer() {
    type Shared = (SeqCount, AtomicU64, AtomicU64);
    let copy = |(_, a, b): &Shared| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
    race(
        || (SeqCount::new(), AtomicU64::new(0), AtomicU64::new(0)),
        move |shared| {
            let Some(seq) = shared.0.begin() else { return };
            let seen = copy(shared);
            if shared.0.validate(seq) {
                assert_eq!(seen.0, seen.1, "torn copy");
            }
        },
        |(count, a, b)| {
            for value in 1..3 {
                let _section = count.write();
                a.store(value, Ordering::Relaxed);
                b.store(value, Ordering::Relaxed);
            }
        },
        move |shared| assert_eq!(shared.0.read(|| copy(shared)), Some((2, 2))),
    );
}

#[test]
fn rcu_load_vs_replace() {
    race(
        || Rcu::new(Poisoned::new(1)),
        |cell| {
            let guard = pin();
            let seen = cell.load(&guard);
            thread::yield_now();
            assert!(seen.value() == 1 || seen.value() == 2);
        },
        |cell| cell.store(Poisoned::new(2)),
        |cell| assert_eq!(cell.load(&pin()).value(), 2),
    );
}

#[test]
fn rcu_two_fill_one_wins() {
    explore(|| {
        let cell = Arc::new(RcuOption::new(None));
        let fill = |cell: &RcuOption<Poisoned>, value| {
            let guard = pin();
            match cell.compare_exchange(None, Some(Poisoned::new(value)), &guard) {
                Ok(stored) => stored.unwrap().value(),
                Err(lost) => lost.current.unwrap().value(),
            }
        };
        let other = thread::spawn({
            let cell = cell.clone();
            move || fill(&cell, 1)
        });
        let mine = fill(&cell, 2);
        assert_eq!(mine, other.join().unwrap(), "two fillers saw two values");
    });
}

#[test]
fn counter_loses_nothing() {
    explore(|| {
        let counter = Arc::new(Counter::new());
        let other = thread::spawn({
            let counter = counter.clone();
            move || counter.add(1)
        });
        counter.add(2);
        assert!(counter.sum() >= 2);
        other.join().unwrap();
        assert_eq!(counter.sum(), 3);
    });
}

/// Buckets that an eviction has to look at to see all of a small table.
const ALL: usize = 2;

fn empty_table() -> Table<Poisoned> {
    Table::with_capacity(1)
}

/// A table with entries of keys 1 and 2 that nobody holds.
fn table_of_two() -> Table<Poisoned> {
    let table = empty_table();
    drop(table.find_or_insert(1, Poisoned::new(1)));
    drop(table.find_or_insert(2, Poisoned::new(2)));
    table
}

/// What every handle owes: alive, and the one that lookups find.
fn check_listed(table: &Table<Poisoned>, held: &Held<Poisoned>) {
    held.value();
    let guard = pin();
    let found = table.get(held.key(), &guard).expect("a held entry is in the table");
    found.value().value();
    assert!(found.hold().unwrap().ptr_eq(held), "two live entries of one key");
}

#[test]
fn buf_insert_vs_insert() {
    let insert = |table: &Table<Poisoned>, value| {
        let (held, made) = table.find_or_insert(1, Poisoned::new(value));
        check_listed(table, &held);
        assert_eq!(made, held.value() == value);
    };
    race(
        empty_table,
        move |table| insert(table, 1),
        move |table| insert(table, 2),
        |table| assert!(table.get(1, &pin()).is_some()),
    );
}

#[test]
fn buf_insert_vs_lookup() {
    race(
        empty_table,
        |table| drop(table.find_or_insert(1, Poisoned::new(1))),
        |table| {
            let guard = pin();
            if let Some(seen) = table.get(1, &guard) {
                assert_eq!(seen.value().value(), 1);
            }
        },
        |table| assert!(table.get(1, &pin()).is_some()),
    );
}

#[test]
fn buf_insert_vs_dead() {
    race(
        table_of_two,
        |table| {
            let (held, _) = table.find_or_insert(1, Poisoned::new(3));
            check_listed(table, &held);
        },
        |table| _ = table.evict(2, ALL),
        // The handle is gone, and the second thread may have come late enough to evict the new entry too.
        |_| (),
    );
}

#[test]
fn buf_evict_vs_lookup() {
    race(
        table_of_two,
        |table| _ = table.evict(2, ALL),
        |table| {
            let guard = pin();
            let Some(seen) = table.get(1, &guard) else { return };
            seen.value().value();
            let held = seen.hold();
            seen.value().value();
            drop(guard);
            held.inspect(|held| check_listed(table, held));
        },
        |_| (),
    );
}

#[test]
fn buf_lastput_vs_lookup() {
    explore(|| {
        let table = Arc::new(empty_table());
        let held = table.find_or_insert(1, Poisoned::new(1)).0;
        let releaser = thread::spawn({
            let table = table.clone();
            move || {
                table.remove(&held);
                drop(held);
            }
        });
        {
            let guard = pin();
            if let Some(seen) = table.get(1, &guard) {
                let held = seen.hold();
                seen.value().value();
                drop(guard);
                held.inspect(|held| _ = held.value());
            }
        }
        releaser.join().unwrap();
        assert!(table.get(1, &pin()).is_none());
    });
}

#[test]
fn buf_teardown_vs_retired() {
    explore(|| {
        let table = Arc::new(empty_table());
        let held = table.find_or_insert(1, Poisoned::new(1)).0;
        let alive = held.alive.clone();
        let holder = thread::spawn(move || {
            let second = held.clone();
            drop(held);
            second.value();
        });
        table.evict(1, ALL);
        drop(table);
        holder.join().unwrap();
        drop(pin());
        assert!(!alive.load(Ordering::Relaxed), "never freed");
    });
}

/// A value that one thread loads and others wait for, as the buffer cache has it.
#[derive(Default)]
struct Loading(Mutex<Option<Result<u32, ()>>>, Condvar);

impl Loading {
    fn set(&self, result: Result<u32, ()>) {
        *self.0.lock().unwrap() = Some(result);
        self.1.notify_all();
    }

    fn wait(&self) -> Result<u32, ()> {
        let mut state = self.0.lock().unwrap();
        loop {
            match *state {
                Some(result) => return result,
                None => state = self.1.wait(state).unwrap(),
            }
        }
    }
}

#[test]
fn buf_load_fail_waiters() {
    explore(|| {
        let table = Arc::new(Table::with_capacity(1));
        // The device fails once.
        let tries = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let read = |table: &Table<Loading>, tries: &loom::sync::atomic::AtomicU32| {
            let (held, made) = table.find_or_insert(1, Loading::default());
            if made {
                let result = if tries.fetch_add(1, Ordering::Relaxed) == 0 { Err(()) } else { Ok(7) };
                if result.is_err() {
                    table.remove(&held);
                }
                held.set(result);
            }
            held.wait()
        };
        let other = thread::spawn({
            let (table, tries) = (table.clone(), tries.clone());
            // Who is told of a failure finds no trace of it afterwards.
            move || read(&table, &tries).or_else(|()| read(&table, &tries))
        });
        let mine = read(&table, &tries).or_else(|()| read(&table, &tries));
        assert_eq!((mine, other.join().unwrap()), (Ok(7), Ok(7)));
        assert_eq!(table.get(1, &pin()).unwrap().value().wait(), Ok(7));
        assert_eq!(tries.load(Ordering::Relaxed), 2, "a read too many");
    });
}

/// A counted value that knows whether it has ended, and notices if it is used afterwards.
struct Ending {
    value: Poisoned,
    /// What a holder does to the value: plain, so that an end that does not come after it is seen.
    work: UnsafeCell<u64>,
    ends: StdArc<std::sync::atomic::AtomicU64>,
}

// SAFETY: as for `Poisoned`; `work` has one writer in each model.
unsafe impl Sync for Ending {}
// SAFETY: the cells hold plain numbers.
unsafe impl Send for Ending {}

impl Ending {
    fn new(value: u64) -> (Shared<Self>, Ends) {
        let ends = StdArc::default();
        let (value, work) = (Poisoned::new(value), UnsafeCell::new(0));
        let watch = Ends { ends: StdArc::clone(&ends), alive: value.alive.clone() };
        (Shared::new(Self { value, work, ends }), watch)
    }

    /// What only a holder may do. One thread of a model does.
    fn work(&self) {
        assert_eq!(self.ends.load(Ordering::Relaxed), 0, "held after its end");
        // SAFETY: loom's cell gives a valid pointer, and panics where the write would be a race.
        self.work.with_mut(|work| unsafe { *work += 1 });
    }
}

impl Release for Ending {
    fn release(&self) {
        self.value.value();
        // SAFETY: as in `work`.
        self.work.with(|work| unsafe { *work });
        assert_eq!(self.ends.fetch_add(1, Ordering::Relaxed), 0, "ended twice");
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        assert_eq!(self.ends.load(Ordering::Relaxed), 1, "freed before its end");
    }
}

/// What became of a counted value.
#[derive(Clone)]
struct Ends {
    ends: StdArc<std::sync::atomic::AtomicU64>,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

impl Ends {
    fn times(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    /// After the last guard has gone.
    fn check_freed(&self) {
        drop(pin());
        assert_eq!((self.times(), self.alive.load(Ordering::Relaxed)), (1, false), "ended, and freed");
    }
}

fn link_of_one() -> (Link<Ending>, Ends) {
    let (value, ends) = Ending::new(1);
    (Link::new(Some(value)), ends)
}

/// Comes to the value as a reader, makes a reference if there is one, and uses both.
fn see_and_hold((link, _): &(Link<Ending>, Ends)) -> bool {
    let guard = pin();
    let Some(seen) = link.see(&guard) else { return false };
    assert_eq!(seen.value.value(), 1);
    let held = seen.hold();
    assert_eq!(seen.value.value(), 1);
    drop(guard);
    held.inspect(|held| held.work()).is_some()
}

#[test]
fn shared_hold_vs_last_drop() {
    race(
        link_of_one,
        |shared| _ = see_and_hold(shared),
        |(link, _)| drop(link.take()),
        |(link, ends)| {
            assert!(link.see(&pin()).is_none());
            ends.check_freed();
        },
    );
}

#[test]
fn shared_drop_vs_drop() {
    explore(|| {
        let (value, ends) = Ending::new(1);
        let second = value.clone();
        let other = thread::spawn(move || {
            second.work();
            drop(second);
        });
        drop(value);
        other.join().unwrap();
        ends.check_freed();
    });
}

#[test]
fn shared_take_last_vs_hold() {
    race_for(
        link_of_one,
        see_and_hold,
        |(link, _)| {
            let last = link.take_last();
            last.inspect(|_| assert!(link.see(&pin()).is_none())).is_some()
        },
        |(link, ends), held, taken| {
            assert!(held || taken || link.see(&pin()).is_some(), "lost");
            assert_eq!((link.see(&pin()).is_none(), ends.times()), (taken, u64::from(taken)));
            drop(link.take());
            ends.check_freed();
        },
    );
}

#[test]
fn shared_take_last_vs_drop() {
    race(
        || {
            let shared = link_of_one();
            let held = shared.0.see(&pin()).unwrap().hold();
            (shared, Mutex::new(held))
        },
        |(_, held)| {
            let held = held.lock().unwrap().take().unwrap();
            held.work();
            drop(held);
        },
        |((link, _), _)| drop(link.take_last()),
        |((link, ends), _)| {
            assert_eq!(u64::from(link.see(&pin()).is_none()), ends.times());
            drop(link.take());
            ends.check_freed();
        },
    );
}

#[test]
fn shared_take_last_vs_set() {
    race_for(
        link_of_one,
        |(link, _)| {
            let (value, ends) = Ending::new(2);
            drop(link.set(Some(value)));
            ends
        },
        |(link, _)| drop(link.take_last()),
        |(link, first), second, ()| {
            first.check_freed();
            let there = link.see(&pin()).map(|there| there.value.value());
            assert_eq!(u64::from(there.is_none()), second.times(), "ended, or there");
            drop(link.take());
            second.check_freed();
        },
    );
}

#[test]
fn shared_take_last_vs_hold_and_set() {
    race_for(
        link_of_one,
        |(link, _)| {
            let guard = pin();
            // Unless it has been taken, who takes may find it held, and would put it back.
            let held = link.see(&guard).and_then(|seen| seen.hold());
            let (value, ends) = Ending::new(2);
            drop(link.set(Some(value)));
            drop(guard);
            held.inspect(|held| held.work());
            ends
        },
        |(link, _)| drop(link.take_last()),
        |(link, first), second, ()| {
            first.check_freed();
            let there = link.see(&pin()).map(|there| there.value.value());
            assert_eq!(there.unwrap_or(2), 2, "put back in place of the new one");
            assert_eq!(u64::from(there.is_none()), second.times(), "ended, or there");
            drop(link.take());
            second.check_freed();
        },
    );
}

/// A value that keeps another in use.
struct Owner {
    value: Poisoned,
    lease: Lease<Ending>,
}

impl Release for Owner {
    fn release(&self) {
        // SAFETY: the link that led to this has been emptied, and no reference is left.
        unsafe { self.lease.release() };
    }
}

// SAFETY: as for `Poisoned`.
unsafe impl Send for Owner {}

#[test]
fn shared_lease_vs_end_of_its_owner() {
    race(
        || {
            let (value, ends) = Ending::new(1);
            let owner = Shared::new(Owner { value: Poisoned::new(2), lease: Lease::new(value) });
            (Link::new(Some(owner)), ends)
        },
        |(link, _)| {
            let guard = pin();
            let Some(owner) = link.see(&guard) else { return };
            assert_eq!(owner.get().lease.get().value.value(), 1);
            let owner_held = owner.hold();
            let held = owner.get().lease.get().hold();
            // Who holds the owner can hold what it keeps.
            assert!(owner_held.is_none() || held.is_some());
            assert_eq!(owner.get().value.value(), 2);
            drop(guard);
            if let Some(owner) = owner_held {
                assert_eq!((owner.lease.get().value.value(), owner.value.value()), (1, 2));
            }
            held.inspect(|held| held.work());
        },
        |(link, _)| drop(link.take()),
        |(_, ends)| ends.check_freed(),
    );
}

/// All entries have one hash: with it they are in one chain.
const HASH: u64 = 9;

fn chain(keys: impl IntoIterator<Item = u64>) -> HashTable<Poisoned> {
    let table = HashTable::with_capacity(1);
    for key in keys {
        table.lock(HASH, &pin()).insert(HASH, Poisoned::new(key));
    }
    table
}

fn find<'g>(table: &'g HashTable<Poisoned>, key: u64, guard: &'g rcu::Guard) -> Option<Found<'g, Poisoned>> {
    table.find(HASH, guard, |entry| entry.value() == key)
}

fn remove(table: &HashTable<Poisoned>, key: u64) {
    let guard = pin();
    let mut bucket = table.lock(HASH, &guard);
    let found = bucket.find(HASH, |entry| entry.value() == key).unwrap();
    assert!(bucket.remove(found) && !bucket.remove(found));
}

#[test]
fn hash_replace_vs_find() {
    race(
        || chain([1]),
        |table| {
            let guard = pin();
            let first = table.find(HASH, &guard, |_| true).expect("there is always one");
            let second = table.find(HASH, &guard, |_| true).expect("there is always one");
            assert!(second.value().value() >= first.value().value(), "back to an older one");
        },
        |table| {
            for next in 2..4 {
                let guard = pin();
                let mut bucket = table.lock(HASH, &guard);
                let old = bucket.find(HASH, |_| true).unwrap();
                bucket.insert(HASH, Poisoned::new(next));
                bucket.remove(old);
            }
        },
        |table| {
            assert_eq!(table.find(HASH, &pin(), |_| true).unwrap().value().value(), 3);
            assert_eq!(table.len(), 1);
        },
    );
}

#[test]
fn hash_remove_vs_reader_on_it() {
    race(
        || chain([1, 2, 3, 4]),
        |table| {
            let guard = pin();
            // Behind both that go, one after the other.
            assert!(find(table, 1, &guard).expect("it stays").is_live());
            if let Some(gone) = find(table, 2, &guard) {
                assert_eq!(gone.value().value(), 2);
            }
        },
        |table| {
            remove(table, 3);
            remove(table, 2);
            table.lock(HASH, &pin()).insert(HASH, Poisoned::new(5));
        },
        |table| {
            let guard = pin();
            let there: Vec<_> = (1..6).filter(|&key| find(table, key, &guard).is_some()).collect();
            assert_eq!((there, table.len()), (vec![1, 4, 5], 3));
        },
    );
}

#[test]
fn hash_remove_vs_remove() {
    let remove = |table: &HashTable<Poisoned>| {
        let guard = pin();
        let Some(found) = find(table, 1, &guard) else { return false };
        let gone = table.lock(HASH, &guard).remove(found);
        assert!(!found.is_live());
        gone
    };
    race_for(
        || chain([1, 2]),
        remove,
        remove,
        |table, a, b| assert!(a != b && table.len() == 1 && find(table, 1, &pin()).is_none()),
    );
}

#[test]
fn hash_insert_vs_find() {
    race(
        || chain([]),
        |table| {
            let guard = pin();
            // The value's contents are plain: seen before they are whole, they are a race.
            find(table, 1, &guard).inspect(|found| assert!(found.is_live()));
        },
        |table| _ = table.lock(HASH, &pin()).insert(HASH, Poisoned::new(1)),
        |table| assert!(find(table, 1, &pin()).is_some()),
    );
}

#[test]
fn hash_reclaim_vs_find() {
    race_for(
        || chain([1, 2]),
        |table| {
            let guard = pin();
            find(table, 1, &guard).map(|found| found.value().value())
        },
        // The first time round takes the marks off.
        |table| (0..2).map(|_| table.reclaim_all(|entry| entry.value() == 1)).sum::<usize>(),
        |table, seen, gone| {
            assert!(seen.is_none_or(|seen| seen == 1));
            assert_eq!((table.len(), find(table, 1, &pin()).is_none()), (2 - gone, gone == 1));
            assert!(find(table, 2, &pin()).is_some(), "it may not go");
        },
    );
}

#[test]
fn hash_kept_vs_remove() {
    race(
        || chain([1, 2]),
        |table| {
            let kept = {
                let guard = pin();
                find(table, 2, &guard).and_then(|found| table.keep(found))
            };
            let Some(kept) = kept else { return };
            for _ in 0..2 {
                let guard = pin();
                if let Some(found) = table.recall(&kept, &guard) {
                    assert_eq!(found.value().value(), 2);
                }
            }
        },
        |table| {
            remove(table, 1);
            remove(table, 2);
        },
        |table| assert!(table.is_empty()),
    );
}

#[test]
fn hash_keep_of_removed() {
    race(
        || chain([1, 2]),
        |table| {
            let guard = pin();
            let Some(found) = find(table, 2, &guard) else { return };
            let kept = table.keep(found);
            drop(guard);
            let guard = pin();
            if let Some(found) = kept.and_then(|kept| table.recall(&kept, &guard)) {
                assert_eq!(found.value().value(), 2);
            }
        },
        |table| remove(table, 2),
        |table| {
            let guard = pin();
            // What nobody has touched is had again.
            let kept = find(table, 1, &guard).and_then(|found| table.keep(found)).expect("it stays");
            assert!(table.recall(&kept, &guard).is_some_and(|found| found.is_live()));
            table.lock(HASH, &guard).insert(HASH, Poisoned::new(3));
            assert!(table.recall(&kept, &guard).is_some());
            remove(table, 3);
            assert!(table.recall(&kept, &guard).is_none());
        },
    );
}

#[test]
fn hash_removed_vs_is_live() {
    race(
        || (chain([1]), AtomicU64::new(0)),
        |(table, attribute)| {
            let guard = pin();
            let Some(found) = find(table, 1, &guard) else { return };
            // Acquire: V.
            let seen = attribute.load(Ordering::Acquire);
            assert!(!found.is_live() || seen == 0, "changed after the removal, and seen under the old name");
        },
        |(table, attribute)| {
            remove(table, 1);
            attribute.store(1, Ordering::Release);
        },
        |(table, _)| assert!(table.is_empty()),
    );
}

/// Who comes in sees that the door is shut, or is counted by who shuts it. Mutations that this catches: without either
/// barrier, neither need see the other.
#[test]
fn holders_enter_vs_shut() {
    race_for(
        || (Holders::new(), AtomicBool::new(false)),
        |(holders, shut)| {
            holders.enter();
            shut.load(Ordering::Relaxed)
        },
        |(holders, shut)| {
            shut.store(true, Ordering::Relaxed);
            holders.count().unwrap()
        },
        |_, saw, counted| assert!(saw || counted == 1, "neither saw the other"),
    );
}

/// One is always inside: who enters comes before who leaves. Mutation that this catches: entries added up before exits count
/// fewer than there are.
#[test]
fn holders_count_zero_is_true() {
    race(
        || {
            let holders = Holders::new();
            holders.enter();
            holders
        },
        |holders| {
            holders.enter();
            holders.leave();
        },
        |holders| assert!(matches!(holders.count(), Some(1 | 2))),
        |holders| assert_eq!(holders.count(), Some(1)),
    );
}

/// An anchor goes while the last references that a thread counts for itself go, too: the value ends once, when all have gone.
#[test]
fn anchor_drop_vs_local_drop() {
    type Shared = (
        Mutex<Option<Anchor<Poisoned>>>,
        Mutex<Option<Local<Poisoned>>>,
        StdArc<std::sync::atomic::AtomicBool>,
    );
    race(
        || {
            let anchor = Anchor::new(Poisoned::new(7));
            let alive = StdArc::clone(&anchor.alive);
            let local = anchor.local();
            (Mutex::new(Some(anchor)), Mutex::new(Some(local)), alive)
        },
        |(anchor, _, _): &Shared| drop(anchor.lock().unwrap().take()),
        |(_, local, _)| {
            let local = local.lock().unwrap().take().unwrap();
            let other = local.clone();
            drop(local);
            assert_eq!(other.value(), 7);
        },
        |(_, _, alive)| assert!(!alive.load(Ordering::Relaxed), "it never ended"),
    );
}

/// Under the global lock, what stands under the locks of two CPUs is of one moment. Mutation that this catches: taking one
/// after the other instead of all at once.
#[test]
fn lglock_local_vs_global() {
    race(
        LgLock::<u64>::new,
        |lock| {
            *lock.named(0) += 1;
            *lock.named(1) += 1;
        },
        |lock| {
            let all = lock.global();
            assert!(*all[0] >= *all[1], "the second was seen without the first");
        },
        |lock| assert!(lock.global().iter().all(|value| **value == 1)),
    );
    // Several who add at once, where each finds itself.
    race(
        LgLock::<u64>::new,
        |lock| *lock.local().1 += 1,
        |lock| *lock.local().1 += 1,
        |lock| assert_eq!(lock.global().iter().map(|value| **value).sum::<u64>(), 2),
    );
}

/// Whoever has to wait for a latch gets it, and finds what the last holder left.
#[test]
fn latch_wait_vs_release() {
    race(|| Latch::new(UnsafeCell::new(0)), add_one, add_one, |latch| assert_eq!(count(latch), 2));
}

/// One release wakes one of two who sleep, and that one wakes the other.
#[test]
fn latch_two_wait() {
    explore(|| {
        let latch = Arc::new(Latch::new(UnsafeCell::new(0)));
        let held = latch.lock().unwrap();
        let threads = [(); 2].map(|()| {
            let latch = Arc::clone(&latch);
            thread::spawn(move || add_one(&latch))
        });
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count(&latch), 2);
    });
}

fn add_one(latch: &Latch<UnsafeCell<u64>>) {
    // SAFETY: loom's cell gives a valid pointer, and panics if another thread uses it at the same time.
    latch.lock().unwrap().with_mut(|value| unsafe { *value += 1 });
}

fn count(latch: &Latch<UnsafeCell<u64>>) -> u64 {
    // SAFETY: as above.
    latch.lock().unwrap().with(|value| unsafe { *value })
}

/// All that nobody holds can be taken, also while somebody takes from a pool and gives back. Mutations that this catches: a pool
/// that is emptied but not closed, so that what is given back lies there unseen; a pool read and then emptied, not swapped.
#[test]
fn supply_take_all_vs_take_and_give() {
    race(
        || Supply::new(6, 0),
        |supply| {
            assert!(supply.take(1, || false));
            supply.give(1);
            assert!(supply.take(1, || false));
        },
        |supply| {
            assert!(supply.take(5, || false), "no more than one is out");
        },
        |supply| {
            assert_eq!(supply.left(), 0);
            assert!(!supply.take(1, || true));
        },
    );
}

/// Once somebody has taken of what is kept, nobody else takes more, though he had a pool. Mutation that this catches: pools that
/// stay open while less is shared than is kept.
#[test]
fn supply_take_vs_take_what_is_kept() {
    race(
        || (Supply::new(6, 2), AtomicBool::new(false)),
        |(supply, taken)| {
            let before = taken.load(Ordering::Acquire);
            let took = supply.take(1, || false);
            assert!(!took || !before, "that was kept");
            if took {
                supply.give(1);
            }
            assert!(!taken.load(Ordering::Acquire) || !supply.take(1, || false), "that was kept");
        },
        |(supply, taken)| {
            assert!(supply.take(4, || true));
            taken.store(true, Ordering::Release);
        },
        |(supply, _)| assert!(matches!(supply.left(), 1 | 2)),
    );
}

/// Two who give and take while the pools open and close lose nothing.
#[test]
fn supply_loses_nothing() {
    race(
        || Supply::new(4, 0),
        |supply| {
            supply.give(3);
            assert!(supply.take(5, || false));
        },
        |supply| {
            assert!(supply.take(2, || false));
            supply.give(1);
        },
        |supply| assert_eq!(supply.left(), 1),
    );
}
