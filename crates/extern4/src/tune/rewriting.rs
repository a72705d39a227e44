//! Computes all checksums of a volume again, so that they do not need the seed of an old UUID.
//!
//! Programs call it through `tune`. The volume is closed, sound, and not used meanwhile. Another
//! run completes one that was interrupted.

use std::path::Path;

use extern4_ext4::checksum_rewrite;

use super::{failed, writable_device};
use crate::error::Result;
use crate::volume::{Volume, VolumeOptions};

/// Returns whether a rewriting of checksums was interrupted on the volume at `path`. Such a volume
/// does not open. False if there is no volume.
pub fn is_rewriting_interrupted(options: &VolumeOptions, path: impl AsRef<Path>) -> bool {
    options
        .device(path)
        .is_ok_and(|(device, _)| checksum_rewrite::was_interrupted(&device))
}

/// Rewrites the checksums of the closed volume at `path`, and takes the feature
/// `metadata_csum_seed` away.
///
/// # Errors
/// A volume that is in use, whose checksums this library does not rewrite, or which has a wrong
/// checksum; or a device that fails.
pub fn rewrite_checksums(options: &VolumeOptions, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let device = writable_device(options, path)?;
    checksum_rewrite::rewrite_checksums(&device).map_err(|e| failed(e).at(path))
}

/// Refuses a volume whose checksums this library does not rewrite.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), with the feature or the reason.
pub fn check_rewritable(volume: &Volume) -> Result<()> {
    let features = volume.ext4().superblock().features();
    checksum_rewrite::check_rewritable(features).map_err(|error| failed(error.into()))
}
