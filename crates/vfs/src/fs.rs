//! The traits that a file system implements for the VFS.
//!
//! `ext4` and `memfs` implement them; only the VFS calls them.
//!
//! The three traits divide the work as Linux does. [`FileSystem`] is for the volume as a whole,
//! [`InodeOps`] for the name space and attributes, [`FileOps`] for contents. The VFS has already
//! walked the path and checked permissions. It has refused requests that no file system may see,
//! such as a write to a read-only mount or a rename into one's own child. An implementation does
//! the work and reports errors of the file system's structures.
//!
//! Operations that change something default to `EROFS`, so a file system that only reads implements
//! nothing of them. One that changes something does so in its own structures first. Then it changes
//! times, link counts, sizes and blocks of each inode in memory, through [`Inode::update`], or
//! [`Inode::update_acl`] where an ACL changed. During each call the VFS holds the locks that
//! [`crate::inode`] names, so no other thread changes attributes of an inode. But
//! [`FileOps::overwrite`] may be under way, and renames of a file that [leave it as it
//! is](Rename::touches). The VFS passes the time of the operation, and to operations that may take
//! space also the [`SpaceRights`] of the caller: both in a [`ChangeContext`].

use std::borrow::Cow;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use extern4_acl::{Acl, AclKind};

use crate::attr::{FileFlags, FileType, Rdev, StatFs, Timespec};
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::inode::{Inode, NewInode};

/// Properties of a file system that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsTraits {
    /// Name of the type, such as `ext4`.
    pub name: &'static str,
    /// Longest name in bytes.
    pub name_max: usize,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// Whether the file system keeps ACLs; without them only mode bits count.
    pub acl: bool,
    /// Whether the file system adds nothing to the VFS's own search permission on directories. The
    /// permission cache alone may then answer the check.
    pub fast_may_exec: bool,
    /// Whether there may be directories that ignore case in names.
    pub casefold: bool,
    /// Whether new files take the group of their directory, whatever its mode says.
    pub bsd_groups: bool,
    /// Bytes that the file system keeps in memory for each inode.
    pub inode_bytes: usize,
}

/// A name in a directory, as `readdir` finds it.
#[derive(Clone, Copy, Debug)]
pub struct RawDirEntry<'a> {
    /// The name, without a slash, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Its inode number.
    pub ino: u64,
    /// Its type, where the directory keeps it.
    pub kind: Option<FileType>,
    /// The cookie with which a listing continues after this entry. It stays valid while other
    /// entries come and go.
    pub next: u64,
}

/// A span of a file, as a map of its data and holes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte of the span, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The kind of its contents.
    pub kind: SpanKind,
}

/// The kind of the contents of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Nothing is allocated; reads as zeroes.
    Hole,
    /// Allocated but never written; reads as zeroes.
    Unwritten,
    /// Data at this byte offset of the device.
    Mapped {
        /// Byte offset on the device.
        device_offset: u64,
    },
    /// Data that is kept elsewhere: inside the inode, or in memory.
    Inline,
}

/// A piece of a file's contents, lent without a copy.
#[derive(Clone, Copy, Debug)]
pub enum Lent<'a> {
    /// Bytes of a file of the host's, from `offset` on.
    Host {
        /// That file; it is for reading only.
        file: &'a File,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// This number of zeroes, which have no place on the device.
    Zeroes(usize),
}

impl Lent<'_> {
    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        match *self {
            Self::Host { len, .. } | Self::Zeroes(len) => len,
        }
    }
}

/// A function that takes lent contents, one piece after the other. They are lent only during the
/// call. It returns false if it takes none of them.
pub type Take<'t> = dyn FnMut(&[Lent<'_>]) -> bool + 't;

/// The kind of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(Rdev),
    /// A block device.
    BlockDevice(Rdev),
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
}

impl NewKind<'_> {
    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        match self {
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::CharDevice(_) => FileType::CharDevice,
            Self::BlockDevice(_) => FileType::BlockDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }
}

