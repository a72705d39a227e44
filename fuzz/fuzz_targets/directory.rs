//! A directory block: as a chain of entries, as the root and as a node of a hash tree.
#![no_main]

use extern4_disk::dirent::{self, Entries, Layout};
use extern4_disk::htree::{Expect, HtreeNode, Root};
use extern4_disk::{Place, Structure};
use libfuzzer_sys::fuzz_target;

const PLACE: Place = Place::new(Structure::DirectoryBlock);

fuzz_target!(|data: &[u8]| {
    let Some((&flags, bytes)) = data.split_first() else {
        return;
    };
    let block_size = 1024_u32 << (flags & 3);
    let mut block = vec![0; block_size as usize];
    let len = bytes.len().min(block.len());
    block[..len].copy_from_slice(&bytes[..len]);
    let layout = Layout {
        block_size,
        inodes: 4096,
        filetype: flags & 4 != 0,
        checksum: flags & 8 != 0,
        encrypted: flags & 16 != 0,
        casefold: flags & 32 != 0,
    };

    let mut bytes_used = 0;
    for entry in Entries::new(&block, &layout, PLACE) {
        let Ok(entry) = entry else { break };
        bytes_used += layout.rec_len(entry.name);
        assert!(entry.ino != 0 && entry.ino <= layout.inodes);
        assert!(!entry.name.is_empty() && entry.name.len() <= 255);
    }
    assert!(bytes_used <= block.len(), "entries overlap");
    let _ = dirent::find(&block, b"name", &layout, PLACE);
    let _ = dirent::dot_and_dotdot(&block, &layout, PLACE);

    let expect = Expect {
        blocks: 64,
        checksum: layout.checksum,
        large_dir: flags & 64 != 0,
    };
    if let Ok(root) = Root::decode(&block, &expect, PLACE) {
        check(&root.node, &expect);
    }
    if let Ok(node) = HtreeNode::decode(&block, &expect, PLACE) {
        check(&node, &expect);
    }
});

fn check(node: &HtreeNode<'_>, expect: &Expect) {
    for hash in [0, 2, 0x7fff_fffe, 0xffff_fffe] {
        let index = node.find(hash);
        assert!(node.block(index) < expect.blocks);
        node.continues(index, hash);
    }
}
