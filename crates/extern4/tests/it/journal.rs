//! Every crashed image: replaying its journal in memory shows what the kernel shows after replaying
//! it on disk, and writes nothing.

use extern4_testkit::crash::{SPECS, spec};
use extern4_testkit::tree::assert_same;

use crate::ours;

fn judge(name: &str) {
    let spec = spec(name);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let before = std::fs::read(&image.path).expect("the image can be read");
    let ours = ours::tree(&image.path);
    let after = std::fs::read(&image.path).expect("the image can be read");
    assert!(before == after, "{name}: the image was written to");
    assert_same(name, &ours, &spec.oracle_tree(&image));
}

/// One test an image, so that a failure has its name.
macro_rules! images {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                judge(stringify!($name));
            }
        )*
    };
}

images! {
    ordered ordered_lost ordered_copied ordered_1k ordered_2k_copied no_csum no_64bit no_csum_no_64bit
    csum_seed ext3 ext3_1k_copied checksum_v1 async_commit async_commit_v1 data_journal data_journal_escapes
    data_journal_escapes_1k data_writeback revokes revokes_no_csum revokes_data_journal wrapped wrapped_4k
    orphan_list orphan_list_copied orphan_file orphan_file_1k inline_data bigalloc fast_commit
    fast_commit_copied fast_commit_1k fast_commit_no_csum fast_commit_inline
    fast_commit_churn
}

#[test]
fn every_image_has_its_test() {
    let missing: Vec<_> = SPECS
        .iter()
        .map(|spec| spec.name)
        .filter(|name| !TESTED.contains(name))
        .collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
}
