//! An open volume.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extern4_block as block;
use extern4_block::partition::{Partition, Table};
use extern4_block::{BlockDevice, FileDevice, FileOptions, SliceDevice};
use extern4_ext4::tune::Tune;
use extern4_ext4::{Backup, DataMode, ErrorPolicy, Ext4, OnLoss, Unsupported};
use extern4_vfs as vfs;
use vfs::{Atime, Cred, Errno, Namespace, StatFs, SuperBlock, SuperOptions};

use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;
use crate::source::Source;

/// Inodes in memory that take longer to be given back than it takes to begin a commit.
const MANY_INODES: usize = 4096;

/// An open ext2, ext3 or ext4 volume. Cheap to clone; every clone is the same volume, with the same caches.
///
/// # Dropping
/// When the last handle is dropped, be it a volume, a [`Session`], a [`File`](crate::File) or a directory's listing, a volume that is
/// open for writing is [closed](Volume::close): what has been changed is written and synced. A drop cannot return an error;
/// what fails is told to [`on_loss`](OpenOptions::on_loss). Nothing is written by a drop in a child that was made by `fork(2)`, after
/// [`shut_down`](Volume::shut_down), or after an error that ended all changes. A drop during a panic writes and does not
/// panic again.
///
/// ```
/// # fn main() -> extern4::Result<()> {
/// # let sample = extern4_testkit::sample::image();
/// # let image = &sample.path;
/// use extern4::Volume;
///
/// let volume = Volume::open(image)?;
/// println!("{:?}", volume.stat_fs()?);
/// for entry in volume.superuser().read_dir("/etc")? {
///     println!("{}", entry?.path().display());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Volume {
    ext4: Arc<Ext4>,
    namespace: Arc<Namespace>,
    bytes: Option<Range<u64>>,
    image_offset: Option<u64>,
    source: Arc<Source>,
}

/// How long Linux lets times be in memory only.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counters of a volume.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Names, inodes and search checks.
    pub names: vfs::CacheStats,
    /// Open files: how many there were, and where they were closed.
    pub files: vfs::OpenFileStats,
    /// Blocks of metadata.
    pub blocks: extern4_block::CacheStats,
    /// Transactions and what they cost; `None` if the volume is not open for writing.
    pub journal: Option<extern4_ext4::JournalStats>,
    /// Attribute blocks and large values that inodes share; `None` if the volume is not open for writing.
    pub sharing: Option<extern4_ext4::SharingStats>,
}

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    atime: Option<Atime>,
    dir_atime: Option<bool>,
    partition: Option<u32>,
    offset_bytes: u64,
    write: bool,
    pub(crate) shared: bool,
    claimed: bool,
    pub(crate) journal: Option<PathBuf>,
    cached_files: Option<usize>,
    pub(crate) ext4: extern4_ext4::OpenOptions,
}

impl OpenOptions {
    /// Opens partition `number` of the image's MBR or GPT partition table, counted as Linux counts them from 1.
    pub fn partition(&mut self, number: u32) -> &mut Self {
        self.partition = Some(number);
        self
    }

    /// The volume, or the partition table, starts `bytes` into the image.
    pub fn offset(&mut self, bytes: u64) -> &mut Self {
        self.offset_bytes = bytes;
        self
    }

    /// How many bytes of metadata blocks are cached at most; 64 MiB by default.
    pub fn cache_size(&mut self, bytes: usize) -> &mut Self {
        self.ext4.cache_bytes = bytes;
        self
    }

    /// Reads the volume by a backup superblock: the one in a block of it, as `e2fsck -b` does, or so many KiB into it, as `sb=` does for a
    /// mount. It is not opened for writing then.
    pub fn superblock(&mut self, backup: impl Into<Backup>) -> &mut Self {
        self.ext4.superblock = Some(backup.into());
        self
    }

