//! Encrypted files without their key: no operation returns or changes their contents, and each
//! fails with the kernel's error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4_ext4::Ext4;
use extern4_testkit::unreadable::{CLEAR_DIRECTORY, DIRECTORIES, FILES, LINKS, MARK, UNREADABLE};
use extern4_vfs::*;

use crate::model::{open, open_for_writing, session};
use crate::walk;

const NOW: Timespec = Timespec {
    sec: 1_700_000_000,
    nsec: 0,
};
/// No limit binds the caller.
const CONTEXT: ChangeContext = ChangeContext {
    now: NOW,
    rights: SpaceRights::ALL,
};

/// An access to a file's contents, or to change them.
type Access = fn(&Session, &Ext4, &str) -> Result<Vec<u8>>;

const ACCESSES: &[(&str, Access)] = &[
    ("read an open file", |session, _, path| {
        let mut bytes = vec![0; 8192];
        let len = open(session, path, OpenFlags::READ, 0)?.read_at(&mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }),
    ("map an open file", |session, _, path| {
        open(session, path, OpenFlags::READ, 0)?
            .span_at(0)
            .map(|_| Vec::new())
    }),
    ("lend from an open file", |session, _, path| {
        let take = &mut |_: &[Lent<'_>]| true;
        open(session, path, OpenFlags::READ, 0)?
            .lend_at(0, 8192, take)
            .map(|_| Vec::new())
    }),
    ("seek data", |session, _, path| {
        open(session, path, OpenFlags::READ, 0)?
            .seek_data(0)
            .map(|_| Vec::new())
    }),
    ("write", |session, _, path| {
        open(session, path, OpenFlags::WRITE, 0)?
            .write_at(b"x", 0)
            .map(|_| Vec::new())
    }),
    ("cut when opened", |session, _, path| {
        open(session, path, OpenFlags::WRITE | OpenFlags::TRUNC, 0).map(|_| Vec::new())
    }),
    ("allocate", |session, _, path| {
        let file = open(session, path, OpenFlags::WRITE, 0)?;
        file.fallocate(FallocateMode::empty(), 0, 8192)
            .map(|()| Vec::new())
    }),
    // Below the VFS, where no file is opened: so a mount comes here, and a file of no size is as
    // empty as it looks.
    ("read the inode", |session, fs, path| {
        let mut bytes = vec![0; 8192];
        let len = fs.read_at(&inode(session, fs, path)?, &mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }),
    ("map the inode", |session, fs, path| {
        fs.span_at(&inode(session, fs, path)?, 0)
            .map(|_| Vec::new())
    }),
    ("lend from the inode", |session, fs, path| {
        walk::lent(fs, &inode(session, fs, path)?, 0, 8192).map(Option::unwrap_or_default)
    }),
    ("write to the inode", |session, fs, path| {
        fs.write_at(&inode(session, fs, path)?, b"x", 0, CONTEXT)
            .map(|_| Vec::new())
    }),
    ("write over the inode", |session, fs, path| {
        let inode = inode(session, fs, path)?;
        if fs.overwrite(&inode, b"x", 0, &mut || ())? {
            Ok(Vec::new())
        } else {
            fs.write_at(&inode, b"x", 0, CONTEXT).map(|_| Vec::new())
        }
    }),
];

fn inode(session: &Session, fs: &Ext4, path: &str) -> Result<Inode> {
    fs.read_inode(session.stat(path, LookupFlags::NOFOLLOW)?.ino)
        .map(Inode::detached)
}

/// The kernel's answer to an `open`.
fn errno_of_kernel(mount: &Path, path: &str) -> Option<u16> {
    let error = std::fs::File::open(mount.join(path.trim_start_matches('/'))).err()?;
    u16::try_from(error.raw_os_error()?).ok()
}

/// The path of the file that is not encrypted in a directory that is.
fn clear_path(fs: &Ext4) -> String {
    let dir = walk::resolve(fs, CLEAR_DIRECTORY).expect("the directory");
    let names = walk::names(fs, &dir, usize::MAX).expect("a listing");
    let size = |ino| walk::inode(fs, ino).expect("an inode").attr().size;
    let clear = |(name, ino): &&(Vec<u8>, u64)| !name.starts_with(b".") && size(*ino) > 0;
    let (name, _) = names.iter().find(clear).expect("a file with contents");
    format!("{CLEAR_DIRECTORY}/{}", OsStr::from_bytes(name).display())
}

#[test]
fn contents_are_out_of_reach_without_their_key() {
    if !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    let theirs = image.copy();
    let ours = image.path.clone();
    let fs = open_for_writing(&ours);
    let session = session(fs.clone());
    let mount = theirs.mount("ro,noatime");
    let clear = clear_path(&fs);
    for file in FILES.iter().copied().chain([clear.as_str()]) {
        let path = format!("/{file}");
        let errno = errno_of_kernel(&mount.path, &path).expect("the kernel refuses it");
        for (what, way) in ACCESSES {
            let below = what.ends_with("inode");
            if below
                && (file == clear
                    || session
                        .stat(&path, LookupFlags::NOFOLLOW)
                        .expect("attributes")
                        .size
                        == 0)
            {
                continue;
            }
            match way(&session, &fs, &path) {
                Ok(bytes) => panic!("{what} of {file}: gives {} bytes", bytes.len()),
                // A write to a damaged map may be refused in another way.
                Err(error) if file.ends_with("-map") => {
                    assert_eq!(error.errno(), Errno::EUCLEAN, "{what} of {file}")
                }
                Err(error) => assert_eq!(error.errno().raw(), errno, "{what} of {file}: {error}"),
            }
        }
    }
    fs.close().expect("it closes");
}

#[test]
fn names_and_targets_are_out_of_reach_without_their_key() {
    if !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    let fs = open_for_writing(&image.path);
    let session = session(fs.clone());
    for link in LINKS {
        let error = session
            .read_link(format!("/{link}"), LookupFlags::NOFOLLOW)
            .expect_err(link);
        let expected = if link.starts_with("bad") {
            Errno::EINVAL
        } else {
            Errno::ENODATA
        };
        assert_eq!(error.errno(), expected, "{link}");
        assert_eq!(
            session
                .stat(format!("/{link}/x"), LookupFlags::FOLLOW)
                .unwrap_err()
                .errno(),
            expected,
            "{link}"
        );
    }
    for dir in DIRECTORIES {
        let listed = open(&session, &format!("/{dir}"), OpenFlags::READ, 0).expect(dir);
        for list in [OpenFile::read_dir, OpenFile::read_dir_plus] {
            let mut batch = DirBatch::default();
            assert_eq!(
                list(&listed, 0, 100, &mut batch).unwrap_err().errno(),
                Errno::ENODATA,
                "{dir}"
            );
            assert_eq!(batch.iter().count(), 0, "{dir}");
        }
        let path = format!("/{dir}/{} 0", String::from_utf8_lossy(MARK));
        assert_eq!(
            session
                .stat(&path, LookupFlags::NOFOLLOW)
                .unwrap_err()
                .errno(),
            Errno::ENODATA,
            "{dir}"
        );
    }
    fs.close().expect("it closes");
}
