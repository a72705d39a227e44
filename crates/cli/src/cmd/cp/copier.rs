//! A copy out of a volume to the host, from its first file to its last.
//!
//! `cp` makes a [`Copier`] and gives it each source. A file that cannot be copied is reported and
//! left out, and the copy goes on. Nothing in the volume can make it write outside of the
//! destination. A signal ends it between two pieces.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extern4::{AclKind, DirEntry, FileType, Metadata, Timespec};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fgetxattr, linkat, mknodat, openat, symlinkat, unlinkat};

use crate::app::{App, Opened, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::Image;
use crate::kernel_copy::KernelCopy;
use crate::owner::OwnerIds;
use crate::progress::Task;
use crate::stop::Stop;
use crate::targets::{MAX_LINKS, own_name};
use crate::text::{always_quoted, counted, escape};

use super::Args;
use super::attributes::{Keep, Lost, Original};
use super::data::{Contents, Error};
use super::links::Links;
use super::options::Follow;
use super::total::{self, COPYING};
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
    umask: ClearedUmask,
    /// The owner that copies get.
    owner: OwnerIds,
    lost: Lost,
    task: Task,
    stop: Stop,
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

/// A tree that is being copied.
struct Filling<'a> {
    target: &'a Target,
    /// The path of the copy.
    top: &'a Path,
    keep: Keep,
    tree: Tree,
    pending: Vec<Pending>,
    /// The directories from which symbolic links led to the ones that are being copied.
    above: Vec<PathBuf>,
}

/// A directory that the copy is filling. It gets its attributes when the copy leaves it.
struct Pending {
    entry: DirEntry,
    metadata: Metadata,
    made: bool,
}

/// Clears the umask of the process until it is dropped. New files get their modes in full
/// meanwhile, so that a file never has more rights than it ends with.
struct ClearedUmask(Mode);

impl ClearedUmask {
    fn new() -> Self {
        Self(rustix::process::umask(Mode::empty()))
    }

    /// Returns the umask from before.
    fn bits(&self) -> u32 {
        self.0.as_raw_mode()
    }
}

impl Drop for ClearedUmask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}

impl<'a> Copier<'a> {
    pub(super) fn new(args: &'a Args, owner: OwnerIds, app: &mut App) -> Self {
        let umask = ClearedUmask::new();
        let (task, stop) = (app.begin_task(COPYING, args.quiet), app.stop_on_signals());
        let (lost, buffer, sources, links) = (Lost::default(), Vec::new(), Vec::new(), Links::new());
        Self { args, exports: false, umask, owner, lost, task, stop, buffer, sources, links }
    }

    /// Starts a copy of a volume's tree to where no volume is.
    pub(super) fn exporting(args: &'a Args, app: &mut App) -> Self {
        Self { exports: true, ..Self::new(args, OwnerIds::default(), app) }
    }

    /// Copies one file or tree.
    pub(super) fn copy(&mut self, target: &Target, destination: HostDestination, app: &mut App) {
        total::expect(&self.task, target, self.args.recursive());
        let session = target.session();
        let found = match self.args.follow() {
            Follow::Never => session.symlink_metadata(target.path()),
            Follow::Named | Follow::Always => session.metadata(target.path()),
        };
        match found {
            Err(error) => app.error(&target.image_path, &error),
            Ok(found) if found.is_dir() && !self.args.recursive() => {
                app.fail_at(ExitStatus::Failed, &target.image_path, "is a directory; copy it with -r");
            }
            Ok(found) => {
                if let Some(why) = destination.only.refusal(&found) {
                    let to = destination
                        .name
                        .as_ref()
                        .map_or_else(|| destination.path.clone(), |name| destination.path.join(name));
                    return app.fail_at(ExitStatus::Failed, to.display(), why);
                }
                let keep = self.keep(&destination);
                if let Some(path) = destination.existing.as_deref().filter(|_| self.writes_over(&found)) {
                    let copied = self.write_existing(target, &found, path, keep, app);
                    if self.args.force && matches!(copied, Err(Error::Host(_))) {
                        return self.single(target, &found, destination, keep, app);
                    }
                    self.outcome(copied, &target.volume, target.path(), path, app);
                } else if found.is_dir() {
                    self.directory(target, destination, keep, app);
                } else {
                    self.single(target, &found, destination, keep, app);
                }
            }
        }
    }

