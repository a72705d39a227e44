//! Acting as the checker that `fsck(8)` calls for a type of file system: `fsck.extern4` is a link
//! to the command.
//!
//! `main` calls it when the program was started by such a name. Exit codes are fsck(8)'s. It
//! replays the journal and clears notes of errors unless `-n` forbids it, and repairs nothing else.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use clap::Parser;
use extern4::info::State;
use extern4::{Volume, tune};
use extern4_check::NotedErrors;

use crate::app::{App, Opening};
use crate::caller::Caller;
use crate::cmd::{check, recover};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::progress::When;
use crate::{unwritten, usage};

/// The name of such a link.
const NAME: &str = "fsck.extern4";

/// The exit codes of fsck(8) that occur here, and their meanings.
pub(crate) const EXIT_CODES: [(u8, &str); 5] = [
    (
        0,
        "Nothing is wrong, or was once the journal had been replayed. A note of errors is cleared.",
    ),
    (
        UNCORRECTED,
        "Something is wrong, and stays so: extern4 repairs nothing but the journal.",
    ),
    (
        OPERATIONAL,
        "The volume could not be checked: it is in use, cannot be read, or is not ext2, ext3 or ext4.",
    ),
    (WRONG_USAGE, "The command line is wrong."),
    (
        CANCELED,
        "A signal ended the check. A replay of the journal that had begun ended whole.",
    ),
];

const UNCORRECTED: u8 = 4;
const OPERATIONAL: u8 = 8;
const WRONG_USAGE: u8 = 16;
const CANCELED: u8 = 32;

/// Check an ext2, ext3 or ext4 volume for fsck(8)
///
/// The journal of a volume that was not unmounted is replayed first. A volume whose superblock says
/// that it is clean is then taken as such. One that notes errors is checked; if nothing is wrong,
/// the note is cleared. Faults are shown, a line each, and stay: to repair them, run e2fsck(8) on
/// DEVICE.
#[derive(Parser)]
#[command(name = NAME, version)]
#[command(override_usage = "fsck.extern4 [-n|-p|-a|-y] [-f] [-v] [-C FD] DEVICE")]
#[command(group = clap::ArgGroup::new("answer").args(["dry", "preen", "auto", "yes"]))]
pub(crate) struct Args {
    /// Change nothing: the volume is seen through its journal, which is not replayed
    #[arg(short = 'n')]
    dry: bool,
    /// Replay the journal and ask nothing, the default
    #[arg(short = 'p')]
    preen: bool,
    /// As -p
    #[arg(short = 'a')]
    auto: bool,
    /// As -p, since there are no questions to answer with yes
    #[arg(short = 'y')]
    yes: bool,
    /// Check the volume even if its superblock says that it is clean
    #[arg(short = 'f')]
    force: bool,
    /// Say why a volume is not checked
    #[arg(short = 'v')]
    verbose: bool,
    /// Write the progress to this open file, in the form of e2fsck; 0 shows a bar, and a negative
    /// number nothing until SIGUSR1
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    progress: Option<i32>,
    /// The volume: a block device or an image
    #[arg(value_name = "DEVICE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
}

/// Checks the volume that the command line names, and returns fsck's exit code. Returns `None` if
/// the command was not called as the checker.
pub(crate) fn run(line: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let line: Vec<_> = line.into_iter().collect();
    let called = line.first().and_then(|name| Path::new(name).file_name());
    if called.is_none_or(|called| called != NAME) {
        return None;
    }
    let args = match Args::try_parse_from(line) {
        Ok(args) => args,
        Err(says) => return Some(explain(&says)),
    };
    let mut app = App::new(NAME, Caller::root(), Opening::default());
    app.show_progress(When::Never);
    if let Err(error) = judge(&args, &args.image_path.image, &mut app) {
        unwritten(&error, &mut app);
    }
    app.close();
    if app.is_ended_by_signal() {
        return Some(CANCELED);
    }
    Some(match app.status() {
        ExitStatus::Success => 0,
        ExitStatus::Failed | ExitStatus::Refused => OPERATIONAL,
        ExitStatus::Usage => WRONG_USAGE,
        ExitStatus::Corrupt => UNCORRECTED,
    })
}

/// Prints an error in the command line, or the help.
fn explain(says: &clap::Error) -> u8 {
    let is_error = usage::print_error(
        says,
        &format!("extern4: {NAME}"),
        &format!("Try '{NAME} --help' for more information."),
    );
    if is_error {
        return WRONG_USAGE;
    }
    match says.print() {
        Ok(()) => 0,
        Err(_) => OPERATIONAL,
    }
}

fn judge(args: &Args, image: &Image, app: &mut App) -> io::Result<()> {
    let Some(completion) = check::completion(args.progress, app) else {
        return Ok(());
    };
    app.stop_on_signals();
    if !args.dry {
        match recover::recover(image, app) {
            Ok(None) => {}
            Ok(replayed) => io::stdout().write_all(recover::people(image, replayed).as_bytes())?,
            Err(error) => {
                app.refused(image, &error);
                return Ok(());
            }
        }
    }
    let Some(opened) = app.volume(image) else {
        return Ok(());
    };
    if !args.force && is_clean(&opened.volume) {
        let why = if args.verbose {
            ", as its superblock says; -f checks it"
        } else {
            ""
        };
        return writeln!(io::stdout(), "{image}: clean{why}");
    }
    let notes_errors = notes_errors(&opened.volume);
    drop(opened);
    if app.is_stopped() || !check::volume(image, check::Form::Text, 0, completion.as_ref(), app)? {
        app.report_stop(format_args!("{image} is not checked"));
        return Ok(());
    }
    if app.status() == ExitStatus::Corrupt {
        app.note_at(image, "extern4 repairs nothing: run e2fsck on it");
    } else if notes_errors && !args.dry {
        return clear_errors(image, app);
    }
    Ok(())
}

/// Returns whether errors are noted in the superblock or the journal.
fn notes_errors(volume: &Volume) -> bool {
    let ext4 = volume.ext4();
    let in_journal = ext4
        .journal_info(None)
        .ok()
        .flatten()
        .is_some_and(|info| info.superblock.errno != 0);
    in_journal || NotedErrors::of(ext4.superblock()).is_some()
}

/// Clears the errors that a volume notes, now that a check has found nothing.
fn clear_errors(image: &Image, app: &mut App) -> io::Result<()> {
    app.let_go(image);
    let volume = match app.open(image, true) {
        Ok(volume) => volume,
        Err(error) => {
            app.refused(image, &error);
            return Ok(());
        }
    };
    let noted = tune::note_sound(&volume).inspect_err(|error| app.error(image, error));
    let closed = volume.close().inspect_err(|error| app.error(image, error));
    if noted.is_err() || closed.is_err() {
        return Ok(());
    }
    writeln!(io::stdout(), "{image}: the note of errors is cleared")
}

/// Returns whether the superblock says that the volume is clean.
fn is_clean(volume: &Volume) -> bool {
    let unmounted = State {
        is_clean: true,
        has_errors: false,
        deletes_orphans: false,
        needs_replay: false,
    };
    State::of(volume) == unmounted
}
