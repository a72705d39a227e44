//! Which volumes are recovered, no matter what their superblocks say, and the state of their
//! journals afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extern4_block::{BlockDevice, MemoryDevice, RecordDevice};
use extern4_check::{Options, check};
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::journal::{BlockHeader, BlockKind, JournalSuperblock};
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Place, Structure};
use extern4_ext4::{Backup, Ext4, OpenOptions};
use extern4_testkit::tools::{self, Need};
use extern4_vfs::{FileSystem as _, OpenFlags};
use zerocopy::IntoBytes;

use crate::model::{open, session};
use crate::walk;

/// Blocks of 1 KiB, so that the first backup of the superblock is in block 8193.
const SIZE: u64 = 16 << 20;
const COPY: u64 = 8193;

/// A volume, and its journal if that has a separate device.
pub(crate) struct Pair {
    pub(crate) volume: Arc<MemoryDevice>,
    pub(crate) journal: Option<Arc<MemoryDevice>>,
}

impl Pair {
    /// A volume that `mke2fs` makes with these features.
    pub(crate) fn new(features: &str, external: bool) -> Self {
        let dir = tools::temporary("extern4-");
        let path = |name: &str, size: u64| {
            let path = dir.path().join(name);
            std::fs::File::create_new(&path)
                .and_then(|file| file.set_len(size))
                .expect("a sparse file");
            path
        };
        let volume = path("volume", SIZE);
        format(&volume, features, external, &[]);
        let journal = external.then(|| {
            let path = path("journal", 2 << 20);
            tools::run(
                "mke2fs",
                [
                    &["-q", "-F", "-b", "1024", "-O", "journal_dev"][..],
                    &[utf8(&path)],
                ]
                .concat(),
            );
            path
        });
        Self::load(&volume, journal.as_deref())
    }

    /// Loads a volume from files. An external journal is joined to the volume.
    pub(crate) fn load(volume: &Path, journal: Option<&Path>) -> Self {
        let read =
            |path: &Path| Arc::new(MemoryDevice::new(std::fs::read(path).expect("an image")));
        let pair = Self {
            volume: read(volume),
            journal: journal.map(read),
        };
        if let Some(journal) = &pair.journal {
            let uuid = superblock_at(journal, SUPERBLOCK_OFFSET).uuid();
            for at in [SUPERBLOCK_OFFSET, COPY * 1024] {
                edit_superblock(&pair.volume, at, |raw| {
                    raw.s_feature_compat
                        .set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
                    raw.s_journal_uuid = uuid;
                });
            }
            let user = superblock_at(&pair.volume, SUPERBLOCK_OFFSET).uuid();
            pair.edit_journal(|journal| journal.users = vec![user]);
        }
        pair
    }

    /// Changes the superblock of the journal, the first block on its device that looks like one.
    pub(crate) fn edit_journal(&self, edit: impl FnOnce(&mut JournalSuperblock)) {
        let device = self.journal.as_ref().unwrap_or(&self.volume);
        let bytes = bytes_of(device);
        let is_one = |block: &[u8]| {
            BlockHeader::recognise(block)
                .is_some_and(|header| header.kind == BlockKind::SuperblockV2)
        };
        let at = bytes.chunks(1024).position(is_one).expect("a journal") * 1024;
        let place = Place::new(Structure::JournalSuperblock);
        let mut superblock = JournalSuperblock::decode(&bytes[at..], place).expect("sound");
        edit(&mut superblock);
        device
            .write_at(superblock.encode().as_bytes(), at as u64)
            .expect("memory");
    }

    /// Writes both to files in `dir`.
    pub(crate) fn save(&self, dir: &Path) -> (PathBuf, Option<PathBuf>) {
        let write = |name: &str, device: &Arc<MemoryDevice>| {
            let path = dir.join(name);
            std::fs::write(&path, bytes_of(device)).expect("an image");
            path
        };
        (
            write("volume", &self.volume),
            self.journal
                .as_ref()
                .map(|journal| write("journal", journal)),
        )
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let journal_device = self
            .journal
            .clone()
            .map(|device| device as Arc<dyn BlockDevice>);
        OpenOptions {
            journal_device,
            ..OpenOptions::default()
        }
    }

