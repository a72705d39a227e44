//! ext4 outside the kernel: opens ext2, ext3 and ext4 volumes without root, without a loop device,
//! without a mount.
//!
//! [`Volume::open`] takes an image file or a block special file, [`Volume::options`] also a
//! partition of it. A program sees a volume through a [`Session`], which has the rights of one
//! caller. [`Volume::superuser`] sees everything, and [`Volume::session`] sees as much as a user of
//! that id would on Linux. The calls of a session are the calls of `std::fs`, and of the `...at`
//! family through [`Session::at`]. Every type is `Send + Sync` and cheap to clone.
//!
//! ```
//! use std::io::Read;
//!
//! use extern4::Volume;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let image = dir.path().join("disk.img");
//!     let volume = Volume::create_new(&image, 16 << 20)?;
//!     volume.superuser().write("/motd", "hello\n")?;
//!     volume.close()?;
//!
//!     let session = Volume::open(&image)?.superuser();
//!     let mut text = String::new();
//!     session.open("/motd")?.read_to_string(&mut text)?;
//!     assert_eq!(text, "hello\n");
//!     Ok(())
//! }
//! ```
//!
//! The library never writes to a volume that is opened for reading. If that volume was not
//! unmounted cleanly, the library replays its journal in memory. [`VolumeOptions::write`] opens a
//! volume for changes, and [`Volume::create_new`] makes one.
//!
//! An error names the operation, its path and the reason. If the volume is damaged, the error also
//! names the damaged structure and its location. See [`ErrorKind`].

#![forbid(unsafe_code)]

#[cfg(feature = "build")]
pub mod build;
mod change;
pub mod copy;
#[cfg(feature = "diff")]
pub mod diff;
mod dir;
mod error;
#[cfg(feature = "build")]
pub mod export;
mod file;
mod file_flags;
pub mod info;
mod listing;
mod make;
mod memory_pressure;
mod metadata;
mod open_options;
pub mod part;
pub mod quota;
mod removal;
mod replace;
mod session;
mod source;
#[cfg(feature = "build")]
pub mod tar;
pub mod terminal;
mod transaction;
pub mod tune;
mod volume;
mod walk;

pub use dir::{DirEntry, ReadDir, is_step};
pub use error::{Error, ErrorKind, Result};
pub use extern4_block as block;
pub use extern4_block::partition::{Partition, Table as PartitionTable};
pub use extern4_disk::{Corrupt, CorruptKind, Structure};
pub use extern4_ext4 as ext4;
pub use extern4_ext4::{
    Backup, DEFAULT_COMMIT_INTERVAL, DataMode, ErrorPolicy, Ext4, JournalStats, SharingStats,
};
pub use extern4_mkfs as mkfs;
#[cfg(feature = "build")]
pub use extern4_tree::Glob;
pub use extern4_vfs as vfs;
pub use extern4_vfs::lookup::PATH_MAX;
pub use extern4_vfs::{
    Access, Acl, AclEntry, AclError, AclKind, AclTag, Atime, Attributes, CacheStats, Caps, Cred,
    Errno, FallocateMode, FileFlags, FileType, LookupFlags, Namespace, NewKind, OpenFileInfo,
    OpenFileStats, OpenFlags, Rdev, RenameFlags, SetTime, Shutdown, Span, SpanKind, StatFs,
    Timespec, XattrFlags, XattrNamespace,
};
pub use file::File;
pub use memory_pressure::PressureWatch;
pub use metadata::{Metadata, system_time};
pub use open_options::OpenOptions;
pub use session::Session;
pub use transaction::Transaction;
pub use volume::{Stats, Volume, VolumeOptions};
pub use walk::{Walk, WalkEvent};

/// The guide's page about the library, so that its examples are compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;

/// The crate's page, so that its example is run with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
