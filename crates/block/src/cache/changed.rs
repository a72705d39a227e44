//! What a block has been changed to: under a lock of its own, lent to who keeps it, and shown to who reads it often.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock, PoisonError};

use extern4_sync::primitive::{AtomicBool, Latch, LatchGuard, Ordering, capacity};
use extern4_sync::rcu::Guard;
use extern4_sync::rcu_snapshot::RcuSnapshot;
use extern4_sync::slab::Bytes;
use extern4_sync::thread_slots::thread_number;

use super::parts::{Part, Parts};

/// The contents of a block at one moment.
pub type Image = Arc<Bytes>;

/// What whoever changes a block puts off until it is written, such as a checksum over all of it: all zeroes if nothing. What the
/// numbers say is between him and the one who writes the block, who [seals](super::Pin::seal) it first.
pub type Unsealed = [u32; 4];

/// So often threads have changed parts of a block by turns when the parts are taken out; few in models.
const TURNS: u32 = capacity(4, 1);

/// A block that has been changed since it was loaded.
#[derive(Debug)]
pub(super) struct Changed {
    newest: Latch<Newest>,
    /// Threads change parts of it by turns, and some of these may be out. Changes under the lock; to others it says where to look first, and
    /// no more, so Relaxed.
    is_divided: AtomicBool,
    parts: OnceLock<Box<Parts>>,
    /// What `newest` says.
    snapshot: RcuSnapshot<Image>,
}

/// What a block has been changed to.
#[derive(Debug)]
pub(super) struct Newest {
    bytes: Contents,
    unsealed: Unsealed,
    /// Who has changed a part of it last, and how often that was another than before, since it was sealed.
    last: usize,
    turns: u32,
}

/// The bytes of a block that has been changed.
#[derive(Debug)]
enum Contents {
    /// Nobody else has seen them since they were changed, which is known without a count.
    Own(Bytes),
    /// Others may look at them.
    Lent(Image),
}

/// A look at [`Newest`].
#[derive(Clone, Debug)]
pub(super) struct Glance {
    pub(super) image: Image,
    pub(super) unsealed: Unsealed,
}

impl Changed {
    pub(super) fn new(loaded: &[u8]) -> Self {
        let newest =
            Newest { bytes: Contents::Own(loaded.into()), unsealed: Unsealed::default(), last: 0, turns: 0 };
        Self {
            newest: Latch::new(newest),
            is_divided: AtomicBool::new(false),
            parts: OnceLock::new(),
            snapshot: RcuSnapshot::empty(),
        }
    }

