//! Looks a name up in a directory.
//!
//! In a directory with a hash tree a lookup uses the name's hash. It searches all blocks instead if
//! the tree is corrupt, or if it cannot compute the hash. It also does so for a name beyond ASCII
//! in a case-folded directory that the tree does not have, because the hash depends on the Unicode
//! tables of the system that created the name. A corrupt block fails a lookup only if no other
//! block has the name.
//!
//! `ops` calls [`lookup_name`], which also honours fast commits and refuses entries that no
//! directory may have. `insert` calls [`find_entry`] for the position of an entry.

use extern4_disk::casefold::FoldedName;
use extern4_disk::inode::ROOT_INO;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::dir::blocks::{dir_physical, dir_slots, names_physical, read_ahead_dir, with_dir_block};
use crate::dir::htree::read::{NameHash, Tree, first_leaf, loop_in};
use crate::dir::names::{map_names, mapped_block, name_hash};
use crate::dir_entries::{self, RecordPosition};
use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::fscrypt_name::ShownName;
use crate::inode::info::InodeInfo;
use crate::inode::name_map::DirNames;

/// How many blocks a search from block to block reads ahead.
const READ_AHEAD: u32 = 32;

/// A name to be found, in the way in which its directory compares names.
pub(crate) enum SearchName<'a> {
    /// Byte by byte.
    Exact(&'a [u8]),
    /// Without regard to case.
    Folded(FoldedName<'a>),
    /// By its ciphertext, decoded from the form that is shown without a key.
    Shown(Box<ShownName>),
}

impl<'a> SearchName<'a> {
    /// Returns the search for `name` in `dir`; `None` for a name that cannot be there.
    pub(crate) fn new(dir: &InodeInfo, name: &'a [u8]) -> Option<Self> {
        if dir.is_encrypted() {
            return ShownName::parse(name).map(|shown| Self::Shown(Box::new(shown)));
        }
        Some(if dir.is_casefolded() {
            Self::Folded(FoldedName::new(name))
        } else {
            Self::Exact(name)
        })
    }

    /// Whether `name`, as stored in the directory, is the same.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(wanted) => *wanted == name,
            Self::Folded(wanted) => wanted.matches(name),
            Self::Shown(wanted) => wanted.matches(name),
        }
    }

    /// Returns the major hash of the name, if it can be known.
    fn major(&self, hash: &NameHash) -> Option<u32> {
        match (self, hash) {
            (Self::Exact(name), NameHash::Function { hasher, .. }) => Some(hasher.hash(name).major),
            (Self::Folded(name), NameHash::Function { hasher, .. }) => {
                Some(hasher.hash(name.hashed()).major)
            }
            // A directory that does not hash its names shows them with a hash of zero.
            (Self::Shown(name), _) => Some(name.major()).filter(|&major| major != 0),
            (Self::Exact(_) | Self::Folded(_), NameHash::Stored) => None,
        }
    }

    /// Whether another system may have hashed the same name to another value.
    fn hash_is_doubtful(&self) -> bool {
        matches!(self, Self::Folded(name) if !name.hashed().is_ascii())
    }
}

/// An entry of a block.
pub(crate) struct FoundEntry {
    /// The inode that it refers to.
    pub(crate) ino: u32,
    /// Its block, by number in the directory and on the volume.
    pub(crate) logical: u32,
    pub(crate) block: u64,
    /// The position of its record in the block.
    pub(crate) record: RecordPosition,
}

/// Returns the inode of `name` in `dir`, whose map is in `names`; `None` if the name is not there.
/// Locks: the names, shared.
pub(crate) fn lookup_name(
    fs: &Ext4,
    dir: &InodeInfo,
    names: &DirNames,
    name: &[u8],
) -> Result<Option<u32>> {
    let Some(wanted) = SearchName::new(dir, name) else {
        return Ok(None);
    };
    let changes = fs.fast_commits.changes(dir.ino());
    let changed =
        changes.and_then(|changes| changes.names().find(|(name, _)| wanted.matches(name)));
    let found = if let Some((_, ino)) = changed {
        ino
    } else if changes.is_some_and(|changes| changes.made_in().is_some()) {
        None
    } else if changes.is_some() || dir.is_encrypted() {
        // A map could not tell: it has only the names in blocks, and by their plain text.
        search(fs, dir, &wanted)?.map(|(ino, _)| ino)
    } else {
        search_mapped(fs, dir, names, (name, &wanted))?
    };
    match found {
        Some(ino) if ino == dir.ino() || ino == ROOT_INO => {
            let place = Place::new(Structure::DirectoryBlock).ino(dir.ino());
            Err(place
                .corrupt(CorruptKind::Loop {
                    what: "a directory entry",
                })
                .into())
        }
        Some(ino) if fs.superblock().is_hidden(ino) => {
            let kind = CorruptKind::InodeOutOfRange {
                field: "inode",
                ino: u64::from(ino),
            };
            Err(Place::new(Structure::DirectoryBlock)
                .ino(dir.ino())
                .corrupt(kind)
                .into())
        }
        found => Ok(found),
    }
}

