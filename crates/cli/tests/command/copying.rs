//! `cat` and `cp`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use extern4_testkit::tools::find;
use extern4_testkit::tree::{self, Tree};

use crate::mounting::copy_command;
use crate::run::{everything, extern4, extern4_in, failed, machine, ok, tool};

/// Returns the attributes that a copy can keep. Inode numbers become the numbers of the first name,
/// and attributes that are the copy's own are left out.
pub(crate) fn copied(root: &Path) -> Tree {
    let mut tree = tree::from_mount(root);
    tree.entries
        .retain(|path, _| !path.starts_with(b"/lost+found"));
    let mut first = HashMap::new();
    for (index, entry) in (0..).zip(tree.entries.values_mut()) {
        entry.ino = *first.entry(entry.ino).or_insert(index);
        entry.ctime = None;
        entry.btime = None;
        entry.atime = None;
        entry.flags = None;
        entry.blocks = None;
        if entry.kind == tree::Kind::Directory {
            entry.size = 0;
        }
        // The kernel counts a page in its cache as data, also in a hole.
        entry
            .content
            .iter_mut()
            .for_each(|content| content.data = None);
    }
    tree
}

#[test]
fn an_archive_copy_is_the_same_tree() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let copy = || {
        ok(extern4(
            image,
            [
                "cp".as_ref(),
                "-a".as_ref(),
                "disk.img:/".as_ref(),
                out.as_os_str(),
            ],
        ))
    };
    copy();
    tree::assert_same("cp -a", &copied(&out), &copied(&mount.path));
    // Again over the first copy: everything is replaced.
    copy();
    tree::assert_same("cp -a again", &copied(&out), &copied(&mount.path));
}

#[test]
fn holes_stay_holes() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    ok(extern4(
        image,
        [
            "cp".as_ref(),
            "-r".as_ref(),
            "disk.img:/".as_ref(),
            out.as_os_str(),
        ],
    ));
    let files = tool(
        &mount.path,
        "find",
        [".", "-type", "f", "-size", "+1M", "-print0"],
    );
    let mut sparse = 0;
    for file in files
        .split(|byte| *byte == 0)
        .filter(|file| !file.is_empty())
    {
        let original =
            std::fs::metadata(mount.path.join(OsStr::from_bytes(file))).expect("an original");
        let copy = std::fs::metadata(out.join(OsStr::from_bytes(file))).expect("a copy");
        assert_eq!(copy.len(), original.len());
        if original.blocks() * 512 < original.len() / 2 {
            sparse += 1;
            assert!(
                copy.blocks() * 512 < copy.len(),
                "{}",
                OsStr::from_bytes(file).display()
            );
        }
    }
    assert!(sparse > 0, "the image has sparse files");
}

#[test]
fn cat_writes_what_is_in_files() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    let files = tool(&mount.path, "find", [".", "-type", "f", "-print0"]);
    for file in files
        .split(|byte| *byte == 0)
        .filter(|file| !file.is_empty())
    {
        let place = [b"disk.img:", &file[1..]].concat();
        let ours = ok(extern4(
            image,
            [OsStr::new("cat"), OsStr::from_bytes(&place)],
        ));
        let theirs = std::fs::read(mount.path.join(OsStr::from_bytes(file))).expect("a file");
        assert!(ours == theirs, "{}", OsStr::from_bytes(file).display());
    }
}

#[test]
fn cat_takes_files_one_after_the_other() {
    let image = machine();
    let output = extern4(
        &image,
        [
            "cat",
            "disk.img:/etc/hostname",
            "disk.img:/gone",
            "disk.img:/home/ann/todo",
        ],
    );
    let errors = failed(&output, 1);
    assert_eq!(
        errors,
        "extern4: cat: 'disk.img:/gone': No such file or directory\n"
    );
    assert_eq!(output.stdout, b"tiny\nbuy milk\n");
    // Into a file, from its start and from its end on.
    let script = "\"$0\" cat disk.img:/etc/hostname > out && \"$0\" cat disk.img:/home/ann/notes.txt >> out && cat out";
    let output = tool(
        image.scratch(),
        "sh",
        ["-c", script, env!("CARGO_BIN_EXE_extern4")],
    );
    assert_eq!(output, b"tiny\nbuy milk\n");
}

