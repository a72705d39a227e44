//! Moves from a volume to the host, from the host to a volume, or from one volume to another.
//!
//! `mv` calls it for files that a rename cannot move. As mv(1) does between file systems, it copies
//! a source with everything about it, makes the copy durable, and then removes the source. A source
//! of which anything was not copied stays.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::Path;

use extern4::Timespec;
use extern4::copy::{
    CopyFailure, CopyInto, CopyNames, CopyObserver, CopyOptions, CopyOut, CopyPath, CopySummary,
    own_name,
};

use super::follower::{Follower, Side};
use super::options::Kept;
use super::{Args, COPYING, ClearedUmask, Operand, OwnerIds, Preserve, Source, losses};
use crate::app::{App, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{ImagePath, same_file};
use crate::operands::DestinationKind;
use crate::overwrite::Overwrite;
use crate::progress::Task;
use crate::stop::Stop;

/// How files are moved.
pub(in crate::cmd) struct Move<'a> {
    pub(in crate::cmd) overwrite: &'a Overwrite,
    pub(in crate::cmd) kind: DestinationKind,
    pub(in crate::cmd) verbose: bool,
}

/// A file that gives its name away, or a directory that keeps it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    File,
    EmptyDirectory,
    Directory,
}

/// A run of `mv` between file systems.
struct Moving<'a> {
    args: Args,
    how: &'a Move<'a>,
    /// The number of sources.
    sources: usize,
}

/// Moves sources to a file or into a directory. At least one side is in a volume.
pub(in crate::cmd) fn run(
    how: &Move<'_>,
    sources: Vec<Operand>,
    destination: &Operand,
    app: &mut App,
) {
    let args = Args {
        kept: Kept(Preserve::ALL),
        archive: true,
        remove_destination: true,
        overwrite: how.overwrite.clone(),
        ..Args::default()
    };
    let moving = Moving {
        args,
        how,
        sources: sources.len(),
    };
    // Each volume is opened for writing, as the sources in it are going to be removed.
    for source in &sources {
        if let Operand::Volume(image_path) = source {
            app.write_to(&image_path.image);
        }
    }
    match destination {
        Operand::Volume(destination) => moving.to_volume(&sources, destination, app),
        Operand::Host(destination) => moving.to_host(&sources, destination, app),
    }
}

