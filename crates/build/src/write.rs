//! Writing a planned volume: several threads read the sources and write what they read in large
//! pieces.
//!
//! A queue gives out batches of items in the order of their places on the volume. Each thread has
//! one buffer of [`BATCH_BYTES`], so memory does not grow with the tree. The threads share the
//! queue under a lock and write different blocks. One more thread flushes the device now and then,
//! so that the disk works while they read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, PoisonError};

use extern4_block::BlockDevice;
use extern4_disk::checksum::inode_seed;
use extern4_disk::inode::ROOT_INO;
use extern4_mkfs::map::Run;
use extern4_tree::{Data, Opened};

use crate::buffer::Buffer;
use crate::contents::read;
use crate::directory::Format;
use crate::error::{Error, Result};
use crate::fs_verity::Seal;
use crate::identity::ContentsDigest;
use crate::layout::{self, Place, SharedBlock};
use crate::planned::Planned;
use crate::progress::Progress;
use crate::sharing::{Sharing, Target};
use crate::storage::inline_directory;
use crate::tree::Body;

/// Bytes of a batch: the buffer of one thread.
const BATCH_BYTES: u64 = 1 << 20;
/// Bytes that the threads write before the device is told to make them durable: enough to keep a
/// disk busy, while the threads read on.
const FLUSH_BYTES: u64 = 64 << 20;
/// Items of a batch.
const BATCH_ITEMS: usize = 512;

/// The contents of one run of blocks.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// A directory, by its name.
    Directory(u32),
    /// A long symbolic link.
    Symlink(u32, u64),
    /// A part of a value of extended attributes.
    Value(u32, Run),
    /// A part of a file.
    File(u32, Run),
    /// A part of a group's inode table: the first inode's number, and how many.
    Inodes(u32, u32),
}

/// The items that are not given out yet.
struct Queue<'a> {
    planned: &'a Planned,
    directory: usize,
    inode: usize,
    /// Blocks of the inode that are given out.
    done: u64,
    next_ino: u32,
}

impl Planned {
    /// Writes the volume, without a partition table or a hash tree, to a device that may hold
    /// anything. The superblock is written last, when all else is durable. Returns the UUID.
    ///
    /// # Errors
    /// An error of a source, of the device, or [`Error::Interrupted`] if the watch breaks.
    pub fn write(&self, device: &dyn BlockDevice, threads: usize) -> Result<[u8; 16]> {
        self.plan.clear(device)?;
        self.write_on_zeroes(device, threads)
    }

    /// Writes the volume to a device that reads as zeroes, such as a new file.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_on_zeroes(&self, device: &dyn BlockDevice, threads: usize) -> Result<[u8; 16]> {
        self.write_contents(device, None, threads)
    }

    /// Writes the volume to a device that reads as zeroes. If the device is in a new file of the
    /// host, the volume shares blocks of the host's files where that works.
    pub(crate) fn write_contents(
        &self,
        device: &dyn BlockDevice,
        target: Option<Target<'_>>,
        threads: usize,
    ) -> Result<[u8; 16]> {
        let queue = Mutex::new(Queue {
            planned: self,
            directory: 0,
            inode: 0,
            done: 0,
            next_ino: 1,
        });
        let written = Written {
            bytes: AtomicU64::new(0),
            planned: self,
        };
        let (due, flushes) = mpsc::sync_channel(1);
        let worker = |due: SyncSender<()>| {
            let mut worker = Worker {
                planned: self,
                device,
                format: Format::of(&self.sb),
                buffer: Buffer::default(),
                opened: None,
                sealed: None,
                sharing: Sharing::new(target),
                shared: 0,
                contents: ContentsDigest::default(),
            };
            worker.run(&queue, &written, &due).map(|()| worker.contents)
        };
        let contents = std::thread::scope(|scope| {
            // Ends when the last worker has dropped its sender. A device that failed to flush fails
            // the last flush, too, which reports it.
            scope.spawn(move || flushes.iter().all(|()| device.flush().is_ok()));
            let spawn = |due: SyncSender<()>| scope.spawn(|| worker(due));
            let others: Vec<_> = (1..threads.max(1)).map(|_| spawn(due.clone())).collect();
            let own = worker(due);
            let of_others = others.into_iter().map(|other| match other.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            of_others.fold(own, |all, one| Ok(all?.with(one?)))
        })?;
        let size = u64::from(self.sb.block_size());
        for (number, block) in &self.layout.map_blocks {
            device.write_at(block, number * size)?;
        }
        let number_of = |inode: u32| self.layout.numbers.of(inode);
        for &SharedBlock {
            number,
            inode,
            users,
        } in &self.layout.shared_blocks
        {
            let set = self.tree.node(inode).xattrs;
            let Some(division) = self.storage.division(&self.tree, inode) else {
                continue;
            };
            let block = self
                .tree
                .xattrs
                .encode_block(set, division, users, number, &number_of, &self.sb);
            device.write_at(&block, number * size)?;
        }
        let uuid = self
            .digest
            .map_or(self.sb.uuid(), |digest| digest.uuid_with(contents));
        self.plan.write_on_zeroes_as(device, uuid)?;
        Ok(uuid)
    }
}

