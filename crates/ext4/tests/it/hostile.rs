//! Bytes that break the format: each is refused with the exact rule it breaks, and nothing panics
//! or hangs.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use extern4_block::MemoryDevice;
use extern4_disk::{CorruptKind, Structure};
use extern4_ext4::{Error, Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools::{self, Need, can_run};
use extern4_vfs::{
    AclKind, Errno, FallocateMode, FileOps, FileSystem, FileType, InodeOps, Session,
};

use crate::model::{Op, run, session};
use crate::{memory, walk};

const BLOCK: usize = 4096;
const MKE2FS: [Need; 1] = [Need::Tool("mke2fs")];

/// Fills the images: `file` has two extents, `map` is fragmented into more than a root holds, `dir`
/// has names, `link` a target in a block, `attrs` attributes in a block, `crowd` a hash tree.
fn fill(root: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(root.join("file"))?;
    file.write_all_at(&[1; BLOCK], 0)?;
    file.write_all_at(&[2; BLOCK], 10 * BLOCK as u64)?;
    let map = std::fs::File::create(root.join("map"))?;
    for at in 0..40 {
        map.write_all_at(&[3; BLOCK], at * 2 * BLOCK as u64)?;
    }
    std::fs::create_dir(root.join("dir"))?;
    std::fs::write(root.join("dir/name"), b"")?;
    std::os::unix::fs::symlink("target/".repeat(20), root.join("link"))?;
    std::fs::create_dir(root.join("crowd"))?;
    for at in 0..300 {
        std::fs::write(root.join(format!("crowd/{at:0>60}")), b"")?;
    }
    std::fs::write(root.join("attrs"), b"")
}

fn build(features: &'static [&'static str]) -> Vec<u8> {
    let image = ImageSpec::new("hostile", 4 << 20, features)
        .from_directory(&[fill])
        .build();
    tools::run(
        "e2fsck",
        ["-fyD".as_ref(), image.path.as_os_str()].map(std::ffi::OsStr::to_owned),
    );
    image.debugfs(&format!("ea_set /attrs user.large {}\n", "v".repeat(500)));
    std::fs::read(&image.path).expect("the image is read")
}

/// An image without checksums, so that the broken rule itself is what is found.
fn plain() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE
        .get_or_init(|| {
            build(&[
                "-t",
                "ext4",
                "-b",
                "4096",
                "-O",
                "^metadata_csum,^uninit_bg,^has_journal",
            ])
        })
        .clone()
}

/// An image with all checksums.
fn summed() -> Vec<u8> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE
        .get_or_init(|| {
            build(&[
                "-t",
                "ext4",
                "-b",
                "4096",
                "-O",
                "metadata_csum,^has_journal",
            ])
        })
        .clone()
}

fn open(bytes: Vec<u8>) -> Result<Ext4, Error> {
    Ext4::open(
        Arc::new(MemoryDevice::read_only(bytes)),
        &OpenOptions::default(),
    )
}

