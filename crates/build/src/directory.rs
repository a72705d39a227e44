//! The blocks of directories: linear ones, and hash trees that are full.
//!
//! `layout` asks how many blocks each directory takes, and `write` encodes them when their blocks
//! are known. Both use the same [`Packing`], so a directory has exactly the blocks that it was
//! given. A directory with too many names for a hash tree of the allowed depth is an error.

use extern4_disk::casefold;
use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::dirent::{self, DirEntry, FileType, Layout, TAIL_SIZE};
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::htree::{self, HashVersion, Hasher, NodeEntries, Root};
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, Place, Structure};
use extern4_mkfs::lost_found_blocks;

/// Bytes of `.` in its block.
const DOT_BYTES: usize = 12;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u32,
    pub(crate) kind: FileType,
}

/// How the volume stores directories.
#[derive(Debug)]
pub(crate) struct Format {
    layout: Layout,
    /// Blocks that lost+found has at least.
    lost_found_blocks: u64,
    hash: Option<(HashVersion, Hasher)>,
    /// The most levels of interior nodes below the root.
    most_levels: u8,
}

/// Which names are in which leaf, and how many nodes are above them.
#[derive(Debug)]
pub(crate) struct Packing {
    /// The names in the order in which they are stored.
    order: Vec<u32>,
    /// The hash of each of them in a hash tree.
    hashes: Vec<u32>,
    /// Where in `order` each leaf ends.
    ends: Vec<usize>,
    /// Nodes of each level between the root and the leaves, from the root on.
    levels: Vec<usize>,
    is_tree: bool,
}

impl Packing {
    /// Blocks of the directory.
    pub(crate) fn blocks(&self) -> u64 {
        let root = usize::from(self.is_tree);
        (root + self.levels.iter().sum::<usize>() + self.ends.len()) as u64
    }

    /// Adds empty blocks until there are `blocks`. A hash tree has room enough.
    pub(crate) fn extend(&mut self, blocks: u64) {
        while !self.is_tree && self.blocks() < blocks {
            self.ends.push(self.order.len());
        }
    }

    /// Whether it is a hash tree.
    pub(crate) const fn is_tree(&self) -> bool {
        self.is_tree
    }
}

