//! The advisory locks of a file that is a device.
//!
//! `FileDevice` takes the locks when it opens a file. While a writer has its window, no other
//! program that takes either lock reads or writes there. Programs that take no locks are not
//! stopped.
//!
//! A program that opens an image locks it in one of two ways, which do not see each other. It locks
//! the whole file (`flock(2)`), or bytes of it by a lock of the open file description
//! (`F_OFD_SETLK` in `fcntl(2)`), as virtual machines do. This module takes both locks.
//!
//! A program that opens a window, such as a partition, takes byte locks for that window only. Other
//! programs, and this process, may then open other windows of the file. All of them share the lock
//! of the file and that of its first sector, because no program may change where the windows are.
//! Locks of an open file description go with the opened file, and belong to no process.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::file::FileOptions;

/// How long this thread retries to take a lock that another program has.
pub(super) const RETRY_TIME: Duration = Duration::from_millis(200);

/// The bytes of a disk that hold its partition table.
const FIRST_SECTOR: u64 = 512;

/// Why a lock was not taken.
pub(super) enum Refused {
    /// Another program, or another opened file of this process, has it.
    Taken,
    /// The operating system failed for another reason.
    Failed(io::Error),
}

/// Locks the window that `options` name: exclusively if it is opened for writing, else shared with
/// other readers. Retries a taken lock for [`RETRY_TIME`]. A child process that another thread is
/// just starting holds all locks of its parent until it executes its program.
pub(super) fn take(file: &File, options: &FileOptions) -> Result<(), Refused> {
    let start = Instant::now();
    loop {
        let taken = try_file(file, options).and_then(|()| try_bytes(file, options));
        match taken {
            // A reader that accepts changes by others can do without the lock, so it does not wait.
            Err(Refused::Taken) if !options.shared && start.elapsed() < RETRY_TIME => {
                sleep(Duration::from_millis(5))
            }
            taken => return taken,
        }
    }
}

/// Gives up all locks of an opened file. Closing the file is not enough: a child process that
/// another thread is just starting shares the opened file until it executes its program.
pub(super) fn release(file: &File) {
    // If unlocking fails, the file was not locked.
    let _ = file.unlock();
    let _ = lock_bytes(file, libc::F_UNLCK, 0, 0);
}

fn is_window(options: &FileOptions) -> bool {
    options.offset_bytes > 0 || options.len_bytes.is_some()
}

/// Locks the whole file: exclusively for a writer without a window, else shared.
fn try_file(file: &File, options: &FileOptions) -> Result<(), Refused> {
    let alone = options.write && !is_window(options);
    match if alone {
        file.try_lock()
    } else {
        file.try_lock_shared()
    } {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Refused::Taken),
        Err(TryLockError::Error(error)) if cannot_lock(error.raw_os_error()) => Ok(()),
        Err(TryLockError::Error(error)) => Err(Refused::Failed(error)),
    }
}

/// Locks the bytes of the window, and the first sector shared.
fn try_bytes(file: &File, options: &FileOptions) -> Result<(), Refused> {
    if is_window(options) && options.offset_bytes >= FIRST_SECTOR {
        lock_bytes(file, libc::F_RDLCK, 0, FIRST_SECTOR)?;
    }
    let kind = if options.write {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    // Length 0 means up to the end of the file, however far that moves.
    match options.len_bytes {
        Some(0) => Ok(()),
        len => lock_bytes(file, kind, options.offset_bytes, len.unwrap_or(0)),
    }
}

fn lock_bytes(file: &File, kind: libc::c_int, start: u64, len: u64) -> Result<(), Refused> {
    // The check of the size refuses offsets beyond the greatest one later.
    let offset = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let len = offset(len).min(i64::MAX - offset(start));
    // OK: the constants are small, whatever their type.
    let range = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: offset(start),
        l_len: len,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(Refused::Taken),
        Err(error) if cannot_lock(Some(error as i32)) => Ok(()),
        Err(error) => Err(Refused::Failed(error.into())),
    }
}

/// Returns whether the error means that the file system has no locks. Then no program can be
/// excluded.
fn cannot_lock(error: Option<i32>) -> bool {
    [libc::ENOLCK, libc::EOPNOTSUPP, libc::EINVAL, libc::ENOSYS]
        .map(Some)
        .contains(&error)
}
