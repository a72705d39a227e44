//! Finding names that a directory block holds twice.
//!
//! A table of the names of one block. Each thread keeps one, and empties it by raising its stamp: a
//! cell of an earlier block has an earlier stamp. A cell holds part of the name's hash and where
//! the entry stands, so names are compared only if they are likely to be equal.
//!
//! Every name that a block holds twice is found; equal hashes of different names cause no report.
//! The pass over directories calls it.

/// The most bytes of a block, and the fewest of an entry, of which half the cells can be in use.
const CELLS: usize = (65536_usize / 12 * 2).next_power_of_two();
const NAME_OFFSET: usize = 8;
const NAME_LEN_OFFSET: usize = 6;

/// The names of the block that is being checked.
pub(crate) struct Names {
    /// Stamp, 16 bits of the hash, and the entry's offset in words.
    cells: Box<[u64]>,
    stamp: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            cells: Box::default(),
            stamp: 0,
        }
    }

    /// Forgets all names.
    pub(crate) fn start_block(&mut self, block_size: usize) {
        let cells = (block_size / 12 * 2).next_power_of_two().min(CELLS);
        if self.stamp == u64::from(u32::MAX) || self.cells.len() != cells {
            self.cells = vec![0; cells].into();
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// Adds the name of the entry at `offset` of `block`, and returns whether it is new.
    pub(crate) fn insert(&mut self, block: &[u8], offset: u32, name: &[u8]) -> bool {
        let hash = hash(name);
        let mask = self.cells.len() - 1;
        let cell = self.stamp << 32 | (hash & 0xffff) << 16 | u64::from(offset / 4);
        // OK: the mask leaves as many bits as there are cells.
        let mut at = (hash >> 16) as usize & mask;
        for _ in 0..self.cells.len() {
            let found = self.cells[at];
            if found >> 32 != self.stamp {
                self.cells[at] = cell;
                return true;
            }
            if found >> 16 == cell >> 16 && name_at(block, found & 0xffff) == name {
                return false;
            }
            at = (at + 1) & mask;
        }
        true
    }
}

/// Returns the name of the entry that starts `words` words into the block, which has been decoded
/// before.
fn name_at(block: &[u8], words: u64) -> &[u8] {
    let start = words as usize * 4;
    let len = block
        .get(start + NAME_LEN_OFFSET)
        .map_or(0, |len| usize::from(*len));
    block
        .get(start + NAME_OFFSET..start + NAME_OFFSET + len)
        .unwrap_or_default()
}

fn hash(name: &[u8]) -> u64 {
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut chunks = name.chunks_exact(8);
    let mut hash = name.len() as u64;
    for chunk in &mut chunks {
        hash = mix(
            hash,
            chunk
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word)),
        );
    }
    let rest = chunks
        .remainder()
        .iter()
        .fold(0, |word, &byte| word << 8 | u64::from(byte));
    let hash = mix(hash, rest);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(names: &[&[u8]]) -> (Vec<u8>, Vec<u32>) {
        let mut block = Vec::new();
        let mut offsets = Vec::new();
        for name in names {
            offsets.push(u32::try_from(block.len()).unwrap());
            block.extend_from_slice(&[1, 0, 0, 0, 0, 0, u8::try_from(name.len()).unwrap(), 0]);
            block.extend_from_slice(name);
            block.resize(block.len().next_multiple_of(4), 0);
        }
        (block, offsets)
    }

    #[test]
    fn a_name_is_new_once_a_block() {
        let list: Vec<Vec<u8>> = (0..300)
            .map(|at| format!("name-{at}").into_bytes())
            .collect();
        let list: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
        let (bytes, offsets) = block(&list);
        let mut names = Names::new();
        for _ in 0..2 {
            names.start_block(4096);
            assert!(
                list.iter()
                    .zip(&offsets)
                    .all(|(name, &at)| names.insert(&bytes, at, name))
            );
            assert!(
                !list
                    .iter()
                    .zip(&offsets)
                    .any(|(name, &at)| names.insert(&bytes, at, name))
            );
        }
    }
}
