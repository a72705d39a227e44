//! Inodes: from the record in its group's table to what the VFS is handed.
//!
//! Records are read through the buffer cache, several blocks of a table at once, and their checksum is verified each
//! time one is decoded. Users see the root directory and everything from the first ordinary inode on, but none of the
//! volume's own files: journal, quota files, orphan file, and the inodes that hold the values of extended attributes.

pub(crate) mod inline;
pub(crate) mod inode_info;
pub(crate) mod lazy_times;

use std::ops::Range;

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::feature::Incompat;
use extern4_disk::geometry::Position;
use extern4_disk::group::GroupFlags;
use extern4_disk::inode::{FileKind, Inode, InodeFlags, MAP_SIZE, ROOT_INO, is_blank};
use extern4_disk::time::Timestamp;
use extern4_disk::xattr;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_sync::slab::new_box;
use extern4_vfs::{Attr, Errno, FileFlags, FileType, NewInode, Rdev, Timespec};

use crate::dir::hint::Near;
use crate::error::{Error, Result};
use crate::file::symlink;
use crate::inode::inode_info::Node;
use crate::mount::Ext4;
use crate::volume::deferred_checksum;
use crate::volume::group::to_usize;

/// How many blocks of an inode table one device read fetches: with 4 KiB blocks as much as the kernel does.
const READ_AHEAD: u64 = 32;

/// An inode as this crate keeps it: its fields, and where its record is.
#[derive(Clone, Debug)]
pub(crate) struct InodeInfo {
    inode: Inode,
    record: Record,
    seed: Option<ChecksumSeed>,
    /// Of a directory, where its names have changed.
    pub(crate) near: Near,
    /// It is on the list of orphans ([`orphan`](crate::alloc::orphan)).
    is_orphan: bool,
    /// The fields may be others than the inode's in use ([`Node`]), from which this was copied.
    is_touched: bool,
}

/// Where the bytes of an inode's record are.
#[derive(Clone, Copy, Debug)]
enum Record {
    /// In the inode table.
    Table(Position),
    /// In what the fast commits of the journal say.
    FastCommit,
}

impl InodeInfo {
    /// The inode number.
    pub(crate) fn ino(&self) -> u32 {
        self.inode.ino()
    }

    /// The fields.
    pub(crate) fn fields(&self) -> &Inode {
        &self.inode
    }

    /// Its blocks go through the journal: those of a directory, or of a symbolic link.
    pub(crate) fn holds_metadata(&self) -> bool {
        matches!(self.inode.kind(), FileKind::Directory | FileKind::Symlink)
    }

    /// The fields, to be changed and then stored.
    pub(crate) fn fields_mut(&mut self) -> &mut Inode {
        self.is_touched = true;
        &mut self.inode
    }

    /// Whether it is on the list of orphans.
    #[inline]
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Notes that it is, or that it is no more.
    pub(crate) fn set_orphan(&mut self, is_orphan: bool) {
        (self.is_orphan, self.is_touched) = (is_orphan, true);
    }

    /// Whether who only reads contents, names or attributes finds in `other` what he finds here: whatever else has changed.
    pub(crate) fn reads_as(&self, other: &Self) -> bool {
        let read = |info: &Self| {
            let fields = &info.inode;
            (fields.flags(), fields.size(), fields.sectors(), fields.xattr_block())
        };
        read(self) == read(other) && self.i_block() == other.i_block()
    }

    /// Whether the fields have been changed since this was copied from the inode in use.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Notes that the inode in use is as this is.
    pub(crate) fn set_untouched(&mut self) {
        self.is_touched = false;
    }

    /// A new inode, whose record is at `position`.
    pub(crate) fn new(inode: Inode, position: Position, volume: Option<ChecksumSeed>) -> Self {
        let seed = volume.map(|volume| inode.checksum_seed(volume));
        Self {
            inode,
            record: Record::Table(position),
            seed,
            near: Near::default(),
            is_orphan: false,
            is_touched: true,
        }
    }

