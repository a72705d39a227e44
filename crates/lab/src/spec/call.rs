//! Calls and what they return.

use std::fmt;

use super::state::{BLOCKS, PLACES};

/// Where a name may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which directory.
    pub dir: usize,
    /// Which name in it.
    pub name: usize,
}

impl Place {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..PLACES).map(|index| Self { dir: index / 2, name: index % 2 })
    }

    /// Its number.
    pub fn index(self) -> usize {
        2 * self.dir + self.name
    }

    /// The path, below the directory that holds both.
    pub fn path(self) -> String {
        format!("d{}/{}", self.dir, ["a", "b"][self.name])
    }
}

/// A call, by one of two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Attributes by path.
    Stat(Place),
    /// Opens a file for reading.
    Open(Place),
    /// Closes the thread's descriptor.
    Close,
    /// Makes a file that is not there yet.
    Create(Place),
    /// Removes a name.
    Unlink(Place),
    /// Gives a file another name.
    Link(Place, Place),
    /// Moves a name.
    Rename(Place, Place),
    /// Sets permission bits.
    Chmod(Place, u16),
    /// Sets the extended attribute.
    SetXattr(Place, u8),
    /// Reads a block through the thread's descriptor.
    Read(usize),
    /// Fills a block through the thread's descriptor.
    Write(usize, u8),
    /// The names in a directory.
    ReadDir(usize),
}

/// What a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but that it is done.
    Done,
    /// `ENOENT`.
    Absent,
    /// `EEXIST`.
    Exists,
    /// What `stat` tells.
    Attributes {
        /// The number of the file.
        file: usize,
        /// Its names.
        links: u32,
        /// Its permission bits.
        mode: u16,
        /// Its change time is not that of the beginning.
        marked: bool,
    },
    /// What a block is filled with.
    Block(u8),
    /// Which names there are.
    Names([bool; 2]),
}

/// A row of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `stat` of a name that is there.
    Stat,
    /// `stat` of a name that is not.
    Miss,
    /// `pread`.
    Read,
    /// `getdents`.
    ReadDir,
    /// `open` for reading.
    Open,
    /// `close`.
    Close,
    /// `mknod`.
    Create,
    /// `unlink`.
    Unlink,
    /// `link`.
    Link,
    /// `rename`.
    Rename,
    /// `chmod`.
    Chmod,
    /// `setxattr`.
    SetXattr,
    /// `pwrite`.
    Write,
}

impl Kind {
    /// All, those that only read first.
    pub const ALL: [Self; 13] = [
        Self::Stat,
        Self::Miss,
        Self::Read,
        Self::ReadDir,
        Self::Open,
        Self::Close,
        Self::Create,
        Self::Unlink,
        Self::Link,
        Self::Rename,
        Self::Chmod,
        Self::SetXattr,
        Self::Write,
    ];

    /// As it is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Miss => "stat, absent",
            Self::Read => "read",
            Self::ReadDir => "readdir",
            Self::Open => "open",
            Self::Close => "close",
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Link => "link",
            Self::Rename => "rename",
            Self::Chmod => "chmod",
            Self::SetXattr => "setxattr",
            Self::Write => "write",
        }
    }

    /// The one that has this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Changes nothing that any call can tell. To open and to close change what is open.
    pub fn reads_only(self) -> bool {
        matches!(self, Self::Stat | Self::Miss | Self::Read | Self::ReadDir)
    }

    /// Made once more, changes nothing: also where it has, the first time. The time of a change is
    /// that of a tick of the clock.
    pub fn is_repeatable(self) -> bool {
        self.reads_only() || self == Self::Write
    }
}

impl Call {
    /// All calls, with all arguments.
    pub fn all() -> Vec<Self> {
        let mut calls = vec![Self::Close];
        for at in Place::all() {
            calls.extend([Self::Stat(at), Self::Open(at), Self::Create(at), Self::Unlink(at)]);
            calls.extend([0o600, 0o640].map(|mode| Self::Chmod(at, mode)));
            calls.extend([1, 2].map(|value| Self::SetXattr(at, value)));
            for to in Place::all().filter(|to| *to != at) {
                calls.extend([Self::Link(at, to), Self::Rename(at, to)]);
            }
        }
        for block in 0..BLOCKS {
            calls.extend([Self::Read(block), Self::Write(block, 1), Self::Write(block, 2)]);
        }
        calls.extend([Self::ReadDir(0), Self::ReadDir(1)]);
        calls
    }

    /// Its row, where it returns this.
    pub fn kind(self, outcome: Outcome) -> Kind {
        match self {
            Self::Stat(_) if outcome == Outcome::Absent => Kind::Miss,
            Self::Stat(_) => Kind::Stat,
            Self::Open(_) => Kind::Open,
            Self::Close => Kind::Close,
            Self::Create(_) => Kind::Create,
            Self::Unlink(_) => Kind::Unlink,
            Self::Link(..) => Kind::Link,
            Self::Rename(..) => Kind::Rename,
            Self::Chmod(..) => Kind::Chmod,
            Self::SetXattr(..) => Kind::SetXattr,
            Self::Read(_) => Kind::Read,
            Self::Write(..) => Kind::Write,
            Self::ReadDir(_) => Kind::ReadDir,
        }
    }

    /// The places that it names.
    pub fn places(self) -> Vec<Place> {
        match self {
            Self::Stat(at) | Self::Open(at) | Self::Create(at) | Self::Unlink(at) => vec![at],
            Self::Chmod(at, _) | Self::SetXattr(at, _) => vec![at],
            Self::Link(from, to) | Self::Rename(from, to) => vec![from, to],
            Self::Close | Self::Read(_) | Self::Write(..) | Self::ReadDir(_) => Vec::new(),
        }
    }

    /// The directories that it looks into.
    pub fn directories(self) -> Vec<usize> {
        match self {
            Self::ReadDir(dir) => vec![dir],
            _ => self.places().into_iter().map(|at| at.dir).collect(),
        }
    }

    /// Goes through the thread's descriptor.
    pub fn uses_descriptor(self) -> bool {
        matches!(self, Self::Close | Self::Read(_) | Self::Write(..))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Stat(at) => write!(f, "stat {}", at.path()),
            Self::Open(at) => write!(f, "open {}", at.path()),
            Self::Close => write!(f, "close"),
            Self::Create(at) => write!(f, "create {}", at.path()),
            Self::Unlink(at) => write!(f, "unlink {}", at.path()),
            Self::Link(from, to) => write!(f, "link {} {}", from.path(), to.path()),
            Self::Rename(from, to) => write!(f, "rename {} {}", from.path(), to.path()),
            Self::Chmod(at, mode) => write!(f, "chmod {} {mode:o}", at.path()),
            Self::SetXattr(at, value) => write!(f, "setxattr {} {value}", at.path()),
            Self::Read(block) => write!(f, "read {block}"),
            Self::Write(block, value) => write!(f, "write {block} {value}"),
            Self::ReadDir(dir) => write!(f, "readdir d{dir}"),
        }
    }
}
