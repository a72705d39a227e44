//! The crate `rust-fs-ext4`, in this process.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fs_ext4::Filesystem;
use fs_ext4::block_io::FileDevice;

use super::Result;

/// Operations between two looks at whether the time is up.
const BATCH: u64 = 64;

/// Nanoseconds of the clock for one `stat`, with `threads` threads on one instance: its methods take `&self`, and it
/// checks no permissions.
pub(super) fn stat(image: &Path, path: &str, threads: u32, duration: Duration) -> Result<f64> {
    let device = FileDevice::open_path(image).map_err(|e| e.to_string())?;
    let filesystem = Filesystem::mount(Arc::new(device)).map_err(|e| e.to_string())?;
    let work = || -> Result<u64> {
        let (start, mut ops) = (Instant::now(), 0);
        while start.elapsed() < duration {
            for _ in 0..BATCH {
                let ino = filesystem.lookup_path_bytes(path.as_bytes()).map_err(|e| e.to_string())?;
                std::hint::black_box(filesystem.stat_ino(ino).map_err(|e| e.to_string())?);
            }
            ops += BATCH;
        }
        Ok(ops)
    };
    let start = Instant::now();
    let ops = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<Result<u64>>()
    })?;
    Ok(start.elapsed().as_nanos() as f64 / ops as f64)
}
