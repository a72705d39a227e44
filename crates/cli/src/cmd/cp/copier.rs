//! A copy out of a volume, from its first file to its last.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use extern4::{AclKind, DirEntry, FileType, Metadata};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fgetxattr, linkat, mknodat, openat, symlinkat};

use crate::app::{App, Opened, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::Image;
use crate::kernel_copy::KernelCopy;
use crate::text::escape;

use super::Args;
use super::attributes::{Keep, Lost, Original};
use super::data::{Contents, Error};
use super::links::Links;
use super::progress::Progress;
use super::tree::{self, Tree};

/// The destination of a copy.
pub(super) struct HostDestination {
    base: Rc<OwnedFd>,
    /// The name of the copy there; `None` if the directory itself takes the place of the directory
    /// that is copied.
    name: Option<OsString>,
    /// The path of the base, for messages.
    path: PathBuf,
    /// The existing file that the user named: the copy writes to it and does not replace it.
    existing: Option<PathBuf>,
    /// The kinds of files that may go there.
    pub(super) only: Only,
}

/// The kinds of files that may go to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    Anything,
    /// The name ends in a slash, and nothing is there.
    Directories,
    /// A dangling link is there. A copy replaces the link, and makes no file where the link points.
    NoContents,
}

impl Only {
    /// Returns the reason why a file must not go there.
    fn refusal(self, found: &Metadata) -> Option<&'static str> {
        match self {
            Self::Directories if !found.is_dir() => Some("there is no directory of this name"),
            Self::NoContents if found.is_file() => Some("the copy would go through a dangling symbolic link"),
            _ => None,
        }
    }
}

impl HostDestination {
    /// Returns the destination `name` in `directory`.
    pub(super) fn inside(directory: &Path, name: OsString) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = openat(CWD, directory, flags, Mode::empty())?;
        // Messages name files as the user does.
        let shown = if directory == Path::new(".") { Path::new("") } else { directory };
        let (path, only) = (shown.to_owned(), Only::Anything);
        Ok(Self { base: Rc::new(base), name: Some(name), path, existing: None, only })
    }

    /// Returns the destination for the contents of a directory: `directory` itself.
    pub(super) fn itself(directory: &Path) -> io::Result<Self> {
        let path = directory.to_owned();
        Ok(Self { name: None, path, ..Self::inside(directory, OsString::new())? })
    }

    /// Returns the destination for writing to `name` in `directory`, which exists. `path` is its
    /// path as the user wrote it.
    pub(super) fn existing(directory: &Path, name: OsString, path: &Path) -> io::Result<Self> {
        Ok(Self { existing: Some(path.to_owned()), ..Self::inside(directory, name)? })
    }
}

/// A running copy.
pub(super) struct Copier<'a> {
    args: &'a Args,
    /// Whether the copy leaves out what every volume has of its own, and what only root can make.
    exports: bool,
    umask: u32,
    lost: Lost,
    progress: Progress,
    buffer: Vec<u8>,
    sources: Vec<Source>,
    /// Files with several names, by source and inode number there, and their copies.
    links: Links<(usize, u64), tree::Id, tree::RelativePath>,
}

/// A volume that files are copied from.
struct Source {
    image: Image,
    /// The image file, for data that stands in it unchanged.
    kernel_copy: Option<KernelCopy>,
}

/// A directory that the copy is filling. It gets its attributes when the copy leaves it.
struct Pending {
    entry: DirEntry,
    metadata: Metadata,
    made: bool,
}

impl<'a> Copier<'a> {
    pub(super) fn new(args: &'a Args) -> Self {
        // New files get their modes in full, so that a file never has more rights than it ends
        // with. A script runs several copies, and the first one reads the umask.
        static UMASK: OnceLock<u32> = OnceLock::new();
        let umask = *UMASK.get_or_init(|| rustix::process::umask(Mode::empty()).as_raw_mode());
        let progress = Progress::new(args.quiet);
        let (lost, buffer, sources, links) = (Lost::default(), Vec::new(), Vec::new(), Links::new());
        Self { args, exports: false, umask, lost, progress, buffer, sources, links }
    }

