//! [`Entries`]: a tree of entries that the caller makes in memory.
//!
//! Programs that build volumes without files on disk, and tests, pass it to `Builder`. It can be
//! scanned any number of times, and gives entries in the order in which it got them. A file whose
//! entry came without bytes cannot be opened.

use std::collections::HashMap;
use std::sync::Arc;

use crate::entry::{Contents, Entry};
use crate::error::{Error, Result, shown};
use crate::source::{Opened, ReadAt, Sink, Source};

/// A tree of entries that the caller makes, each with the bytes of its file.
///
/// The positions of a file's contents, as in [`Data::Stored`](crate::Data::Stored), are offsets in
/// its bytes.
///
/// ```
/// use std::sync::Arc;
///
/// use extern4_tree::{Contents, Data, Entries, Entry, Kind, ReadAt, Time};
///
/// let text: Arc<dyn ReadAt> = Arc::new(b"web\n".to_vec());
/// let kind = Kind::File(Contents { size: 4, data: Data::Stored { position: 0 } });
/// let (mtime, xattrs) = (Time { secs: 1_700_000_000, nanos: 0 }, Vec::new());
/// let path = b"etc/hostname".to_vec();
/// let (flags, project) = (None, None);
/// let entry = Entry { path, kind, mode: 0o644, uid: 0, gid: 0, mtime, xattrs, flags, project };
/// let source: Entries = [(entry, Some(text))].into_iter().collect();
/// ```
#[derive(Default)]
pub struct Entries {
    entries: Vec<Entry>,
    /// The bytes of files, by their paths.
    contents: HashMap<Vec<u8>, Arc<dyn ReadAt>>,
}

impl FromIterator<(Entry, Option<Arc<dyn ReadAt>>)> for Entries {
    fn from_iter<T: IntoIterator<Item = (Entry, Option<Arc<dyn ReadAt>>)>>(entries: T) -> Self {
        let mut all = Self::default();
        for (entry, bytes) in entries {
            if let Some(bytes) = bytes {
                all.contents.insert(entry.path.clone(), bytes);
            }
            all.entries.push(entry);
        }
        all
    }
}

impl Source for Entries {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        self.entries
            .iter()
            .try_for_each(|entry| sink.entry(entry.clone()))
    }

    fn open(&self, path: &[u8], _: &Contents) -> Result<Opened> {
        let bytes = self.contents.get(path).ok_or_else(|| Error::Refused {
            path: shown(path),
            reason: "its entry came without bytes".to_owned(),
        })?;
        Ok(Opened::other(Arc::clone(bytes)))
    }
}
