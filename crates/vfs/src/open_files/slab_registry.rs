//! The registry in production: places in slabs, one slab a thread.
//!
//! `open_files` calls it for each open and close. Both take no lock and write no line that other
//! threads write, unless a thread closes a file that another has opened.
//!
//! A thread enters records in its own slab and keeps a list of the free ones. This takes
//! plain stores to lines that no other thread writes. A place is a record and a generation, which
//! is odd while the place is taken. A listing takes no lock, writes nothing and keeps no thread
//! waiting: it copies a record and checks that the generation is still the same. Places do not move
//! as long as the registry exists, and slabs only grow.
//!
//! | place | by | transition |
//! | --- | --- | --- |
//! | free, on its owner's list | the owner | `add`: record filled, generation odd; taken |
//! | taken | the owner | `remove`: record emptied, generation even; free |
//! | taken | another thread | `remove`: record emptied, generation even; cleared |
//! | cleared | the owner, when its list is empty | looks through its slab; free |
//!
//! 1. A taken place has one ticket, so one thread at a time changes it. A thread that finds the
//!    generation even (`Acquire`) comes after the thread that made it even (`Release`). No
//!    generation occurs twice, so an old ticket never fits.
//! 2. A copy is of one use of the place, if the generation is the same odd one before and after.
//!    `add` fills the record after a `Release` fence that follows the even generation. A listing
//!    that has copied some of that finds, after an `Acquire` fence, the even generation or a later
//!    one. This is what [`SeqCount`](extern4_sync::seqcount::SeqCount) does.
//! 3. A thread that closes a file of another thread stores to the place and to nothing else. The
//!    owner looks for such places when its list is empty, and if it finds less than a quarter of
//!    its slab, the slab doubles. So this costs a few loads for each new record.
//! 4. A list has each record that was inserted before the listing began and is not removed before
//!    it ends. Its place was there, and its generation was the same all the time. It may have some
//!    of the records that come and go meanwhile.
//! 5. A slab belongs to a number of a thread ([`PerThread`]): a thread that gets the number of one
//!    that has ended gets its slab. There is a slab for each thread that has its own slot
//!    ([`thread_slots`](extern4_sync::thread_slots)). All other threads share a slab, and take
//!    places of it under a lock, which is held until the place is taken.

use std::cell::RefCell;
use std::num::NonZeroU64;

use extern4_sync::per_thread::PerThread;
use extern4_sync::percpu::Padded;
use extern4_sync::primitive::{AtomicU64, AtomicUsize, OnceLock, Ordering, capacity, fence};
use extern4_sync::thread_slots::{LIMIT, ThreadSlots};

use super::registry::Registry;
use crate::lock::{self, Mutex};

/// Places in the first chunk of a slab; each further one has twice as many as the one before.
const FIRST: usize = capacity(16, 2);
/// The most chunks of a slab.
const CHUNKS: usize = 24;

/// Records in slabs.
pub struct SlabRegistry<C> {
    slabs: ThreadSlots<Slab<C>>,
    /// The number of slabs that have an owner.
    owned: AtomicUsize,
    owners: PerThread<RefCell<Owner>>,
    /// The owner of the shared slab.
    shared: Mutex<Owner>,
}

struct Slab<C>([OnceLock<Chunk<C>>; CHUNKS]);

/// Places, which stay where they are.
type Chunk<C> = Box<[Padded<Slot<C>>]>;

#[derive(Default)]
struct Slot<C> {
    /// Odd while the place is taken.
    generation: AtomicU64,
    record: C,
}

/// The position of a place: the numbers of its slab and its chunk, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot(u64);

/// The state that only the owner of a slab uses.
#[derive(Default)]
struct Owner {
    slab: Option<usize>,
    /// The number of chunks of the slab.
    chunks: usize,
    free: Vec<Spot>,
}

/// The ticket of a record. It is two words, even as an `Option`, so that it stays in registers. A
/// ticket that is put together in memory and loaded at once would make the CPU wait.
#[derive(Debug)]
pub struct Ticket {
    spot: Spot,
    generation: NonZeroU64,
}

impl Spot {
    /// Returns the position of place `at` of a chunk. A slab has at most 2^5 chunks, and a chunk
    /// 2^32 places.
    fn new(slab: usize, chunk: usize, at: usize) -> Self {
        Self((slab as u64) << 37 | (chunk as u64) << 32 | at as u64)
    }

    fn slab(self) -> usize {
        // OK: it was a usize, here and below.
        (self.0 >> 37) as usize
    }

    fn chunk(self) -> usize {
        (self.0 >> 32) as usize % 32
    }

    fn at(self) -> usize {
        self.0 as u32 as usize
    }
}

impl Owner {
    fn owns(&self, spot: Spot) -> bool {
        self.slab == Some(spot.slab())
    }
}

impl<C> SlabRegistry<C> {
    #[inline]
    fn place(&self, spot: Spot) -> Option<&Slot<C>> {
        let slab = self.slabs.get(spot.slab()).unwrap_or(self.slabs.shared());
        slab.0
            .get(spot.chunk())?
            .get()?
            .get(spot.at())
            .map(|place| &place.0)
    }
}

