//! One damaged file or directory, which is to be removed, replaced or cut. The operation is refused
//! before it has changed anything, or it is done. Either way all else goes on: the volume is
//! written, closed and opened again, and `e2fsck` mends what is wrong.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use extern4_block::{BlockDevice as _, CacheBudget, MemoryDevice};
use extern4_ext4::{Ext4, Listener, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use extern4_vfs::*;

use crate::model::{open, session};
use crate::{memory, walk};

const BLOCK: usize = 1024;
const FAR: u32 = 0xffff_fff0;

/// Fills the volumes: `f` has enough extents for a node below its root, and blocks in a double
/// indirect block; `d` is an empty directory; `g` and `e` can replace them.
fn fill(root: &Path) -> std::io::Result<()> {
    let file = std::fs::File::create(root.join("f"))?;
    for at in [0, 2, 4, 6, 8, 10, 13, 15, 17, 300, 302] {
        file.write_all_at(&[7; BLOCK], at * BLOCK as u64)?;
    }
    std::fs::create_dir(root.join("d"))?;
    std::fs::create_dir(root.join("e"))?;
    std::fs::write(root.join("g"), "g")
}

/// The form of the maps and attributes on a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    /// With checksums, so that only those are wrong.
    Summed,
    Indirect,
    /// A value is in an inode.
    EaInode,
}

fn build(kind: Kind) -> Option<Vec<u8>> {
    let mke2fs: &[&str] = match kind {
        Kind::Plain => &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        Kind::Summed => &["-t", "ext4", "-b", "1024", "-O", "metadata_csum"],
        Kind::Indirect => &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^extents,^64bit",
        ],
        Kind::EaInode => &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,ea_inode"],
    };
    let spec = ImageSpec::new("damaged file", 16 << 20, mke2fs).from_directory(&[fill]);
    if !spec.can_build() {
        return None;
    }
    let image = spec.build();
    let long = "v".repeat(300);
    let large = "w".repeat(2000);
    for name in ["f", "d"] {
        let large = if kind == Kind::EaInode {
            format!("ea_set {name} user.large {large}\n")
        } else {
            String::new()
        };
        image.debugfs(&format!(
            "ea_set {name} user.a aaaa\nea_set {name} user.b bbbb\nea_set {name} user.long {long}\n{large}"
        ));
    }
    // debugfs does not count the blocks of values in inodes.
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("it is sound");
    Some(std::fs::read(&image.path).expect("the image is read"))
}

/// The bytes of a volume and the place of an inode's record in them.
struct Volume {
    bytes: Vec<u8>,
    record: usize,
}

impl Volume {
    fn new(bytes: &[u8], path: &str) -> Self {
        let fs = Ext4::open(
            Arc::new(MemoryDevice::read_only(bytes.to_vec())),
            &OpenOptions::default(),
        );
        let fs = fs.expect("it is sound");
        let ino = walk::resolve(&fs, path).expect("it is there").ino() as u32;
        Self {
            record: record_of(&fs, ino),
            bytes: bytes.to_vec(),
        }
    }

    fn number(&self, at: usize) -> usize {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes")) as usize
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        assert_ne!(
            self.bytes[at..at + bytes.len()],
            *bytes,
            "it is another value"
        );
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The root of the map.
    fn map(&self) -> usize {
        self.record + 40
    }

    /// The first node below the root, or the indirect block.
    fn leaf(&self) -> usize {
        BLOCK * self.number(self.map() + 16)
    }

    fn indirect(&self, root: usize) -> usize {
        BLOCK * self.number(self.map() + 4 * root)
    }

    /// The attributes in the inode: magic, and the first entry behind it.
    fn own(&self) -> usize {
        let fixed = 128
            + usize::from(u16::from_le_bytes([
                self.bytes[self.record + 128],
                self.bytes[self.record + 129],
            ]));
        assert_eq!(self.number(self.record + fixed), 0xea02_0000);
        self.record + fixed
    }

    /// The attribute block: header, and the first entry behind it.
    fn block(&self) -> usize {
        let at = BLOCK * self.number(self.record + 104);
        assert_eq!(self.number(at), 0xea02_0000);
        at
    }

    /// The record of the inode that holds the large value.
    fn value(&self) -> usize {
        let fs = Ext4::open(
            Arc::new(MemoryDevice::read_only(self.bytes.clone())),
            &OpenOptions::default(),
        );
        let entries = [self.own() + 4, self.block() + 32];
        let ino = entries.into_iter().find_map(|mut at| {
            while self.number(at) != 0 {
                let ino = self.number(at + 4);
                if ino != 0 {
                    return Some(ino);
                }
                at += (16 + usize::from(self.bytes[at])).next_multiple_of(4);
            }
            None
        });
        record_of(
            &fs.expect("it opens"),
            ino.expect("a value in an inode") as u32,
        )
    }
}

fn record_of(fs: &Ext4, ino: u32) -> usize {
    let sb = fs.superblock();
    let slot = sb
        .geometry()
        .inode_slot(ino)
        .expect("an inode of the volume");
    let table = fs.group(slot.group).expect("a descriptor").inode_table() as usize;
    let in_group = (ino as usize - 1) % sb.geometry().inodes_per_group() as usize;
    table * BLOCK + in_group * 256
}

/// The part of the inode that is damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    /// Attributes: the inode can be cut, and not be removed.
    Attributes,
    /// The map of a file, which can neither be cut nor be removed.
    Map,
    /// Nothing that keeps an inode from being removed.
    Nothing,
}

