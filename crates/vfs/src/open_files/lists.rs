//! Registries to measure the one in production against: what Linux had before, and what a patch of 2009 put in its place.

use extern4_sync::lglock::LgLock;
use extern4_sync::primitive::MutexGuard;
use extern4_sync::spare::{Own, in_box};
use extern4_sync::tally::Tally;

use super::registry::Registry;
use crate::lock::{self, Mutex};

/// Before: one list for the file system under one lock, as `files_lock` was.
pub struct OneList<C> {
    list: Mutex<List<C>>,
    locks: Tally<1>,
}

/// Seed: a list for each CPU, under an lglock. A file remembers the list that it was entered on; to list all takes all locks.
pub struct CpuLists<C> {
    lists: LgLock<List<C>>,
    locks: Tally<1>,
}

/// Records in places, of which some are free. A record is made and filled before the lock is taken, and emptied and freed when it has
/// been released, as Linux allocates and frees a `struct file`; under the lock it is only linked in or out.
struct List<C> {
    places: Vec<Place<C>>,
    free: Vec<usize>,
}

struct Place<C> {
    /// One more with each use.
    generation: u64,
    record: Option<Own<C>>,
}

/// Where a record stands in its list.
#[derive(Debug)]
pub struct Ticket {
    index: usize,
    generation: u64,
}

impl<C> Default for List<C> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

/// A record that is filled.
fn filled<C: Default>(fill: impl FnOnce(&C)) -> Own<C> {
    let record = Own::from(in_box(C::default()));
    fill(&record);
    record
}

impl<C> List<C> {
    fn link(&mut self, record: Own<C>) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, record: None });
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        place.generation += 1;
        place.record = Some(record);
        Ticket { index, generation: place.generation }
    }

    fn unlink(&mut self, at: &Ticket) -> Option<Own<C>> {
        self.get(at)?;
        self.free.push(at.index);
        self.places[at.index].record.take()
    }

    fn get(&self, at: &Ticket) -> Option<&C> {
        let place = self.places.get(at.index)?;
        place.record.as_deref().filter(|_| place.generation == at.generation)
    }

    fn records(&self) -> impl Iterator<Item = &C> {
        self.places.iter().filter_map(|place| place.record.as_deref())
    }
}

/// Empties a record that has been linked out, if it was; true then.
fn emptied<C>(record: Option<Own<C>>, empty: impl FnOnce(&C)) -> bool {
    record.map(|record| empty(&record)).is_some()
}

impl<C> Default for OneList<C> {
    fn default() -> Self {
        Self { list: Mutex::new(List::default()), locks: Tally::new() }
    }
}

impl<C> OneList<C> {
    fn lock(&self) -> MutexGuard<'_, List<C>> {
        self.locks.add([1]);
        lock::lock(&self.list)
    }
}

impl<C: Default + Send + Sync> Registry<C> for OneList<C> {
    type Ticket = Ticket;

    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        let record = filled(fill);
        Some(self.lock().link(record))
    }

    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        // In a statement of its own, at whose end the lock is released.
        let record = self.lock().unlink(ticket);
        emptied(record, empty)
    }

    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        self.lock().get(ticket).map(look)
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        self.lock().records().filter_map(copy).collect()
    }

    fn locks(&self) -> u64 {
        self.locks.sum()[0]
    }
}

impl<C> Default for CpuLists<C> {
    fn default() -> Self {
        Self { lists: LgLock::new(), locks: Tally::new() }
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
        lists.iter().flat_map(|list| list.records()).filter_map(copy).collect()
    }

    fn locks(&self) -> u64 {
        self.locks.sum()[0]
    }
}
