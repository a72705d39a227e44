//! The registry in production: places in slabs, one slab a thread.
//!
//! A thread enters records in places of its own slab, and keeps a list of those that are free: no other thread writes to the lines
//! that this takes, and it takes plain stores. A place is a record and a generation, odd while it is taken. Who lists the
//! records takes no lock, writes nothing, and keeps nobody waiting: it copies a record and looks whether the generation is
//! still the same. Places stay where they are as long as the registry, and slabs only grow.
//!
//! | place | by | transition |
//! | --- | --- | --- |
//! | free, on the list of its slab's owner | the owner | `add`: record filled, generation odd; taken |
//! | taken | the owner | `remove`: record emptied, generation even; free |
//! | taken | another thread | `remove`: record emptied, generation even; cleared |
//! | cleared | the owner, when its list is empty | looks through its slab; free |
//!
//! 1. A taken place has one ticket, so one thread at a time changes it. Who finds it even (`Acquire`) comes after whoever made it
//!    so (`Release`). No generation comes twice, so tickets of the past are known by theirs.
//! 2. A copy is of one use of the place, if the generation is the same odd one before and after: `add` fills the record behind
//!    a `Release` fence that follows the even generation, and who has copied some of that finds, behind an `Acquire` fence, the even
//!    generation or a later one. This is what [`SeqCount`](extern4_sync::seqcount::SeqCount) does.
//! 3. Who closes what another thread opened stores to the place and to nothing else. The owner looks for such places when its list is
//!    empty, and if it finds less than a quarter of its slab, the slab doubles: so this costs a few loads for each
//!    record that is entered.
//! 4. A list has each record that was entered before the listing began and is not taken out before it ends: its place was
//!    there, and its generation was the same all the time. Of those that come and go meanwhile it may have some.
//! 5. A slab belongs to a number of a thread ([`PerThread`]): who gets the number of a thread that has ended gets its slab. Threads
//!    without a number share a slab, and take places of it under a lock, which is held until the place is taken.

use std::cell::RefCell;

use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, AtomicUsize, OnceLock, Ordering, fence};

use super::registry::Registry;
use crate::lock::{self, Mutex};

/// Slabs at most: as many as threads with numbers, and one for the others.
const SLABS: usize = 65;
/// Places in the first chunk of a slab; each further one has twice as many as the one before.
#[cfg(not(feature = "loom"))]
const FIRST: usize = 16;
#[cfg(feature = "loom")]
const FIRST: usize = 2;
const CHUNKS: usize = 24;

/// Records in slabs.
pub struct Slabs<C> {
    slabs: Box<[OnceLock<Box<Slab<C>>>]>,
    /// Slabs that have an owner.
    owned: AtomicUsize,
    owners: PerThread<RefCell<Owner>>,
    /// For threads without numbers.
    shared: Mutex<Owner>,
}

/// What the owner of a slab knows.
#[derive(Default)]
struct Owner {
    slab: Option<usize>,
    places: usize,
    free: Vec<usize>,
}

/// Places, in chunks that stay where they are.
struct Slab<C> {
    chunks: [OnceLock<Chunk<C>>; CHUNKS],
}

type Chunk<C> = Box<[Padded<Place<C>>]>;

#[derive(Default)]
struct Place<C> {
    /// Odd while the place is taken.
    generation: AtomicU64,
    record: C,
}

/// Where a record stands.
#[derive(Debug)]
pub struct Ticket {
    slab: usize,
    place: usize,
    generation: u64,
}

impl<C> Slab<C> {
    fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// Which chunk a place is in, and where.
    #[inline]
    fn locate(place: usize) -> (usize, usize) {
        let chunk = (place / FIRST + 1).ilog2() as usize;
        (chunk, place - FIRST * ((1 << chunk) - 1))
    }

    #[inline]
    fn place(&self, place: usize) -> Option<&Place<C>> {
        let (chunk, at) = Self::locate(place);
        self.chunks.get(chunk)?.get()?.get(at).map(|place| &place.0)
    }

    /// All places that there are.
    fn places(&self) -> impl Iterator<Item = &Place<C>> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().map(|place| &place.0)
    }
}

impl<C: Default> Slab<C> {
    /// Adds a chunk behind the places that there are; tells how many there are then.
    fn grow(&self, places: usize) -> Option<usize> {
        let (chunk, _) = Self::locate(places);
        let len = FIRST << chunk;
        self.chunks.get(chunk)?.set((0..len).map(|_| Padded::default()).collect()).ok()?;
        Some(places + len)
    }
}

