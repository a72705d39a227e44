//! The members of a tree.

/// One member of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The path in the tree: components joined by one `/`, none of which is empty, `.` or `..`.
    /// Empty for the root.
    pub path: Vec<u8>,
    /// The type, and what belongs to it.
    pub kind: Kind,
    /// The permission bits, of 07777.
    pub mode: u16,
    /// The number of the owner.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The time of the last change of the contents.
    pub mtime: Time,
    /// The extended attributes: full names, and the values that Linux's `getxattr` gives for them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A time since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1,000,000,000.
    pub nanos: u32,
}

/// The type of a member, and what belongs to it.
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
    /// A further name of the entry with this path, which was given earlier.
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
        /// The file that the scan met.
        identity: Identity,
    },
    /// In one of the source's stores from this position on, without holes.
    Stored {
        /// The first byte's position, for [`Opened::offset`](crate::Opened::offset).
        position: u64,
    },
    /// Pieces in one of the source's stores, sorted by their place in the file. The rest of the
    /// file is holes.
    Pieces(Box<[Piece]>),
}

/// A part of a file that is no hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The place in the file.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The first byte's position in the store, for [`Opened::offset`](crate::Opened::offset).
    pub position: u64,
}

/// Tells a file of the host from others and from later contents of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The device.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// The time of the last change of the contents.
    pub mtime: Time,
    /// The size in bytes.
    pub size: u64,
}
