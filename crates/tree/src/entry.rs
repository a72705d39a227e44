//! [`Entry`]: one member of a tree, and the types that describe it.
//!
//! Every source makes entries, and every sink takes them. A path has no empty component, no `.` and
//! no `..`, so joined to a directory it never leads out of it. An entry has no contents: [`Data`]
//! says where they are, for `Source::open`.

use extern4_disk::inode::InodeFlags;

/// One member of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The path in the tree: components joined by one `/`, none of which is empty, `.` or `..`.
    /// Empty for the root.
    pub path: Vec<u8>,
    /// The type, with its data.
    pub kind: Kind,
    /// The permission bits, masked by 07777.
    pub mode: u16,
    /// The number of the owner.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The time of the last change of the contents.
    pub mtime: Time,
    /// The extended attributes: full names, and values as Linux's `getxattr` returns them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The inode flags that are about the file and not about its storage: the flags of
    /// [`InodeFlags::KEPT`]. `None` if the source has none.
    pub flags: Option<InodeFlags>,
    /// The project to which the file is charged; `None` if the source has no projects.
    pub project: Option<u32>,
}

/// A time since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1,000,000,000.
    pub nanos: u32,
}

/// The type of a member, with its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Contents),
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A character device.
    CharDevice {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A further name of the entry with this path, which comes earlier.
    HardLink(Vec<u8>),
}

/// The contents of a regular file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The size in bytes.
    pub size: u64,
    /// Where the bytes are.
    pub data: Data,
}

/// Where the bytes of a file are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// In the host's file at the entry's path below the source's directory. A reader finds its
    /// holes.
    HostFile {
        /// Whether the file has fewer blocks than its size needs.
        sparse: bool,
        /// The file that the scan found.
        identity: Identity,
    },
    /// In one of the source's stores from this position on, without holes.
    Stored {
        /// The first byte's position, for [`Opened::offset`](crate::Opened::offset).
        position: u64,
    },
    /// Pieces in one of the source's stores, in the order of the file. The rest of the file is
    /// holes.
    Pieces(Box<[Piece]>),
}

/// A part of a file that is not a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The offset in the file.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The first byte's position in the store, for [`Opened::offset`](crate::Opened::offset).
    pub position: u64,
}

/// Identifies a file of the host in a certain state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The host's number of the file system that holds the file.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// The time of the last change of the contents.
    pub mtime: Time,
    /// The size in bytes.
    pub size: u64,
}
