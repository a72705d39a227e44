//! The crate `rust-fs-ext4`, in this process.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extern4_measure::load::{Load, for_span};
use fs_ext4::Filesystem;
use fs_ext4::block_io::FileDevice;

use super::Result;

/// Operations between two looks at whether the time is up.
const BATCH: u64 = 64;

/// Nanoseconds of the clock for one `stat`, with `threads` threads on one instance: its methods
/// take `&self`, and it checks no permissions.
pub(super) fn stat(image: &Path, path: &str, threads: u32, duration: Duration) -> Result<f64> {
    let device = FileDevice::open_path(image).map_err(|e| e.to_string())?;
    let filesystem = Filesystem::mount(Arc::new(device)).map_err(|e| e.to_string())?;
    let stat = |_| {
        let ino = filesystem
            .lookup_path_bytes(path.as_bytes())
            .map_err(|e| e.to_string())?;
        black_box(filesystem.stat_ino(ino).map_err(|e| e.to_string())?);
        Ok::<_, String>(1)
    };
    let work = |_: &mut ()| for_span(duration, BATCH, stat);
    Ok(Load::of(threads as usize).run(|_| (), work, || {})?.nanos())
}
