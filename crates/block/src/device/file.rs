//! A device in a file: an image, or a block special file, or a window of one.
//!
//! `extern4` opens volumes and makes images with it. Any thread may use it; the operating system's
//! page cache holds the bytes, and a flush makes them durable (`flush`).
//!
//! The file is opened read-only unless the caller asks for writing. A writer holds the advisory
//! locks of its part of the file alone, and readers share them (`lock`). So no reader sees the
//! writes of another program unless it sets [`FileOptions::shared`]. A file that the kernel has in
//! use, as a mounted device or through a loop device, is not opened for writing.
//!
//! The size is read once, at the opening. If an image shrinks later, a read beyond its end fails
//! with [`Error::UnexpectedEnd`], and never returns stale or zero bytes.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4_sync::opener::Opener;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno as OsErrno;

use super::flush::Flushes;
use super::holder;
use super::lock::{self, RETRY_TIME, Refused};
use super::{BlockDevice, check_range, check_span, total_len};
use crate::{Error, Op, Result};

/// The most slices that one `preadv` takes: Linux's UIO_MAXIOV.
const MAX_SLICES: usize = 1024;

/// How to open a [`FileDevice`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether to open the file for writing, too.
    pub write: bool,
    /// Whether to read even while another program writes. The bytes read may then be half of a
    /// change.
    pub shared: bool,
    /// Whether the kernel already holds the block device for the caller, as it does for a mount. An
    /// open with `O_EXCL` would then fail for the caller itself.
    pub claimed: bool,
    /// Byte of the file at which the device starts. A caller that opens a part of a file leaves the
    /// other parts to other programs.
    pub offset_bytes: u64,
    /// Length of the device; the rest of the file if absent.
    pub len_bytes: Option<u64>,
}

/// A device in a regular file or a block special file.
#[derive(Debug)]
pub struct FileDevice {
    opener: Opener,
    file: File,
    path: PathBuf,
    options: FileOptions,
    start: u64,
    size: u64,
    sector_bytes: u32,
    is_regular: bool,
    is_exclusive: bool,
    flushes: Flushes,
}

/// Why the system neither discarded nor zeroed a range.
enum Refusal {
    /// The file or the system cannot do it.
    Unsupported,
    /// The system caches changes of these pages and does not drop them, because this process does
    /// not hold the block device exclusively.
    Cached,
    /// The device failed.
    Failed(Error),
}

/// The type that the mount table shows for a mount that an extern4 process serves, with a loop
/// device that no process reads through.
const SERVED: &str = " - fuseblk.extern4 ";

/// How long an opener waits for a loop device that detaches.
const DETACHING: Duration = Duration::from_secs(10);

