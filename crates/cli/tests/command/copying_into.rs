//! Copies into volumes, and between them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::{plan, tree};

use crate::copying::copied;
use crate::run::{assert_same, extern4, failed, machine, ok, sorted, tool};
use crate::writing::{empty, quietly, said, sound, stat};

/// Makes a directory of the host with everything a copy keeps; returns whether root made it.
fn host_tree(image: &Image) -> bool {
    let root = image.scratch().join("tree");
    std::fs::create_dir(&root).expect("a directory");
    // Only root can make some of it.
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
        && plan::TREE.iter().all(|plan| plan(&root).is_ok())
}

#[test]
fn an_archive_copy_into_a_volume_is_the_same_tree() {
    let image = ImageSpec::new(
        "disk",
        128 << 20,
        &["-t", "ext4", "-b", "4096", "-I", "256"],
    )
    .build();
    if !host_tree(&image) {
        return;
    }
    quietly(&image, &["cp", "-a", "tree", "disk.img:/"]);
    sound(&image);
    let original = copied(&image.scratch().join("tree"));
    {
        let mount = image.mount("ro,noatime");
        tree::assert_same(
            "cp -a into a volume",
            &copied(&mount.path.join("tree")),
            &original,
        );
    }
    // Again over the first copy: everything is replaced. Then within the volume.
    quietly(&image, &["cp", "-a", "tree", "disk.img:/"]);
    quietly(&image, &["cp", "-a", "disk.img:/tree", "disk.img:/twin"]);
    sound(&image);
    // And to another volume.
    let other = ImageSpec::new(
        "other",
        128 << 20,
        &["-t", "ext3", "-b", "4096", "-I", "256"],
    )
    .build();
    let place = format!("{}:/", other.path.display());
    quietly(&image, &["cp", "-a", "disk.img:/twin", &place]);
    let mount = image.mount("ro,noatime");
    let other = other.mount("ro,noatime");
    for copy in [
        mount.path.join("tree"),
        mount.path.join("twin"),
        other.path.join("twin"),
    ] {
        tree::assert_same("cp -a again", &copied(&copy), &original);
    }
}

/// Lists the entries below a directory as `find` sees them, sorted; without the sizes of
/// directories, which depend on the file system.
fn listed(directory: &Path) -> Vec<String> {
    let directories = ["(", "-type", "d", "-printf", "%y %m %U %T@ %P\n", ")"];
    let others = ["-o", "-printf", "%y %m %U %n %s %T@ %P\n"];
    sorted(&tool(
        directory,
        "find",
        ["."].into_iter().chain(directories).chain(others),
    ))
}

#[test]
fn trees_are_copied_with_few_open_files() {
    let image = ImageSpec::new(
        "disk",
        64 << 20,
        &["-t", "ext4", "-b", "4096", "-N", "8192"],
    )
    .build();
    let root = image.scratch().join("tree");
    // Deeper than there may be open files, with files on both sides of each way down.
    let mut deep = root.join("deep");
    for level in 0..1200 {
        std::fs::create_dir_all(&deep).expect("a directory");
        for name in ["a", "b"].iter().filter(|_| level % 5 == 0) {
            std::fs::write(deep.join(name), format!("{level}\n")).expect("a file");
        }
        deep.push("d");
    }
    // Files that are not read ahead: with holes, and with several names.
    for number in 0..500 {
        let path = root.join(format!("hole{number}"));
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(8192))
            .expect("a file with a hole");
        std::fs::hard_link(&path, root.join(format!("link{number}"))).expect("a link");
        std::fs::create_dir(root.join(format!("dir{number}"))).expect("a directory");
    }
    let copy = "ulimit -n 200 && exec \"$0\" cp -a tree disk.img:/";
    tool(
        image.scratch(),
        "sh",
        ["-c", copy, env!("CARGO_BIN_EXE_extern4")],
    );
    sound(&image);
    let Ok(mount) = image.try_mount("ro,noatime") else {
        return;
    };
    assert_same("cp -a", &listed(&mount.path.join("tree")), &listed(&root));
}

#[test]
fn a_file_that_cannot_be_copied_is_named_and_the_rest_is_copied() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"]).build();
    let at = |path: &str| image.scratch().join(path);
    for name in ["tree/a/in/deeper", "tree/b", "tree/c"] {
        std::fs::create_dir_all(at(name)).expect("a directory");
        std::fs::write(at(name).join("file"), name).expect("a file");
    }
    std::fs::write(at("file"), "in the way\n").expect("a file");
    // A directory that cannot be made is left out with all that is in it.
    quietly(&image, &["mkdir", "disk.img:/tree"]);
    quietly(&image, &["cp", "file", "disk.img:/tree/a"]);
    quietly(&image, &["mkdir", "-p", "disk.img:/tree/c/file"]);
    let errors = failed(&extern4(&image, ["cp", "-a", "tree", "disk.img:/"]), 1);
    let mut errors: Vec<_> = errors.lines().collect();
    errors.sort_unstable();
    assert_eq!(
        errors,
        [
            "extern4: cp: 'disk.img:/tree/a': there is a file of this name where the directory would go",
            "extern4: cp: 'disk.img:/tree/c/file': there is a directory of this name where the file would go",
        ]
    );
    assert_eq!(
        said(
            &image,
            &["cat", "disk.img:/tree/a", "disk.img:/tree/b/file"]
        ),
        "in the way\ntree/b"
    );
    sound(&image);
}

