//! An open volume, and the options to open one: the entry to the library.
//!
//! A program opens an image, a block special file or its own device through [`Volume::open`]
//! or [`VolumeOptions`]. A [`Session`] of the volume then reads and changes files. This module
//! finds the partition, opens the external journal, connects the ext4 layer to the VFS, and
//! explains why a volume does not open.
//!
//! A volume opened for reading is never written. One opened for writing is locked against other
//! programs, and [`Volume::close`] or the last drop writes every change. The command and the `fuse`
//! mount open volumes through it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extern4_block as block;
use extern4_block::partition::{Partition, Table};
use extern4_block::{BlockDevice, CacheBudget, FileDevice, FileOptions, SliceDevice};
use extern4_ext4::tune::Tune;
use extern4_ext4::{Backup, DataMode, ErrorPolicy, Ext4, Listener, Unsupported};
use extern4_vfs as vfs;
use vfs::{Atime, Cred, Errno, Namespace, StatFs, SuperBlock, SuperOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::part::Part;
use crate::session::Session;
use crate::source::Source;

/// With this many inodes in memory, freeing them takes longer than beginning a commit.
const MANY_INODES: usize = 4096;

/// An open ext2, ext3 or ext4 volume. Cheap to clone; every clone is the same volume, with the same
/// caches.
///
/// # Dropping
/// A handle is a volume, a [`Session`], a [`File`](crate::File) or a directory listing. When the
/// last handle is dropped, a volume that is open for writing is [closed](Volume::close): every
/// change is written and synced. A drop cannot return an error; it reports a failure to
/// [`on_loss`](VolumeOptions::on_loss).
///
/// A drop writes nothing in a child made by `fork(2)`, after [`shut_down`](Volume::shut_down), or
/// after an error that ended all changes. A drop during a panic writes and does not panic again.
///
/// # Forks
/// A child made by the C library's `fork` may open other volumes. With the volumes of its parent it
/// may do nothing but drop handles: every other call may wait for ever for a lock that another
/// thread of the parent held. If another thread was using such a volume, the volume's memory stays
/// allocated in the child.
///
/// ```
/// use extern4::Volume;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     let image = dir.path().join("disk.img");
///     Volume::create_new(&image, 16 << 20)?.close()?;
///
///     let volume = Volume::open(&image)?;
///     println!("{:?}", volume.stat_fs()?);
///     for entry in volume.superuser().read_dir("/")? {
///         println!("{}", entry?.path().display()); // /lost+found
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Volume {
    ext4: Arc<Ext4>,
    namespace: Arc<Namespace>,
    bytes: Option<Range<u64>>,
    image_offset: Option<u64>,
    source: Arc<Source>,
}

/// The longest time for which Linux keeps timestamps in memory only.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counters of a volume.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Names, inodes and search checks.
    pub names: vfs::CacheStats,
    /// Open files: their number, and where they were closed.
    pub files: vfs::OpenFileStats,
    /// The cache of metadata blocks.
    pub blocks: extern4_block::CacheStats,
    /// Transactions and their cost; `None` if the volume is not open for writing.
    pub journal: Option<extern4_ext4::JournalStats>,
    /// Attribute blocks and large values that inodes share; `None` if the volume is not open for
    /// writing.
    pub sharing: Option<extern4_ext4::SharingStats>,
}

/// The options with which to open a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    atime: Option<Atime>,
    dir_atime: Option<bool>,
    partition: Option<u32>,
    offset_bytes: u64,
    write: bool,
    pub(crate) shared: bool,
    claimed: bool,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) ext4: extern4_ext4::OpenOptions,
}

impl VolumeOptions {
    /// Opens partition `number` of the image's MBR or GPT partition table, counted from 1 as Linux
    /// does.
    pub fn partition(&mut self, number: u32) -> &mut Self {
        self.partition = Some(number);
        self
    }

    /// Sets the start of the volume, or of the partition table, to `bytes` into the image.
    pub fn offset(&mut self, bytes: u64) -> &mut Self {
        self.offset_bytes = bytes;
        self
    }

