//! Volumes that go to a stream, from the first byte to the last: to a pipe or another program.
//!
//! A volume is not made in the order of its bytes: its superblock comes first and is known last.
//! [`Planned::write_stream`] makes it twice. First it writes the volume to a [`Whole`], which keeps
//! metadata in memory, and of files only the places. Then it reads that device from start to end,
//! and with it the files again. Memory grows with the metadata, and not with the files; no
//! temporary file is needed. A source that changes between the two passes is an error that names
//! it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use extern4_block::partition::NewDisk;
use extern4_block::{
    BlockDevice, Error as BlockError, Op, Result as BlockResult, check_range, read_each_at,
};
use extern4_mkfs::map::Run;
use extern4_tree::Opened;

use crate::contents::read;
use crate::error::{Error, Result};
use crate::layout::Place;
use crate::output::Written;
use crate::planned::Planned;
use crate::tree::Body;

/// Bytes of a piece of metadata in memory: a sector, in which a partition table counts.
const SECTOR: u64 = 512;
/// Bytes that go to the stream at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Planned {
    /// Writes what [`write_file`](Self::write_file) writes to a stream, in order. Messages call the
    /// stream `name`.
    ///
    /// # Errors
    /// [`Error::Output`] if the stream fails; and each error of [`write`](Self::write).
    pub fn write_stream(
        &self,
        out: &mut dyn Write,
        name: &Path,
        threads: usize,
    ) -> Result<Written> {
        let whole = Whole::new(self);
        let volume = View {
            whole: &whole,
            start: whole.start,
            size: self.part_bytes(),
        };
        let uuid = self.write_contents(&volume, None, threads)?;
        let verity = self.write_hash_tree(&volume, uuid, threads)?;
        let all = View {
            whole: &whole,
            start: 0,
            size: self.file_bytes(),
        };
        if self.partition {
            self.disk(uuid).write(&all)?;
        }
        let failed = |source| Error::Output {
            path: name.to_owned(),
            source,
        };
        let mut piece = vec![0; PIECE_BYTES as usize];
        let mut at = 0;
        while at < all.size {
            let piece = &mut piece[..PIECE_BYTES.min(all.size - at) as usize];
            whole.read(piece, at)?;
            out.write_all(piece).map_err(failed)?;
            at += piece.len() as u64;
            self.tell(at)?;
        }
        out.flush().map_err(failed)?;
        Ok(Written { uuid, verity })
    }
}

/// A part of a file, by its place in the stream.
struct Data {
    /// The inode in the tree.
    inode: u32,
    start: u64,
    end: u64,
    /// The offset of the first byte in the file.
    offset: u64,
}

/// All that goes to the stream.
struct Whole<'a> {
    planned: &'a Planned,
    /// Where the volume begins.
    start: u64,
    /// The blocks with contents of regular files, in order.
    data: Vec<Data>,
    /// The sectors of all else that are not zeroes, by their numbers.
    sectors: Mutex<BTreeMap<u64, Box<[u8; SECTOR as usize]>>>,
    /// The file that was read last, by its inode in the tree.
    opened: Mutex<Option<(u32, Opened)>>,
}

/// The kind of bytes at a place of the stream.
enum Part<'a> {
    /// Contents of a file, from their first byte at this place on.
    Data(&'a Data),
    /// Anything else.
    Rest,
}

