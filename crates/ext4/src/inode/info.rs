//! The fields of an inode, as an operation works with them.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::geometry::Position;
use extern4_disk::inode::{FileKind, Inode, InodeFlags, MAP_SIZE};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::dir::hint::DirHint;
use crate::error::{Error, Result};
use crate::volume::Volume;

/// An inode as this crate keeps it: its fields, and where its record is.
#[derive(Clone, Debug)]
pub(crate) struct InodeInfo {
    pub(super) inode: Inode,
    pub(super) record: Record,
    pub(super) seed: Option<ChecksumSeed>,
    /// For a directory, the place where its names have changed.
    pub(crate) dir_hint: DirHint,
    /// It is on the list of orphans ([`orphan`](crate::alloc::orphan)).
    pub(super) is_orphan: bool,
    /// The fields may be others than the inode's in use ([`CachedInode`]), from which this was
    /// copied.
    pub(super) is_touched: bool,
}

/// Where the bytes of an inode's record are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record {
    /// In the inode table.
    Table(Position),
    /// In the records of the journal's fast commits.
    FastCommit,
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

    /// Its blocks go through the journal: those of a directory, or of a symbolic link.
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

    /// Notes that it is, or that it is no more.
    pub(crate) fn set_orphan(&mut self, is_orphan: bool) {
        (self.is_orphan, self.is_touched) = (is_orphan, true);
    }

    /// Whether a reader of contents, names or attributes finds the same in `other` as here,
    /// whatever else has changed.
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

    /// Notes that the inode in use now has these fields.
    pub(crate) fn set_untouched(&mut self) {
        self.is_touched = false;
    }

    /// Returns a new inode, whose record is at `position`.
    pub(crate) fn new(inode: Inode, position: Position, volume: Option<ChecksumSeed>) -> Self {
        let seed = volume.map(|volume| inode.checksum_seed(volume));
        Self {
            inode,
            record: Record::Table(position),
            seed,
            dir_hint: DirHint::default(),
            is_orphan: false,
            is_touched: true,
        }
    }

    /// Returns where its record is in the inode table; `None` if it is in the records of fast
    /// commits.
    pub(crate) fn position(&self) -> Option<Position> {
        match &self.record {
            Record::Table(at) => Some(*at),
            Record::FastCommit => None,
        }
    }

    /// Counts blocks that the file has been given, or that have been taken from it. `EFBIG` if the
    /// volume's format has no room for the sum.
    pub(crate) fn add_blocks(&mut self, blocks: i64, block_size: u32) -> Result<()> {
        let sectors = self.inode.sectors().saturating_add_signed(blocks * i64::from(block_size / 512));
        if self.fields_mut().set_sectors(sectors) { Ok(()) } else { Err(Errno::EFBIG.into()) }
    }

    /// Returns the bytes that hold the map, or what stands in its place.
    pub(crate) fn i_block(&self) -> &[u8; MAP_SIZE] {
        self.inode.map()
    }

    /// Returns the seed of the checksums of what belongs to the inode; `None` if the volume has
    /// none.
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

    /// Returns how many blocks the contents of a directory take. A directory has no holes, so they
    /// are no more than the volume has.
    pub(crate) fn len_blocks(&self, volume: &Volume) -> Result<u32> {
        let geometry = volume.superblock().geometry();
        let len = self.size() >> geometry.block_bits();
        match u32::try_from(len) {
            Ok(blocks) if len <= geometry.blocks_count() => Ok(blocks),
            _ => Err(self.corrupt_field("i_size", self.size())),
        }
    }

    /// Returns the error that `field` of the inode holds an impossible value.
    pub(crate) fn corrupt_field(&self, field: &'static str, value: u64) -> Error {
        Place::new(Structure::Inode).ino(self.ino()).corrupt(CorruptKind::Field { field, value }).into()
    }
}
