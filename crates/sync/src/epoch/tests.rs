//! Tests of a separate collector, which guards of other tests do not affect, and of the one of
//! the process.
//!
//! They fail if a destructor runs while a pinned thread may see its value, runs twice, or never
//! runs.

use super::*;

#[cfg(feature = "shuttle")]
mod shuttle;

/// A thread of a collector, as `local` implements it for the collector of the process.
struct Member {
    collector: &'static Collector,
    record: &'static Record,
}

impl Member {
    fn new(collector: &'static Collector) -> Self {
        Self {
            collector,
            record: collector.register(),
        }
    }

    fn pin(&self) -> Section<'_> {
        self.collector.pin(self.record);
        Section(self)
    }

    fn retire(&self, destructor: impl FnOnce() + Send + 'static) {
        // SAFETY: the closure is `Send` and owns its captures.
        self.collector
            .defer(self.record, unsafe { Deferred::new(destructor) });
    }

    fn flush(&self) {
        self.collector.flush(self.record);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.collector.leave(self.record);
    }
}

struct Section<'a>(&'a Member);

impl Drop for Section<'_> {
    fn drop(&mut self) {
        assert!(!self.0.record.unpin());
    }
}

/// Creates a collector that is never freed, like that of the process.
fn collector() -> &'static Collector {
    Box::leak(Box::new(Collector::new()))
}

#[cfg(not(feature = "loom"))]
mod real {
    use super::*;
    use crate::epoch::bag::BAG;
    use crate::rcu::tests::freed;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use crate::primitive::AtomicUsize;

    /// Rounds of the stress tests.
    const ROUNDS: usize = if cfg!(miri) { 30 } else { 20_000 };

    fn left(value: &Arc<()>) -> usize {
        Arc::strong_count(value) - 1
    }

    fn retire(value: &Arc<()>) {
        let value = value.clone();
        // SAFETY: the closure is `Send` and owns its captures.
        unsafe { local::pin().defer(move || drop(value)) };
    }