/// An inode to make: owner, mode and ACLs are decided already, umask and default ACL included.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    /// The kind of the inode.
    pub kind: NewKind<'a>,
    /// Permission bits, set-id bits and sticky bit.
    pub mode: u16,
    /// The user who will own the file.
    pub uid: u32,
    /// The group of the new file.
    pub gid: u32,
    /// The access ACL, inherited; `None` if the mode says everything.
    pub acl: Option<&'a Acl>,
    /// Default ACL, for a directory.
    pub default_acl: Option<&'a Acl>,
    /// The time of the operation.
    pub now: Timespec,
    /// The limits on space that do not bind the caller that makes it.
    pub rights: SpaceRights,
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, set-id bits and sticky bit.
    pub mode: Option<u16>,
    /// The access ACL that goes with `mode`; only set together with it, on a file that has an ACL.
    /// The file system hands it on to [`Inode::update_acl`].
    pub acl: Option<Arc<Acl>>,
    /// The new owner; `None` keeps it.
    pub uid: Option<u32>,
    /// The new group; `None` keeps it.
    pub gid: Option<u32>,
    /// The new access time; `None` keeps it.
    pub atime: Option<Timespec>,
    /// Last change of the contents.
    pub mtime: Option<Timespec>,
    /// The new inode flags; `None` keeps them.
    pub flags: Option<FileFlags>,
    /// The project to which the file is charged. `EOPNOTSUPP` for one other than 0 on a file system
    /// without projects.
    pub project: Option<u32>,
    /// Last change of the attributes; `None` only if a read sets `atime` alone.
    pub ctime: Option<Timespec>,
    /// The limits on space that do not bind the caller: a new owner may be over its quota.
    pub rights: SpaceRights,
}

/// The limits on space that do not bind the caller of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceRights {
    /// Whether the caller has `CAP_SYS_RESOURCE`, so that quotas do not bind it.
    pub sys_resource: bool,
    /// Whether the caller may use the blocks that are reserved for root, as
    /// [`FileSystem::may_use_root_reserve`] says.
    pub root_reserve: bool,
}

impl SpaceRights {
    /// The rights of a caller that no limit binds.
    pub const ALL: Self = Self {
        sys_resource: true,
        root_reserve: true,
    };
}

/// The time of a change, and the rights of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeContext {
    /// The time of the operation.
    pub now: Timespec,
    /// The limits on space that do not bind the caller.
    pub rights: SpaceRights,
}

bitflags::bitflags! {
    /// How to rename (`renameat2(2)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Refuse to replace.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a character device 0/0 under the old name, by which overlay file systems mark a
        /// name as removed.
        const WHITEOUT = 4;
    }

    /// How to set an extended attribute (`setxattr(2)`). With both flags the call always fails,
    /// with one of the two errors.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// `EEXIST` if the attribute exists.
        const CREATE = 1;
        /// `ENODATA` if the attribute does not exist.
        const REPLACE = 2;
    }

    /// How to change the allocation of a file (`fallocate(2)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FallocateMode: u32 {
        /// The size stays.
        const KEEP_SIZE = 1;
        /// Makes a hole; together with `KEEP_SIZE`.
        const PUNCH_HOLE = 2;
        /// Removes the range: the contents behind it move to its start.
        const COLLAPSE_RANGE = 8;
        /// Makes the range read as zeroes.
        const ZERO_RANGE = 16;
        /// Inserts a hole: the contents from its start on move behind it.
        const INSERT_RANGE = 32;
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub struct NameRef<'a> {
    /// The directory with the name, locked for the change.
    pub dir: &'a Inode,
    /// The name in it.
    pub name: &'a [u8],
}

/// A rename that the VFS has checked: neither end lies below the other, and the target may be
/// replaced.
#[derive(Clone, Copy)]
pub struct Rename<'a> {
    /// The old name.
    pub from: NameRef<'a>,
    /// The inode that moves.
    pub inode: &'a Inode,
    /// The new name.
    pub to: NameRef<'a>,
    /// The inode of the new name. It is replaced, or with [`RenameFlags::EXCHANGE`] moves the other
    /// way.
    pub target: Option<&'a Inode>,
    /// The flags of the rename.
    pub flags: RenameFlags,
    /// The inode to make under the old name, with [`RenameFlags::WHITEOUT`].
    pub whiteout: Option<NewNode<'a>>,
    /// The time of the operation.
    pub now: Timespec,
    /// Whether the moved inode is changed. If it was last changed at this moment already, it must
    /// stay as it is, and other threads may change its attributes meanwhile. A directory is always
    /// changed.
    pub touches: bool,
    /// The limits on space that do not bind the caller.
    pub rights: SpaceRights,
}

