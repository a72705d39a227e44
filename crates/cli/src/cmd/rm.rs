//! `extern4 rm`: removes files, and with `-r` directories with all that is in them.
//!
//! `args` calls [`run`]. It follows no link, and removes neither a root nor `.` and `..`. A file
//! that cannot be removed is reported, and the rest goes on.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use extern4::copy::own_name;
use extern4::{DirEntry, Errno, Session, WalkEvent};

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::progress::{Task, Unit};
use crate::targets::{renamed, written_paths};
use crate::text::{counted, type_name};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to remove
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "force")]
    image_paths: Vec<OsString>,
    /// Remove directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Do not mind files that are not there, and ask nothing
    #[arg(short, long, overrides_with_all = ["ask_each", "ask_once", "interactive"])]
    force: bool,
    /// Ask before each removal
    #[arg(short = 'i', overrides_with_all = ["ask_once", "interactive"])]
    ask_each: bool,
    /// Ask once before more than three files are removed, or directories with all in them
    #[arg(short = 'I', overrides_with = "interactive")]
    ask_once: bool,
    /// When to ask: never, once (-I) or always (-i)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    interactive: Option<Ask>,
    /// Print each file that is removed
    #[arg(short, long)]
    verbose: bool,
    /// Stay within the volume, as always
    #[arg(long)]
    one_file_system: bool,
    /// Do not remove the root of a volume, as always
    #[arg(long, value_name = "all", num_args = 0..=1, require_equals = true, default_missing_value = "root")]
    preserve_root: Option<String>,
}

/// When the user is asked.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    #[value(aliases = ["no", "none"])]
    Never,
    Once,
    #[value(alias = "yes")]
    Always,
}

impl Args {
    fn ask(&self) -> Ask {
        match (self.ask_each, self.ask_once) {
            (true, _) => Ask::Always,
            (false, true) => Ask::Once,
            (false, false) => self.interactive.unwrap_or(Ask::Never),
        }
    }
}

/// A run of the command in one volume.
struct Removal<'a> {
    args: &'a Args,
    target: &'a Target,
    app: &'a mut App,
    /// Counts the files and directories that are removed.
    task: &'a Task,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if !asked_once(args, app) {
        return Ok(());
    }
    app.stop_on_signals();
    let task = app.begin_task(Unit::things("file", "files", "removed"), false);
    let image_paths = written_paths(&args.image_paths, app);
    let targets: Vec<_> = image_paths
        .iter()
        .filter_map(|image_path| app.target(image_path))
        .collect();
    if task.is_shown() {
        task.expect(
            targets
                .iter()
                .map(|target| files_at(target, args.recursive))
                .sum(),
        );
    }
    for target in &targets {
        if app.is_stopped() {
            break;
        }
        let path = target.path();
        let Some(name) = own_name(path).filter(|_| path.file_name().is_some()) else {
            app.fail_at(
                ExitStatus::Failed,
                &target.image_path,
                "a root or '.' or '..' is not removed",
            );
            continue;
        };
        Removal {
            args,
            target,
            app,
            task: &task,
        }
        .remove(path, name);
    }
    app.report_stop(format_args!(
        "{} removed",
        counted(task.done(), "file", "files")
    ));
    Ok(())
}

/// Returns how many files the removal of an operand takes away, as far as they can be found.
fn files_at(target: &Target, recursive: bool) -> u64 {
    let session = target.session();
    let path = target.path();
    match session.symlink_metadata(path) {
        Ok(found) if found.is_dir() && recursive => {
            session.walk(path).filter_map(Result::ok).count() as u64
        }
        found => found.is_ok().into(),
    }
}

/// Asks about all files at once, if the user wants that. Returns whether they are to be removed.
fn asked_once(args: &Args, app: &App) -> bool {
    let number = args.image_paths.len();
    if args.ask() != Ask::Once || !(number > 3 || args.recursive) {
        return true;
    }
    let how = if args.recursive { " recursively" } else { "" };
    app.confirm(format_args!(
        "remove {}{how}",
        counted(number as u64, "argument", "arguments")
    ))
}

