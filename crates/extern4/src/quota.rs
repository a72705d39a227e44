//! The quotas of a volume: the space and the inodes that users, groups and projects use, and their
//! limits.
//!
//! [`Volume::quotas`] returns them. Limits and times are changed on a volume that is open for
//! writing. `tune` adds quotas to a volume that has none.
//!
//! ```
//! use extern4::Volume;
//! use extern4::quota::{Kind, LimitChange};
//! use extern4::tune::{Changes, QuotaChange};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let quotas = QuotaChange { with: vec![Kind::User], ..QuotaChange::default() };
//!     Changes { quotas, ..Changes::default() }.apply(&volume)?;
//! #   volume.close()?;
//! #   let volume = Volume::options().write(true).open(dir.path().join("disk.img"))?;
//!
//!     let limits = LimitChange { space_hard: Some(10 << 20), ..LimitChange::default() };
//!     volume.quotas().set_limits(Kind::User, 1000, &limits)?;
//!     assert_eq!(volume.quotas().of(Kind::User, 1000)?.space.hard, 10 << 20);
//!     Ok(())
//! }
//! ```

use std::fmt;

pub use extern4_disk::quota::{Entry, Kind, Resource};
use extern4_ext4::Ext4;
pub use extern4_ext4::quota::Grace;
use extern4_ext4::quota::Limits;

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The quotas of an open volume.
#[derive(Clone, Copy)]
pub struct Quotas<'v> {
    ext4: &'v Ext4,
}

/// Changes of the limits of an owner; `None` leaves a limit as it is, and 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Bytes that may be exceeded for the grace time only. They are rounded up to whole KiB.
    pub space_soft: Option<u64>,
    /// Bytes that are never exceeded. They are rounded up to whole KiB.
    pub space_hard: Option<u64>,
    /// Inodes that may be exceeded for the grace time only.
    pub inodes_soft: Option<u64>,
    /// Inodes that are never exceeded.
    pub inodes_hard: Option<u64>,
}

/// Changes of the grace times, in seconds; `None` leaves a time as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraceChange {
    /// How long the soft limit of space may be exceeded.
    pub space: Option<u32>,
    /// How long the soft limit of inodes may be exceeded.
    pub inodes: Option<u32>,
}

impl fmt::Debug for Quotas<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Quotas").field(&self.kinds()).finish()
    }
}

impl Volume {
    /// Returns the quotas of the volume.
    pub fn quotas(&self) -> Quotas<'_> {
        Quotas { ext4: self.ext4() }
    }
}

impl<'v> Quotas<'v> {
    /// Returns the kinds of quota that the volume keeps, in the order of [`Kind::ALL`].
    pub fn kinds(self) -> Vec<Kind> {
        let has = |kind: &Kind| self.ext4.superblock().quota_inode(*kind).is_some();
        Kind::ALL.into_iter().filter(has).collect()
    }

    /// Returns the usage and the limits of an owner. All are zero for one that has never owned
    /// anything, and for a kind that the volume does not keep.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn of(self, kind: Kind, id: u32) -> Result<Entry> {
        let none = Entry {
            id,
            ..Entry::default()
        };
        let entry = self.ext4.quota(kind, id).map_err(unread)?;
        Ok(entry.unwrap_or(none))
    }

    /// Returns the usage and the limits of all owners, by their numbers. The iterator ends after
    /// an error.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn all(self, kind: Kind) -> impl Iterator<Item = Result<Entry>> + 'v {
        let mut from = Some(0);
        std::iter::from_fn(move || match self.ext4.next_quota(kind, from.take()?) {
            Ok(entry) => {
                let entry = entry?;
                from = entry.id.checked_add(1);
                Some(Ok(entry))
            }
            Err(error) => Some(Err(unread(error))),
        })
    }

    /// Returns how long soft limits may be exceeded; `None` if the volume does not keep this kind.
    ///
    /// # Errors
    /// A corrupt quota file, or a device that fails.
    pub fn grace(self, kind: Kind) -> Result<Option<Grace>> {
        self.ext4.quota_grace(kind).map_err(unread)
    }

    /// Sets how long soft limits may be exceeded. An owner that exceeds one already keeps its time.
    /// Does nothing for a kind that the volume does not keep.
    ///
    /// # Errors
    /// `EROFS` for a volume that is open for reading, or a device that fails.
    pub fn set_grace(self, kind: Kind, change: GraceChange) -> Result<()> {
        let Some(grace) = self.grace(kind)? else {
            return Ok(());
        };
        let grace = Grace {
            space: change.space.unwrap_or(grace.space),
            inodes: change.inodes.unwrap_or(grace.inodes),
        };
        self.ext4.set_quota_grace(kind, grace).map_err(unchanged)
    }

    /// Sets limits of an owner.
    ///
    /// # Errors
    /// `EROFS` for a volume that is open for reading, `ENODEV` for a kind that it does not keep,
    /// `ERANGE` for a limit that the kernel would refuse, `ENOSPC`, a corrupt quota file, or a
    /// device that fails.
    pub fn set_limits(self, kind: Kind, id: u32, change: &LimitChange) -> Result<()> {
        let Entry { space, inodes, .. } = self.of(kind, id)?;
        let limits = Limits {
            space: (
                change.space_soft.unwrap_or(space.soft),
                change.space_hard.unwrap_or(space.hard),
            ),
            inodes: (
                change.inodes_soft.unwrap_or(inodes.soft),
                change.inodes_hard.unwrap_or(inodes.hard),
            ),
        };
        self.ext4.set_quota(kind, id, &limits).map_err(unchanged)
    }

    /// Sets the bytes and the inodes that an owner uses, where a check of the volume has counted
    /// others than the quotas; `None` leaves a number as it is.
    ///
    /// # Errors
    /// `EROFS` for a volume that is open for reading, `ENODEV` for a kind that it does not keep,
    /// `ENOSPC`, a corrupt quota file, or a device that fails.
    pub fn correct_usage(
        self,
        kind: Kind,
        id: u32,
        bytes: Option<u64>,
        inodes: Option<u64>,
    ) -> Result<()> {
        let entry = self.of(kind, id)?;
        let bytes = bytes.unwrap_or(entry.space.used);
        let inodes = inodes.unwrap_or(entry.inodes.used);
        self.ext4
            .correct_usage(kind, id, bytes, inodes)
            .map_err(unchanged)
    }
}

fn unread(error: extern4_ext4::Error) -> Error {
    Error::ext4("read the quotas of", error)
}

fn unchanged(error: extern4_ext4::Error) -> Error {
    Error::ext4("change the quotas of", error)
}
