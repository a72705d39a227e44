//! Attribute blocks and values that inodes share: which inodes share, and what is counted. The
//! tests also cover each fault that Linux's cache of shared blocks had after it was rewritten in
//! 2016.
//!
//! Each fault, by the commit in Linux that fixed it, and where it is tested here:
//! - 3dc96bba65f5, 65f8b80053a1: reuse while the last owner frees.
//!   `reuse_against_the_last_release`; models `xattr_reuse_vs_*`.
//! - a44e84a9b776: a lost bit, and a loop without end. `a_block_is_shared_by_1024`; model
//!   `xattr_flag_lost_update`.
//! - 6048c64b2609: long chains of full blocks. `a_block_is_shared_by_1024`;
//!   `mbcache::tests::full_entries_are_not_offered`.
//! - f0c8b46238db, and the arguments of the second chance. `mbcache::tests::a_hit_sets_a_bit`,
//!   `second_chance_order`.
//! - 3dc96bba65f5: a count below zero. `mbcache::tests::each_removal_is_counted_once`.
//! - 5fc4cbd9fde5: deleted while half inserted; duplicates. Model `xattr_create_dup`: an entry is
//!   one word.
//! - 58318914186c, 307af6c87937: evicted while in use, two owners of a life. Nothing is pinned, and
//!   an entry owns nothing: model `xattr_evict_vs_find_next`.
//! - d227786ab111: freed under its worker. There is no worker.
//! - CVE-2025-40190: a count of a value below zero. `an_uncounted_value_is_damage`.
//! - CVE-2026-46046: a buffer that is not given back. Buffers give themselves back.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_ext4::Ext4;
use extern4_testkit::image::{Image, ImageSpec, Plan};
use extern4_testkit::tools;
use extern4_vfs::{AclKind, Errno, FileSystem as _, LookupFlags, OpenFlags, Session, XattrFlags};

use crate::model::{acl, open, session};
use crate::{memory, walk};

/// Returns for each attribute block its durable reference count, and how many inodes share it.
pub(crate) fn counts(fs: &Ext4) -> HashMap<u64, (u32, u32)> {
    // It is said when the transaction is closed.
    fs.sync().expect("sync");
    let mut counts = HashMap::new();
    for ino in 1..=fs.superblock().inodes_count() {
        let Ok(inode) = fs.raw_inode(ino) else {
            continue;
        };
        let Some(block) = inode.xattr_block().filter(|_| inode.links() > 0) else {
            continue;
        };
        let bytes = fs.cache().read(block).expect("an attribute block");
        let stored = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        counts.entry(block).or_insert((stored, 0)).1 += 1;
    }
    counts
}

/// Fails unless each attribute block says how many inodes share it. Returns how many have one, and
/// how many blocks there are.
pub(crate) fn assert_counts(what: &str, fs: &Ext4) -> (u32, usize) {
    let counts = counts(fs);
    for (block, (stored, counted)) in &counts {
        assert_eq!(stored, counted, "{what}: block {block}");
    }
    (
        counts.values().map(|(_, counted)| counted).sum(),
        counts.len(),
    )
}

/// A volume in memory.
struct Volume {
    what: &'static str,
    image: Image,
    device: Arc<MemoryDevice>,
    fs: Arc<Ext4>,
    session: Session,
}

impl Volume {
    fn open(spec: &ImageSpec) -> Self {
        Self::open_image(spec.name, spec.build())
    }

    fn open_image(what: &'static str, image: Image) -> Self {
        let device = Arc::new(MemoryDevice::new(
            std::fs::read(&image.path).expect("the image is read"),
        ));
        let fs = memory::open(what, &device);
        Self {
            what,
            image,
            device,
            session: session(Arc::clone(&fs) as _),
            fs,
        }
    }

    fn file(&self, path: &str) {
        drop(
            open(
                &self.session,
                path,
                OpenFlags::WRITE | OpenFlags::CREATE,
                0o644,
            )
            .expect("a file"),
        );
    }

    fn set(&self, path: &str, value: &[u8]) {
        let set = self.session.set_xattr(
            path,
            "user.v",
            value,
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        );
        set.unwrap_or_else(|e| panic!("{}: {path}: {e}", self.what));
    }

    fn get(&self, path: &str) -> Vec<u8> {
        self.session
            .get_xattr(path, "user.v", LookupFlags::FOLLOW)
            .expect("a value")
    }

