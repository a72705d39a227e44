//! An open journal: its superblock, and a way to read its blocks.
//!
//! `ext4` opens it at the mount, in a file of the volume or on a separate device. Opening checks
//! the superblock, and that the map covers the whole ring; it writes nothing. `recovery` and `log`
//! read through it. Its few writing methods are durable when they return.

use extern4_block::{BlockDevice, BlockWriter};
use extern4_disk::journal::{ChecksumVersion, JournalSuperblock, Tid};
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{CorruptKind, Place, Structure};
use zerocopy::IntoBytes;

use crate::{Error, JournalMap};

/// A journal on a device.
///
/// Its superblock is validated, all features are understood, and every block of it is mapped.
#[derive(Debug)]
pub struct Journal<D> {
    device: D,
    map: JournalMap,
    superblock: JournalSuperblock,
    /// The block of the journal that holds its superblock.
    index: u32,
    /// Whether it has a separate device.
    external: bool,
}

impl<D: BlockDevice> Journal<D> {
    /// Opens the journal that is a file of the volume on `device`. `map` says where its blocks are.
    /// `block_size` is the volume's block size in bytes, and the journal's must be the same.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the superblock is bad or the map is shorter than it says;
    /// [`Error::Unsupported`] for unknown features.
    pub fn internal(device: D, block_size: u32, map: JournalMap) -> Result<Self, Error> {
        Self::open(device, block_size, map, 0, false)
    }

    /// Opens the journal that has `device` for itself. `uuid` is the journal's UUID in the
    /// superblock of the volume.
    ///
    /// # Errors
    /// As [`Journal::internal`]; [`Error::Foreign`] if the device is no external journal, or has
    /// another UUID.
    pub fn external(device: D, block_size: u32, uuid: &[u8; 16]) -> Result<Self, Error> {
        let place = Place::new(Structure::Superblock);
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let none = Error::Foreign("there is no external journal on it");
        if device.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Err(none);
        }
        device.read_at(&mut bytes, SUPERBLOCK_OFFSET)?;
        match Superblock::decode(&bytes, place) {
            Ok(superblock) if superblock.is_journal_device() => {}
            Err(error) if !matches!(error.kind, CorruptKind::Magic { .. }) => {
                return Err(error.into());
            }
            _ => return Err(none),
        }
        // The journal's superblock is in the first whole block behind that of the device.
        let index = if block_size == 1024 { 2 } else { 1 };
        let len_blocks =
            u32::try_from(device.size_bytes() / u64::from(block_size.max(1))).unwrap_or(u32::MAX);
        let journal = Self::open(
            device,
            block_size,
            JournalMap::identity(len_blocks),
            index,
            true,
        )?;
        if journal.superblock.uuid != *uuid {
            return Err(Error::Foreign("it is the journal of another volume"));
        }
        Ok(journal)
    }

    fn open(
        device: D,
        block_size: u32,
        map: JournalMap,
        index: u32,
        external: bool,
    ) -> Result<Self, Error> {
        let mismatch =
            |place: Place, what| Error::from(place.corrupt(CorruptKind::Mismatch { what }));
        let place = Place::new(Structure::JournalSuperblock);
        let Some(block) = map.lookup(index) else {
            return Err(mismatch(place, "the journal has no first block"));
        };
        let place = place.block(block);
        let offset = block.saturating_mul(u64::from(block_size));
        let mut bytes = [0; JournalSuperblock::SIZE];
        device.read_at(&mut bytes, offset)?;
        let superblock = JournalSuperblock::decode(&bytes, place)?;
        if let Some(names) = superblock.unknown_features() {
            return Err(Error::Unsupported(names));
        }
        if superblock.block_size != block_size {
            return Err(mismatch(
                place,
                "the journal has another block size than the volume",
            ));
        }
        if !map.covers(superblock.len_blocks) {
            return Err(mismatch(
                place,
                "the journal is shorter than its superblock says",
            ));
        }
        if superblock.first <= index {
            let value = superblock.first.into();
            return Err(place
                .corrupt(CorruptKind::Field {
                    field: "s_first",
                    value,
                })
                .into());
        }
        Ok(Self {
            device,
            map,
            superblock,
            index,
            external,
        })
    }

    /// Returns the journal's superblock.
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Returns whether the log holds anything to recover.
    pub fn is_dirty(&self) -> bool {
        self.superblock.start.is_some()
    }

    /// Returns the size of the journal's blocks in bytes, which is also the volume's.
    pub fn block_size(&self) -> usize {
        self.superblock.format().block_size
    }

    /// Splits the journal into its parts, for a writer. They are the device, the map, the
    /// superblock, the superblock's block, and whether the journal has the device for itself.
    pub(crate) fn into_parts(self) -> (D, JournalMap, JournalSuperblock, u32, bool) {
        (
            self.device,
            self.map,
            self.superblock,
            self.index,
            self.external,
        )
    }

    /// Records durably in the journal that the log is empty and that `next` is the next
    /// transaction.
    pub(crate) fn mark_empty(&mut self, next: Tid) -> Result<(), Error> {
        self.superblock.start = None;
        self.superblock.sequence = next;
        self.write_superblock()
    }

    /// Sets the version of the log's checksums; on volumes with checksums of metadata, Linux uses
    /// version 3. The superblock on the device says so from the first transaction on, or when the
    /// journal is closed. Does nothing while the log holds something, nor to a journal of the first
    /// version, which has no features.
    pub fn set_checksum(&mut self, checksum: ChecksumVersion) {
        if !self.is_dirty() {
            self.superblock.set_checksum(checksum);
        }
    }

    /// Clears the error in the journal's superblock, durably. The caller has recorded the error in
    /// the volume's own superblock.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn clear_error(&mut self) -> Result<(), Error> {
        self.superblock.errno = 0;
        self.write_superblock()
    }

    /// Replaces the old UUID of a volume by its new one in the journal's list of users, durably.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn rename_user(&mut self, old: &[u8; 16], new: &[u8; 16]) -> Result<(), Error> {
        self.superblock
            .users
            .iter_mut()
            .filter(|user| *user == old)
            .for_each(|user| *user = *new);
        self.write_superblock()
    }

    fn write_superblock(&mut self) -> Result<(), Error> {
        let block = self
            .map
            .lookup(self.index)
            .expect("the superblock was read from there");
        let offset = block.saturating_mul(u64::from(self.superblock.block_size));
        BlockWriter::write_bytes(&self.device, offset, self.superblock.encode().as_bytes())?;
        Ok(self.device.flush()?)
    }

    /// Reads block `index` of the journal into `block`, which has its size.
    pub(crate) fn read(&self, index: u32, block: &mut [u8]) -> Result<(), Error> {
        let Some(physical) = self.map.lookup(index) else {
            let what = "a block of the journal is not mapped";
            return Err(self
                .place(index)
                .corrupt(CorruptKind::Mismatch { what })
                .into());
        };
        let offset = physical.saturating_mul(u64::from(self.superblock.block_size));
        Ok(self.device.read_at(block, offset)?)
    }

    /// Returns the place of block `index` of the journal, for errors.
    pub(crate) fn place(&self, index: u32) -> Place {
        let place = Place::new(Structure::JournalBlock);
        self.map
            .lookup(index)
            .map_or(place, |block| place.block(block))
    }
}
