//! The mounts of this program in the kernel's mount table.
//!
//! `mount` and `umount` ask it for earlier mounts of an image. It reads the table once, and touches
//! no mount of another user.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf, absolute};

use extern4::Volume;
use extern4::part::Part;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::source::{Source, same_file};

/// The end of the types of this program's mounts.
const TYPE: &[u8] = b".extern4";

/// A mount of this program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The directory of the mount.
    pub(crate) dir: PathBuf,
    /// The mounted image or block device.
    source: PathBuf,
    /// The user who serves it.
    owner: u32,
}

impl MountEntry {
    /// Returns all mounts, the latest last.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        Ok(Self::read(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Reads a table in the format of proc_pid_mountinfo(5).
    fn read(table: &[u8]) -> Vec<Self> {
        let entry = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let dir = unescape(fields.nth(4)?);
            let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
            let kind = fields.next()?;
            let source = unescape(fields.next()?);
            let options = String::from_utf8_lossy(fields.next()?).into_owned();
            let owner = options
                .split(',')
                .find_map(|option| option.strip_prefix("user_id="));
            kind.ends_with(TYPE).then_some(Self {
                dir,
                source,
                owner: owner?.parse().ok()?,
            })
        };
        table
            .split(|byte| *byte == b'\n')
            .filter_map(entry)
            .collect()
    }

    /// Returns the mounts of a volume, by any names of its file.
    pub(crate) fn of(volume: &Source) -> io::Result<Vec<Self>> {
        let file = volume.file.canonicalize()?;
        let part = volume.part;
        let volume = Source { file, part };
        let mut entries = Self::all()?;
        entries.retain(|entry| entry.is_of(&volume));
        Ok(entries)
    }

    fn is_of(&self, volume: &Source) -> bool {
        if self.source.as_os_str() == volume.to_string().as_str() {
            return true;
        }
        if !self.source.starts_with("/dev") {
            return false;
        }
        let is_it = volume.part == Part::Whole && same_file(&self.source, &volume.file);
        is_it
            || self
                .loop_backing()
                .is_some_and(|(file, start)| file == volume.file && starts_at(volume, start))
    }

    /// Returns the file behind the source, if the source is a loop device, and the byte of the file
    /// at which it starts.
    fn loop_backing(&self) -> Option<(PathBuf, u64)> {
        let device = Path::new("/sys/block")
            .join(self.source.file_name()?)
            .join("loop");
        let file = std::fs::read(device.join("backing_file")).ok()?;
        let start = std::fs::read_to_string(device.join("offset")).ok()?;
        Some((
            OsString::from_vec(file.trim_ascii_end().to_vec()).into(),
            start.trim().parse().ok()?,
        ))
    }

    /// Returns whether the process that served it has ended. It asks only mounts of this user: a
    /// process of another user need not answer.
    pub(crate) fn is_dead(&self) -> bool {
        self.owner == geteuid().as_raw()
            && matches!(
                rustix::fs::getxattr(&self.dir, "extern4.daemon", &mut [0_u8; 16]),
                Err(Errno::NOTCONN | Errno::CONNABORTED)
            )
    }

    /// Returns the dead mount that `dir` is in, or on.
    pub(crate) fn dead_at(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().or_else(|_| absolute(dir)).ok()?;
        let mut entries = Self::all().ok()?;
        let last = entries
            .iter()
            .rposition(|entry| dir.starts_with(&entry.dir))?;
        Some(entries.swap_remove(last)).filter(Self::is_dead)
    }
}

/// Returns whether a volume starts at this byte of its file.
fn starts_at(volume: &Source, start: u64) -> bool {
    match volume.part {
        Part::Whole => start == 0,
        Part::Offset(bytes) => start == bytes,
        Part::Partition(number) => {
            let table = Volume::partitions(&volume.file).ok().flatten();
            table.and_then(|table| table.partition(number).map(|part| part.start_bytes))
                == Some(start)
        }
    }
}

/// Decodes a field: three octal digits behind a backslash are a byte.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_in_the_table() {
        let table = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:51 / /mnt/a\\040b rw,nosuid - fuse.extern4 /my\\134disk.img#2 rw,user_id=1000,group_id=100
41 22 0:52 / /mnt/c rw - fuse.sshfs host: rw,user_id=0,group_id=0
42 22 7:1 / /mnt/d rw shared:3 master:1 - fuseblk.extern4 /dev/loop1 rw,user_id=0,group_id=0
";
        let entry = |dir: &str, source: &str, owner| MountEntry {
            dir: dir.into(),
            source: source.into(),
            owner,
        };
        let expected = [
            entry("/mnt/a b", "/my\\disk.img#2", 1000),
            entry("/mnt/d", "/dev/loop1", 0),
        ];
        assert_eq!(MountEntry::read(table), expected);
    }
}
