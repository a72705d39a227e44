//! The parts that two images share on their file system, as copies by reflink do.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

use fiemap::{Fiemap, FiemapExtent, FiemapExtentFlags, FiemapFlags};

use super::Both;

/// Extents whose place does not tell which bytes are in them.
const VAGUE: FiemapExtentFlags = FiemapExtentFlags::UNKNOWN
    .union(FiemapExtentFlags::ENCODED)
    .union(FiemapExtentFlags::NOT_ALIGNED);

/// The byte ranges of two volumes that are in the same blocks of the file system, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SharedExtents(Vec<Range<u64>>);

impl SharedExtents {
    /// Finds them, for volumes that begin at `starts` of their files. Whole units of `unit` bytes
    /// count.
    pub(super) fn find(files: Both<&File>, starts: Both<u64>, unit: u64) -> io::Result<Self> {
        if files.old.metadata()?.dev() != files.new.metadata()?.dev() {
            return Ok(Self::default());
        }
        let old = shared(files.old, starts.old)?;
        let new = shared(files.new, starts.new)?;
        let mut old = old.iter().peekable();
        let mut new = new.iter().peekable();
        let mut ranges = Vec::new();
        while let (Some(one), Some(other)) = (old.peek(), new.peek()) {
            let start = one.start.max(other.start);
            let end = one.end.min(other.end);
            let units = start.next_multiple_of(unit)..end / unit * unit;
            if one.base == other.base && !units.is_empty() {
                ranges.push(units);
            }
            if one.end <= other.end {
                old.next()
            } else {
                new.next()
            };
        }
        Ok(Self(ranges))
    }

    /// Returns the end of the range that `at` is in, or `at` itself.
    pub(super) fn skip(&self, at: u64) -> u64 {
        let next = self.0.partition_point(|range| range.end <= at);
        self.0
            .get(next)
            .filter(|range| range.start <= at)
            .map_or(at, |range| range.end)
    }

    /// Returns the start of the first range behind `at`.
    pub(super) fn next(&self, at: u64) -> u64 {
        let next = self.0.partition_point(|range| range.start <= at);
        self.0.get(next).map_or(u64::MAX, |range| range.start)
    }
}

/// A part of a volume that other files have as well.
struct HostExtent {
    start: u64,
    end: u64,
    /// Its place on the file system less that in the volume, modulo 2^64.
    base: u64,
}

/// Finds the parts of a volume, which begins at `start` of its file, that other files have as well.
fn shared(file: &File, start: u64) -> io::Result<Vec<HostExtent>> {
    let mut parts = Vec::new();
    // The file system has to store what is only in the page cache, which gets other blocks then.
    for extent in Fiemap::with_flags(file, FiemapFlags::SYNC) {
        let FiemapExtent {
            fe_logical,
            fe_physical,
            fe_length,
            fe_flags,
            ..
        } = extent?;
        let end = fe_logical.saturating_add(fe_length);
        if !fe_flags.contains(FiemapExtentFlags::SHARED)
            || fe_flags.intersects(VAGUE)
            || end <= start
        {
            continue;
        }
        let base = fe_physical.wrapping_sub(fe_logical).wrapping_add(start);
        parts.push(HostExtent {
            start: fe_logical.saturating_sub(start),
            end: end - start,
            base,
        });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use extern4_testkit::image::Image;
    use extern4_testkit::tools::{self, Need};

    use super::super::Both;
    use super::SharedExtents;

    #[test]
    fn a_changed_block_of_a_copy_is_not_shared() {
        if !tools::can_run(&[Need::Mount, Need::Tool("mkfs.xfs")]) {
            return;
        }
        let host = Image::in_directory(tools::temporary("extern4-host-"), "host.img");
        File::create(&host.path)
            .and_then(|file| file.set_len(512 << 20))
            .expect("an image file");
        tools::run(
            "mkfs.xfs",
            [
                "-q",
                "-m",
                "reflink=1",
                host.path.to_str().expect("a name in UTF-8"),
            ],
        );
        let Ok(mount) = host.try_mount_as("xfs", "noatime") else {
            return;
        };
        let old = mount.path.join("old");
        let new = mount.path.join("new");
        std::fs::write(&old, vec![7; 8 << 20]).expect("a file");
        tools::run(
            "cp",
            [
                "--reflink=always".as_ref(),
                old.as_os_str(),
                new.as_os_str(),
            ],
        );
        let find = |starts| {
            let files = Both {
                old: File::open(&old).expect("a file"),
                new: File::open(&new).expect("a file"),
            };
            SharedExtents::find(files.as_ref(), starts, 4096).expect("extents")
        };
        let all = find(Both { old: 0, new: 0 });
        assert_eq!(
            (all.skip(0), all.skip(4096), all.next(0)),
            (8 << 20, 8 << 20, u64::MAX)
        );
        // The change is in the page cache.
        File::options()
            .write(true)
            .open(&new)
            .expect("a file")
            .write_all_at(b"x", 5_000)
            .expect("a write");
        let found = find(Both { old: 0, new: 0 });
        assert_eq!(
            (found.skip(0), found.skip(4096), found.skip(8192)),
            (4096, 4096, 8 << 20)
        );
        assert_eq!((found.next(0), found.next(4096)), (8192, 8192));
        // Volumes that begin at different places, of which one is no unit's.
        assert_eq!(find(Both { old: 0, new: 4096 }), SharedExtents::default());
        let found = find(Both {
            old: 1024,
            new: 1024,
        });
        assert_eq!(
            (found.skip(0), found.skip(3072), found.next(0)),
            (0, 3072, 8192)
        );
        assert_eq!(found.skip(8192), (8 << 20) - 4096);
        mount.unmount();
    }
}
