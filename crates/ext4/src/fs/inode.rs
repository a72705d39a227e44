//! Reads inodes: from the record in its group's table to the inode that the VFS gets.
//!
//! Records are read through the buffer cache, several blocks of a table at once, and their checksum
//! is verified each time one is decoded. [`Ext4::new_inode`], which `ops` calls for the VFS, hides
//! the volume's internal files: the journal, quota files, the orphan file, and inodes that hold
//! values of extended attributes. It returns `ESTALE` for them and for deleted inodes.
//! [`Ext4::load_inode`] reads any inode, for the file system itself.

use extern4_disk::feature::Incompat;
use extern4_disk::inode::{Inode, InodeFlags, is_blank, stored_xattr_range};
use extern4_disk::{Place, Structure, xattr};
use extern4_sync::slab::new_box;
use extern4_vfs::{Attr, FileFlags, FileType, NewInode, Rdev};

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fscrypt_name::shown_target_len;
use crate::inode::cached::CachedInode;
use crate::inode::dir_hint::DirHint;
use crate::inode::info::{InodeInfo, Record};
use crate::time::timespec;
use crate::volume::deferred_checksum;

impl Ext4 {
    /// Returns the fields of inode `ino`, even if it is reserved, deleted, or an internal file. It
    /// is for expert tools and the file system itself; the VFS calls `read_inode`, which hides
    /// these.
    ///
    /// # Errors
    /// A number beyond the volume's inodes, a record that was never used or is corrupt, or a device
    /// that fails.
    pub fn raw_inode(&self, ino: u32) -> Result<Inode> {
        self.load_inode(ino).map(|info| info.inode)
    }

    /// Reads and checks inode `ino`, even if it is reserved, deleted, or an internal file.
    pub(crate) fn load_inode(&self, ino: u32) -> Result<InodeInfo> {
        self.load_inode_and(ino, |_, _| ()).map(|(info, ())| info)
    }

    /// Reads and checks an inode as [`load_inode`](Self::load_inode) does, and calls `look` with
    /// its record.
    fn load_inode_and<R>(
        &self,
        ino: u32,
        look: impl FnOnce(&Inode, &[u8]) -> R,
    ) -> Result<(InodeInfo, R)> {
        let place = Place::new(Structure::Inode).ino(ino);
        let changed = self
            .fast_commits
            .changes(ino)
            .and_then(|changes| changes.record());
        let (inode, record, seen) = if let Some(record) = changed {
            let inode = Inode::decode(record, ino, self.superblock(), place)?;
            let seen = look(&inode, record);
            (inode, Record::FAST_COMMIT, seen)
        } else {
            let at = self.inode_position(ino)?;
            self.read_ahead_inodes(ino, at.block)?;
            let buffer = self.cache.read(at.block)?;
            let record = &buffer[self.record_range(at)];
            if is_blank(record) {
                return Err(Error::Stale {
                    ino: u64::from(ino),
                    why: "is not in use",
                });
            }
            let place = place.block(at.block).offset(at.offset);
            let index = deferred_checksum::index_of(at.offset, self.superblock());
            let sealed = !deferred_checksum::lacks_checksum(buffer.unsealed(), index);
            let decode = if sealed {
                Inode::decode
            } else {
                Inode::decode_fields
            };
            let inode = decode(record, ino, self.superblock(), place)?;
            let seen = look(&inode, record);
            (inode, Record::at(at), seen)
        };
        let seed = self
            .superblock()
            .metadata_seed()
            .map(|volume| inode.checksum_seed(volume));
        let info = InodeInfo {
            inode,
            record,
            seed,
            dir_hint: DirHint::default(),
            is_orphan: false,
            is_touched: true,
        };
        if info.is_inline()
            && !self
                .superblock()
                .features()
                .incompat
                .contains(Incompat::INLINE_DATA)
        {
            return Err(info.corrupt_field("i_flags", u64::from(inode.flags().bits())));
        }
        Ok((info, seen))
    }

    /// Gives an inode the fields that new inodes have, if they fit and the volume is written. The
    /// next change stores them.
    fn expand(&self, info: &mut InodeInfo) -> Result<()> {
        if let Some(at) = info.position()
            && info.inode.lacks_fields(self.superblock())
            && self.writer.get().is_some()
        {
            let expand = |record: &[u8]| info.inode.expand(record, self.superblock());
            self.cache
                .with_part(at.block, self.record_range(at), expand)?;
        }
        Ok(())
    }

