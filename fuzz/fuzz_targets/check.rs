//! The check of a damaged volume: it ends, and reports no more than it can have seen.
#![no_main]

use extern4_block::CacheBudget;
use extern4_check::{Options, check};
use extern4_ext4::{Ext4, OpenOptions};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// The most faults that a check reports, apart from the faults of blocks and inodes: an image has
/// no more bytes of metadata.
const MAX_FAULTS: u64 = 1_000_000;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    extern4_fuzz::mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let Some(image) = extern4_fuzz::image(extern4_fuzz::volumes(), data) else {
        return;
    };
    let options = OpenOptions {
        budget: CacheBudget::new(1 << 20),
        ..OpenOptions::default()
    };
    let Ok(volume) = Ext4::open(image, &options) else {
        return;
    };
    let mut said = 0;
    let summary = check(
        &volume,
        &Options {
            threads: 1,
            ..Options::default()
        },
        &mut |fault| said += fault.to_string().len(),
    );
    if let Ok(summary) = summary {
        let most = MAX_FAULTS + summary.blocks + summary.inodes;
        assert!(summary.faults <= most, "{} faults", summary.faults);
        assert!(summary.faults == 0 || said > 0, "faults without a word");
        assert!(summary.inodes_used <= summary.inodes && summary.blocks_used <= summary.blocks);
    }
});
