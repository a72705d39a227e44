//! The map of the buffer cache, and a load that other threads wait for.

use extern4_sync::model::{explore, race};
use extern4_sync::primitive::{Condvar, Mutex, Ordering, thread};
use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::{RcuArc, Release};
use extern4_sync::rcu_arc_map::RcuArcMap;
use loom::sync::Arc;

use crate::Poisoned;

fn empty_map() -> RcuArcMap<Poisoned> {
    RcuArcMap::new()
}

/// Creates a map with unreferenced entries of the keys 1 and 2.
fn map_of_two() -> RcuArcMap<Poisoned> {
    let map = empty_map();
    drop(map.find_or_insert(1, Poisoned::new(1)));
    drop(map.find_or_insert(2, Poisoned::new(2)));
    map
}

/// Checks that a referenced value is alive, and that lookups find it.
fn check_listed(map: &RcuArcMap<Poisoned>, key: u64, held: &RcuArc<Poisoned>) {
    held.value();
    let guard = pin();
    let found = map.get(key, &guard).expect("a referenced entry is in the map");
    found.value();
    assert!(found.try_upgrade().unwrap().ptr_eq(held), "two live entries of one key");
}

#[test]
fn buf_insert_vs_insert() {
    let insert = |map: &RcuArcMap<Poisoned>, value| {
        let (held, made) = map.find_or_insert(1, Poisoned::new(value));
        check_listed(map, 1, &held);
        assert_eq!(made, held.value() == value);
    };
    race(
        empty_map,
        move |map| insert(map, 1),
        move |map| insert(map, 2),
        |map| assert!(map.get(1, &pin()).is_some()),
    );
}

#[test]
fn buf_insert_vs_lookup() {
    race(
        empty_map,
        |map| drop(map.find_or_insert(1, Poisoned::new(1))),
        |map| {
            let guard = pin();
            if let Some(seen) = map.get(1, &guard) {
                assert_eq!(seen.value(), 1);
            }
        },
        |map| assert!(map.get(1, &pin()).is_some()),
    );
}

#[test]
fn buf_insert_vs_dead() {
    race(
        map_of_two,
        |map| {
            let (held, _) = map.find_or_insert(1, Poisoned::new(3));
            check_listed(map, 1, &held);
        },
        |map| _ = map.evict(2),
        // The reference is dropped, and the second thread may be late enough to evict the new entry
        // too.
        |_| (),
    );
}

#[test]
fn buf_evict_vs_lookup() {
    race(
        map_of_two,
        |map| _ = map.evict(2),
        |map| {
            let guard = pin();
            let Some(seen) = map.get(1, &guard) else { return };
            seen.value();
            let held = seen.try_upgrade();
            seen.value();
            drop(guard);
            held.inspect(|held| check_listed(map, 1, held));
        },
        |_| (),
    );
}

#[test]
fn buf_lastput_vs_lookup() {
    explore(|| {
        let map = Arc::new(empty_map());
        let held = map.find_or_insert(1, Poisoned::new(1)).0;
        let releaser = thread::spawn({
            let map = map.clone();
            move || {
                map.remove(1, &held);
                drop(held);
            }
        });
        {
            let guard = pin();
            if let Some(seen) = map.get(1, &guard) {
                let held = seen.try_upgrade();
                seen.value();
                drop(guard);
                held.inspect(|held| _ = held.value());
            }
        }
        releaser.join().unwrap();
        assert!(map.get(1, &pin()).is_none());
    });
}

#[test]
fn buf_teardown_vs_retired() {
    explore(|| {
        let map = Arc::new(empty_map());
        let held = map.find_or_insert(1, Poisoned::new(1)).0;
        let alive = held.alive.clone();
        let holder = thread::spawn(move || {
            let second = held.clone();
            drop(held);
            second.value();
        });
        map.evict(1);
        drop(map);
        holder.join().unwrap();
        drop(pin());
        assert!(!alive.load(Ordering::Relaxed), "never freed");
    });
}

/// A value that one thread loads and other threads wait for, as in the buffer cache.
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
        let map = Arc::new(RcuArcMap::new());
        // The device fails once.
        let tries = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let read = |map: &RcuArcMap<Loading>, tries: &loom::sync::atomic::AtomicU32| {
            let (held, made) = map.find_or_insert(1, Loading::default());
            if made {
                let result = if tries.fetch_add(1, Ordering::Relaxed) == 0 { Err(()) } else { Ok(7) };
                if result.is_err() {
                    map.remove(1, &held);
                }
                held.set(result);
            }
            held.wait()
        };
        let other = thread::spawn({
            let (map, tries) = (map.clone(), tries.clone());
            // After a failure the key can be loaded again.
            move || read(&map, &tries).or_else(|()| read(&map, &tries))
        });
        let mine = read(&map, &tries).or_else(|()| read(&map, &tries));
        assert_eq!((mine, other.join().unwrap()), (Ok(7), Ok(7)));
        assert_eq!(map.get(1, &pin()).unwrap().wait(), Ok(7));
        assert_eq!(tries.load(Ordering::Relaxed), 2, "one read too many");
    });
}
