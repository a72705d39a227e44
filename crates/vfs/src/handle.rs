//! File handles: they find the file with an inode number and a generation, without a name
//! (`open_by_handle_at(2)`).
//!
//! `Namespace::locate_inode` fails with `ESTALE` if the number is free or belongs to a later file.
//! The FUSE server calls it for handles of files that the kernel has forgotten.
//!
//! Creation and removal of files assume that inodes are found by names only. An inode that is being
//! made is not in the cache yet, and one that loses its only name may be freed at once. So a lookup
//! by number pauses all changes.
//!
//! For a file that the kernel knows, the FUSE server calls `Namespace::locate_known_inode`, which
//! pauses nothing. Such a file was located before, so it is not being made. Before a change that
//! may take its last name, the server holds a location of it, so it is not freed within that
//! change. Then the lookup finds the inode in the cache, or it finds a record without links.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::ptr;

use extern4_sync::rcu::pin;
use extern4_sync::rcu_arc::RcuArc;

use crate::dentry::Dentry;
use crate::errno::{Errno, Error, Result};
use crate::inode::Inode;
use crate::mount::{Location, Namespace};
use crate::name::Scanned;
use crate::superblock::{SuperBlock, dangling, directory, two_names};

impl Namespace {
    /// Returns the file with this number on the file system at the root. A directory is found at
    /// its place in the tree. Any other file is found without a name, because no path to it is
    /// known. No permission is checked; Linux asks for `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` if no file has the number, or one of another `generation` has it. The file system's
    /// own files, and files that have lost their last name, do not count. `EUCLEAN` for a directory
    /// from which no way leads to the root.
    pub fn locate_inode(&self, ino: u64, generation: Option<u32>) -> Result<Location> {
        let root = self.root();
        let sb = root.superblock();
        sb.write_gate.check()?;
        let dentry = sb.write_gate.pause(|| {
            let inode = sb.iget(ino)?;
            if generation.is_some_and(|generation| generation != inode.attr().generation) {
                return Err(Errno::ESTALE.into());
            }
            if inode.is_dir() {
                sb.connect(inode)
            } else {
                Ok(sb.nameless(inode))
            }
        })?;
        Ok(Location {
            mount: root.mount.clone(),
            dentry,
        })
    }

    /// Like [`locate_inode`](Self::locate_inode), and pauses changes only for a directory that has
    /// left the cache. For a file that the caller has located before. Before any change that may
    /// take the file's last name, the caller holds a location of it, and keeps that as long as it
    /// may call this. So no other file can get the number.
    ///
    /// # Errors
    /// `ESTALE` for a file that has lost its last name, and errors of reading the inode. For a
    /// directory, the errors of `locate_inode`.
    pub fn locate_known_inode(&self, ino: u64) -> Result<Location> {
        let root = self.root();
        let sb = root.superblock();
        let inode = sb.iget(ino)?;
        let dentry = if !inode.is_dir() {
            sb.nameless(inode)
        } else {
            match sb.cached_dentry(&inode) {
                Some(dentry) => dentry,
                None => return self.locate_inode(ino, None),
            }
        };
        Ok(Location {
            mount: root.mount.clone(),
            dentry,
        })
    }
}

impl SuperBlock {
    /// Returns a dentry for a file of which no path is known.
    fn nameless(&self, inode: RcuArc<Inode>) -> RcuArc<Dentry> {
        let id = self.dcache.new_id();
        self.dcache
            .counted(Dentry::nameless(id, self.root(), inode))
    }

    /// Returns the dentry of a directory if the cache has it. `None` says nothing about the
    /// directory.
    fn cached_dentry(&self, dir: &Inode) -> Option<RcuArc<Dentry>> {
        let (parent, name) = dir.alias()?;
        // The directory above folds names as this one does, or else this finds nothing.
        let canonical = self.canonical_name(dir, &name).ok()?;
        let name = Scanned::alone(self.dcache.seed(), &canonical);
        let (held, is_current) = {
            let guard = pin();
            let entry = self.dcache.see(parent, &name, &guard)?;
            entry.inode.filter(|inode| ptr::eq(*inode, dir))?;
            // The state after the reference: see `Dentry::unbind`.
            (entry.dentry.try_upgrade()?, entry.is_current())
        };
        is_current.then_some(held)
    }

    /// Returns the dentry of a directory. The caller has paused all changes.
    fn connect(&self, inode: RcuArc<Inode>) -> Result<RcuArc<Dentry>> {
        let mut way = vec![inode];
        let mut seen = HashSet::new();
        while let Some(last) = way
            .last()
            .filter(|last| last.ino() != directory(self.root()).ino())
        {
            if !seen.insert(last.ino()) {
                return Err(two_names(last));
            }
            let above = self.parent_of(last)?;
            let parent = self.iget(above).map_err(|error| dangling(error, above))?;
            if !parent.is_dir() {
                return Err(disconnected(last));
            }
            way.push(parent);
        }
        // The root itself.
        way.pop();
        way.into_iter()
            .rev()
            .try_fold(self.root().clone(), |parent, child| {
                self.child(&parent, child)
            })
    }

    /// Returns the inode number of `..` in a directory.
    fn parent_of(&self, dir: &Inode) -> Result<u64> {
        let mut parent = None;
        self.fs().read_dir(dir, 0, &mut |entry| {
            parent = (entry.name == b"..").then_some(entry.ino);
            if parent.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        parent.ok_or_else(|| disconnected(dir))
    }

    /// Returns the dentry of directory `child`, which is in `parent`.
    fn child(&self, parent: &RcuArc<Dentry>, child: RcuArc<Inode>) -> Result<RcuArc<Dentry>> {
        // If the cache knows the directory's name already, no listing is needed.
        if let Some((_, name)) = child.alias().filter(|(above, _)| *above == parent.id()) {
            let known = self.lookup(parent, &name)?;
            if known
                .inode()
                .is_some_and(|inode| inode.ino() == child.ino())
            {
                return Ok(known);
            }
        }
        let dir = directory(parent);
        let _names = dir.lock_names_exclusive();
        let mut name = None;
        self.fs().read_dir(dir, 0, &mut |entry| {
            let found = entry.ino == child.ino() && entry.name != b"." && entry.name != b"..";
            name = found.then(|| entry.name.to_vec());
            if found {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        let name = name.ok_or_else(|| disconnected(&child))?;
        let found = self.prime(parent, &name, child.clone())?;
        if found.inode().is_none() {
            Err(disconnected(&child))
        } else {
            Ok(found)
        }
    }
}

/// Returns the error for a directory from which no way leads to the root. Only damage leaves one.
fn disconnected(dir: &Inode) -> Error {
    let why = format!(
        "directory inode {} is not in the directory that it names above it",
        dir.ino()
    );
    Error::with_cause(Errno::EUCLEAN, why)
}
