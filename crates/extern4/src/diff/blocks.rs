//! The blocks in which two copies of one volume differ.
//!
//! Reading both images from start to end, and only where one of them has data, takes less time than
//! reading their files one by one. Then a piece of a file that both volumes have in the same blocks
//! needs no reading, if these blocks did not change. Nor does a part that the images share on their
//! file system.
//!
//! `compare` calls it for two volumes. If the answer says that bytes are equal, they are. Bytes
//! that may have changed are compared as contents.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Both;
use super::shared_extents::SharedExtents;
use super::threads::each_item;
use crate::volume::Volume;

/// The unit of the comparison. Blocks of a volume may be smaller or larger.
const UNIT_BYTES: usize = 4096;
/// Bytes that a thread reads at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that a thread takes at a time.
const SHARE_BYTES: u64 = 16 << 20;

/// The byte ranges in which two volumes differ, sorted, none next to another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedBlocks(Vec<Range<u64>>);

/// A volume in a file of the host.
struct Raw {
    file: File,
    start: u64,
}

impl ChangedBlocks {
    /// Compares two volumes. `None` if neither can be a copy of the other, or if their images do
    /// not have the current contents in place.
    pub(super) fn find(volumes: Both<&Volume>, threads: usize) -> Option<Self> {
        let Both { old, new } = volumes;
        let len = |bytes: Range<u64>| bytes.end - bytes.start;
        let sizes = Both {
            old: len(old.bytes()?),
            new: len(new.bytes()?),
        };
        if old.uuid() != new.uuid() || sizes.old != sizes.new {
            return None;
        }
        let raw = Both {
            old: Raw::of(old)?,
            new: Raw::of(new)?,
        };
        // A file that cannot be read that way is read in another, which reports the error.
        Self::of(raw.as_ref(), sizes.old, threads).ok()
    }

    fn of(raw: Both<&Raw>, len: u64, threads: usize) -> io::Result<Self> {
        let starts = raw.map(|raw| raw.start);
        let files = raw.map(|raw| &raw.file);
        let found = Both {
            old: files.old.metadata()?,
            new: files.new.metadata()?,
        };
        let place = found.map(|found| (found.dev(), found.ino()));
        if place.old == place.new && starts.old == starts.new {
            return Ok(Self::default());
        }
        // A file system that has no extents to show shares none.
        let shared = SharedExtents::find(files, starts, UNIT_BYTES as u64).unwrap_or_default();
        let start = || {
            (
                Vec::new(),
                Both {
                    old: vec![0; CHUNK_BYTES],
                    new: vec![0; CHUNK_BYTES],
                },
            )
        };
        let shares = len.div_ceil(SHARE_BYTES) as usize;
        let found = each_item(threads, shares, start, |(found, buffers), share| {
            let start = share as u64 * SHARE_BYTES;
            let share = start..(start + SHARE_BYTES).min(len);
            compare(files, starts, &shared, share, buffers, found)
        })?;
        let found: Vec<_> = found.into_iter().map(|(found, _)| found).collect();
        Ok(Self::merged(found.concat()))
    }

    fn merged(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        ranges.into_iter().for_each(|range| add(&mut merged, range));
        Self(merged)
    }

    /// Returns whether one of `len` bytes from `start` on may have changed.
    pub(super) fn touch(&self, start: u64, len: u64) -> bool {
        let next = self.0.partition_point(|range| range.end <= start);
        self.0
            .get(next)
            .is_some_and(|range| range.start < start.saturating_add(len))
    }

    /// Returns whether both volumes have the same bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Raw {
    /// Opens the image of a volume. `None` if it is no regular file with the current contents in
    /// place.
    fn of(volume: &Volume) -> Option<Self> {
        let start = volume.image_offset()?;
        let path = volume.image_file()?;
        // The holes of a device are not known.
        if !path.metadata().is_ok_and(|found| found.is_file()) {
            return None;
        }
        Some(Self {
            file: File::open(path).ok()?,
            start,
        })
    }
}