    /// Returns whether the copy is written over the file that the user named.
    fn writes_over(&self, found: &Metadata) -> bool {
        found.is_file() && !self.args.removes_existing() && !self.args.overwrite.backup.is_on()
    }

    /// Copies one file or tree below `directory`, under its whole path.
    pub(super) fn copy_with_parents(&mut self, target: &Target, directory: &Path, app: &mut App) {
        let above = target.path().parent().unwrap_or(Path::new("/"));
        let mut made = Vec::new();
        for above in above.ancestors().collect::<Vec<_>>().into_iter().rev() {
            match self.make_parent(target, above, directory, app) {
                Ok(new) => made.extend(new),
                Err(error) => {
                    return self.outcome(Err(error), &target.volume, above, &below(directory, above), app);
                }
            }
        }
        let to = match own_name(target.path()) {
            Some(name) => HostDestination::inside(&below(directory, above), name),
            None => HostDestination::itself(directory),
        };
        match to {
            Ok(to) => self.copy(target, to, app),
            Err(error) => self.outcome(Err(error.into()), &target.volume, target.path(), directory, app),
        }
        // A file that is made in a directory changes its times.
        for (path, metadata) in made.iter().rev() {
            let kept = self.keep_parent(target, path, metadata, directory);
            self.outcome(kept, &target.volume, path, &below(directory, path), app);
        }
    }

    /// Makes the copy of a directory above a source, if there is none. Returns its original then.
    fn make_parent(
        &self,
        target: &Target,
        above: &Path,
        directory: &Path,
        app: &mut App,
    ) -> Result<Option<(PathBuf, Metadata)>, Error> {
        let (metadata, to) = (target.session().metadata(above)?, below(directory, above));
        if to.is_dir() {
            return Ok(None);
        }
        let mode = self.args.kept.first_mode(metadata.mode(), true, self.umask.bits()) | 0o700;
        rustix::fs::mkdirat(CWD, &to, Mode::from_raw_mode(mode)).map_err(io::Error::from)?;
        if self.args.verbose {
            let from = target.volume.image_path(above);
            app.print(format_args!("{from} -> {}", escape(to.as_os_str().as_bytes())));
        }
        Ok(Some((above.to_owned(), metadata)))
    }

    fn keep_parent(
        &mut self,
        target: &Target,
        path: &Path,
        metadata: &Metadata,
        directory: &Path,
    ) -> Result<(), Error> {
        let to = HostDestination::itself(&below(directory, path))?;
        let original = Original {
            volume: &target.volume,
            path,
            directory: target.session(),
            name: path.as_os_str(),
            metadata,
        };
        let keep = self.keep(&to);
        original.keep(&*to.base, keep, &mut self.lost)
    }

    /// Reports lost attributes.
    pub(super) fn finish(self, app: &mut App) {
        self.lost.report(app);
        app.report_stop(format_args!("{} copied", counted(self.task.files(), "file", "files")));
    }

    fn keep(&self, destination: &HostDestination) -> Keep {
        let inherited = fgetxattr(&*destination.base, AclKind::Default.xattr_name(), &mut [0_u8; 0][..]);
        Keep { kept: self.args.kept, owner: self.owner, inherits_acl: inherited.is_ok() }
    }

    /// Returns the mode that a new file starts with.
    fn first_mode(&self, mode: u32, is_directory: bool) -> Mode {
        Mode::from_raw_mode(self.args.kept.first_mode(mode, is_directory, self.umask.bits()))
    }

