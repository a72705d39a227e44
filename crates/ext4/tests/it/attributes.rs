//! Changes of extended attributes, ACLs, owners, times and flags, judged by e2fsck and the kernel's
//! mount.
//!
//! Attributes are set and removed at random, and must read back. Inodes that share blocks and
//! values must keep theirs when one of them changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use extern4_block::{FileDevice, FileOptions};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools;
use extern4_testkit::tree::{self, assert_same};
use extern4_vfs::{
    Acl, AclEntry, AclKind, AclTag, Cred, DirBatch, Errno, FileFlags, FileSystem, LookupFlags,
    Namespace, NewKind, OpenFlags, RenameFlags, Session, SetTime, SuperBlock, SuperOptions,
    Timespec, XattrFlags,
};

use crate::walk;

/// A volume open for writing.
struct Writing {
    fs: Arc<Ext4>,
    session: Session,
}

impl Writing {
    fn open(image: &Image) -> Self {
        let device = Arc::new(opened(image, true));
        let fs = Ext4::open_for_writing(device, &OpenOptions::default()).expect("the volume opens");
        let fs = Arc::new(fs);
        let sb = SuperBlock::new(
            Arc::clone(&fs) as Arc<dyn FileSystem>,
            SuperOptions::default(),
        );
        let session = Session::new(&Namespace::new(sb.expect("a root")), Cred::root());
        Self { fs, session }
    }

    /// Closes the volume, and compares what this crate showed of it with what the kernel shows.
    fn close(self, what: &str, image: &Image) {
        self.fs.sync().expect("a commit");
        let ours = walk::tree(&*self.fs);
        drop(self.session);
        self.fs.close().expect("the volume closes");
        drop(self.fs);
        let checked = tools::try_run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]);
        checked.unwrap_or_else(|e| panic!("{what}: {e}\n{}", said(&image.path)));
        let mount = image.mount("ro,noatime");
        assert_same(what, &ours, &tree::from_mount(&mount.path));
        mount.unmount();
        let device = Arc::new(opened(image, false));
        let again = Ext4::open(device, &OpenOptions::default()).expect("the volume opens");
        assert_same(what, &walk::tree(&again), &ours);
    }
}

/// The device of an image. A loop device lets go of the image a moment after it has been unmounted.
fn opened(image: &Image, write: bool) -> FileDevice {
    let options = FileOptions {
        write,
        ..FileOptions::default()
    };
    let open = || FileDevice::open_with(&image.path, &options);
    let wait = |_: &u32| std::thread::sleep(std::time::Duration::from_millis(20));
    open()
        .ok()
        .or_else(|| (0..100).inspect(wait).find_map(|_| open().ok()))
        .expect("the image opens")
}

