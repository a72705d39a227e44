//! The files of a volume that the suite measures: an existing file, directory and large file, and
//! new files next to them in a copy.
//!
//! `run` chooses them, `source` makes the new ones, and the measures use them. Without an existing
//! file of a kind, the measures that need it are left out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use extern4::{File, FileType, Session, Volume};

use super::stop::Stop;
use super::tree::{CHUNK_BYTES, Library, Tree as _};
use super::{Result, SuiteError};

/// Files that the choice looks at, at most.
const MOST_LOOKED_AT: usize = 50_000;
/// The deepest level of the file.
const MOST_DEEP: usize = 6;
/// Names in a directory that the suite makes for listing. It makes one if no directory has a tenth
/// of them.
const NAMES: u64 = 1000;
/// The most names in a directory to list: a larger one takes too long.
const MOST_NAMES: u64 = 20_000;
/// The least size of a large file, in bytes. Of a larger file, at most `MOST_READ_BYTES` are read.
const LARGE_BYTES: u64 = 4 << 20;
const MOST_READ_BYTES: u64 = 256 << 20;
/// Bytes to write, where there is room for four times as much.
const WRITE_BYTES: u64 = 64 << 20;
/// The directory for new files in a copy.
const WORK: &str = ".extern4-bench";

/// The files to measure. Paths are relative to the root of the volume.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    /// A file to find and open.
    pub(super) file: Option<PathBuf>,
    /// A missing name next to it.
    pub(super) missing: Option<PathBuf>,
    /// A directory to list.
    pub(super) dir: PathBuf,
    /// How many names are in it.
    pub(super) dir_names: u64,
    /// A large file, and how many bytes of it to read.
    pub(super) large: Option<(PathBuf, u64)>,
    /// How many bytes to write, by all threads together.
    pub(super) write_bytes: u64,
    /// The directory for new files; `None` where nothing is to be changed.
    pub(super) work: Option<PathBuf>,
}

/// Returns how many of the bytes to write this volume has room for.
pub(super) fn write_bytes(volume: &Volume) -> Result<u64> {
    let stat = volume.stat_fs()?;
    let room = stat.blocks_available.saturating_mul(stat.block_size.into()) / 4;
    let chunk = CHUNK_BYTES as u64;
    Ok(room.min(WRITE_BYTES) / chunk * chunk)
}

impl Subjects {
    /// Chooses among the existing files that the caller may read.
    pub(super) fn choose(session: &Session, stop: &Stop) -> Result<Self> {
        let mut found = Self {
            dir: PathBuf::from("."),
            ..Self::default()
        };
        let mut deepest = 0;
        let mut names = HashMap::<PathBuf, u64>::new();
        // The measures meet entries that cannot be read, and name them.
        for entry in session
            .walk("/")
            .with_metadata()
            .take(MOST_LOOKED_AT)
            .filter_map(extern4::Result::ok)
        {
            stop.check()?;
            let path = entry.path().strip_prefix("/").unwrap_or(entry.path());
            if let Some(parent) = path.parent() {
                *names.entry(parent.to_owned()).or_default() += 1;
            }
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.file_type() != FileType::Regular {
                continue;
            }
            let stored = metadata.len().min(metadata.blocks().saturating_mul(512));
            let is_deeper = entry.depth() > deepest && entry.depth() <= MOST_DEEP;
            let is_larger = stored >= LARGE_BYTES
                && found
                    .large
                    .as_ref()
                    .is_none_or(|(_, bytes)| *bytes < stored);
            if (is_deeper || is_larger) && session.open(path).is_err() {
                continue;
            }
            if is_deeper {
                deepest = entry.depth();
                found.set_file(path.to_owned());
            }
            if is_larger {
                found.large = Some((path.to_owned(), stored));
            }
        }
        if let Some((_, bytes)) = &mut found.large {
            *bytes = (*bytes).min(MOST_READ_BYTES);
        }
        let listed = names.into_iter().filter(|(path, names)| {
            *names <= MOST_NAMES && session.read_dir(Path::new("/").join(path)).is_ok()
        });
        // The first of several by name, so that each run chooses the same.
        if let Some((dir, names)) =
            listed.max_by_key(|(path, names)| (*names, std::cmp::Reverse(path.clone())))
        {
            (found.dir, found.dir_names) = (Path::new(".").join(dir), names);
        }
        Ok(found)
    }

    fn set_file(&mut self, path: PathBuf) {
        self.missing = path
            .parent()
            .map(|parent| parent.join(".extern4-bench-missing"));
        self.file = Some(path);
    }

    /// Makes the files that the measures work with in a copy, for `owner` (user and group) and
    /// `threads` threads. It also makes subjects that the volume lacks.
    pub(super) fn make(&mut self, volume: &Volume, owner: (u32, u32), threads: u32) -> Result<()> {
        let session = volume.superuser();
        let work = new_name(&session)?;
        session.create_dir(&work)?;
        for thread in 0..threads {
            let own = work.join(thread.to_string());
            session.create_dir(&own)?;
            make_file(&session, &own.join("file"), owner)?;
            session.chown(&own, Some(owner.0), Some(owner.1))?;
        }
        if self.dir_names < NAMES / 10 {
            let dir = work.join("names");
            session.create_dir(&dir)?;
            let room = volume.stat_fs()?.files_free / 2;
            self.dir_names = room.min(NAMES);
            for name in 0..self.dir_names {
                make_file(&session, &dir.join(name.to_string()), owner)?;
            }
            self.dir = dir;
        }
        if self.file.is_none() {
            self.set_file(work.join("0/file"));
        }
        self.write_bytes = write_bytes(volume)?;
        if self.large.is_none() && self.write_bytes > 0 {
            let large = work.join("large");
            Library(&session).write(&large, self.write_bytes)?;
            session.chown(&large, Some(owner.0), Some(owner.1))?;
            self.large = Some((large, self.write_bytes));
        }
        self.work = Some(work);
        Ok(())
    }

    /// Returns a thread's own file of this name.
    pub(super) fn own(&self, thread: u32, name: &str) -> PathBuf {
        self.work
            .clone()
            .unwrap_or_default()
            .join(thread.to_string())
            .join(name)
    }
}

/// Returns an unused name in the root.
fn new_name(session: &Session) -> Result<PathBuf> {
    let names =
        std::iter::once(WORK.to_owned()).chain((1..100).map(|number| format!("{WORK}-{number}")));
    for name in names {
        if !session.exists(&name)? {
            return Ok(PathBuf::from(name));
        }
    }
    Err(SuiteError::Because(format!(
        "each name next to {WORK} is taken"
    )))
}

fn make_file(session: &Session, path: &Path, owner: (u32, u32)) -> Result<()> {
    drop(session.open_with(path, File::options().write(true).create_new(true))?);
    Ok(session.chown(path, Some(owner.0), Some(owner.1))?)
}
