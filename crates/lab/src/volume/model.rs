//! A volume in miniature: names, and inodes that a mechanism makes.

use std::sync::{Arc, PoisonError};

use extern4_sync::primitive::{AtomicBool, AtomicU64, Mutex, Ordering};
use extern4_sync::rcu::pin;
use extern4_vfs::open_files::lab::{Opened, Registry, Slabs};
use extern4_vfs::{Access, Acl, Attr, Cred, Errno, FileType, How, OpenFileInfo, OpenFlags};

use super::tree::Tree;
use super::{File, Production, Volume, user};

/// An inode.
pub trait Node: Send + Sync {
    /// One that has no ACL.
    fn new(attr: Attr) -> Self;

    /// Its attributes.
    fn attr(&self) -> Attr;

    /// May `cred`, who has no capabilities, have these rights?
    fn may(&self, cred: &Cred, want: Access) -> bool;

    /// May `cred` look names up in this directory? `fast` allows a shorter way to the answer, for who knows one.
    #[inline]
    fn may_search(&self, cred: &Cred, fast: bool) -> bool {
        let _ = fast;
        self.may(cred, Access::EXEC)
    }

    /// Its ACL.
    fn acl(&self) -> Option<Arc<Acl>>;

    /// Gives it permission bits and an ACL. When this returns, nobody is judged by others any more. One call at a time.
    fn set_rights(&self, mode: u16, acl: Option<Arc<Acl>>);
}

/// A volume of such inodes.
pub struct Model<N> {
    tree: Tree<Used<N>>,
    user: Cred,
    /// Those of production: what is open is not what is measured here.
    files: Slabs<Opened>,
    changing: Mutex<()>,
    /// Search checks may be answered the short way.
    fast: AtomicBool,
}

/// An inode, and by how many it is open.
struct Used<N> {
    node: N,
    opened: AtomicU64,
}

impl<N: Node> Used<N> {
    fn new(attr: Attr) -> Self {
        Self { node: N::new(attr), opened: AtomicU64::new(0) }
    }
}

impl<N: Node> Model<N> {
    /// What a path leads to, by the rules of `search`.
    #[inline]
    fn find(&self, path: &str, mut search: impl FnMut(&N) -> bool) -> Result<&Used<N>, Errno> {
        Ok(&self.tree.find(path, |used| search(&used.node))?.inode)
    }

    #[inline]
    fn walk(&self, path: &str) -> Result<&Used<N>, Errno> {
        let (_section, fast) = (pin(), self.is_fast());
        self.find(path, |node| node.may_search(&self.user, fast))
    }

    /// Attributes of a file, asked by the user, where `search` is asked of each directory.
    pub fn stat_by(&self, path: &str, search: impl FnMut(&N) -> bool) -> Result<Attr, Errno> {
        Ok(self.find(path, search)?.node.attr())
    }

    /// Whether search checks may be answered the short way.
    #[inline]
    pub fn is_fast(&self) -> bool {
        // Relaxed: both ways give the same answers, so when the switch is seen does not matter.
        self.fast.load(Ordering::Relaxed)
    }

    /// Switches that.
    pub fn set_fast(&self, on: bool) {
        self.fast.store(on, Ordering::Relaxed);
    }

    /// Changes the rights on a file by what it has for an ACL.
    fn change(&self, path: &str, change: impl FnOnce(Option<Arc<Acl>>) -> (u16, Option<Arc<Acl>>)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let node = &self.find(path, |_| true).expect("it is there").node;
        let (mode, acl) = change(node.acl());
        node.set_rights(mode, acl);
    }
}

impl<N: Node> Volume for Model<N> {
    fn new(files: &[File]) -> Self {
        // Which knows all attributes.
        let production = Production::new(files);
        let used = |path: &str| Used::new(production.root.stat(path, How::NOFOLLOW).expect("it is there"));
        let mut tree = Tree::new(used("/"), files.len());
        for File { path, kind, .. } in files {
            tree.insert(path, *kind == FileType::Directory, used(path));
        }
        Self {
            tree,
            user: user(),
            files: Slabs::default(),
            changing: Mutex::new(()),
            fast: AtomicBool::new(true),
        }
    }

    type Directory<'v>
        = &'v N
    where
        Self: 'v;

    fn directory(&self, path: &str) -> &N {
        &self.find(path, |_| true).expect("it is there").node
    }

    #[inline(always)]
    fn may_search<const LEN: usize>(&self, directories: &[&N; LEN]) -> bool {
        let (_section, fast) = (pin(), self.is_fast());
        directories.iter().all(|node| node.may_search(&self.user, fast))
    }

    #[inline]
    fn stat(&self, path: &str) -> Result<Attr, Errno> {
        Ok(self.walk(path)?.node.attr())
    }

    #[inline]
    fn open_and_close(&self, path: &str) -> Result<(), Errno> {
        let Used { node, opened } = self.walk(path)?;
        if !node.may(&self.user, Access::READ) {
            return Err(Errno::EACCES);
        }
        // Relaxed: nothing here is freed.
        opened.fetch_add(1, Ordering::Relaxed);
        let mut info = OpenFileInfo::default();
        (info.session, info.uid, info.flags) = (1, self.user.uid(), OpenFlags::READ);
        let ticket = self.files.add(|opened| opened.fill(&info, path.as_bytes())).ok_or(Errno::ENFILE)?;
        assert!(self.files.remove(&ticket, Opened::empty), "it has been closed before");
        opened.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn set_acl(&self, path: &str, acl: &Acl) {
        let (mode, says_all) = acl.equiv_mode();
        self.change(path, |_| (mode, (!says_all).then(|| Arc::new(acl.clone()))));
    }

    fn chmod(&self, path: &str, mode: u16) {
        self.change(path, |acl| (mode, acl.map(|acl| Arc::new(acl.with_mode(mode)))));
    }
}

/// What owner, permission bits and ACL say of somebody without capabilities, in the order in which Linux asks. The ACL is asked for
/// only where it counts.
#[inline]
pub fn judge(
    cred: &Cred,
    (uid, gid, mode): (u32, u32, u16),
    want: Access,
    acl: impl FnOnce() -> Option<Arc<Acl>>,
) -> bool {
    let bits = u16::from(want.bits());
    if cred.uid() == uid {
        return mode >> 6 & bits == bits;
    }
    // The group bits are the ACL's mask.
    if mode & 0o070 != 0
        && let Some(acl) = acl()
    {
        return acl.allows(cred, gid, want.bits());
    }
    let shift = if cred.in_group(gid) { 3 } else { 0 };
    mode >> shift & bits == bits
}
