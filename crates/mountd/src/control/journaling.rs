//! How a mount uses the journal of its volume: fixed when it is mounted.
//!
//! `mount` computes it once. The report shows it, and a remount that asks for another use is
//! refused.

use std::time::Duration;

use extern4::{DEFAULT_COMMIT_INTERVAL, DataMode, Volume};
use extern4_disk::superblock::DefaultMountOptions;

/// The use that a mount makes of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journaling {
    /// How contents of files become durable, in the words of `data=`.
    pub data: String,
    /// The longest time that a change is in memory only.
    pub commit_seconds: u64,
}

impl Journaling {
    /// Returns the requested settings, or the settings that the volume asks for. `None` without a
    /// journal.
    pub(crate) fn chosen(
        volume: &Volume,
        data: Option<DataMode>,
        interval: Option<Duration>,
    ) -> Option<Self> {
        let superblock = volume.ext4().superblock();
        superblock.journal()?;
        let data = data.unwrap_or_else(|| usual_data(superblock.default_mount_options()));
        Some(Self {
            data: data_name(data).to_owned(),
            commit_seconds: Self::seconds(interval),
        })
    }

    /// Returns the seconds of an interval, or of the default one.
    pub(crate) fn seconds(interval: Option<Duration>) -> u64 {
        interval.unwrap_or(DEFAULT_COMMIT_INTERVAL).as_secs()
    }
}

/// Returns the mode that a volume asks for. Two bits stand for three modes, as in `EXT4_DEFM_JMODE`
/// of the kernel.
fn usual_data(options: DefaultMountOptions) -> DataMode {
    let journal = DefaultMountOptions::JOURNAL_DATA;
    let ordered = DefaultMountOptions::JOURNAL_DATA_ORDERED;
    match (options.contains(journal), options.contains(ordered)) {
        (true, true) => DataMode::Writeback,
        (true, false) => DataMode::Journal,
        (false, _) => DataMode::Ordered,
    }
}

/// Returns a mode in the words of `data=`.
pub(crate) fn data_name(data: DataMode) -> &'static str {
    match data {
        DataMode::Ordered => "ordered",
        DataMode::Writeback => "writeback",
        DataMode::Journal => "journal",
    }
}
