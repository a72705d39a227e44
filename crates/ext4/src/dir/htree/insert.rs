//! Changes a directory's hash tree: makes one, adds names, splits full blocks.
//!
//! A name belongs in the leaf that its hash leads to. A full leaf is compacted if that makes room,
//! and otherwise split: the upper half of its names by hash, counted in bytes, moves to a new block
//! at the end of the directory. That block needs an entry in the node above. A full node is split
//! in the middle, which needs an entry in the node above it. If all nodes of the path are full, the
//! root's entries move to a new node below the root. `insert::check_new_name` asks beforehand
//! whether the tree can get that level. Nothing is ever merged: an empty leaf is kept for later
//! names.
//!
//! Names with the same hash stay in one leaf if possible. Where a leaf has to be split between two
//! of them, the entry of the upper leaf has a flag that it continues the lower.
//!
//! Only `insert` calls these functions, under the lock on the directory's names and in a handle.

use extern4_block::{Buffer, Unsealed};
use extern4_disk::dirent::{self, DirEntry, FileType};
use extern4_disk::htree::{self, Expect, HashVersion, HtreeNode, NodeEntries, Root};
use extern4_disk::inode::InodeFlags;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_vfs::Errno;

use crate::dir::block_edit::{
    MAX_NEW_BLOCKS, append_dir_block, edit_names, encode_dots, names_len, names_place, put_name,
};
use crate::dir::blocks::{dir_block, dir_entries};
use crate::dir::htree::read::{NameHash, Tree, expect};
use crate::dir_entries;
use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::dir_hint::DirHint;
use crate::inode::info::{InodeInfo, dir_layout};
use crate::volume::buffer::Verified;
use crate::volume::group::to_usize;

/// The superblock's flags for hashes over signed or unsigned bytes.
const SIGNED_HASH: u32 = 1;
const UNSIGNED_HASH: u32 = 2;

/// Names with their hashes.
type Names<'b> = Vec<(u32, DirEntry<'b>)>;

/// The path from the root of a tree to the leaf where a name belongs.
pub(crate) struct HtreePath {
    version: HashVersion,
    hash: NameHash,
    /// The nodes from the root on, and the index of the path's entry in each.
    nodes: Vec<(Buffer, usize)>,
    leaf: u32,
    /// The lowest and the highest hash that belong in the leaf.
    range: (u32, u32),
}

/// A decoded node on a path.
struct Step {
    block: Buffer,
    node: NodeEntries,
    at: usize,
}

impl Step {
    fn is_full(&self) -> bool {
        self.node.entries.len() >= usize::from(self.node.limit)
    }
}

impl HtreePath {
    /// Whether the root of the tree of `dir` can take one more entry, so that there is room for any
    /// name.
    pub(crate) fn root_has_room(fs: &Ext4, dir: &InodeInfo) -> Result<bool> {
        let tree = Tree::open(fs, dir)?;
        let root = tree.root()?;
        Ok(root.levels < most_levels(&expect(fs, dir))
            || root.node.len() < usize::from(root.node.limit()))
    }

    /// Whether the tree of `dir` surely has room for any `names` names. False means that it may
    /// have.
    pub(crate) fn tree_has_room_for(fs: &Ext4, dir: &InodeInfo, names: u64) -> Result<bool> {
        let tree = Tree::open(fs, dir)?;
        let root = tree.root()?;
        let expect = expect(fs, dir);
        if root.levels < most_levels(&expect) {
            return Ok(true);
        }
        // The root gets an entry when a full node below it is split. Each of these may be full now.
        // After its split, a node is full again only after as many leaf splits as half its entries,
        // and a name splits at most one leaf.
        let half =
            NodeEntries::node_limit(to_usize(fs.superblock().block_size()), expect.checksum) / 2;
        let splits = root.node.len() as u64 + names / half as u64 + 1;
        Ok(root.node.len() as u64 + splits <= u64::from(root.node.limit()))
    }