/// Makes a file with one name in `one` and others in `two`, where another file has the first name.
fn names_in_common(image: &Image) -> [&'static str; 2] {
    let at = |path: &str| image.scratch().join(path);
    for directory in ["one", "two"] {
        std::fs::create_dir(at(directory)).expect("a directory");
        std::fs::write(at(directory).join("name"), directory).expect("a file");
    }
    for number in 0..10 {
        std::fs::hard_link(at("one/name"), at(&format!("two/link{number}"))).expect("a link");
    }
    ["one/.", "two/."]
}

#[test]
fn a_name_that_two_sources_have_is_the_last_ones_and_other_links_are_not_led_there() {
    let image = empty();
    let sources = names_in_common(&image);
    let links: Vec<_> = (0..10)
        .map(|number| format!("disk.img:/link{number}"))
        .collect();
    let right = |place: &str| {
        let texts = |names: &[String]| {
            names
                .iter()
                .map(|name| said(&image, &["cat", name]))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&[format!("{place}name")]), ["two"], "{place}");
        let links: Vec<_> = (0..10)
            .map(|number| format!("{place}link{number}"))
            .collect();
        assert_eq!(texts(&links), ["one"; 10], "{place}");
    };
    let archive = |sources: &[&str], to: &str| {
        quietly(&image, &[&["cp", "-a"], sources, &[to]].concat());
    };
    archive(&sources, "disk.img:/");
    right("disk.img:/");
    for to in ["disk.img:/tree", "disk.img:/twin"] {
        quietly(&image, &["mkdir", to]);
    }
    quietly(&image, &["cp", "-a", "one", "two", "disk.img:/tree"]);
    let sources = ["disk.img:/tree/one/.", "disk.img:/tree/two/."];
    archive(&sources, "disk.img:/twin");
    right("disk.img:/twin/");
    std::fs::create_dir(image.scratch().join("out")).expect("a directory");
    archive(&sources, "out");
    archive(&["out"], "disk.img:/");
    right("disk.img:/out/");
    // A file that the command line names twice has been copied already.
    for to in ["disk.img:/", "out"] {
        archive(
            &[
                "disk.img:/tree/two/link0",
                "disk.img:/tree/one/name",
                "disk.img:/tree/two/link0",
            ],
            to,
        );
    }
    archive(&["two/link1", "two/link1"], "disk.img:/");
    assert_eq!(
        said(&image, &["cat", &links[0], &links[1], "disk.img:/name"]),
        "oneoneone"
    );
    assert_eq!(
        std::fs::read(image.scratch().join("out/link0")).expect("a file"),
        b"one"
    );
    sound(&image);
}

#[test]
fn files_that_do_not_say_how_long_they_are_are_copied_to_their_end() {
    let image = empty();
    let version = std::fs::read_to_string("/proc/version").expect("a file that says it is empty");
    quietly(&image, &["cp", "/proc/version", "disk.img:/plain"]);
    quietly(&image, &["cp", "-a", "/proc/version", "disk.img:/kept"]);
    quietly(
        &image,
        &["cp", "-r", "/proc/sys/kernel/random", "disk.img:/"],
    );
    assert_eq!(
        said(&image, &["cat", "disk.img:/plain", "disk.img:/kept"]),
        version.repeat(2)
    );
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .expect("a file that says it is empty");
    assert_eq!(said(&image, &["cat", "disk.img:/random/boot_id"]), boot);
    sound(&image);
}