/// A file system as a whole.
pub trait FileSystem: InodeOps + FileOps + Send + Sync + 'static {
    /// Returns the properties that do not change.
    fn traits(&self) -> FsTraits;

    /// Returns the inode number of the root directory.
    fn root_ino(&self) -> u64;

    /// Reads inode `ino`. The VFS calls it once for an inode that is not cached, however many
    /// threads ask at once.
    ///
    /// `ESTALE` for a number that is not in use or never can be. The VFS itself returns `ESTALE`
    /// for an inode without links.
    fn read_inode(&self, ino: u64) -> Result<NewInode>;

    /// Returns totals and free space.
    fn statfs(&self) -> Result<StatFs>;

    /// Returns totals and free space as seen from `inode`: in a directory with a limit, no more
    /// than that.
    fn statfs_by(&self, _inode: &Inode) -> Result<StatFs> {
        self.statfs()
    }

    /// Returns whether `cred` may use the blocks that are reserved for root. The VFS hands the
    /// answer to each change in [`SpaceRights`].
    fn may_use_root_reserve(&self, cred: &Cred) -> bool {
        cred.has(Caps::SYS_RESOURCE)
    }

    /// Returns the volume's label. `EOPNOTSUPP` where volumes have none.
    fn label(&self) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Gives the volume another label. `EINVAL` for one that is too long.
    fn set_label(&self, _label: &[u8]) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Discards the free space among these bytes of the volume on its device (`FITRIM`), except for
    /// runs shorter than `min_bytes`. Returns the number of bytes discarded.
    fn trim(&self, _bytes: Range<u64>, _min_bytes: u64) -> Result<u64> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes everything durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Stops all changes: changes that are not durable are lost, as in a crash. After the return,
    /// only changes that had begun may still write, and these fail soon. `why` is for the errors
    /// that follow.
    fn abort(&self, _why: &str) {}

    /// Called when the last user of the [`SuperBlock`](crate::SuperBlock) has gone. Afterwards the
    /// VFS calls only [`evict_inode`](Self::evict_inode), for inodes that are still in the caches.
    fn end(&self) {}

    /// Called when the VFS has dropped its last reference to an inode. The file system may now free
    /// an inode without links. Another thread may read an inode with links again at the same time.
    fn evict_inode(&self, _inode: &Inode) {}
}

/// Names and attributes.
pub trait InodeOps {
    /// Returns the inode number behind `name` in directory `dir`; `None` if there is none. The VFS
    /// never asks for `.` and `..`.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>>;

    /// Returns whether `name`, in the form of [`canonical_name`](Self::canonical_name), was not in
    /// `dir` at some moment of the call, as far as the file system knows that without reading and
    /// without waiting for a lock. False says nothing about the name.
    ///
    /// A thread that changes a name has it hidden in the cache of names. So the VFS looks into that
    /// cache after this call: the answer may come from the middle of such a change. Before the
    /// change ends, a thread that has seen its effect here must see the name hidden there.
    fn is_absent(&self, _dir: &Inode, _name: &[u8]) -> bool {
        false
    }

    /// Checks whether a name in `dir` may refer to `found`. Only called for directories with
    /// [`FileFlags::ENCRYPT`].
    ///
    /// [`FileFlags::ENCRYPT`]: crate::FileFlags::ENCRYPT
    fn check_found(&self, _dir: &Inode, _found: &Inode) -> Result<()> {
        Ok(())
    }

