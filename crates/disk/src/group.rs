//! Group descriptors: where a group's bitmaps and inode table are, and how much of it is free.
//!
//! `ext4`, `mkfs`, the builder and the checker read and write them.
//!
//! A descriptor has 32 bytes, or 64 and more on `64bit` volumes. There the second half holds the
//! high halves of the numbers of the first. Its checksum is a crc16 (`uninit_bg`) or half a crc32c
//! (`metadata_csum`).
//!
//! [`GroupDescriptor::decode`] checks the properties that reading needs: the checksum, and that the
//! bitmaps and the table are in the volume. Only allocators and checkers use the counts; they call
//! [`GroupDescriptor::check_counts`] first.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/group_descr.rst`.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{Crc32c, crc16, verify};
use crate::corrupt::{Corrupt, CorruptKind, Place};
use crate::feature::RoCompat;
use crate::superblock::geometry::Geometry;
use crate::superblock::{Superblock, check, join, join16};

/// The first 32 bytes of a descriptor: all there is without `64bit`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawGroupDescriptor {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
}

/// The next 32 bytes, on `64bit` volumes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(
    missing_docs,
    reason = "the fields are the kernel documentation's, by its names"
)]
pub struct RawGroupDescriptorHigh {
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const LOW: usize = size_of::<RawGroupDescriptor>();
const BOTH: usize = LOW + size_of::<RawGroupDescriptorHigh>();
const CHECKSUM_OFFSET: usize = core::mem::offset_of!(RawGroupDescriptor, bg_checksum);
const _: () = assert!(LOW == 32 && BOTH == 64 && CHECKSUM_OFFSET + 2 == LOW);

bitflags! {
    /// The parts of a group that are initialized (`bg_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap is not initialized: no inode of the group is in use.
        const INODE_UNINIT = 0x1;
        /// The block bitmap is not initialized: only fixed metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

/// A validated group descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDescriptor {
    low: RawGroupDescriptor,
    high: RawGroupDescriptorHigh,
    wide: bool,
}

impl GroupDescriptor {
    /// Validates the descriptor of `group`, the first [`Geometry::desc_size`] of `bytes`.
    ///
    /// # Errors
    /// [`CorruptKind::Checksum`] if the volume has descriptor checksums and this one is wrong.
    /// [`CorruptKind::BlockOutOfRange`] if a bitmap or the inode table is not in the volume
    /// (without `flex_bg`: not in the group). The same error if one overlaps the superblock or the
    /// table of descriptors.
    pub fn decode(bytes: &[u8], group: u32, sb: &Superblock, at: Place) -> Result<Self, Corrupt> {
        let descriptor = Self::decode_fields(bytes, group, sb, at);
        // A wrong checksum says more than a field that is wrong for the same reason.
        if let Some(bytes) = bytes.get(..usize::from(sb.geometry().desc_size()))
            && let Some(computed) = compute_checksum(bytes, group, sb)
        {
            let stored = bytes[CHECKSUM_OFFSET..]
                .first_chunk()
                .map_or(0, |stored| u16::from_le_bytes(*stored));
            verify(stored.into(), computed.into(), at.group(group).offset(0x1e))?;
        }
        descriptor
    }

    /// Validates a descriptor as [`decode`](Self::decode) does, but for its checksum.
    ///
    /// # Errors
    /// [`CorruptKind::BlockOutOfRange`], as for `decode`.
    pub fn decode_fields(
        bytes: &[u8],
        group: u32,
        sb: &Superblock,
        at: Place,
    ) -> Result<Self, Corrupt> {
        let at = at.group(group);
        let size = usize::from(sb.geometry().desc_size());
        let have = bytes.len() as u64;
        let truncated = at.corrupt(CorruptKind::Truncated {
            need: size as u64,
            have,
        });
        let bytes = bytes.get(..size).ok_or(truncated)?;
        let (low, rest) = RawGroupDescriptor::read_from_prefix(bytes).map_err(|_| truncated)?;
        let wide = size >= BOTH;
        let high = if wide {
            RawGroupDescriptorHigh::read_from_prefix(rest)
                .map_err(|_| truncated)?
                .0
        } else {
            RawGroupDescriptorHigh::new_zeroed()
        };
        let descriptor = Self { low, high, wide };
        descriptor.check_places(group, sb.geometry(), at)?;
        Ok(descriptor)
    }

    /// Returns the descriptor of a new group: with these places, nothing in use, nothing free, and
    /// no flags.
    pub fn new(block_bitmap: u64, inode_bitmap: u64, inode_table: u64, sb: &Superblock) -> Self {
        let wide = usize::from(sb.geometry().desc_size()) >= BOTH;
        let mut low = RawGroupDescriptor::new_zeroed();
        let mut high = RawGroupDescriptorHigh::new_zeroed();
        let places = [
            (
                block_bitmap,
                &mut low.bg_block_bitmap_lo,
                &mut high.bg_block_bitmap_hi,
            ),
            (
                inode_bitmap,
                &mut low.bg_inode_bitmap_lo,
                &mut high.bg_inode_bitmap_hi,
            ),
            (
                inode_table,
                &mut low.bg_inode_table_lo,
                &mut high.bg_inode_table_hi,
            ),
        ];
        for (block, low, high) in places {
            let [a, b, c, d, e, f, g, h] = block.to_le_bytes();
            low.set(u32::from_le_bytes([a, b, c, d]));
            high.set(u32::from_le_bytes([e, f, g, h]));
        }
        Self { low, high, wide }
    }

