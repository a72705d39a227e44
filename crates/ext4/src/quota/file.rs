//! Quota files: finds the entry of an id, and adds one.
//!
//! A quota file is a tree of blocks with entries in its leaves (format v2r1). It is read and
//! changed through the buffer cache, as metadata. It only grows, and entries stay in place, also
//! the accounts of ids that own nothing any more. So an account can keep the position of its entry.
//!
//! `quota` calls [`QuotaFile::find`] under the lock of the accounts, and [`put_entry`] in a handle
//! that has reserved [`QuotaFile::blocks_to_put`]. A reference outside of the file, or a tree that
//! leads to no entry, is damage.

use std::collections::HashSet;

use extern4_block::Buffer;
use extern4_disk::inode::FileKind;
use extern4_disk::quota::{self, BLOCK_SIZE, DEPTH, Entry, Info, Kind, ROOT, leaf};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::quota_accounts::{EntryPosition, QuotaFile};
use crate::handle::Handle;
use crate::inode::info::InodeInfo;
use crate::map::change::{ALLOCATE_CREDITS, allocate_for};
use crate::volume::group::to_usize;

/// The most blocks of the file that one more entry needs: blocks of the tree below the root, and a
/// leaf.
const MAX_BLOCKS: u32 = DEPTH;
/// Blocks of metadata that adding an entry changes: [`MAX_BLOCKS`] with their map, the blocks that
/// lead to them, the header, the next leaf with room, and the inode.
pub(crate) const PUT_CREDITS: u32 = MAX_BLOCKS * (ALLOCATE_CREDITS + 1) + DEPTH + 3;

/// A block of the tree.
#[derive(Clone, Copy)]
struct Branch {
    number: u32,
    level: u32,
    /// The lowest id to which the tree leads from here.
    first_id: u32,
}

/// A block of the file, inside a block of the volume.
struct FileBlock {
    buffer: Buffer,
    offset: usize,
}

impl FileBlock {
    fn bytes(&self) -> &[u8] {
        // OK: the block size of the volume is a multiple of this.
        &self.buffer[self.offset..self.offset + BLOCK_SIZE]
    }
}

impl QuotaFile {
    /// Opens the file of a kind; `None` if the volume has no such quota.
    pub(crate) fn open(fs: &Ext4, kind: Kind) -> Result<Option<Self>> {
        let sb = fs.superblock();
        let part = match kind {
            Kind::User => "the quota file of users",
            Kind::Group => "the quota file of groups",
            Kind::Project => "the quota file of projects",
        };
        sb.quota_inode(kind)
            .map(|ino| Self::load(fs, kind, ino).map_err(|error| error.in_part(part)))
            .transpose()
    }

    fn load(fs: &Ext4, kind: Kind, ino: u32) -> Result<Self> {
        let info = fs.load_inode(ino)?;
        if info.fields().kind() != FileKind::Regular || info.is_inline() {
            return Err(mismatch(ino, "a quota file is no regular file"));
        }
        let head = file_block(fs, &info, 0)?;
        let header = Info::decode(head.bytes(), kind, place(&info))?;
        Ok(Self { kind, header, info })
    }

    /// Returns the entry of an id and its position; `None` if it has none.
    pub(crate) fn find(&self, fs: &Ext4, id: u32) -> Result<Option<(EntryPosition, Entry)>> {
        let mut number = ROOT;
        for level in 0..DEPTH {
            let block = file_block(fs, &self.info, number)?;
            match quota::reference(block.bytes(), level, id, &self.header, self.place())? {
                Some(next) => number = next,
                None => return Ok(None),
            }
        }
        self.in_leaf(fs, number, id).map(Some)
    }

    /// Returns the entry with the lowest id from `from` on, and where it stands; `None` if there is
    /// none.
    pub(crate) fn next(&self, fs: &Ext4, from: u32) -> Result<Option<(EntryPosition, Entry)>> {
        self.next_below(
            fs,
            Branch {
                number: ROOT,
                level: 0,
                first_id: 0,
            },
            from,
            &mut HashSet::new(),
        )
    }

