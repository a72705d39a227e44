//! `extern4 cp`: copies files and directories out of volumes, into them and between them.
//!
//! Out of a volume, the copy trusts nothing in the volume and follows no link below its
//! destination. It takes every step from an open directory, by one name, with links refused
//! ([`tree::Tree`]). It replaces a file that is there already, and never writes through it. Only
//! the destination as it was typed may contain links.
//!
//! `args` calls [`run`], and `export` copies to a directory of the host with [`export`].

mod ahead;
mod attributes;
mod copier;
mod data;
mod into;
mod links;
mod options;
mod source;
mod total;
mod tree;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::build::Rules;
use crate::app::{App, Target, host_reason};
use crate::checked::Checked;
use crate::exit_status::ExitStatus;
use crate::id_names::IdNames;
use crate::image_path::{ImagePath, same_file};
use crate::operands::{DestinationKind, Operands};
use crate::overwrite::Overwrite;
use crate::owner::{Owner, OwnerIds};
use crate::targets::own_name;
use crate::text::quoted;

use copier::{Copier, HostDestination, Only};
use into::{IntoVolume, Source};
use options::{AttributeList, Kept, Making, Sparse};

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
    /// Give copies this owner: names are those of the volume that is written, numbers are needed
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
enum Side {
    Host(PathBuf),
    Volume(ImagePath),
}

/// The prefix of a path of the host in a script; the other paths of a script are in its volume.
const HOST: &[u8] = b"host:";

/// Returns the operands that the sources and the destination name. At least one side is in a
/// volume. So where a name may be an image or a file to be copied, the other side decides.
fn sides(args: &Args, app: &App) -> (Vec<Side>, Side) {
    let Checked(operands) = &args.operands;
    let (sources, destination) = (operands.sources(), operands.destination());
    let sources: Vec<_> = sources.iter().map(|text| options::source(args, text)).collect();
    if app.in_script() {
        let side = |text: &OsString| match text.as_bytes().strip_prefix(HOST) {
            Some(path) => Side::Host(PathBuf::from(OsStr::from_bytes(path))),
            None => Side::Volume(app.image_path(text)),
        };
        return (sources.iter().map(side).collect(), side(destination));
    }
    let is_image_path = |text: &OsString| !Path::new(text).exists() && ImagePath::is_one(text);
    let looks_like_one = destination.as_bytes().windows(2).any(|pair| pair == b":/")
        && !Path::new(destination).exists()
        && !sources.iter().any(is_image_path);
    if is_image_path(destination) || looks_like_one {
        let side = |text: &OsString| {
            if is_image_path(text) { Side::Volume(ImagePath::parse(text)) } else { Side::Host(text.into()) }
        };
        return (sources.iter().map(side).collect(), Side::Volume(ImagePath::parse(destination)));
    }
    let image_paths = sources.iter().map(|text| Side::Volume(ImagePath::parse(text)));
    (image_paths.collect(), Side::Host(PathBuf::from(destination)))
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    // Before a volume is opened: a signal from now on leaves it closed.
    app.stop_on_signals();
    match sides(args, app) {
        (sources, Side::Volume(destination)) => into(args, &sources, &destination, app),
        (sources, Side::Host(destination)) => {
            let mut image_paths = Vec::new();
            for source in sources {
                match source {
                    Side::Volume(image_path) => image_paths.push(image_path),
                    Side::Host(path) => {
                        let path = path.display();
                        app.fail_at(ExitStatus::Failed, &path, "neither it nor its copy is in a volume");
                        return Ok(());
                    }
                }
            }
            out(args, &image_paths, &destination, app);
        }
    }
    Ok(())
}

