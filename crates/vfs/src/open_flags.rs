//! Flags of `open(2)`, with Linux's values.
//!
//! A caller passes them to `Session::open`, which refuses combinations that Linux refuses; an
//! `OpenFile` keeps them and checks each later call against them. The FUSE server takes them from
//! requests.

bitflags::bitflags! {
    /// How to open (`open(2)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 1 << 1;
        /// Every write goes to the end.
        const APPEND = 1 << 2;
        /// Make the file if it does not exist.
        const CREATE = 1 << 3;
        /// With `CREATE`: `EEXIST` if it exists.
        const EXCL = 1 << 4;
        /// Make the file empty.
        const TRUNC = 1 << 5;
        /// `ELOOP` if the last component is a symbolic link.
        const NOFOLLOW = 1 << 6;
        /// `ENOTDIR` if it is no directory.
        const DIRECTORY = 1 << 7;
        /// A handle only: no permission on the file is needed and nothing can be read.
        const PATH = 1 << 8;
        /// A new regular file without a name, in the directory that the path names.
        const TMPFILE = 1 << 9;
        /// Reading does not change the access time; for the owner only.
        const NOATIME = 1 << 10;
    }
}
