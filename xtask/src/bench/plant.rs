//! A process that makes all paths of a tree and removes them, by the library or by system calls.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::Result;
use super::paths;
use super::visit::cpu_time;
use super::walk::output;
use super::write::{make, open};

/// Nanoseconds of CPU time for a path, by a separate process.
pub(super) fn run(side: &str, place: &Path, list: &Path) -> Result<f64> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let text = output(Command::new(this).args(["plant", side]).args([place, list]))?;
    text.trim()
        .parse()
        .map_err(|_| format!("plant says {text:?}"))
}

/// The hidden subcommand `plant library|system PLACE LIST`: makes directories and empty files, and
/// removes them in the opposite order. Prints the nanoseconds for a path.
pub(super) fn plant(args: &[String]) -> Result<()> {
    let [side, place, list] = args else {
        return Err("plant takes a side, a place and a list of paths".to_owned());
    };
    let paths = paths::read(Path::new(list))?;
    let parents: HashSet<&Path> = paths
        .iter()
        .filter_map(|path| shown(path).parent())
        .collect();
    // A path is a directory if others are below it.
    let paths: Vec<(&CString, bool)> = paths
        .iter()
        .map(|path| (path, parents.contains(shown(path))))
        .collect();
    let before = cpu_time()?;
    match side.as_str() {
        "library" => by_us(Path::new(place), &paths)?,
        _ => by_kernel(Path::new(place), &paths).map_err(|e| e.to_string())?,
    }
    let took = cpu_time()?.saturating_sub(before);
    println!("{}", took.as_nanos() as f64 / paths.len() as f64);
    Ok(())
}

fn shown(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

fn by_us(image: &Path, paths: &[(&CString, bool)]) -> Result<()> {
    let volume = open(image)?;
    let session = volume.superuser();
    let planted = paths.iter().try_for_each(|(path, is_directory)| {
        if *is_directory {
            session.create_dir(shown(path))
        } else {
            make(&session, shown(path)).map(drop)
        }
    });
    planted.map_err(|e| e.to_string())?;
    let removed = paths.iter().rev().try_for_each(|(path, is_directory)| {
        if *is_directory {
            session.remove_dir(shown(path))
        } else {
            session.remove_file(shown(path))
        }
    });
    removed.map_err(|e| e.to_string())?;
    drop(session);
    volume.close().map_err(|e| e.to_string())
}

fn by_kernel(root: &Path, paths: &[(&CString, bool)]) -> std::io::Result<()> {
    std::os::unix::fs::chroot(root)?;
    std::env::set_current_dir("/")?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    for (path, is_directory) in paths {
        if *is_directory {
            rustix::fs::mkdir(path.as_c_str(), Mode::from(0o755))?;
        } else {
            drop(rustix::fs::open(path.as_c_str(), flags, Mode::from(0o644))?);
        }
    }
    for (path, is_directory) in paths.iter().rev() {
        let flags = if *is_directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        rustix::fs::unlinkat(CWD, path.as_c_str(), flags)?;
    }
    Ok(())
}
