//! `extern4 cp`: copies files and directories out of volumes, into them and between them.
//!
//! The library copies ([`extern4::copy`]). The command finds out which operands are in volumes, and
//! follows the copy with its questions, lines and messages.
//!
//! `args` calls [`run`], and `export` copies to a directory of the host with [`export`].

mod follower;
mod losses;
pub(super) mod moving;
mod options;
mod umask;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::copy::{CopyInto, CopyMethod, CopyOptions, CopyOut, CopyPath, CopySummary, Preserve};

use super::build::Rules;
use crate::app::{App, Target};
use crate::checked::Checked;
use crate::exit_status::ExitStatus;
use crate::id_names::IdNames;
use crate::image_hint;
use crate::image_path::{ImagePath, same_file};
use crate::operands::{DestinationKind, Operands, host_path};
use crate::overwrite::Overwrite;
use crate::owner::{Owner, OwnerIds};
use crate::progress::{Task, Unit};
use crate::text::{counted, quoted};

use follower::{Follower, Side};
use options::{AttributeList, Kept, Sparse};
use umask::ClearedUmask;

/// The unit that copies count.
const COPYING: Unit = Unit::bytes("copied");

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    #[command(flatten)]
    kept: Kept,
    #[command(flatten)]
    operands: Checked<Operands>,
    /// Copy directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Copy directories, and keep everything: owners, modes, times, extended attributes, ACLs and
    /// hard links
    #[arg(short, long)]
    archive: bool,
    /// Keep owners, modes, times and ACLs
    #[arg(short = 'p')]
    preserve_usual: bool,
    /// Keep these: mode (with ACLs), ownership, timestamps, links, xattr or all (default: as -p)
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mode,ownership,timestamps",
        value_parser = AttributeList::argument
    )]
    preserve: Vec<AttributeList>,
    /// Do not keep these, against an option before; without mode, files get modes as new ones do
    #[arg(long, value_name = "LIST", require_equals = true, value_parser = AttributeList::argument)]
    no_preserve: Vec<AttributeList>,
    /// Copy symbolic links as such, and keep hard links
    #[arg(short = 'd')]
    links: bool,
    /// Follow all symbolic links in sources
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "command_line"])]
    dereference: bool,
    /// Copy symbolic links as such (the default with -r)
    #[arg(short = 'P', long, overrides_with = "command_line")]
    no_dereference: bool,
    /// Follow symbolic links on the command line
    #[arg(short = 'H')]
    command_line: bool,
    /// Make hard links in the same volume instead of copies
    #[arg(short, long, conflicts_with = "symbolic_link")]
    link: bool,
    /// Make symbolic links in the same volume instead of copies
    #[arg(short, long)]
    symbolic_link: bool,
    /// Replace a destination that cannot be opened
    #[arg(short, long)]
    force: bool,
    /// Remove each destination that is there first
    #[arg(long)]
    remove_destination: bool,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Stay on the file system of each source of the host; a volume is one
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// With -r and -a, refuse devices, pipes and sockets instead of making them
    #[arg(long)]
    no_specials: bool,
    #[command(flatten)]
    rules: Rules,
    /// Use the whole path of each source below the destination
    #[arg(long, conflicts_with = "no_target_directory")]
    parents: bool,
    /// Copy attributes, and no contents
    #[arg(long)]
    attributes_only: bool,
    /// Keep holes (auto), make holes of zeroes (always), or write zeroes for holes (never)
    #[arg(long, value_name = "WHEN")]
    sparse: Option<Sparse>,
    /// Share blocks where the host can; no volume can, so always is refused
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "always", value_parser = reflink)]
    reflink: Option<String>,
    /// Give copies this owner: names come from the volume that is written, numbers are needed
    /// on the host
    #[arg(long, value_name = "OWNER[:GROUP]", value_parser = Owner::argument)]
    chown: Option<Owner>,
    /// Ignore slashes at the end of sources
    #[arg(long)]
    strip_trailing_slashes: bool,
    /// Print each file that is copied
    #[arg(short, long)]
    verbose: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Reads the value of `--reflink`.
fn reflink(text: &str) -> Result<String, String> {
    match text {
        "auto" | "never" => Ok(text.to_owned()),
        "always" => Err("ext4 shares no blocks among files".to_owned()),
        _ => Err("write it as auto or never".to_owned()),
    }
}

impl Args {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Returns whether the destination has to be a directory.
    fn needs_directory(&self, sources: usize) -> bool {
        sources > 1 || self.parents || self.operands.0.kind() == DestinationKind::Directory
    }
}