    /// Sets which part of the image the volume fills.
    pub fn part(&mut self, part: Part) -> &mut Self {
        match part {
            Part::Whole => self,
            Part::Partition(number) => self.partition(number),
            Part::Offset(bytes) => self.offset(bytes),
        }
    }

    /// Sets all options of the ext4 layer, in place of the options that earlier calls have set.
    pub fn ext4(&mut self, options: extern4_ext4::OpenOptions) -> &mut Self {
        self.shared = options.shared;
        self.ext4 = options;
        self
    }

    /// Sets the memory for the names, inodes and metadata blocks that the volume caches. Names and
    /// blocks in use count, but stay beyond it. By default, all volumes of the process share an
    /// eighth of the memory of the machine, or of its control group.
    pub fn cache_size(&mut self, bytes: u64) -> &mut Self {
        self.ext4.budget = CacheBudget::new(bytes);
        self
    }

    /// Reads the volume by a backup superblock. `backup` gives its place: a block number, as for
    /// `e2fsck -b`, or an offset in KiB, as for the mount option `sb=`. The volume is then not
    /// opened for writing.
    pub fn superblock(&mut self, backup: impl Into<Backup>) -> &mut Self {
        self.ext4.superblock = Some(backup.into());
        self
    }

    /// Opens the volume for writing, too. No other program may have it open then, nor may the
    /// kernel. Where the volume has multiple mount protection, no other host may have it open
    /// either; after an unclean end, that check takes some seconds. [`Volume::close`] ends the
    /// exclusive use.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Sets when a read of a file changes its access time, on a volume that is open for writing;
    /// [`Atime::Relative`] by default.
    pub fn atime(&mut self, atime: Atime) -> &mut Self {
        self.atime = Some(atime);
        self
    }

    /// Sets whether a read of a directory changes its access time, as a read of a file does; true
    /// by default.
    pub fn dir_atime(&mut self, dir_atime: bool) -> &mut Self {
        self.dir_atime = Some(dir_atime);
        self
    }

    /// Keeps changes of timestamps alone in memory, as Linux does with `lazytime`. Such a change
    /// comes from a read, or from a write over existing data. The volume writes it when the file
    /// changes otherwise, when the file or the volume is synced, or after a day. A crash loses it.
    pub fn lazytime(&mut self, lazytime: bool) -> &mut Self {
        self.ext4.lazy_times = lazytime.then_some(DAY);
        self
    }