/// Returns the loop device through which the kernel uses the opened part of the file, or some of
/// it, if there is one.
fn loop_device_of(file: &Metadata, options: &FileOptions) -> Option<String> {
    let end = |start: u64, len: Option<u64>| len.map_or(u64::MAX, |len| start.saturating_add(len));
    let wanted_end = end(options.offset_bytes, options.len_bytes);
    for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let Ok(backing) = std::fs::read(entry.path().join("loop/backing_file")) else {
            continue;
        };
        // If a number cannot be read, the loop device counts as one for the whole file.
        let number = |name: &str| -> Option<u64> {
            let text = std::fs::read_to_string(entry.path().join("loop").join(name)).ok()?;
            text.trim_end().parse().ok().filter(|number| *number > 0)
        };
        let start = number("offset").unwrap_or(0);
        if start >= wanted_end || options.offset_bytes >= end(start, number("sizelimit")) {
            continue;
        }
        let backing = Path::new(OsStr::from_bytes(backing.trim_ascii_end()));
        let same = std::fs::metadata(backing)
            .is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()));
        if same && !is_served(&entry.path()) {
            return Some(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    None
}

/// Returns whether a loop device belongs to a mount that extern4 serves. The server has the locks.
/// If it was killed, no process uses the loop device any more.
fn is_served(device: &Path) -> bool {
    is_mounted(device, SERVED)
}

/// Returns whether a loop device is mounted in this namespace, as a file system whose line in the
/// table of mounts has `words`.
fn is_mounted(device: &Path, words: &str) -> bool {
    let Ok(number) = std::fs::read_to_string(device.join("dev")) else {
        return false;
    };
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else {
        return false;
    };
    let number = format!(" {} ", number.trim_end());
    // The format is that of proc_pid_mountinfo(5); its other fields never contain these words.
    String::from_utf8_lossy(&table)
        .lines()
        .any(|line| line.contains(&number) && line.contains(words))
}

/// Returns whether a loop device detaches by itself with its last user, and is not mounted here.
/// For example, its mount was detached lazily, and the kernel has not dropped the last file yet.
fn is_detaching(device: &str) -> bool {
    let device = Path::new(&device.replacen("/dev/", "/sys/block/", 1)).to_owned();
    let autoclear = std::fs::read(device.join("loop/autoclear"));
    autoclear.is_ok_and(|it| it.trim_ascii() == b"1") && !is_mounted(&device, " - ")
}

/// Returns whether the kernel refuses all writes to a block device.
fn is_write_protected(device: &Metadata) -> bool {
    let major = rustix::fs::major(device.rdev());
    let minor = rustix::fs::minor(device.rdev());
    std::fs::read(format!("/sys/dev/block/{major}:{minor}/ro"))
        .is_ok_and(|ro| ro.trim_ascii() == b"1")
}

/// Returns the loop device as [`loop_device_of`] does, but first waits for one that may be about to
/// detach. A loop device detaches a moment after its mount has ended, on a busy machine some
/// seconds after.
fn lasting_loop_device_of(file: &Metadata, options: &FileOptions) -> Option<String> {
    let start = Instant::now();
    loop {
        let device = loop_device_of(file, options)?;
        let retry_time = if is_detaching(&device) {
            DETACHING
        } else {
            RETRY_TIME
        };
        if start.elapsed() >= retry_time {
            return Some(device);
        }
        sleep(Duration::from_millis(5));
    }
}

impl FileDevice {
    /// Opens the whole of `path` for reading.
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &FileOptions::default())
    }

    /// Opens `path`, or the part of it that `options` name.
    ///
    /// Refuses a file that is neither a regular file nor a block special file, and a window beyond
    /// the end of the file. If another program or the kernel has the file in use, the error is
    /// [`Error::Busy`].
    ///
    /// # Errors
    /// As above; [`Error::Open`] if the system refuses to open the file.
    pub fn open_with(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        Self::open_as(path.as_ref(), path.as_ref(), options)
    }

    /// Opens `file`, which messages call `path`.
    fn open_as(file: &Path, path: &Path, options: &FileOptions) -> Result<Self> {
        let refused = |reason: String| Error::Refused {
            path: path.to_owned(),
            reason,
        };
        let busy = |reason: &str| Error::Busy {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let failed = |source: io::Error| Error::Open {
            path: path.to_owned(),
            source: Arc::new(source),
        };

        // Without O_NONBLOCK, opening a FIFO would wait for a writer before this can refuse it.
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        if options.write
            && !options.claimed
            && std::fs::metadata(file).is_ok_and(|found| found.file_type().is_block_device())
        {
            // With O_EXCL, the kernel refuses a device that is in use exclusively, such as by a
            // mounted file system.
            flags |= OFlags::EXCL;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(options.write)
            .custom_flags(flags.bits() as i32)
            .open(file)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let kind = found.file_type();
        if options.write && kind.is_block_device() && is_write_protected(&found) {
            // The kernel reports write protection only when a process writes.
            return Err(failed(OsErrno::ROFS.into()));
        }
        if !kind.is_file() && !kind.is_block_device() {
            let what = if kind.is_dir() {
                "a directory, and neither an image nor a device"
            } else {
                "neither a regular file nor a block device"
            };
            return Err(refused(format!("it is {what}")));
        }
        let holder = || {
            // Of two locks this process may have one, and would be found as the holder.
            lock::release(&file);
            holder::of(&file)
        };
        match lock::take(&file, options) {
            Ok(()) => {}
            Err(Refused::Taken) if options.write => {
                return Err(busy(&format!("{} has it open", holder())));
            }
            Err(Refused::Taken) if !options.shared => {
                return Err(busy(&format!("{} has it open for writing", holder())));
            }
            Err(Refused::Failed(source)) if options.write => return Err(failed(source)),
            Err(_) => {}
        }
        if options.write
            && let Some(device) = lasting_loop_device_of(&file.metadata().map_err(failed)?, options)
        {
            return Err(busy(&format!("the kernel has it in use, through {device}")));
        }

        // Seeking finds the end, since a block special file's metadata has no length.
        let file_len = (&file).seek(SeekFrom::End(0)).map_err(failed)?;
        let start = options.offset_bytes;
        let room = file_len.checked_sub(start).ok_or_else(|| {
            refused(format!(
                "a device at offset {start} starts beyond its {file_len} bytes"
            ))
        })?;
        let size = options.len_bytes.unwrap_or(room);
        if size > room {
            return Err(refused(format!(
                "a device of {size} bytes at offset {start} ends beyond its {file_len} bytes"
            )));
        }
        // A regular file is an image of a disk, and most disks have sectors of 512 bytes.
        let sector_bytes = rustix::fs::ioctl_blksszget(&file).unwrap_or(512);
        Ok(Self {
            opener: Opener::here(),
            file,
            path: path.to_owned(),
            options: options.clone(),
            start,
            size,
            sector_bytes,
            is_regular: kind.is_file(),
            is_exclusive: flags.contains(OFlags::EXCL),
            flushes: Flushes::default(),
        })
    }

    /// Returns the path of the file at the opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the byte of the file at which the device starts.
    pub fn offset_bytes(&self) -> u64 {
        self.start
    }

    /// Unlocks the file, so that others can open it before this is dropped. The caller neither
    /// reads nor writes this device any more. A block device opened with `O_EXCL` stays locked as
    /// long as the kernel refuses it to others.
    pub fn unlock(&self) {
        if !self.is_exclusive {
            lock::release(&self.file);
        }
    }

    /// Opens the same part of the same file for writing, whatever its name is by now. A writer has
    /// the locks alone, so this device gives up its own first. If the opening fails, it takes them
    /// again ([`lock_again`](Self::lock_again)).
    ///
    /// # Errors
    /// Errors of [`open_with`](Self::open_with).
    pub fn open_for_writing(&self) -> Result<Self> {
        let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.unlock();
        let options = FileOptions {
            write: true,
            ..self.options.clone()
        };
        let opened = Self::open_as(Path::new(&file), &self.path, &options);
        if opened.is_err() {
            self.lock_again();
        }
        opened
    }

    /// Takes the locks again that [`unlock`](Self::unlock) gave up. If another program has the file
    /// open for writing by now, this device stays unlocked.
    pub fn lock_again(&self) {
        let _ = lock::take(&self.file, &self.options);
    }

    fn check_writable(&self, op: Op, offset: u64) -> Result<()> {
        if self.is_read_only() {
            Err(Error::ReadOnly { op, offset })
        } else {
            Ok(())
        }
    }

    fn allocate(&self, op: Op, range: &Range<u64>, flags: FallocateFlags) -> Result<(), Refusal> {
        let len = check_span(op, range, self.size).map_err(Refusal::Failed)?;
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(
            &self.file,
            flags | FallocateFlags::KEEP_SIZE,
            self.start + range.start,
            len,
        ) {
            Ok(()) => Ok(()),
            Err(OsErrno::OPNOTSUPP | OsErrno::NOSYS) => Err(Refusal::Unsupported),
            Err(OsErrno::BUSY) if !self.is_regular => Err(Refusal::Cached),
            Err(errno) => Err(Refusal::Failed(Error::io(
                op,
                range.start,
                len,
                errno.into(),
            ))),
        }
    }

    fn zero_by_writing(&self, range: Range<u64>) -> Result<()> {
        static ZEROES: [u8; 65536] = [0; 65536];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ZEROES.len() as u64);
            self.write_at(&ZEROES[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // A forked child shares the locks of its parent, and must not give them up.
        if self.opener.is_here() {
            lock::release(&self.file);
        }
    }
}

/// Returns the bytes that a system call moved, 0 if it is to be tried again, or the error if it
/// moved none or failed.
fn check_progress(op: Op, done: io::Result<usize>, offset: u64, left: u64) -> Result<usize> {
    match done {
        Ok(0) if op == Op::Read => Err(Error::UnexpectedEnd {
            offset,
            missing: left,
        }),
        Ok(0) => Err(Error::io(op, offset, left, io::ErrorKind::WriteZero.into())),
        Ok(n) => Ok(n),
        Err(source) if source.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(source) => Err(Error::io(op, offset, left, source)),
    }
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    fn is_read_only(&self) -> bool {
        !self.options.write
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        let mut buf = buf;
        let mut at = offset;
        while !buf.is_empty() {
            let done = self.file.read_at(buf, self.start + at);
            let n = check_progress(Op::Read, done, at, buf.len() as u64)?;
            buf = &mut buf[n..];
            at += n as u64;
        }
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let mut left = total_len(bufs);
        check_range(Op::Read, offset, left, self.size)?;
        let mut bufs = bufs;
        let mut at = offset;
        while left > 0 {
            let batch = bufs.len().min(MAX_SLICES);
            let done = rustix::io::preadv(&self.file, &mut bufs[..batch], self.start + at);
            let n = check_progress(Op::Read, done.map_err(io::Error::from), at, left)?;
            IoSliceMut::advance_slices(&mut bufs, n);
            at += n as u64;
            left -= n as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_writable(Op::Write, offset)?;
        check_range(Op::Write, offset, buf.len() as u64, self.size)?;
        let mut buf = buf;
        let mut at = offset;
        while !buf.is_empty() {
            let done = self.file.write_at(buf, self.start + at);
            let n = check_progress(Op::Write, done, at, buf.len() as u64)?;
            buf = &buf[n..];
            at += n as u64;
        }
        Ok(())
    }

    /// Returns true for a regular file. POSIX promises whole writes (2.9.7, "Thread Interactions
    /// with Regular File Operations"), and Linux's file systems hold a lock of the file during a
    /// write. Only an error of the host, or a full disk, divides a write. Nothing promises this for
    /// block devices.
    fn writes_whole(&self) -> bool {
        self.is_regular
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let flush = || {
            self.file
                .sync_data()
                .map_err(|source| Error::io(Op::Flush, 0, self.size, source))
        };
        self.flushes.flush(flush)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.check_writable(Op::Discard, range.start)?;
        match self.allocate(Op::Discard, &range, FallocateFlags::PUNCH_HOLE) {
            Err(Refusal::Failed(error)) => Err(error),
            Ok(()) | Err(Refusal::Unsupported | Refusal::Cached) => Ok(()),
        }
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        self.check_writable(Op::WriteZeroes, range.start)?;
        match self.allocate(Op::WriteZeroes, &range, FallocateFlags::ZERO_RANGE) {
            Ok(()) => Ok(()),
            Err(Refusal::Failed(error)) => Err(error),
            Err(Refusal::Unsupported | Refusal::Cached) => self.zero_by_writing(range),
        }
    }

    fn prefetch(&self, range: Range<u64>) {
        let Ok(len) = check_span(Op::Read, &range, self.size) else {
            return;
        };
        let Some(len) = std::num::NonZeroU64::new(len) else {
            return;
        };
        // A hint: if the kernel cannot take the advice, reads still work.
        let _ = rustix::fs::fadvise(
            &self.file,
            self.start + range.start,
            Some(len),
            Advice::WillNeed,
        );
    }

    fn file_range(&self, range: Range<u64>) -> Option<(&File, u64)> {
        check_span(Op::Read, &range, self.size).ok()?;
        Some((&self.file, self.start + range.start))
    }

    fn forget(&self, range: Range<u64>) {
        let Ok(len) = check_span(Op::Read, &range, self.size) else {
            return;
        };
        let len = std::num::NonZeroU64::new(len);
        // If this fails, the range is not cached, or its file is in memory only.
        let _ = rustix::fs::fadvise(&self.file, self.start + range.start, len, Advice::DontNeed);
    }

    fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the temporary directory. Dropping this removes it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path =
                std::env::temp_dir().join(format!("extern4-block-{}-{name}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }

        fn writable(&self) -> FileDevice {
            FileDevice::open_with(
                &self.0,
                &FileOptions {
                    write: true,
                    ..FileOptions::default()
                },
            )
            .unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn window(offset_bytes: u64, len_bytes: Option<u64>) -> FileOptions {
        FileOptions {
            offset_bytes,
            len_bytes,
            ..FileOptions::default()
        }
    }

    #[test]
    fn a_window_reads_and_ends_where_it_should() {
        let scratch = Scratch::new("window", b"0123456789");
        let device = FileDevice::open_with(&scratch.0, &window(2, Some(5))).unwrap();
        let mut buf = [0; 3];
        device.read_at(&mut buf, 1).unwrap();
        assert_eq!(&buf, b"345");
        assert!(matches!(
            device.read_at(&mut buf, 3),
            Err(Error::OutOfRange {
                offset: 3,
                len: 3,
                size: 5,
                ..
            })
        ));
        let (_, at) = device.file_range(1..5).unwrap();
        assert_eq!(at, 3);
        assert!(device.file_range(1..6).is_none());
        assert_eq!(
            FileDevice::open_with(&scratch.0, &window(2, None))
                .unwrap()
                .size_bytes(),
            8
        );
        for bad in [
            window(11, None),
            window(9, Some(2)),
            window(u64::MAX, Some(1)),
            window(1, Some(u64::MAX)),
        ] {
            assert!(matches!(
                FileDevice::open_with(&scratch.0, &bad),
                Err(Error::Refused { .. })
            ));
        }
    }

    #[test]
    fn slices_are_filled_in_order_however_many() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        let scratch = Scratch::new("slices", &bytes);
        let device = FileDevice::open(&scratch.0).unwrap();
        let mut parts = vec![[0u8; 2]; MAX_SLICES + 100];
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        device.read_vectored_at(&mut slices, 7).unwrap();
        assert_eq!(parts.concat(), bytes[7..7 + 2 * (MAX_SLICES + 100)]);
    }

    #[test]
    fn an_image_that_shrank_names_where_it_ends() {
        let scratch = Scratch::new("shrank", &[1; 100]);
        let device = FileDevice::open(&scratch.0).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&scratch.0)
            .unwrap()
            .set_len(60)
            .unwrap();
        let error = device.read_at(&mut [0; 30], 50).unwrap_err();
        assert!(
            matches!(
                error,
                Error::UnexpectedEnd {
                    offset: 60,
                    missing: 20
                }
            ),
            "{error}"
        );
        let mut parts = [[0; 20]; 2];
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let error = device.read_vectored_at(&mut slices, 30).unwrap_err();
        assert!(
            matches!(
                error,
                Error::UnexpectedEnd {
                    offset: 60,
                    missing: 10
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn writes_zeroes_and_discards_stay_in_their_range() {
        let scratch = Scratch::new("writes", &[1; 16384]);
        let device = scratch.writable();
        device.write_at(&[2; 100], 8000).unwrap();
        device.write_zeroes(8050..12000).unwrap();
        device.discard(12288..16384).unwrap();
        device.flush().unwrap();
        assert!(matches!(
            device.write_at(&[0; 2], 16383),
            Err(Error::OutOfRange { .. })
        ));
        let bytes = std::fs::read(&scratch.0).unwrap();
        assert_eq!(bytes.len(), 16384);
        assert!(bytes[..8000].iter().all(|&b| b == 1) && bytes[8000..8050].iter().all(|&b| b == 2));
        assert!(
            bytes[8050..12000].iter().all(|&b| b == 0)
                && bytes[12000..12288].iter().all(|&b| b == 1)
        );
    }

    #[test]
    fn files_that_are_no_device_are_refused_by_name() {
        let dir = std::env::temp_dir();
        let error = FileDevice::open(&dir).unwrap_err().to_string();
        assert!(
            error.contains("it is a directory") && error.contains(dir.to_str().unwrap()),
            "{error}"
        );
        let error = FileDevice::open("/dev/null").unwrap_err().to_string();
        assert!(error.contains("/dev/null"), "{error}");
        assert!(matches!(
            FileDevice::open(dir.join("extern4-none")),
            Err(Error::Open { .. })
        ));
        let scratch = Scratch::new("refused", &[0; 512]);
        let _writer = scratch.writable();
        let second = FileDevice::open_with(
            &scratch.0,
            &FileOptions {
                write: true,
                ..FileOptions::default()
            },
        );
        assert!(second.unwrap_err().to_string().contains(" has it open"));
        let reader = FileDevice::open(&scratch.0);
        assert!(reader.unwrap_err().to_string().contains("open for writing"));
        let reader = FileDevice::open_with(
            &scratch.0,
            &FileOptions {
                shared: true,
                ..FileOptions::default()
            },
        )
        .unwrap();
        assert!(matches!(
            reader.write_at(&[0], 0),
            Err(Error::ReadOnly { .. })
        ));
    }

    #[test]
    fn a_file_being_read_is_not_opened_for_writing() {
        let scratch = Scratch::new("readers", &[0; 512]);
        let readers = [(); 2].map(|()| FileDevice::open(&scratch.0).unwrap());
        let writer = FileDevice::open_with(
            &scratch.0,
            &FileOptions {
                write: true,
                ..FileOptions::default()
            },
        );
        assert!(writer.unwrap_err().to_string().contains(" has it open"));
        drop(readers);
        scratch.writable();
    }

    #[test]
    fn windows_of_one_file_are_locked_apart() {
        let scratch = Scratch::new("windows", &[0; 4096]);
        let open = |offset_bytes, len_bytes, write| {
            let options = FileOptions {
                write,
                offset_bytes,
                len_bytes,
                ..FileOptions::default()
            };
            FileDevice::open_with(&scratch.0, &options).map_err(|e| e.to_string())
        };
        let first = open(1024, Some(1024), true).unwrap();
        let second = open(2048, None, true).unwrap();
        let in_use = |found: Result<FileDevice, String>| {
            assert!(found.unwrap_err().contains(" has it open"));
        };
        in_use(open(1024, Some(1), true));
        in_use(open(2047, Some(1), false));
        in_use(open(2047, Some(2), true));
        in_use(open(0, None, false));
        in_use(open(0, None, true));
        first.write_at(&[1; 1024], 0).unwrap();
        drop(first);
        let readers = [
            open(1024, Some(1024), false).unwrap(),
            open(512, Some(1024), false).unwrap(),
        ];
        in_use(open(1024, Some(1024), true));
        drop((second, readers));
        open(0, None, true).unwrap();
    }

    #[test]
    fn locks_of_other_kinds_of_programs_count() {
        use nix::fcntl::{FcntlArg, fcntl};
        let scratch = Scratch::new("others", &[0; 4096]);
        let other = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&scratch.0)
            .unwrap();
        let lock = |kind: nix::libc::c_int| nix::libc::flock {
            l_type: kind as i16,
            l_whence: 0,
            l_start: 100,
            l_len: 1,
            l_pid: 0,
        };
        let try_lock = |kind| fcntl(&other, FcntlArg::F_OFD_SETLK(&lock(kind)));
        let write = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        try_lock(nix::libc::F_RDLCK).unwrap();
        let error = FileDevice::open_with(&scratch.0, &write).unwrap_err();
        assert!(error.to_string().contains(" has it open"), "{error}");
        FileDevice::open(&scratch.0).unwrap();
        try_lock(nix::libc::F_WRLCK).unwrap();
        let error = FileDevice::open(&scratch.0).unwrap_err();
        assert!(error.to_string().contains("open for writing"), "{error}");
        FileDevice::open_with(
            &scratch.0,
            &FileOptions {
                shared: true,
                ..FileOptions::default()
            },
        )
        .unwrap();
        try_lock(nix::libc::F_UNLCK).unwrap();
        let device = scratch.writable();
        assert!(try_lock(nix::libc::F_RDLCK).is_err() && other.try_lock_shared().is_err());
        drop(device);
        // A process that has a part open prevents others from opening the whole.
        let part = FileOptions {
            offset_bytes: 2048,
            ..write
        };
        let part = FileDevice::open_with(&scratch.0, &part).unwrap();
        assert!(other.try_lock().is_err() && other.try_lock_shared().is_ok());
        drop(part);
    }
}
