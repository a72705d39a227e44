//! Removing a tree of any depth.
//!
//! `Session::remove_dir_all` and `build::Update` call it. It ends at the first name that cannot be
//! removed; the names before it are gone.

use std::path::Path;

use crate::error::Result;
use crate::session::Session;
use crate::walk::WalkEvent;

/// Removes a file, or a directory and all below it.
pub(crate) fn remove(session: &Session, path: &Path) -> Result<()> {
    let mut walk = session.walk(path);
    while let Some(event) = walk.next_event() {
        match event? {
            WalkEvent::Enter(_) => {}
            WalkEvent::File(entry) | WalkEvent::Leave(entry) => entry.remove()?,
        }
    }
    Ok(())
}
