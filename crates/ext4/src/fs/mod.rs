//! [`Ext4`]: an open file system.
//!
//! It holds the [`Volume`], which readers use, the [`Writer`] once the volume is open for writing,
//! and the options that it was opened with. `mount` makes it. `ops` implements the VFS traits for
//! it, and most functions of this crate take it as their first argument. Without a `Writer` nothing
//! on the volume can change: [`Ext4::writer`] returns `EROFS`, and every change starts there.
//!
//! The other files of this folder are what it holds: the writer, the accounts of quotas, a caller's
//! transaction, changes of fast commits, the guard of multiple mount protection, and options.

pub(crate) mod data_mode;
pub(crate) mod fast_commit;
pub(crate) mod inode;
pub(crate) mod mmp;
pub(crate) mod options;
pub(crate) mod quota_accounts;
pub(crate) mod transaction;
pub(crate) mod upgrade;
pub(crate) mod writer;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use extern4_disk::superblock::{ErrorPolicy, Superblock};
use extern4_jbd2::Replayed;
use extern4_sync::opener::Opener;
use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;
use extern4_vfs::Errno;

use crate::alloc::reserve::BlockReserve;
use crate::error::{Error, Result};
use crate::fs::fast_commit::FastCommits;
use crate::fs::mmp::MmpGuard;
use crate::fs::upgrade::Upgrade;
use crate::fs::writer::Writer;
use crate::inode::lazy_times::LazyTimes;
use crate::inode::name_map::NameMaps;
use crate::mbcache::sharing::SharingStats;
use crate::volume::Volume;
use crate::volume::loss::Losses;

/// An open ext2, ext3 or ext4 file system.
pub struct Ext4 {
    pub(crate) volume: Volume,
    /// The maps of names of all its directories.
    pub(crate) name_maps: NameMaps,
    pub(crate) fast_commits: FastCommits,
    pub(crate) replayed: Option<Replayed>,
    /// The journal was replayed although the primary superblock says that nothing is to be
    /// recovered.
    pub(crate) unannounced: bool,
    /// None while the volume is only read.
    pub(crate) writer: OnceLock<Writer>,
    /// Times that are stored later (`lazytime`); unset without that option.
    pub(crate) lazy_times: OnceLock<LazyTimes>,
    /// How a change reacts when it finds damage (`errors=`).
    pub(crate) error_policy: ErrorPolicy,
    /// New files get the group of their directory (`bsdgroups`).
    pub(crate) bsd_groups: bool,
    /// `statfs` counts the volume's own structures as blocks that files could have (`minixdf`).
    pub(crate) minix_df: bool,
    /// The user and the group that may use the reserved blocks, besides root (`resuid`, `resgid`).
    pub(crate) reserved_for: (u32, u32),
    pub(crate) block_reserve: BlockReserve,
    /// Changes beyond a quota's limit fail. Usage is counted in any case.
    pub(crate) enforces_limits: bool,
    /// ACLs are honoured (`acl`).
    pub(crate) has_acls: bool,
    /// Attributes of the namespace `user` can be used (`user_xattr`).
    pub(crate) has_user_attributes: bool,
    /// The largest size of a directory in blocks, if it is limited (`max_dir_size_kb`).
    pub(crate) max_dir_blocks: Option<u64>,
    /// A failed write of file data aborts the journal (`data_err=abort`).
    pub(crate) aborts_on_data_error: bool,
    /// Keeps other hosts from using the volume, if it has multiple mount protection.
    pub(crate) guard: OnceLock<MmpGuard>,
    /// How a volume that was opened for reading can be made writable; `None` for one that was
    /// opened for writing.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) opener: Opener,
    pub(crate) close_when_unused: bool,
    /// [`close`](Self::close) has been called.
    pub(crate) is_closed: AtomicBool,
    pub(crate) is_aborted: AtomicBool,
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

    /// Returns the writer for a new change; `EROFS` if the volume was opened for reading, or if
    /// damage has ended changes.
    pub(crate) fn changer(&self) -> Result<&Writer> {
        let writer = self.writer()?;
        // Relaxed: the volume is closed after its last change. Closing stores what is still in
        // memory.
        if writer.has_ended_changes() && !self.is_closed.load(Relaxed) {
            return Err(Error::Damaged(
                "damage has been found on the volume, and its setting for errors ends changes then"
                    .into(),
            ));
        }
        Ok(writer)
    }

    /// Returns the faults that were found so far and prevented nothing else: when the volume was
    /// opened, or made writable, and since then.
    pub fn warnings(&self) -> Vec<String> {
        self.volume.warnings.all()
    }

    /// Returns the current superblock.
    pub fn current_superblock(&self) -> Superblock {
        self.writer.get().map_or_else(
            || self.superblock().clone(),
            |writer| writer.superblock().clone(),
        )
    }

    /// Returns the current label.
    pub(crate) fn current_label(&self) -> Vec<u8> {
        match self.writer.get() {
            Some(writer) => writer.superblock().label().to_vec(),
            None => self.superblock().label().to_vec(),
        }
    }

    /// Returns statistics of transactions so far; `None` if the volume is not open for writing.
    pub fn journal_stats(&self) -> Option<extern4_jbd2::Stats> {
        self.writer.get().map(|writer| writer.transactions.stats())
    }

    /// Returns statistics of shared attributes so far; `None` if the volume is not open for
    /// writing.
    pub fn sharing_stats(&self) -> Option<SharingStats> {
        self.writer.get().map(|writer| writer.sharing.stats())
    }
}