    /// Opens the volume for writing, too. Nobody else may have it open then, neither another program nor the kernel, nor,
    /// where the volume has multiple mount protection, another host: for one that was not closed, that takes some seconds to
    /// find out. [`Volume::close`] ends that.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// When reading a file of a volume that is open for writing changes its access time; [`Atime::Relative`] by default.
    pub fn atime(&mut self, atime: Atime) -> &mut Self {
        self.atime = Some(atime);
        self
    }

    /// Whether reading a directory changes its access time as reading a file does; true by default.
    pub fn dir_atime(&mut self, dir_atime: bool) -> &mut Self {
        self.dir_atime = Some(dir_atime);
        self
    }

    /// Lets times that change alone, as by a read or by a write over what is there already, change in memory only until the file
    /// changes otherwise, it or the volume is synced, or a day has passed, as Linux does with `lazytime`. A crash loses
    /// them.
    pub fn lazytime(&mut self, lazytime: bool) -> &mut Self {
        self.ext4.lazy_times = lazytime.then_some(DAY);
        self
    }

    /// The longest time that a change is in memory only, unless the device is slower: a transaction is committed so long after its
    /// first change; [`DEFAULT_COMMIT_INTERVAL`](crate::DEFAULT_COMMIT_INTERVAL) otherwise.
    pub fn commit_interval(&mut self, interval: Duration) -> &mut Self {
        self.ext4.commit_interval = Some(interval);
        self
    }

    /// What is done when a change finds the volume damaged, in place of what the volume itself says.
    /// [`Panic`](ErrorPolicy::Panic) is taken for [`RemountReadOnly`](ErrorPolicy::RemountReadOnly).
    pub fn errors(&mut self, errors: ErrorPolicy) -> &mut Self {
        self.ext4.errors = Some(errors);
        self
    }

    /// How contents of files become durable, in place of what the volume itself says (`data=`). [`DataMode::Journal`] is refused on a
    /// volume without a journal.
    pub fn data(&mut self, data: DataMode) -> &mut Self {
        self.ext4.data = Some(data);
        self
    }

    /// Whether new files take the group of their directory whatever its mode, in place of what the volume itself says (`grpid`).
    pub fn bsd_groups(&mut self, bsd_groups: bool) -> &mut Self {
        self.ext4.bsd_groups = Some(bsd_groups);
        self
    }

    /// Whether the volume's own structures count among its blocks in [`Volume::stat_fs`] (`minixdf`); false by default.
    pub fn minix_df(&mut self, minix_df: bool) -> &mut Self {
        self.ext4.minix_df = minix_df;
        self
    }

    /// Who may use the blocks that are kept back beside the superuser, in place of whom the volume itself says (`resuid=`, `resgid=`): a user,
    /// and a group, 0 for none.
    pub fn reserved_for(&mut self, uid: Option<u32>, gid: Option<u32>) -> &mut Self {
        (self.ext4.reserved_uid, self.ext4.reserved_gid) = (uid, gid);
        self
    }

    /// Leaves the journal aside (`noload`). What is read may then be half of a change. A volume that is opened for
    /// [writing](Self::write) must need no recovery, and is changed as one without a journal.
    pub fn ignore_journal(&mut self, ignore: bool) -> &mut Self {
        self.ext4.ignore_journal = ignore;
        self
    }

    /// Whether quotas only count: nobody is refused more than he may have (`noquota`); false by default.
    pub fn ignore_limits(&mut self, ignore: bool) -> &mut Self {
        self.ext4.ignore_limits = ignore;
        self
    }

    /// Whether the journal of a volume that is opened for writing has checksums, in place of what the volume says
    /// (`journal_checksum`, `nojournal_checksum`).
    pub fn journal_checksum(&mut self, checksum: bool) -> &mut Self {
        self.ext4.journal_checksum = Some(checksum);
        self
    }

    /// Whether ACLs count, are shown and can be set (`noacl` says no); true by default.
    pub fn acls(&mut self, acls: bool) -> &mut Self {
        self.ext4.acls = acls;
        self
    }