/// Looks at everything: names, inodes, bytes, targets, attributes and ACLs; of a large directory
/// only at the first few files. Returns what went wrong.
fn look_at_all(fs: &Ext4) -> Vec<extern4_vfs::Error> {
    let mut errors = Vec::new();
    let mut todo = vec![fs.root_ino()];
    let mut seen = std::collections::HashSet::new();
    while let Some(ino) = todo.pop() {
        if !seen.insert(ino) {
            continue;
        }
        let inode = match walk::inode(fs, ino) {
            Ok(inode) => inode,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        errors.extend(fs.list_xattr(&inode, &mut |_| {}).err());
        errors.extend(fs.get_xattr(&inode, b"user.large").err());
        errors.extend(fs.get_acl(&inode, AclKind::Access).err());
        match inode.kind() {
            FileType::Directory => match walk::names(fs, &inode, usize::MAX) {
                Ok(names) => {
                    for (name, _) in names
                        .iter()
                        .filter(|(name, _)| name != b"." && name != b"..")
                        .take(10)
                    {
                        match fs.lookup(&inode, name) {
                            Ok(found) => todo.extend(found),
                            Err(error) => errors.push(error),
                        }
                    }
                }
                Err(error) => errors.push(error),
            },
            FileType::Symlink => errors.extend(fs.read_link(&inode).err()),
            FileType::Regular => {
                let mut buf = vec![0; 1 << 20];
                errors.extend(fs.read_at(&inode, &mut buf, 0).err());
                errors.extend(fs.span_at(&inode, 0).err());
            }
            _ => {}
        }
    }
    errors
}

/// Where things are in an image.
struct Places {
    fs: Ext4,
}

impl Places {
    fn of(bytes: &[u8]) -> Self {
        Self {
            fs: open(bytes.to_vec()).expect("the image is good"),
        }
    }

    fn ino(&self, path: &str) -> u32 {
        walk::resolve(&self.fs, path)
            .expect("a file")
            .ino()
            .try_into()
            .expect("an inode number")
    }

    /// The byte where the inode's record starts.
    fn record(&self, path: &str) -> usize {
        let at = self.fs.inode_position(self.ino(path)).expect("a position");
        usize::try_from(at.block).expect("a block") * BLOCK + at.offset as usize
    }

    /// The byte where `i_block` starts.
    fn map(&self, path: &str) -> usize {
        self.record(path) + 0x28
    }

    /// The byte where the block that the root's first entry names starts.
    fn first_block(&self, path: &str) -> usize {
        let inode = self.fs.raw_inode(self.ino(path)).expect("an inode");
        let depth = inode.map()[6];
        let at = if depth == 0 { 20 } else { 16 };
        u32::from_le_bytes(inode.map()[at..at + 4].try_into().expect("4 bytes")) as usize * BLOCK
    }

    fn xattr_block(&self, path: &str) -> usize {
        let inode = self.fs.raw_inode(self.ino(path)).expect("an inode");
        usize::try_from(inode.xattr_block().expect("an attribute block")).expect("a block") * BLOCK
    }
}

/// Finds the byte to change.
type At = fn(&Places) -> usize;

/// One way to break an image: the bytes to write, where, and the rule that breaks.
type Case = (&'static str, At, Vec<u8>, Structure, CorruptKind);

fn field(field: &'static str, value: u64) -> CorruptKind {
    CorruptKind::Field { field, value }
}

fn out_of_range(field: &'static str, block: u64) -> CorruptKind {
    CorruptKind::BlockOutOfRange { field, block }
}

#[test]
fn each_broken_rule_is_named() {
    if !can_run(&MKE2FS) {
        return;
    }
    let le = |number: u32| number.to_le_bytes().to_vec();
    let mismatch = |what| CorruptKind::Mismatch { what };
    let cases: Vec<Case> = vec![
        (
            "extent magic",
            |p| p.map("/file"),
            vec![0, 0],
            Structure::ExtentNode,
            CorruptKind::Magic {
                found: 0,
                expected: 0xf30a,
            },
        ),
        (
            "extent depth",
            |p| p.map("/file") + 6,
            vec![6, 0],
            Structure::ExtentNode,
            field("eh_depth", 6),
        ),
        (
            "extent count",
            |p| p.map("/file") + 2,
            vec![5, 0],
            Structure::ExtentNode,
            field("eh_entries", 5),
        ),
        (
            "extent length",
            |p| p.map("/file") + 16,
            vec![0, 0],
            Structure::ExtentNode,
            field("ee_len", 0),
        ),
        (
            "extent outside",
            |p| p.map("/file") + 20,
            le(0x7fff_ffff),
            Structure::ExtentNode,
            out_of_range("ee_start", 0x7fff_ffff),
        ),
        (
            "extent in the descriptors",
            |p| p.map("/file") + 20,
            le(1),
            Structure::ExtentNode,
            out_of_range("ee_start", 1),
        ),
        (
            "extents overlap",
            |p| p.map("/file") + 24,
            le(0),
            Structure::ExtentNode,
            CorruptKind::Order { what: "extents" },
        ),
        // The child has the same depth as its parent. If that were allowed, a node could be its own
        // child.
        (
            "extent loop",
            |p| p.first_block("/map") + 6,
            vec![1, 0],
            Structure::ExtentNode,
            field("eh_depth", 1),
        ),
        (
            "directory hole",
            |p| p.map("/dir") + 2,
            vec![0, 0],
            Structure::DirectoryBlock,
            mismatch("a directory has a hole"),
        ),
        (
            "record length",
            |p| p.first_block("/dir") + 4,
            vec![0, 0],
            Structure::DirectoryBlock,
            field("rec_len", 0),
        ),
        (
            "entry's inode",
            |p| p.first_block("/dir") + 24,
            le(0xffff_ffff),
            Structure::DirectoryBlock,
            CorruptKind::InodeOutOfRange {
                field: "inode",
                ino: 0xffff_ffff,
            },
        ),
        (
            "reserved inode",
            |p| p.first_block("/dir") + 24,
            le(8),
            Structure::DirectoryBlock,
            CorruptKind::InodeOutOfRange {
                field: "inode",
                ino: 8,
            },
        ),
        (
            "root below itself",
            |p| p.first_block("/dir") + 24,
            le(2),
            Structure::DirectoryBlock,
            CorruptKind::Loop {
                what: "a directory entry",
            },
        ),
        (
            "slash in a name",
            |p| p.first_block("/dir") + 32,
            b"/".to_vec(),
            Structure::DirectoryBlock,
            mismatch("a name holds a slash or a NUL"),
        ),
        (
            "length of a target",
            |p| p.record("/link") + 4,
            le(5000),
            Structure::Inode,
            field("i_size", 5000),
        ),
        (
            "NUL in a target",
            |p| p.first_block("/link") + 3,
            vec![0],
            Structure::Symlink,
            mismatch("a target holds a NUL"),
        ),
        (
            "attribute block outside",
            |p| p.record("/attrs") + 0x68,
            le(0x7fff_ffff),
            Structure::Inode,
            out_of_range("i_file_acl", 0x7fff_ffff),
        ),
        (
            "attribute magic",
            |p| p.xattr_block("/attrs"),
            le(1),
            Structure::Xattr,
            CorruptKind::Magic {
                found: 1,
                expected: 0xea02_0000,
            },
        ),
        (
            "attribute sharers",
            |p| p.xattr_block("/attrs") + 4,
            le(0),
            Structure::Xattr,
            field("h_refcount", 0),
        ),
        (
            "type of a file",
            |p| p.record("/file"),
            vec![0xff, 0x31],
            Structure::Inode,
            field("i_mode", 0x31ff),
        ),
        (
            "size of a record",
            |p| p.record("/file") + 0x80,
            vec![0xff, 0],
            Structure::Inode,
            field("i_extra_isize", 0xff),
        ),
        (
            "size of a file",
            |p| p.record("/file") + 0x6c,
            le(0x8000_0000),
            Structure::Inode,
            field("i_size", 0x8000_0000_0000_a000 + 0x1000),
        ),
    ];
    let places = Places::of(&plain());
    for (name, at, bytes, structure, kind) in cases {
        let at = at(&places);
        let mut image = plain();
        image[at..at + bytes.len()].copy_from_slice(&bytes);
        let errors = look_at_all(&open(image).expect("the volume opens"));
        let found: Vec<_> = errors
            .iter()
            .filter_map(corrupt)
            .map(|corrupt| (corrupt.place.structure, corrupt.kind))
            .collect();
        assert!(found.contains(&(structure, kind)), "{name}: {errors:?}");
    }
}

fn corrupt(error: &extern4_vfs::Error) -> Option<extern4_disk::Corrupt> {
    match error.cause()?.downcast_ref::<Error>()? {
        Error::Corrupt(corrupt) => Some(*corrupt),
        _ => None,
    }
}

#[test]
fn each_checksum_is_verified() {
    if !can_run(&MKE2FS) {
        return;
    }
    let cases: [(At, Structure); 4] = [
        (|p| p.record("/file") + 8, Structure::Inode),
        (|p| p.first_block("/map") + 100, Structure::ExtentNode),
        (|p| p.first_block("/dir") + 100, Structure::DirectoryBlock),
        (|p| p.xattr_block("/attrs") + 1000, Structure::Xattr),
    ];
    let places = Places::of(&summed());
    for (at, structure) in cases {
        let mut image = summed();
        image[at(&places)] ^= 0x10;
        let errors = look_at_all(&open(image).expect("the volume opens"));
        let found = errors.iter().filter_map(corrupt).any(|corrupt| {
            corrupt.place.structure == structure
                && matches!(corrupt.kind, CorruptKind::Checksum { .. })
        });
        assert!(found, "{structure}: {errors:?}");
    }
    // A descriptor is read as it stands, as by Linux, and that is a warning.
    let mut image = summed();
    image[BLOCK + 12] ^= 0x10;
    let fs = open(image).expect("the volume opens");
    assert!(
        look_at_all(&fs)
            .iter()
            .all(|error| corrupt(error).is_none())
    );
    let warnings = fs.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("group descriptor, group 0"),
        "{warnings:?}"
    );
    // A hash tree whose checksum is wrong is done without.
    let mut image = summed();
    image[places.first_block("/crowd") + 41] ^= 0x10;
    assert!(
        look_at_all(&open(image).expect("the volume opens"))
            .iter()
            .all(|error| corrupt(error).is_none())
    );

    let mut image = summed();
    image[1024 + 0x78] ^= 1;
    let error = open(image).map(drop).unwrap_err();
    assert!(
        matches!(error.corrupt_kind(), Some(CorruptKind::Checksum { .. })),
        "{error}"
    );
}

#[test]
fn a_truncated_image_is_only_read_and_a_warning_names_the_missing_part() {
    if !can_run(&MKE2FS) {
        return;
    }
    let whole = plain();
    for len in [2048, 4096, 100_000, whole.len() - 1] {
        let device = Arc::new(MemoryDevice::read_only(whole[..len].to_vec()));
        let error = Ext4::open_for_writing(device, &OpenOptions::default())
            .map(drop)
            .unwrap_err();
        let kind = CorruptKind::CutOff {
            need: whole.len() as u64,
            have: len as u64,
        };
        assert_eq!(error.corrupt_kind(), Some(kind), "{len} bytes: {error}");
        let fs = open(whole[..len].to_vec()).expect("its superblock is there");
        assert!(
            fs.warnings()[0].contains("the volume is cut off"),
            "{len} bytes: {:?}",
            fs.warnings()
        );
        let errors = look_at_all(&fs);
        assert!(
            errors
                .iter()
                .all(|error| [Errno::EIO, Errno::ENODATA].contains(&error.errno())),
            "{errors:?}"
        );
        assert!(
            len > 100_000 || errors.iter().any(|error| error.errno() == Errno::EIO),
            "{len} bytes"
        );
    }
}

#[test]
fn no_changed_byte_makes_a_look_panic_or_hang() {
    if !can_run(&MKE2FS) {
        return;
    }
    let good = plain();
    let places = Places::of(&good);
    // Every byte of what is interesting, each set to values that numbers go wrong at.
    let regions = [
        1024..1024 + 400,
        BLOCK..BLOCK + 64,
        places.record("/map")..places.record("/map") + 160,
        places.first_block("/map")..places.first_block("/map") + 60,
        places.first_block("/dir")..places.first_block("/dir") + 60,
        places.first_block("/crowd")..places.first_block("/crowd") + 80,
        places.xattr_block("/attrs")..places.xattr_block("/attrs") + 80,
        places.record("/link")..places.record("/link") + 160,
    ];
    let mut image = good.clone();
    for at in regions.into_iter().flatten() {
        for value in [if at % 2 == 0 { 0xff } else { 0x00 }, good[at] ^ 0x01] {
            image[at] = value;
            if let Ok(fs) = open(image.clone()) {
                look_at_all(&fs);
            }
        }
        image[at] = good[at];
    }
}

/// A volume of small groups, and what only some of them have: with `flex_bg` all in the
/// first, else each in its group.
struct Grouped {
    bytes: Vec<u8>,
    own: Vec<(Structure, u64)>,
    /// The offset of the field of a file's extent that holds its first block.
    extent: usize,
}

fn grouped(features: &'static [&'static str]) -> Grouped {
    let spec = ImageSpec::new("grouped", 16 << 20, features)
        .from_directory(&[|root| std::fs::write(root.join("file"), [7; 4096])]);
    let bytes = std::fs::read(&spec.build().path).expect("the image is read");
    let fs = open(bytes.clone()).expect("the image is good");
    let geometry = fs.superblock().geometry();
    let backup = geometry.superblock_in(1).expect("a backup");
    let mut own = vec![
        (Structure::Superblock, backup),
        (Structure::GroupDescriptor, backup + 1),
    ];
    for group in [1, 4, geometry.group_count() - 1] {
        let descriptor = fs.group(group).expect("a descriptor");
        own.push((Structure::BlockBitmap, descriptor.block_bitmap()));
        own.push((Structure::InodeBitmap, descriptor.inode_bitmap()));
        own.push((Structure::Inode, descriptor.inode_table() + 1));
    }
    let ino = walk::resolve(&fs, "/file").expect("a file").ino();
    let at = fs
        .inode_position(ino.try_into().expect("an inode number"))
        .expect("a position");
    // Behind the header of the map are the first block of the file and how many there are.
    let extent = at.block as usize * 1024 + at.offset as usize + 0x28 + 12 + 8;
    Grouped { bytes, own, extent }
}

