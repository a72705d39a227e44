//! Models of the protocols, explored by loom: every interleaving of two threads within the bound on preemptions, and
//! every value that the memory model lets a load return.
#![cfg(feature = "loom")]

use std::sync::Arc as StdArc;

use extern4_sync::percpu::Counter;
use extern4_sync::primitive::{AtomicU64, Ordering, thread};
use extern4_sync::rcu::{Rcu, RcuOption, pin};
use extern4_sync::seqcount::SeqCount;
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
