//! The processes that have files of a mount open, as the kernel knows them.
//!
//! The process that serves the mount cannot tell. The kernel opens files alone, and they pass from
//! process to process without a word to the server. So this module searches `/proc` for open files
//! with the device number of the mount. A user sees only the user's own processes, and root sees
//! all.
//!
//! `stats` and `top` list them. A process that ends meanwhile is left out.

use std::path::Path;

use super::mounts::{Device, device_of};

/// A process that has files open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The number of the process.
    pub pid: u32,
    /// The name of its command.
    pub command: String,
    /// How many files and directories it has open.
    pub open_files: u64,
}

/// Returns every process that has files open, those with most of them first.
pub fn holders(device: Device) -> Vec<Holder> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut holders: Vec<_> = pids.filter_map(|pid| holder(pid, device)).collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.open_files), holder.pid));
    holders
}

/// Returns the process `pid`, or `None` if it has nothing open there, may not be looked at or has
/// ended.
fn holder(pid: u32, device: Device) -> Option<Holder> {
    let process = Path::new("/proc").join(pid.to_string());
    let files = std::fs::read_dir(process.join("fd")).ok()?.flatten();
    let there = files.filter(|file| device_of(&file.path()).is_ok_and(|found| found == device));
    let open_files = u64::try_from(there.count())
        .ok()
        .filter(|count| *count > 0)?;
    let command = std::fs::read(process.join("comm")).ok()?;
    let command = String::from_utf8_lossy(command.trim_ascii_end()).into_owned();
    Some(Holder {
        pid,
        command,
        open_files,
    })
}

/// Returns how many files these processes have open. A file that several of them share counts once
/// for each.
pub fn total(holders: &[Holder]) -> u64 {
    holders.iter().map(|holder| holder.open_files).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn this_process_holds_what_it_has_open() {
        let count = || {
            let device = device_of(Path::new("/proc")).expect("a device");
            let holders = holders(device);
            let own = holders
                .iter()
                .find(|holder| holder.pid == std::process::id());
            assert!(
                own.is_none_or(|own| total(&holders) >= own.open_files && !own.command.is_empty())
            );
            own.map_or(0, |own| own.open_files)
        };
        let files: Vec<_> = (0..50)
            .map(|_| File::open("/proc/self/stat").expect("a file"))
            .collect();
        assert!(count() >= 50);
        drop(files);
        assert!(count() < 50);
    }
}
