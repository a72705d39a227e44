//! Makes ext2, ext3 and ext4 volumes, as `mke2fs` of e2fsprogs 1.47 makes them from the same
//! options and the same `mke2fs.conf`.
//!
//! [`Options`] hold the options by the names of `mke2fs(8)`, and [`Config`] the defaults.
//! [`Plan::new`] decides the volume's features, its geometry and the place of everything on it. It
//! refuses options that contradict each other, and sizes that are too small, before anything is
//! written. [`Plan::write`] makes the volume. Its primary superblock is written last: a device that
//! loses power earlier holds no volume, and has lost its old contents.
//!
//! The commands `extern4 mkfs` and `extern4 build` use this crate, and the crates `extern4-build`
//! and `extern4`.
//!
//! ```no_run
//! use extern4_block::{FileDevice, FileOptions};
//! use extern4_mkfs::{Config, Options, Plan};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options { label: Some("root".to_owned()), ..Options::unique()? };
//! let plan = Plan::new(&options, &Config::default(), 64 << 20)?;
//! let writable = FileOptions { write: true, ..FileOptions::default() };
//! let device = FileDevice::open_with("disk.img", &writable)?;
//! plan.write(&device)?;
//! # Ok(())
//! # }
//! ```
//!
//! Sources: `mke2fs(8)`, `mke2fs.conf(5)`, `ext4(5)`, the kernel's
//! `Documentation/filesystems/ext4/`, and volumes that `mke2fs` 1.47 made, seen through `dumpe2fs`
//! and `debugfs`.

#![forbid(unsafe_code)]

mod config;
mod draft;
mod error;
mod external_journal;
mod features;
mod files;
mod journal;
mod journal_device;
mod layout;
pub mod map;
mod numbers;
mod options;
mod plan;
mod quota;
mod space;
mod superblock;
mod target;
mod write;

pub use config::Config;
pub use draft::Draft;
pub use error::{Error, Result};
pub use extern4_disk::quota::Kind as QuotaKind;
pub use external_journal::ExternalJournal;
pub use features::known_features;
pub use files::{LOST_FOUND_INO, LOST_FOUND_MODE, lost_found_blocks};
pub use journal::JournalBlocks;
pub use options::{JournalSize, Length, Options, random_uuid, time_uuid};
pub use plan::{Plan, UsedInodes};
pub use quota::Owner;
pub use superblock::{LABEL_BYTES, LAST_MOUNTED_BYTES};
pub use target::TARGETS;

/// The crate's page, so that its example is run with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
