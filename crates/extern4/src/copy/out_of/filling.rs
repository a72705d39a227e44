//! The copy of a tree to the host.
//!
//! It walks the directory in the volume, and fills the one on the host. A directory gets its
//! attributes when the copy leaves it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{Mode, fchmod};

use super::super::failure::{Failure, Refusal};
use super::super::observer::{CopyNames, CopyObserver};
use super::super::options::Follow;
use super::attributes::{Keep, Original};
use super::destination::HostDestination;
use super::fault::Fault;
use super::host_tree::HostTree;
use super::{CopyOut, Origin};
use crate::dir::DirEntry;
use crate::metadata::Metadata;
use crate::walk::Walk;

/// Symbolic links to directories that lead on from each other, at most: as many as on a path.
const MAX_LINKS: usize = 40;

/// A tree that is being copied.
struct Filling<'a> {
    origin: Origin<'a>,
    /// The path of the copy.
    top: &'a Path,
    keep: Keep<'a>,
    tree: HostTree,
    pending: Vec<Pending>,
    /// The directories from which symbolic links led to the ones that are being copied.
    above: Vec<PathBuf>,
}

/// A directory that the copy is filling. It gets its attributes when the copy leaves it.
struct Pending {
    entry: DirEntry,
    metadata: Metadata,
    to: PathBuf,
    made: bool,
}

/// A directory of the volume whose copy is `to`, a directory of the host.
struct Subtree<'a> {
    real: &'a Path,
    /// The name of the copy in the current directory; `None` for the base itself.
    name: Option<&'a OsStr>,
    to: &'a Path,
}