type Damage = (&'static str, Kind, To, fn(&mut Volume));

const DAMAGE: &[Damage] = &[
    ("in-inode magic", Kind::Plain, To::Nothing, |v| {
        v.put(v.own(), &[1])
    }),
    ("in-inode name length", Kind::Plain, To::Attributes, |v| {
        v.put(v.own() + 4, &[0xff])
    }),
    ("in-inode value offset", Kind::Plain, To::Attributes, |v| {
        v.put(v.own() + 6, &[0xf0, 0xff])
    }),
    ("in-inode value size", Kind::Plain, To::Attributes, |v| {
        v.put(v.own() + 12, &[0xff, 0xff])
    }),
    (
        "in-inode values overlap",
        Kind::Plain,
        To::Attributes,
        |v| {
            let first: [u8; 2] = v.bytes[v.own() + 6..v.own() + 8]
                .try_into()
                .expect("an offset");
            // The second entry is behind a name of one byte.
            v.put(v.own() + 4 + 20 + 2, &first);
        },
    ),
    (
        "attribute block's magic",
        Kind::Plain,
        To::Attributes,
        |v| v.put(v.block(), &[1]),
    ),
    (
        "attribute block's references",
        Kind::Plain,
        To::Attributes,
        |v| v.put(v.block() + 4, &[0]),
    ),
    (
        "attribute block's count",
        Kind::Plain,
        To::Attributes,
        |v| v.put(v.block() + 8, &[9]),
    ),
    ("attribute block's hash", Kind::Plain, To::Nothing, |v| {
        v.put(v.block() + 12, &[1, 2, 3, 4])
    }),
    (
        "attribute block's entry",
        Kind::Plain,
        To::Attributes,
        |v| v.put(v.block() + 32, &[0xff]),
    ),
    (
        "attribute block beyond the volume",
        Kind::Plain,
        To::Attributes,
        |v| {
            v.put(v.record + 104, &FAR.to_le_bytes());
        },
    ),
    (
        "attribute block's checksum",
        Kind::Summed,
        To::Attributes,
        |v| v.put(v.block() + 16, &[1, 2, 3]),
    ),
    ("extent root's magic", Kind::Plain, To::Map, |v| {
        v.put(v.map(), &[1])
    }),
    ("extent root's entries", Kind::Plain, To::Map, |v| {
        v.put(v.map() + 2, &[200])
    }),
    ("extent root's depth", Kind::Plain, To::Map, |v| {
        v.put(v.map() + 6, &[99])
    }),
    (
        "extent index beyond the volume",
        Kind::Plain,
        To::Map,
        |v| v.put(v.map() + 16, &FAR.to_le_bytes()),
    ),
    (
        "extent index to the volume's own",
        Kind::Plain,
        To::Map,
        |v| v.put(v.map() + 16, &[40, 0, 0, 0]),
    ),
    ("leaf's magic", Kind::Plain, To::Map, |v| {
        v.put(v.leaf(), &[1])
    }),
    ("leaf's order", Kind::Plain, To::Map, |v| {
        v.put(v.leaf() + 12 + 24, &[0xff])
    }),
    ("leaf's extents overlap", Kind::Plain, To::Map, |v| {
        v.put(v.leaf() + 12 + 4, &[9])
    }),
    (
        "leaf's extent beyond the volume",
        Kind::Plain,
        To::Map,
        |v| v.put(v.leaf() + 12 + 8, &FAR.to_le_bytes()),
    ),
    (
        "leaf's extent in the volume's own",
        Kind::Plain,
        To::Map,
        |v| v.put(v.leaf() + 12 + 8, &[40, 0, 0, 0]),
    ),
    ("leaf's checksum", Kind::Summed, To::Map, |v| {
        v.put(v.leaf() + 1020, &[1, 2, 3, 4])
    }),
    ("direct number", Kind::Indirect, To::Map, |v| {
        v.put(v.map() + 8, &FAR.to_le_bytes())
    }),
    ("indirect number", Kind::Indirect, To::Map, |v| {
        v.put(v.map() + 48, &FAR.to_le_bytes())
    }),
    (
        "number in the indirect block",
        Kind::Indirect,
        To::Map,
        |v| v.put(v.indirect(12) + 4, &FAR.to_le_bytes()),
    ),
    ("double indirect number", Kind::Indirect, To::Map, |v| {
        v.put(v.map() + 52, &FAR.to_le_bytes())
    }),
    (
        "number in the double indirect block",
        Kind::Indirect,
        To::Map,
        |v| {
            v.put(v.indirect(13), &FAR.to_le_bytes());
        },
    ),
    ("triple indirect number", Kind::Indirect, To::Map, |v| {
        v.put(v.map() + 56, &FAR.to_le_bytes())
    }),
    (
        "value's inode never used",
        Kind::EaInode,
        To::Attributes,
        |v| {
            let value = v.value();
            v.bytes[value..value + 256].fill(0);
        },
    ),
    (
        "value's inode without its mark",
        Kind::EaInode,
        To::Attributes,
        |v| v.put(v.value() + 34, &[0x08, 0]),
    ),
    (
        "value's inode without references",
        Kind::EaInode,
        To::Attributes,
        |v| {
            // The reference count is the version and the time of change.
            let value = v.value();
            v.bytes[value + 12..value + 16].fill(0);
            v.bytes[value + 36..value + 40].fill(0);
        },
    ),
    ("value's inode's map", Kind::EaInode, To::Attributes, |v| {
        v.put(v.value() + 40, &[1])
    }),
];

/// Volumes of each kind, made once.
fn volumes() -> Option<Vec<(Kind, Vec<u8>)>> {
    let kinds = [Kind::Plain, Kind::Summed, Kind::Indirect, Kind::EaInode];
    kinds
        .into_iter()
        .map(|kind| Some((kind, build(kind)?)))
        .collect()
}

/// An operation on the damaged inode.
type Operation = fn(&Session) -> Result<()>;

const ON_FILES: &[(&str, Operation)] = &[
    ("unlink", |session| session.unlink("/f")),
    ("rename over", |session| {
        session.rename("/g", "/f", RenameFlags::empty())
    }),
    ("open, unlink, close", |session| {
        let _file = open(session, "/f", OpenFlags::READ, 0)?;
        session.unlink("/f")
    }),
    ("truncate", |session| {
        session.truncate("/f", 0, LookupFlags::FOLLOW)
    }),
    ("truncate to the middle of a block", |session| {
        session.truncate("/f", 100, LookupFlags::FOLLOW)
    }),
    ("open and truncate", |session| {
        open(session, "/f", OpenFlags::WRITE | OpenFlags::TRUNC, 0).map(drop)
    }),
    ("write over", |session| {
        let file = open(session, "/f", OpenFlags::WRITE, 0)?;
        (0..20).try_for_each(|at| file.write_at(&[8; BLOCK], at * BLOCK as u64).map(drop))
    }),
];

const ON_DIRECTORIES: &[(&str, Operation)] = &[
    ("rmdir", |session| session.rmdir("/d")),
    ("rename over a directory", |session| {
        session.rename("/e", "/d", RenameFlags::empty())
    }),
];

/// The inode that a name in the root directory has.
fn named(fs: &Ext4, path: &str) -> Option<u64> {
    let root = walk::inode(fs, fs.root_ino()).expect("the root");
    fs.lookup(&root, path.trim_start_matches('/').as_bytes())
        .expect("the root is sound")
}

/// Makes and removes other files.
fn use_further(what: &str, fs: &Arc<Ext4>, name: &str) {
    let session = session(Arc::clone(fs) as _);
    let write = || {
        session.mkdir(name, 0o755)?;
        let file = open(
            &session,
            &format!("{name}/file"),
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )?;
        file.write_at(&[9; 5000], 0)?;
        session.unlink(format!("{name}/file"))
    };
    write().unwrap_or_else(|e| panic!("{what}: another file: {e}"));
}

/// Has `e2fsck` mend the volume; after that it finds nothing. For some of the damage it needs more
/// than one run, whoever has used the volume.
fn mend(what: &str, device: &MemoryDevice) {
    let folder = tools::temporary("extern4-mend-");
    let image = folder.path().join("volume.img");
    std::fs::write(&image, memory::contents(device)).expect("the image is written");
    for _ in 0..3 {
        let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.as_os_str()]);
    }
    tools::e2fsck(&image).unwrap_or_else(|e| panic!("{what}: {e}"));
}

