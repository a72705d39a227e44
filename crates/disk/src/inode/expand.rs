//! Records whose fields grow: an inode from before the volume's present `i_extra_isize`.
//!
//! Such an inode has no room for nanoseconds, a project or a creation time. [`Inode::expand`] gives
//! it the fields that new inodes have, and [`Inode::make_room`] moves the attributes in its record
//! behind them. The new fields are zero.
//!
//! Source: `s_min_extra_isize` and `s_want_extra_isize` in the kernel's
//! `Documentation/filesystems/ext4/super.rst`, and the kernel's mount, against which it is tested:
//! it expands an inode with each change of it, with and without the feature `extra_isize`.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::{BASE_SIZE, Inode, RawInodeExtra};
use crate::corrupt::{Place, Structure};
use crate::feature::RoCompat;
use crate::superblock::Superblock;
use crate::xattr::{self, Attr, Attrs};

impl Inode {
    /// Returns the least `i_extra_isize` that the superblock asks for, and that of new inodes. They
    /// get all fields that this crate knows, and at least as many bytes as the superblock asks for,
    /// but no more than fit.
    pub(super) fn extra_isizes(sb: &Superblock) -> (u16, u16) {
        let room = usize::from(sb.inode_size()).saturating_sub(BASE_SIZE);
        let (least, wanted) = if sb.features().ro_compat.contains(RoCompat::EXTRA_ISIZE) {
            sb.extra_isize()
        } else {
            (0, 0)
        };
        let fitting = |size: usize| u16::try_from(size.min(room) & !3).unwrap_or(0);
        (
            fitting(least.into()),
            fitting(super::EXTRA_SIZE.max(least.max(wanted).into())),
        )
    }

    /// Whether new inodes have more fields.
    #[inline]
    pub fn lacks_fields(&self, sb: &Superblock) -> bool {
        self.extra_isize() < Self::extra_isizes(sb).1
    }

    /// Gives the inode the fields that new inodes have, or at least the fields that the superblock
    /// demands, if the attributes in its `record` leave room. They are zero. Otherwise nothing
    /// changes.
    ///
    /// The record stays as it is until [`make_room`](Self::make_room).
    pub fn expand(&mut self, record: &[u8], sb: &Superblock) {
        let Some(attributes) = self.size_of_attributes(record) else {
            return;
        };
        let fits = |expanded: &Self| attributes <= expanded.xattr_range().len();
        if let Some(expanded) = self.expanded(sb).find(fits) {
            *self = expanded;
        }
    }

    /// Returns the inode as it is with more fields, each way that [`expand`](Self::expand) tries,
    /// but without regard to the attributes in its record.
    ///
    /// Before it stores the inode, the caller writes attributes that fit to the record, after
    /// [`make_room`](Self::make_room).
    pub fn expanded(self, sb: &Superblock) -> impl Iterator<Item = Self> + use<> {
        let (least, wanted) = Self::extra_isizes(sb);
        let sizes = [wanted, least]
            .into_iter()
            .filter(move |size| *size > self.extra_isize());
        sizes.map(move |size| {
            let mut inode = self;
            inode.set_extra_isize(size);
            inode
        })
    }

    /// Sets `i_extra_isize` to a larger number, and the new fields to zero.
    fn set_extra_isize(&mut self, size: u16) {
        let old = usize::from(self.extra_isize());
        if let Some(new) = self.extra.as_mut_bytes().get_mut(old..) {
            new.fill(0);
        }
        self.extra.i_extra_isize.set(size);
    }

    /// Returns how many bytes the attributes in the record take; `None` if they are damaged.
    fn size_of_attributes(&self, record: &[u8]) -> Option<usize> {
        let attrs = Attrs::in_inode(self.xattr_area(record), self.place()).ok()?;
        Some(attrs.map_or(0, |attrs| {
            xattr::size_in_inode(&attrs.iter().collect::<Vec<_>>())
        }))
    }

    fn place(&self) -> Place {
        Place::new(Structure::Xattr).ino(self.ino)
    }

    /// Moves the attributes in `record` to where this inode has them, if it has been
    /// [expanded](Self::expand) since the record was stored. [`encode_fields`](Self::encode_fields)
    /// has to follow. Attributes that do not fit there are removed.
    #[inline]
    pub fn make_room(&self, record: &mut [u8]) {
        if stored_xattr_range(record) != self.xattr_range() {
            self.move_attributes(record);
        }
    }

    #[cold]
    fn move_attributes(&self, record: &mut [u8]) {
        let old = stored_xattr_range(record);
        let new = self.xattr_range();
        let mut area = vec![0; new.len()];
        if let Ok(Some(attrs)) = Attrs::in_inode(&record[old.clone()], self.place()) {
            let list: Vec<Attr<'_>> = attrs.iter().collect();
            // They fit, unless the caller is about to write others.
            let _ = xattr::encode_in_inode(&list, &mut area);
        }
        record[old.start.min(new.start)..].fill(0);
        record[new].copy_from_slice(&area);
    }
}

/// Returns where in the records of new inodes the range for extended attributes begins.
#[inline]
pub fn new_xattr_start(sb: &Superblock) -> usize {
    BASE_SIZE + usize::from(Inode::extra_isizes(sb).1)
}

/// Returns the range of `record` that its own `i_extra_isize` leaves for extended attributes. It is
/// that of [`Inode::xattr_range`], unless the inode has been [expanded](Inode::expand) since the
/// record was stored.
#[inline]
pub fn stored_xattr_range(record: &[u8]) -> Range<usize> {
    let end = record.len();
    let extra = record
        .get(BASE_SIZE..)
        .and_then(|rest| RawInodeExtra::ref_from_prefix(rest).ok());
    // Without extra fields the rest of the record was never initialized.
    match extra.map_or(0, |(extra, _)| extra.i_extra_isize.get()) {
        0 => end..end,
        size => (BASE_SIZE + usize::from(size)).min(end)..end,
    }
}
