//! The state that every subcommand works with: the open volumes, the caller that looks at them, and
//! the worst failure so far.
//!
//! `main` makes one [`App`] for a run, and a script or shell makes every line share it. A volume
//! that several paths name is opened once. Each failure is reported when it happens, and the exit
//! code is that of the worst.

use std::cell::{Cell, OnceCell};
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use extern4::{Cred, ErrorKind, Session, Volume};
use signal_hook::consts::SIGINT;

use crate::caller::Caller;
use crate::exit_status::ExitStatus;
use crate::holder::{self, Waiting};
use crate::id_names::IdNames;
use crate::image_hint;
use crate::image_path::{Image, ImagePath};
use crate::interruptible;
use crate::output::{Out, held_out, is_pipe};
use crate::progress::{Progress, Task, Unit, When};
pub(crate) use crate::shown::Shown;
use crate::stop::{self, Stop};
use crate::text::{escape, message_of, quoted};

/// The blocks in which `mke2fs` puts the first copy of the superblock, for block sizes of 4, 1, 2
/// and 64 KiB.
const FIRST_BACKUPS: [u64; 4] = [32_768, 8193, 16_384, 65_528];

/// The state of one run of the command.
pub(crate) struct App {
    command: &'static str,
    caller: Caller,
    opening: Opening,
    open: Vec<Rc<Opened>>,
    /// The volumes that the command is going to write to.
    written: Vec<Image>,
    /// The volumes that were in use when the command tried to open them, which it has told.
    in_use: Vec<Image>,
    status: ExitStatus,
    progress: Progress,
    /// Whether a command that compares has found a difference; `None` for other commands.
    differs: Option<bool>,
    script: Option<Script>,
    /// The signals that ask the command to end, where it listens to them.
    stop: Option<Stop>,
    /// The signal that ended the command.
    stopped_by: Option<i32>,
    /// Whether messages go to the log.
    logs: bool,
    /// Whether failures are only counted.
    silent: bool,
    /// The error that ended the output of [`print`](Self::print).
    unwritten: Option<io::Error>,
    lines: Option<Lines>,
    /// Whether the command is a line that another command runs.
    is_nested: bool,
    prints_full_paths: bool,
}

/// How a command runs another command line: as this command, with the volumes that are open.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// Returns the name of a subcommand if there is one.
    pub(crate) name: fn(&OsStr) -> Option<&'static str>,
    /// Runs a command line.
    pub(crate) run: fn(&[OsString], &mut App) -> io::Result<()>,
}

/// How volumes are opened, as far as the command line says.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opening {
    /// The device, or an image of it, that holds the journal of a volume that does not hold its own
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) journal: Option<PathBuf>,

    /// Read the volume by the copy of its superblock in this block, as e2fsck -b does: mostly
    /// 32768, or 8193 with blocks of 1 KiB
    #[arg(long, value_name = "BLOCK", global = true)]
    pub(crate) superblock: Option<u64>,

    /// Wait until a volume that another process has open is free: for at most this many seconds, or
    /// without a number as long as it takes
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        value_parser = holder::seconds, global = true)]
    pub(crate) wait: Option<Option<Duration>>,
}

/// The script that is running, and its current line.
struct Script {
    /// The volume that the paths of the script are in, and the directory that they start in.
    base: ImagePath,
    /// The directory that they started in before the last change of it.
    before: Option<ImagePath>,
    /// The text before messages about the current line.
    line: String,
    /// Whether the volume is not to be changed.
    read_only: bool,
}

/// An open volume and the caller's view of it.
pub(crate) struct Opened {
    /// The image that the volume is in.
    pub(crate) image: Image,
    pub(crate) volume: Volume,
    /// The caller's view.
    pub(crate) session: Session,
    /// Whether it is open for writing.
    writing: Cell<bool>,
    /// How many of the volume's warnings have been printed.
    warned: Cell<usize>,
    names: OnceCell<IdNames>,
}

/// A file in an open volume.
pub(crate) struct Target {
    pub(crate) volume: Rc<Opened>,
    /// The path as given.
    pub(crate) image_path: ImagePath,
}

