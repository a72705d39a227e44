//! What a block has been changed to: under a lock of its own, lent to who keeps it, and shown to who reads it often.

use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use extern4_sync::primitive::{Latch, LatchGuard};
use extern4_sync::rcu::Guard;
use extern4_sync::shown::Shown;

/// The contents of a block at one moment.
pub type Image = Arc<Box<[u8]>>;

/// What whoever changes a block puts off until it is written, such as a checksum over all of it: all zeroes if nothing. What the
/// numbers say is between him and the one who writes the block, who [seals](super::Pin::seal) it first.
pub type Unsealed = [u32; 4];

/// A block that has been changed since it was loaded.
#[derive(Debug)]
pub(super) struct Changed {
    newest: Latch<Newest>,
    /// What `newest` says.
    shown: Shown<Image>,
}

/// What a block has been changed to.
#[derive(Debug)]
pub(super) struct Newest {
    bytes: Bytes,
    unsealed: Unsealed,
}

/// The bytes of a block that has been changed.
#[derive(Debug)]
enum Bytes {
    /// Nobody else has seen them since they were changed, which is known without a count.
    Own(Box<[u8]>),
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
        let newest = Newest { bytes: Bytes::Own(loaded.into()), unsealed: Unsealed::default() };
        Self { newest: Latch::new(newest), shown: Shown::nothing() }
    }

    #[inline]
    fn lock(&self) -> LatchGuard<'_, Newest> {
        // Nobody looks at the newest contents under the lock but who changes them, so if a change panics there is nothing half
        // done that others must not see: they are what the caller's structures have to deal with.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the contents to `change`, and shows them no more.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Newest) -> R) -> R {
        let mut newest = self.lock();
        self.shown.hide();
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
        Some(self.shown.get(guard)?)
    }

    /// Hands them to `seal`, with what has been put off, if anything has.
    pub(super) fn seal(&self, seal: impl FnOnce(&mut [u8], Unsealed)) {
        let mut newest = self.lock();
        if newest.unsealed != Unsealed::default() {
            self.shown.hide();
            newest.edit(|bytes, unsealed| seal(bytes, std::mem::take(unsealed)));
        }
    }

    /// Hands them to `look`, without the lock if they are shown.
    #[inline]
    pub(super) fn look<R>(&self, guard: &Guard, look: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(image) = self.shown.get(guard) {
            return look(image);
        }
        let mut newest = self.lock();
        self.shown.count(|| newest.bytes.lend());
        look(&newest.bytes)
    }
}

impl Newest {
    /// Hands the bytes, which nobody else looks at, to `change`: a copy of them, if somebody does.
    #[inline]
    pub(super) fn edit<R>(&mut self, change: impl FnOnce(&mut [u8], &mut Unsealed) -> R) -> R {
        let bytes = match &mut self.bytes {
            Bytes::Own(bytes) => bytes,
            lent @ Bytes::Lent(_) => lent.take_back(),
        };
        change(bytes, &mut self.unsealed)
    }

    /// Lets somebody look at it as it is now.
    pub(super) fn lend(&mut self) -> Glance {
        Glance { image: self.bytes.lend(), unsealed: self.unsealed }
    }
}

impl Bytes {
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
    fn take_back(&mut self) -> &mut Box<[u8]> {
        let bytes = match std::mem::replace(self, Self::Own(Box::default())) {
            Self::Own(bytes) => bytes,
            Self::Lent(image) => Image::try_unwrap(image).unwrap_or_else(|others| Box::clone(&others)),
        };
        *self = Self::Own(bytes);
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(_) => unreachable!("they have just been taken back"),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(image) => image,
        }
    }
}
