//! Rewrites all checksums of a volume so that they start with the seed of its current UUID.
//!
//! A volume that got another UUID keeps the seed of the old one in its superblock
//! (`metadata_csum_seed`). Readers that do not know that feature need checksums with the new seed.
//! They are written in place, past the journal, which is too small for changes of a whole volume.
//! The steps:
//!
//! 1. The superblock notes, durably, that checksums are being rewritten ([`is_rewriting`]). The
//!    note is a feature that no other program knows, so no other program mounts or repairs the
//!    volume: `e2fsck` would clear inodes with new checksums. The old seed stays in the superblock.
//! 2. Every structure gets its new checksum. Each is in one sector, so after a crash it is the old
//!    or the new one. A run after a crash starts over and skips new ones. A checksum that is
//!    neither ends the run with an error.
//! 3. When all that is durable, the superblock loses the seed and the note, in one write.
//! 4. The backups of descriptors and superblock follow.
//!
//! A crash between steps 1 and 3 leaves a volume that only another run can finish. The command
//! `tune --uuid --rewrite` calls [`rewrite_checksums`] on a volume that nothing else uses.

use std::sync::Arc;

use extern4_block::{BlockDevice, BlockWriter, OverlayDevice};
use extern4_disk::feature::{Compat, Features, Incompat};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::inode::{self, FileKind, Inode, InodeFlags};
use extern4_disk::orphan::OrphanBlock;
use extern4_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use extern4_disk::{CorruptKind, Place, Structure, bitmap, dirent, extent, htree, xattr};

use crate::error::{Error, Result, Unsupported};
use crate::fs::Ext4;
use crate::fs::options::OpenOptions;
use crate::map::walk::{DataRun, MapNode, MapVisitor};
use crate::volume::Volume;
use crate::volume::group::to_usize;

/// The note that checksums are being rewritten: a feature that no program knows, together with a
/// text in place of the name of the function that found the last error.
const REWRITING: Incompat = Incompat::from_bits_retain(1 << 31);
const NOTE: [u8; 32] = *b"extern4: checksums are rewritten";

/// Whether a rewrite of the volume's checksums was interrupted.
pub fn is_rewriting(raw: &RawSuperblock) -> bool {
    raw.features().incompat.contains(REWRITING) && raw.s_last_error_func == NOTE
}

/// The size of the overlay over the device, in which only the superblock differs.
const OVERLAY_BYTES: u32 = 4096;

/// Whether a rewrite was interrupted on the volume on `device`. False if there is no volume.
pub fn was_interrupted(device: &dyn BlockDevice) -> bool {
    read_superblock(device).is_ok_and(|sb| is_rewriting(sb.raw()))
}

fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, SUPERBLOCK_OFFSET)?;
    Ok(Superblock::decode(
        &bytes,
        Place::new(Structure::Superblock),
    )?)
}

/// Refuses, by name, a volume whose checksums this crate does not rewrite.
///
/// # Errors
/// [`Unsupported::Rewriting`].
pub fn check_rewritable(features: Features) -> Result<(), Unsupported> {
    // The hash of a large value starts with the seed, too. The MMP block may be written by another
    // host.
    for (feature, name) in [(Incompat::EA_INODE, "ea_inode"), (Incompat::MMP, "mmp")] {
        if features.incompat.contains(feature) {
            return Err(Unsupported::Rewriting(name));
        }
    }
    Ok(())
}

/// Rewrites the checksums of the volume on `device` for its UUID and removes `metadata_csum_seed`.
/// The volume must be sound and not in use. Without that feature, or without `metadata_csum`, only
/// the backups are written.
///
/// # Errors
/// [`Unsupported::Rewriting`]; a journal that is not empty; a checksum that is wrong; or a device
/// that fails. Another run can finish the work.
pub fn rewrite_checksums(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let old = read_superblock(device)?;
    let features = old.features();
    check_rewritable(features)?;
    let is_sound =
        old.state() & (State::ERROR | State::VALID) == State::VALID && old.error_count() == 0;
    if features.incompat.contains(Incompat::RECOVER) || !is_sound {
        return Err(Unsupported::Rewriting("a state that e2fsck has to mend").into());
    }
    let new = without_seed(&old)?;
    // Opened with the new superblock, to walk maps.
    let seen = OverlayDevice::new(Arc::clone(device), OVERLAY_BYTES)?;
    BlockWriter::write_bytes(&seen, SUPERBLOCK_OFFSET, &new.encode())?;
    let fs = Ext4::open(Arc::new(seen), &OpenOptions::default())?;
    if let Some(corrupt) = fs.cut_off() {
        return Err(corrupt.into());
    }
    let rewrite = Rewrite {
        device: &**device,
        volume: &fs.volume,
        old,
        new,
    };
    if features.metadata_csum() && features.incompat.contains(Incompat::CSUM_SEED) {
        rewrite.note()?;
        rewrite.groups()?;
        device.flush()?;
        rewrite.write_superblock(&rewrite.new)?;
    }
    rewrite.copies()
}

