//! Compares trees: volumes, directories of the host, archives, images of containers. Compares
//! texts, too.
//!
//! [`compare`] lists two trees whole, at the same time. A walk over both lists in the order of the
//! paths compares types and attributes. Then several threads read the files that have the same size
//! in both trees, and compare their contents. Something that cannot be read is a [`Fault`], and is
//! never taken as equal.
//!
//! Where one volume may have begun as a copy of the other, the bytes of both images are compared
//! first (`blocks`). They tell which inodes are the same (`inodes`), and so which directories need
//! no look (`directories`). The lists then have only what may differ (`joint`).
//!
//! [`compare_names`] compares two trees as `diff` of GNU compares directories. [`compare_files`]
//! compares two files and [`TextDiff`] two texts, line by line. [`Tree::view`] shows a tree by its
//! names for comparisons of other kinds, and [`same_contents`] says whether two files are the same.
//!
//! ```
//! use extern4::Volume;
//! use extern4::build::DirectorySource;
//! use extern4::diff::{Both, Change, Finding, Options, Tree, compare};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let site = dir.path().join("site");
//!     std::fs::create_dir(&site)?;
//!     std::fs::write(site.join("index.html"), "hello\n")?;
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let session = volume.superuser();
//!     session.write("/index.html", "Hello\n")?;
//!     session.write("/robots.txt", "")?;
//!
//!     let old = Tree::source(DirectorySource::new(&site)?);
//!     let new = Tree::volume(&volume, session);
//!     let options = Options { owners: false, times: false, ..Options::default() };
//!     let found = compare(Both { old: &old, new: &new }, &options);
//!     assert!(found.faults.old.is_empty() && found.faults.new.is_empty());
//!     for difference in &found.differences {
//!         let path = String::from_utf8_lossy(&difference.path);
//!         match &difference.finding {
//!             Finding::OnlyInOld(_) => println!("- {path}"),
//!             Finding::OnlyInNew(_) => println!("+ {path}"), // + robots.txt
//!             Finding::Changed(changes) => println!("{path}: {changes:?}"),
//!         }
//!     }
//!     let changed = found.differences.iter().find(|found| found.path == b"index.html");
//!     let Some(Finding::Changed(changes)) = changed.map(|found| &found.finding) else {
//!         panic!("the contents differ");
//!     };
//!     assert!(changes.contains(&Change::Contents));
//!     Ok(())
//! }
//! ```

mod blocks;
mod change;
mod compare;
mod contents;
mod directories;
mod fault;
mod files;
mod inodes;
mod joint;
mod listing;
mod names;
mod shared_extents;
mod text;
mod threads;
mod tree;
mod view;

pub use change::{Change, file_type};
pub use compare::{Comparison, Difference, Finding, compare};
pub use contents::{OneError, OpenFile, same_contents};
pub use fault::{Error, Fault};
pub use files::{FileDifference, FileError, FileOptions, LineTest, MAX_TEXT_BYTES, compare_files};
pub use names::{NameFinding, NameOptions, compare_names};
pub use text::{Hunk, Sign, TextDiff, TextOptions};
pub use tree::Tree;
pub use view::{Node, View};

/// The attributes that a comparison of trees looks at, and its threads. The default is everything,
/// with as many threads as there are cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Owners and groups.
    pub owners: bool,
    /// The times of the last modification.
    pub times: bool,
    /// Inode flags and projects.
    pub flags: bool,
    /// Extended attributes and ACLs.
    pub xattrs: bool,
    /// The number of threads; 0 for as many as there are cores.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owners: true,
            times: true,
            flags: true,
            xattrs: true,
            threads: 0,
        }
    }
}

/// The two things that are compared, or something about each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// Of the old one.
    pub old: T,
    /// Of the new one.
    pub new: T,
}

impl<T> Both<T> {
    /// Returns references to both.
    pub fn as_ref(&self) -> Both<&T> {
        Both {
            old: &self.old,
            new: &self.new,
        }
    }

    /// Calls `each` with both, the old one first.
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> Both<U> {
        Both {
            old: each(self.old),
            new: each(self.new),
        }
    }
}
