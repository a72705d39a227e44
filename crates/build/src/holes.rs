//! The holes of files: which blocks of a file have data.
//!
//! `builder` looks for holes before sizes are chosen, `layout` gives blocks to data only, and
//! `record` maps only those. A host file that the host cannot search for holes counts as data
//! throughout.

use std::collections::HashMap;
use std::io;

use extern4_tree::Contents;

use crate::fs_verity::Seal;

/// Blocks of files with holes that have data: places in the file and lengths, in blocks, by the
/// inode in the tree. Files that fs-verity protects have its metadata behind a hole.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    runs: HashMap<u32, Box<[(u64, u64)]>>,
}

impl Holes {
    /// The runs of a file's blocks that have data; `None` if all have.
    pub(crate) fn runs(&self, inode: u32) -> Option<&[(u64, u64)]> {
        self.runs.get(&inode).map(|runs| &**runs)
    }

    /// Notes where a file has data, if it may have holes: `parts` finds the parts that are none.
    pub(crate) fn find(
        &mut self,
        inode: u32,
        contents: &Contents,
        block_size: u32,
        seal: Option<Seal>,
        parts: Option<impl FnOnce() -> extern4_tree::Result<io::Result<Vec<(u64, u64)>>>>,
    ) -> extern4_tree::Result<io::Result<()>> {
        let data = match parts {
            Some(parts) => parts()?,
            None if seal.is_some() => Ok(vec![(0, contents.size)]),
            None => return Ok(Ok(())),
        };
        let data = match data {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        let block_size = u64::from(block_size);
        let mut runs = blocks_of(&data, contents.size, block_size);
        runs.extend(seal.map(|seal| (seal.start() / block_size, seal.len() / block_size)));
        self.runs.insert(inode, runs.into());
        Ok(Ok(()))
    }
}

/// The blocks that these parts of a file touch.
fn blocks_of(data: &[(u64, u64)], size: u64, block_size: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &(offset, len) in data {
        let end = offset.saturating_add(len).min(size).div_ceil(block_size);
        let first = offset / block_size;
        match runs.last_mut() {
            Some((start, len)) if *start + *len >= first => {
                *len = (*len).max(end.saturating_sub(*start))
            }
            _ if first < end => runs.push((first, end - first)),
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::blocks_of;

    #[test]
    fn parts_become_blocks() {
        assert_eq!(blocks_of(&[(0, 4096)], 4096, 4096), [(0, 1)]);
        assert_eq!(blocks_of(&[(1, 1), (5000, 10)], 9000, 4096), [(0, 2)]);
        assert_eq!(blocks_of(&[(0, 1), (2, 1)], 9000, 4096), [(0, 1)]);
        assert_eq!(
            blocks_of(&[(0, 1), (8192, 800)], 8992, 4096),
            [(0, 1), (2, 1)]
        );
        assert_eq!(blocks_of(&[(8192, 800)], 100_000, 1024), [(8, 1)]);
        assert_eq!(blocks_of(&[], 100_000, 1024), []);
        assert_eq!(blocks_of(&[(0, 0), (4096, 0)], 100_000, 4096), []);
    }
}
