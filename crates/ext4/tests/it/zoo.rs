//! Images that reach each part of this crate at least once, compared whole with their oracles.

use extern4_testkit::tree::assert_same;
use extern4_testkit::zoo::spec;

use crate::walk;

/// Indirect blocks, extents of several levels, linear and hashed directories, inline data, values
/// in inodes, large blocks, clusters, flags that only a tool sets.
const NAMES: [&str; 9] = [
    "ext2_1k",
    "ext4_default",
    "ext4_64k",
    "ext4_inline_data_1k",
    "ext4_ea_inode_1k",
    "ext4_bigalloc",
    "ext4_no_dir_index",
    "ext4_casefold",
    "times_and_flags",
];

#[test]
fn images_agree_with_their_oracles() {
    for spec in NAMES.map(spec).into_iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let theirs = spec.oracle_tree(&image);
        let ours = walk::tree(&walk::open(&image.path));
        assert_same(spec.name, &ours, &theirs);
    }
}
