//! Volumes that `mkfs -d` makes and fills.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use extern4_testkit::image::Image;
use extern4_testkit::plan;
use extern4_testkit::tools::{Need, can_run, e2fsck, temporary};
use extern4_testkit::tree::{self, Tree};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::making::{CONFIG, Random, mke2fs, mkfs, options, sets};
use crate::run::{assert_same, command, extern4_in, failed, ok, tool};

/// Makes a tree with every kind of file and all metadata that a file can have. Times are whole
/// seconds, for small inodes.
fn make_tree(dir: &Path) {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("sub/deep")).expect("directories");
    for (name, size) in [
        ("empty", 0),
        ("small", 60),
        ("large", 300_000),
        ("sub/deep/file", 5000),
    ] {
        fs::write(tree.join(name), plan::pattern(7, 0, size)).expect("a file");
    }
    let sparse = File::create(tree.join("sparse")).expect("a file");
    sparse
        .set_len(1 << 20)
        .and_then(|()| sparse.write_all_at(b"middle", 500_000))
        .expect("a file");
    fs::hard_link(tree.join("large"), tree.join("sub/link")).expect("a link");
    symlink("../large", tree.join("sub/to")).expect("a link");
    symlink("x".repeat(200), tree.join("long")).expect("a link");
    mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("a FIFO");
    setxattr(
        tree.join("small"),
        "user.note",
        b"text",
        XattrFlags::empty(),
    )
    .expect("an attribute");
    setxattr(
        tree.join("sub"),
        "user.large",
        &[7; 700],
        XattrFlags::empty(),
    )
    .expect("an attribute");
    fs::set_permissions(tree.join("sub/deep"), fs::Permissions::from_mode(0o2750)).expect("a mode");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(tree.join("sub/deep/file"), Some(70_000), Some(8))
            .expect("an owner");
        let device = rustix::fs::makedev(300, 70_000);
        mknodat(
            CWD,
            tree.join("disk"),
            FileType::BlockDevice,
            Mode::RUSR,
            device,
        )
        .expect("a device");
    }
    fs::set_permissions(tree.join("small"), fs::Permissions::from_mode(0o4711)).expect("a mode");
    tool(
        dir,
        "find",
        [
            "tree",
            "-exec",
            "touch",
            "-h",
            "-d",
            "@1700000000",
            "{}",
            "+",
        ],
    );
}

/// The files of a tree without what a volume decides: inode numbers, times but that of the last
/// change, and lost+found.
fn facts(mut tree: Tree) -> Tree {
    tree.entries.remove(&b"/lost+found"[..]);
    for (path, entry) in &mut tree.entries {
        entry.ino = 0;
        (entry.atime, entry.ctime, entry.btime) = (None, None, None);
        (entry.blocks, entry.flags) = (None, None);
        if entry.kind == tree::Kind::Directory {
            entry.size = 0;
        }
        if path == b"/" {
            entry.nlink = None;
        }
    }
    tree
}

/// The lines of dumpe2fs about what options choose.
fn chosen(dir: &Path, name: &str) -> Vec<String> {
    const CHOSEN: [&str; 16] = [
        "Filesystem volume name",
        "Last mounted on",
        "Filesystem revision",
        "Filesystem features",
        "Default mount options",
        "Errors behavior",
        "Inode count",
        "Block count",
        "Reserved block count",
        "Block size",
        "Reserved GDT blocks",
        "Blocks per group",
        "Inode size",
        "RAID stride",
        "Flex block group size",
        "Total journal size",
    ];
    let text = String::from_utf8(tool(dir, "dumpe2fs", ["-h", name])).expect("UTF-8");
    let lines = text
        .lines()
        .filter(|line| CHOSEN.iter().any(|start| line.starts_with(start)));
    // mke2fs stores extended attributes even without their feature, and extern4 adds that.
    lines
        .map(|line| {
            line.replace(" ext_attr", "")
                .replace(" (none)", "")
                .trim_end()
                .to_owned()
        })
        .collect()
}

/// A word of a volume's superblock: 0 its inodes, 4 its blocks.
fn word(image: &Path, offset: u64) -> u32 {
    let mut word = [0; 4];
    File::open(image)
        .and_then(|file| file.read_exact_at(&mut word, 1024 + offset))
        .expect("a word");
    u32::from_le_bytes(word)
}

