//! The bytes that a copy has before it.

use extern4::{FileType, Metadata};

use crate::app::Target;
use crate::progress::{Counts, Unit};

/// The unit that copies count.
pub(super) const COPYING: Unit = Unit::bytes("copied");

/// Adds what is to be copied of a volume, if the progress is shown.
pub(super) fn expect(counts: &Counts, target: &Target, recursive: bool) {
    if !counts.is_shown() {
        return;
    }
    let session = target.session();
    let bytes = if recursive {
        let files = session.walk(target.path()).filter_map(Result::ok);
        let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind == FileType::Regular));
        files.filter_map(|entry| entry.metadata().ok()).map(|found| stored_bytes(&found)).sum()
    } else {
        session.metadata(target.path()).map_or(0, |found| stored_bytes(&found))
    };
    counts.expect(bytes);
}

/// Returns about how many bytes of a file are not holes.
pub(super) fn stored_bytes(metadata: &Metadata) -> u64 {
    metadata.len().min(metadata.blocks().saturating_mul(512).max(metadata.len() % 4096))
}