#[test]
fn copies_go_where_cp_puts_them() {
    let image = machine();
    let at = |path: &str| image.scratch().join(path);
    let read = |path: &str| {
        std::fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    ok(extern4(&image, ["cp", "disk.img:/etc/hostname", "name"]));
    assert_eq!(read("name"), "tiny\n");
    std::fs::create_dir(at("dir")).expect("a directory");
    ok(extern4(
        &image,
        [
            "cp",
            "disk.img:/etc/hostname",
            "disk.img:/home/ann/todo",
            "dir",
        ],
    ));
    assert_eq!(
        (read("dir/hostname"), read("dir/todo")),
        ("tiny\n".into(), "buy milk\n".into())
    );
    ok(extern4(&image, ["cp", "-r", "disk.img:/home", "dir"]));
    assert_eq!(read("dir/home/ann/notes.txt"), "buy milk\n");
    assert!(
        std::fs::symlink_metadata(at("dir/home/ann/todo"))
            .expect("a link")
            .is_symlink()
    );
    ok(extern4(&image, ["cp", "-r", "disk.img:/home/.", "dir"]));
    assert_eq!(read("dir/ann/notes.txt"), "buy milk\n");
    ok(extern4(&image, ["cp", "-r", "disk.img:/home", "new"]));
    assert_eq!(read("new/ann/notes.txt"), "buy milk\n");
    let errors = failed(&extern4(&image, ["cp", "disk.img:/home", "dir"]), 1);
    assert_eq!(
        errors,
        "extern4: cp: 'disk.img:/home': is a directory; copy it with -r\n"
    );
    let errors = failed(
        &extern4(
            &image,
            [
                "cp",
                "disk.img:/etc/hostname",
                "disk.img:/etc/passwd",
                "nowhere",
            ],
        ),
        1,
    );
    assert_eq!(errors, "extern4: cp: 'nowhere': not a directory\n");
    let errors = failed(
        &extern4(&image, ["cp", "disk.img:/etc/hostname", "disk.img"]),
        1,
    );
    assert!(errors.contains("the image itself"), "{errors}");
    // Into a file of the user's own: a pipe, a device.
    let output = extern4_in(
        image.scratch(),
        ["cp", "disk.img:/etc/hostname", "/dev/stdout"],
    );
    assert_eq!(ok(output), b"tiny\n");
}

#[test]
fn modes_follow_the_umask_unless_kept() {
    let image = machine();
    let mode = |path: &str| {
        std::fs::symlink_metadata(image.scratch().join(path))
            .expect("a copy")
            .permissions()
            .mode()
            & 0o7777
    };
    let with_umask = |args: &str| {
        let script = format!("umask 027 && \"$0\" cp {args}");
        tool(
            image.scratch(),
            "sh",
            ["-c", &script, env!("CARGO_BIN_EXE_extern4")],
        );
    };
    with_umask("disk.img:/bin/true plain");
    assert_eq!(mode("plain"), 0o750);
    with_umask("-p disk.img:/bin/true kept");
    assert_eq!(mode("kept"), 0o755);
    with_umask("-r disk.img:/home tree");
    assert_eq!((mode("tree"), mode("tree/ann/notes.txt")), (0o750, 0o640));
}

#[test]
fn links_in_the_destination_are_not_followed() {
    let image = machine();
    let at = |path: &str| image.scratch().join(path);
    std::fs::create_dir_all(at("out/ann")).expect("a directory");
    std::fs::create_dir(at("outside")).expect("a directory");
    std::fs::write(at("outside/file"), "mine").expect("a file");
    std::os::unix::fs::symlink("../../outside/file", at("out/ann/notes.txt")).expect("a link");
    ok(extern4(&image, ["cp", "-r", "disk.img:/home/.", "out"]));
    assert_eq!(
        std::fs::read_to_string(at("outside/file")).expect("a file"),
        "mine"
    );
    assert!(
        std::fs::symlink_metadata(at("out/ann/notes.txt"))
            .expect("a copy")
            .is_file()
    );
    // A link in the place of a directory is refused.
    std::fs::remove_dir_all(at("out/ann")).expect("remove");
    std::os::unix::fs::symlink("../outside", at("out/ann")).expect("a link");
    let errors = failed(&extern4(&image, ["cp", "-r", "disk.img:/home/.", "out"]), 1);
    assert!(errors.starts_with("extern4: cp: 'out/ann': "), "{errors}");
    assert_eq!(
        std::fs::read_dir(at("outside"))
            .expect("a directory")
            .count(),
        1
    );
}

/// Replaces a name in the image by one of the same length; the directory has no checksum.
fn patch(image: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(image).expect("an image");
    let mut found = 0;
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
        found += 1;
    }
    assert!(found > 0, "the name is in the image");
    std::fs::write(image, bytes).expect("an image");
}