impl Planned {
    /// Whether a part of a file is metadata of fs-verity, which is behind the contents.
    fn is_seal(&self, inode: u32, run: Run) -> bool {
        match &self.tree.node(inode).body {
            Body::File { contents, .. } => {
                run.logical * u64::from(self.sb.block_size()) >= contents.size
            }
            _ => false,
        }
    }

    /// Tells the watch how many bytes are written.
    pub(crate) fn tell(&self, bytes: u64) -> Result<()> {
        let inodes = u64::from(self.first_ino) + self.order.inodes.len() as u64;
        let tables = inodes * u64::from(self.sb.inode_size());
        let total = self.layout.used * u64::from(self.sb.block_size()) + tables;
        let progress = Progress::Writing {
            bytes: bytes.min(total),
            total,
        };
        match &self.watch {
            Some(watch) if watch(progress).is_break() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }
}

impl Queue<'_> {
    /// Gives out nothing more.
    fn close(&mut self) {
        (self.directory, self.inode, self.next_ino) = (usize::MAX, usize::MAX, u32::MAX);
    }

    /// The next items, in the order of their blocks.
    fn batch(&mut self) -> Vec<Item> {
        let size = u64::from(self.planned.sb.block_size());
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES && items.len() < BATCH_ITEMS {
            let left = ((BATCH_BYTES - bytes) / size).max(1);
            let Some((item, blocks)) = self.next(left) else {
                break;
            };
            bytes += blocks * size;
            items.push(item);
        }
        items
    }

    /// The next item, of at most `most` blocks if it is a part of a file.
    fn next(&mut self, most: u64) -> Option<(Item, u64)> {
        self.next_directory()
            .or_else(|| self.next_part(most))
            .or_else(|| self.next_inodes())
    }

    fn next_directory(&mut self) -> Option<(Item, u64)> {
        loop {
            let &name = self.planned.order.directories.get(self.directory)?;
            self.directory += 1;
            let inode = self.planned.tree.name(name).inode;
            let blocks = self
                .planned
                .layout
                .directories
                .get(&inode)
                .map_or(1, |(blocks, _)| *blocks);
            if blocks > 0 {
                return Some((Item::Directory(name), blocks));
            }
        }
    }

    fn next_part(&mut self, most: u64) -> Option<(Item, u64)> {
        let planned = self.planned;
        loop {
            let &inode = planned.order.inodes.get(self.inode)?;
            let blocks = planned.file_blocks(inode);
            let node = planned.tree.node(inode);
            let place = planned.layout.place(inode, blocks);
            let is_written_here = matches!(
                node.body,
                Body::File { .. } | Body::Symlink(_) | Body::Value(_)
            );
            let run = match place {
                Place::Run(run) if is_written_here => part_of(&[run], self.done, most),
                Place::Runs(runs) if is_written_here => part_of(runs, self.done, most),
                _ => None,
            };
            let Some(mut run) = run else {
                (self.inode, self.done) = (self.inode + 1, 0);
                continue;
            };
            if let (Body::File { contents, .. }, true) = (&node.body, node.is_sealed) {
                // The metadata after the contents is a separate item.
                let end = contents.size.div_ceil(planned.sb.block_size().into());
                run.len = end
                    .checked_sub(run.logical)
                    .filter(|left| *left > 0)
                    .map_or(run.len, |left| left.min(run.len));
            }
            self.done += run.len;
            let item = match node.body {
                Body::Symlink(_) => Item::Symlink(inode, run.start),
                Body::Value(_) => Item::Value(inode, run),
                _ => Item::File(inode, run),
            };
            return Some((item, run.len));
        }
    }