impl Format {
    pub(crate) fn of(sb: &Superblock) -> Self {
        let features = sb.features();
        let layout = Layout {
            block_size: sb.block_size(),
            inodes: sb.inodes_count(),
            filetype: features.incompat.contains(Incompat::FILETYPE),
            checksum: sb.metadata_seed().is_some(),
            encrypted: false,
            casefold: false,
        };
        // The root of a tree names the function alone; the superblock says how it takes bytes.
        let hasher = HashVersion::from_raw(sb.default_hash_version()).and_then(|version| {
            let function = if sb.unsigned_hash() {
                version.unsigned()
            } else {
                version
            };
            Some((version, Hasher::new(function, sb.hash_seed())?))
        });
        Self {
            layout,
            lost_found_blocks: lost_found_blocks(sb),
            hash: hasher.filter(|_| features.compat.contains(Compat::DIR_INDEX)),
            most_levels: if features.incompat.contains(Incompat::LARGEDIR) {
                2
            } else {
                1
            },
        }
    }

    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) const fn lost_found_blocks(&self) -> u64 {
        self.lost_found_blocks
    }

    fn block_size(&self) -> usize {
        self.layout.block_size as usize
    }

    /// Bytes of a block that entries can take.
    fn room(&self) -> usize {
        self.block_size() - if self.layout.checksum { TAIL_SIZE } else { 0 }
    }

    /// Decides which name goes to which block. `None` if these are too many for a directory.
    /// `is_folded` says that the names are without regard to case.
    pub(crate) fn pack(&self, children: &[Child<'_>], is_folded: bool) -> Option<Packing> {
        let room = self.room();
        let bytes: usize = children
            .iter()
            .map(|child| self.layout.rec_len(child.name))
            .sum();
        let order: Vec<u32> = (0..children.len() as u32).collect();
        let linear = |order: Vec<u32>, ends| {
            Some(Packing {
                order,
                hashes: Vec::new(),
                ends,
                levels: Vec::new(),
                is_tree: false,
            })
        };
        if 2 * DOT_BYTES + bytes <= room {
            let ends = vec![order.len()];
            return linear(order, ends);
        }
        let Some((_, hasher)) = &self.hash else {
            let ends = self.fill(&order, children, 2 * DOT_BYTES, room);
            return linear(order, ends);
        };
        let hash = |name| match casefold::fold(name).filter(|_| is_folded) {
            Some(folded) => hasher.hash(&folded),
            None => hasher.hash(name),
        };
        let mut hashed: Vec<_> = order
            .iter()
            .map(|&at| (hash(children[at as usize].name), at))
            .collect();
        hashed.sort_unstable_by_key(|(hash, at)| (hash.major, hash.minor, *at));
        let order: Vec<u32> = hashed.iter().map(|(_, at)| *at).collect();
        let hashes = hashed.iter().map(|(hash, _)| hash.major).collect();
        let ends = self.fill(&order, children, 0, room);
        let levels = self.levels(ends.len())?;
        Some(Packing {
            order,
            hashes,
            ends,
            levels,
            is_tree: true,
        })
    }

    /// Fills leaves one after the other; gives the end of each.
    fn fill(&self, order: &[u32], children: &[Child<'_>], taken: usize, room: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut used = taken;
        for (at, &child) in order.iter().enumerate() {
            let need = self.layout.rec_len(children[child as usize].name);
            if used + need > room {
                ends.push(at);
                used = 0;
            }
            used += need;
        }
        ends.push(order.len());
        ends
    }

    /// Counts the nodes of each level above the leaves, from the root on.
    fn levels(&self, leaves: usize) -> Option<Vec<usize>> {
        let checksum = self.layout.checksum;
        let root = NodeEntries::root_limit(self.block_size(), checksum);
        let node = NodeEntries::node_limit(self.block_size(), checksum);
        let mut levels = Vec::new();
        let mut below = leaves;
        while below > root {
            below = below.div_ceil(node);
            levels.insert(0, below);
        }
        (levels.len() <= self.most_levels.into()).then_some(levels)
    }

    /// The blocks of a directory, one behind the other.
    pub(crate) fn encode(
        &self,
        packing: &Packing,
        children: &[Child<'_>],
        ino: u32,
        parent: u32,
        seed: Option<ChecksumSeed>,
    ) -> Result<Vec<u8>, Corrupt> {
        let size = self.block_size();
        let mut blocks = vec![0; packing.blocks() as usize * size];
        let dots = [(&b"."[..], ino), (b"..", parent)].map(|(name, ino)| Child {
            name,
            ino,
            kind: FileType::Directory,
        });
        let leaves = blocks.len() - packing.ends.len() * size;
        let mut start = 0;
        for (at, (block, &end)) in blocks[leaves..]
            .chunks_exact_mut(size)
            .zip(&packing.ends)
            .enumerate()
        {
            let names = packing.order[start..end]
                .iter()
                .map(|&at| children[at as usize]);
            let dots = if at == 0 && !packing.is_tree {
                &dots[..]
            } else {
                &[]
            };
            self.encode_leaf(block, dots.iter().copied().chain(names), seed);
            start = end;
        }
        if packing.is_tree {
            self.encode_nodes(packing, &dots, &mut blocks[..leaves], seed)?;
        }
        Ok(blocks)
    }

    fn encode_leaf<'a>(
        &self,
        block: &mut [u8],
        names: impl Iterator<Item = Child<'a>>,
        seed: Option<ChecksumSeed>,
    ) {
        let room = self.room();
        let mut names = names.peekable();
        let mut at = 0;
        if names.peek().is_none() {
            let unused = DirEntry {
                ino: 0,
                kind: FileType::Unknown,
                name: b"",
                offset: 0,
                hash: None,
            };
            unused.encode(&mut block[..room], &self.layout);
        }
        while let Some(Child { name, ino, kind }) = names.next() {
            let len = if names.peek().is_none() {
                room - at
            } else {
                self.layout.rec_len(name)
            };
            let entry = DirEntry {
                ino,
                kind,
                name,
                offset: 0,
                hash: None,
            };
            entry.encode(&mut block[at..at + len], &self.layout);
            at += len;
        }
        if let Some(seed) = seed {
            dirent::store_checksum(block, seed);
        }
    }

    /// The root and the nodes above the leaves, which follow them.
    fn encode_nodes(
        &self,
        packing: &Packing,
        dots: &[Child<'_>; 2],
        blocks: &mut [u8],
        seed: Option<ChecksumSeed>,
    ) -> Result<(), Corrupt> {
        let size = self.block_size();
        let nodes = blocks.len() / size;
        // The first hash in each leaf, marked where the names with it begin in the leaf before.
        let starts = std::iter::once(0).chain(packing.ends.iter().copied());
        let mut below: Vec<(u32, u32)> = (nodes as u32..)
            .zip(starts.take(packing.ends.len()))
            .map(|(block, start)| (packing.boundary(start), block))
            .collect();
        let mut first = nodes;
        for &count in packing.levels.iter().rev() {
            first -= count;
            let limit = NodeEntries::node_limit(size, self.layout.checksum);
            let mut above = Vec::new();
            for (block, entries) in (first..).zip(below.chunks(limit)) {
                above.push((entries[0].0, block as u32));
                let node = &mut blocks[block * size..(block + 1) * size];
                let unused = DirEntry {
                    ino: 0,
                    kind: FileType::Unknown,
                    name: b"",
                    offset: 0,
                    hash: None,
                };
                unused.encode(node, &self.layout);
                self.entries(entries, limit).encode(node);
                seal(node, false, seed)?;
            }
            below = above;
        }
        let root = &mut blocks[..size];
        for (child, range) in dots.iter().zip([0..DOT_BYTES, DOT_BYTES..size]) {
            let entry = DirEntry {
                ino: child.ino,
                kind: child.kind,
                name: child.name,
                offset: 0,
                hash: None,
            };
            entry.encode(&mut root[range], &self.layout);
        }
        let version = self
            .hash
            .map_or(HashVersion::HalfMd4, |(version, _)| version);
        let limit = NodeEntries::root_limit(size, self.layout.checksum);
        Root::encode(
            version,
            packing.levels.len() as u8,
            &self.entries(&below, limit),
            root,
        );
        seal(root, true, seed)
    }

    /// Entries of a node, the first of which has no hash.
    fn entries(&self, entries: &[(u32, u32)], limit: usize) -> NodeEntries {
        let mut entries = entries.to_vec();
        entries[0].0 = 0;
        NodeEntries {
            entries,
            limit: limit as u16,
        }
    }
}

impl Packing {
    /// The hash from which a leaf starts; its lowest bit is set if names before it have the same
    /// hash.
    fn boundary(&self, start: usize) -> u32 {
        let hash = self.hashes[start];
        let continues = start > 0 && self.hashes[start - 1] == hash;
        hash | u32::from(continues)
    }
}

fn seal(block: &mut [u8], is_root: bool, seed: Option<ChecksumSeed>) -> Result<(), Corrupt> {
    match seed {
        Some(seed) => htree::store_checksum(block, is_root, seed, Place::new(Structure::HtreeNode)),
        None => Ok(()),
    }
}