/// Looks a name up by the map of its directory, if there is one, and makes one if it has come to
/// that.
fn search_mapped(
    fs: &Ext4,
    dir: &InodeInfo,
    names: &DirNames,
    (name, wanted): (&[u8], &SearchName<'_>),
) -> Result<Option<u32>> {
    if let Some(answer) = find_mapped(fs, dir, names, (name, wanted)) {
        return Ok(answer.map(|found| found.ino));
    }
    let found = search(fs, dir, wanted)?;
    let len = if dir.is_inline() {
        1
    } else {
        dir.len_blocks(fs)?
    };
    let in_vain = match found {
        // The search came from block to block.
        Some((_, logical)) => mapped_block(dir, logical),
        None if dir.is_indexed() => 1,
        None => len,
    };
    if names.count_in_vain(in_vain, len) {
        map_names(fs, dir, names);
    }
    Ok(found.map(|(ino, _)| ino))
}

/// Returns the answer of the map. Returns `None` if the blocks must be searched: there is no map, a
/// block is damaged, or the directory finds blocks by other means.
pub(crate) fn find_mapped(
    fs: &Ext4,
    dir: &InodeInfo,
    names: &DirNames,
    (name, wanted): (&[u8], &SearchName<'_>),
) -> Option<Option<FoundEntry>> {
    let hash = name_hash(fs, dir, name);
    let mut from = 0;
    while let Some(logical) = names.next_block(hash, from)? {
        if dir.is_indexed() || dir.is_inline() {
            return None;
        }
        let block = dir_physical(fs, dir, logical).ok()?;
        if let Some(found) = search_block(fs, dir, logical, block, wanted).ok()? {
            return Some(Some(found));
        }
        from = logical + 1;
    }
    Some(None)
}

/// Returns the inode of a name and its block in the directory.
fn search(fs: &Ext4, dir: &InodeInfo, wanted: &SearchName<'_>) -> Result<Option<(u32, u32)>> {
    Ok(if dir.is_inline() {
        lookup_inline(fs, dir, wanted)?.map(|ino| (ino, 0))
    } else {
        find_entry(fs, dir, wanted)?.map(|found| (found.ino, found.logical))
    })
}

/// Returns the entry of a name in a directory that is not inline.
pub(crate) fn find_entry(
    fs: &Ext4,
    dir: &InodeInfo,
    wanted: &SearchName<'_>,
) -> Result<Option<FoundEntry>> {
    if dir.is_indexed() {
        match lookup_tree(fs, dir, wanted) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) | Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    lookup_linear(fs, dir, wanted)
}

/// Looks a name up by the hash tree. Returns `None` if the tree gives no certain answer.
fn lookup_tree(
    fs: &Ext4,
    dir: &InodeInfo,
    wanted: &SearchName<'_>,
) -> Result<Option<Option<FoundEntry>>> {
    let Some(first) = first_leaf(fs, dir, |hash| wanted.major(hash))? else {
        return Ok(None);
    };
    let search = |leaf| search_block(fs, dir, leaf, dir_physical(fs, dir, leaf)?, wanted);
    if let Some(found) = search(first.leaf)? {
        return Ok(Some(Some(found)));
    }
    let absent = if wanted.hash_is_doubtful() {
        None
    } else {
        Some(None)
    };
    let continued = Some(first.major | 1);
    if first.next != continued {
        return Ok(absent);
    }
    let tree = Tree::open(fs, dir)?;
    let mut cursor = tree.seek(first.major)?;
    for _ in 0..dir.len_blocks(fs)? {
        if cursor.advance()? != continued {
            return Ok(absent);
        }
        if let Some(found) = search(cursor.leaf())? {
            return Ok(Some(Some(found)));
        }
    }
    Err(loop_in(dir))
}

/// Searches block after block.
fn lookup_linear(
    fs: &Ext4,
    dir: &InodeInfo,
    wanted: &SearchName<'_>,
) -> Result<Option<FoundEntry>> {
    let mut failed = None;
    let len_blocks = dir.len_blocks(fs)?;
    for logical in 0..len_blocks {
        if logical % READ_AHEAD == 0 && len_blocks > 1 {
            read_ahead_dir(fs, dir, logical, READ_AHEAD)?;
        }
        let search = |block: Option<u64>| {
            block.map_or(Ok(None), |block| {
                search_block(fs, dir, logical, block, wanted)
            })
        };
        match names_physical(fs, dir, logical).and_then(search) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            // An error without a block is of the directory's map, without which the search cannot
            // go on.
            Err(Error::Corrupt(corrupt)) if corrupt.place.block.is_some() => {
                failed = failed.or(Some(corrupt))
            }
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(None), |corrupt| Err(corrupt.into()))
}

/// Searches block `logical` of a directory, which is block `block` of the volume.
fn search_block(
    fs: &Ext4,
    dir: &InodeInfo,
    logical: u32,
    block: u64,
    wanted: &SearchName<'_>,
) -> Result<Option<FoundEntry>> {
    let found = with_dir_block(fs, dir, logical, block, |bytes| {
        let slots = dir_slots(fs, dir, block, bytes);
        let found = match wanted {
            SearchName::Exact(name) => dir_entries::find_name(&slots, name)?,
            _ => dir_entries::find(slots, |entry| wanted.matches(entry.name))?
                .map(|(record, entry)| (record, entry.ino)),
        };
        Ok::<_, Corrupt>(found.map(|(record, ino)| FoundEntry {
            ino,
            logical,
            block,
            record,
        }))
    });
    Ok(found??)
}

fn lookup_inline(fs: &Ext4, dir: &InodeInfo, wanted: &SearchName<'_>) -> Result<Option<u32>> {
    dir.with_inline_dir(fs, |inline, layout, place| {
        for entry in inline.entries(layout, place) {
            let entry = entry?;
            if wanted.matches(entry.name) {
                return Ok(Some(entry.ino));
            }
        }
        Ok(None)
    })
}