impl App {
    /// Makes the state of one run of subcommand `command` by `caller`.
    pub(crate) fn new(command: &'static str, caller: Caller, opening: Opening) -> Self {
        let open = Vec::new();
        let written = Vec::new();
        let in_use = Vec::new();
        let status = ExitStatus::Success;
        let differs = None;
        let script = None;
        let stop = None;
        let stopped_by = None;
        let logs = false;
        let silent = false;
        let unwritten = None;
        let lines = None;
        Self {
            command,
            caller,
            opening,
            open,
            written,
            in_use,
            status,
            progress: Progress::new(command, When::default()),
            differs,
            script,
            stop,
            stopped_by,
            logs,
            silent,
            unwritten,
            lines,
            is_nested: false,
            prints_full_paths: false,
        }
    }

    /// Sets when the progress is shown.
    pub(crate) fn show_progress(&mut self, when: When) {
        self.progress = Progress::new(self.command, when);
    }

    /// Returns the progress of the process.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Begins a task, whose progress is shown unless it is to be quiet.
    pub(crate) fn begin_task(&self, unit: Unit, quiet: bool) -> Task {
        self.progress.begin(unit, quiet)
    }

    /// Returns how volumes are opened.
    pub(crate) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Reports an error if a global option says how to open volumes, and returns whether one does.
    /// A subcommand calls this if it opens no volume, or opens it in another way.
    pub(crate) fn refuses_opening(&mut self, why: &str) -> bool {
        let Opening {
            journal,
            superblock,
            wait,
        } = &self.opening;
        let given = journal
            .as_ref()
            .map(|_| "--journal")
            .or(superblock.map(|_| "--superblock"));
        let given = given.or(wait.map(|_| "--wait"));
        if let Some(option) = given {
            self.fail(
                ExitStatus::Usage,
                format_args!("{option} has no effect here: {why}"),
            );
        }
        given.is_some()
    }

    /// Reads `text` as an image path. In a script, `text` is a path in the script's volume.
    pub(crate) fn image_path(&self, text: &OsStr) -> ImagePath {
        match &self.script {
            Some(script) => script.base.join(text),
            None => ImagePath::parse(text),
        }
    }

    /// Reads `text` as an image path that the command is going to write to. The command calls this
    /// for all such paths before it opens a volume. It opens each volume once, in the mode that all
    /// its uses need.
    pub(crate) fn written_path(&mut self, text: &OsStr) -> ImagePath {
        let image_path = self.image_path(text);
        self.write_to(&image_path.image);
        image_path
    }

    /// Announces that the command is going to write to this volume.
    pub(crate) fn write_to(&mut self, image: &Image) {
        self.written.push(image.clone());
    }

    /// Begins a script: command lines from now on are its lines, with paths that start in `base`.
    /// With `read_only`, its volume is only opened for reading. Its files are found from any
    /// directory of the host.
    pub(crate) fn begin_script(&mut self, base: ImagePath, read_only: bool) {
        let base = ImagePath {
            image: base.image.anywhere(),
            path: base.path,
        };
        let journal = self.opening.journal.take();
        self.opening.journal =
            journal.map(|journal| std::path::absolute(&journal).unwrap_or(journal));
        self.script = Some(Script {
            base,
            before: None,
            line: String::new(),
            read_only,
        });
    }

    /// Returns the volume and the directory that the paths of the script start in.
    pub(crate) fn base(&self) -> Option<&ImagePath> {
        self.script.as_ref().map(|script| &script.base)
    }

    /// Returns the directory that the paths of the script started in before the last change.
    pub(crate) fn directory_before(&self) -> Option<ImagePath> {
        self.script.as_ref()?.before.clone()
    }

    /// Sets the directory that the paths of the script start in.
    pub(crate) fn stand_at(&mut self, base: ImagePath) {
        if let Some(script) = &mut self.script {
            script.before = Some(std::mem::replace(&mut script.base, base));
        }
    }