/// Returns the superblock as it is after the rewrite.
fn without_seed(old: &Superblock) -> Result<Superblock> {
    let mut new = old.clone();
    let raw = new.raw_mut();
    clear_seed(raw);
    if is_rewriting(old.raw()) {
        let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        raw.s_feature_incompat.set((incompat - REWRITING).bits());
        raw.s_last_error_func = [0; 32];
    }
    // Decoded again, to compute the seed.
    Ok(Superblock::decode(
        &new.encode(),
        Place::new(Structure::Superblock),
    )?)
}

fn clear_seed(raw: &mut RawSuperblock) {
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    raw.s_feature_incompat
        .set((incompat - Incompat::CSUM_SEED).bits());
    raw.s_checksum_seed.set(0);
}

struct Rewrite<'a> {
    device: &'a dyn BlockDevice,
    /// The volume as the new superblock describes it, to walk maps.
    volume: &'a Volume,
    /// The superblock before the rewrite, with the old seed.
    old: Superblock,
    /// The superblock after the rewrite.
    new: Superblock,
}

/// Changes the checksum of `bytes` from the old seed to the new one. Returns whether it changed;
/// `None` if it was neither. `store` computes and stores a checksum.
fn reseal(
    bytes: &mut [u8],
    (old, new): (&Superblock, &Superblock),
    store: impl Fn(&mut [u8], &Superblock),
) -> Option<bool> {
    let stored = |sb| {
        let mut copy = bytes.to_vec();
        store(&mut copy, sb);
        copy
    };
    let sealed = stored(new);
    if sealed == bytes {
        return Some(false);
    }
    let had_old = stored(old) == bytes;
    had_old.then(|| {
        bytes.copy_from_slice(&sealed);
        true
    })
}

fn wrong(place: Place) -> Error {
    let what = "a checksum is wrong; nothing behind it has been rewritten";
    place.corrupt(CorruptKind::Mismatch { what }).into()
}

