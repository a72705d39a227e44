//! Inodes as the volume stores them.
//!
//! `write` encodes each inode of the tree with it, when its group's table is due. An inode whose
//! map or attributes have no place in an ext4 inode is an error that names the member.

use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::inline::HEAD_SIZE;
use extern4_disk::inode::{DeviceNumber, Inode, InodeFlags, MAP_SIZE};
use extern4_disk::time::Timestamp;
use extern4_disk::xattr::hash;
use extern4_tree::Time;

use crate::error::{Error, Result};
use crate::layout::{self, Place};
use crate::planned::{self, Planned};
use crate::storage::data_attribute;
use crate::tree::{Body, Node};

/// The most links of an inode.
const LINKS_MAX: u32 = 65_000;

impl Planned {
    /// Writes the record of an inode of the tree, and its contents if these are in it.
    pub(crate) fn encode_inode(
        &self,
        inode: u32,
        inline: Option<&[u8]>,
        record: &mut [u8],
    ) -> Result<()> {
        let sb = &self.sb;
        let node = self.tree.node(inode);
        let ino = self.layout.numbers.of(inode);
        if let Body::Value(value) = &node.body {
            return self.encode_value(inode, value, record);
        }
        let mut raw = Inode::new(ino, node.body.kind().mode_bits() | node.mode, 0, sb);
        raw.set_uid(node.uid);
        raw.set_gid(node.gid);
        let time = timestamp(node.mtime);
        raw.set_atime(time);
        raw.set_ctime(time);
        raw.set_mtime(time);
        raw.set_crtime(time);
        raw.set_links(self.links(inode, node)?);
        match inline {
            Some(contents) => self.set_inline(&mut raw, inode, contents)?,
            None => self.set_body(&mut raw, inode, node)?,
        }
        // fs-verity's flag is that of a file that the build seals.
        let kept = node.flags.unwrap_or_default() - InodeFlags::VERITY;
        raw.set_flags(raw.flags() | kept);
        raw.set_project(node.project.unwrap_or(0));
        raw.set_xattr_block(self.layout.xattr_block(inode));
        let data =
            inline.map(|contents| data_attribute(contents.get(HEAD_SIZE..).unwrap_or_default()));
        if data.is_some() || !node.xattrs.is_empty() {
            let division = self.storage.division(&self.tree, inode);
            self.tree.xattrs.encode_inside(
                node.xattrs,
                division,
                data,
                &mut record[raw.xattr_range()],
            );
        }
        raw.encode(record, sb);
        Ok(())
    }

    /// Writes the record of an inode that holds a value of extended attributes. Format: the
    /// kernel's ext4 documentation, "Extended Attributes".
    fn encode_value(&self, inode: u32, value: &[u8], record: &mut [u8]) -> Result<()> {
        let sb = &self.sb;
        let node = self.tree.node(inode);
        let hash = hash::ea_value(value, sb.checksum_seed());
        let mode = node.body.kind().mode_bits() | node.mode;
        // With the generation and the number of its owner, it would have the form of Lustre.
        let mut raw = Inode::new(self.layout.numbers.of(inode), mode, hash | 1, sb);
        let time = timestamp(node.mtime);
        raw.set_mtime(time);
        raw.set_crtime(time);
        raw.set_ea_refcount(
            self.layout
                .value_references
                .get(&inode)
                .copied()
                .unwrap_or(0),
        );
        raw.set_ea_hash(hash);
        raw.set_uid(node.uid);
        raw.set_gid(node.gid);
        raw.set_links(1);
        raw.set_size(value.len() as u64);
        self.set_map(&mut raw, inode, self.file_blocks(inode))?;
        raw.set_flags(raw.flags() | InodeFlags::EA_INODE);
        raw.encode(record, sb);
        Ok(())
    }

    /// Puts contents into an inode: the bytes of `i_block`, and those among the attributes.
    fn set_inline(&self, raw: &mut Inode, inode: u32, contents: &[u8]) -> Result<()> {
        let mut map = [0; MAP_SIZE];
        let head = contents.len().min(HEAD_SIZE);
        map[..head].copy_from_slice(&contents[..head]);
        raw.set_map(&map);
        raw.set_size(contents.len() as u64);
        raw.set_flags(raw.flags() | InodeFlags::INLINE_DATA);
        self.count_sectors(raw, inode)
    }