#[test]
fn data_of_pipes_and_devices_is_copied_unless_a_tree_is() {
    let image = empty();
    let dir = image.scratch();
    let length = 3 << 20;
    let pipe = format!("head -c {length} /dev/zero | \"$0\" cp /dev/stdin disk.img:/zeroes");
    tool(dir, "sh", ["-c", &pipe, env!("CARGO_BIN_EXE_extern4")]);
    quietly(&image, &["cp", "/dev/null", "disk.img:/"]);
    tool(dir, "mkfifo", ["pipe"]);
    let named = "timeout 60 sh -c 'echo text > pipe' & \"$0\" cp pipe disk.img:/text && wait";
    tool(dir, "sh", ["-c", named, env!("CARGO_BIN_EXE_extern4")]);
    // A pipe is no link that -d or -P would copy as such.
    for option in ["-d", "-P"] {
        let named =
            "timeout 60 sh -c 'echo text > pipe' & \"$0\" cp $1 pipe disk.img:/text$1 && wait";
        tool(
            dir,
            "sh",
            ["-c", named, env!("CARGO_BIN_EXE_extern4"), option],
        );
        assert_eq!(
            said(&image, &["cat", &format!("disk.img:/text{option}")]),
            "text\n"
        );
    }
    quietly(&image, &["cp", "-r", "pipe", "disk.img:/pipe"]);
    assert_eq!(
        stat(&image, "%F %s", "disk.img:/zeroes"),
        format!("regular file {length}")
    );
    assert_eq!(stat(&image, "%F", "disk.img:/null"), "regular empty file");
    assert_eq!(said(&image, &["cat", "disk.img:/text"]), "text\n");
    assert_eq!(stat(&image, "%F", "disk.img:/pipe"), "fifo");
    // A socket without a peer to read from.
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket");
    let errors = failed(&extern4(&image, ["cp", "socket", "disk.img:/"]), 1);
    assert_eq!(errors, "extern4: cp: 'socket': No such device or address\n");
    sound(&image);
}

#[test]
fn copies_into_a_volume_go_where_cp_puts_them() {
    let image = machine();
    let at = |path: &str| image.scratch().join(path);
    std::fs::create_dir_all(at("dir/sub")).expect("directories");
    std::fs::write(at("dir/sub/file"), "contents\n").expect("a file");
    std::fs::write(at("one"), "1\n").expect("a file");
    std::fs::set_permissions(at("one"), std::fs::Permissions::from_mode(0o775)).expect("a mode");
    quietly(&image, &["cp", "one", "disk.img:/etc"]);
    quietly(&image, &["cp", "one", "disk.img:/etc/uno"]);
    assert_eq!(
        said(&image, &["cat", "disk.img:/etc/one", "disk.img:/etc/uno"]),
        "1\n1\n"
    );
    assert_eq!(stat(&image, "%a %u:%g", "disk.img:/etc/uno"), "755 0:0");
    quietly(&image, &["cp", "-r", "dir", "disk.img:/"]);
    quietly(&image, &["cp", "-r", "dir", "disk.img:/new"]);
    quietly(&image, &["cp", "-r", "dir/.", "disk.img:/home"]);
    for path in [
        "disk.img:/dir/sub/file",
        "disk.img:/new/sub/file",
        "disk.img:/home/sub/file",
    ] {
        assert_eq!(said(&image, &["cat", path]), "contents\n", "{path}");
    }
    // Over an existing file: its inode stays, and a link is written through.
    let inode = stat(&image, "%i", "disk.img:/home/ann/notes.txt");
    quietly(&image, &["cp", "one", "disk.img:/home/ann/todo"]);
    assert_eq!(
        said(&image, &["cat", "disk.img:/home/ann/notes.txt"]),
        "1\n"
    );
    assert_eq!(
        stat(&image, "%i %a", "disk.img:/home/ann/notes.txt"),
        format!("{inode} 640")
    );
    // Within the volume, and of a file with holes.
    quietly(&image, &["cp", "disk.img:/etc/passwd", "disk.img:/passwd"]);
    assert_eq!(
        said(&image, &["cat", "disk.img:/passwd"]),
        said(&image, &["cat", "disk.img:/etc/passwd"])
    );
    let sparse = std::fs::File::create(at("sparse")).expect("a file");
    sparse.set_len(64 << 20).expect("a hole");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 32 << 20).expect("data");
    quietly(&image, &["cp", "sparse", "disk.img:/sparse"]);
    assert_eq!(
        stat(&image, "%s", "disk.img:/sparse"),
        (64 << 20).to_string()
    );
    assert!(
        stat(&image, "%b", "disk.img:/sparse")
            .parse::<u64>()
            .expect("a number")
            < 1024
    );
    let refused = |args: &[&str], says: &str| {
        let errors = failed(&extern4(&image, args), 1);
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    refused(
        &["cp", "dir", "disk.img:/x"],
        "'dir': is a directory; copy it with -r",
    );
    refused(
        &["cp", "gone", "disk.img:/x"],
        "'gone': No such file or directory",
    );
    refused(
        &["cp", "one", "sparse", "disk.img:/nowhere"],
        "'disk.img:/nowhere': not a directory",
    );
    refused(
        &["cp", "one", "disk.img:/nowhere/x"],
        "No such file or directory",
    );
    refused(
        &["cp", "one", "gone.img:/x"],
        "'gone.img': No such file or directory",
    );
    refused(
        &["cp", "disk.img:/passwd", "disk.img:/passwd"],
        "the same file",
    );
    refused(
        &["cp", "-r", "disk.img:/home", "disk.img:/home/copy"],
        "into itself",
    );
    refused(&["cp", "disk.img", "disk.img:/copy"], "into itself");
    refused(
        &["cp", "-r", "dir", "disk.img:/passwd"],
        "where the directory would go",
    );
    quietly(&image, &["mkdir", "disk.img:/etc/sub"]);
    refused(
        &["cp", "-r", "disk.img:/passwd", "one", "disk.img:/gone"],
        "not a directory",
    );
    sound(&image);
}