    /// Where its record is in the inode table; `None` if it is in what fast commits say.
    pub(crate) fn position(&self) -> Option<Position> {
        match &self.record {
            Record::Table(at) => Some(*at),
            Record::FastCommit => None,
        }
    }

    /// Counts blocks that the file has been given, or that have been taken from it. `EFBIG` if the volume cannot say so many.
    pub(crate) fn add_blocks(&mut self, blocks: i64, block_size: u32) -> Result<()> {
        let sectors = self.inode.sectors().saturating_add_signed(blocks * i64::from(block_size / 512));
        if self.fields_mut().set_sectors(sectors) { Ok(()) } else { Err(Errno::EFBIG.into()) }
    }

    /// The bytes that hold the map, or what stands in its place.
    pub(crate) fn i_block(&self) -> &[u8; MAP_SIZE] {
        self.inode.map()
    }

    /// The seed of the checksums of what belongs to the inode; `None` if the volume has none.
    pub(crate) fn seed(&self) -> Option<ChecksumSeed> {
        self.seed
    }

    pub(crate) fn size(&self) -> u64 {
        self.inode.size()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.inode.kind() == FileKind::Directory
    }

    pub(crate) fn has_extents(&self) -> bool {
        self.inode.flags().contains(InodeFlags::EXTENTS)
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.inode.flags().contains(InodeFlags::INLINE_DATA)
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.inode.flags().contains(InodeFlags::INDEX)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.inode.flags().contains(InodeFlags::ENCRYPT)
    }

    pub(crate) fn is_casefolded(&self) -> bool {
        self.inode.flags().contains(InodeFlags::CASEFOLD)
    }

    /// How many blocks the contents of a directory take: as it has no holes, no more than the volume has.
    pub(crate) fn len_blocks(&self, fs: &Ext4) -> Result<u32> {
        let geometry = fs.superblock().geometry();
        let len = self.size() >> geometry.block_bits();
        match u32::try_from(len) {
            Ok(blocks) if len <= geometry.blocks_count() => Ok(blocks),
            _ => Err(self.corrupt_field("i_size", self.size())),
        }
    }

    /// The error that `field` of the inode holds a value that cannot be.
    pub(crate) fn corrupt_field(&self, field: &'static str, value: u64) -> Error {
        Place::new(Structure::Inode).ino(self.ino()).corrupt(CorruptKind::Field { field, value }).into()
    }
}

impl Ext4 {
    /// The fields of inode `ino`, whatever it is: reserved, deleted, or one of the volume's own. For experts and for
    /// the file system itself; the VFS goes through `read_inode`, which hides these.
    ///
    /// # Errors
    /// A number beyond the volume's inodes, a record that was never used or is corrupt, or a device that fails.
    pub fn raw_inode(&self, ino: u32) -> Result<Inode> {
        self.load_inode(ino).map(|info| info.inode)
    }

    /// Where the record of inode `ino` is on the volume.
    ///
    /// # Errors
    /// A number beyond the volume's inodes, or a corrupt group descriptor.
    pub fn inode_position(&self, ino: u32) -> Result<Position> {
        let geometry = self.superblock().geometry();
        let beyond = Error::Stale { ino: u64::from(ino), why: "is not one of the volume's" };
        let slot = geometry.inode_slot(ino).ok_or(beyond.clone())?;
        geometry.inode_position(self.group(slot.group)?.inode_table(), slot.index).ok_or(beyond)
    }