fn try_each(path: &str, operations: &[(&str, Operation)], of: impl Fn(&Damage) -> bool) {
    let Some(volumes) = volumes() else { return };
    for damage @ (name, kind, to, with) in DAMAGE.iter().filter(|damage| of(damage)) {
        let bytes = &volumes
            .iter()
            .find(|(of, _)| of == kind)
            .expect("a volume of each kind")
            .1;
        let mut volume = Volume::new(bytes, path);
        with(&mut volume);
        for (operation, run) in operations {
            let what = format!("{name}, {operation}");
            let device = Arc::new(MemoryDevice::new(volume.bytes.clone()));
            let fs = memory::open(&what, &device);
            let done = {
                let session = session(Arc::clone(&fs) as _);
                let before = named(&fs, path);
                let done = run(&session);
                if let Err(error) = &done {
                    assert_eq!(error.errno(), Errno::EUCLEAN, "{what}: {error}");
                    assert_eq!(named(&fs, path), before, "{what}: its name is gone");
                }
                done
            };
            let is_removed = !operation.contains("truncate") && !operation.contains("write");
            match (to, is_removed) {
                (To::Nothing, _) => done.unwrap_or_else(|e| panic!("{what}: {e}")),
                // A change of a file asks for its capabilities, which are an attribute.
                (To::Attributes, false) => {}
                (To::Attributes, true) => assert!(done.is_err(), "{what}: it is done"),
                (To::Map, _) => assert!(
                    done.is_err() || *operation == "write over",
                    "{what}: it is done"
                ),
            }
            use_further(&what, &fs, "/other");
            fs.close()
                .unwrap_or_else(|e| panic!("{what}: closing: {e}"));
            drop(fs);
            let again = memory::open(&what, &device);
            use_further(&what, &again, "/again");
            again
                .close()
                .unwrap_or_else(|e| panic!("{what}: closing again: {e}"));
            drop(again);
            mend(&format!("{what}, {damage:?}"), &device);
        }
    }
}