    fn next_below(
        &self,
        fs: &Ext4,
        branch: Branch,
        from: u32,
        seen: &mut HashSet<u32>,
    ) -> Result<Option<(EntryPosition, Entry)>> {
        let Branch {
            number,
            level,
            first_id,
        } = branch;
        if !seen.insert(number) {
            let what = "the tree of a quota file";
            return Err(self.place().corrupt(CorruptKind::Loop { what }).into());
        }
        let block = file_block(fs, &self.info, number)?;
        let shift = u8::BITS * (DEPTH - 1 - level);
        let from = from.max(first_id);
        for byte in from >> shift & u32::from(u8::MAX)..=u8::MAX.into() {
            let id = first_id | byte << shift;
            let next = quota::reference(block.bytes(), level, id, &self.header, self.place())?;
            let Some(number) = next else { continue };
            let found = if level + 1 == DEPTH {
                Some(self.in_leaf(fs, number, id)?)
            } else {
                self.next_below(
                    fs,
                    Branch {
                        number,
                        level: level + 1,
                        first_id: id,
                    },
                    from,
                    seen,
                )?
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the entry of an id in a leaf to which the tree leads for it.
    fn in_leaf(&self, fs: &Ext4, number: u32, id: u32) -> Result<(EntryPosition, Entry)> {
        let block = file_block(fs, &self.info, number)?;
        let Some(offset) = leaf::find(block.bytes(), id, self.place())? else {
            return Err(mismatch(
                self.info.ino(),
                "the tree of a quota file leads to no entry",
            ));
        };
        let entry = Entry::decode(block.bytes(), offset, self.place())?;
        Ok((
            EntryPosition {
                block: block.buffer.number(),
                offset: block.offset + offset,
            },
            entry,
        ))
    }

    /// Returns the most blocks that [`put_entry`] allocates.
    pub(crate) fn blocks_to_put(&self, fs: &Ext4) -> Result<u32> {
        let next = u64::from(self.header.blocks) * BLOCK_SIZE as u64
            / u64::from(fs.superblock().block_size());
        // OK: fewer than 2^32 blocks of the file.
        Ok(MAX_BLOCKS + self.info.map_blocks_needed(fs, next as u32, MAX_BLOCKS)?)
    }

    fn place(&self) -> Place {
        place(&self.info)
    }
}

/// Adds an entry to a quota file that has none of that id.
pub(crate) fn put_entry(
    handle: &Handle<'_>,
    file: &mut QuotaFile,
    entry: &Entry,
) -> Result<EntryPosition> {
    let at = file.place();
    let mut number = ROOT;
    for level in 0..DEPTH {
        let mut block = file_block(handle.fs, &file.info, number)?;
        let next = quota::reference(block.bytes(), level, entry.id, &file.header, at)?;
        number = match next {
            Some(next) => next,
            None => {
                let next = if level + 1 == DEPTH {
                    leaf_with_room(handle, file)?
                } else {
                    new_block(handle, file)?
                };
                edit_file_block(handle, &mut block, |bytes| {
                    quota::set_reference(bytes, level, entry.id, next, at)
                })?;
                next
            }
        };
    }
    let mut block = file_block(handle.fs, &file.info, number)?;
    let put = edit_file_block(handle, &mut block, |bytes| {
        leaf::put(bytes, entry, &file.header, at)
    })?;
    if let Some(next) = put.full {
        file.header.free_leaf = next;
        if next != 0 {
            let mut next = file_block(handle.fs, &file.info, next)?;
            edit_file_block(handle, &mut next, |bytes| leaf::become_first(bytes, at))?;
        }
    }
    store_header(handle, file)?;
    handle.store(&file.info)?;
    Ok(EntryPosition {
        block: block.buffer.number(),
        offset: block.offset + put.offset,
    })
}

/// Stores the header of a quota file.
pub(crate) fn store_header(handle: &Handle<'_>, file: &QuotaFile) -> Result<()> {
    let mut head = file_block(handle.fs, &file.info, 0)?;
    edit_file_block(handle, &mut head, |bytes| {
        file.header.encode(file.kind, bytes, file.place())
    })
}

/// Returns a leaf that has room.
fn leaf_with_room(handle: &Handle<'_>, file: &mut QuotaFile) -> Result<u32> {
    if file.header.free_leaf == 0 {
        file.header.free_leaf = new_block(handle, file)?;
    }
    Ok(file.header.free_leaf)
}

/// Returns an unused block of the file, filled with zeroes: a free one, or a new one at the end.
fn new_block(handle: &Handle<'_>, file: &mut QuotaFile) -> Result<u32> {
    let at = file.place();
    if file.header.free_block != 0 {
        let number = file.header.free_block;
        let mut block = file_block(handle.fs, &file.info, number)?;
        file.header.free_block = quota::next_free(block.bytes(), &file.header, at)?.unwrap_or(0);
        clear_file_block(handle, &mut block);
        return Ok(number);
    }
    let number = file.header.blocks;
    let start = u64::from(number) * BLOCK_SIZE as u64;
    let run = file.info.run_at(handle.fs, start)?;
    if run.mapped().is_some() {
        clear_file_block(handle, &mut file_block(handle.fs, &file.info, number)?);
    } else {
        let run = allocate_for(handle, &mut file.info, run.logical, 1, false)?;
        let block = run.mapped().ok_or_else(|| hole(file.info.ino()))?.start;
        handle.fresh(block)?;
    }
    file.header.blocks = number.checked_add(1).ok_or_else(|| hole(file.info.ino()))?;
    let size = file.info.size().max(start + BLOCK_SIZE as u64);
    file.info.fields_mut().set_size(size);
    Ok(number)
}

fn clear_file_block(handle: &Handle<'_>, block: &mut FileBlock) {
    let within = block.offset..block.offset + BLOCK_SIZE;
    handle.edit(&mut block.buffer, |bytes| bytes[within].fill(0));
}

fn edit_file_block<R>(
    handle: &Handle<'_>,
    block: &mut FileBlock,
    edit: impl FnOnce(&mut [u8]) -> Result<R, Corrupt>,
) -> Result<R> {
    let within = block.offset..block.offset + BLOCK_SIZE;
    Ok(handle.edit(&mut block.buffer, |bytes| edit(&mut bytes[within]))?)
}

/// Returns block `number` of a quota file.
fn file_block(fs: &Ext4, file: &InodeInfo, number: u32) -> Result<FileBlock> {
    let start = u64::from(number) * BLOCK_SIZE as u64;
    let block = file
        .run_at(fs, start)?
        .mapped()
        .ok_or_else(|| hole(file.ino()))?
        .start;
    // OK: less than a block of the volume.
    let offset = to_usize((start % u64::from(fs.superblock().block_size())) as u32);
    Ok(FileBlock {
        buffer: fs.cache.read(block)?,
        offset,
    })
}

fn place(file: &InodeInfo) -> Place {
    Place::new(Structure::Quota).ino(file.ino())
}

fn hole(ino: u32) -> crate::Error {
    mismatch(ino, "a quota file has a hole")
}

fn mismatch(ino: u32, what: &'static str) -> crate::Error {
    Place::new(Structure::Quota)
        .ino(ino)
        .corrupt(CorruptKind::Mismatch { what })
        .into()
}
