//! The load of the patch: threads create files and remove them, on ext4 in memory, through all
//! layers of production.
//!
//! `buffer_cache` measures it on extern4 only, since the other sides have no file system. It shows
//! how many hits a created file costs, and the allocator's share.

use std::sync::Arc;
use std::time::Duration;

use extern4::{Atime, File, Session, Volume};
use extern4_block::MemoryDevice;
use extern4_measure::{callgrind, load};
use extern4_testkit::image::ImageSpec;

use crate::Result;
use crate::instructions::REPEAT;
use crate::plan::{Plan, Side};
use crate::row::Sample;

/// Files made and removed between two checks of whether the time is up.
const BATCH: u64 = 16;
/// The number of names that a thread uses in turn.
const NAMES: u64 = 64;
/// Batches of a run under callgrind.
const COUNTED: u64 = 200;

/// Names of counters.
pub(super) const HITS: &str = "hits/file";
pub(super) const MADE: &str = "buffers made/file";
pub(super) const HITS_A_BUFFER: &str = "hits for a buffer made";

/// Creates an empty volume. Returns `None` if there is no mke2fs to make it.
pub(super) fn volume() -> Option<Volume> {
    let spec = ImageSpec::new("unlink", 256 << 20, &["-t", "ext4", "-b", "4096", "-J", "size=64"]);
    if !spec.can_build() {
        return None;
    }
    let bytes = std::fs::read(&spec.build().path).expect("an image that has just been made");
    let mut options = Volume::options();
    options.write(true).atime(Atime::Never).commit_interval(Duration::from_millis(200));
    Some(options.open_device(Arc::new(MemoryDevice::new(bytes))).expect("a new volume"))
}

/// Runs one repetition: each thread creates empty files in a directory of its own, and removes
/// each.
pub(super) fn take(volume: &Volume, plan: &Plan, threads: usize) -> Sample {
    let begin = |thread: usize| {
        let root = volume.superuser();
        let own = format!("own{thread}");
        if !root.exists(&own).expect("it can be read") {
            root.create_dir(&own).expect("a new name");
        }
        (root.at(&own).expect("it is there"), 0)
    };
    let batch = |(dir, next): &mut (Session, u64)| {
        for _ in 0..BATCH {
            let name = format!("f{}", *next % NAMES);
            let made = dir.open_with(&name, File::options().write(true).create_new(true));
            drop(made.expect("there is room"));
            dir.remove_file(&name).expect("it is there");
            *next += 1;
        }
        BATCH
    };
    let before = volume.stats().blocks;
    let done = plan.work(1, threads, begin, batch);
    let after = volume.stats().blocks;
    let files = (done.ops + threads as u64 * BATCH) as f64;
    let (hits, made) = ((after.hits - before.hits) as f64, (after.allocations - before.allocations) as f64);
    let mut sample = Sample::of(&done);
    sample.counters.extend([(HITS, hits / files), (MADE, made / files)]);
    // Without new buffers there is no such figure.
    sample.counters.extend((made > 0.0).then_some((HITS_A_BUFFER, hits / made)));
    sample
}

/// Returns the allocator's share of the instructions of such a file, in percent, with one thread.
pub(super) fn allocator_share(workload: &str) -> Result<f64> {
    let args = [REPEAT, workload, Side::Extern4.name(), &COUNTED.to_string()];
    let functions = callgrind::functions(&args, &format!("*{}*", load::COUNTED))?;
    let all: f64 = functions.values().sum();
    let allocates = |name: &str| {
        ["malloc", "free", "calloc", "realloc", "unlink_chunk"].iter().any(|part| name.contains(part))
            || name.contains("GlobalAlloc")
            || name.contains("__rust_")
    };
    let allocator: f64 = functions.iter().filter(|(name, _)| allocates(name)).map(|(_, cost)| cost).sum();
    Ok(100.0 * allocator / all)
}
