//! `extern4-vfs` over memory.

use std::iter;
use std::sync::Arc;

use extern4_sync::rcu::pin;
use extern4_vfs::open_files::lab::RegistryKind;
use extern4_vfs::permission::lab;
use extern4_vfs::{
    Acl, AclKind, Attr, Cred, Errno, FileType, How, Inode, Location, MemFs, MemLimits, Namespace, NewKind,
    OpenFlags, Session, SuperBlock, SuperOptions,
};

use super::{File, Volume, user};

/// The VFS in production, on a file system in memory, as calls of a session use it.
pub struct Production {
    /// The superuser's session.
    pub root: Session,
    /// The user's.
    pub user: Session,
    /// What a walk has at hand where it begins.
    superblock: Arc<SuperBlock>,
    /// The directories, by their paths.
    directories: Vec<(String, Location)>,
}

impl Production {
    /// The file system in use.
    pub fn superblock(&self) -> &Arc<SuperBlock> {
        &self.superblock
    }

    /// A volume with these files. What is open is entered in a registry of that kind.
    pub fn with_registry(registry: RegistryKind, files: &[File]) -> Self {
        let fs = MemFs::new(MemLimits::default());
        let options = SuperOptions { registry, ..SuperOptions::default() };
        let sb = SuperBlock::new(fs, options).expect("a new volume");
        let root = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root()).with_umask(0);
        for File { path, kind, uid, mode } in files {
            match kind {
                FileType::Directory => root.mkdir(path, *mode),
                _ => root.mknod(path, NewKind::Regular, *mode),
            }
            .expect("a new name");
            root.chown(path, Some(*uid), Some(*uid), How::FOLLOW).expect("it is there");
        }
        let user = root.with_cred(user());
        let directories = files.iter().filter(|file| file.kind == FileType::Directory);
        let paths = iter::once("/").chain(directories.map(|file| file.path.as_str()));
        let locate = |path: &str| (path.to_owned(), root.locate(path, How::FOLLOW).expect("it is there"));
        let directories = paths.map(locate).collect();
        Self { root, user, superblock: sb, directories }
    }
}

impl Volume for Production {
    fn new(files: &[File]) -> Self {
        Self::with_registry(RegistryKind::default(), files)
    }

    type Directory<'v> = &'v Inode;

    fn directory(&self, path: &str) -> &Inode {
        let found = self.directories.iter().find(|(at, _)| at == path);
        found.expect("it is there, and a directory").1.inode()
    }

    #[inline(always)]
    fn may_search<const N: usize>(&self, directories: &[&Inode; N]) -> bool {
        lab::search(self.superblock(), self.user.cred(), directories, &pin()) == Some(true)
    }

    #[inline]
    fn stat(&self, path: &str) -> Result<Attr, Errno> {
        self.user.stat(path, How::FOLLOW).map_err(|error| error.errno())
    }

    #[inline]
    fn open_and_close(&self, path: &str) -> Result<(), Errno> {
        self.user.open(path, OpenFlags::READ).map(drop).map_err(|error| error.errno())
    }

    fn set_acl(&self, path: &str, acl: &Acl) {
        self.root.set_acl(path, AclKind::Access, Some(acl.clone()), How::FOLLOW).expect("it is there");
    }

    fn chmod(&self, path: &str, mode: u16) {
        self.root.chmod(path, mode, How::FOLLOW).expect("it is there");
    }
}