impl Moving<'_> {
    /// Returns the options of the copy, which goes to the new name itself.
    fn options(&self, umask: u32) -> CopyOptions {
        CopyOptions {
            no_target_directory: true,
            umask,
            ..self.args.options(OwnerIds::default())
        }
    }

    fn needs_directory(&self) -> bool {
        self.sources > 1 || self.how.kind == DestinationKind::Directory
    }

    fn to_volume(&self, sources: &[Operand], destination: &ImagePath, app: &mut App) {
        app.write_to(&destination.image);
        let mut opened = Vec::new();
        for source in sources {
            match source {
                Operand::Host(path) => opened.push(Source::Host(path.clone())),
                Operand::Volume(image_path) => {
                    opened.extend(app.target(image_path).map(Source::Volume))
                }
            }
        }
        let Some(target) = app.target(destination) else {
            return;
        };
        let is_directory = self.how.kind != DestinationKind::Name
            && target
                .session()
                .metadata(target.path())
                .is_ok_and(|found| found.is_dir());
        if self.needs_directory() && !is_directory {
            return app.fail_at(ExitStatus::Failed, destination, "not a directory");
        }
        let task = app.begin_task(COPYING, false);
        let stop = app.stop_on_signals();
        let options = self.options(0);
        let to = &*target.volume;
        let mut copy = CopyInto::new(&to.volume, &to.session, &options);
        let mut moved = Vec::new();
        for source in opened {
            if app.is_stopped() {
                break;
            }
            let Some(name) = source_name(&source, app) else {
                continue;
            };
            let new = if is_directory {
                target.path().join(name)
            } else {
                target.path().to_owned()
            };
            let there = in_volume(&target, &new);
            let shown = to.image_path(&new);
            if !gives_way(is_directory_of(&source), there, &shown, app) {
                continue;
            }
            let (path, from) = match &source {
                Source::Host(path) => (CopyPath::Host(path), Side::Host),
                Source::Volume(source) => {
                    let path =
                        CopyPath::Volume(&source.volume.volume, source.session(), source.path());
                    (path, Side::Volume(&source.volume))
                }
            };
            let mut watch = self.watch(app, &task, &stop, from, Side::Volume(to));
            copy.copy(path, &new, &mut watch);
            if watch.is_whole {
                moved.push((source, shown.quoted()));
            }
        }
        let summary = copy.finish();
        let durable = || to.volume.sync().map_err(|error| error.to_string());
        self.end(&summary, moved, durable, app);
    }

    fn to_host(&self, sources: &[Operand], destination: &Path, app: &mut App) {
        let is_directory = self.how.kind != DestinationKind::Name && destination.is_dir();
        if self.needs_directory() && !is_directory {
            return app.fail_at(ExitStatus::Failed, destination.display(), "not a directory");
        }
        let umask = ClearedUmask::new();
        let options = self.options(umask.bits());
        let task = app.begin_task(COPYING, false);
        let stop = app.stop_on_signals();
        let mut copy = CopyOut::new(&options);
        let mut moved = Vec::new();
        for source in sources {
            let Operand::Volume(image_path) = source else {
                app.fail_at(
                    ExitStatus::Failed,
                    source.host_name(),
                    "neither it nor its new name is in a volume",
                );
                continue;
            };
            if app.is_stopped() {
                break;
            }
            let Some(target) = app.target(image_path) else {
                continue;
            };
            let source = Source::Volume(target);
            let Some(name) = source_name(&source, app) else {
                continue;
            };
            let new = if is_directory {
                destination.join(name)
            } else {
                destination.to_owned()
            };
            if same_file(&image_path.image.file, &new) {
                app.fail_at(
                    ExitStatus::Failed,
                    new.display(),
                    "this is the image itself",
                );
                continue;
            }
            if !gives_way(is_directory_of(&source), on_host(&new), &new.display(), app) {
                continue;
            }
            let Source::Volume(target) = &source else {
                continue;
            };
            let mut watch = self.watch(app, &task, &stop, Side::Volume(&target.volume), Side::Host);
            copy.copy(
                &target.volume.volume,
                target.session(),
                target.path(),
                &new,
                &mut watch,
            );
            if watch.is_whole {
                moved.push((
                    source,
                    crate::text::always_quoted(new.as_os_str().as_encoded_bytes()),
                ));
            }
        }
        let directory = if is_directory {
            destination
        } else {
            parent(destination)
        };
        let durable = || {
            let synced = File::open(directory)
                .and_then(|file| rustix::fs::syncfs(file).map_err(io::Error::from));
            synced.map_err(|error| host_reason(&error))
        };
        self.end(&copy.finish(), moved, durable, app);
    }

    fn watch<'a>(
        &'a self,
        app: &'a mut App,
        task: &'a Task,
        stop: &'a Stop,
        from: Side<'a>,
        to: Side<'a>,
    ) -> Watch<'a> {
        let args = &self.args;
        let follower = Follower {
            args,
            app,
            task,
            stop,
            from,
            to,
            ends_when_full: false,
            is_full: false,
        };
        Watch {
            follower,
            is_whole: true,
        }
    }

    /// Ends a copy: makes it durable and removes the sources of which everything was copied.
    fn end(
        &self,
        summary: &CopySummary,
        moved: Vec<(Source, String)>,
        durable: impl FnOnce() -> Result<(), String>,
        app: &mut App,
    ) {
        losses::report(&summary.losses, app);
        app.report_stop("the rest was not moved");
        if summary.is_stopped || moved.is_empty() {
            return;
        }
        if summary.losses.xattrs > 0 || !summary.losses.devices.is_empty() {
            return app.fail(
                ExitStatus::Failed,
                "the sources stay, since their copies lack something",
            );
        }
        if let Err(reason) = durable() {
            return app.fail(
                ExitStatus::Failed,
                format_args!("the sources stay: {reason}"),
            );
        }
        for (source, to) in moved {
            let from = match &source {
                Source::Host(path) => {
                    crate::text::always_quoted(path.as_os_str().as_encoded_bytes())
                }
                Source::Volume(target) => target.image_path.quoted(),
            };
            if remove(&source, app) && self.how.verbose {
                app.print(format_args!("renamed {from} -> {to}"));
            }
        }
    }
}