#[test]
fn a_damaged_file_stays_where_it_is() {
    try_each("/f", ON_FILES, |_| true);
}

/// The map of an empty directory is read in any case, so only its attributes matter.
#[test]
fn a_damaged_directory_stays_where_it_is() {
    try_each("/d", ON_DIRECTORIES, |(.., to, _)| *to != To::Map);
}

/// The damage arises after the name has gone, so no call can return it: a listener gets it at the
/// last close, or the caller that closes the volume.
#[test]
fn a_removed_file_that_cannot_be_freed_is_set_aside_at_its_last_close() {
    for listens in [true, false] {
        let Some(bytes) = build(Kind::Plain) else {
            return;
        };
        let volume = Volume::new(&bytes, "/f");
        let device = Arc::new(MemoryDevice::new(bytes));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let listener = {
            let told = Arc::clone(&told);
            Listener::new(move |text| {
                told.lock()
                    .expect("no thread has failed")
                    .push(text.to_owned())
            })
        };
        // So few blocks stay in memory that the leaf is read again.
        let options = OpenOptions {
            budget: CacheBudget::new(0),
            on_warning: listens.then_some(listener),
            ..OpenOptions::default()
        };
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options).expect("it is sound");
        let fs = Arc::new(fs);
        let root = session(Arc::clone(&fs) as _);
        let file = open(&root, "/f", OpenFlags::READ, 0).expect("it is there");
        root.unlink("/f").expect("it is sound");
        (0..200).for_each(|at| {
            root.mkdir(format!("/e/{at}"), 0o755)
                .map(drop)
                .expect("there is room")
        });
        fs.sync().expect("durable");
        device.write_at(&[1], volume.leaf() as u64).expect("memory");
        assert_eq!(fs.warnings(), [""; 0]);
        drop(file);
        let warnings = fs.warnings();
        assert_eq!(*told.lock().expect("no thread has failed"), warnings);
        assert_eq!(warnings.len(), usize::from(listens), "{warnings:?}");
        assert!(
            warnings
                .iter()
                .all(|it| it.contains("extent node") && it.contains("cannot be freed")),
            "{warnings:?}"
        );
        drop(root);
        use_further("the last close", &fs, "/other");
        let closed = fs.close();
        assert_eq!(closed.is_ok(), listens, "{closed:?}");
        drop(fs);
        let again = memory::open("the last close", &device);
        assert!(
            !again
                .warnings()
                .iter()
                .any(|it| it.contains("cannot be freed")),
            "{:?}",
            again.warnings()
        );
        use_further("the last close", &again, "/again");
        again.close().expect("it is sound");
        drop(again);
        mend("the last close", &device);
    }
}