    fn write_existing(
        &mut self,
        target: &Target,
        found: &Metadata,
        path: &Path,
        keep: Keep,
        app: &mut App,
    ) -> Result<(), Error> {
        let there = if self.args.overwrite.is_plain() { None } else { Some(modified(path)?) };
        if !self.may_replace(found, there, path, app) {
            return Ok(());
        }
        let from = target.session().open(target.path())?;
        let truncates = !self.args.attributes_only;
        let to = std::fs::OpenOptions::new().write(true).truncate(truncates).open(path)?;
        self.tell(&named(target, found), path, None, app);
        if truncates && !to.metadata()?.is_file() {
            return self.contents(&target.volume, &from, &to, |contents| contents.stream());
        }
        if truncates {
            let copied = self.contents(&target.volume, &from, &to, |contents| contents.copy());
            if matches!(copied, Err(Error::Stopped)) {
                to.set_len(0)?;
            }
            copied?;
        }
        named(target, found).keep(&to, keep, &mut self.lost)
    }

    /// Returns whether a copy may take the place of a file that changed at `there`.
    fn may_replace(&self, source: &Metadata, there: Option<Timespec>, to: &Path, app: &App) -> bool {
        let shown = || always_quoted(to.as_os_str().as_bytes());
        there.is_none_or(|there| self.args.overwrite.allows(source.mtime(), there, &shown(), app))
    }

