//! Depth-first walks over the trees of a volume.
//!
//! [`Session::walk`](crate::Session::walk) starts one. Commands, copies and removals take its
//! events, and programs do too. Each step goes by one name from the directory that has it, so a
//! walk reaches trees of any depth, and a rename under way cannot lead it elsewhere.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4_vfs as vfs;
use vfs::{Attr, Errno, FileType, LookupFlags, OpenFlags};

use crate::dir::{DirEntry, is_step};
use crate::error::{Error, ErrorKind, Result};
use crate::listing::Listing;
use crate::session::{Session, bytes};

/// Directories that a walk has open at most. It closes one further up, and opens it again when it
/// returns to it.
const MAX_OPEN: usize = 32;

/// A depth-first walk over a file and everything below it; see
/// [`Session::walk`](crate::Session::walk).
///
/// As an iterator, it returns each entry once, a directory before the entries in it.
/// [`next_event`](Self::next_event) also says where a directory ends. [`enter`](Self::enter) and
/// [`skip_subtree`](Self::skip_subtree) decide about the entry returned last.
///
/// An error is an item, and the walk goes on after it. Names may come and go while the walk is
/// under way, by the caller's hand too. It then returns each name once that is there throughout.
///
/// # Limits
/// A walk has at most 32 directories open, with at most 1024 entries each in memory. Besides, it
/// keeps the inode number of each directory that it has entered, and a position in each that it is
/// inside of. A [sorted](Self::sorted) walk has all names of the directories that it is inside of
/// in memory.
pub struct Walk {
    how: LookupFlags,
    with_metadata: bool,
    sorted: bool,
    /// The session of the caller, until the walk has started.
    start: Option<Arc<vfs::Session>>,
    /// The path of the file that is visited.
    path: Vec<u8>,
    last: Last,
    levels: Vec<Level>,
    /// Directories entered, each with the link that led there. A sound volume never leads to one
    /// twice, so this set ends a walk over an unsound one.
    entered: HashSet<(usize, u64)>,
    /// Symbolic links entered.
    links: usize,
    visited: u64,
}

/// A step of a [`Walk`].
#[derive(Debug)]
pub enum WalkEvent {
    /// A directory, before the entries in it.
    Enter(DirEntry),
    /// A file that is not a directory.
    File(DirEntry),
    /// A directory, or a symbolic link that the caller has [entered](Walk::enter), after everything
    /// in it. The entry has the attributes that it had before.
    Leave(DirEntry),
}

/// The entry returned last, as far as the caller may decide about it.
enum Last {
    /// A directory, which the next step enters.
    Directory(Found),
    /// A symbolic link, which only the caller enters.
    Symlink(Found),
    /// The innermost directory, which the caller has entered.
    Entered,
    /// Anything else.
    Other,
}

/// An entry, in the directory that has it.
struct Found {
    parent: Arc<vfs::Session>,
    name_len: usize,
    ino: u64,
    kind: Option<FileType>,
    attr: Option<Attr>,
}

/// A directory that the walk is inside of.
struct Level {
    found: Found,
    path_len: usize,
    /// The number of the link that led here; 0 for none.
    link: usize,
    entries: Entries,
}

/// The entries that are left in a directory.
enum Entries {
    InOrder(Listing),
    /// All names, the next one last.
    Sorted(Arc<vfs::Session>, Vec<Name>),
    /// None: the directory could not be read.
    Unreadable,
}

struct Name {
    name: Box<[u8]>,
    ino: u64,
    kind: Option<FileType>,
}

impl Session {
    /// Walks over `path` itself and everything below it, a directory before its entries, in the
    /// directories' own order. The walk does not follow symbolic links, unless `path` itself is one
    /// that ends in a slash.
    ///
    /// An entry that the walk cannot read is an error in its place; the walk then goes on.
    ///
    /// ```
    /// use extern4::Volume;
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.create_dir_all("/usr/include/linux")?;
    ///     session.write("/usr/include/linux/fs.h", "/* fs */")?;
    ///     let mut headers = Vec::new();
    ///     for entry in session.walk("/usr") {
    ///         let entry = entry?;
    ///         if entry.path().extension().is_some_and(|extension| extension == "h") {
    ///             headers.push(entry.into_path());
    ///         }
    ///     }
    ///     assert_eq!(headers, [std::path::Path::new("/usr/include/linux/fs.h")]);
    ///     Ok(())
    /// }
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.vfs(), path.as_ref(), self.how(false))
    }
}

impl Walk {
    fn new(session: &vfs::Session, path: &Path, how: LookupFlags) -> Self {
        Self {
            how,
            with_metadata: false,
            sorted: false,
            start: Some(Arc::new(session.clone())),
            path: bytes(path).to_vec(),
            last: Last::Other,
            levels: Vec::new(),
            entered: HashSet::new(),
            links: 0,
            visited: 0,
        }
    }

    /// Fetches the attributes along with the entries, which is cheaper than one query for each.
    pub fn with_metadata(mut self) -> Self {
        self.with_metadata = true;
        self
    }

