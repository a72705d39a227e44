//! A volume whose contents are known and whose layout is decided, ready to be written.
//!
//! `Builder::plan` makes a [`Planned`]. Its caller learns the size and the counts from it and then
//! writes it with [`Planned::write`] or [`Planned::write_file`]. The size no longer changes. A
//! source file that changes between plan and write is an error that names the file.

use std::collections::BTreeMap;

use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::inode::{Inode, InodeFlags};
use extern4_disk::superblock::Superblock;
use extern4_mkfs::{Draft, Plan, UsedInodes};

use crate::builder::Builder;
use crate::error::{Error, Result, shown};
use crate::holes::Holes;
use crate::identity::TreeDigest;
use crate::layer::Layer;
use crate::layout::Layout;
use crate::progress::Watch;
use crate::storage::Storage;
use crate::tree::{Body, Node, Order, Tree};

/// A volume that is to be written.
pub struct Planned {
    pub(crate) tree: Tree,
    pub(crate) order: Order,
    pub(crate) holes: Holes,
    pub(crate) storage: Storage,
    pub(crate) layout: Layout,
    pub(crate) layers: Vec<Layer>,
    pub(crate) watch: Option<Watch>,
    /// The digest of the tree, if the UUID follows from it and from the contents.
    pub(crate) digest: Option<TreeDigest>,
    /// Whether a file becomes a disk with a partition, and gets a hash tree.
    pub(crate) partition: bool,
    pub(crate) verity: bool,
    warnings: Vec<String>,
    pub(crate) plan: Plan,
    pub(crate) sb: Superblock,
    /// Where each group's inode table starts.
    tables: Vec<u64>,
    /// The inodes of the file system itself.
    pub(crate) own_inodes: BTreeMap<u32, Inode>,
    /// The first inode that is not the file system's own.
    pub(crate) first_ino: u32,
}

/// Numbers of a volume that is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files, each counted once however many names it has.
    pub files: u64,
    /// Directories, with the root and without lost+found.
    pub directories: u64,
    /// All other files.
    pub others: u64,
    /// Bytes of regular files, holes not counted.
    pub bytes: u64,
    /// Runs of blocks that regular files have.
    pub extents: u64,
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes of the volume that are free.
    pub free: u64,
    /// Bytes of the journal; 0 without one.
    pub journal: u64,
    /// Bytes of the blocks that files have, with the blocks of directories, maps and attributes.
    pub used: u64,
    /// Bytes of the blocks that are where the volume has them whose layout is kept.
    pub kept: u64,
}

impl Planned {
    /// The volume of a draft in which all files have their places.
    pub(crate) fn new(
        builder: Builder,
        order: Order,
        (holes, storage): (Holes, Storage),
        mut draft: Draft,
        layout: Layout,
    ) -> Result<Self> {
        let Builder {
            options,
            tree,
            layers,
            mut warnings,
            watch,
            digest,
            ..
        } = builder;
        warnings.extend(tree.xattrs.left_out_warnings());
        let first_ino = draft.first_free_inode();
        let sb = draft.superblock().clone();
        let tables = (0..sb.geometry().group_count())
            .map_while(|group| draft.inode_table(group))
            .collect();
        let own_inodes = draft.inodes();
        let mut directories: Vec<u32> = order
            .directories
            .iter()
            .map(|&name| layout.numbers.of(tree.name(name).inode))
            .collect();
        directories.sort_unstable();
        let size = u64::from(sb.block_size());
        for &inode in &order.inodes {
            let node = tree.node(inode);
            if let Body::Value(_) = node.body {
                // The files that have it are charged.
                continue;
            }
            check_features(node, &sb).map_err(|reason| impossible(&tree, inode, reason))?;
            let blocks = layout.blocks_of(&tree, &holes, &storage, inode, sb.block_size());
            draft.charge(node.owner(), blocks * size);
            let values = storage
                .division(&tree, inode)
                .map_or(0, |division| division.value_inodes().count());
            (0..values).for_each(|_| draft.charge(node.owner(), 0));
        }
        let runs = layout.numbers.runs(first_ino);
        let plan = draft.finish(&UsedInodes {
            runs: &runs,
            directories: &directories,
        })?;
        Ok(Self {
            tree,
            order,
            holes,
            storage,
            layout,
            layers,
            watch,
            partition: options.partition,
            verity: options.verity,
            digest: digest.filter(|_| plan.is_uuid_free()),
            warnings,
            plan,
            sb,
            tables,
            own_inodes,
            first_ino,
        })
    }

