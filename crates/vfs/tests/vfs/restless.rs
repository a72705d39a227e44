//! A file system in memory that lets other threads run before and after each of its operations.
//!
//! On few processors threads rarely meet inside an operation by themselves. Here they meet where
//! the file system has changed something and the caches do not say so yet, and while permissions
//! are being checked.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use extern4_vfs::*;

/// [`MemFs`] with pauses.
pub(crate) struct Restless {
    inner: Arc<MemFs>,
    calls: AtomicU64,
    fast_may_exec: bool,
}

impl Restless {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_fast_may_exec(true)
    }

    /// A file system that lets the permission cache answer search checks, or not.
    pub(crate) fn with_fast_may_exec(fast_may_exec: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: MemFs::new(MemLimits::default()),
            calls: AtomicU64::new(0),
            fast_may_exec,
        })
    }

    fn pausing<T>(&self, act: impl FnOnce(&MemFs) -> T) -> T {
        pause(&self.calls);
        let result = act(&self.inner);
        pause(&self.calls);
        result
    }
}

/// Two times of three; a fixed rhythm is random enough, since threads share the counter.
fn pause(calls: &AtomicU64) {
    if !calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
        thread::yield_now();
    }
}

/// A hook that forbids nothing and lets other threads in.
#[derive(Default)]
pub(crate) struct RestlessHook {
    calls: AtomicU64,
}

impl SecurityHook for RestlessHook {
    fn permission(&self, _cred: &Cred, _inode: &Inode, _want: Access) -> Result<()> {
        pause(&self.calls);
        Ok(())
    }
}

impl FileSystem for Restless {
    fn traits(&self) -> FsTraits {
        FsTraits {
            fast_may_exec: self.fast_may_exec,
            ..self.inner.traits()
        }
    }

    fn root_ino(&self) -> u64 {
        self.inner.root_ino()
    }

    fn read_inode(&self, ino: u64) -> Result<NewInode> {
        self.pausing(|inner| inner.read_inode(ino))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.inner.statfs()
    }

    fn evict_inode(&self, inode: &Inode) {
        self.pausing(|inner| inner.evict_inode(inode));
    }
}

impl InodeOps for Restless {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
        self.pausing(|inner| inner.lookup(dir, name))
    }

    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>> {
        self.pausing(|inner| inner.read_link(inode))
    }

    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.get_xattr(inode, name)
    }

    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.list_xattr(inode, each)
    }

    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
        self.pausing(|inner| inner.get_acl(inode, kind))
    }

    fn create(&self, dir: &Inode, name: Option<&[u8]>, node: &NewNode<'_>) -> Result<NewInode> {
        self.pausing(|inner| inner.create(dir, name, node))
    }

    fn link(&self, inode: &Inode, to: NameRef<'_>, context: ChangeContext) -> Result<()> {
        self.pausing(|inner| inner.link(inode, to, context))
    }

    fn unlink(&self, from: NameRef<'_>, inode: &Inode, now: Timespec, is_last: bool) -> Result<()> {
        self.pausing(|inner| inner.unlink(from, inode, now, is_last))
    }

    fn rmdir(&self, from: NameRef<'_>, inode: &Inode, now: Timespec) -> Result<()> {
        self.pausing(|inner| inner.rmdir(from, inode, now))
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        self.pausing(|inner| inner.rename(rename))
    }

    fn set_attr(&self, inode: &Inode, set: &SetAttr) -> Result<()> {
        self.pausing(|inner| inner.set_attr(inode, set))
    }

    fn set_acl(
        &self,
        inode: &Inode,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u16>,
        context: ChangeContext,
    ) -> Result<()> {
        self.pausing(|inner| inner.set_acl(inode, kind, acl, mode, context))
    }
}

impl FileOps for Restless {
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(inode, buf, offset)
    }

    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>> {
        self.inner.span_at(inode, offset)
    }

    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.inner.read_dir(dir, cookie, each)
    }
}
