//! Sparse volumes of many TiB: made, opened, changed and checked.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::super::image::{device_reads_of_open, must};
use super::super::process::cpu_milliseconds;
use super::super::visit::cpu_time;
use super::super::write::{create_and_unlink, directory, names, open, remove};
use super::super::{Bench, Result};
use super::series::{Point, Series};

/// A file system in memory, where sparse files may be larger than on ext4.
const MEMORY: &str = "/dev/shm";
/// Files that are made and removed.
const PAIRS: usize = 10_000;

const WORKS: [(&str, &str); 7] = [
    ("mkfs, CPU time", "ms"),
    ("written by mkfs", "MiB"),
    ("open, CPU time", "ms"),
    ("device reads of an open", "count"),
    ("a file made and removed", "ns"),
    ("check, CPU time", "ms"),
    ("check, clock", "ms"),
];

/// Measures volumes of these sizes, in TiB. A size for which no file system has room is left out.
pub(super) fn measure(bench: &Bench, sizes: &[u64]) -> Result<Vec<Series>> {
    let series = |(work, unit)| Series {
        work,
        side: "library",
        unit,
        points: Vec::new(),
    };
    let mut all: Vec<Series> = WORKS.into_iter().map(series).collect();
    for &tib in sizes {
        let Some(image) = place(bench, tib) else {
            println!("a volume of {tib} TiB: skipped, for no file system here has such files");
            continue;
        };
        let figures = figures(bench, &image, tib);
        remove([image])?;
        for (series, figure) in all.iter_mut().zip(figures?) {
            series.points.push(Point {
                size: tib,
                figure,
                exceeds_memory: false,
            });
        }
    }
    Ok(all)
}

/// Where a file may be as large.
fn place(bench: &Bench, tib: u64) -> Option<PathBuf> {
    let fits = |folder: &Path| {
        let path = folder.join(format!("extern4-{}-{tib}tib.img", std::process::id()));
        let made = File::create(&path).and_then(|file| file.set_len(tib << 40));
        // It is made again by mkfs.
        let _ = fs::remove_file(&path);
        made.is_ok().then_some(path)
    };
    fits(&bench.folder).or_else(|| fits(Path::new(MEMORY)))
}

fn figures(bench: &Bench, image: &Path, tib: u64) -> Result<[f64; WORKS.len()]> {
    let mut mkfs = Command::new(bench.extern4()?);
    let made = cpu_milliseconds(mkfs.args(["mkfs", "-q"]).arg(image).arg(format!("{tib}T")))?;
    let blocks = fs::metadata(image).map_err(|e| e.to_string())?.blocks();
    let before = cpu_time()?;
    let volume = open(image)?;
    let opened = cpu_time()?.saturating_sub(before);
    let session = directory(&volume)?;
    let names = names();
    let before = cpu_time()?;
    names
        .iter()
        .cycle()
        .take(PAIRS)
        .try_for_each(|name| create_and_unlink(&session, name))?;
    let pairs = cpu_time()?.saturating_sub(before);
    drop(session);
    volume.close().map_err(|e| e.to_string())?;
    let reads = device_reads_of_open(image)?;
    let start = Instant::now();
    let checked = cpu_milliseconds(Command::new(bench.extern4()?).arg("check").arg(image))?;
    let took = start.elapsed();
    must(Command::new(bench.extern4()?).args(["ls", &format!("{}:/made", image.display())]))?;
    Ok([
        made,
        blocks as f64 * 512.0 / f64::from(1 << 20),
        opened.as_secs_f64() * 1e3,
        reads,
        pairs.as_nanos() as f64 / PAIRS as f64,
        checked,
        took.as_secs_f64() * 1e3,
    ])
}
