//! An open file system: the volume, what its changes share, and how it was opened.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use extern4_disk::superblock::{ErrorPolicy, Superblock};
use extern4_jbd2::Replayed;
use extern4_sync::opener::Opener;
use extern4_sync::primitive::AtomicBool;
use extern4_vfs::Errno;

use crate::alloc::block_allocator::BlockReserve;
use crate::error::Result;
use crate::inode::lazy_times::LazyTimes;
use crate::mount::fast_commit::FastCommits;
use crate::mount::loss::Losses;
use crate::mount::mmp::MmpGuard;
use crate::mount::upgrade::Upgrade;
use crate::mount::writer::Writer;
use crate::volume::Volume;
use crate::xattr::sharing::SharingStats;

/// An open ext2, ext3 or ext4 file system.
pub struct Ext4 {
    pub(crate) volume: Volume,
    pub(crate) fast_commits: FastCommits,
    pub(crate) replayed: Option<Replayed>,
    /// The journal was replayed although the primary superblock says that nothing is to be
    /// recovered.
    pub(crate) unannounced: bool,
    /// None while the volume is only read.
    pub(crate) writer: OnceLock<Writer>,
    /// Times that are not stored at once, if that was asked for.
    pub(crate) lazy_times: OnceLock<LazyTimes>,
    /// How a change reacts to damage that it meets.
    pub(crate) error_policy: ErrorPolicy,
    /// New files take the group of their directory.
    pub(crate) bsd_groups: bool,
    /// Own structures are counted as blocks that files could have.
    pub(crate) minix_df: bool,
    /// The user and the group who may use the blocks that are kept back.
    pub(crate) reserved_for: (u32, u32),
    pub(crate) block_reserve: BlockReserve,
    /// Users, groups and projects are held to their quotas.
    pub(crate) enforces_limits: bool,
    /// ACLs count.
    pub(crate) has_acls: bool,
    /// Users may have attributes.
    pub(crate) has_user_attributes: bool,
    /// The largest size of a directory, if it is limited, in blocks.
    pub(crate) max_dir_blocks: Option<u64>,
    /// Contents that cannot be written end all changes.
    pub(crate) aborts_on_data_error: bool,
    /// Keeps other hosts from it.
    pub(crate) guard: OnceLock<MmpGuard>,
    pub(crate) warnings: OnceLock<Vec<String>>,
    /// How a volume that was opened for reading can be made writable; `None` for one that was
    /// opened for writing.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) opener: Opener,
    pub(crate) close_when_unused: bool,
    /// [`close`](Self::close) has been called.
    pub(crate) is_closed: AtomicBool,
    pub(crate) is_halted: AtomicBool,
}

impl Deref for Ext4 {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.volume
    }
}

impl Ext4 {
    /// Returns the writer, through which all changes of the volume go; `EROFS` if it was opened for
    /// reading.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.get().ok_or_else(|| Errno::EROFS.into())
    }

    /// Returns faults that were found when the volume was opened for writing, or made writable, and
    /// did not keep it from that.
    pub fn warnings(&self) -> &[String] {
        self.warnings.get().map_or(&[], |warnings| warnings)
    }

    /// Returns the superblock as it stands now.
    pub fn current_superblock(&self) -> Superblock {
        self.writer.get().map_or_else(|| self.superblock().clone(), |writer| writer.superblock().clone())
    }

    /// Returns the label as it stands now.
    pub(crate) fn current_label(&self) -> Vec<u8> {
        match self.writer.get() {
            Some(writer) => writer.superblock().label().to_vec(),
            None => self.superblock().label().to_vec(),
        }
    }

    /// Returns the cost of transactions so far; `None` if the volume is not open for writing.
    pub fn journal_stats(&self) -> Option<extern4_jbd2::Stats> {
        self.writer.get().map(|writer| writer.transactions.stats())
    }

    /// Returns how much sharing attributes have done so far; `None` if the volume is not open for
    /// writing.
    pub fn sharing_stats(&self) -> Option<SharingStats> {
        self.writer.get().map(|writer| writer.sharing.stats())
    }
}