impl CopyOut<'_> {
    /// Copies a directory with everything below it.
    pub(super) fn directory(
        &mut self,
        origin: Origin<'_>,
        destination: HostDestination,
        keep: Keep<'_>,
        observer: &mut dyn CopyObserver,
    ) {
        let top = match &destination.name {
            Some(name) => destination.path.join(name),
            None => destination.path.clone(),
        };
        let real = match self.options.follow {
            Follow::Never => Ok(origin.path.to_owned()),
            Follow::Named | Follow::Always => origin.session.canonicalize(origin.path),
        };
        let tree = HostTree::new(Rc::clone(&destination.base));
        let pending = Vec::new();
        let above = Vec::new();
        let mut filling = Filling {
            origin,
            top: &top,
            keep,
            tree,
            pending,
            above,
        };
        match real {
            Ok(real) => {
                let subtree = Subtree {
                    real: &real,
                    name: destination.name.as_deref(),
                    to: &top,
                };
                self.fill(&mut filling, &subtree, observer);
            }
            Err(error) => {
                self.summary.note(
                    Err(Failure::From(error.into())),
                    origin.path,
                    &top,
                    observer,
                );
            }
        }
    }

    /// Copies a directory with everything below it.
    fn fill(
        &mut self,
        filling: &mut Filling<'_>,
        subtree: &Subtree<'_>,
        observer: &mut dyn CopyObserver,
    ) {
        let base = filling.pending.len();
        let mut walk = filling.origin.session.walk(subtree.real).with_metadata();
        while self.summary.advance(0, 0, observer).is_continue()
            && let Some(entry) = walk.next()
        {
            match entry.and_then(|entry| entry.metadata().map(|found| (entry, found))) {
                Ok((entry, metadata)) => {
                    self.entry(
                        filling,
                        subtree,
                        base,
                        (entry, metadata),
                        &mut walk,
                        observer,
                    );
                }
                Err(error) => {
                    let path = error.path().unwrap_or(subtree.real).to_owned();
                    self.summary.note(
                        Err(Failure::From(error.into())),
                        &path,
                        subtree.to,
                        observer,
                    );
                }
            }
        }
        self.leave(filling, base, observer);
    }

    /// Copies an entry of a walk, whose outermost directory is at depth `base`.
    fn entry(
        &mut self,
        filling: &mut Filling<'_>,
        subtree: &Subtree<'_>,
        base: usize,
        (entry, metadata): (DirEntry, Metadata),
        walk: &mut Walk,
        observer: &mut dyn CopyObserver,
    ) {
        let below = entry
            .path()
            .strip_prefix(subtree.real)
            .unwrap_or(entry.path());
        let to = if below.as_os_str().is_empty() {
            subtree.to.to_owned()
        } else {
            subtree.to.join(below)
        };
        let from_top = to.strip_prefix(filling.top).unwrap_or(&to);
        if self.options.exports && is_own(&entry)
            || observer.leaves_out(from_top, metadata.is_dir())
        {
            return walk.skip_subtree();
        }
        self.leave(filling, base + entry.depth(), observer);
        if metadata.is_symlink() && self.options.follow == Follow::Always {
            return self.follow(filling, &entry, &to, observer);
        }
        if metadata.is_dir() {
            let name = if entry.depth() == 0 {
                subtree.name
            } else {
                Some(entry.file_name())
            };
            return match self.enter(name, &metadata, &mut filling.tree) {
                Ok(made) => {
                    if made {
                        observer.copying(&CopyNames {
                            from: entry.path(),
                            to: &to,
                            set_aside: None,
                        });
                    }
                    filling.pending.push(Pending {
                        entry,
                        metadata,
                        to,
                        made,
                    });
                }
                Err(error) => {
                    walk.skip_subtree();
                    self.summary
                        .note(Err(Failure::To(error.into())), entry.path(), &to, observer);
                }
            };
        }
        let directory = entry.parent();
        let name = entry.file_name();
        let volume = filling.origin.volume;
        let original = Original {
            volume,
            path: entry.path(),
            directory: &directory,
            name,
            metadata: &metadata,
        };
        let copied = self.file(
            &original,
            name,
            &mut filling.tree,
            filling.keep,
            &to,
            observer,
        );
        self.summary
            .note(copied.map_err(Fault::into), entry.path(), &to, observer);
    }

    /// Copies the file that a symbolic link leads to in the link's subtree.
    fn follow(
        &mut self,
        filling: &mut Filling<'_>,
        entry: &DirEntry,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        let origin = filling.origin;
        let name = entry.file_name();
        let found = entry.parent().metadata(name);
        let found = found.and_then(|found| Ok((found, entry.parent().canonicalize(name)?)));
        let (found, real) = match found {
            Ok(found) => found,
            Err(error) => {
                return self.summary.note(
                    Err(Failure::From(error.into())),
                    entry.path(),
                    to,
                    observer,
                );
            }
        };
        if !found.is_dir() {
            let original = Original {
                volume: origin.volume,
                path: entry.path(),
                directory: origin.session,
                name: real.as_os_str(),
                metadata: &found,
            };
            let copied = self.file(
                &original,
                name,
                &mut filling.tree,
                filling.keep,
                to,
                observer,
            );
            return self
                .summary
                .note(copied.map_err(Fault::into), entry.path(), to, observer);
        }
        filling.above.push(entry.path().to_owned());
        if filling.above.len() > MAX_LINKS
            || filling.above.iter().any(|above| above.starts_with(&real))
        {
            self.summary.note(
                Err(Failure::from(Refusal::LinkLoop)),
                entry.path(),
                to,
                observer,
            );
        } else {
            self.fill(
                filling,
                &Subtree {
                    real: &real,
                    name: Some(name),
                    to,
                },
                observer,
            );
        }
        filling.above.pop();
    }

    fn enter(
        &self,
        name: Option<&OsStr>,
        metadata: &Metadata,
        tree: &mut HostTree,
    ) -> io::Result<bool> {
        match name {
            Some(name) => tree.enter(name, self.first_mode(metadata.mode(), true) | Mode::RWXU),
            None => tree.enter_base().map(|()| false),
        }
    }

    /// Leaves the directories at depth `depth` and below, and gives them their attributes.
    fn leave(&mut self, filling: &mut Filling<'_>, depth: usize, observer: &mut dyn CopyObserver) {
        while filling.pending.len() > depth {
            let Some(pending) = filling.pending.pop() else {
                break;
            };
            let kept = self.keep_directory(filling, &pending);
            self.summary.note(
                kept.map_err(Fault::into),
                pending.entry.path(),
                &pending.to,
                observer,
            );
            filling.tree.leave();
        }
    }

    /// Gives the current directory the attributes of its original.
    fn keep_directory(
        &mut self,
        filling: &mut Filling<'_>,
        pending: &Pending,
    ) -> Result<(), Fault> {
        let Pending {
            entry,
            metadata,
            made,
            ..
        } = pending;
        let directory = entry.parent();
        let original = Original {
            volume: filling.origin.volume,
            path: entry.path(),
            directory: &directory,
            name: entry.file_name(),
            metadata,
        };
        let plain = self.first_mode(metadata.mode(), true);
        let copy = filling.tree.current()?;
        if *made && !self.options.preserve.mode && !plain.contains(Mode::RWXU) {
            fchmod(copy, plain)?;
        }
        original.keep(copy, filling.keep, &mut self.summary.losses)
    }
}

/// Returns whether an entry is the directory that every volume has.
fn is_own(entry: &DirEntry) -> bool {
    let is_there = entry.path() == Path::new("/lost+found") && entry.depth() == 1;
    is_there
        && entry
            .parent()
            .read_dir(entry.file_name())
            .is_ok_and(|mut files| files.next().is_none())
}
