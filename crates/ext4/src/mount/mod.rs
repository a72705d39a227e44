//! Opening a volume.
//!
//! Opening reads the superblock, refuses what cannot be read by name, and asks the journal whether it holds anything.
//! It looks at nothing else: descriptors, inodes and directories are read when they are needed. If the volume was not
//! cleanly unmounted, its journal is replayed into memory first and everything below is read through that; the device
//! itself is never written. Opening for writing replays the journal onto the device.

pub(crate) mod fast_commit;
pub mod journal;
pub(crate) mod loss;
pub(crate) mod mmp;
pub(crate) mod upgrade;
pub(crate) mod writer;

use extern4_sync::opener::Opener;
use extern4_sync::primitive::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extern4_block::{BlockDevice, BufferCache, CacheOptions, CountedDevice, SuccessiveDevice};
use extern4_disk::blocks::Blocks;
use extern4_disk::feature::{Feature, Features, Incompat};
use extern4_disk::indirect;
use extern4_disk::inode::{FileKind, ROOT_INO};
use extern4_disk::superblock::{DefaultMountOptions, ErrorPolicy, RawSuperblock, Superblock};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_jbd2::{Journal, Replayed};

use crate::alloc::balloc::Kept;
use crate::alloc::orphan::LeftOver;
use crate::error::{Result, Unsupported};
use crate::file::data_journal::DataMode;
use crate::inode::lazy_times::LazyTimes;
use crate::mount::fast_commit::FastCommits;
use crate::mount::loss::{Losses, OnLoss};
use crate::mount::mmp::Guard;
use crate::mount::upgrade::Upgrade;
use crate::mount::writer::{Writer, check_needs_no_recovery, check_writable};
use crate::tune::checksum_rewrite;
use crate::volume::group::{Groups, to_usize};
use crate::volume::superblock::{self, Backup};

/// The journal of a volume, on whatever device it is.
type VolumeJournal = Journal<Arc<dyn BlockDevice>>;

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Use this backup superblock, and the copy of the group descriptors beside it; `None` for the primary one.
    pub superblock: Option<Backup>,
    /// How many bytes of metadata blocks to keep in memory at most.
    pub cache_bytes: usize,
    /// The device that holds the journal, for a volume that does not hold its own.
    pub journal_device: Option<Arc<dyn BlockDevice>>,
    /// Leave the journal aside (`noload`). A volume that is only read is read as its blocks stand, which may be half of a
    /// change. One that is opened for writing must need no recovery; it is then changed as one without a journal.
    pub ignore_journal: bool,
    /// Read the volume even while another host writes to it.
    pub shared: bool,
    /// How long times may be changed in memory only, where nothing else of an inode has changed (`lazytime`); Linux lets them
    /// be for 24 hours. That is looked at when more such times change. `None` stores them as everything else.
    pub lazy_times: Option<Duration>,
    /// The longest time that a change stays in memory only (`commit=`); Linux's 5 seconds if `None`.
    pub commit_interval: Option<Duration>,
    /// What is done about damage that a change meets, in place of what the volume says (`errors=`).
    pub errors: Option<ErrorPolicy>,
    /// How contents of files become durable, on a volume that is opened for writing (`data=`); `None` for what the superblock says.
    pub data: Option<DataMode>,
    /// New files take the group of their directory whatever its mode (`grpid`), or only if it has the set-group-id bit (`nogrpid`);
    /// `None` for what the superblock says.
    pub bsd_groups: Option<bool>,
    /// The volume's own structures count among its blocks (`minixdf`).
    pub minix_df: bool,
    /// The user who may use the blocks that are kept back, beside the superuser (`resuid=`); `None` for who the superblock says.
    pub reserved_uid: Option<u32>,
    /// The group that may, 0 for none (`resgid=`); `None` for what the superblock says.
    pub reserved_gid: Option<u32>,
    /// Free clusters that are kept for metadata, from the superuser too, as Linux's
    /// `reserved_clusters` in sysfs; `None` for what Linux keeps: 2 % of a volume with extents,
    /// 4096 at most.
    pub reserved_clusters: Option<u64>,
    /// What users, groups and projects have is counted, but nobody is refused more than his quota (`noquota`).
    pub ignore_limits: bool,
    /// Whether the device is told of blocks as soon as they are free for good (`discard`); `None` for what the superblock says. A device that
    /// fails at it is not told any more.
    pub discard: Option<bool>,
    /// Whether the journal has checksums (`journal_checksum`, `nojournal_checksum`). `None` for those that it has, and on a
    /// volume with checksums of metadata for checksums of version 3.
    pub journal_checksum: Option<bool>,
    /// ACLs count, are shown and can be set; without them (`noacl`) only permission bits count.
    pub acls: bool,
    /// Attributes of users are shown and can be set (`nouser_xattr` says that they are not).
    pub user_attributes: bool,
    /// Users and groups have 16 bits (`nouid32`): upper halves are not read, and ids that need them are stored as 65534.
    pub short_ids: bool,
    /// No directory grows beyond this many KiB (`max_dir_size_kb`); 0 for no such limit.
    pub max_dir_kib: u32,
    /// Contents of a file that the device cannot write end all changes, as damage does (`data_err=abort`); otherwise
    /// only the writer is told.
    pub abort_on_data_error: bool,
    /// Told why, when a change cannot be made durable: the device fails, or another host has taken a volume with multiple mount
    /// protection, or may have.
    pub on_loss: Option<OnLoss>,
    /// Whether the volume is closed when the last user has gone ([`FileSystem::end`](extern4_vfs::FileSystem::end)), unless it was
    /// closed before. Otherwise it is then left as after a crash.
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