#[test]
fn hostile_names_do_not_lead_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("source/innocent");
    std::fs::create_dir_all(&source).expect("a directory");
    std::fs::write(source.join("AAAAAAAAAAA"), "gotcha").expect("a file");
    let image = dir.path().join("evil.img");
    let build = |to: &[u8]| {
        std::fs::write(&image, []).expect("an image");
        let source = dir.path().join("source");
        let args = ["-q", "-F", "-t", "ext2", "-O", "^metadata_csum", "-d"].map(OsStr::new);
        let size = [image.as_os_str(), OsStr::new("2M")];
        extern4_testkit::tools::run(
            "mke2fs",
            args.into_iter().chain([source.as_os_str()]).chain(size),
        );
        patch(&image, b"AAAAAAAAAAA", to);
    };
    for name in [&b"../../pwned"[..], b"/tmp/pwned1", b"a\0bbbbbbbbb"] {
        build(name);
        let output = extern4_in(dir.path(), ["cp", "-r", "evil.img:/", "out/deep"]);
        assert!(!output.status.success(), "{}", name.escape_ascii());
        std::fs::create_dir_all(dir.path().join("out/deep")).expect("a directory");
        let output = extern4_in(dir.path(), ["cp", "-r", "evil.img:/", "out/deep"]);
        failed(&output, 4);
        assert!(!dir.path().join("out/pwned").exists() && !dir.path().join("pwned").exists());
        assert!(!Path::new("/tmp/pwned1").exists());
    }
}

#[test]
fn special_files_are_made_not_read() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    ok(extern4(
        image,
        [
            "cp".as_ref(),
            "-a".as_ref(),
            "disk.img:/".as_ref(),
            out.as_os_str(),
        ],
    ));
    let files = tool(
        dir.path(),
        "find",
        ["out", "-type", "p", "-o", "-type", "c", "-o", "-type", "b"],
    );
    let files: Vec<_> = files
        .split(|byte| *byte == b'\n')
        .filter(|file| !file.is_empty())
        .collect();
    assert!(!files.is_empty(), "the image has special files");
    for file in files {
        let found =
            std::fs::symlink_metadata(dir.path().join(OsStr::from_bytes(file))).expect("a node");
        let kind = found.file_type();
        assert!(kind.is_fifo() || kind.is_char_device() || kind.is_block_device());
    }
}