    /// Runs changes of the script's volume as one transaction. `change` returns whether they are to
    /// become durable. If they do not, nothing of them has happened, and a message says so.
    pub(crate) fn in_transaction(&mut self, change: impl FnOnce(&mut Self) -> bool) {
        let Some(image) = self.base().map(|base| base.image.clone()) else {
            return;
        };
        let places = self
            .script
            .as_ref()
            .map(|script| (script.base.clone(), script.before.clone()));
        self.write_to(&image);
        let Some(volume) = self.volume(&image).map(|opened| opened.volume.clone()) else {
            return;
        };
        let transaction = match volume.transaction() {
            Ok(transaction) => transaction,
            Err(error) => return self.error(&image, &error),
        };
        let is_committed = if change(self) {
            transaction
                .commit()
                .inspect_err(|error| self.error(&image, error))
                .is_ok()
        } else {
            drop(transaction);
            false
        };
        drop(volume);
        if !is_committed {
            // The caches hold changes that have not happened.
            self.let_go(&image);
            if let (Some(script), Some((base, before))) = (&mut self.script, places) {
                (script.base, script.before) = (base, before);
            }
            self.note_at(&image, "nothing between begin and commit was done");
        }
    }

    /// Lets signals end the command between two files, with its volumes closed, and not at once.
    pub(crate) fn stop_on_signals(&mut self) -> Stop {
        // Without the thread that listens, signals end the process as ever.
        self.stop
            .get_or_insert_with(|| Stop::listen(&self.progress).unwrap_or_default())
            .clone()
    }