    fn block(&self, path: &str) -> Option<u64> {
        let ino = self
            .session
            .stat(path, LookupFlags::NOFOLLOW)
            .expect("a file")
            .ino;
        self.fs
            .raw_inode(ino as u32)
            .expect("an inode")
            .xattr_block()
    }

    /// Closes it and has it judged.
    fn close(self) -> Image {
        self.session
            .namespace()
            .root()
            .superblock()
            .sync()
            .expect("sync");
        assert_counts(self.what, &self.fs);
        drop(self.session);
        self.fs.close().expect("close");
        drop(self.fs);
        memory::judge_in(self.what, &self.device, &self.image);
        self.image
    }
}

const EXT4: ImageSpec = ImageSpec::new(
    "ext4",
    48 << 20,
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
);
const VALUES: ImageSpec = ImageSpec::new(
    "ext4-values",
    48 << 20,
    &[
        "-t", "ext4", "-b", "1024", "-I", "128", "-J", "size=4", "-O", "ea_inode",
    ],
);

fn value(of: u32, len: usize) -> Vec<u8> {
    of.to_le_bytes().into_iter().cycle().take(len).collect()
}

#[test]
fn a_block_is_shared_by_1024() {
    if !EXT4.can_run() {
        return;
    }
    let volume = Volume::open(&EXT4);
    let path = |number: u32| format!("/f{number}");
    for number in 0..2100 {
        volume.file(&path(number));
        volume.set(&path(number), &value(1, 500));
    }
    assert_eq!(assert_counts("filled", &volume.fs), (2100, 3));
    let mut sizes: Vec<_> = counts(&volume.fs)
        .into_values()
        .map(|(stored, _)| stored)
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [52, 1024, 1024]);
    // One leaves a full block: there is room for one, though the others are found first.
    let full = volume.block("/f0");
    volume.session.unlink("/f0").expect("it goes");
    for number in 2100..2100 + 973 {
        volume.file(&path(number));
        volume.set(&path(number), &value(1, 500));
    }
    assert_eq!(counts(&volume.fs).len(), 3, "there was room for 973");
    assert_eq!(volume.block("/f1"), full);
    volume.file("/last");
    volume.set("/last", &value(1, 500));
    assert_eq!(assert_counts("one too many", &volume.fs).1, 4);
    for number in 1..2100 + 973 {
        volume.session.unlink(path(number)).expect("it goes");
    }
    assert_eq!(assert_counts("emptied", &volume.fs), (1, 1));
    volume.close();
}

/// A change of one inode that shares a block leaves the others as they are.
#[test]
fn sharing_survives_other_changes_of_an_inode() {
    for spec in [EXT4, VALUES] {
        if !spec.can_run() {
            return;
        }
        let volume = Volume::open(&spec);
        let names = ["/a", "/b", "/c", "/d", "/e"];
        for name in names {
            volume.file(name);
            volume.set(name, &value(7, 700));
        }
        let session = &volume.session;
        let shared = volume.block("/a");
        let assert_shared = |by: &[&str]| {
            assert!(
                by.iter()
                    .all(|name| volume.block(name) == shared && shared.is_some()),
                "{by:?}"
            );
            assert!(
                by.iter().all(|name| volume.get(name) == value(7, 700)),
                "{by:?}"
            );
            assert_eq!(
                counts(&volume.fs)[&shared.expect("a block")],
                (by.len() as u32, by.len() as u32)
            );
        };
        assert_shared(&names);
        session
            .chown("/a", Some(1000), Some(1001), LookupFlags::FOLLOW)
            .expect("an owner");
        session
            .chmod("/b", 0o600, LookupFlags::FOLLOW)
            .expect("a mode");
        session
            .truncate("/c", 70_000, LookupFlags::FOLLOW)
            .expect("a size");
        session
            .rename("/d", "/f", extern4_vfs::RenameFlags::empty())
            .expect("a name");
        assert_shared(&["/a", "/b", "/c", "/f", "/e"]);
        // Each inode that shares it counts it.
        let sectors = |name| {
            session
                .stat(name, LookupFlags::FOLLOW)
                .expect("attributes")
                .blocks
        };
        assert_eq!((sectors("/a"), sectors("/b"), sectors("/e")), (2, 2, 2));
        session
            .set_acl("/a", AclKind::Access, Some(acl(5)), LookupFlags::FOLLOW)
            .expect("an ACL");
        assert!(
            volume.block("/a") != shared || spec.name == "ext4",
            "{}",
            spec.name
        );
        session
            .remove_xattr("/b", "user.v", LookupFlags::FOLLOW)
            .expect("it goes");
        assert_eq!((volume.block("/b"), sectors("/b")), (None, 0));
        session.unlink("/e").expect("it goes");
        volume.set("/f", &value(8, 700));
        assert_eq!(volume.get("/c"), value(7, 700));
        // An attribute that is set back is shared again.
        volume.set("/f", &value(7, 700));
        volume.set("/b", &value(7, 700));
        assert!(
            volume.block("/f") == volume.block("/c") && volume.block("/b") == volume.block("/c")
        );
        session
            .chmod("/a", 0o640, LookupFlags::FOLLOW)
            .expect("a mode, and the ACL with it");
        volume.close();
    }
}