    /// Starts a copy of a volume's tree to where no volume is.
    pub(super) fn exporting(args: &'a Args) -> Self {
        Self { exports: true, ..Self::new(args) }
    }

    /// Copies one file or tree.
    pub(super) fn copy(&mut self, target: &Target, destination: HostDestination, app: &mut App) {
        self.progress.expect(target, self.args.recursive());
        let session = target.session();
        let found = if self.args.recursive() {
            session.symlink_metadata(target.path())
        } else {
            session.metadata(target.path())
        };
        match found {
            Err(error) => self.say(|| app.error(&target.image_path, &error)),
            Ok(found) if found.is_dir() && !self.args.recursive() => {
                self.say(|| {
                    app.fail_at(ExitStatus::Failed, &target.image_path, "is a directory; copy it with -r")
                });
            }
            Ok(found) => {
                if let Some(why) = destination.only.refusal(&found) {
                    let to = destination
                        .name
                        .as_ref()
                        .map_or_else(|| destination.path.clone(), |name| destination.path.join(name));
                    return self.say(|| app.fail_at(ExitStatus::Failed, to.display(), why));
                }
                let keep = self.keep(&destination);
                if let Some(path) = destination.existing.as_deref().filter(|_| found.is_file()) {
                    let copied = self.write_existing(target, &found, path, keep);
                    self.outcome(copied, &target.volume, target.path(), path, app);
                } else if found.is_dir() {
                    self.directory(target, destination, keep, app);
                } else {
                    self.single(target, &found, destination, keep, app);
                }
            }
        }
    }

    /// Reports lost attributes, and removes the progress bar.
    pub(super) fn finish(self, app: &mut App) {
        self.progress.finish();
        self.lost.report(app);
    }

    fn say<T>(&self, say: impl FnOnce() -> T) -> T {
        self.progress.suspend(say)
    }

    fn keep(&self, destination: &HostDestination) -> Keep {
        let inherited = fgetxattr(&*destination.base, AclKind::Default.xattr_name(), &mut [0_u8; 0][..]);
        Keep {
            attributes: self.args.preserve || self.args.archive,
            xattrs: self.args.archive,
            inherits_acl: inherited.is_ok(),
        }
    }

    /// Returns the mode that a new file or directory starts with: its own if no later step changes
    /// it, else the owner's bits.
    fn first_mode(&self, mode: u32, keep: Keep) -> Mode {
        Mode::from_raw_mode(if keep.attributes { mode & 0o700 } else { mode & 0o777 & !self.umask })
    }

    fn write_existing(
        &mut self,
        target: &Target,
        found: &Metadata,
        path: &Path,
        keep: Keep,
    ) -> Result<(), Error> {
        let from = target.session().open(target.path())?;
        let to = std::fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        if !to.metadata()?.is_file() {
            return self.contents(&target.volume, &from, &to, |contents| contents.stream());
        }
        self.contents(&target.volume, &from, &to, |contents| contents.copy())?;
        named(target, found).keep(&to, keep, &mut self.lost)
    }

    fn single(
        &mut self,
        target: &Target,
        found: &Metadata,
        destination: HostDestination,
        keep: Keep,
        app: &mut App,
    ) {
        let Some(name) = destination.name else {
            let image_path = &target.image_path;
            return self.say(|| app.fail_at(ExitStatus::Failed, image_path, "not a directory"));
        };
        let mut tree = Tree::new(destination.base);
        let copied = self.file(&named(target, found), &name, &mut tree, keep);
        self.outcome(copied, &target.volume, target.path(), &destination.path.join(name), app);
    }