/// An operand: a file of the host, or one in a volume.
pub(super) enum Operand {
    Host(PathBuf),
    Volume(ImagePath),
}

impl Operand {
    /// Returns the name of a file of the host for messages.
    fn host_name(&self) -> String {
        match self {
            Self::Host(path) => path.display().to_string(),
            Self::Volume(image_path) => image_path.to_string(),
        }
    }
}

/// Returns the operands that the sources and the destination name. At least one side is in a
/// volume. So where a name may be an image or a file to be copied, the other side decides.
pub(super) fn sides(
    sources: &[OsString],
    destination: &OsString,
    app: &App,
) -> (Vec<Operand>, Operand) {
    if app.in_script() {
        let side = |text: &OsString| match host_path(text) {
            Some(path) => Operand::Host(path.to_owned()),
            None => Operand::Volume(app.image_path(text)),
        };
        return (sources.iter().map(side).collect(), side(destination));
    }
    let is_image_path = |text: &OsString| !Path::new(text).exists() && ImagePath::is_one(text);
    let looks_like_one = destination.as_bytes().windows(2).any(|pair| pair == b":/")
        && !Path::new(destination).exists()
        && !sources.iter().any(is_image_path);
    if is_image_path(destination) || looks_like_one {
        let side = |text: &OsString| {
            if is_image_path(text) {
                Operand::Volume(ImagePath::parse(text))
            } else {
                Operand::Host(text.into())
            }
        };
        return (
            sources.iter().map(side).collect(),
            Operand::Volume(ImagePath::parse(destination)),
        );
    }
    let image_paths = sources
        .iter()
        .map(|text| Operand::Volume(ImagePath::parse(text)));
    (
        image_paths.collect(),
        Operand::Host(PathBuf::from(destination)),
    )
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    // Before a volume is opened: a signal from now on leaves it closed.
    app.stop_on_signals();
    let Checked(operands) = &args.operands;
    let sources: Vec<_> = operands
        .sources()
        .iter()
        .map(|text| options::source(args, text))
        .collect();
    match sides(&sources, operands.destination(), app) {
        (sources, Operand::Volume(destination)) => into(args, &sources, &destination, app),
        (sources, Operand::Host(destination)) => {
            let mut image_paths = Vec::new();
            for source in sources {
                match source {
                    Operand::Volume(image_path) => image_paths.push(image_path),
                    Operand::Host(path) => {
                        let path = path.display();
                        app.fail_at(
                            ExitStatus::Failed,
                            &path,
                            "neither it nor its copy is in a volume",
                        );
                        return Ok(());
                    }
                }
            }
            out(args, &image_paths, &destination, app);
        }
    }
    Ok(())
}

/// Reports a path of the host that leads through an image, as if that were a directory.
fn misses_a_colon(path: &Path, app: &mut App) -> bool {
    let hint = image_hint::below_an_image(path);
    hint.iter()
        .for_each(|hint| app.fail_at(ExitStatus::Failed, path.display(), hint));
    hint.is_some()
}

/// A source of a copy into a volume.
enum Source {
    Host(PathBuf),
    Volume(Target),
}

/// Copies into a volume.
fn into(args: &Args, sources: &[Operand], destination: &ImagePath, app: &mut App) {
    app.write_to(&destination.image);
    // All sources are opened before anything is written.
    let mut from = Vec::new();
    for source in sources {
        match source {
            Operand::Host(path) if misses_a_colon(path, app) => return,
            Operand::Host(path) => from.push(Source::Host(path.clone())),
            Operand::Volume(image_path) => from.extend(app.target(image_path).map(Source::Volume)),
        }
    }
    // Names first: if one is unknown, nothing is changed.
    let owner = match &args.chown {
        Some(owner) => owner.ids_in(&destination.image, app),
        None => Some(OwnerIds::default()),
    };
    let (Some(owner), Some(target)) = (owner, app.target(destination)) else {
        return;
    };
    let is_directory = target
        .session()
        .metadata(target.path())
        .is_ok_and(|found| found.is_dir());
    if args.needs_directory(sources.len()) && !is_directory {
        return app.fail_at(ExitStatus::Failed, destination, "not a directory");
    }
    let options = args.options(owner);
    let task = app.begin_task(COPYING, args.quiet);
    let stop = app.stop_on_signals();
    let to = &*target.volume;
    let mut copy = CopyInto::new(&to.volume, &to.session, &options);
    for source in &from {
        if app.is_stopped() {
            break;
        }
        let (path, from) = match source {
            Source::Host(path) => (CopyPath::Host(path), Side::Host),
            Source::Volume(source) => {
                let path = CopyPath::Volume(&source.volume.volume, source.session(), source.path());
                (path, Side::Volume(&source.volume))
            }
        };
        let to = Side::Volume(to);
        let mut follower = Follower {
            args,
            app,
            task: &task,
            stop: &stop,
            from,
            to,
            ends_when_full: false,
            is_full: false,
        };
        copy.copy(path, &destination.path, &mut follower);
    }
    end(&copy.finish(), &task, app);
}

