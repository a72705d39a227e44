//! Limits on lookups, and the ways to take a path.

/// The longest path in bytes: Linux's `PATH_MAX` without its terminating zero byte.
pub const PATH_MAX: usize = 4095;

/// The most symbolic links that one lookup follows.
pub const MAX_LINKS: u32 = 40;

bitflags::bitflags! {
    /// Limits on a lookup: those of `openat2(2)`, with its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Resolve: u32 {
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
    }
}

impl Resolve {
    /// Whether the lookup stays below its starting directory.
    pub(crate) fn is_scoped(self) -> bool {
        self.intersects(Self::BENEATH | Self::IN_ROOT)
    }

    /// Whether these limits are valid for an absolute or a relative path, and the path starts where
    /// it does without them.
    #[inline]
    pub(crate) fn allows(self, absolute: bool) -> bool {
        !self.is_scoped() || self.allows_scoped(absolute)
    }

    #[cold]
    fn allows_scoped(self, absolute: bool) -> bool {
        !absolute && !self.contains(Self::BENEATH | Self::IN_ROOT)
    }
}

/// How a lookup takes a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct How {
    /// Follow a symbolic link that is the last component.
    pub follow: bool,
    /// An empty path names the starting place itself (`AT_EMPTY_PATH`).
    pub empty: bool,
    /// Limits.
    pub resolve: Resolve,
}

impl How {
    /// Follow symbolic links, as `stat` does.
    pub const FOLLOW: Self = Self { follow: true, empty: false, resolve: Resolve::empty() };
    /// Do not follow a symbolic link that is the last component, as `lstat` does.
    pub const NOFOLLOW: Self = Self { follow: false, empty: false, resolve: Resolve::empty() };
    /// Like `FOLLOW`, and an empty path names the starting place.
    pub const EMPTY: Self = Self { follow: true, empty: true, resolve: Resolve::empty() };
}
