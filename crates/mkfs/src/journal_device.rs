//! Plans an external journal (`-O journal_dev`): a device that holds nothing but a journal.
//!
//! `Plan::new` calls it instead of `Draft` if the options ask for a journal. The plan has a
//! superblock and a journal superblock with no user; `external_journal` sets the user when a volume
//! is made. A device that is too small is an error.

use extern4_disk::feature::{Feature, Features, Incompat};
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::{Place, Structure};
use zerocopy::IntoBytes;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::external_journal::superblock_block;
use crate::journal::MIN_JOURNAL;
use crate::numbers::{self, Numbers};
use crate::options::Options;
use crate::plan::Plan;
use crate::space::Space;
use crate::superblock;

/// Whether these options ask for an external journal instead of a volume.
pub(crate) fn is_wanted(options: &Options) -> bool {
    let words = options
        .features
        .iter()
        .flat_map(|list| list.split([',', ' ']));
    let last = words.rev().find(|word| word.ends_with("journal_dev"));
    last.is_some_and(|word| Feature::from_name(word.trim_start_matches('+')).is_some())
}

/// Returns the plan of the external journal that these options make on a device of `bytes`.
pub(crate) fn plan(options: &Options, config: &Config, bytes: u64) -> Result<Plan> {
    let features = Features {
        incompat: Incompat::JOURNAL_DEV,
        ..Features::default()
    };
    let numbers = Numbers::of_journal(options, config, features, bytes)?;
    if options.superblocks_only {
        return Err(Error::options(
            "an external journal has no copies of its superblock to write again",
        ));
    }
    if options.revision == 0 {
        return Err(Error::options(
            "a volume of revision 0 has no features and no journal",
        ));
    }
    let blocks = numbers::narrow(numbers.blocks)?;
    if blocks < MIN_JOURNAL {
        return Err(Error::Size(format!(
            "a journal of {blocks} blocks: at least {MIN_JOURNAL} are necessary"
        )));
    }
    let mut sb = superblock::make(options, config, &numbers)?;
    // It has no directories with hashed names.
    sb.raw_mut().s_flags.set(0);
    let at = Place::new(Structure::JournalSuperblock);
    let mut journal = JournalSuperblock::new(numbers.block_size, blocks, 0, options.uuid, at)?;
    let index = superblock_block(numbers.block_size);
    journal.first = index + 1;
    journal.users = Vec::new();
    Ok(Plan {
        sb,
        groups: Vec::new(),
        blocks: vec![(index.into(), journal.encode().as_bytes().to_vec())],
        zeroes: vec![(0, numbers.blocks)],
        descriptors: Vec::new(),
        journal_blocks: numbers.blocks,
        journal_superblock: None,
        space: Space::default(),
        keep_allocated: options.keep_allocated,
        superblocks_only: false,
        types: numbers.types,
        warnings: numbers::warnings(options, config),
    })
}