/// ACLs that are alike, too: ACLs that new files inherit, and ACLs that a mode changes.
#[test]
fn acls_are_shared() {
    if !VALUES.can_run() {
        return;
    }
    let volume = Volume::open(&VALUES);
    let session = &volume.session;
    session.mkdir("/dir", 0o755).expect("a directory");
    session
        .set_acl("/dir", AclKind::Default, Some(acl(6)), LookupFlags::FOLLOW)
        .expect("an ACL");
    for number in 0..20 {
        volume.file(&format!("/dir/{number}"));
    }
    assert_eq!(assert_counts("inherited", &volume.fs), (21, 2));
    for number in 0..10 {
        session
            .chmod(format!("/dir/{number}"), 0o600, LookupFlags::FOLLOW)
            .expect("a mode");
    }
    assert_eq!(assert_counts("changed", &volume.fs), (21, 3));
    volume.close();
}

/// Equal values are in one inode, under any names; and a block that refers to it counts once.
#[test]
fn values_are_shared() {
    if !VALUES.can_run() {
        return;
    }
    let volume = Volume::open(&VALUES);
    let free = || volume.fs.stat().expect("statistics").files_free;
    let names = ["/a", "/b", "/c"];
    names.iter().for_each(|name| volume.file(name));
    let before = free();
    for name in names {
        volume.set(name, &value(3, 9000));
        volume.set(name, &value(3, 9000));
        let set = volume.session.set_xattr(
            name,
            "user.other",
            &value(3, 9000),
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        );
        set.expect("a value");
    }
    assert_eq!(before - free(), 1);
    assert_eq!(assert_counts("values", &volume.fs), (3, 1));
    volume.set("/a", &value(4, 9000));
    assert_eq!(before - free(), 2);
    volume.session.unlink("/b").expect("it goes");
    volume
        .session
        .remove_xattr("/c", "user.v", LookupFlags::FOLLOW)
        .expect("it goes");
    assert_eq!(
        volume
            .session
            .get_xattr("/a", "user.other", LookupFlags::FOLLOW)
            .expect("a value"),
        value(3, 9000)
    );
    volume.session.unlink("/a").expect("it goes");
    assert_eq!(
        before + 2 - free(),
        1,
        "two files less, and a value that the third one has"
    );
    volume.session.unlink("/c").expect("it goes");
    volume.close();
}

fn set_by_kernel(root: &Path, names: &[&str]) -> std::io::Result<()> {
    for name in names {
        std::fs::write(root.join(name), b"x")?;
        rustix::fs::setxattr(
            root.join(name),
            "user.v",
            &value(9, 600),
            rustix::fs::XattrFlags::empty(),
        )?;
    }
    Ok(())
}

fn two_by_kernel(root: &Path) -> std::io::Result<()> {
    set_by_kernel(root, &["a", "b"])
}

#[test]
fn extern4_and_the_kernel_share_each_others_blocks() {
    const BY_KERNEL: &[Plan] = &[two_by_kernel];
    let spec = EXT4.mounted(BY_KERNEL);
    if !spec.can_run() {
        return;
    }
    let volume = Volume::open(&spec);
    // As in the kernel, a block can be shared only after it has been read.
    assert_eq!(volume.get("/a"), value(9, 600));
    volume.file("/c");
    volume.set("/c", &value(9, 600));
    volume.file("/d");
    volume.set("/d", &value(10, 600));
    assert_eq!(assert_counts("the kernel's", &volume.fs), (4, 2));
    let image = volume.close();
    let mount = image.mount("noatime");
    for name in ["c", "d"] {
        let mut bytes = vec![0; 1000];
        rustix::fs::getxattr(mount.path.join(name), "user.v", &mut bytes[..]).expect("a value");
    }
    set_by_kernel(&mount.path, &["e"]).expect("the kernel sets it");
    std::fs::write(mount.path.join("f"), b"").expect("a file");
    rustix::fs::setxattr(
        mount.path.join("f"),
        "user.v",
        &value(10, 600),
        rustix::fs::XattrFlags::empty(),
    )
    .expect("the kernel sets it");
    std::fs::remove_file(mount.path.join("a")).expect("it goes");
    mount.unmount();
    tools::e2fsck(&image.path).expect("no fault");
    assert_eq!(assert_counts("both", &walk::open(&image.path)), (5, 2));
}

