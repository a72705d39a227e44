//! Removing a tree of any depth.
//!
//! `Session::remove_dir_all` and `build::Update` call it. Every step goes by one name from the
//! directory before, so the removal follows no link, and paths may be longer than a call takes. It
//! ends at the first name that cannot be removed; the names before it are gone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::session::Session;

/// A directory that is being emptied.
struct Level {
    /// A session in the directory that holds it, and its name there.
    above: Session,
    name: PathBuf,
    /// Its path, for messages.
    path: PathBuf,
    inside: Session,
    /// The names left in it.
    names: Vec<OsString>,
}

/// Removes a file, or a directory and all below it.
pub(crate) fn remove(session: &Session, path: &Path) -> Result<()> {
    let mut levels = Vec::new();
    levels.extend(step(session.clone(), path.to_owned(), path.to_owned())?);
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.names.pop() {
            let path = level.path.join(&name);
            let next = step(level.inside.clone(), name.into(), path)?;
            levels.extend(next);
        } else if let Some(Level {
            above,
            name,
            path,
            inside,
            ..
        }) = levels.pop()
        {
            drop(inside);
            above.remove_dir(name).map_err(|error| error.at(&path))?;
        }
    }
    Ok(())
}

/// Removes a file, or lists a directory that is to be emptied.
fn step(above: Session, name: PathBuf, path: PathBuf) -> Result<Option<Level>> {
    let named = |error: crate::error::Error| error.at(&path);
    if !above.symlink_metadata(&name).map_err(named)?.is_dir() {
        return above.remove_file(&name).map(|()| None).map_err(named);
    }
    let inside = above.at(&name).map_err(named)?;
    let names = inside
        .read_dir(".")
        .map_err(named)?
        .map(|entry| Ok(entry?.file_name().to_owned()));
    let names = names.collect::<Result<Vec<_>>>().map_err(named)?;
    Ok(Some(Level {
        above,
        name,
        path,
        inside,
        names,
    }))
}
