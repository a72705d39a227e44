//! Names in memory, which nobody changes.

use extern4_vfs::Errno;

/// A tree of names, and what they stand for.
pub(super) struct Tree<I> {
    entries: Vec<Entry<I>>,
    /// Numbers of entries, each at the first free place from that of its hash on; their number is a power of two, twice that of the
    /// entries at least.
    table: Vec<u32>,
}

/// A name in a directory.
pub(super) struct Entry<I> {
    parent: u32,
    name: Box<[u8]>,
    is_dir: bool,
    pub(super) inode: I,
}

const FREE: u32 = u32::MAX;
const ROOT: u32 = 0;

impl<I> Tree<I> {
    /// A root directory, with room for so many names.
    pub(super) fn new(root: I, names: usize) -> Self {
        let table = vec![FREE; (2 * names).next_power_of_two()];
        Self { entries: vec![Entry { parent: ROOT, name: Box::default(), is_dir: true, inode: root }], table }
    }

    /// Adds a name, whose directory is there.
    pub(super) fn insert(&mut self, path: &str, is_dir: bool, inode: I) {
        let (dir, name) = path.rsplit_once('/').expect("it begins with a slash");
        let parent = self.walk(dir.as_bytes(), |_| true).expect("directories come first");
        let number = u32::try_from(self.entries.len()).expect("few");
        let mut place = self.place(parent, name.as_bytes());
        while self.table[place] != FREE {
            place = self.next(place);
        }
        self.table[place] = number;
        self.entries.push(Entry { parent, name: name.as_bytes().into(), is_dir, inode });
    }

    /// What a path leads to, if `search` says of each directory on the way that it may be searched.
    #[inline]
    pub(super) fn find(&self, path: &str, search: impl FnMut(&I) -> bool) -> Result<&Entry<I>, Errno> {
        self.walk(path.as_bytes(), search).map(|number| &self.entries[number as usize])
    }

    #[inline]
    fn walk(&self, mut rest: &[u8], mut search: impl FnMut(&I) -> bool) -> Result<u32, Errno> {
        let mut at = ROOT;
        loop {
            while let [b'/', behind @ ..] = rest {
                rest = behind;
            }
            if rest.is_empty() {
                return Ok(at);
            }
            let dir = &self.entries[at as usize];
            if !dir.is_dir {
                return Err(Errno::ENOTDIR);
            }
            if !search(&dir.inode) {
                return Err(Errno::EACCES);
            }
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            if name != b"." {
                at = self.child(at, name).ok_or(Errno::ENOENT)?;
            }
            rest = behind;
        }
    }

    #[inline]
    fn child(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let mut place = self.place(parent, name);
        while self.table[place] != FREE {
            let entry = &self.entries[self.table[place] as usize];
            if entry.parent == parent && *entry.name == *name {
                return Some(self.table[place]);
            }
            place = self.next(place);
        }
        None
    }

    #[inline]
    fn place(&self, parent: u32, name: &[u8]) -> usize {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        let (words, rest) = name.as_chunks::<8>();
        let hash = words.iter().fold(u64::from(parent), |hash, word| fold(hash, u64::from_le_bytes(*word)));
        let last = rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        (fold(hash, last) >> 32) as usize & (self.table.len() - 1)
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_its_directory_only() {
        let mut tree = Tree::new(0, 1000);
        tree.insert("/a", true, 1);
        tree.insert("/b", true, 2);
        (10..500).for_each(|n| tree.insert(&format!("/a/file{n}"), false, n));
        let find = |path: &str| tree.find(path, |_| true).map(|entry| entry.inode);
        assert_eq!(
            (find("/"), find("/a/"), find("//b/./"), find("/./a/./file77")),
            (Ok(0), Ok(1), Ok(2), Ok(77))
        );
        assert_eq!((find("/b/file77"), find("/a/file7"), find("/a/file77/x")), {
            let (absent, no_directory) = (Err(Errno::ENOENT), Err(Errno::ENOTDIR));
            (absent, absent, no_directory)
        });
        let mut asked = Vec::new();
        let refused = tree.find("/a/file77", |inode| {
            asked.push(*inode);
            *inode == 0
        });
        assert_eq!((refused.map(|entry| entry.inode), asked), (Err(Errno::EACCES), vec![0, 1]));
    }
}