const WITHOUT: &str = "^metadata_csum,^uninit_bg,^has_journal";
const WITHOUT_FLEX: &str = "^metadata_csum,^uninit_bg,^has_journal,^flex_bg";
const GROUPED: [&[&str]; 2] = [
    &[
        "-t", "ext4", "-b", "1024", "-g", "1024", "-N", "512", "-O", WITHOUT,
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-N",
        "512",
        "-O",
        WITHOUT_FLEX,
    ],
];

/// Changes a volume, on which block `own` stays as it was. Says what went wrong, and which block
/// has been noted as damaged.
fn attempt(
    what: &str,
    bytes: &[u8],
    own: u64,
    change: impl FnOnce(&Session) -> extern4_vfs::Result<()>,
) -> (Option<extern4_vfs::Error>, Option<u64>) {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let fs = memory::open(what, &device);
    let error = change(&session(Arc::clone(&fs) as _)).err();
    let _ = fs.sync();
    let _ = fs.close();
    drop(fs);
    let after = memory::contents(&device);
    let own = own as usize * 1024..(own as usize + 1) * 1024;
    assert!(after[own.clone()] == bytes[own], "{what}: it was changed");
    let noted = open(after)
        .expect("the volume opens")
        .superblock()
        .last_error()
        .map(|error| error.block);
    (error, noted)
}