    /// Returns the form of `name` under which the VFS caches it in `dir`: the name itself, or its
    /// case-folded form. Only called for directories with `FileFlags::CASEFOLD`.
    fn canonical_name<'a>(&self, _dir: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(Cow::Borrowed(name))
    }

    /// Returns the target of a symbolic link.
    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>>;

    /// Returns the value of the extended attribute with the full name `name` (`user.x`); `ENODATA`
    /// if there is none. For ACLs the VFS calls [`get_acl`](Self::get_acl).
    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>>;

    /// Calls `each` with the full name of every extended attribute but the ACLs.
    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Reads an ACL. The VFS caches the answer.
    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>>;

    /// Makes an inode and adds it to `dir` under `name`, which does not exist yet. Without a name
    /// (`O_TMPFILE`), the inode has no links, and eviction frees it.
    fn create(&self, _dir: &Inode, _name: Option<&[u8]>, _node: &NewNode<'_>) -> Result<NewInode> {
        Err(Errno::EROFS.into())
    }

    /// Gives `inode`, which is no directory, one more name. `EMLINK` if it has as many links as are
    /// possible.
    fn link(&self, _inode: &Inode, _to: NameRef<'_>, _context: ChangeContext) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Removes a name of `inode`, which is no directory. If `is_last`, this is its only link, and
    /// no thread uses the inode or can find it any more. The file system may then free it in the
    /// same step. The VFS evicts it all the same. Before the file system gives its number to
    /// another file, its attributes must say that it has no links.
    fn unlink(
        &self,
        _from: NameRef<'_>,
        _inode: &Inode,
        _now: Timespec,
        _is_last: bool,
    ) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Removes directory `inode`; `ENOTEMPTY` if there are names in it. Its link count becomes
    /// zero.
    fn rmdir(&self, _from: NameRef<'_>, _inode: &Inode, _now: Timespec) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Renames. `ENOTEMPTY` if the target is a directory with names in it.
    fn rename(&self, _rename: &Rename<'_>) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Sets attributes.
    fn set_attr(&self, _inode: &Inode, _set: &SetAttr) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Sets an extended attribute, or removes it if there is no value; `ENODATA` if it does not
    /// exist.
    fn set_xattr(
        &self,
        _inode: &Inode,
        _name: &[u8],
        _value: Option<&[u8]>,
        _flags: XattrFlags,
        _context: ChangeContext,
    ) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Sets or removes an ACL. An access ACL comes with the permission bits it means. The file
    /// system hands both on to [`Inode::update_acl`].
    fn set_acl(
        &self,
        _inode: &Inode,
        _kind: AclKind,
        _acl: Option<Arc<Acl>>,
        _mode: Option<u16>,
        _context: ChangeContext,
    ) -> Result<()> {
        Err(Errno::EROFS.into())
    }
}

/// Contents of files and directories.
pub trait FileOps {
    /// Checks whether a regular file may be opened. Only called if the file has
    /// [`FileFlags::ENCRYPT`], or the directory of its name has it, which `in_encrypted` says.
    ///
    /// [`FileFlags::ENCRYPT`]: crate::FileFlags::ENCRYPT
    fn check_open(&self, _inode: &Inode, _in_encrypted: bool) -> Result<()> {
        Ok(())
    }

    /// Reads up to `buf.len()` bytes at `offset`; short only at the end of the file, holes are
    /// zeroes.
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Lends `take` the bytes that [`read_at`](Self::read_at) would read into a buffer of `len`
    /// bytes, without a copy. Until `take` returns, their place holds only contents of this file.
    /// Returns false if `take` does not take them, or if their place cannot be lent. Errors are
    /// the errors of reading, except for errors that only `take` meets.
    fn lend(
        &self,
        _inode: &Inode,
        _offset: u64,
        _len: usize,
        _take: &mut Take<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Returns the span that holds byte `offset` of a regular file, cut to start there; `None` at
    /// or behind the end.
    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>>;

    /// Returns the byte of the device that holds byte `offset` of a regular file, for programs that
    /// read and write its block directly. `None` if the block has no place or was never written.
    /// `None` also if its contents may be elsewhere, too, such as in a journal.
    fn bmap(&self, _inode: &Inode, _offset: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Calls `each` for the entries of directory `dir` from `cookie` (0 is the start) until it
    /// breaks; `.` and `..` are among them.
    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Writes at `offset`, growing the file where it has to; returns how many bytes were written,
    /// not zero unless `data` is empty.
    fn write_at(
        &self,
        _inode: &Inode,
        _data: &[u8],
        _offset: u64,
        _context: ChangeContext,
    ) -> Result<usize> {
        Err(Errno::EROFS.into())
    }

    /// Writes over existing contents of a regular file and leaves its attributes as they are:
    /// `data` ends within the file. Returns false, and has written nothing, if the write needs
    /// more, such as room: then the caller calls [`write_at`](Self::write_at).
    ///
    /// Other threads may do so at the same time. Of two writes that have bytes in common, one must
    /// be complete before the other. An implementation may write in several steps, or not know that
    /// the steps of others are atomic. It then calls `apart` once before the first step. From then
    /// on until this returns, no other write that calls `apart` writes any of the same bytes. A
    /// write that does not call it is one step. Locks: `rwsem` shared.
    fn overwrite(
        &self,
        _inode: &Inode,
        _data: &[u8],
        _offset: u64,
        _apart: &mut dyn FnMut(),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Makes a regular file `size` bytes long.
    fn truncate(&self, _inode: &Inode, _size: u64, _context: ChangeContext) -> Result<()> {
        Err(Errno::EROFS.into())
    }

    /// Changes the allocation of a regular file; `EOPNOTSUPP` for a mode that the file system does
    /// not know.
    fn fallocate(
        &self,
        _inode: &Inode,
        _mode: FallocateMode,
        _offset: u64,
        _len: u64,
        _context: ChangeContext,
    ) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Called when an open file through which contents were written has been closed. Other threads
    /// may have the file open, and may be writing at this moment.
    fn release(&self, _inode: &Inode) {}

    /// Makes a file durable; with `data_only`, its times need not be.
    fn sync_file(&self, _inode: &Inode, _data_only: bool) -> Result<()> {
        Ok(())
    }
}
