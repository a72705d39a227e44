//! Thousands of changes of names in directories, compared with a model, and lookups with and
//! without a map of the names in memory.
//!
//! The directories are linear, hashed, inline and case-folded. After the changes, `e2fsck` must
//! find no fault, and the kernel's mount must list the names of the model.

use crate::dir::insert::{
    add_name, check_new_name, has_much_room, is_empty_directory, new_directory, set_parent,
};
use crate::dir::list::list_dir;
use crate::dir::namei::lookup_name;
use crate::dir::names::name_hash;
use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::options::OpenOptions;
use crate::handle::Handle;
use crate::inode::cached::{CachedInode, LockedNames};
use crate::inode::info::{InodeInfo, dir_layout};
use crate::inode::name_map::DirNames;
use crate::map::map_blocks::empty_map;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use extern4_block::{FileDevice, FileOptions};
use extern4_disk::casefold;
use extern4_disk::dirent::{DirEntry, FileType};
use extern4_disk::inode::{FileKind, Inode, InodeFlags, ROOT_INO};
use extern4_testkit::tools::{self, Need, run};
use extern4_vfs::{Errno, Inode as VfsInode, NewInode};

/// A pseudorandom sequence with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }
}

/// The alphabets that names are made of.
#[derive(Clone, Copy, PartialEq)]
enum Letters {
    /// Any byte that a name may contain.
    Bytes,
    /// Text, for directories that ignore case.
    Text,
}

/// A directory under test, and what should be in it.
struct Subject {
    image: PathBuf,
    _scratch: Box<dyn std::any::Any>,
    /// `None` while other programs read the volume.
    open: Option<Ext4>,
    dir: InodeInfo,
    /// The directory in use, of which only the map of names counts.
    in_use: VfsInode,
    files: Vec<(InodeInfo, FileType, u32)>,
    model: BTreeMap<Vec<u8>, (Vec<u8>, usize)>,
    random: Random,
    letters: Letters,
    longest: usize,
    /// How many entries were renamed in place.
    renamed: usize,
    /// How many absent names the map knew.
    known_absent: usize,
}

const FILES: usize = 20;
const CREDITS: u32 = 64;
const BLOCKS: u32 = 12;

fn open(image: &std::path::Path) -> Ext4 {
    let options = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open_with(image, &options).expect("the image opens");
    Ext4::open_for_writing(Arc::new(device), &OpenOptions::default()).expect("the volume opens")
}

fn make_inode(handle: &Handle<'_>, parent: u32, kind: FileKind) -> Result<InodeInfo> {
    let (ino, _) =
        handle
            .writer
            .allocator
            .allocate_inode(handle, parent, kind == FileKind::Directory)?;
    handle.writer.allocator.clear_record(handle, ino)?;
    let sb = handle.fs.superblock();
    let inode = Inode::new(ino, kind.mode_bits() | 0o755, ino ^ 0x5555, sb);
    let mut info = InodeInfo::new(inode, handle.fs.inode_position(ino)?, sb.metadata_seed());
    if matches!(kind, FileKind::Directory | FileKind::Regular) {
        empty_map(handle, &mut info);
    }
    Ok(info)
}

fn in_use(fs: &Ext4, dir: &InodeInfo) -> VfsInode {
    let attr = dir.attr(fs).expect("attributes");
    let private = Box::new(CachedInode::new(dir));
    VfsInode::detached(NewInode {
        attr,
        no_acl: true,
        no_caps: true,
        private,
    })
}

