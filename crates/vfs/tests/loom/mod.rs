//! Loom tests: the hot paths under loom, two threads at a time.
//!
//! They run the code of sessions, on a file system in memory with tables of a few buckets. Locks
//! and atomics are loom's; `Arc` and `OnceLock` are the standard library's, so loom does not switch
//! threads inside them. Freed memory is spoilt. Presence is asked for by `access`, since thirteen
//! words of attributes that may each be read old or new make loom take too long;
//! [`inodes::stat_torn_attrs`] looks at them alone.
//!
//! The names are the names of the races that the design of the hot paths lists.
mod absent;
mod inodes;
mod key_locks;
mod names;
mod open_files;
mod rights;

use std::sync::Arc;

use extern4_sync::cache_budget::CacheBudget;
use extern4_sync::model::Poisoning;

use crate::cred::Cred;
use crate::errno::Errno;
use crate::fs::{NewKind, RenameFlags};
use crate::lookup::LookupFlags;
use crate::memfs::{MemFs, MemLimits};
use crate::mount::Namespace;
use crate::permission::Access;
use crate::session::Session;
use crate::superblock::{SuperBlock, SuperOptions};

#[global_allocator]
static ALLOCATOR: Poisoning = Poisoning;

/// A small file system, the superuser, and user 5 of group 5.
struct World {
    sb: Arc<SuperBlock>,
    root: Session,
    user: Session,
}

impl World {
    /// A world in which `make` has made files.
    fn new(make: impl FnOnce(&Session)) -> Self {
        let options = SuperOptions {
            budget: CacheBudget::new(8 << 10),
            ..SuperOptions::default()
        };
        let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options).unwrap();
        let root = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
        make(&root);
        let user = root.with_cred(Cred::new(5, 5, &[]));
        Self { sb, root, user }
    }

    fn has(&self, path: &str) -> bool {
        is_there(&self.root, path)
    }

    fn ino(&self, path: &str) -> u64 {
        self.root.locate(path, LookupFlags::NOFOLLOW).unwrap().ino()
    }

    /// Inodes that the file system keeps.
    fn inodes(&self) -> u64 {
        let statfs = self.sb.statfs().unwrap();
        statfs.files - statfs.files_free
    }
}

fn is_there(session: &Session, path: &str) -> bool {
    match session.access(path, Access::empty(), LookupFlags::FOLLOW) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), Errno::ENOENT);
            false
        }
    }
}

/// The result of a call.
fn errno<T>(result: crate::errno::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn make_file(session: &Session, path: &str) -> Option<Errno> {
    errno(session.mknod(path, NewKind::Regular, 0o644))
}

fn rename(world: &World, from: &str, to: &str) {
    world.root.rename(from, to, RenameFlags::empty()).unwrap();
}

/// The file a is there, b is not, and both are known to the cache.
fn a_and_no_b() -> World {
    let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
    assert!(world.has("/a") && !world.has("/b"));
    world
}
