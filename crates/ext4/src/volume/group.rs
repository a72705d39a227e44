//! Group descriptors, read on demand.
//!
//! The descriptors of a volume fill consecutive blocks (or one block in each meta group). A block
//! of them is read and decoded as a whole when one of its groups is first needed, and read-ahead
//! fetches the following blocks in the same device read. So the cost of opening a volume does not
//! grow with its groups. A corrupt descriptor is an error only for callers that need that group.
//!
//! [`Volume::group`] returns a descriptor as it was at open. Of a volume open for writing, the
//! current ones are in `alloc::block_allocator`. Readers of inodes take
//! [`Volume::readable_group`], which makes the best of a damaged descriptor, as Linux does when it
//! mounts read-only.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use extern4_disk::group::GroupDescriptor;
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::error::Result;
use crate::volume::Volume;

/// The most blocks of descriptors that one device read fetches.
const READ_AHEAD: u32 = 64;

/// The descriptors of a block.
struct Decoded {
    descriptors: Box<[Result<GroupDescriptor, Box<Damaged>>]>,
    /// The user has been warned of the first that was damaged and needed.
    is_told: AtomicBool,
}

/// A damaged descriptor.
struct Damaged {
    corrupt: Corrupt,
    /// The best that can be made of it, once it has been needed.
    readable: OnceLock<Option<GroupDescriptor>>,
}

/// How many copies of a damaged descriptor are looked at.
const COPIES: usize = 8;

/// How many blocks of descriptors an entry of the outer table covers.
const CHUNK: u32 = 512;

/// Slots for [`CHUNK`] blocks of descriptors.
type Chunk = Box<[OnceLock<Decoded>]>;

/// The descriptors of all groups that have been needed so far.
pub(crate) struct Groups {
    /// A table of tables, so that a damaged superblock with a huge number of groups does not make
    /// the open allocate memory for them.
    chunks: Box<[OnceLock<Chunk>]>,
    /// The group whose copy of the descriptors is read: 0, or that of the backup superblock in use.
    copy_in: u32,
    /// Groups that are refused, although their descriptors can be decoded; set once the volume is
    /// changed.
    refused: OnceLock<BTreeMap<u32, Corrupt>>,
}

impl Groups {
    /// Returns an empty table. Descriptors will be read from the copy in group `copy_in`.
    pub(crate) fn new(superblock: &Superblock, copy_in: u32) -> Self {
        let chunks = superblock.geometry().descriptor_blocks().div_ceil(CHUNK);
        Self {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            copy_in,
            refused: OnceLock::new(),
        }
    }

    /// Returns the slot for the decoded block `index` of the descriptors.
    fn slot(&self, index: u32) -> Option<&OnceLock<Decoded>> {
        let chunk = self.chunks.get(to_usize(index / CHUNK))?;
        chunk
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect())
            .get(to_usize(index % CHUNK))
    }
}

impl Volume {
    /// Returns the descriptor of `group`.
    ///
    /// # Errors
    /// A group that the volume does not have, a descriptor that is corrupt, or a device that fails.
    pub fn group(&self, group: u32) -> Result<&GroupDescriptor> {
        if let Some(corrupt) = self
            .groups
            .refused
            .get()
            .and_then(|refused| refused.get(&group))
        {
            return Err((*corrupt).into());
        }
        let per_block = self.superblock().geometry().descriptors_per_block();
        let decoded = self.decoded(group / per_block)?;
        match decoded.descriptors.get(to_usize(group % per_block)) {
            Some(Ok(descriptor)) => Ok(descriptor),
            Some(Err(damaged)) => Err(damaged.corrupt.into()),
            None => Err(no_such_group(group)),
        }
    }

    /// Refuses these groups from now on, with the fault of each.
    pub(crate) fn refuse_groups(&self, faults: BTreeMap<u32, Corrupt>) {
        let _ = self.groups.refused.set(faults);
    }

    /// Returns the descriptor of `group` for reading. Of a damaged one, it returns the fields as
    /// they stand if a sound copy has the same places, or if there is no sound copy and the
    /// checksum alone is wrong. Otherwise it returns the copy. The first damaged descriptor of a
    /// block is a warning.
    ///
    /// # Errors
    /// The error of [`group`](Self::group), if there is no sound copy either.
    pub fn readable_group(&self, group: u32) -> Result<&GroupDescriptor> {
        // A volume that is changed trusts whole descriptors only.
        if self.groups.refused.get().is_some() {
            return self.group(group);
        }
        let per_block = self.superblock().geometry().descriptors_per_block();
        let decoded = self.decoded(group / per_block)?;
        let damaged = match decoded.descriptors.get(to_usize(group % per_block)) {
            Some(Ok(descriptor)) => return Ok(descriptor),
            Some(Err(damaged)) => damaged,
            None => return Err(no_such_group(group)),
        };
        let readable = damaged.readable.get_or_init(|| {
            let (descriptor, how) = self.make_readable(group)?;
            // Relaxed: the flag guards nothing.
            if !decoded.is_told.swap(true, Relaxed) {
                self.warnings.report(format!("{}; {how}", damaged.corrupt));
            }
            Some(descriptor)
        });
        readable.as_ref().ok_or_else(|| damaged.corrupt.into())
    }