/// As `cp` copies contents without -r, no device, pipe or socket is made unasked.
#[test]
fn special_files_of_a_volume_are_made_only_with_r_or_a() {
    let image = machine();
    let at = |path: &str| image.scratch().join(path);
    for (name, kind) in [
        ("pipe", &["p"][..]),
        ("disk", &["b", "8", "0"]),
        ("null", &["c", "1", "3"]),
    ] {
        let place = format!("disk.img:/{name}");
        ok(extern4(&image, ["mknod", &*place].iter().chain(kind)));
        std::fs::write(at("old"), "old").expect("a file");
        for options in [
            &[][..],
            &["-d"],
            &["-P"],
            &["-L"],
            &["-p"],
            &["-f"],
            &["--remove-destination"],
        ] {
            for to in ["old", "new", ".", "disk.img:/new"] {
                let operands = [&*place, to];
                let line = ["cp"].iter().chain(options).chain(&operands);
                let errors = failed(&extern4(&image, line), 1);
                let says = "is a device, pipe or socket, which has no contents; \
                            copy it as a special file with -a or -r";
                assert_eq!(
                    errors,
                    format!("extern4: cp: '{place}': {says}\n"),
                    "{options:?} {to}"
                );
                assert_eq!(std::fs::read_to_string(at("old")).expect("the file"), "old");
                assert!(
                    !at("new").exists() && !at(name).exists(),
                    "{options:?} {to}"
                );
                failed(&extern4(&image, ["stat", "disk.img:/new"]), 1);
            }
        }
        // Other commands do not open a device of the host for one of the volume, either.
        for command in ["cat", "get", "head", "sha256sum"] {
            let output = extern4(&image, [command, &*place]);
            failed(&output, 1);
            assert_eq!(output.stdout, b"", "{command} {name}");
        }
        let script = format!("dump {place} out\n").replace("disk.img:", "");
        failed(
            &crate::writing::fed(&image, &["shell", "disk.img"], script.as_bytes()),
            1,
        );
        assert!(!at("out").exists());
    }
    // Below directories, each is named, and the rest is copied.
    ok(extern4(&image, ["mkdir", "disk.img:/tree"]));
    ok(extern4(&image, ["mkfifo", "disk.img:/tree/pipe"]));
    ok(extern4(
        &image,
        ["cp", "disk.img:/etc/hostname", "disk.img:/tree/name"],
    ));
    std::fs::create_dir(at("words")).expect("a directory");
    let says = "is a device, pipe or socket, which has no contents; left out";
    let output = extern4(
        &image,
        ["cp", "-a", "--no-specials", "disk.img:/tree", "tree"],
    );
    assert_eq!(
        failed(&output, 1),
        format!("extern4: cp: 'disk.img:/tree/pipe': {says}\n")
    );
    let output = extern4(
        &image,
        [
            "cp",
            "-a",
            "--no-specials",
            "disk.img:/tree",
            "disk.img:/other",
        ],
    );
    assert_eq!(
        failed(&output, 1),
        format!("extern4: cp: 'disk.img:/tree/pipe': {says}\n")
    );
    failed(
        &crate::writing::fed(&image, &["shell", "disk.img"], b"rdump /tree /pipe words\n"),
        1,
    );
    for place in ["tree", "words/tree"] {
        assert_eq!(
            std::fs::read_to_string(at(place).join("name")).expect("a copy"),
            "tiny\n"
        );
        assert!(!at(place).join("pipe").exists());
    }
    assert!(!at("words/pipe").exists());
    assert_eq!(ok(extern4(&image, ["ls", "disk.img:/other"])), b"name\n");
    ok(extern4(
        &image,
        ["cp", "-l", "disk.img:/pipe", "disk.img:/name"],
    ));
    ok(extern4(
        &image,
        ["cp", "-a", "disk.img:/pipe", "disk.img:/copy"],
    ));
    for name in ["name", "copy"] {
        let place = format!("disk.img:/{name}");
        assert_eq!(ok(extern4(&image, ["stat", "-c%F", &*place])), b"fifo\n");
    }
}

