//! A minimal reader: from an image file to everything below its inodes, by the crate's decoders
//! alone.
//!
//! The reader verifies every checksum and every stored hash on the way. It also encodes every
//! structure that can be encoded, and compares the result with the original bytes. Anything
//! unexpected panics with the place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extern4_disk::acl;
use extern4_disk::blocks::Blocks;
use extern4_disk::checksum::ChecksumSeed;
use extern4_disk::dirent::{self, Layout, Slots};
use extern4_disk::extent::{self, ExtentNode};
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::group::GroupDescriptor;
use extern4_disk::htree;
use extern4_disk::indirect::{Map, Pointers};
use extern4_disk::inline::{self, Data, Dir};
use extern4_disk::inode::{FileKind, Inode, InodeFlags};
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::{self, Attrs, NameIndex, Value};
use extern4_disk::{Corrupt, Place, Structure};

/// Attributes by full name, ACLs in the form that system calls show.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) struct Volume {
    file: File,
    pub(crate) sb: Superblock,
}

/// The blocks that an inode has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Data blocks: logical, physical and whether they have been written.
    pub(crate) data: Vec<(u64, u64, bool)>,
    /// Blocks of the map itself.
    pub(crate) meta: Vec<u64>,
}

/// A directory entry, owned.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: u32,
    pub(crate) kind: dirent::FileType,
}

#[track_caller]
pub(crate) fn ok<T>(result: Result<T, Corrupt>) -> T {
    result.unwrap_or_else(|corrupt| panic!("{corrupt}"))
}