    fn links(&self, inode: u32, node: &Node) -> Result<u16> {
        let links = node.links;
        if links <= LINKS_MAX {
            return Ok(links as u16);
        }
        if node.body.is_directory() && self.sb.features().ro_compat.contains(RoCompat::DIR_NLINK) {
            return Ok(1);
        }
        Err(self.impossible(
            inode,
            format!("{links} links are more than the {LINKS_MAX} of an inode"),
        ))
    }

    fn set_body(&self, raw: &mut Inode, inode: u32, node: &Node) -> Result<()> {
        match &node.body {
            Body::Directory { .. } => {
                let (blocks, is_tree) = self
                    .layout
                    .directories
                    .get(&inode)
                    .copied()
                    .unwrap_or((0, false));
                raw.set_size(blocks * u64::from(self.sb.block_size()));
                if is_tree {
                    raw.set_flags(InodeFlags::INDEX);
                }
                self.set_map(raw, inode, blocks)
            }
            Body::File { contents, .. } => {
                let needs_large = contents.size > i32::MAX.unsigned_abs().into();
                if needs_large && !self.sb.features().ro_compat.contains(RoCompat::LARGE_FILE) {
                    return Err(
                        self.impossible(inode, "its size needs the feature large_file".to_owned())
                    );
                }
                raw.set_size(contents.size);
                if node.is_sealed {
                    if !self.sb.features().incompat.contains(Incompat::EXTENTS) {
                        return Err(
                            self.impossible(inode, "fs-verity needs the feature extent".to_owned())
                        );
                    }
                    raw.set_flags(InodeFlags::VERITY);
                }
                self.set_map(raw, inode, self.file_blocks(inode))
            }
            Body::Symlink(target) if layout::is_fast_symlink(target) => {
                let mut map = [0; MAP_SIZE];
                map[..target.len()].copy_from_slice(target);
                raw.set_map(&map);
                raw.set_size(target.len() as u64);
                self.count_sectors(raw, inode)
            }
            Body::Symlink(target) => {
                // The target ends with a NUL in its block.
                if target.len() >= self.sb.block_size() as usize {
                    let reason = format!("the symbolic link's target has {} bytes", target.len());
                    return Err(self.impossible(inode, reason));
                }
                raw.set_size(target.len() as u64);
                self.set_map(raw, inode, 1)
            }
            &(Body::CharDevice { major, minor } | Body::BlockDevice { major, minor }) => {
                if major >= 1 << 12 || minor >= 1 << 20 {
                    let reason = format!("there is no device {major}:{minor} in Linux");
                    return Err(self.impossible(inode, reason));
                }
                raw.set_device(DeviceNumber { major, minor });
                self.count_sectors(raw, inode)
            }
            Body::Fifo | Body::Socket | Body::Value(_) => self.count_sectors(raw, inode),
        }
    }

    /// Sets the map of an inode whose contents have `blocks`.
    fn set_map(&self, raw: &mut Inode, inode: u32, blocks: u64) -> Result<()> {
        if self.sb.features().incompat.contains(Incompat::EXTENTS) {
            raw.set_flags(raw.flags() | InodeFlags::EXTENTS);
        }
        let root = match self.layout.known_map(inode) {
            Some(known) => known,
            None => {
                let one;
                let runs = match self.layout.place(inode, blocks) {
                    Place::Nowhere => &[][..],
                    Place::Run(run) => {
                        one = [run];
                        &one[..]
                    }
                    Place::Runs(runs) => runs,
                };
                let mut none = || Err(extern4_mkfs::Error::Size("a map has grown".to_owned()));
                layout::make_map(&self.sb, raw.ino(), runs, &mut none)?.root
            }
        };
        raw.set_map(&root);
        self.count_sectors(raw, inode)
    }

    fn count_sectors(&self, raw: &mut Inode, inode: u32) -> Result<()> {
        let size = self.sb.block_size();
        let blocks = self
            .layout
            .blocks_of(&self.tree, &self.holes, &self.storage, inode, size);
        if raw.set_sectors(blocks * u64::from(size / 512)) {
            return Ok(());
        }
        Err(self.impossible(
            inode,
            "it has more blocks than its inode can count without huge_file".to_owned(),
        ))
    }

    fn impossible(&self, inode: u32, reason: String) -> Error {
        planned::impossible(&self.tree, inode, reason)
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: time.secs,
        nanos: time.nanos,
    }
}
