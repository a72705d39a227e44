//! Tests of the audit itself, and the footprints of pins, counters and locks.

use std::sync::atomic::AtomicUsize;

use extern4_sync::audit::{
    Kind, Line, Uses, among_sleepers, conflicts, locked_instructions, record, side_by_side,
};
use extern4_sync::biased_rwlock::BiasedRwLock;
use extern4_sync::per_thread::PerThread;
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering, RwLock, fence};
use extern4_sync::rcu;
use extern4_sync::thread_counter::ThreadCounter;
use extern4_sync::thread_refcount::ThreadRefcount;
use extern4_sync::thread_slots::thread_number;

#[repr(align(128))]
#[derive(Default)]
struct Apart(AtomicU64);

#[test]
fn each_access_is_recorded_with_its_kind() {
    let word = Apart::default();
    let lock = Mutex::new(());
    let (_, footprint) = record(|| {
        word.0.load(Ordering::Relaxed);
        word.0.store(1, Ordering::Relaxed);
        word.0.fetch_add(1, Ordering::Relaxed);
        let _ = word
            .0
            .compare_exchange(7, 8, Ordering::Relaxed, Ordering::Relaxed);
        fence(Ordering::Acquire);
        fence(Ordering::SeqCst);
        drop(lock.lock());
    });
    assert_eq!(
        footprint.uses(Line::of(&word)),
        Uses {
            loads: 1,
            stores: 1,
            rmws: 2
        }
    );
    assert_eq!((footprint.total().rmws, footprint.full_fences()), (3, 1));
    word.0.load(Ordering::Relaxed);
    assert_eq!(record(|| ()).1.total(), Uses::default());
}

#[test]
fn loads_do_not_conflict_and_stores_do() {
    let one = Apart::default();
    let other = Apart::default();
    let load = |word: &Apart| record(|| word.0.load(Ordering::Relaxed)).1;
    let store = |word: &Apart| record(|| word.0.store(1, Ordering::Relaxed)).1;
    assert_eq!(conflicts(&load(&one), &load(&one)).len(), 0);
    assert_eq!(conflicts(&store(&one), &load(&other)).len(), 0);
    assert_eq!(conflicts(&store(&one), &load(&one)).len(), 1);
    assert_eq!(conflicts(&load(&one), &store(&one)).len(), 1);
    assert_eq!(conflicts(&store(&one), &store(&one)).len(), 1);
}

#[test]
fn locked_instructions_of_any_source_are_counted() {
    let shared = std::sync::Arc::new(7);
    let word = std::sync::atomic::AtomicU64::new(1);
    let Some(none) = locked_instructions(|| std::hint::black_box(*shared)) else {
        return;
    };
    let arc = locked_instructions(|| drop(std::hint::black_box(shared.clone())));
    // An exchange with memory is locked without a prefix.
    let swap = locked_instructions(|| std::hint::black_box(word.swap(3, Ordering::Relaxed)));
    let lock = std::sync::Mutex::new(());
    let lock = locked_instructions(|| drop(std::hint::black_box(&lock).lock()));
    assert_eq!(
        (
            none.1,
            arc.map(|(_, n)| n),
            swap.map(|(_, n)| n),
            lock.map(|(_, n)| n)
        ),
        (0, Some(2), Some(1), Some(2))
    );
}

/// A pin and a counter write only their thread's lines. All other footprints build on this.
#[test]
fn pins_and_counts_of_two_threads_share_nothing() {
    let counter = ThreadCounter::<2>::new();
    let act = || {
        let _guard = rcu::pin();
        counter.add([1, 1]);
    };
    let [one, other] = side_by_side(act, act);
    assert_eq!((one.written().count(), other.written().count()), (2, 2));
    assert_eq!((one.total().rmws, one.full_fences()), (0, 0));
    assert!(conflicts(&one, &other).is_empty());
}

/// An access is known by its line and its place in the source. A lock and its unlock count as one.
#[test]
fn accesses_have_their_places() {
    let word = AtomicU64::new(0);
    let lock = Mutex::new(());
    let shared = RwLock::new(());
    let (_, footprint) = record(|| {
        let held = lock.lock().unwrap();
        word.fetch_add(1, Ordering::Relaxed);
        drop(held);
        drop(shared.read().unwrap());
        assert_eq!(word.load(Ordering::Relaxed), 1);
    });
    let mut sites: Vec<_> = footprint
        .lines()
        .flat_map(|(line, _)| footprint.accesses(line))
        .map(|access| (access.site.line(), access.kind))
        .collect();
    sites.sort_unstable_by_key(|(line, _)| *line);
    let first = sites[0].0;
    let sites: Vec<_> = sites
        .into_iter()
        .map(|(line, kind)| (line - first, kind))
        .collect();
    assert_eq!(
        sites,
        [
            (0, Kind::Rmw),
            (1, Kind::Rmw),
            (3, Kind::Rmw),
            (4, Kind::Load)
        ]
    );
    assert_eq!(
        footprint.total(),
        Uses {
            loads: 1,
            stores: 0,
            rmws: 3
        }
    );
}

/// Two threads with numbers above 512 count, enter, exit, store values and read under a biased
/// lock. They store only to their own lines.
#[test]
fn threads_with_high_numbers_share_nothing() {
    let counter = ThreadCounter::<2>::new();
    let refcount = ThreadRefcount::new();
    let lock = BiasedRwLock::new(7);
    let values = PerThread::<std::cell::Cell<u64>>::new();
    let lowest = AtomicUsize::new(0);
    let act = || {
        lowest.fetch_min(thread_number(), Ordering::Relaxed);
        counter.add([1, 1]);
        refcount.enter();
        assert!(values.with(|value| value.set(1)).is_some());
        assert_eq!(*lock.read(), 7);
        refcount.exit();
    };
    (0..100).for_each(|_| act());
    // Other tests may give low numbers back meanwhile.
    while lowest.load(Ordering::Relaxed) < 64 {
        lowest.store(usize::MAX, Ordering::Relaxed);
        let [one, other] = among_sleepers(512, || _ = thread_number(), || side_by_side(act, act));
        for footprint in [&one, &other] {
            assert_eq!(
                (footprint.total().rmws, footprint.full_fences()),
                (0, 0),
                "{footprint:?}"
            );
        }
        assert!(conflicts(&one, &other).is_empty());
    }
}