    /// Reads and checks inode `ino`, whatever it is.
    pub(crate) fn load_inode(&self, ino: u32) -> Result<InodeInfo> {
        let place = Place::new(Structure::Inode).ino(ino);
        let changed = self.fast_commits.changes(ino).and_then(|changes| changes.record());
        let (inode, record) = if let Some(record) = changed {
            (Inode::decode(record, ino, self.superblock(), place)?, Record::FastCommit)
        } else {
            let at = self.inode_position(ino)?;
            self.read_ahead_inodes(ino, at.block)?;
            let buffer = self.cache.read(at.block)?;
            let record = &buffer[self.record_range(at)];
            if is_blank(record) {
                return Err(Error::Stale { ino: u64::from(ino), why: "is not in use" });
            }
            let place = place.block(at.block).offset(at.offset);
            let index = deferred_checksum::index_of(at.offset, self.superblock());
            let sealed = !deferred_checksum::lacks_checksum(buffer.unsealed(), index);
            let decode = if sealed { Inode::decode } else { Inode::decode_fields };
            (decode(record, ino, self.superblock(), place)?, Record::Table(at))
        };
        let seed = self.superblock().metadata_seed().map(|volume| inode.checksum_seed(volume));
        let info =
            InodeInfo { inode, record, seed, near: Near::default(), is_orphan: false, is_touched: true };
        if info.is_inline() && !self.superblock().features().incompat.contains(Incompat::INLINE_DATA) {
            return Err(info.corrupt_field("i_flags", u64::from(inode.flags().bits())));
        }
        Ok(info)
    }

    /// The bytes of the record of inode `ino` in the inode table, unchecked.
    pub(crate) fn record_bytes(&self, ino: u32) -> Result<Box<[u8]>> {
        let at = self.inode_position(ino)?;
        let buffer = self.cache.read(at.block)?;
        Ok(buffer[self.record_range(at)].into())
    }

    /// Hands the part of the inode's record that is for extended attributes to `look`; it may be empty.
    pub(crate) fn with_xattr_area<R>(
        &self,
        info: &InodeInfo,
        look: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        match &info.record {
            Record::Table(at) => {
                let buffer = self.cache.read(at.block)?;
                look(info.inode.xattr_area(&buffer[self.record_range(*at)]))
            }
            Record::FastCommit => {
                let record = self.fast_commits.changes(info.ino()).and_then(|changes| changes.record());
                look(info.inode.xattr_area(record.unwrap_or_default()))
            }
        }
    }

    /// The same, cheaper, for a `look` that waits for nothing: it may have the block locked.
    pub(crate) fn peek_xattr_area<R>(&self, info: &InodeInfo, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match &info.record {
            Record::Table(at) => Ok(self
                .cache
                .with_part(at.block, self.record_range(*at), |record| look(info.inode.xattr_area(record)))?),
            Record::FastCommit => self.with_xattr_area(info, |area| Ok(look(area))),
        }
    }

    /// Whether there are extended attributes in the inode's record.
    pub(crate) fn has_attributes_in_record(&self, info: &InodeInfo) -> Result<bool> {
        self.peek_xattr_area(info, |area| area.starts_with(&xattr::MAGIC.to_le_bytes()))
    }

    /// Where an error in the inode's own extended attributes stands.
    pub(crate) fn xattr_area_place(info: &InodeInfo) -> Place {
        let place = Place::new(Structure::Xattr).ino(info.ino());
        match &info.record {
            Record::Table(at) => place.block(at.block),
            Record::FastCommit => place,
        }
    }

    /// The bytes of its block that are the record at `at`.
    pub(crate) fn record_range(&self, at: Position) -> Range<usize> {
        let start = to_usize(at.offset);
        // OK: sizes of records are powers of two up to a block's, so a record that starts in a block ends in it.
        start..start + usize::from(self.superblock().inode_size())
    }

