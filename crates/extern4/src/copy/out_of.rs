//! Copies out of volumes to the host.
//!
//! Nothing in a volume can make a copy write outside of its destination: it takes every step from
//! an open directory, by one name, with links refused. It replaces a file that is there already,
//! and never writes through it. Only the destination as the caller named it may contain links.
//!
//! `copy_tree` and the commands `cp` and `export` call it. A file that cannot be copied is reported
//! to the observer, and the copy goes on.

mod attributes;
mod contents;
mod destination;
mod fault;
mod file;
mod filling;
mod host_tree;
mod parents;

use std::path::Path;
use std::sync::Arc;

use extern4_vfs::{AclKind, Namespace};
use rustix::fs::fgetxattr;

use self::attributes::{Keep, Original};
use self::destination::HostDestination;
use self::fault::Fault;
use self::host_tree::{FileId, HostTree, RelativePath};
use super::failure::{Failure, Refusal};
use super::kernel_copy::KernelCopy;
use super::links::Links;
use super::observer::CopyObserver;
use super::options::{CopyMethod, CopyOptions, Follow};
use super::summary::CopySummary;
use super::total;
use crate::metadata::Metadata;
use crate::session::Session;
use crate::volume::Volume;

/// A running copy out of volumes to the host, of any number of sources. Names of one file stay
/// names of one file, also in several sources.
///
/// The process's umask applies to directories while they are filled. A program that has a umask
/// with bits of the owner clears it meanwhile.
pub struct CopyOut<'a> {
    options: &'a CopyOptions,
    summary: CopySummary,
    buffer: Vec<u8>,
    images: Vec<Image>,
    /// Files with several names, by source and inode number there, and their copies.
    links: Links<(usize, u64), FileId, RelativePath>,
}

/// A volume that files are copied from.
struct Image {
    namespace: Arc<Namespace>,
    /// The image file, for data that stands in it unchanged.
    kernel_copy: Option<KernelCopy>,
}

/// A source of a copy: a path in a volume.
#[derive(Clone, Copy)]
struct Origin<'a> {
    volume: &'a Volume,
    session: &'a Session,
    path: &'a Path,
}

impl<'a> Origin<'a> {
    /// Returns the file itself, which has these attributes.
    fn named(self, metadata: &'a Metadata) -> Original<'a> {
        let Self {
            volume,
            session,
            path,
        } = self;
        Original {
            volume,
            path,
            directory: session,
            name: path.as_os_str(),
            metadata,
        }
    }
}

impl<'a> CopyOut<'a> {
    /// Starts a copy.
    pub fn new(options: &'a CopyOptions) -> Self {
        let buffer = Vec::new();
        let images = Vec::new();
        let links = Links::new();
        Self {
            options,
            summary: CopySummary::default(),
            buffer,
            images,
            links,
        }
    }

    /// Copies one file of a volume, or a directory with everything below it, to `to`; into `to` if
    /// that is a directory. It reads with the rights of `session`.
    pub fn copy(
        &mut self,
        volume: &Volume,
        session: &Session,
        path: &Path,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        let origin = Origin {
            volume,
            session,
            path,
        };
        if self.options.method != CopyMethod::Copy {
            return self
                .summary
                .note(Err(Failure::from(Refusal::OtherVolume)), path, to, observer);
        }
        if self.options.parents {
            return self.with_parents(origin, to, observer);
        }
        let destination = HostDestination::of(origin, to, self.options.no_target_directory);
        self.copy_to(origin, destination, to, observer);
    }

    /// Copies everything below a directory of a volume, and its attributes, to the directory `to`
    /// of the host.
    pub fn copy_contents(
        &mut self,
        volume: &Volume,
        session: &Session,
        path: &Path,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        let origin = Origin {
            volume,
            session,
            path,
        };
        let destination = HostDestination::itself(to).map_err(|error| Failure::To(error.into()));
        self.copy_to(origin, destination, to, observer);
    }

    /// Ends the copy.
    pub fn finish(self) -> CopySummary {
        self.summary
    }

