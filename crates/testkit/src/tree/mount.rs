//! A tree as the kernel shows it: everything below a mount, read by system calls.
//!
//! `image` and `crash` call it for the oracle's tree. It changes nothing on a mount without access
//! times. A read of contents that the kernel refuses is part of the tree; any other failure is a
//! panic.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, Statx, StatxFlags};

use super::{Content, ContentDigest, Entry, Kind, Time, Tree, join};

/// Reads everything below `root`, the top of a mounted volume.
///
/// The mount has to be `noatime` or read-only. Otherwise reading would change what later readers
/// see.
///
/// # Panics
/// When a read fails, except a read of a file's content: that failure is part of the tree.
pub fn from_mount(root: &Path) -> Tree {
    let mut walker = Walker {
        root,
        tree: Tree::default(),
        contents: HashMap::new(),
    };
    walker.visit(b"/".to_vec());
    walker.tree
}

struct Walker<'a> {
    root: &'a Path,
    tree: Tree,
    /// Contents by inode: a file with many names is read once.
    contents: HashMap<u64, Content>,
}

impl Walker<'_> {
    fn visit(&mut self, top: Vec<u8>) {
        let mut todo = vec![top];
        while let Some(path) = todo.pop() {
            let entry = self
                .entry(&path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.escape_ascii()));
            if entry.kind == Kind::Directory {
                let names = names(&self.real(&path))
                    .unwrap_or_else(|e| panic!("{}: {e}", path.escape_ascii()));
                todo.extend(names.iter().map(|name| join(&path, name)));
            }
            let known = self.tree.entries.insert(path, entry);
            assert!(known.is_none(), "readdir gave a name twice");
        }
    }

    /// Returns the path on this machine of a path of the volume.
    fn real(&self, path: &[u8]) -> OsString {
        let mut real = self.root.as_os_str().as_bytes().to_vec();
        real.extend(path);
        OsString::from_vec(real)
    }

    fn entry(&mut self, path: &[u8]) -> io::Result<Entry> {
        let real = self.real(path);
        let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(CWD, &real, AtFlags::SYMLINK_NOFOLLOW, fields)?;
        let mode = u32::from(stat.stx_mode);
        let kind = Kind::of_mode(mode).ok_or_else(|| io::Error::other(format!("mode {mode:o}")))?;
        let link = match kind {
            Kind::Symlink => Some(std::fs::read_link(&real)?.into_os_string().into_vec()),
            _ => None,
        };
        let content = match kind {
            Kind::File => Some(self.content(&real, &stat)),
            _ => None,
        };
        Ok(Entry {
            kind,
            mode: mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: Some(u64::from(stat.stx_nlink)),
            size: stat.stx_size,
            blocks: Some(stat.stx_blocks),
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            atime: Some(time(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec)),
            mtime: Some(time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec)),
            ctime: Some(time(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)),
            btime: Some(
                (stat.stx_mask & StatxFlags::BTIME.bits() != 0)
                    .then(|| time(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)),
            ),
            ino: stat.stx_ino,
            flags: matches!(kind, Kind::File | Kind::Directory)
                .then(|| flags(&real))
                .flatten(),
            xattrs: Some(xattrs(&real)?),
            link,
            content,
        })
    }

    fn content(&mut self, real: &OsStr, stat: &Statx) -> Content {
        self.contents
            .entry(stat.stx_ino)
            .or_insert_with(|| read_content(real, stat.stx_size))
            .clone()
    }
}

fn time(sec: i64, nsec: u32) -> Time {
    Time { sec, nsec }
}

/// Returns the names in a directory, unsorted.
fn names(dir: &OsStr) -> io::Result<Vec<Vec<u8>>> {
    std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().into_vec()))
        .collect()
}

/// Returns the flags from `FS_IOC_GETFLAGS`, if the object can be opened.
fn flags(path: &OsStr) -> Option<u32> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::empty()).ok()?;
    rustix::fs::ioctl_getflags(file)
        .ok()
        .map(|flags| flags.bits())
}

fn xattrs(path: &OsStr) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The kernel gives no more than this (XATTR_LIST_MAX).
    let mut list = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut list)?;
    let names = list[..len]
        .split(|&b| b == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| Ok((name.to_vec(), xattr(path, name)?)))
        .collect()
}

fn xattr(path: &OsStr, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; rustix::fs::lgetxattr_query(path, name)?];
    let len = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

fn read_content(path: &OsStr, size: u64) -> Content {
    let read = || -> io::Result<(u64, Vec<(u64, u64)>)> {
        let file = std::fs::File::open(path)?;
        let data = data_ranges(&file, size)?;
        let mut digest = ContentDigest::default();
        let mut buffer = vec![0; 1 << 20];
        for &(start, end) in &data {
            // Ranges of data start at blocks, so at multiples of eight.
            let mut at = start;
            while at < end {
                let want = buffer
                    .len()
                    .min(usize::try_from(end - at).unwrap_or(usize::MAX));
                file.read_exact_at(&mut buffer[..want], at)?;
                digest.add(at, &buffer[..want]);
                at += want as u64;
            }
        }
        Ok((digest.finish(), data))
    };
    match read() {
        Ok((digest, data)) => Content {
            digest: Ok(digest),
            data: Some(data),
        },
        Err(e) => Content {
            digest: Err(e.raw_os_error().unwrap_or(0)),
            data: None,
        },
    }
}

fn data_ranges(file: &std::fs::File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        ranges.push((start, end));
        at = end;
    }
    Ok(ranges)
}