    /// Visits the entries of each directory in the order of their names' bytes. A directory that
    /// cannot be read to its end is an error, and none of its entries is visited.
    pub fn sorted(mut self) -> Self {
        self.sorted = true;
        self
    }

    /// Returns the number of entries visited so far.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Returns the next event; `None` at the end.
    ///
    /// Each [`Enter`](WalkEvent::Enter) has its [`Leave`](WalkEvent::Leave), also if the directory
    /// turns out to be unreadable, unless the caller skips it. The caller may remove a file
    /// when it comes, and a directory when the walk leaves it:
    ///
    /// ```
    /// use extern4::{Volume, WalkEvent};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let dir = tempfile::tempdir()?;
    ///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
    ///     session.create_dir_all("/cache/a/b")?;
    ///     session.write("/cache/a/file", "text")?;
    ///     let mut walk = session.walk("/cache");
    ///     while let Some(event) = walk.next_event() {
    ///         match event? {
    ///             WalkEvent::Enter(_) => {}
    ///             WalkEvent::File(entry) | WalkEvent::Leave(entry) => entry.remove()?,
    ///         }
    ///     }
    ///     assert_eq!(walk.visited(), 4);
    ///     assert!(!session.exists("/cache")?);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An entry whose type cannot be read, whose name is not a file name, or a directory that
    /// cannot be read. The error has its path.
    pub fn next_event(&mut self) -> Option<Result<WalkEvent>> {
        self.step(true)
    }

    /// Does not visit what is in the directory returned last, and does not leave it either.
    pub fn skip_subtree(&mut self) {
        if matches!(self.last, Last::Entered) {
            self.levels.pop();
        }
        self.last = Last::Other;
    }

    /// Enters the entry returned last now: a directory, which the next step would enter anyway, or
    /// a symbolic link to one. The paths of the entries in a link go through it. After them comes
    /// its [`Leave`](WalkEvent::Leave).
    ///
    /// # Errors
    /// The entry cannot be read as a directory; the walk goes on after it, without a `Leave`.
    /// `ELOOP` if a link leads to a directory that the walk is inside of.
    pub fn enter(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.last, Last::Other) {
            Last::Directory(found) => {
                let entries = self.open(&found, LookupFlags::NOFOLLOW)?;
                self.push(found, self.link(), entries);
            }
            Last::Symlink(found) => {
                let entries = self.open(&found, self.how.with_follow(true))?;
                self.links += 1;
                self.push(found, self.links, entries);
            }
            Last::Entered => {}
            Last::Other => {
                let error = Error::new(ErrorKind::Os(Errno::ENOTDIR), "enter");
                return Err(error.at(as_path(&self.path)));
            }
        }
        self.last = Last::Entered;
        Ok(())
    }

    /// Enters a directory that the caller did not decide about. One that cannot be read is left in
    /// the step after the error.
    fn descend(&mut self, found: Found) -> Result<()> {
        let opened = self.open(&found, LookupFlags::NOFOLLOW);
        let (entries, result) = match opened {
            Ok(entries) => (entries, Ok(())),
            Err(error) => (Entries::Unreadable, Err(error)),
        };
        self.push(found, self.link(), entries);
        result
    }

    fn open(&mut self, found: &Found, how: LookupFlags) -> Result<Entries> {
        let name = &self.path[self.path.len() - found.name_len..];
        let path = as_path(&self.path);
        let located = found.parent.locate(name, how);
        let location = located.map_err(|e| Error::vfs("open", path, e))?;
        if found.kind == Some(FileType::Symlink) {
            let mut above = self.levels.iter().filter_map(Level::session);
            if above.any(|session| session.cwd().is(&location)) {
                return Err(Error::new(ErrorKind::Os(Errno::ELOOP), "enter").at(path));
            }
        } else if !self.entered.insert((self.link(), found.ino)) {
            let twice = "the directory has more than one name, or is inside itself";
            return Err(Error::new(ErrorKind::Corrupt, "enter")
                .at(path)
                .because(twice));
        }
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let directory = found.parent.open_location(location, flags, &self.path);
        let directory = directory.map_err(|e| Error::vfs("open", path, e))?;
        let mut listing = Listing::new(&found.parent, directory);
        listing.with_metadata = self.with_metadata;
        if self.sorted {
            sorted(listing, &self.path)
        } else {
            Ok(Entries::InOrder(listing))
        }
    }

    /// Returns the number of the link that led to the innermost directory; 0 for none.
    fn link(&self) -> usize {
        self.levels.last().map_or(0, |level| level.link)
    }

    fn push(&mut self, found: Found, link: usize, entries: Entries) {
        self.levels.push(Level {
            found,
            path_len: self.path.len(),
            link,
            entries,
        });
        let far = self.levels.len().checked_sub(MAX_OPEN + 1);
        if let Some(far) = far
            && let Entries::InOrder(listing) = &mut self.levels[far].entries
        {
            listing.close();
        }
    }

    /// Returns the next event. Without `leaves`, it passes over the ends of directories.
    fn step(&mut self, leaves: bool) -> Option<Result<WalkEvent>> {
        if let Some(session) = self.start.take() {
            return Some(self.first(session));
        }
        if let Last::Directory(found) = std::mem::replace(&mut self.last, Last::Other)
            && let Err(error) = self.descend(found)
        {
            return Some(Err(error));
        }
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            match level.entries.next(&mut self.path, depth) {
                Some(Ok(entry)) => return Some(self.visit(entry)),
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
            let level = self.levels.pop()?;
            if leaves {
                let entry = level.found.entry(&self.path, self.levels.len());
                return Some(Ok(WalkEvent::Leave(entry)));
            }
        }
    }

    /// Visits the start.
    fn first(&mut self, parent: Arc<vfs::Session>) -> Result<WalkEvent> {
        let found = parent.stat(&self.path, self.how);
        let attr = found.map_err(|e| Error::vfs("stat", as_path(&self.path), e))?;
        Ok(self.found(DirEntry {
            parent,
            path: as_path(&self.path).to_owned(),
            name_len: self.path.len(),
            depth: 0,
            ino: attr.ino,
            kind: Some(attr.kind),
            attr: Some(attr),
        }))
    }

    /// Visits an entry of the innermost directory.
    fn visit(&mut self, mut entry: DirEntry) -> Result<WalkEvent> {
        if !is_step(entry.file_name()) {
            let error = Error::new(ErrorKind::Corrupt, "read").at(entry.path());
            return Err(error.because("not a file name"));
        }
        // Where the directory does not store types, the inode has the type. The walk does not enter
        // an entry whose inode it cannot read.
        if entry.kind.is_none() {
            let found = entry.metadata()?.0;
            entry.kind = Some(found.kind);
            entry.attr = Some(found);
        }
        Ok(self.found(entry))
    }

    fn found(&mut self, entry: DirEntry) -> WalkEvent {
        self.visited += 1;
        match entry.kind {
            Some(FileType::Directory) => {
                self.last = Last::Directory(Found::new(&entry));
                WalkEvent::Enter(entry)
            }
            Some(FileType::Symlink) => {
                self.last = Last::Symlink(Found::new(&entry));
                WalkEvent::File(entry)
            }
            _ => WalkEvent::File(entry),
        }
    }
}

