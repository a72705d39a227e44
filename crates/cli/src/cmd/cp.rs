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

use crate::app::{App, host_reason};
use crate::place::{Place, same_file};
use crate::resolve::own_name;
use crate::status::Status;
use crate::text::quoted;

use copier::{Copier, Only, Spot};
use into::{IntoVolume, Source};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and directories to copy: in volumes or, for a destination in a volume, of the host
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
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
    Volume(Place),
}

/// The prefix of a path of the host in a script; the other paths of a script are in its volume.
const HOST: &[u8] = b"host:";

/// Returns the operands that the sources and the destination name. At least one side is in a
/// volume. So where a name may be an image or a file to be copied, the other side decides.
fn sides(args: &Args, app: &App) -> (Vec<Side>, Side) {
    if app.in_script() {
        let side = |text: &OsString| match text.as_bytes().strip_prefix(HOST) {
            Some(path) => Side::Host(PathBuf::from(OsStr::from_bytes(path))),
            None => Side::Volume(app.place(text)),
        };
        return (args.places.iter().map(side).collect(), side(&args.destination));
    }
    let is_place = |text: &OsString| !Path::new(text).exists() && Place::is_one(text);
    let looks_like_one = args.destination.as_bytes().windows(2).any(|pair| pair == b":/")
        && !Path::new(&args.destination).exists()
        && !args.places.iter().any(is_place);
    if is_place(&args.destination) || looks_like_one {
        let side = |text: &OsString| {
            if is_place(text) { Side::Volume(Place::parse(text)) } else { Side::Host(text.into()) }
        };
        return (args.places.iter().map(side).collect(), Side::Volume(Place::parse(&args.destination)));
    }
    let places = args.places.iter().map(|text| Side::Volume(Place::parse(text)));
    (places.collect(), Side::Host(PathBuf::from(&args.destination)))
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    match sides(args, app) {
        (sources, Side::Volume(destination)) => into(args, &sources, &destination, app),
        (sources, Side::Host(destination)) => {
            let mut places = Vec::new();
            for source in sources {
                match source {
                    Side::Volume(place) => places.push(place),
                    Side::Host(path) => {
                        let path = path.display();
                        app.fail_at(Status::Failed, &path, "neither it nor its copy is in a volume");
                        return Ok(());
                    }
                }
            }
            out(args, &places, &destination, app);
        }
    }
    Ok(())
}

/// Copies into a volume.
fn into(args: &Args, sources: &[Side], destination: &Place, app: &mut App) {
    app.write_to(&destination.image);
    // All sources are opened before anything is written.
    let mut from = Vec::new();
    for source in sources {
        match source {
            Side::Host(path) => from.push(Source::Host(path.clone())),
            Side::Volume(place) => from.extend(app.target(place).map(Source::Volume)),
        }
    }
    let Some(target) = app.target(destination) else { return };
    let is_directory = target.session().metadata(target.path()).is_ok_and(|found| found.is_dir());
    if sources.len() > 1 && !is_directory {
        return app.fail_at(Status::Failed, destination, "not a directory");
    }
    let mut copy = IntoVolume::new(args, &target.volume);
    for from in &from {
        copy.copy(from, destination, app);
    }
    copy.finish(app);
}

/// Copies out of volumes.
fn out(args: &Args, places: &[Place], destination: &Path, app: &mut App) {
    if let Some(place) = places.iter().find(|place| same_file(&place.image.file, destination)) {
        return app.fail_at(
            Status::Failed,
            destination.display(),
            format_args!(
                "this is the image itself; its root is {}",
                quoted(format_args!("{}:/", place.image))
            ),
        );
    }
    let is_directory = destination.is_dir();
    if places.len() > 1 && !is_directory {
        return app.fail_at(Status::Failed, destination.display(), "not a directory");
    }
    let mut copier = Copier::new(args);
    for place in places {
        let Some(target) = app.target(place) else { continue };
        match spot(place, destination, is_directory) {
            Ok(spot) => copier.copy(&target, spot, app),
            Err(error) => app.fail_at(Status::Failed, destination.display(), host_reason(&error)),
        }
    }
    copier.finish(app);
}

/// Returns where a place goes: into the destination under its own name, or in the destination's
/// stead.
fn spot(place: &Place, destination: &Path, is_directory: bool) -> io::Result<Spot> {
    if is_directory {
        return Ok(match own_name(&place.path) {
            Some(name) => Spot::inside(destination, name)?,
            None => Spot::itself(destination)?,
        });
    }
    let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if destination.exists() {
        return Spot::existing(parent, name.to_owned(), destination);
    }
    let only = if is_slashed(destination) {
        Only::Directories
    } else if destination.is_symlink() {
        Only::NoContents
    } else {
        Only::Anything
    };
    let mut spot = Spot::inside(parent, name.to_owned())?;
    spot.only = only;
    Ok(spot)
}

/// Returns whether a path ends as only those of directories do.
fn is_slashed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}
