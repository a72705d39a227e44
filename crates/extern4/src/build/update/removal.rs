//! Removing a tree of any depth.

use std::ffi::{OsStr, OsString};

use crate::error::Result;
use crate::session::Session;

/// A directory that is being emptied.
struct Level {
    /// A session in the directory that holds it.
    above: Session,
    name: OsString,
    inside: Session,
    /// The names left in it.
    names: Vec<OsString>,
}

/// Removes a name, and all below it. Every step goes by one name from the directory before, so
/// links are not followed.
pub(super) fn remove(directory: &Session, name: &OsStr) -> Result<()> {
    let mut levels = Vec::new();
    step(&mut levels, directory.clone(), name.to_owned())?;
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.names.pop() {
            let inside = level.inside.clone();
            step(&mut levels, inside, name)?;
        } else if let Some(Level { above, name, inside, .. }) = levels.pop() {
            drop(inside);
            above.remove_dir(name)?;
        }
    }
    Ok(())
}

/// Removes a file, or lists a directory that is to be emptied.
fn step(levels: &mut Vec<Level>, above: Session, name: OsString) -> Result<()> {
    if !above.symlink_metadata(&name)?.is_dir() {
        return above.remove_file(&name);
    }
    let inside = above.at(&name)?;
    let names = inside.read_dir(".")?.map(|entry| Ok(entry?.file_name().to_owned()));
    let names = names.collect::<Result<Vec<_>>>()?;
    levels.push(Level { above, name, inside, names });
    Ok(())
}
