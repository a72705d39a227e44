//! Counters of requests by type: how often each occurs, and how long its answers take.
//!
//! `Server` counts every request here, and the command's reports and metrics read the sums. A count
//! is never lost. Sums taken one after the other never go down.
//!
//! Each thread counts for itself: a count is a load and a store to memory that no other thread
//! writes. A reader adds up the counts of all threads; of a request that is being counted at that
//! moment it may see only a part. Threads without a slot
//! ([`thread_slots`](extern4_sync::thread_slots)) count together, with locked additions.
//!
//! The server times a request by two readings of the clock, from its arrival at the server until
//! its answer is complete. Time spent in the kernel before and after is not included. The two
//! readings take far less time than the shortest request. So the server times every request, and
//! the counters show a rare slow one, too.
//!
//! | field | written by | read by | orderings |
//! |---|---|---|---|
//! | numbers of a [`Kind`] | its one thread, load and store | [`Meter::sum`] | Relaxed: no order |
//! | the words of `shared` | any thread, locked additions | [`Meter::sum`] | Relaxed: no order |

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, Mutex, OnceLock, Ordering};

use crate::abi::Opcode;
use crate::histogram::{BUCKETS, Histogram, bucket};
use crate::lock::lock;

/// More than the highest opcode.
const KINDS: usize = 64;

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The type of request, by its name in the protocol, in small letters.
    pub name: String,
    /// Requests answered with an error.
    pub errors: u64,
    /// The durations of the answers.
    pub times: Histogram,
}

/// The counters of a server.
pub(crate) struct Meter {
    own: PerThread<OnceCell<Arc<Counts>>>,
    /// The counters of every thread there has been.
    all: Mutex<Vec<Arc<Counts>>>,
    shared: Counts,
}

/// The counters of one or several threads. A type of request that never came takes no room.
struct Counts([OnceLock<Box<Padded<Kind>>>; KINDS]);

struct Kind {
    errors: AtomicU64,
    total: AtomicU64,
    longest: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            own: PerThread::new(),
            all: Mutex::default(),
            shared: Counts::new(),
        }
    }

    /// Counts a request and its duration.
    #[inline]
    pub(crate) fn note(&self, opcode: Opcode, took: Duration, failed: bool) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let noted = self.own.with(|own| {
            own.get_or_init(|| self.enroll())
                .kind(opcode)
                .note(took, failed)
        });
        if noted.is_none() {
            self.shared.kind(opcode).note_shared(took, failed);
        }
    }

    #[cold]
    fn enroll(&self) -> Arc<Counts> {
        let own = Arc::new(Counts::new());
        lock(&self.all).push(Arc::clone(&own));
        own
    }

    /// Returns the counts so far, by type in the protocol's order.
    pub(crate) fn sum(&self) -> Vec<Operation> {
        let all = lock(&self.all);
        let counts = || all.iter().map(Arc::as_ref).chain([&self.shared]);
        let sum = |index: usize| {
            let opcode = u32::try_from(index).ok().and_then(Opcode::from_raw)?;
            let mut operation = Operation {
                name: name(opcode),
                errors: 0,
                times: Histogram::default(),
            };
            for kind in counts().filter_map(|counts| counts.0[index].get()) {
                operation.errors += kind.errors.load(Ordering::Relaxed);
                operation.times.add(&kind.times());
            }
            (operation.times.count() > 0).then_some(operation)
        };
        (0..KINDS).filter_map(sum).collect()
    }
}

impl Counts {
    fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    fn kind(&self, opcode: Opcode) -> &Kind {
        self.0[opcode as usize].get_or_init(|| Box::new(Padded(Kind::new())))
    }
}

impl Kind {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            errors: zero(),
            total: zero(),
            longest: zero(),
            buckets: std::array::from_fn(|_| zero()),
        }
    }

    /// Counts a request. Only the thread that owns the counter may call this.
    fn note(&self, took: u64, failed: bool) {
        let add = |sum: &AtomicU64, count: u64| {
            sum.store(
                sum.load(Ordering::Relaxed).wrapping_add(count),
                Ordering::Relaxed,
            );
        };
        add(&self.buckets[bucket(took)], 1);
        add(&self.total, took);
        if took > self.longest.load(Ordering::Relaxed) {
            self.longest.store(took, Ordering::Relaxed);
        }
        if failed {
            add(&self.errors, 1);
        }
    }

    fn note_shared(&self, took: u64, failed: bool) {
        self.buckets[bucket(took)].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(took, Ordering::Relaxed);
        let longer = |longest: u64| (took > longest).then_some(took);
        // The update fails where another request was longer.
        let _ = self
            .longest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    fn times(&self) -> Histogram {
        let counts = self
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .enumerate();
        let total = self.total.load(Ordering::Relaxed);
        Histogram::from_counts(counts, total, self.longest.load(Ordering::Relaxed))
    }
}

/// Returns the name of a request type: `BatchForget` is `batch_forget`.
fn name(opcode: Opcode) -> String {
    let mut name = String::new();
    for letter in format!("{opcode:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_of_any_thread_is_lost() {
        let meter = &Meter::new();
        // More threads than have a slot.
        let start = &std::sync::Barrier::new(100);
        std::thread::scope(|scope| {
            for thread in 0..100 {
                scope.spawn(move || {
                    start.wait();
                    for nth in 1..=1000 {
                        meter.note(Opcode::Lookup, Duration::from_nanos(nth), nth % 10 == 0);
                    }
                    meter.note(Opcode::BatchForget, Duration::from_secs(thread), false);
                    start.wait();
                });
            }
        });
        let sum = meter.sum();
        let [lookup, forget] = &sum[..] else {
            panic!("two kinds: {sum:?}")
        };
        assert_eq!((&*lookup.name, &*forget.name), ("lookup", "batch_forget"));
        assert_eq!((lookup.times.count(), lookup.errors), (100_000, 10_000));
        assert_eq!(
            (lookup.times.total(), lookup.times.longest()),
            (100 * 500_500, 1000)
        );
        assert!(
            lookup
                .times
                .quantile(0.5)
                .is_some_and(|half| (500..=625).contains(&half))
        );
        assert_eq!(
            (forget.times.count(), forget.times.longest()),
            (100, 99_000_000_000)
        );
    }

    #[test]
    fn a_duration_without_end_is_counted() {
        let meter = Meter::new();
        meter.note(Opcode::Read, Duration::MAX, true);
        assert_eq!(meter.sum()[0].times.quantile(0.5), Some(u64::MAX));
    }
}