/// The features whose presence changes how a volume is read, and that this crate reads.
pub(crate) const READABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// The number of the one encoding of names that there is, UTF-8 as of Unicode 12.1.
const ENCODING_UTF8_12_1: u16 = 1;

/// An open ext2, ext3 or ext4 file system.
pub struct Ext4 {
    /// What file contents are read from: the device, or the device with its journal replayed over it.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cache: Arc<BufferCache>,
    superblock: Superblock,
    pub(crate) groups: Groups,
    blocks: Blocks,
    indirect: indirect::Map,
    pub(crate) read_ahead_windows: Windows,
    pub(crate) fast_commits: FastCommits,
    pub(crate) replayed: Option<Replayed>,
    /// The journal was replayed although the primary superblock says that nothing is to be recovered.
    pub(crate) unannounced: bool,
    /// None while the volume is only read.
    pub(crate) writer: OnceLock<Writer>,
    /// Times that are not stored at once, if that was asked for.
    pub(crate) lazy_times: OnceLock<LazyTimes>,
    /// What is done about damage that a change meets.
    pub(crate) error_policy: ErrorPolicy,
    /// New files take the group of their directory.
    pub(crate) bsd_groups: bool,
    /// Own structures are counted as blocks that files could have.
    pub(crate) minix_df: bool,
    /// The user and the group who may use the blocks that are kept back.
    pub(crate) reserved_for: (u32, u32),
    pub(crate) kept: Kept,
    /// Nobody has more than his quota.
    pub(crate) heeds_limits: bool,
    /// ACLs count.
    pub(crate) has_acls: bool,
    /// Users may have attributes.
    pub(crate) has_user_attributes: bool,
    /// The largest size of a directory, if it is limited, in blocks.
    pub(crate) max_dir_blocks: Option<u64>,
    /// Contents that cannot be written end all changes.
    pub(crate) aborts_on_data_error: bool,
    /// Keeps other hosts from it.
    pub(crate) guard: OnceLock<Guard>,
    warnings: OnceLock<Vec<String>>,
    /// How a volume that was opened for reading can be made writable; `None` for one that was opened
    /// for writing.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) opener: Opener,
    close_when_unused: bool,
    /// [`close`](Self::close) has been called.
    pub(crate) is_closed: AtomicBool,
    pub(crate) is_halted: AtomicBool,
}