impl<C: Default> SlabRegistry<C> {
    /// Takes a free place of an owner's slab.
    #[inline]
    fn take_place(&self, owner: &mut Owner) -> Option<Spot> {
        match owner.free.pop() {
            Some(spot) => Some(spot),
            None => self.refill(owner),
        }
    }

    /// Collects the places that other threads have cleared, and adds places if these are few.
    #[cold]
    fn refill(&self, owner: &mut Owner) -> Option<Spot> {
        let number = owner.slab.or_else(|| self.new_slab())?;
        owner.slab = Some(number);
        let slab = self.slabs.of(number).unwrap_or(self.slabs.shared());
        let mut places = 0;
        for (index, chunk) in slab.0.iter().map_while(OnceLock::get).enumerate() {
            places += chunk.len();
            // Acquire: rule 1.
            let is_even = |at: &usize| {
                chunk[*at]
                    .0
                    .generation
                    .load(Ordering::Acquire)
                    .is_multiple_of(2)
            };
            owner.free.extend(
                (0..chunk.len())
                    .filter(is_even)
                    .map(|at| Spot::new(number, index, at)),
            );
        }
        if owner.free.len() * 4 <= places {
            grow(slab, number, owner);
        }
        owner.free.pop()
    }

    /// Returns the number of a slab that has no owner, if the thread may own one.
    fn new_slab(&self) -> Option<usize> {
        // Relaxed: only uniqueness counts.
        let number = self.owned.fetch_add(1, Ordering::Relaxed);
        (number < LIMIT).then_some(number)
    }
}

/// Adds a chunk after the chunks that the slab has.
fn grow<C: Default>(slab: &Slab<C>, number: usize, owner: &mut Owner) {
    let (Some(chunk), len) = (slab.0.get(owner.chunks), FIRST << owner.chunks) else {
        return;
    };
    if chunk
        .set((0..len).map(|_| Padded::default()).collect())
        .is_ok()
    {
        owner
            .free
            .extend((0..len).rev().map(|at| Spot::new(number, owner.chunks, at)));
        owner.chunks += 1;
    }
}

impl<C> Default for Slab<C> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl<C> Default for SlabRegistry<C> {
    fn default() -> Self {
        Self {
            slabs: ThreadSlots::new(),
            owned: AtomicUsize::new(0),
            owners: PerThread::new(),
            shared: Mutex::new(Owner {
                slab: Some(LIMIT),
                ..Owner::default()
            }),
        }
    }
}

impl<C: Default + Send + Sync> Registry<C> for SlabRegistry<C> {
    type Ticket = Ticket;

    #[inline]
    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        // Held until the generation is odd: another thread that shares the slab takes a place with
        // an even one for free.
        let mut shared;
        let own = self
            .owners
            .with(|owner| self.take_place(&mut owner.borrow_mut()))
            .flatten();
        let spot = match own {
            Some(own) => own,
            None => {
                shared = lock::lock(&self.shared);
                self.take_place(&mut shared)?
            }
        };
        let Slot { generation, record } = self.place(spot)?;
        // Relaxed: this thread has found it even, or made it so.
        let next = generation.load(Ordering::Relaxed) | 1;
        // Release: rule 2.
        fence(Ordering::Release);
        fill(record);
        // Release: rule 2. A thread that finds it odd, by `Acquire`, finds the record filled.
        generation.store(next, Ordering::Release);
        Some(Ticket {
            spot,
            generation: NonZeroU64::new(next)?,
        })
    }

    #[inline]
    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        // Relaxed: the ticket came from the thread that stored this generation.
        let is_it =
            |place: &&Slot<C>| place.generation.load(Ordering::Relaxed) == ticket.generation.get();
        let Some(Slot { generation, record }) = self.place(ticket.spot).filter(is_it) else {
            return false;
        };
        empty(record);
        // Release: rule 1.
        generation.store(ticket.generation.get().wrapping_add(1), Ordering::Release);
        self.owners.with(|owner| {
            let mut owner = owner.borrow_mut();
            if owner.owns(ticket.spot) {
                owner.free.push(ticket.spot);
            }
        });
        true
    }

    #[inline]
    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        let Slot { generation, record } = self.place(ticket.spot)?;
        // Relaxed: as in `remove`.
        (generation.load(Ordering::Relaxed) == ticket.generation.get()).then(|| look(record))
    }

    fn list<R>(&self, mut copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        let chunks = self.slabs.iter().flat_map(|slab| &slab.0);
        let places = chunks.filter_map(OnceLock::get).flatten();
        let copy = |Slot { generation, record }: &Slot<C>| {
            // Acquire: pairs with the Release of `add`.
            let before = generation.load(Ordering::Acquire);
            let copied = if before % 2 == 1 { copy(record) } else { None };
            // Acquire: rule 2.
            fence(Ordering::Acquire);
            copied.filter(|_| generation.load(Ordering::Relaxed) == before)
        };
        places.map(|place| &place.0).filter_map(copy).collect()
    }
}