    /// Whether `user.` attributes are shown and can be set (`nouser_xattr` says no); true by default.
    pub fn user_attributes(&mut self, user_attributes: bool) -> &mut Self {
        self.ext4.user_attributes = user_attributes;
        self
    }

    /// Whether users and groups have 16 bits (`nouid32`): the upper halves of ids are not read, and an id that needs one is
    /// stored as 65534; false by default.
    pub fn short_ids(&mut self, short_ids: bool) -> &mut Self {
        self.ext4.short_ids = short_ids;
        self
    }

    /// The size, in KiB, beyond which no directory grows (`max_dir_size_kb`); 0, the default, for none.
    pub fn max_dir_size(&mut self, kib: u32) -> &mut Self {
        self.ext4.max_dir_kib = kib;
        self
    }

    /// Whether file contents that the device cannot write end all changes, as damage does (`data_err=abort`); false by
    /// default: only the writer is told.
    pub fn abort_on_data_error(&mut self, abort: bool) -> &mut Self {
        self.ext4.abort_on_data_error = abort;
        self
    }

    /// Whether the device is told of blocks as soon as they are free for good, so that an image file takes no room for what was removed, in place
    /// of what the volume itself says (`discard`). A device that fails at it is not told any more, and nothing else comes of that.
    pub fn discard(&mut self, discard: bool) -> &mut Self {
        self.ext4.discard = Some(discard);
        self
    }

    /// Has `told` called with the reason when changes of a volume that is open for writing cannot be made durable: the device fails,
    /// [dropping](Volume#dropping) the volume fails, or another host has taken a volume with multiple mount protection. A failed
    /// commit ends all changes. `told` runs on the thread that met the failure, often one of the volume's own, and must not use
    /// the volume.
    pub fn on_loss(&mut self, told: impl Fn(&str) + Send + Sync + 'static) -> &mut Self {
        self.ext4.on_loss = Some(OnLoss::new(told));
        self
    }

    /// How many names and inodes are kept in memory at most, beside those in use; 262,144 of each by default.
    pub fn cached_files(&mut self, files: usize) -> &mut Self {
        self.cached_files = Some(files);
        self
    }

    /// Reads the volume even while another program, or another host, writes to it: what is read may be half of a change.
    pub fn shared(&mut self, shared: bool) -> &mut Self {
        self.shared = shared;
        self.ext4.shared = shared;
        self
    }

    /// The kernel holds the block device for the caller, as for a mount that the caller serves. Otherwise the volume is opened for writing
    /// with `O_EXCL`, which such a device refuses.
    pub fn claimed(&mut self, claimed: bool) -> &mut Self {
        self.claimed = claimed;
        self
    }

    /// Where the journal is, for a volume that has it on a device of its own: that block special file, or an image of it
    /// (`journal_path=`). Without it such a volume is not changed, nor read after a crash. It is opened only where it is needed.
    pub fn journal(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.journal = Some(path.into());
        self
    }

