//! The memory that the process may use, as the system tells it.

use std::fs;
use std::path::Path;

/// Where the system tells nothing.
const DEFAULT_BYTES: u64 = 1 << 30;

/// Returns the bytes of memory of the machine, or of the control groups of the process if those are
/// fewer.
pub(super) fn limit() -> u64 {
    let limits = read("/proc/self/cgroup")
        .lines()
        .flat_map(group_files)
        .collect::<Vec<_>>();
    let limits = limits
        .iter()
        .filter_map(|file| read(file).trim().parse().ok());
    limits
        .chain(total(&read("/proc/meminfo")))
        .min()
        .unwrap_or(DEFAULT_BYTES)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the bytes of the machine, from `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// Returns the files with the limits of a control group and of the groups above it, whose limits it
/// obeys, too. A line of `/proc/self/cgroup` is `0::/PATH` in version 2, and
/// `5:memory:/PATH` in version 1.
fn group_files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let groups = Path::new(path)
        .ancestors()
        .map(|group| group.to_string_lossy());
    groups
        .map(|group| format!("{root}{}/{file}", group.trim_end_matches('/')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(
            total("MemTotal:       24605204 kB\nMemFree: 1 kB\n"),
            Some(24_605_204 << 10)
        );
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(limit() > 1 << 20);
    }

    #[test]
    fn a_group_obeys_the_groups_above_it() {
        let files = [
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(group_files("0::/a/b"), files);
        let files = [
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(group_files("9:memory:/a"), files);
        assert!(group_files("8:pids:/a").is_empty() && group_files("").is_empty());
    }
}