    #[inline]
    fn lock_divided(&self) -> LatchGuard<'_, Newest> {
        // Nobody looks at the newest contents under the lock but who changes them, so if a change panics there is nothing half
        // done that others must not see: they are what the caller's structures have to deal with.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks all of it, no part of which is out then.
    #[inline]
    fn lock(&self) -> LatchGuard<'_, Newest> {
        let mut newest = self.lock_divided();
        if self.is_divided() {
            self.join(&mut newest);
        }
        newest
    }

    #[inline]
    fn is_divided(&self) -> bool {
        self.is_divided.load(Ordering::Relaxed)
    }

    #[cold]
    fn join(&self, newest: &mut Newest) {
        newest.turns = 0;
        self.is_divided.store(false, Ordering::Relaxed);
        if let Some(parts) = self.parts.get() {
            parts.put_back(newest);
        }
    }

    /// The part that is bytes `range`, if parts may be out.
    #[inline]
    fn part(&self, range: &Range<usize>) -> Option<LatchGuard<'_, Part>> {
        if self.is_divided() { self.parts.get()?.lock(range) } else { None }
    }

    /// Hands bytes `range` to `change`, which is of a block whose parts, of that length, have nothing to do with each other.
    #[inline]
    pub(super) fn change_part<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        if let Some(mut part) = self.part(&range)
            && let Some((bytes, unsealed)) = part.out(range.len())
        {
            return change(bytes, unsealed);
        }
        self.change_part_first(range, change)
    }

    /// The same where the part is in its block, as far as is known.
    fn change_part_first<R>(
        &self,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8], &mut Unsealed) -> R,
    ) -> R {
        let mut newest = self.lock_divided();
        self.snapshot.invalidate();
        if !self.is_divided() && newest.is_another_turn() {
            self.parts.get_or_init(|| Box::new(Parts::new(newest.bytes.len(), range.len())));
            self.is_divided.store(true, Ordering::Relaxed);
        }
        if self.is_divided() {
            if let Some(mut part) = self.part(&range) {
                if part.out(range.len()).is_none() {
                    part.take_out(&newest.bytes[range.clone()], newest.unsealed);
                }
                drop(newest);
                let (bytes, unsealed) = part.out(range.len()).expect("it is out by now");
                return change(bytes, unsealed);
            }
            // Of another length than the parts.
            self.join(&mut newest);
        }
        newest.edit(|bytes, unsealed| change(&mut bytes[range], unsealed))
    }

    /// Hands them to `look`.
    #[inline]
    pub(super) fn look_part<R>(
        &self,
        guard: &Guard,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> R {
        if let Some(mut part) = self.part(&range)
            && let Some((bytes, _)) = part.out(range.len())
        {
            return look(bytes);
        }
        let newest = self.lock_divided();
        if let Some(mut part) = self.part(&range) {
            // It may have gone out meanwhile.
            return look(part.out(range.len()).map_or(&newest.bytes[range], |(bytes, _)| bytes));
        }
        drop(newest);
        self.look(guard, |bytes| look(&bytes[range]))
    }

    /// Hands the contents to `change`, and shows them no more.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Newest) -> R) -> R {
        let mut newest = self.lock();
        self.snapshot.invalidate();
        change(&mut newest)
    }

    /// Lets somebody look at them as they are now.
    #[inline]
    pub(super) fn lend(&self) -> Glance {
        self.lock().lend()
    }

    /// The contents, if they are shown.
    #[inline]
    pub(super) fn shown<'g>(&'g self, guard: &'g Guard) -> Option<&'g [u8]> {
        Some(self.snapshot.get(guard)?)
    }

    /// Hands them to `seal`, with what has been put off, if anything has.
    pub(super) fn seal(&self, seal: impl FnOnce(&mut [u8], Unsealed)) {
        let mut newest = self.lock();
        newest.turns = 0;
        if newest.unsealed != Unsealed::default() {
            self.snapshot.invalidate();
            newest.edit(|bytes, unsealed| seal(bytes, std::mem::take(unsealed)));
        }
    }

    /// Hands them to `look`, without the lock if they are shown.
    #[inline]
    pub(super) fn look<R>(&self, guard: &Guard, look: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(image) = self.snapshot.get(guard) {
            return look(image);
        }
        let mut newest = self.lock();
        self.snapshot.count_read(|| newest.bytes.lend());
        look(&newest.bytes)
    }
}

impl Newest {
    /// Notes that the thread changes a part, and tells whether threads have done that by turns for a while.
    fn is_another_turn(&mut self) -> bool {
        let thread = thread_number();
        self.turns += u32::from(std::mem::replace(&mut self.last, thread) != thread);
        self.turns >= TURNS
    }

    /// Hands the bytes, which nobody else looks at, to `change`: a copy of them, if somebody does.
    #[inline]
    pub(super) fn edit<R>(&mut self, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        let bytes = match &mut self.bytes {
            Contents::Own(bytes) => bytes,
            lent @ Contents::Lent(_) => lent.take_back(),
        };
        change(bytes, &mut self.unsealed)
    }

    /// Lets somebody look at it as it is now.
    pub(super) fn lend(&mut self) -> Glance {
        Glance { image: self.bytes.lend(), unsealed: self.unsealed }
    }
}

impl Contents {
    fn lend(&mut self) -> Image {
        let image = match self {
            Self::Lent(image) => return Image::clone(image),
            Self::Own(bytes) => Image::new(std::mem::take(bytes)),
        };
        *self = Self::Lent(Image::clone(&image));
        image
    }

    /// The bytes themselves, once nobody looks at them any more; until then a copy of them.
    #[cold]
    fn take_back(&mut self) -> &mut Bytes {
        let bytes = match std::mem::replace(self, Self::Own(Bytes::default())) {
            Self::Own(bytes) => bytes,
            Self::Lent(image) => Image::try_unwrap(image).unwrap_or_else(|others| Bytes::clone(&others)),
        };
        *self = Self::Own(bytes);
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(_) => unreachable!("they have just been taken back"),
        }
    }
}

impl Deref for Contents {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(image) => image,
        }
    }
}
