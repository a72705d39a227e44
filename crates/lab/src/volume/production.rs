//! A volume of `extern4-vfs` over memory, called through sessions as an embedding program calls it.
//!
//! All sides of `acl`, `may_exec` and the traces are such volumes. It makes the files that it is
//! given and calls the VFS; it adds no check.

use std::iter;
use std::sync::Arc;

use extern4_sync::rcu::pin;
use extern4_vfs::lab::{self, Check, LabRegistry, Sides};
use extern4_vfs::{
    Acl, AclKind, Attr, Cred, Errno, FileType, Inode, Location, LookupFlags, MemFs, MemLimits,
    Namespace, NewKind, OpenFlags, Session, SuperBlock, SuperOptions,
};

use super::{File, user};

/// The VFS in production, on a file system in memory, called through sessions.
pub struct Production {
    /// The superuser's session.
    pub root: Session,
    /// The user's session.
    pub user: Session,
    /// The superblock, which a walk starts from.
    superblock: Arc<SuperBlock>,
    /// The directories with their paths.
    directories: Vec<(String, Location)>,
}

impl Production {
    /// Returns the superblock of the file system.
    pub fn superblock(&self) -> &Arc<SuperBlock> {
        &self.superblock
    }

    /// Creates a volume with these files below the root directory, and with this search check.
    pub fn new(check: Check, files: &[File]) -> Self {
        Self::with_sides(
            Sides {
                check,
                ..Sides::default()
            },
            files,
        )
    }

    /// Creates a volume with these files. Open files are entered in `registry`, or in production's
    /// if it is `None`.
    pub fn with_registry(registry: Option<Arc<dyn LabRegistry>>, files: &[File]) -> Self {
        Self::with_sides(
            Sides {
                registry,
                ..Sides::default()
            },
            files,
        )
    }

    fn with_sides(lab: Sides, files: &[File]) -> Self {
        let options = SuperOptions {
            lab,
            ..SuperOptions::default()
        };
        let fs = MemFs::new(MemLimits::default());
        let sb = SuperBlock::new(fs, options).expect("a new volume");
        let root = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root()).with_umask(0);
        for File {
            path,
            kind,
            uid,
            mode,
        } in files
        {
            match kind {
                FileType::Directory => root.mkdir(path, *mode),
                _ => root.mknod(path, NewKind::Regular, *mode),
            }
            .expect("a new name");
            root.chown(path, Some(*uid), Some(*uid), LookupFlags::FOLLOW)
                .expect("it is there");
        }
        let user = root.with_cred(user());
        let directories = files.iter().filter(|file| file.kind == FileType::Directory);
        let paths = iter::once("/").chain(directories.map(|file| file.path.as_str()));
        let locate = |path: &str| {
            (
                path.to_owned(),
                root.locate(path, LookupFlags::FOLLOW).expect("it is there"),
            )
        };
        let directories = paths.map(locate).collect();
        Self {
            root,
            user,
            superblock: sb,
            directories,
        }
    }

    /// Returns a directory that the volume was created with.
    pub fn directory(&self, path: &str) -> &Inode {
        let found = self.directories.iter().find(|(at, _)| at == path);
        found.expect("it is there, and a directory").1.inode()
    }

    /// Returns whether the user may search all of `directories`. An array avoids a loop: the place
    /// of a loop in memory costs more than its body.
    #[inline(always)]
    pub fn may_search<const N: usize>(&self, directories: &[&Inode; N]) -> bool {
        lab::search(self.superblock(), self.user.cred(), directories, &pin()) == Some(true)
    }

    /// Returns how many search checks the user's `stat` of these paths makes: fast ones, and full
    /// ones.
    pub fn searches(&self, paths: &[String]) -> [u64; 2] {
        let before = self.superblock.stats();
        paths
            .iter()
            .for_each(|path| drop(self.user.stat(path, LookupFlags::FOLLOW)));
        let after = self.superblock.stats();
        [
            after.fast_searches - before.fast_searches,
            after.full_searches - before.full_searches,
        ]
    }

    /// Returns the percentage of these search checks that are fast.
    pub fn share(&self, paths: &[String]) -> f64 {
        let [fast, full] = self.searches(paths);
        100.0 * fast as f64 / (fast + full).max(1) as f64
    }

    /// Returns the attributes of a file to the user.
    #[inline]
    pub fn stat(&self, path: &str) -> Result<Attr, Errno> {
        self.user
            .stat(path, LookupFlags::FOLLOW)
            .map_err(|error| error.errno())
    }

    /// Opens a file for reading as the user, and closes it.
    #[inline]
    pub fn open_and_close(&self, path: &str) -> Result<(), Errno> {
        self.user
            .open(path, OpenFlags::READ)
            .map(drop)
            .map_err(|error| error.errno())
    }

    /// Sets the ACL of a file, and with it the permission bits.
    pub fn set_acl(&self, path: &str, acl: &Acl) {
        self.root
            .set_acl(
                path,
                AclKind::Access,
                Some(acl.clone()),
                LookupFlags::FOLLOW,
            )
            .expect("it is there");
    }

    /// Sets the permission bits of a file, and adapts its ACL.
    pub fn chmod(&self, path: &str, mode: u16) {
        self.root
            .chmod(path, mode, LookupFlags::FOLLOW)
            .expect("it is there");
    }
}