    /// Prints that a file is copied, if the user wants to know.
    fn tell(&self, original: &Original<'_>, to: &Path, kept: Option<&OsStr>, app: &mut App) {
        if !self.args.verbose {
            return;
        }
        let from = original.volume.image_path(original.path).quoted();
        let host = |path: &Path| always_quoted(path.as_os_str().as_bytes());
        let kept = kept.map(|kept| format!(" (backup: {})", host(&to.with_file_name(kept))));
        let line = format!("{from} -> {}{}", host(to), kept.unwrap_or_default());
        app.print(line);
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
            return app.fail_at(ExitStatus::Failed, image_path, "not a directory");
        };
        let (mut tree, to) = (Tree::new(destination.base), destination.path.join(&name));
        let copied = self.file(&named(target, found), &name, &mut tree, keep, &to, app);
        self.outcome(copied, &target.volume, target.path(), &to, app);
    }

    fn directory(&mut self, target: &Target, destination: HostDestination, keep: Keep, app: &mut App) {
        let top = match &destination.name {
            Some(name) => destination.path.join(name),
            None => destination.path.clone(),
        };
        let real = match self.args.follow() {
            Follow::Never => Ok(target.path().to_owned()),
            Follow::Named | Follow::Always => target.session().canonicalize(target.path()),
        };
        let (tree, pending, above) = (Tree::new(Rc::clone(&destination.base)), Vec::new(), Vec::new());
        let mut filling = Filling { target, top: &top, keep, tree, pending, above };
        match real {
            Ok(real) => self.fill(&mut filling, &real, destination.name.as_deref(), &top, app),
            Err(error) => app.error(&target.image_path, &error),
        }
    }

    /// Copies directory `real` with everything below it to `name` in the current directory, whose
    /// path is `top`.
    fn fill(
        &mut self,
        filling: &mut Filling<'_>,
        real: &Path,
        name: Option<&OsStr>,
        top: &Path,
        app: &mut App,
    ) {
        let (target, keep, base) = (filling.target, filling.keep, filling.pending.len());
        let mut walk = target.session().walk(real).with_metadata();
        while let Some(entry) = walk.next() {
            if self.stop.check().is_break() {
                break;
            }
            let found = entry.and_then(|entry| entry.metadata().map(|found| (entry, found)));
            let (entry, metadata) = match found {
                Ok(found) => found,
                Err(error) => {
                    let path = error.path().unwrap_or(real).to_owned();
                    app.error(target.volume.image_path(&path), &error);
                    continue;
                }
            };
            let below = entry.path().strip_prefix(real).unwrap_or(entry.path());
            let to = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(below) };
            if self.exports && is_own(&entry) || self.leaves_out(filling.top, &to, metadata.is_dir()) {
                walk.skip_subtree();
                continue;
            }
            self.leave(filling, base + entry.depth(), app);
            if metadata.is_symlink() && self.args.follow() == Follow::Always {
                self.follow(filling, &entry, &to, app);
                continue;
            }
            let directory = entry.parent();
            let original = Original {
                volume: &target.volume,
                path: entry.path(),
                directory: &directory,
                name: entry.file_name(),
                metadata: &metadata,
            };
            let copied = if metadata.is_dir() {
                let name = if entry.depth() == 0 { name } else { Some(entry.file_name()) };
                match self.enter(name, &metadata, &mut filling.tree) {
                    Ok(made) => {
                        if made {
                            self.tell(&original, &to, None, app);
                        }
                        filling.pending.push(Pending { entry, metadata, made });
                        continue;
                    }
                    Err(error) => {
                        walk.skip_subtree();
                        Err(Error::Host(error))
                    }
                }
            } else {
                self.file(&original, entry.file_name(), &mut filling.tree, keep, &to, app)
            };
            self.outcome(copied, &target.volume, entry.path(), &to, app);
        }
        self.leave(filling, base, app);
    }

    /// Returns whether a copy is left out by the rules of the command line.
    fn leaves_out(&self, top: &Path, to: &Path, is_directory: bool) -> bool {
        let below = to.strip_prefix(top).unwrap_or(to);
        self.args.rules.leaves_out(below, is_directory)
    }

    /// Copies the file that a symbolic link leads to in the link's place.
    fn follow(&mut self, filling: &mut Filling<'_>, entry: &DirEntry, to: &Path, app: &mut App) {
        let (target, name) = (filling.target, entry.file_name());
        let found = entry.parent().metadata(name);
        let real = entry.parent().canonicalize(name);
        let (found, real) = match found.and_then(|found| Ok((found, real?))) {
            Ok(found) => found,
            Err(error) => {
                let path = target.volume.image_path(entry.path());
                return app.error(path, &error);
            }
        };
        if !found.is_dir() {
            let original = Original {
                volume: &target.volume,
                path: entry.path(),
                directory: target.session(),
                name: real.as_os_str(),
                metadata: &found,
            };
            let copied = self.file(&original, name, &mut filling.tree, filling.keep, to, app);
            return self.outcome(copied, &target.volume, entry.path(), to, app);
        }
        filling.above.push(entry.path().to_owned());
        if filling.above.len() > MAX_LINKS || filling.above.iter().any(|above| above.starts_with(&real)) {
            let path = target.volume.image_path(entry.path());
            let reason = "the link leads back to a directory above it";
            app.fail_at(ExitStatus::Failed, path, reason);
        } else {
            self.fill(filling, &real, Some(name), to, app);
        }
        filling.above.pop();
    }

    fn enter(&self, name: Option<&OsStr>, metadata: &Metadata, tree: &mut Tree) -> io::Result<bool> {
        match name {
            Some(name) => tree.enter(name, self.first_mode(metadata.mode(), true) | Mode::RWXU),
            None => tree.enter_base().map(|()| false),
        }
    }

    /// Leaves the directories at depth `depth` and below, and gives them their attributes.
    fn leave(&mut self, filling: &mut Filling<'_>, depth: usize, app: &mut App) {
        let Filling { target, keep, tree, pending, .. } = filling;
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
            let plain = self.first_mode(metadata.mode(), true);
            let (kept, lost) = (keep.kept, &mut self.lost);
            let kept = tree.current().map_err(Error::Host).and_then(|copy| {
                if made && !kept.mode && !plain.contains(Mode::RWXU) {
                    rustix::fs::fchmod(copy, plain).map_err(io::Error::from)?;
                }
                original.keep(copy, *keep, lost)
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
        to: &Path,
        app: &mut App,
    ) -> Result<(), Error> {
        let metadata = original.metadata;
        let linked = self.args.kept.links && metadata.nlink() > 1;
        let id = (self.source(original.volume), metadata.ino());
        if !self.links.is_empty()
            && let Some(there) = tree.find(name)?
            && self.links.has_name(&id, &there)
        {
            self.task.file();
            return Ok(());
        }
        let there = if self.args.overwrite.is_plain() { None } else { tree.modified(name)? };
        if !self.may_replace(metadata, there, to, app) {
            return Ok(());
        }
        let backup = &self.args.overwrite.backup;
        let kept = if there.is_some() && backup.is_on() { tree.back_up(name, backup)? } else { None };
        self.tell(original, to, kept.as_deref(), app);
        if linked && let Some(first) = self.links.first(&id) {
            let (directory, first) = first.open_parent()?;
            tree.make(name, |to, name| linkat(&directory, first, to, name, AtFlags::empty()))?;
            self.task.file();
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
        self.task.file();
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
        let mode = self.first_mode(original.metadata.mode(), false);
        let mode = if keep.kept.mode { mode | Mode::WUSR } else { mode };
        let there = if self.args.attributes_only { tree.open_existing(name)? } else { None };
        let to = match there {
            Some(there) => there,
            None => tree.make(name, |directory, name| openat(directory, name, flags, mode))?,
        };
        let to = std::fs::File::from(to);
        if !self.args.attributes_only {
            let copied = self.contents(original.volume, &from, &to, |contents| contents.copy());
            if matches!(copied, Err(Error::Stopped)) {
                unlinkat(tree.current()?, name, AtFlags::empty()).map_err(io::Error::from)?;
            }
            copied?;
        }
        original.keep(&to, keep, &mut self.lost)
    }

    fn node(&self, kind: FileType, metadata: &Metadata, name: &OsStr, tree: &mut Tree) -> Result<(), Error> {
        let kept = self.args.kept.mode.then(|| Mode::from_raw_mode(metadata.mode() & 0o7777));
        let mode = kept.unwrap_or_else(|| self.first_mode(metadata.mode(), false));
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
        let (task, stop) = (&self.task, &self.stop);
        let copied = copy(Contents {
            from,
            kernel_copy: kernel_copy.as_mut(),
            to,
            buffer: &mut buffer,
            sparse: self.args.sparse.unwrap_or_default(),
            copied: &mut |bytes| {
                task.advance(bytes);
                if stop.check().is_break() { Err(Error::Stopped) } else { Ok(()) }
            },
        });
        self.sources[source].kernel_copy = kernel_copy;
        self.buffer = buffer;
        copied
    }

    fn outcome(&self, copied: Result<(), Error>, volume: &Opened, from: &Path, to: &Path, app: &mut App) {
        match copied {
            Ok(()) | Err(Error::Stopped) => {}
            Err(Error::Volume(error)) => app.error(volume.image_path(from), &error),
            Err(Error::Map) => {
                let image_path = volume.image_path(from);
                app.fail_at(ExitStatus::Corrupt, &image_path, "its block map does not go forward");
            }
            Err(Error::Host(error)) => {
                let to = escape(to.as_os_str().as_bytes()).into_owned();
                app.fail_at(ExitStatus::Failed, &to, host_reason(&error));
            }
        }
    }
}

/// Returns the path of the copy of `path` in `directory` under its whole path.
fn below(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the time of the last change of a file of the host.
fn modified(path: &Path) -> io::Result<Timespec> {
    let found = std::fs::metadata(path)?;
    Ok(Timespec { sec: found.mtime(), nsec: u32::try_from(found.mtime_nsec()).unwrap_or(0) })
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
