//! A directory with many names: made, looked up, listed and removed, by the library and by the
//! kernel's mount of a volume of the same kind.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use extern4::{Session, Volume};
use extern4_measure::json;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use serde_json::Value;

use super::super::image::{Rival, must};
use super::super::paths::random;
use super::super::visit::{cpu_time, peak_mib};
use super::super::walk::output;
use super::super::write::{Mounted, make, open, remove};
use super::super::{Bench, Result};
use super::generated::name;
use super::series::{Point, Series};

/// The directory of the volume.
const DIRECTORY: &str = "/many";

/// The work for each name. The volume is opened again before each.
#[derive(Clone, Copy)]
enum Phase {
    Create,
    LookUp,
    List,
    Remove,
}

const PHASES: [(&str, &str, Phase); 4] = [
    ("create", "create a name", Phase::Create),
    ("look-up", "look a name up", Phase::LookUp),
    ("list", "list a name", Phase::List),
    ("remove", "remove a name", Phase::Remove),
];

/// Measures directories of these sizes.
pub(super) fn measure(bench: &Bench, sizes: &[u64]) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (_, work, _) in PHASES {
        for side in ["library", "kernel"] {
            all.push(Series {
                work,
                side,
                unit: "ns",
                points: Vec::new(),
            });
        }
        all.push(Series {
            work,
            side: "library, memory",
            unit: "MiB",
            points: Vec::new(),
        });
    }
    for &names in sizes {
        let [ours, theirs] = ["names.img", "names-rival.img"].map(|image| bench.folder.join(image));
        let made = [&ours, &theirs]
            .into_iter()
            .try_for_each(|image| make_volume(bench, image, names));
        let measured = made.and_then(|()| {
            PHASES
                .iter()
                .zip(all.chunks_mut(3))
                .try_for_each(|((phase, ..), series)| {
                    let (nanos, memory) = run("library", &ours, names, phase)?;
                    let mount = Mounted::new(Rival::Kernel, &theirs, &bench.folder.join("mnt"))?;
                    let (their_nanos, _) = run("system", &mount.path, names, phase)?;
                    mount.end()?;
                    for (series, figure) in series.iter_mut().zip([nanos, their_nanos, memory]) {
                        series.points.push(Point {
                            size: names,
                            figure,
                            exceeds_memory: false,
                        });
                    }
                    Ok(())
                })
        });
        remove([ours, theirs])?;
        measured?;
    }
    Ok(all)
}

fn make_volume(bench: &Bench, image: &Path, names: u64) -> Result<()> {
    // An inode takes 256 bytes, a name about 40. Two levels of a hash tree with blocks of 1 KiB
    // would be full at some 300,000 names.
    let mib = 64 + names * 400 / (1 << 20);
    let mut mkfs = Command::new(bench.extern4()?);
    mkfs.args([
        "mkfs",
        "-q",
        "-F",
        "-b",
        "4096",
        "-N",
        &(names + 1000).to_string(),
    ]);
    must(mkfs.arg(image).arg(format!("{mib}M")))
}

/// Nanoseconds of CPU time for a name, and the most memory of the process in MiB.
fn run(side: &str, place: &Path, names: u64, phase: &str) -> Result<(f64, f64)> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(this);
    command
        .args(["names", side])
        .arg(place)
        .args([&names.to_string(), phase]);
    let text = output(&mut command)?;
    let said: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
    let number = |key: &str| {
        said[key]
            .as_f64()
            .ok_or_else(|| format!("no {key} in {text}"))
    };
    Ok((number("nanos")?, number("peak_mib")?))
}

