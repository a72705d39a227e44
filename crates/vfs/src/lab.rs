//! The parts of the VFS that the lab can replace: the search check and the registry of open files.
//!
//! Production's walk, open and close call the replacement, so the lab measures one part in an
//! otherwise unchanged VFS. Each replacement gives the same answers as production. The module
//! exists in the lab's build only. The `lab` crate and the benchmark of searches call it.

use std::sync::Arc;

use extern4_sync::rcu::Guard;

use crate::cred::Cred;
use crate::errno::Result;
use crate::inode::Inode;
use crate::open_files::OpenFiles;
use crate::open_files::lab::InUse;
use crate::permission::{Access, Checker, Passed, Verdict};
use crate::superblock::SuperBlock;

pub use crate::open_files::lab::{LabRegistry, Ticket};
pub use crate::open_files::opened::Opened;
pub use crate::open_files::registry::Registry;
pub use crate::open_files::slab_registry::SlabRegistry;
pub use crate::permission::lab::Check;

/// The lab's replacements of production's parts.
#[derive(Clone, Default)]
pub struct Sides {
    /// The search check.
    pub check: Check,
    /// The registry of open files; `None` for production's.
    pub registry: Option<Arc<dyn LabRegistry>>,
}

impl Sides {
    /// Puts these sides in the place of production's.
    pub(crate) fn replace(
        self,
        (mut files, mut checker): (OpenFiles, Checker),
    ) -> (OpenFiles, Checker) {
        if let Some(registry) = self.registry {
            files.registry = InUse::Lab(registry);
        }
        checker.set_check(self.check);
        (files, checker)
    }
}

/// Checks whether `cred` has these rights on an inode of `sb`.
///
/// # Errors
/// `EACCES`, or the error of reading an ACL.
pub fn check(sb: &SuperBlock, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
    sb.checker.check(cred, inode, want)
}

/// Returns whether `cred` may look names up in all these directories of `sb`. It checks as a walk
/// that must not wait (`lookup::rcu_walk`): the permission cache first, where that decides. `None`
/// if the check would have to wait.
#[inline]
pub fn search<'i>(
    sb: &SuperBlock,
    cred: &Cred,
    dirs: &[&'i Inode],
    guard: &'i Guard,
) -> Option<bool> {
    let cache_decides = sb.checker.cache_decides();
    let all_may = cache_decides && dirs.iter().all(|dir| dir.perm().exec_all_plain());
    if all_may || dirs.iter().all(|dir| sb.checker.lets_all(dir)) {
        return Some(true);
    }
    search_general(sb, cred, dirs, guard)
}

/// Answers where the permission caches are not enough. Out of line, as in a walk.
#[inline(never)]
fn search_general<'i>(
    sb: &SuperBlock,
    cred: &Cred,
    dirs: &[&'i Inode],
    guard: &'i Guard,
) -> Option<bool> {
    let cache_decides = sb.checker.cache_decides();
    let mut passed = Passed::default();
    for dir in dirs {
        let passes = cache_decides && dir.perm().exec_all_plain() || sb.checker.lets_all(dir);
        if !passes {
            match sb.checker.search_seen(cred, dir, guard, &mut passed).0 {
                Verdict::Granted => {}
                Verdict::Refused => return Some(false),
                Verdict::Unknown => return None,
            }
        }
    }
    Some(true)
}
