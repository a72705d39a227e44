//! [`TarBuilder`]: writes files and trees of volumes to one archive.

use std::collections::HashMap;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Weak};

use extern4_ext4::Ext4;
use extern4_tree::{Compression, Entry, Filter, Kind, TarWriter, Unwanted};

use super::name::join;
use crate::build::{TreeFile, TreeWalk, Unreadable};
use crate::copy::own_name;
use crate::export::member::{append, buffered, total};
use crate::export::{ExportError, ExportObserver};
use crate::session::Session;
use crate::volume::Volume;

/// Writes files and trees of volumes to a PAX archive, as `tar -c` does.
///
/// A file with several names is a hard link to the first of them that the archive has. The members
/// of a tree come in the order of the names' bytes.
pub struct TarBuilder<W: Write> {
    tar: TarWriter<BufWriter<W>>,
    filter: Filter,
    /// The volumes, by their places in the keys of `links`.
    volumes: Vec<Weak<Ext4>>,
    /// The first names of files that have several.
    links: HashMap<FileId, Vec<u8>>,
}

/// The place of a volume, and the number of an inode in it.
type FileId = (usize, u64);

impl<W: Write> TarBuilder<W> {
    /// Begins an archive.
    ///
    /// # Errors
    /// The compression cannot begin.
    pub fn new(out: W, compression: Option<Compression>) -> io::Result<Self> {
        let out = buffered(out);
        let tar = match compression {
            Some(compression) => TarWriter::compressed(out, compression)?,
            None => TarWriter::new(out),
        };
        Ok(Self {
            tar,
            filter: Filter::default(),
            volumes: Vec::new(),
            links: HashMap::new(),
        })
    }

    /// Leaves out members by these rules, which are about the names in the archive.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Adds a file as the member `name`, and everything below it. `session` is a view of `volume`.
    /// The empty name is that of the archive's top.
    ///
    /// The observer is told of files that cannot be read and of sockets, which no archive has. Then
    /// the archive goes on with the next file.
    ///
    /// # Errors
    /// [`ExportError::Volume`] if the file at `path` cannot be read; the archive can go on. The
    /// output cannot be written, or the observer stops the export.
    pub fn add(
        &mut self,
        volume: &Volume,
        session: &Session,
        path: &Path,
        name: &[u8],
        observer: &mut dyn ExportObserver,
    ) -> Result<(), ExportError> {
        let place = self.place(volume);
        let mut walk = self.walk(session, path, name)?;
        if observer.wants_total()
            && let Ok(walk) = self.walk(session, path, name)
        {
            observer.expect(total(walk));
        }
        while let Some(found) = walk.next() {
            let added = match found {
                Ok(file) => {
                    let added = self.member(&file, place, name, observer);
                    if !matches!(added, Ok(true)) {
                        walk.forget_first(&file);
                    }
                    added.map(drop)
                }
                Err(unreadable) => Err(unreadable.into()),
            };
            match added {
                Err(ExportError::Volume(unreadable)) => observer.failed(&unreadable),
                added => added?,
            }
        }
        Ok(())
    }

    /// Writes the end of the archive, and returns the output, which is flushed.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(self) -> io::Result<W> {
        let mut out = self.tar.finish()?;
        out.flush()?;
        out.into_inner().map_err(IntoInnerError::into_error)
    }

    /// Starts a walk over a file and everything below it that the rules do not leave out.
    fn walk(&self, session: &Session, path: &Path, name: &[u8]) -> Result<TreeWalk, Unreadable> {
        let failed = |error| Unreadable {
            path: Vec::new(),
            error,
        };
        let walk = match own_name(path) {
            Some(name) => {
                let above = path.parent().unwrap_or(Path::new("/"));
                TreeWalk::of(&session.at(above).map_err(failed)?, name.as_bytes())?
            }
            None => TreeWalk::new(&session.at(path).map_err(failed)?)?,
        };
        let filter = self.filter.clone();
        let name = name.to_vec();
        let unwanted: Unwanted = Arc::new(move |path| filter.leaves_out(&join(&name, path), true));
        Ok(walk.without(Some(unwanted)))
    }

    /// Adds a file of a walk, unless it is left out. Returns whether the archive has it.
    fn member(
        &mut self,
        file: &TreeFile,
        volume: usize,
        name: &[u8],
        observer: &mut dyn ExportObserver,
    ) -> Result<bool, ExportError> {
        let mut entry = Entry {
            path: join(name, &file.entry.path),
            ..file.entry.clone()
        };
        let is_directory = entry.kind == Kind::Directory;
        if self.filter.leaves_out(&entry.path, is_directory) {
            return Ok(false);
        }
        if let Kind::HardLink(first) = &mut entry.kind {
            *first = join(name, first);
        } else if file.metadata.nlink() > 1 && !is_directory {
            self.link(&mut entry, (volume, file.metadata.ino()));
        }
        let appended = append(file, &mut entry, &mut self.tar, observer);
        if !matches!(appended, Ok(None)) {
            self.forget(&entry, (volume, file.metadata.ino()));
        }
        if let Some(reason) = appended? {
            observer.left_out(&file.entry.path, reason);
            return Ok(false);
        }
        observer.added(&entry);
        Ok(true)
    }

    /// Makes a further name of a file a hard link to the first that the archive has.
    fn link(&mut self, entry: &mut Entry, file: FileId) {
        let first = self.links.entry(file).or_insert_with(|| entry.path.clone());
        if *first != entry.path {
            entry.kind = Kind::HardLink(first.clone());
        }
    }

    /// Makes the next name of a file its first, after the archive did not get this one.
    fn forget(&mut self, entry: &Entry, file: FileId) {
        if self.links.get(&file) == Some(&entry.path) {
            self.links.remove(&file);
        }
    }

    fn place(&mut self, volume: &Volume) -> usize {
        let ext4 = volume.ext4();
        let is_same = |known: &Weak<Ext4>| known.as_ptr() == Arc::as_ptr(ext4);
        self.volumes.iter().position(is_same).unwrap_or_else(|| {
            self.volumes.push(Arc::downgrade(ext4));
            self.volumes.len() - 1
        })
    }
}
