//! Open files: OPEN, CREATE, READ, WRITE and all other requests on them.
//!
//! `Server` calls the handler of each request, on the thread that received it or on one of the
//! blocking pool. A request names an open file by its number `fh`. Where the kernel opens files
//! without the server, `fh` is 0, and the node keeps the open file.
//!
//! The kernel has checked permissions before it sends a request. The handlers check inode flags and
//! take set-id bits off where the kernel leaves that to the server.

use std::sync::Arc;

use extern4_vfs::{
    Caps, Errno, FallocateMode, FileFlags, Location, LookupFlags, OpenFile, OpenFlags, OpenHow,
    Result, Take,
};

use crate::abi::{
    BmapIn, BmapOut, CopyFileRangeIn, CopyFileRangeOut, CreateIn, FOPEN_KEEP_CACHE,
    FOPEN_PARALLEL_DIRECT_WRITES, FSYNC_FDATASYNC, FallocateIn, Features, FsyncIn, LseekIn,
    LseekOut, OpenIn, OpenOut, ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn,
    WriteOut,
};
use crate::handles::Handle;
use crate::init::MAX_DATA_BYTES;
use crate::ops::name::low_bits;
use crate::reply::Body;
use crate::request::{Request, name};
use crate::server::Server;

/// `O_ACCMODE` and its values, `O_EXCL`, `O_APPEND`, `O_NOATIME`: the kernel's own numbers, which
/// differ between machines.
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_EXCL: u32 = 0o200;
const O_APPEND: u32 = 0o2000;
const O_NOATIME: u32 = 0o1_000_000;

/// `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Returns the open flags that matter to the server; `O_TRUNC` comes as a separate SETATTR. The
/// kernel also reads a file that is open for writing, to fill pages before a partial write. The
/// server ignores `O_APPEND`: the kernel computes the offset of an appending write, and writes
/// pages back to other places than the end.
fn open_flags(flags: u32) -> OpenFlags {
    let mut open = OpenFlags::READ | OpenFlags::NOFOLLOW;
    open.set(OpenFlags::WRITE, flags & O_ACCMODE != O_RDONLY);
    open
}

impl Server {
    /// Returns the open file that a request means: the one whose number is `fh`. Where the kernel
    /// opens files without the server, this is an open file of the node.
    fn file(
        &self,
        request: &Request<'_>,
        nodeid: u64,
        fh: u64,
        want: OpenFlags,
    ) -> Result<Arc<Handle>> {
        if fh != 0 {
            return self.handles.get(fh);
        }
        let caller = &request.caller;
        let writes = want.contains(OpenFlags::WRITE);
        // A write counts against the limits of the caller that opened the file.
        let fits = |handle: &Handle| {
            !writes
                || (handle.opener.uid, handle.opener.gid, handle.opener.caps)
                    == (caller.uid, caller.gid, caller.caps)
        };
        // An appending file writes at its end at any offset, which is right only as long as the
        // file's append-only flag is set.
        let fits = |handle: &Handle| fits(handle) && !(writes && appends_no_more(handle));
        let fits = |handle: &Handle| handle.file.flags().contains(want) && fits(handle);
        let handle = match self.nodes.file(nodeid, fits) {
            Some(handle) => handle,
            None => {
                let location = self.nodes.get(nodeid)?;
                let append_only = writes && is_append_only(&location);
                let flags = if append_only {
                    want | OpenFlags::APPEND
                } else {
                    want
                };
                let handle = self.credentials.open(caller, location, flags)?;
                self.nodes.set_file(nodeid, &handle);
                handle
            }
        };
        Ok(handle)
    }

    pub(crate) fn open(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        if !self.reports_opens() {
            // After this answer, the kernel does not ask again, and names no open files.
            return Err(Errno::ENOSYS.into());
        }
        let open: OpenIn = request.arg()?;
        let location = self.nodes.get(request.header.nodeid)?;
        let mut flags = open_flags(open.flags);
        flags.set(OpenFlags::NOATIME, open.flags & O_NOATIME != 0);
        // For an append-only file, the VFS has to know that this open only appends. Every write
        // then goes to the file's end, at any offset.
        flags.set(
            OpenFlags::APPEND,
            is_append_only(&location) && open.flags & O_APPEND != 0,
        );
        let request = &self.identify_opener(request, flags);
        let file = self
            .credentials
            .session(&request.caller, &location)
            .open_location(location, flags, b"")?;
        body.put(&self.opened(request, request.header.nodeid, file))
    }

