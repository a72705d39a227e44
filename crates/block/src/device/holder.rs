//! Finds the processes that have a file open or locked, for messages to users.
//!
//! `FileDevice` calls it after another program's lock was in the way, and a program that waits for
//! a lock asks for its holders. The answer is a hint: it comes from `/proc`, and may be out of date
//! or not known at all.

use std::fs::{File, Metadata, metadata, read, read_dir, read_to_string};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, major, makedev, minor, statx};

/// Returns `process 123 (name)`, `this process`, or `another program` where that is not known.
pub(super) fn of(file: &File) -> String {
    let found = file.metadata().ok();
    let pid = found.and_then(|found| locker(&found).or_else(|| opener(&found)));
    let Some(pid) = pid else {
        return "another program".to_owned();
    };
    if pid == std::process::id() {
        return "this process".to_owned();
    }
    match read(format!("/proc/{pid}/comm")) {
        Ok(name) => format!(
            "process {pid} ({})",
            String::from_utf8_lossy(name.trim_ascii_end())
        ),
        Err(_) => format!("process {pid}"),
    }
}

/// Returns the processes that have a file locked as a whole, as far as proc_locks(5) knows them.
pub fn lock_holders(file: &Path) -> Vec<u32> {
    let Ok(found) = metadata(file) else {
        return Vec::new();
    };
    let id = lock_id(&found);
    let pid = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, locked, ..] = fields[..] else {
            return None;
        };
        (locked == id).then(|| pid.parse().ok()).flatten()
    };
    let table = read_to_string("/proc/locks").unwrap_or_default();
    table.lines().filter_map(pid).collect()
}

/// Returns the file as proc_locks(5) names it.
fn lock_id(found: &Metadata) -> String {
    let major = major(found.dev());
    let minor = minor(found.dev());
    format!("{major:02x}:{minor:02x}:{}", found.ino())
}

/// Finds the process that holds a lock of the file, by proc_locks(5). Locks of open file
/// descriptions belong to no process, so they do not help here.
fn locker(found: &Metadata) -> Option<u32> {
    let id = lock_id(found);
    read_to_string("/proc/locks")
        .ok()?
        .lines()
        .find_map(|line| {
            let mut words = line
                .split_whitespace()
                .skip_while(|word| *word != "READ" && *word != "WRITE")
                .skip(1);
            let pid: u32 = words.next()?.parse().ok()?;
            (words.next()? == id).then_some(pid)
        })
}

/// Finds another process that has the file open.
fn opener(found: &Metadata) -> Option<u32> {
    let processes = read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| *pid != std::process::id() && has_open(*pid, found))
}

fn has_open(pid: u32, found: &Metadata) -> bool {
    let Ok(files) = read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else {
        return false;
    };
    files.flatten().any(|file| {
        // A file system answers at once if nothing but the inode number is asked for.
        let other = statx(CWD, file.path(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
        other.is_ok_and(|other| {
            other.stx_ino == found.ino()
                && makedev(other.stx_dev_major, other.stx_dev_minor) == found.dev()
        })
    })
}
