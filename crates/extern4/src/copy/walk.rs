//! The walk over the files to copy into a volume. It visits each directory before and after the
//! files in it.
//!
//! `ahead` and `into` take its steps. A file that cannot be read is a step with the fault.

use std::ffi::OsString;
use std::path::Path;

use super::failure::{CopyError, Refusal};
use super::open_directories::OpenDirectories;
use super::source::{Directory, Found, Id, Node, Wants, Xattrs};
use crate::dir::is_step;

/// One step of a walk.
pub(super) enum Step {
    /// A file that is not a directory.
    File(Box<Found>),
    /// A directory: the files in it follow, and then its [`Leave`](Self::Leave).
    Enter(OsString, Node),
    /// The end of the innermost directory, with its extended attributes.
    Leave(Result<Xattrs, CopyError>),
    /// A file of this name that cannot be read.
    Fault(OsString, CopyError),
}

/// A walk over everything below a directory. It looks each name up in its open directory, so that
/// trees of any depth work and the walk follows no link. Only the innermost directories stay open.
/// The walk opens a directory further up again by its names when it returns to it, and checks that
/// it is the same.
pub(super) struct Walk {
    directories: OpenDirectories<Directory, Listed>,
    wants: Wants,
    /// The file system to stay on.
    device: Option<u64>,
    /// Contents that were read, for [`Body::Read`](super::source::Body).
    pub(super) bytes: Vec<u8>,
}

/// A directory that the walk is inside of.
struct Listed {
    name: OsString,
    id: Id,
    /// Names that are left, in reverse order.
    entries: Vec<OsString>,
}

impl Walk {
    /// Returns a walk over everything below `top`, which is `node`. Its last step leaves `top`. It
    /// stays on `device`, if there is one.
    pub(super) fn new(
        top: Directory,
        node: &Node,
        wants: Wants,
        device: Option<u64>,
    ) -> Result<Self, CopyError> {
        let mut walk = Self {
            directories: OpenDirectories::new(top.clone()),
            wants,
            device,
            bytes: Vec::new(),
        };
        walk.enter(OsString::from("."), top, node)?;
        Ok(walk)
    }

    /// Returns the next step; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Step> {
        let listed = self.directories.last_mut()?;
        let Some(name) = listed.entries.pop() else {
            return Some(self.leave());
        };
        if !is_step(&name) {
            return Some(Step::Fault(name, CopyError::from(Refusal::BadName)));
        }
        Some(
            self.entry(&name)
                .unwrap_or_else(|fault| Step::Fault(name, fault)),
        )
    }

    /// Skips the rest of the innermost directory.
    pub(super) fn skip(&mut self) {
        if let Some(listed) = self.directories.last_mut() {
            listed.entries.clear();
        }
    }

    fn entry(&mut self, name: &OsString) -> Result<Step, CopyError> {
        let directory = self.current()?.clone();
        let path = Path::new(name);
        let follow = self.wants.follow;
        let node = directory.node(path, follow)?;
        if node.is_dir() {
            if follow && self.directories.iter().any(|above| above.id == node.id) {
                return Err(Refusal::LinkLoop.into());
            }
            self.enter(name.clone(), directory.inside(path, follow)?, &node)?;
            if matches!(node.id, Id::Host(device, _) if self.device.is_some_and(|own| own != device))
            {
                // The directory itself is there, as a place to mount on.
                self.skip();
            }
            return Ok(Step::Enter(name.clone(), node));
        }
        let found = directory.find(path, node, self.wants, &mut self.bytes);
        Ok(Step::File(Box::new(found)))
    }

    fn enter(
        &mut self,
        name: OsString,
        directory: Directory,
        node: &Node,
    ) -> Result<(), CopyError> {
        // All names at once: the copy may be made in this directory.
        let mut entries = directory.entries()?;
        entries.reverse();
        let id = node.id;
        self.directories
            .push(directory, Listed { name, id, entries });
        Ok(())
    }

    fn leave(&mut self) -> Step {
        let xattrs = if self.wants.xattrs {
            self.current().and_then(Directory::own_xattrs)
        } else {
            Ok(Vec::new())
        };
        self.directories.pop();
        Step::Leave(xattrs)
    }

    /// Returns the innermost directory.
    fn current(&mut self) -> Result<&Directory, CopyError> {
        let follow = self.wants.follow;
        self.directories.innermost(|above, listed| {
            let directory = above.inside(Path::new(&listed.name), follow)?;
            if directory.node(Path::new("."), false)?.id == listed.id {
                Ok(directory)
            } else {
                Err(Refusal::Moved.into())
            }
        })
    }
}