    fn directory(&mut self, target: &Target, destination: HostDestination, keep: Keep, app: &mut App) {
        let mut tree = Tree::new(Rc::clone(&destination.base));
        let mut pending: Vec<Pending> = Vec::new();
        let mut walk = target.session().walk(target.path()).with_metadata();
        let top = destination
            .name
            .as_ref()
            .map_or_else(|| destination.path.clone(), |name| destination.path.join(name));
        while let Some(entry) = walk.next() {
            let found = entry.and_then(|entry| entry.metadata().map(|found| (entry, found)));
            let (entry, metadata) = match found {
                Ok(found) => found,
                Err(error) => {
                    let path = error.path().unwrap_or(target.path()).to_owned();
                    self.say(|| app.error(target.volume.image_path(&path), &error));
                    continue;
                }
            };
            if self.exports && is_own(&entry) {
                walk.skip_subtree();
                continue;
            }
            let depth = entry.depth();
            self.leave(target, &mut tree, &mut pending, depth, keep, app);
            let name = if depth == 0 { destination.name.as_deref() } else { Some(entry.file_name()) };
            let copied = if metadata.is_dir() {
                match self.enter(name, &metadata, &mut tree, keep) {
                    Ok(made) => {
                        pending.push(Pending { entry, metadata, made });
                        continue;
                    }
                    Err(error) => {
                        walk.skip_subtree();
                        Err(Error::Host(error))
                    }
                }
            } else {
                let directory = entry.parent();
                let original = Original {
                    volume: &target.volume,
                    path: entry.path(),
                    directory: &directory,
                    name: entry.file_name(),
                    metadata: &metadata,
                };
                self.file(&original, entry.file_name(), &mut tree, keep)
            };
            let below = entry.path().strip_prefix(target.path()).unwrap_or(entry.path());
            let to = if below.as_os_str().is_empty() { top.clone() } else { top.join(below) };
            self.outcome(copied, &target.volume, entry.path(), &to, app);
        }
        self.leave(target, &mut tree, &mut pending, 0, keep, app);
    }

    fn enter(
        &self,
        name: Option<&OsStr>,
        metadata: &Metadata,
        tree: &mut Tree,
        keep: Keep,
    ) -> io::Result<bool> {
        match name {
            Some(name) => tree.enter(name, self.first_mode(metadata.mode(), keep) | Mode::RWXU),
            None => tree.enter_base().map(|()| false),
        }
    }

    /// Leaves the directories at depth `depth` and below, and gives them their attributes.
    fn leave(
        &mut self,
        target: &Target,
        tree: &mut Tree,
        pending: &mut Vec<Pending>,
        depth: usize,
        keep: Keep,
        app: &mut App,
    ) {
        while pending.len() > depth {
            let Some(Pending { entry, metadata, made }) = pending.pop() else { break };
            let directory = entry.parent();
            let original = Original {
                volume: &target.volume,
                path: entry.path(),
                directory: &directory,
                name: entry.file_name(),
                metadata: &metadata,
            };
            let plain = metadata.mode() & 0o777 & !self.umask;
            let lost = &mut self.lost;
            let kept = tree.current().map_err(Error::Host).and_then(|copy| {
                if made && !keep.attributes && plain & 0o700 != 0o700 {
                    rustix::fs::fchmod(copy, Mode::from_raw_mode(plain)).map_err(io::Error::from)?;
                }
                original.keep(copy, keep, lost)
            });
            self.outcome(kept, &target.volume, entry.path(), entry.path(), app);
            tree.leave();
        }
    }

    /// Copies any file except a directory.
    fn file(
        &mut self,
        original: &Original<'_>,
        name: &OsStr,
        tree: &mut Tree,
        keep: Keep,
    ) -> Result<(), Error> {
        let metadata = original.metadata;
        let linked = self.args.archive && metadata.nlink() > 1;
        let id = (self.source(original.volume), metadata.ino());
        if !self.links.is_empty()
            && let Some(there) = tree.find(name)?
            && self.links.has_name(&id, &there)
        {
            self.progress.file();
            return Ok(());
        }
        if linked && let Some(first) = self.links.first(&id) {
            let (directory, first) = first.open_parent()?;
            tree.make(name, |to, name| linkat(&directory, first, to, name, AtFlags::empty()))?;
            self.progress.file();
            return Ok(());
        }
        match metadata.file_type() {
            FileType::Regular => self.regular(original, name, tree, keep)?,
            FileType::Symlink => {
                let link = original.directory.read_link(original.name)?;
                tree.make(name, |directory, name| symlinkat(&link, directory, name))?;
                original.keep_at(tree.current()?, name, keep, &mut self.lost)?;
            }
            kind => {
                match self.node(kind, metadata, name, tree) {
                    Err(Error::Host(error)) if self.exports && is_refused(&error) => {
                        self.lost.device(original.path);
                        return Ok(());
                    }
                    made => made?,
                }
                original.keep_at(tree.current()?, name, keep, &mut self.lost)?;
            }
        }
        if linked && let Some(copy) = tree.find(name)? {
            self.links.add(id, copy, tree.relative_path(name));
        }
        self.progress.file();
        Ok(())
    }