    /// Sets the longest time that a change stays in memory only; a slow device may need longer. A
    /// transaction commits this long after its first change. The default is
    /// [`DEFAULT_COMMIT_INTERVAL`](crate::DEFAULT_COMMIT_INTERVAL).
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.ext4.commit_interval = Some(interval);
        self
    }

    /// Sets the reaction to damage that a change finds, overriding the volume's own setting. With
    /// [`RemountReadOnly`](ErrorPolicy::RemountReadOnly) later changes fail with `EROFS`, and what
    /// was changed before still becomes durable. [`Panic`](ErrorPolicy::Panic) acts like that, too.
    ///
    /// A change that meets damage half way ends all changes whatever the setting: nothing since the
    /// last commit becomes durable.
    pub fn errors(&mut self, errors: ErrorPolicy) -> &mut Self {
        self.ext4.errors = Some(errors);
        self
    }

    /// Sets how file contents become durable, overriding the volume's own setting (`data=`).
    /// [`DataMode::Journal`] is refused on a volume without a journal.
    pub fn data(&mut self, data: DataMode) -> &mut Self {
        self.ext4.data = Some(data);
        self
    }

    /// Sets whether new files take the group of their directory whatever its mode, overriding the
    /// volume's own setting (`grpid`).
    pub fn bsd_groups(&mut self, bsd_groups: bool) -> &mut Self {
        self.ext4.bsd_groups = Some(bsd_groups);
        self
    }

    /// Sets whether the volume's own structures count among its blocks in [`Volume::stat_fs`]
    /// (`minixdf`); false by default.
    pub fn minix_df(&mut self, minix_df: bool) -> &mut Self {
        self.ext4.minix_df = minix_df;
        self
    }

    /// Sets the user and the group that may use reserved blocks, as the superuser may; 0 for no
    /// group. They override the volume's own setting (`resuid=`, `resgid=`).
    pub fn reserved_for(&mut self, uid: Option<u32>, gid: Option<u32>) -> &mut Self {
        (self.ext4.reserved_uid, self.ext4.reserved_gid) = (uid, gid);
        self
    }

    /// Ignores the journal (`noload`). A read may then find half of a change. A volume opened for
    /// [writing](Self::write) must need no recovery, and changes go to it as to one without a
    /// journal.
    pub fn ignore_journal(&mut self, ignore: bool) -> &mut Self {
        self.ext4.ignore_journal = ignore;
        self
    }

    /// Sets whether quotas only count and their limits refuse nothing (`noquota`); false by
    /// default.
    pub fn ignore_limits(&mut self, ignore: bool) -> &mut Self {
        self.ext4.ignore_limits = ignore;
        self
    }

    /// Sets whether the journal has checksums, for a volume that is opened for writing. This
    /// overrides the volume's own setting (`journal_checksum`, `nojournal_checksum`).
    pub fn journal_checksum(&mut self, checksum: bool) -> &mut Self {
        self.ext4.journal_checksum = Some(checksum);
        self
    }

    /// Sets whether ACLs count, are shown and can be set (`noacl` means false); true by default.
    pub fn acls(&mut self, acls: bool) -> &mut Self {
        self.ext4.acls = acls;
        self
    }

    /// Sets whether `user.` attributes are shown and can be set (`nouser_xattr` means false); true
    /// by default.
    pub fn user_attributes(&mut self, user_attributes: bool) -> &mut Self {
        self.ext4.user_attributes = user_attributes;
        self
    }

    /// Sets whether users and groups have 16 bits (`nouid32`); false by default. Then the upper
    /// halves of ids are not read, and an id that needs one is stored as 65534.
    pub fn short_ids(&mut self, short_ids: bool) -> &mut Self {
        self.ext4.short_ids = short_ids;
        self
    }

    /// Sets the size, in KiB, beyond which no directory grows (`max_dir_size_kb`); 0, the default,
    /// for no limit.
    pub fn max_dir_size(&mut self, kib: u32) -> &mut Self {
        self.ext4.max_dir_kib = kib;
        self
    }

    /// Sets whether a failure to write file contents ends all changes, as damage does
    /// (`data_err=abort`). By default, false, only the writer gets the error.
    pub fn abort_on_data_error(&mut self, abort: bool) -> &mut Self {
        self.ext4.abort_on_data_error = abort;
        self
    }

    /// Sets whether the volume discards blocks on the device as soon as they are free for good
    /// (`discard`). An image file then takes no room for removed files. This overrides the volume's
    /// own setting. After a discard fails, the volume sends no more of them and otherwise goes on.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.ext4.discard = Some(discard);
        self
    }

    /// Sets a callback for changes that cannot become durable on a volume that is open for writing.
    /// The volume calls `told` with the reason: the device fails, [dropping](Volume#dropping) the
    /// volume fails, or another host has taken a volume with multiple mount protection.
    ///
    /// A failed commit ends all changes. `told` runs on the thread that met the failure, often one
    /// of the volume's own, and must not use the volume.
    pub fn on_loss(&mut self, told: impl Fn(&str) + Send + Sync + 'static) -> &mut Self {
        self.ext4.on_loss = Some(Listener::new(told));
        self
    }

    /// Sets a callback for damage that the volume meets and passes over, such as a group of blocks
    /// whose bitmap is wrong. The volume calls `told` with a text that names the damage, once for
    /// each. [`Volume::warnings`] lists the same texts.
    ///
    /// `told` runs on the thread that met the damage, and must not use the volume.
    pub fn on_warning(&mut self, told: impl Fn(&str) + Send + Sync + 'static) -> &mut Self {
        self.ext4.on_warning = Some(Listener::new(told));
        self
    }

    /// Reads the volume even while another program, or another host, writes to it. A read may then
    /// find half of a change.
    pub fn shared(&mut self, shared: bool) -> &mut Self {
        self.shared = shared;
        self.ext4.shared = shared;
        self
    }

    /// States that the kernel holds the block device for the caller, as for a mount that the caller
    /// serves. Otherwise the volume is opened for writing with `O_EXCL`, which such a device
    /// refuses.
    pub fn claimed(&mut self, claimed: bool) -> &mut Self {
        self.claimed = claimed;
        self
    }

    /// Sets the path of an external journal: its block special file, or an image of it
    /// (`journal_path=`). Without the journal, such a volume cannot be changed, nor read after a
    /// crash. The library opens it only where it needs it.
    pub fn journal(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.journal = Some(path.into());
        self
    }

    /// Opens the image or block special file at `path`. Unless the caller asks for
    /// [writing](Self::write), the library never writes to it, and replays a journal that needs it
    /// in memory.
    ///
    /// # Errors
    /// [`ErrorKind::NotExt`], [`ErrorKind::Unsupported`] and [`ErrorKind::Corrupt`] for what the
    /// image holds; [`ErrorKind::Invalid`] for a partition or an offset that it does not have;
    /// [`ErrorKind::Os`] if the system refuses the file, with `EBUSY` if another program has it
    /// open for writing.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let (device, start) = self.device(path)?;
        let end = start + device.size_bytes();
        let device = Arc::new(device);
        let image = Some(Arc::clone(&device));
        let mut volume = self
            .open_whole(device, image, start)
            .map_err(|e| e.at(path))?;
        volume.bytes = Some(start..end);
        // The journal may have newer contents than the image.
        volume.image_offset = Some(start).filter(|_| volume.ext4.is_raw_current());
        Ok(volume)
    }

    /// Returns the device on which [`open`](Self::open) finds the volume, locked as by `open`, and
    /// the volume's start in the image. For experts, whose work on the device needs no open volume.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) that concern the image and not the volume.
    pub fn device(&self, path: impl AsRef<Path>) -> Result<(FileDevice, u64)> {
        let path = path.as_ref();
        let failed = |e| not_opened(path, e);
        let write = self.write;
        let shared = self.shared;
        let claimed = self.claimed;
        let mut options = FileOptions {
            write,
            shared,
            claimed,
            ..FileOptions::default()
        };
        if self.partition.is_some() || self.offset_bytes > 0 {
            // This locks the window only: other programs may have other partitions of the disk
            // open.
            let disk = Arc::new(glance(path).map_err(failed)?);
            let window = self.window(&(disk as _)).map_err(|e| e.at(path))?;
            options.offset_bytes = window.start;
            options.len_bytes =
                Some(window.end - window.start).filter(|_| self.partition.is_some());
        }
        let device = FileDevice::open_with(path, &options).map_err(failed)?;
        Ok((device, options.offset_bytes))
    }

    /// Opens the volume on a device of the caller's own.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open) that concern the volume, and the device's.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let window = self.window(&device)?;
        if window == (0..device.size_bytes()) {
            return self.open_whole(device, None, 0);
        }
        let start = window.start;
        self.open_whole(slice(device, window)?, None, start)
    }

    /// Opens the volume that a device holds; the device starts at byte `start` of the image.
    fn open_whole(
        &self,
        device: Arc<dyn BlockDevice>,
        image: Option<Arc<FileDevice>>,
        start: u64,
    ) -> Result<Volume> {
        let explain = |error| explain(error, &device, self.partition.map(|_| start));
        let mut opened_journal = None;
        let ext4 = match (self.open_ext4(&device, &self.ext4), &self.journal) {
            (
                Err(extern4_ext4::Error::Unsupported(Unsupported::ExternalJournal)),
                Some(journal),
            ) => {
                let opened = Arc::new(self.open_journal(journal)?);
                opened_journal = Some(Arc::clone(&opened));
                let journal_device = Some(opened as Arc<dyn BlockDevice>);
                let options = extern4_ext4::OpenOptions {
                    journal_device,
                    ..self.ext4.clone()
                };
                self.open_ext4(&device, &options)
                    .map_err(|error| of_journal(error, journal))
            }
            (opened, _) => opened,
        };
        let ext4 = Arc::new(ext4.map_err(explain)?);
        let fs = Arc::clone(&ext4) as Arc<dyn vfs::FileSystem>;
        let mut options = SuperOptions {
            read_only: !self.write,
            ..SuperOptions::default()
        };
        options.atime = self.atime.unwrap_or(options.atime);
        options.dir_atime = self.dir_atime.unwrap_or(options.dir_atime);
        options.budget = Arc::clone(&self.ext4.budget);
        let superblock = SuperBlock::new(fs, options)
            .map_err(|e| Error::from_vfs("read the root directory of", e))?;
        let source = Arc::new(Source::new(self, device, image, opened_journal));
        Ok(Volume {
            ext4,
            namespace: Namespace::new(superblock),
            bytes: None,
            image_offset: None,
            source,
        })
    }

    pub(crate) fn open_journal(&self, path: &Path) -> Result<FileDevice> {
        let options = FileOptions {
            write: self.write,
            shared: self.shared,
            ..FileOptions::default()
        };
        FileDevice::open_with(path, &options).map_err(|error| {
            let why = format!("its journal {}: {}", path.display(), error.reason());
            Error::new(not_opened(path, error).kind(), "open").because(why)
        })
    }

    fn open_ext4(
        &self,
        device: &Arc<dyn BlockDevice>,
        options: &extern4_ext4::OpenOptions,
    ) -> extern4_ext4::Result<Ext4> {
        let open = if self.write {
            Ext4::open_for_writing
        } else {
            Ext4::open
        };
        let options = extern4_ext4::OpenOptions {
            close_when_unused: true,
            ..options.clone()
        };
        open(Arc::clone(device), &options)
    }

    /// Returns the bytes of a disk that the offset and partition select.
    fn window(&self, disk: &Arc<dyn BlockDevice>) -> Result<Range<u64>> {
        let invalid = |cause: String| Error::new(ErrorKind::Invalid, "open").because(cause);
        let start = self.offset_bytes;
        let len = disk.size_bytes().checked_sub(start);
        let len = len.ok_or_else(|| invalid(format!("offset {start} is behind its end")))?;
        let Some(number) = self.partition else {
            return Ok(start..start + len);
        };
        let Some(table) = read_table(&*slice(Arc::clone(disk), start..start + len)?)? else {
            return Err(invalid(format!(
                "there is no partition {number}, for there is no partition table"
            )));
        };
        let Some(found) = table.partition(number) else {
            return Err(invalid(missing(number, &table)));
        };
        let end = start.saturating_add(len);
        let first = start.saturating_add(found.start_bytes);
        if found.is_cut_off() && (self.write || first >= end) {
            let cause = cut_off(found, len);
            return Err(Error::new(ErrorKind::Corrupt, "open").because(cause));
        }
        let start = first;
        if found.kind.is_extended() && !has_volume(&**disk, start) {
            let logical = numbers(
                table
                    .partitions
                    .iter()
                    .filter(|partition| partition.number > 4),
            );
            let cause = format!(
                "partition {number} is an extended one, a frame for logical partitions: {logical}"
            );
            return Err(Error::new(ErrorKind::NotExt, "open").because(cause));
        }
        Ok(start..start.saturating_add(found.len_bytes).min(end))
    }
}