impl Found {
    fn new(entry: &DirEntry) -> Self {
        Self {
            parent: Arc::clone(&entry.parent),
            name_len: entry.name_len,
            ino: entry.ino,
            kind: entry.kind,
            attr: entry.attr,
        }
    }

    /// Returns the entry again. `path` is its path.
    fn entry(&self, path: &[u8], depth: usize) -> DirEntry {
        DirEntry {
            parent: Arc::clone(&self.parent),
            path: as_path(path).to_owned(),
            name_len: self.name_len,
            depth,
            ino: self.ino,
            kind: self.kind,
            attr: self.attr,
        }
    }
}

impl Level {
    /// Returns a session in the directory, unless it cannot be read.
    fn session(&self) -> Option<&Arc<vfs::Session>> {
        match &self.entries {
            Entries::InOrder(listing) => Some(&listing.session),
            Entries::Sorted(session, _) => Some(session),
            Entries::Unreadable => None,
        }
    }
}

impl Entries {
    /// Appends the next name to the path of the directory, and returns its entry.
    fn next(&mut self, path: &mut Vec<u8>, depth: usize) -> Option<Result<DirEntry>> {
        match self {
            Self::InOrder(listing) => {
                let parent = Arc::clone(&listing.session);
                let found = match listing.next(path)? {
                    Ok(found) => found,
                    Err(error) => return Some(Err(error)),
                };
                append(path, found.name);
                Some(Ok(DirEntry {
                    parent,
                    path: as_path(path).to_owned(),
                    name_len: found.name.len(),
                    depth,
                    ino: found.ino,
                    kind: found.kind,
                    attr: found.attr.copied(),
                }))
            }
            Self::Sorted(session, names) => {
                let Name { name, ino, kind } = names.pop()?;
                append(path, &name);
                Some(Ok(DirEntry {
                    parent: Arc::clone(session),
                    path: as_path(path).to_owned(),
                    name_len: name.len(),
                    depth,
                    ino,
                    kind,
                    attr: None,
                }))
            }
            Self::Unreadable => None,
        }
    }
}

/// Returns the path of these bytes.
fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Appends a name to a path, as [`Path::join`] does.
fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !matches!(path.last(), None | Some(b'/')) {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Reads all names of a directory.
fn sorted(mut listing: Listing, path: &[u8]) -> Result<Entries> {
    let mut names = Vec::new();
    while let Some(entry) = listing.next(path) {
        let vfs::DirEntry {
            name, ino, kind, ..
        } = entry?;
        names.push(Name {
            name: name.into(),
            ino,
            kind,
        });
    }
    names.sort_unstable_by(|left, right| right.name.cmp(&left.name));
    Ok(Entries::Sorted(listing.session, names))
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("path", &as_path(&self.path))
            .field("depth", &self.levels.len())
            .finish_non_exhaustive()
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.step(false)?.map(|event| match event {
            WalkEvent::Enter(entry) | WalkEvent::File(entry) | WalkEvent::Leave(entry) => entry,
        }))
    }
}
