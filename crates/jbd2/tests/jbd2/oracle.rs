//! Access to images through debugfs and e2fsck.

use std::ffi::OsString;
use std::path::Path;

use extern4_block::{BlockDevice, FileDevice};
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Place, Structure};
use extern4_jbd2::{Error, Journal, JournalMap, Run};
use extern4_testkit::tools;

/// Returns the superblock of the volume in an image, and its journal.
pub(crate) fn open(image: &Path) -> (Superblock, Result<Journal<FileDevice>, Error>) {
    let device = FileDevice::open(image).expect("an image");
    let superblock = superblock(&device);
    let block_size = u32::try_from(block_size(&superblock)).expect("small");
    let journal = Journal::internal(device, block_size, map(image));
    (superblock, journal)
}

/// Returns the superblock of the volume on a device.
pub(crate) fn superblock(device: &impl BlockDevice) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device
        .read_at(&mut bytes, SUPERBLOCK_OFFSET)
        .expect("readable");
    Superblock::decode(&bytes, Place::new(Structure::Superblock)).expect("sound")
}

/// Returns the size of the volume's blocks, in bytes.
pub(crate) fn block_size(superblock: &Superblock) -> usize {
    1024 << superblock.raw().s_log_block_size.get()
}

/// Returns the number of blocks of the volume.
pub(crate) fn volume_blocks(superblock: &Superblock) -> u64 {
    let raw = superblock.raw();
    u64::from(raw.s_blocks_count_hi.get()) << 32 | u64::from(raw.s_blocks_count_lo.get())
}

/// Returns the map of the journal's inode. debugfs prints the extents of extent-mapped and the
/// blocks of block-mapped inodes as `(0-1019):4161-5180`, and index blocks under other names.
pub(crate) fn map(image: &Path) -> JournalMap {
    let stat = debugfs(image, "stat <8>");
    let (_, lists) = stat
        .split_once("BLOCKS:")
        .or_else(|| stat.split_once("EXTENTS:"))
        .expect("a list of blocks");
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    };
    let run = |entry: &str| {
        let (logical, physical) = entry.split_once("):")?;
        let (first, last) = range(logical)?;
        let (physical, _) = range(physical)?;
        let len_blocks = u32::try_from(last - first + 1).ok()?;
        Some(Run {
            logical: u32::try_from(first).ok()?,
            physical,
            len_blocks,
        })
    };
    let mut runs: Vec<_> = lists.split([',', ' ', '\n', '(']).filter_map(run).collect();
    runs.sort_by_key(|run| run.logical);
    JournalMap::new(runs).expect("runs that make sense")
}

/// Returns the output of one debugfs command. A crashed volume may have wrong checksums: `-n` makes
/// debugfs ignore them.
pub(crate) fn debugfs(image: &Path, command: &str) -> String {
    let words: [OsString; 4] = ["-n".into(), "-R".into(), command.into(), image.into()];
    String::from_utf8_lossy(&tools::run("debugfs", words)).into_owned()
}