impl Ext4 {
    /// Opens the volume on `device` for reading.
    ///
    /// # Errors
    /// [`Error::NotExt`](crate::Error::NotExt) if there is no ext superblock, [`Unsupported`] with its name for
    /// whatever cannot be read, a corrupt superblock, or a device that fails.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::assemble_upgradable(device, options)?;
        if !options.shared {
            mmp::check(&fs)?;
        }
        if options.ignore_journal {
            return Ok(fs);
        }
        let Some(recovery) = journal::recover(&fs, options)? else { return Ok(fs) };
        let unannounced = options.superblock.is_none() && !fs.is_flagged();
        // Everything is read again through the replayed journal, the superblock first.
        let mut fs = Self::assemble_upgradable(recovery.device, options)?;
        fs.fast_commits = FastCommits::of(&fs, &recovery.fast_commits)?;
        fs.replayed = Some(recovery.replayed);
        fs.unannounced = unannounced;
        Ok(fs)
    }

    /// Opens the volume on `device` for reading and writing. [`close`](Self::close) ends that.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Unsupported`] for what can be read but not safely changed.
    pub fn open_for_writing(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let counted = Arc::new(CountedDevice::new(device));
        let fs = Self::assemble_writable(&(Arc::clone(&counted) as _), options)?;
        let guard = Guard::take(&fs)?;
        let opened = fs.recover(options).and_then(|(fs, journal)| {
            let left = fs.find_left_over()?;
            fs.begin_writing(journal, counted, &left, options)?;
            Ok(fs)
        });
        match opened {
            Ok(fs) => {
                fs.keep_guard(guard);
                Ok(fs)
            }
            Err(error) => {
                guard.map_or(Ok(()), |guard| guard.release())?;
                Err(error)
            }
        }
    }

    /// Assembles a volume that is read now and may be made writable later.
    fn assemble_upgradable(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let device = Arc::new(SuccessiveDevice::new(device));
        let mut fs = Self::assemble(Arc::clone(&device) as _, options)?;
        fs.upgrade = Some(Upgrade::new(device));
        Ok(fs)
    }

    pub(crate) fn assemble_writable(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::assemble(Arc::clone(device), options)?;
        check_writable(&fs.superblock, options)?;
        match fs.superblock.impossible(Place::new(Structure::Superblock)).into_iter().next() {
            Some(corrupt) => Err(corrupt.into()),
            None => Ok(fs),
        }
    }

    /// Replays the journal onto the device and empties it. Returns the volume as it stands then, and
    /// the journal if there is one to be used.
    pub(crate) fn recover(self, options: &OpenOptions) -> Result<(Self, Option<VolumeJournal>)> {
        let (mut fs, mut journal) = (self, None);
        if options.ignore_journal {
            check_needs_no_recovery(&fs.superblock)?;
        } else if let Some((emptied, replayed)) = journal::empty(&fs, options)? {
            journal = Some(emptied);
            if replayed.is_some() {
                // What stands on the device now is not what was read before.
                fs = Self::assemble_writable(&fs.device, options)?;
                fs.replayed = replayed;
            }
        }
        fs.check_root()?;
        Ok((fs, journal))
    }

    /// Makes the volume one that can be changed, and frees the orphans that it was left with.
    /// Returns the inodes among these that are still in use.
    pub(crate) fn begin_writing(
        &self,
        journal: Option<VolumeJournal>,
        counted: Arc<CountedDevice>,
        left: &LeftOver,
        options: &OpenOptions,
    ) -> Result<Vec<u32>> {
        let warning = |fault| format!("{fault}; orphans behind it stay allocated until e2fsck frees them");
        let _ = self.warnings.set(left.faults.iter().map(warning).collect());
        let _ = self.writer.set(Writer::open(self, journal, counted, options)?);
        let kept = self.free_left_over(left).inspect_err(|_| {
            // What has been freed is; and no thread uses the volume, unless it was given up, which
            // cannot be closed.
            let _ = self.end_writing();
        })?;
        if let Some(most) = options.lazy_times {
            let _ = self.lazy_times.set(LazyTimes::new(most));
        }
        Ok(kept)
    }

    /// Has a guard keep other hosts away for as long as the volume is open.
    pub(crate) fn keep_guard(&self, guard: Option<Guard>) {
        let Some(guard) = guard else { return };
        let aborter = self.writer.get().map(|writer| writer.transactions.aborter());
        guard.aborts(aborter, Arc::clone(&self.losses));
        let _ = self.guard.set(guard);
    }

    /// Refuses a volume without a root directory, as Linux does.
    pub(crate) fn check_root(&self) -> Result<()> {
        let root = self.load_inode(ROOT_INO).map_err(|error| error.in_part("the root directory"))?;
        if root.fields().kind() == FileKind::Directory && root.fields().links() > 0 {
            return Ok(());
        }
        let what = "there is no root directory";
        Err(Place::new(Structure::Inode).ino(ROOT_INO).corrupt(CorruptKind::Mismatch { what }).into())
    }

    /// Ends writing: everything is written to where it belongs, and the volume is clean. Nothing may be in use any more.
    ///
    /// # Errors
    /// A device that fails; the volume then needs recovery. Damage that kept a removed file from
    /// being freed, after all else has been done.
    pub fn close(&self) -> Result<()> {
        // Relaxed: nothing is in use any more; an upgrade looks at it under its own lock.
        self.is_closed.store(true, Relaxed);
        self.upgrade.iter().for_each(Upgrade::wait);
        self.end_writing()
    }

    fn end_writing(&self) -> Result<()> {
        let stored = self.store_all_times();
        // Its error comes first: if nothing can be changed any more, it is the reason.
        self.writer.get().map_or(Ok(()), |writer| writer.close(self))?;
        self.guard.get().map_or(Ok(()), Guard::release)?;
        stored?;
        self.writer.get().and_then(Writer::unfreed).map_or(Ok(()), Err)
    }

    /// Whether all changes were ended because a caller asked for that ([`FileSystem::halt`](extern4_vfs::FileSystem::halt)).
    pub fn is_halted(&self) -> bool {
        // Relaxed: see there.
        self.is_halted.load(Relaxed)
    }

    /// Closes the volume for users that have gone without doing so. Does nothing in a forked child, or if nothing can be changed any more.
    pub(crate) fn close_unused(&self) {
        let Some(writer) = self.writer.get().filter(|_| self.close_when_unused) else { return };
        // Relaxed: as in `close`.
        if self.is_closed.load(Relaxed) || !self.opener.is_here() || writer.transactions.error().is_some() {
            return;
        }
        // The last user may be going because of a panic.
        let closed = catch_unwind(AssertUnwindSafe(|| self.close()));
        let why = match closed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a fault in the program".to_owned(),
        };
        if !self.losses.any() {
            self.losses.report(why);
        }
    }

    /// The file system that the blocks of `device` hold, whatever is in its journal.
    fn assemble(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let raw = superblock::read(&device, options.superblock)?;
        check_features(&raw)?;
        let superblock = Superblock::from_raw(raw, Place::new(Structure::Superblock))?;
        let superblock = superblock.with_short_ids(options.short_ids);
        superblock::check_size(&device, &superblock)?;
        let (geometry, defaults) = (superblock.geometry(), superblock.default_mount_options());
        let cache = CacheOptions {
            block_size: geometry.block_size(),
            block_count: geometry.blocks_count(),
            memory_bytes: options.cache_bytes,
        };
        Ok(Self {
            cache: Arc::new(BufferCache::new(Arc::clone(&device), cache)?),
            device,
            groups: Groups::new(
                &superblock,
                options.superblock.map_or(0, |backup| backup.group(&superblock)),
            ),
            blocks: Blocks { first: geometry.table_end(), end: geometry.blocks_count() },
            // OK: the geometry has checked the block size.
            indirect: indirect::Map::new(geometry.block_size()).expect("a block size of the format"),
            read_ahead_windows: Windows::new(geometry.blocks_count()),
            fast_commits: FastCommits::default(),
            replayed: None,
            unannounced: false,
            writer: OnceLock::new(),
            lazy_times: OnceLock::new(),
            error_policy: options.errors.unwrap_or(superblock.error_policy()),
            bsd_groups: options.bsd_groups.unwrap_or(defaults.contains(DefaultMountOptions::BSDGROUPS)),
            minix_df: options.minix_df,
            reserved_for: (
                options.reserved_uid.unwrap_or(superblock.reserved_uid()),
                options.reserved_gid.unwrap_or(superblock.reserved_gid()),
            ),
            kept: superblock::kept_blocks(&superblock, options.reserved_clusters),
            heeds_limits: !options.ignore_limits,
            has_acls: options.acls,
            has_user_attributes: options.user_attributes,
            max_dir_blocks: Some(options.max_dir_kib)
                .filter(|kib| *kib > 0)
                .map(|kib| (u64::from(kib) << 10).div_ceil(geometry.block_size().into())),
            aborts_on_data_error: options.abort_on_data_error,
            guard: OnceLock::new(),
            warnings: OnceLock::new(),
            upgrade: None,
            losses: Losses::new(options.on_loss.clone()),
            opener: Opener::here(),
            close_when_unused: options.close_when_unused,
            is_closed: AtomicBool::new(false),
            is_halted: AtomicBool::new(false),
            superblock,
        })
    }

    /// Returns faults that were found when the volume was opened for writing, or made writable, and
    /// did not keep it from that.
    pub fn warnings(&self) -> &[String] {
        self.warnings.get().map_or(&[], |warnings| warnings)
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The blocks that files may own.
    pub(crate) fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// The arithmetic of indirect blocks.
    pub(crate) fn indirect_map(&self) -> indirect::Map {
        self.indirect
    }

    /// The buffer cache, for experts: its counters, and blocks as they stand.
    pub fn cache(&self) -> &BufferCache {
        &self.cache
    }
}

