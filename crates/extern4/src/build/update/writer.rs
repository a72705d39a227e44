//! Carries out the steps of an update.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4_build::{MemberId, Merged, Progress, Watch};
use extern4_tree::Kind;
use extern4_vfs::{NewKind, Rdev};

use super::attributes::{Named, Wanted};
use super::contents;
use super::error::{Failure, Result};
use super::step::{Action, Extra, Step};
use crate::build::deep_path::{enter, split};
use crate::removal::remove;
use crate::session::Session;

/// The mode of files that do not have their own yet.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Writes to a volume.
pub(super) struct Writer<'a> {
    merged: &'a Merged,
    /// A session in the root.
    root: &'a Session,
    owners: bool,
    watch: Option<&'a Watch>,
    /// Bytes of contents that are written, and how many there are to write.
    bytes: u64,
    total: u64,
    /// The directory of the last step, which mostly is that of the next.
    last: Option<(Vec<u8>, Session)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        merged: &'a Merged,
        root: &'a Session,
        owners: bool,
        watch: Option<&'a Watch>,
        total: u64,
    ) -> Self {
        Self {
            merged,
            root,
            owners,
            watch,
            bytes: 0,
            total,
            last: None,
        }
    }

    /// Bytes of contents that are written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        if self.count(0).is_break() {
            return Err(Failure::Interrupted);
        }
        let (above, name) = split(&step.path);
        let name = if name.is_empty() {
            OsStr::new(".")
        } else {
            OsStr::from_bytes(name)
        };
        let directory = self.directory(above)?;
        let file = Named {
            directory: &directory,
            name,
        };
        match &step.action {
            Action::Remove => Ok(remove(&directory, Path::new(name))?),
            Action::MakeDirectory(member) => {
                make_directory(file)?;
                let entry = self.merged.entry(*member);
                Ok(Wanted {
                    entry: &entry,
                    owners: self.owners,
                    extra: Extra::Keep,
                }
                .set_casefold(file)?)
            }
            Action::Make(member) => self.make(*member, file),
            Action::Link(first) => self.link(first, file),
            Action::Protect(member) => {
                let entry = self.merged.entry(*member);
                Ok(Wanted {
                    entry: &entry,
                    owners: self.owners,
                    extra: Extra::Keep,
                }
                .protect(file)?)
            }
            Action::SetAttributes(member, extra) => {
                let entry = self.merged.entry(*member);
                Ok(Wanted {
                    entry: &entry,
                    owners: self.owners,
                    extra: *extra,
                }
                .set(file)?)
            }
        }
    }

    /// Counts bytes that are written, and reports the progress.
    fn count(&mut self, bytes: u64) -> ControlFlow<()> {
        self.bytes += bytes;
        let progress = Progress::Writing {
            bytes: self.bytes,
            total: self.total,
        };
        self.watch
            .map_or(ControlFlow::Continue(()), |watch| watch(progress))
    }

    /// Returns a session in a directory.
    fn directory(&mut self, path: &[u8]) -> Result<Session> {
        if let Some((last, session)) = &self.last
            && last == path
        {
            return Ok(session.clone());
        }
        let session = enter(self.root, path)?;
        self.last = Some((path.to_vec(), session.clone()));
        Ok(session)
    }

    /// Makes a file that is no directory under a name that nothing else has, and then gives it its
    /// own. So a name has the old file or the new one, and that whole.
    fn make(&mut self, member: MemberId, file: Named<'_>) -> Result<()> {
        let directory = file.directory;
        let path = Path::new(file.name);
        let entry = self.merged.entry(member);
        let beside = match &entry.kind {
            Kind::File(_) => self.copy(member, file)?,
            kind => {
                let make = |beside: &Path| make_other(directory, kind, beside);
                directory.with_temporary_name(path, file.name, make)?.1
            }
        };
        let wanted = Wanted {
            entry: &entry,
            owners: self.owners,
            extra: Extra::Remove,
        };
        let made = wanted.set(Named {
            directory,
            name: beside.as_os_str(),
        });
        self.put(made.map_err(Failure::from), &beside, file)
    }

    /// Copies contents to a new file. Returns its name.
    fn copy(&mut self, member: MemberId, file: Named<'_>) -> Result<PathBuf> {
        let directory = file.directory;
        let path = Path::new(file.name);
        let (new, beside) = directory.create_temporary(path, file.name, PRIVATE)?;
        let merged = self.merged;
        let copied =
            merged
                .open(member)
                .map_err(Failure::from)
                .and_then(|contents| match contents {
                    Some(contents) => {
                        contents::copy(&contents, &new, &mut |bytes| self.count(bytes))
                    }
                    None => Ok(()),
                });
        if copied.is_err() {
            // The failure of the copy is the one that counts.
            let _ = directory.remove_file(&beside);
        }
        copied.map(|()| beside)
    }

    fn link(&self, first: &[u8], file: Named<'_>) -> Result<()> {
        let Named { directory, name } = file;
        let (above, first) = split(first);
        let from = enter(self.root, above)?;
        let (_, beside) = directory.with_temporary_name(Path::new(name), name, |beside| {
            from.hard_link_to(OsStr::from_bytes(first), directory, beside)
        })?;
        self.put(Ok(()), &beside, file)
    }

    /// Gives a new file its name, if it was `made`, and else removes it.
    fn put(&self, made: Result<()>, beside: &Path, file: Named<'_>) -> Result<()> {
        let Named { directory, name } = file;
        let is_directory = || {
            directory
                .symlink_metadata(name)
                .is_ok_and(|found| found.is_dir())
        };
        let put = made.and_then(|()| {
            if is_directory() {
                remove(directory, Path::new(name))?;
            }
            Ok(directory.rename(beside, name)?)
        });
        // A rename of a name to another name of the same file does nothing.
        if put.is_err() || directory.symlink_metadata(beside).is_ok() {
            let _ = directory.remove_file(beside);
        }
        put
    }
}

/// Makes a directory, in the place of a file that may be there.
fn make_directory(file: Named<'_>) -> Result<()> {
    let Named { directory, name } = file;
    if directory.symlink_metadata(name).is_ok() {
        directory.remove_file(name)?;
    }
    Ok(directory.create_dir_with(name, PRIVATE_DIRECTORY)?)
}

fn make_other(directory: &Session, kind: &Kind, path: &Path) -> crate::error::Result<()> {
    let node = |kind| directory.make_node(path, kind, PRIVATE);
    match kind {
        Kind::Symlink(target) => directory.symlink(OsStr::from_bytes(target), path),
        &Kind::CharDevice { major, minor } => node(NewKind::CharDevice(Rdev { major, minor })),
        &Kind::BlockDevice { major, minor } => node(NewKind::BlockDevice(Rdev { major, minor })),
        Kind::Fifo => node(NewKind::Fifo),
        _ => node(NewKind::Socket),
    }
}