    /// Returns the path to the leaf of `name`.
    pub(crate) fn to(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<Self> {
        let tree = Tree::open(fs, dir)?;
        let version = tree.root()?.hash_version;
        if matches!(tree.hash, NameHash::Stored) {
            let kind = CorruptKind::Field {
                field: "hash_version",
                value: version.to_raw().into(),
            };
            return Err(Place::new(Structure::HtreeNode)
                .ino(dir.ino())
                .corrupt(kind)
                .into());
        }
        let hash = tree.hash;
        let cursor = tree.seek(hash.of_entry(&nameless(name)).major)?;
        let leaf = cursor.leaf();
        let range = cursor.range()?;
        Ok(Self {
            version,
            hash,
            nodes: cursor.into_nodes(),
            leaf,
            range,
        })
    }

    /// Whether the tree has room for `name`, whose path this is.
    pub(crate) fn has_room_for(&self, fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<bool> {
        if self.has_room_for_leaf(fs, dir)? {
            return Ok(true);
        }
        let leaf = dir_block(fs, dir, self.leaf)?;
        let layout = dir_layout(fs, dir);
        let used = self
            .names(fs, dir, &leaf)?
            .iter()
            .map(|(_, it)| layout.rec_len(it.name))
            .sum::<usize>();
        Ok(used + layout.rec_len(name) <= names_len(leaf.len(), &layout))
    }

    /// Whether the tree has room for the entry of one more leaf.
    fn has_room_for_leaf(&self, fs: &Ext4, dir: &InodeInfo) -> Result<bool> {
        let expect = expect(fs, dir);
        if self.nodes.len() <= usize::from(most_levels(&expect)) {
            return Ok(true);
        }
        Ok(self.steps(&expect, dir)?.iter().any(|step| !step.is_full()))
    }

    /// Returns the leaf as a block of the directory.
    pub(crate) fn leaf(&self) -> u32 {
        self.leaf
    }

    /// Returns the most blocks by which the directory grows if the leaf is split.
    pub(crate) fn blocks_for_leaf(&self, fs: &Ext4, dir: &InodeInfo) -> Result<u32> {
        let steps = self.steps(&expect(fs, dir), dir)?;
        Ok(if steps.last().is_some_and(|step| !step.is_full()) {
            1
        } else {
            MAX_NEW_BLOCKS
        })
    }

    /// Returns the names in the leaf, with hashes that belong there.
    ///
    /// A name in the wrong leaf gets the nearest hash that the leaf may have, so it stays there.
    /// Only a search of all blocks finds such a name, before and after.
    fn names<'b>(&self, fs: &Ext4, dir: &InodeInfo, leaf: &'b Buffer) -> Result<Names<'b>> {
        let (low, high) = self.range;
        dir_entries(fs, dir, leaf)
            .map(|entry| {
                let entry = entry?;
                Ok((self.hash.of_entry(&entry).major.clamp(low, high), entry))
            })
            .collect()
    }

    fn steps(&self, expect: &Expect, dir: &InodeInfo) -> Result<Vec<Step>> {
        let steps = self.nodes.iter().enumerate().map(|(depth, (block, at))| {
            let place = node_place(dir, block);
            let node = match depth {
                0 => Root::decode(block, expect, place)?.node,
                _ => HtreeNode::decode(block, expect, place)?,
            };
            Ok(Step {
                node: node.to_owned(),
                block: block.clone(),
                at: *at,
            })
        });
        steps.collect()
    }
}

/// Adds an entry to a directory that has a tree.
pub(crate) fn add_to_tree(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    entry: &DirEntry<'_>,
) -> Result<()> {
    let path = HtreePath::to(handle.fs, dir, entry.name)?;
    if put_name(handle, dir, path.leaf, entry)? {
        return Ok(());
    }
    let mut leaf = dir_block(handle.fs, dir, path.leaf)?;
    let old = leaf.clone();
    let mut names = path.names(handle.fs, dir, &old)?;
    names.push((path.hash.of_entry(entry).major, *entry));
    let Some((at, hash)) = halve(handle, dir, &mut names) else {
        fill_leaf(handle, dir, &mut leaf, &names);
        return Ok(());
    };
    if !path.has_room_for_leaf(handle.fs, dir)? {
        return Err(Errno::ENOSPC.into());
    }
    let steps = path.steps(&expect(handle.fs, dir), dir)?;
    let (lower, upper) = names.split_at(at);
    let (logical, mut new) = append_dir_block(handle, dir)?;
    fill_leaf(handle, dir, &mut new, upper);
    fill_leaf(handle, dir, &mut leaf, lower);
    insert_leaf(handle, dir, path.version, steps, (hash, logical))
}