/// Refuses, by name, what this crate cannot read.
fn check_features(raw: &RawSuperblock) -> Result<(), Unsupported> {
    let features = raw.features();
    if raw.s_rev_level.get() > 1 {
        return Err(Unsupported::Revision(raw.s_rev_level.get()));
    }
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(Unsupported::JournalDevice);
    }
    if checksum_rewrite::is_rewriting(raw) {
        return Err(Unsupported::Interrupted);
    }
    let unknown: Vec<Feature> =
        Features { incompat: features.incompat.difference(READABLE), ..Features::default() }.iter().collect();
    if !unknown.is_empty() {
        return Err(Unsupported::Features(unknown));
    }
    let encoding = raw.s_encoding.get();
    if features.incompat.contains(Incompat::CASEFOLD) && encoding != ENCODING_UTF8_12_1 {
        return Err(Unsupported::Encoding(encoding));
    }
    Ok(())
}

/// Which parts of the inode tables have been fetched ahead: a bit for each run of blocks, set once.
pub(crate) struct Windows(Box<[AtomicU64]>);

impl Windows {
    /// At most this many bits: volumes with more windows share them, and fetch ahead a little less.
    const MAX: u64 = 1 << 20;

    fn new(windows: u64) -> Self {
        let words = windows.min(Self::MAX).div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether nobody has come to `window` before.
    pub(crate) fn first_visit(&self, window: u64) -> bool {
        let bit = window % (self.0.len() as u64 * 64);
        // OK: less than the number of bits there are, which is below 2^20.
        let (word, mask) = (&self.0[to_usize((bit / 64) as u32)], 1 << (bit % 64));
        // Relaxed: the bit only saves work, it guards nothing.
        word.load(Relaxed) & mask == 0 && word.fetch_or(mask, Relaxed) & mask == 0
    }
}