    /// Returns the request of a signal that the command ends, which never comes unless the command
    /// listens.
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone().unwrap_or_default()
    }

    /// Returns whether a signal has asked the command to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(|stop| stop.signal().is_some())
    }

    /// Returns whether a signal has asked the process to end, and not only a command of a shell as
    /// Ctrl-C does.
    pub(crate) fn is_terminated(&self) -> bool {
        self.stop
            .as_ref()
            .and_then(Stop::signal)
            .is_some_and(|signal| signal != SIGINT)
    }

    /// Returns whether a signal ended the command before its end.
    pub(crate) fn is_ended_by_signal(&self) -> bool {
        self.stopped_by.is_some()
    }

    /// Goes on with the next command after a signal.
    pub(crate) fn forget_signal(&mut self) {
        self.stop.iter().for_each(Stop::clear);
        self.stopped_by = None;
    }

    /// Reports how much was done before a signal asked the command to end, if one has. The exit
    /// code is that of the signal then.
    pub(crate) fn report_stop(&mut self, done: impl Display) {
        self.stopped_by = self.stop.as_ref().and_then(Stop::signal);
        if self.stopped_by.is_some() {
            self.note(format_args!("interrupted: {done}"));
        }
    }

    /// Sets how command lines within this one are run.
    pub(crate) fn run_lines(&mut self, lines: Lines) {
        self.lines = Some(lines);
    }

    /// Returns whether a command line may name this subcommand.
    pub(crate) fn knows_command(&self, name: &OsStr) -> bool {
        self.lines.is_some_and(|lines| (lines.name)(name).is_some())
    }

    /// Runs a command line, which reports its own failures. Returns whether it succeeded. The
    /// status of this command stays.
    pub(crate) fn run_line(&mut self, line: &[OsString]) -> io::Result<bool> {
        let Some(lines) = self.lines else {
            return Ok(false);
        };
        let name = line
            .get(1)
            .and_then(|name| (lines.name)(name))
            .unwrap_or(self.command);
        let command = std::mem::replace(&mut self.command, name);
        let status = std::mem::take(&mut self.status);
        let differs = self.differs.take();
        let was_nested = self.is_nested;
        let prints_full_paths = self.prints_full_paths;
        self.is_nested = true;
        let done = (lines.run)(line, self);
        (self.is_nested, self.prints_full_paths) = (was_nested, prints_full_paths);
        let succeeded = self.exit_code() == 0;
        (self.command, self.status, self.differs) = (command, status, differs);
        done.map(|()| succeeded)
    }

    /// Sends messages to the log from now on, because standard error may have no reader.
    pub(crate) fn switch_to_log(&mut self) {
        self.logs = true;
    }

    /// Returns the form in which a path can be given back to the command: behind its image, but in
    /// a script alone.
    pub(crate) fn shown(&self) -> Shown {
        let shown = if self.in_script() {
            Shown::new([])
        } else {
            Shown::with_images()
        };
        shown.completely(self.prints_full_paths)
    }

    /// Returns the form of the paths in the output of a command about `image_paths`.
    pub(crate) fn shown_for<'a>(
        &self,
        image_paths: impl IntoIterator<Item = &'a ImagePath>,
    ) -> Shown {
        Shown::new(image_paths).completely(self.prints_full_paths)
    }

    /// Sets whether paths are printed in full, with their image and escaped.
    pub(crate) fn print_full_paths(&mut self, is_full: bool) {
        self.prints_full_paths = is_full;
    }

    /// Returns whether output into a pipe waits until the volume is closed, because a command may
    /// read it that wants the volume. In a script the volume stays open anyway.
    pub(crate) fn can_hold_output(&self) -> bool {
        !self.in_script() && !self.is_nested
    }

    /// Returns standard output for a command, which is held in a pipe if it `lists` paths for
    /// others. [`end_output`](Self::end_output) ends it.
    pub(crate) fn out(&self, lists: bool) -> Out {
        held_out(lists && self.can_hold_output() && is_pipe(io::stdout()))
    }

    /// Writes the rest of the output. Before output that was held, closes the volumes, of which the
    /// caller uses nothing any more.
    pub(crate) fn end_output(&mut self, out: &mut Out) -> io::Result<()> {
        if out.is_held() {
            self.close_early();
        }
        out.release()
    }

    /// Returns whether this is a command line of a script.
    pub(crate) fn in_script(&self) -> bool {
        self.script.is_some()
    }

    /// Sets the current line of the script, as messages name it.
    pub(crate) fn script_line(&mut self, line: String) {
        // A volume may be free by the next line.
        self.in_use.clear();
        if let Some(script) = &mut self.script {
            script.line = line;
        }
    }

    /// Returns the user that the command acts as.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the caller's credentials in a volume. Reports a caller that the volume does not
    /// know.
    pub(crate) fn cred(&mut self, image: &Image, volume: &Volume) -> Option<Cred> {
        let cred = self.caller.cred(|| IdNames::read(&volume.superuser()));
        cred.map_err(|message| {
            self.fail(
                ExitStatus::Failed,
                format_args!("{} {message}", quoted(image)),
            )
        })
        .ok()
    }

    /// Returns whether the caller may do what only the superuser of a volume may.
    pub(crate) fn is_superuser(&self) -> bool {
        self.caller.is_superuser()
    }

    /// Ends writing: makes all changes durable, whether or not the command failed. Reports a
    /// failure, and returns false then. The process ends next.
    pub(crate) fn close(&mut self) -> bool {
        self.close_volumes(true)
    }

    /// Closes the volumes as [`close`](Self::close) does, and lets other processes open them while
    /// this one goes on.
    pub(crate) fn close_early(&mut self) {
        self.close_volumes(false);
    }

    /// Returns false after a failure, which it reports.
    fn close_volumes(&mut self, is_ending: bool) -> bool {
        let mut are_closed = true;
        for opened in std::mem::take(&mut self.open) {
            self.warn_of(&opened.image, &opened.volume, &opened.warned);
            if !opened.writing.get() && is_ending {
                // The memory of the process need not be freed inode by inode.
                std::mem::forget(opened);
                continue;
            }
            let image = opened.image.clone();
            let volume = opened.volume.clone();
            let warned = opened.warned.clone();
            // The volume can only be closed when nothing of it is in use.
            drop(opened);
            let closed = volume.clone().close();
            self.warn_of(&image, &volume, &warned);
            if let Err(error) = closed {
                self.error(image, &error);
                are_closed = false;
            }
        }
        are_closed
    }

    /// Drops a volume that is open, if it is.
    pub(crate) fn let_go(&mut self, image: &Image) {
        self.open.retain(|opened| !opened.image.is(image));
    }

    /// Returns the status so far, and begins with success again.
    pub(crate) fn take_status(&mut self) -> ExitStatus {
        std::mem::take(&mut self.status)
    }

    /// Returns the status so far.
    pub(crate) fn status(&self) -> ExitStatus {
        self.status
    }

    /// Makes the exit codes equal to diff(1)'s.
    pub(crate) fn compares(&mut self) {
        self.differs.get_or_insert(false);
    }

    /// Notes that a command that compares has found a difference.
    pub(crate) fn differs(&mut self) {
        self.differs = Some(true);
    }

    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        if let Some(signal) = self.stopped_by {
            return stop::code(signal);
        }
        match (self.differs, self.status) {
            (Some(differs), ExitStatus::Success) => differs.into(),
            (Some(_), _) => ExitStatus::TROUBLE,
            (None, status) => status.code(),
        }
    }

    /// Takes the exit code of another run of the command, which did the work and printed the
    /// messages.
    pub(crate) fn end_as(&mut self, code: u8) {
        let ends = [
            ExitStatus::Success,
            ExitStatus::Failed,
            ExitStatus::Usage,
            ExitStatus::Refused,
            ExitStatus::Corrupt,
        ];
        self.status = ends
            .into_iter()
            .find(|status| status.code() == code)
            .unwrap_or(ExitStatus::Failed);
    }

    /// Opens the volume of an image path, once for all paths in it. Reports a failure.
    pub(crate) fn target(&mut self, image_path: &ImagePath) -> Option<Target> {
        let volume = self.volume(&image_path.image)?;
        Some(Target {
            volume,
            image_path: image_path.clone(),
        })
    }

    /// Opens a volume, or returns it if it is open. Reports a failure, and once that a volume is in
    /// use.
    pub(crate) fn volume(&mut self, image: &Image) -> Option<Rc<Opened>> {
        if self.is_in_use(image) {
            self.found(ExitStatus::Failed);
            return None;
        }
        match self.try_volume(image) {
            Ok(volume) => volume,
            Err(error) => {
                self.refused(image, &error);
                None
            }
        }
    }

    /// Opens a volume, or returns it if it is open. The result is `None` if the volume does not
    /// know the caller, and that is reported.
    pub(crate) fn try_volume(&mut self, image: &Image) -> extern4::Result<Option<Rc<Opened>>> {
        let is_read_only = self.script.as_ref().is_some_and(|script| script.read_only);
        let writing = !is_read_only && self.written.iter().any(|written| written.is(image));
        if let Some(opened) = self.open.iter().find(|opened| opened.image.is(image)) {
            // A command or a script may first read a volume and then change it. It stays locked
            // meanwhile, so no other program changes it.
            if writing && !opened.writing.get() {
                self.when_free(image, || opened.volume.set_read_only(false))?;
                opened.writing.set(true);
                self.warn_of(image, &opened.volume, &opened.warned);
            }
            return Ok(Some(Rc::clone(opened)));
        }
        let volume = self.open(image, writing)?;
        let warned = Cell::default();
        self.warn_of(image, &volume, &warned);
        let Some(cred) = self.cred(image, &volume) else {
            volume.close()?;
            return Ok(None);
        };
        let session = volume.session(cred);
        let writing = Cell::new(writing);
        let names = OnceCell::new();
        let opened = Rc::new(Opened {
            image: image.clone(),
            volume,
            session,
            writing,
            warned,
            names,
        });
        self.open.push(Rc::clone(&opened));
        Ok(Some(opened))
    }

    /// Opens a volume apart from the volumes that the paths of the command line share, and waits
    /// for it as the command line says. The caller closes it.
    pub(crate) fn open(&self, image: &Image, writing: bool) -> extern4::Result<Volume> {
        self.when_free(image, || open(image, writing, &self.opening))
    }

    /// Calls `attempt`, again and again while the volume is in use and the command line says so.
    pub(crate) fn when_free<T>(
        &self,
        image: &Image,
        attempt: impl FnMut() -> extern4::Result<T>,
    ) -> extern4::Result<T> {
        let say = |message: &str| self.note_at(image, message);
        let command = self.command;
        let waiting = Waiting {
            limit: self.opening.wait,
            command,
            stop: self.stop(),
            say: &say,
        };
        waiting.until_free(image, holder::is_busy, attempt)
    }

    /// Returns the user and group names of a volume, before it is opened for writing: a command
    /// line with an unknown name changes nothing. Reports a failure.
    pub(crate) fn names_of(&mut self, image: &Image) -> Option<IdNames> {
        if let Some(volume) = self.open.iter().find(|volume| volume.image.is(image)) {
            // An earlier command of a script may have changed them.
            return Some(IdNames::read(&volume.volume.superuser()));
        }
        match self.open(image, false) {
            Ok(volume) => Some(IdNames::read(&volume.superuser())),
            Err(error) => {
                self.refused(image, &error);
                None
            }
        }
    }

    /// Reports why a volume could not be opened.
    pub(crate) fn refused(&mut self, image: &Image, error: &extern4::Error) {
        if holder::is_busy(error) {
            return self.refused_as_busy(image, error);
        }
        if let Some(hint) = image_hint::missing(image) {
            return self.fail_at(ExitStatus::Failed, image, hint);
        }
        let is_no_volume = error.kind() == ErrorKind::NotExt && self.opening.superblock.is_none();
        match is_no_volume
            .then(|| image_hint::other_contents(image))
            .flatten()
        {
            Some(what) => self.fail_at(ExitStatus::Refused, image, &what),
            None => {
                self.error(image, error);
                self.point_to_backup(image, error);
            }
        }
    }

    /// Returns whether the command has found the volume in use and told so.
    pub(crate) fn is_in_use(&self, image: &Image) -> bool {
        self.in_use.iter().any(|known| known.is(image))
    }

    /// Reports once that a volume is in use, and what to do about it.
    fn refused_as_busy(&mut self, image: &Image, error: &extern4::Error) {
        self.in_use.push(image.clone());
        if self.is_stopped() {
            return self.found(ExitStatus::Failed);
        }
        let advice = holder::advice(image, self.command, self.opening.wait);
        self.fail_at(ExitStatus::Failed, image, reason(error) + &advice);
    }

    /// If the superblock cannot be read, names a copy of it that can.
    fn point_to_backup(&self, image: &Image, error: &extern4::Error) {
        if !error.blames_superblock() {
            return;
        }
        let by = |block: &u64| {
            open(
                image,
                false,
                &Opening {
                    superblock: Some(*block),
                    ..self.opening.clone()
                },
            )
        };
        if let Some(block) = FIRST_BACKUPS.iter().find(|block| by(block).is_ok()) {
            self.note_at(
                image,
                format_args!(
                    "there is a copy of a superblock that it can be read by: --superblock {block}"
                ),
            );
        }
    }

    /// Records a status that the output shows already.
    pub(crate) fn found(&mut self, status: ExitStatus) {
        self.status = self.status.max(status);
    }

    /// Reports an error of the library about `name`.
    pub(crate) fn error(&mut self, name: impl Display, error: &extern4::Error) {
        self.fail_at(status_of(error.kind()), name, reason(error));
    }

    /// Reports an error of the library about an attribute of `name`.
    pub(crate) fn error_about(
        &mut self,
        name: impl Display,
        attribute: &str,
        error: &extern4::Error,
    ) {
        self.fail_at(
            status_of(error.kind()),
            name,
            format_args!("{attribute}: {}", reason(error)),
        );
    }

    /// Reports a failure that is no error of the library.
    pub(crate) fn fail(&mut self, status: ExitStatus, message: impl Display) {
        self.status = self.status.max(status);
        if !self.silent {
            self.say(message);
        }
    }

    /// Reports a failure about `name` that is no error of the library.
    pub(crate) fn fail_at(&mut self, status: ExitStatus, name: impl Display, reason: impl Display) {
        self.fail(status, format_args!("{}: {reason}", quoted(name)));
    }

    /// Sets whether failures are only counted, and not told.
    pub(crate) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// Prints a line about what was done to standard output.
    pub(crate) fn print(&mut self, line: impl Display) {
        if self.unwritten.is_none() {
            let written = self
                .progress
                .suspend(|| writeln!(io::stdout().lock(), "{line}"));
            self.unwritten = written.err();
        }
    }

    /// Returns the error that ended the output of [`print`](Self::print).
    pub(crate) fn take_unwritten(&mut self) -> io::Result<()> {
        match self.unwritten.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Asks the user a question on standard error. Returns whether the answer is yes. A signal
    /// stands for no.
    pub(crate) fn confirm(&self, question: impl Display) -> bool {
        let text = message_of(self.command, format_args!("{question}? "));
        self.progress.hidden(|| {
            let _ = write!(io::stderr().lock(), "{text}");
            interruptible::line(self.stop()).is_ok_and(|answer| answer.starts_with(['y', 'Y']))
        })
    }

    /// Prints a message about `name` to standard error that is no failure.
    pub(crate) fn note_at(&self, name: impl Display, message: impl Display) {
        self.say(format_args!("{}: {message}", quoted(name)));
    }

    /// Prints a message to standard error that is no failure.
    pub(crate) fn note(&self, message: impl Display) {
        self.say(message);
    }

    /// Reports the faults of a volume that prevented nothing else, after the first `warned` ones,
    /// and counts them there.
    fn warn_of(&self, image: &Image, volume: &Volume, warned: &Cell<usize>) {
        let warnings = volume.warnings();
        warnings
            .iter()
            .skip(warned.get())
            .for_each(|warning| self.note_at(image, warning));
        warned.set(warnings.len());
    }

    fn say(&self, message: impl Display) {
        if self.logs {
            tracing::error!("{message}");
            return;
        }
        let line = self.script.as_ref().map_or("", |script| &*script.line);
        // Names and texts in the message may come from a volume, a mount or a process of another
        // user.
        let text = message_of(self.command, format_args!("{line}{message}"));
        // A message that cannot be written has nowhere else to go.
        let _ = self
            .progress
            .suspend(|| writeln!(io::stderr().lock(), "{}", escape(text.as_bytes())));
    }
}

