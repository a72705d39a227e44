//! Maps of files: extent trees, and the block lists of ext2 and ext3.
//!
//! [`extents`] and [`block_list`] encode the map of a file whose runs are known, and ask the caller
//! for each block of the map itself. They write nothing. Internal files of a new volume and the
//! crate `build` use them. A file that is too long for its map is an error.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::extent::{
    Entries, Extent, Index, MAX_WRITTEN_LEN, OwnedExtentNode, store_checksum,
};
use extern4_disk::inode::MAP_SIZE;
use extern4_disk::{Place, Structure};

use crate::error::{Error, Result};

/// The size of the header of an extent node, and of each of its entries.
const EXTENT_ENTRY: usize = 12;
/// Entries of the root, which is in the inode.
const ROOT_ENTRIES: usize = 4;
/// How many numbers of data blocks the inode has in a block list, before the numbers of indirect
/// blocks.
const DIRECT: usize = 12;

/// Consecutive blocks of a file that are also consecutive on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block in the file.
    pub logical: u64,
    /// The first block on the volume.
    pub start: u64,
    /// The number of blocks.
    pub len: u64,
}

/// Returns the runs of a file without holes, whose blocks are given by starts and lengths.
pub fn without_holes(pieces: &[(u64, u64)]) -> Vec<Run> {
    let mut logical = 0;
    let mut run = |&(start, len): &(u64, u64)| {
        logical += len;
        Run {
            logical: logical - len,
            start,
            len,
        }
    };
    pieces.iter().map(&mut run).collect()
}

/// A file's map: the inode's part, and the blocks that hold the rest.
#[derive(Debug)]
pub struct Map {
    /// The part in the inode.
    pub root: [u8; MAP_SIZE],
    /// The numbers of the other blocks, and their contents.
    pub blocks: Vec<(u64, Vec<u8>)>,
}

/// Returns a new block for a map.
pub type Take<'a> = dyn FnMut() -> Result<u64> + 'a;

/// Makes the extent tree of a file with these runs, which are in ascending order.
///
/// # Errors
/// [`Error::Size`] for a file that is longer than the format allows, and the errors of `take`.
pub fn extents(
    runs: &[Run],
    block_size: usize,
    seed: Option<ChecksumSeed>,
    take: &mut Take<'_>,
) -> Result<Map> {
    let mut entries = Entries::Leaf(leaves(runs)?);
    let mut blocks = Vec::new();
    let mut depth = 0;
    // The checksum follows the last entry.
    let most = (block_size - EXTENT_ENTRY - size_of::<u32>()) / EXTENT_ENTRY;
    while len(&entries) > ROOT_ENTRIES {
        let mut indexes = Vec::new();
        for (logical, node) in split(entries, most) {
            let at = take()?;
            let mut block = vec![0; block_size];
            let max = u16::try_from(most).map_err(|_| Error::options("blocks are too large"))?;
            OwnedExtentNode {
                entries: node,
                depth,
                max,
                generation: 0,
            }
            .encode(&mut block);
            if let Some(seed) = seed {
                store_checksum(&mut block, seed, Place::new(Structure::ExtentNode))?;
            }
            blocks.push((at, block));
            indexes.push(Index { logical, child: at });
        }
        (entries, depth) = (Entries::Index(indexes), depth + 1);
    }
    let mut root = [0; MAP_SIZE];
    OwnedExtentNode {
        entries,
        depth,
        max: ROOT_ENTRIES as u16,
        generation: 0,
    }
    .encode(&mut root);
    Ok(Map { root, blocks })
}

fn leaves(runs: &[Run]) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let part = (run.len - done).min(MAX_WRITTEN_LEN.into());
            let logical = u32::try_from(run.logical + done)
                .map_err(|_| Error::Size("a file is too long for its extent tree".to_owned()))?;
            extents.push(Extent {
                logical,
                len_blocks: part as u16,
                physical: run.start + done,
                unwritten: false,
            });
            done += part;
        }
    }
    Ok(extents)
}

fn len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(extents) => extents.len(),
        Entries::Index(indexes) => indexes.len(),
    }
}

/// Splits entries into nodes of at most `most`, each with the first file block that it maps.
fn split(entries: Entries, most: usize) -> Vec<(u32, Entries)> {
    match entries {
        Entries::Leaf(extents) => extents
            .chunks(most)
            .map(|part| (part[0].logical, Entries::Leaf(part.to_vec())))
            .collect(),
        Entries::Index(indexes) => indexes
            .chunks(most)
            .map(|part| (part[0].logical, Entries::Index(part.to_vec())))
            .collect(),
    }
}

/// Makes the block list of a file with these runs, which are in ascending order.
///
/// # Errors
/// [`Error::Size`] for a file or a block that is too large for the format, and the errors of
/// `take`.
pub fn block_list(runs: &[Run], block_size: usize, take: &mut Take<'_>) -> Result<Map> {
    let mut list = BlockList {
        runs,
        block_size,
        take,
        blocks: Vec::new(),
    };
    let mut words = [0_u32; MAP_SIZE / 4];
    for (logical, word) in words[..DIRECT].iter_mut().enumerate() {
        *word = number(list.block_at(logical as u64))?;
    }
    let mut from = DIRECT as u64;
    let mut span = 1;
    for word in &mut words[DIRECT..] {
        span *= block_size as u64 / 4;
        *word = number(list.indirect(from, span)?)?;
        from += span;
    }
    if runs.last().is_some_and(|run| run.logical + run.len > from) {
        return Err(Error::Size(
            "a file is too long for a block list".to_owned(),
        ));
    }
    let mut root = [0; MAP_SIZE];
    for (bytes, word) in root.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Ok(Map {
        root,
        blocks: list.blocks,
    })
}

/// A block list that is being made.
struct BlockList<'a, 'b> {
    runs: &'a [Run],
    block_size: usize,
    take: &'a mut Take<'b>,
    blocks: Vec<(u64, Vec<u8>)>,
}

impl BlockList<'_, '_> {
    /// Returns the block for block `logical` of the file; 0 in a hole.
    fn block_at(&self, logical: u64) -> u64 {
        let index = self
            .runs
            .partition_point(|run| run.logical + run.len <= logical);
        let run = self.runs.get(index).filter(|run| run.logical <= logical);
        run.map_or(0, |run| run.start + (logical - run.logical))
    }

    /// Makes and returns the indirect block for `span` blocks of the file from `from` on; 0 if all
    /// of them are in a hole.
    fn indirect(&mut self, from: u64, span: u64) -> Result<u64> {
        let first = self
            .runs
            .partition_point(|run| run.logical + run.len <= from);
        if self
            .runs
            .get(first)
            .is_none_or(|run| run.logical >= from + span)
        {
            return Ok(0);
        }
        let at = (self.take)()?;
        let mut block = vec![0; self.block_size];
        let part = span / (self.block_size as u64 / 4);
        for (from, bytes) in (from..from + span)
            .step_by(part as usize)
            .zip(block.chunks_exact_mut(4))
        {
            let next = if part == 1 {
                self.block_at(from)
            } else {
                self.indirect(from, part)?
            };
            bytes.copy_from_slice(&number(next)?.to_le_bytes());
        }
        self.blocks.push((at, block));
        Ok(at)
    }
}

fn number(block: u64) -> Result<u32> {
    u32::try_from(block).map_err(|_| Error::Size(format!("block {block} is beyond a block list")))
}