impl Volume {
    pub(crate) fn open(image: &Path) -> Self {
        let file = File::open(image).expect("an image");
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 1024).expect("a superblock");
        let sb = ok(Superblock::decode(
            &bytes,
            Place::new(Structure::Superblock),
        ));
        Self { file, sb }
    }

    pub(crate) fn block(&self, number: u64) -> Vec<u8> {
        let mut block = vec![0; self.sb.block_size() as usize];
        self.file
            .read_exact_at(&mut block, number * u64::from(self.sb.block_size()))
            .expect("a block");
        block
    }

    pub(crate) fn group(&self, group: u32) -> GroupDescriptor {
        let geometry = self.sb.geometry();
        let at = geometry.descriptor_position(group).expect("a descriptor");
        let bytes =
            &self.block(at.block)[at.offset as usize..][..usize::from(geometry.desc_size())];
        ok(GroupDescriptor::decode(
            bytes,
            group,
            &self.sb,
            Place::new(Structure::GroupDescriptor).group(group),
        ))
    }

    /// Returns an inode and its record.
    pub(crate) fn inode(&self, ino: u32) -> (Inode, Vec<u8>) {
        let geometry = self.sb.geometry();
        let slot = geometry.inode_slot(ino).expect("an inode of the volume");
        let at = geometry
            .inode_position(self.group(slot.group).inode_table(), slot.index)
            .expect("an inode of the table");
        let block = self.block(at.block);
        let record = block[at.offset as usize..][..usize::from(self.sb.inode_size())].to_vec();
        (
            ok(Inode::decode(
                &record,
                ino,
                &self.sb,
                Place::new(Structure::Inode).ino(ino),
            )),
            record,
        )
    }

    pub(crate) fn blocks(&self) -> Blocks {
        Blocks::from(self.sb.geometry())
    }

    pub(crate) fn seed(&self, inode: &Inode) -> Option<ChecksumSeed> {
        self.sb
            .metadata_seed()
            .map(|seed| inode.checksum_seed(seed))
    }

    pub(crate) fn layout(&self, inode: &Inode) -> Layout {
        let features = self.sb.features();
        Layout {
            block_size: self.sb.block_size(),
            inodes: self.sb.inodes_count(),
            filetype: features.incompat.contains(Incompat::FILETYPE),
            checksum: features.ro_compat.contains(RoCompat::METADATA_CSUM),
            encrypted: inode.flags().contains(InodeFlags::ENCRYPT),
            casefold: inode.flags().contains(InodeFlags::CASEFOLD),
        }
    }

    pub(crate) fn htree_expect(&self, inode: &Inode) -> htree::Expect {
        let features = self.sb.features();
        htree::Expect {
            blocks: u32::try_from(inode.size() / u64::from(self.sb.block_size()))
                .expect("a directory's size"),
            checksum: features.ro_compat.contains(RoCompat::METADATA_CSUM),
            large_dir: features.incompat.contains(Incompat::LARGEDIR),
        }
    }

    /// Returns all blocks of an inode that has any.
    pub(crate) fn map(&self, inode: &Inode) -> Mapped {
        let mut mapped = Mapped::default();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            let mut root = inode.map().to_vec();
            self.extents(
                inode,
                &mut root,
                extent::Expect::root(self.blocks()),
                None,
                &mut mapped,
            );
        } else {
            self.indirect(inode, &mut mapped);
        }
        mapped
    }

    fn extents(
        &self,
        inode: &Inode,
        bytes: &mut [u8],
        expect: extent::Expect,
        at: Option<u64>,
        out: &mut Mapped,
    ) {
        let mut place = Place::new(Structure::ExtentNode).ino(inode.ino());
        let original = bytes.to_vec();
        if let Some(block) = at {
            out.meta.push(block);
            place = place.block(block);
            if let Some(seed) = self.seed(inode) {
                ok(extent::verify_checksum(bytes, seed, place));
                ok(extent::store_checksum(bytes, seed, place));
                assert_eq!(bytes, original, "{place}");
            }
        }
        let node = ok(ExtentNode::decode(&original, expect, place));
        node.to_owned().encode(bytes);
        assert_eq!(bytes, original, "{place}");
        for extent in node.extents() {
            for at in 0..u64::from(extent.len_blocks) {
                out.data.push((
                    u64::from(extent.logical) + at,
                    extent.physical + at,
                    !extent.unwritten,
                ));
            }
            assert_eq!(node.find(extent.logical), extent::Found::Extent(extent));
        }
        for (index, expect) in node.children() {
            assert_eq!(
                node.find(index.logical),
                extent::Found::Child(index, expect)
            );
            self.extents(
                inode,
                &mut self.block(index.child),
                expect,
                Some(index.child),
                out,
            );
        }
    }

    fn indirect(&self, inode: &Inode, out: &mut Mapped) {
        let map = Map::new(self.sb.block_size()).expect("a block size");
        let place = Place::new(Structure::IndirectBlock).ino(inode.ino());
        let end = inode.size().div_ceil(u64::from(self.sb.block_size()));
        let mut logical = 0;
        while logical < end {
            let path = map
                .path(u32::try_from(logical).expect("32 bits"))
                .expect("a block the map reaches");
            let roots = ok(Pointers::decode(inode.map(), self.blocks(), place));
            let mut next = ok(roots.get(path.root()));
            let mut depth = 0;
            for &offset in path.offsets() {
                let Some(block) = next.map(|block| u64::from(block.get())) else {
                    break;
                };
                if !out.meta.contains(&block) {
                    out.meta.push(block);
                }
                let bytes = self.block(block);
                next = ok(
                    ok(Pointers::decode(&bytes, self.blocks(), place.block(block)))
                        .get(usize::from(offset)),
                );
                depth += 1;
            }
            match next {
                Some(block) => out.data.push((logical, u64::from(block.get()), true)),
                None => {
                    logical += map.hole_blocks(&path, depth);
                    continue;
                }
            }
            logical += 1;
        }
    }

    /// Returns the contents of a file, holes and unwritten blocks as zeroes.
    pub(crate) fn read(&self, inode: &Inode, record: &[u8]) -> Vec<u8> {
        let place = Place::new(Structure::InlineData).ino(inode.ino());
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            let attrs = self.attrs_in_inode(inode, record);
            let attribute = ok(inline::attribute(attrs.as_ref(), place));
            return ok(Data::decode(inode.map(), attribute, inode.size(), place)).to_vec();
        }
        let size = usize::try_from(inode.size()).expect("a size");
        let block_size = self.sb.block_size() as usize;
        let mut contents = vec![0; size.next_multiple_of(block_size)];
        for (logical, physical, written) in self.map(inode).data {
            let at = logical as usize * block_size;
            if written && at < contents.len() {
                contents[at..at + block_size].copy_from_slice(&self.block(physical));
            }
        }
        contents.truncate(size);
        contents
    }

    /// Returns the entries of a directory in stored order; `.` and `..` are checked and left out.
    pub(crate) fn names(&self, inode: &Inode, record: &[u8]) -> Vec<Name> {
        let layout = self.layout(inode);
        let place = Place::new(Structure::DirectoryBlock).ino(inode.ino());
        let name = |entry: dirent::DirEntry<'_>| Name {
            name: entry.name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
        };
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            let attrs = self.attrs_in_inode(inode, record);
            let attribute = ok(inline::attribute(attrs.as_ref(), place));
            let dir = ok(Dir::decode(inode.map(), attribute, &layout, place));
            return dir
                .entries(&layout, place)
                .map(|entry| name(ok(entry)))
                .collect();
        }
        let mut names = Vec::new();
        let index = self.index_blocks(inode);
        for (logical, block) in self.dir_blocks(inode) {
            let place = place.block(logical);
            if logical == 0 {
                assert_eq!(
                    ok(dirent::dot_and_dotdot(&block, &layout, place)).0,
                    inode.ino()
                );
            }
            if index.contains(&logical) {
                self.check_index(inode, logical, &block, place);
            } else {
                self.check_leaf(inode, &block, &layout, place);
                let entries = dirent::Entries::new(&block, &layout, place).map(|entry| ok(entry));
                names.extend(entries.filter(|entry| !entry.is_dot_or_dotdot()).map(name));
            }
        }
        names
    }

    /// Returns the blocks of a directory by logical number.
    pub(crate) fn dir_blocks(&self, inode: &Inode) -> Vec<(u64, Vec<u8>)> {
        self.map(inode)
            .data
            .into_iter()
            .map(|(logical, physical, _)| (logical, self.block(physical)))
            .collect()
    }

    /// Returns the blocks of a hashed directory that hold its tree, by logical number.
    fn index_blocks(&self, inode: &Inode) -> BTreeSet<u64> {
        if !inode.flags().contains(InodeFlags::INDEX) {
            return BTreeSet::new();
        }
        let blocks: BTreeMap<_, _> = self.dir_blocks(inode).into_iter().collect();
        let expect = self.htree_expect(inode);
        let place = Place::new(Structure::HtreeNode).ino(inode.ino());
        let root = ok(htree::Root::decode(&blocks[&0], &expect, place));
        let mut found = BTreeSet::from([0]);
        let mut level = vec![root.node];
        for _ in 0..root.levels {
            let below: Vec<u64> = level
                .iter()
                .flat_map(|node| node.iter())
                .map(|(_, block)| block.into())
                .collect();
            level = below
                .iter()
                .map(|block| ok(htree::HtreeNode::decode(&blocks[block], &expect, place)))
                .collect();
            found.extend(below);
        }
        found
    }

    fn check_index(&self, inode: &Inode, logical: u64, block: &[u8], place: Place) {
        if let Some(seed) = self.seed(inode) {
            ok(htree::verify_checksum(block, logical == 0, seed, place));
            let mut again = block.to_vec();
            ok(htree::store_checksum(&mut again, logical == 0, seed, place));
            assert_eq!(again, block, "{place}");
        }
        let mut again = block.to_vec();
        let expect = self.htree_expect(inode);
        if logical == 0 {
            let root = ok(htree::Root::decode(block, &expect, place));
            htree::Root::encode(
                root.hash_version,
                root.levels,
                &root.node.to_owned(),
                &mut again,
            );
        } else {
            ok(htree::HtreeNode::decode(block, &expect, place))
                .to_owned()
                .encode(&mut again);
        }
        assert_eq!(again, block, "{place}");
    }

    fn check_leaf(&self, inode: &Inode, block: &[u8], layout: &Layout, place: Place) {
        let mut again = block.to_vec();
        if let Some(seed) = self.seed(inode) {
            ok(dirent::verify_checksum(block, seed, place));
            dirent::store_checksum(&mut again, seed);
        }
        for slot in Slots::new(block, layout, place).map(|slot| ok(slot)) {
            if let Some(entry) = slot.entry {
                let at = slot.offset as usize;
                entry.encode(&mut again[at..at + slot.rec_len as usize], layout);
            }
        }
        // Bytes between a name and the next multiple of 4 mean nothing, and writers leave old ones
        // there.
        let end = |entry: &dirent::DirEntry<'_>| entry.offset as usize + 8 + entry.name.len();
        for entry in dirent::Entries::new(block, layout, place).map(|entry| ok(entry)) {
            let padding = end(&entry)..end(&entry).next_multiple_of(4);
            again[padding.clone()].copy_from_slice(&block[padding]);
        }
        assert_eq!(again, block, "{place}");
    }

    fn attrs_in_inode<'a>(&self, inode: &Inode, record: &'a [u8]) -> Option<Attrs<'a>> {
        ok(Attrs::in_inode(
            inode.xattr_area(record),
            Place::new(Structure::Xattr).ino(inode.ino()),
        ))
    }

    /// Returns the attributes that system calls show.
    pub(crate) fn xattrs(&self, inode: &Inode, record: &[u8]) -> Xattrs {
        let place = Place::new(Structure::Xattr).ino(inode.ino());
        let mut out = Xattrs::new();
        if let Some(attrs) = self.attrs_in_inode(inode, record) {
            self.add_xattrs(&attrs, place, &mut out);
        }
        if let Some(number) = inode.xattr_block() {
            let place = place.block(number);
            let block = self.block(number);
            let (header, attrs) = ok(Attrs::in_block(&block, place));
            ok(attrs.check_order(place));
            // mke2fs leaves the hash at 0, which only says that the block is not to be shared.
            assert!(
                [0, xattr::hash::block(&attrs)].contains(&header.hash),
                "{place}"
            );
            if let Some(seed) = self.sb.metadata_seed() {
                ok(xattr::verify_checksum(&block, number, seed, place));
                let mut again = block.clone();
                xattr::store_checksum(&mut again, number, seed);
                assert_eq!(again, block, "{place}");
            }
            self.add_xattrs(&attrs, place, &mut out);
        }
        out
    }

    fn add_xattrs(&self, attrs: &Attrs<'_>, place: Place, out: &mut Xattrs) {
        for attr in attrs.iter() {
            let (value, ea_hash) = match attr.value {
                Value::Here(value) => (value.to_vec(), None),
                Value::EaInode { ino, size } => {
                    let (inode, record) = self.inode(ino);
                    let value = self.read(&inode, &record);
                    assert_eq!(
                        (value.len(), inode.size()),
                        (size as usize, u64::from(size)),
                        "{place}"
                    );
                    let hash = xattr::hash::ea_value(&value, self.sb.checksum_seed());
                    assert_eq!(hash, inode.ea_hash(), "{place}");
                    assert!(inode.ea_refcount() > 0, "{place}");
                    (value, Some(hash))
                }
            };
            ok(xattr::hash::verify_entry(&attr, ea_hash, place));
            if (attr.index, attr.name) == inline::XATTR {
                continue;
            }
            let is_acl = matches!(
                attr.index,
                NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT
            );
            let value = if is_acl {
                let list = ok(acl::decode(&value, place));
                assert_eq!(acl::encode(&list), value, "{place}");
                list.to_xattr()
            } else {
                value
            };
            let before = out.insert(attr.full_name().expect("a known prefix"), value);
            assert!(before.is_none(), "{place}: a name twice");
        }
    }

    /// Returns every path below the root, the root itself as `/`, with its inode and the type in
    /// its entry.
    pub(crate) fn walk(&self) -> BTreeMap<Vec<u8>, Name> {
        let root = Name {
            name: Vec::new(),
            ino: 2,
            kind: dirent::FileType::Directory,
        };
        let mut found = BTreeMap::new();
        let mut todo = vec![(b"/".to_vec(), root)];
        while let Some((path, name)) = todo.pop() {
            let (inode, record) = self.inode(name.ino);
            if inode.kind() == FileKind::Directory {
                let below = self.names(&inode, &record).into_iter();
                todo.extend(below.map(|name| {
                    let slash: &[u8] = if path == b"/" { b"" } else { b"/" };
                    ([&path, slash, &name.name].concat(), name)
                }));
            }
            let before = found.insert(path, name);
            assert!(before.is_none(), "a name twice");
        }
        found
    }
}
