//! [`Stores`]: the host files that hold the contents of a source's entries.
//!
//! Sources for archives and images add a file for each archive, layer or spool, and open contents
//! by position. Positions of all stores are in one range of numbers, so an entry needs only a
//! position. If the user's archive has changed since the scan, opening contents is an error.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::entry::{Contents, Data, Identity};
use crate::error::{Error, Result};
use crate::source::Opened;

/// A position has the store's index above this bit.
const INDEX_SHIFT: u32 = 48;

/// The largest size of a store.
pub(crate) const LARGEST: u64 = 1 << INDEX_SHIFT;

/// A file with contents of entries.
#[derive(Debug)]
struct Store {
    file: Arc<File>,
    /// The offset of the store in the file.
    start: u64,
    /// The name and the identity of a user's file, which must not change.
    unchanged: Option<(String, Identity)>,
}

/// All stores of a source. Their positions follow one another.
#[derive(Debug, Default)]
pub(crate) struct Stores(Mutex<Vec<Store>>);

impl Stores {
    /// Adds a store that starts at `start` of the file, and returns the position of its first byte.
    /// `name` is given for a user's file.
    pub(crate) fn add(&self, file: Arc<File>, start: u64, name: Option<&str>) -> Result<u64> {
        let unchanged = match name {
            Some(name) => {
                let identity = Identity::of(&file).map_err(|error| Error::io(name, error))?;
                Some((name.to_owned(), identity))
            }
            None => None,
        };
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = stores.len() as u64;
        if index >> (u64::BITS - INDEX_SHIFT) != 0 {
            let reason = "it has too many layers".to_owned();
            return Err(Error::Archive {
                archive: name.unwrap_or_default().to_owned(),
                position: 0,
                reason,
            });
        }
        stores.push(Store {
            file,
            start,
            unchanged,
        });
        Ok(index << INDEX_SHIFT)
    }

    /// Opens the store that has a file's contents.
    pub(crate) fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        let position = match &contents.data {
            Data::Stored { position } => *position,
            Data::Pieces(pieces) => pieces.first().map_or(0, |piece| piece.position),
            Data::HostFile { .. } => u64::MAX,
        };
        let stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = position >> INDEX_SHIFT;
        let Some(store) = stores.get(index as usize) else {
            return Err(Error::Refused {
                path: crate::error::shown(path),
                reason: "its contents are of another source".to_owned(),
            });
        };
        if let Some((name, identity)) = &store.unchanged {
            let now = Identity::of(&store.file).map_err(|error| Error::io(name, error))?;
            if now != *identity {
                return Err(Error::Changed { name: name.clone() });
            }
        }
        let base = store.start.wrapping_sub(index << INDEX_SHIFT);
        Ok(Opened::store(Arc::clone(&store.file), base))
    }
}