/// Adds a range, which is not before the last one.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Compares a share of two volumes, which begin at `starts` of their files.
fn compare(
    files: Both<&File>,
    starts: Both<u64>,
    shared: &SharedExtents,
    share: Range<u64>,
    buffers: &mut Both<Vec<u8>>,
    found: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let mut at = share.start;
    loop {
        at = shared.skip(at);
        let old = data(files.old, starts.old, at)?;
        let next = old.min(data(files.new, starts.new, at)?);
        // Both are compared from a unit's start on.
        at = next.max(at) / UNIT_BYTES as u64 * UNIT_BYTES as u64;
        if at >= share.end {
            return Ok(());
        }
        if shared.skip(at) > at {
            continue;
        }
        let left = share.end.min(shared.next(at)) - at;
        let part = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let old = &mut buffers.old[..part];
        let new = &mut buffers.new[..part];
        fill(files.old, old, starts.old + at)?;
        fill(files.new, new, starts.new + at)?;
        if old != new {
            for (index, (old, new)) in old
                .chunks(UNIT_BYTES)
                .zip(new.chunks(UNIT_BYTES))
                .enumerate()
            {
                if old != new {
                    let start = at + (index * UNIT_BYTES) as u64;
                    add(found, start..start + old.len() as u64);
                }
            }
        }
        at += part as u64;
    }
}

/// Returns the first position from `at` on at which a volume has data; one past its end if there is
/// none.
fn data(file: &File, start: u64, at: u64) -> io::Result<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(start + at)) {
        Ok(found) => Ok(found.saturating_sub(start)),
        Err(Errno::NXIO) => Ok(u64::MAX),
        // The file system does not know holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(at),
        Err(error) => Err(error.into()),
    }
}

/// Fills a buffer. Bytes past the end of the file are zeroes.
fn fill(file: &File, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.read_at(buf, at) {
            Ok(0) => {
                buf.fill(0);
                return Ok(());
            }
            Ok(read) => {
                buf = &mut buf[read..];
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Both, ChangedBlocks, Raw};
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn differing_blocks_are_found_behind_holes_and_at_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name| dir.path().join(name);
        let file = |name, start: u64, writes: &[(u64, u8)]| {
            let file = File::create(path(name)).expect("a file");
            file.set_len(start + (40 << 20)).expect("a size");
            for (at, byte) in writes {
                file.write_all_at(&[*byte], start + at).expect("a write");
            }
        };
        file(
            "old",
            0,
            &[(5, 1), (1 << 20, 2), (16 << 20, 3), (30 << 20, 0)],
        );
        file(
            "new",
            512,
            &[
                (5, 1),
                (1 << 20, 7),
                (16 << 20, 4),
                ((40 << 20) - 1, 5),
                (9 << 20, 0),
            ],
        );
        let old = path("old");
        let new = path("new");
        for threads in [1, 3] {
            let raw = |path, start| Raw {
                file: File::open(path).expect("a file"),
                start,
            };
            let raw = Both {
                old: raw(&old, 0),
                new: raw(&new, 512),
            };
            let found = ChangedBlocks::of(raw.as_ref(), 40 << 20, threads).expect("a comparison");
            let unit = |at: u64| at..at + 4096;
            assert_eq!(
                found.0,
                [unit(1 << 20), unit(16 << 20), unit((40 << 20) - 4096)]
            );
            assert!(
                found.touch(0, 2 << 20) && found.touch((1 << 20) + 4095, 1) && !found.is_empty()
            );
            assert!(!found.touch(0, 1 << 20) && !found.touch((1 << 20) + 4096, 4096));
        }
    }

    #[test]
    fn neighbours_become_one() {
        let found = ChangedBlocks::merged(vec![8..9, 4..6, 0..4]);
        assert_eq!(found, ChangedBlocks(vec![0..6, 8..9]));
    }
}