    pub(crate) fn write(&self) -> Arc<Ext4> {
        let fs = Ext4::open_for_writing(Arc::clone(&self.volume) as _, &self.options());
        Arc::new(fs.expect("the volume opens"))
    }

    pub(crate) fn read_by(&self, superblock: Option<Backup>) -> extern4_ext4::Result<Ext4> {
        Ext4::open(
            Arc::clone(&self.volume) as _,
            &OpenOptions {
                superblock,
                ..self.options()
            },
        )
    }

    /// Copies the devices in their present state.
    pub(crate) fn copy(&self) -> Self {
        let copy = |device: &Arc<MemoryDevice>| Arc::new(MemoryDevice::new(bytes_of(device)));
        Self {
            volume: copy(&self.volume),
            journal: self.journal.as_ref().map(copy),
        }
    }

    /// The state that a crash leaves after some names were made durable.
    fn crashed(&self) -> Self {
        let fs = self.write();
        let root = session(Arc::clone(&fs) as _);
        for name in ["/one", "/two", "/three"] {
            root.mkdir(name, 0o755).expect("there is room");
            fs.sync().expect("durable");
        }
        self.copy()
    }
}

/// Makes a volume in a file, also over what is there, with its journal inside or elsewhere.
pub(crate) fn format(path: &Path, features: &str, external: bool, more: &[&str]) {
    let features = if external {
        format!("{features},^has_journal")
    } else {
        features.to_owned()
    };
    let mut words = vec!["-q", "-F", "-b", "1024", "-t", "ext4", "-O", &features];
    words.extend(if external { &[][..] } else { &["-J", "size=1"] });
    words.extend(more);
    words.push(utf8(path));
    tools::run("mke2fs", words);
}

pub(crate) fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

pub(crate) fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).expect("small")];
    device.read_at(&mut bytes, 0).expect("memory");
    bytes
}

fn superblock_at(device: &MemoryDevice, at: u64) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, at).expect("memory");
    Superblock::decode(&bytes, Place::new(Structure::Superblock)).expect("a good superblock")
}

fn edit_superblock(
    device: &MemoryDevice,
    at: u64,
    edit: impl FnOnce(&mut extern4_disk::superblock::RawSuperblock),
) {
    let mut superblock = superblock_at(device, at);
    edit(superblock.raw_mut());
    device.write_at(&superblock.encode(), at).expect("memory");
}

fn clear_flag(device: &MemoryDevice) {
    edit_superblock(device, SUPERBLOCK_OFFSET, |raw| {
        let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        assert!(incompat.contains(Incompat::RECOVER));
        raw.s_feature_incompat
            .set((incompat - Incompat::RECOVER).bits());
    });
}

pub(crate) fn names(fs: &Ext4) -> Vec<String> {
    let root = walk::inode(fs, fs.root_ino()).expect("the root");
    let names = walk::names(fs, &root, 100).expect("it is read").into_iter();
    let mut names: Vec<_> = names
        .map(|(name, _)| String::from_utf8(name).expect("ASCII"))
        .collect();
    names.sort_unstable();
    names
}

const NAMES: [&str; 6] = [".", "..", "lost+found", "one", "three", "two"];

pub(crate) fn can_run() -> bool {
    tools::can_run(&[Need::Tool("mke2fs")])
}