#[test]
fn a_full_volume_says_so_and_stays_sound() {
    let image = ImageSpec::new("disk", 8 << 20, &["-t", "ext4", "-b", "1024"]).build();
    std::fs::write(image.scratch().join("first"), vec![b'a'; 1 << 20]).expect("a file");
    std::fs::write(image.scratch().join("large"), vec![b'b'; 16 << 20]).expect("a file");
    let errors = failed(&extern4(&image, ["cp", "first", "large", "disk.img:/"]), 1);
    assert!(errors.contains("No space left on device"), "{errors}");
    // Earlier copies stay.
    assert_eq!(
        ok(extern4(&image, ["cat", "disk.img:/first"])),
        vec![b'a'; 1 << 20]
    );
    sound(&image);
}

/// Copies that GNU's `cp` refuses, or would write somewhere else.
#[test]
fn a_copy_goes_only_where_it_can_be_meant_to_go() {
    let image = empty();
    let dir = image.scratch();
    std::fs::write(dir.join("f"), "contents").expect("a file");
    symlink("nowhere", dir.join("dangling")).expect("a link");
    quietly(&image, &["cp", "f", "disk.img:/f"]);
    quietly(&image, &["ln", "-s", "nowhere", "disk.img:/dangling"]);
    tool(dir, "mkfifo", ["pipe"]);
    quietly(&image, &["cp", "-aq", "pipe", "disk.img:/pipe"]);
    for (to, why) in [
        ("disk.img:/none/", "no directory"),
        ("disk.img:/dangling", "dangling"),
        ("disk.img:/pipe", "pipe, socket or device"),
    ] {
        for options in ["-q", "-aq"] {
            let errors = failed(&extern4(&image, ["cp", options, "f", to]), 1);
            assert!(errors.contains(why), "{to}: {errors}");
        }
    }
    for (to, why) in [("none/", "no directory"), ("dangling", "dangling")] {
        for options in ["-q", "-aq"] {
            let errors = failed(&extern4(&image, ["cp", options, "disk.img:/f", to]), 1);
            assert!(
                errors.contains(why) && errors.contains(to.trim_end_matches('/')),
                "{to}: {errors}"
            );
        }
    }
    assert!(!dir.join("none").exists() && dir.join("dangling").is_symlink());
    assert_eq!(
        said(&image, &["ls", "disk.img"]),
        "dangling\nf\nlost+found\npipe\n"
    );
    assert_eq!(stat(&image, "%F", "disk.img:/pipe"), "fifo");
    // A link is replaced by a link, and a directory may have its slash.
    quietly(&image, &["cp", "-aq", "dangling", "disk.img:/dangling"]);
    std::fs::create_dir(dir.join("d")).expect("a directory");
    quietly(&image, &["cp", "-rq", "d", "disk.img:/new/"]);
    quietly(&image, &["cp", "-rq", "disk.img:/new", "back/"]);
    assert!(dir.join("back").is_dir());
    sound(&image);
}

#[test]
fn one_partition_is_copied_into_another_of_the_disk() {
    let image = machine();
    let path = crate::run::partitioned(&image);
    // The same volume once more, behind the second partition.
    let mut disk = std::fs::read(&path).expect("a disk");
    let volume = std::fs::read(&image.path).expect("an image");
    let first = disk.len() / 512;
    let len = volume.len() / 512;
    let entry = &mut disk[478..494];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&u32::to_le_bytes(first as u32));
    entry[12..16].copy_from_slice(&u32::to_le_bytes(len as u32));
    disk.extend_from_slice(&volume);
    std::fs::write(&path, disk).expect("a disk");
    quietly(
        &image,
        &["cp", "-a", "sdcard.img#2:/home", "sdcard.img#3:/copy"],
    );
    assert_eq!(
        said(&image, &["cat", "sdcard.img#3:/copy/ann/notes.txt"]),
        "buy milk\n"
    );
    for partition in ["sdcard.img#2", "sdcard.img#3"] {
        let said = said(&image, &["check", partition]);
        assert!(said.contains("nothing is wrong"), "{said}");
    }
}