    /// Returns a new inode of the VFS for number `ino`.
    pub(crate) fn new_inode(&self, ino: u64) -> Result<NewInode> {
        let stale = |why| Error::Stale { ino, why };
        let number = u32::try_from(ino).map_err(|_| stale("is not one of the volume's"))?;
        if self.superblock().is_hidden(number) {
            return Err(stale("is one of the volume's own"));
        }
        // Read before the record, since another thread may be storing them there now.
        let times = self.lazy_times.get().and_then(|lazy| lazy.get(number));
        let (mut info, has_attributes) = self.load_inode_and(number, |inode, record| {
            begins_with_magic(inode.xattr_area(record))
        })?;
        self.expand(&mut info)?;
        if let Some(times) = times {
            times.apply(info.fields_mut());
        }
        if info.inode.links() == 0 {
            return Err(stale("has been deleted"));
        }
        if info.inode.flags().contains(InodeFlags::EA_INODE) {
            return Err(stale("holds the value of an extended attribute"));
        }
        let attr = info.attr(self)?;
        let plain = info.inode.xattr_block().is_none() && !has_attributes;
        Ok(NewInode {
            attr,
            no_acl: plain,
            no_caps: plain,
            private: new_box(CachedInode::new(&info)),
        })
    }
}

impl InodeInfo {
    /// Returns the place that an error in the inode's own extended attributes names.
    pub(crate) fn xattr_area_place(&self) -> Place {
        let place = Place::new(Structure::Xattr).ino(self.ino());
        self.position().map_or(place, |at| place.block(at.block))
    }

    /// Calls `look` with the record's area for extended attributes, which may be empty. In a record
    /// whose fields will grow with its next change, the area is larger than afterwards.
    pub(crate) fn with_xattr_area<R>(
        &self,
        fs: &Ext4,
        look: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        match self.position() {
            Some(at) => {
                let buffer = fs.cache.read(at.block)?;
                look(stored_xattr_area(&buffer[fs.record_range(at)]))
            }
            None => {
                let record = fs
                    .fast_commits
                    .changes(self.ino())
                    .and_then(|changes| changes.record());
                look(self.inode.xattr_area(record.unwrap_or_default()))
            }
        }
    }

    /// Calls `look` with that area at less cost. `look` must not block, because the block may be
    /// locked.
    pub(crate) fn peek_xattr_area<R>(&self, fs: &Ext4, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match self.position() {
            Some(at) => Ok(fs
                .cache
                .with_part(at.block, fs.record_range(at), |record| {
                    look(stored_xattr_area(record))
                })?),
            None => self.with_xattr_area(fs, |area| Ok(look(area))),
        }
    }

    /// Whether there are extended attributes in the inode's record.
    pub(crate) fn has_attributes_in_record(&self, fs: &Ext4) -> Result<bool> {
        self.peek_xattr_area(fs, begins_with_magic)
    }

    pub(crate) fn attr(&self, fs: &Ext4) -> Result<Attr> {
        let inode = &self.inode;
        let kind = FileType::from_mode(inode.mode())
            .ok_or_else(|| self.corrupt_field("i_mode", u64::from(inode.mode())))?;
        let rdev = inode.device().map_or(Rdev::default(), |it| Rdev {
            major: it.major,
            minor: it.minor,
        });
        // The data of an inline file takes no blocks, but a file with data and no blocks looks like
        // a hole to `tar`.
        let inline = if self.is_inline() && kind == FileType::Regular {
            inode.size().div_ceil(512)
        } else {
            0
        };
        Ok(Attr {
            ino: u64::from(inode.ino()),
            generation: inode.generation(),
            kind,
            mode: inode.permissions(),
            uid: inode.uid(),
            gid: inode.gid(),
            nlink: u32::from(inode.links()),
            rdev,
            size: shown_size(self, kind),
            blocks: inode.sectors() + inline,
            blksize: fs.superblock().block_size(),
            atime: timespec(inode.atime()),
            mtime: timespec(inode.mtime()),
            ctime: timespec(inode.ctime()),
            btime: inode.crtime().map(timespec),
            flags: shown_flags(inode.flags(), kind),
            project: inode.project(),
        })
    }
}

/// Returns whether the area of a record for extended attributes has any.
fn begins_with_magic(area: &[u8]) -> bool {
    area.starts_with(&xattr::MAGIC.to_le_bytes())
}

/// Returns the area of a record for extended attributes.
fn stored_xattr_area(record: &[u8]) -> &[u8] {
    &record[stored_xattr_range(record)]
}

/// Returns the size that callers see: for an encrypted link, the length of the target that they
/// see.
fn shown_size(info: &InodeInfo, kind: FileType) -> u64 {
    if info.is_encrypted() && kind == FileType::Symlink {
        shown_target_len(info.inode.size())
    } else {
        info.inode.size()
    }
}

/// The flags that callers see. The others say how the inode is stored, or are unused. Source: each
/// flag was set, and read from a mounted volume.
pub(crate) const SHOWN_FLAGS: u32 = 0x725b_dfff;

pub(crate) fn shown_flags(flags: InodeFlags, kind: FileType) -> FileFlags {
    let shown = FileFlags::from_bits_retain(flags.bits() & SHOWN_FLAGS);
    match kind {
        FileType::Directory => shown,
        _ => shown - FileFlags::PROJINHERIT,
    }
}