impl Rewrite<'_> {
    fn both(&self) -> (&Superblock, &Superblock) {
        (&self.old, &self.new)
    }

    fn read(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(self.new.block_size())];
        // OK: the size of the volume in bytes fits 63 bits, and the device refuses a block beyond
        // it.
        self.device.read_at(
            &mut bytes,
            block.saturating_mul(self.new.block_size().into()),
        )?;
        Ok(bytes)
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Result<()> {
        let offset = block.saturating_mul(self.new.block_size().into());
        Ok(BlockWriter::write_bytes(self.device, offset, bytes)?)
    }

    /// Rewrites the checksum over all of `block`.
    fn block(
        &self,
        block: u64,
        place: Place,
        store: impl Fn(&mut [u8], &Superblock),
    ) -> Result<()> {
        let mut bytes = self.read(block)?;
        match reseal(&mut bytes, self.both(), store) {
            Some(true) => self.write(block, &bytes),
            Some(false) => Ok(()),
            None => Err(wrong(place.block(block))),
        }
    }

    fn write_superblock(&self, sb: &Superblock) -> Result<()> {
        BlockWriter::write_bytes(self.device, SUPERBLOCK_OFFSET, &sb.encode())?;
        Ok(self.device.flush()?)
    }

    /// Notes in the superblock that checksums are being rewritten.
    fn note(&self) -> Result<()> {
        let mut noted = self.old.clone();
        let raw = noted.raw_mut();
        raw.s_feature_incompat
            .set((self.old.features().incompat | REWRITING).bits());
        raw.s_last_error_func = NOTE;
        self.write_superblock(&noted)
    }

    /// Rewrites the checksums of every group, its inodes' before its descriptor's.
    fn groups(&self) -> Result<()> {
        let geometry = self.new.geometry();
        for index in 0..geometry.descriptor_blocks() {
            let Some(block) = geometry.descriptor_block(index) else {
                continue;
            };
            let mut bytes = self.read(block)?;
            let first = index * geometry.descriptors_per_block();
            let descriptors = bytes.chunks_exact_mut(usize::from(geometry.desc_size()));
            for (descriptor, group) in descriptors.zip(first..geometry.group_count()) {
                self.group(descriptor, group)?;
            }
            self.write(block, &bytes)?;
        }
        Ok(())
    }

    fn group(&self, bytes: &mut [u8], group: u32) -> Result<()> {
        let place = Place::new(Structure::GroupDescriptor).group(group);
        if let Ok(descriptor) = GroupDescriptor::decode(bytes, group, &self.new, place) {
            return self.inodes(group, &descriptor);
        }
        let mut descriptor = GroupDescriptor::decode(bytes, group, &self.old, place)?;
        self.inodes(group, &descriptor)?;
        let geometry = self.new.geometry();
        let unused = |flag| descriptor.flags().contains(flag);
        let blocks = (
            descriptor.block_bitmap(),
            geometry.clusters_per_group(),
            unused(GroupFlags::BLOCK_UNINIT),
        );
        let inodes = (
            descriptor.inode_bitmap(),
            geometry.inodes_per_group(),
            unused(GroupFlags::INODE_UNINIT),
        );
        self.bitmap(
            &mut descriptor,
            blocks,
            GroupDescriptor::set_block_bitmap_checksum,
        )
        .ok_or_else(|| {
            wrong(
                Place::new(Structure::BlockBitmap)
                    .group(group)
                    .block(blocks.0),
            )
        })?;
        self.bitmap(
            &mut descriptor,
            inodes,
            GroupDescriptor::set_inode_bitmap_checksum,
        )
        .ok_or_else(|| {
            wrong(
                Place::new(Structure::InodeBitmap)
                    .group(group)
                    .block(inodes.0),
            )
        })?;
        descriptor.encode(bytes, group, &self.new);
        Ok(())
    }

    /// Sets the checksum of a bitmap in the descriptor of its group. The bitmap is given by its
    /// block, its length, and whether it was never used.
    fn bitmap(
        &self,
        descriptor: &mut GroupDescriptor,
        (block, len, is_unused): (u64, u32, bool),
        set: fn(&mut GroupDescriptor, u32),
    ) -> Option<()> {
        let bytes = self.read(block).ok()?;
        let sum = |sb: &Superblock| bitmap::compute_checksum(&bytes, len, sb.checksum_seed());
        let before = *descriptor;
        set(descriptor, sum(&self.old)?);
        if *descriptor == before {
            set(descriptor, sum(&self.new)?);
            return Some(());
        }
        *descriptor = before;
        is_unused.then_some(())
    }

    /// Rewrites the checksums of those inodes of a group that were ever used.
    fn inodes(&self, group: u32, descriptor: &GroupDescriptor) -> Result<()> {
        let geometry = self.new.geometry();
        let used = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            0
        } else {
            geometry
                .inodes_per_group()
                .saturating_sub(descriptor.unused_inodes())
        };
        let per_block = geometry.block_size() / u32::from(geometry.inode_size());
        let first = group * geometry.inodes_per_group() + 1;
        for (at, block) in (0..used.div_ceil(per_block)).zip(descriptor.inode_table()..) {
            let mut bytes = self.read(block)?;
            let before = bytes.clone();
            let records = bytes.chunks_exact_mut(usize::from(geometry.inode_size()));
            for (record, ino) in records.zip(first + at * per_block..first + used) {
                self.inode(record, ino)?;
            }
            if bytes != before {
                self.write(block, &bytes)?;
            }
        }
        Ok(())
    }

    fn inode(&self, record: &mut [u8], ino: u32) -> Result<()> {
        if record.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let place = Place::new(Structure::Inode).ino(ino);
        let resealed = reseal(record, self.both(), |record, sb| {
            inode::store_checksum(record, ino, sb)
        });
        let inode = match resealed {
            Some(_) => Inode::decode(record, ino, &self.new, place)?,
            // The record of a free inode may hold anything.
            None if Inode::decode_fields(record, ino, &self.new, place)
                .is_ok_and(|it| it.links() == 0) =>
            {
                return Ok(());
            }
            None => return Err(wrong(place)),
        };
        if inode.links() > 0 || Some(ino) == self.new.orphan_file_inode() {
            self.contents(&inode)
        } else {
            Ok(())
        }
    }

    /// Rewrites the checksums of an inode's blocks: of its attributes, its map, and its names.
    fn contents(&self, inode: &Inode) -> Result<()> {
        let ino = inode.ino();
        let seed = |sb: &Superblock| inode.checksum_seed(sb.checksum_seed());
        if let Some(block) = inode.xattr_block() {
            let store = |bytes: &mut [u8], sb: &Superblock| {
                xattr::store_checksum(bytes, block, sb.checksum_seed())
            };
            self.block(block, Place::new(Structure::Xattr).ino(ino), store)?;
        }
        let extents = inode.flags().contains(InodeFlags::EXTENTS);
        let directory = inode.kind() == FileKind::Directory;
        let is_orphan_file = self.new.features().compat.contains(Compat::ORPHAN_FILE)
            && Some(ino) == self.new.orphan_file_inode();
        if inode.flags().contains(InodeFlags::INLINE_DATA) || !(extents || directory) {
            return Ok(());
        }
        let mut blocks = ChecksummedBlocks {
            nodes: Vec::new(),
            runs: Vec::new(),
            keeps_runs: directory || is_orphan_file,
        };
        self.volume.walk_map(inode, &mut blocks);
        for node in blocks.nodes.iter().filter(|_| extents) {
            let place = Place::new(Structure::ExtentNode).ino(ino);
            let store = |bytes: &mut [u8], sb: &Superblock| {
                let _ = extent::store_checksum(bytes, seed(sb), place);
            };
            self.block(*node, place, store)?;
        }
        for run in &blocks.runs {
            for (block, logical) in (run.physical..run.physical + run.len).zip(run.logical..) {
                if directory {
                    self.names(block, logical == 0, inode)?
                } else {
                    self.orphans(block, logical, inode)?
                }
            }
        }
        Ok(())
    }

    /// Rewrites the checksum of a directory block: names, or a node of a hash tree, which has it in
    /// another place.
    fn names(&self, block: u64, is_first: bool, inode: &Inode) -> Result<()> {
        let place = Place::new(Structure::DirectoryBlock).ino(inode.ino());
        let seed = |sb: &Superblock| inode.checksum_seed(sb.checksum_seed());
        let mut bytes = self.read(block)?;
        let mut done = reseal(&mut bytes, self.both(), |bytes, sb| {
            dirent::store_checksum(bytes, seed(sb))
        });
        if done.is_none() && inode.flags().contains(InodeFlags::INDEX) {
            done = reseal(&mut bytes, self.both(), |bytes, sb| {
                let _ = htree::store_checksum(bytes, is_first, seed(sb), place);
            });
        }
        match done {
            Some(true) => self.write(block, &bytes),
            Some(false) => Ok(()),
            None => Err(wrong(place.block(block))),
        }
    }

    /// Rewrites the checksum of a block of the orphan file.
    fn orphans(&self, block: u64, logical: u64, inode: &Inode) -> Result<()> {
        let place = Place::new(Structure::Orphan).ino(inode.ino()).block(block);
        if logical >= inode.size() >> self.new.geometry().block_bits() {
            return Ok(());
        }
        let bytes = self.read(block)?;
        let decode = |sb: &Superblock| {
            OrphanBlock::decode(
                &bytes,
                block,
                inode.checksum_seed(sb.checksum_seed()),
                sb,
                place,
            )
        };
        if decode(&self.new).is_ok() {
            return Ok(());
        }
        let seed = inode.checksum_seed(self.new.checksum_seed());
        self.write(block, &decode(&self.old)?.encode(block, seed, &self.new))
    }

    /// Writes the backups of descriptors and superblock.
    fn copies(&self) -> Result<()> {
        let geometry = self.new.geometry();
        for group in 1..geometry.group_count() {
            let own = group / geometry.descriptors_per_block();
            let all = 0..geometry.descriptor_blocks();
            for index in if geometry.has_superblock(group) {
                all
            } else {
                own..own + 1
            } {
                let first = geometry.descriptor_block(index);
                let copy = geometry
                    .descriptor_block_in(group, index)
                    .filter(|copy| Some(*copy) != first);
                if let (Some(first), Some(copy)) = (first, copy) {
                    self.write(copy, &self.read(first)?)?;
                }
            }
            if let Some(block) = geometry.superblock_in(group) {
                self.superblock_copy(block)?;
            }
        }
        Ok(self.device.flush()?)
    }

    fn superblock_copy(&self, block: u64) -> Result<()> {
        let mut bytes = self.read(block)?;
        let place = Place::new(Structure::Superblock).block(block);
        // A damaged backup is left for e2fsck.
        let Ok(mut copy) = Superblock::decode(&bytes, place) else {
            return Ok(());
        };
        clear_seed(copy.raw_mut());
        copy.raw_mut().s_uuid = self.new.uuid();
        bytes[..SUPERBLOCK_SIZE].copy_from_slice(&copy.encode());
        self.write(block, &bytes)
    }
}

/// The blocks of a file that may have checksums.
struct ChecksummedBlocks {
    nodes: Vec<u64>,
    runs: Vec<DataRun>,
    keeps_runs: bool,
}

impl MapVisitor for ChecksummedBlocks {
    fn node(&mut self, node: MapNode) -> bool {
        self.nodes.push(node.block);
        true
    }

    fn run(&mut self, run: DataRun) {
        if self.keeps_runs {
            self.runs.push(run);
        }
    }

    // The volume is sound, so the only faults are checksums with the old seed.
    fn fault(&mut self, _place: Place, _error: Error) {}
}