    /// Opens the image or block special file at `path`. Unless it is opened for [writing](Self::write), nothing is ever
    /// written to it: a journal that still has to be replayed is replayed in memory.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let (device, start) = self.device(path)?;
        let end = start + device.size_bytes();
        let device = Arc::new(device);
        let image = Some(Arc::clone(&device));
        let mut volume = self.open_whole(device, image, start).map_err(|e| e.at(path))?;
        volume.bytes = Some(start..end);
        // A journal may have newer contents than the image.
        volume.image_offset = Some(start).filter(|_| volume.ext4.is_raw_current());
        Ok(volume)
    }

    /// The device that [`open`](Self::open) finds the volume on, locked as by that, and where it
    /// starts in the image: for experts, who do with it what needs no open volume.
    pub fn device(&self, path: impl AsRef<Path>) -> Result<(FileDevice, u64)> {
        let path = path.as_ref();
        let failed = |e| not_opened(path, e);
        let (write, shared, claimed) = (self.write, self.shared, self.claimed);
        let mut options = FileOptions { write, shared, claimed, ..FileOptions::default() };
        if self.partition.is_some() || self.offset_bytes > 0 {
            // Only the window is locked: others may have other partitions of the disk open.
            let disk = Arc::new(glance(path).map_err(failed)?);
            let window = self.window(&(disk as _)).map_err(|e| e.at(path))?;
            options.offset_bytes = window.start;
            options.len_bytes = Some(window.end - window.start).filter(|_| self.partition.is_some());
        }
        let device = FileDevice::open_with(path, &options).map_err(failed)?;
        Ok((device, options.offset_bytes))
    }

    /// Opens the volume on a device of the caller's own.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let window = self.window(&device)?;
        if window == (0..device.size_bytes()) {
            return self.open_whole(device, None, 0);
        }
        let start = window.start;
        self.open_whole(slice(device, window)?, None, start)
    }

    /// Opens the volume that a device holds, which starts at byte `start` of the image.
    fn open_whole(
        &self,
        device: Arc<dyn BlockDevice>,
        image: Option<Arc<FileDevice>>,
        start: u64,
    ) -> Result<Volume> {
        let explain = |error| explain(error, &device, self.partition.map(|_| start));
        let mut opened_journal = None;
        let ext4 = match (self.open_ext4(&device, &self.ext4), &self.journal) {
            (Err(extern4_ext4::Error::Unsupported(Unsupported::ExternalJournal)), Some(journal)) => {
                let opened = Arc::new(self.open_journal(journal)?);
                opened_journal = Some(Arc::clone(&opened));
                let journal_device = Some(opened as Arc<dyn BlockDevice>);
                let options = extern4_ext4::OpenOptions { journal_device, ..self.ext4.clone() };
                self.open_ext4(&device, &options).map_err(|error| of_journal(error, journal))
            }
            (opened, _) => opened,
        };
        let ext4 = Arc::new(ext4.map_err(explain)?);
        let fs = Arc::clone(&ext4) as Arc<dyn vfs::FileSystem>;
        let mut options = SuperOptions { read_only: !self.write, ..SuperOptions::default() };
        options.atime = self.atime.unwrap_or(options.atime);
        options.dir_atime = self.dir_atime.unwrap_or(options.dir_atime);
        if let Some(files) = self.cached_files {
            (options.max_dentries, options.max_inodes) = (files, files);
        }
        let superblock =
            SuperBlock::new(fs, options).map_err(|e| Error::from_vfs("read the root directory of", e))?;
        let source = Arc::new(Source::new(self, device, image, opened_journal));
        Ok(Volume { ext4, namespace: Namespace::new(superblock), bytes: None, image_offset: None, source })
    }

    pub(crate) fn open_journal(&self, path: &Path) -> Result<FileDevice> {
        let options = FileOptions { write: self.write, shared: self.shared, ..FileOptions::default() };
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
        let open = if self.write { Ext4::open_for_writing } else { Ext4::open };
        let options = extern4_ext4::OpenOptions { close_when_unused: true, ..options.clone() };
        open(Arc::clone(device), &options)
    }

    /// The bytes of a disk that the offset and partition name.
    fn window(&self, disk: &Arc<dyn BlockDevice>) -> Result<Range<u64>> {
        let invalid = |cause: String| Error::new(ErrorKind::Invalid, "open").because(cause);
        let start = self.offset_bytes;
        let len = disk.size_bytes().checked_sub(start);
        let len = len.ok_or_else(|| invalid(format!("offset {start} is behind its end")))?;
        let Some(number) = self.partition else { return Ok(start..start + len) };
        let Some(table) = read_table(&*slice(Arc::clone(disk), start..start + len)?)? else {
            return Err(invalid(format!("there is no partition {number}, for there is no partition table")));
        };
        let Some(found) = table.partition(number) else {
            return Err(invalid(missing(number, &table)));
        };
        if found.is_cut_off() {
            let cause = cut_off(found, len);
            return Err(Error::new(ErrorKind::Corrupt, "open").because(cause));
        }
        let start = start.saturating_add(found.start_bytes);
        if found.kind.is_extended() && !has_volume(&**disk, start) {
            let logical = numbers(table.partitions.iter().filter(|partition| partition.number > 4));
            let cause =
                format!("partition {number} is an extended one, a frame for logical partitions: {logical}");
            return Err(Error::new(ErrorKind::NotExt, "open").because(cause));
        }
        Ok(start..start.saturating_add(found.len_bytes))
    }
}

