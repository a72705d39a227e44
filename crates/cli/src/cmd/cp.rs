//! `extern4 cp`: copies files and directories out of a volume.
//!
//! What is in a volume is not to be trusted, so nothing that a copy meets below its destination is followed: every
//! step is taken from an open directory, by one name, with links refused ([`tree::Tree`]). A file that is there already
//! is replaced, never written through. Only the destination as it was typed is taken as the user means it.

mod attributes;
mod copier;
mod data;
mod progress;
mod tree;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::app::{App, host_reason};
use crate::place::Place;
use crate::status::Status;

use copier::{Copier, Spot};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files and directories to copy
    #[arg(value_name = "PLACE", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// Where to: a directory, or the name of the copy
    #[arg(value_name = "DESTINATION")]
    destination: PathBuf,
    /// Copy directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Copy directories, and keep everything: owners, modes, times, extended attributes, ACLs and hard links
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

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let destination = &args.destination;
    if !destination.exists() && Place::is_one(destination.as_os_str()) {
        app.fail(
            Status::Failed,
            format_args!("{}: volumes are opened read-only: copy to a directory", destination.display()),
        );
        return Ok(());
    }
    let is_directory = destination.is_dir();
    if args.places.len() > 1 && !is_directory {
        app.fail(Status::Failed, format_args!("{}: not a directory", destination.display()));
        return Ok(());
    }
    let mut copier = Copier::new(args);
    for place in &args.places {
        let Some(target) = app.target(place) else { continue };
        match spot(place, destination, is_directory) {
            Ok(spot) => copier.copy(&target, spot, app),
            Err(error) => {
                app.fail(Status::Failed, format_args!("{}: {}", destination.display(), host_reason(&error)))
            }
        }
    }
    copier.finish(app);
    Ok(())
}

/// Where a place goes: into the destination under its own name, or in the destination's stead.
fn spot(place: &Place, destination: &Path, is_directory: bool) -> io::Result<Spot> {
    if is_directory {
        return Ok(match own_name(&place.path) {
            Some(name) => Spot::inside(destination, name)?,
            None => Spot::itself(destination)?,
        });
    }
    let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    if destination.exists() {
        return Spot::existing(parent.unwrap_or(Path::new(".")), name.to_owned(), destination);
    }
    Spot::inside(parent.unwrap_or(Path::new(".")), name.to_owned())
}

/// The name that a copy of `path` gets; nothing for a root or a directory named by its dots, whose contents are meant.
fn own_name(path: &Path) -> Option<OsString> {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/.") || bytes.ends_with(b"/./") {
        return None;
    }
    path.file_name().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::own_name;
    use std::path::Path;

    #[test]
    fn copies_keep_their_names() {
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(own_name(Path::new(path)).as_deref().and_then(|name| name.to_str()), name, "{path}");
        };
        check("/etc/passwd", Some("passwd"));
        check("/etc/", Some("etc"));
        check("/", None);
        check("/etc/.", None);
        check("/etc/..", None);
    }
}
