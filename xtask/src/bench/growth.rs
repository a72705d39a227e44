//! The growth of costs with the size of a volume: `xtask growth [MOST]`.
//!
//! Trees of 1,000 to 4,000,000 files, directories of up to 10,000,000 names, and volumes of up to
//! 64 TiB. From 100,000 files or names on, no figure of ours may be worse than 1.3 times the figure
//! of the size before; only the first size that exceeds the memory of the caches may. Smaller sizes
//! fit into caches of the processor, so their steps stand next to the kernel's. `MOST` leaves out
//! larger trees and directories, and with it all huge volumes but the smallest.
//!
//! Times are CPU time of all threads, with the daemon's. The kernel's threads that read a loop
//! device or commit its journal are not counted.

mod directory;
mod generated;
mod huge;
mod series;

use std::path::Path;

use extern4_measure::json;
use extern4_measure::machine::Machine;
use extern4_measure::table::{Table, figure, maybe};

use super::image::{Mount, Rival};
use super::paths::Order;
use super::visit::{Caches, Side, Visited};
use super::write::{Mounted, remove};
use super::{Bench, Result};
pub(super) use directory::names;
pub(super) use generated::Generated;
use series::{Point, Series};

const FILES: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 4_000_000];
const NAMES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const TEBIBYTES: [u64; 3] = [1, 16, 64];

/// Trees up to this size are measured several times, for the middle figure.
const QUICK: u64 = 100_000;
const RUNS: usize = 3;

/// A table: its sizes by name, and the figures.
type Part = (&'static str, Vec<Series>);

/// Measures everything up to a size; true if no step is too large.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let most = match args {
        [] => u64::MAX,
        [most] => most
            .parse()
            .map_err(|_| format!("{most} is no number of files"))?,
        _ => return Err("growth takes the most files".to_owned()),
    };
    let bench = Bench::new(root)?;
    let upto = |sizes: &[u64]| {
        sizes
            .iter()
            .copied()
            .filter(|size| *size <= most)
            .collect::<Vec<_>>()
    };
    let huge = if most == u64::MAX {
        &TEBIBYTES[..]
    } else {
        &TEBIBYTES[..1]
    };
    let parts: [Part; 3] = [
        ("files", shown("files", trees(&bench, &upto(&FILES))?)),
        (
            "names",
            shown("names", directory::measure(&bench, &upto(&NAMES))?),
        ),
        ("TiB", shown("TiB", huge::measure(&bench, huge)?)),
    ];
    write(&bench.folder.join("growth.json"), &parts)?;
    let mut met = true;
    for (dimension, series) in &parts[..2] {
        met &= judge(dimension, series);
    }
    Ok(met)
}

/// Trees of many files, by the library, through a mount of ours, and by the kernel's mount.
fn trees(bench: &Bench, sizes: &[u64]) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for work in ["stat, cold", "stat at random, warm"] {
        for side in ["library", "mount", "kernel"] {
            all.push(Series {
                work,
                side,
                unit: "ns",
                points: Vec::new(),
            });
        }
    }
    all.push(Series {
        work: "memory of a path",
        side: "library",
        unit: "bytes",
        points: Vec::new(),
    });
    for &files in sizes {
        let [image, list] = ["growth.img", "growth.paths"].map(|name| bench.folder.join(name));
        let measured =
            Generated::build(files, &image, &list).and_then(|()| tree(bench, &image, &list, files));
        remove([image, list])?;
        let (figures, exceeds_memory) = measured?;
        for (series, figure) in all.iter_mut().zip(figures) {
            series.points.push(Point {
                size: files,
                figure,
                exceeds_memory,
            });
        }
    }
    Ok(all)
}

/// The figures of one tree, in the order of the series, and whether it exceeds the memory of the
/// caches.
fn tree(bench: &Bench, image: &Path, list: &Path, files: u64) -> Result<([f64; 7], bool)> {
    let mut runs = Vec::new();
    let mut exceeds = false;
    for _ in 0..if files <= QUICK { RUNS } else { 1 } {
        let mut figures = [0.0; 7];
        for (at, (order, caches)) in [(Order::Tree, Caches::Cold), (Order::Shuffled, Caches::Warm)]
            .into_iter()
            .enumerate()
        {
            let ours = Visited::of(Side::Library(image), list, order, caches)?;
            exceeds |= ours.inodes < ours.found;
            let sides = [ours.nanos, by_mount(bench, image, list, order, caches)?, {
                let mount = Mount::new(Rival::Kernel, image, &bench.folder.join("mnt"))?;
                Visited::of(Side::System(mount.path()), list, order, caches)?.nanos
            }];
            figures[at * 3..][..3].copy_from_slice(&sides);
        }
        runs.push(figures);
    }
    let counted = Visited::of(Side::Library(image), list, Order::Tree, Caches::Counted)?;
    let middle = |at: usize| {
        let mut of_all: Vec<f64> = runs.iter().map(|figures| figures[at]).collect();
        of_all.sort_by(f64::total_cmp);
        of_all[of_all.len() / 2]
    };
    let mut figures = std::array::from_fn(middle);
    figures[6] = (counted.cached - counted.blocks) / counted.inodes;
    Ok((figures, exceeds))
}

fn by_mount(bench: &Bench, image: &Path, list: &Path, order: Order, caches: Caches) -> Result<f64> {
    let mounted = Mounted::by_us(
        &bench.extern4()?,
        "ro,allow_other",
        image,
        &bench.folder.join("mnt"),
    )?;
    let side = Side::Served(&mounted.path, mounted.server_id()?);
    let nanos = Visited::of(side, list, order, caches)?.nanos;
    mounted.end()?;
    Ok(nanos)
}

/// Prints a table, as soon as it is measured.
fn shown(dimension: &str, all: Vec<Series>) -> Vec<Series> {
    let Some(sizes) = all
        .first()
        .map(|series| series.points.iter().map(|point| point.size))
    else {
        return all;
    };
    let sizes: Vec<u64> = sizes.collect();
    let titles = ["work", "side", "unit"].map(str::to_owned).into_iter();
    let mut table = Table::new(
        3,
        titles.chain(sizes.iter().map(|size| format!("{size} {dimension}"))),
    );
    for series in &all {
        let figures = sizes.iter().map(|size| maybe(series.at(*size)));
        table.line(
            [series.work, series.side, series.unit]
                .map(str::to_owned)
                .into_iter()
                .chain(figures),
        );
    }
    println!("{}", table.text());
    all
}

/// Prints the steps, and returns whether none of them is too large.
fn judge(dimension: &str, all: &[Series]) -> bool {
    let mut all_met = true;
    for series in all {
        let kernel = all
            .iter()
            .find(|other| other.side == "kernel" && other.work == series.work);
        let kernel = kernel.map(Series::steps).unwrap_or_default();
        for (at, step) in series
            .steps()
            .iter()
            .enumerate()
            .filter(|_| series.side != "kernel")
        {
            let beside = kernel.get(at).map_or(String::new(), |step| {
                format!(", the kernel's {}x", figure(step.times))
            });
            let word = match step.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "not judged",
            };
            println!(
                "{}, {}: {} {dimension} take {}x{beside}: {word}",
                series.work,
                series.side,
                step.size,
                figure(step.times)
            );
            all_met &= step.met != Some(false);
        }
    }
    all_met
}

fn write(path: &Path, parts: &[Part]) -> Result<()> {
    let text = json::line(|object| {
        object.object("machine", |item| Machine::this().write(item));
        for (dimension, series) in parts {
            object.objects(dimension, series, |series, item| series.write(item));
        }
    });
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
