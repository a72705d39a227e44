//! Threads that allocate segments of slots, and readers of all slots.

use extern4_sync::membarrier::{heavy_fence, publish, read_published};
use extern4_sync::model::{explore, race, race_for};
use extern4_sync::primitive::{AtomicBool, AtomicU64, Ordering, thread};
use extern4_sync::thread_slots::ThreadSlots;
use std::sync::Arc;

#[derive(Default)]
struct Word(AtomicU64);

/// Creates slots. In models, threads 1 and 2 have their slots in one segment, which is missing at
/// first.
fn slots() -> ThreadSlots<Word> {
    ThreadSlots::new()
}

fn word(slots: &ThreadSlots<Word>, number: usize) -> &AtomicU64 {
    &slots.of(number).expect("the thread has a slot").0
}

/// Two threads allocate one segment at once, and both get the same one. Mutations that this
/// catches: a segment stored without a comparison; a pointer loaded or stored `Relaxed`.
#[test]
fn slots_allocate_vs_allocate() {
    let store = |number: usize| {
        move |slots: &ThreadSlots<Word>| word(slots, number).store(number as u64, Ordering::Relaxed)
    };
    race(slots, store(1), store(2), |slots| {
        let sum: u64 = slots
            .iter()
            .map(|word| word.0.load(Ordering::Relaxed))
            .sum();
        assert_eq!(sum, 3);
    });
}

/// A thread that publishes a value in a new segment sees the flag, or the thread that set the flag
/// finds the value. Mutation that this catches: segments loaded before `heavy_fence`.
#[test]
fn slots_publish_in_a_new_segment_vs_scan() {
    race_for(
        || (slots(), AtomicBool::new(false)),
        |(slots, flag)| {
            publish(word(slots, 1), 1);
            flag.load(Ordering::Relaxed)
        },
        |(slots, flag)| {
            flag.store(true, Ordering::Relaxed);
            assert!(heavy_fence());
            slots.iter().any(|word| read_published(&word.0) == 1)
        },
        |_, saw, found| assert!(saw || found, "neither saw the other"),
    );
}

/// The handshake with a segment that a third thread has allocated.
#[test]
fn slots_publish_in_a_segment_of_another_vs_scan() {
    explore(|| {
        let shared = Arc::new((slots(), AtomicBool::new(false)));
        let other = |act: fn(&(ThreadSlots<Word>, AtomicBool)) -> bool| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || act(&shared))
        };
        let allocating = other(|(slots, _)| slots.of(2).is_some());
        let publishing = other(|(slots, flag)| {
            publish(word(slots, 1), 1);
            flag.load(Ordering::Relaxed)
        });
        let (slots, flag) = &*shared;
        flag.store(true, Ordering::Relaxed);
        assert!(heavy_fence());
        let found = slots.iter().any(|word| read_published(&word.0) == 1);
        assert!(allocating.join().expect("the thread does not panic"));
        assert!(
            publishing.join().expect("the thread does not panic") || found,
            "neither saw the other"
        );
    });
}
