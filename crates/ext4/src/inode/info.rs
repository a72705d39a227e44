//! [`InodeInfo`]: the fields of an inode as an operation copies, changes and stores them.
//!
//! `fs::inode` makes one from a checked record, and `inode::cached` keeps the current one. An
//! operation copies it, changes the copy, stores it through its handle and publishes it. A field
//! that contradicts the volume is an error that names the inode. Its methods answer questions about
//! one inode; `map`, `dir` and `xattr` add theirs.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::dirent::Layout;
use extern4_disk::feature::Incompat;
use extern4_disk::geometry::Position;
use extern4_disk::inode::{FileKind, Inode, InodeFlags, MAP_SIZE};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::error::{Error, Result};
use crate::inode::dir_hint::DirHint;
use crate::volume::Volume;

/// The fields of an inode, and the place of its record.
#[derive(Clone, Debug)]
pub(crate) struct InodeInfo {
    pub(crate) inode: Inode,
    pub(crate) record: Record,
    pub(crate) seed: Option<ChecksumSeed>,
    /// For a directory, where its names have changed last.
    pub(crate) dir_hint: DirHint,
    /// It is on the list of orphans ([`orphan`](crate::ops::orphan)).
    pub(crate) is_orphan: bool,
    /// The fields may differ from those in [`CachedInode`], from which this was copied.
    pub(crate) is_touched: bool,
}

/// The place of an inode's record: a position in the inode table, or the records of the journal's
/// fast commits.
///
/// The number of the block, shifted left by 16 bits, and the offset in the block. Block 0 is in no
/// inode table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record(u64);

impl Record {
    /// In the records of the journal's fast commits.
    pub(crate) const FAST_COMMIT: Self = Self(0);

    /// In the inode table.
    pub(crate) fn at(position: Position) -> Self {
        Self(position.block << 16 | u64::from(position.offset))
    }

    /// Returns the position in the inode table; `None` if it is in the records of fast commits.
    pub(crate) fn position(self) -> Option<Position> {
        // OK: the lower 16 bits.
        (self.0 != 0).then_some(Position {
            block: self.0 >> 16,
            offset: self.0 as u32 & 0xffff,
        })
    }
}

/// Returns the layout of the entries of directory `dir`.
pub(crate) fn dir_layout(volume: &Volume, dir: &InodeInfo) -> Layout {
    let sb = volume.superblock();
    Layout {
        block_size: sb.block_size(),
        inodes: sb.inodes_count(),
        filetype: sb.features().incompat.contains(Incompat::FILETYPE),
        checksum: sb.features().metadata_csum(),
        encrypted: dir.is_encrypted(),
        casefold: dir.is_casefolded(),
    }
}

impl InodeInfo {
    /// Returns the inode number.
    pub(crate) fn ino(&self) -> u32 {
        self.inode.ino()
    }

    /// Returns the fields.
    pub(crate) fn fields(&self) -> &Inode {
        &self.inode
    }

    /// Whether its blocks are metadata, as the blocks of a directory or a symbolic link are.
    pub(crate) fn holds_metadata(&self) -> bool {
        matches!(self.inode.kind(), FileKind::Directory | FileKind::Symlink)
    }

    /// Returns the fields, to be changed and then stored.
    pub(crate) fn fields_mut(&mut self) -> &mut Inode {
        self.is_touched = true;
        &mut self.inode
    }

    /// Whether it is on the list of orphans.
    #[inline]
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Notes whether it is on the list of orphans.
    pub(crate) fn set_orphan(&mut self, is_orphan: bool) {
        (self.is_orphan, self.is_touched) = (is_orphan, true);
    }

    /// Whether the fields have been changed since this was copied from the inode in use.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Returns a new inode, whose record is at `position`.
    pub(crate) fn new(inode: Inode, position: Position, volume: Option<ChecksumSeed>) -> Self {
        let seed = volume.map(|volume| inode.checksum_seed(volume));
        Self {
            inode,
            record: Record::at(position),
            seed,
            dir_hint: DirHint::default(),
            is_orphan: false,
            is_touched: true,
        }
    }

    /// Returns where its record is in the inode table; `None` if it is in the records of fast
    /// commits.
    pub(crate) fn position(&self) -> Option<Position> {
        self.record.position()
    }

    /// Adds to the count of the file's blocks; `blocks` may be negative. `EFBIG` if the format has
    /// no room for the sum.
    pub(crate) fn add_blocks(&mut self, blocks: i64, block_size: u32) -> Result<()> {
        let sectors = self
            .inode
            .sectors()
            .saturating_add_signed(blocks * i64::from(block_size / 512));
        if self.fields_mut().set_sectors(sectors) {
            Ok(())
        } else {
            Err(Errno::EFBIG.into())
        }
    }

    /// Returns the field `i_block`: the root of the map, or inline contents.
    pub(crate) fn i_block(&self) -> &[u8; MAP_SIZE] {
        self.inode.map()
    }

    /// Returns the seed for checksums of the inode's blocks; `None` if the volume has no checksums.
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

    /// Returns how many blocks a directory has. It has no holes, so a number beyond the volume's
    /// blocks is an error.
    pub(crate) fn len_blocks(&self, volume: &Volume) -> Result<u32> {
        let geometry = volume.superblock().geometry();
        let len = self.size() >> geometry.block_bits();
        match u32::try_from(len) {
            Ok(blocks) if len <= geometry.blocks_count() => Ok(blocks),
            _ => Err(self.corrupt_field("i_size", self.size())),
        }
    }

    /// Returns the error for an impossible value in `field` of the inode.
    pub(crate) fn corrupt_field(&self, field: &'static str, value: u64) -> Error {
        Place::new(Structure::Inode)
            .ino(self.ino())
            .corrupt(CorruptKind::Field { field, value })
            .into()
    }
}

/// Returns whether readers of contents, names and attributes can use either of the two: the fields
/// that they take from an inode are equal.
pub(crate) fn reads_as(one: &Inode, other: &Inode) -> bool {
    let read = |fields: &Inode| {
        (
            fields.flags(),
            fields.size(),
            fields.sectors(),
            fields.xattr_block(),
        )
    };
    read(one) == read(other) && one.map() == other.map()
}
