//! The interface of a registry of open files. Production has one,
//! [`SlabRegistry`](super::slab_registry::SlabRegistry); the lab has others to measure it against.
//!
//! `open_files` inserts a record at each open, removes it at each close and lists them on request.
//! All methods may be called by any threads at once. A list has each record that is there
//! throughout the call. It never has a mixture of two records.

/// A registry of records, which many threads insert and remove all the time, and which is listed
/// now and then.
///
/// A record's fields are atomics: it does not move, and each use fills it again.
pub trait Registry<C>: Default + Send + Sync {
    /// A ticket, which identifies one use of a record.
    type Ticket;

    /// Inserts a record, which `fill` fills; `None` if there are more records than the registry can
    /// count.
    fn add(&self, fill: impl FnOnce(&C)) -> Option<Self::Ticket>;

    /// Removes a record, which `empty` empties first. Returns false, and does nothing, if it was
    /// removed before.
    fn remove(&self, ticket: &Self::Ticket, empty: impl FnOnce(&C)) -> bool;

    /// Calls `look` with a record; `None` if it was removed.
    fn with<R>(&self, ticket: &Self::Ticket, look: impl FnOnce(&C) -> R) -> Option<R>;

    /// Returns the results of `copy` for each record that is there throughout the call, and perhaps
    /// for others. It may call `copy` with a record that another thread is filling, and drops that
    /// result; or with one that is being emptied, for which `copy` returns `None`.
    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R>;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::channel;

    use extern4_sync::primitive::{AtomicU64, Ordering};

    use super::super::slab_registry::{SlabRegistry, Ticket};
    use super::*;

    fn add(registry: &SlabRegistry<AtomicU64>, n: u64) -> Ticket {
        registry
            .add(|cell| cell.store(n, Ordering::Relaxed))
            .unwrap()
    }

    fn remove(registry: &SlabRegistry<AtomicU64>, ticket: &Ticket) -> bool {
        registry.remove(ticket, |_| ())
    }

    fn get(registry: &SlabRegistry<AtomicU64>, ticket: &Ticket) -> Option<u64> {
        registry.with(ticket, |cell| cell.load(Ordering::Relaxed))
    }

    fn all(registry: &SlabRegistry<AtomicU64>) -> BTreeSet<u64> {
        let list = registry.list(|cell| Some(cell.load(Ordering::Relaxed)));
        let found: BTreeSet<_> = list.iter().copied().collect();
        assert_eq!(found.len(), list.len(), "something is listed twice");
        found
    }

    #[test]
    fn an_added_file_is_listed_until_it_is_removed() {
        let registry = SlabRegistry::default();
        let mut tickets: Vec<_> = (0..3000).map(|n| (n, add(&registry, n))).collect();
        assert_eq!(all(&registry), (0..3000).collect());
        let odd: Vec<_> = tickets.extract_if(.., |(n, _)| *n % 2 == 1).collect();
        assert!(odd.iter().all(|(_, ticket)| remove(&registry, ticket)));
        // Other records take their places. The old tickets do not fit these.
        let later: Vec<_> = (3000..6000).map(|n| (n, add(&registry, n))).collect();
        for (_, ticket) in &odd {
            assert!(!remove(&registry, ticket) && get(&registry, ticket).is_none());
        }
        tickets.extend(later);
        assert_eq!(all(&registry), tickets.iter().map(|(n, _)| *n).collect());
        for (n, ticket) in &tickets {
            assert_eq!(get(&registry, ticket), Some(*n));
            assert!(remove(&registry, ticket) && !remove(&registry, ticket));
        }
        assert!(all(&registry).is_empty());
    }

    /// One thread adds, others remove, one lists: what stays throughout is in every list.
    #[test]
    fn a_file_that_stays_open_is_always_listed() {
        let registry = &SlabRegistry::default();
        let stay: Vec<_> = (0..50).map(|n| add(registry, n)).collect();
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            for _ in 0..3 {
                let (sender, tickets) = channel::<Ticket>();
                senders.push(sender);
                scope.spawn(move || {
                    tickets
                        .iter()
                        .for_each(|ticket| assert!(remove(registry, &ticket)))
                });
            }
            scope.spawn(move || {
                for n in 50..20_000 {
                    let ticket = add(registry, n);
                    if n % 4 == 3 {
                        assert!(remove(registry, &ticket));
                    } else {
                        senders[usize::try_from(n % 4).unwrap()]
                            .send(ticket)
                            .unwrap();
                    }
                }
            });
            for _ in 0..100 {
                let found = all(registry);
                assert!((0..50).all(|n| found.contains(&n)), "{found:?}");
            }
        });
        assert_eq!(all(registry), (0..50).collect());
        assert!(stay.iter().all(|ticket| remove(registry, ticket)));
    }

    /// Threads beyond the threads that own slabs: none inserts a record in a place that
    /// another has taken.
    #[test]
    fn slabs_of_threads_without_numbers() {
        const WITH_NUMBERS: usize = 64;
        let registry = &SlabRegistry::<AtomicU64>::default();
        let begun = &std::sync::Barrier::new(WITH_NUMBERS + 1);
        let done = &std::sync::Barrier::new(WITH_NUMBERS + 1);
        std::thread::scope(|scope| {
            for n in 0..WITH_NUMBERS as u64 {
                scope.spawn(move || {
                    let ticket = add(registry, n);
                    begun.wait();
                    done.wait();
                    assert_eq!(get(registry, &ticket), Some(n));
                });
            }
            begun.wait();
            let others = (0..8).map(|thread| {
                scope.spawn(move || {
                    for n in 0..300_000 {
                        let value = 1_000_000 * (thread + 1) + n;
                        let ticket = add(registry, value);
                        assert_eq!(get(registry, &ticket), Some(value));
                        assert!(remove(registry, &ticket));
                    }
                })
            });
            let ended = others
                .collect::<Vec<_>>()
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join);
            let failed = ended.filter(Result::is_err).count();
            done.wait();
            assert_eq!(failed, 0);
        });
    }

    /// More threads than there are slabs, at once and one after the other.
    #[test]
    fn slabs_of_many_threads() {
        let registry = &SlabRegistry::<AtomicU64>::default();
        let all_there = &std::sync::Barrier::new(200);
        std::thread::scope(|scope| {
            for n in 0..200 {
                scope.spawn(move || {
                    let ticket = add(registry, n);
                    all_there.wait();
                    assert!(all(registry).contains(&n));
                    all_there.wait();
                    assert!(remove(registry, &ticket));
                });
            }
        });
        assert!(all(registry).is_empty());
    }
}