#[test]
fn the_journal_decides_whether_it_is_replayed() {
    if !can_run() {
        return;
    }
    for external in [false, true] {
        let crashed = Pair::new("metadata_csum", external).crashed();
        for backup in [Backup::Block(COPY), Backup::Kib(COPY)] {
            let lost = crashed.copy();
            lost.volume
                .write_at(&[0; SUPERBLOCK_SIZE], SUPERBLOCK_OFFSET)
                .expect("memory");
            let fs = lost.read_by(Some(backup)).expect("the copy is good");
            assert!(fs.replayed().is_some(), "{backup:?}");
            assert_eq!(names(&fs), NAMES, "external: {external}, {backup:?}");
        }
        let fs = crashed
            .read_by(Some(Backup::Block(COPY)))
            .expect("the copy is good");
        assert_eq!(names(&fs), NAMES, "the primary superblock is there as well");

        // A primary superblock that was restored from a copy has no flag.
        clear_flag(&crashed.volume);
        let fs = crashed.read_by(None).expect("it opens");
        assert_eq!(names(&fs), NAMES, "external: {external}");
        if !external {
            let mut found = Vec::new();
            check(&fs, &Options::default(), &mut |fault| {
                found.push(fault.to_string())
            })
            .expect("checked");
            assert!(
                matches!(&found[..], [it] if it.contains("the journal is not empty")),
                "{found:?}"
            );
        }
        let fs = crashed.write();
        assert!(fs.replayed().is_some());
        assert_eq!(names(&fs), NAMES, "external: {external}");
        fs.close().expect("close");
        let fs = crashed.read_by(None).expect("it opens");
        assert!(fs.replayed().is_none());
        assert_eq!(names(&fs), NAMES, "external: {external}");
    }
}

#[test]
fn a_journal_is_missed_only_where_it_may_hold_something() {
    if !can_run() {
        return;
    }
    let external = Pair::new("metadata_csum", true);
    let open = |superblock| {
        let options = OpenOptions {
            superblock,
            ..OpenOptions::default()
        };
        Ext4::open(Arc::clone(&external.volume) as _, &options)
    };
    open(None).expect("the superblock says that it is clean");
    let error = open(Some(Backup::Block(COPY)))
        .map(drop)
        .expect_err("a copy cannot say that");
    assert!(
        error
            .to_string()
            .contains("its journal is on another device"),
        "{error}"
    );

    // Inode 8 is the journal's, in the first block of the first group's table.
    let internal = Pair::new("^metadata_csum", false);
    let fs = internal.read_by(None).expect("it opens");
    let at = fs.group(0).expect("a descriptor").inode_table() * 1024 + 7 * 256;
    internal.volume.write_at(&[0; 256], at).expect("memory");
    assert_eq!(
        names(&internal.read_by(None).expect("it is clean")),
        [".", "..", "lost+found"]
    );
    let error = internal
        .read_by(Some(Backup::Block(COPY)))
        .map(drop)
        .expect_err("a copy cannot say that");
    assert!(error.corrupt_kind().is_some(), "{error}");
    let options = OpenOptions {
        superblock: Some(Backup::Block(COPY)),
        ignore_journal: true,
        ..internal.options()
    };
    Ext4::open(Arc::clone(&internal.volume) as _, &options).expect("without its journal");
}

#[test]
fn lifetime_writes_are_counted() {
    if !can_run() {
        return;
    }
    for (features, external) in [
        ("metadata_csum", false),
        ("metadata_csum", true),
        ("^has_journal", false),
    ] {
        let pair = Pair::new(features, external);
        for round in 0..2 {
            let before = superblock_at(&pair.volume, SUPERBLOCK_OFFSET).kbytes_written();
            let record = Arc::new(RecordDevice::new(Arc::clone(&pair.volume) as _));
            let fs = Ext4::open_for_writing(Arc::clone(&record) as _, &pair.options())
                .expect("it opens");
            let fs = Arc::new(fs);
            let root = session(Arc::clone(&fs) as _);
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            let file = open(&root, &format!("/file{round}"), flags, 0o644).expect("there is room");
            file.write_at(&vec![7; 300_000], 0).expect("there is room");
            drop((file, root));
            fs.close().expect("close");
            // The superblock that says so is written last.
            let written = (record.counts().bytes_written - 1024) / 1024;
            // The contents alone take 293 KiB. How many metadata blocks are written varies with the
            // time of the commits.
            assert!(written > 293, "{features}: {written}");
            let after = superblock_at(&pair.volume, SUPERBLOCK_OFFSET).kbytes_written();
            assert_eq!(after - before, written, "{features}, external: {external}");
        }
    }
}