/// Adds the device of an unusable journal to an error.
fn of_journal(error: extern4_ext4::Error, device: &Path) -> extern4_ext4::Error {
    match error {
        extern4_ext4::Error::Unsupported(Unsupported::Journal(why)) => {
            Unsupported::Journal(format!("its journal {}: {why}", device.display())).into()
        }
        other => other,
    }
}

/// Returns the reason why the requested partition does not exist.
fn missing(number: u32, table: &Table) -> String {
    match table.left_out(number) {
        Some(fault) => fault.to_string(),
        None if table.partitions.is_empty() => {
            format!("there is no partition {number}, for the partition table is empty")
        }
        None => format!(
            "there is no partition {number}; there are: {}",
            numbers(&table.partitions)
        ),
    }
}

/// Returns the message for a partition that ends behind a disk of `disk` bytes.
fn cut_off(partition: &Partition, disk: u64) -> String {
    let Partition {
        number,
        start_bytes,
        len_bytes,
        ..
    } = partition;
    format!(
        "partition {number} is cut off: it has {len_bytes} bytes from byte {start_bytes} on, but the image ends at byte {disk}"
    )
}

/// Opens a disk to read its partition table, even if other programs have it open.
fn glance(path: &Path) -> Result<FileDevice, extern4_block::Error> {
    FileDevice::open_with(
        path,
        &FileOptions {
            shared: true,
            ..FileOptions::default()
        },
    )
}