/// The kernel takes a block apart whose value we have counted once, as e2fsck counts it, for all
/// inodes that share the block.
#[test]
fn the_kernel_leaves_values_of_blocks_that_we_shared() {
    if !VALUES.can_run() {
        return;
    }
    let volume = Volume::open(&VALUES);
    for name in ["/a", "/b", "/c", "/d"] {
        volume.file(name);
        volume.set(name, &value(3, 9000));
    }
    assert_eq!(assert_counts("ours", &volume.fs), (4, 1));
    let image = volume.close();
    let mount = image.mount("noatime");
    std::fs::remove_file(mount.path.join("a")).expect("it goes");
    rustix::fs::removexattr(mount.path.join("b"), "user.v").expect("it goes");
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(mount.path.join("c"), "user.more", b"x", set).expect("the kernel sets it");
    mount.unmount();
    let said = tools::e2fsck(&image.path);
    let mount = image.mount("noatime");
    for name in ["c", "d"] {
        let mut bytes = vec![0; 10_000];
        let len =
            rustix::fs::getxattr(mount.path.join(name), "user.v", &mut bytes[..]).expect("a value");
        assert_eq!(bytes[..len], value(3, 9000));
    }
    mount.unmount();
    said.expect("no fault");
}

/// A block whose hash is 0 is never shared, with any contents.
#[test]
fn a_block_without_a_hash_is_not_shared() {
    let spec = ImageSpec::new(
        "ext4-plain",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    );
    if !spec.can_run() {
        return;
    }
    let volume = Volume::open(&spec);
    volume.file("/a");
    volume.set("/a", &value(9, 600));
    let block = volume.block("/a").expect("a block");
    let image = volume.close();
    let mut bytes = std::fs::read(&image.path).expect("the image is read");
    bytes[block as usize * 1024 + 12..][..4].fill(0);
    std::fs::write(&image.path, bytes).expect("the image is written");
    let volume = Volume::open_image("without a hash", image);
    assert_eq!(volume.get("/a"), value(9, 600));
    volume.file("/b");
    volume.set("/b", &value(9, 600));
    assert_eq!(assert_counts("apart", &volume.fs), (2, 2));
    volume.session.unlink("/a").expect("it goes");
    volume.close();
}

/// CVE-2025-40190: a value's count went below zero, and the inode of a value in use was freed.
#[test]
fn an_uncounted_value_is_damage() {
    if !VALUES.can_run() {
        return;
    }
    let volume = Volume::open(&VALUES);
    volume.file("/a");
    volume.set("/a", &value(3, 9000));
    let ino = volume
        .session
        .stat("/a", LookupFlags::FOLLOW)
        .expect("a file")
        .ino
        + 1;
    let image = volume.close();
    for field in ["ctime", "version"] {
        let command = format!("set_inode_field <{ino}> {field} 0");
        tools::run(
            "debugfs",
            ["-w", "-R", &command, image.path.to_str().expect("UTF-8")],
        );
    }
    let volume = Volume::open_image("uncounted", image);
    assert_eq!(volume.get("/a"), value(3, 9000));
    volume.file("/b");
    volume.fs.sync().expect("a commit");
    let removed = volume
        .session
        .remove_xattr("/a", "user.v", LookupFlags::FOLLOW);
    assert_eq!(removed.map_err(|e| e.errno()), Err(Errno::EUCLEAN));
}