#[test]
fn a_file_that_claims_blocks_of_the_volumes_own_does_not_get_them() {
    if !can_run(&MKE2FS) {
        return;
    }
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    let file = || "/file".to_owned();
    let claims = [
        // The file is found to be damaged before anything is changed.
        (Op::Write(file(), 100, 3), true),
        (Op::Write(file(), 0, 1024), true),
        (Op::Truncate(file(), 100), true),
        (
            Op::Fallocate(file(), FallocateMode::ZERO_RANGE, 100, 20),
            true,
        ),
        (Op::Truncate(file(), 0), true),
        (Op::Fallocate(file(), punch, 0, 1024), true),
        // It goes when no session has it open any more: no caller gets the error.
        (Op::Unlink(file()), false),
    ];
    for features in GROUPED {
        let Grouped { bytes, own, extent } = grouped(features);
        for (structure, block) in own {
            let mut bytes = bytes.clone();
            bytes[extent..extent + 4].copy_from_slice(&(block as u32).to_le_bytes());
            for (op, is_told) in &claims {
                let what = format!("{features:?}, {structure} {block}, {op:?}");
                let (error, noted) = attempt(&what, &bytes, block, |session| run(session, op));
                let place = error
                    .as_ref()
                    .and_then(corrupt)
                    .map(|corrupt| corrupt.place);
                if *is_told {
                    assert_eq!(
                        error.map(|error| error.errno()),
                        Some(Errno::EUCLEAN),
                        "{what}"
                    );
                    let place = place.map(|place| (place.structure, place.block));
                    assert_eq!(place, Some((structure, Some(block))), "{what}");
                } else {
                    assert_eq!(noted, Some(block), "{what}")
                }
            }
        }
    }
}

