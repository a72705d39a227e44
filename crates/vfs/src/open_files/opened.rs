//! The record of an open file in the registry.
//!
//! A registry keeps these records: it fills one when a file is opened and empties it when the file
//! is closed.
//!
//! Its fields are atomics. So a listing can read it while one thread closes the file and another
//! opens a file in its place. The registry finds out whether the values that were read belong to
//! one file.

use extern4_sync::primitive::{AtomicU64, Ordering, capacity};
use extern4_sync::rcu::{RcuOption, pin};

use super::OpenFileInfo;
use crate::open_flags::OpenFlags;

/// Words for a path: with the rest they fill two cache lines.
const WORDS: usize = capacity(9, 1);

/// The record of an open file.
#[derive(Default)]
pub struct Opened {
    session: AtomicU64,
    /// The flags, and above them the user.
    uid_flags: AtomicU64,
    ino: AtomicU64,
    position: AtomicU64,
    path_len: AtomicU64,
    path: [AtomicU64; WORDS],
    /// A path that needs more words.
    long_path: RcuOption<Box<[u8]>>,
}

impl Opened {
    /// Fills the record from `info`, and with `path` in place of the path there.
    pub fn fill(&self, info: &OpenFileInfo, path: &[u8]) {
        // Relaxed, within: the registry orders it.
        let store = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        store(&self.session, info.session);
        store(
            &self.uid_flags,
            u64::from(info.uid) << 32 | u64::from(info.flags.bits()),
        );
        store(&self.ino, info.ino);
        store(&self.position, info.position);
        store(&self.path_len, path.len() as u64);
        if path.len() > WORDS * 8 {
            self.long_path.store(Some(path.into()));
            return;
        }
        let (whole, rest) = path.as_chunks::<8>();
        for (word, bytes) in self.path.iter().zip(whole) {
            store(word, u64::from_le_bytes(*bytes));
        }
        if !rest.is_empty() {
            store(&self.path[whole.len()], last_word(path, rest.len()));
        }
    }

    /// Frees the path if it is not in the record itself.
    pub fn empty(&self) {
        if !self.long_path.is_none() {
            self.long_path.store(None);
        }
    }

    /// Returns the contents of the record; `None` if it is being emptied.
    pub fn info(&self) -> Option<OpenFileInfo> {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let uid_flags = load(&self.uid_flags);
        Some(OpenFileInfo {
            session: load(&self.session),
            // OK: the upper half.
            uid: (uid_flags >> 32) as u32,
            flags: self.flags(),
            ino: load(&self.ino),
            position: self.position(),
            path: self.path()?,
        })
    }

    /// Returns how the file is open.
    pub fn flags(&self) -> OpenFlags {
        // OK: the lower half.
        OpenFlags::from_bits_truncate(self.uid_flags.load(Ordering::Relaxed) as u32)
    }

    /// Returns the path; `None` if the record is being emptied.
    pub(super) fn path(&self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.path_len.load(Ordering::Relaxed)).ok()?;
        if len > WORDS * 8 {
            return self.long_path.load(&pin()).map(|path| path.to_vec());
        }
        let words = self.path.iter().take(len.div_ceil(8));
        let mut path: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        path.truncate(len);
        Some(path)
    }

    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(super) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }
}

/// Returns the last `len` bytes of a path, less than a word, by one load. A word that is put
/// together in memory would make the CPU wait.
fn last_word(path: &[u8], len: usize) -> u64 {
    match path.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * len),
        None => path
            .iter()
            .rfold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_record_has_only_its_new_contents() {
        let record = Opened::default();
        let mut info = OpenFileInfo::default();
        for len in [0, 1, 7, 8, 9, 72, 73, 4095, 40] {
            info.path = (0..len).map(|n| (n % 251) as u8).collect();
            (info.session, info.uid, info.ino) = (len, u32::MAX, u64::MAX);
            info.flags = OpenFlags::all();
            record.fill(&info, &info.path);
            record.set_position(7);
            info.position = 7;
            assert_eq!(record.info().as_ref(), Some(&info));
            info.position = 0;
            record.empty();
        }
    }

    #[test]
    fn a_place_is_two_cache_lines() {
        assert_eq!(size_of::<Opened>() + size_of::<AtomicU64>(), 128);
    }
}