fn slice(device: Arc<dyn BlockDevice>, window: Range<u64>) -> Result<Arc<dyn BlockDevice>> {
    let slice = SliceDevice::new(
        device,
        window.start,
        window.end.saturating_sub(window.start),
    );
    Ok(Arc::new(slice.map_err(|e| {
        Error::new(ErrorKind::Invalid, "open").because(e)
    })?))
}

/// Returns the error for a file that could not be opened, with the system's error number.
pub(crate) fn not_opened(path: &Path, error: block::Error) -> Error {
    let errno = match &error {
        block::Error::Open { source, .. } => source.raw_os_error(),
        block::Error::Busy { .. } => Some(i32::from(Errno::EBUSY.raw())),
        _ => None,
    };
    Error::new(ErrorKind::system(errno), "open")
        .at(path)
        .because(error)
}

fn read_table(device: &dyn BlockDevice) -> Result<Option<Table>> {
    let table = Table::read_with(device, &|start| has_volume(device, start));
    table.map_err(|e| Error::new(ErrorKind::Io, "read the partition table of").because(e))
}

/// Magic numbers of common partition contents: the offset, and the bytes.
const MAGICS: &[(u64, &[u8])] = &[
    (1024 + 0x38, &extern4_disk::superblock::MAGIC.to_le_bytes()),
    (3, b"NTFS    "),
    (3, b"EXFAT   "),
    (0x36, b"FAT1"),
    (0x52, b"FAT32   "),
    (0, b"XFSB"),
    (0x1_0040, b"_BHRfS_M"),
    (0, b"hsqs"),
    (0, b"LUKS\xba\xbe"),
    (512, b"LABELONE"),
    (4096 - 10, b"SWAPSPACE2"),
    (1024, b"\x10\x20\xf5\xf2"),
];