/// Ends a copy: reports lost attributes, and how much was done before a signal.
fn end(summary: &CopySummary, task: &Task, app: &mut App) {
    losses::report(&summary.losses, app);
    app.report_stop(format_args!(
        "{} copied",
        counted(task.files(), "file", "files")
    ));
}

/// Copies out of volumes.
fn out(args: &Args, image_paths: &[ImagePath], destination: &Path, app: &mut App) {
    if let Some(image_path) = image_paths
        .iter()
        .find(|image_path| same_file(&image_path.image.file, destination))
    {
        return app.fail_at(
            ExitStatus::Failed,
            destination.display(),
            format_args!(
                "this is the image itself; its root is {}",
                quoted(format_args!("{}:/", image_path.image))
            ),
        );
    }
    if let Some(hint) = image_hint::root_of(destination, image_paths) {
        return app.fail_at(ExitStatus::Failed, destination.display(), hint);
    }
    if misses_a_colon(destination, app) {
        return;
    }
    if args.needs_directory(image_paths.len()) && !destination.is_dir() {
        return app.fail_at(ExitStatus::Failed, destination.display(), "not a directory");
    }
    if args.method() != CopyMethod::Copy {
        let reason = "a link on the host cannot lead into a volume";
        return app.fail_at(ExitStatus::Failed, destination.display(), reason);
    }
    let Some(owner) = host_owner(args, app) else {
        return;
    };
    let umask = ClearedUmask::new();
    let options = CopyOptions {
        umask: umask.bits(),
        ..args.options(owner)
    };
    let task = app.begin_task(COPYING, args.quiet);
    let stop = app.stop_on_signals();
    let mut copy = CopyOut::new(&options);
    for image_path in image_paths {
        if app.is_stopped() {
            break;
        }
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let from = Side::Volume(&target.volume);
        let to = Side::Host;
        let mut follower = Follower {
            args,
            app,
            task: &task,
            stop: &stop,
            from,
            to,
            ends_when_full: false,
            is_full: false,
        };
        copy.copy(
            &target.volume.volume,
            target.session(),
            target.path(),
            destination,
            &mut follower,
        );
    }
    end(&copy.finish(), &task, app);
}

/// Returns the owner that copies on the host get: the host's names are not the names of a volume.
/// Reports a failure.
fn host_owner(args: &Args, app: &mut App) -> Option<OwnerIds> {
    match &args.chown {
        Some(owner) if owner.has_names() => {
            let reason = "--chown takes numbers for copies on the host: the names of the volume are not its own";
            app.fail(ExitStatus::Usage, reason);
            None
        }
        Some(owner) => owner.ids(&IdNames::default()).ok(),
        None => Some(OwnerIds::default()),
    }
}

/// Copies everything below a directory, and its attributes, to the directory `to`. A user other
/// than root gets a note about each device, which only root can make.
pub(crate) fn export(target: &Target, to: &Path, app: &mut App) {
    let args = Args {
        kept: Kept(Preserve::ALL),
        archive: true,
        ..Args::default()
    };
    let umask = ClearedUmask::new();
    let options = CopyOptions {
        exports: true,
        umask: umask.bits(),
        ..args.options(OwnerIds::default())
    };
    let task = app.begin_task(COPYING, args.quiet);
    let stop = app.stop_on_signals();
    let mut copy = CopyOut::new(&options);
    let from = Side::Volume(&target.volume);
    let side = Side::Host;
    let mut follower = Follower {
        args: &args,
        app,
        task: &task,
        stop: &stop,
        from,
        to: side,
        ends_when_full: true,
        is_full: false,
    };
    copy.copy_contents(
        &target.volume.volume,
        target.session(),
        target.path(),
        to,
        &mut follower,
    );
    end(&copy.finish(), &task, app);
}