impl<'a> Whole<'a> {
    fn new(planned: &'a Planned) -> Self {
        let start = if planned.partition {
            NewDisk::PARTITION_START
        } else {
            0
        };
        let size = u64::from(planned.sb.block_size());
        let mut data = Vec::new();
        for &inode in &planned.order.inodes {
            let Body::File { contents, .. } = &planned.tree.node(inode).body else {
                continue;
            };
            // Metadata of fs-verity is behind the contents.
            let blocks = contents.size.div_ceil(size);
            let mut add = |run: &Run| {
                let len = run.len.min(blocks.saturating_sub(run.logical));
                let from = start + run.start * size;
                data.push(Data {
                    inode,
                    start: from,
                    end: from + len * size,
                    offset: run.logical * size,
                });
            };
            match planned.layout.place(inode, planned.file_blocks(inode)) {
                Place::Run(run) => add(&run),
                Place::Runs(runs) => runs.iter().for_each(add),
                Place::Nowhere => {}
            }
        }
        data.retain(|data| data.start < data.end);
        data.sort_unstable_by_key(|data| data.start);
        Self {
            planned,
            start,
            data,
            sectors: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    fn sectors(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8; SECTOR as usize]>>> {
        self.sectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is at a place, and where that ends: at `end` at the latest.
    fn part(&self, at: u64, end: u64) -> (Part<'_>, u64) {
        let next = self.data.partition_point(|data| data.end <= at);
        match self.data.get(next) {
            Some(data) if data.start <= at => (Part::Data(data), data.end.min(end)),
            Some(data) => (Part::Rest, data.start.min(end)),
            None => (Part::Rest, end),
        }
    }

    /// Fills a buffer from a place of the stream on.
    fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let (part, to) = self.part(at, end);
            let bytes = &mut buf[(at - offset) as usize..(to - offset) as usize];
            match part {
                Part::Data(data) => self.read_data(data, bytes, at)?,
                Part::Rest => self.read_rest(bytes, at),
            }
            at = to;
        }
        Ok(())
    }

    fn read_rest(&self, buf: &mut [u8], offset: u64) {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for (number, sector) in self.sectors().range(offset / SECTOR..end.div_ceil(SECTOR)) {
            let start = number * SECTOR;
            let from = start.max(offset);
            let to = (start + SECTOR).min(end);
            let bytes = &sector[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
        }
    }

    fn read_data(&self, data: &Data, buf: &mut [u8], at: u64) -> Result<()> {
        let planned = self.planned;
        let Body::File {
            contents,
            source,
            name,
        } = &planned.tree.node(data.inode).body
        else {
            return Ok(());
        };
        let path = planned.tree.source_path(*name);
        let layer = &planned.layers[usize::from(*source)];
        let mut last = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match last.take() {
            Some((inode, opened)) if inode == data.inode => opened,
            _ => layer.open(&path, contents)?,
        };
        let offset = data.offset + (at - data.start);
        let len = (buf.len() as u64).min(contents.size.saturating_sub(offset)) as usize;
        let (bytes, behind) = buf.split_at_mut(len);
        behind.fill(0);
        let done = read(&opened, contents, bytes, offset);
        opened.check_unchanged(layer.path_in_source(&path))?;
        done.map_err(|error| Error::reading(&path, &error))?;
        *last = Some((data.inode, opened));
        Ok(())
    }

    /// Keeps bytes of metadata. Bytes of files are read again when they are due.
    fn write(&self, buf: &[u8], offset: u64) {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let (part, to) = self.part(at, end);
            if let Part::Rest = part {
                self.write_rest(&buf[(at - offset) as usize..(to - offset) as usize], at);
            }
            at = to;
        }
    }

    fn write_rest(&self, buf: &[u8], offset: u64) {
        let end = offset + buf.len() as u64;
        let mut sectors = self.sectors();
        let mut at = offset;
        while at < end {
            let number = at / SECTOR;
            let to = ((number + 1) * SECTOR).min(end);
            let bytes = &buf[(at - offset) as usize..(to - offset) as usize];
            let place = (at % SECTOR) as usize;
            if bytes.iter().any(|byte| *byte != 0) {
                let sector = sectors
                    .entry(number)
                    .or_insert_with(|| Box::new([0; SECTOR as usize]));
                sector[place..place + bytes.len()].copy_from_slice(bytes);
            } else if bytes.len() as u64 == SECTOR {
                sectors.remove(&number);
            } else if let Some(sector) = sectors.get_mut(&number) {
                sector[place..place + bytes.len()].fill(0);
            }
            at = to;
        }
    }
}

/// A part of all that goes to the stream, as a device.
struct View<'a> {
    whole: &'a Whole<'a>,
    start: u64,
    size: u64,
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("start", &self.start)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for View<'_> {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        SECTOR as u32
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> BlockResult<()> {
        let len = buf.len() as u64;
        check_range(Op::Read, offset, len, self.size)?;
        self.whole.read(buf, self.start + offset).map_err(|error| {
            let source = Arc::new(io::Error::other(error));
            BlockError::Io {
                op: Op::Read,
                offset,
                len,
                source,
            }
        })
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> BlockResult<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> BlockResult<()> {
        check_range(Op::Write, offset, buf.len() as u64, self.size)?;
        self.whole.write(buf, self.start + offset);
        Ok(())
    }

    fn writes_whole(&self) -> bool {
        false
    }

    fn flush(&self) -> BlockResult<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> BlockResult<()> {
        self.write_zeroes(range)
    }

    fn write_zeroes(&self, range: Range<u64>) -> BlockResult<()> {
        let len = range.end.saturating_sub(range.start);
        check_range(Op::Write, range.start, len, self.size)?;
        let zeroes = vec![0; len.min(PIECE_BYTES) as usize];
        let mut at = range.start;
        while at < range.end {
            let piece = &zeroes[..(range.end - at).min(PIECE_BYTES) as usize];
            self.whole.write(piece, self.start + at);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn prefetch(&self, _: Range<u64>) {}

    fn file_range(&self, _: Range<u64>) -> Option<(&File, u64)> {
        None
    }

    fn forget(&self, _: Range<u64>) {}

    fn name(&self) -> Option<&OsStr> {
        None
    }
}