    /// Returns the blocks of the block bitmap, the inode bitmap and the inode table.
    pub fn places(&self) -> [u64; 3] {
        [self.block_bitmap(), self.inode_bitmap(), self.inode_table()]
    }

    fn check_places(&self, group: u32, geometry: &Geometry, at: Place) -> Result<(), Corrupt> {
        let table_blocks = geometry.inode_table_blocks();
        let places = [
            ("bg_block_bitmap", self.block_bitmap(), 1),
            ("bg_inode_bitmap", self.inode_bitmap(), 1),
            ("bg_inode_table", self.inode_table(), table_blocks),
        ];
        for (field, block, len) in places {
            geometry.check_range(field, block, len.into(), at)?;
            let last = block + u64::from(len) - 1;
            let at_home = [block, last]
                .iter()
                .all(|block| geometry.group_of_block(*block) == Some(group));
            if !geometry.flex_bg() && !at_home {
                return Err(at.corrupt(CorruptKind::BlockOutOfRange { field, block }));
            }
        }
        Ok(())
    }

    /// Checks the counts against the size of `group`.
    ///
    /// # Errors
    /// [`CorruptKind::Field`] for a count above the maximum of the group.
    pub fn check_counts(&self, group: u32, geometry: &Geometry, at: Place) -> Result<(), Corrupt> {
        let at = at.group(group);
        let clusters = geometry.group_clusters(group).unwrap_or(0);
        let inodes = geometry.inodes_per_group();
        check(
            self.free_clusters() <= clusters,
            "bg_free_blocks_count",
            self.free_clusters(),
            at,
        )?;
        check(
            self.free_inodes() <= inodes,
            "bg_free_inodes_count",
            self.free_inodes(),
            at,
        )?;
        check(
            self.used_dirs() <= inodes,
            "bg_used_dirs_count",
            self.used_dirs(),
            at,
        )?;
        check(
            self.unused_inodes() <= inodes,
            "bg_itable_unused",
            self.unused_inodes(),
            at,
        )
    }

    /// Writes the descriptor over the first [`Geometry::desc_size`] of `bytes`, and computes its
    /// checksum.
    ///
    /// In a descriptor of more than 64 bytes, the bytes after the first 64 stay unchanged. `bytes`
    /// must be long enough.
    pub fn encode(&self, bytes: &mut [u8], group: u32, sb: &Superblock) {
        let bytes = &mut bytes[..usize::from(sb.geometry().desc_size())];
        bytes[..LOW].copy_from_slice(self.low.as_bytes());
        if self.wide {
            bytes[LOW..BOTH].copy_from_slice(self.high.as_bytes());
        }
        Self::store_checksum(bytes, group, sb);
    }