/// Copies into a volume.
fn into(args: &Args, sources: &[Side], destination: &ImagePath, app: &mut App) {
    app.write_to(&destination.image);
    // All sources are opened before anything is written.
    let mut from = Vec::new();
    for source in sources {
        match source {
            Side::Host(path) => from.push(Source::Host(path.clone())),
            Side::Volume(image_path) => from.extend(app.target(image_path).map(Source::Volume)),
        }
    }
    // Names first: if one is unknown, nothing is changed.
    let owner = match &args.chown {
        Some(owner) => owner.ids_in(&destination.image, app),
        None => Some(OwnerIds::default()),
    };
    let (Some(owner), Some(target)) = (owner, app.target(destination)) else { return };
    let is_directory = target.session().metadata(target.path()).is_ok_and(|found| found.is_dir());
    if args.needs_directory(sources.len()) && !is_directory {
        return app.fail_at(ExitStatus::Failed, destination, "not a directory");
    }
    let mut copy = IntoVolume::new(args, owner, &target.volume, app);
    for from in &from {
        if app.is_stopped() {
            break;
        }
        copy.copy(from, destination, app);
    }
    copy.finish(app);
}

/// Copies out of volumes.
fn out(args: &Args, image_paths: &[ImagePath], destination: &Path, app: &mut App) {
    if let Some(image_path) =
        image_paths.iter().find(|image_path| same_file(&image_path.image.file, destination))
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
    let is_directory = destination.is_dir();
    if args.needs_directory(image_paths.len()) && !is_directory {
        return app.fail_at(ExitStatus::Failed, destination.display(), "not a directory");
    }
    if args.making() != Making::Copy {
        let reason = "a link on the host cannot lead into a volume";
        return app.fail_at(ExitStatus::Failed, destination.display(), reason);
    }
    let Some(owner) = host_owner(args, app) else { return };
    let mut copier = Copier::new(args, owner, app);
    for image_path in image_paths {
        if app.is_stopped() {
            break;
        }
        let Some(target) = app.target(image_path) else { continue };
        if args.parents {
            copier.copy_with_parents(&target, destination, app);
            continue;
        }
        let takes_name = is_directory && args.operands.0.kind() != DestinationKind::Name;
        match host_destination(image_path, destination, takes_name) {
            Ok(to) => copier.copy(&target, to, app),
            Err(error) => app.fail_at(ExitStatus::Failed, destination.display(), host_reason(&error)),
        }
    }
    copier.finish(app);
}

/// Returns the owner that copies on the host get: the host's names are not those of a volume.
/// Reports a failure.
fn host_owner(args: &Args, app: &mut App) -> Option<OwnerIds> {
    match &args.chown {
        Some(owner) if owner.has_names() => {
            let reason =
                "--chown takes numbers for copies on the host: the names of the volume are not its own";
            app.fail(ExitStatus::Usage, reason);
            None
        }
        Some(owner) => owner.ids(&IdNames::default()).ok(),
        None => Some(OwnerIds::default()),
    }
}

/// Copies everything below a directory, and its attributes, to the directory `to`. A user other
/// than root gets a note about each device, which only root can make.
pub(crate) fn export(target: &Target, to: &Path, app: &mut App) -> io::Result<()> {
    let args = Args { kept: Kept::ALL, archive: true, ..Args::default() };
    let mut copier = Copier::exporting(&args, app);
    copier.copy(target, HostDestination::itself(to)?, app);
    copier.finish(app);
    Ok(())
}

/// Returns where the copy of `image_path` goes: into the destination under its own name, or in the
/// destination's stead.
fn host_destination(
    image_path: &ImagePath,
    destination: &Path,
    is_directory: bool,
) -> io::Result<HostDestination> {
    if is_directory {
        return Ok(match own_name(&image_path.path) {
            Some(name) => HostDestination::inside(destination, name)?,
            None => HostDestination::itself(destination)?,
        });
    }
    let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if destination.exists() {
        return HostDestination::existing(parent, name.to_owned(), destination);
    }
    let only = if is_slashed(destination) {
        Only::Directories
    } else if destination.is_symlink() {
        Only::NoContents
    } else {
        Only::Anything
    };
    let mut to = HostDestination::inside(parent, name.to_owned())?;
    to.only = only;
    Ok(to)
}

/// Returns whether a path ends as only those of directories do.
fn is_slashed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}
