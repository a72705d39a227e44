//! The registries that production is compared with: Linux's before 2009, and that of a patch of
//! 2009.
//!
//! They implement the VFS's `Registry`, and the VFS calls them in its open and close. They pass the
//! tests of that trait as production's does: a list has every file that is open throughout it.

use std::sync::PoisonError;

use extern4_sync::primitive::{Mutex, MutexGuard};
use extern4_sync::slab::{SlabBox, new_box};
use extern4_sync::thread_counter::ThreadCounter;
use extern4_vfs::lab::{LabRegistry, Opened, Registry, Ticket as AnyTicket};

use super::Locks;
use super::lglock::LgLock;

/// Baseline: one list for the file system under one lock, as `files_lock` was.
pub struct OneList<C> {
    list: Mutex<List<C>>,
    locks: ThreadCounter<1>,
}

/// Patch: a list for each CPU, under an lglock. A file remembers the list that it was entered on. A
/// listing of all files takes all locks.
pub struct CpuLists<C> {
    lists: LgLock<List<C>>,
    locks: ThreadCounter<1>,
}

/// A list of records in places, of which some are free. A record is created and filled before the
/// lock is taken. It is emptied and freed after the lock has been released, as Linux allocates and
/// frees a `struct file`. Under the lock it is only linked in or out.
struct List<C> {
    places: Vec<ListSlot<C>>,
    free: Vec<usize>,
}

struct ListSlot<C> {
    /// A generation that grows with each use.
    generation: usize,
    record: Option<SlabBox<C>>,
}

/// The place of a record in its list.
#[derive(Debug)]
pub struct Ticket {
    index: usize,
    generation: usize,
}

impl<C> Default for List<C> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

/// Returns a new record, filled.
fn filled<C: Default>(fill: impl FnOnce(&C)) -> SlabBox<C> {
    let record = SlabBox::from(new_box(C::default()));
    fill(&record);
    record
}

impl<C> List<C> {
    fn link(&mut self, record: SlabBox<C>) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(ListSlot {
                generation: 0,
                record: None,
            });
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        place.generation += 1;
        place.record = Some(record);
        Ticket {
            index,
            generation: place.generation,
        }
    }

    fn unlink(&mut self, at: &Ticket) -> Option<SlabBox<C>> {
        self.get(at)?;
        self.free.push(at.index);
        self.places[at.index].record.take()
    }

    fn get(&self, at: &Ticket) -> Option<&C> {
        let place = self.places.get(at.index)?;
        place
            .record
            .as_deref()
            .filter(|_| place.generation == at.generation)
    }

    fn records(&self) -> impl Iterator<Item = &C> {
        self.places
            .iter()
            .filter_map(|place| place.record.as_deref())
    }
}

/// Empties a record that has been linked out. Returns whether there was one.
fn emptied<C>(record: Option<SlabBox<C>>, empty: impl FnOnce(&C)) -> bool {
    record.map(|record| empty(&record)).is_some()
}

impl<C> Default for OneList<C> {
    fn default() -> Self {
        Self {
            list: Mutex::new(List::default()),
            locks: ThreadCounter::new(),
        }
    }
}

impl<C> OneList<C> {
    fn lock(&self) -> MutexGuard<'_, List<C>> {
        self.locks.add([1]);
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Default + Send + Sync> Registry<C> for OneList<C> {
    type Ticket = Ticket;

    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        let record = filled(fill);
        Some(self.lock().link(record))
    }

    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        // This is a separate statement, at whose end the lock is released.
        let record = self.lock().unlink(ticket);
        emptied(record, empty)
    }

    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        self.lock().get(ticket).map(look)
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        self.lock().records().filter_map(copy).collect()
    }
}

impl<C> Default for CpuLists<C> {
    fn default() -> Self {
        Self {
            lists: LgLock::new(),
            locks: ThreadCounter::new(),
        }
    }
}

impl<C: Default + Send + Sync> Registry<C> for CpuLists<C> {
    /// The list, and the place on it.
    type Ticket = (usize, Ticket);

    fn add(&self, fill: impl FnOnce(&C)) -> Option<Self::Ticket> {
        let record = filled(fill);
        self.locks.add([1]);
        let (list, mut records) = self.lists.local();
        Some((list, records.link(record)))
    }

    fn remove(&self, (list, ticket): &Self::Ticket, empty: impl FnOnce(&C)) -> bool {
        self.locks.add([1]);
        let record = self.lists.named(*list).unlink(ticket);
        emptied(record, empty)
    }

