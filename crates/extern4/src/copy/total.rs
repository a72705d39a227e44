//! The bytes that a copy has before it.

use std::path::Path;

use extern4_vfs::FileType;

use crate::metadata::Metadata;
use crate::session::Session;

/// Returns about how many bytes there are to copy of a file of a volume, or of everything below it.
pub(super) fn of_volume(session: &Session, path: &Path, recursive: bool) -> u64 {
    if !recursive {
        return session
            .metadata(path)
            .map_or(0, |found| stored_bytes(&found));
    }
    let files = session.walk(path).filter_map(Result::ok);
    let files = files.filter(|entry| {
        entry
            .file_type()
            .is_ok_and(|kind| kind == FileType::Regular)
    });
    files
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| stored_bytes(&found))
        .sum()
}

/// Returns about how many bytes of a file are not holes.
pub(super) fn stored_bytes(metadata: &Metadata) -> u64 {
    metadata.len().min(
        metadata
            .blocks()
            .saturating_mul(512)
            .max(metadata.len() % 4096),
    )
}