impl<C: Default> Slabs<C> {
    #[inline]
    fn place(&self, ticket: &Ticket) -> Option<&Place<C>> {
        self.slabs.get(ticket.slab)?.get()?.place(ticket.place)
    }

    /// A free place of an owner's slab.
    fn take_place(&self, owner: &mut Owner) -> Option<(usize, usize)> {
        let number = match owner.slab {
            Some(number) => number,
            None => *owner.slab.insert(self.found_slab()?),
        };
        if owner.free.is_empty() {
            refill(owner, self.slabs[number].get()?);
        }
        Some((number, owner.free.pop()?))
    }

    /// A new slab.
    #[cold]
    fn found_slab(&self) -> Option<usize> {
        // Relaxed: only uniqueness counts.
        let number = self.owned.fetch_add(1, Ordering::Relaxed);
        self.slabs.get(number)?.set(Box::new(Slab::new())).ok()?;
        Some(number)
    }
}

/// Puts a place back on the list, if it is of this owner's slab.
#[inline]
fn put_back(owner: &mut Owner, ticket: &Ticket) {
    if owner.slab == Some(ticket.slab) {
        owner.free.push(ticket.place);
    }
}

/// Finds what other threads have cleared; adds places where that is little.
#[cold]
fn refill<C: Default>(owner: &mut Owner, slab: &Slab<C>) {
    // Acquire: rule 1.
    let is_even = |place: &Place<C>| place.generation.load(Ordering::Acquire).is_multiple_of(2);
    owner.free.extend(slab.places().enumerate().filter(|(_, place)| is_even(place)).map(|(at, _)| at));
    if owner.free.len() * 4 <= owner.places
        && let Some(places) = slab.grow(owner.places)
    {
        owner.free.extend((owner.places..places).rev());
        owner.places = places;
    }
}

impl<C> Default for Slabs<C> {
    fn default() -> Self {
        Self {
            slabs: (0..SLABS).map(|_| OnceLock::new()).collect(),
            owned: AtomicUsize::new(0),
            owners: PerThread::new(),
            shared: Mutex::default(),
        }
    }
}

impl<C: Default + Send + Sync> Registry<C> for Slabs<C> {
    type Ticket = Ticket;

    #[inline]
    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        // Held until the place is odd: for another thread that shares the slab, one that is even is free.
        let mut shared;
        let own = self.owners.with(|owner| self.take_place(&mut owner.borrow_mut())).flatten();
        let (slab, place) = match own {
            Some(own) => own,
            None => {
                shared = lock::lock(&self.shared);
                self.take_place(&mut shared)?
            }
        };
        let ticket = Ticket { slab, place, generation: 0 };
        let Place { generation, record } = self.place(&ticket)?;
        // Relaxed: this thread has found it even, or made it so.
        let next = generation.load(Ordering::Relaxed).wrapping_add(1);
        // Release: rule 2.
        fence(Ordering::Release);
        fill(record);
        // Release: who finds it odd finds the record filled.
        generation.store(next, Ordering::Release);
        Some(Ticket { generation: next, ..ticket })
    }

    #[inline]
    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        // Relaxed: who has the ticket had it from who stored this generation.
        let is_it = |place: &&Place<C>| place.generation.load(Ordering::Relaxed) == ticket.generation;
        let Some(Place { generation, record }) = self.place(ticket).filter(is_it) else { return false };
        empty(record);
        // Release: rule 1.
        generation.store(ticket.generation.wrapping_add(1), Ordering::Release);
        self.owners.with(|owner| put_back(&mut owner.borrow_mut(), ticket));
        true
    }

    #[inline]
    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        let Place { generation, record } = self.place(ticket)?;
        // Relaxed: as in `remove`.
        (generation.load(Ordering::Relaxed) == ticket.generation).then(|| look(record))
    }

    fn list<R>(&self, mut copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        let slabs = self.slabs.iter().filter_map(OnceLock::get);
        let copy = |Place { generation, record }: &Place<C>| {
            // Acquire: pairs with the Release of `add`.
            let before = generation.load(Ordering::Acquire);
            let copied = if before % 2 == 1 { copy(record) } else { None };
            // Acquire: rule 2.
            fence(Ordering::Acquire);
            copied.filter(|_| generation.load(Ordering::Relaxed) == before)
        };
        slabs.flat_map(|slab| slab.places()).filter_map(copy).collect()
    }
}
