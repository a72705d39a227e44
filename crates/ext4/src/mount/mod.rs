//! Opens volumes for reading and writing, closes them, and makes a volume writable later.
//!
//! Opening reads the superblock, refuses unknown features by name (`features`), and asks the
//! journal whether it has to be replayed (`journal`). It reads nothing else: descriptors, inodes
//! and directories are read on demand. [`Ext4::open`] replays into memory and never writes to the
//! device. [`Ext4::open_for_writing`] claims the volume (`mmp`), replays the journal onto the
//! device, frees orphans and makes the [`Writer`]. After an error the volume is as before, or its
//! journal has been replayed. The library `extern4`, the checker and tests call these methods.

pub(crate) mod features;
pub mod journal;
pub(crate) mod remount;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use extern4_block::{BlockDevice, CountedDevice, SuccessiveDevice};
use extern4_disk::feature::Compat;
use extern4_disk::inode::{FileKind, ROOT_INO};
use extern4_disk::superblock::{DefaultMountOptions, JournalLocation, State, Superblock};
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_jbd2::Journal;
use extern4_sync::opener::Opener;
use extern4_sync::primitive::AtomicBool;
use extern4_sync::primitive::Ordering::Relaxed;

use crate::alloc::reserve::BlockReserve;
use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::fast_commit::FastCommits;
use crate::fs::mmp::{self, MmpGuard};
use crate::fs::options::OpenOptions;
use crate::fs::quota_accounts::Quotas;
use crate::fs::upgrade::Upgrade;
use crate::fs::writer::{Writer, WriterParts};
use crate::handle::times::store_all_times;
use crate::inode::lazy_times::LazyTimes;
use crate::inode::name_map::NameMaps;
use crate::mount::features::{check_features, check_needs_no_recovery, check_writable};
use crate::ops::orphan::{LeftoverOrphans, find_leftover_orphans, free_leftover_orphans};
use crate::volume::Volume;
use crate::volume::loss::{Losses, Warnings};
use crate::volume::superblock;
use crate::volume::system_zone::SystemZones;

/// The journal of a volume, on whatever device it is.
type VolumeJournal = Journal<Arc<dyn BlockDevice>>;