/// Returns the name that a source has in its directory. A root, `.` and `..` have none, which is
/// reported.
fn source_name(source: &Source, app: &mut App) -> Option<OsString> {
    let (path, shown) = match source {
        Source::Host(path) => (&**path, path.display().to_string()),
        Source::Volume(target) => (target.path(), target.image_path.to_string()),
    };
    let name = own_name(path).filter(|_| path.file_name().is_some());
    if name.is_none() {
        app.fail_at(
            ExitStatus::Failed,
            shown,
            "a root or '.' or '..' is not moved",
        );
    }
    name
}

fn is_directory_of(source: &Source) -> bool {
    match source {
        Source::Host(path) => std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()),
        Source::Volume(target) => target
            .session()
            .symlink_metadata(target.path())
            .is_ok_and(|found| found.is_dir()),
    }
}

fn in_volume(target: &Target, path: &Path) -> Found {
    match target.session().symlink_metadata(path) {
        Err(_) => Found::Nothing,
        Ok(found) if !found.is_dir() => Found::File,
        Ok(_) => match target
            .session()
            .read_dir(path)
            .map(|mut entries| entries.next().is_none())
        {
            Ok(true) => Found::EmptyDirectory,
            _ => Found::Directory,
        },
    }
}

fn on_host(path: &Path) -> Found {
    match std::fs::symlink_metadata(path) {
        Err(_) => Found::Nothing,
        Ok(found) if !found.is_dir() => Found::File,
        Ok(_) => match std::fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Found::EmptyDirectory,
            _ => Found::Directory,
        },
    }
}

/// Returns whether a source may take the place of what has the new name, as a rename may. Reports
/// why it may not.
fn gives_way(is_directory: bool, there: Found, new: &dyn std::fmt::Display, app: &mut App) -> bool {
    let reason = match (is_directory, there) {
        (_, Found::Nothing) | (false, Found::File) | (true, Found::EmptyDirectory) => return true,
        (true, Found::Directory) => "Directory not empty",
        (true, Found::File) => "Not a directory",
        (false, Found::EmptyDirectory | Found::Directory) => "Is a directory",
    };
    app.fail_at(ExitStatus::Failed, new, reason);
    false
}

/// Removes a source. Reports a failure, and returns whether it is gone.
fn remove(source: &Source, app: &mut App) -> bool {
    match source {
        Source::Host(path) => {
            let is_directory = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
            let removed = if is_directory {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            let report =
                |error| app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
            removed.map_err(report).is_ok()
        }
        Source::Volume(target) => {
            let session = target.session();
            let path = target.path();
            let removed = if is_directory_of(source) {
                session.remove_dir_all(path)
            } else {
                session.remove_file(path)
            };
            removed
                .map_err(|error| app.error(&target.image_path, &error))
                .is_ok()
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Follows the copy of one source, and notes whether all of it was copied.
struct Watch<'a> {
    follower: Follower<'a>,
    is_whole: bool,
}

impl CopyObserver for Watch<'_> {
    fn wants_total(&self) -> bool {
        self.follower.wants_total()
    }

    fn expect(&mut self, bytes: u64) {
        self.follower.expect(bytes);
    }

    fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
        let next = self.follower.advance(files, bytes);
        self.is_whole &= next.is_continue();
        next
    }

    fn wait(&mut self, stream: BorrowedFd<'_>) -> ControlFlow<()> {
        let next = self.follower.wait(stream);
        self.is_whole &= next.is_continue();
        next
    }

    fn may_replace(&mut self, to: &Path, modified: Timespec, there: Timespec) -> bool {
        let may = self.follower.may_replace(to, modified, there);
        self.is_whole &= may;
        may
    }

    fn set_aside(&mut self, name: &OsStr, names: Vec<OsString>) -> Option<OsString> {
        self.follower.set_aside(name, names)
    }

    fn copying(&mut self, names: &CopyNames<'_>) {
        self.follower.copying(names);
    }

    fn failed(&mut self, failure: &CopyFailure) {
        self.is_whole = false;
        self.follower.failed(failure);
    }
}
