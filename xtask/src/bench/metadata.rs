//! Rows of changes of names and attributes, one at a time in one thread: ours in this process, the
//! kernel's through system calls, both by names in the directory they work in.

use std::fs;
use std::path::Path;
use std::time::Instant;

use extern4::{File, Session, XattrFlags};
use rustix::fs::Mode;

use super::image::Rival;
use super::row::{Row, Unit};
use super::threads::in_threads;
use super::write::{Mounted, directory, names, open, remove};
use super::{Bench, RUNS, Result};

/// How often each file is changed in one run: an even number, so that what was renamed has its name
/// again.
const ROUNDS: u32 = 1600;
const ATTRIBUTE: &str = "user.value";
/// These have room in an inode.
const VALUES: [&[u8]; 2] = [b"one value of it", b"and another one"];
const MODES: [u32; 2] = [0o600, 0o644];

/// The directory that files are moved to.
const MOVED: &str = "moved";

/// A change of a file that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// To another name in its directory, and back the next time.
    Rename,
    /// To another directory, and back the next time.
    Move,
    /// To another mode.
    Chmod,
    /// Another value of an attribute that stands in the inode.
    SetXattr,
    /// One more name given and taken.
    LinkUnlink,
}

impl Bench {
    /// A change, compared with the kernel's.
    pub(super) fn change(&self, name: &'static str, change: Change) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, 5.0);
        let ours = self.fresh("ours.img", "512M", 20_000)?;
        let theirs = self.fresh("rival.img", "512M", 20_000)?;
        row.rounds(RUNS, || {
            let our_ns = change.time(&ours)?;
            let mount = Mounted::new(Rival::Kernel, &theirs, &self.folder.join("mnt"))?;
            let their_ns = change.time_below(&mount.path)?;
            mount.end()?;
            Ok((our_ns, their_ns))
        })?;
        row.set_note("one thread, with a journal".to_owned());
        remove([ours, theirs])?;
        Ok(row)
    }

    /// A change by two threads, compared with one, each of a separate file: the files were made
    /// one after the other, so that their inodes stand in one block.
    pub(super) fn change_threads(
        &self,
        name: &'static str,
        change: Change,
        goal: f64,
    ) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, goal);
        let image = self.fresh("ours.img", "512M", 20_000)?;
        row.rounds(RUNS, || {
            let two = change.time_by(2, &image)?;
            let one = change.time_by(1, &image)?;
            Ok((two, one))
        })?;
        row.set_note("files whose inodes stand in one block, ours both".to_owned());
        remove([image])?;
        Ok(row)
    }
}

impl Change {
    /// Nanoseconds of one change, by us.
    fn time(self, image: &Path) -> Result<f64> {
        let volume = open(image)?;
        let session = directory(&volume)?;
        let files = self.files();
        self.make_files(&session, &files)?;
        let ns = timed(&files, |file, other, odd| {
            self.make(&session, file, other, odd)
        })?;
        drop(session);
        volume.close().map_err(|e| e.to_string())?;
        Ok(ns)
    }

    /// The change with this name.
    pub(super) fn named(name: &str) -> Result<Self> {
        match name {
            "rename" => Ok(Self::Rename),
            "move" => Ok(Self::Move),
            "chmod" => Ok(Self::Chmod),
            "setxattr" => Ok(Self::SetXattr),
            "link-unlink" => Ok(Self::LinkUnlink),
            _ => Err(format!("there is no change {name}")),
        }
    }

    /// The files that change, each by its name and its other name.
    pub(super) fn files(self) -> Vec<(String, String)> {
        let other = |name: &String| match self {
            Self::Move => format!("{MOVED}/{name}"),
            _ => format!("{name}-other"),
        };
        names()
            .into_iter()
            .map(|name| (name.clone(), other(&name)))
            .collect()
    }

    pub(super) fn make_files(self, session: &Session, files: &[(String, String)]) -> Result<()> {
        if self == Self::Move {
            session.create_dir_all(MOVED).map_err(|e| e.to_string())?;
        }
        for (name, _) in files {
            let made = session.open_with(name, File::options().write(true).create(true));
            drop(made.map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// Changes a file, which has its other name if it has been changed an odd number of times.
    pub(super) fn make(self, session: &Session, file: &str, other: &str, odd: bool) -> Result<()> {
        self.try_make(session, file, other, odd)
            .map_err(|e| e.to_string())
    }

    fn try_make(
        self,
        session: &Session,
        file: &str,
        other: &str,
        odd: bool,
    ) -> extern4::Result<()> {
        match self {
            Self::Rename | Self::Move if odd => session.rename(other, file),
            Self::Rename | Self::Move => session.rename(file, other),
            Self::Chmod => session.set_permissions(file, MODES[usize::from(odd)]),
            Self::SetXattr => session.setxattr(
                file,
                ATTRIBUTE,
                VALUES[usize::from(odd)],
                XattrFlags::empty(),
            ),
            Self::LinkUnlink => {
                session.hard_link(file, other)?;
                session.remove_file(other)
            }
        }
    }

    /// Nanoseconds of the clock for one change by any of `threads` threads.
    fn time_by(self, threads: u32, image: &Path) -> Result<f64> {
        let volume = open(image)?;
        let session = directory(&volume)?;
        let files: Vec<_> = self.files().into_iter().take(threads as usize).collect();
        self.make_files(&session, &files)?;
        let times = ROUNDS * 64;
        let ns = in_threads(threads, |thread| {
            let (file, other) = &files[thread as usize];
            (0..times).try_for_each(|time| self.make(&session, file, other, time % 2 == 1))
        })?;
        drop(session);
        volume.close().map_err(|e| e.to_string())?;
        Ok(ns / f64::from(times * threads))
    }

    /// Nanoseconds for one change by system calls below a mount point.
    fn time_below(self, root: &Path) -> Result<f64> {
        let work = root.join("work");
        fs::create_dir_all(work.join(MOVED)).map_err(|e| e.to_string())?;
        let files = self.files();
        for (name, _) in &files {
            fs::write(work.join(name), b"").map_err(|e| e.to_string())?;
        }
        let before = std::env::current_dir().map_err(|e| e.to_string())?;
        std::env::set_current_dir(&work).map_err(|e| e.to_string())?;
        let make = |file: &str, other: &str, odd| {
            make_below(self, file, other, odd).map_err(|e| e.to_string())
        };
        let ns = timed(&files, make);
        // It could not be unmounted with us in it.
        std::env::set_current_dir(before).map_err(|e| e.to_string())?;
        ns
    }
}

fn make_below(change: Change, file: &str, other: &str, odd: bool) -> rustix::io::Result<()> {
    match change {
        Change::Rename | Change::Move if odd => rustix::fs::rename(other, file),
        Change::Rename | Change::Move => rustix::fs::rename(file, other),
        Change::Chmod => rustix::fs::chmod(file, Mode::from_raw_mode(MODES[usize::from(odd)])),
        Change::SetXattr => {
            let set = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(file, ATTRIBUTE, VALUES[usize::from(odd)], set)
        }
        Change::LinkUnlink => {
            rustix::fs::link(file, other)?;
            rustix::fs::unlink(other)
        }
    }
}

/// Changes all files in turn, over and over, by `change`, which is told of the file, of its other
/// name, and whether it has been changed an odd number of times. Returns the nanoseconds of one
/// change.
fn timed(
    files: &[(String, String)],
    change: impl Fn(&str, &str, bool) -> Result<()>,
) -> Result<f64> {
    let start = Instant::now();
    for round in 0..ROUNDS {
        for (file, other) in files {
            change(file, other, round % 2 == 1)?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / files.len() as f64)
}
