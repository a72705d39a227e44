//! The directories that a copy into a volume is inside of, from the outermost to the one that it is
//! filling.
//!
//! `into` hands over the walk of a tree. A directory gets its attributes when the copy leaves it.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use extern4_vfs::Errno;

use super::super::ahead;
use super::super::failure::{CopyError, Failure, Refusal};
use super::super::observer::{CopyNames, CopyObserver};
use super::super::source::{Found, Node, Xattrs};
use super::super::walk::{Step, Walk};
use super::CopyInto;
use super::destination::{VolumeDestination, gives_acl};
use crate::file_flags::set_casefold;
use crate::session::Session;

/// A directory that is being copied.
pub(super) struct Level {
    /// The name of the original in its directory.
    named: PathBuf,
    /// The path of the original, for messages.
    shown: PathBuf,
    node: Node,
    to_parent: Session,
    to_name: OsString,
    to: Session,
    path: PathBuf,
    made: bool,
    /// The copy may have an ACL that its original lacks.
    has_acl: bool,
    gives_acl: bool,
}

/// The directories that the walk is inside of.
pub(super) struct Levels {
    stack: Vec<Level>,
    /// How many directories inside the last one are left out, because it could not be made.
    left_out: usize,
}

impl Levels {
    pub(super) fn new(top: Level) -> Self {
        Self {
            stack: vec![top],
            left_out: 0,
        }
    }

    /// Returns the innermost directory, and the paths of an original in it and of its copy.
    fn inside(&self, name: &OsStr) -> Option<(&Level, PathBuf, PathBuf)> {
        let level = self.stack.last()?;
        Some((level, level.shown.join(name), level.path.join(name)))
    }

    /// Returns whether the observer leaves out a file of the innermost directory.
    fn leaves_out(
        &self,
        name: &OsStr,
        is_directory: bool,
        observer: &mut dyn CopyObserver,
    ) -> bool {
        let (Some(top), Some(level)) = (self.stack.first(), self.stack.last()) else {
            return false;
        };
        let path = level.shown.join(name);
        observer.leaves_out(path.strip_prefix(&top.shown).unwrap_or(&path), is_directory)
    }
}

impl Level {
    fn destination<'a>(&'a self, name: &'a OsStr, path: &'a Path) -> VolumeDestination<'a> {
        VolumeDestination {
            directory: &self.to,
            name,
            path,
            existing: false,
            gives_acl: self.gives_acl,
        }
    }
}

