//! A tree as this crate shows it through the traits of the VFS, without the VFS.
//!
//! Tests compare it with the kernel's mount or `debugfs`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4_block::FileDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::tree::{Content, ContentDigest, Entry, Kind, Time, Tree, join};
use extern4_vfs::{
    AclKind, FileSystem, FileType, Inode, InodeOps, Lent, Result, SpanKind, Timespec,
};

/// Opens the image at `path` with the default options.
pub(crate) fn open(path: &Path) -> Ext4 {
    open_with(path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Opens the image at `path`.
pub(crate) fn open_with(path: &Path, options: &OpenOptions) -> extern4_ext4::Result<Ext4> {
    let device = FileDevice::open(path).expect("the image opens as a device");
    Ext4::open(Arc::new(device), options)
}

/// The inode with this number.
pub(crate) fn inode(fs: &impl FileSystem, ino: u64) -> Result<Inode> {
    fs.read_inode(ino).map(Inode::detached)
}

/// The inode at an absolute path without symbolic links.
pub(crate) fn resolve(fs: &Ext4, path: &str) -> Result<Inode> {
    let mut found = inode(fs, fs.root_ino())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let ino = fs
            .lookup(&found, name.as_bytes())?
            .ok_or(extern4_vfs::Errno::ENOENT)?;
        found = inode(fs, ino)?;
    }
    Ok(found)
}

/// The names in a directory, `.` and `..` among them, in the order they are listed; `stop_after`
/// entries a call.
pub(crate) fn names(
    fs: &impl FileSystem,
    dir: &Inode,
    stop_after: usize,
) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut seen = 0;
        fs.read_dir(dir, cookie, &mut |entry| {
            names.push((entry.name.to_vec(), entry.ino));
            cookie = entry.next;
            seen += 1;
            if seen == stop_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if seen < stop_after {
            return Ok(names);
        }
    }
}

/// Everything below the root.
pub(crate) fn tree(fs: &impl FileSystem) -> Tree {
    let mut tree = Tree::default();
    let mut todo = vec![(b"/".to_vec(), fs.root_ino())];
    while let Some((path, ino)) = todo.pop() {
        let shown = path.escape_ascii().to_string();
        let inode = inode(fs, ino).unwrap_or_else(|e| panic!("{shown}: {e}"));
        if inode.attr().kind == FileType::Directory {
            for (name, child) in
                names(fs, &inode, usize::MAX).unwrap_or_else(|e| panic!("{shown}: {e}"))
            {
                if name != b"." && name != b".." {
                    let found = fs
                        .lookup(&inode, &name)
                        .unwrap_or_else(|e| panic!("{shown}: {e}"));
                    assert_eq!(found, Some(child), "{shown}/{}", name.escape_ascii());
                    todo.push((join(&path, &name), child));
                }
            }
        }
        let entry = entry(fs, &inode).unwrap_or_else(|e| panic!("{shown}: {e}"));
        assert!(
            tree.entries.insert(path, entry).is_none(),
            "{shown} is listed twice"
        );
    }
    tree
}

fn entry(fs: &impl FileSystem, inode: &Inode) -> Result<Entry> {
    let attr = inode.attr();
    let kind = Kind::of_mode(u32::from(attr.kind.mode_bits())).expect("a type");
    let time = |t: Timespec| Time {
        sec: t.sec,
        nsec: t.nsec,
    };
    Ok(Entry {
        kind,
        mode: u32::from(attr.mode),
        uid: attr.uid,
        gid: attr.gid,
        nlink: Some(u64::from(attr.nlink)),
        size: attr.size,
        blocks: Some(attr.blocks),
        rdev: (attr.rdev.major, attr.rdev.minor),
        atime: Some(time(attr.atime)),
        mtime: Some(time(attr.mtime)),
        ctime: Some(time(attr.ctime)),
        btime: Some(attr.btime.map(time)),
        ino: attr.ino,
        flags: None,
        xattrs: Some(xattrs(fs, inode)?),
        link: if kind == Kind::Symlink {
            Some(fs.read_link(inode)?.into())
        } else {
            None
        },
        content: (kind == Kind::File).then(|| content(fs, inode)),
    })
}

fn xattrs(fs: &impl FileSystem, inode: &Inode) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = Vec::new();
    fs.list_xattr(inode, &mut |name| names.push(name.to_vec()))?;
    let mut xattrs = BTreeMap::new();
    for name in names {
        let value = fs.get_xattr(inode, &name)?;
        xattrs.insert(name, value);
    }
    for (kind, name) in [
        (AclKind::Access, "system.posix_acl_access"),
        (AclKind::Default, "system.posix_acl_default"),
    ] {
        if let Some(acl) = fs.get_acl(inode, kind)? {
            xattrs.insert(name.into(), acl.to_xattr());
        }
    }
    Ok(xattrs)
}

fn content(fs: &impl FileSystem, inode: &Inode) -> Content {
    let read = || -> Result<(u64, Vec<(u64, u64)>)> {
        let data = data_ranges(fs, inode)?;
        let mut digest = ContentDigest::default();
        let mut buffer = vec![0; 1 << 20];
        for &(start, end) in &data {
            let mut at = start;
            while at < end {
                let want = buffer
                    .len()
                    .min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let got = fs.read_at(inode, &mut buffer[..want], at)?;
                assert_eq!(got, want);
                if let Some(lent) = lent(fs, inode, at, want)? {
                    assert!(
                        lent == buffer[..want],
                        "inode {}: lent bytes from {at} on",
                        inode.ino()
                    );
                }
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
            digest: Err(i32::from(e.errno().raw())),
            data: None,
        },
    }
}

/// The bytes of a file that are lent, if any are.
pub(crate) fn lent(
    fs: &impl FileSystem,
    inode: &Inode,
    offset: u64,
    len: usize,
) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let taken = fs.lend(inode, offset, len, &mut |pieces| {
        for piece in pieces {
            let start = bytes.len();
            bytes.resize(start + piece.len_bytes(), 0);
            if let Lent::Host { file, offset, .. } = *piece {
                file.read_exact_at(&mut bytes[start..], offset)
                    .expect("the image has it");
            }
        }
        true
    })?;
    Ok(taken.then_some(bytes))
}

/// Where there is data, as `SEEK_DATA` and `SEEK_HOLE` find it: neighbouring spans of it make one
/// range.
fn data_ranges(fs: &impl FileSystem, inode: &Inode) -> Result<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while let Some(span) = fs.span_at(inode, at)? {
        assert_eq!(span.offset, at);
        at += span.len;
        if matches!(span.kind, SpanKind::Hole | SpanKind::Unwritten) {
            continue;
        }
        match ranges.last_mut() {
            Some((_, end)) if *end == span.offset => *end = at,
            _ => ranges.push((span.offset, at)),
        }
    }
    Ok(ranges)
}
