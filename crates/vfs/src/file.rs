//! Open files.
//!
//! `Session::open` makes an [`OpenFile`], and dropping it closes the file. The FUSE server and the
//! `extern4` crate read, write, list, allocate and sync through it. It checks how the file was
//! opened, inode flags, and that the mount is writable, and only then calls the file system. Two
//! writes to one file never mix within bytes that both write. A read concurrent with a write may
//! see a part of it.
//!
//! Data is read with no lock held here. A change of a file's data holds its inode's `rwsem`
//! exclusive. A write that only overwrites existing contents holds it shared (`range_lock`), and so
//! does a listing of a directory.

use std::ops::ControlFlow;
use std::sync::Arc;

use extern4_sync::primitive::{AtomicBool, Ordering::Relaxed};

use crate::attr::{Attr, FileType, Timespec};
use crate::clock;
use crate::cred::{Caps, Cred};
use crate::dir_batch::{DirBatch, DirEntry};
use crate::errno::{Errno, Result};
use crate::fs::{ChangeContext, FallocateMode, SetAttr, Span, SpanKind, Take};
use crate::inode::Inode;
use crate::lookup::LookupFlags;
use crate::mount::{Location, WriteGuard};
use crate::open_files::{OpenFileInfo, RegistryEntry};
use crate::open_flags::OpenFlags;
use crate::permission::set_id_bits_lost;
use crate::range_lock;
use crate::session::Session;
use crate::superblock::{Atime, SuperBlock};
use crate::xattr;

/// How to open: flags, the mode of a file that is made, limits on the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// How the file is opened; `O_CREAT` and the like included.
    pub flags: OpenFlags,
    /// Permission bits of a new file, before the umask.
    pub mode: u16,
    /// Limits of the walk.
    pub resolve: LookupFlags,
}

impl From<OpenFlags> for OpenHow {
    fn from(flags: OpenFlags) -> Self {
        Self {
            flags,
            mode: 0o666,
            resolve: LookupFlags::empty(),
        }
    }
}

/// An open file. Dropping it closes it.
pub struct OpenFile {
    location: Location,
    /// The type of the file. The inode has it on a line that changes of attributes write.
    kind: FileType,
    flags: OpenFlags,
    /// A copy: a shared one would need a reference count, which other users of the session write as
    /// well.
    cred: Cred,
    entry: RegistryEntry,
    /// Whether something has been written through it. Relaxed: the drop comes after all uses.
    has_written: AtomicBool,
}

/// The origin of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    /// The caller writes now.
    Now,
    /// The page cache of a caller, which writes back data of other writers.
    Back,
}

impl OpenFile {
    /// Opens a file for `session`, and enters it into the registry by `path`. The caller has
    /// checked permissions. `EROFS` if it is opened for writing and the file system has become
    /// read-only.
    pub(crate) fn new(
        session: &Session,
        location: Location,
        flags: OpenFlags,
        path: &[u8],
    ) -> Result<Self> {
        let sb = location.superblock();
        let writes = flags.contains(OpenFlags::WRITE);
        if writes {
            location.mount.check_writable()?;
            sb.write_gate.open_for_writing()?;
        } else {
            sb.write_gate.check()?;
        }
        let id = session.id();
        let uid = session.cred().uid();
        let ino = location.ino();
        let info = OpenFileInfo {
            session: id,
            uid,
            flags,
            ino,
            ..OpenFileInfo::default()
        };
        match sb.files.enter(&info, path) {
            Ok(entry) => {
                let has_written = AtomicBool::new(false);
                let kind = location.kind();
                let cred = session.cred().clone();
                Ok(Self {
                    flags,
                    kind,
                    cred,
                    entry,
                    location,
                    has_written,
                })
            }
            Err(error) => {
                if writes {
                    sb.write_gate.close_for_writing();
                }
                Err(error)
            }
        }
    }

    /// Returns the path by which it was opened, as [`OpenFileInfo::path`](crate::OpenFileInfo) has
    /// it.
    pub fn path(&self) -> Vec<u8> {
        self.sb().files.path(&self.entry)
    }