impl Subject {
    /// A new volume with a directory `dir` in it, which has these flags.
    fn new(size: &str, mke2fs: &[&str], tune: &str, flags: InodeFlags) -> Self {
        let scratch = tools::temporary("extern4-names-");
        let image = scratch.path().join("image");
        let path = image.to_str().expect("a path of letters").to_owned();
        let fixed = ["-q", "-F", "-O", "^has_journal"];
        run(
            "mke2fs",
            fixed
                .iter()
                .chain(mke2fs)
                .copied()
                .chain([path.as_str(), size]),
        );
        if !tune.is_empty() {
            tools::debugfs(&image, true, tune);
        }
        let fs = open(&image);
        let mut root = fs.load_inode(ROOT_INO).expect("the root");
        let (dir, files) = fs
            .with_handle(CREDITS, 200, |handle| {
                let mut dir = make_inode(handle, ROOT_INO, FileKind::Directory)?;
                let all = dir.fields().flags() | flags;
                dir.fields_mut().set_flags(all);
                dir.fields_mut().set_links(2);
                new_directory(handle, &mut dir, ROOT_INO)?;
                handle.store(&dir)?;
                add_name(handle, &mut root, b"dir", dir.ino(), FileType::Directory)?;
                let links = root.fields().links() + 1;
                root.fields_mut().set_links(links);
                handle.store(&root)?;
                let mut files = Vec::new();
                for index in 0..FILES {
                    let (kind, says) = match index % 2 {
                        0 => (FileKind::Regular, FileType::Regular),
                        _ => (FileKind::Fifo, FileType::Fifo),
                    };
                    files.push((make_inode(handle, dir.ino(), kind)?, says, 0));
                }
                Ok((dir, files))
            })
            .expect("a directory");
        let letters = if flags.contains(InodeFlags::CASEFOLD) {
            Letters::Text
        } else {
            Letters::Bytes
        };
        Self {
            image,
            _scratch: Box::new(scratch),
            in_use: in_use(&fs, &dir),
            open: Some(fs),
            dir,
            files,
            model: BTreeMap::new(),
            random: Random(0x9E37_79B9_7F4A_7C15),
            letters,
            longest: 255,
            renamed: 0,
            known_absent: 0,
        }
    }

    fn fs(&self) -> &Ext4 {
        self.open.as_ref().expect("an open volume")
    }

    fn names(&self) -> &DirNames {
        &self.in_use.private::<CachedInode>().names
    }

    fn look_up(&self, name: &[u8]) -> Option<u32> {
        lookup_name(self.fs(), &self.dir, self.names(), name).expect("a lookup")
    }

    /// Checks what the map says of a name, and counts absent names that it knows.
    fn ask(&mut self, name: &[u8]) {
        let lacks = self.names().lacks(|| name_hash(self.fs(), &self.dir, name));
        assert!(
            !lacks || !self.model.contains_key(&self.key(name)),
            "{name:?} is not absent"
        );
        self.known_absent += usize::from(lacks);
    }

    /// Changes names of the directory in one transaction.
    fn change<R>(
        &mut self,
        change: impl FnOnce(&Handle<'_>, &mut LockedNames<'_>) -> Result<R>,
    ) -> Result<R> {
        let (changed, dir) = self.fs().with_handle(CREDITS, BLOCKS, |handle| {
            let mut names = LockedNames::lock(&self.in_use);
            names.info = self.dir.clone();
            let changed = change(handle, &mut names)?;
            handle.store(&names.info)?;
            Ok((changed, names.info.clone()))
        })?;
        self.dir = dir;
        Ok(changed)
    }

    fn reopen(&mut self) {
        let fs = open(&self.image);
        self.in_use = in_use(&fs, &self.dir);
        self.open = Some(fs);
    }

