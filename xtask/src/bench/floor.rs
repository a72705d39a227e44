//! The least work that an image of a tree takes: two threads read all files, and write as many
//! bytes into one file.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one write, as `build` makes them.
const WRITE_BYTES: usize = 1 << 20;

/// How long it takes until the bytes of all files of `tree` are durable in `target`.
pub(super) fn time(tree: &Path, target: &Path) -> io::Result<Duration> {
    let start = Instant::now();
    let target = File::create(target)?;
    let Listed { files, .. } = Listed::of(tree)?;
    let next = AtomicUsize::new(0);
    let end = AtomicU64::new(0);
    let work = || {
        let mut buffer = Vec::new();
        // Relaxed: the list and the file are shared already, and the counters order nothing.
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            File::open(path)?.read_to_end(&mut buffer)?;
            if buffer.len() >= WRITE_BYTES {
                append(&target, &end, &mut buffer)?;
            }
        }
        append(&target, &end, &mut buffer)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let own = work();
        other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .and(own)
    })?;
    target.sync_all()?;
    Ok(start.elapsed())
}

/// Writes the buffer behind what both threads have written, and empties it.
fn append(target: &File, end: &AtomicU64, buffer: &mut Vec<u8>) -> io::Result<()> {
    target.write_all_at(
        buffer,
        end.fetch_add(buffer.len() as u64, Ordering::Relaxed),
    )?;
    buffer.clear();
    Ok(())
}

/// How many entries a tree has, its root not counted.
pub(super) fn entries(tree: &Path) -> io::Result<usize> {
    let Listed { files, others } = Listed::of(tree)?;
    Ok(files.len() + others)
}

/// The entries of a tree.
#[derive(Default)]
struct Listed {
    /// The paths of regular files.
    files: Vec<PathBuf>,
    /// How many others there are.
    others: usize,
}

impl Listed {
    fn of(tree: &Path) -> io::Result<Self> {
        let mut listed = Self::default();
        listed.add(tree)?;
        Ok(listed)
    }

    /// Adds all below a directory, with a look at each.
    fn add(&mut self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_file() {
                self.files.push(entry.path());
                continue;
            }
            self.others += 1;
            if found.is_dir() {
                self.add(&entry.path())?;
            }
        }
        Ok(())
    }
}