    /// Returns a position in the file, for the caller to keep there; zero at first.
    pub fn position(&self) -> u64 {
        self.sb().files.position(&self.entry)
    }

    /// Sets the [`position`](Self::position).
    pub fn set_position(&self, position: u64) {
        self.sb().files.set_position(&self.entry, position);
    }

    /// Returns the file that is open.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns how it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Returns the attributes of the file (`fstat(2)`).
    pub fn stat(&self) -> Attr {
        self.inode().attr()
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.stat().size
    }

    fn inode(&self) -> &Inode {
        self.location.inode()
    }

    fn sb(&self) -> &Arc<SuperBlock> {
        self.location.superblock()
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`; `EIO` or `EUCLEAN` of the file system.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.require(OpenFlags::READ)?;
        if self.kind.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        self.sb().write_gate.check()?;
        let len = self.sb().fs().read_at(self.inode(), buf, offset)?;
        self.touch_atime();
        Ok(len)
    }

    /// Lends `take` the bytes that [`read_at`](Self::read_at) would read into a buffer of `len`
    /// bytes, without a copy. Returns false if `take` does not take them, or if they cannot be
    /// lent; the caller then has to read them. This sets the access time before it calls `take`,
    /// even if that takes nothing. A reader that has the data may ask for that time at once.
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at), and of `take`.
    pub fn lend_at(&self, offset: u64, len: usize, take: &mut Take<'_>) -> Result<bool> {
        self.require(OpenFlags::READ)?;
        if self.kind.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        self.sb().write_gate.check()?;
        self.touch_atime();
        self.sb().fs().lend(self.inode(), offset, len, take)
    }

    /// Returns the span at byte `offset`; `None` at or after the end of the file.
    ///
    /// # Errors
    /// `EIO` or `EUCLEAN` of the file system.
    pub fn span_at(&self, offset: u64) -> Result<Option<Span>> {
        self.require(OpenFlags::READ)?;
        self.require_regular()?;
        self.sb().fs().span_at(self.inode(), offset)
    }

    /// Returns the byte of the device that holds byte `offset`, as
    /// [`FileOps::bmap`](crate::fs::FileOps::bmap) does.
    ///
    /// # Errors
    /// `EINVAL` for contents without blocks; `EIO` or `EUCLEAN`.
    pub fn bmap(&self, offset: u64) -> Result<Option<u64>> {
        self.require(OpenFlags::READ)?;
        self.require_regular()?;
        self.sb().write_gate.check()?;
        self.sb().fs().bmap(self.inode(), offset)
    }

    /// Returns where the next data at or after `offset` starts (`SEEK_DATA`); `ENXIO` if there is
    /// none. Space that was allocated but never written is a hole.
    ///
    /// # Errors
    /// As above; `EIO` or `EUCLEAN`.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek_span(offset, |kind| {
            matches!(kind, SpanKind::Mapped { .. } | SpanKind::Inline)
        })?
        .ok_or(Errno::ENXIO.into())
    }

    /// Returns where the next hole at or after `offset` starts (`SEEK_HOLE`): the end of the file
    /// if there is none before.
    ///
    /// # Errors
    /// `ENXIO` at or after the end of the file; `EIO` or `EUCLEAN`.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        let size = self.size();
        let found = self.seek_span(offset, |kind| {
            matches!(kind, SpanKind::Hole | SpanKind::Unwritten)
        })?;
        Ok(found.unwrap_or(size))
    }

    fn seek_span(&self, offset: u64, is: impl Fn(SpanKind) -> bool) -> Result<Option<u64>> {
        self.require_regular()?;
        if offset >= self.size() {
            return Err(Errno::ENXIO.into());
        }
        let mut at = offset;
        while let Some(span) = self.sb().fs().span_at(self.inode(), at)? {
            if is(span.kind) {
                return Ok(Some(at));
            }
            match span.offset.checked_add(span.len) {
                Some(next) if next > at => at = next,
                _ => return Err(Errno::EIO.into()),
            }
        }
        Ok(None)
    }

    /// Lists the directory from `cookie` on (0 is the start). Up to `max` entries, in the file
    /// system's order and with `.` and `..` among them, replace the contents of `batch`. At the end
    /// there are none. A cookie stays valid while names come and go.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT` for a directory that was removed; `EIO` or `EUCLEAN`, after which the
    /// rest of the directory can still be listed if the file system can tell where it goes on.
    pub fn read_dir(&self, cookie: u64, max: usize, batch: &mut DirBatch) -> Result<()> {
        batch.clear();
        self.require_dir()?;
        {
            let _names = self.inode().lock_names();
            self.list(cookie, max, batch)?;
        }
        self.touch_atime();
        Ok(())
    }

    /// Like [`read_dir`](Self::read_dir), with the attributes of each entry, read without asking
    /// the directory for its name again. Attributes are missing if the inode cannot be read; `stat`
    /// then returns the error. They are the attributes of the entry itself, even if something is
    /// mounted on it.
    ///
    /// # Errors
    /// The errors of [`read_dir`](Self::read_dir).
    pub fn read_dir_plus(&self, cookie: u64, max: usize, batch: &mut DirBatch) -> Result<()> {
        batch.clear();
        self.require_dir()?;
        self.permission_to_search()?;
        {
            // Held over both, and exclusive, so that each name still stands for its inode when the
            // two are bound.
            let _names = self.inode().lock_names_exclusive();
            self.list(cookie, max, batch)?;
            let sb = self.sb();
            batch.add_inodes(
                |ino| sb.iget(ino).ok(),
                |name, inode| {
                    if inode.is_dir() && name != b"." && name != b".." {
                        // A name that cannot be cached is looked up when a caller asks for it.
                        let _ = sb.prime(&self.location.dentry, name, inode);
                    }
                },
            );
        }
        self.touch_atime();
        Ok(())
    }

    /// Like [`read_dir`](Self::read_dir), and puts the location of each entry into `places`. `.`
    /// and `..` have none, and neither has an entry whose inode cannot be read; a walk to its name
    /// returns the error. Locations are the locations of the entries themselves, even if something
    /// is mounted on them.
    ///
    /// # Errors
    /// The errors of [`read_dir`](Self::read_dir).
    pub fn read_dir_places(
        &self,
        cookie: u64,
        max: usize,
        batch: &mut DirBatch,
        places: &mut Vec<Option<Location>>,
    ) -> Result<()> {
        batch.clear();
        places.clear();
        self.require_dir()?;
        self.permission_to_search()?;
        {
            // As in `read_dir_plus`.
            let _names = self.inode().lock_names_exclusive();
            self.list(cookie, max, batch)?;
            places.extend(batch.iter().map(|entry| self.place_of(&entry)));
        }
        self.touch_atime();
        Ok(())
    }

    /// Returns the location of an entry of the directory. Locks: `rwsem` exclusive since the entry
    /// was listed.
    fn place_of(&self, entry: &DirEntry<'_>) -> Option<Location> {
        if entry.name == b"." || entry.name == b".." {
            return None;
        }
        let sb = self.sb();
        let dentry = sb
            .prime(&self.location.dentry, entry.name, sb.iget(entry.ino).ok()?)
            .ok()?;
        // The cache may hold a negative dentry from before damage changed the directory.
        dentry.inode()?;
        Some(Location {
            mount: self.location.mount.clone(),
            dentry,
        })
    }

    fn permission_to_search(&self) -> Result<()> {
        self.sb().checker.search(&self.cred, self.inode()).map(drop)
    }

    /// Lists entries from `cookie` on. Locks: `rwsem` held.
    fn list(&self, cookie: u64, max: usize, batch: &mut DirBatch) -> Result<()> {
        self.sb().write_gate.check()?;
        if max == 0 {
            return Err(Errno::EINVAL.into());
        }
        // A removed directory is empty, even of `.` and `..`.
        if self.inode().perm().dead() {
            return Err(Errno::ENOENT.into());
        }
        let mut is_full = false;
        self.sb()
            .fs()
            .read_dir(self.inode(), cookie, &mut |entry| {
                batch.push(entry);
                is_full = batch.len() == max;
                if is_full {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
        if !is_full {
            batch.end();
        }
        Ok(())
    }

    /// Writes at `offset`, or at the end of a file that was opened to append; returns how much was
    /// written.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `ENOSPC`, `EDQUOT`, `EROFS`, `EPERM` for an immutable file; `EIO` or
    /// `EUCLEAN`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.write(data, offset, Write::Now)
    }

    /// Writes at `offset` and leaves the times of the file as they are. It does so even if the file
    /// was opened to append, or has become immutable since. For callers with a page cache: they
    /// write the last page again when it has grown, and set the times by
    /// [`set_written`](Self::set_written).
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at), but `EPERM`.
    pub fn write_back(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.write(data, offset, Write::Back)
    }

    fn write(&self, data: &[u8], offset: u64, how: Write) -> Result<usize> {
        self.require(OpenFlags::WRITE)?;
        if data.is_empty() {
            return Ok(0);
        }
        let _writer = self.sb().write_gate.change_opened()?;
        if how == Write::Now && self.overwrite(data, offset)? {
            return Ok(data.len());
        }
        let inode = self.inode();
        let _change = inode.lock_exclusive();
        if how == Write::Now {
            check_mutable(inode)?;
        }
        let before = inode.attr();
        let append = how == Write::Now && self.flags.contains(OpenFlags::APPEND);
        let offset = if append { before.size } else { offset };
        check_range(
            offset,
            u64::try_from(data.len()).map_err(|_| Errno::EINVAL)?,
        )?;
        let now = if how == Write::Now {
            clock::now()
        } else {
            before.mtime
        };
        match how {
            Write::Now => drop_privileges(&self.cred, self.sb(), inode, now)?,
            // A caller may have set capabilities after the write that is written back now, so they
            // stay.
            Write::Back => drop_set_id_bits(&self.cred, self.sb(), inode, now)?,
        }
        self.note_written();
        let fs = self.sb().fs();
        let rights = self.sb().space_rights(&self.cred);
        let written = fs.write_at(inode, data, offset, ChangeContext { now, rights })?;
        // The file system has set both to one time.
        if how == Write::Back && before.ctime != before.mtime {
            fs.set_attr(
                inode,
                &SetAttr {
                    ctime: Some(before.ctime),
                    rights,
                    ..SetAttr::default()
                },
            )?;
        }
        Ok(written)
    }

    /// Writes over existing contents, while other threads may do so, too. Returns false, and has
    /// written nothing, if the write changes more than contents. It finds most of those without a
    /// lock: the first write in each tick of the clock, and writes that extend the file.
    fn overwrite(&self, data: &[u8], offset: u64) -> Result<bool> {
        let inode = self.inode();
        let sb = self.sb();
        if data.len() > range_lock::MOST_BYTES || self.flags.contains(OpenFlags::APPEND) {
            return Ok(false);
        }
        let Some(end) = offset.checked_add(data.len() as u64) else {
            return Ok(false);
        };
        if !inode.is_left_by_write(end, clock::now()) {
            return Ok(false);
        }
        let _contents = inode.lock_shared();
        // Checked again, because this thread may have waited for the lock.
        if !inode.is_left_by_write(end, clock::now()) {
            return Ok(false);
        }
        self.note_written();
        let mut chunks = None;
        sb.fs().overwrite(inode, data, offset, &mut || {
            chunks = Some(sb.range_locks.lock(inode, offset..end))
        })
    }

    fn note_written(&self) {
        // Repeated writes do not store to the line again.
        if !self.has_written.load(Relaxed) {
            self.has_written.store(true, Relaxed);
        }
    }

    /// Makes the file `size` bytes long (`ftruncate(2)`).
    ///
    /// # Errors
    /// `EBADF` or `EINVAL` for a file that is not open for writing; the errors of
    /// [`write_at`](Self::write_at).
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.flags.contains(OpenFlags::WRITE) || self.kind != FileType::Regular {
            return Err(Errno::EINVAL.into());
        }
        if self.inode().perm().append() {
            return Err(Errno::EPERM.into());
        }
        let _writer = self.sb().write_gate.change_opened()?;
        truncate(&self.cred, self.sb(), self.inode(), size)
    }

    /// Sets the times of contents that a caller has written back. It checks neither owner nor
    /// flags, because a write sets these times, too.
    ///
    /// # Errors
    /// `EROFS`, `EIO`.
    pub fn set_written(&self, mtime: Timespec, ctime: Timespec) -> Result<()> {
        self.require(OpenFlags::WRITE)?;
        if [mtime, ctime].iter().any(|time| time.nsec > 999_999_999) {
            return Err(Errno::EINVAL.into());
        }
        let _writer = self.sb().write_gate.change_opened()?;
        let inode = self.inode();
        let _change = inode.lock_exclusive();
        let set = SetAttr {
            mtime: Some(mtime),
            ctime: Some(ctime),
            ..SetAttr::default()
        };
        self.sb().fs().set_attr(inode, &set)
    }

    /// Changes the allocation of the file (`fallocate(2)`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a mode that the file system does not have, `EINVAL` for a range that makes
    /// no sense; the errors of [`write_at`](Self::write_at).
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.require(OpenFlags::WRITE)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let shapes = mode - FallocateMode::KEEP_SIZE;
        let needs_keep = mode.contains(FallocateMode::PUNCH_HOLE);
        if shapes.iter().count() > 1 || needs_keep && !mode.contains(FallocateMode::KEEP_SIZE) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.require_regular()?;
        check_range(offset, len)?;
        let inode = self.inode();
        if inode.perm().append() && !shapes.is_empty() {
            return Err(Errno::EPERM.into());
        }
        let _writer = self.sb().write_gate.change_opened()?;
        let _change = inode.lock_exclusive();
        check_mutable(inode)?;
        let now = clock::now();
        drop_privileges(&self.cred, self.sb(), inode, now)?;
        let context = self.sb().context_at(now, &self.cred);
        self.sb().fs().fallocate(inode, mode, offset, len, context)
    }