    fn regular(
        &mut self,
        original: &Original<'_>,
        name: &OsStr,
        tree: &mut Tree,
        keep: Keep,
    ) -> Result<(), Error> {
        let from = original.directory.open(original.name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = self.first_mode(original.metadata.mode(), keep) | Mode::WUSR;
        let mode = if keep.attributes { mode } else { self.first_mode(original.metadata.mode(), keep) };
        let to = tree.make(name, |directory, name| openat(directory, name, flags, mode))?;
        let to = std::fs::File::from(to);
        self.contents(original.volume, &from, &to, |contents| contents.copy())?;
        original.keep(&to, keep, &mut self.lost)
    }

    fn node(&self, kind: FileType, metadata: &Metadata, name: &OsStr, tree: &mut Tree) -> Result<(), Error> {
        let archive = self.args.archive || self.args.preserve;
        let bits = metadata.mode() & if archive { 0o7777 } else { 0o777 & !self.umask };
        let mode = Mode::from_raw_mode(bits);
        let device = rustix::fs::makedev(metadata.rdev().major, metadata.rdev().minor);
        let kind = match kind {
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::Fifo => rustix::fs::FileType::Fifo,
            _ => rustix::fs::FileType::Socket,
        };
        tree.make(name, |directory, name| mknodat(directory, name, kind, mode, device))?;
        Ok(())
    }

    /// Returns the index of a volume that files are copied from.
    fn source(&mut self, volume: &Opened) -> usize {
        let at = self.sources.iter().position(|source| source.image == volume.image);
        at.unwrap_or_else(|| {
            self.sources.push(Source { image: volume.image.clone(), kernel_copy: KernelCopy::new(volume) });
            self.sources.len() - 1
        })
    }

    fn contents(
        &mut self,
        volume: &Opened,
        from: &extern4::File,
        to: &std::fs::File,
        copy: impl FnOnce(Contents<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let source = self.source(volume);
        let mut kernel_copy = self.sources[source].kernel_copy.take();
        let progress = &self.progress;
        let copied = copy(Contents {
            from,
            kernel_copy: kernel_copy.as_mut(),
            to,
            buffer: &mut buffer,
            copied: &mut |bytes| progress.bytes(bytes),
        });
        self.sources[source].kernel_copy = kernel_copy;
        self.buffer = buffer;
        copied
    }

    fn outcome(&self, copied: Result<(), Error>, volume: &Opened, from: &Path, to: &Path, app: &mut App) {
        match copied {
            Ok(()) => {}
            Err(Error::Volume(error)) => self.say(|| app.error(volume.image_path(from), &error)),
            Err(Error::Map) => {
                let image_path = volume.image_path(from);
                self.say(|| {
                    app.fail_at(ExitStatus::Corrupt, &image_path, "its block map does not go forward")
                });
            }
            Err(Error::Host(error)) => {
                let to = escape(std::os::unix::ffi::OsStrExt::as_bytes(to.as_os_str())).into_owned();
                self.say(|| app.fail_at(ExitStatus::Failed, &to, host_reason(&error)));
            }
        }
    }
}

/// Returns whether an entry is the directory that every volume has of its own.
fn is_own(entry: &DirEntry) -> bool {
    let is_there = entry.path() == Path::new("/lost+found") && entry.depth() == 1;
    is_there && entry.parent().read_dir(entry.file_name()).is_ok_and(|mut files| files.next().is_none())
}

/// Returns whether only root can do it.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root()
}

/// Returns the file that `target` names.
fn named<'a>(target: &'a Target, metadata: &'a Metadata) -> Original<'a> {
    Original {
        volume: &target.volume,
        path: target.path(),
        directory: target.session(),
        name: target.path().as_os_str(),
        metadata,
    }
}