    /// Returns whether the kernel reports opens. A write-back cache needs that, because the server
    /// has to check inode flags at the open. When the kernel writes the cached data, it is too
    /// late.
    pub(crate) fn reports_opens(&self) -> bool {
        self.config().opens || self.protocol.has(Features::WRITEBACK_CACHE)
    }

    /// Returns the request; for an open for writing, with the capabilities of its caller. They
    /// count for every write through the file. If the kernel does not report opens, the server
    /// looks capabilities up when it finds no space.
    fn identify_opener<'r>(&self, request: &Request<'r>, flags: OpenFlags) -> Request<'r> {
        let identify = flags.contains(OpenFlags::WRITE) && self.reports_opens();
        if identify {
            request.by(self.credentials.identified(&request.caller))
        } else {
            *request
        }
    }

    /// Returns the answer to an open. A kernel that opens files without the server does not report
    /// their release either. Then the node keeps the open file.
    fn opened(&self, request: &Request<'_>, nodeid: u64, file: OpenFile) -> OpenOut {
        let handle = Handle::new(&request.caller, file);
        let fh = if self.reports_opens() {
            self.handles.enter(handle)
        } else {
            self.nodes.set_file(nodeid, &handle);
            0
        };
        OpenOut {
            fh,
            open_flags: FOPEN_KEEP_CACHE | FOPEN_PARALLEL_DIRECT_WRITES,
            backing_id: 0,
        }
    }

    /// Makes a file and opens it. A kernel that opens files without the server gets `ENOSYS`, and
    /// from then on sends MKNOD instead. It then need not report the release.
    pub(crate) fn create(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        if !self.reports_opens() {
            return Err(Errno::ENOSYS.into());
        }
        let (create, rest) = request.split::<CreateIn>()?;
        let (name, _) = name(rest)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let mut flags = open_flags(create.flags) | OpenFlags::CREATE;
        flags.set(OpenFlags::EXCL, create.flags & O_EXCL != 0);
        self.make(request, &dir, name, &create, flags, body)
    }

    pub(crate) fn tmpfile(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (create, _) = request.split::<CreateIn>()?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let mut flags = open_flags(create.flags) | OpenFlags::TMPFILE | OpenFlags::WRITE;
        flags.set(OpenFlags::EXCL, create.flags & O_EXCL != 0);
        self.make(request, &dir, b".", &create, flags, body)
    }

    /// Makes and opens a file, and returns it to the kernel.
    fn make(
        &self,
        request: &Request<'_>,
        dir: &Location,
        name: &[u8],
        create: &CreateIn,
        flags: OpenFlags,
        body: &mut Body<'_>,
    ) -> Result<()> {
        let mut session = self.credentials.session(&request.caller, dir);
        session.set_umask(low_bits(create.umask));
        let mode = low_bits(create.mode) & 0o7777;
        let file = session.open(
            name,
            OpenHow {
                flags,
                mode,
                resolve: LookupFlags::empty(),
            },
        )?;
        let location = file.location().clone();
        let (opener, file) = self.made_by(request, flags, file)?;
        let entry = self.entry(location);
        body.put(&entry)?;
        body.put(&self.opened(&opener, entry.nodeid, file))
    }

    /// Reopens a new file under its maker's own ids. A kernel that maps users names the maker as
    /// the mount maps it. Later permissions go by the maker's own ids, so the file is opened once
    /// more, where the kernel reports opens.
    fn made_by<'r>(
        &self,
        request: &Request<'r>,
        flags: OpenFlags,
        file: OpenFile,
    ) -> Result<(Request<'r>, OpenFile)> {
        if !(self.protocol.has(Features::ALLOW_IDMAP) && self.reports_opens()) {
            return Ok((*request, file));
        }
        let opener = request.by(self.credentials.itself(&request.caller));
        let flags = flags - (OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::TMPFILE);
        let location = file.location();
        let file = self
            .credentials
            .session(&opener.caller, location)
            .open_location(location.clone(), flags, b"")?;
        Ok((opener, file))
    }

    pub(crate) fn release(&self, request: &Request<'_>) -> Result<()> {
        let release: ReleaseIn = request.arg()?;
        // Before the kernel learns that it opens files without the server, it also releases files
        // that the node keeps.
        if release.fh == 0 {
            Ok(())
        } else {
            self.handles.remove(release.fh).map(drop)
        }
    }

    pub(crate) fn read(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let read: ReadIn = request.arg()?;
        let handle = if read.fh == 0 && read.flags & O_NOATIME != 0 {
            // The node does not keep this file: reads of others do change the access time.
            let location = self.nodes.get(request.header.nodeid)?;
            self.credentials.open(
                &request.caller,
                location,
                OpenFlags::READ | OpenFlags::NOATIME,
            )?
        } else {
            self.file(request, request.header.nodeid, read.fh, OpenFlags::READ)?
        };
        let size = usize::try_from(read.size).map_err(|_| Errno::EINVAL)?;
        let lend = |take: &mut Take<'_>| handle.file.lend_at(read.offset, size, take);
        if body.send_lent(request.header.unique, size, lend)? {
            return Ok(());
        }
        body.fill(size, |space| handle.file.read_at(space, read.offset))
    }

    pub(crate) fn write(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (write, data) = request.split::<WriteIn>()?;
        let size = usize::try_from(write.size).map_err(|_| Errno::EINVAL)?;
        let data = data.get(..size).ok_or(Errno::EINVAL)?;
        let handle = self.file(request, request.header.nodeid, write.fh, READ_WRITE)?;
        if write.fh == 0 {
            may_write(&handle, write.offset)?;
        }
        if write.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_set_id_bits(request, request.header.nodeid, &handle)?;
        }
        let kept =
            write.write_flags & WRITE_CACHE != 0 && self.protocol.has(Features::WRITEBACK_CACHE);
        let write_at = if kept {
            OpenFile::write_back
        } else {
            OpenFile::write_at
        };
        let written = write_all(data, write.offset, |data, offset| {
            write_at(&handle.file, data, offset)
        });
        if let Err(error) = &written
            && write.write_flags & WRITE_CACHE != 0
        {
            self.note_data_loss(error);
        }
        let written = written?;
        let size = u32::try_from(written).map_err(|_| Errno::EIO)?;
        body.put(&WriteOut { size, padding: 0 })
    }

    /// Takes the set-id bits off, as for a caller that may not keep them.
    fn drop_set_id_bits(&self, request: &Request<'_>, nodeid: u64, handle: &Handle) -> Result<()> {
        if handle.file.stat().mode & 0o6000 == 0 {
            return Ok(());
        }
        self.credentials
            .session_of_writer(&request.caller, handle.file.location())
            .drop_set_id_bits("", LookupFlags::EMPTY_PATH)?;
        // Otherwise the kernel would run the file with the bits that it knows.
        self.attributes_changed(nodeid);
        Ok(())
    }

    /// Takes the set-id bits off before a change for which the kernel does not say whether they go.
    fn change_without_set_id_bits(
        &self,
        request: &Request<'_>,
        nodeid: u64,
        handle: &Handle,
    ) -> Result<()> {
        let has_bits = handle.file.stat().mode & 0o6000 != 0;
        let keeps = !has_bits
            || self
                .credentials
                .identified(&request.caller)
                .caps
                .contains(Caps::FSETID);
        if keeps {
            Ok(())
        } else {
            self.drop_set_id_bits(request, nodeid, handle)
        }
    }

    pub(crate) fn fsync(&self, request: &Request<'_>) -> Result<()> {
        let fsync: FsyncIn = request.arg()?;
        let handle = self.file(request, request.header.nodeid, fsync.fh, OpenFlags::READ)?;
        handle.file.sync(fsync.fsync_flags & FSYNC_FDATASYNC != 0)
    }

    pub(crate) fn fallocate(&self, request: &Request<'_>) -> Result<()> {
        let fallocate: FallocateIn = request.arg()?;
        // The numbers come from `fallocate(2)`.
        let mode = FallocateMode::from_bits(fallocate.mode).ok_or(Errno::EOPNOTSUPP)?;
        let handle = self.file(request, request.header.nodeid, fallocate.fh, READ_WRITE)?;
        // For an append-only file, the file system decides which of these operations are allowed.
        if fallocate.fh == 0 && handle.file.stat().flags.contains(FileFlags::IMMUTABLE) {
            return Err(Errno::EPERM.into());
        }
        self.change_without_set_id_bits(request, request.header.nodeid, &handle)?;
        handle
            .file
            .fallocate(mode, fallocate.offset, fallocate.length)
    }

    pub(crate) fn lseek(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let seek: LseekIn = request.arg()?;
        let handle = self.file(request, request.header.nodeid, seek.fh, OpenFlags::READ)?;
        let offset = match seek.whence {
            SEEK_DATA => handle.file.seek_data(seek.offset)?,
            SEEK_HOLE => handle.file.seek_hole(seek.offset)?,
            _ => return Err(Errno::EINVAL.into()),
        };
        body.put(&LseekOut { offset })
    }

    /// Returns the place of a file's block on the volume, for `FIBMAP` and for `swapon(2)`. After
    /// `swapon(2)`, the kernel reads and writes there by itself, and refuses all that would move
    /// the blocks.
    ///
    /// `swapon(2)` counts in pages and takes the answer as a page. Where the mount uses other
    /// units, or the volume has smaller blocks, the request fails with `EINVAL`. The kernel then
    /// takes the whole file for a hole, and refuses it as swap.
    pub(crate) fn bmap(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let bmap: BmapIn = request.arg()?;
        let unit = u64::from(bmap.blocksize);
        let handle = self.file(request, request.header.nodeid, 0, OpenFlags::READ)?;
        let has_small_blocks = u64::from(handle.file.stat().blksize) < unit;
        if unit != rustix::param::page_size() as u64 || has_small_blocks {
            return Err(Errno::EINVAL.into());
        }
        if bmap.block == 0 {
            // Every caller asks for block 0 first. Earlier writes must reach the volume now, not
            // later over data that the caller has written there.
            handle.file.sync(false)?;
        }
        let offset = bmap.block.checked_mul(unit).ok_or(Errno::EINVAL)?;
        body.put(&BmapOut {
            block: handle.file.bmap(offset)?.unwrap_or(0) / unit,
        })
    }

    /// Copies within the volume. With `wide`, the answer has 64 bits for the length.
    pub(crate) fn copy_file_range(
        &self,
        request: &Request<'_>,
        body: &mut Body<'_>,
        wide: bool,
    ) -> Result<()> {
        let copy: CopyFileRangeIn = request.arg()?;
        if copy.flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        let from = self.file(request, request.header.nodeid, copy.fh_in, OpenFlags::READ)?;
        let to = self.file(request, copy.nodeid_out, copy.fh_out, READ_WRITE)?;
        if copy.fh_out == 0 {
            may_write(&to, copy.off_out)?;
        }
        self.change_without_set_id_bits(request, copy.nodeid_out, &to)?;
        // The most that an answer of 32 bits can report, and little enough for a bounded wait.
        const MOST: u64 = 1 << 30;
        let copied = copy_range(&from, copy.off_in, &to, copy.off_out, copy.len.min(MOST))?;
        if wide {
            return body.put(&CopyFileRangeOut {
                bytes_copied: copied,
            });
        }
        body.put(&WriteOut {
            size: u32::try_from(copied).map_err(|_| Errno::EIO)?,
            padding: 0,
        })
    }
}

