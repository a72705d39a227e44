//! Copies into a volume: from the host, from another volume, or within one.
//!
//! Every step uses one name in an open directory, so that trees of any depth work and the copy
//! follows no link. A copy replaces an existing file, unless that file is the destination that the
//! user typed: then it writes to it. New files belong to the caller. They get the modes of their
//! originals without the bits of umask 022, unless modes are to be kept.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extern4::{Acl, AclKind, Attributes, Errno, FileType, NewKind, Session, SetTime, XattrFlags};

use crate::app::{App, Opened, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::targets::own_name;
use crate::text::escape;

use super::ahead;
use super::attributes::Lost;
use super::links::Links;
use super::progress::Progress;
use super::source::{Body, Contents, Directory, Fault, Found, Id, Node, Wants, Xattrs};
use super::walk::{Step, Walk};
use super::{Args, is_slashed};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// The bits that a new file's mode loses.
const UMASK: u32 = 0o022;
const ACCESS: &str = AclKind::Access.xattr_name();
const DEFAULT: &str = AclKind::Default.xattr_name();

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
    to: Rc<Opened>,
    lost: Lost,
    progress: Progress,
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
    pub(super) fn new(args: &'a Args, to: &Rc<Opened>) -> Self {
        let image = Directory::of_host().and_then(|here| here.node(&to.image.file, true));
        Self {
            args,
            to: Rc::clone(to),
            lost: Lost::default(),
            progress: Progress::new(args.quiet),
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
        let copied = self.one(from, path, shown, &mut to, app);
        self.outcome(copied, from, path, &to, app);
    }

    /// Reports lost attributes, and removes the progress bar.
    pub(super) fn finish(self, app: &mut App) {
        self.progress.finish();
        self.lost.report(app);
    }

    fn say<T>(&self, say: impl FnOnce() -> T) -> T {
        self.progress.suspend(say)
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
        let follow = !self.args.recursive();
        let node = directory.node(path, follow)?;
        if node.kind == FileType::Directory && follow {
            return Err(Failure::Says("is a directory; copy it with -r"));
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
        let is_read = node.kind == FileType::Regular || follow && matches!(from, Source::Host(_));
        if is_read && there.is_none() && session.symlink_metadata(&*to).is_ok_and(|found| found.is_symlink())
        {
            return Err(Failure::NoPlace("the copy would go through a dangling symbolic link"));
        }
        let mut existing = there.is_some();
        if there.is_some_and(|found| found.is_dir()) {
            existing = false;
            match own_name(path) {
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
            existing,
            gives_acl: gives_acl(&parent),
        };
        if node.is_dir()
            && let Directory::Volume(view, 0) = &directory
            && parent.canonicalize(".")?.join(&name).starts_with(view.canonicalize(path)?)
        {
            return Err(Failure::Says("a directory is not copied into itself"));
        }
        if !node.is_dir() {
            let wants = Wants { ahead: false, ..self.wants() };
            let mut found = directory.find(path, follow, node, wants, &mut Vec::new());
            return self.file(&mut found, &[], &destination);
        }
        let walk = Walk::new(directory.inside(path)?, &node, self.wants())?;
        let top = self.enter(path.to_owned(), shown, node, &destination)?;
        self.tree(walk, Levels { from, stack: vec![top], left_out: 0 }, app)
    }

    fn wants(&self) -> Wants {
        Wants { body: true, ahead: true, links: self.args.archive, xattrs: self.keeps_attributes() }
    }

    /// Returns the index of a volume.
    fn volume(&mut self, image: &Image) -> usize {
        self.volumes.iter().position(|known| known.is(image)).unwrap_or_else(|| {
            self.volumes.push(image.clone());
            self.volumes.len() - 1
        })
    }

    /// Counts the files and bytes to copy, if the progress bar is visible.
    fn expect(&self, from: &Source, directory: &Directory, path: &Path, node: &Node) {
        match from {
            Source::Volume(target) => self.progress.expect(target, self.args.recursive()),
            Source::Host(_) if node.kind != FileType::Directory => self.progress.expect_bytes(node.stored),
            Source::Host(_) if self.progress.is_hidden() => {}
            Source::Host(_) => {
                let wants = Wants { body: false, ahead: false, links: false, xattrs: false };
                let walk = directory.inside(path).and_then(|top| Walk::new(top, node, wants));
                let Ok(mut walk) = walk else { return };
                while let Some(step) = walk.next() {
                    if let Step::File(found) = step
                        && found.node.kind == FileType::Regular
                    {
                        self.progress.expect_bytes(found.node.stored);
                    }
                }
            }
        }
    }

    /// Makes a directory, or enters the existing one.
    fn enter(
        &self,
        named: PathBuf,
        shown: PathBuf,
        node: Node,
        destination: &VolumeDestination<'_>,
    ) -> Result<Level, Failure> {
        let keep = self.keeps_attributes();
        let mode = if keep { 0o700 } else { node.mode & 0o777 & !UMASK | 0o700 };
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
            let walked = ahead::walk(walk, |step, bytes| self.step(step, bytes, &mut levels, app));
            return walked.map_err(|error| Fault::Host(error).into());
        }
        while let Some(step) = walk.next() {
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
                match self.enter(PathBuf::from(&name), shown.clone(), node, &level.destination(&name, &path))
                {
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
                if let Err(failure) =
                    self.file(&mut found, bytes, &level.destination(name.as_os_str(), &path))
                {
                    self.outcome(Err(failure), levels.from, &level.shown.join(&name), &path, app);
                }
            }
        }
    }

    /// Gives a directory the attributes of its original, after everything in it was copied.
    fn leave(&mut self, level: &Level, xattrs: Result<Xattrs, Fault>) -> Result<(), Failure> {
        if self.keeps_attributes() {
            let copy = (&level.to_parent, level.to_name.as_os_str());
            return self.keep(&level.named, &level.node, xattrs, copy, level.has_acl);
        }
        let mode = level.node.mode & 0o777 & !UMASK;
        if level.made && mode & 0o700 != 0o700 {
            let inherited = level.to.metadata(".")?.mode() & 0o2000;
            level.to_parent.set_permissions(&level.to_name, mode | inherited)?;
        }
        Ok(())
    }

    fn keeps_attributes(&self) -> bool {
        self.args.preserve || self.args.archive
    }

    /// Copies any file except a directory. `bytes` holds contents that were read ahead.
    fn file(
        &mut self,
        found: &mut Found,
        bytes: &[u8],
        destination: &VolumeDestination<'_>,
    ) -> Result<(), Failure> {
        let node = &found.node;
        let linked = self.args.archive && node.links > 1;
        if !self.links.is_empty()
            && let Ok(there) = destination.directory.symlink_metadata(destination.name)
            && self.links.has_name(&node.id, &there.ino())
        {
            self.progress.file();
            return Ok(());
        }
        if linked && let Some(first) = self.links.first(&node.id) {
            let first = first.clone();
            let root = &self.to.session;
            // Both names start at the root: they need not be near each other.
            self.make(node, destination, |_, _| root.hard_link(&first, destination.path))?;
            self.progress.file();
            return Ok(());
        }
        if matches!(found.body, Ok(Body::Open(_) | Body::Read(_))) && self.image == Some(node.id) {
            return Err(Failure::Says("the image is not copied into itself"));
        }
        let mode = node.mode & 0o777;
        match std::mem::replace(&mut found.body, Ok(Body::Nothing))? {
            Body::Read(range) => {
                let data = bytes.get(range).unwrap_or_default();
                self.create(node, destination)?.write_all_at(data, 0)?;
                self.progress.bytes(data.len() as u64);
            }
            Body::Open(from) => {
                let to = self.create(node, destination)?;
                self.contents(&from, &to)?;
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
        if self.keeps_attributes() {
            let xattrs = std::mem::replace(&mut found.xattrs, Ok(Vec::new()));
            let has_acl = destination.existing || destination.gives_acl;
            self.keep(&found.name, &found.node, xattrs, (destination.directory, destination.name), has_acl)?;
        }
        if linked {
            let copy = destination.directory.symlink_metadata(destination.name)?.ino();
            self.links.add(found.node.id, copy, destination.path.to_owned());
        }
        self.progress.file();
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
            options.write(true).truncate(true);
            return Ok(destination.directory.open_with(destination.name, &options)?);
        }
        let mode = node.mode & if self.keeps_attributes() { 0o700 } else { 0o777 };
        let mut options = extern4::File::options();
        options.write(true).create_new(true).mode(mode);
        self.make(node, destination, |directory, name| directory.open_with(name, &options))
    }

    /// Copies the data and leaves holes.
    fn contents(&mut self, from: &Contents, to: &extern4::File) -> Result<(), Failure> {
        let size = from.size()?;
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
        // The file may have grown, and files of /proc do not tell their size.
        self.piece(from, to, size, u64::MAX)?;
        Ok(())
    }

    /// Copies from `start` to `stop`. Returns false if the file ends before `stop`.
    fn piece(&mut self, from: &Contents, to: &extern4::File, start: u64, stop: u64) -> Result<bool, Failure> {
        let mut at = start;
        while at < stop {
            let wanted = usize::try_from(stop - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let len = from.read_at(&mut self.buffer[..wanted], at)?;
            if len == 0 {
                return Ok(false);
            }
            to.write_all_at(&self.buffer[..len], at)?;
            at += len as u64;
            self.progress.bytes(len as u64);
        }
        Ok(true)
    }

    /// Gives a copy the attributes of its original, in one step where nothing prevents that.
    fn keep(
        &mut self,
        named: &Path,
        node: &Node,
        xattrs: Result<Xattrs, Fault>,
        (directory, name): (&Session, &OsStr),
        has_acl: bool,
    ) -> Result<(), Failure> {
        if !has_acl && xattrs.as_ref().is_ok_and(Vec::is_empty) {
            let new = Attributes {
                mode: (node.kind != FileType::Symlink).then_some(node.mode),
                uid: Some(node.uid),
                gid: Some(node.gid),
                atime: Some(node.atime),
                mtime: Some(node.mtime),
                ctime: None,
            };
            if directory.set_attributes(name, &new).is_ok() {
                return Ok(());
            }
        }
        self.keep_by_steps(named, node, xattrs, directory, name)
    }

    /// Gives a copy the attributes of its original, one by one. A change of owner takes set-id bits
    /// and capabilities away, so it comes first. An ACL holds the group's bits of the mode, so it
    /// comes after the mode. Every step changes the times, so they come last.
    fn keep_by_steps(
        &mut self,
        named: &Path,
        node: &Node,
        xattrs: Result<Xattrs, Fault>,
        directory: &Session,
        name: &OsStr,
    ) -> Result<(), Failure> {
        let link = node.kind == FileType::Symlink;
        // A destination that the user typed may be a link to the file that was written.
        let name = crate::targets::followed(directory, Path::new(name)).map_or_else(
            |_| Path::new(name).to_owned(),
            |followed| if link { Path::new(name).to_owned() } else { followed.into_owned() },
        );
        let mut mode = node.mode & 0o7777;
        match directory.lchown(&name, Some(node.uid), Some(node.gid)) {
            Ok(()) => {}
            Err(error) if error.errno() == Errno::EPERM && directory.cred().uid() != 0 => {
                // A user may give a file to one of its own groups.
                let _ = directory.lchown(&name, None, Some(node.gid));
                self.lost.owner();
                // A set-id bit for another owner than the original's is a security hole.
                mode &= !0o6000;
            }
            Err(error) => return Err(error.into()),
        }
        let xattrs = xattrs?;
        if self.args.archive {
            for (attribute, value) in xattrs.iter().filter(|(name, _)| name != ACCESS && name != DEFAULT) {
                if let Err(error) = directory.lsetxattr(&name, attribute, value, XattrFlags::empty()) {
                    let error = std::io::Error::from_raw_os_error(i32::from(error.errno().raw()));
                    self.lost.xattr(named, attribute, error, directory.cred().uid() == 0);
                }
            }
        }
        if !link {
            let acl = |attribute: &str| {
                let (_, value) = xattrs.iter().find(|(name, _)| name == attribute)?;
                Acl::from_xattr(value).ok().flatten()
            };
            let access = acl(ACCESS);
            // The directory may have given the copy an ACL.
            if access.is_none() && directory.acl(&name, AclKind::Access)?.is_some() {
                directory.set_acl(&name, AclKind::Access, None)?;
            }
            directory.set_permissions(&name, mode)?;
            if let Some(acl) = access {
                directory.set_acl(&name, AclKind::Access, Some(acl))?;
            }
            if node.kind == FileType::Directory {
                let default = acl(DEFAULT);
                if default.is_some() || directory.acl(&name, AclKind::Default)?.is_some() {
                    directory.set_acl(&name, AclKind::Default, default)?;
                }
            }
        }
        directory.lset_times(&name, SetTime::At(node.atime), SetTime::At(node.mtime))?;
        Ok(())
    }

    /// Reports why a file was not copied.
    fn outcome(&self, copied: Result<(), Failure>, from: &Source, shown: &Path, to: &Path, app: &mut App) {
        let source = || match from {
            Source::Host(_) => escape(std::os::unix::ffi::OsStrExt::as_bytes(shown.as_os_str())).into_owned(),
            Source::Volume(target) => target.volume.image_path(shown).to_string(),
        };
        match copied {
            Ok(()) => {}
            Err(Failure::Reading(Fault::Volume(error))) => self.say(|| app.error(source(), &error)),
            Err(Failure::Reading(Fault::Name)) => {
                self.say(|| app.fail_at(ExitStatus::Failed, source(), "not a file name"));
            }
            Err(Failure::Reading(Fault::Moved)) => {
                let message = "another directory has taken the place of its own";
                self.say(|| app.fail_at(ExitStatus::Failed, source(), message));
            }
            Err(Failure::Reading(Fault::Host(error))) => {
                self.say(|| {
                    app.fail_at(ExitStatus::Failed, source(), host_reason(&error));
                });
            }
            Err(Failure::To(error)) => self.say(|| app.error(self.to.image_path(to), &error)),
            Err(Failure::Says(message)) => {
                self.say(|| app.fail_at(ExitStatus::Failed, source(), message));
            }
            Err(Failure::NoPlace(message)) => {
                let to = self.to.image_path(to);
                self.say(|| app.fail_at(ExitStatus::Failed, &to, message));
            }
        }
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
