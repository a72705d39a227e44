//! `extern4 cp`: copies files and directories out of volumes, into them and between them.
//!
//! Out of a volume, the copy trusts nothing in the volume and follows no link below its
//! destination. It takes every step from an open directory, by one name, with links refused
//! ([`tree::Tree`]). It replaces a file that is there already, and never writes through it. Only
//! the destination as it was typed may contain links.

mod ahead;
mod attributes;
mod copier;
mod data;
mod into;
mod links;
mod progress;
mod source;
mod tree;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::app::{App, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{ImagePath, same_file};
use crate::targets::own_name;
use crate::text::quoted;

use copier::{Copier, HostDestination, Only};
use into::{IntoVolume, Source};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and directories to copy: in volumes or, for a destination in a volume, of the host
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// Where to: a directory, or the name of the copy, of the host or in a volume
    #[arg(value_name = "DESTINATION", required = true)]
    destination: OsString,
    /// Copy directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Copy directories, and keep everything: owners, modes, times, extended attributes, ACLs and
    /// hard links
    #[arg(short, long)]
    archive: bool,
    /// Keep owners, modes, times and ACLs
    #[arg(short, long)]
    preserve: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    fn recursive(&self) -> bool {
        self.recursive || self.archive
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
    if app.in_script() {
        let side = |text: &OsString| match text.as_bytes().strip_prefix(HOST) {
            Some(path) => Side::Host(PathBuf::from(OsStr::from_bytes(path))),
            None => Side::Volume(app.image_path(text)),
        };
        return (args.sources.iter().map(side).collect(), side(&args.destination));
    }
    let is_image_path = |text: &OsString| !Path::new(text).exists() && ImagePath::is_one(text);
    let looks_like_one = args.destination.as_bytes().windows(2).any(|pair| pair == b":/")
        && !Path::new(&args.destination).exists()
        && !args.sources.iter().any(is_image_path);
    if is_image_path(&args.destination) || looks_like_one {
        let side = |text: &OsString| {
            if is_image_path(text) { Side::Volume(ImagePath::parse(text)) } else { Side::Host(text.into()) }
        };
        return (args.sources.iter().map(side).collect(), Side::Volume(ImagePath::parse(&args.destination)));
    }
    let image_paths = args.sources.iter().map(|text| Side::Volume(ImagePath::parse(text)));
    (image_paths.collect(), Side::Host(PathBuf::from(&args.destination)))
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
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
    let Some(target) = app.target(destination) else { return };
    let is_directory = target.session().metadata(target.path()).is_ok_and(|found| found.is_dir());
    if sources.len() > 1 && !is_directory {
        return app.fail_at(ExitStatus::Failed, destination, "not a directory");
    }
    let mut copy = IntoVolume::new(args, &target.volume);
    for from in &from {
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
    if image_paths.len() > 1 && !is_directory {
        return app.fail_at(ExitStatus::Failed, destination.display(), "not a directory");
    }
    let mut copier = Copier::new(args);
    for image_path in image_paths {
        let Some(target) = app.target(image_path) else { continue };
        match host_destination(image_path, destination, is_directory) {
            Ok(to) => copier.copy(&target, to, app),
            Err(error) => app.fail_at(ExitStatus::Failed, destination.display(), host_reason(&error)),
        }
    }
    copier.finish(app);
}

/// Copies everything below a directory, and its attributes, to the directory `to`. A user other
/// than root gets a note about each device, which only root can make.
pub(crate) fn export(target: &Target, to: &Path, app: &mut App) -> io::Result<()> {
    let (sources, destination) = (Vec::new(), to.into());
    let args = Args { sources, destination, recursive: true, archive: true, preserve: false, quiet: false };
    let mut copier = Copier::exporting(&args);
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