    /// Copies to a destination, which may have failed. `to` is its path then.
    fn copy_to(
        &mut self,
        origin: Origin<'_>,
        destination: Result<HostDestination, Failure>,
        to: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        match destination {
            Ok(destination) => self.one(origin, destination, observer),
            Err(failure) => self.summary.note(Err(failure), origin.path, to, observer),
        }
    }

    /// Copies one file or tree.
    fn one(
        &mut self,
        origin: Origin<'_>,
        destination: HostDestination,
        observer: &mut dyn CopyObserver,
    ) {
        if observer.wants_total() {
            observer.expect(total::of_volume(
                origin.session,
                origin.path,
                self.options.recursive,
            ));
        }
        let found = match self.found(origin, &destination) {
            Ok(found) => found,
            Err(failure) => {
                return self.summary.note(
                    Err(failure),
                    origin.path,
                    &destination.shown(),
                    observer,
                );
            }
        };
        let keep = self.keep(&destination);
        if let Some(path) = destination
            .existing
            .as_deref()
            .filter(|_| self.writes_over(&found))
        {
            let copied = self.write_existing(origin, &found, path, keep, observer);
            if self.options.force && matches!(copied, Err(Fault::Host(_))) {
                return self.single(origin, &found, destination, keep, observer);
            }
            self.summary
                .note(copied.map_err(Fault::into), origin.path, path, observer);
        } else if found.is_dir() {
            self.directory(origin, destination, keep, observer);
        } else {
            self.single(origin, &found, destination, keep, observer);
        }
    }

    /// Returns the attributes of a source that may be copied to the destination.
    fn found(
        &self,
        origin: Origin<'_>,
        destination: &HostDestination,
    ) -> Result<Metadata, Failure> {
        let found = match self.options.follow {
            Follow::Never => origin.session.symlink_metadata(origin.path),
            Follow::Named | Follow::Always => origin.session.metadata(origin.path),
        };
        let found = found.map_err(|error| Failure::From(error.into()))?;
        if let Some(refusal) = self.options.refusal(found.file_type()) {
            return Err(Failure::from(refusal));
        }
        match destination.only.refusal(&found) {
            Some(refusal) => Err(Failure::to(refusal)),
            None => Ok(found),
        }
    }

    /// Returns whether the copy is written over the file that the caller named.
    fn writes_over(&self, found: &Metadata) -> bool {
        found.is_file() && !self.options.remove_destination && !self.options.sets_aside
    }

    fn keep(&self, destination: &HostDestination) -> Keep<'a> {
        let inherited = fgetxattr(
            &*destination.base,
            AclKind::Default.xattr_name(),
            &mut [0_u8; 0][..],
        );
        Keep {
            options: self.options,
            inherits_acl: inherited.is_ok(),
        }
    }

    fn single(
        &mut self,
        origin: Origin<'_>,
        found: &Metadata,
        destination: HostDestination,
        keep: Keep<'_>,
        observer: &mut dyn CopyObserver,
    ) {
        let Some(name) = destination.name else {
            let failure = Failure::from(Refusal::NotDirectory);
            return self
                .summary
                .note(Err(failure), origin.path, &destination.path, observer);
        };
        let mut tree = HostTree::new(destination.base);
        let to = destination.path.join(&name);
        let copied = self.file(&origin.named(found), &name, &mut tree, keep, &to, observer);
        self.summary
            .note(copied.map_err(Fault::into), origin.path, &to, observer);
    }

    /// Returns the index of a volume that files are copied from.
    fn image(&mut self, volume: &Volume) -> usize {
        let namespace = volume.namespace();
        let at = self
            .images
            .iter()
            .position(|image| Arc::ptr_eq(&image.namespace, namespace));
        at.unwrap_or_else(|| {
            self.images.push(Image {
                namespace: Arc::clone(namespace),
                kernel_copy: KernelCopy::new(volume),
            });
            self.images.len() - 1
        })
    }
}