/// Names the device of a journal that cannot be used.
fn of_journal(error: extern4_ext4::Error, device: &Path) -> extern4_ext4::Error {
    match error {
        extern4_ext4::Error::Unsupported(Unsupported::Journal(why)) => {
            Unsupported::Journal(format!("its journal {}: {why}", device.display())).into()
        }
        other => other,
    }
}

/// Why a partition that is named is not there.
fn missing(number: u32, table: &Table) -> String {
    match table.left_out(number) {
        Some(fault) => fault.to_string(),
        None if table.partitions.is_empty() => {
            format!("there is no partition {number}, for the partition table is empty")
        }
        None => format!("there is no partition {number}; there are: {}", numbers(&table.partitions)),
    }
}

/// That a disk of `disk` bytes ends before a partition does.
fn cut_off(partition: &Partition, disk: u64) -> String {
    let Partition { number, start_bytes, len_bytes, .. } = partition;
    format!(
        "partition {number} is cut off: it has {len_bytes} bytes from byte {start_bytes} on, but the image ends at byte {disk}"
    )
}

/// Opens a disk to see what its partitions are, whoever has it open.
fn glance(path: &Path) -> Result<FileDevice, extern4_block::Error> {
    FileDevice::open_with(path, &FileOptions { shared: true, ..FileOptions::default() })
}

fn slice(device: Arc<dyn BlockDevice>, window: Range<u64>) -> Result<Arc<dyn BlockDevice>> {
    let slice = SliceDevice::new(device, window.start, window.end.saturating_sub(window.start));
    Ok(Arc::new(slice.map_err(|e| Error::new(ErrorKind::Invalid, "open").because(e))?))
}

/// What the system says to who opens a file is told with its number.
pub(crate) fn not_opened(path: &Path, error: block::Error) -> Error {
    let errno = match &error {
        block::Error::Open { source, .. } => source.raw_os_error(),
        block::Error::Busy { .. } => Some(i32::from(Errno::EBUSY.raw())),
        _ => None,
    };
    let errno = errno.and_then(|errno| u16::try_from(errno).ok()).map(Errno::from_raw);
    Error::new(errno.map_or(ErrorKind::Io, ErrorKind::Os), "open").at(path).because(error)
}

fn read_table(device: &dyn BlockDevice) -> Result<Option<Table>> {
    let table = Table::read_with(device, &|start| has_volume(device, start));
    table.map_err(|e| Error::new(ErrorKind::Io, "read the partition table of").because(e))
}

/// Magic numbers of what partitions hold: the offset, and the bytes.
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

/// Whether a volume of a common kind starts at byte `start`.
fn has_volume(device: &dyn BlockDevice, start: u64) -> bool {
    let is = |(offset, magic): &(u64, &[u8])| {
        let mut found = [0; 16];
        let found = &mut found[..magic.len()];
        start.checked_add(*offset).is_some_and(|at| device.read_at(found, at).is_ok()) && found == *magic
    };
    MAGICS.iter().any(is)
}

fn numbers<'a>(partitions: impl IntoIterator<Item = &'a Partition>) -> String {
    let numbers: Vec<String> = partitions.into_iter().map(|found| found.number.to_string()).collect();
    numbers.join(", ")
}

