//! Quota accounts in memory, and the amounts that running operations have reserved in them.
//!
//! [`Quotas`] has the accounts of each kind under one lock. A [`QuotaReservations`] belongs to a
//! handle; dropping it returns the amounts that were reserved and not counted. `quota` checks and
//! counts, the handle holds the reservations, and `fs::writer` stores changed accounts when a
//! transaction closes. Usage never becomes negative, and a reservation never exceeds the hard
//! limit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::PoisonError;

use extern4_block::Pin;
use extern4_disk::inode::{FileKind, Inode as Fields, InodeFlags, is_blank};
use extern4_disk::quota::{ENTRY_SIZE, Entry, Info, Kind, Resource};
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, Place, Structure};
use extern4_jbd2::Closing;
use extern4_sync::primitive::{Mutex, MutexGuard};
use extern4_vfs::{NewNode, SetAttr};

use crate::inode::info::InodeInfo;

/// The size of a sector, the unit of `i_blocks`, in bytes.
pub(crate) const SECTOR: u64 = 512;

/// The most blocks of entries that one operation changes: the entries of four inodes, as in a
/// rename.
pub(crate) const QUOTA_CREDITS: u32 = 4 * Kind::ALL.len() as u32;

/// The quota file of one kind.
pub(crate) struct QuotaFile {
    pub(crate) kind: Kind,
    pub(crate) header: Info,
    pub(crate) info: InodeInfo,
}

/// The position of an entry on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPosition {
    pub(crate) block: u64,
    pub(crate) offset: usize,
}

impl Quotas {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<KindQuota>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops counting for quotas of `kinds`, whose files are removed.
    pub(crate) fn forget(&self, kinds: &[Kind]) {
        self.lock()
            .retain(|quota| !kinds.contains(&quota.file.kind));
    }

    /// Stores the entries that a transaction has changed.
    pub(crate) fn store(&self, closing: &Closing<'_>) {
        for quota in &mut *self.lock() {
            for id in std::mem::take(&mut quota.dirty) {
                let Some(account) = quota.accounts.get_mut(&id) else {
                    continue;
                };
                let (Some(pin), Some(position)) = (account.dirty.take(), account.position) else {
                    continue;
                };
                let place = Place::new(Structure::Quota).block(position.block);
                closing.change(&mut pin.buffer(), |bytes| {
                    // OK: the entry has been found or added at this position.
                    let _ = account.entry.encode(
                        &mut bytes[position.offset..position.offset + ENTRY_SIZE],
                        place,
                    );
                });
            }
        }
    }
}

/// The owners of an inode: an id for each kind of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners(pub(crate) [u32; Kind::ALL.len()]);

impl Owners {
    /// The superuser, its group, and the project of files without another.
    pub(crate) const ROOT: Self = Self([0; Kind::ALL.len()]);

    pub(crate) fn of(inode: &Fields) -> Self {
        Self([inode.stored_uid(), inode.stored_gid(), inode.project()])
    }

    /// Returns the owners of a new inode in directory `parent`.
    pub(crate) fn of_new(parent: &InodeInfo, new: &NewNode<'_>) -> Self {
        let inherits = parent.fields().flags().contains(InodeFlags::PROJINHERIT);
        Self([
            new.uid,
            new.gid,
            if inherits {
                parent.fields().project()
            } else {
                0
            },
        ])
    }

    /// Returns the owners of an inode after its attributes have been set.
    pub(crate) fn after(self, set: &SetAttr) -> Self {
        let [uid, gid, project] = self.0;
        Self([
            set.uid.unwrap_or(uid),
            set.gid.unwrap_or(gid),
            set.project.unwrap_or(project),
        ])
    }

    pub(crate) fn id(self, kind: Kind) -> u32 {
        self.0[kind as usize]
    }
}

/// A change of usage; negative if it shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

impl Amount {
    pub(crate) fn of(fields: &Fields, inodes: i64) -> Self {
        // OK: a volume has fewer than 2^63 bytes.
        Self {
            bytes: (fields.sectors() * SECTOR).cast_signed(),
            inodes,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            inodes: self.inodes - other.inodes,
        }
    }

    /// Returns the smaller of this and `other` in each component, and 0 where this is negative.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.clamp(0, other.bytes),
            inodes: self.inodes.clamp(0, other.inodes),
        }
    }
}

/// The quotas of a volume that is open for writing.
pub(crate) struct Quotas(pub(crate) Mutex<Vec<KindQuota>>);

/// One kind of quota.
pub(crate) struct KindQuota {
    pub(crate) file: QuotaFile,
    pub(crate) accounts: HashMap<u32, Account>,
    /// The ids of accounts to be stored when the running transaction closes.
    pub(crate) dirty: Vec<u32>,
}

/// The usage and the limits of an id.
pub(crate) struct Account {
    pub(crate) entry: Entry,
    /// `None` if it has no entry in the file yet.
    pub(crate) position: Option<EntryPosition>,
    /// The sum that running operations have reserved.
    pub(crate) reserved: Amount,
    /// The block of the entry, which is part of the running transaction.
    pub(crate) dirty: Option<Pin>,
}

impl Account {
    pub(crate) fn admits(&self, more: Amount, now: u64) -> bool {
        admits(&self.entry.space, self.reserved.bytes, more.bytes, now)
            && admits(&self.entry.inodes, self.reserved.inodes, more.inodes, now)
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.entry.space.is_limited() || self.entry.inodes.is_limited()
    }

    pub(crate) fn reserve(&mut self, amount: Amount) {
        self.reserved.bytes += amount.bytes;
        self.reserved.inodes += amount.inodes;
    }
}