    fn key(&self, name: &[u8]) -> Vec<u8> {
        match self.letters {
            Letters::Bytes => name.to_vec(),
            Letters::Text => casefold::fold(name).expect("text"),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        // Mostly short, as names are.
        let most = if self.random.below(4) == 0 {
            self.longest
        } else {
            self.longest.min(30)
        };
        let len = 1 + self.random.below(most);
        let mut name = Vec::new();
        while name.len() < len {
            match self.letters {
                Letters::Bytes => {
                    let byte = self.random.next() as u8;
                    name.push(if matches!(byte, 0 | b'/') { b'x' } else { byte });
                }
                Letters::Text => {
                    let text = [
                        "a", "B", "c", "D", "e", "F", "ä", "Ö", "ß", "é", "Σ", "7", "-", "g", "H",
                    ];
                    name.extend_from_slice(text[self.random.below(text.len())].as_bytes());
                }
            }
        }
        name.truncate(len);
        if self.letters == Letters::Text {
            name = String::from_utf8_lossy(&name)
                .replace('\u{fffd}', "")
                .into_bytes();
        }
        if name.is_empty() || name == b"." || name == b".." {
            b"dots".to_vec()
        } else {
            name
        }
    }

    fn any_name(&mut self) -> Option<Vec<u8>> {
        let probe = self.name();
        let key = self.key(&probe);
        let next = self
            .model
            .range(key..)
            .next()
            .or_else(|| self.model.iter().next());
        next.map(|(_, (name, _))| name.clone())
    }

    /// Another spelling of a name.
    fn other_case(&mut self, name: &[u8]) -> Vec<u8> {
        match self.letters {
            Letters::Bytes => name.to_vec(),
            Letters::Text => String::from_utf8_lossy(name).to_lowercase().into_bytes(),
        }
    }

    fn add(&mut self, name: &[u8]) -> Result<()> {
        let index = self.random.below(FILES);
        let ino = self.files[index].0.ino();
        let kind = self.files[index].1;
        check_new_name(self.fs(), &self.dir, name)?;
        // An inline directory has no blocks, whatever its size.
        let len = |subject: &Self| {
            if subject.dir.is_inline() {
                0
            } else {
                subject.dir.len_blocks(subject.fs()).expect("a size")
            }
        };
        let before = len(self);
        self.change(|handle, names| names.add(handle, name, ino, kind))?;
        let after = len(self);
        assert!(
            after - before <= super::MAX_NEW_BLOCKS,
            "from {before} to {after} blocks"
        );
        self.files[index].2 += 1;
        self.model.insert(self.key(name), (name.to_vec(), index));
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) {
        let asked = self.other_case(name);
        let ino = self.look_up(&asked);
        self.change(|handle, names| names.remove(handle, &asked))
            .expect("a removal");
        let (_, index) = self
            .model
            .remove(&self.key(name))
            .expect("a name of the model");
        assert_eq!(ino, Some(self.files[index].0.ino()));
        self.files[index].2 -= 1;
    }

    fn replace(&mut self, name: &[u8]) {
        let index = self.random.below(FILES);
        let asked = self.other_case(name);
        let ino = self.files[index].0.ino();
        let kind = self.files[index].1;
        self.change(|handle, names| names.replace(handle, &asked, ino, kind))
            .expect("a replacement");
        let key = self.key(name);
        let old = self.model.get_mut(&key).expect("a name of the model");
        self.files[old.1].2 -= 1;
        old.1 = index;
        self.files[index].2 += 1;
    }

    /// Renames an entry in place, or removes it where that is impossible.
    fn rename(&mut self, name: &[u8]) {
        if self.dir.is_indexed() {
            // The new name may have a hash of another leaf.
            return self.remove(name);
        }
        let asked = self.other_case(name);
        let new = self.name();
        if self.model.contains_key(&self.key(&new)) {
            return;
        }
        let (_, index) = self.model[&self.key(name)];
        let ino = self.files[index].0.ino();
        let kind = self.files[index].1;
        let entry = DirEntry {
            ino,
            kind,
            name: &new,
            offset: 0,
            hash: None,
        };
        let stays = self.change(|handle, names| names.rename(handle, &asked, &entry));
        if !stays.expect("a name that is there") {
            return self.remove(name);
        }
        self.renamed += 1;
        self.model.remove(&self.key(name));
        self.model.insert(self.key(&new), (new, index));
    }

    /// Makes `changes` changes, of which `additions` in a hundred are additions.
    fn churn(&mut self, changes: usize, additions: usize) {
        for _ in 0..changes {
            let what = self.random.below(100);
            if what < additions {
                let name = self.name();
                if !self.model.contains_key(&self.key(&name)) {
                    self.add(&name).expect("an addition");
                    self.ask(&name);
                }
            } else if let Some(name) = self.any_name() {
                match what % 8 {
                    0 | 4 => self.replace(&name),
                    2 | 6 => self.rename(&name),
                    _ => self.remove(&name),
                }
                self.ask(&name);
            }
            if self.random.below(16) == 0 {
                self.look();
            }
        }
    }

    /// Looks one name up that is there, and one that is not.
    fn look(&mut self) {
        if let Some(name) = self.any_name() {
            let (_, index) = self.model[&self.key(&name)];
            let asked = self.other_case(&name);
            self.ask(&asked);
            assert_eq!(self.look_up(&asked), Some(self.files[index].0.ino()));
        }
        let name = self.name();
        if !self.model.contains_key(&self.key(&name)) {
            self.ask(&name);
            assert_eq!(self.look_up(&name), None);
        }
        assert_eq!(
            is_empty_directory(self.fs(), &self.dir).expect("a look"),
            self.model.is_empty()
        );
    }

    fn listed(&self, fs: &Ext4) -> BTreeMap<Vec<u8>, u32> {
        let mut names = BTreeMap::new();
        let dir = fs.load_inode(self.dir.ino()).expect("the directory");
        list_dir(fs, &dir, 0, &mut |entry| {
            let twice = names.insert(entry.name.to_vec(), entry.ino as u32);
            assert!(
                twice.is_none(),
                "{:?} is there twice",
                entry.name.escape_ascii().to_string()
            );
            ControlFlow::Continue(())
        })
        .expect("a listing");
        names
    }

    fn expected(&self) -> BTreeMap<Vec<u8>, u32> {
        let names = self
            .model
            .values()
            .map(|(name, index)| (name.clone(), self.files[*index].0.ino()));
        names
            .chain([(b".".to_vec(), self.dir.ino()), (b"..".to_vec(), ROOT_INO)])
            .collect()
    }

    /// Closes the volume, and checks it with other programs.
    fn check(&mut self) {
        assert!(
            self.listed(self.fs()) == self.expected(),
            "the listing differs before closing"
        );
        let mut files = std::mem::take(&mut self.files);
        let home = (0..FILES).map(|index| format!("file-{index}").into_bytes());
        let mut root = self.fs().load_inode(ROOT_INO).expect("the root");
        let fresh = lookup_name(self.fs(), &root, &DirNames::default(), b"file-0")
            .expect("a lookup")
            .is_none();
        self.fs()
            .with_handle(CREDITS, 50, |handle| {
                for ((info, kind, links), name) in files.iter_mut().zip(home) {
                    if fresh {
                        add_name(handle, &mut root, &name, info.ino(), *kind)?;
                    }
                    info.fields_mut()
                        .set_links(u16::try_from(*links + 1).expect("few links"));
                    handle.store(info)?;
                }
                handle.store(&root)
            })
            .expect("the files are stored");
        self.files = files;
        self.open
            .take()
            .expect("an open volume")
            .close()
            .expect("the volume closes");
        run("e2fsck", ["-fn".as_ref(), self.image.as_os_str()]);
        self.reopen();
        assert!(
            self.listed(self.fs()) == self.expected(),
            "the listing differs"
        );
        for (name, index) in self.model.values() {
            assert_eq!(self.look_up(name), Some(self.files[*index].0.ino()));
        }
    }

    /// Looks every name up through the kernel's mount, while the volume is closed here.
    fn check_kernel(&mut self) {
        let casefold = self.dir.is_casefolded();
        if !tools::can_run(&[Need::Mount])
            || casefold && !tools::can_run(&[Need::KernelFeature("casefold")])
        {
            return;
        }
        self.open
            .take()
            .expect("an open volume")
            .close()
            .expect("the volume closes");
        let point = tools::temporary("extern4-names-mnt-");
        let options = ["-t", "ext4", "-o", "loop,ro"].map(std::ffi::OsStr::new);
        run(
            "mount",
            options
                .into_iter()
                .chain([self.image.as_os_str(), point.path().as_os_str()]),
        );
        let listed = std::fs::read_dir(point.path().join("dir")).map(Iterator::count);
        let missing = self.model.values().filter(|(name, index)| {
            let path = point
                .path()
                .join("dir")
                .join(std::ffi::OsStr::from_bytes(name));
            let found = path.symlink_metadata().map(|meta| meta.ino());
            found.ok() != Some(self.files[*index].0.ino().into())
        });
        let missing = missing.count();
        tools::unmount(point.path());
        assert_eq!((missing, listed.expect("a listing")), (0, self.model.len()));
        self.reopen();
    }

    /// How many levels of nodes there are between root and leaves; `None` without a tree.
    fn levels(&self) -> Option<usize> {
        let mut deepest = None;
        self.fs()
            .htree(self.dir.ino(), &mut |entry| {
                deepest = deepest.max(Some(entry.depth))
            })
            .expect("a tree");
        deepest
    }

    fn random_changes(&mut self, changes: usize) {
        self.churn(changes, 80);
        self.check();
        self.churn(changes, 30);
        self.check();
        self.churn(changes, 70);
        self.check();
        while let Some(name) = self.any_name() {
            self.remove(&name);
        }
        self.look();
        self.churn(changes / 4, 90);
        self.check();
        self.check_kernel();
        assert!(
            self.known_absent > changes / 16,
            "{} of {changes}",
            self.known_absent
        );
    }
}

fn can_run() -> bool {
    tools::can_run(&[
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
        Need::Tool("debugfs"),
    ])
}

#[test]
fn linear_directories() {
    if !can_run() {
        return;
    }
    for (size, args) in [
        ("16M", &["-t", "ext2", "-b", "1024", "-O", "^dir_index"][..]),
        (
            "16M",
            &["-t", "ext2", "-b", "2048", "-O", "^dir_index,^filetype"],
        ),
        (
            "16M",
            &["-t", "ext4", "-b", "1024", "-O", "^dir_index,metadata_csum"],
        ),
        (
            "32M",
            &["-t", "ext4", "-b", "4096", "-O", "^dir_index,metadata_csum"],
        ),
    ] {
        let mut subject = Subject::new(size, args, "", InodeFlags::empty());
        subject.random_changes(600);
        assert_eq!(subject.levels(), None);
        assert!(subject.renamed > 20, "{}", subject.renamed);
    }
}

#[test]
fn hashed_directories() {
    if !can_run() {
        return;
    }
    for (size, args, levels) in [
        (
            "32M",
            &["-t", "ext2", "-b", "1024", "-O", "dir_index"][..],
            1,
        ),
        (
            "32M",
            &["-t", "ext2", "-b", "2048", "-O", "dir_index,^filetype"],
            0,
        ),
        (
            "32M",
            &["-t", "ext4", "-b", "1024", "-O", "metadata_csum"],
            1,
        ),
        (
            "32M",
            &["-t", "ext4", "-b", "2048", "-O", "metadata_csum"],
            0,
        ),
        (
            "64M",
            &["-t", "ext4", "-b", "4096", "-O", "metadata_csum"],
            0,
        ),
        (
            "64M",
            &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
            0,
        ),
        ("32M", &["-t", "ext4", "-b", "1024", "-O", "large_dir"], 1),
    ] {
        let mut subject = Subject::new(size, args, "", InodeFlags::empty());
        subject.random_changes(4000);
        assert_eq!(subject.levels(), Some(levels), "{args:?}");
    }
}

#[test]
fn blocks_of_64_kib() {
    if !can_run() {
        return;
    }
    for features in [
        "metadata_csum",
        "^metadata_csum",
        "^metadata_csum,^dir_index",
    ] {
        let args = ["-t", "ext4", "-b", "65536", "-O", features];
        let mut subject = Subject::new("512M", &args, "", InodeFlags::empty());
        subject.churn(5000, 80);
        subject.check();
        subject.churn(4000, 30);
        subject.check();
    }
}

#[test]
fn every_hash() {
    if !can_run() {
        return;
    }
    for version in ["legacy", "half_md4", "tea"] {
        // Signed, unsigned, and unspecified, as in volumes that have never had a tree.
        for flags in ["1", "2", "0"] {
            let tune = format!("ssv def_hash_version {version}\nssv flags {flags}\n");
            let args = ["-t", "ext4", "-b", "1024"];
            let mut subject = Subject::new("16M", &args, &tune, InodeFlags::empty());
            subject.churn(3000, 80);
            subject.check();
            subject.check_kernel();
        }
    }
}

#[test]
fn directories_without_case() {
    if !can_run() {
        return;
    }
    for (block, levels) in [("1024", 1), ("4096", 0)] {
        let args = [
            "-t",
            "ext4",
            "-b",
            block,
            "-O",
            "casefold",
            "-E",
            "encoding=utf8",
        ];
        let mut subject = Subject::new("64M", &args, "", InodeFlags::CASEFOLD);
        subject.churn(4000, 80);
        subject.check();
        subject.churn(4000, 40);
        subject.check();
        assert_eq!(subject.levels(), Some(levels));
        subject.check_kernel();
    }
    let args = [
        "-t",
        "ext4",
        "-O",
        "casefold",
        "-E",
        "encoding=utf8,encoding_flags=strict",
    ];
    let mut subject = Subject::new("16M", &args, "", InodeFlags::CASEFOLD);
    assert_eq!(subject.add(b"\xff\xfe").unwrap_err().errno(), Errno::EINVAL);
    subject.add("gut".as_bytes()).expect("a name");
    subject.check();
}

#[test]
fn deep_trees() {
    if !can_run() {
        return;
    }
    let long = |subject: &mut Subject| {
        let mut name = vec![b'n'; 255];
        let number = format!("{:016x}", subject.random.next());
        name[..16].copy_from_slice(number.as_bytes());
        name
    };
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "100",
        "-O",
        "large_dir,metadata_csum",
    ];
    let mut subject = Subject::new("128M", &args, "", InodeFlags::empty());
    while subject.model.len() < 50_000 {
        let name = long(&mut subject);
        subject.add(&name).expect("an addition");
    }
    assert_eq!(subject.levels(), Some(2));
    subject.churn(2000, 30);
    subject.check();
    subject.check_kernel();
    // Without `large_dir` the tree is full before.
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "100",
        "-O",
        "^large_dir,metadata_csum",
    ];
    let mut subject = Subject::new("128M", &args, "", InodeFlags::empty());
    let refused = loop {
        let name = long(&mut subject);
        if let Err(error) = subject.add(&name) {
            break error;
        }
    };
    assert_eq!(
        (refused.errno(), subject.levels()),
        (Errno::ENOSPC, Some(1))
    );
    assert!(subject.model.len() > 10_000);
    assert!(!has_much_room(subject.fs(), &subject.dir, b"name").expect("an answer"));
    // Where there is a gap, names still fit.
    for _ in 0..200 {
        let name = subject.any_name().expect("a name");
        subject.remove(&name);
        let again = subject.add(&name);
        again.expect("the same name fits again");
    }
    subject.check();
    subject.check_kernel();
}

