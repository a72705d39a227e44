//! `export` to directories and to images of containers.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use extern4_testkit::tools::{Need, can_run, find, temporary};
use extern4_testkit::tree;
use rustix::fs::{XattrFlags, setxattr};

use crate::copying::{copied, rootly};
use crate::mounting::copy_command;
use crate::run::{everything, extern4, extern4_in, failed, machine, ok, tool};

#[test]
fn a_directory_gets_everything() {
    let Some(all) = everything() else { return };
    let dir = temporary("extern4-export-");
    let out = dir.path().join("out");
    let to = format!("{}/", out.display());
    ok(extern4(&all.image, ["export", "disk.img", "-o", &to]));
    let [mut ours, mut theirs] = [&out, &all.mount.path].map(|root| copied(root));
    for tree in [&mut ours, &mut theirs] {
        // One of the links is that of lost+found.
        tree.entries.get_mut(&b"/"[..]).expect("the root").nlink = None;
    }
    tree::assert_same("export", &ours, &theirs);
    assert!(!out.join("lost+found").exists());
    // A part of the volume, to a directory that is there.
    let part = dir.path().join("part");
    fs::create_dir(&part).expect("a directory");
    let name = fs::read_dir(&all.mount.path)
        .expect("a directory")
        .flatten()
        .find(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != "lost+found"
        });
    let name = name.expect("a directory of the volume").file_name();
    let name = name.to_str().expect("UTF-8");
    let place = format!("disk.img:/{name}");
    let to = part.to_str().expect("UTF-8");
    ok(extern4(&all.image, ["export", &place, "-o", to]));
    tree::assert_same(
        "export of a part",
        &copied(&part),
        &copied(&all.mount.path.join(name)),
    );
}

#[test]
fn a_directory_that_holds_files_is_left_alone() {
    let image = machine();
    let at = image.scratch();
    fs::create_dir_all(at.join("out/etc")).expect("directories");
    fs::create_dir(at.join("outside")).expect("a directory");
    fs::write(at.join("outside/hostname"), "mine\n").expect("a file");
    let said = failed(&extern4(&image, ["export", "disk.img", "-o", "out"]), 1);
    assert!(
        said.contains("'out': Directory not empty (--force"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir(at.join("out/etc"))
            .expect("a directory")
            .count(),
        0
    );
    // With --force, no link leads out of it.
    symlink("../../outside/hostname", at.join("out/etc/hostname")).expect("a link");
    symlink("../outside", at.join("out/var")).expect("a link");
    let said = failed(
        &extern4(&image, ["export", "--force", "disk.img", "-o", "out"]),
        1,
    );
    assert!(said.contains("'out/var': Not a directory"), "{said}");
    assert_eq!(
        fs::read(at.join("outside/hostname")).expect("a file"),
        b"mine\n"
    );
    assert_eq!(
        fs::read_dir(at.join("outside"))
            .expect("a directory")
            .count(),
        1
    );
    assert_eq!(
        fs::read(at.join("out/etc/hostname")).expect("a file"),
        b"tiny\n"
    );
    assert!(
        fs::symlink_metadata(at.join("out/etc/hostname"))
            .expect("a file")
            .is_file()
    );
    let said = failed(
        &extern4(&image, ["export", "disk.img", "-o", "missing/out/"]),
        1,
    );
    assert!(
        said.contains("'missing/out/': No such file or directory"),
        "{said}"
    );
}

#[test]
fn an_ordinary_user_gets_all_but_owners_and_devices() {
    if find("setpriv").is_none() || !rootly() {
        return;
    }
    let open = temporary("extern4-export-");
    let at = open.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).expect("a mode");
    fs::create_dir_all(at.join("tree/bin")).expect("directories");
    fs::write(at.join("tree/bin/su"), "x").expect("a file");
    fs::set_permissions(at.join("tree/bin/su"), fs::Permissions::from_mode(0o4755))
        .expect("a mode");
    setxattr(
        at.join("tree/bin/su"),
        "user.name",
        b"value",
        XattrFlags::empty(),
    )
    .expect("an attribute");
    fs::write(at.join("list"), "nod /null 0666 0 0 c 1 3\n").expect("a manifest");
    tool(
        at,
        "touch",
        ["-d", "2024-02-29 12:00:00.5Z", "tree/bin/su", "tree/bin"],
    );
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--no-journal",
            "--owner",
            "0:0",
            "--manifest",
            "list",
            "a.img",
            "tree",
        ],
    ));
    copy_command(at);
    for name in ["a.img", "extern4"] {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let user = [
        "--reuid=12345",
        "--regid=12345",
        "--clear-groups",
        "./extern4",
    ];
    let output = std::process::Command::new("setpriv")
        .args(user)
        .args(["export", "a.img", "-o", "out/"])
        .current_dir(at)
        .output()
        .expect("setpriv runs");
    let said = failed(&output, 1);
    assert!(
        said.contains("'/null': only root can make devices; left out"),
        "{said}"
    );
    assert!(
        said.contains("warning: the owners of 3 files are not kept"),
        "{said}"
    );
    let su = fs::metadata(at.join("out/bin/su")).expect("a copy");
    // A set-id bit for another owner than the original's would be a security hole.
    assert_eq!(
        (su.mode() & 0o7777, su.mtime(), su.mtime_nsec()),
        (0o755, 1_709_208_000, 500_000_000)
    );
    assert_eq!(
        fs::metadata(at.join("out/bin")).expect("a copy").mtime(),
        1_709_208_000
    );
    assert!(!at.join("out/null").exists());
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(at.join("out/bin/su"), "user.name", &mut value[..])
        .expect("an attribute");
    assert_eq!(&value[..len], b"value");
}

