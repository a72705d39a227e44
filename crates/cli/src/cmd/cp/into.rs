//! Copies into a volume: from the host, from another volume, or within one.
//!
//! Every step uses one name in an open directory, so that trees of any depth work and the copy
//! follows no link. A copy replaces an existing file, unless that file is the destination that the
//! user typed: then it writes to it. New files belong to the caller. They get the modes of their
//! originals without the bits of umask 022, unless modes are to be kept.
//!
//! `cp` calls it. A file that cannot be copied is reported, and the copy goes on.

mod attributes;

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use extern4::{AclKind, Errno, FileType, NewKind, OpenFlags, Session};

use crate::app::{App, Opened, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::operands::DestinationKind;
use crate::overwrite::backup_note;
use crate::owner::OwnerIds;
use crate::progress::Task;
use crate::stop::Stop;
use crate::targets::own_name;
use crate::text::{always_quoted, counted, escape};

use super::ahead;
use super::attributes::Lost;
use super::data::pieces;
use super::links::Links;
use super::options::{Follow, Making, Sparse};
use super::source::{Body, Contents, Directory, Fault, Found, Id, Node, Wants, Xattrs};
use super::total::{self, COPYING};
use super::walk::{Step, Walk};
use super::{Args, is_slashed};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// The bits that a new file's mode loses.
const UMASK: u32 = 0o022;

/// A file to copy, as the command line names it.
pub(super) enum Source {
    Host(PathBuf),
    Volume(Target),
}

/// The reason why a file was not copied.
enum Failure {
    /// The source cannot be read.
    Reading(Fault),
    /// The copy cannot be written.
    To(extern4::Error),
    /// The copy cannot exist, with the reason.
    Says(&'static str),
    /// There is no place for the copy, with the reason.
    NoPlace(&'static str),
    /// The file that is there stays, as the user wants.
    Stays,
    /// A signal has asked the command to end.
    Stopped,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Reading(fault)
    }
}

impl From<extern4::Error> for Failure {
    fn from(error: extern4::Error) -> Self {
        Self::To(error)
    }
}

/// A running copy into a volume.
pub(super) struct IntoVolume<'a> {
    args: &'a Args,
    /// The owner that copies get.
    owner: OwnerIds,
    to: Rc<Opened>,
    lost: Lost,
    task: Task,
    stop: Stop,
    buffer: Vec<u8>,
    /// The volumes, by the indexes in [`Id`]s; the first one is written.
    volumes: Vec<Image>,
    /// Files with several names, and the inode numbers of their copies.
    links: Links<Id, u64, PathBuf>,
    /// The image that is written, if it is a file of the host: it is not copied into itself.
    image: Option<Id>,
}

/// The destination of a copy.
struct VolumeDestination<'a> {
    directory: &'a Session,
    name: &'a OsStr,
    /// The path in the volume.
    path: &'a Path,
    /// The user named this existing file: the copy writes to it and does not replace it.
    existing: bool,
    /// The directory gives new files an ACL.
    gives_acl: bool,
}

/// A directory that is being copied.
struct Level {
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
struct Levels<'a> {
    from: &'a Source,
    stack: Vec<Level>,
    /// How many directories inside the last one are left out, because it could not be made.
    left_out: usize,
}

impl<'a> IntoVolume<'a> {
    pub(super) fn new(args: &'a Args, owner: OwnerIds, to: &Rc<Opened>, app: &mut App) -> Self {
        let image = Directory::of_host().and_then(|here| here.node(&to.image.file, true));
        Self {
            args,
            owner,
            to: Rc::clone(to),
            lost: Lost::default(),
            task: app.begin_task(COPYING, args.quiet),
            stop: app.stop_on_signals(),
            buffer: vec![0; CHUNK_BYTES],
            volumes: vec![to.image.clone()],
            links: Links::new(),
            image: image.ok().map(|node| node.id),
        }
    }

