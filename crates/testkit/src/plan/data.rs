//! Files by their bytes: sizes around every boundary, holes, unwritten and fragmented space.
//!
//! The images of extents, block maps and inline data use these plans. Contents differ from block to
//! block, so a block read from a wrong place shows.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{block_size, directory, file, seed_of, write_at};

/// Makes files of sizes around the limits of an inode, of a block, and of the twelve direct blocks.
pub fn small_files(root: &Path) -> io::Result<()> {
    let dir = directory(root, "files")?;
    let block = block_size(root)? as usize;
    let inline = [
        0, 1, 7, 8, 59, 60, 61, 63, 64, 65, 100, 132, 133, 150, 160, 161, 200, 416, 900, 1000,
    ];
    let blocks = [
        block - 1,
        block,
        block + 1,
        12 * block - 1,
        12 * block,
        12 * block + 1,
        20 * block + 17,
    ];
    for len in inline.into_iter().chain(blocks) {
        file(&dir.join(format!("{len}-bytes")), len)?;
    }
    Ok(())
}

/// Makes files with holes at the start, in the middle and at the end.
pub fn holes(root: &Path) -> io::Result<()> {
    let dir = directory(root, "holes")?;
    let block = block_size(root)?;
    let one = |name: &str, writes: &[u64], size: u64| -> io::Result<()> {
        let path = dir.join(name);
        let file = File::create_new(&path)?;
        for at in writes {
            write_at(&file, seed_of(&path), at * block, block as usize)?;
        }
        file.set_len(size)
    };
    one("only-a-hole", &[], 1_000_003)?;
    one("hole-first", &[7], 8 * block)?;
    one("hole-last", &[0, 1], 40 * block + 5)?;
    one("alternating", &[0, 2, 4, 6, 8, 10, 12, 14, 16], 17 * block)?;
    one("far-apart", &[3, 300, 3000], 3001 * block - 3)
}

/// Makes files with space that is allocated and reads as zeroes, before, between and behind written
/// blocks.
pub fn unwritten(root: &Path) -> io::Result<()> {
    let dir = directory(root, "unwritten")?;
    let block = block_size(root)?;
    let one = |name: &str, flags: FallocateFlags, writes: &[u64]| -> io::Result<()> {
        let path = dir.join(name);
        let file = File::create_new(&path)?;
        fallocate(&file, flags, 0, 64 * block)?;
        writes
            .iter()
            .try_for_each(|at| write_at(&file, seed_of(&path), at * block + 11, 100))?;
        file.sync_all()
    };
    one("untouched", FallocateFlags::empty(), &[])?;
    one("some-written", FallocateFlags::empty(), &[0, 5, 6, 63])?;
    one("beyond-the-end", FallocateFlags::KEEP_SIZE, &[1])?;
    one("empty-with-space", FallocateFlags::KEEP_SIZE, &[])
}

/// Makes a file in pieces of one block, so that its map is a tree of several levels.
pub fn fragmented(root: &Path) -> io::Result<()> {
    let dir = directory(root, "fragmented")?;
    let block = block_size(root)?;
    // Four extents fit in an inode and block/12 in a leaf: 1500 pieces make leaves and an index
    // everywhere.
    let pieces = 1500;
    let path = dir.join("every-other-block");
    let file = File::create_new(&path)?;
    write_at(&file, seed_of(&path), 0, (2 * pieces * block) as usize)?;
    file.sync_all()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for piece in 0..pieces {
        match fallocate(&file, punch, (2 * piece + 1) * block, block) {
            Ok(()) => {}
            // Without a driver that punches, holes that were never written make the same shape.
            Err(Errno::OPNOTSUPP) => return every_other(&file, seed_of(&path), pieces, block),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn every_other(file: &File, seed: u64, pieces: u64, block: u64) -> io::Result<()> {
    file.set_len(0)?;
    (0..pieces).try_for_each(|piece| write_at(file, seed, 2 * piece * block, block as usize))
}

/// Makes files with a block on each side of every boundary of direct, indirect, double and triple
/// indirect maps.
pub fn indirect(root: &Path) -> io::Result<()> {
    let dir = directory(root, "indirect")?;
    let block = block_size(root)?;
    let fan = block / 4;
    let single = 12 + fan;
    let double = single + fan * fan;
    let path = dir.join("boundaries");
    let file = File::create_new(&path)?;
    let edges = [
        0,
        11,
        12,
        13,
        single - 1,
        single,
        single + fan - 1,
        single + fan,
        double - 1,
        double,
    ];
    for at in edges.into_iter().chain([double + 1, double + fan + 3]) {
        write_at(&file, seed_of(&path), at * block, block as usize)?;
    }
    let end = double + fan * fan;
    write_at(&file, seed_of(&path), end * block, 77)
}

/// Makes a file of a terabyte with little in it.
pub fn terabyte(root: &Path) -> io::Result<()> {
    let path = directory(root, "terabyte")?.join("sparse");
    let file = File::create_new(&path)?;
    for at in [0, 1 << 20, (1 << 30) + 4096, 3 << 32, (1 << 40) - 8192] {
        write_at(&file, seed_of(&path), at, 5000)?;
    }
    file.set_len(1 << 40)
}

/// Makes a file of enough pieces for an extent tree of four levels with blocks of 1024 bytes.
pub fn shattered(root: &Path) -> io::Result<()> {
    let dir = directory(root, "shattered")?;
    let block = block_size(root)?;
    let path = dir.join("every-other-block");
    // 84 extents a block: 4 x 84 x 84 of them fit in three levels.
    every_other(&File::create_new(&path)?, seed_of(&path), 29_000, block)
}