    /// Stores the checksum of the descriptor of `group` in the first [`Geometry::desc_size`] of
    /// `bytes`. `sb` decides which checksum; on a volume without descriptor checksums nothing
    /// changes.
    pub fn store_checksum(bytes: &mut [u8], group: u32, sb: &Superblock) {
        let bytes = &mut bytes[..usize::from(sb.geometry().desc_size())];
        if let Some(checksum) = compute_checksum(bytes, group, sb) {
            bytes[CHECKSUM_OFFSET..LOW].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Returns the fields as stored; the fields of the second half are zeros in a descriptor of 32
    /// bytes.
    pub const fn raw(&self) -> (&RawGroupDescriptor, &RawGroupDescriptorHigh) {
        (&self.low, &self.high)
    }

    /// Sets the free clusters of the group.
    pub fn set_free_clusters(&mut self, clusters: u32) {
        let (low, high) = halves(clusters);
        self.low.bg_free_blocks_count_lo.set(low);
        self.high.bg_free_blocks_count_hi.set(high);
    }

    /// Sets the free inodes of the group.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        let (low, high) = halves(inodes);
        self.low.bg_free_inodes_count_lo.set(low);
        self.high.bg_free_inodes_count_hi.set(high);
    }

    /// Sets the inodes of the group that are directories.
    pub fn set_used_dirs(&mut self, dirs: u32) {
        let (low, high) = halves(dirs);
        self.low.bg_used_dirs_count_lo.set(low);
        self.high.bg_used_dirs_count_hi.set(high);
    }

    /// Sets the inodes at the end of the table that have never been used.
    pub fn set_unused_inodes(&mut self, inodes: u32) {
        let (low, high) = halves(inodes);
        self.low.bg_itable_unused_lo.set(low);
        self.high.bg_itable_unused_hi.set(high);
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: GroupFlags) {
        self.low.bg_flags.set(flags.bits());
    }

    /// Sets the checksum of the block bitmap, in as many bits as the descriptor has room for.
    pub fn set_block_bitmap_checksum(&mut self, checksum: u32) {
        let (low, high) = halves(checksum);
        self.low.bg_block_bitmap_csum_lo.set(low);
        self.high
            .bg_block_bitmap_csum_hi
            .set(if self.wide { high } else { 0 });
    }

    /// Sets the checksum of the inode bitmap, in as many bits as the descriptor has room for.
    pub fn set_inode_bitmap_checksum(&mut self, checksum: u32) {
        let (low, high) = halves(checksum);
        self.low.bg_inode_bitmap_csum_lo.set(low);
        self.high
            .bg_inode_bitmap_csum_hi
            .set(if self.wide { high } else { 0 });
    }

    /// Returns whether the descriptor has 64 bytes, and so 32 bits of the bitmaps' checksums.
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// Returns the block of the block bitmap.
    pub const fn block_bitmap(&self) -> u64 {
        join(
            self.low.bg_block_bitmap_lo.get(),
            self.high.bg_block_bitmap_hi.get(),
        )
    }

    /// Returns the block of the inode bitmap.
    pub const fn inode_bitmap(&self) -> u64 {
        join(
            self.low.bg_inode_bitmap_lo.get(),
            self.high.bg_inode_bitmap_hi.get(),
        )
    }

    /// Returns the first block of the inode table.
    pub const fn inode_table(&self) -> u64 {
        join(
            self.low.bg_inode_table_lo.get(),
            self.high.bg_inode_table_hi.get(),
        )
    }

    /// Returns the number of free clusters of the group, as the volume says.
    pub const fn free_clusters(&self) -> u32 {
        join16(
            self.low.bg_free_blocks_count_lo.get(),
            self.high.bg_free_blocks_count_hi.get(),
        )
    }

    /// Returns the number of free inodes of the group, as the volume says.
    pub const fn free_inodes(&self) -> u32 {
        join16(
            self.low.bg_free_inodes_count_lo.get(),
            self.high.bg_free_inodes_count_hi.get(),
        )
    }

    /// Returns the number of inodes of the group that are directories, as the volume says.
    pub const fn used_dirs(&self) -> u32 {
        join16(
            self.low.bg_used_dirs_count_lo.get(),
            self.high.bg_used_dirs_count_hi.get(),
        )
    }

    /// Returns the number of inodes at the end of the table that have never been used, as the
    /// volume says.
    pub const fn unused_inodes(&self) -> u32 {
        join16(
            self.low.bg_itable_unused_lo.get(),
            self.high.bg_itable_unused_hi.get(),
        )
    }

    /// Returns the flags.
    pub const fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(self.low.bg_flags.get())
    }

    /// Returns the block of the snapshots' exclude bitmap (never released); 0 for none.
    pub const fn exclude_bitmap(&self) -> u64 {
        join(
            self.low.bg_exclude_bitmap_lo.get(),
            self.high.bg_exclude_bitmap_hi.get(),
        )
    }

    /// Returns the stored checksum of the descriptor.
    pub const fn checksum(&self) -> u16 {
        self.low.bg_checksum.get()
    }

    /// Returns the stored checksum of the block bitmap: 32 bits if the descriptor [is
    /// wide](Self::is_wide), else 16.
    pub const fn block_bitmap_checksum(&self) -> u32 {
        join16(
            self.low.bg_block_bitmap_csum_lo.get(),
            self.high.bg_block_bitmap_csum_hi.get(),
        )
    }

    /// Returns the stored checksum of the inode bitmap: 32 bits if the descriptor is wide, else 16.
    pub const fn inode_bitmap_checksum(&self) -> u32 {
        join16(
            self.low.bg_inode_bitmap_csum_lo.get(),
            self.high.bg_inode_bitmap_csum_hi.get(),
        )
    }
}

fn halves(number: u32) -> (u16, u16) {
    let [a, b, c, d] = number.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}

/// Returns the checksum that the descriptor in `bytes` should have; `None` if the volume has none.
fn compute_checksum(bytes: &[u8], group: u32, sb: &Superblock) -> Option<u16> {
    let before = &bytes[..CHECKSUM_OFFSET];
    let after = &bytes[LOW..];
    if let Some(seed) = sb.metadata_seed() {
        let full = Crc32c::new(seed.group(group).get())
            .update(before)
            .zeros(2)
            .update(after)
            .finish();
        let [a, b, ..] = full.to_le_bytes();
        Some(u16::from_le_bytes([a, b]))
    } else if sb.features().ro_compat.contains(RoCompat::GDT_CSUM) {
        // The crc16 skips the checksum field where the crc32c takes it as zeros.
        let place = crc16(crc16(!0, &sb.uuid()), &group.to_le_bytes());
        Some(crc16(crc16(place, before), after))
    } else {
        None
    }
}