    /// Copies one file, or a directory with everything below it, to `destination`; into
    /// `destination` if that is a directory.
    pub(super) fn copy(&mut self, from: &Source, destination: &ImagePath, app: &mut App) {
        let (path, shown) = match from {
            Source::Host(path) => (path.as_path(), path.clone()),
            Source::Volume(target) => (target.path(), target.path().to_owned()),
        };
        let mut to = destination.path.clone();
        if !self.args.parents {
            let copied = self.one(from, path, shown, &mut to, app);
            return self.outcome(copied, from, path, &to, app);
        }
        let mut made = Vec::new();
        let copied = match self.parents(from, path, &mut to, &mut made, app) {
            Ok(()) => self.one(from, path, shown, &mut to, app),
            Err(failure) => Err(failure),
        };
        self.outcome(copied, from, path, &to, app);
        // A file that is made in a directory changes its times.
        for (path, to) in made.iter().rev().filter(|_| self.args.kept.has_any()) {
            let kept = self.keep_parent(from, path, to);
            self.outcome(kept, from, path, to, app);
        }
    }

    /// Makes the directories above the copy of `path` below `to`, which becomes the last of them.
    /// Puts the new ones into `made`, with their originals.
    fn parents(
        &self,
        from: &Source,
        path: &Path,
        to: &mut PathBuf,
        made: &mut Vec<(PathBuf, PathBuf)>,
        app: &mut App,
    ) -> Result<(), Failure> {
        let above = path.parent().unwrap_or(Path::new(""));
        let names = above.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut original = PathBuf::from(if path.is_absolute() { "/" } else { "" });
        if above.components().any(|part| part == Component::ParentDir) {
            return Err(Failure::Says("--parents takes no path with '..'"));
        }
        for name in names {
            original.push(name);
            to.push(name);
            let node = Self::directory_of(from)?.node(&original, true)?;
            let mode = self.args.kept.first_mode(node.mode, true, UMASK) | 0o700;
            match self.to.session.create_dir_with(&*to, mode) {
                Ok(()) => made.push((original.clone(), to.clone())),
                Err(error) if error.errno() == Errno::EEXIST => continue,
                Err(error) => return Err(error.into()),
            }
            if self.args.verbose {
                let line = format!("{} -> {}", source_text(from, &original), self.to.image_path(to));
                app.print(line);
            }
        }
        Ok(())
    }

    /// Returns the directory in which the paths of a source are looked up.
    fn directory_of(from: &Source) -> Result<Directory, Fault> {
        match from {
            Source::Host(_) => Directory::of_host(),
            Source::Volume(target) => Ok(Directory::Volume(target.session().clone(), 0)),
        }
    }

    fn keep_parent(&mut self, from: &Source, path: &Path, to: &Path) -> Result<(), Failure> {
        let directory = Self::directory_of(from)?;
        let node = directory.node(path, true)?;
        let xattrs = directory.inside(path, true).and_then(|inside| inside.own_xattrs());
        let session = self.to.session.clone();
        self.keep(path, &node, xattrs, (&session, to.as_os_str()), true)
    }

    /// Reports lost attributes.
    pub(super) fn finish(self, app: &mut App) {
        self.lost.report(app);
        app.report_stop(format_args!("{} copied", counted(self.task.files(), "file", "files")));
    }

