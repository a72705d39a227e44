//! Shuttle tests: eight threads on one collector, in random schedules. Shuttle's memory is
//! sequentially consistent, so the loom tests check the barriers. These tests cover the other
//! conditions of a free.
//!
//! They fail if a value is freed while a thread that may see it is pinned, or if one is never
//! freed.

use std::sync::Arc;

use super::*;
use crate::model::race_many;
use crate::primitive::AtomicUsize;

const THREADS: usize = 8;
/// Of these, insertions that replace the value.
const WRITERS: usize = 3;

/// A value that is only marked as freed.
#[derive(Default)]
struct Value(AtomicBool);

impl Value {
    fn check(&self) {
        assert!(!self.0.load(Ordering::Relaxed), "freed while in use");
    }

    fn free(&self) {
        assert!(!self.0.swap(true, Ordering::Relaxed), "freed twice");
    }
}

struct World {
    collector: &'static Collector,
    /// The index of the value that readers find.
    current: AtomicUsize,
    values: [Arc<Value>; WRITERS + 1],
}

impl World {
    fn new() -> Self {
        let values = std::array::from_fn(|_| Arc::default());
        Self {
            collector: collector(),
            current: AtomicUsize::new(WRITERS),
            values,
        }
    }

    /// Loads a value and uses it, also after an inner section has ended.
    fn read(&self, member: &Member) {
        let section = member.pin();
        let seen = &self.values[self.current.load(Ordering::Acquire)];
        seen.check();
        drop(member.pin());
        seen.check();
        drop(section);
    }

    fn replace(&self, member: &Member, by: usize) {
        let old = Arc::clone(&self.values[self.current.swap(by, Ordering::AcqRel)]);
        member.retire(move || old.free());
        member.flush();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let records: Vec<_> = self
            .collector
            .records()
            .map(|record| ptr::from_ref(record).cast_mut())
            .collect();
        for record in records {
            // SAFETY: it came from a box. Its threads have ended, and no thread follows the list
            // any more.
            drop(unsafe { Box::from_raw(record) });
        }
        // SAFETY: it came from a box, and its users have ended.
        drop(unsafe { Box::from_raw(ptr::from_ref(self.collector).cast_mut()) });
    }
}

#[test]
fn epoch_pin_vs_advance() {
    race_many(
        THREADS,
        World::new,
        |world, index| {
            let member = Member::new(world.collector);
            world.read(&member);
            if index < WRITERS {
                world.replace(&member, index);
            }
            world.read(&member);
        },
        |world| {
            let member = Member::new(world.collector);
            (0..WRITERS).for_each(|_| member.flush());
            let current = world.current.load(Ordering::Relaxed);
            for (index, value) in world.values.iter().enumerate() {
                assert_eq!(
                    value.0.load(Ordering::Relaxed),
                    index != current,
                    "value {index}"
                );
            }
            assert!(world.collector.queue.try_lock().unwrap().is_empty());
        },
    );
}