    /// Bytes of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.plan.size_bytes()
    }

    /// The superblock of the volume. A UUID that follows from the contents is known, and put in its
    /// place, only when they are written.
    pub fn superblock(&self) -> &Superblock {
        self.plan.superblock()
    }

    /// The plan of the volume around the files.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Messages for the user about things that are left out or altered. A volume that is too small
    /// for a journal has none, which [`Summary::journal`] says.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Counts what is in the volume.
    pub fn summary(&self) -> Summary {
        let size = u64::from(self.sb.block_size());
        let mut summary = Summary {
            directories: self.order.directories.len() as u64 - 1,
            extents: self.layout.extents,
            size: self.size_bytes(),
            free: self.superblock().free_blocks() * size,
            journal: self.plan.journal_blocks() * size,
            used: self.layout.used * size,
            kept: self.layout.kept * size,
            ..Summary::default()
        };
        for &inode in &self.order.inodes {
            match &self.tree.node(inode).body {
                Body::File { contents, .. } => {
                    summary.files += 1;
                    summary.bytes += if self.storage.is_inline(inode) {
                        contents.size
                    } else {
                        contents.size.min(self.file_blocks(inode) * size)
                    };
                }
                Body::Directory { .. } | Body::Value(_) => {}
                _ => summary.others += 1,
            }
        }
        summary
    }

    pub(crate) fn file_blocks(&self, inode: u32) -> u64 {
        self.storage
            .file_blocks(&self.tree, &self.holes, inode, self.sb.block_size())
    }

    /// The block of the inode table that an inode is in.
    pub(crate) fn table_block(&self, ino: u32) -> u64 {
        let geometry = self.sb.geometry();
        let position = geometry.inode_slot(ino).and_then(|slot| {
            let &table = self.tables.get(slot.group as usize)?;
            geometry.inode_position(table, slot.index)
        });
        position.map_or(0, |position| position.block)
    }
}

/// Returns why a volume cannot keep the flags and the project of a file, if it cannot.
fn check_features(node: &Node, sb: &Superblock) -> Result<(), String> {
    let flags = node.flags.unwrap_or_default();
    let features = sb.features();
    if flags.contains(InodeFlags::ENCRYPT) {
        return Err(
            "it is encrypted, and its key and policy stay with the volume that it is in".to_owned(),
        );
    }
    if flags.contains(InodeFlags::VERITY) && !node.is_sealed {
        return Err(
            "fs-verity protects it (V), and the build is to seal it again or to leave out flags"
                .to_owned(),
        );
    }
    if flags.contains(InodeFlags::CASEFOLD) && !features.incompat.contains(Incompat::CASEFOLD) {
        return Err(
            "its names are without regard to case (F), which needs the feature casefold".to_owned(),
        );
    }
    let Some(project) = node.project.filter(|project| *project != 0) else {
        return Ok(());
    };
    if !features.ro_compat.contains(RoCompat::PROJECT) {
        return Err(format!(
            "it belongs to the project {project}, which needs the feature project"
        ));
    }
    let mut raw = Inode::new(1, 0, 0, sb);
    raw.set_project(project);
    if raw.project() != project {
        return Err(format!(
            "it belongs to the project {project}, which needs larger inodes"
        ));
    }
    Ok(())
}

/// The error about a file that the volume cannot have.
pub(crate) fn impossible(tree: &Tree, inode: u32, reason: String) -> Error {
    Error::Member {
        path: shown(&tree.path(tree.some_name_of(inode))),
        reason,
    }
}
