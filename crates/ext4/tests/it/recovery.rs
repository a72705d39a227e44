//! Which volumes are recovered, whatever the superblock says, and what becomes of their journals.

use std::ffi::OsString;
use std::sync::Arc;

use extern4_block::{BlockDevice, MemoryDevice};
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Place, Structure};
use extern4_ext4::check::{self, check};
use extern4_ext4::{Backup, Ext4, OpenOptions};
use extern4_testkit::tools::{self, Need};
use extern4_vfs::FileSystem as _;

use crate::model::session;
use crate::walk;

/// Blocks of 1 KiB, so that the first copy of the superblock stands in block 8193.
const SIZE: u64 = 16 << 20;
const COPY: u64 = 8193;

/// A volume, and its journal if that has a device of its own.
pub(crate) struct Pair {
    pub(crate) volume: Arc<MemoryDevice>,
    pub(crate) journal: Option<Arc<MemoryDevice>>,
}

impl Pair {
    /// What `mke2fs` makes with these features.
    pub(crate) fn new(features: &str, external: bool) -> Self {
        let dir = tools::temporary("extern4-");
        let make = |name: &str, words: &[&str], size: u64| {
            let path = dir.path().join(name);
            std::fs::File::create_new(&path).and_then(|file| file.set_len(size)).expect("a sparse file");
            let words = ["-q", "-F", "-b", "1024"].iter().chain(words).map(OsString::from);
            tools::run("mke2fs", words.chain([path.clone().into()]));
            std::fs::read(&path).expect("the image is read")
        };
        if !external {
            let bytes = make("volume", &["-t", "ext4", "-J", "size=1", "-O", features], SIZE);
            return Self { volume: Arc::new(MemoryDevice::new(bytes)), journal: None };
        }
        let features = format!("{features},^has_journal");
        let volume = Arc::new(MemoryDevice::new(make("volume", &["-t", "ext4", "-O", &features], SIZE)));
        let journal = Arc::new(MemoryDevice::new(make("journal", &["-O", "journal_dev"], 2 << 20)));
        let uuid = superblock_at(&journal, SUPERBLOCK_OFFSET).uuid();
        for at in [SUPERBLOCK_OFFSET, COPY * 1024] {
            edit_superblock(&volume, at, |raw| {
                raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
                raw.s_journal_uuid = uuid;
            });
        }
        Self { volume, journal: Some(journal) }
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let journal_device = self.journal.clone().map(|device| device as Arc<dyn BlockDevice>);
        OpenOptions { journal_device, ..OpenOptions::default() }
    }

    pub(crate) fn write(&self) -> Arc<Ext4> {
        let fs = Ext4::open_for_writing(Arc::clone(&self.volume) as _, &self.options());
        Arc::new(fs.expect("the volume opens"))
    }

    fn read_by(&self, superblock: Option<Backup>) -> extern4_ext4::Result<Ext4> {
        Ext4::open(Arc::clone(&self.volume) as _, &OpenOptions { superblock, ..self.options() })
    }

    /// The devices as they stand.
    pub(crate) fn copy(&self) -> Self {
        let copy = |device: &Arc<MemoryDevice>| Arc::new(MemoryDevice::new(bytes_of(device)));
        Self { volume: copy(&self.volume), journal: self.journal.as_ref().map(copy) }
    }

    /// What a crash leaves after some names were made durable.
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
        raw.s_feature_incompat.set((incompat - Incompat::RECOVER).bits());
    });
}

pub(crate) fn names(fs: &Ext4) -> Vec<String> {
    let root = walk::inode(fs, fs.root_ino()).expect("the root");
    let names = walk::names(fs, &root, 100).expect("it is read").into_iter();
    let mut names: Vec<_> = names.map(|(name, _)| String::from_utf8(name).expect("ASCII")).collect();
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
            lost.volume.write_at(&[0; SUPERBLOCK_SIZE], SUPERBLOCK_OFFSET).expect("memory");
            let fs = lost.read_by(Some(backup)).expect("the copy is good");
            assert!(fs.replayed().is_some(), "{backup:?}");
            assert_eq!(names(&fs), NAMES, "external: {external}, {backup:?}");
        }
        let fs = crashed.read_by(Some(Backup::Block(COPY))).expect("the copy is good");
        assert_eq!(names(&fs), NAMES, "the primary superblock is there as well");

        // A primary superblock that was restored from a copy has no flag.
        clear_flag(&crashed.volume);
        let fs = crashed.read_by(None).expect("it opens");
        assert_eq!(names(&fs), NAMES, "external: {external}");
        if !external {
            let mut found = Vec::new();
            check(&fs, &check::Options::default(), &mut |fault| found.push(fault.to_string()))
                .expect("checked");
            assert!(matches!(&found[..], [it] if it.contains("the journal is not empty")), "{found:?}");
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
        let options = OpenOptions { superblock, ..OpenOptions::default() };
        Ext4::open(Arc::clone(&external.volume) as _, &options)
    };
    open(None).expect("the superblock says that it is clean");
    let error = open(Some(Backup::Block(COPY))).map(drop).expect_err("a copy cannot say that");
    assert!(error.to_string().contains("its journal is on another device"), "{error}");

    // Inode 8 is the journal's, in the first block of the first group's table.
    let internal = Pair::new("^metadata_csum", false);
    let fs = internal.read_by(None).expect("it opens");
    let at = fs.group(0).expect("a descriptor").inode_table() * 1024 + 7 * 256;
    internal.volume.write_at(&[0; 256], at).expect("memory");
    assert_eq!(names(&internal.read_by(None).expect("it is clean")), [".", "..", "lost+found"]);
    let error = internal.read_by(Some(Backup::Block(COPY))).map(drop).expect_err("a copy cannot say that");
    assert!(error.corrupt_kind().is_some(), "{error}");
    let options =
        OpenOptions { superblock: Some(Backup::Block(COPY)), ignore_journal: true, ..internal.options() };
    Ext4::open(Arc::clone(&internal.volume) as _, &options).expect("without its journal");
}