/// Returns the findings of e2fsck.
fn said(image: &Path) -> String {
    let out = std::process::Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output();
    out.map_or(String::new(), |out| {
        String::from_utf8_lossy(&out.stdout).into_owned()
    })
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

const FILES: [&str; 7] = ["/a", "/b", "/c", "/dir", "/dir/d", "/empty", "/link"];

fn files(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir(root.join("dir"))?;
    std::fs::create_dir(root.join("empty"))?;
    for (name, len) in [("a", 10), ("b", 5000), ("c", 0), ("dir/d", 100)] {
        std::fs::write(root.join(name), vec![b'x'; len])?;
    }
    std::os::unix::fs::symlink("target", root.join("link"))
}

/// Inodes of 128, 256 and 1024 bytes, blocks of 1 and 4 KiB, with and without checksums and EA
/// inodes.
const VOLUMES: [ImageSpec; 10] = [
    volume(
        "i128_1k",
        &[
            "-t",
            "ext4",
            "-I",
            "128",
            "-b",
            "1024",
            "-O",
            "^has_journal,^metadata_csum",
        ],
    ),
    volume(
        "i128_4k_csum",
        &[
            "-t",
            "ext4",
            "-I",
            "128",
            "-b",
            "4096",
            "-O",
            "^has_journal,metadata_csum",
        ],
    ),
    volume(
        "i256_1k_csum",
        &[
            "-t",
            "ext4",
            "-I",
            "256",
            "-b",
            "1024",
            "-O",
            "^has_journal,metadata_csum",
        ],
    ),
    volume(
        "i256_1k_ea",
        &[
            "-t",
            "ext4",
            "-I",
            "256",
            "-b",
            "1024",
            "-O",
            "^has_journal,^metadata_csum,ea_inode",
        ],
    ),
    volume(
        "i256_4k_ea",
        &[
            "-t",
            "ext4",
            "-I",
            "256",
            "-b",
            "4096",
            "-O",
            "^has_journal,metadata_csum,ea_inode",
        ],
    ),
    volume(
        "i1024_4k_ea",
        &[
            "-t",
            "ext4",
            "-I",
            "1024",
            "-b",
            "4096",
            "-O",
            "^has_journal,ea_inode,^64bit",
        ],
    ),
    volume(
        "i1024_1k_ea_inline",
        &[
            "-t",
            "ext4",
            "-I",
            "1024",
            "-b",
            "1024",
            "-O",
            "ea_inode,inline_data",
        ],
    ),
    SMALL_EA,
    volume(
        "ext2",
        &["-t", "ext2", "-I", "128", "-b", "1024", "-O", "^ext_attr"],
    ),
    volume(
        "ext2_1k_ea",
        &["-t", "ext2", "-I", "256", "-b", "1024", "-O", "ea_inode"],
    ),
];

/// Entries of values in EA inodes are in the block, because there is no room in the inode.
const SMALL_EA: ImageSpec = volume(
    "i128_1k_ea",
    &[
        "-t",
        "ext4",
        "-I",
        "128",
        "-b",
        "1024",
        "-O",
        "^has_journal,metadata_csum,ea_inode",
    ],
);

const fn volume(name: &'static str, mke2fs: &'static [&'static str]) -> ImageSpec {
    ImageSpec::new(name, 32 << 20, mke2fs)
}

/// The attributes of each file as they should be.
type Model = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>;

#[test]
fn random_attributes_read_back() {
    for (seed, spec) in VOLUMES.iter().enumerate() {
        let spec = spec.mounted_with("noatime,user_xattr,acl", &[files]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let mut random = Random(seed as u64 + 1);
        let mut model = Model::new();
        // Opened twice, so that what was written is read again.
        for _ in 0..2 {
            let writing = Writing::open(&image);
            let mut done = 0;
            for _ in 0..400 {
                done += usize::from(step(&writing.session, &mut random, &mut model, spec.name));
            }
            assert!(done > 200, "{}: {done} of 400 changes succeeded", spec.name);
            check(&writing.session, &model, spec.name);
            writing.close(spec.name, &image);
        }
        let session = Writing::open(&image);
        check(&session.session, &model, spec.name);
        // Without any attributes, everything that they took is free again.
        for (path, attributes) in &model {
            for name in attributes.keys() {
                session
                    .session
                    .remove_xattr(path, name, LookupFlags::NOFOLLOW)
                    .expect("it is there");
            }
        }
        session.close(spec.name, &image);
    }
}

/// Sets or removes an attribute; false if there was no room for it.
fn step(session: &Session, random: &mut Random, model: &mut Model, what: &str) -> bool {
    let path = FILES[random.below(FILES.len() as u64) as usize];
    let space = if path == "/link" || random.below(4) == 0 {
        "trusted."
    } else {
        "user."
    };
    let name = format!(
        "{space}{}",
        "abcdefghijklmnop"
            .repeat(5)
            .split_at(random.below(12) as usize * 3 + 1)
            .0
    );
    let attributes = model.entry(path).or_default();
    let known = attributes.contains_key(name.as_bytes());
    if random.below(4) == 0 {
        let removed = session.remove_xattr(path, &name, LookupFlags::NOFOLLOW);
        assert_eq!(
            removed.map_err(|e| e.errno()),
            if known { Ok(()) } else { Err(Errno::ENODATA) },
            "{what}"
        );
        attributes.remove(name.as_bytes());
        return true;
    }
    let max = [1, 8, 64, 200, 900, 3900, 12_000, 65_537][random.below(8) as usize];
    let value: Vec<u8> = (0..random.below(max))
        .map(|_| random.below(256) as u8)
        .collect();
    let flags =
        [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][random.below(3) as usize];
    match session
        .set_xattr(path, &name, &value, flags, LookupFlags::NOFOLLOW)
        .map_err(|e| e.errno())
    {
        Ok(()) => {
            assert!(
                !(flags == XattrFlags::CREATE && known) && (flags != XattrFlags::REPLACE || known),
                "{what}"
            );
            attributes.insert(name.into_bytes(), value);
            true
        }
        Err(Errno::EEXIST) => {
            assert!(flags == XattrFlags::CREATE && known);
            true
        }
        Err(Errno::ENODATA) => {
            assert!(flags == XattrFlags::REPLACE && !known);
            true
        }
        Err(errno) => {
            assert_eq!(
                errno,
                Errno::ENOSPC,
                "{what}: {path} {name} {}",
                value.len()
            );
            false
        }
    }
}

fn check(session: &Session, model: &Model, what: &str) {
    for (path, attributes) in model {
        let mut names = session
            .list_xattr(path, LookupFlags::NOFOLLOW)
            .expect("a list");
        names.sort();
        assert_eq!(
            names,
            attributes.keys().cloned().collect::<Vec<_>>(),
            "{what}: {path}"
        );
        for (name, value) in attributes {
            let shown = session.get_xattr(path, name, LookupFlags::NOFOLLOW);
            assert!(
                shown.as_ref().is_ok_and(|shown| shown == value),
                "{what}: {path}: {shown:?}"
            );
        }
    }
}

/// An ACL with `users` named users.
fn acl(users: u32) -> Acl {
    let entry = |tag, perm| AclEntry { tag, perm };
    let mut entries = vec![entry(AclTag::UserObj, 6)];
    entries.extend((0..users).map(|user| entry(AclTag::User(1000 + user), (user % 8) as u8)));
    entries.extend([
        entry(AclTag::GroupObj, 5),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 1),
    ]);
    Acl::new(entries).expect("an ACL")
}

#[test]
fn acls_owners_times_and_flags() {
    for spec in &VOLUMES {
        let spec = spec.mounted_with("noatime,user_xattr,acl", &[files]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        let session = &writing.session;
        session
            .set_acl("/a", AclKind::Access, Some(acl(3)), LookupFlags::FOLLOW)
            .expect("an ACL");
        session
            .set_acl("/dir", AclKind::Access, Some(acl(40)), LookupFlags::FOLLOW)
            .expect("an ACL");
        session
            .set_acl("/dir", AclKind::Default, Some(acl(50)), LookupFlags::FOLLOW)
            .expect("an ACL");
        session
            .mknod("/dir/e", NewKind::Regular, 0o644)
            .expect("a file");
        session
            .rename("/dir/e", "/dir/f", RenameFlags::WHITEOUT)
            .expect("a whiteout is left");
        let left = session
            .acl("/dir/e", AclKind::Access, LookupFlags::FOLLOW)
            .expect("an ACL");
        assert_eq!(left.as_deref(), acl(50).for_new_file(0).0.as_ref());
        session
            .set_acl("/b", AclKind::Access, Some(acl(2)), LookupFlags::FOLLOW)
            .expect("an ACL");
        session
            .set_acl("/b", AclKind::Access, None, LookupFlags::FOLLOW)
            .expect("an ACL goes");
        session
            .set_acl("/c", AclKind::Access, None, LookupFlags::FOLLOW)
            .expect("no ACL");
        session
            .set_acl(
                "/c",
                AclKind::Access,
                Some(Acl::from_mode(0o640)),
                LookupFlags::FOLLOW,
            )
            .expect("a mode");
        session
            .chmod("/a", 0o4750, LookupFlags::FOLLOW)
            .expect("a mode");
        session
            .chown("/b", Some(100_000), Some(70_000), LookupFlags::FOLLOW)
            .expect("an owner");
        session
            .chown("/link", Some(5), None, LookupFlags::NOFOLLOW)
            .expect("an owner");
        let time = SetTime::At(Timespec {
            sec: 1 << 31,
            nsec: 999_999_999,
        });
        session
            .utimens("/c", time, SetTime::Now, LookupFlags::FOLLOW)
            .expect("times");
        let nodump = FileFlags::from_bits_retain(0x40);
        let flags = session
            .stat("/b", LookupFlags::FOLLOW)
            .expect("attributes")
            .flags;
        session
            .set_flags(
                "/b",
                flags | nodump | FileFlags::NOATIME,
                LookupFlags::FOLLOW,
            )
            .expect("flags");
        let directory_only = FileFlags::from_bits_retain(0x1_0000);
        session
            .set_flags("/dir", directory_only, LookupFlags::FOLLOW)
            .expect("flags");
        let refused = session
            .set_flags("/a", directory_only, LookupFlags::FOLLOW)
            .map_err(|e| e.errno());
        assert_eq!(refused, Err(Errno::EOPNOTSUPP));
        let casefold = session
            .set_flags("/empty", FileFlags::CASEFOLD, LookupFlags::FOLLOW)
            .map_err(|e| e.errno());
        assert_eq!(casefold, Err(Errno::EOPNOTSUPP));
        // More than a block holds.
        let large = session.set_acl(
            "/dir/d",
            AclKind::Access,
            Some(acl(1200)),
            LookupFlags::FOLLOW,
        );
        let room = spec.name.contains("_ea");
        assert_eq!(
            large.map_err(|e| e.errno()),
            if room { Ok(()) } else { Err(Errno::ENOSPC) },
            "{}",
            spec.name
        );
        let shown = session
            .acl("/dir", AclKind::Default, LookupFlags::FOLLOW)
            .expect("an ACL");
        assert_eq!(shown.as_deref(), Some(&acl(50)));
        writing.close(spec.name, &image);
    }
}

fn set_alike(root: &Path, attributes: &[(&str, usize)]) -> std::io::Result<()> {
    for name in ["a", "b", "c"] {
        let path = root.join(name);
        std::fs::write(&path, b"x")?;
        for (name, len) in attributes {
            rustix::fs::setxattr(
                &path,
                *name,
                &vec![b'v'; *len],
                rustix::fs::XattrFlags::empty(),
            )?;
        }
    }
    Ok(())
}

/// Files with equal attributes. Linux puts those into one block, if it is the first that goes
/// there.
fn alike(root: &Path) -> std::io::Result<()> {
    set_alike(root, &[("user.one", 400)])
}

/// Files with equal attributes whose values are in one EA inode.
fn alike_elsewhere(root: &Path) -> std::io::Result<()> {
    set_alike(root, &[("user.one", 9000)])
}

/// A write removes capabilities from the inode's record and from a block, through the session that
/// set them and through one that reads the inode again.
#[test]
fn a_write_takes_capabilities_off() {
    for (size, args) in [
        (256, &["-t", "ext4", "-I", "256"]),
        (128, &["-t", "ext4", "-I", "128"]),
    ] {
        let spec = ImageSpec::new("capabilities", 8 << 20, args);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        // Those to bind to low ports, permitted and effective.
        let value: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let give = |session: &Session, path| {
            let set = session.set_xattr(
                path,
                "security.capability",
                &value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            );
            set.expect("room");
        };
        let write = |session: &Session, path| {
            let file = session
                .open(path, OpenFlags::WRITE | OpenFlags::CREATE)
                .expect("a file");
            file.write_at(b"x", 0).expect("room");
        };
        let names = |session: &Session, path| {
            session
                .list_xattr(path, LookupFlags::FOLLOW)
                .expect("a list")
        };
        let writing = Writing::open(&image);
        for path in ["/a", "/b"] {
            write(&writing.session, path);
            give(&writing.session, path);
        }
        write(&writing.session, "/a");
        assert_eq!(
            names(&writing.session, "/a"),
            Vec::<Vec<u8>>::new(),
            "{size}"
        );
        writing.close("given", &image);
        let writing = Writing::open(&image);
        assert_eq!(
            names(&writing.session, "/a"),
            Vec::<Vec<u8>>::new(),
            "{size}"
        );
        assert_eq!(
            names(&writing.session, "/b"),
            [b"security.capability"],
            "{size}"
        );
        write(&writing.session, "/b");
        assert_eq!(
            names(&writing.session, "/b"),
            Vec::<Vec<u8>>::new(),
            "{size}"
        );
        writing.close("taken", &image);
    }
}

#[test]
fn shared_blocks_and_values_stay_with_the_other_inodes() {
    let cases = [
        (VOLUMES[0].mounted(&[alike]), 400, true),
        (VOLUMES[2].mounted(&[alike]), 400, true),
        (VOLUMES[4].mounted(&[alike]), 400, true),
        // The entry is in the inode; and in the block.
        (VOLUMES[4].mounted(&[alike_elsewhere]), 9000, false),
        // Linux 6.18 counts a reference for each file that shares the block; e2fsck says that there
        // is one, and puts it right.
        (
            SMALL_EA
                .mounted(&[alike_elsewhere])
                .then(&[Step::E2fsck(&[])]),
            9000,
            true,
        ),
    ];
    for (spec, len, in_block) in cases {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        let session = &writing.session;
        let block = |path| {
            let ino = session.stat(path, LookupFlags::FOLLOW).expect("a file").ino;
            writing
                .fs
                .raw_inode(ino as u32)
                .expect("an inode")
                .xattr_block()
        };
        let blocks = ["/a", "/b", "/c"].map(block);
        let same = blocks.iter().all(|block| *block == blocks[0]);
        assert!(
            same && blocks[0].is_some() == in_block,
            "{} {blocks:?}",
            spec.name
        );
        let set = |path, name, len| {
            let set = session.set_xattr(
                path,
                name,
                &vec![b'u'; len],
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            );
            set.unwrap_or_else(|e| panic!("{}: {name}: {e}", spec.name));
        };
        // One more attribute next to the shared one, and the shared one goes.
        set("/a", "user.two", 300);
        let value = session
            .get_xattr("/a", "user.one", LookupFlags::FOLLOW)
            .expect("it is there");
        assert_eq!(value, vec![b'v'; len], "{}", spec.name);
        session
            .remove_xattr("/b", "user.one", LookupFlags::FOLLOW)
            .expect("it is there");
        for path in ["/a", "/c"] {
            let value = session
                .get_xattr(path, "user.one", LookupFlags::FOLLOW)
                .expect("it is there");
            assert_eq!(value, vec![b'v'; len], "{} {path}", spec.name);
        }
        set("/a", "user.one", len);
        set("/b", "user.one", 200);
        let value = session
            .get_xattr("/c", "user.one", LookupFlags::FOLLOW)
            .expect("it is there");
        assert_eq!(value, vec![b'v'; len], "{}", spec.name);
        session.unlink("/c").expect("it goes");
        writing.close(spec.name, &image);
    }
}

#[test]
fn a_short_link_with_a_large_attribute_leads_where_it_did() {
    fn link(root: &Path) -> std::io::Result<()> {
        let path = root.join("link");
        std::os::unix::fs::symlink("target", &path)?;
        let flags = rustix::fs::XattrFlags::empty();
        Ok(rustix::fs::lsetxattr(
            &path,
            "trusted.large",
            &[b'w'; 9000],
            flags,
        )?)
    }
    let spec = VOLUMES[4].mounted(&[link]);
    if spec.can_run() {
        let image = spec.build();
        let theirs = spec.oracle_tree(&image);
        let fs =
            Ext4::open(Arc::new(opened(&image, false)), &OpenOptions::default()).expect("a volume");
        assert_same(spec.name, &walk::tree(&fs), &theirs);
    }
}

/// Makes files in directories of a new group, one of which hands it down.
fn make_in_groups(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    for (name, mode) in [("plain", 0o777), ("setgid", 0o2777)] {
        let dir = folder.join(name);
        std::fs::create_dir(&dir)?;
        chown(&dir, None, Some(77))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))?;
        std::fs::write(dir.join("file"), "")?;
        std::fs::create_dir(dir.join("dir"))?;
        std::os::unix::fs::symlink("target", dir.join("link"))?;
    }
    Ok(())
}

#[test]
fn new_files_take_the_group_of_their_directory_where_the_volume_says_so() {
    use std::os::unix::fs::MetadataExt as _;
    let spec = volume("groups", &["-t", "ext4"]).then(&[Step::Tune2fs(&["-o", "bsdgroups"])]);
    if !spec.can_run() {
        return;
    }
    let ours = spec.build();
    let theirs = spec.build();
    let mount = theirs.mount("");
    make_in_groups(&mount.path).expect("files");
    let writing = Writing::open(&ours);
    let session = &writing.session;
    for (dir, mode) in [("plain", 0o777), ("setgid", 0o2777)] {
        let path = |name: &str| format!("/{dir}/{name}");
        session
            .mkdir(format!("/{dir}"), 0o777)
            .expect("a directory");
        session
            .chown(format!("/{dir}"), None, Some(77), LookupFlags::FOLLOW)
            .expect("its group");
        session
            .chmod(format!("/{dir}"), mode, LookupFlags::FOLLOW)
            .expect("its mode");
        session
            .mknod(path("file"), NewKind::Regular, 0o644)
            .expect("a file");
        session.mkdir(path("dir"), 0o755).expect("a directory");
        session.symlink("target", path("link")).expect("a link");
        for name in ["file", "dir", "link"] {
            let ours = session
                .stat(path(name), LookupFlags::NOFOLLOW)
                .expect("it is there");
            let theirs = mount
                .path
                .join(dir)
                .join(name)
                .symlink_metadata()
                .expect("it is there");
            let found = (ours.gid, u32::from(ours.mode));
            assert_eq!(
                found,
                (theirs.gid(), theirs.mode() & 0o7777),
                "{dir}/{name}"
            );
        }
    }
    mount.unmount();
    writing.close("groups", &ours);
}

/// As in the kernel's mount: values that would fill the block go to separate inodes, so that
/// more attributes can be named there.
#[test]
fn values_leave_room_for_names_where_ea_inodes_are_allowed() {
    for (spec, count) in [(VOLUMES[4], 8), (VOLUMES[5], 20), (SMALL_EA, 8)] {
        if !spec.mounted(&[files]).can_run() {
            continue;
        }
        let image = spec.mounted(&[files]).build();
        let writing = Writing::open(&image);
        let size = if spec.name == VOLUMES[5].name {
            2000
        } else {
            460
        };
        for number in 0..count {
            let name = format!("user.{number}");
            let value = vec![b'v'; size];
            let set = writing.session.set_xattr(
                "/a",
                &name,
                &value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            );
            set.unwrap_or_else(|error| panic!("{} {name}: {error}", spec.name));
        }
        writing.close(spec.name, &image);
    }
}

/// Takes most blocks, and makes files for the rest: Linux does not give away the last ones.
fn fill(root: &Path) -> std::io::Result<()> {
    files(root)?;
    for number in 0..2000 {
        std::fs::write(root.join(format!("n{number}")), b"")?;
    }
    (0..)
        .map_while(|number| {
            std::fs::write(root.join(format!("fill{number}")), vec![1; 1 << 18]).ok()
        })
        .for_each(drop);
    Ok(())
}

#[test]
fn a_full_volume_refuses_and_stays_as_it_is() {
    for spec in [&VOLUMES[3], &VOLUMES[2]] {
        let spec = spec.mounted(&[fill]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        let made = std::cell::Cell::new(0u32);
        let set = |path: &str, len: usize| {
            // Each another one, so that nothing is shared.
            made.set(made.get() + 1);
            let value: Vec<u8> = made
                .get()
                .to_le_bytes()
                .into_iter()
                .cycle()
                .take(len)
                .collect();
            let set = writing.session.set_xattr(
                path,
                "user.a",
                &value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            );
            set.map_err(|e| e.errno())
        };
        let mut files = (0..2000).map(|number| format!("/n{number}"));
        for len in [60_000, 8_000, 900] {
            let refused = files.by_ref().find_map(|path| set(&path, len).err());
            assert_eq!(refused, Some(Errno::ENOSPC), "{}: {len}", spec.name);
        }
        assert!(
            files.next().is_some(),
            "{}: the files do not suffice",
            spec.name
        );
        writing.fs.sync().expect("a commit");
        let before = walk::tree(&*writing.fs);
        for len in [900, 20_000, 60_000] {
            assert_eq!(set("/a", len), Err(Errno::ENOSPC), "{}: {len}", spec.name);
        }
        assert_same(spec.name, &walk::tree(&*writing.fs), &before);
        assert_eq!(
            set("/a", 1),
            Ok(()),
            "{}: what fits in the inode needs no block",
            spec.name
        );
        writing.close(spec.name, &image);
    }
}

#[test]
fn new_files_inherit_acls_and_deleted_ones_leave_nothing() {
    // Names in directories inside their inode are not for this test.
    for spec in VOLUMES.iter().filter(|spec| !spec.name.contains("inline")) {
        let spec = spec.mounted_with("noatime,user_xattr,acl", &[files]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        let session = &writing.session;
        for users in [3, 40, 100] {
            session
                .set_acl(
                    "/dir",
                    AclKind::Default,
                    Some(acl(users)),
                    LookupFlags::FOLLOW,
                )
                .expect("an ACL");
            let dir = format!("/dir/dir{users}");
            let file = format!("/dir/file{users}");
            let large = 2 * 8 * users > 1024 && spec.name.contains("1k")
                || spec.name == "ext2" && users > 50;
            match session.mkdir(&dir, 0o777).map_err(|e| e.errno()) {
                Ok(_) => {
                    let shown = session
                        .acl(&dir, AclKind::Default, LookupFlags::FOLLOW)
                        .expect("an ACL");
                    assert_eq!(shown.as_deref(), Some(&acl(users)), "{}", spec.name);
                }
                // Both its ACLs are too large for a block.
                Err(errno) => assert!(
                    errno == Errno::ENOSPC && large,
                    "{}: {users} {errno:?}",
                    spec.name
                ),
            }
            drop(
                session
                    .mknod(&file, NewKind::Regular, 0o666)
                    .expect("a file"),
            );
            for name in ["user.a", "user.b", "user.c"] {
                let _ = session.set_xattr(
                    &file,
                    name,
                    &[1; 9000],
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                );
                let _ = session.set_xattr(
                    &file,
                    name,
                    &[2; 100],
                    XattrFlags::CREATE,
                    LookupFlags::FOLLOW,
                );
            }
        }
        session.unlink("/dir/file40").expect("it goes");
        session.rmdir("/dir/dir3").expect("it goes");
        session.unlink("/dir/d").expect("it goes");
        writing.close(spec.name, &image);
    }
}

#[test]
fn threads_change_shared_blocks_at_once() {
    for spec in [&VOLUMES[2], &VOLUMES[4]] {
        let spec = spec.mounted(&[alike]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        std::thread::scope(|scope| {
            for (seed, path) in ["/a", "/b", "/c"].into_iter().enumerate() {
                let session = writing.session.clone();
                scope.spawn(move || {
                    let mut random = Random(seed as u64 + 77);
                    for round in 0..300u32 {
                        let name = ["user.one", "user.two", "user.large", "user.x"]
                            [random.below(4) as usize];
                        let value = vec![seed as u8; 4 + random.below(5000) as usize];
                        let set = session.set_xattr(
                            path,
                            name,
                            &value,
                            XattrFlags::empty(),
                            LookupFlags::FOLLOW,
                        );
                        assert!(
                            set.is_ok_and(|()| true) || spec.name == "i256_1k_csum",
                            "{round}"
                        );
                        let _ = session.remove_xattr(path, "user.large", LookupFlags::FOLLOW);
                    }
                });
                let session = writing.session.clone();
                scope.spawn(move || {
                    for _ in 0..500 {
                        for name in session
                            .list_xattr(path, LookupFlags::FOLLOW)
                            .expect("a list")
                        {
                            match session.get_xattr(path, &name, LookupFlags::FOLLOW) {
                                Ok(value) => assert!(value.iter().all(|byte| *byte == value[0])),
                                Err(error) => assert_eq!(error.errno(), Errno::ENODATA, "{error}"),
                            }
                        }
                    }
                });
            }
        });
        writing.close(spec.name, &image);
    }
}

/// The values set twice: an attribute and its two values, which may be equal.
fn values_set_again() -> Vec<(&'static str, [Vec<u8>; 2])> {
    let acl = |gid| {
        let mut entries = Acl::from_mode(0o644).entries().to_vec();
        let named =
            [(AclTag::Group(gid), 4), (AclTag::Mask, 4)].map(|(tag, perm)| AclEntry { tag, perm });
        entries.splice(2..2, named);
        Acl::new(entries).expect("an ACL").to_xattr()
    };
    let mut cases = Vec::new();
    for (name, is, other) in [
        ("user.small", b"value".to_vec(), b"VALUE".to_vec()),
        ("user.longer", b"value".to_vec(), b"value and more".to_vec()),
        ("user.empty", Vec::new(), b"v".to_vec()),
        ("user.block", vec![7; 700], vec![8; 700]),
        ("user.elsewhere", vec![7; 3000], vec![8; 3000]),
        ("system.posix_acl_access", acl(7), acl(8)),
        (
            "system.posix_acl_access",
            Acl::from_mode(0o644).to_xattr(),
            Acl::from_mode(0o640).to_xattr(),
        ),
    ] {
        cases.extend([(name, [is.clone(), is.clone()]), (name, [is, other])]);
    }
    cases
}

/// The library reports the same time of change for a file as Linux does.
#[test]
fn a_value_that_is_there_already_is_no_change() {
    use rustix::fs::{XattrFlags as HostFlags, setxattr};
    use std::os::unix::fs::MetadataExt as _;
    let spec = volume("again", &["-t", "ext4", "-b", "1024", "-O", "ea_inode"]);
    if !spec.can_run() {
        return;
    }
    let ours = spec.build();
    let theirs = spec.build();
    let mount = theirs.mount("");
    let writing = Writing::open(&ours);
    let session = &writing.session;
    // Times are the time of the last tick.
    let later = || std::thread::sleep(std::time::Duration::from_millis(25));
    for (number, (name, [first, second])) in values_set_again().into_iter().enumerate() {
        let path = format!("/{number}");
        let host = mount.path.join(number.to_string());
        std::fs::write(&host, "").expect("a file");
        session
            .mknod(&path, NewKind::Regular, 0o644)
            .expect("a file");
        let set = |value: &[u8]| {
            setxattr(&host, name, value, HostFlags::empty()).expect("an attribute");
            session
                .set_xattr(&path, name, value, XattrFlags::empty(), LookupFlags::FOLLOW)
                .expect("an attribute");
            later();
            let host = host.metadata().expect("it is there");
            (
                session
                    .stat(&path, LookupFlags::FOLLOW)
                    .expect("it is there")
                    .ctime,
                (host.ctime(), host.ctime_nsec()),
            )
        };
        let before = set(&first);
        let after = set(&second);
        assert_eq!(
            before.0 != after.0,
            before.1 != after.1,
            "{name}, {:?}",
            first == second
        );
    }
    mount.unmount();
    writing.close("again", &ours);
}

/// The files that are read while attributes change, with their lengths. On a volume with
/// `inline_data` the first two live in their inodes.
const READ: [(&str, usize); 3] = [("small", 40), ("larger", 76), ("large", 5000)];
/// How long the second is in the end, in a block.
const SPILLED: usize = 600;
/// How long values are: some have room in the record, the others in a block.
const VALUES: [usize; 5] = [4, 300, 8, 600, 40];
const TURNS: usize = 4000;

fn to_be_read(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir(root.join("dir"))?;
    for name in ["dir/a", "dir/b", "dir/c"] {
        std::fs::write(root.join(name), "")?;
    }
    READ.iter()
        .try_for_each(|(name, len)| std::fs::write(root.join(name), vec![1; *len]))
}

fn set_by_turns(session: &Session, path: &str) {
    let set = |name, value: &[u8], flags| {
        let set = session.set_xattr(path, name, value, flags, LookupFlags::FOLLOW);
        set.unwrap_or_else(|e| panic!("{path} {name}: {e}"));
    };
    for round in 0..TURNS {
        set(
            "user.a",
            &vec![round as u8; VALUES[round % VALUES.len()]],
            XattrFlags::REPLACE,
        );
        // Comes and goes, here and there.
        set("user.b", &vec![2; 4 * (round % 64)], XattrFlags::empty());
        if round % 3 == 0 {
            session
                .remove_xattr(path, "user.b", LookupFlags::FOLLOW)
                .unwrap_or_else(|e| panic!("{path}: {e}"));
        }
    }
}

/// Changes contents that live in their inode, until they have no room there; or names of a
/// directory.
fn change_inside(session: &Session, path: &str, len: usize) {
    let write = |bytes: &[u8]| {
        let file = session.open(path, OpenFlags::WRITE).expect("a file");
        assert_eq!(
            file.write_at(bytes, 0)
                .unwrap_or_else(|e| panic!("{path}: {e}")),
            bytes.len()
        );
    };
    for round in 0..TURNS {
        if path == "/dir" {
            session
                .mknod("/dir/x", NewKind::Regular, 0o644)
                .expect("a file");
            session.unlink("/dir/x").expect("it goes");
        } else {
            write(&vec![round as u8; len]);
        }
    }
    if path == "/larger" {
        // The same as before, because a block is not written in one step.
        write(&vec![(TURNS - 1) as u8; SPILLED]);
    }
}

/// Finds attributes and contents whole, and each as it was set.
fn read_whole(session: &Session, path: &str, len: usize) {
    let all_same = |bytes: &[u8]| bytes.iter().all(|byte| *byte == bytes[0]);
    let value = session
        .get_xattr(path, "user.a", LookupFlags::FOLLOW)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(
        VALUES.contains(&value.len()) && all_same(&value),
        "{path}: {value:?}"
    );
    let mut names = session
        .list_xattr(path, LookupFlags::FOLLOW)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
    names.retain(|name| name != b"user.b");
    assert_eq!(names, [b"user.a"], "{path}");
    if path == "/dir" {
        let dir = session
            .open(path, OpenFlags::READ | OpenFlags::DIRECTORY)
            .expect("a directory");
        let mut batch = DirBatch::new();
        dir.read_dir(0, 100, &mut batch)
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(
            batch
                .iter()
                .filter(|entry| matches!(entry.name, b"a" | b"b" | b"c"))
                .count(),
            3
        );
        return;
    }
    let file = session.open(path, OpenFlags::READ).expect("a file");
    let mut bytes = vec![0; 6000];
    let read = file
        .read_at(&mut bytes, 0)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
    let is_whole = read == len || path == "/larger" && read == SPILLED;
    assert!(
        is_whole && all_same(&bytes[..read]),
        "{path}: {read} bytes, {:?}",
        &bytes[..read]
    );
}

/// A reader of contents does not wait for a writer of attributes, though the inode's record may
/// hold both.
#[test]
fn contents_and_attributes_are_whole_while_attributes_change() {
    for (is_inline, spec) in [
        (
            true,
            volume(
                "read-inline",
                &["-t", "ext4", "-I", "256", "-b", "1024", "-O", "inline_data"],
            ),
        ),
        (
            false,
            volume("read-plain", &["-t", "ext4", "-I", "256", "-b", "1024"]),
        ),
    ] {
        let spec = spec.mounted(&[to_be_read]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let writing = Writing::open(&image);
        let session = &writing.session;
        let read = READ.map(|(name, len)| (format!("/{name}"), len));
        let all: Vec<_> = read.into_iter().chain([("/dir".to_string(), 0)]).collect();
        let are_changing = AtomicUsize::new(all.len());
        for (path, _) in &all {
            let set = session.set_xattr(
                path,
                "user.a",
                &[0; 4],
                XattrFlags::CREATE,
                LookupFlags::FOLLOW,
            );
            set.expect("room");
        }
        std::thread::scope(|scope| {
            for (path, len) in &all {
                scope.spawn(|| {
                    set_by_turns(session, path);
                    are_changing.fetch_sub(1, Ordering::Relaxed);
                });
                if path == "/dir" || is_inline && path != "/large" {
                    scope.spawn(|| change_inside(session, path, *len));
                }
            }
            // A thread that fails is not waited for.
            let since = std::time::Instant::now();
            while are_changing.load(Ordering::Relaxed) > 0 && since.elapsed().as_secs() < 60 {
                all.iter()
                    .for_each(|(path, len)| (0..20).for_each(|_| read_whole(session, path, *len)));
            }
        });
        writing.close(spec.name, &image);
    }
}