/// Makes a volume with all that a layer can have.
fn volume(at: &Path) {
    fs::create_dir_all(at.join("tree/dir/sub")).expect("directories");
    fs::write(at.join("tree/dir/file"), vec![7; 300_000]).expect("a file");
    fs::hard_link(at.join("tree/dir/file"), at.join("tree/second")).expect("a link");
    symlink("dir/file", at.join("tree/link")).expect("a link");
    let sparse = fs::File::create(at.join("tree/sparse")).expect("a file");
    sparse.set_len(8 << 20).expect("a size");
    setxattr(
        at.join("tree/dir"),
        "user.name",
        b"value",
        XattrFlags::empty(),
    )
    .expect("an attribute");
    fs::write(
        at.join("list"),
        "nod /null 0666 0 0 c 1 3\npipe /pipe 0600 1 2\n",
    )
    .expect("a manifest");
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--no-journal",
            "--manifest",
            "list",
            "a.img",
            "tree",
        ],
    ));
}

#[test]
fn a_layout_is_read_again_and_is_the_same_each_time() {
    let dir = temporary("extern4-export-");
    let at = dir.path();
    volume(at);
    for (layout, option) in [("gzip", "--platform=linux/arm64/v8"), ("zstd", "--zstd")] {
        for output in [
            format!("oci:{layout}:1.0"),
            format!("oci:{layout}.again:1.0"),
        ] {
            ok(extern4_in(at, ["export", option, "a.img", "-o", &output]));
        }
        tool(at, "diff", ["-r", layout, &format!("{layout}.again")]);
        let again = failed(
            &extern4_in(at, ["export", "a.img", "-o", &format!("oci:{layout}")]),
            1,
        );
        assert!(
            again.contains("File exists (--force replaces it)"),
            "{again}"
        );
        let blobs = fs::read_dir(at.join(layout).join("blobs/sha256"))
            .expect("a directory")
            .flatten();
        for blob in blobs {
            let said = tool(at, "sha256sum", [blob.path()]);
            assert!(
                said.starts_with(blob.file_name().as_encoded_bytes()),
                "{:?}",
                blob.path()
            );
        }
    }
    assert_eq!(ok(extern4_in(at, ["diff", "a.img", "oci:zstd"])), b"");
    let other = failed(&extern4_in(at, ["diff", "a.img", "oci:gzip:2.0"]), 2);
    assert!(other.contains("2.0"), "{other}");
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "b.img", "oci:zstd:1.0"],
    ));
    assert!(
        fs::read(at.join("a.img")).expect("an image")
            == fs::read(at.join("b.img")).expect("an image")
    );
    failed(
        &extern4_in(
            at,
            ["export", "--platform", "linux", "a.img", "-o", "oci:x"],
        ),
        2,
    );
    let said = failed(
        &extern4_in(
            at,
            [
                "export",
                "--platform",
                "linux/amd64",
                "a.img",
                "-o",
                "x.tar",
            ],
        ),
        2,
    );
    assert_eq!(
        said,
        "extern4: export: --platform has no effect here: only an OCI layout names one\n"
    );
    failed(
        &extern4_in(at, ["export", "--zstd", "a.img", "-o", "x/"]),
        2,
    );
}

