//! The table of the buffer cache, and a load that others wait for.

use extern4_sync::model::{explore, race};
use extern4_sync::primitive::{Condvar, Mutex, Ordering, thread};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{RcuArc, Release};
use extern4_sync::rcu_arc_map::RcuArcMap;
use loom::sync::Arc;

use crate::Poisoned;

/// Buckets that an eviction has to look at to see all of a small table.
const ALL: usize = 2;

fn empty_table() -> RcuArcMap<Poisoned> {
    RcuArcMap::with_capacity(1)
}

/// A table with entries of keys 1 and 2 that nobody holds.
fn table_of_two() -> RcuArcMap<Poisoned> {
    let table = empty_table();
    drop(table.find_or_insert(1, Poisoned::new(1)));
    drop(table.find_or_insert(2, Poisoned::new(2)));
    table
}

/// What every handle owes: alive, and the one that lookups find.
fn check_listed(table: &RcuArcMap<Poisoned>, key: u64, held: &RcuArc<Poisoned>) {
    held.value();
    let guard = pin();
    let found = table.get(key, &guard).expect("a held entry is in the table");
    found.value();
    assert!(found.try_upgrade().unwrap().ptr_eq(held), "two live entries of one key");
}

#[test]
fn buf_insert_vs_insert() {
    let insert = |table: &RcuArcMap<Poisoned>, value| {
        let (held, made) = table.find_or_insert(1, Poisoned::new(value));
        check_listed(table, 1, &held);
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
                assert_eq!(seen.value(), 1);
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
            check_listed(table, 1, &held);
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
            seen.value();
            let held = seen.try_upgrade();
            seen.value();
            drop(guard);
            held.inspect(|held| check_listed(table, 1, held));
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
                table.remove(1, &held);
                drop(held);
            }
        });
        {
            let guard = pin();
            if let Some(seen) = table.get(1, &guard) {
                let held = seen.try_upgrade();
                seen.value();
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

impl Release for Loading {}

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
        let table = Arc::new(RcuArcMap::with_capacity(1));
        // The device fails once.
        let tries = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let read = |table: &RcuArcMap<Loading>, tries: &loom::sync::atomic::AtomicU32| {
            let (held, made) = table.find_or_insert(1, Loading::default());
            if made {
                let result = if tries.fetch_add(1, Ordering::Relaxed) == 0 { Err(()) } else { Ok(7) };
                if result.is_err() {
                    table.remove(1, &held);
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
        assert_eq!(table.get(1, &pin()).unwrap().wait(), Ok(7));
        assert_eq!(tries.load(Ordering::Relaxed), 2, "a read too many");
    });
}