    /// Fetches the neighbours of `block` in the inode table, which are likely to be asked for next, but not the part
    /// of the table that has never been used.
    fn read_ahead_inodes(&self, ino: u32, block: u64) -> Result<()> {
        let geometry = self.superblock().geometry();
        let group = (ino - 1) / geometry.inodes_per_group();
        let descriptor = self.group(group)?;
        if !self.read_ahead_windows.first_visit(block / READ_AHEAD) {
            return Ok(());
        }
        let unused = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            geometry.inodes_per_group()
        } else {
            descriptor.unused_inodes().min(geometry.inodes_per_group())
        };
        let used_bytes = u64::from(geometry.inodes_per_group() - unused) * u64::from(geometry.inode_size());
        let table = descriptor.inode_table();
        let end = table + used_bytes.div_ceil(u64::from(geometry.block_size()));
        let start = block - block % READ_AHEAD;
        let range = start.max(table)..(start + READ_AHEAD).min(end);
        if range.contains(&block) && range.end - range.start > 1 {
            self.cache.read_ahead(range);
        }
        Ok(())
    }

    /// What the VFS is handed for inode `ino`.
    pub(crate) fn new_inode(&self, ino: u64) -> Result<NewInode> {
        let stale = |why| Error::Stale { ino, why };
        let number = u32::try_from(ino).map_err(|_| stale("is not one of the volume's"))?;
        if self.is_hidden(number) {
            return Err(stale("is one of the volume's own"));
        }
        // Before the record is read, for they may be stored there at this moment.
        let times = self.lazy_times.get().and_then(|lazy| lazy.get(number));
        let mut info = self.load_inode(number)?;
        if let Some(times) = times {
            times.apply(info.fields_mut());
        }
        if info.inode.links() == 0 {
            return Err(stale("has been deleted"));
        }
        if info.inode.flags().contains(InodeFlags::EA_INODE) {
            return Err(stale("holds the value of an extended attribute"));
        }
        let attr = self.attr(&info)?;
        let plain = info.inode.xattr_block().is_none() && !self.has_attributes_in_record(&info)?;
        Ok(NewInode { attr, no_acl: plain, no_caps: plain, private: new_box(Node::new(info)) })
    }

    /// Whether `ino` is reserved or one of the volume's own files.
    pub(crate) fn is_hidden(&self, ino: u32) -> bool {
        let sb = self.superblock();
        let own = [
            sb.journal_inode(),
            sb.orphan_file_inode(),
            sb.user_quota_inode(),
            sb.group_quota_inode(),
            sb.project_quota_inode(),
        ];
        ino != ROOT_INO && (ino < sb.first_ino() || own.contains(&Some(ino)))
    }

    pub(crate) fn attr(&self, info: &InodeInfo) -> Result<Attr> {
        let inode = &info.inode;
        let kind = FileType::from_mode(inode.mode())
            .ok_or_else(|| info.corrupt_field("i_mode", u64::from(inode.mode())))?;
        let rdev = inode.device().map_or(Rdev::default(), |it| Rdev { major: it.major, minor: it.minor });
        // The data of an inline file takes no blocks, but a file with data and no blocks looks like a hole to `tar`.
        let inline =
            if info.is_inline() && kind == FileType::Regular { inode.size().div_ceil(512) } else { 0 };
        Ok(Attr {
            ino: u64::from(inode.ino()),
            generation: inode.generation(),
            kind,
            mode: inode.permissions(),
            uid: inode.uid(),
            gid: inode.gid(),
            nlink: u32::from(inode.links()),
            rdev,
            size: shown_size(info, kind),
            blocks: inode.sectors() + inline,
            blksize: self.superblock().block_size(),
            atime: timespec(inode.atime()),
            mtime: timespec(inode.mtime()),
            ctime: timespec(inode.ctime()),
            btime: inode.crtime().map(timespec),
            flags: shown_flags(inode.flags(), kind),
            project: inode.project(),
        })
    }
}

/// The size that callers see: that of an encrypted link is the length of the target they see.
fn shown_size(info: &InodeInfo, kind: FileType) -> u64 {
    match info.is_encrypted() && kind == FileType::Symlink {
        true => symlink::shown_len(info.inode.size()),
        false => info.inode.size(),
    }
}

/// The flags that callers see. The others say how the inode is stored, or are left over from features that never were;
/// which are which is seen by setting each and asking a mounted volume for them.
pub(crate) const SHOWN_FLAGS: u32 = 0x725b_dfff;

pub(crate) fn shown_flags(flags: InodeFlags, kind: FileType) -> FileFlags {
    let shown = FileFlags::from_bits_retain(flags.bits() & SHOWN_FLAGS);
    match kind {
        FileType::Directory => shown,
        _ => shown - FileFlags::PROJINHERIT,
    }
}

pub(crate) fn timespec(time: Timestamp) -> Timespec {
    Timespec { sec: time.seconds, nsec: time.nanos }
}