/// The hidden subcommand `names library|system PLACE NAMES PHASE`: does one thing with each name of
/// a large directory, and prints the cost.
pub(in crate::bench) fn names(args: &[String]) -> Result<()> {
    let [side, place, names, phase] = args else {
        return Err("names takes a side, a place, a number and a phase".to_owned());
    };
    let names = names.parse().map_err(|_| "how many names is a number")?;
    let known = PHASES.iter().find(|(name, ..)| name == phase);
    let (.., phase) = known.ok_or_else(|| format!("there is no phase {phase}"))?;
    let before = cpu_time()?;
    let done = match side.as_str() {
        "library" => by_us(Path::new(place), names, *phase)?,
        _ => by_kernel(Path::new(place), names, *phase)?,
    };
    let took = cpu_time()?.saturating_sub(before);
    if done != names {
        return Err(format!("{done} names of {names}"));
    }
    let peak = peak_mib()?;
    print!(
        "{}",
        json::line(|object| {
            object.number("nanos", took.as_nanos() as f64 / names as f64);
            object.number("peak_mib", peak);
        })
    );
    Ok(())
}

/// Returns the number of names for which it was done, when the volume is closed.
fn by_us(image: &Path, names: u64, phase: Phase) -> Result<u64> {
    let changes = matches!(phase, Phase::Create | Phase::Remove);
    let volume = if changes {
        open(image)?
    } else {
        Volume::open(image).map_err(|e| e.to_string())?
    };
    let root = volume.superuser();
    if matches!(phase, Phase::Create) {
        root.create_dir_all(DIRECTORY).map_err(|e| e.to_string())?;
    }
    let directory = root.at(DIRECTORY).map_err(|e| e.to_string())?;
    let done = phase_by_us(&directory, names, phase).map_err(|e| e.to_string())?;
    drop((root, directory));
    volume.close().map_err(|e| e.to_string())?;
    Ok(done)
}

fn phase_by_us(directory: &Session, names: u64, phase: Phase) -> extern4::Result<u64> {
    let path = |name: &CStr| OsStr::from_bytes(name.to_bytes()).to_owned();
    match phase {
        Phase::Create => each(names, |name| make(directory, path(name)).map(drop)),
        Phase::LookUp => each(names, |name| {
            directory.symlink_metadata(path(name)).map(drop)
        }),
        Phase::List => {
            let mut listed = 0;
            for entry in directory.read_dir(".")? {
                entry?;
                listed += 1;
            }
            Ok(listed)
        }
        Phase::Remove => each(names, |name| directory.remove_file(path(name))),
    }
}

fn by_kernel(root: &Path, names: u64, phase: Phase) -> Result<u64> {
    let directory = root.join(&DIRECTORY[1..]);
    if matches!(phase, Phase::Create) {
        std::fs::create_dir(&directory).map_err(|e| e.to_string())?;
    }
    // Left before the mount ends: this process ends first.
    std::env::set_current_dir(&directory).map_err(|e| e.to_string())?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let done = match phase {
        Phase::Create => each(names, |name| {
            rustix::fs::open(name, flags, Mode::from(0o644)).map(drop)
        }),
        Phase::LookUp => each(names, |name| {
            rustix::fs::statx(
                CWD,
                name,
                AtFlags::SYMLINK_NOFOLLOW,
                StatxFlags::BASIC_STATS,
            )
            .map(drop)
        }),
        Phase::List => {
            return Ok(std::fs::read_dir(".").map_err(|e| e.to_string())?.count() as u64);
        }
        Phase::Remove => each(names, |name| rustix::fs::unlink(name)),
    };
    done.map_err(|e| e.to_string())
}

/// Calls `work` with each name, in an order that is neither that of the numbers nor that of the
/// directory. Returns their number.
fn each<E>(
    names: u64,
    work: impl Fn(&CStr) -> std::result::Result<(), E>,
) -> std::result::Result<u64, E> {
    let mut order: Vec<u32> = (0..u32::try_from(names).unwrap_or(u32::MAX)).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for at in (1..order.len()).rev() {
        // OK: a place in a vector.
        order.swap(at, (random(&mut state) % (at as u64 + 1)) as usize);
    }
    order
        .iter()
        .try_for_each(|number| work(&name(u64::from(*number))))?;
    Ok(order.len() as u64)
}