const READ_WRITE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn is_append_only(location: &Location) -> bool {
    location.attr().flags.contains(FileFlags::APPEND)
}

/// Returns whether the handle was opened while its file was append-only, and the file is not any
/// more.
fn appends_no_more(handle: &Handle) -> bool {
    handle.file.flags().contains(OpenFlags::APPEND) && !is_append_only(handle.file.location())
}

/// Checks whether the inode flags allow a write at `offset`, as an open for writing does, where the
/// kernel does not report opens.
fn may_write(handle: &Handle, offset: u64) -> Result<()> {
    let attr = handle.file.stat();
    let overwrites = attr.flags.contains(FileFlags::APPEND) && offset < attr.size;
    if overwrites || attr.flags.contains(FileFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// Writes all of `data`, or as much as there is room for.
fn write_all(
    data: &[u8],
    offset: u64,
    write_at: impl Fn(&[u8], u64) -> Result<usize>,
) -> Result<usize> {
    let mut written = 0;
    while written < data.len() {
        match write_at(&data[written..], offset + written as u64) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if written == 0 => return Err(error),
            // The next write meets the error.
            Err(_) => break,
        }
    }
    Ok(written)
}

fn copy_range(
    from: &Arc<Handle>,
    off_in: u64,
    to: &Arc<Handle>,
    off_out: u64,
    len: u64,
) -> Result<u64> {
    let mut buffer =
        vec![0; usize::try_from(len).map_or(MAX_DATA_BYTES, |len| len.min(MAX_DATA_BYTES))];
    let mut copied = 0;
    while copied < len {
        let want =
            usize::try_from(len - copied).map_or(buffer.len(), |left| left.min(buffer.len()));
        let step = from
            .file
            .read_at(&mut buffer[..want], off_in + copied)
            .and_then(|read| {
                let write_at = |data: &[u8], offset| to.file.write_at(data, offset);
                if read == 0 {
                    Ok(0)
                } else {
                    write_all(&buffer[..read], off_out + copied, write_at)
                }
            });
        match step {
            Ok(0) => break,
            Ok(more) => copied += more as u64,
            Err(error) if copied == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(copied)
}