#[test]
fn blocks_of_the_volumes_own_that_count_as_free_are_not_taken() {
    if !can_run(&MKE2FS) {
        return;
    }
    for features in GROUPED {
        let Grouped { bytes, own, .. } = grouped(features);
        let fs = open(bytes.clone()).expect("the image is good");
        // Bitmaps of blocks change while the volume is filled up to there.
        for (structure, block) in own
            .into_iter()
            .filter(|own| own.0 != Structure::BlockBitmap)
        {
            let geometry = fs.superblock().geometry();
            let group = geometry.group_of_block(block).expect("a group");
            let bit = geometry.cluster_in_group(block).expect("a bit") as usize;
            let bitmap = fs.group(group).expect("a descriptor").block_bitmap() as usize * 1024;
            let mut bytes = bytes.clone();
            bytes[bitmap + bit / 8] &= !(1 << (bit % 8));
            // One more than there are, so that all of them are found.
            let at = geometry.descriptor_position(group).expect("a descriptor");
            bytes[at.block as usize * 1024 + at.offset as usize + 0xc] += 1;
            let what = format!("{features:?}, {structure} {block} is free");
            let fill = |session: &Session| {
                run(session, &Op::Create("/new".to_owned(), 0o644))?;
                (0..1 << 10).try_for_each(|at| {
                    run(session, &Op::Write("/new".to_owned(), at << 14, 1 << 14))
                })
            };
            let (error, noted) = attempt(&what, &bytes, block, fill);
            assert!(
                error.is_some() && noted == Some(block),
                "{what}: {error:?}, {noted:?}"
            );
        }
    }
}
