//! [`OpenOptions`]: how to open a volume, by the names and defaults of Linux's mount options.
//!
//! Callers are the library `extern4`, the command's `mount` with its table of option names, and
//! tests. `mount` reads them once, at the open or at an upgrade to writing. The defaults are
//! Linux's on a volume that does not set its own.

use std::sync::Arc;
use std::time::Duration;

use extern4_block::{BlockDevice, CacheBudget};
use extern4_disk::superblock::ErrorPolicy;

use crate::fs::data_mode::DataMode;
use crate::volume::loss::Listener;
use crate::volume::superblock::Backup;

/// The options for opening a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Use this backup superblock, and the copy of the group descriptors next to it; `None` for the
    /// primary one.
    pub superblock: Option<Backup>,
    /// The memory for metadata blocks, which other caches may share.
    pub budget: Arc<CacheBudget>,
    /// The device that holds the journal, for a volume with an external one.
    pub journal_device: Option<Arc<dyn BlockDevice>>,
    /// Ignore the journal (`noload`). A volume that is only read is read as its blocks are, which
    /// may be in the middle of a change. A volume that is opened for writing must need no recovery,
    /// and is then changed without a journal.
    pub ignore_journal: bool,
    /// Read the volume even while another host writes to it.
    pub shared: bool,
    /// How long changes of times alone may stay in memory only (`lazytime`); Linux's limit is 24
    /// hours. The age is checked when more times change. `None` stores times like other changes.
    pub lazy_times: Option<Duration>,
    /// The longest time that a change stays in memory only (`commit=`). `None` means
    /// [`DEFAULT_COMMIT_INTERVAL`](crate::DEFAULT_COMMIT_INTERVAL), as on Linux.
    pub commit_interval: Option<Duration>,
    /// The reaction to damage that a change has found (`errors=`); `None` for the superblock's
    /// setting. `handle` has the rules.
    pub errors: Option<ErrorPolicy>,
    /// How contents of files become durable, on a volume that is opened for writing (`data=`);
    /// `None` for the superblock's setting.
    pub data: Option<DataMode>,
    /// New files always get the group of their directory (`grpid`), or only if it has the
    /// set-group-id bit (`nogrpid`); `None` for the superblock's setting.
    pub bsd_groups: Option<bool>,
    /// A superblock that keeps blocks for a larger table of descriptors, on a volume without the
    /// feature `resize_inode`, is damage for a writer (`block_validity`). With `noblock_validity`
    /// files may have these blocks, as in Linux. All other blocks of the volume's own structures
    /// are kept from files in either case.
    pub block_validity: bool,
    /// `statfs` counts the volume's own structures among its blocks (`minixdf`).
    pub minix_df: bool,
    /// The user that may use the reserved blocks, besides the superuser (`resuid=`); `None` for the
    /// user of the superblock.
    pub reserved_uid: Option<u32>,
    /// The group that may use the reserved blocks, 0 for none (`resgid=`); `None` for the group of
    /// the superblock.
    pub reserved_gid: Option<u32>,
    /// Free clusters that are reserved for metadata, so that not even the superuser gets them, like
    /// Linux's `reserved_clusters` in sysfs. `None` for Linux's number: 2 % of a volume with
    /// extents, 4096 at most.
    pub reserved_clusters: Option<u64>,
    /// The usage of users, groups and projects is counted, but a change that exceeds a quota is not
    /// refused (`noquota`).
    pub ignore_limits: bool,
    /// Whether freed blocks are discarded when their transaction is durable (`discard`); `None` for
    /// the superblock's setting. After a discard has failed, none follows.
    pub discard: Option<bool>,
    /// Whether the journal has checksums (`journal_checksum`, `nojournal_checksum`). `None` keeps
    /// the checksums that it has, and means version 3 on a volume with checksums of metadata.
    pub journal_checksum: Option<bool>,
    /// ACLs are honoured, shown and can be set (`acl`); with `noacl` only permission bits count.
    pub acls: bool,
    /// Attributes of the namespace `user` are shown and can be set (`user_xattr`).
    pub user_attributes: bool,
    /// Ids of users and groups have 16 bits (`nouid32`): upper halves are not read, and larger ids
    /// are stored as 65534.
    pub short_ids: bool,
    /// No directory grows beyond this many KiB (`max_dir_size_kb`); 0 for no such limit.
    pub max_dir_kib: u32,
    /// A failed write of file contents aborts the journal, as damage does (`data_err=abort`);
    /// otherwise only the writer gets the error.
    pub abort_on_data_error: bool,
    /// Called with the reason when changes cannot be made durable: the device fails, or another
    /// host has taken a volume with multiple mount protection, or may have.
    pub on_loss: Option<Listener>,
    /// Called with each fault that the volume meets and passes over, such as a damaged group of
    /// blocks. [`Ext4::warnings`](crate::Ext4::warnings) has the same texts.
    pub on_warning: Option<Listener>,
    /// Whether the volume is closed when its last user has gone
    /// ([`FileSystem::end`](extern4_vfs::FileSystem::end)) without a call of `close`. Otherwise it
    /// is left as after a crash.
    pub close_when_unused: bool,
    /// The cache of attribute blocks, in place of the usual one.
    #[cfg(feature = "lab")]
    pub block_cache: Option<Arc<dyn crate::BlockCache>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            superblock: None,
            budget: CacheBudget::of_process(),
            journal_device: None,
            ignore_journal: false,
            shared: false,
            lazy_times: None,
            commit_interval: None,
            errors: None,
            data: None,
            bsd_groups: None,
            block_validity: true,
            minix_df: false,
            reserved_uid: None,
            reserved_gid: None,
            reserved_clusters: None,
            ignore_limits: false,
            discard: None,
            journal_checksum: None,
            acls: true,
            user_attributes: true,
            short_ids: false,
            max_dir_kib: 0,
            abort_on_data_error: false,
            on_loss: None,
            on_warning: None,
            close_when_unused: false,
            #[cfg(feature = "lab")]
            block_cache: None,
        }
    }
}
