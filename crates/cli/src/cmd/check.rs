//! `extern4 check`: finds everything that is wrong with volumes, each fault with its place.
//!
//! Faults go to standard output, a line each, and a closing line sums up. The exit code tells
//! scripts: 4 if anything is wrong.
//!
//! `args` calls [`run`], and `fsck_helper` calls [`volume`]. The volume is never written.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};

use extern4_check::{Fault, Interrupted, NotedErrors, Options, Pass, Progress, Summary, check};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, host_reason};
use crate::cmd::info::error_text;
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::json::{self, Rfc3339};
use crate::output::{flush, out};
use crate::progress::{Counts, Unit, When};
use crate::text::{counted, escape};

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Volumes to check; nothing is ever changed in them
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Use this many threads (default: as many as there are cores)
    #[arg(short, long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Check a volume that its superblock calls clean, too, as is always done
    #[arg(short)]
    force: bool,
    /// Change nothing, as is always done
    #[arg(short = 'n')]
    dry: bool,
    /// Write how much of the volume is in use, too
    #[arg(short, conflicts_with_all = ["quiet", "json"])]
    verbose: bool,
    /// Write the progress to this open file, in the form of e2fsck; 0 shows a bar,
    /// and a negative number nothing until SIGUSR1
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    completion: Option<i32>,
    /// Write nothing but the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Write one JSON object a line for each fault, and one for the volume
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

/// How faults are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Not at all.
    Quiet,
    /// For people.
    Text,
    /// For people, with how much is in use.
    Verbose,
    /// As JSON.
    Json,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let form = match (args.quiet, args.json) {
        (true, _) => Form::Quiet,
        (false, false) if args.verbose => Form::Verbose,
        (false, false) => Form::Text,
        (false, true) => Form::Json,
    };
    let Some(completion) = completion(args.completion, app) else {
        return Ok(());
    };
    // Before a volume is opened: a signal from now on ends the check with its volume closed.
    app.stop_on_signals();
    for (done, image_path) in args.image_paths.iter().enumerate() {
        if app.is_stopped()
            || !volume(
                &image_path.image,
                form,
                args.threads,
                completion.as_ref(),
                app,
            )?
        {
            let all = counted(args.image_paths.len(), "volume", "volumes");
            app.report_stop(format_args!("{done} of {all} checked"));
            break;
        }
    }
    Ok(())
}

/// Checks a volume with this many threads, or with as many as there are cores for 0. Returns
/// whether it came to its end.
pub(crate) fn volume(
    image: &Image,
    form: Form,
    threads: usize,
    completion: Option<&Completion>,
    app: &mut App,
) -> io::Result<bool> {
    let Some(volume) = app.volume(image) else {
        return Ok(true);
    };
    let stop = app.stop_on_signals();
    let task = app.begin_task(GROUPS, form == Form::Quiet);
    let counts = task.counts();
    let progress = app.progress().clone();
    let watch = |progress: Progress| {
        show(&counts, progress);
        completion
            .iter()
            .for_each(|completion| completion.write(image, progress));
        stop.check()
    };
    let mut out = out();
    let mut written = Ok(());
    let mut each = |fault: Fault| {
        if form == Form::Quiet || written.is_err() {
            return;
        }
        let is_json = form == Form::Json;
        let line = if is_json {
            json_fault(image, &fault)
        } else {
            format!("{image}: {}\n", text(&fault))
        };
        written = progress.suspend(|| out.write_all(line.as_bytes()));
    };
    let options = Options {
        threads,
        watch: Some(&watch),
    };
    let checked = check(volume.volume.ext4(), &options, &mut each);
    written?;
    drop(task);
    match checked {
        Ok(summary) => {
            let line = match form {
                Form::Quiet => String::new(),
                Form::Text => notices(image, &summary) + &people(image, &summary),
                Form::Verbose => {
                    notices(image, &summary) + &people(image, &summary) + &in_use(&summary)
                }
                Form::Json => json_summary(image, &summary),
            };
            out.write_all(line.as_bytes())?;
            flush(&mut out)?;
            if summary.faults > 0 {
                app.found(ExitStatus::Corrupt);
            }
        }
        Err(Interrupted { faults }) => {
            flush(&mut out)?;
            if faults > 0 {
                app.found(ExitStatus::Corrupt);
            }
            return Ok(false);
        }
    }
    Ok(true)
}