#[test]
fn volumes_are_filled_with_the_options_of_mke2fs() {
    let tools = ["mke2fs", "dumpe2fs", "e2fsck", "debugfs"].map(Need::Tool);
    if !can_run(&tools) {
        return;
    }
    let scratch = temporary("extern4-mkfs-");
    let dir = scratch.path();
    fs::write(dir.join("mke2fs.conf"), CONFIG).expect("it is written");
    make_tree(dir);
    let source = facts(tree::from_mount(&dir.join("tree")));
    let sets = sets(20);
    let mut random = Random(5);
    let mut made = 0;
    for _ in 0..sets {
        let (mut args, bytes) = options(&mut random);
        args.extend(["-d", "tree"].map(str::to_owned));
        let size = format!("{}K", bytes >> 10);
        let of = format!("{args:?} {}K", bytes >> 10);
        let _ = [
            fs::remove_file(dir.join("ours")),
            fs::remove_file(dir.join("theirs")),
        ];
        let ours = mkfs(dir, &args, &["ours", &size]);
        let theirs = mke2fs(dir, &args, &["theirs", &size]);
        if ours.status.success() {
            e2fsck(&dir.join("ours")).unwrap_or_else(|why| panic!("{of}: {why}"));
            let mut filled = facts(tree::from_debugfs(&dir.join("ours")));
            if of.contains("root_owner") {
                let root = filled.entries.get_mut(&b"/"[..]).expect("a root directory");
                assert_ne!((root.uid, root.gid), (0, 0), "{of}");
                (root.uid, root.gid) =
                    (source.entries[&b"/"[..]].uid, source.entries[&b"/"[..]].gid);
            }
            tree::assert_same(&of, &filled, &source);
        }
        if theirs.status.success() {
            assert!(
                ours.status.success(),
                "{of}: {}",
                String::from_utf8_lossy(&ours.stderr)
            );
            assert_same(&of, &chosen(dir, "ours"), &chosen(dir, "theirs"));
            made += 1;
        }
    }
    assert!(made > sets / 2, "{made} of {sets}");
}

/// As the kernel shows it, with holes and nanoseconds.
#[test]
fn the_kernel_mounts_a_filled_volume() {
    if !can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = temporary("extern4-mkfs-");
    make_tree(scratch.path());
    tool(
        scratch.path(),
        "touch",
        [
            "-h",
            "-d",
            "@1700000001.123456789",
            "tree/small",
            "tree/sub/to",
        ],
    );
    let source = facts(tree::from_mount(&scratch.path().join("tree")));
    let image = Image::in_directory(scratch, "disk");
    ok(extern4_in(
        image.scratch(),
        ["mkfs", "-q", "-b", "4096", "disk", "16M", "-d", "tree"],
    ));
    e2fsck(&image.path).expect("a sound volume");
    let mount = image.mount("ro,noatime");
    tree::assert_same("the source", &facts(tree::from_mount(&mount.path)), &source);
}

