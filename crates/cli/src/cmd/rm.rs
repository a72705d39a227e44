//! `extern4 rm`: removes files, and with `-r` directories with all that is in them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use extern4::{Errno, Session};

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::targets::{own_name, written_paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to remove
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Remove directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Do not mind files that are not there
    #[arg(short, long)]
    force: bool,
}

/// A directory that is being emptied.
struct Level {
    /// A view whose current directory holds this directory.
    parent: Session,
    name: OsString,
    /// A view whose current directory is this directory.
    inside: Session,
    path: PathBuf,
    /// The names that are left in the directory, each with whether it is a directory.
    entries: Vec<(OsString, bool)>,
    /// Whether something in the directory stays. That is reported already.
    stays: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else { continue };
        let (session, path) = (target.session(), target.path());
        let Some(name) = own_name(path).filter(|_| path.file_name().is_some()) else {
            app.fail_at(ExitStatus::Failed, &image_path, "a root or '.' or '..' is not removed");
            continue;
        };
        match session.symlink_metadata(path) {
            Ok(found) if found.is_dir() && args.recursive => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                match session.at(parent) {
                    Ok(parent) => tree(parent, name, &target, app),
                    Err(error) => app.error(&image_path, &error),
                }
            }
            Ok(found) if found.is_dir() => {
                app.fail_at(ExitStatus::Failed, &image_path, "is a directory; remove it with -r");
            }
            Ok(_) => {
                if let Err(error) = session.remove_file(path) {
                    app.error(&image_path, &error);
                }
            }
            Err(error) if args.force && matches!(error.errno(), Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(error) => app.error(&image_path, &error),
        }
    }
    Ok(())
}

/// Removes directory `name` of `parent`. Every step goes by one name from the directory before, so
/// it removes trees of any depth and follows no link. It reports the files that it cannot remove,
/// and removes the rest.
fn tree(parent: Session, name: OsString, target: &Target, app: &mut App) {
    let mut levels: Vec<Level> = Vec::new();
    match enter(parent, name, target.path().to_owned()) {
        Ok(level) => levels.push(level),
        Err(error) => app.error(&target.image_path, &error),
    }
    while let Some(level) = levels.last_mut() {
        if let Some((name, is_directory)) = level.entries.pop() {
            let path = level.path.join(&name);
            let done = if is_directory {
                enter(level.inside.clone(), name, path.clone()).map(Some)
            } else {
                level.inside.remove_file(&name).map(|()| None)
            };
            match done {
                Ok(next) => levels.extend(next),
                Err(error) => {
                    level.stays = true;
                    app.error(target.volume.image_path(&path), &error);
                }
            }
            continue;
        }
        let Some(Level { parent, name, inside, path, stays, .. }) = levels.pop() else { break };
        drop(inside);
        let removed = stays
            || parent.remove_dir(&name).map_err(|error| (path, error)).map_or_else(
                |(path, error)| {
                    app.error(target.volume.image_path(&path), &error);
                    true
                },
                |()| false,
            );
        if let Some(above) = levels.last_mut() {
            above.stays |= removed;
        }
    }
}

fn enter(parent: Session, name: OsString, path: PathBuf) -> extern4::Result<Level> {
    let inside = parent.at(&name)?;
    let mut entries = Vec::new();
    for entry in inside.read_dir(".")? {
        let entry = entry?;
        let is_directory = entry.file_type()? == extern4::FileType::Directory;
        entries.push((entry.file_name().to_owned(), is_directory));
    }
    // The walk takes entries from the end: reversed, they go in the directory's own order.
    entries.reverse();
    Ok(Level { parent, name, inside, path, entries, stays: false })
}