const GROUPS: Unit = Unit::things("group", "groups", "checked");
const DIRECTORIES: Unit = Unit::things("batch", "batches", "of directories checked");
const BITMAPS: Unit = Unit::things("bitmap", "bitmaps", "compared");

/// Shows how far a check is.
fn show(counts: &Counts, progress: Progress) {
    let unit = match progress.pass {
        Pass::Inodes => GROUPS,
        Pass::Directories => DIRECTORIES,
        Pass::Bitmaps => BITMAPS,
        _ => return,
    };
    counts.set(unit, progress.done, progress.total);
}

/// An open file that gets the progress, a line each: the pass of e2fsck, the parts of it that are
/// done, all parts, and the volume.
pub(crate) struct Completion {
    file: File,
    /// The last line's pass and part. The threads of a check write in turn.
    last: Mutex<(u32, u64)>,
}

impl Completion {
    /// Takes an open file of this process. The error is the reason why there is none.
    fn open(descriptor: i32) -> Result<Self, String> {
        let opened = match descriptor {
            1 => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            2 => io::stderr().as_fd().try_clone_to_owned().map(File::from),
            other => File::options()
                .append(true)
                .open(format!("/dev/fd/{other}")),
        };
        let file = opened.map_err(|error| host_reason(&error))?;
        Ok(Self {
            file,
            last: Mutex::default(),
        })
    }

    /// Writes a line, if the progress is further than the last one. Its reader may have gone.
    fn write(&self, image: &Image, progress: Progress) {
        let pass = match progress.pass {
            Pass::Inodes => 1,
            Pass::Directories => 2,
            Pass::Bitmaps => 5,
            _ => return,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next_volume = (pass, progress.done) <= (1, 1) && last.0 > 1;
        if (pass, progress.done) > *last || is_next_volume {
            *last = (pass, progress.done);
            let line = format!("{pass} {} {} {image}\n", progress.done, progress.total);
            let _ = (&self.file).write_all(line.as_bytes());
        }
    }
}

/// Opens what `-C` asks for: a bar for 0, and nothing for a negative number, after which SIGUSR1
/// asks how far the check is. Reports a number that belongs to no open file.
pub(crate) fn completion(descriptor: Option<i32>, app: &mut App) -> Option<Option<Completion>> {
    match descriptor {
        Some(0) => app.show_progress(When::Always),
        Some(descriptor @ 1..) => match Completion::open(descriptor) {
            Ok(completion) => return Some(Some(completion)),
            Err(reason) => {
                app.fail(ExitStatus::Usage, format_args!("-C {descriptor}: {reason}"));
                return None;
            }
        },
        _ => {}
    }
    Some(None)
}

/// Returns the text of a fault, escaped for a terminal.
pub(crate) fn text(fault: &Fault) -> String {
    escape(fault.to_string().as_bytes()).into_owned()
}

/// Returns what is to be known about a volume though it is no fault, a line each.
fn notices(image: &Image, summary: &Summary) -> String {
    let mut lines = String::new();
    if let Some(NotedErrors { count, first, last }) = summary.errors {
        let count = match count {
            0 => "errors".to_owned(),
            count => counted(count, "error", "errors"),
        };
        let first = first.map_or_else(String::new, |error| {
            format!("; the first: {}", error_text(&error))
        });
        let last = last.map_or_else(String::new, |error| {
            format!("; the last: {}", error_text(&error))
        });
        lines +=
            &format!("{image}: note: {count} noted since a check found nothing{first}{last}\n");
    }
    if summary.old_copies > 0 {
        let copies = counted(summary.old_copies, "copy", "copies");
        lines += &format!("{image}: note: {copies} of the superblock older than it\n");
    }
    lines
}

fn people(image: &Image, summary: &Summary) -> String {
    let faults = match summary.faults {
        0 => "nothing is wrong".to_owned(),
        faults => counted(faults, "fault", "faults"),
    };
    let journal = match &summary.replayed {
        Some(_) => ", seen through its journal, which has to be replayed",
        None => "",
    };
    let noted = summary.noted.map_or_else(String::new, |what| {
        format!("; the journal notes that {what}")
    });
    format!(
        "{image}: {faults}: {}/{} inodes, {}, {}/{} blocks{journal}{noted}\n",
        summary.inodes_used,
        summary.inodes,
        counted(summary.directories, "directory", "directories"),
        summary.blocks_used,
        summary.blocks
    )
}

/// Returns how much of a volume is in use, in the form of e2fsck -v.
fn in_use(summary: &Summary) -> String {
    let share = |used: u64, all: u64| {
        format!(
            "{:.2}%, out of {all}",
            used as f64 * 100.0 / all.max(1) as f64
        )
    };
    let inodes = summary.inodes_used;
    let blocks = summary.blocks_used;
    format!(
        "\n{inodes:12} inodes used ({})\n{blocks:12} blocks used ({})\n{:12} directories\n",
        share(inodes, summary.inodes),
        share(blocks, summary.blocks),
        summary.directories,
    )
}

/// A fault.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FaultLine {
    /// The image, as the command line names it.
    image: String,
    /// The structure that is wrong.
    structure: String,
    /// The inode that it belongs to.
    ino: Option<u32>,
    /// The block group that it is in.
    group: Option<u32>,
    /// The block that it is in.
    block: Option<u64>,
    /// The byte of the block.
    offset: Option<u32>,
    /// The rule that it breaks.
    wrong: String,
}