    /// Copies to `to`, which becomes the path of the copy.
    fn one(
        &mut self,
        from: &Source,
        path: &Path,
        shown: PathBuf,
        to: &mut PathBuf,
        app: &mut App,
    ) -> Result<(), Failure> {
        let directory = match from {
            Source::Host(_) => Directory::of_host()?,
            Source::Volume(target) => {
                Directory::Volume(target.session().clone(), self.volume(&target.volume.image))
            }
        };
        let follow = self.args.follow() != Follow::Never;
        let node = directory.node(path, follow)?;
        if node.kind == FileType::Directory && !self.args.recursive() {
            return Err(Failure::Says("is a directory; copy it with -r"));
        }
        if self.args.making() != Making::Copy && !matches!(node.id, Id::Volume(0, _)) {
            return Err(Failure::Says("a link leads only to files of its own volume"));
        }
        self.expect(from, &directory, path, &node);
        let session = self.to.session.clone();
        let there = match session.metadata(&*to) {
            Ok(found) => Some(found),
            Err(error) if error.errno() == Errno::ENOENT => None,
            Err(error) => return Err(error.into()),
        };
        if !node.is_dir() && there.is_none() && is_slashed(to) {
            return Err(Failure::NoPlace("there is no directory of this name"));
        }
        let streams = !self.args.recursive() && follow && matches!(from, Source::Host(_));
        let is_read = node.kind == FileType::Regular || streams;
        let is_written = is_read && !self.args.removes_existing() && self.args.making() == Making::Copy;
        if is_written
            && there.is_none()
            && session.symlink_metadata(&*to).is_ok_and(|found| found.is_symlink())
        {
            return Err(Failure::NoPlace("the copy would go through a dangling symbolic link"));
        }
        let mut existing = there.is_some();
        if there.is_some_and(|found| found.is_dir()) {
            existing = false;
            let is_name = self.args.operands.0.kind() == DestinationKind::Name;
            match own_name(path) {
                Some(_) if is_name && node.is_dir() => existing = true,
                Some(_) if is_name => {
                    let reason = "there is a directory of this name where the file would go";
                    return Err(Failure::NoPlace(reason));
                }
                Some(name) => to.push(name),
                // The name of a root directory, or one that ends in dots, stands for the contents.
                None if node.kind == FileType::Directory => existing = true,
                None => return Err(Failure::Says("the copy needs a name")),
            }
        }
        let name = to.file_name().map_or_else(|| OsString::from("."), ToOwned::to_owned);
        let parent =
            if to.file_name().is_none() { to.as_path() } else { to.parent().unwrap_or(Path::new("/")) };
        let parent = session.at(parent)?;
        let destination = VolumeDestination {
            directory: &parent,
            name: &name,
            path: to,
            existing: existing && (node.is_dir() || self.writes_over()),
            gives_acl: gives_acl(&parent),
        };
        if node.is_dir()
            && let Directory::Volume(view, 0) = &directory
            && parent.canonicalize(".")?.join(&name).starts_with(view.canonicalize(path)?)
        {
            return Err(Failure::Says("a directory is not copied into itself"));
        }
        if !node.is_dir() {
            let wants = Wants { ahead: false, follow, streams, ..self.wants() };
            let mut found = directory.find(path, node, wants, &mut Vec::new());
            return self.file(&mut found, &[], &destination, &Named { from, above: None }, app);
        }
        let walk = Walk::new(directory.inside(path, follow)?, &node, self.wants(), self.device(&node))?;
        let top = self.enter(path.to_owned(), shown, node, &destination, from, app)?;
        self.tree(walk, Levels { from, stack: vec![top], left_out: 0 }, app)
    }

    /// Returns the file system that a copy of this directory stays on.
    fn device(&self, node: &Node) -> Option<u64> {
        match node.id {
            Id::Host(device, _) => self.args.one_file_system.then_some(device),
            Id::Volume(..) => None,
        }
    }

    /// Returns whether copies are written over files that the user named.
    fn writes_over(&self) -> bool {
        let args = self.args;
        !args.removes_existing() && !args.overwrite.backup.is_on() && args.making() == Making::Copy
    }

    fn wants(&self) -> Wants {
        Wants {
            body: true,
            ahead: true,
            links: self.args.kept.links,
            xattrs: self.args.kept.mode || self.args.kept.xattr,
            follow: self.args.follow() == Follow::Always,
            streams: false,
        }
    }

    /// Returns the index of a volume.
    fn volume(&mut self, image: &Image) -> usize {
        self.volumes.iter().position(|known| known.is(image)).unwrap_or_else(|| {
            self.volumes.push(image.clone());
            self.volumes.len() - 1
        })
    }

    /// Counts the files and bytes to copy, if the progress is shown.
    fn expect(&self, from: &Source, directory: &Directory, path: &Path, node: &Node) {
        match from {
            Source::Volume(target) => total::expect(&self.task, target, self.args.recursive()),
            Source::Host(_) if node.kind != FileType::Directory => self.task.expect(node.stored),
            Source::Host(_) if !self.task.is_shown() => {}
            Source::Host(_) => {
                let wants = Wants { body: false, ahead: false, xattrs: false, ..self.wants() };
                let walk = directory.inside(path, self.args.follow() != Follow::Never);
                let walk = walk.and_then(|top| Walk::new(top, node, wants, self.device(node)));
                let Ok(mut walk) = walk else { return };
                while let Some(step) = walk.next() {
                    if let Step::File(found) = step
                        && found.node.kind == FileType::Regular
                    {
                        self.task.expect(found.node.stored);
                    }
                }
            }
        }
    }

