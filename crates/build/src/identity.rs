//! The identity of a volume, derived from what it holds.
//!
//! The hash seed decides the order of names in hashed directories, so it has to be known before
//! anything is written. It follows from the names and metadata of the tree. The UUID is in the
//! superblock, which is written last, so it also follows from the contents of files: the threads
//! that write a block have its bytes at hand.

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::tree::{Body, Order, Tree};

/// A digest of the contents of all files, whatever the order in which their blocks come.
///
/// It tells contents apart that differ by chance. A UUID needs no protection against contents that
/// are made to have equal digests, so the hash is a fast one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentsDigest(u128);

impl ContentsDigest {
    /// Adds one block of a file: the file's place in the order of inodes, the number of the block
    /// in it, and the bytes.
    pub(crate) fn add(&mut self, place: u32, block: u64, bytes: &[u8]) {
        let mut text = [0; 28];
        text[..4].copy_from_slice(&place.to_le_bytes());
        text[4..12].copy_from_slice(&block.to_le_bytes());
        text[12..].copy_from_slice(&xxh3_128(bytes).to_le_bytes());
        self.0 ^= xxh3_128(&text);
    }

    /// The digest of the blocks of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

/// A digest of all facts about a tree's files but their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeDigest([u8; 32]);

impl TreeDigest {
    pub(crate) fn of(tree: &Tree, order: &Order) -> Self {
        let mut sha = Sha256::new();
        let mut text = |bytes: &[u8]| {
            sha.update((bytes.len() as u64).to_le_bytes());
            sha.update(bytes);
        };
        for &inode in &order.inodes {
            add_inode(tree, inode, &mut text);
        }
        for &directory in &order.directories {
            for (_, name) in tree.children(directory) {
                text(&name.text);
                text(&tree.node(name.inode).place.to_le_bytes());
            }
        }
        Self(sha.finalize().into())
    }

    /// The seed of directories' hashes.
    pub(crate) fn hash_seed(self) -> [u8; 16] {
        let mut seed = [0; 16];
        seed.copy_from_slice(&self.0[16..]);
        seed
    }

    /// The UUID of a volume whose contents do not matter.
    pub(crate) fn uuid(self) -> [u8; 16] {
        uuid(&self.0)
    }

    /// The UUID of a volume with these contents.
    pub(crate) fn uuid_with(self, contents: ContentsDigest) -> [u8; 16] {
        let sha = Sha256::new()
            .chain_update(self.0)
            .chain_update(contents.0.to_le_bytes());
        uuid(&sha.finalize())
    }
}

/// Bytes for some purpose that follow from a volume's UUID.
pub(crate) fn derived(purpose: &[u8], uuid: [u8; 16]) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"extern4 ")
        .chain_update(purpose)
        .chain_update(uuid)
        .finalize()
        .into()
}

/// A UUID for some purpose that follows from a volume's UUID.
pub(crate) fn derived_uuid(purpose: &[u8], volume: [u8; 16]) -> [u8; 16] {
    uuid(&derived(purpose, volume))
}

/// A UUID of the first bytes of a digest.
fn uuid(digest: &[u8]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest[..16]);
    // RFC 9562, version 8: the bits are the application's own.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn add_inode(tree: &Tree, inode: u32, text: &mut impl FnMut(&[u8])) {
    let node = tree.node(inode);
    let numbers = [
        u64::from(node.mode),
        u64::from(node.uid),
        u64::from(node.gid),
        node.mtime.secs.cast_unsigned(),
        u64::from(node.mtime.nanos),
        u64::from(node.links),
    ];
    text(&numbers.map(u64::to_le_bytes).concat());
    match &node.body {
        Body::Directory { .. } => text(b"d"),
        Body::File { contents, .. } => text(&[b"f", &contents.size.to_le_bytes()[..]].concat()),
        Body::Symlink(target) => text(&[b"l", &**target].concat()),
        Body::CharDevice { major, minor } => {
            text(&[b"c", &major.to_le_bytes()[..], &minor.to_le_bytes()].concat());
        }
        Body::BlockDevice { major, minor } => {
            text(&[b"b", &major.to_le_bytes()[..], &minor.to_le_bytes()].concat());
        }
        Body::Fifo => text(b"p"),
        // A value is among the attributes that it is for.
        Body::Value(_) => {}
        Body::Socket => text(b"s"),
    }
    if node.is_sealed {
        text(b"fs-verity");
    }
    if let Some(flags) = node.flags.filter(|flags| !flags.is_empty()) {
        text(&[b"flags", &flags.bits().to_le_bytes()[..]].concat());
    }
    if let Some(project) = node.project.filter(|project| *project != 0) {
        text(&[b"project", &project.to_le_bytes()[..]].concat());
    }
    for (index, name, value) in tree.xattrs.attributes(node.xattrs) {
        text(&[index]);
        text(name);
        text(value);
    }
}

#[cfg(test)]
mod tests {
    use super::ContentsDigest;

    fn digest(blocks: &[(u32, u64, &[u8])]) -> ContentsDigest {
        let mut digest = ContentsDigest::default();
        blocks
            .iter()
            .for_each(|(place, block, bytes)| digest.add(*place, *block, bytes));
        digest
    }

    #[test]
    fn blocks_count_with_their_places_and_in_any_order() {
        let whole = digest(&[(1, 0, b"a"), (1, 1, b"b"), (2, 0, b"a")]);
        assert_eq!(whole, digest(&[(2, 0, b"a"), (1, 1, b"b"), (1, 0, b"a")]));
        assert_eq!(
            whole,
            digest(&[(1, 1, b"b")]).with(digest(&[(2, 0, b"a"), (1, 0, b"a")]))
        );
        for other in [
            &[(1, 0, &b"b"[..]), (1, 1, b"a"), (2, 0, b"a")][..],
            &[(1, 0, b"a"), (1, 1, b"b"), (3, 0, b"a")],
            &[(1, 0, b"a"), (1, 1, b"b")],
            &[(1, 0, b"a"), (1, 1, b"b"), (2, 0, b"a\0")],
        ] {
            assert_ne!(whole, digest(other));
        }
    }
}