pub(crate) fn json_fault(image: &Image, fault: &Fault) -> String {
    let place = &fault.place;
    json::to_line(&FaultLine {
        image: image.to_string(),
        structure: place.structure.to_string(),
        ino: place.ino,
        group: place.group,
        block: place.block,
        offset: place.offset,
        wrong: fault.wrong.to_string(),
    })
}

/// The summary.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct SummaryLine {
    /// The image, as the command line names it.
    image: String,
    /// Faults found.
    faults: u64,
    /// Whether the volume was seen through its journal.
    replayed: bool,
    /// The note of an error in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    noted: Option<&'static str>,
    /// Errors that the superblock notes; 0 with the state "errors" alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    error_count: Option<u32>,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    first_error: Option<String>,
    /// When it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rfc3339")]
    first_error_rfc3339: Option<Rfc3339>,
    /// The last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    last_error: Option<String>,
    /// When it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rfc3339")]
    last_error_rfc3339: Option<Rfc3339>,
    /// Copies of the superblock that are older than it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", extend("minimum" = 1))]
    old_superblock_copies: Option<u32>,
    /// Inodes in use.
    inodes_used: u64,
    /// Inodes.
    inodes: u64,
    /// Directories.
    directories: u64,
    /// Blocks in use.
    blocks_used: u64,
    /// Blocks.
    blocks: u64,
}

fn json_summary(image: &Image, summary: &Summary) -> String {
    let errors = &summary.errors;
    let first = errors.as_ref().and_then(|errors| errors.first);
    let last = errors.as_ref().and_then(|errors| errors.last);
    let found = |error: extern4::info::ErrorRecord| json::at_seconds(error.time).into();
    json::to_line(&SummaryLine {
        image: image.to_string(),
        faults: summary.faults,
        replayed: summary.replayed.is_some(),
        noted: summary.noted,
        error_count: errors.as_ref().map(|errors| errors.count),
        first_error: first.as_ref().map(error_text),
        first_error_rfc3339: first.map(found),
        last_error: last.as_ref().map(error_text),
        last_error_rfc3339: last.map(found),
        old_superblock_copies: Some(summary.old_copies).filter(|copies| *copies > 0),
        inodes_used: summary.inodes_used,
        inodes: summary.inodes,
        directories: summary.directories,
        blocks_used: summary.blocks_used,
        blocks: summary.blocks,
    })
}