impl CopyInto<'_> {
    /// Copies everything below a directory, of the host or of a volume. It reports files that
    /// cannot be copied, and copies the rest.
    pub(super) fn tree(
        &mut self,
        mut walk: Walk,
        is_host: bool,
        mut levels: Levels,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Failure> {
        if is_host {
            let walked = ahead::walk(walk, |step, bytes| {
                self.summary.advance(0, 0, observer)?;
                self.step(step, bytes, &mut levels, observer);
                ControlFlow::Continue(())
            });
            return walked.map_err(|error| CopyError::Host(error).into());
        }
        while self.summary.advance(0, 0, observer).is_continue()
            && let Some(step) = walk.next()
        {
            self.step(step, &[], &mut levels, observer);
            if levels.left_out > 0 {
                walk.skip();
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        step: Step,
        bytes: &[u8],
        levels: &mut Levels,
        observer: &mut dyn CopyObserver,
    ) {
        match step {
            Step::Enter(..) if levels.left_out > 0 => levels.left_out += 1,
            Step::Leave(_) if levels.left_out > 0 => levels.left_out -= 1,
            _ if levels.left_out > 0 => {}
            Step::Enter(name, _) if levels.leaves_out(&name, true, observer) => levels.left_out = 1,
            Step::File(found) if levels.leaves_out(found.name.as_os_str(), false, observer) => {}
            Step::Leave(xattrs) => {
                let Some(level) = levels.stack.pop() else {
                    return;
                };
                let left = self.leave(&level, xattrs);
                self.summary.note(left, &level.shown, &level.path, observer);
            }
            Step::Fault(name, fault) => {
                let Some((_, shown, path)) = levels.inside(&name) else {
                    return;
                };
                self.summary
                    .note(Err(fault.into()), &shown, &path, observer);
            }
            Step::Enter(name, node) => self.enter_inside(&name, node, levels, observer),
            Step::File(found) => self.file_inside(*found, bytes, levels, observer),
        }
    }

    fn enter_inside(
        &mut self,
        name: &OsStr,
        node: Node,
        levels: &mut Levels,
        observer: &mut dyn CopyObserver,
    ) {
        let Some((level, shown, path)) = levels.inside(name) else {
            return;
        };
        let destination = level.destination(name, &path);
        match self.enter(
            PathBuf::from(name),
            shown.clone(),
            node,
            &destination,
            observer,
        ) {
            Ok(next) => levels.stack.push(next),
            Err(failure) => {
                levels.left_out = 1;
                self.summary.note(Err(failure), &shown, &path, observer);
            }
        }
    }

    fn file_inside(
        &mut self,
        mut found: Found,
        bytes: &[u8],
        levels: &Levels,
        observer: &mut dyn CopyObserver,
    ) {
        let name = found.name.clone();
        let Some((level, shown, path)) = levels.inside(name.as_os_str()) else {
            return;
        };
        let destination = level.destination(name.as_os_str(), &path);
        let copied = self.file(&mut found, bytes, &destination, &shown, observer);
        self.summary.note(copied, &shown, &path, observer);
    }

    /// Makes a directory, or enters the existing one.
    pub(super) fn enter(
        &self,
        named: PathBuf,
        shown: PathBuf,
        node: Node,
        destination: &VolumeDestination<'_>,
        observer: &mut dyn CopyObserver,
    ) -> Result<Level, Failure> {
        let made = self.make_directory(&node, destination)?;
        let to = destination.directory.at(destination.name)?;
        if made {
            observer.copying(&CopyNames {
                from: &shown,
                to: destination.path,
                set_aside: None,
            });
        }
        Ok(Level {
            named,
            shown,
            node,
            to_parent: destination.directory.clone(),
            to_name: destination.name.to_owned(),
            gives_acl: gives_acl(&to),
            to,
            path: destination.path.to_owned(),
            made,
            has_acl: !made || destination.gives_acl,
        })
    }

    /// Makes a directory, unless one is there. Returns whether it is new.
    fn make_directory(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
    ) -> Result<bool, Failure> {
        let directory = destination.directory;
        let name = destination.name;
        let mode = self
            .options
            .preserve
            .first_mode(node.mode, true, self.to.umask())
            | 0o700;
        match directory.create_dir_with(name, mode) {
            Ok(()) => {
                if let Some((flags, _)) = node.flags.filter(|_| self.options.preserve.xattr) {
                    set_casefold(directory, Path::new(name), flags)?;
                }
                return Ok(true);
            }
            _ if name == "." => return Ok(false),
            Err(error) if error.errno() == Errno::EEXIST => {}
            Err(error) => return Err(error.into()),
        }
        let found = if destination.existing {
            directory.metadata(name)?
        } else {
            directory.symlink_metadata(name)?
        };
        if found.is_dir() {
            Ok(false)
        } else {
            Err(Failure::to(Refusal::FileInPlace))
        }
    }

    /// Gives a directory the attributes of its original, after everything in it was copied.
    fn leave(&mut self, level: &Level, xattrs: Result<Xattrs, CopyError>) -> Result<(), Failure> {
        let preserve = self.options.preserve;
        let mode = preserve.first_mode(level.node.mode, true, self.to.umask());
        if !preserve.mode && level.made && mode & 0o700 != 0o700 {
            let inherited = level.to.metadata(".")?.mode() & 0o2000;
            level
                .to_parent
                .set_permissions(&level.to_name, mode | inherited)?;
        }
        if self.options.sets_attributes() {
            let copy = (&level.to_parent, level.to_name.as_os_str());
            return self.keep(&level.named, &level.node, xattrs, copy, level.has_acl);
        }
        Ok(())
    }
}