impl Removal<'_> {
    fn remove(&mut self, path: &Path, name: OsString) {
        let session = self.target.session();
        let found = match session.symlink_metadata(path) {
            Ok(found) => found,
            Err(error)
                if self.args.force && matches!(error.errno(), Errno::ENOENT | Errno::ENOTDIR) =>
            {
                return;
            }
            Err(error) => return self.app.error(&self.target.image_path, &error),
        };
        if found.is_dir() && !self.args.recursive && !self.args.dir {
            let reason = "is a directory; remove it with -r";
            return self
                .app
                .fail_at(ExitStatus::Failed, &self.target.image_path, reason);
        }
        match session.at(path.parent().unwrap_or(Path::new("/"))) {
            Ok(parent) if found.is_dir() && !self.args.recursive => {
                self.directory(&parent, &name, path);
            }
            Ok(parent) => self.tree(&parent, &name),
            Err(error) => self.app.error(&self.target.image_path, &error),
        }
    }

    /// Removes file `name` of `parent`; a directory with everything below it. It reports the files
    /// that it cannot remove, and removes the rest.
    fn tree(&mut self, parent: &Session, name: &OsStr) {
        let top = self.target.path();
        let shown = |path: &Path| renamed(path, Path::new(name), top);
        let mut walk = parent.walk(name);
        // For each directory that the walk is inside of, whether something in it stays. That is
        // reported already, or the user's wish.
        let mut stays: Vec<bool> = Vec::new();
        while !self.app.is_stopped()
            && let Some(event) = walk.next_event()
        {
            let removed = match event {
                Ok(WalkEvent::Enter(entry)) if self.enters(&entry, &shown(entry.path())) => {
                    stays.push(false);
                    continue;
                }
                Ok(WalkEvent::Enter(_)) => {
                    walk.skip_subtree();
                    Ok(false)
                }
                Ok(WalkEvent::File(entry)) => self.file(&entry, &shown(entry.path())),
                Ok(WalkEvent::Leave(entry)) => Ok(stays.pop() == Some(false)
                    && self.directory(&entry.parent(), entry.file_name(), &shown(entry.path()))),
                Err(error) => Err(error),
            };
            if let Some(stays) = stays.last_mut() {
                *stays |= !matches!(removed, Ok(true));
            }
            if let Err(error) = removed {
                let path = shown(error.path().unwrap_or(Path::new(name)));
                self.app.error(self.target.volume.image_path(&path), &error);
            }
        }
    }

    /// Returns whether the user wants the contents of a directory to be removed. A directory that
    /// is empty or cannot be read is no question.
    fn enters(&self, entry: &DirEntry, path: &Path) -> bool {
        if self.args.ask() != Ask::Always {
            return true;
        }
        let names = entry.parent().read_dir(entry.file_name());
        let has_names = names.is_ok_and(|mut names| names.next().is_some_and(|name| name.is_ok()));
        !has_names || self.wants("descend into", "directory", path)
    }

    /// Removes a file that is no directory. Returns whether the user wants that.
    fn file(&mut self, entry: &DirEntry, path: &Path) -> extern4::Result<bool> {
        if self.args.ask() == Ask::Always {
            let found = entry.metadata()?;
            if !self.wants("remove", type_name(found.file_type(), found.len()), path) {
                return Ok(false);
            }
        }
        entry.remove()?;
        self.tell("removed", path);
        Ok(true)
    }

    /// Removes an empty directory. Returns whether it is gone.
    fn directory(&mut self, parent: &Session, name: &OsStr, path: &Path) -> bool {
        if !self.wants("remove", "directory", path) {
            return false;
        }
        match parent.remove_dir(name) {
            Ok(()) => self.tell("removed directory", path),
            Err(error) => {
                self.app.error(self.target.volume.image_path(path), &error);
                return false;
            }
        }
        true
    }

    /// Returns whether the user wants it, as far as the user is to be asked.
    fn wants(&self, action: &str, kind: &str, path: &Path) -> bool {
        let shown = self.target.volume.image_path(path).quoted();
        self.args.ask() != Ask::Always || self.app.confirm(format_args!("{action} {kind} {shown}"))
    }

    fn tell(&mut self, done: &str, path: &Path) {
        self.task.advance(1);
        if self.args.verbose {
            self.app.print(format_args!(
                "{done} {}",
                self.target.volume.image_path(path).quoted()
            ));
        }
    }
}