#[test]
#[ignore = "needs umoci, which `make soak` installs"]
fn umoci_unpacks_a_layout() {
    if !can_run(&[Need::Tool("umoci"), Need::Mount]) {
        return;
    }
    let dir = temporary("extern4-export-");
    let at = dir.path();
    volume(at);
    ok(extern4_in(at, ["export", "a.img", "-o", "oci:layout:1.0"]));
    tool(at, "umoci", ["unpack", "--image", "layout:1.0", "bundle"]);
    let said = ok(extern4_in(at, ["diff", "a.img", "bundle/rootfs"]));
    assert_eq!(String::from_utf8_lossy(&said), "");
}

#[test]
fn what_a_layer_cannot_have_is_named() {
    let dir = temporary("extern4-export-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/.wh.etc"), "").expect("a file");
    std::os::unix::net::UnixListener::bind(at.join("tree/socket")).expect("a socket");
    ok(extern4_in(
        at,
        ["build", "-q", "--no-journal", "a.img", "tree"],
    ));
    let said = failed(&extern4_in(at, ["export", "a.img", "-o", "oci:layout"]), 1);
    assert_eq!(
        said,
        "extern4: export: 'a.img:/.wh.etc': a layer cannot have names that begin with .wh.; left out\n\
         extern4: export: 'a.img:/socket': a layer cannot have sockets; left out\n"
    );
    ok(extern4_in(at, ["export", "a.img", "-o", "out/"]));
    assert!(at.join("out/.wh.etc").exists() && at.join("out/socket").exists());
}

#[test]
fn an_export_ends_when_the_disk_is_full() {
    if !can_run(&[Need::Mount]) {
        return;
    }
    let dir = temporary("extern4-export-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    for number in 0..40_u8 {
        fs::write(at.join(format!("tree/file{number}")), vec![number; 100_000]).expect("a file");
    }
    ok(extern4_in(at, ["build", "-q", "a.img", "tree"]));
    fs::create_dir(at.join("small")).expect("a directory");
    tool(
        at,
        "mount",
        ["-t", "tmpfs", "-o", "size=1M", "none", "small"],
    );
    let names = || fs::read_dir(at.join("small")).expect("a directory").count();
    let exported: Vec<_> = ["small/a.tar", "oci:small/lay", "small/out/"]
        .into_iter()
        .map(|output| {
            // Repeated bytes would shrink to nothing in a compressed layer.
            if output.starts_with("oci:") {
                for number in 0..40 {
                    let bytes = extern4_testkit::plan::pattern(number, 0, 100_000);
                    fs::write(at.join(format!("tree/file{number}")), bytes).expect("a file");
                }
                ok(extern4_in(at, ["build", "-qF", "a.img", "tree"]));
            }
            (extern4_in(at, ["export", "a.img", "-o", output]), names())
        })
        .collect();
    let whole: Vec<_> = fs::read_dir(at.join("small/out"))
        .expect("a directory")
        .map(|entry| entry.expect("a name").path())
        .map(|path| fs::metadata(path).expect("a file").len())
        .collect();
    tool(at, "umount", ["small"]);
    for (export, names) in &exported[..2] {
        assert!(failed(export, 1).contains("No space left on device"));
        assert_eq!(*names, 0);
    }
    let said = failed(&exported[2].0, 1);
    assert!(
        said.contains("No space left on device") && said.lines().count() == 1,
        "{said}"
    );
    assert!(
        !whole.is_empty() && whole.iter().all(|len| *len == 100_000),
        "{whole:?}"
    );
}

#[test]
fn a_compressed_archive_tells_of_a_full_output() {
    let dir = temporary("extern4-export-");
    let at = dir.path();
    volume(at);
    for options in [&["--zstd"][..], &[]] {
        let full = fs::File::options().write(true).open("/dev/full");
        let exported = std::process::Command::new(env!("CARGO_BIN_EXE_extern4"))
            .current_dir(at)
            .args(["export", "a.img", "-o", "-"])
            .args(options)
            .stdout(full.expect("a device"))
            .output()
            .expect("the command");
        assert_eq!(exported.status.code(), Some(1), "{options:?}");
        let says = String::from_utf8_lossy(&exported.stderr);
        assert!(says.contains("No space left on device"), "{says}");
    }
}
