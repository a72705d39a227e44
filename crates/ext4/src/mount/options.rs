//! How to open a volume.

use std::sync::Arc;
use std::time::Duration;

use extern4_block::BlockDevice;
use extern4_disk::superblock::ErrorPolicy;

use crate::mount::data_mode::DataMode;
use crate::mount::loss::OnLoss;
use crate::volume::superblock::Backup;

/// The options of opening a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Use this backup superblock, and the copy of the group descriptors next to it; `None` for the
    /// primary one.
    pub superblock: Option<Backup>,
    /// How many bytes of metadata blocks to keep in memory at most.
    pub cache_bytes: usize,
    /// The device that holds the journal, for a volume that does not hold its own.
    pub journal_device: Option<Arc<dyn BlockDevice>>,
    /// Leave the journal aside (`noload`). A volume that is only read is read as its blocks stand,
    /// which may be half of a change. One that is opened for writing must need no recovery; it is
    /// then changed as one without a journal.
    pub ignore_journal: bool,
    /// Read the volume even while another host writes to it.
    pub shared: bool,
    /// How long times may be changed in memory only, where nothing else of an inode has changed
    /// (`lazytime`); Linux lets them be for 24 hours. The age is checked when more such times
    /// change. `None` stores them as everything else.
    pub lazy_times: Option<Duration>,
    /// The longest time that a change stays in memory only (`commit=`); Linux's 5 seconds if
    /// `None`.
    pub commit_interval: Option<Duration>,
    /// How a change reacts to damage that it meets, in place of what the volume says (`errors=`).
    pub errors: Option<ErrorPolicy>,
    /// How contents of files become durable, on a volume that is opened for writing (`data=`);
    /// `None` for what the superblock says.
    pub data: Option<DataMode>,
    /// New files take the group of their directory whatever its mode (`grpid`), or only if it has
    /// the set-group-id bit (`nogrpid`); `None` for what the superblock says.
    pub bsd_groups: Option<bool>,
    /// The volume's own structures count among its blocks (`minixdf`).
    pub minix_df: bool,
    /// The user who may use the blocks that are kept back, next to the superuser (`resuid=`);
    /// `None` for the user of the superblock.
    pub reserved_uid: Option<u32>,
    /// The group that may, 0 for none (`resgid=`); `None` for what the superblock says.
    pub reserved_gid: Option<u32>,
    /// Free clusters that are kept for metadata, from the superuser too, as Linux's
    /// `reserved_clusters` in sysfs; `None` for what Linux keeps: 2 % of a volume with extents,
    /// 4096 at most.
    pub reserved_clusters: Option<u64>,
    /// The usage of users, groups and projects is counted, but a change that exceeds a quota is not
    /// refused (`noquota`).
    pub ignore_limits: bool,
    /// Whether the device is told of blocks as soon as they are free for good (`discard`); `None`
    /// for what the superblock says. A device that fails at it is not told any more.
    pub discard: Option<bool>,
    /// Whether the journal has checksums (`journal_checksum`, `nojournal_checksum`). `None` for
    /// those that it has, and on a volume with checksums of metadata for checksums of version 3.
    pub journal_checksum: Option<bool>,
    /// ACLs count, are shown and can be set; without them (`noacl`) only permission bits count.
    pub acls: bool,
    /// Attributes of users are shown and can be set (`nouser_xattr` says that they are not).
    pub user_attributes: bool,
    /// Users and groups have 16 bits (`nouid32`): upper halves are not read, and ids that need them
    /// are stored as 65534.
    pub short_ids: bool,
    /// No directory grows beyond this many KiB (`max_dir_size_kb`); 0 for no such limit.
    pub max_dir_kib: u32,
    /// Contents of a file that the device cannot write end all changes, as damage does
    /// (`data_err=abort`); otherwise only the writer is told.
    pub abort_on_data_error: bool,
    /// Called with the reason when a change cannot be made durable. Either the device fails, or
    /// another host has taken a volume with multiple mount protection, or may have.
    pub on_loss: Option<OnLoss>,
    /// Whether the volume is closed when the last user has gone
    /// ([`FileSystem::end`](extern4_vfs::FileSystem::end)), unless it was closed before. Otherwise
    /// it is then left as after a crash.
    pub close_when_unused: bool,
    /// Finds attribute blocks in the place of the cache in production.
    #[cfg(feature = "lab")]
    pub block_cache: Option<Arc<dyn crate::BlockCache>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            superblock: None,
            cache_bytes: 64 << 20,
            journal_device: None,
            ignore_journal: false,
            shared: false,
            lazy_times: None,
            commit_interval: None,
            errors: None,
            data: None,
            bsd_groups: None,
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
            close_when_unused: false,
            #[cfg(feature = "lab")]
            block_cache: None,
        }
    }
}