    /// Prints that a file is copied, if the user wants to know.
    fn tell(&self, from: &Source, shown: &Path, to: &Path, kept: Option<&Path>, app: &mut App) {
        if !self.args.verbose {
            return;
        }
        let note = backup_note(kept.map(|kept| self.to.image_path(kept)).as_ref());
        let from = match from {
            Source::Host(_) => always_quoted(shown.as_os_str().as_bytes()),
            Source::Volume(target) => target.volume.image_path(shown).quoted(),
        };
        let line = format!("{from} -> {}{note}", self.to.image_path(to).quoted());
        app.print(line);
    }

    /// Makes a directory, or enters the existing one.
    fn enter(
        &self,
        named: PathBuf,
        shown: PathBuf,
        node: Node,
        destination: &VolumeDestination<'_>,
        from: &Source,
        app: &mut App,
    ) -> Result<Level, Failure> {
        let mode = self.args.kept.first_mode(node.mode, true, UMASK) | 0o700;
        let made = match destination.directory.create_dir_with(destination.name, mode) {
            Ok(()) => true,
            _ if destination.name == "." => false,
            Err(error) if error.errno() == Errno::EEXIST => {
                let follow = destination.existing;
                let found = if follow {
                    destination.directory.metadata(destination.name)?
                } else {
                    destination.directory.symlink_metadata(destination.name)?
                };
                if !found.is_dir() {
                    return Err(Failure::NoPlace(
                        "there is a file of this name where the directory would go",
                    ));
                }
                false
            }
            Err(error) => return Err(error.into()),
        };
        let to = destination.directory.at(destination.name)?;
        if made {
            self.tell(from, &shown, destination.path, None, app);
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

    /// Copies everything below a directory. It reports files that cannot be copied, and copies the
    /// rest.
    fn tree(&mut self, mut walk: Walk, mut levels: Levels<'_>, app: &mut App) -> Result<(), Failure> {
        if let Source::Host(_) = levels.from {
            let walked = ahead::walk(walk, |step, bytes| {
                self.stop.check()?;
                self.step(step, bytes, &mut levels, app);
                ControlFlow::Continue(())
            });
            return walked.map_err(|error| Fault::Host(error).into());
        }
        while self.stop.check().is_continue()
            && let Some(step) = walk.next()
        {
            self.step(step, &[], &mut levels, app);
            if levels.left_out > 0 {
                walk.skip();
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step, bytes: &[u8], levels: &mut Levels<'_>, app: &mut App) {
        match step {
            Step::Enter(..) if levels.left_out > 0 => levels.left_out += 1,
            Step::Leave(_) if levels.left_out > 0 => levels.left_out -= 1,
            _ if levels.left_out > 0 => {}
            Step::Enter(name, _) if self.leaves_out(levels, &name, true) => levels.left_out = 1,
            Step::File(found) if self.leaves_out(levels, found.name.as_os_str(), false) => {}
            Step::Leave(xattrs) => {
                let Some(level) = levels.stack.pop() else { return };
                let left = self.leave(&level, xattrs);
                self.outcome(left, levels.from, &level.shown, &level.path, app);
            }
            Step::Fault(name, fault) => {
                let Some(level) = levels.stack.last() else { return };
                let (shown, path) = (level.shown.join(&name), level.path.join(&name));
                self.outcome(Err(fault.into()), levels.from, &shown, &path, app);
            }
            Step::Enter(name, node) => {
                let Some(level) = levels.stack.last() else { return };
                let (shown, path) = (level.shown.join(&name), level.path.join(&name));
                let named = PathBuf::from(&name);
                let destination = level.destination(&name, &path);
                match self.enter(named, shown.clone(), node, &destination, levels.from, app) {
                    Ok(next) => levels.stack.push(next),
                    Err(failure) => {
                        levels.left_out = 1;
                        self.outcome(Err(failure), levels.from, &shown, &path, app);
                    }
                }
            }
            Step::File(mut found) => {
                let Some(level) = levels.stack.last() else { return };
                let path = level.path.join(&found.name);
                let name = found.name.clone();
                let named = Named { from: levels.from, above: Some(&level.shown) };
                let destination = level.destination(name.as_os_str(), &path);
                if let Err(failure) = self.file(&mut found, bytes, &destination, &named, app) {
                    self.outcome(Err(failure), levels.from, &level.shown.join(&name), &path, app);
                }
            }
        }
    }

    /// Returns whether a copy is left out by the rules of the command line.
    fn leaves_out(&self, levels: &Levels<'_>, name: &OsStr, is_directory: bool) -> bool {
        if self.args.rules.is_empty() {
            return false;
        }
        let (Some(top), Some(level)) = (levels.stack.first(), levels.stack.last()) else { return false };
        let path = level.shown.join(name);
        self.args.rules.leaves_out(path.strip_prefix(&top.shown).unwrap_or(&path), is_directory)
    }

    /// Gives a directory the attributes of its original, after everything in it was copied.
    fn leave(&mut self, level: &Level, xattrs: Result<Xattrs, Fault>) -> Result<(), Failure> {
        let kept = self.args.kept;
        let mode = kept.first_mode(level.node.mode, true, UMASK);
        if !kept.mode && level.made && mode & 0o700 != 0o700 {
            let inherited = level.to.metadata(".")?.mode() & 0o2000;
            level.to_parent.set_permissions(&level.to_name, mode | inherited)?;
        }
        if self.sets_attributes() {
            let copy = (&level.to_parent, level.to_name.as_os_str());
            return self.keep(&level.named, &level.node, xattrs, copy, level.has_acl);
        }
        Ok(())
    }

    /// Returns whether a copy may take the place of what is there. Removes that, or keeps it under
    /// another name, which is returned.
    fn make_room(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
        app: &App,
    ) -> Result<Option<PathBuf>, Failure> {
        let args = self.args;
        if args.overwrite.is_plain() && !args.removes_existing() {
            return Ok(None);
        }
        let (directory, name) = (destination.directory, destination.name);
        let found = match destination.existing {
            true => directory.metadata(name),
            false => directory.symlink_metadata(name),
        };
        let Some(found) = found.ok().filter(|found| !found.is_dir()) else { return Ok(None) };
        let shown = self.to.image_path(destination.path).quoted();
        if !args.overwrite.allows(node.mtime, found.mtime(), &shown, app) {
            return Err(Failure::Stays);
        }
        if node.id == Id::Volume(0, found.ino()) {
            return Err(Failure::Says("the copy would be the same file"));
        }
        if args.overwrite.backup.is_on() {
            let kept = args.overwrite.backup.make(directory, Path::new(name))?;
            return Ok(kept.map(|kept| destination.path.with_file_name(kept)));
        }
        if args.removes_existing() {
            directory.remove_file(name)?;
        }
        Ok(None)
    }

    /// Makes a link to a file of the volume in the place of a copy.
    fn link(&self, node: &Node, destination: &VolumeDestination<'_>, original: &Path) -> Result<(), Failure> {
        let root = &self.to.session;
        let made = match self.args.making() {
            Making::HardLink if node.kind != FileType::Symlink => {
                root.canonicalize(original).and_then(|original| root.hard_link(original, destination.path))
            }
            Making::HardLink => root.hard_link(original, destination.path),
            Making::Symlink | Making::Copy => root.symlink(original, destination.path),
        };
        Ok(made?)
    }

    /// Copies any file except a directory. `bytes` holds contents that were read ahead.
    fn file(
        &mut self,
        found: &mut Found,
        bytes: &[u8],
        destination: &VolumeDestination<'_>,
        named: &Named<'_>,
        app: &mut App,
    ) -> Result<(), Failure> {
        let node = &found.node;
        let linked = self.args.kept.links && node.links > 1;
        if !self.links.is_empty()
            && let Ok(there) = destination.directory.symlink_metadata(destination.name)
            && self.links.has_name(&node.id, &there.ino())
        {
            self.task.file();
            return Ok(());
        }
        let kept = self.make_room(node, destination, app)?;
        if self.args.verbose {
            self.tell(named.from, &named.path(&found.name), destination.path, kept.as_deref(), app);
        }
        if self.args.making() != Making::Copy {
            return self.link(node, destination, &named.path(&found.name));
        }
        if linked && let Some(first) = self.links.first(&node.id) {
            let first = first.clone();
            let root = &self.to.session;
            // Both names start at the root: they need not be near each other.
            self.make(node, destination, |_, _| root.hard_link(&first, destination.path))?;
            self.task.file();
            return Ok(());
        }
        if matches!(found.body, Ok(Body::Open(_) | Body::Read(_))) && self.image == Some(node.id) {
            return Err(Failure::Says("the image is not copied into itself"));
        }
        let mode = self.args.kept.first_mode(node.mode, false, 0);
        match std::mem::replace(&mut found.body, Ok(Body::Nothing))? {
            Body::Read(range) => {
                let data = bytes.get(range).unwrap_or_default();
                let to = self.create(node, destination)?;
                if !self.args.attributes_only {
                    self.write(&to, data, 0)?;
                    self.end(&to, data.len() as u64)?;
                }
                self.task.advance(data.len() as u64);
            }
            Body::Open(from) => {
                let to = self.create(node, destination)?;
                if !self.args.attributes_only {
                    let copied = self.contents(&from, &to);
                    if matches!(copied, Err(Failure::Stopped)) {
                        drop(to);
                        self.forget_half(destination)?;
                    }
                    copied?;
                }
            }
            Body::Link(target) => {
                self.make(node, destination, |directory, name| directory.symlink(&target, name))?;
            }
            Body::Nothing => {
                let kind = match node.kind {
                    FileType::CharDevice => NewKind::CharDevice(node.rdev),
                    FileType::BlockDevice => NewKind::BlockDevice(node.rdev),
                    FileType::Fifo => NewKind::Fifo,
                    _ => NewKind::Socket,
                };
                self.make(node, destination, |directory, name| directory.make_node(name, kind, mode))?;
            }
        }
        if self.sets_attributes() {
            let xattrs = std::mem::replace(&mut found.xattrs, Ok(Vec::new()));
            let has_acl = destination.existing || destination.gives_acl;
            self.keep(&found.name, &found.node, xattrs, (destination.directory, destination.name), has_acl)?;
        }
        if linked {
            let copy = destination.directory.symlink_metadata(destination.name)?.ino();
            self.links.add(found.node.id, copy, destination.path.to_owned());
        }
        self.task.file();
        Ok(())
    }

    /// Makes something, and replaces a file that is there.
    fn make<T>(
        &self,
        node: &Node,
        destination: &VolumeDestination<'_>,
        make: impl Fn(&Session, &OsStr) -> extern4::Result<T>,
    ) -> Result<T, Failure> {
        match make(destination.directory, destination.name) {
            Err(error) if error.errno() == Errno::EEXIST => {}
            made => return Ok(made?),
        }
        let found = destination.directory.symlink_metadata(destination.name)?;
        if found.is_dir() {
            return Err(Failure::NoPlace("there is a directory of this name where the file would go"));
        }
        if node.id == Id::Volume(0, found.ino()) {
            return Err(Failure::Says("the copy would be the same file"));
        }
        destination.directory.remove_file(destination.name)?;
        Ok(make(destination.directory, destination.name)?)
    }

    /// Opens the copy of a regular file, which is still empty.
    fn create(&self, node: &Node, destination: &VolumeDestination<'_>) -> Result<extern4::File, Failure> {
        if destination.existing {
            if !destination.directory.metadata(destination.name)?.is_file() {
                return Err(Failure::NoPlace("the copy would go into a pipe, socket or device"));
            }
            if destination
                .directory
                .metadata(destination.name)
                .is_ok_and(|found| node.id == Id::Volume(0, found.ino()))
            {
                return Err(Failure::Says("the copy would be the same file"));
            }
            let mut options = extern4::File::options();
            options.write(true).truncate(!self.args.attributes_only);
            match destination.directory.open_with(destination.name, &options) {
                Err(_) if self.args.force => {}
                opened => return Ok(opened?),
            }
        }
        if self.args.attributes_only
            && destination.directory.symlink_metadata(destination.name).is_ok_and(|found| found.is_file())
        {
            let mut options = extern4::File::options();
            options.write(true).custom_flags(OpenFlags::NOFOLLOW);
            return Ok(destination.directory.open_with(destination.name, &options)?);
        }
        // The session has the umask of new files.
        let mode = self.args.kept.first_mode(node.mode, false, 0);
        let mut options = extern4::File::options();
        options.write(true).create_new(true).mode(mode);
        self.make(node, destination, |directory, name| directory.open_with(name, &options))
    }

    /// Writes data, without zeroes that are to be holes.
    fn write(&self, to: &extern4::File, data: &[u8], at: u64) -> extern4::Result<()> {
        let mut pieces = pieces(data, self.args.sparse.unwrap_or_default());
        pieces.try_for_each(|(start, piece)| to.write_all_at(piece, at + start as u64))
    }

    /// Sets the size of a file that may end in a hole.
    fn end(&self, to: &extern4::File, size: u64) -> extern4::Result<()> {
        if self.args.sparse == Some(Sparse::Always) { to.set_len(size) } else { Ok(()) }
    }

    /// Copies the data, and leaves holes unless they are to be zeroes.
    fn contents(&mut self, from: &Contents, to: &extern4::File) -> Result<(), Failure> {
        let size = from.size()?;
        if self.args.sparse == Some(Sparse::Never) {
            self.piece(from, to, 0, u64::MAX)?;
            return Ok(());
        }
        let mut end = 0;
        while let Some((start, stop)) = from.data(end, size)? {
            if !self.piece(from, to, start, stop)? {
                // Another process has truncated the file.
                return Ok(());
            }
            end = stop;
        }
        if end < size {
            to.set_len(size)?;
        }
        self.end(to, size)?;
        // The file may have grown, and files of /proc do not tell their size.
        self.piece(from, to, size, u64::MAX)?;
        Ok(())
    }

    /// Copies from `start` to `stop`. Returns false if the file ends before `stop`.
    fn piece(&mut self, from: &Contents, to: &extern4::File, start: u64, stop: u64) -> Result<bool, Failure> {
        let mut at = start;
        while at < stop {
            if self.stop.check().is_break() {
                return Err(Failure::Stopped);
            }
            let wanted = usize::try_from(stop - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let len = from.read_at(&mut self.buffer[..wanted], at)?;
            if len == 0 {
                return Ok(false);
            }
            self.write(to, &self.buffer[..len], at)?;
            at += len as u64;
            self.task.advance(len as u64);
        }
        Ok(true)
    }

    /// Removes a half copied file. One that was there before is emptied.
    fn forget_half(&self, destination: &VolumeDestination<'_>) -> Result<(), Failure> {
        match destination.existing {
            true => destination.directory.truncate(destination.name, 0)?,
            false => destination.directory.remove_file(destination.name)?,
        }
        Ok(())
    }

    /// Reports why a file was not copied.
    fn outcome(&self, copied: Result<(), Failure>, from: &Source, shown: &Path, to: &Path, app: &mut App) {
        let source = || source_text(from, shown);
        match copied {
            Ok(()) | Err(Failure::Stays | Failure::Stopped) => {}
            Err(Failure::Reading(Fault::Loop)) => {
                let message = "the link leads back to a directory above it";
                app.fail_at(ExitStatus::Failed, source(), message);
            }
            Err(Failure::Reading(Fault::Volume(error))) => app.error(source(), &error),
            Err(Failure::Reading(Fault::Name)) => {
                app.fail_at(ExitStatus::Failed, source(), "not a file name");
            }
            Err(Failure::Reading(Fault::Moved)) => {
                let message = "another directory has taken the place of its own";
                app.fail_at(ExitStatus::Failed, source(), message);
            }
            Err(Failure::Reading(Fault::Host(error))) => {
                app.fail_at(ExitStatus::Failed, source(), host_reason(&error));
            }
            Err(Failure::To(error)) => app.error(self.to.image_path(to), &error),
            Err(Failure::Says(message)) => {
                app.fail_at(ExitStatus::Failed, source(), message);
            }
            Err(Failure::NoPlace(message)) => {
                let to = self.to.image_path(to);
                app.fail_at(ExitStatus::Failed, &to, message);
            }
        }
    }
}

/// A file that is copied, as messages name it.
struct Named<'a> {
    from: &'a Source,
    /// The directory of the file, if it has only its own name.
    above: Option<&'a Path>,
}

impl Named<'_> {
    fn path(&self, name: &Path) -> PathBuf {
        self.above.map_or_else(|| name.to_owned(), |above| above.join(name))
    }
}

/// Returns a path of a source as messages name it.
fn source_text(from: &Source, shown: &Path) -> String {
    match from {
        Source::Host(_) => escape(shown.as_os_str().as_bytes()).into_owned(),
        Source::Volume(target) => target.volume.image_path(shown).to_string(),
    }
}

impl Level {
    fn destination<'a>(&'a self, name: &'a OsStr, path: &'a Path) -> VolumeDestination<'a> {
        VolumeDestination { directory: &self.to, name, path, existing: false, gives_acl: self.gives_acl }
    }
}

/// Returns whether new files in a directory get an ACL, as far as that is known.
fn gives_acl(directory: &Session) -> bool {
    directory.acl(".", AclKind::Default).map_or(true, |acl| acl.is_some())
}
