//! Lists directories.
//!
//! [`list_dir`] may stop at any entry and continue later, in another call, with nothing but a
//! cookie. On a volume with `dir_index` it lists names in the order of their hashes, whether or not
//! the directory has a tree yet. So a cookie stays valid when the directory gets a tree or its
//! leaves split. On other volumes it lists names in the order of their records, and a cookie is a
//! byte offset.
//!
//! ```text
//! by hash:    0 before `.`, 1 before `..`,
//!             then 2 + (hash, 31 bits | upper half of minor hash, 16 | rank, 16)
//! by offset:  1 << 63 | bytes from the start
//! ```
//!
//! The rank distinguishes names that share those 47 bits. If the tree is corrupt when a listing
//! starts, the directory is listed by offset. Damage that is found later is an error.
//!
//! `readdir` of the VFS calls [`list_dir`] by way of `ops`.

use std::ops::ControlFlow;

use extern4_disk::dirent::{self, DirEntry, Entries};
use extern4_disk::feature::Compat;
use extern4_disk::htree::{Hash, HashVersion};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::{FileType, RawDirEntry};

use crate::dir::blocks::{
    dir_physical, dir_slots, is_root, names_physical, read_ahead_dir, with_dir_block,
};
use crate::dir::htree::read::{NameHash, Tree, loop_in};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fscrypt_name;
use crate::inode::info::{InodeInfo, dir_layout};

/// Marks cookies that are byte offsets.
const BY_OFFSET: u64 = 1 << 63;
/// The first cookie of a listing by hash that contains a hash.
const FIRST_HASH: u64 = 2;
/// How many blocks of a directory are read ahead.
const READ_AHEAD: u32 = 64;

/// A copy of a directory block.
struct BlockCopy {
    number: u64,
    bytes: Box<[u8]>,
}