    /// Makes the file durable (`fsync(2)`, or with `data_only` `fdatasync(2)`).
    ///
    /// # Errors
    /// `EIO` if the device failed since the last call, or after a shutdown.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if self.flags.contains(OpenFlags::PATH) {
            return Err(Errno::EBADF.into());
        }
        self.sb().write_gate.check()?;
        self.sb().fs().sync_file(self.inode(), data_only)
    }

    fn require(&self, flag: OpenFlags) -> Result<()> {
        if self.flags.contains(flag) {
            Ok(())
        } else {
            Err(Errno::EBADF.into())
        }
    }

    fn require_regular(&self) -> Result<()> {
        match self.kind {
            _ if self.flags.contains(OpenFlags::PATH) => Err(Errno::EBADF.into()),
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn require_dir(&self) -> Result<()> {
        self.require(OpenFlags::READ)?;
        if self.kind.is_dir() {
            Ok(())
        } else {
            Err(Errno::ENOTDIR.into())
        }
    }

    /// Sets the access time after a read. A read that has succeeded does not fail because its time
    /// could not be stored.
    fn touch_atime(&self) {
        let sb = self.sb();
        let policy = sb.atime(self.kind);
        if policy == Atime::Never
            || self.flags.contains(OpenFlags::NOATIME)
            || self.location.mount.is_read_only()
        {
            return;
        }
        let inode = self.inode();
        let attr = inode.attr();
        let now = clock::now();
        if attr.flags.contains(crate::attr::FileFlags::NOATIME) || !atime_is_due(policy, &attr, now)
        {
            return;
        }
        if let Ok(_writer) = WriteGuard::take(&self.location.mount) {
            let _change = inode.lock_exclusive();
            let _ = sb.fs().set_attr(
                inode,
                &SetAttr {
                    atime: Some(now),
                    ..SetAttr::default()
                },
            );
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let sb = self.location.superblock();
        sb.files.leave(&self.entry);
        if self.flags.contains(OpenFlags::WRITE) {
            if self.has_written.load(Relaxed) {
                sb.fs().release(self.inode());
            }
            sb.write_gate.close_for_writing();
        }
    }
}

/// Returns whether a read sets the access time. By Linux's `relatime` it does if that time is not
/// later than the last change, or is a day old. A time that is set already is not set again: many
/// reads come between two ticks of the clock.
fn atime_is_due(policy: Atime, attr: &Attr, now: Timespec) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    if attr.atime == now {
        return false;
    }
    match policy {
        Atime::Never => false,
        Atime::Strict => true,
        Atime::Relative => {
            attr.atime <= attr.mtime
                || attr.atime <= attr.ctime
                || now.sec.saturating_sub(attr.atime.sec) >= DAY
        }
    }
}

/// Fails with `EFBIG` for a range that reaches past the greatest file offset.
fn check_range(offset: u64, len: u64) -> Result<()> {
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    if i64::try_from(end).is_err() {
        Err(Errno::EFBIG.into())
    } else {
        Ok(())
    }
}

/// Fails with `EPERM` for a file that has become immutable since it was opened. Locks: `rwsem`
/// exclusive.
fn check_mutable(inode: &Inode) -> Result<()> {
    if inode.perm().immutable() {
        Err(Errno::EPERM.into())
    } else {
        Ok(())
    }
}

/// Removes the privileges of a regular file whose contents change: capabilities, and the set-id
/// bits unless the caller may keep those. Locks: `rwsem` exclusive.
pub(crate) fn drop_privileges(
    cred: &Cred,
    sb: &SuperBlock,
    inode: &Inode,
    now: Timespec,
) -> Result<()> {
    if inode.kind() == FileType::Regular {
        xattr::drop_capabilities(cred, sb, inode, now)?;
    }
    drop_set_id_bits(cred, sb, inode, now)
}

/// Takes the set-id bits off a regular file that changes, unless the caller may keep them. Locks:
/// `rwsem` exclusive.
fn drop_set_id_bits(cred: &Cred, sb: &SuperBlock, inode: &Inode, now: Timespec) -> Result<()> {
    let lost = set_id_bits_lost(cred, inode);
    if lost == 0 || inode.kind() != FileType::Regular || cred.has(Caps::FSETID) {
        return Ok(());
    }
    let mode = inode.perm().mode() & 0o7777 & !lost;
    let mode = Some(mode);
    let ctime = Some(now);
    let rights = sb.space_rights(cred);
    sb.fs().set_attr(
        inode,
        &SetAttr {
            mode,
            ctime,
            rights,
            ..SetAttr::default()
        },
    )
}

/// Makes a regular file `size` bytes long; permission has been checked.
pub(crate) fn truncate(cred: &Cred, sb: &SuperBlock, inode: &Inode, size: u64) -> Result<()> {
    check_range(size, 0)?;
    let _change = inode.lock_exclusive();
    check_mutable(inode)?;
    let now = clock::now();
    drop_privileges(cred, sb, inode, now)?;
    sb.fs().truncate(inode, size, sb.context_at(now, cred))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_noted_once_a_tick() {
        let time = |sec| Timespec {
            sec,
            nsec: 4_000_000,
        };
        let attr = |atime, changed| Attr {
            atime: time(atime),
            mtime: time(changed),
            ctime: time(changed),
            ..Attr::default()
        };
        // Changed and read in one tick, and read later.
        assert!(!atime_is_due(Atime::Relative, &attr(5, 5), time(5)));
        assert!(atime_is_due(Atime::Relative, &attr(5, 5), time(6)));
        assert!(!atime_is_due(Atime::Relative, &attr(6, 5), time(7)));
        assert!(atime_is_due(
            Atime::Relative,
            &attr(6, 5),
            time(6 + 24 * 60 * 60)
        ));
        assert!(
            atime_is_due(Atime::Strict, &attr(6, 5), time(7))
                && !atime_is_due(Atime::Strict, &attr(6, 5), time(6))
        );
        assert!(!atime_is_due(Atime::Never, &attr(5, 5), time(9)));
    }
}