    /// A part of an inode table, from the block of the next inode that is in use.
    fn next_inodes(&mut self) -> Option<(Item, u64)> {
        let planned = self.planned;
        let next = match self.next_ino {
            own if own < planned.first_ino => own,
            other => planned.layout.numbers.next(other)?,
        };
        let sb = &planned.sb;
        let per_group = sb.geometry().inodes_per_group();
        let size = u32::from(sb.inode_size());
        let in_group = (next - 1) % per_group;
        let first = next - in_group % (sb.block_size() / size);
        let group_end = next - in_group + per_group;
        let end = group_end.min(first.saturating_add((BATCH_BYTES / u64::from(size)) as u32));
        let used = planned.layout.numbers.within(first..end).last();
        let last = used
            .map_or(0, |inode| planned.layout.numbers.of(*inode))
            .max(planned.first_ino - 1);
        self.next_ino = end;
        let count = (last + 1).min(end) - first;
        Some((
            Item::Inodes(first, count),
            u64::from(count) * u64::from(sb.inode_size()) / u64::from(sb.block_size()) + 1,
        ))
    }
}

/// The part of these runs behind `done` blocks, of at most `most`.
fn part_of(runs: &[Run], mut done: u64, most: u64) -> Option<Run> {
    for run in runs {
        if done < run.len {
            let len = (run.len - done).min(most);
            return Some(Run {
                logical: run.logical + done,
                start: run.start + done,
                len,
            });
        }
        done -= run.len;
    }
    None
}

/// The contents that are written, by all threads.
struct Written<'a> {
    bytes: AtomicU64,
    planned: &'a Planned,
}

impl Written<'_> {
    /// Counts `bytes` more. Asks for a flush when they complete a piece of [`FLUSH_BYTES`], unless
    /// one is asked for already.
    fn add(&self, bytes: u64, due: &SyncSender<()>) -> Result<()> {
        // Relaxed: the counter orders nothing.
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = before + bytes;
        if before / FLUSH_BYTES != all / FLUSH_BYTES {
            // Full: the flush that is asked for has not begun, so it covers these bytes.
            let _ = due.try_send(());
        }
        self.planned.tell(all)
    }
}

/// A thread that writes.
struct Worker<'a> {
    planned: &'a Planned,
    device: &'a dyn BlockDevice,
    format: Format,
    buffer: Buffer,
    /// The file that was opened last, by its inode in the tree.
    opened: Option<(u32, Opened)>,
    /// The metadata of fs-verity that was made last, by the file's inode in the tree.
    sealed: Option<(u32, Vec<u8>)>,
    sharing: Sharing<'a>,
    /// Bytes of the batch that the volume shares with files of the host.
    shared: u64,
    /// The digest of what this thread has read, if the UUID needs it.
    contents: ContentsDigest,
}