/// A name costs as much at the end as in the beginning, counted in blocks that are looked at.
#[test]
fn two_hundred_thousand_names() {
    if !can_run() {
        return;
    }
    let args = ["-t", "ext4", "-b", "4096", "-N", "100"];
    let mut subject = Subject::new("256M", &args, "", InodeFlags::empty());
    let looked_at = |subject: &Subject| {
        let stats = subject.fs().cache.stats();
        stats.hits + stats.misses
    };
    let mut counts = Vec::new();
    for round in 0..20 {
        let before = looked_at(&subject);
        for index in 0..10_000 {
            let name = format!("file-{round:03}-{index:06}").into_bytes();
            subject.add(&name).expect("an addition");
        }
        counts.push(looked_at(&subject) - before);
    }
    let early = counts[1];
    let late = counts[19];
    // The tree may have become one level deeper, which each name goes through a few times.
    assert!(early > 10_000 && late < early * 3 / 2, "{counts:?}");
    // Nor do threads that add names have to wait for each other then.
    assert_eq!(subject.levels(), Some(1));
    assert!(has_much_room(subject.fs(), &subject.dir, b"name").expect("an answer"));
    subject.check();
}

#[test]
fn directories_inside_their_inode() {
    if !can_run() {
        return;
    }
    for (inode_size, block, features) in [
        ("256", "1024", "inline_data"),
        ("512", "1024", "inline_data,^metadata_csum"),
        ("1024", "1024", "inline_data"),
        ("4096", "4096", "inline_data,^filetype,^dir_index"),
    ] {
        let args = [
            "-t", "ext4", "-b", block, "-I", inode_size, "-N", "64", "-O", features,
        ];
        let mut subject = Subject::new("16M", &args, "", InodeFlags::empty());
        assert!(subject.dir.is_inline());
        subject.check();
        for round in 0..20 {
            subject.longest = 12;
            // Fills it again and again, but never so far that it moves to a block.
            for _ in 0..40 {
                let name = subject.name();
                let before = subject.dir.clone();
                let layout = dir_layout(subject.fs(), &before);
                let room = before
                    .inline_room(subject.fs())
                    .expect("the room")
                    .unwrap_or(0);
                let fits = before.size() as usize + layout.rec_len(&name) <= room;
                if fits && !subject.model.contains_key(&name) {
                    subject.add(&name).expect("an addition");
                }
                if subject.random.below(3) == 0
                    && let Some(name) = subject.any_name()
                {
                    subject.replace(&name);
                }
            }
            subject.look();
            if round % 5 == 0 {
                subject.check();
            }
            while subject.model.len() > round % 4 {
                let name = subject.any_name().expect("a name");
                subject.remove(&name);
            }
            subject.look();
            assert!(subject.dir.is_inline());
        }
        subject.check();
        subject.check_kernel();
        let mut dir = subject.dir.clone();
        let moved = subject.fs().with_handle(CREDITS, 0, |handle| {
            set_parent(handle, &mut dir, 11)?;
            assert_eq!(
                dir.with_inline_dir(handle.fs, |inline, _, _| Ok(inline.parent))?,
                11
            );
            set_parent(handle, &mut dir, ROOT_INO)
        });
        moved.expect("another parent, and back");
        subject.dir = dir;
        subject.longest = 255;
        subject.churn(1500, 70);
        assert!(!subject.dir.is_inline());
        subject.check();
        subject.check_kernel();
    }
}

