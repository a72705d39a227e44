//! The hash tree of a directory: every node, and which hashes each leaf may hold.
//!
//! The tree is walked once from the root. Each block of the directory gets its part in it, and a
//! block that has one already is not followed again.
//!
//! The pass over directories calls it for each indexed directory, and then checks that the names of
//! each block have hashes in its part.

use extern4_disk::feature::Incompat;
use extern4_disk::htree::{self, Expect, Hash, HtreeNode, Root};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::NameHash;

use crate::Checker;
use crate::directory::Blocks;
use crate::fault::Fault;
use crate::inode::DirRecord;
use crate::report::Sink;
use crate::to_usize;

/// The role of a block of an indexed directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing that the tree knows of.
    Unknown,
    /// The root or an interior node.
    Node,
    /// A leaf, with names of these hashes.
    Leaf {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
}

/// The check's knowledge of a directory's tree.
pub(crate) struct Tree {
    /// The part of each block.
    pub(crate) roles: Vec<Role>,
    /// How names are hashed.
    pub(crate) hash: NameHash,
}

impl Tree {
    /// Walks the tree of `dir`; `None` if its root makes no sense.
    pub(crate) fn walk(
        checker: &Checker<'_>,
        dir: &DirRecord,
        blocks: &Blocks<'_>,
        sink: &mut Sink,
    ) -> Option<Self> {
        let features = checker.sb.features();
        let expect = Expect {
            blocks: dir.blocks,
            checksum: features.metadata_csum(),
            large_dir: features.incompat.contains(Incompat::LARGEDIR),
        };
        let mut walk = Walk {
            checker,
            dir,
            blocks,
            sink,
            expect,
            levels: 0,
            roles: Vec::new(),
        };
        walk.roles.resize(to_usize(dir.blocks), Role::Unknown);
        let hash = walk.root()?;
        Some(Self {
            roles: walk.roles,
            hash,
        })
    }
}

struct Walk<'a> {
    checker: &'a Checker<'a>,
    dir: &'a DirRecord,
    blocks: &'a Blocks<'a>,
    sink: &'a mut Sink,
    expect: Expect,
    levels: u8,
    roles: Vec<Role>,
}

impl Walk<'_> {
    fn root(&mut self) -> Option<NameHash> {
        let (block, place) = self.block(0)?;
        let root = match Root::decode(&block, &self.expect, place) {
            Ok(root) => root,
            Err(corrupt) => {
                self.sink.push(corrupt);
                return None;
            }
        };
        self.levels = root.levels;
        if let Some(role) = self.roles.first_mut() {
            *role = Role::Node;
        }
        self.below(&root.node, 0, (0, Hash::EOF_MAJOR), place);
        Some(NameHash::new(
            self.checker.sb,
            self.dir.flags,
            root.hash_version,
        ))
    }

    /// Walks what the entries of a node name, which is `depth` levels below the root and for hashes
    /// of this range.
    fn below(&mut self, node: &HtreeNode<'_>, depth: u8, (low, high): (u32, u32), place: Place) {
        for (at, (hash, logical)) in node.iter().enumerate() {
            let from = if at == 0 { low } else { hash & !1 };
            // A leaf that continues the last hash of the one before it shares that with it.
            let to = if at + 1 < node.len() {
                node.hash(at + 1).saturating_sub(1)
            } else {
                high
            };
            if from < low || to > high {
                let what = "hash tree entries of one node against those of the next";
                self.sink.push(place.corrupt(CorruptKind::Order { what }));
            }
            match self.roles.get_mut(to_usize(logical)) {
                Some(role @ Role::Unknown) if depth == self.levels => {
                    *role = Role::Leaf {
                        low: from,
                        high: to,
                    }
                }
                Some(role @ Role::Unknown) => {
                    *role = Role::Node;
                    self.node(logical, depth + 1, (from, to));
                }
                _ => self.sink.push(place.corrupt(CorruptKind::Loop {
                    what: "the hash tree",
                })),
            }
        }
    }

    fn node(&mut self, logical: u32, depth: u8, range: (u32, u32)) {
        let Some((block, place)) = self.block(logical) else {
            return;
        };
        match HtreeNode::decode(&block, &self.expect, place) {
            Ok(node) => self.below(&node, depth, range, place),
            Err(corrupt) => self.sink.push(corrupt),
        }
    }

    /// Returns a node's block, its checksum verified.
    fn block(&mut self, logical: u32) -> Option<(Vec<u8>, Place)> {
        let place = Place::new(Structure::HtreeNode).ino(self.dir.ino);
        // A block without a place is a hole, which has been found already.
        let physical = self.blocks.physical(logical)?;
        let place = place.block(physical);
        let mut bytes = Vec::new();
        if let Err(error) = self.checker.read(physical, 1, &mut bytes) {
            self.sink.push(Fault::of_error(place, error));
            return None;
        }
        if self.checker.seed.is_some()
            && let Err(corrupt) =
                htree::verify_checksum(&bytes, logical == 0, self.dir.seed(), place)
        {
            self.sink.push(corrupt);
        }
        Some((bytes, place))
    }
}