/// 3dc96bba65f5, 65f8b80053a1: a thread that found a block while its last owner freed it took
/// journal access to it. That took back its revocation, so that a replay of the journal wrote it
/// over what the block had become.
#[test]
fn reuse_against_the_last_release() {
    if !EXT4.can_run() {
        return;
    }
    for seed in 0..memory::number("EXTERN4_CROWDS", 2) {
        let volume = Volume::open(&EXT4);
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let volume = &volume;
                scope.spawn(move || {
                    let path = format!("/f{thread}");
                    volume.file(&path);
                    for round in 0..300 {
                        let of = (round * 7 + thread + seed as u32) % 3;
                        volume.set(&path, &value(of, 600));
                        assert_eq!(volume.get(&path), value(of, 600));
                        match (round + thread) % 5 {
                            0 => volume
                                .session
                                .remove_xattr(&path, "user.v", LookupFlags::FOLLOW)
                                .expect("it goes"),
                            1 => {
                                volume.session.unlink(&path).expect("it goes");
                                volume.file(&path);
                                // The former attribute block is a directory's now.
                                let dir = format!("/d{thread}-{round}");
                                volume.session.mkdir(&dir, 0o755).expect("a directory");
                            }
                            _ => {}
                        }
                        if thread == 0 && round % 50 == 49 {
                            volume.fs.sync().expect("a commit");
                        }
                    }
                });
            }
        });
        volume.fs.sync().expect("a commit");
        assert_counts("before", &volume.fs);
        // Without closing it: the journal is replayed, by the kernel and by us.
        let left = memory::contents(&volume.device);
        std::fs::write(&volume.image.path, &left).expect("the image is written");
        assert_counts("replayed by us", &walk::open(&volume.image.path));
        let mount = volume.image.mount("noatime");
        mount.unmount();
        tools::e2fsck(&volume.image.path).expect("no fault");
        assert_counts("replayed by the kernel", &walk::open(&volume.image.path));
        volume.close();
    }
}

/// Values with equal hashes: the hash rotates by 16 bits for each word, so two words at a distance
/// of two cancel out.
fn colliding(of: u32) -> Vec<u8> {
    let mut bytes = vec![0x55; 400];
    for at in [0, 8] {
        bytes[at..at + 4].copy_from_slice(&of.to_le_bytes());
    }
    bytes
}

/// A thread that compares a block joins it for that time. If the contents differ and all other
/// inodes have left the block meanwhile, the thread frees it.
#[test]
fn a_failed_join_frees_a_block_that_all_others_left() {
    if !EXT4.can_run() {
        return;
    }
    let volume = Volume::open(&EXT4);
    let free = || {
        volume.fs.sync().expect("a commit");
        volume.fs.statfs().expect("counts").blocks_free
    };
    (0..4).for_each(|thread| volume.file(&format!("/f{thread}")));
    let before = free();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let volume = &volume;
            scope.spawn(move || {
                let path = format!("/f{thread}");
                for round in 0..60_000 * memory::number("EXTERN4_CROWDS", 1) as u32 {
                    let of = 100 * thread + round % 3;
                    volume.set(&path, &colliding(of));
                    if round % 1000 == 0 {
                        assert_eq!(volume.get(&path), colliding(of));
                    }
                }
                volume
                    .session
                    .remove_xattr(&path, "user.v", LookupFlags::FOLLOW)
                    .expect("it goes");
            });
        }
    });
    let stats = volume.fs.sharing_stats().expect("it is written");
    assert!(
        stats.differing > 0 && stats.blocks.entries == 0,
        "{stats:?}"
    );
    assert_eq!(free(), before, "a block is lost");
    volume.close();
}

/// Nothing that is found is looked at twice, and what is set is what is read, with hashes that are
/// all equal.
#[test]
fn values_with_equal_hashes_are_told_apart() {
    if !EXT4.can_run() {
        return;
    }
    let volume = Volume::open(&EXT4);
    for number in 0..40 {
        let path = format!("/f{number}");
        volume.file(&path);
        volume.set(&path, &colliding(number % 20));
        assert_eq!(volume.get(&path), colliding(number % 20));
    }
    let blocks: HashSet<_> = (0..40)
        .map(|number| volume.block(&format!("/f{number}")))
        .collect();
    let hash = |block: &Option<u64>| {
        let bytes = volume
            .fs
            .cache()
            .read(block.expect("a block"))
            .expect("it is there");
        u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])
    };
    assert_eq!(
        blocks.iter().map(hash).collect::<HashSet<_>>().len(),
        1,
        "they do not collide"
    );
    let stats = volume.fs.sharing_stats().expect("it is written");
    assert!(
        stats.differing <= 40 * 7 && stats.differing > 0,
        "{stats:?}"
    );
    assert!(stats.blocks.entries <= 7, "{stats:?}");
    volume.close();
}
