//! The replay of a damaged journal.
#![no_main]

use extern4_jbd2::{Error, Journal, JournalMap};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

const BLOCK_SIZE: u32 = 1024;
const VOLUME_BLOCKS: u64 = 6 * 1024;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    extern4_fuzz::mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let Some(journal) = extern4_fuzz::image(extern4_fuzz::journals(), data) else {
        return;
    };
    let blocks = journal.size_bytes() / u64::from(BLOCK_SIZE);
    // The device has room for whatever a journal may claim, which is more than a journal can have.
    let map = JournalMap::identity(u32::try_from(blocks).unwrap_or(u32::MAX));
    let Ok(journal) = Journal::internal(journal, BLOCK_SIZE, map) else {
        return;
    };
    let Ok(recovered) = journal.recover(VOLUME_BLOCKS) else {
        return;
    };
    let mut written = 0;
    let replayed = recovered.replay(|block, bytes| {
        assert!(block < VOLUME_BLOCKS && bytes.len() == BLOCK_SIZE as usize);
        written += 1;
        Ok::<_, Error>(())
    });
    let _ = replayed;
    assert!(
        written <= blocks,
        "more blocks replayed than the journal has"
    );
    let _ = recovered.fast_commits();
    let _ = recovered.damage().len();
});
