//! Describing a volume through the library: its superblock, its groups, its inodes and its blocks.
//! `debugfs` and `dumpe2fs` see the same.

use extern4::Volume;
use extern4::info::{BlockOwner, BlockOwners, Checksums, Info, Use, groups, inode, is_block_used};
use extern4::info::{JournalPlace, read_block};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;

const SPEC: ImageSpec = ImageSpec::new(
    "described",
    16 << 20,
    &["-t", "ext4", "-b", "1024", "-L", "a label"],
);

#[test]
fn a_volume_is_described_as_by_dumpe2fs() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let path = image.path.to_str().expect("a path");
    let dump = tools::run("dumpe2fs", ["-h", path]);
    let dump = String::from_utf8(dump).expect("text");
    let line = |name: &str| {
        let line = dump.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {dump}"))
            .trim()
            .to_owned()
    };
    let volume = Volume::open(&image.path).expect("a volume");
    let info = Info::of(&volume).expect("its description");
    let space = &info.space;
    assert_eq!(info.type_name, "ext4");
    assert_eq!(info.label, b"a label");
    assert_eq!(info.state.to_string(), line("Filesystem state:"));
    assert_eq!(
        info.features.to_string(),
        features(&line("Filesystem features:"))
    );
    assert_eq!(space.blocks.to_string(), line("Block count:"));
    assert_eq!(space.free_blocks.to_string(), line("Free blocks:"));
    assert_eq!(space.free_inodes.to_string(), line("Free inodes:"));
    assert_eq!(info.layout.directory_hash, line("Default directory hash:"));
    assert_eq!(info.layout.checksums, Checksums::Metadata);
    assert_eq!(info.journal.location, Some(JournalPlace::Inode(8)));
    assert!(info.journal.replayed.is_none() && info.journal.contents.is_some());
    let groups: Vec<_> = groups(&volume).collect();
    assert_eq!(groups.len(), 2);
    let free = groups.iter().map(|group| {
        group
            .descriptor
            .as_ref()
            .expect("a descriptor")
            .free_clusters
    });
    assert_eq!(u64::from(free.sum::<u32>()), space.free_blocks);
}

/// Returns the names in the order of this library, which is that of the bits.
fn features(names: &str) -> String {
    let mut bits = [0; 3];
    for name in names.split_whitespace() {
        let feature = extern4::tune::Feature::from_name(name).expect("a feature");
        bits[feature.set() as usize] |= feature.mask();
    }
    let [compat, incompat, ro_compat] = bits;
    extern4::tune::Features::from_bits(compat, incompat, ro_compat).to_string()
}

#[test]
fn blocks_lead_to_their_inode_and_back() {
    let dir = tools::temporary("described");
    let path = dir.path().join("disk.img");
    let volume = Volume::create_new(&path, 16 << 20).expect("a volume");
    volume
        .superuser()
        .write("/file", [7; 3000])
        .expect("a file");
    volume.close().expect("closed");

    let volume = Volume::open(&path).expect("a volume");
    let ino = volume.superuser().metadata("/file").expect("a file").ino();
    let stored = inode(&volume, u32::try_from(ino).expect("a number")).expect("an inode");
    assert_eq!(stored.inode.size(), 3000);
    assert!(stored.map_fault.is_none() && stored.position.is_some());
    let first = stored.map.first().expect("a block").physical;
    assert_eq!(
        read_block(&volume, first).expect("its contents")[..1000],
        [7; 1000]
    );
    assert_eq!(is_block_used(&volume, first), Some(true));

    let nowhere = volume.ext4().superblock().blocks_count() - 1;
    let owners = BlockOwners::of(&volume, &[first, 1, nowhere]);
    assert!(owners.errors().is_empty());
    assert_eq!(*owners.owner(1), BlockOwner::Descriptors);
    assert_eq!(*owners.owner(nowhere), BlockOwner::None);
    let BlockOwner::Inode {
        ino: owner,
        used,
        path,
    } = owners.owner(first)
    else {
        panic!("{:?}", owners.owner(first));
    };
    assert_eq!(u64::from(*owner), ino);
    assert_eq!(
        *used,
        Use::Data {
            logical: 0,
            unwritten: false
        }
    );
    assert_eq!(path.as_deref(), Some("/file".as_ref()));
    assert!(read_block(&volume, u64::MAX).is_err() && inode(&volume, u32::MAX).is_err());
}
