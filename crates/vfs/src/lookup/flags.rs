//! The flags and limits of a lookup, as `openat2(2)` has them.
//!
//! A caller of the VFS passes [`LookupFlags`] with a path, and both walks obey them. Both also use
//! the limits on the length of a path and on symbolic links. A path that is too long fails before
//! the walk leaves its first directory; a path with too many links fails with `ELOOP`.

/// The longest path in bytes: Linux's `PATH_MAX` without its terminating zero byte.
pub const PATH_MAX: usize = 4095;

/// The most symbolic links that one lookup follows.
pub const MAX_LINKS: u32 = 40;

bitflags::bitflags! {
    /// How a lookup takes a path. The limits are the limits of `openat2(2)`, with its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LookupFlags: u32 {
        /// Stay on one mount: `EXDEV`.
        const NO_XDEV = 0x01;
        /// Follow no magic links. There are none here.
        const NO_MAGICLINKS = 0x02;
        /// Follow no symbolic links: `ELOOP`.
        const NO_SYMLINKS = 0x04;
        /// Stay below the starting directory: `EXDEV`.
        const BENEATH = 0x08;
        /// Take the starting directory for the root.
        const IN_ROOT = 0x10;
        /// Follow a symbolic link that is the last component, as `stat` does.
        const FOLLOW = 0x1_0000;
        /// An empty path names the starting place itself (`AT_EMPTY_PATH`).
        const EMPTY_PATH = 0x2_0000;
    }
}

impl LookupFlags {
    /// No flag: a symbolic link that is the last component is not followed, as by `lstat`.
    pub const NOFOLLOW: Self = Self::empty();

    /// Returns the limits among these flags, with [`FOLLOW`](Self::FOLLOW) if `follow` says so.
    #[inline]
    pub fn with_follow(self, follow: bool) -> Self {
        if follow {
            self.limits().union(Self::FOLLOW)
        } else {
            self.limits()
        }
    }

    /// Returns the limits among these flags.
    #[inline]
    pub(crate) fn limits(self) -> Self {
        self.difference(Self::FOLLOW.union(Self::EMPTY_PATH))
    }

    /// Returns whether the lookup stays below its starting directory.
    pub(crate) fn is_scoped(self) -> bool {
        self.intersects(Self::BENEATH | Self::IN_ROOT)
    }

    /// Returns whether these limits are valid for an absolute or a relative path, and the path
    /// starts where it does without them.
    #[inline]
    pub(crate) fn allows(self, absolute: bool) -> bool {
        !self.is_scoped() || self.allows_scoped(absolute)
    }

    #[cold]
    fn allows_scoped(self, absolute: bool) -> bool {
        !absolute && !self.contains(Self::BENEATH | Self::IN_ROOT)
    }
}
