//! The calls of the specification, with all their arguments, and their results.
//!
//! `state` says what each call does, `commute` forms pairs of them, and `conflicts` makes them on
//! volumes. The list of calls is complete: each kind with each argument that the small model has.

use std::fmt;

use super::state::{BLOCKS, PLACES};

/// A place for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSlot {
    /// The directory.
    pub dir: usize,
    /// The name in it.
    pub name: usize,
}

impl NameSlot {
    /// Returns all places.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..PLACES).map(|index| Self { dir: index / 2, name: index % 2 })
    }

    /// Returns the number of the place.
    pub fn index(self) -> usize {
        2 * self.dir + self.name
    }

    /// Returns the path, below the directory that holds both directories.
    pub fn path(self) -> String {
        format!("d{}/{}", self.dir, ["a", "b"][self.name])
    }
}

/// A call, by one of two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Returns attributes by path.
    Stat(NameSlot),
    /// Opens a file for reading.
    Open(NameSlot),
    /// Closes the thread's descriptor.
    Close,
    /// Creates a file, unless the name exists.
    Create(NameSlot),
    /// Removes a name.
    Unlink(NameSlot),
    /// Adds a name to a file.
    Link(NameSlot, NameSlot),
    /// Renames a file.
    Rename(NameSlot, NameSlot),
    /// Sets permission bits.
    Chmod(NameSlot, u16),
    /// Sets the extended attribute.
    SetXattr(NameSlot, u8),
    /// Reads a block through the thread's descriptor.
    Read(usize),
    /// Fills a block through the thread's descriptor.
    Write(usize, u8),
    /// Lists the names in a directory.
    ReadDir(usize),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// `ENOENT`.
    Absent,
    /// `EEXIST`.
    Exists,
    /// The attributes that `stat` returns.
    Attributes {
        /// The number of the file.
        file: usize,
        /// The number of its names.
        links: u32,
        /// Its permission bits.
        mode: u16,
        /// Whether its change time differs from the initial one.
        marked: bool,
    },
    /// The byte that a block is filled with.
    Block(u8),
    /// The names that exist.
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
    /// All kinds, those that only read first.
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

    /// Returns the name in the report.
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

    /// Returns the kind with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether no call can observe that this one was made. To open and to close change the
    /// set of open files.
    pub fn reads_only(self) -> bool {
        matches!(self, Self::Stat | Self::Miss | Self::Read | Self::ReadDir)
    }

    /// Returns whether a repetition changes nothing, even if the first call did. Change times have
    /// the resolution of a clock tick.
    pub fn is_repeatable(self) -> bool {
        self.reads_only() || self == Self::Write
    }
}

impl Call {
    /// Returns all calls, with all arguments.
    pub fn all() -> Vec<Self> {
        let mut calls = vec![Self::Close];
        for at in NameSlot::all() {
            calls.extend([Self::Stat(at), Self::Open(at), Self::Create(at), Self::Unlink(at)]);
            calls.extend([0o600, 0o640].map(|mode| Self::Chmod(at, mode)));
            calls.extend([1, 2].map(|value| Self::SetXattr(at, value)));
            for to in NameSlot::all().filter(|to| *to != at) {
                calls.extend([Self::Link(at, to), Self::Rename(at, to)]);
            }
        }
        for block in 0..BLOCKS {
            calls.extend([Self::Read(block), Self::Write(block, 1), Self::Write(block, 2)]);
        }
        calls.extend([Self::ReadDir(0), Self::ReadDir(1)]);
        calls
    }

    /// Returns the kind of this call, if it has this outcome.
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

    /// Returns the places that the call names.
    pub fn places(self) -> Vec<NameSlot> {
        match self {
            Self::Stat(at) | Self::Open(at) | Self::Create(at) | Self::Unlink(at) => vec![at],
            Self::Chmod(at, _) | Self::SetXattr(at, _) => vec![at],
            Self::Link(from, to) | Self::Rename(from, to) => vec![from, to],
            Self::Close | Self::Read(_) | Self::Write(..) | Self::ReadDir(_) => Vec::new(),
        }
    }

    /// Returns the directories that the call looks into.
    pub fn directories(self) -> Vec<usize> {
        match self {
            Self::ReadDir(dir) => vec![dir],
            _ => self.places().into_iter().map(|at| at.dir).collect(),
        }
    }

    /// Returns whether the call uses the thread's descriptor.
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