/// The callback of a listing, called with each entry.
pub(crate) type Each<'a> = &'a mut dyn FnMut(RawDirEntry<'_>) -> ControlFlow<()>;

/// Returns a copy of that block, for a listing. The callback of a listing may block, so the listing
/// must hold no buffer meanwhile.
fn copy_dir_block(fs: &Ext4, dir: &InodeInfo, logical: u32, physical: u64) -> Result<BlockCopy> {
    let bytes = with_dir_block(fs, dir, logical, physical, |bytes| bytes.into())?;
    Ok(BlockCopy {
        number: physical,
        bytes,
    })
}

/// Calls `each` for the entries of `dir` from `cookie` on until it breaks.
pub(crate) fn list_dir(fs: &Ext4, dir: &InodeInfo, cookie: u64, each: Each<'_>) -> Result<()> {
    if cookie & BY_OFFSET == 0
        && let Some(order) = hash_order(fs, dir, cookie == 0)?
    {
        return order.list(cookie, each);
    }
    let offset = cookie & !BY_OFFSET;
    if dir.is_inline() {
        list_inline(fs, dir, offset, each)
    } else {
        list_linear(fs, dir, offset, each)
    }
}

/// Returns how to list `dir` by hash; `None` if it is to be listed by offset.
///
/// A listing that starts checks the whole tree first, so that it does not start in an order in
/// which it cannot end.
fn hash_order<'a>(fs: &'a Ext4, dir: &'a InodeInfo, starts: bool) -> Result<Option<HashOrder<'a>>> {
    if !fs
        .superblock()
        .features()
        .compat
        .contains(Compat::DIR_INDEX)
    {
        return Ok(None);
    }
    let made = made_in(fs, dir).is_some();
    if dir.is_indexed() && !dir.is_inline() && !made {
        let tree = Tree::open(fs, dir).and_then(|tree| {
            if starts {
                tree.check()?
            }
            Ok(tree)
        });
        return match tree {
            Ok(tree) => Ok(Some(HashOrder {
                fs,
                dir,
                hash: tree.hash,
                tree: Some(tree),
            })),
            Err(Error::Corrupt(_)) if starts => Ok(None),
            Err(error) => Err(error),
        };
    }
    if !dir.is_inline() && !made && dir.len_blocks(fs)? != 1 {
        return Ok(None);
    }
    let version = if dir_layout(fs, dir).hashes_in_entries() {
        Some(HashVersion::SipHash)
    } else {
        HashVersion::from_raw(fs.superblock().default_hash_version())
    };
    let Some(version) = version else {
        return Ok(None);
    };
    let order = HashOrder {
        fs,
        dir,
        hash: NameHash::new(fs.superblock(), dir.fields().flags(), version),
        tree: None,
    };
    match order.dots() {
        Err(Error::Corrupt(_)) if starts => Ok(None),
        _ => Ok(Some(order)),
    }
}

fn list_linear(fs: &Ext4, dir: &InodeInfo, offset: u64, each: Each<'_>) -> Result<()> {
    let geometry = fs.superblock().geometry();
    let block_size = u64::from(geometry.block_size());
    let len_blocks = dir.len_blocks(fs)?;
    let mut from = offset % block_size;
    let first = u32::try_from(offset / block_size).unwrap_or(u32::MAX);
    for logical in first..len_blocks {
        if logical == first || logical % READ_AHEAD == 0 {
            read_ahead_dir(fs, dir, logical, READ_AHEAD)?;
        }
        if is_root(dir, logical) && list_dots_of_root(fs, dir, from, each).is_break() {
            return Ok(());
        }
        if let Some(physical) = names_physical(fs, dir, logical)? {
            let block = copy_dir_block(fs, dir, logical, physical)?;
            let start = u64::from(logical) * block_size;
            if list_block(fs, dir, &block, start, from, each)?.is_break() {
                return Ok(());
            }
        }
        from = 0;
    }
    list_new_names(fs, dir, offset, u64::from(len_blocks) * block_size, each)
}

/// Lists the entries of a block from offset `from` on. The block starts `start` bytes into the
/// directory.
fn list_block(
    fs: &Ext4,
    dir: &InodeInfo,
    block: &BlockCopy,
    start: u64,
    from: u64,
    each: Each<'_>,
) -> Result<ControlFlow<()>> {
    for slot in dir_slots(fs, dir, block.number, &block.bytes) {
        let slot = slot?;
        // A cookie may point into a record that has been merged since, so the start of an entry
        // decides.
        let Some(entry) = slot.entry.filter(|entry| u64::from(entry.offset) >= from) else {
            continue;
        };
        if is_changed(fs, dir, entry.name) {
            continue;
        }
        let next = start + u64::from(slot.offset) + u64::from(slot.rec_len);
        if emit(
            dir,
            &entry,
            || Hash { major: 0, minor: 0 },
            BY_OFFSET | next,
            each,
        )
        .is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Lists `.` and `..` of a directory whose hash tree is corrupt, from the root as far as it is
/// readable.
fn list_dots_of_root(fs: &Ext4, dir: &InodeInfo, from: u64, each: Each<'_>) -> ControlFlow<()> {
    let place = Place::new(Structure::DirectoryBlock).ino(dir.ino());
    let root = dir_physical(fs, dir, 0).and_then(|block| Ok(fs.cache.read(block)?));
    let parent = root
        .ok()
        .and_then(|root| dirent::dot_and_dotdot(&root, &dir_layout(fs, dir), place).ok());
    let dots = [
        (&b"."[..], Some(dir.ino()), 0),
        (b"..", parent.map(|(_, parent)| parent), DOTDOT_OFFSET),
    ];
    for (name, ino, at) in dots {
        if let Some(ino) = ino.filter(|_| at >= from) {
            each(RawDirEntry {
                name,
                ino: ino.into(),
                kind: DIRECTORY,
                next: BY_OFFSET | (at + DOTDOT_OFFSET),
            })?;
        }
    }
    ControlFlow::Continue(())
}

/// Lists the names that fast commits have added, by offset, as if they followed the others, which
/// end at `end`.
fn list_new_names(fs: &Ext4, dir: &InodeInfo, offset: u64, end: u64, each: Each<'_>) -> Result<()> {
    for (at, entry) in (end..).zip(new_names(fs, dir)) {
        let hash = || Hash { major: 0, minor: 0 };
        if at >= offset && emit(dir, &entry?, hash, BY_OFFSET | (at + 1), each).is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the entries that fast commits have added to a directory or changed to another inode.
fn new_names<'b>(fs: &'b Ext4, dir: &InodeInfo) -> impl Iterator<Item = Result<DirEntry<'b>>> {
    let names = fs
        .fast_commits
        .changes(dir.ino())
        .into_iter()
        .flat_map(|changes| changes.names());
    names
        .filter_map(|(name, ino)| ino.map(|ino| (name, ino)))
        .map(|(name, ino)| {
            let kind = dirent::FileType::from_mode(fs.load_inode(ino)?.fields().mode());
            Ok(DirEntry {
                ino,
                kind,
                name,
                offset: 0,
                hash: None,
            })
        })
}

/// Whether fast commits have changed `name`, so that its entry in the directory's blocks is void.
fn is_changed(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> bool {
    fs.fast_commits
        .changes(dir.ino())
        .is_some_and(|changes| changes.name(name).is_some())
}

/// Returns the parent of a directory that a fast commit made and whose blocks have never been
/// written.
fn made_in(fs: &Ext4, dir: &InodeInfo) -> Option<u32> {
    fs.fast_commits
        .changes(dir.ino())
        .and_then(|changes| changes.made_in())
}

fn list_inline(fs: &Ext4, dir: &InodeInfo, offset: u64, each: Each<'_>) -> Result<()> {
    dir.with_inline_dir(fs, |inline, layout, place| {
        let dots = [(&b"."[..], dir.ino(), 0), (b"..", inline.parent, 1)];
        for (name, ino, at) in dots.into_iter().filter(|&(.., at)| at >= offset) {
            let dot = RawDirEntry {
                name,
                ino: ino.into(),
                kind: DIRECTORY,
                next: BY_OFFSET | (at + 1),
            };
            if each(dot).is_break() {
                return Ok(());
            }
        }
        let (head, tail) = inline.parts();
        // Offsets count as if the two parts followed each other.
        for (part, start) in [(head, 4), (tail, 60)] {
            for entry in Entries::without_tail(part, layout, place) {
                let entry = entry?;
                let at = start + u64::from(entry.offset);
                let hash = || Hash { major: 0, minor: 0 };
                let shown = at >= offset && !is_changed(fs, dir, entry.name);
                if shown && emit(dir, &entry, hash, BY_OFFSET | (at + 1), each).is_break() {
                    return Ok(());
                }
            }
        }
        list_new_names(fs, dir, offset, 60 + tail.len() as u64, each)
    })
}

/// The offset of the record of `..` in the root of a hash tree, after that of `.`.
const DOTDOT_OFFSET: u64 = 12;
/// The range of all hashes.
const ALL: (u32, u32) = (0, u32::MAX);
const DIRECTORY: Option<FileType> = Some(FileType::Directory);

/// A directory that is listed in the order of its names' hashes.
struct HashOrder<'a> {
    fs: &'a Ext4,
    dir: &'a InodeInfo,
    hash: NameHash,
    /// The tree; `None` if the directory is a single block or inline.
    tree: Option<Tree<'a>>,
}

/// Entries to be sorted together: the entries of a leaf, and of the leaves that continue its last
/// hash.
type Batch<'b> = Vec<(Hash, DirEntry<'b>)>;

impl HashOrder<'_> {
    fn list(&self, cookie: u64, each: Each<'_>) -> Result<()> {
        if cookie < FIRST_HASH {
            let (dot, dotdot) = self.dots()?;
            let dots = [(&b"."[..], dot, 0), (b"..", dotdot, 1)];
            for (name, ino, at) in dots.into_iter().filter(|&(.., at)| at >= cookie) {
                if each(RawDirEntry {
                    name,
                    ino: ino.into(),
                    kind: DIRECTORY,
                    next: at + 1,
                })
                .is_break()
                {
                    return Ok(());
                }
            }
        }
        let position = cookie.saturating_sub(FIRST_HASH);
        match &self.tree {
            Some(tree) => self.list_tree(tree, position, each),
            None if made_in(self.fs, self.dir).is_some() => {
                let mut batch = Batch::new();
                self.push_new_names(&mut batch, ALL)?;
                self.list_batch(batch, position, each).map(drop)
            }
            None if self.dir.is_inline() => {
                self.dir.with_inline_dir(self.fs, |inline, layout, place| {
                    let mut batch = Batch::new();
                    for entry in inline.entries(layout, place) {
                        self.push(&mut batch, entry?, ALL);
                    }
                    self.push_new_names(&mut batch, ALL)?;
                    self.list_batch(batch, position, each).map(drop)
                })
            }
            None => {
                let block = self.copy(0)?;
                let mut batch = Batch::new();
                self.fill(&mut batch, &block, ALL)?;
                self.push_new_names(&mut batch, ALL)?;
                self.list_batch(batch, position, each).map(drop)
            }
        }
    }

    /// Returns the inodes that `.` and `..` name.
    fn dots(&self) -> Result<(u32, u32)> {
        if let Some(parent) = made_in(self.fs, self.dir) {
            return Ok((self.dir.ino(), parent));
        }
        if self.dir.is_inline() {
            return self
                .dir
                .with_inline_dir(self.fs, |inline, _, _| Ok((self.dir.ino(), inline.parent)));
        }
        let physical = dir_physical(self.fs, self.dir, 0)?;
        let place = Place::new(Structure::DirectoryBlock)
            .ino(self.dir.ino())
            .block(physical);
        let layout = dir_layout(self.fs, self.dir);
        let dots = |bytes: &[u8]| dirent::dot_and_dotdot(bytes, &layout, place);
        Ok(with_dir_block(self.fs, self.dir, 0, physical, dots)??)
    }

    fn list_tree(&self, tree: &Tree<'_>, position: u64, each: Each<'_>) -> Result<()> {
        let len_blocks = self.dir.len_blocks(self.fs)?;
        if position == 0 {
            read_ahead_dir(self.fs, self.dir, 0, READ_AHEAD)?;
        }
        let mut cursor = tree.seek(major_of(position))?;
        let mut leaves = 0;
        let mut more = true;
        while more {
            let mut blocks = vec![(
                self.leaf(&mut leaves, len_blocks, cursor.leaf())?,
                cursor.range()?,
            )];
            more = loop {
                match cursor.advance()? {
                    None => break false,
                    Some(hash) if hash & 1 == 0 => break true,
                    Some(_) => {
                        blocks.push((
                            self.leaf(&mut leaves, len_blocks, cursor.leaf())?,
                            cursor.range()?,
                        ));
                    }
                }
            };
            let mut batch = Batch::new();
            for (block, range) in &blocks {
                self.fill(&mut batch, block, *range)?;
            }
            let first = blocks.first();
            let last = blocks.last();
            let range = first
                .zip(last)
                .map_or(ALL, |((_, first), (_, last))| (first.0, last.1));
            self.push_new_names(&mut batch, range)?;
            if self.list_batch(batch, position, each)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts and reads a leaf. A tree with more leaves than the directory has blocks refers to
    /// some twice.
    fn leaf(&self, leaves: &mut u32, len_blocks: u32, logical: u32) -> Result<BlockCopy> {
        *leaves += 1;
        if *leaves > len_blocks {
            return Err(loop_in(self.dir));
        }
        self.copy(logical)
    }

    fn copy(&self, logical: u32) -> Result<BlockCopy> {
        copy_dir_block(
            self.fs,
            self.dir,
            logical,
            dir_physical(self.fs, self.dir, logical)?,
        )
    }

    fn fill<'b>(
        &self,
        batch: &mut Batch<'b>,
        block: &'b BlockCopy,
        range: (u32, u32),
    ) -> Result<()> {
        for entry in Entries::from(dir_slots(self.fs, self.dir, block.number, &block.bytes)) {
            let entry = entry?;
            if !entry.is_dot_or_dotdot() {
                self.push(batch, entry, range);
            }
        }
        Ok(())
    }

    /// Adds an entry to a batch. A name in the wrong leaf gets the nearest hash that the leaf may
    /// have. So it is listed in order, although a lookup by hash does not find it.
    fn push<'b>(&self, batch: &mut Batch<'b>, entry: DirEntry<'b>, (low, high): (u32, u32)) {
        if is_changed(self.fs, self.dir, entry.name) {
            return;
        }
        let hash = self.hash.of_entry(&entry);
        let hash = Hash {
            major: hash.major.clamp(low, high),
            minor: hash.minor,
        };
        batch.push((hash, entry));
    }

    /// Adds to a batch the names that fast commits have added to the directory, if their hashes are
    /// in the range.
    fn push_new_names<'b>(&'b self, batch: &mut Batch<'b>, (low, high): (u32, u32)) -> Result<()> {
        for entry in new_names(self.fs, self.dir) {
            let entry = entry?;
            let hash = self.hash.of_entry(&entry);
            if (low..=high).contains(&hash.major) {
                batch.push((hash, entry));
            }
        }
        Ok(())
    }

    fn list_batch(
        &self,
        mut batch: Batch<'_>,
        position: u64,
        each: Each<'_>,
    ) -> Result<ControlFlow<()>> {
        batch.sort_by_key(|(hash, _)| *hash);
        let mut group = None;
        let mut rank = 0u64;
        for (hash, entry) in &batch {
            let bits = u64::from(hash.major >> 1) << 16 | u64::from(hash.minor >> 16);
            rank = if group == Some(bits) { rank + 1 } else { 0 };
            group = Some(bits);
            if rank > u64::from(u16::MAX) {
                let place = Place::new(Structure::DirectoryBlock).ino(self.dir.ino());
                let what = "more than 65536 names share a hash";
                return Err(place.corrupt(CorruptKind::Mismatch { what }).into());
            }
            let at = bits << 16 | rank;
            if at >= position
                && emit(self.dir, entry, || *hash, FIRST_HASH + at + 1, each).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the hash by which a tree finds the leaf of a position.
fn major_of(position: u64) -> u32 {
    u32::try_from(position >> 32).unwrap_or(u32::MAX) << 1
}

/// Calls `each` with an entry. Encrypted names have the form in which Linux shows them without the
/// key.
fn emit(
    dir: &InodeInfo,
    entry: &DirEntry<'_>,
    hash: impl FnOnce() -> Hash,
    next: u64,
    each: Each<'_>,
) -> ControlFlow<()> {
    let ino = u64::from(entry.ino);
    let kind = file_type(entry.kind);
    if dir.is_encrypted() && !entry.is_dot_or_dotdot() {
        let mut shown = [0; fscrypt_name::MAX_SHOWN];
        return each(RawDirEntry {
            name: fscrypt_name::show(entry.name, hash(), &mut shown),
            ino,
            kind,
            next,
        });
    }
    each(RawDirEntry {
        name: entry.name,
        ino,
        kind,
        next,
    })
}

fn file_type(kind: dirent::FileType) -> Option<FileType> {
    Some(match kind {
        dirent::FileType::Unknown => return None,
        dirent::FileType::Regular => FileType::Regular,
        dirent::FileType::Directory => FileType::Directory,
        dirent::FileType::CharDevice => FileType::CharDevice,
        dirent::FileType::BlockDevice => FileType::BlockDevice,
        dirent::FileType::Fifo => FileType::Fifo,
        dirent::FileType::Socket => FileType::Socket,
        dirent::FileType::Symlink => FileType::Symlink,
    })
}