#[test]
fn dotdot_is_set() {
    if !can_run() {
        return;
    }
    for features in [
        "metadata_csum,^inline_data",
        "^metadata_csum",
        "^dir_index",
        "inline_data",
    ] {
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let mut subject = Subject::new("16M", &args, "", InodeFlags::empty());
        for _ in 0..2 {
            let mut dir = subject.dir.clone();
            let moved = subject.fs().with_handle(CREDITS, 0, |handle| {
                set_parent(handle, &mut dir, 11)?;
                handle.store(&dir)
            });
            moved.expect("another parent");
            let mut parent = 0;
            let listed = list_dir(subject.fs(), &dir, 0, &mut |entry| {
                parent = if entry.name == b".." {
                    entry.ino
                } else {
                    parent
                };
                ControlFlow::Continue(())
            });
            listed.expect("a listing");
            assert_eq!(parent, 11);
            let moved = subject.fs().with_handle(CREDITS, 0, |handle| {
                set_parent(handle, &mut dir, ROOT_INO)?;
                handle.store(&dir)
            });
            moved.expect("the old parent");
            subject.dir = dir;
            subject.check();
            subject.churn(500, 90);
        }
        assert_eq!(subject.levels().is_some(), features != "^dir_index");
    }
}

#[test]
fn names_that_are_refused_change_nothing() {
    if !can_run() {
        return;
    }
    let args = ["-t", "ext4", "-O", "encrypt,^inline_data"];
    let mut subject = Subject::new("16M", &args, "", InodeFlags::ENCRYPT);
    assert_eq!(subject.add(b"name").unwrap_err().errno(), Errno::ENOKEY);
    let mut subject = Subject::new("16M", &["-t", "ext4"], "", InodeFlags::empty());
    assert_eq!(
        subject.add(&[b'x'; 256]).unwrap_err().errno(),
        Errno::ENAMETOOLONG
    );
    let missing = subject.change(|handle, names| names.remove(handle, b"name"));
    assert_eq!(missing.unwrap_err().errno(), Errno::ENOENT);
    subject.check();
}

