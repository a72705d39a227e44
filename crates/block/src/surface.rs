//! [`bad_blocks`]: the search for blocks of a device that cannot hold contents.
//!
//! `mkfs -c` runs it before it plans a volume, and gives the bad blocks to the plan. All blocks are
//! read once. A second `-c` writes patterns first, so it destroys the contents of the device.

use std::ops::Range;

use crate::{BlockDevice, Result};

/// Blocks that are read or written at once.
const AT_ONCE: u64 = 256;
/// The patterns of the writing test: each bit is once 0 and once 1.
const PATTERNS: [u8; 2] = [0xaa, 0x55];

/// Returns the blocks of `blocks` that cannot be read or, with `writes`, do not keep what is
/// written. `None` if `is_stopped`, which is asked between two pieces, ended the search.
pub fn bad_blocks(
    device: &dyn BlockDevice,
    block_size: u32,
    blocks: Range<u64>,
    writes: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Option<Vec<u64>> {
    let is_good = |range: &Range<u64>| {
        if !writes {
            read(device, range, block_size).is_ok()
        } else {
            PATTERNS
                .iter()
                .all(|pattern| keeps(device, range, block_size, *pattern).unwrap_or(false))
        }
    };
    let mut bad = Vec::new();
    let mut at = blocks.start;
    while at < blocks.end {
        if is_stopped() {
            return None;
        }
        let next = at..blocks.end.min(at + AT_ONCE);
        if !is_good(&next) {
            bad.extend(next.clone().filter(|block| !is_good(&(*block..block + 1))));
        }
        at = next.end;
    }
    Some(bad)
}

fn read(device: &dyn BlockDevice, blocks: &Range<u64>, block_size: u32) -> Result<Vec<u8>> {
    let size = u64::from(block_size);
    let mut bytes = vec![0; ((blocks.end - blocks.start) * size) as usize];
    device.read_at(&mut bytes, blocks.start * size)?;
    device.forget(blocks.start * size..blocks.end * size);
    Ok(bytes)
}

fn keeps(
    device: &dyn BlockDevice,
    blocks: &Range<u64>,
    block_size: u32,
    pattern: u8,
) -> Result<bool> {
    let size = u64::from(block_size);
    let bytes = vec![pattern; ((blocks.end - blocks.start) * size) as usize];
    device.write_at(&bytes, blocks.start * size)?;
    // The cache of the system tells nothing about the device.
    device.flush()?;
    device.forget(blocks.start * size..blocks.end * size);
    Ok(read(device, blocks, block_size)? == bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::fault::{Effect, Fault};
    use crate::{FaultDevice, MemoryDevice, Op};

    #[test]
    fn blocks_that_fail_are_found() {
        let base = Arc::new(MemoryDevice::zeroed(600 * 1024));
        let device = FaultDevice::new(base);
        device.inject(Fault::within(
            Op::Read,
            300 * 1024 + 1..300 * 1024 + 2,
            Effect::Error(5),
        ));
        device.inject(Fault::within(
            Op::Write,
            10 * 1024..12 * 1024,
            Effect::Error(5),
        ));
        let found = |writes| bad_blocks(&device, 1024, 1..600, writes, &|| false);
        assert_eq!(found(false), Some(vec![300]));
        assert_eq!(found(true), Some(vec![10, 11, 300]));
        assert_eq!(bad_blocks(&device, 1024, 1..600, false, &|| true), None);
    }
}