/// `cp -r` and `cp -a` make a special file in the place of a file that is there.
#[test]
fn a_special_file_replaces_a_file_as_cp_does_it() {
    let image = machine();
    let at = |path: &str| image.scratch().join(path);
    tool(image.scratch(), "mkfifo", ["pipe"]);
    ok(extern4(&image, ["mkfifo", "disk.img:/pipe"]));
    // A user that is not root can keep itself as the owner.
    let owner = format!(
        "{}:{}",
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    ok(extern4(&image, ["chown", &owner, "disk.img:/pipe"]));
    let kinds = |copy: &dyn Fn(&str, &str)| -> Vec<bool> {
        let copies = ["-r", "-a", "-rT", "-rn", "-rp"].map(|options| {
            std::fs::write(at("old"), "old").expect("a file");
            copy(options, "old");
            let is_pipe = at("old")
                .symlink_metadata()
                .expect("a file")
                .file_type()
                .is_fifo();
            std::fs::remove_file(at("old")).expect("it goes away");
            is_pipe
        });
        copies.into()
    };
    let ours =
        kinds(&|options, to| drop(ok(extern4(&image, ["cp", options, "disk.img:/pipe", to]))));
    let theirs = kinds(&|options, to| drop(tool(image.scratch(), "cp", [options, "pipe", to])));
    assert_eq!(ours, theirs);
    assert!(ours.contains(&true));
}

#[test]
fn contents_in_the_journal_are_copied() {
    // Contents in the journal, too: there the image itself must not be read past it.
    for name in [
        "ordered",
        "data_journal",
        "data_journal_escapes_1k",
        "revokes_data_journal",
    ] {
        let spec = extern4_testkit::crash::spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let info = String::from_utf8(ok(extern4(
            &image,
            [OsStr::new("info"), image.path.as_os_str()],
        )))
        .expect("text");
        assert!(
            info.lines().any(
                |line| line.starts_with("Journal replayed in memory:") && line.ends_with("yes")
            ),
            "{info}"
        );
        let out = image.scratch().join("out");
        ok(extern4(
            &image,
            [
                OsStr::new("cp"),
                OsStr::new("-a"),
                image.path.as_os_str(),
                out.as_os_str(),
            ],
        ));
        let replayed = image.copy();
        let mount = replayed.mount("rw,noatime");
        tree::assert_same(spec.name, &copied(&out), &copied(&mount.path));
        std::fs::remove_dir_all(out).expect("the copy goes away");
    }
}

#[test]
fn without_root_owners_are_given_up_once() {
    let image = machine();
    if find("setpriv").is_none() || !rootly() {
        return;
    }
    let at = |path: &str| image.scratch().join(path);
    // Other users may not enter the test's own directories, so the image, the command and the copy
    // go to an open one.
    let open = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o777)).expect("a mode");
    std::fs::copy(at("disk.img"), open.path().join("disk.img")).expect("a copy");
    copy_command(open.path());
    for to in ["disk.img", "extern4"] {
        std::fs::set_permissions(open.path().join(to), std::fs::Permissions::from_mode(0o755))
            .expect("a mode");
    }
    let output = std::process::Command::new("setpriv")
        .args([
            "--reuid=12345",
            "--regid=12345",
            "--clear-groups",
            "./extern4",
            "cp",
            "-a",
            "disk.img:/home",
            "out",
        ])
        .current_dir(open.path())
        .output()
        .expect("setpriv runs");
    let errors = failed(&output, 0);
    assert!(
        errors.starts_with("extern4: cp: warning: the owners of 5 files are not kept"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(
        std::fs::read_to_string(open.path().join("out/ann/notes.txt")).expect("a copy"),
        "buy milk\n"
    );
    let mode = std::fs::metadata(open.path().join("out/ann/notes.txt"))
        .expect("a copy")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o640);
}

/// Returns whether this test may change its user.
pub(crate) fn rootly() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