#[test]
fn the_same_source_makes_the_same_bytes() {
    if !can_run(&[Need::Tool("tar"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = temporary("extern4-mkfs-");
    let dir = scratch.path();
    make_tree(dir);
    let pack = [
        "--format=pax",
        "--xattrs",
        "-Scf",
        "tree.tar",
        "-C",
        "tree",
        ".",
    ];
    tool(dir, "tar", pack);
    let fill = |name: &str, source: &str| {
        let mut command = command();
        let args = ["mkfs", "-q", "-L", "root", name, "16M", "-d", source];
        let input = File::open(dir.join("tree.tar")).expect("an archive");
        let command = command
            .current_dir(dir)
            .args(args)
            .stdin(Stdio::from(input));
        ok(command.output().expect("the command"));
        fs::read(dir.join(name)).expect("an image")
    };
    let one = fill("one.img", "tree");
    assert!(fill("two.img", "tree") == one);
    assert!(fill("three.img", "tree.tar") == one);
    assert!(fill("four.img", "-") == one);
    assert!(fill("five.img", "one.img") == one);
    // Contents count, and so does a given UUID.
    fs::write(dir.join("tree/small"), plan::pattern(8, 0, 60)).expect("a file");
    tool(dir, "touch", ["-d", "@1700000000", "tree/small"]);
    assert!(fill("six.img", "tree")[1024 + 104..][..16] != one[1024 + 104..][..16]);
    let random = |name: &str| {
        ok(extern4_in(
            dir,
            ["mkfs", "-q", "-U", "random", name, "16M", "-d", "tree"],
        ));
        fs::read(dir.join(name)).expect("an image")
    };
    assert!(random("seven.img") != random("eight.img"));
}

#[test]
fn the_size_follows_from_the_source_or_is_enough_for_it() {
    let scratch = temporary("extern4-mkfs-");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    fs::write(dir.join("tree/file"), plan::pattern(7, 0, 3_000_000)).expect("a file");
    let size = |name: &str| fs::metadata(dir.join(name)).expect("a file").len();
    let without_journal = ["mkfs", "-q", "-O", "^has_journal", "-d", "tree"];
    let fill = |args: &[&str]| extern4_in(dir, without_journal.iter().chain(args));
    ok(fill(&["auto.img", "auto"]));
    ok(fill(&["none.img"]));
    assert_eq!(size("auto.img"), size("none.img"));
    assert!(
        (3_000_000..3_300_000).contains(&size("auto.img")),
        "{}",
        size("auto.img")
    );
    ok(fill(&["given.img", "8M"]));
    assert_eq!(size("given.img"), 8 << 20);
    // The size that is said to be needed is enough, and a block less is not.
    let told = failed(&fill(&["x.img", "2M"]), 1);
    let needed = told
        .split("a volume of ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let needed: u64 = needed
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{told}"));
    assert!(
        told.starts_with("extern4: mkfs: 'x.img': the tree needs a volume of"),
        "{told}"
    );
    assert!(
        failed(&fill(&["x.img", &format!("{}K", (needed >> 10) - 1)]), 1)
            .contains("the tree needs")
    );
    assert!(!dir.join("x.img").exists());
    ok(fill(&["needed.img", &format!("{}K", needed >> 10)]));
    // Inodes as asked for, or else as many as the tree needs.
    for (option, count) in [("-N5000", 5000), ("-i65536", 128), ("-N12", 16)] {
        ok(fill(&["-F", "inodes.img", "8M", option]));
        let inodes = word(&dir.join("inodes.img"), 0);
        assert!((count..count + 64).contains(&inodes), "{option}: {inodes}");
    }
}

#[test]
fn what_is_there_is_filled_in_place() {
    let scratch = temporary("extern4-mkfs-");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    fs::write(dir.join("tree/file"), "text").expect("a file");
    fs::write(dir.join("disk.img"), vec![0xa5; 4 << 20]).expect("a file");
    let fill = |args: &[&str]| extern4_in(dir, [&["mkfs", "-q", "-d", "tree"], args].concat());
    assert!(failed(&fill(&["disk.img"]), 1).contains("the file holds data; --force"));
    ok(fill(&["-F", "disk.img"]));
    ok(extern4_in(dir, ["check", "disk.img"]));
    assert_eq!(ok(extern4_in(dir, ["cat", "disk.img:/file"])), b"text");
    assert_eq!(word(&dir.join("disk.img"), 4), 4096, "blocks of 1 KiB");
    // A run that shows numbers changes nothing.
    let before = fs::read(dir.join("disk.img")).expect("a file");
    let said = ok(extern4_in(
        dir,
        ["mkfs", "-n", "disk.img", "8M", "-d", "tree"],
    ));
    let said = String::from_utf8(said).expect("UTF-8");
    assert!(
        said.starts_with("1 file, 1 directory, 0 others, 4 bytes of contents in 1 extent\n"),
        "{said}"
    );
    assert!(fs::read(dir.join("disk.img")).expect("a file") == before);
    // The root gets the owner that is asked for.
    ok(fill(&["-E", "root_owner=7:8", "owned.img", "4M"]));
    let owner = ok(extern4_in(dir, ["stat", "-c", "%u:%g", "owned.img:/"]));
    assert_eq!(String::from_utf8_lossy(&owner), "7:8\n");
    // A journal elsewhere learns of the volume.
    ok(extern4_in(
        dir,
        [
            "mkfs",
            "-q",
            "-O",
            "journal_dev",
            "-b",
            "4096",
            "log.img",
            "8M",
        ],
    ));
    ok(fill(&[
        "-b",
        "4096",
        "-J",
        "device=log.img",
        "logged.img",
        "16M",
    ]));
    ok(extern4_in(
        dir,
        ["--journal", "log.img", "mkdir", "logged.img:/dir"],
    ));
    ok(extern4_in(
        dir,
        ["--journal", "log.img", "check", "logged.img"],
    ));
}

#[test]
fn wrong_sources_are_named_and_leave_nothing_behind() {
    let scratch = temporary("extern4-mkfs-");
    let dir = scratch.path();
    fs::create_dir(dir.join("tree")).expect("a directory");
    fs::write(dir.join("text"), "no archive at all").expect("a file");
    for (args, code, word) in [
        (
            &["x.img", "8M", "-d", "none"][..],
            1,
            "mkfs: 'none': No such file",
        ),
        (&["x.img", "8M", "-d", "text"], 1, "text"),
        (&["x.img", "8M", "-d", "tree:/../up"], 2, "'.' or '..'"),
        (
            &["x.img", "8K", "-d", "tree"],
            1,
            "the tree needs a volume of",
        ),
        (&["x.img", "auto"], 2, "'auto' needs -d"),
        (
            &["x.img", "8M", "-r", "0", "-d", "tree"],
            2,
            "-d needs revision 1",
        ),
        (
            &["x.img", "8M", "-O", "journal_dev", "-d", "tree"],
            1,
            "'journal_dev'",
        ),
        (
            &["x.img", "auto", "-E", "resize=10", "-d", "tree"],
            2,
            "resize=10",
        ),
        (
            &["x.img", "auto", "-O", "bigalloc", "-d", "tree"],
            1,
            "'bigalloc' is not supported",
        ),
        (&["none/x.img", "8M", "-d", "tree"], 1, "none/x.img"),
    ] {
        let told = failed(&extern4_in(dir, [&["mkfs"], args].concat()), code);
        assert!(told.contains(word), "{args:?}: {told}");
        assert!(!dir.join("x.img").exists(), "{args:?}");
    }
    let names = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("a name").file_name());
    assert_eq!(names.count(), 2);
}
