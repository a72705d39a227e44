//! A description of a volume: what dumpe2fs(8) shows, and the volume's structures for experts.
//!
//! [`Info::of`] gathers everything that describes a volume as a whole. [`groups`] lists its block
//! groups, [`inode`] reads an inode as the volume stores it, and [`BlockOwners`] finds what blocks
//! are used for. All of it only reads.
//!
//! ```
//! use extern4::Volume;
//! use extern4::info::{Info, JournalPlace};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let info = Info::of(&volume)?;
//!     assert_eq!((info.type_name, info.space.block_size), ("ext4", 1024));
//!     assert_eq!(info.journal.location, Some(JournalPlace::Inode(8)));
//!     Ok(())
//! }
//! ```

mod blocks;
mod groups;
mod history;
mod journal;
mod layout;
mod state;
mod stored_inode;
mod type_name;

use extern4_disk::feature::Features;
use extern4_disk::superblock::Superblock;
pub use extern4_disk::superblock::{CreatorOs, ErrorPolicy};

use crate::error::Result;
use crate::volume::Volume;
pub use blocks::{BlockOwner, BlockOwners, is_block_used, read_block};
pub use groups::{Descriptor, GroupSummary, groups};
pub use history::{ErrorRecord, History};
pub use journal::{JournalContents, JournalInfo, JournalPlace};
pub use layout::{Checksums, InternalInodes, Layout, MultipleMount, Raid, Space};
pub use state::State;
pub use stored_inode::{FileKind, Inode, MapPiece, StoredInode, Timestamp, Use, inode};
pub use type_name::type_name;

/// The description of a volume as a whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The oldest type of file system that knows all of its features: ext2, ext3 or ext4.
    pub type_name: &'static str,
    /// The label, of any encoding.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The directory of the last mount.
    pub last_mounted: Vec<u8>,
    /// Whether it was unmounted, and what is left to do.
    pub state: State,
    /// The features.
    pub features: Features,
    /// The revision of the format: the major and the minor number.
    pub revision: (u32, u16),
    /// How a kernel reacts when it finds an error.
    pub error_policy: ErrorPolicy,
    /// The system that made the volume.
    pub creator_os: CreatorOs,
    /// The names of the default mount options.
    pub default_mount_options: Vec<&'static str>,
    /// Further mount options.
    pub mount_options: Vec<u8>,
    /// The encoding of names; `None` without the feature `casefold`.
    pub encoding: Option<Encoding>,
    /// Sizes and free space.
    pub space: Space,
    /// The layout of the structures.
    pub layout: Layout,
    /// Times, mounts, checks and errors.
    pub history: History,
    /// The journal.
    pub journal: JournalInfo,
}

/// An encoding of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The number of the encoding; 1 is UTF-8 as of Unicode 12.1.
    pub number: u16,
    /// Whether names that are not in the encoding are refused.
    pub is_strict: bool,
}

impl Encoding {
    /// The flag of an encoding that refuses other names.
    const STRICT: u16 = 1;

    fn of(superblock: &Superblock) -> Option<Self> {
        let (number, flags) = superblock.encoding()?;
        Some(Self {
            number,
            is_strict: flags & Self::STRICT != 0,
        })
    }
}

impl Info {
    /// Describes a volume as it was when it was opened, except for the free space.
    ///
    /// # Errors
    /// A device that fails, or damage that keeps the free space from being counted. A damaged
    /// journal is only left out.
    pub fn of(volume: &Volume) -> Result<Self> {
        let superblock = volume.ext4().superblock();
        Ok(Self {
            type_name: type_name(superblock.features()),
            label: superblock.label().to_vec(),
            uuid: superblock.uuid(),
            last_mounted: superblock.last_mounted().to_vec(),
            state: State::of(volume),
            features: superblock.features(),
            revision: superblock.revision(),
            error_policy: superblock.error_policy(),
            creator_os: superblock.creator_os(),
            default_mount_options: superblock.default_mount_options().names().collect(),
            mount_options: superblock.mount_options().to_vec(),
            encoding: Encoding::of(superblock),
            space: Space::of(superblock, &volume.stat_fs()?),
            layout: Layout::of(superblock),
            history: History::of(superblock),
            journal: JournalInfo::of(volume),
        })
    }
}
