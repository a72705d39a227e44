//! Measures the views on the read path: `cargo run --release -p extern4-disk --example view_speed`.
//!
//! Prints nanoseconds for a name of a full directory block, for a hash, and for checking and
//! searching a full node of extents.

use std::hint::black_box;
use std::time::Instant;

use extern4_disk::blocks::Blocks;
use extern4_disk::dirent::{DirEntry, Entries, FileType, Layout};
use extern4_disk::extent::{Entries as Extents, Expect, Extent, ExtentNode, OwnedExtentNode};
use extern4_disk::htree::{HashVersion, Hasher};
use extern4_disk::{Place, Structure};

const BLOCK: usize = 4096;

/// Times `work` in five hundred short windows, most of them free of interrupts by other processes.
/// Prints the best time per unit of its result.
fn measure(what: &str, mut work: impl FnMut() -> usize) {
    let mut window = || {
        let start = Instant::now();
        let mut units = 0;
        while start.elapsed().as_micros() < 500 {
            units += work();
        }
        start.elapsed().as_secs_f64() * 1e9 / units as f64
    };
    let best = (0..500).map(|_| window()).fold(f64::INFINITY, f64::min);
    println!("{what:40} {best:8.2} ns");
}

fn main() {
    directory();
    extents();
}

fn directory() {
    let layout = Layout {
        block_size: 4096,
        inodes: 1 << 20,
        filetype: true,
        checksum: false,
        encrypted: false,
        casefold: false,
    };
    let names: Vec<String> = (0..BLOCK / 28)
        .map(|at| format!("a-file-name-{at:04}.h"))
        .collect();
    let mut block = vec![0; BLOCK];
    for (at, name) in names.iter().enumerate() {
        let end = if at + 1 == names.len() {
            BLOCK
        } else {
            (at + 1) * 28
        };
        let entry = DirEntry {
            ino: 12,
            kind: FileType::Regular,
            name: name.as_bytes(),
            offset: 0,
            hash: None,
        };
        entry.encode(&mut block[at * 28..end], &layout);
    }
    let place = Place::new(Structure::DirectoryBlock).ino(2);
    measure("directory entry, checked", || {
        Entries::new(black_box(&block), &layout, place)
            .filter(|entry| black_box(entry).is_ok())
            .count()
    });
    for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
        let hasher = Hasher::new(version, [1, 2, 3, 4]).expect("no key needed");
        measure(&format!("hash of an 18-byte name, {version:?}"), || {
            for name in &names {
                black_box(hasher.hash(black_box(name.as_bytes())));
            }
            names.len()
        });
    }
}

fn extents() {
    let max = (BLOCK / 12 - 1) as u16;
    let extent = |at: u16| Extent {
        logical: u32::from(at) * 10,
        len_blocks: 8,
        physical: 1000 + u64::from(at),
        unwritten: false,
    };
    let entries = Extents::Leaf((0..max).map(extent).collect());
    let mut block = vec![0; BLOCK];
    OwnedExtentNode {
        entries,
        depth: 0,
        max,
        generation: 0,
    }
    .encode(&mut block);
    let root = Expect::root(Blocks {
        first: 1,
        end: 1 << 40,
    });
    let place = Place::new(Structure::ExtentNode).ino(12);
    measure("node of 340 extents, checked", || {
        black_box(ExtentNode::decode(black_box(&block), root, place)).map_or(0, |_| 1)
    });
    let node = ExtentNode::decode(&block, root, place).expect("a valid node");
    measure("search in a node of 340 extents", || {
        for logical in (0..3400).step_by(7) {
            black_box(node.find(black_box(logical)));
        }
        3400 / 7
    });
}
