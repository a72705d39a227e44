//! Models of the protocols, explored by loom: every interleaving of two threads within the bound on preemptions, and
//! every value that the memory model lets a load return.
#![cfg(feature = "loom")]

use std::sync::Arc as StdArc;

use extern4_sync::percpu::Counter;
use extern4_sync::primitive::{AtomicU64, Condvar, Mutex, Ordering, thread};
use extern4_sync::rcu::{Rcu, RcuOption, pin};
use extern4_sync::seqcount::SeqCount;
use extern4_sync::table::{Held, Table};
use loom::sync::Arc;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// A value whose destructor poisons it, so that a read after the free is seen.
struct Poisoned {
    value: u64,
    alive: StdArc<std::sync::atomic::AtomicBool>,
}

impl Poisoned {
    fn new(value: u64) -> Self {
        Self { value, alive: StdArc::new(true.into()) }
    }
}

impl Poisoned {
    fn check(&self) {
        assert!(self.alive.load(Ordering::Relaxed), "used after it was freed");
    }
}

impl Drop for Poisoned {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
    }
}

#[test]
fn seqlock_reader_writer() {
    model(|| {
        let shared = Arc::new((SeqCount::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let writer = thread::spawn({
            let shared = shared.clone();
            move || {
                for value in 1..3 {
                    let _section = shared.0.write();
                    shared.1.store(value, Ordering::Relaxed);
                    shared.2.store(value, Ordering::Relaxed);
                }
            }
        });
        let (count, a, b) = &*shared;
        if let Some(seq) = count.begin() {
            let copy = (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed));
            if count.validate(seq) {
                assert_eq!(copy.0, copy.1, "torn copy");
            }
        }
        writer.join().unwrap();
        let copy = count.read(|| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
        assert_eq!(copy, Some((2, 2)));
    });
}

#[test]
fn rcu_load_vs_replace() {
    model(|| {
        let cell = Arc::new(Rcu::new(Poisoned::new(1)));
        let writer = thread::spawn({
            let cell = cell.clone();
            move || cell.store(Poisoned::new(2))
        });
        {
            let guard = pin();
            let seen = cell.load(&guard);
            let alive = seen.alive.clone();
            thread::yield_now();
            assert!(alive.load(Ordering::Relaxed), "freed under a reader");
            assert!(seen.value == 1 || seen.value == 2);
        }
        writer.join().unwrap();
        assert_eq!(cell.load(&pin()).value, 2);
    });
}

#[test]
fn rcu_two_fill_one_wins() {
    model(|| {
        let cell = Arc::new(RcuOption::new(None));
        let fill = |cell: &RcuOption<Poisoned>, value| {
            let guard = pin();
            match cell.compare_exchange(None, Some(Poisoned::new(value)), &guard) {
                Ok(stored) => stored.unwrap().value,
                Err(lost) => lost.current.unwrap().value,
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

fn table() -> Arc<Table<Poisoned>> {
    Arc::new(Table::with_capacity(1))
}

/// What every handle owes: alive, and the one that lookups find.
fn check_listed(table: &Table<Poisoned>, held: &Held<Poisoned>) {
    held.check();
    let guard = pin();
    let found = table.get(held.key(), &guard).expect("a held entry is in the table");
    found.value().check();
    assert!(found.hold().unwrap().ptr_eq(held), "two live entries of one key");
}

#[test]
fn buf_insert_vs_insert() {
    model(|| {
        let table = table();
        let other = thread::spawn({
            let table = table.clone();
            move || {
                let (held, made) = table.find_or_insert(1, Poisoned::new(1));
                check_listed(&table, &held);
                (held.value, made)
            }
        });
        let (mine, made) = table.find_or_insert(1, Poisoned::new(2));
        check_listed(&table, &mine);
        let (value, other_made) = other.join().unwrap();
        assert!(made != other_made && mine.value == value);
    });
}

#[test]
fn buf_insert_vs_dead() {
    model(|| {
        let table = table();
        drop(table.find_or_insert(1, Poisoned::new(1)));
        let evictor = thread::spawn({
            let table = table.clone();
            move || table.evict(1, ALL)
        });
        let (held, made) = table.find_or_insert(1, Poisoned::new(2));
        check_listed(&table, &held);
        let evicted = evictor.join().unwrap();
        check_listed(&table, &held);
        assert_eq!((evicted, held.value), if made { (1, 2) } else { (0, 1) });
    });
}

#[test]
fn buf_evict_vs_lookup() {
    model(|| {
        let table = table();
        drop(table.find_or_insert(1, Poisoned::new(1)));
        drop(table.find_or_insert(2, Poisoned::new(2)));
        let evictor = thread::spawn({
            let table = table.clone();
            move || table.evict(2, ALL)
        });
        {
            let guard = pin();
            if let Some(seen) = table.get(1, &guard) {
                seen.value().check();
                if let Some(held) = seen.hold() {
                    drop(guard);
                    check_listed(&table, &held);
                } else {
                    seen.value().check();
                }
            }
        }
        evictor.join().unwrap();
    });
}

#[test]
fn buf_lastput_vs_lookup() {
    model(|| {
        let table = table();
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
                seen.value().check();
                drop(guard);
                held.inspect(|held| held.check());
            }
        }
        releaser.join().unwrap();
        assert!(table.get(1, &pin()).is_none());
    });
}

#[test]
fn buf_teardown_vs_retired() {
    model(|| {
        let table = table();
        let held = table.find_or_insert(1, Poisoned::new(1)).0;
        let alive = held.alive.clone();
        let holder = thread::spawn(move || {
            let second = held.clone();
            drop(held);
            second.check();
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