/// Converts a directory whose only block has no room for `entry` to a hash tree, and adds the
/// entry.
pub(crate) fn make_tree(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    version: HashVersion,
    entry: &DirEntry<'_>,
) -> Result<()> {
    let mut root = dir_block(handle.fs, dir, 0)?;
    let old = root.clone();
    let hash = NameHash::new(handle.fs.superblock(), dir.fields().flags(), version);
    let layout = dir_layout(handle.fs, dir);
    let (_, parent) = dirent::dot_and_dotdot(&old, &layout, names_place(dir, &old))?;
    let hashed = |entry: DirEntry<'_>| hash.of_entry(&entry).major;
    let entries = dir_entries(handle.fs, dir, &old)
        .skip(2)
        .chain([Ok(*entry)]);
    let mut names = entries
        .map(|it| it.map(|it| (hashed(it), it)))
        .collect::<Result<Names<'_>, _>>()?;
    let half = halve(handle, dir, &mut names);
    let (lower, upper) = names.split_at(half.map_or(names.len(), |(at, _)| at));
    let (first, mut leaf) = append_dir_block(handle, dir)?;
    fill_leaf(handle, dir, &mut leaf, lower);
    let mut entries = vec![(0, first)];
    if let Some((_, hash)) = half {
        let (second, mut leaf) = append_dir_block(handle, dir)?;
        fill_leaf(handle, dir, &mut leaf, upper);
        entries.push((hash, second));
    }
    let limit = NodeEntries::root_limit(root.len(), layout.checksum);
    let node = NodeEntries {
        entries,
        limit: u16::try_from(limit).unwrap_or(u16::MAX),
    };
    handle.edit(&mut root, |bytes| {
        bytes.fill(0);
        encode_dots(bytes, dir.ino(), parent, &layout);
    });
    let flags = dir.fields().flags() | InodeFlags::INDEX;
    dir.fields_mut().set_flags(flags);
    // The hint is about the only block, which holds no names any more.
    dir.dir_hint = DirHint::default();
    store_index_root(handle, dir, &mut root, version, 0, &node)?;
    set_hash_flag(handle)
}

/// Sorts names by hash. Returns the index of the first name for a second leaf, and the hash of that
/// leaf's entry; `None` if all fit into one leaf.
fn halve(handle: &Handle<'_>, dir: &InodeInfo, names: &mut Names<'_>) -> Option<(usize, u32)> {
    let layout = dir_layout(handle.fs, dir);
    names.sort_by_key(|(hash, _)| *hash);
    let sizes: Vec<_> = names
        .iter()
        .map(|(hash, it)| (*hash, layout.rec_len(it.name)))
        .collect();
    let at = split_at(&sizes, names_len(to_usize(layout.block_size), &layout))?;
    let last = names[at - 1].0;
    let first = names[at].0;
    Some((at, if last == first { first | 1 } else { first }))
}

