//! Maps a block by indirect blocks, as ext2 and ext3 do: up to three levels of blocks full of block
//! numbers.
//!
//! `InodeInfo::map` calls [`map`] for files without extents. A block number outside of the volume
//! is an error, and the number of levels is fixed, so the descent ends.

use extern4_disk::indirect::{DIRECT, Pointers};
use extern4_disk::{Place, Structure};

use crate::error::Result;
use crate::fs::Ext4;
use crate::inode::info::InodeInfo;
use crate::run::{LOGICAL_END, Run, RunKind};

/// Returns the run at block `logical` of a file without extents.
pub(crate) fn map(fs: &Ext4, inode: &InodeInfo, logical: u32) -> Result<Run> {
    let arithmetic = fs.indirect_map();
    let Some(path) = arithmetic.path(logical) else {
        return Ok(Run::hole(logical, LOGICAL_END));
    };
    let hole = |depth| {
        Run::hole(
            logical,
            u64::from(logical) + arithmetic.hole_blocks(&path, depth),
        )
    };
    let place = Place::new(Structure::IndirectBlock).ino(inode.ino());
    let roots = Pointers::decode(inode.i_block(), fs.blocks(), place)?;
    if path.levels() == 0 {
        // OK: DIRECT is 12.
        return Ok(run_at(
            logical,
            roots.run(path.root(), DIRECT as usize - path.root())?,
        ));
    }
    let Some(mut block) = roots.get(path.root())? else {
        return Ok(hole(0));
    };
    let mut depth = 0;
    for &at in path.offsets() {
        let at = usize::from(at);
        let number = u64::from(block.get());
        let buffer = fs.cache.read(number)?;
        let pointers = Pointers::decode(&buffer, fs.blocks(), place.block(number))?;
        depth += 1;
        if depth == path.levels() {
            return Ok(run_at(logical, pointers.run(at, pointers.len() - at)?));
        }
        match pointers.get(at)? {
            Some(child) => block = child,
            None => return Ok(hole(depth)),
        }
    }
    unreachable!("a path of {} levels ends at its last", path.levels())
}

fn run_at(logical: u32, (first, len): (Option<std::num::NonZeroU32>, usize)) -> Run {
    let end = u64::from(logical) + len as u64;
    match first {
        Some(first) => {
            let kind = RunKind::Mapped {
                physical: u64::from(first.get()),
            };
            Run {
                logical,
                len_blocks: end - u64::from(logical),
                kind,
            }
        }
        None => Run::hole(logical, end),
    }
}