    /// Makes the best of the damaged descriptor of `group`, and says how.
    fn make_readable(&self, group: u32) -> Option<(GroupDescriptor, String)> {
        let geometry = self.superblock().geometry();
        let index = group / geometry.descriptors_per_block();
        let at = group % geometry.descriptors_per_block();
        let size = usize::from(geometry.desc_size());
        let place = Place::new(Structure::GroupDescriptor);
        let stored = |block: u64| -> Option<Box<[u8]>> {
            let buffer = self.cache.read(block).ok()?;
            buffer
                .get(to_usize(at) * size..)?
                .get(..size)
                .map(Box::from)
        };
        let own = self.descriptor_block(index)?;
        let fields = stored(own).and_then(|bytes| {
            GroupDescriptor::decode_fields(&bytes, group, self.superblock(), place).ok()
        });
        let copies = (0..geometry.group_count())
            .filter_map(|holder| Some((holder, geometry.descriptor_block_in(holder, index)?)))
            .filter(|(_, block)| *block != own)
            .take(COPIES);
        let copy = copies.into_iter().find_map(|(holder, block)| {
            let copy =
                GroupDescriptor::decode(&stored(block)?, group, self.superblock(), place).ok()?;
            Some((holder, block, copy))
        });
        match (fields, copy) {
            (Some(fields), Some((.., copy))) if fields.places() == copy.places() => Some((
                fields,
                "it is read as it stands, since a copy has the same places".to_owned(),
            )),
            (_, Some((holder, block, copy))) => {
                let by = geometry.superblock_in(holder).map_or_else(String::new, |superblock| {
                    format!("; --superblock {superblock} reads all descriptors by their copies there")
                });
                Some((
                    copy,
                    format!("its copy in block {block} is read instead{by}"),
                ))
            }
            (Some(fields), None) => Some((
                fields,
                "it is read as it stands, for there is no sound copy".to_owned(),
            )),
            (None, None) => None,
        }
    }

    /// Returns the block that holds block `index` of the descriptors.
    fn descriptor_block(&self, index: u32) -> Option<u64> {
        let geometry = self.superblock().geometry();
        let primary = geometry.descriptor_block(index);
        if self.groups.copy_in == 0 {
            return primary;
        }
        // Without meta groups, a copy of the table follows each copy of the superblock. With them,
        // each meta group has copies of its block. The copy in its second group may be intact
        // where the first is damaged.
        let second = index
            .checked_mul(geometry.descriptors_per_block())
            .map(|first| first + 1);
        geometry
            .descriptor_block_in(self.groups.copy_in, index)
            .or_else(|| geometry.descriptor_block_in(second?, index))
            .or(primary)
    }

    fn decoded(&self, index: u32) -> Result<&Decoded> {
        let first = index.saturating_mul(self.superblock().geometry().descriptors_per_block());
        let slot = self
            .groups
            .slot(index)
            .ok_or_else(|| no_such_group(first))?;
        if let Some(decoded) = slot.get() {
            return Ok(decoded);
        }
        let block = self
            .descriptor_block(index)
            .ok_or_else(|| no_such_group(first))?;
        self.read_ahead_descriptors(index, block);
        let buffer = self.cache.read(block)?;
        let place = Place::new(Structure::GroupDescriptor).block(block);
        let geometry = self.superblock().geometry();
        let descriptors = buffer
            .chunks_exact(usize::from(geometry.desc_size()))
            .zip(first..geometry.group_count())
            .map(|(bytes, group)| {
                GroupDescriptor::decode(bytes, group, self.superblock(), place).map_err(|corrupt| {
                    Box::new(Damaged {
                        corrupt,
                        readable: OnceLock::new(),
                    })
                })
            })
            .collect();
        Ok(slot.get_or_init(|| Decoded {
            descriptors,
            is_told: AtomicBool::new(false),
        }))
    }

    /// Reads ahead the blocks of descriptors that follow block `index` of them on the device.
    fn read_ahead_descriptors(&self, index: u32, block: u64) {
        let last = index
            .saturating_add(READ_AHEAD)
            .min(self.superblock().geometry().descriptor_blocks());
        let follows = |&at: &u32| self.descriptor_block(at) == Some(block + u64::from(at - index));
        let len = (index..last).take_while(follows).count();
        if len > 1 {
            self.cache.read_ahead(block..block + len as u64);
        }
    }
}

fn no_such_group(group: u32) -> crate::Error {
    let kind = CorruptKind::Field {
        field: "group",
        value: u64::from(group),
    };
    Place::new(Structure::GroupDescriptor)
        .group(group)
        .corrupt(kind)
        .into()
}

/// Converts a `u32` to an index. All supported machines have at least 32-bit addresses.
pub(crate) const fn to_usize(number: u32) -> usize {
    number as usize
}