fn fill_leaf(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    leaf: &mut Buffer,
    names: &[(u32, DirEntry<'_>)],
) {
    edit_names(handle, dir, leaf, |bytes, layout| {
        dir_entries::fill(bytes, names.iter().map(|(_, entry)| entry), layout);
    });
}

/// Inserts the entry of a new leaf after that of the leaf that `steps` lead to.
fn insert_leaf(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    version: HashVersion,
    mut steps: Vec<Step>,
    mut entry: (u32, u32),
) -> Result<()> {
    if steps.iter().all(Step::is_full) {
        grow(handle, dir, version, &mut steps)?;
    }
    // OK: at most 2, here and where it grows.
    let levels = (steps.len() - 1) as u8;
    for (depth, mut step) in steps.into_iter().enumerate().rev() {
        step.node.entries.insert(step.at + 1, entry);
        let half = step.node.entries.len() / 2;
        let is_over = step.node.entries.len() > usize::from(step.node.limit);
        let upper = is_over.then(|| step.node.entries.split_off(half));
        match depth {
            0 => store_index_root(handle, dir, &mut step.block, version, levels, &step.node)?,
            _ => store_node(handle, dir, &mut step.block, &step.node)?,
        }
        let Some(upper) = upper else { return Ok(()) };
        let hash = upper[0].0;
        let (logical, _) = append_node(handle, dir, upper)?;
        entry = (hash, logical);
    }
    // Not reached: `grow` made room in the root if it had none.
    Err(Errno::ENOSPC.into())
}

/// Moves the entries of the root to a new node below it.
fn grow(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    version: HashVersion,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let levels = steps.len();
    let root = &mut steps[0];
    let entries = std::mem::take(&mut root.node.entries);
    let (logical, below) = append_node(handle, dir, entries)?;
    let at = std::mem::take(&mut root.at);
    root.node.entries = vec![(0, logical)];
    store_index_root(
        handle,
        dir,
        &mut root.block,
        version,
        levels as u8,
        &root.node,
    )?;
    steps.insert(1, Step { at, ..below });
    Ok(())
}

/// Returns a new node, and its number in the directory.
fn append_node(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    entries: Vec<(u32, u32)>,
) -> Result<(u32, Step)> {
    let (logical, mut block) = append_dir_block(handle, dir)?;
    let checksum = handle.fs.superblock().features().metadata_csum();
    let limit = NodeEntries::node_limit(block.len(), checksum);
    let node = NodeEntries {
        entries,
        limit: u16::try_from(limit).unwrap_or(u16::MAX),
    };
    handle.edit(&mut block, dir_entries::free_record);
    store_node(handle, dir, &mut block, &node)?;
    Ok((logical, Step { block, node, at: 0 }))
}

fn store_node(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: &mut Buffer,
    node: &NodeEntries,
) -> Result<()> {
    edit_node(handle, dir, block, false, |bytes| node.encode(bytes))
}

fn store_index_root(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: &mut Buffer,
    version: HashVersion,
    levels: u8,
    node: &NodeEntries,
) -> Result<()> {
    edit_node(handle, dir, block, true, |bytes| {
        Root::encode(version, levels, node, bytes)
    })
}

/// Changes a root or another node and stores its checksum.
fn edit_node(
    handle: &Handle<'_>,
    dir: &InodeInfo,
    block: &mut Buffer,
    is_root: bool,
    edit: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let place = node_place(dir, block);
    handle.edit_unsealed(block, |bytes, unsealed| {
        edit(bytes);
        // The block may have held names, with a deferred checksum.
        *unsealed = Unsealed::default();
        match dir.seed() {
            Some(seed) => htree::store_checksum(bytes, is_root, seed, place),
            None => Ok(()),
        }
    })?;
    handle.fs.note_verified(block, Verified::HtreeNode);
    Ok(())
}

/// Makes sure that the superblock says whether hashes are signed, now that there is a tree.
fn set_hash_flag(handle: &Handle<'_>) -> Result<()> {
    if handle.current_superblock().raw().s_flags.get() & (SIGNED_HASH | UNSIGNED_HASH) != 0 {
        return Ok(());
    }
    handle.edit_superblock(|raw| raw.s_flags.set(raw.s_flags.get() | SIGNED_HASH))
}

/// Returns the hash version for the root of a new tree; `None` if the superblock's default cannot
/// be computed. A root never says whether bytes are signed.
pub(crate) fn version_of_new_trees(fs: &Ext4) -> Option<HashVersion> {
    match HashVersion::from_raw(fs.superblock().default_hash_version())? {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => Some(HashVersion::Legacy),
        HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => Some(HashVersion::HalfMd4),
        HashVersion::Tea | HashVersion::TeaUnsigned => Some(HashVersion::Tea),
        HashVersion::SipHash => None,
    }
}

fn most_levels(expect: &Expect) -> u8 {
    if expect.large_dir { 2 } else { 1 }
}

/// Returns an entry that has only a name.
fn nameless(name: &[u8]) -> DirEntry<'_> {
    DirEntry {
        ino: 0,
        kind: FileType::Unknown,
        name,
        offset: 0,
        hash: None,
    }
}

fn node_place(dir: &InodeInfo, block: &Buffer) -> Place {
    Place::new(Structure::HtreeNode)
        .ino(dir.ino())
        .block(block.number())
}

/// Returns the index of the first name for the second of two leaves of `room` bytes; `None` if all
/// fit into one. `names` has hashes and sizes, sorted by hash. The halves are as equal as possible,
/// but names of one hash are separated only if nothing else fits.
fn split_at(names: &[(u32, usize)], room: usize) -> Option<usize> {
    let total: usize = names.iter().map(|(_, size)| size).sum();
    if total <= room {
        return None;
    }
    let mut lower = 0;
    let mut best = None;
    for at in 1..names.len() {
        lower += names[at - 1].1;
        let upper = total - lower;
        if lower > room || upper > room {
            continue;
        }
        let rank = (names[at - 1].0 == names[at].0, lower.abs_diff(upper));
        if best.is_none_or(|(best, _)| rank < best) {
            best = Some((rank, at));
        }
    }
    // A split exists: a name is at most a quarter of a block, so half of the names, which together
    // exceed a block by one name, fit into one.
    best.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_split_in_the_middle_but_between_hashes() {
        assert_eq!(split_at(&[(2, 100), (4, 100)], 200), None);
        assert_eq!(split_at(&[(2, 100), (4, 100), (6, 100)], 250), Some(1));
        assert_eq!(split_at(&[(2, 16), (4, 100), (6, 100)], 200), Some(2));
        assert_eq!(
            split_at(&[(2, 100), (4, 100), (4, 100), (4, 100)], 300),
            Some(1)
        );
        assert_eq!(
            split_at(&[(4, 100), (4, 100), (4, 100), (4, 100)], 300),
            Some(2)
        );
        // The only other place leaves too many on one side.
        assert_eq!(
            split_at(&[(2, 16), (4, 100), (4, 100), (4, 100)], 250),
            Some(2)
        );
    }
}
