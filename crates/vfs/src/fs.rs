//! What a file system implements to be served by the VFS.
//!
//! The three traits part the work as Linux does: [`FileSystem`] for the volume as a whole, [`InodeOps`] for the
//! name space and attributes, [`FileOps`] for contents. The VFS has already walked the path, checked permissions and
//! refused what no file system may see (a write to a read-only mount, a name that is too long, a rename into one's own
//! child); an implementation does the work and reports what its own structures say.
//!
//! Operations that change something default to `EROFS`, so a file system that only reads implements nothing of them.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::acl::{Acl, AclKind};
use crate::attr::{FileType, StatFs};
use crate::errno::Result;
use crate::inode::{Inode, NewInode};

/// What the VFS has to know of a file system once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsTraits {
    /// Name of the type, such as `ext4`.
    pub name: &'static str,
    /// Longest name in bytes.
    pub name_max: usize,
    /// Nothing can be changed.
    pub read_only: bool,
    /// ACLs are kept; without them only mode bits count.
    pub acl: bool,
    /// The file system adds nothing to the VFS's own search permission on directories, so that the check may be
    /// answered from the permission word alone.
    pub fast_may_exec: bool,
}

/// A name in a directory, as `readdir` finds it.
#[derive(Clone, Copy, Debug)]
pub struct RawDirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its inode number.
    pub ino: u64,
    /// Its type, where the directory keeps it.
    pub kind: Option<FileType>,
    /// The cookie that continues behind this entry; stays good while other entries come and go.
    pub next: u64,
}

/// A span of a file, as a map of its data and holes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// What stands there.
    pub kind: SpanKind,
}

/// What stands in a [`Span`].
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

/// A file system as a whole.
pub trait FileSystem: InodeOps + FileOps + Send + Sync + 'static {
    /// What the VFS has to know once.
    fn traits(&self) -> FsTraits;

    /// The inode number of the root directory.
    fn root_ino(&self) -> u64;

    /// Reads inode `ino`. The VFS calls it once for an inode that is not cached, however many ask at once.
    ///
    /// `ESTALE` for a number that is not in use or never can be.
    fn read_inode(&self, ino: u64) -> Result<NewInode>;

    /// Totals and free space.
    fn statfs(&self) -> Result<StatFs>;

    /// Makes everything durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// The VFS has dropped its last reference to an inode; one without links may be freed now.
    fn evict_inode(&self, _inode: &Inode) {}
}

/// Names and attributes.
pub trait InodeOps {
    /// The inode number behind `name` in directory `dir`; `None` if there is none. Never asked for `.` and `..`.
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<u64>>;

    /// The form of `name` under which the VFS remembers it in `dir`: itself, or what case folding makes of it. Only
    /// called for directories with `FileFlags::CASEFOLD`.
    fn canonical_name<'a>(&self, _dir: &Inode, name: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(Cow::Borrowed(name))
    }

    /// The target of a symbolic link.
    fn read_link(&self, inode: &Inode) -> Result<Box<[u8]>>;

    /// The value of the extended attribute with the full name `name` (`user.x`); `ENODATA` if there is none.
    /// ACLs do not come here.
    fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>>;

    /// Calls `each` with the full name of every extended attribute but the ACLs.
    fn list_xattr(&self, inode: &Inode, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Reads an ACL. The VFS caches the answer.
    fn get_acl(&self, inode: &Inode, kind: AclKind) -> Result<Option<Acl>>;
}

/// Contents of files and directories.
pub trait FileOps {
    /// Reads up to `buf.len()` bytes at `offset`; short only at the end of the file, holes are zeroes.
    fn read_at(&self, inode: &Inode, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// The span that holds byte `offset` of a regular file, cut to start there; `None` at or behind the end.
    fn span_at(&self, inode: &Inode, offset: u64) -> Result<Option<Span>>;

    /// Calls `each` for the entries of directory `dir` from `cookie` (0 is the start) until it breaks; `.` and `..`
    /// are among them.
    fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;
}
