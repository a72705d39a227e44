//! A file system that only reads, made from a table: the smallest thing the VFS can serve.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use extern4_sync::rcu::{RcuOption, pin};
use extern4_vfs::*;

pub(crate) struct TreeFs {
    nodes: Vec<Node>,
    pub(crate) lookups: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// Whether inodes have ACLs is to be asked for.
    pub(crate) asks_for_acls: AtomicBool,
    /// Whether the permission cache may answer search checks on file systems that are taken into
    /// use from now on.
    pub(crate) fast_may_exec: AtomicBool,
}

struct Node {
    attr: Attr,
    link: Box<[u8]>,
    names: BTreeMap<Vec<u8>, u64>,
}

impl TreeFs {
    /// Lines of path, kind, mode, owner, group; parents first, the root is there already. Kinds are
    /// `file`, `dir`, `fold` for a directory that ignores case, `=PATH` for one more name of what
    /// is there, and else a link's target.
    pub(crate) fn new(table: &[(&str, &str, u16, u32, u32)]) -> Arc<Self> {
        let mut fs = Self {
            nodes: vec![node(1, FileType::Directory, 0o755, 0, 0, b"")],
            lookups: 0.into(),
            reads: 0.into(),
            asks_for_acls: false.into(),
            fast_may_exec: true.into(),
        };
        for &(path, what, mode, uid, gid) in table {
            let (dir, name) = path.rsplit_once('/').unwrap();
            let at = usize::try_from(fs.find(dir)).unwrap() - 1;
            let ino = fs.nodes.len() as u64 + 1;
            if let Some(old) = what.strip_prefix('=') {
                let ino = fs.find(old);
                fs.nodes[at].names.insert(name.as_bytes().to_vec(), ino);
                continue;
            }
            let (kind, link) = match what {
                "dir" | "fold" => (FileType::Directory, &b""[..]),
                "file" => (FileType::Regular, &b""[..]),
                target => (FileType::Symlink, target.as_bytes()),
            };
            fs.nodes[at].names.insert(name.as_bytes().to_vec(), ino);
            fs.nodes.push(node(ino, kind, mode, uid, gid, link));
            if what == "fold" {
                fs.nodes.last_mut().unwrap().attr.flags = FileFlags::CASEFOLD;
            }
        }
        Arc::new(fs)
    }

    fn find(&self, path: &str) -> u64 {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(1, |ino, part| {
            self.node(ino).unwrap().names[part.as_bytes()]
        })
    }

    fn node(&self, ino: u64) -> Result<&Node> {
        let index = usize::try_from(ino).ok().and_then(|ino| ino.checked_sub(1));
        index
            .and_then(|index| self.nodes.get(index))
            .ok_or(Errno::ESTALE.into())
    }
}

fn node(ino: u64, kind: FileType, mode: u16, uid: u32, gid: u32, link: &[u8]) -> Node {
    let time = Timespec::default();
    let attr = Attr {
        ino,
        generation: 0,
        kind,
        mode,
        uid,
        gid,
        nlink: 1,
        rdev: Rdev::default(),
        size: link.len() as u64,
        blocks: 0,
        blksize: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        flags: FileFlags::empty(),
        project: 0,
    };
    Node {
        attr,
        link: link.into(),
        names: BTreeMap::new(),
    }
}

impl FileSystem for TreeFs {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "tree",
            name_max: 255,
            read_only: true,
            acl: true,
            fast_may_exec: self.fast_may_exec.load(Ordering::Relaxed),
            casefold: false,
            bsd_groups: false,
            inode_bytes: 0,
        }
    }

    fn root_ino(&self) -> u64 {
        1
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let no_acl = !self.asks_for_acls.load(Ordering::Relaxed);
        Ok(NewInode {
            attr: self.node(ino)?.attr,
            no_acl,
            no_caps: true,
            private: Box::new(()),
        })
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(Errno::ENOSYS.into())
    }
}

impl InodeOps for TreeFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        // Long enough for others to come along while one asks.
        std::thread::yield_now();
        let names = &self.node(dir.ino())?.names;
        if !dir.attr().flags.contains(FileFlags::CASEFOLD) {
            return Ok(names.get(name).copied());
        }
        Ok(names
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, &ino)| ino))
    }

    fn canonical_name<'a>(&self, _dir: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(Cow::Owned(name.to_ascii_lowercase()))
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        Ok(self.node(inode.ino())?.link.clone())
    }

    fn get_xattr(&self, _inode: &Inode, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::ENODATA.into())
    }

    fn list_xattr(&self, _inode: &Inode, _each: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(())
    }

    fn get_acl(&self, _inode: &Inode, _kind: AclKind) -> Result<Option<Acl>> {
        assert!(
            readers_end(),
            "the caller is in a read section, for whose end freed memory waits"
        );
        Ok(None)
    }
}

/// Whether what is given up is freed though this call has not returned: not, if its caller is in a
/// read section.
fn readers_end() -> bool {
    let retire_and_wait = || {
        let value = Arc::new(());
        RcuOption::new(Some(Arc::clone(&value))).store(None);
        (0..5000).any(|_| {
            pin().flush();
            thread::sleep(Duration::from_millis(1));
            Arc::strong_count(&value) == 1
        })
    };
    thread::spawn(retire_and_wait).join().unwrap()
}

impl FileOps for TreeFs {
    fn read_at(&self, _inode: &Inode, _buf: &mut [u8], _offset: u64) -> Result<usize> {
        Ok(0)
    }

    fn span_at(&self, _inode: &Inode, _offset: u64) -> Result<Option<Span>> {
        Ok(None)
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let names = &self.node(dir.ino())?.names;
        for ((name, &ino), next) in names
            .iter()
            .zip(1u64..)
            .skip(usize::try_from(cookie).unwrap())
        {
            if each(RawDirEntry {
                name,
                ino,
                kind: None,
                next,
            })
            .is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

#[test]
fn dropped_caches_leave_the_names_in_use_and_the_directories_above_them() {
    let root = crate::fixture::volume();
    let mut path = String::new();
    for depth in 0..30 {
        path.push_str("/d");
        root.mkdir(&path, 0o755).unwrap();
        for file in 0..depth {
            crate::fixture::put(&root, &format!("{path}/{file}"), b"bytes");
        }
    }
    let sb = crate::fixture::sb(&root);
    assert!(sb.stats().dentries > 450 && sb.stats().inodes > 450);
    let held = root.open("/d/d/d/1", OpenFlags::READ).unwrap();
    sb.drop_caches();
    assert_eq!((sb.stats().dentries, sb.stats().inodes), (4, 5));
    assert_eq!(held.size(), 5);
    drop(held);
    sb.drop_caches();
    // The root has no name.
    assert_eq!((sb.stats().dentries, sb.stats().inodes), (0, 1));
}
