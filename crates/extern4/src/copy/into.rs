//! Copies into a volume: from the host, from another volume, or within one.
//!
//! Every step uses one name in an open directory, so that trees of any depth work and the copy
//! follows no link. A copy replaces an existing file, unless that file is the destination that the
//! caller named: then it writes to it. New files belong to the session's user. They get the modes
//! of their originals without the bits of the umask, unless modes are to be kept.
//!
//! `copy_tree` and the command `cp` call it. A file that cannot be copied is reported to the
//! observer, and the copy goes on.

mod attributes;
mod contents;
mod destination;
mod file;
mod levels;

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use extern4_vfs::{Errno, FileType, Namespace};

use self::attributes::Protection;
use self::destination::{VolumeDestination, gives_acl};
use self::levels::Levels;
use super::failure::{CopyError, Failure, Refusal};
use super::links::Links;
use super::observer::CopyObserver;
use super::options::{CopyMethod, CopyOptions, Follow};
use super::paths::{CopyPath, is_slashed, own_name};
use super::source::{Directory, Id, Node, Wants};
use super::summary::CopySummary;
use super::total;
use super::walk::{Step, Walk};
use crate::metadata::Metadata;
use crate::session::Session;
use crate::volume::Volume;

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A running copy into a volume, of any number of sources. Names of one file stay names of one
/// file, also in several sources.
pub struct CopyInto<'a> {
    options: &'a CopyOptions,
    to: &'a Session,
    summary: CopySummary,
    buffer: Vec<u8>,
    /// The volumes, by the indexes in [`Id`]s; the first one is written.
    volumes: Vec<Arc<Namespace>>,
    /// Files with several names, and the inode numbers of their copies.
    links: Links<Id, u64, PathBuf>,
    /// Copies that get flags that forbid changes.
    protections: Vec<Protection>,
    /// The image that is written, if it is a file of the host: it is not copied into itself.
    image: Option<Id>,
}

impl<'a> CopyInto<'a> {
    /// Starts a copy into `volume`, with the rights of `session`.
    pub fn new(volume: &Volume, session: &'a Session, options: &'a CopyOptions) -> Self {
        let image = volume
            .image_file()
            .and_then(|file| Directory::of_host().ok()?.node(file, true).ok());
        Self {
            options,
            to: session,
            summary: CopySummary::default(),
            buffer: vec![0; CHUNK_BYTES],
            volumes: vec![Arc::clone(volume.namespace())],
            links: Links::new(),
            protections: Vec::new(),
            image: image.map(|node| node.id),
        }
    }

    /// Copies one file, or a directory with everything below it, to `destination`; into
    /// `destination` if that is a directory.
    pub fn copy(
        &mut self,
        from: CopyPath<'_>,
        destination: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        self.copy_unprotected(from, destination, observer);
        self.protect(observer);
    }

    fn copy_unprotected(
        &mut self,
        from: CopyPath<'_>,
        destination: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        let path = from.path();
        let mut to = destination.to_owned();
        if !self.options.parents {
            let copied = self.one(from, &mut to, observer);
            return self.summary.note(copied, path, &to, observer);
        }
        let mut made = Vec::new();
        let copied = match self.parents(from, &mut to, &mut made, observer) {
            Ok(()) => self.one(from, &mut to, observer),
            Err(failure) => Err(failure),
        };
        self.summary.note(copied, path, &to, observer);
        // A file that is made in a directory changes its times.
        for (path, to) in made
            .iter()
            .rev()
            .filter(|_| self.options.preserve.has_any())
        {
            let kept = self.keep_parent(from, path, to);
            self.summary.note(kept, path, to, observer);
        }
    }

    /// Ends the copy.
    pub fn finish(self) -> CopySummary {
        self.summary
    }

