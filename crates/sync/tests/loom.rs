//! Models of the protocols, explored by loom: every interleaving of two threads within the bound on preemptions, and
//! every value that the memory model lets a load return.
#![cfg(feature = "loom")]

use std::sync::Arc as StdArc;

use extern4_sync::percpu::Counter;
use extern4_sync::primitive::{AtomicU64, Condvar, Mutex, Ordering, thread};
use extern4_sync::rcu::{Rcu, RcuOption, pin};
use extern4_sync::seqcount::SeqCount;
use extern4_sync::table::{Held, Table};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

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

/// Runs `a` and `b` at once; in one model `a` is the first thread, in another `b`. Loom tries the first thread first,
/// and forgets that a thread has read a word once another has read it before writing it, so one order is not enough.
fn race<S: Send + Sync + 'static>(
    setup: impl Fn() -> S + Sync + Send + Copy + 'static,
    a: impl Fn(&S) + Sync + Send + Copy + 'static,
    b: impl Fn(&S) + Sync + Send + Copy + 'static,
    end: impl Fn(&S) + Sync + Send + Copy + 'static,
) {
    let run = |first_is_a: bool| {
        model(move || {
            let shared = Arc::new(setup());
            let other = thread::spawn({
                let shared = shared.clone();
                move || if first_is_a { b(&shared) } else { a(&shared) }
            });
            if first_is_a {
                a(&shared)
            } else {
                b(&shared)
            }
            other.join().unwrap();
            end(&shared);
        });
    };
    run(true);
    run(false);
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
    model(|| {
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
    model(|| {
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
    model(|| {
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
    model(|| {
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
    model(|| {
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