    #[test]
    fn a_flush_frees_values_without_readers() {
        let member = Member::new(collector());
        let value = Arc::new(());
        let mine = value.clone();
        member.retire(move || drop(mine));
        member.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn a_flush_under_a_guard_leaves_the_value_to_the_next() {
        let member = Member::new(collector());
        let value = Arc::new(());
        let mine = value.clone();
        let section = member.pin();
        member.retire(move || drop(mine));
        member.flush();
        member.flush();
        assert_eq!(left(&value), 1);
        drop(section);
        assert_eq!(left(&value), 1, "unpinning runs no destructor");
        let _section = member.pin();
        assert_eq!(left(&value), 1, "nor does pinning");
        member.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn a_thread_frees_bags_that_another_sealed() {
        let collector = collector();
        let one = Member::new(collector);
        let other = Member::new(collector);
        let value = Arc::new(());
        let mine = value.clone();
        let section = other.pin();
        one.retire(move || drop(mine));
        one.flush();
        assert_eq!(left(&value), 1);
        drop(section);
        other.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn a_section_lasts_until_its_last_level_ends() {
        let collector = collector();
        let reader = Member::new(collector);
        let writer = Member::new(collector);
        let value = Arc::new(());
        let mine = value.clone();
        let outer = reader.pin();
        let inner = reader.pin();
        writer.retire(move || drop(mine));
        writer.flush();
        drop(outer);
        writer.flush();
        assert_eq!(left(&value), 1);
        drop(inner);
        writer.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn a_young_section_does_not_delay_older_bags() {
        let collector = collector();
        let reader = Member::new(collector);
        let writer = Member::new(collector);
        let value = Arc::new(());
        let old = value.clone();
        let young = value.clone();
        let first = reader.pin();
        writer.retire(move || drop(old));
        writer.flush();
        drop(first);
        let _second = reader.pin();
        writer.retire(move || drop(young));
        writer.flush();
        assert_eq!(left(&value), 1);
    }

    #[test]
    fn a_full_bag_frees_the_ones_before() {
        let collector = collector();
        let reader = Member::new(collector);
        let writer = Member::new(collector);
        let value = Arc::new(());
        let section = reader.pin();
        let fill = || {
            (0..BAG).for_each(|_| {
                let mine = value.clone();
                writer.retire(move || drop(mine));
            })
        };
        let bags = 3 * BAGS_AT_ONCE;
        (0..bags).for_each(|_| fill());
        assert_eq!(left(&value), bags * BAG);
        drop(section);
        fill();
        // One limit for the thread's own bags, and the same for the bags that it has handed over.
        assert_eq!(
            left(&value),
            (bags + 1 - 2 * BAGS_AT_ONCE) * BAG,
            "bounded work at a time"
        );
        (0..2).for_each(|_| writer.flush());
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn idle_threads_keep_a_share_each() {
        let collector = collector();
        let members: Vec<_> = (0..4 * KEPT_IN_ALL)
            .map(|_| Member::new(collector))
            .collect();
        let value = Arc::new(());
        for member in &members {
            // Each fills many bags and then idles.
            for _ in 0..10 * BAG {
                let mine = value.clone();
                member.retire(move || drop(mine));
            }
        }
        assert!(left(&value) <= members.len() * BAG, "{} left", left(&value));
    }

    #[test]
    fn a_thread_frees_the_bags_of_ended_threads() {
        let collector = collector();
        let stays = Member::new(collector);
        let value = Arc::new(());
        let retire = |member: &Member, count| {
            (0..count).for_each(|_| {
                let mine = value.clone();
                member.retire(move || drop(mine));
            })
        };
        for _ in 0..1000 {
            let ends = Member::new(collector);
            retire(&ends, 10);
        }
        assert_eq!(left(&value), 10 * 1000, "leaving runs no destructor");
        for _ in 0..1000_usize.div_ceil(BAGS_AT_ONCE) {
            retire(&stays, BAG);
        }
        assert!(left(&value) <= KEPT_BAGS * BAG, "{} left", left(&value));
    }

    #[test]
    fn destructors_pin_retire_and_flush() {
        let collector = collector();
        let member: &'static Member = Box::leak(Box::new(Member::new(collector)));
        // Each value's destructor retires the next one, on the thread that has the member.
        struct Link(&'static Member, usize, Arc<()>);
        // SAFETY: all of it stays on the thread of this test.
        unsafe impl Send for Link {}
        fn destroy(link: Link) {
            let Link(member, length, value) = link;
            let _section = member.pin();
            if length > 0 {
                let next = Link(member, length - 1, value);
                member.retire(move || destroy(next));
            }
            member.flush();
        }
        let value = Arc::new(());
        let first = Link(member, 1000, value.clone());
        member.retire(move || destroy(first));
        for _ in 0..1000 {
            member.flush();
            assert_eq!(left(&value), 1, "one link at a time");
        }
        member.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn a_panicking_destructor_does_not_stop_the_others() {
        let member = Member::new(collector());
        let value = Arc::new(());
        for n in 0..BAG - 1 {
            let mine = value.clone();
            member.retire(move || {
                drop(mine);
                assert!(n != BAG / 2, "on purpose");
            });
        }
        catch_unwind(AssertUnwindSafe(|| member.flush())).unwrap_err();
        assert_ne!(left(&value), 0);
        member.flush();
        assert_eq!(left(&value), 0);
    }

    #[test]
    fn records_are_used_again() {
        let collector = collector();
        let value = Arc::new(());
        let first = Member::new(collector);
        let record = ptr::from_ref(first.record);
        let mine = value.clone();
        first.retire(move || drop(mine));
        drop(first);
        assert_eq!(left(&value), 1, "leaving runs no destructor");
        let second = Member::new(collector);
        let third = Member::new(collector);
        assert!(ptr::eq(second.record, record) && !ptr::eq(third.record, record));
        second.flush();
        assert_eq!(left(&value), 0);
        assert_eq!(collector.records().count(), 2);
    }

    #[test]
    fn threads_that_end_leave_their_records() {
        let value = Arc::new(());
        let threads = if cfg!(miri) { 10 } else { 200 };
        for _ in 0..threads {
            let value = value.clone();
            thread::spawn(move || retire(&value)).join().unwrap();
        }
        assert!(freed(&value));
        let records = local::COLLECTOR.records().count();
        assert!(
            records < 100 || cfg!(miri),
            "{records} records, but one thread at a time, apart from the other tests'"
        );
    }

    /// Retires and flushes when the thread's locals are destroyed.
    struct Late(Arc<()>);

    impl Drop for Late {
        fn drop(&mut self) {
            let outer = local::pin();
            let value = self.0.clone();
            let destructor = move || {
                // Destructors that run on a thread that is ending.
                retire(&value);
                local::pin().flush();
            };
            // SAFETY: the closure is `Send` and owns its captures.
            unsafe { local::pin().defer(destructor) };
            outer.flush();
            retire(&self.0);
        }
    }

    #[test]
    fn ending_threads_pin_and_retire() {
        thread_local! {
            // Created before the first pin, so destroyed after `End`; and the other way round.
            static FIRST: RefCell<Option<Late>> = const { RefCell::new(None) };
            static GUARD: RefCell<Option<local::Guard>> = const { RefCell::new(None) };
            static LAST: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        let value = Arc::new(());
        for early in [false, true] {
            for keeps_guard in [false, true] {
                let value = value.clone();
                let thread = thread::spawn(move || {
                    if early {
                        FIRST.set(Some(Late(value.clone())));
                        GUARD.set(None);
                    }
                    retire(&value);
                    if keeps_guard {
                        GUARD.set(Some(local::pin()));
                    }
                    LAST.set(Some(Late(value.clone())));
                });
                thread.join().unwrap();
            }
        }
        assert!(freed(&value), "{} left", left(&value));
    }

    #[test]
    fn a_pinned_sleeper_blocks_no_thread() {
        let collector = collector();
        let sleeper = Member::new(collector);
        let section = sleeper.pin();
        let count = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                let count = count.clone();
                scope.spawn(move || {
                    let member = Member::new(collector);
                    for _ in 0..ROUNDS {
                        let _section = member.pin();
                        let count = count.clone();
                        member.retire(move || _ = count.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 0);
        drop(section);
        (0..=2 * ROUNDS / BAG).for_each(|_| sleeper.flush());
        assert_eq!(count.load(Ordering::Relaxed), 2 * ROUNDS);
    }

    /// A value whose destructor overwrites it.
    struct Poisoned([AtomicU64; 2]);

    impl Poisoned {
        fn new(value: u64) -> *mut Self {
            Box::into_raw(Box::new(Self([
                AtomicU64::new(value),
                AtomicU64::new(value),
            ])))
        }

        fn check(&self) {
            let [a, b] = self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
            assert!(a == b && a != u64::MAX, "{a:x} {b:x}");
        }
    }

    impl Drop for Poisoned {
        fn drop(&mut self) {
            self.0
                .iter()
                .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        }
    }

    #[test]
    fn readers_never_see_a_freed_value() {
        let collector = collector();
        let cell = &AtomicPtr::new(Poisoned::new(0));
        let barrier = &Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let member = Member::new(collector);
                    barrier.wait();
                    for round in 0..ROUNDS as u64 {
                        let section = member.pin();
                        // SAFETY: the section keeps the values that it finds.
                        let seen = unsafe { &*cell.load(Ordering::Acquire) };
                        seen.check();
                        if round % 4 == thread {
                            let old = cell.swap(Poisoned::new(round), Ordering::AcqRel);
                            let old = AtomicPtr::new(old);
                            // SAFETY: the swap unlinked it.
                            member.retire(move || drop(unsafe { Box::from_raw(old.into_inner()) }));
                        }
                        if round % 64 == 0 {
                            member.flush();
                        }
                        seen.check();
                        drop(section);
                    }
                });
            }
        });
        // SAFETY: the threads have ended.
        drop(unsafe { Box::from_raw(cell.load(Ordering::Relaxed)) });
    }
}

/// The protocol itself under loom, with `fence(SeqCst)` as barriers. The loom tests of `rcu` assume
/// it.
#[cfg(feature = "loom")]
mod model {
    use super::*;
    use crate::primitive::thread;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// A value whose destructor writes it, so that loom finds a free that is not ordered after
    /// every use.
    struct Value(UnsafeCell<bool>);

    // SAFETY: loom checks every access.
    unsafe impl Sync for Value {}
    // SAFETY: as above.
    unsafe impl Send for Value {}

    impl Value {
        /// Creates a value whose memory is never freed, so that a use after the destructor is
        /// detected.
        fn new() -> &'static Self {
            Box::leak(Box::new(Self(UnsafeCell::new(true))))
        }

        fn alive(&self) -> bool {
            // SAFETY: loom's cell gives a valid pointer, and panics if the read is a race.
            self.0.with(|alive| unsafe { *alive })
        }

        fn destroy(&self) {
            assert!(self.alive(), "freed twice");
            // SAFETY: as in `alive`.
            self.0.with_mut(|alive| unsafe { *alive = false });
        }
    }

    struct World {
        collector: &'static Collector,
        cell: AtomicPtr<Value>,
        /// All values that were created.
        values: [&'static Value; 3],
    }

    impl World {
        fn new() -> Self {
            let values = [Value::new(), Value::new(), Value::new()];
            let cell = AtomicPtr::new(ptr::from_ref(values[0]).cast_mut());
            Self {
                collector: collector(),
                cell,
                values,
            }
        }

        /// Loads the value and uses it until the section ends.
        fn read(&self, member: &Member) {
            let section = member.pin();
            // SAFETY: the memory of values is never freed.
            let seen = unsafe { &*self.cell.load(Ordering::Acquire) };
            assert!(seen.alive(), "used after it was freed");
            thread::yield_now();
            assert!(seen.alive(), "freed while in use");
            drop(section);
        }

        /// Replaces the value by value `n`, and frees the old one.
        fn replace(&self, member: &Member, n: usize) {
            let old = self
                .cell
                .swap(ptr::from_ref(self.values[n]).cast_mut(), Ordering::AcqRel);
            // SAFETY: as in `read`.
            let old = unsafe { &*old };
            member.retire(move || old.destroy());
            member.flush();
        }
    }

    impl World {
        /// Replaces the value twice. That fills a bag, which frees the old values.
        fn replace_twice(&self, member: &Member) {
            for n in [1, 2] {
                let old = self
                    .cell
                    .swap(ptr::from_ref(self.values[n]).cast_mut(), Ordering::AcqRel);
                // SAFETY: as in `read`.
                let old = unsafe { &*old };
                member.retire(move || old.destroy());
            }
        }
    }

    /// Runs `a` and `b` at once, each as the first thread in one model, as `model::race` does. When
    /// both have ended, all values except the one in the cell can be freed.
    fn race(a: fn(&World), b: fn(&World)) {
        for (first, second) in [(a, b), (b, a)] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = builder.preemption_bound.or(Some(3));
            builder.check(move || {
                let world = Arc::new(World::new());
                let other = thread::spawn({
                    let world = world.clone();
                    move || second(&world)
                });
                first(&world);
                other.join().unwrap();
                let member = Member::new(world.collector);
                (0..3).for_each(|_| member.flush());
                let alive = world.values.iter().filter(|value| value.alive()).count();
                let replaced =
                    world.cell.load(Ordering::Relaxed) != ptr::from_ref(world.values[0]).cast_mut();
                assert!(replaced && world.collector.queue.try_lock().unwrap().is_empty());
                // SAFETY: as in `read`.
                assert!(unsafe { &*world.cell.load(Ordering::Relaxed) }.alive());
                assert_ne!(alive, 3, "never freed");
            });
        }
    }

    #[test]
    fn epoch_pin_vs_advance() {
        race(
            |world| world.read(&Member::new(world.collector)),
            |world| world.replace(&Member::new(world.collector), 1),
        );
    }

    #[test]
    fn epoch_second_pin_vs_advance() {
        race(
            |world| {
                let member = Member::new(world.collector);
                world.read(&member);
                world.read(&member);
            },
            |world| world.replace(&Member::new(world.collector), 1),
        );
    }

    #[test]
    fn epoch_pin_vs_later_advance() {
        race(
            |world| world.read(&Member::new(world.collector)),
            |world| {
                let member = Member::new(world.collector);
                world.replace(&member, 1);
                world.replace(&member, 2);
            },
        );
    }

    #[test]
    fn epoch_pin_vs_full_bag() {
        race(
            |world| world.read(&Member::new(world.collector)),
            |world| world.replace_twice(&Member::new(world.collector)),
        );
    }

    #[test]
    fn epoch_advance_vs_advance() {
        race(
            |world| {
                let member = Member::new(world.collector);
                let _section = member.pin();
                world.replace(&member, 1);
            },
            |world| world.replace(&Member::new(world.collector), 2),
        );
    }
}
