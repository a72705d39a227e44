//! Inode flags and projects that a file of one volume has, and that its copy in another is to have.
//!
//! `build::update` and `copy::into` set them. Flags or a project that the other volume does not
//! take are an error that names the missing feature.

use std::path::Path;

use extern4_disk::inode::InodeFlags;
use extern4_vfs::{Errno, FileFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

/// The flags with which a file cannot be changed, so that they are set last.
pub(crate) const FORBIDDING: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// The flags that a call can set.
pub(crate) const SETTABLE: FileFlags =
    FileFlags::from_bits_retain(InodeFlags::SETTABLE.union(InodeFlags::JOURNAL_DATA).bits());

/// Sets the flags of a file.
///
/// # Errors
/// Flags that the volume does not take are an error, too.
pub(crate) fn set_flags(directory: &Session, name: &Path, flags: FileFlags) -> Result<()> {
    directory.set_flags(name, flags)?;
    if directory.symlink_metadata(name)?.flags() == flags {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Os(Errno::EOPNOTSUPP),
        "keep all flags",
    ))
}

/// Has an empty directory compare names with or without regard to case, as `wanted` says.
///
/// # Errors
/// A volume without the feature `casefold`, or a failure of the change.
pub(crate) fn set_casefold(directory: &Session, name: &Path, wanted: FileFlags) -> Result<()> {
    let found = directory.symlink_metadata(name)?.flags();
    let differs = (found ^ wanted) & FileFlags::CASEFOLD;
    if differs.is_empty() {
        Ok(())
    } else {
        set_flags(directory, name, found ^ differs).map_err(lacking("casefold"))
    }
}

/// Charges a file to a project.
///
/// # Errors
/// A volume without the feature `project`, or a failure of the change.
pub(crate) fn set_project(directory: &Session, name: &Path, project: u32) -> Result<()> {
    directory
        .set_project(name, project)
        .map_err(lacking("project"))
}

/// Returns what adds the name of a feature to an error that its lack explains.
fn lacking(feature: &'static str) -> impl FnOnce(Error) -> Error {
    move |error| match error.errno() {
        Errno::EOPNOTSUPP => error.because(format!(
            "Operation not supported without the feature {feature}"
        )),
        _ => error,
    }
}