/// Returns the line with which GNU's tools end a message about wrong usage.
pub(crate) fn try_help(command: &str) -> String {
    format!("Try 'extern4 {command} --help' for more information.")
}

/// Opens a volume that is free. The caller closes it.
pub(crate) fn open(image: &Image, writing: bool, opening: &Opening) -> extern4::Result<Volume> {
    let mut options = Volume::options();
    options.write(writing);
    if let Some(journal) = &opening.journal {
        options.journal(journal);
    }
    if let Some(block) = opening.superblock {
        options.superblock(block);
    }
    options.part(image.part).open(&image.file)
}

/// Returns the status of a command that ended with an error of the library.
pub(crate) fn status_of(kind: ErrorKind) -> ExitStatus {
    match kind {
        ErrorKind::NotExt | ErrorKind::Unsupported => ExitStatus::Refused,
        ErrorKind::Corrupt => ExitStatus::Corrupt,
        _ => ExitStatus::Failed,
    }
}

/// Returns the reason of an error, without the operation and the path: the message names these
/// already.
pub(crate) fn reason(error: &extern4::Error) -> String {
    let Some(cause) = error.source() else {
        return match error.kind() {
            ErrorKind::Os(errno) => errno.to_string(),
            _ => error.to_string(),
        };
    };
    if let Some(error) = cause.downcast_ref::<extern4::block::Error>() {
        return error.reason();
    }
    let hint = if error.needs_external_journal() {
        " (--journal says where it is, or mount -o journal_path=)"
    } else {
        ""
    };
    // The library's own causes include their own causes at the end.
    escape(cause.to_string().as_bytes()).into_owned() + hint
}