/// Whether the limits allow `more` in addition to the usage and to reserved amounts.
fn admits(resource: &Resource, reserved: i64, more: i64, now: u64) -> bool {
    if more <= 0 {
        return true;
    }
    let after = resource
        .used
        .saturating_add_signed(reserved)
        .saturating_add_signed(more);
    let is_late = resource.until != 0 && now >= resource.until;
    let hard = resource.hard;
    let soft = resource.soft;
    !(hard != 0 && after > hard || soft != 0 && after > soft && is_late)
}

/// Returns the lower limit in units, and how many units are left; `None` if there is no limit below
/// `most`.
pub(crate) fn room(resource: &Resource, unit: u64, most: u64) -> Option<(u64, u64)> {
    let limit = [resource.soft, resource.hard]
        .into_iter()
        .filter(|limit| *limit != 0)
        .min()?
        / unit;
    (limit > 0 && limit < most).then(|| (limit, limit.saturating_sub(resource.used / unit)))
}

/// Adds to the usage, and starts or ends the grace time.
pub(crate) fn count(resource: &mut Resource, by: i64, grace: u32, now: u64) {
    resource.used = resource.used.saturating_add_signed(by);
    if resource.soft == 0 || resource.used <= resource.soft {
        resource.until = 0;
    } else if resource.until == 0 && by >= 0 {
        resource.until = now + u64::from(grace);
    }
}

/// The amounts that are reserved for an operation. Dropping it returns the amounts that have not
/// been counted.
pub(crate) struct QuotaReservations<'q> {
    pub(crate) quotas: Option<&'q Quotas>,
    pub(crate) list: RefCell<Vec<QuotaReservation>>,
}

pub(crate) struct QuotaReservation {
    pub(crate) kind: Kind,
    pub(crate) id: u32,
    pub(crate) left: Amount,
}

impl<'q> QuotaReservations<'q> {
    pub(crate) fn none(quotas: Option<&'q Quotas>) -> Self {
        Self {
            quotas,
            list: RefCell::default(),
        }
    }

    /// Reduces the reserved amount by one that is counted now.
    pub(crate) fn consume(&self, kind: Kind, id: u32, account: &mut Account, mut counted: Amount) {
        for reservation in self
            .list
            .borrow_mut()
            .iter_mut()
            .filter(|it| it.kind == kind && it.id == id)
        {
            let kept = counted.within(reservation.left);
            reservation.left = reservation.left.minus(kept);
            counted = counted.minus(kept);
            account.reserve(Amount::default().minus(kept));
        }
    }
}

impl Drop for QuotaReservations<'_> {
    fn drop(&mut self) {
        let list = self.list.get_mut();
        let (Some(quotas), false) = (self.quotas, list.is_empty()) else {
            return;
        };
        let mut kinds = quotas.lock();
        for reservation in list {
            let quota = kinds
                .iter_mut()
                .find(|quota| quota.file.kind == reservation.kind);
            if let Some(account) = quota.and_then(|quota| quota.accounts.get_mut(&reservation.id)) {
                account.reserve(Amount::default().minus(reservation.left));
            }
        }
    }
}

/// The fields of an inode's record that determine its usage.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) owners: Owners,
    pub(crate) fields: Fields,
}

impl Counted {
    /// Returns these fields of the record of inode `ino`, whose checksum may be deferred; `None`
    /// for an empty record.
    pub(crate) fn in_record(
        record: &[u8],
        ino: u32,
        sb: &Superblock,
        has_checksum: bool,
    ) -> Result<Option<Self>, Corrupt> {
        if is_blank(record) {
            return Ok(None);
        }
        let decode = if has_checksum {
            Fields::decode
        } else {
            Fields::decode_fields
        };
        let fields = decode(record, ino, sb, Place::new(Structure::Inode).ino(ino))?;
        // A record that was cleared may have a checksum, so it is not blank.
        Ok((fields.kind() != FileKind::None).then(|| Self {
            owners: Owners::of(&fields),
            fields,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: u32 = 100;

    #[test]
    fn a_hard_limit_is_reached_and_not_exceeded() {
        let space = Resource {
            used: 90,
            hard: 100,
            soft: 0,
            until: 0,
        };
        assert!(admits(&space, 0, 10, 1) && !admits(&space, 0, 11, 1));
        // A reserved amount is as good as taken.
        assert!(admits(&space, 4, 6, 1) && !admits(&space, 4, 7, 1));
        // An account over its limit cannot grow. A change of zero is no growth.
        let over = Resource { used: 200, ..space };
        assert!(!admits(&over, 0, 1, 1) && admits(&over, 0, 0, 1));
        let none = Resource { hard: 0, ..over };
        assert!(admits(&none, i64::MAX, i64::MAX, 1));
    }

    #[test]
    fn a_soft_limit_is_exceeded_for_a_while() {
        let mut space = Resource {
            used: 90,
            hard: 200,
            soft: 100,
            until: 0,
        };
        count(&mut space, 10, GRACE, 1000);
        assert_eq!((space.used, space.until), (100, 0));
        count(&mut space, 1, GRACE, 1001);
        assert_eq!(space.until, 1101);
        // The grace period does not start again.
        count(&mut space, 1, GRACE, 1050);
        assert_eq!(space.until, 1101);
        assert!(admits(&space, 0, 1, 1100) && !admits(&space, 0, 1, 1101));
        assert!(!admits(&space, 0, 99, 1100));
        count(&mut space, -2, GRACE, 2000);
        assert_eq!((space.used, space.until), (100, 0));
        assert!(admits(&space, 0, 1, 2000));
    }
}