/// One byte of the legacy hash over unsigned bytes: the last two states before and after it.
fn legacy_step((previous, hash): (u32, u32), byte: u8) -> (u32, u32) {
    let next = previous.wrapping_add(hash ^ u32::from(byte).wrapping_mul(LEGACY_FACTOR));
    (
        hash,
        if next >> 31 == 1 {
            next.wrapping_sub(0x7FFF_FFFF)
        } else {
            next
        },
    )
}

const LEGACY_FACTOR: u32 = 7_152_373;

/// Long names that share the legacy hash of the first: one more byte changes the hash enough that
/// few names have to be tried.
fn names_of_one_hash(count: usize) -> Vec<Vec<u8>> {
    // The factor's multiplicative inverse.
    let inverse = (0..5).fold(LEGACY_FACTOR, |inverse, _| {
        inverse.wrapping_mul(2u32.wrapping_sub(LEGACY_FACTOR.wrapping_mul(inverse)))
    });
    let start = [b'p'; 250]
        .iter()
        .fold((0x37AB_E8F9, 0x12A3_FE2D), |state, byte| {
            legacy_step(state, *byte)
        });
    let target = b"first"
        .iter()
        .fold(start, |state, byte| legacy_step(state, *byte))
        .1;
    let mut names = Vec::new();
    for number in 0u32.. {
        let middle = number.to_le_bytes();
        if middle.iter().any(|byte| matches!(byte, 0 | b'/')) {
            continue;
        }
        let state = middle
            .iter()
            .fold(start, |state, byte| legacy_step(state, *byte));
        for sum in [target, target.wrapping_add(0x7FFF_FFFF)] {
            let byte = (sum.wrapping_sub(state.0) ^ state.1).wrapping_mul(inverse);
            let byte = u8::try_from(byte)
                .ok()
                .filter(|byte| !matches!(byte, 0 | b'/'));
            if let Some(byte) = byte.filter(|byte| legacy_step(state, *byte).1 == target) {
                names.push([&[b'p'; 250][..], &middle, &[byte]].concat());
            }
        }
        if names.len() >= count {
            break;
        }
    }
    names
}

#[test]
fn names_that_share_a_hash_span_leaves() {
    if !can_run() {
        return;
    }
    let names = names_of_one_hash(12);
    for features in ["metadata_csum", "^metadata_csum"] {
        let tune = "ssv def_hash_version legacy\nssv flags 2\n";
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let mut subject = Subject::new("16M", &args, tune, InodeFlags::empty());
        subject.churn(200, 100);
        for name in &names {
            subject.add(name).expect("an addition");
        }
        let mut continued = 0;
        let ino = subject.dir.ino();
        let walked = subject.fs().htree(ino, &mut |entry| {
            continued += usize::from(entry.hash & 1 == 1)
        });
        walked.expect("a tree");
        // No leaf has room for more than three.
        assert!(continued >= 3, "{continued} leaves continue others");
        subject.churn(3000, 90);
        subject.check();
        for name in &names[3..9] {
            subject.replace(name);
            subject.remove(name);
        }
        subject.check();
        for name in &names[3..9] {
            subject.add(name).expect("an addition");
        }
        subject.churn(500, 60);
        subject.check();
        subject.check_kernel();
    }
}
