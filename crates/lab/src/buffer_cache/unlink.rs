//! The load of the patch: threads remove files, on ext4 in memory, through all layers of
//! production.
//!
//! `buffer_cache` measures it on extern4 only, since the other sides have no file system. It shows
//! how often a removal asks for a buffer, and the allocator's share. The volume has no journal,
//! which would pin the buffers that a removal changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extern4::{Atime, Volume};
use extern4_block::MemoryDevice;
use extern4_measure::{callgrind, load};
use extern4_testkit::image::ImageSpec;

use crate::Result;
use crate::instructions::REPEAT;
use crate::plan::{self, Plan, Side};
use crate::row::Sample;

/// Files of a batch under callgrind.
const BATCH: u64 = 16;
/// Batches of a run under callgrind.
const COUNTED: u64 = 200;

/// Names of counters.
pub(super) const HITS: &str = "hits/file";
pub(super) const MADE: &str = "buffers made/file";
pub(super) const HITS_A_BUFFER: &str = "hits for a buffer made";

/// Creates an empty volume with room for the files of all threads. Returns `None` if there is no
/// mke2fs to make it.
pub(super) fn device() -> Option<Arc<MemoryDevice>> {
    let options = &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "^has_journal",
        "-N",
        "40000",
    ];
    let spec = ImageSpec::new("unlink", 256 << 20, options);
    if !spec.can_build() {
        return None;
    }
    let bytes = std::fs::read(&spec.build().path).expect("an image that has just been made");
    Some(Arc::new(MemoryDevice::new(bytes)))
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    let mut options = Volume::options();
    options.write(true).atime(Atime::Never);
    options
        .open_device(Arc::clone(device) as _)
        .expect("a volume")
}

fn directory(thread: usize) -> String {
    format!("own{thread}")
}

/// Returns the names of a thread's files.
fn names(files: u64) -> impl Iterator<Item = String> {
    (0..files).map(|file| format!("f{file}"))
}

/// Makes empty files in a directory for each thread, and closes the volume.
fn fill(device: &Arc<MemoryDevice>, threads: usize, files: u64) {
    let volume = open(device);
    let root = volume.superuser();
    for own in (0..threads).map(directory) {
        if !root.exists(&own).expect("it can be read") {
            root.create_dir(&own).expect("a new name");
        }
        let dir = root.at(&own).expect("it is there");
        names(files).for_each(|name| dir.write(&name, "").expect("there is room"));
    }
    drop(root);
    volume.close().expect("nothing is in use");
}

/// Runs one repetition: each thread removes the files of its directory. The cache of the volume is
/// empty before.
pub(super) fn take(device: &Arc<MemoryDevice>, plan: &Plan, threads: usize) -> Sample {
    let files = plan
        .repeated
        .as_ref()
        .map_or(plan.sets, |repeated| BATCH * repeated.batches);
    fill(device, threads, files);
    let volume = open(device);
    let begin = |thread| {
        let dir = volume
            .superuser()
            .at(directory(thread))
            .expect("it is there");
        (dir, names(files).collect::<Vec<_>>())
    };
    let remove = |(dir, names): &mut (extern4::Session, Vec<String>)| {
        names
            .iter()
            .for_each(|name| dir.remove_file(name).expect("it is there"));
        Ok::<_, Infallible>(files)
    };
    let before = volume.stats().blocks;
    let Ok(done) = plan::load(threads).run(begin, remove, || {});
    let after = volume.stats().blocks;
    volume.close().expect("nothing is in use");
    if let Some(repeated) = &plan.repeated {
        // Relaxed: the sum is read when all threads are done.
        repeated.operations.fetch_add(done.ops, Ordering::Relaxed);
    }
    let hits = (after.hits - before.hits) as f64;
    let made = (after.allocations - before.allocations) as f64;
    let mut sample = Sample::of(&done);
    sample.counters.extend([
        (HITS, done.per_op(hits)),
        (MADE, done.per_op(made)),
        (HITS_A_BUFFER, hits / made),
    ]);
    sample
}

/// Returns the allocator's share of the instructions of a removal, in percent, with one thread.
pub(super) fn allocator_share(workload: &str) -> Result<f64> {
    let args = [REPEAT, workload, Side::Extern4.name(), &COUNTED.to_string()];
    let functions = callgrind::functions(&args, &format!("*{}*", load::COUNTED))?;
    let all: f64 = functions.values().sum();
    let allocates = |name: &str| {
        ["malloc", "free", "calloc", "realloc", "unlink_chunk"]
            .iter()
            .any(|part| name.contains(part))
            || name.contains("GlobalAlloc")
            || name.contains("__rust_")
    };
    let allocator: f64 = functions
        .iter()
        .filter(|(name, _)| allocates(name))
        .map(|(_, cost)| cost)
        .sum();
    Ok(100.0 * allocator / all)
}
