//! Looking a name up in a directory.
//!
//! A directory with a hash tree is asked by the name's hash. Where the tree is of no help the blocks are searched one
//! after the other, which finds every name that is there: the tree is corrupt, or its hash is not one we can compute,
//! or the name is beyond ASCII in a case-folded directory, where the hash depends on the Unicode tables of whoever
//! entered it. A corrupt block fails a lookup only if no other block has the name.

use extern4_disk::inode::ROOT_INO;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};

use crate::dir::casefold::FoldedName;
use crate::dir::entries::{self, Located};
use crate::dir::htree::read::{NameHash, Tree, loop_in};
use crate::error::{Error, Result};
use crate::fscrypt::fscrypt_name::ShownName;
use crate::inode::InodeInfo;
use crate::mount::Ext4;

/// How many blocks a search from block to block fetches at once.
const READ_AHEAD: u32 = 32;

/// A name to look for, in the way its directory compares names.
pub(crate) enum Wanted<'a> {
    /// Byte by byte.
    Exact(&'a [u8]),
    /// Without regard to case.
    Folded(FoldedName<'a>),
    /// By its ciphertext, from the form that is shown without a key.
    Shown(Box<ShownName>),
}

impl<'a> Wanted<'a> {
    /// `None` for a name that cannot be in `dir`.
    pub(crate) fn new(dir: &InodeInfo, name: &'a [u8]) -> Option<Self> {
        if dir.is_encrypted() {
            return ShownName::parse(name).map(|shown| Self::Shown(Box::new(shown)));
        }
        Some(if dir.is_casefolded() { Self::Folded(FoldedName::new(name)) } else { Self::Exact(name) })
    }

    /// Whether `name`, as it stands in the directory, is the same.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(wanted) => *wanted == name,
            Self::Folded(wanted) => wanted.matches(name),
            Self::Shown(wanted) => wanted.matches(name),
        }
    }

    /// The major hash of the name, if it can be known.
    fn major(&self, hash: &NameHash) -> Option<u32> {
        match (self, hash) {
            (Self::Exact(name), NameHash::Function { hasher, .. }) => Some(hasher.hash(name).major),
            (Self::Folded(name), NameHash::Function { hasher, .. }) => Some(hasher.hash(name.hashed()).major),
            // A directory that does not hash its names shows them with a hash of zero.
            (Self::Shown(name), _) => Some(name.major()).filter(|&major| major != 0),
            (Self::Exact(_) | Self::Folded(_), NameHash::Stored) => None,
        }
    }

    /// Whether others may have hashed the same name to another value.
    fn hash_is_doubtful(&self) -> bool {
        matches!(self, Self::Folded(name) if !name.hashed().is_ascii())
    }
}

/// An entry of a block.
pub(crate) struct Found {
    /// The inode it stands for.
    pub(crate) ino: u32,
    /// The block that has it, in the directory and on the volume.
    pub(crate) logical: u32,
    pub(crate) block: u64,
    /// Where in the block its record stands.
    pub(crate) record: Located,
}

impl Ext4 {
    /// The inode that `name` stands for in `dir`; `None` if the name is not there.
    pub(crate) fn lookup_name(&self, dir: &InodeInfo, name: &[u8]) -> Result<Option<u32>> {
        let Some(wanted) = Wanted::new(dir, name) else { return Ok(None) };
        let changes = self.fast_commits.changes(dir.ino());
        let changed = changes.and_then(|changes| changes.names().find(|(name, _)| wanted.matches(name)));
        let found = if let Some((_, ino)) = changed {
            ino
        } else if changes.is_some_and(|changes| changes.made_in().is_some()) {
            None
        } else if dir.is_inline() {
            self.lookup_inline(dir, &wanted)?
        } else {
            self.find_entry(dir, &wanted)?.map(|found| found.ino)
        };
        match found {
            Some(ino) if ino == dir.ino() || ino == ROOT_INO => {
                let place = Place::new(Structure::DirectoryBlock).ino(dir.ino());
                Err(place.corrupt(CorruptKind::Loop { what: "a directory entry" }).into())
            }
            Some(ino) if self.is_hidden(ino) => {
                let kind = CorruptKind::InodeOutOfRange { field: "inode", ino: u64::from(ino) };
                Err(Place::new(Structure::DirectoryBlock).ino(dir.ino()).corrupt(kind).into())
            }
            found => Ok(found),
        }
    }

    /// The entry of a name in a directory that has blocks.
    pub(crate) fn find_entry(&self, dir: &InodeInfo, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        if dir.is_indexed() {
            match self.lookup_tree(dir, wanted) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) | Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.lookup_linear(dir, wanted)
    }

    /// Asks the hash tree. `None` if it cannot tell, else its answer.
    fn lookup_tree(&self, dir: &InodeInfo, wanted: &Wanted<'_>) -> Result<Option<Option<Found>>> {
        let tree = Tree::open(self, dir)?;
        let Some(major) = wanted.major(&tree.hash) else { return Ok(None) };
        let mut cursor = tree.seek(major)?;
        for _ in 0..dir.len_blocks(self)? {
            let leaf = cursor.leaf();
            if let Some(found) = self.search_block(dir, leaf, self.dir_physical(dir, leaf)?, wanted)? {
                return Ok(Some(Some(found)));
            }
            if cursor.advance()? != Some(major | 1) {
                return Ok(if wanted.hash_is_doubtful() { None } else { Some(None) });
            }
        }
        Err(loop_in(dir))
    }

    /// Searches block after block.
    fn lookup_linear(&self, dir: &InodeInfo, wanted: &Wanted<'_>) -> Result<Option<Found>> {
        let mut failed = None;
        let len_blocks = dir.len_blocks(self)?;
        for logical in 0..len_blocks {
            if logical % READ_AHEAD == 0 && len_blocks > 1 {
                self.read_ahead_dir(dir, logical, READ_AHEAD)?;
            }
            let search = |block: Option<u64>| {
                block.map_or(Ok(None), |block| self.search_block(dir, logical, block, wanted))
            };
            match self.names_physical(dir, logical).and_then(search) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                // Without its map there is nothing more to be had from the directory, and its holes have no end.
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
        &self,
        dir: &InodeInfo,
        logical: u32,
        block: u64,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>> {
        let found = self.with_dir_block(dir, logical, block, |bytes| {
            let slots = self.dir_slots(dir, block, bytes);
            let found = match wanted {
                Wanted::Exact(name) => entries::find_name(&slots, name)?,
                _ => entries::find(slots, |entry| wanted.matches(entry.name))?
                    .map(|(record, entry)| (record, entry.ino)),
            };
            Ok::<_, Corrupt>(found.map(|(record, ino)| Found { ino, logical, block, record }))
        });
        Ok(found??)
    }

    fn lookup_inline(&self, dir: &InodeInfo, wanted: &Wanted<'_>) -> Result<Option<u32>> {
        self.with_inline_dir(dir, |inline, layout, place| {
            for entry in inline.entries(layout, place) {
                let entry = entry?;
                if wanted.matches(entry.name) {
                    return Ok(Some(entry.ino));
                }
            }
            Ok(None)
        })
    }
}
