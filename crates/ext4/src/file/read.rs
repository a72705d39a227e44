//! Reads the contents of regular files.
//!
//! Data goes from the device straight into the caller's buffer, one device read for each run of
//! blocks. The buffer cache holds only the map, unless the file's contents go [through the
//! journal](crate::file::data_journal). Ranges that were never written read as zeroes. A read stops
//! at the end of the file, so fs-verity's data after it stays hidden.
//!
//! `ops` calls the functions for `read`, `splice` and `SEEK_HOLE`, which take a [`ReadableFile`]:
//! an inode whose key has been checked. The file system reads its own files by
//! [`read_contents`](InodeInfo::read_contents).

use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::{Lent, Span, SpanKind, Take};

use crate::error::Result;
use crate::file::data_journal::read_logged;
use crate::fs::Ext4;
use crate::fscrypt::ReadableFile;
use crate::inode::info::InodeInfo;
use crate::run::{Run, RunKind};

/// Reads up to `buf.len()` bytes at `offset` of a regular file; fewer only at its end.
pub(crate) fn read_file(
    fs: &Ext4,
    file: &ReadableFile<'_>,
    buf: &mut [u8],
    offset: u64,
) -> Result<usize> {
    file.read_contents(fs, buf, offset)
}

/// Lends `take` up to `len` bytes at `offset` of a regular file, as ranges of a host file. Returns
/// false if `take` refuses them, if the device is not a host file, or if newer contents may be in
/// the journal. The map stays locked until `take` returns, so the file keeps the blocks.
pub(crate) fn lend_file(
    fs: &Ext4,
    inode: &ReadableFile<'_>,
    offset: u64,
    len: usize,
    take: &mut Take<'_>,
) -> Result<bool> {
    if inode.is_inline() || inode.journals_contents(fs) {
        return Ok(false);
    }
    let left = inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(len);
    let bits = fs.superblock().geometry().block_bits();
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let run = inode.run_at(fs, at)?;
        // At least one byte, as in `read_contents`.
        let left = (run.end() << bits) - at;
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(len - done);
        pieces.push(match run.kind {
            RunKind::Mapped { physical } => {
                let start = (physical << bits) + (at - (u64::from(run.logical) << bits));
                let lent = fs.device.file_range(start..start + part as u64);
                let Some((file, offset)) = lent else {
                    return Ok(false);
                };
                Lent::Host {
                    file,
                    offset,
                    len: part,
                }
            }
            RunKind::Hole | RunKind::Unwritten { .. } => Lent::Zeroes(part),
        });
        done += part;
    }
    Ok(take(&pieces))
}

/// Returns the span of a regular file that holds byte `offset`, cut to start there; `None` at or
/// after the end.
pub(crate) fn file_span(fs: &Ext4, inode: &ReadableFile<'_>, offset: u64) -> Result<Option<Span>> {
    if offset >= inode.size() {
        return Ok(None);
    }
    let left = inode.size() - offset;
    if inode.is_inline() {
        return Ok(Some(Span {
            offset,
            len: left,
            kind: SpanKind::Inline,
        }));
    }
    let bits = fs.superblock().geometry().block_bits();
    let run = inode.run_at(fs, offset)?;
    let kind = match run.kind {
        RunKind::Hole => SpanKind::Hole,
        RunKind::Unwritten { .. } => SpanKind::Unwritten,
        RunKind::Mapped { physical } => {
            let inside = offset - (u64::from(run.logical) << bits);
            SpanKind::Mapped {
                device_offset: (physical << bits) + inside,
            }
        }
    };
    Ok(Some(Span {
        offset,
        len: left.min((run.end() << bits) - offset),
        kind,
    }))
}

/// Returns the byte of the volume where byte `offset` of a regular file is; `None` if it is in no
/// block, or if its current contents may be in the journal.
pub(crate) fn file_position(
    fs: &Ext4,
    inode: &ReadableFile<'_>,
    offset: u64,
) -> Result<Option<u64>> {
    if inode.journals_contents(fs) {
        return Ok(None);
    }
    let kind = file_span(fs, inode, offset)?.map(|span| span.kind);
    Ok(if let Some(SpanKind::Mapped { device_offset }) = kind {
        Some(device_offset)
    } else {
        None
    })
}

impl InodeInfo {
    /// Reads contents without a check of keys, also of the volume's internal files.
    pub(crate) fn read_contents(&self, fs: &Ext4, buf: &mut [u8], offset: u64) -> Result<usize> {
        let left = self.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..len];
        if self.is_inline() {
            return self.with_inline_data(fs, |data| {
                let copied = data.read_at(offset, buf);
                buf[copied..].fill(0);
                Ok(len)
            });
        }
        let bits = fs.superblock().geometry().block_bits();
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let run = self.run_at(fs, at)?;
            // The bytes of the run from `at` on: at least one.
            let left = (run.end() << bits) - at;
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(len - done);
            let target = &mut buf[done..done + part];
            match run.kind {
                RunKind::Mapped { physical } => {
                    // OK: the run lies inside the volume, whose size in bytes fits 63 bits.
                    let start = (physical << bits) + (at - (u64::from(run.logical) << bits));
                    if self.journals_contents(fs) {
                        read_logged(fs, target, start)?
                    } else {
                        fs.device.read_at(target, start)?
                    }
                }
                RunKind::Hole | RunKind::Unwritten { .. } => target.fill(0),
            }
            done += part;
        }
        Ok(len)
    }

    /// Returns the run of blocks that holds byte `offset`, from the block of that byte on.
    pub(crate) fn run_at(&self, fs: &Ext4, offset: u64) -> Result<Run> {
        let logical = offset >> fs.superblock().geometry().block_bits();
        let logical = u32::try_from(logical).map_err(|_| {
            let kind = CorruptKind::Field {
                field: "i_size",
                value: self.size(),
            };
            Place::new(Structure::Inode).ino(self.ino()).corrupt(kind)
        })?;
        self.map(fs, logical)
    }
}