/// Returns the operating system's text for an error, without the number that Rust appends.
pub(crate) fn host_reason(error: &io::Error) -> String {
    extern4::block::os_reason(error)
}

impl Opened {
    /// Calls `what` with a path of any length. If the path is longer than the system's limit,
    /// `what` gets the rest of it and a session in a directory on the way.
    pub(crate) fn reach<T>(
        &self,
        path: &Path,
        what: impl FnOnce(&Session, &Path) -> extern4::Result<T>,
    ) -> extern4::Result<T> {
        let (session, rest) = self.session.approach(path)?;
        what(&session, rest)
    }

    /// Returns the image's own user and group names. They are read as the superuser: a user that
    /// can read the image may know them.
    pub(crate) fn names(&self) -> &IdNames {
        self.names
            .get_or_init(|| IdNames::read(&self.volume.superuser()))
    }

    /// Returns the type of the file system: ext2, ext3 or ext4.
    pub(crate) fn type_name(&self) -> &'static str {
        extern4::info::type_name(self.volume.ext4().superblock().features())
    }

    /// Returns a path of this volume as a message writes it.
    pub(crate) fn image_path(&self, path: &Path) -> ImagePath {
        ImagePath {
            image: self.image.clone(),
            path: path.to_owned(),
        }
    }
}

impl Target {
    /// Returns the path inside the volume.
    pub(crate) fn path(&self) -> &Path {
        &self.image_path.path
    }

    /// Returns the caller's view.
    pub(crate) fn session(&self) -> &Session {
        &self.volume.session
    }
}
