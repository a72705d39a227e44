//! Registries to measure the one in production against: what Linux had before, and what a patch of 2009 put in its place.

use extern4_sync::lglock::LgLock;

use super::registry::Registry;
use crate::lock::{self, Mutex};

/// Before: one list for the file system under one lock, as `files_lock` was.
pub struct OneList<C>(Mutex<List<C>>);

/// Seed: a list for each CPU, under an lglock. A file remembers the list that it was entered on; to list all takes all locks.
pub struct CpuLists<C>(LgLock<List<C>>);

/// Records in places, of which some are free.
struct List<C> {
    places: Vec<Place<C>>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Place<C> {
    /// Odd while the place is taken.
    generation: u64,
    record: C,
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

impl<C: Default> List<C> {
    fn add(&mut self, fill: impl FnOnce(&C)) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        fill(&place.record);
        place.generation += 1;
        Ticket { index, generation: place.generation }
    }

    fn remove(&mut self, at: &Ticket, empty: impl FnOnce(&C)) -> bool {
        let Some(record) = self.get(at) else { return false };
        empty(record);
        self.places[at.index].generation += 1;
        self.free.push(at.index);
        true
    }

    fn get(&self, at: &Ticket) -> Option<&C> {
        let place = self.places.get(at.index)?;
        (place.generation == at.generation).then_some(&place.record)
    }

    fn records(&self) -> impl Iterator<Item = &C> {
        self.places.iter().filter(|place| place.generation % 2 == 1).map(|place| &place.record)
    }
}

impl<C> Default for OneList<C> {
    fn default() -> Self {
        Self(Mutex::new(List::default()))
    }
}

impl<C: Default + Send + Sync> Registry<C> for OneList<C> {
    type Ticket = Ticket;

    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        Some(lock::lock(&self.0).add(fill))
    }

    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        lock::lock(&self.0).remove(ticket, empty)
    }

    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        lock::lock(&self.0).get(ticket).map(look)
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        lock::lock(&self.0).records().filter_map(copy).collect()
    }
}

impl<C> Default for CpuLists<C> {
    fn default() -> Self {
        Self(LgLock::new())
    }
}

impl<C: Default + Send + Sync> Registry<C> for CpuLists<C> {
    /// The list, and the place on it.
    type Ticket = (usize, Ticket);

    fn add(&self, fill: impl FnOnce(&C)) -> Option<Self::Ticket> {
        let (list, mut records) = self.0.local();
        Some((list, records.add(fill)))
    }

    fn remove(&self, (list, ticket): &Self::Ticket, empty: impl FnOnce(&C)) -> bool {
        self.0.named(*list).remove(ticket, empty)
    }

    fn with<R>(&self, (list, ticket): &Self::Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        self.0.named(*list).get(ticket).map(look)
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        self.0.global().iter().flat_map(|list| list.records()).filter_map(copy).collect()
    }
}