impl Worker<'_> {
    /// Writes batches until there are no more. A failure leaves no more for the other threads.
    fn run(
        &mut self,
        queue: &Mutex<Queue<'_>>,
        written: &Written<'_>,
        due: &SyncSender<()>,
    ) -> Result<()> {
        let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let batch = lock().batch();
            if batch.is_empty() {
                return Ok(());
            }
            let done = self.write(&batch).and_then(|bytes| written.add(bytes, due));
            if done.is_err() {
                lock().close();
                return done;
            }
        }
    }

    /// Writes a batch; gives how many bytes.
    fn write(&mut self, batch: &[Item]) -> Result<u64> {
        let size = u64::from(self.planned.sb.block_size());
        // The block of the volume at which the buffer begins.
        let mut start = 0;
        let mut bytes = 0;
        self.buffer.clear();
        for item in batch {
            let at = self.start_of(item);
            if self.buffer.is_empty() || at != start + self.buffer.len() as u64 / size {
                self.flush(start)?;
                start = at;
            }
            let before = self.buffer.len() as u64;
            self.fill(item, start)?;
            bytes += (self.buffer.len() as u64).saturating_sub(before);
        }
        self.flush(start)?;
        Ok(bytes + std::mem::take(&mut self.shared))
    }

    /// Writes the buffer, which begins at block `start`, and empties it.
    fn flush(&mut self, start: u64) -> Result<()> {
        if !self.buffer.is_empty() {
            self.device.write_at(
                self.buffer.bytes(),
                start * u64::from(self.planned.sb.block_size()),
            )?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn start_of(&self, item: &Item) -> u64 {
        let planned = self.planned;
        match *item {
            Item::Directory(name) => match planned.layout.place(planned.tree.name(name).inode, 1) {
                Place::Run(run) => run.start,
                Place::Runs(runs) => runs.first().map_or(0, |run| run.start),
                Place::Nowhere => 0,
            },
            Item::Symlink(_, start) => start,
            Item::File(_, run) | Item::Value(_, run) => run.start,
            Item::Inodes(first, _) => planned.table_block(first),
        }
    }

    /// Puts an item's blocks at the end of the buffer, which begins at block `start`.
    fn fill(&mut self, item: &Item, start: u64) -> Result<()> {
        match *item {
            Item::Directory(name) => self.fill_directory(name, start),
            Item::Symlink(inode, _) => {
                if let Body::Symlink(target) = &self.planned.tree.node(inode).body {
                    self.buffer.extend_from_slice(target);
                    self.pad();
                }
                Ok(())
            }
            Item::Value(inode, run) => {
                if let Body::Value(value) = &self.planned.tree.node(inode).body {
                    let size = u64::from(self.planned.sb.block_size());
                    let end = value.len().min(((run.logical + run.len) * size) as usize);
                    self.buffer
                        .extend_from_slice(&value[(run.logical * size) as usize..end]);
                    self.pad();
                }
                Ok(())
            }
            Item::File(inode, run) if self.planned.is_seal(inode, run) => {
                self.fill_seal(inode, run)
            }
            Item::File(inode, run) => self.fill_file(inode, run, start),
            Item::Inodes(first, count) => self.fill_inodes(first, count),
        }
    }

    fn pad(&mut self) {
        self.buffer.pad(self.planned.sb.block_size() as usize);
    }

    /// A directory whose blocks do not follow each other is written at once, run by run.
    fn fill_directory(&mut self, name: u32, start: u64) -> Result<()> {
        let planned = self.planned;
        let inode = planned.tree.name(name).inode;
        let numbers = &planned.layout.numbers;
        let children = layout::children(&planned.tree, name, numbers);
        let ino = numbers.of(inode);
        let parent = numbers.of(planned.tree.parent_inode(name));
        let seed = planned
            .sb
            .metadata_seed()
            .map(|seed| inode_seed(seed, ino, 0));
        let packing = layout::pack(&self.format, &planned.tree, &planned.order, name, &children)?;
        let blocks = self
            .format
            .encode(&packing, &children, ino, parent, seed)
            .map_err(extern4_mkfs::Error::from)?;
        match planned.layout.place(inode, packing.blocks()) {
            Place::Runs(runs) => {
                self.flush(start)?;
                let size = u64::from(planned.sb.block_size());
                for run in runs {
                    let part =
                        (run.logical * size) as usize..((run.logical + run.len) * size) as usize;
                    self.device.write_at(&blocks[part], run.start * size)?;
                }
            }
            _ => self.buffer.extend_from_slice(&blocks),
        }
        Ok(())
    }

    fn fill_file(&mut self, inode: u32, run: Run, start: u64) -> Result<()> {
        let planned = self.planned;
        let Body::File {
            contents,
            source,
            name,
        } = &planned.tree.node(inode).body
        else {
            return Ok(());
        };
        let path = planned.tree.source_path(*name);
        let layer = &planned.layers[usize::from(*source)];
        let opened = match self.opened.take() {
            Some((last, opened)) if last == inode => opened,
            _ => layer.open(&path, contents)?,
        };
        let size = u64::from(planned.sb.block_size());
        let offset = run.logical * size;
        let to = run.start * size;
        let len = (run.len * size).min(contents.size - offset);
        let shared = match (&contents.data, opened.file()) {
            (Data::HostFile { identity, .. }, Some(file)) => {
                self.sharing.share((file, identity.dev), offset, to, len)
            }
            _ => 0,
        };
        if shared > 0 {
            self.flush(start)?;
        }
        // Shared bytes are read for the digest alone.
        let skipped = if planned.digest.is_some() { 0 } else { shared };
        let bytes = self.buffer.extend((len - skipped) as usize);
        let read = read(&opened, contents, bytes, offset + skipped);
        // A file that changed can fail to be read in many ways: the change is the reason.
        opened.check_unchanged(layer.path_in_source(&path))?;
        read.map_err(|error| Error::reading(&path, &error))?;
        if planned.digest.is_some() {
            let place = planned.tree.node(inode).place;
            for (block, bytes) in (run.logical..).zip(bytes.chunks(size as usize)) {
                self.contents.add(place, block, bytes);
            }
        }
        self.opened = Some((inode, opened));
        if shared == 0 {
            self.pad();
            return Ok(());
        }
        self.shared += shared;
        let rest = &self.buffer.bytes()[(shared - skipped) as usize..];
        if !rest.is_empty() {
            self.device.write_at(rest, to + shared)?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// A part of the metadata of fs-verity. The contents are read again for it.
    fn fill_seal(&mut self, inode: u32, run: Run) -> Result<()> {
        let planned = self.planned;
        let Body::File {
            contents,
            source,
            name,
        } = &planned.tree.node(inode).body
        else {
            return Ok(());
        };
        let seal = Seal::new(contents.size, planned.sb.block_size());
        let metadata = match self.sealed.take() {
            Some((last, metadata)) if last == inode => metadata,
            _ => {
                let path = planned.tree.source_path(*name);
                let layer = &planned.layers[usize::from(*source)];
                let opened = layer.open(&path, contents)?;
                let metadata = seal.metadata(|buf, offset| read(&opened, contents, buf, offset));
                opened.check_unchanged(layer.path_in_source(&path))?;
                metadata.map_err(|error| Error::reading(&path, &error))?
            }
        };
        let size = u64::from(planned.sb.block_size());
        let from = (run.logical * size - seal.start()) as usize;
        self.buffer
            .extend_from_slice(&metadata[from..from + (run.len * size) as usize]);
        self.sealed = Some((inode, metadata));
        Ok(())
    }

    fn fill_inodes(&mut self, first: u32, count: u32) -> Result<()> {
        let planned = self.planned;
        let size = usize::from(planned.sb.inode_size());
        let records = self.buffer.extend(count as usize * size);
        records.fill(0);
        let range = first..first + count;
        let numbers = &planned.layout.numbers;
        let place = |ino: u32| (ino - first) as usize * size;
        for (&ino, own) in planned
            .own_inodes
            .range(range.clone())
            .filter(|(ino, _)| **ino != ROOT_INO)
        {
            own.encode(&mut records[place(ino)..][..size], &planned.sb);
        }
        for &inode in numbers.within(range) {
            let inline = inline_contents(planned, &self.format, &mut self.contents, inode)?;
            let record = &mut records[place(numbers.of(inode))..][..size];
            planned.encode_inode(inode, inline.as_deref(), record)?;
        }
        self.pad();
        Ok(())
    }
}

/// The contents of a file that are in its inode, if they are.
fn inline_contents(
    planned: &Planned,
    format: &Format,
    digest: &mut ContentsDigest,
    inode: u32,
) -> Result<Option<Vec<u8>>> {
    if !planned.storage.is_inline(inode) {
        return Ok(None);
    }
    if let Some(name) = planned.storage.inline_directory(inode) {
        let numbers = &planned.layout.numbers;
        let children = layout::children(&planned.tree, name, numbers);
        let parent = numbers.of(planned.tree.parent_inode(name));
        return Ok(Some(inline_directory(&children, parent, &format.layout())));
    }
    let node = planned.tree.node(inode);
    match &node.body {
        Body::Symlink(target) => Ok(Some(target.to_vec())),
        Body::File {
            contents,
            source,
            name,
        } => {
            let path = planned.tree.source_path(*name);
            let layer = &planned.layers[usize::from(*source)];
            let opened = layer.open(&path, contents)?;
            let mut bytes = vec![0; contents.size as usize];
            let read = read(&opened, contents, &mut bytes, 0);
            // A file that changed can fail to be read in many ways: the change is the reason.
            opened.check_unchanged(layer.path_in_source(&path))?;
            read.map_err(|error| Error::reading(&path, &error))?;
            if planned.digest.is_some() && !bytes.is_empty() {
                digest.add(node.place, 0, &bytes);
            }
            Ok(Some(bytes))
        }
        _ => Ok(None),
    }
}
