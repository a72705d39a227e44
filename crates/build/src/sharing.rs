//! Sharing of blocks between the host's files and a new image, where the host's file system can
//! (reflinks of XFS and btrfs).
//!
//! `copy_file_range` shares what it can and copies the rest, and does not say which of both it did.
//! Where a UUID follows from the contents, these are read anyway, so a copy would only cost time.
//! So the first file of each device is cloned to a scratch file, which says whether sharing works.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The unit of sharing: blocks of the host's file system may be smaller.
const UNIT: u64 = 4096;
/// The shortest part that is shared. A shorter one is copied in less time.
const SHORTEST: u64 = 128 << 10;

/// A new image file in a directory of the host.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) file: &'a File,
    /// The directory, for a scratch file.
    pub(crate) directory: &'a Path,
    /// Where the volume begins in the file.
    pub(crate) start: u64,
}

/// Shares parts of files with an image.
pub(crate) struct Sharing<'a> {
    target: Option<Target<'a>>,
    /// Whether files of a device of the host can share blocks with the image.
    devices: HashMap<u64, bool>,
}

impl<'a> Sharing<'a> {
    /// Without a target, nothing is shared.
    pub(crate) fn new(target: Option<Target<'a>>) -> Self {
        Self {
            target,
            devices: HashMap::new(),
        }
    }

    /// Lets the volume have `len` bytes of a file at `to`, if that is worthwhile. Returns how many
    /// it now has, from the first on: all whole units, or none.
    pub(crate) fn share(
        &mut self,
        (file, device): (&File, u64),
        from: u64,
        to: u64,
        len: u64,
    ) -> u64 {
        let Some(target) = self.target else { return 0 };
        let to = target.start + to;
        let len = len / UNIT * UNIT;
        if len < SHORTEST || !from.is_multiple_of(UNIT) || !to.is_multiple_of(UNIT) {
            return 0;
        }
        if !*self
            .devices
            .entry(device)
            .or_insert_with(|| can_share(file, target.directory))
        {
            return 0;
        }
        if copy(file, target.file, from, to, len) {
            len
        } else {
            0
        }
    }
}

/// Whether a file can share its blocks with files in a directory.
fn can_share(file: &File, directory: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let scratch = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR);
    scratch.is_ok_and(|scratch| rustix::fs::ioctl_ficlone(scratch, file).is_ok())
}

/// Copies `len` bytes, and returns whether it did so.
fn copy(from_file: &File, to_file: &File, mut from: u64, mut to: u64, len: u64) -> bool {
    let end = from + len;
    while from < end {
        let left = usize::try_from(end - from).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from_file, Some(&mut from), to_file, Some(&mut to), left)
        {
            Ok(1..) => {}
            // The file has become shorter, or its blocks cannot be shared. It is read instead.
            Ok(0) | Err(_) => return false,
        }
    }
    true
}