/// Damages the quota file of users, so that the account of user 1000 cannot be read. Returns the
/// volume, in which that user has `f`.
fn with_damaged_quota(script: &str) -> Option<Arc<MemoryDevice>> {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,quota"];
    let spec = ImageSpec::new("damaged quota", 16 << 20, mke2fs).from_directory(&[fill]);
    if !spec.can_build() {
        return None;
    }
    let image = spec.build();
    image.debugfs("sif f uid 1000\n");
    // It counts the usage.
    let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    tools::e2fsck(&image.path).expect("it is sound");
    image.debugfs(script);
    let mut bytes = std::fs::read(&image.path).expect("the image is read");
    // Each byte of the id, the upper ones first, is an index in a block of the tree; the first one
    // is block 1 of inode 3.
    let mut at = 1;
    for (index, is_last) in [(0, false), (0, false), (3, false), (0xe8, true)] {
        let found = tools::debugfs(&image.path, false, &format!("bmap <3> {at}"));
        let block: usize = found
            .lines()
            .last()
            .and_then(|line| line.trim().parse().ok())
            .expect("a block");
        let entry = &mut bytes[block * BLOCK + 4 * index..][..4];
        at = u32::from_le_bytes(entry.try_into().expect("four bytes"));
        assert_ne!(at, 0, "the account is there");
        if is_last {
            entry.copy_from_slice(&FAR.to_le_bytes());
        }
    }
    Some(Arc::new(MemoryDevice::new(bytes)))
}

#[test]
fn a_file_stays_if_its_owners_quota_is_damaged() {
    let Some(device) = with_damaged_quota("") else {
        return;
    };
    let fs = memory::open("quota", &device);
    let root = session(Arc::clone(&fs) as _);
    let before = named(&fs, "/f");
    for (what, run) in ON_FILES {
        let error = run(&root).expect_err(what);
        assert_eq!(error.errno(), Errno::EUCLEAN, "{what}: {error}");
        assert!(error.to_string().contains("quota"), "{what}: {error}");
        assert_eq!(named(&fs, "/f"), before, "{what}");
    }
    drop(root);
    use_further("quota", &fs, "/other");
    fs.close().expect("nothing is half done");
    drop(fs);
    mend("quota", &device);
}

#[test]
fn an_orphan_whose_owners_quota_is_damaged_is_set_aside() {
    for has_name in [false, true] {
        let remove = if has_name {
            "sif f size 0\n"
        } else {
            "sif f links_count 0\nunlink f\n"
        };
        // Its number is that of the first file that mke2fs has copied, or a later one.
        let Some(device) = with_damaged_quota(&format!("{remove}ssv last_orphan 14\n")) else {
            return;
        };
        let fs = memory::open("quota", &device);
        let warnings = fs.warnings();
        assert!(
            matches!(&warnings[..], [one] if one.starts_with("inode 14 ") && one.contains("quota")),
            "{warnings:?}"
        );
        use_further("quota", &fs, "/other");
        fs.close().expect("nothing is half done");
        drop(fs);
        let again = memory::open("quota", &device);
        assert!(
            !again.warnings().iter().any(|it| it.contains("inode 14")),
            "{:?}",
            again.warnings()
        );
        again.close().expect("nothing is half done");
        drop(again);
        mend("quota", &device);
    }
}
