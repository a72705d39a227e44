//! One file of a copy into a volume, of any kind except a directory.
//!
//! `into` calls it for a source that is a file, and `levels` for each file of a tree.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use extern4_vfs::{Errno, FileType, NewKind, OpenFlags};

use super::super::failure::{Failure, Refusal};
use super::super::observer::{CopyNames, CopyObserver};
use super::super::options::CopyMethod;
use super::super::source::{Body, Found, Id, Node};
use super::CopyInto;
use super::destination::VolumeDestination;
use crate::error::Result as VolumeResult;
use crate::file::File;
use crate::session::Session;

impl CopyInto<'_> {
    /// Copies any file except a directory. `bytes` holds contents that were read ahead, and `shown`
    /// is the path of the original.
    pub(super) fn file(
        &mut self,
        found: &mut Found,
        bytes: &[u8],
        destination: &VolumeDestination<'_>,
        shown: &Path,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Failure> {
        let node = &found.node;
        if !self.links.is_empty()
            && let Ok(there) = destination.directory.symlink_metadata(destination.name)
            && self.links.has_name(&node.id, &there.ino())
        {
            return self.end_file(0, observer);
        }
        let set_aside = self.make_room(node, destination, observer)?;
        observer.copying(&CopyNames {
            from: shown,
            to: destination.path,
            set_aside: set_aside.as_deref(),
        });
        if self.options.method != CopyMethod::Copy {
            return self.link(node, destination, shown);
        }
        let linked = self.options.preserve.links && node.links > 1;
        if linked && let Some(first) = self.links.first(&node.id) {
            // Both names start at the root: they need not be near each other.
            destination.make(node, |_, _| self.to.hard_link(first, destination.path))?;
            return self.end_file(0, observer);
        }
        let uncounted = self.body(found, bytes, destination, observer)?;
        if self.options.sets_attributes() {
            let xattrs = std::mem::replace(&mut found.xattrs, Ok(Vec::new()));
            let has_acl = destination.existing || destination.gives_acl;
            self.keep(
                &found.name,
                &found.node,
                xattrs,
                (destination.directory, destination.name),
                has_acl,
            )?;
        }
        if linked {
            let copy = destination
                .directory
                .symlink_metadata(destination.name)?
                .ino();
            self.links
                .add(found.node.id, copy, destination.path.to_owned());
        }
        self.end_file(uncounted, observer)
    }

    /// Counts a file, and the last bytes of it. If the observer ends the copy now, the next step
    /// finds that.
    fn end_file(&mut self, bytes: u64, observer: &mut dyn CopyObserver) -> Result<(), Failure> {
        let _ = self.summary.advance(1, bytes, observer);
        Ok(())
    }

    /// Makes the copy with its contents, without attributes. Returns how many bytes are copied and
    /// not yet counted.
    fn body(
        &mut self,
        found: &mut Found,
        bytes: &[u8],
        destination: &VolumeDestination<'_>,
        observer: &mut dyn CopyObserver,
    ) -> Result<u64, Failure> {
        let node = &found.node;
        if matches!(found.body, Ok(Body::Open(_) | Body::Read(_))) && self.image == Some(node.id) {
            return Err(Failure::from(Refusal::OwnImage));
        }
        match std::mem::replace(&mut found.body, Ok(Body::Nothing))? {
            Body::Read(range) => {
                let data = bytes.get(range).unwrap_or_default();
                let to = self.create(node, destination)?;
                if !self.options.attributes_only {
                    self.whole(data, &to)?;
                }
                // Counted with the file, which is whole: a break must not come between them.
                return Ok(data.len() as u64);
            }
            Body::Open(from) => {
                let to = self.create(node, destination)?;
                if !self.options.attributes_only {
                    let copied = self.contents(&from, &to, observer);
                    if matches!(copied, Err(Failure::Stopped)) {
                        drop(to);
                        destination.forget_half()?;
                    }
                    copied?;
                }
            }
            Body::Link(target) => {
                destination.make(node, |directory, name| directory.symlink(&target, name))?;
            }
            Body::Nothing => match self.options.refusal(node.kind) {
                Some(refusal) => return Err(Failure::from(refusal)),
                None => self.special(node, destination)?,
            },
        }
        Ok(0)
    }

    /// Makes a device, a pipe or a socket.
    fn special(&self, node: &Node, destination: &VolumeDestination<'_>) -> Result<(), Failure> {
        let mode = self.options.preserve.first_mode(node.mode, false, 0);
        let kind = match node.kind {
            FileType::CharDevice => NewKind::CharDevice(node.rdev),
            FileType::BlockDevice => NewKind::BlockDevice(node.rdev),
            FileType::Fifo => NewKind::Fifo,
            _ => NewKind::Socket,
        };
        destination.make(node, |directory, name| {
            directory.make_node(name, kind, mode)
        })
    }

    /// Returns whether a copy may take the place of what is there. Removes that, or keeps it under
    /// another name, whose path is returned.
    fn make_room(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
        observer: &mut dyn CopyObserver,
    ) -> Result<Option<PathBuf>, Failure> {
        let options = self.options;
        if !options.asks && !options.sets_aside && !options.remove_destination {
            return Ok(None);
        }
        let directory = destination.directory;
        let name = destination.name;
        let found = if destination.existing {
            directory.metadata(name)
        } else {
            directory.symlink_metadata(name)
        };
        let Some(found) = found.ok().filter(|found| !found.is_dir()) else {
            return Ok(None);
        };
        if options.asks && !observer.may_replace(destination.path, node.mtime, found.mtime()) {
            return Err(Failure::Stays);
        }
        if node.id == Id::Volume(0, found.ino()) {
            return Err(Failure::from(Refusal::SameFile));
        }
        if options.sets_aside {
            let kept = set_aside(directory, name, observer)?;
            return Ok(kept.map(|kept| destination.path.with_file_name(kept)));
        }
        if options.remove_destination {
            directory.remove_file(name)?;
        }
        Ok(None)
    }

    /// Makes a link to a file of the volume in the place of a copy.
    fn link(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
        original: &Path,
    ) -> Result<(), Failure> {
        let root = self.to;
        let made = match self.options.method {
            CopyMethod::HardLink if node.kind != FileType::Symlink => root
                .canonicalize(original)
                .and_then(|original| root.hard_link(original, destination.path)),
            CopyMethod::HardLink => root.hard_link(original, destination.path),
            CopyMethod::Symlink | CopyMethod::Copy => root.symlink(original, destination.path),
        };
        Ok(made?)
    }

    /// Opens the copy of a regular file, which is still empty.
    fn create(&self, node: &Node, destination: &VolumeDestination<'_>) -> Result<File, Failure> {
        let directory = destination.directory;
        let name = destination.name;
        if destination.existing {
            match self.open_existing(node, destination)? {
                Err(_) if self.options.force => {}
                opened => return Ok(opened?),
            }
        }
        if self.options.attributes_only
            && directory
                .symlink_metadata(name)
                .is_ok_and(|found| found.is_file())
        {
            let mut options = File::options();
            options.write(true).custom_flags(OpenFlags::NOFOLLOW);
            return Ok(directory.open_with(name, &options)?);
        }
        // The session has the umask of new files.
        let mode = self.options.preserve.first_mode(node.mode, false, 0);
        let mut options = File::options();
        options.write(true).create_new(true).mode(mode);
        destination.make(node, |directory, name| directory.open_with(name, &options))
    }

    /// Opens the file that the caller named. The inner error is that of opening it.
    fn open_existing(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
    ) -> Result<VolumeResult<File>, Failure> {
        let found = destination.directory.metadata(destination.name)?;
        if !found.is_file() {
            return Err(Failure::to(Refusal::NotRegular));
        }
        if node.id == Id::Volume(0, found.ino()) {
            return Err(Failure::from(Refusal::SameFile));
        }
        let mut options = File::options();
        options.write(true).truncate(!self.options.attributes_only);
        Ok(destination.directory.open_with(destination.name, &options))
    }
}

/// Gives a file the name that the observer wants. Returns that name.
fn set_aside(
    directory: &Session,
    name: &OsStr,
    observer: &mut dyn CopyObserver,
) -> VolumeResult<Option<OsString>> {
    let mut names = Vec::new();
    for entry in directory.read_dir(".")? {
        names.push(entry?.file_name().to_owned());
    }
    let Some(kept) = observer.set_aside(name, names) else {
        return Ok(None);
    };
    match directory.rename(name, &kept) {
        Ok(()) => Ok(Some(kept)),
        Err(error) if error.errno() == Errno::ENOENT => Ok(None),
        Err(error) => Err(error),
    }
}
