//! The protocol as types: ABI 7.45 of the kernel's FUSE device.
//!
//! Names, layouts and values come from the interface header `linux/fuse.h`, which may be used
//! under BSD-2-Clause. Numbers are in the machine's own byte order. The module has only the parts
//! that this server uses.
//!
//! The parser of requests, the handlers and the transports use these types. The compiler checks
//! that each has no padding, so that no byte of the server's memory goes to the kernel by accident.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version; another one is another protocol.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that this module describes.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is served, that of Linux 5.13. All structures have had their
/// present sizes since.
pub(crate) const MINOR_MIN: u32 = 33;
/// The node id of the root.
pub(crate) const ROOT_ID: u64 = 1;

macro_rules! opcodes {
    ($($name:ident = $number:literal)*) => {
        /// Request types.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name = $number,)* }

        impl Opcode {
            /// Returns the request type with this number, `None` for an unknown one.
            pub(crate) fn from_raw(raw: u32) -> Option<Self> {
                match raw { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1
    Forget = 2
    Getattr = 3
    Setattr = 4
    Readlink = 5
    Symlink = 6
    Mknod = 8
    Mkdir = 9
    Unlink = 10
    Rmdir = 11
    Rename = 12
    Link = 13
    Open = 14
    Read = 15
    Write = 16
    Statfs = 17
    Release = 18
    Fsync = 20
    Setxattr = 21
    Getxattr = 22
    Listxattr = 23
    Removexattr = 24
    Flush = 25
    Init = 26
    Opendir = 27
    Readdir = 28
    Releasedir = 29
    Fsyncdir = 30
    Access = 34
    Create = 35
    Interrupt = 36
    Bmap = 37
    Destroy = 38
    Ioctl = 39
    BatchForget = 42
    Fallocate = 43
    Readdirplus = 44
    Rename2 = 45
    Lseek = 46
    CopyFileRange = 47
    Syncfs = 50
    Tmpfile = 51
    Statx = 52
    CopyFileRange64 = 53
}

bitflags::bitflags! {
    /// Capabilities of kernel and server, negotiated by INIT.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Features: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const WRITEBACK_CACHE = 1 << 16;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
    }

    /// The fields of [`SetattrIn`] that are valid.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// Bytes of a [`RingHeader`] for a header, and as many for the first argument.
pub(crate) const RING_PART_BYTES: usize = 128;

/// The part before the payload, in a request or an answer that goes through a ring. It has a
/// header, the first argument of a request, and the entry.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct RingHeader {
    pub(crate) header: [u8; RING_PART_BYTES],
    pub(crate) argument: [u8; RING_PART_BYTES],
    pub(crate) entry: RingEntry,
}
const _: () = assert!(size_of::<RingHeader>() == 288);

/// `FUSE_IO_URING_CMD_REGISTER`: an entry waits for its first request.
pub(crate) const RING_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: an entry has an answer, and then waits for its next
/// request.
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;

/// FOPEN_KEEP_CACHE: the kernel's cached contents of the file stay valid.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// FOPEN_CACHE_DIR: the kernel may keep the listing.
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// FOPEN_PARALLEL_DIRECT_WRITES: direct writes to one file may come at the same time.
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// FUSE_WRITE_CACHE: the write is of pages from the kernel's cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// FUSE_WRITE_KILL_SUIDGID: the write takes the set-id bits off the file.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// FUSE_FSYNC_FDATASYNC: contents only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// FUSE_SETXATTR_ACL_KILL_SGID: an access ACL takes the set-group-id bit off.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// FUSE_NOTIFY_INVAL_INODE: the kernel's cached state of a node is out of date.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;

macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

wire! {
    /// The header of every request.
    struct InHeader = 40 {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        // Length of the extensions behind the arguments, in units of 8 bytes.
        total_extlen: u16,
        padding: u16,
    }
    /// The header of every reply.
    struct OutHeader = 16 {
        len: u32,
        error: i32,
        unique: u64,
    }
    struct InitIn = 16 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }
    /// The part of INIT behind [`InitIn`], with [`Features::INIT_EXT`].
    struct InitInExt = 48 {
        flags2: u32,
        unused: [u32; 11],
    }
    struct InitOut = 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    /// An invalidation of a node. With an offset below zero, only of its attributes.
    struct NotifyInvalInodeOut = 24 {
        ino: u64,
        off: i64,
        len: i64,
    }
    struct WireAttr = 88 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    struct EntryOut = 128 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: WireAttr,
    }
    struct AttrOut = 104 {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: WireAttr,
    }
    struct ForgetIn = 8 {
        nlookup: u64,
    }
    struct ForgetOne = 16 {
        nodeid: u64,
        nlookup: u64,
    }
    struct BatchForgetIn = 8 {
        count: u32,
        dummy: u32,
    }
    struct MknodIn = 16 {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    struct MkdirIn = 8 {
        mode: u32,
        umask: u32,
    }
    struct RenameIn = 8 {
        newdir: u64,
    }
    struct Rename2In = 16 {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    struct LinkIn = 8 {
        oldnodeid: u64,
    }
    struct SetattrIn = 88 {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    struct OpenIn = 8 {
        flags: u32,
        open_flags: u32,
    }
    struct CreateIn = 16 {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    struct OpenOut = 16 {
        fh: u64,
        open_flags: u32,
        backing_id: i32,
    }
    struct ReleaseIn = 24 {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    struct ReadIn = 40 {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct WriteIn = 40 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct WriteOut = 8 {
        size: u32,
        padding: u32,
    }
    struct StatfsOut = 80 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    struct FsyncIn = 16 {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    struct SetxattrIn = 8 {
        size: u32,
        flags: u32,
    }
    /// The argument of SETXATTR with [`Features::SETXATTR_EXT`], in place of [`SetxattrIn`].
    struct SetxattrInExt = 16 {
        size: u32,
        flags: u32,
        setxattr_flags: u32,
        padding: u32,
    }
    struct GetxattrIn = 8 {
        size: u32,
        padding: u32,
    }
    struct GetxattrOut = 8 {
        size: u32,
        padding: u32,
    }
    struct AccessIn = 8 {
        mask: u32,
        padding: u32,
    }
    struct IoctlIn = 32 {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        in_size: u32,
        out_size: u32,
    }
    struct IoctlOut = 16 {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }
    struct BmapIn = 16 {
        block: u64,
        blocksize: u32,
        padding: u32,
    }
    struct BmapOut = 8 {
        block: u64,
    }
    struct FallocateIn = 32 {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }
    /// The header before the name of a directory entry; the next one starts at a multiple of eight.
    struct Dirent = 24 {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    struct LseekIn = 24 {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    struct LseekOut = 8 {
        offset: u64,
    }
    struct CopyFileRangeIn = 56 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    struct CopyFileRangeOut = 8 {
        bytes_copied: u64,
    }
    struct StatxIn = 24 {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    struct StatxTime = 16 {
        sec: i64,
        nsec: u32,
        reserved: i32,
    }
    struct WireStatx = 256 {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// The part of a ring's header that describes its entry.
    struct RingEntry = 32 {
        flags: u64,
        commit_id: u64,
        payload_size: u32,
        padding: u32,
        reserved: u64,
    }
    /// The command that hands an entry to the ring.
    struct RingCommand = 24 {
        flags: u64,
        commit_id: u64,
        queue: u16,
        padding: [u8; 6],
    }
    struct StatxOut = 288 {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: WireStatx,
    }
}