    fn with<R>(&self, (list, ticket): &Self::Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        self.locks.add([1]);
        self.lists.named(*list).get(ticket).map(look)
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        let lists = self.lists.global();
        self.locks.add([lists.len() as u64]);
        lists
            .iter()
            .flat_map(|list| list.records())
            .filter_map(copy)
            .collect()
    }
}

impl Locks for OneList<Opened> {
    fn locks(&self) -> u64 {
        self.locks.sum()[0]
    }
}

impl Locks for CpuLists<Opened> {
    fn locks(&self) -> u64 {
        self.locks.sum()[0]
    }
}

/// Puts a registry in the place of production's. A ticket packs the number of the list, the place
/// on it and its generation.
macro_rules! stands_in_production {
    ($registry:ident, $own:expr, $any:expr) => {
        impl LabRegistry for $registry<Opened> {
            fn add(&self, fill: &mut dyn FnMut(&Opened)) -> Option<AnyTicket> {
                Registry::add(self, fill).map($any)
            }

            fn remove(&self, ticket: AnyTicket, empty: &mut dyn FnMut(&Opened)) -> bool {
                Registry::remove(self, &$own(ticket), empty)
            }

            fn with(&self, ticket: AnyTicket, look: &mut dyn FnMut(&Opened)) {
                Registry::with(self, &$own(ticket), look);
            }

            fn list(&self, look: &mut dyn FnMut(&Opened)) {
                Registry::list(self, |opened| {
                    look(opened);
                    None::<()>
                });
            }
        }
    };
}

stands_in_production!(
    OneList,
    |[_, index, generation]: AnyTicket| Ticket { index, generation },
    |ticket| [0, ticket.index, ticket.generation]
);
stands_in_production!(
    CpuLists,
    |[list, index, generation]: AnyTicket| (list, Ticket { index, generation }),
    |(list, ticket)| [list, ticket.index, ticket.generation]
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::channel;

    use extern4_sync::primitive::{AtomicU64, Ordering};

    use super::*;

    fn add<R: Registry<AtomicU64>>(registry: &R, n: u64) -> R::Ticket {
        registry
            .add(|cell| cell.store(n, Ordering::Relaxed))
            .unwrap()
    }

    fn remove<R: Registry<AtomicU64>>(registry: &R, ticket: &R::Ticket) -> bool {
        registry.remove(ticket, |_| ())
    }

    fn get<R: Registry<AtomicU64>>(registry: &R, ticket: &R::Ticket) -> Option<u64> {
        registry.with(ticket, |cell| cell.load(Ordering::Relaxed))
    }

    fn all(registry: &impl Registry<AtomicU64>) -> BTreeSet<u64> {
        let list = registry.list(|cell| Some(cell.load(Ordering::Relaxed)));
        let found: BTreeSet<_> = list.iter().copied().collect();
        assert_eq!(found.len(), list.len(), "something is listed twice");
        found
    }

    fn an_added_file_is_listed_until_it_is_removed<R: Registry<AtomicU64>>() {
        let registry = R::default();
        let mut tickets: Vec<_> = (0..3000).map(|n| (n, add(&registry, n))).collect();
        assert_eq!(all(&registry), (0..3000).collect());
        let odd: Vec<_> = tickets.extract_if(.., |(n, _)| *n % 2 == 1).collect();
        assert!(odd.iter().all(|(_, ticket)| remove(&registry, ticket)));
        // Other records take their places, and the old tickets do not refer to them.
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

    /// One thread adds, others remove, one lists. Records that stay throughout are in every list.
    fn a_file_that_stays_open_is_always_listed<R: Registry<AtomicU64, Ticket: Send>>() {
        let registry = &R::default();
        let stay: Vec<_> = (0..50).map(|n| add(registry, n)).collect();
        std::thread::scope(|scope| {
            let mut senders = Vec::new();
            for _ in 0..3 {
                let (sender, tickets) = channel::<R::Ticket>();
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

    #[test]
    fn one_list() {
        an_added_file_is_listed_until_it_is_removed::<OneList<AtomicU64>>();
        a_file_that_stays_open_is_always_listed::<OneList<AtomicU64>>();
    }

    #[test]
    fn lists_of_cpus() {
        an_added_file_is_listed_until_it_is_removed::<CpuLists<AtomicU64>>();
        a_file_that_stays_open_is_always_listed::<CpuLists<AtomicU64>>();
    }
}
