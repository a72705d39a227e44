//! Maps of new files: extent trees, and the block lists of ext2 and ext3.

use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::extent::{Entries, Extent, Index, MAX_WRITTEN_LEN, OwnedNode, store_checksum};
use extern4_disk::inode::MAP_SIZE;
use extern4_disk::{Place, Structure};

use crate::error::{Error, Result};

/// Bytes of the header of an extent tree's node, and of each of its entries.
const EXTENT_ENTRY: usize = 12;
/// Entries of the root, which is in the inode.
const ROOT_ENTRIES: usize = 4;
/// Block numbers that the inode has itself in a block list, before those of the blocks with more.
const DIRECT: usize = 12;

/// A file's map: the inode's part, and the blocks that hold the rest.
pub(crate) struct Map {
    pub(crate) root: [u8; MAP_SIZE],
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
}

/// Gives the blocks that hold a map, one after the other.
pub(crate) type Take<'a> = dyn FnMut() -> Result<u64> + 'a;

/// The extent tree of a file without holes whose blocks are these runs: starts and lengths.
pub(crate) fn extents(
    runs: &[(u64, u64)],
    block_size: usize,
    seed: Option<ChecksumSeed>,
    take: &mut Take<'_>,
) -> Result<Map> {
    let mut entries = Entries::Leaf(leaves(runs)?);
    let (mut blocks, mut depth) = (Vec::new(), 0);
    // The checksum stands behind the last entry.
    let most = (block_size - EXTENT_ENTRY - size_of::<u32>()) / EXTENT_ENTRY;
    while len(&entries) > ROOT_ENTRIES {
        let mut indexes = Vec::new();
        for (logical, node) in split(entries, most) {
            let at = take()?;
            let mut block = vec![0; block_size];
            let max = u16::try_from(most).map_err(|_| Error::options("blocks are too large"))?;
            OwnedNode { entries: node, depth, max, generation: 0 }.encode(&mut block);
            if let Some(seed) = seed {
                store_checksum(&mut block, seed, Place::new(Structure::ExtentNode))?;
            }
            blocks.push((at, block));
            indexes.push(Index { logical, child: at });
        }
        (entries, depth) = (Entries::Index(indexes), depth + 1);
    }
    let mut root = [0; MAP_SIZE];
    OwnedNode { entries, depth, max: ROOT_ENTRIES as u16, generation: 0 }.encode(&mut root);
    Ok(Map { root, blocks })
}

fn leaves(runs: &[(u64, u64)]) -> Result<Vec<Extent>> {
    let (mut extents, mut logical) = (Vec::new(), 0_u64);
    for &(start, len) in runs {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(MAX_WRITTEN_LEN.into());
            let at = u32::try_from(logical).map_err(|_| Error::Size("a file is too long".to_owned()))?;
            extents.push(Extent {
                logical: at,
                len_blocks: part as u16,
                physical: start + done,
                unwritten: false,
            });
            done += part;
            logical += part;
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

/// The entries in nodes of at most `most`, each with the first file block that it maps.
fn split(entries: Entries, most: usize) -> Vec<(u32, Entries)> {
    match entries {
        Entries::Leaf(extents) => {
            extents.chunks(most).map(|part| (part[0].logical, Entries::Leaf(part.to_vec()))).collect()
        }
        Entries::Index(indexes) => {
            indexes.chunks(most).map(|part| (part[0].logical, Entries::Index(part.to_vec()))).collect()
        }
    }
}

/// The block list of a file without holes whose blocks are these runs: starts and lengths.
pub(crate) fn block_list(runs: &[(u64, u64)], block_size: usize, take: &mut Take<'_>) -> Result<Map> {
    let mut numbers = runs.iter().flat_map(|&(start, len)| start..start + len).peekable();
    let mut words = [0_u32; MAP_SIZE / 4];
    let mut blocks = Vec::new();
    for word in &mut words[..DIRECT] {
        *word = numbers.next().map_or(Ok(0), number)?;
    }
    for (levels, word) in (1..).zip(&mut words[DIRECT..]) {
        if numbers.peek().is_some() {
            *word = number(indirect(levels, &mut numbers, block_size, take, &mut blocks)?)?;
        }
    }
    if numbers.peek().is_some() {
        return Err(Error::Size("a file is too long for a block list".to_owned()));
    }
    let mut root = [0; MAP_SIZE];
    for (bytes, word) in root.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Ok(Map { root, blocks })
}

fn indirect(
    levels: u32,
    numbers: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
    block_size: usize,
    take: &mut Take<'_>,
    blocks: &mut Vec<(u64, Vec<u8>)>,
) -> Result<u64> {
    let at = take()?;
    let mut block = vec![0; block_size];
    for bytes in block.chunks_exact_mut(4) {
        if numbers.peek().is_none() {
            break;
        }
        let next = match levels {
            1 => numbers.next().unwrap_or(0),
            _ => indirect(levels - 1, numbers, block_size, take, blocks)?,
        };
        bytes.copy_from_slice(&number(next)?.to_le_bytes());
    }
    blocks.push((at, block));
    Ok(at)
}

fn number(block: u64) -> Result<u32> {
    u32::try_from(block).map_err(|_| Error::Size(format!("block {block} is beyond a block list")))
}
