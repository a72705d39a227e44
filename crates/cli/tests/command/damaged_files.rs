//! One damaged file, which a command or a mount is to remove or replace: the answer is an error
//! that names the damage, and everything else on the volume can be changed further.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;

use crate::mounting::{Served, can_mount};
use crate::run::{extern4, failed};

const BLOCK: u64 = 4096;
/// `EUCLEAN`.
const DAMAGED: i32 = 117;

/// Makes `f` with enough extents for a node below its root, and with an attribute.
fn fill(root: &Path) -> std::io::Result<()> {
    let file = File::create(root.join("f"))?;
    (0..8).try_for_each(|at| file.write_all_at(&[7; 100], 2 * at * BLOCK))?;
    fs::create_dir(root.join("d"))?;
    fs::write(root.join("g"), "g")
}

const SPEC: ImageSpec = ImageSpec::new(
    "disk",
    64 << 20,
    &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
)
.from_directory(&[fill]);

/// Commands of `debugfs` that damage `f` and `d`.
const DAMAGE: [(&str, &str); 3] = [
    (
        "attribute block",
        "sif f file_acl 9000\nsif d file_acl 9000\n",
    ),
    (
        "root of the map",
        "sif f block[1] 0x90004\nsif d block[1] 0x90004\n",
    ),
    (
        "index of the map",
        "sif f block[4] 0x7fffffff\nsif d block[5] 0x7fffffff\n",
    ),
];

fn damaged(script: &str) -> Image {
    let image = SPEC.build();
    image.debugfs(script);
    image
}

#[track_caller]
fn works(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Has `e2fsck` mend the volume; after that it finds nothing.
fn mend(what: &str, image: &Image) {
    for _ in 0..3 {
        let _ = tools::try_run("e2fsck", ["-fy".as_ref(), image.path.as_os_str()]);
    }
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn a_command_that_is_to_remove_a_damaged_file_fails() {
    if !SPEC.can_build() {
        return;
    }
    for (what, script) in DAMAGE {
        for args in [
            &["rm", "-f", "disk.img:/f"][..],
            &["mv", "-f", "disk.img:/g", "disk.img:/f"],
            &["rmdir", "disk.img:/d"],
            &["truncate", "-s", "0", "disk.img:/f"],
        ] {
            let what = format!("{what}, {args:?}");
            let image = damaged(script);
            let output = extern4(&image, args);
            if !(args[0] == "truncate" && what.contains("attribute") && output.status.success()) {
                let said = failed(&output, 4);
                assert!(said.contains("inode "), "{what}: {said}");
            }
            works(&extern4(&image, ["touch", "disk.img:/other"]));
            works(&extern4(&image, ["rm", "disk.img:/other"]));
            // The name is still there.
            let names = extern4(&image, ["ls", "disk.img:/"]);
            let names = String::from_utf8(names.stdout).expect("text");
            assert!(
                ["d", "f", "g"]
                    .iter()
                    .all(|name| names.lines().any(|line| line == *name)),
                "{what}: {names}"
            );
            failed(&extern4(&image, ["check", "-q", "disk.img"]), 4);
            mend(&what, &image);
        }
    }
}

#[test]
fn a_mount_answers_for_a_damaged_file_and_goes_on() {
    if !can_mount() {
        return;
    }
    for (what, script) in DAMAGE {
        let image = damaged(script);
        for round in ["first", "second"] {
            let served = match round {
                "first" => Served::new(&image, &[]),
                _ => Served::warned(&image, "errors"),
            };
            let removed = fs::remove_file(served.path("f")).expect_err(what);
            assert_eq!(removed.raw_os_error(), Some(DAMAGED), "{what}");
            let replaced = fs::rename(served.path("g"), served.path("f")).expect_err(what);
            assert_eq!(replaced.raw_os_error(), Some(DAMAGED), "{what}");
            let removed = fs::remove_dir(served.path("d")).expect_err(what);
            assert_eq!(removed.raw_os_error(), Some(DAMAGED), "{what}");
            fs::write(served.path(round), "text").unwrap_or_else(|e| panic!("{what}: {e}"));
            served.umount();
        }
        mend(what, &image);
    }
}

#[test]
fn a_mount_tells_of_a_removed_file_that_cannot_be_freed() {
    if !can_mount() {
        return;
    }
    let image = SPEC.build();
    let leaf = tools::debugfs(&image.path, false, "ex f");
    // " 0/ 1   1/  1   0 - 14  1296   15": levels, entries, the file's blocks, the node's block.
    let leaf = leaf
        .lines()
        .find(|line| line.trim_start().starts_with("0/"))
        .expect("a node below the root");
    let leaf: u64 = leaf
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .nth(4)
        .expect("a block");
    let served = Served::new(&image, &["-o", "memory=4M", "--log", "mount.log"]);
    let file = File::open(served.path("f")).expect("it opens");
    fs::remove_file(served.path("f")).expect("it is sound");
    // The cache is too small for these, so it forgets the node.
    for at in 0..3000 {
        fs::create_dir(served.path(&format!("d/{at}"))).expect("there is room");
    }
    rustix::fs::syncfs(File::open(&served.dir).expect("a directory")).expect("durable");
    let disk = File::options()
        .write(true)
        .open(&image.path)
        .expect("the image opens");
    disk.write_all_at(&[1], leaf * BLOCK)
        .expect("it is written");
    drop(file);
    let told = || {
        let output = extern4(&image, ["stats", "mnt"]);
        String::from_utf8(output.stdout)
            .expect("text")
            .lines()
            .any(|line| {
                line.trim_start().starts_with("warning ") && line.contains("cannot be freed")
            })
    };
    // The kernel tells the mount of the last close later.
    let start = Instant::now();
    while !told() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "stats shows no warning"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let json = extern4(&image, ["stats", "--json", "mnt"]);
    assert!(String::from_utf8_lossy(&json.stdout).contains("\"warnings\":[\"inode "));
    fs::write(served.path("other"), "text").expect("all else goes on");
    served.umount();
    let log = fs::read_to_string(image.scratch().join("mount.log")).expect("a log");
    assert!(
        log.lines()
            .any(|line| line.contains(" WARN ") && line.contains("cannot be freed")),
        "{log}"
    );
    let served = Served::warned(&image, "errors");
    assert_eq!(
        File::open(served.path("f")).expect_err("it is gone").kind(),
        ErrorKind::NotFound
    );
    served.umount();
    mend("the last close", &image);
}