/// Why the volume could not be opened. Where it is a partitioned disk instead, what to do: the
/// image itself, or a partition of it that starts at byte `partition`.
pub(crate) fn explain(
    error: extern4_ext4::Error,
    device: &Arc<dyn BlockDevice>,
    partition: Option<u64>,
) -> Error {
    use extern4_ext4::Error as E;
    let kind = match &error {
        E::NotExt(_) => ErrorKind::NotExt,
        E::Unsupported(_) => ErrorKind::Unsupported,
        // A volume that leads outside of itself, or to an inode that is not in use, is damaged.
        error if error.errno() == Errno::EUCLEAN => ErrorKind::Corrupt,
        E::Stale { .. } => ErrorKind::Corrupt,
        E::Io(_) => ErrorKind::Io,
        other => ErrorKind::Os(other.errno()),
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
            let starts = table.partitions.iter().map(|inner| start.saturating_add(inner.start_bytes));
            let starts: Vec<String> = starts.map(|start| start.to_string()).collect();
            let starts = starts.join(", ");
            let hint =
                format!("the partition has partitions of its own, which start at byte {starts} of the image");
            Error::new(kind, "open").because(hint)
        }
        (Err(damaged @ block::Error::PartitionTable { .. }), None) => {
            Error::new(kind, "open").because(damaged)
        }
        _ => Error::new(kind, "open").because(error),
    }
}

