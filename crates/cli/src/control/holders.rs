//! Which processes have files of a mount open, as the system knows it.
//!
//! Who serves the mount cannot tell: the kernel opens files alone, hands them on from process to process, and says nothing of that. So
//! `/proc` is looked through for open files whose device number is that of the mount. A user sees his own processes, and
//! root all.

use std::path::Path;

use super::mounts::{Device, device_of};
use crate::json::Object;

/// A process that has files open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its number.
    pub(crate) pid: u32,
    /// What it runs.
    pub(crate) command: String,
    /// How many files and directories it has open.
    pub(crate) open_files: u64,
}

/// Every process that has files open, those with most of them first.
pub(crate) fn holders(device: Device) -> Vec<Holder> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut holders: Vec<_> = pids.filter_map(|pid| holder(pid, device)).collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.open_files), holder.pid));
    holders
}

/// `None` for a process that has nothing open there, may not be looked at or has ended.
fn holder(pid: u32, device: Device) -> Option<Holder> {
    let process = Path::new("/proc").join(pid.to_string());
    let files = std::fs::read_dir(process.join("fd")).ok()?.flatten();
    let there = files.filter(|file| device_of(&file.path()).is_ok_and(|found| found == device));
    let open_files = u64::try_from(there.count()).ok().filter(|count| *count > 0)?;
    let command = std::fs::read(process.join("comm")).ok()?;
    let command = String::from_utf8_lossy(command.trim_ascii_end()).into_owned();
    Some(Holder { pid, command, open_files })
}

/// All files that these have open. Processes that share one count each for itself.
pub(crate) fn total(holders: &[Holder]) -> u64 {
    holders.iter().map(|holder| holder.open_files).sum()
}

/// Members of an object.
pub(crate) fn write(holders: &[Holder], object: &mut Object<'_>) {
    object.raw("open_files", total(holders));
    object.objects("processes", holders, |holder, item| {
        item.raw("pid", holder.pid);
        item.text("command", &holder.command);
        item.raw("open_files", holder.open_files);
    });
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
            let own = holders.iter().find(|holder| holder.pid == std::process::id());
            assert!(own.is_none_or(|own| total(&holders) >= own.open_files && !own.command.is_empty()));
            own.map_or(0, |own| own.open_files)
        };
        let files: Vec<_> = (0..50).map(|_| File::open("/proc/self/stat").expect("a file")).collect();
        assert!(count() >= 50);
        drop(files);
        assert!(count() < 50);
    }
}