    /// Makes the directories above the copy of `from` below `to`, which becomes the last of them.
    /// Puts the new ones into `made`, with their originals.
    fn parents(
        &self,
        from: CopyPath<'_>,
        to: &mut PathBuf,
        made: &mut Vec<(PathBuf, PathBuf)>,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Failure> {
        let above = from.path().parent().unwrap_or(Path::new(""));
        let names = above.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut original = PathBuf::from(if from.path().is_absolute() { "/" } else { "" });
        if above.components().any(|part| part == Component::ParentDir) {
            return Err(Failure::from(Refusal::DotDot));
        }
        for name in names {
            original.push(name);
            to.push(name);
            let node = Self::directory_of(from)?.node(&original, true)?;
            let mode = self
                .options
                .preserve
                .first_mode(node.mode, true, self.to.umask())
                | 0o700;
            match self.to.create_dir_with(&*to, mode) {
                Ok(()) => made.push((original.clone(), to.clone())),
                Err(error) if error.errno() == Errno::EEXIST => continue,
                Err(error) => return Err(error.into()),
            }
            observer.made_parent(&original, to);
        }
        Ok(())
    }

    /// Returns the directory in which the paths of a source are looked up.
    fn directory_of(from: CopyPath<'_>) -> Result<Directory, CopyError> {
        match from {
            CopyPath::Host(_) => Directory::of_host(),
            CopyPath::Volume(_, session, _) => Ok(Directory::Volume(session.clone(), 0)),
        }
    }

    fn keep_parent(&mut self, from: CopyPath<'_>, path: &Path, to: &Path) -> Result<(), Failure> {
        let directory = Self::directory_of(from)?;
        let node = directory.node(path, true)?;
        let xattrs = directory
            .inside(path, true)
            .and_then(|inside| inside.own_xattrs());
        self.keep(path, &node, xattrs, (self.to, to.as_os_str()), true)
    }

    /// Copies to `to`, which becomes the path of the copy.
    fn one(
        &mut self,
        from: CopyPath<'_>,
        to: &mut PathBuf,
        observer: &mut dyn CopyObserver,
    ) -> Result<(), Failure> {
        let path = from.path();
        let directory = match from {
            CopyPath::Host(_) => Directory::of_host()?,
            CopyPath::Volume(volume, session, _) => {
                Directory::Volume(session.clone(), self.volume(volume))
            }
        };
        let node = directory.node(path, self.follows_named())?;
        self.check_source(from, &node)?;
        self.expect(from, &directory, &node, observer);
        let there = self.there(to)?;
        self.check_destination(from, &node, to, there.as_ref())?;
        let existing = self.complete(path, &node, to, there.as_ref())?;
        let name = to
            .file_name()
            .map_or_else(|| OsString::from("."), ToOwned::to_owned);
        let parent = match to.parent() {
            Some(above) if to.file_name().is_some() && above.as_os_str().is_empty() => {
                Path::new(".")
            }
            Some(above) if to.file_name().is_some() => above,
            _ => to.as_path(),
        };
        let parent = self.to.at(parent)?;
        let destination = VolumeDestination {
            directory: &parent,
            name: &name,
            path: to,
            existing: existing && (node.is_dir() || self.writes_over()),
            gives_acl: gives_acl(&parent),
        };
        if node.is_dir()
            && let Directory::Volume(view, 0) = &directory
            && parent
                .canonicalize(".")?
                .join(&name)
                .starts_with(view.canonicalize(path)?)
        {
            return Err(Failure::from(Refusal::IntoItself));
        }
        if !node.is_dir() {
            let follow = self.follows_named();
            let wants = Wants {
                ahead: false,
                follow,
                streams: self.streams(from),
                ..self.wants()
            };
            let mut found = directory.find(path, node, wants, &mut Vec::new());
            return self.file(&mut found, &[], &destination, path, observer);
        }
        let top = directory.inside(path, self.follows_named())?;
        let walk = Walk::new(top, &node, self.wants(), self.device(&node))?;
        let top = self.enter(
            path.to_owned(),
            path.to_owned(),
            node,
            &destination,
            observer,
        )?;
        self.tree(
            walk,
            matches!(from, CopyPath::Host(_)),
            Levels::new(top),
            observer,
        )
    }

    /// Returns whether a link is followed that is the source itself.
    fn follows_named(&self) -> bool {
        self.options.follow != Follow::Never
    }

    /// Returns whether pipes and devices are read.
    fn streams(&self, from: CopyPath<'_>) -> bool {
        !self.options.recursive && matches!(from, CopyPath::Host(_))
    }

    fn check_source(&self, from: CopyPath<'_>, node: &Node) -> Result<(), Failure> {
        let needs_contents = !self.streams(from) && self.options.method == CopyMethod::Copy;
        match self.options.refusal(node.kind) {
            Some(Refusal::Special) if !needs_contents => {}
            Some(refusal) => return Err(Failure::from(refusal)),
            None => {}
        }
        if self.options.method != CopyMethod::Copy && !matches!(node.id, Id::Volume(0, _)) {
            return Err(Failure::from(Refusal::OtherVolume));
        }
        Ok(())
    }

    /// Returns the file that is at the destination.
    fn there(&self, to: &Path) -> Result<Option<Metadata>, Failure> {
        match self.to.metadata(to) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == Errno::ENOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn check_destination(
        &self,
        from: CopyPath<'_>,
        node: &Node,
        to: &Path,
        there: Option<&Metadata>,
    ) -> Result<(), Failure> {
        if !node.is_dir() && there.is_none() && is_slashed(to) {
            return Err(Failure::to(Refusal::NoDirectory));
        }
        let options = self.options;
        let is_read =
            node.kind == FileType::Regular || node.kind != FileType::Symlink && self.streams(from);
        let is_written =
            is_read && !options.remove_destination && options.method == CopyMethod::Copy;
        if is_written
            && there.is_none()
            && self
                .to
                .symlink_metadata(to)
                .is_ok_and(|found| found.is_symlink())
        {
            return Err(Failure::to(Refusal::DanglingLink));
        }
        Ok(())
    }

    /// Appends the name of the copy to `to`, if that is a directory that the copy goes into.
    /// Returns whether something is at `to` then, as far as that is known.
    fn complete(
        &self,
        path: &Path,
        node: &Node,
        to: &mut PathBuf,
        there: Option<&Metadata>,
    ) -> Result<bool, Failure> {
        if !there.is_some_and(|found| found.is_dir()) {
            return Ok(there.is_some());
        }
        match own_name(path) {
            Some(_) if self.options.no_target_directory && node.is_dir() => Ok(true),
            Some(_) if self.options.no_target_directory => {
                Err(Failure::to(Refusal::DirectoryInPlace))
            }
            Some(name) => {
                to.push(name);
                Ok(false)
            }
            // The name of a root directory, or one that ends in dots, stands for the contents.
            None if node.kind == FileType::Directory => Ok(true),
            None => Err(Failure::from(Refusal::Nameless)),
        }
    }

    /// Returns the file system that a copy of this directory stays on.
    fn device(&self, node: &Node) -> Option<u64> {
        match node.id {
            Id::Host(device, _) => self.options.one_file_system.then_some(device),
            Id::Volume(..) => None,
        }
    }

    /// Returns whether copies are written over files that the caller named.
    fn writes_over(&self) -> bool {
        let options = self.options;
        !options.remove_destination && !options.sets_aside && options.method == CopyMethod::Copy
    }

    fn wants(&self) -> Wants {
        let preserve = self.options.preserve;
        Wants {
            body: true,
            ahead: true,
            links: preserve.links,
            xattrs: preserve.mode || preserve.xattr,
            follow: self.options.follow == Follow::Always,
            streams: false,
        }
    }

    /// Returns the index of a volume.
    fn volume(&mut self, volume: &Volume) -> usize {
        let namespace = volume.namespace();
        self.volumes
            .iter()
            .position(|known| Arc::ptr_eq(known, namespace))
            .unwrap_or_else(|| {
                self.volumes.push(Arc::clone(namespace));
                self.volumes.len() - 1
            })
    }

    /// Counts the bytes to copy, if the observer wants to know.
    fn expect(
        &self,
        from: CopyPath<'_>,
        directory: &Directory,
        node: &Node,
        observer: &mut dyn CopyObserver,
    ) {
        match from {
            CopyPath::Host(_) if node.kind != FileType::Directory => observer.expect(node.stored),
            _ if !observer.wants_total() => {}
            CopyPath::Volume(_, session, path) => {
                observer.expect(total::of_volume(session, path, self.options.recursive));
            }
            CopyPath::Host(path) => {
                let wants = Wants {
                    body: false,
                    ahead: false,
                    xattrs: false,
                    ..self.wants()
                };
                let walk = directory.inside(path, self.follows_named());
                let walk = walk.and_then(|top| Walk::new(top, node, wants, self.device(node)));
                let Ok(mut walk) = walk else { return };
                while let Some(step) = walk.next() {
                    if let Step::File(found) = step
                        && found.node.kind == FileType::Regular
                    {
                        observer.expect(found.node.stored);
                    }
                }
            }
        }
    }
}