impl Volume {
    /// Opens the image or block special file at `path` with the default options.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::default().open(path)
    }

    /// Options other than the defaults.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// The partition table of the image or block special file at `path`; `None` if it has none.
    pub fn partitions(path: impl AsRef<Path>) -> Result<Option<Table>> {
        let path = path.as_ref();
        let device = glance(path).map_err(|e| not_opened(path, e))?;
        read_table(&device).map_err(|e| e.at(path))
    }

    /// Where the volume starts in the image file or block special file that was opened, in bytes, if contents of files
    /// may be read there directly, at the offsets that [`File::span_at`](crate::File::span_at) tells. `None` for a
    /// volume whose journal has been replayed, one that is open for writing and may have contents in its journal, or one on a
    /// device of the caller's own.
    pub fn image_offset(&self) -> Option<u64> {
        self.image_offset.filter(|_| self.ext4.is_raw_current())
    }

    /// The bytes of the image file or block special file that was opened in which the volume is; `None` on a device of the caller's own.
    pub fn bytes(&self) -> Option<Range<u64>> {
        self.bytes.clone()
    }

    /// A view of the volume with the rights of `cred`.
    pub fn session(&self, cred: Cred) -> Session {
        Session::new(vfs::Session::new(&self.namespace, cred))
    }

    /// A view of the volume as its superuser, who may do anything.
    pub fn superuser(&self) -> Session {
        self.session(Cred::root())
    }

    /// Makes everything durable that has been changed.
    pub fn sync(&self) -> Result<()> {
        self.superblock().sync().map_err(|e| Error::from_vfs("sync", e))
    }

    /// Ends writing: what has been changed is written to where it belongs, and the volume is clean. Nothing of the
    /// volume may be in use any more, and what is cannot change anything afterwards.
    ///
    /// # Errors
    /// Whatever kept a change from being made durable since the volume was opened. [Dropping](Volume#dropping) the volume does the
    /// same and cannot tell.
    pub fn close(self) -> Result<()> {
        if self.superblock().stats().inodes > MANY_INODES {
            // The device works while memory is given back.
            self.ext4.begin_sync();
        }
        self.superblock().drop_caches();
        let closed = self.ext4.close().map_err(|e| Error::from_vfs("close", e.into()));
        // Other clones of the volume may hold the files for longer.
        self.source.unlock();
        closed
    }

    /// Every open file and directory of every session: those that are open throughout the call for certain, of those opened or closed
    /// meanwhile perhaps some. To list them keeps none of them open.
    ///
    /// ```
    /// # fn main() -> extern4::Result<()> {
    /// # let sample = extern4_testkit::sample::image();
    /// let volume = extern4::Volume::open(&sample.path)?;
    /// let session = volume.session(extern4::Cred::new(1000, 1000, &[]));
    /// let file = session.open("/etc/hostname")?;
    /// let [open] = &volume.open_files()[..] else { panic!("one file is open") };
    /// assert_eq!((&open.path[..], open.uid, open.position), (&b"/etc/hostname"[..], 1000, 0));
    /// drop(file);
    /// assert!(volume.open_files().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_files(&self) -> Vec<vfs::OpenFileInfo> {
        self.superblock().open_files()
    }

    /// Nothing may be changed at present.
    pub fn is_read_only(&self) -> bool {
        self.superblock().is_read_only()
    }

    /// Forbids changes, or allows them again. `EBUSY` while files are open for writing, one that has been removed is still in use, or a
    /// change is under way: once this has succeeded there is no writer, and all that was changed is durable.
    ///
    /// A volume that was opened for reading is opened for writing now, as by [`OpenOptions::write`]: its journal is replayed
    /// onto the device, and orphans are freed. Files stay open. Where that fails, the volume is read as before.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        if !read_only {
            self.source.make_writable(self)?;
        }
        self.superblock().remount(read_only).map_err(|e| Error::from_vfs("remount", e))
    }

    /// Ends all use of the volume, whoever has files open: reading and writing files, and changing anything, is an `EIO` from now
    /// on, and when this returns, nothing more is written. The volume is then as after a crash, with what `how` says made durable
    /// before; whoever opens it next recovers it. This is what `EXT4_IOC_SHUTDOWN` does.
    pub fn shut_down(&self, how: vfs::Shutdown) -> Result<()> {
        self.superblock().shut_down(how).map_err(|e| Error::from_vfs("shut down", e))
    }

    pub(crate) fn superblock(&self) -> &Arc<SuperBlock> {
        self.namespace.superblock()
    }

    /// The label: at most 16 bytes, of any encoding.
    pub fn label(&self) -> OsString {
        OsString::from_vec(self.ext4.current_superblock().label().to_vec())
    }

    /// Changes the label, durably when this returns.
    ///
    /// ```
    /// # fn main() -> extern4::Result<()> {
    /// # let sample = extern4_testkit::sample::image();
    /// let volume = extern4::Volume::options().write(true).open(&sample.path)?;
    /// volume.set_label("backup")?;
    /// volume.set_uuid(*b"sixteen bytes of")?;
    /// assert_eq!((volume.label(), volume.uuid()), ("backup".into(), *b"sixteen bytes of"));
    /// # volume.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` for a label that is longer or has a NUL byte, and `EROFS` for a volume that is open
    /// for reading.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let set = self.superblock().fs().set_label(label.as_ref().as_bytes());
        set.map_err(|e| Error::from_vfs("label", e))
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.ext4.current_superblock().uuid()
    }

    /// Changes the UUID, durably when this returns. A volume with `metadata_csum` gets the feature
    /// `metadata_csum_seed` with it.
    ///
    /// # Errors
    /// `EROFS` for a volume that is open for reading, and an error where structures of the volume
    /// depend on the old UUID.
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        let tune = Tune { uuid: Some(uuid), ..Tune::default() };
        self.ext4.tune(&tune).map_err(|e| Error::from_vfs("change the UUID of", e.into()))?;
        self.sync()
    }

    /// Totals and free space.
    pub fn stat_fs(&self) -> Result<StatFs> {
        self.ext4.stat().map_err(|e| Error::from_vfs("count the free space of", e.into()))
    }

    /// The tree that sessions act in, for who serves the volume to others.
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// The file system underneath, for experts: superblock, groups, raw inodes, block maps, journal.
    pub fn ext4(&self) -> &Arc<Ext4> {
        &self.ext4
    }

    /// Counters of the caches: names, inodes, search checks.
    pub fn cache_stats(&self) -> vfs::CacheStats {
        self.superblock().stats()
    }

    /// Counters of everything that is cached or journaled, since the volume was opened. They are always kept.
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