impl Ext4 {
    /// Opens the volume on `device` for reading.
    ///
    /// # Errors
    /// [`Error::NotExt`](crate::Error::NotExt) if there is no ext superblock,
    /// [`Error::Unsupported`](crate::Error::Unsupported) with its name for whatever cannot be read,
    /// a corrupt superblock, or a device that fails.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let fs = Self::assemble_upgradable(device, options)?;
        let unprotected = if options.shared {
            None
        } else {
            mmp::check(&fs)?
        };
        let fs = fs.through_journal(options)?;
        fs.warn_of_superblock();
        if let Some(corrupt) = unprotected {
            fs.warnings.report(format!(
                "{corrupt}; another host may be writing to the volume"
            ));
        }
        Ok(fs)
    }

    /// Warns of fields of the superblock that Linux or e2fsck refuse, and that readers do not need.
    fn warn_of_superblock(&self) {
        let sb = self.superblock();
        let geometry = self.superblock().geometry();
        let copy = (1..geometry.group_count()).find_map(|group| geometry.superblock_in(group));
        let by = copy.map_or_else(String::new, |block| {
            format!("; --superblock {block} reads by a copy of it")
        });
        for corrupt in sb.impossible(Place::new(Structure::Superblock)) {
            self.warnings.report(format!("{corrupt}{by}"));
        }
        if let Some(corrupt) = self.cut_off() {
            self.warnings
                .report(format!("{corrupt}; it is read as far as it goes"));
        }
    }

    /// Returns the volume as it is once its journal has been replayed in memory.
    fn through_journal(self, options: &OpenOptions) -> Result<Self> {
        let fs = self;
        if options.ignore_journal {
            return Ok(fs);
        }
        let Some(recovery) = journal::recover(&fs, options)? else {
            return Ok(fs);
        };
        let unannounced = options.superblock.is_none() && !fs.is_flagged();
        // The superblock and all else is read again through the replayed journal.
        let warnings = Arc::clone(&fs.warnings);
        let mut fs = Self::assemble_upgradable(recovery.device, options)?;
        fs.volume.warnings = warnings;
        fs.fast_commits = FastCommits::of(&fs, &recovery.fast_commits)?;
        fs.replayed = Some(recovery.replayed);
        fs.unannounced = unannounced;
        Ok(fs)
    }

    /// Opens the volume on `device` for reading and writing. [`close`](Self::close) ends that.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::Unsupported`](crate::Error::Unsupported) for a
    /// volume that can be read but not safely changed.
    pub fn open_for_writing(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let counted = Arc::new(CountedDevice::new(device));
        Self::assemble_writable(&(Arc::clone(&counted) as _), options)?.claim(counted, options)
    }

    /// Opens a volume for writing that an earlier step of this process has marked as not clean.
    pub(crate) fn open_again(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let counted = Arc::new(CountedDevice::new(device));
        Self::assemble(Arc::clone(&counted) as _, options)?.claim(counted, options)
    }

    /// Claims the assembled volume and opens it for writing.
    fn claim(self, counted: Arc<CountedDevice>, options: &OpenOptions) -> Result<Self> {
        let guard = MmpGuard::take(&self)?;
        let opened = self.recover(options).and_then(|(fs, journal)| {
            let left = find_leftover_orphans(&fs)?;
            fs.begin_writing(journal, counted, &left, options)?;
            Ok(fs)
        });
        match opened {
            Ok(fs) => {
                fs.keep_guard(guard);
                Ok(fs)
            }
            Err(error) => {
                if let Some(guard) = guard {
                    guard.release()?;
                }
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

    pub(crate) fn assemble_writable(
        device: &Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let fs = Self::assemble(Arc::clone(device), options)?;
        check_writable(fs.superblock(), options)?;
        let impossible = fs
            .superblock()
            .impossible(Place::new(Structure::Superblock))
            .into_iter()
            .next();
        match fs.cut_off().or(impossible) {
            Some(corrupt) => Err(corrupt.into()),
            None => Ok(fs),
        }
    }

    /// Replays the journal onto the device and empties it. Returns the volume as it is after that,
    /// and the journal if changes go through one.
    pub(crate) fn recover(self, options: &OpenOptions) -> Result<(Self, Option<VolumeJournal>)> {
        let mut fs = self;
        let mut journal = None;
        if options.ignore_journal {
            check_needs_no_recovery(fs.superblock())?;
        } else if let Some((emptied, replayed)) = journal::empty(&fs, options)? {
            journal = Some(emptied);
            if replayed.is_some() {
                // The replay may have changed blocks that were read before.
                let warnings = Arc::clone(&fs.warnings);
                fs = Self::assemble_writable(&fs.device, options)?;
                fs.volume.warnings = warnings;
                fs.replayed = replayed;
            }
        }
        fs.check_root()?;
        Ok((fs, journal))
    }

    /// Makes the writer, and frees the orphans of the volume's last use. Returns the orphans that
    /// were only truncated and still have names.
    pub(crate) fn begin_writing(
        &self,
        journal: Option<VolumeJournal>,
        counted: Arc<CountedDevice>,
        left: &LeftoverOrphans,
        options: &OpenOptions,
    ) -> Result<Vec<u32>> {
        for warning in left.warnings() {
            self.warnings.report(warning);
        }
        let quotas = Quotas::open(self)?;
        let zones = Arc::new(SystemZones::of(self)?);
        // The group of the root directory may be refused now.
        self.inode_position(ROOT_INO)?;
        self.check_journal(&zones)?;
        let parts = WriterParts {
            block_reserve: self.block_reserve,
            quotas,
            zones,
            losses: Arc::clone(&self.losses),
        };
        let _ = self
            .writer
            .set(Writer::open(self, parts, journal, counted, options)?);
        if self.current_superblock().state().contains(State::ERROR) {
            self.warnings.report(
                "errors are noted on this volume; fsck.extern4 or e2fsck checks it".to_owned(),
            );
        }
        let kept = free_leftover_orphans(self, left).inspect_err(|_| {
            // No thread uses the volume yet. If the error has aborted the journal, closing fails,
            // and the volume needs recovery.
            let _ = self.end_writing();
        })?;
        let writer = self.writer()?;
        if writer.allocator.has_faults() {
            // The end of the operation records them.
            self.with_handle(1, 0, |_| Ok(()))
                .inspect_err(|_| drop(self.end_writing()))?;
        }
        writer.note_opened();
        if let Some(most) = options.lazy_times {
            let _ = self.lazy_times.set(LazyTimes::new(most));
        }
        Ok(kept)
    }

    /// Refuses a journal that has blocks of the volume's other structures.
    fn check_journal(&self, zones: &SystemZones) -> Result<()> {
        let Some(JournalLocation::Inode(ino)) = self.superblock().journal() else {
            return Ok(());
        };
        let journal = self.load_inode(ino)?;
        let mut at = 0;
        let end = u64::from(journal.len_blocks(self)?);
        while let Some(logical) = u32::try_from(at).ok().filter(|_| at < end) {
            let run = journal.map(self, logical)?;
            if let Some(blocks) = run.mapped() {
                zones.check(&blocks)?;
            }
            at = run.end();
        }
        Ok(())
    }

    /// Keeps the guard for as long as the volume is open.
    pub(crate) fn keep_guard(&self, guard: Option<MmpGuard>) {
        let Some(guard) = guard else { return };
        let aborter = self
            .writer
            .get()
            .map(|writer| writer.transactions.aborter());
        guard.aborts(aborter, Arc::clone(&self.losses));
        let _ = self.guard.set(guard);
    }

    /// Returns the fault that the device is shorter than the volume, if it is.
    pub fn cut_off(&self) -> Option<Corrupt> {
        superblock::cut_off(&self.device, self.superblock())
    }

    /// Refuses a volume without a root directory, as Linux does.
    pub(crate) fn check_root(&self) -> Result<()> {
        let root = self
            .load_inode(ROOT_INO)
            .map_err(|error| error.in_part("the root directory"))?;
        if root.fields().kind() == FileKind::Directory && root.fields().links() > 0 {
            return Ok(());
        }
        let what = "there is no root directory";
        Err(Place::new(Structure::Inode)
            .ino(ROOT_INO)
            .corrupt(CorruptKind::Mismatch { what })
            .into())
    }

    /// Closes the volume: writes all changes in place and marks it clean. No inode or file of it
    /// may be in use.
    ///
    /// # Errors
    /// A device that fails; the volume then needs recovery. Damage that kept a removed file from
    /// being freed, after all else has been done, unless [`OpenOptions::on_warning`] was called
    /// with it.
    pub fn close(&self) -> Result<()> {
        // Relaxed: nothing is in use any more, and an upgrade reads it under its own lock.
        self.is_closed.store(true, Relaxed);
        self.upgrade.iter().for_each(Upgrade::wait);
        self.end_writing()
    }

    fn end_writing(&self) -> Result<()> {
        self.end_writing_with(Writer::close)
    }

    /// Closes the volume as [`close`](Self::close) does, and leaves it without a journal and not
    /// clean. It must not be used any more.
    pub(crate) fn close_without_journal(&self) -> Result<()> {
        self.end_writing_with(Writer::close_without_journal)
    }

    fn end_writing_with(&self, close: impl FnOnce(&Writer, &Volume) -> Result<()>) -> Result<()> {
        let stored = store_all_times(self);
        // The writer's error takes precedence: if the journal was aborted, it has the reason.
        if let Some(writer) = self.writer.get() {
            close(writer, self)?;
        }
        if let Some(guard) = self.guard.get() {
            guard.release()?;
        }
        stored?;
        match self.writer.get().and_then(Writer::unfreed) {
            Some(unfreed) => Err(unfreed),
            None => Ok(()),
        }
    }

    /// Whether a caller has shut the volume down
    /// ([`FileSystem::abort`](extern4_vfs::FileSystem::abort)).
    pub fn is_aborted(&self) -> bool {
        // Relaxed: see `FileSystem::abort` in `ops`.
        self.is_aborted.load(Relaxed)
    }

    /// Closes a volume whose last user has gone without closing it. Does nothing in a forked child,
    /// or if the journal was aborted.
    pub(crate) fn close_unused(&self) {
        let Some(writer) = self.writer.get().filter(|_| self.close_when_unused) else {
            return;
        };
        // Relaxed: as in `close`.
        if self.is_closed.load(Relaxed)
            || !self.opener.is_here()
            || writer.transactions.error().is_some()
        {
            return;
        }
        // The last user may have gone because of a panic.
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

    /// Makes the file system on `device` without regard to its journal.
    fn assemble(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let raw = superblock::read(&device, options.superblock)?;
        check_features(&raw)?;
        let superblock = Superblock::from_raw(raw, Place::new(Structure::Superblock))?;
        let superblock = superblock.with_short_ids(options.short_ids);
        let can_grow = superblock.features().compat.contains(Compat::RESIZE_INODE);
        let superblock = if options.block_validity || can_grow {
            superblock
        } else {
            superblock.with_no_reserved_gdt()
        };
        let geometry = superblock.geometry();
        let defaults = superblock.default_mount_options();
        let copy_in = options
            .superblock
            .map_or(0, |backup| backup.group(&superblock));
        Ok(Self {
            volume: Volume::new(
                device,
                superblock.clone(),
                copy_in,
                Arc::clone(&options.budget),
                Warnings::new(options.on_warning.clone()),
            )?,
            name_maps: NameMaps::new(&options.budget),
            fast_commits: FastCommits::default(),
            replayed: None,
            unannounced: false,
            writer: OnceLock::new(),
            lazy_times: OnceLock::new(),
            error_policy: options.errors.unwrap_or(superblock.error_policy()),
            bsd_groups: options
                .bsd_groups
                .unwrap_or(defaults.contains(DefaultMountOptions::BSDGROUPS)),
            minix_df: options.minix_df,
            reserved_for: (
                options.reserved_uid.unwrap_or(superblock.reserved_ids().0),
                options.reserved_gid.unwrap_or(superblock.reserved_ids().1),
            ),
            block_reserve: BlockReserve::of(&superblock, options.reserved_clusters),
            enforces_limits: !options.ignore_limits,
            has_acls: options.acls,
            has_user_attributes: options.user_attributes,
            max_dir_blocks: Some(options.max_dir_kib)
                .filter(|kib| *kib > 0)
                .map(|kib| (u64::from(kib) << 10).div_ceil(geometry.block_size().into())),
            aborts_on_data_error: options.abort_on_data_error,
            guard: OnceLock::new(),
            upgrade: None,
            losses: Losses::new(options.on_loss.clone()),
            opener: Opener::here(),
            close_when_unused: options.close_when_unused,
            is_closed: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
        })
    }
}
