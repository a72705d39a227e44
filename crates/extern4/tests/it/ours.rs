//! The library's view of a volume, in the form that the oracles use.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use extern4::{Errno, FileType, Metadata, Session, Timespec, Volume};
use extern4_testkit::tree::{Content, ContentDigest, Entry, Kind, Time, Tree, join};

/// The test reads files up to this size as a whole, with their holes. Of bigger files it reads only
/// the data that `seek_data` finds.
const READ_WHOLE_BYTES: u64 = 16 << 20;

/// Reads everything in an image, as its superuser.
///
/// # Panics
/// When anything but the content of a file cannot be read.
pub(crate) fn tree(image: &Path) -> Tree {
    let volume = Volume::open(image).unwrap_or_else(|e| panic!("{e}"));
    let mut walker = Walker {
        session: volume.superuser(),
        tree: Tree::default(),
        contents: HashMap::new(),
    };
    walker.visit();
    walker.tree
}

struct Walker {
    session: Session,
    tree: Tree,
    /// Contents by inode: a file with many names is read once.
    contents: HashMap<u64, Content>,
}

impl Walker {
    fn visit(&mut self) {
        let mut todo = vec![b"/".to_vec()];
        while let Some(path) = todo.pop() {
            let entry = self.entry(&path).unwrap_or_else(|e| panic!("{e}"));
            if entry.kind == Kind::Directory {
                let listing = self
                    .session
                    .read_dir(as_path(&path))
                    .unwrap_or_else(|e| panic!("{e}"));
                for listed in listing {
                    let listed = listed.unwrap_or_else(|e| panic!("{e}"));
                    todo.push(join(&path, listed.file_name().as_bytes()));
                }
                self.misses_what_is_not_there(&path);
            }
            let text = path.escape_ascii().to_string();
            assert!(
                self.tree.entries.insert(path, entry).is_none(),
                "{text} is listed twice"
            );
        }
    }

    /// Checks that a lookup of an unused name fails, by any way of searching the directory.
    fn misses_what_is_not_there(&self, dir: &[u8]) {
        let path = join(dir, b"no file has this name");
        match self.session.symlink_metadata(as_path(&path)) {
            Err(e) if [Errno::ENOENT, Errno::ENOKEY].contains(&e.errno()) => {}
            other => panic!("{}: {other:?}", path.escape_ascii()),
        }
    }

    fn entry(&mut self, path: &[u8]) -> extern4::Result<Entry> {
        let name = as_path(path);
        let meta = self.session.symlink_metadata(name)?;
        let kind = kind(meta.file_type());
        let link = match kind {
            Kind::Symlink => Some(self.session.read_link(name)?.into_os_string().into_vec()),
            _ => None,
        };
        let mut xattrs = BTreeMap::new();
        for attribute in self.session.llistxattr(name)? {
            let value = self.session.lgetxattr(name, &attribute)?;
            let value = value.unwrap_or_else(|| {
                panic!(
                    "{}: {attribute:?} is listed but missing",
                    path.escape_ascii()
                )
            });
            xattrs.insert(attribute.into_vec(), value);
        }
        let content = (kind == Kind::File).then(|| self.content(name, &meta));
        Ok(Entry {
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: Some(u64::from(meta.nlink())),
            size: meta.len(),
            blocks: Some(meta.blocks()),
            rdev: (meta.rdev().major, meta.rdev().minor),
            atime: Some(time(meta.atime())),
            mtime: Some(time(meta.mtime())),
            ctime: Some(time(meta.ctime())),
            btime: Some(meta.btime().map(time)),
            ino: meta.ino(),
            flags: matches!(kind, Kind::File | Kind::Directory).then(|| meta.flags().bits()),
            xattrs: Some(xattrs),
            link,
            content,
        })
    }

    fn content(&mut self, path: &Path, meta: &Metadata) -> Content {
        let session = &self.session;
        self.contents
            .entry(meta.ino())
            .or_insert_with(|| content(session, path, meta.len()))
            .clone()
    }
}

fn content(session: &Session, path: &Path, size: u64) -> Content {
    let read = || -> extern4::Result<(u64, Vec<(u64, u64)>)> {
        let file = session.open(path)?;
        let data = data_ranges(&file)?;
        let whole = [(0, size)];
        let wanted: &[(u64, u64)] = if size <= READ_WHOLE_BYTES {
            &whole
        } else {
            &data
        };
        let mut digest = ContentDigest::default();
        let mut buffer = vec![0; 1 << 20];
        for &(start, end) in wanted {
            let mut at = start;
            while at < end {
                let want = buffer
                    .len()
                    .min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let got = file.read_at(&mut buffer[..want], at)?;
                assert_eq!(
                    got,
                    want,
                    "{}: a short read at {at} of {size}",
                    path.display()
                );
                digest.add(at, &buffer[..want]);
                at += want as u64;
            }
        }
        assert_eq!(
            file.read_at(&mut buffer, size)?,
            0,
            "{}: bytes behind the end",
            path.display()
        );
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

fn data_ranges(file: &extern4::File) -> extern4::Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(start) = file.seek_data(at)? {
        let end = file
            .seek_hole(start)?
            .expect("the end of the file counts as a hole");
        assert!(
            start >= at && end > start,
            "data from {start} to {end}, sought from {at}"
        );
        ranges.push((start, end));
        at = end;
    }
    Ok(ranges)
}

fn time(time: Timespec) -> Time {
    Time {
        sec: time.sec,
        nsec: time.nsec,
    }
}

fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    }
}

/// Returns bytes as a path.
pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