/// Returns whether a volume of a common kind starts at byte `start`.
fn has_volume(device: &dyn BlockDevice, start: u64) -> bool {
    let is = |(offset, magic): &(u64, &[u8])| {
        let mut found = [0; 16];
        let found = &mut found[..magic.len()];
        start
            .checked_add(*offset)
            .is_some_and(|at| device.read_at(found, at).is_ok())
            && found == *magic
    };
    MAGICS.iter().any(is)
}

fn numbers<'a>(partitions: impl IntoIterator<Item = &'a Partition>) -> String {
    let numbers: Vec<String> = partitions
        .into_iter()
        .map(|found| found.number.to_string())
        .collect();
    numbers.join(", ")
}

/// Returns the error for a volume that could not be opened. If the image, or its partition at byte
/// `partition`, is a partitioned disk itself, the error says what to do.
pub(crate) fn explain(
    error: extern4_ext4::Error,
    device: &Arc<dyn BlockDevice>,
    partition: Option<u64>,
) -> Error {
    let kind = match &error {
        // The volume leads to an inode that is not in use.
        extern4_ext4::Error::Stale { .. } => ErrorKind::Corrupt,
        error => error.into(),
    };
    if kind != ErrorKind::NotExt {
        return Error::new(kind, "open").because(error);
    }
    let table = Table::read_with(&**device, &|start| has_volume(&**device, start));
    match (table, partition) {
        (Ok(Some(table)), None) if !table.partitions.is_empty() => {
            let numbers = numbers(&table.partitions);
            let hint = format!("this is a disk with partitions; name one of them: {numbers}");
            Error::new(kind, "open").because(hint)
        }
        (Ok(Some(table)), Some(start)) if !table.partitions.is_empty() => {
            let starts = table
                .partitions
                .iter()
                .map(|inner| start.saturating_add(inner.start_bytes));
            let starts: Vec<String> = starts.map(|start| start.to_string()).collect();
            let starts = starts.join(", ");
            let hint = format!(
                "the partition has partitions of its own, which start at byte {starts} of the image"
            );
            Error::new(kind, "open").because(hint)
        }
        (Err(damaged @ block::Error::PartitionTable { .. }), None) => {
            Error::new(kind, "open").because(damaged)
        }
        _ => Error::new(kind, "open").because(error),
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("label", &self.label())
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Opens the image or block special file at `path` with the default options.
    ///
    /// # Errors
    /// The errors of [`VolumeOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        VolumeOptions::default().open(path)
    }

    /// Returns options to open a volume with other than the defaults.
    pub fn options() -> VolumeOptions {
        VolumeOptions::default()
    }

    /// Returns the partition table of the image or block special file at `path`; `None` if it has
    /// none.
    ///
    /// # Errors
    /// [`ErrorKind::Os`] if the system refuses the file, [`ErrorKind::Corrupt`] for a table that
    /// breaks its format.
    pub fn partitions(path: impl AsRef<Path>) -> Result<Option<Table>> {
        let path = path.as_ref();
        let device = glance(path).map_err(|e| not_opened(path, e))?;
        read_table(&device).map_err(|e| e.at(path))
    }

    /// Returns the volume's start in the opened image file or block special file, in bytes. At that
    /// offset plus the offsets of [`File::span_at`](crate::File::span_at), a caller may read file
    /// contents directly.
    ///
    /// `None` for a volume whose journal has been replayed, and for one on a device of the caller's
    /// own. `None` also for a volume that is open for writing and may have contents in its journal.
    pub fn image_offset(&self) -> Option<u64> {
        self.image_offset.filter(|_| self.ext4.is_raw_current())
    }

    /// Returns the path of the opened image file or block special file; `None` on a device of the
    /// caller's own.
    pub fn image_file(&self) -> Option<&Path> {
        self.source.image_path()
    }

    /// Returns the range of bytes of the opened image file or block special file that is the
    /// volume; `None` on a device of the caller's own.
    pub fn bytes(&self) -> Option<Range<u64>> {
        self.bytes.clone()
    }

    /// Returns a view of the volume with the rights of `cred`.
    pub fn session(&self, cred: Cred) -> Session {
        Session::new(vfs::Session::new(&self.namespace, cred))
    }

    /// Returns a view of the volume as its superuser, which may do anything.
    pub fn superuser(&self) -> Session {
        self.session(Cred::root())
    }

    /// Makes every change durable.
    ///
    /// # Errors
    /// The error that has stopped the journal; `EIO` if the device failed since the last call.
    pub fn sync(&self) -> Result<()> {
        self.superblock()
            .sync()
            .map_err(|e| Error::from_vfs("sync", e))
    }

    /// Ends writing: writes every change to its place and marks the volume clean. No part of the
    /// volume may be in use any more; a handle that is still open cannot change anything
    /// afterwards.
    ///
    /// # Errors
    /// Any failure since the volume was opened that kept a change from being made durable.
    /// [Dropping](Volume#dropping) the volume closes it too, but cannot report the error.
    pub fn close(self) -> Result<()> {
        if self.superblock().stats().inodes > MANY_INODES {
            // The device works while this thread frees memory.
            self.ext4.begin_sync();
        }
        self.superblock().drop_caches();
        let closed = self
            .ext4
            .close()
            .map_err(|e| Error::from_vfs("close", e.into()));
        // Other clones of the volume may keep the files open for longer.
        self.source.unlock();
        closed
    }

    /// Lists the open files and directories of every session. Files that are open throughout the
    /// call are in the list; a file opened or closed meanwhile may be. The list keeps no file open.
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
    ///     let file = volume.superuser().create("/log")?;
    ///     let [open] = &volume.open_files()[..] else { panic!("one file is open") };
    ///     assert_eq!((&open.path[..], open.uid, open.position), (&b"/log"[..], 0, 0));
    ///     drop(file);
    ///     assert!(volume.open_files().is_empty());
    ///     Ok(())
    /// }
    /// ```
    pub fn open_files(&self) -> Vec<vfs::OpenFileInfo> {
        self.superblock().open_files()
    }

    /// Returns whether changes are forbidden at present.
    pub fn is_read_only(&self) -> bool {
        self.superblock().is_read_only()
    }

    /// Forbids changes, or allows them again. Fails with `EBUSY` while files are open for writing,
    /// a removed file is still in use, or a change is under way. After success there is no writer,
    /// and every change is durable.
    ///
    /// If the volume was opened for reading, allowing changes opens it for writing, as
    /// [`VolumeOptions::write`] does. The call replays the journal onto the device and frees
    /// orphans. Files stay open. If the call fails, the volume is read as before.
    ///
    /// # Errors
    /// `EBUSY` as above; to allow changes also the errors of opening for writing, such as
    /// [`ErrorKind::Unsupported`] and `EROFS` of a device that is read-only.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        if !read_only {
            self.source.make_writable(self)?;
        }
        self.superblock()
            .remount(read_only)
            .map_err(|e| Error::from_vfs("remount", e))
    }

    /// Ends all use of the volume, even while files are open. From now on, reading or writing a
    /// file and changing anything fails with `EIO`. After the return, the volume writes nothing
    /// more. It is then as after a crash, except that `how` says which changes the call makes
    /// durable first. The next program to open the volume recovers it. `EXT4_IOC_SHUTDOWN` does
    /// this on Linux.
    ///
    /// # Errors
    /// `EIO` if the changes that `how` names could not be made durable. The volume is shut down all
    /// the same.
    pub fn shut_down(&self, how: vfs::Shutdown) -> Result<()> {
        self.superblock()
            .shut_down(how)
            .map_err(|e| Error::from_vfs("shut down", e))
    }

    pub(crate) fn superblock(&self) -> &Arc<SuperBlock> {
        self.namespace.superblock()
    }

    /// Returns the label: at most 16 bytes, of any encoding.
    pub fn label(&self) -> OsString {
        OsString::from_vec(self.ext4.current_superblock().label().to_vec())
    }

    /// Changes the label; the change is durable on return.
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
    ///     volume.set_label("backup")?;
    ///     volume.set_uuid(*b"sixteen bytes of")?;
    ///     assert_eq!((volume.label(), volume.uuid()), ("backup".into(), *b"sixteen bytes of"));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for a label that is longer or has a NUL byte, and `EROFS` for a volume that is open
    /// for reading.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let set = self.superblock().fs().set_label(label.as_ref().as_bytes());
        set.map_err(|e| Error::from_vfs("label", e))
    }

    /// Returns the UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.ext4.current_superblock().uuid()
    }

    /// Changes the UUID; the change is durable on return. A volume with `metadata_csum` also gets
    /// the feature `metadata_csum_seed`.
    ///
    /// # Errors
    /// `EROFS` for a volume that is open for reading, and an error where structures of the volume
    /// depend on the old UUID.
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        let tune = Tune {
            uuid: Some(uuid),
            ..Tune::default()
        };
        self.ext4
            .tune(&tune)
            .map_err(|e| Error::from_vfs("change the UUID of", e.into()))?;
        self.sync()
    }

    /// Returns totals and free space.
    ///
    /// # Errors
    /// `EIO` after the volume was shut down.
    pub fn stat_fs(&self) -> Result<StatFs> {
        self.ext4
            .stat()
            .map_err(|e| Error::from_vfs("count the free space of", e.into()))
    }

    /// Returns the tree that sessions act in, for a program that serves the volume to others.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Returns the warnings so far: faults that were found and did not keep the volume from being
    /// used. A state "errors" is one, or a group descriptor with a wrong checksum.
    pub fn warnings(&self) -> Vec<String> {
        self.ext4.warnings()
    }

    /// Returns the file system underneath, for experts: superblock, groups, raw inodes, block maps,
    /// journal.
    pub fn ext4(&self) -> &Arc<Ext4> {
        &self.ext4
    }

    /// Returns counters of the caches: names, inodes, search checks.
    pub fn cache_stats(&self) -> vfs::CacheStats {
        self.superblock().stats()
    }

    /// Returns counters of every cache and of the journal, since the volume was opened. The volume
    /// always keeps them.
    pub fn stats(&self) -> Stats {
        Stats {
            names: self.cache_stats(),
            files: self.superblock().open_file_stats(),
            blocks: self.ext4.cache().stats(),
            journal: self.ext4.journal_stats(),
            sharing: self.ext4.sharing_stats(),
        }
    }
}
