//! What changes volumes: each command end to end, `e2fsck` and `debugfs` afterwards, and what goes wrong.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Output, Stdio};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::find;
use extern4_testkit::{plan, tree};

use crate::copying::copied;
use crate::run::{assert_same, command, extern4, failed, machine, ok, sorted, tool};

/// A volume with a journal and nothing in it.
fn empty() -> Image {
    ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "1024"]).build()
}

/// A volume without a journal, of the oldest kind.
fn old() -> Image {
    ImageSpec::new("disk", 16 << 20, &["-t", "ext2", "-b", "1024"]).build()
}

/// Runs a command that has to succeed and say nothing.
#[track_caller]
fn quietly(image: &Image, args: &[&str]) {
    let output = ok(extern4(image, args));
    assert!(output.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output));
}

/// What a command writes.
#[track_caller]
fn said(image: &Image, args: &[&str]) -> String {
    String::from_utf8(ok(extern4(image, args))).expect("text")
}

/// Runs a command with this standard input.
fn fed(image: &Image, args: &[&str], input: &[u8]) -> Output {
    let mut child = command()
        .current_dir(image.scratch())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    // A command that does not read it is judged by what it says.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("the command ends")
}

/// `e2fsck` finds nothing.
#[track_caller]
fn sound(image: &Image) {
    extern4_testkit::tools::run("e2fsck", [OsStr::new("-fn"), image.path.as_os_str()]);
    let said = said(image, &["check", "disk.img"]);
    assert!(said.contains("nothing is wrong"), "{said}");
}

/// Runs something that must not change a byte of the image.
#[track_caller]
fn untouched<T>(image: &Image, run: impl FnOnce() -> T) -> T {
    let before = std::fs::read(&image.path).expect("an image");
    let result = run();
    assert!(before == std::fs::read(&image.path).expect("an image"), "the image has changed");
    result
}

/// `%a %U:%G %s` and so on of a file.
#[track_caller]
fn stat(image: &Image, format: &str, path: &str) -> String {
    said(image, &["stat", "-c", format, path]).trim_end().to_owned()
}

#[test]
fn directories_are_made_and_removed() {
    for image in [machine(), empty(), old()] {
        quietly(&image, &["mkdir", "disk.img:/a", "disk.img:/b"]);
        quietly(&image, &["mkdir", "-p", "-m", "2750", "disk.img:/a/b/c/d"]);
        quietly(&image, &["mkdir", "-p", "disk.img:/a/b/c/d"]);
        quietly(&image, &["mkdir", "-m", "u=rwx,go=", "disk.img:/a/secret"]);
        assert_eq!(stat(&image, "%a", "disk.img:/a/b/c/d"), "2750");
        assert_eq!(stat(&image, "%a", "disk.img:/a/b"), "755");
        assert_eq!(stat(&image, "%a", "disk.img:/a/secret"), "700");
        let errors = failed(&extern4(&image, ["mkdir", "disk.img:/a", "disk.img:/new"]), 1);
        assert_eq!(errors, "extern4: mkdir: disk.img:/a: File exists\n");
        // The rest is done.
        assert_eq!(stat(&image, "%F", "disk.img:/new"), "directory");
        let errors = failed(&extern4(&image, ["mkdir", "disk.img:/x/y"]), 1);
        assert_eq!(errors, "extern4: mkdir: disk.img:/x/y: No such file or directory\n");
        sound(&image);
        let errors = failed(&extern4(&image, ["rm", "disk.img:/a"]), 1);
        assert_eq!(errors, "extern4: rm: disk.img:/a: is a directory; remove it with -r\n");
        let errors = failed(&extern4(&image, ["rm", "-r", "disk.img"]), 1);
        assert!(errors.contains("is not removed"), "{errors}");
        quietly(&image, &["rm", "-r", "disk.img:/a", "disk.img:/b", "disk.img:/new/"]);
        let errors = failed(&extern4(&image, ["rm", "disk.img:/a"]), 1);
        assert_eq!(errors, "extern4: rm: disk.img:/a: No such file or directory\n");
        quietly(&image, &["rm", "-f", "disk.img:/a", "disk.img:/a/b"]);
        let left = said(&image, &["ls", "disk.img"]);
        assert!(!left.lines().any(|name| ["a", "b", "new"].contains(&name)), "{left}");
        sound(&image);
    }
}

#[test]
fn many_files_are_removed_and_links_are_not_followed() {
    let image = empty();
    let source = image.scratch().join("many");
    std::fs::create_dir_all(source.join("deep/er")).expect("directories");
    for number in 0..500 {
        std::fs::write(source.join(format!("file with a long name {number}")), "x").expect("a file");
    }
    symlink("/kept", source.join("deep/er/link")).expect("a link");
    quietly(&image, &["mkdir", "disk.img:/kept"]);
    quietly(&image, &["touch", "disk.img:/kept/file"]);
    quietly(&image, &["cp", "-r", "many", "disk.img:/"]);
    assert_eq!(said(&image, &["find", "disk.img:/many", "-type", "f"]).lines().count(), 500);
    sound(&image);
    quietly(&image, &["rm", "-r", "disk.img:/many"]);
    assert_eq!(said(&image, &["ls", "disk.img"]), "kept\nlost+found\n");
    assert_eq!(said(&image, &["ls", "disk.img:/kept"]), "file\n");
    sound(&image);
}

#[test]
fn files_are_renamed() {
    let image = machine();
    quietly(&image, &["mv", "disk.img:/etc/hostname", "disk.img:/etc/name"]);
    assert_eq!(said(&image, &["cat", "disk.img:/etc/name"]), "tiny\n");
    quietly(&image, &["mv", "disk.img:/etc/name", "disk.img:/etc/group", "disk.img:/home"]);
    assert_eq!(said(&image, &["ls", "disk.img:/home"]), "ann\ngroup\nname\n");
    quietly(&image, &["mv", "disk.img:/home/ann", "disk.img:/var/ann"]);
    quietly(&image, &["mv", "-n", "disk.img:/home/name", "disk.img:/home/group"]);
    assert_eq!(said(&image, &["cat", "disk.img:/home/name"]), "tiny\n");
    quietly(&image, &["mv", "disk.img:/home/name", "disk.img:/home/group"]);
    assert_eq!(said(&image, &["cat", "disk.img:/home/group"]), "tiny\n");
    let errors = failed(&extern4(&image, ["mv", "disk.img:/var", "disk.img:/var/ann"]), 1);
    assert!(errors.contains("disk.img:/var: "), "{errors}");
    let errors =
        failed(&extern4(&image, ["mv", "disk.img:/bin", "disk.img:/root", "disk.img:/home/group"]), 1);
    assert_eq!(errors, "extern4: mv: disk.img:/home/group: not a directory\n");
    let other = image.scratch().join("other.img");
    std::fs::copy(&image.path, &other).expect("a copy");
    let errors = untouched(&image, || failed(&extern4(&image, ["mv", "disk.img:/bin", "other.img:/x"]), 1));
    assert!(errors.contains("cp -a") && errors.contains("rm"), "{errors}");
    sound(&image);
}

#[test]
fn links_are_made() {
    let image = machine();
    quietly(&image, &["ln", "disk.img:/etc/hostname", "disk.img:/name"]);
    assert_eq!(stat(&image, "%h", "disk.img:/etc/hostname"), "2");
    assert_eq!(said(&image, &["cat", "disk.img:/name"]), "tiny\n");
    quietly(&image, &["ln", "-s", "etc/hostname", "disk.img:/link"]);
    quietly(&image, &["ln", "-s", "../etc/passwd", "../etc/group", "disk.img:/home"]);
    assert_eq!(stat(&image, "%N", "disk.img:/link"), "'/link' -> 'etc/hostname'");
    assert!(said(&image, &["cat", "disk.img:/home/passwd"]).starts_with("root"));
    let errors = failed(&extern4(&image, ["ln", "-s", "x", "disk.img:/link"]), 1);
    assert_eq!(errors, "extern4: ln: disk.img:/link: File exists\n");
    quietly(&image, &["ln", "-s", "-f", "elsewhere", "disk.img:/link"]);
    assert_eq!(stat(&image, "%N", "disk.img:/link"), "'/link' -> 'elsewhere'");
    quietly(&image, &["ln", "-f", "disk.img:/etc/hostname", "disk.img:/name"]);
    assert_eq!(stat(&image, "%h", "disk.img:/etc/hostname"), "2");
    failed(&extern4(&image, ["ln", "disk.img:/etc", "disk.img:/directory"]), 1);
    sound(&image);
}

#[test]
fn times_and_sizes_are_set() {
    for image in [empty(), old()] {
        quietly(&image, &["touch", "disk.img:/new"]);
        assert_eq!(stat(&image, "%a %s %F", "disk.img:/new"), "644 0 regular empty file");
        quietly(&image, &["touch", "-c", "disk.img:/none"]);
        failed(&extern4(&image, ["ls", "disk.img:/none"]), 1);
        quietly(&image, &["touch", "-d", "2024-02-29T12:00:00Z", "disk.img:/new"]);
        assert_eq!(stat(&image, "%X %Y", "disk.img:/new"), "1709208000 1709208000");
        quietly(&image, &["touch", "-m", "-d", "@1000", "disk.img:/new"]);
        assert_eq!(stat(&image, "%X %Y", "disk.img:/new"), "1709208000 1000");
        quietly(&image, &["touch", "-r", "disk.img:/new", "disk.img:/twin"]);
        assert_eq!(stat(&image, "%X %Y", "disk.img:/twin"), "1709208000 1000");
        quietly(&image, &["truncate", "-s", "3M", "disk.img:/new", "disk.img:/long"]);
        assert_eq!(stat(&image, "%s %b", "disk.img:/long"), "3145728 0");
        quietly(&image, &["truncate", "-s", "-1M", "disk.img:/long"]);
        quietly(&image, &["truncate", "-s", "+5", "disk.img:/long"]);
        assert_eq!(stat(&image, "%s", "disk.img:/long"), "2097157");
        quietly(&image, &["truncate", "-c", "-s", "0", "disk.img:/none"]);
        failed(&extern4(&image, ["ls", "disk.img:/none"]), 1);
        let errors = failed(&extern4(&image, ["truncate", "-s", "0", "disk.img:/lost+found"]), 1);
        assert_eq!(errors, "extern4: truncate: disk.img:/lost+found: Is a directory\n");
        sound(&image);
    }
    let image = empty();
    quietly(&image, &["touch", "-d", "@1709208000.123456789", "disk.img:/a"]);
    assert_eq!(stat(&image, "%y", "disk.img:/a"), "2024-02-29 12:00:00.123456789 +0000");
    assert!(image.debugfs("stat /a").contains("0x65e071c0"));
}

#[test]
fn modes_and_owners_change() {
    let image = machine();
    quietly(&image, &["chmod", "u+s,go-rwx", "disk.img:/bin/true"]);
    assert_eq!(stat(&image, "%a", "disk.img:/bin/true"), "4700");
    quietly(&image, &["chmod", "-R", "u=rwX,go=rX", "disk.img:/home"]);
    assert_eq!(stat(&image, "%a", "disk.img:/home/ann"), "755");
    assert_eq!(stat(&image, "%a", "disk.img:/home/ann/notes.txt"), "644");
    assert_eq!(stat(&image, "%a", "disk.img:/home/ann/todo"), "777");
    quietly(&image, &["chmod", "-w", "disk.img:/etc/hostname"]);
    assert_eq!(stat(&image, "%a", "disk.img:/etc/hostname"), "444");
    quietly(&image, &["chown", "ann:staff", "disk.img:/etc/hostname"]);
    assert_eq!(stat(&image, "%u:%g %U:%G", "disk.img:/etc/hostname"), "1000:50 ann:staff");
    quietly(&image, &["chown", ":7", "disk.img:/etc/hostname"]);
    assert_eq!(stat(&image, "%u:%g", "disk.img:/etc/hostname"), "1000:7");
    quietly(&image, &["chown", "-R", "5:6", "disk.img:/home"]);
    for path in ["disk.img:/home", "disk.img:/home/ann/todo", "disk.img:/home/ann/notes.txt"] {
        assert_eq!(stat(&image, "%u:%g", path), "5:6", "{path}");
    }
    // Through a link, or the link itself.
    quietly(&image, &["chown", "8", "disk.img:/home/ann/todo"]);
    assert_eq!(stat(&image, "%u", "disk.img:/home/ann/notes.txt"), "8");
    quietly(&image, &["chown", "-h", "9", "disk.img:/home/ann/todo"]);
    assert_eq!(stat(&image, "%u", "disk.img:/home/ann/todo"), "9");
    let inode = image.debugfs("stat /home/ann/notes.txt");
    assert!(inode.contains("User:     8") && inode.contains("Mode:  0644"), "{inode}");
    let errors = untouched(&image, || failed(&extern4(&image, ["chown", "nobody", "disk.img:/etc"]), 1));
    assert_eq!(errors, "extern4: chown: nobody is not a user of disk.img\n");
    let errors = failed(&extern4(&image, ["chmod", "644", "disk.img:/gone", "disk.img:/bin/true"]), 1);
    assert_eq!(errors, "extern4: chmod: disk.img:/gone: No such file or directory\n");
    assert_eq!(stat(&image, "%a", "disk.img:/bin/true"), "644");
    sound(&image);
}

#[test]
fn a_caller_changes_what_he_may() {
    let image = machine();
    let as_ann = |args: &[&str]| extern4(&image, [&["--as", "1000:1000,50"], args].concat());
    ok(as_ann(&["touch", "disk.img:/home/ann/mine"]));
    assert_eq!(stat(&image, "%u:%g", "disk.img:/home/ann/mine"), "1000:1000");
    ok(as_ann(&["chown", ":50", "disk.img:/home/ann/mine"]));
    let refused = |args: &[&str], says: &str| {
        let errors = failed(&as_ann(args), 1);
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    refused(&["touch", "disk.img:/etc/new"], "disk.img:/etc/new: Permission denied");
    refused(&["rm", "disk.img:/etc/hostname"], "disk.img:/etc/hostname: Permission denied");
    refused(&["chmod", "777", "disk.img:/etc/hostname"], "Operation not permitted");
    refused(&["chown", "0", "disk.img:/home/ann/mine"], "Operation not permitted");
    refused(&["tune", "disk.img", "--label", "x"], "only the superuser");
    sound(&image);
}

#[test]
fn access_lists_are_those_of_linux() {
    let image = empty();
    let host = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let (file, dir) = (host.path().join("file"), host.path().join("dir"));
    std::fs::write(&file, "").expect("a file");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o664)).expect("a mode");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let fits = find("setfacl").is_some()
        && std::process::Command::new("setfacl")
            .args(["-m", "u:5:r"])
            .arg(&file)
            .status()
            .is_ok_and(|it| it.success());
    if !fits {
        return;
    }
    tool(host.path(), "setfacl", ["-b", "file"]);
    quietly(&image, &["touch", "disk.img:/file"]);
    quietly(&image, &["mkdir", "disk.img:/dir"]);
    tool(host.path(), "chmod", ["664", "file"]);
    quietly(&image, &["chmod", "664", "disk.img:/file"]);
    for args in [
        &["-m", "u:5:rw,g:7:x"][..],
        &["-m", "m::r"],
        &["-m", "g:8:rw"],
        &["-x", "u:5"],
        &["-m", "u:6:X,o::-"],
        &["-d", "-m", "u:5:rx"],
        &["-m", "d:g:9:rwx,u:9:7"],
        &["-x", "d:u:5,g:8"],
        &["-k"],
        &["-d", "-m", "u:3:rwx"],
        &["-b"],
        &["-m", "u:3:rw,m::r"],
        &["-b", "-m", "u:4:r"],
    ] {
        for name in ["file", "dir"] {
            let default = args.iter().any(|arg| *arg == "-d" || arg.contains("d:"));
            if default && name == "file" {
                continue;
            }
            tool(host.path(), "setfacl", [args, &[name]].concat());
            let place = format!("disk.img:/{name}");
            quietly(&image, &[&["setfacl"], args, &[&place]].concat());
            let theirs = tool(host.path(), "getfacl", ["-n", "-c", name]);
            let ours = said(&image, &["getfacl", "-n", "-c", &place]);
            assert_eq!(ours, String::from_utf8_lossy(&theirs), "{args:?} {name}");
        }
    }
    sound(&image);
    let errors = failed(&extern4(&image, ["setfacl", "-d", "-m", "u:5:r", "disk.img:/file"]), 1);
    assert!(errors.contains("only directories"), "{errors}");
    untouched(&image, || {
        failed(&extern4(&image, ["setfacl", "-m", "u:nobody:r", "disk.img:/file"]), 1);
        failed(&extern4(&image, ["setfacl", "-m", "u:5:q", "disk.img:/file"]), 2);
        failed(&extern4(&image, ["setfacl", "disk.img:/file"]), 2);
    });
}

#[test]
fn access_lists_are_brought_back() {
    let image = machine();
    quietly(&image, &["setfacl", "-R", "-m", "u:ann:rwX,d:g:staff:rx", "disk.img:/var"]);
    quietly(&image, &["chmod", "g+s", "disk.img:/var/log"]);
    let before = said(&image, &["getfacl", "-R", "disk.img"]);
    assert!(before.contains("default:group:staff:r-x") && before.contains("user:ann:rw-"), "{before}");
    std::fs::write(image.scratch().join("acls"), &before).expect("a file");
    quietly(&image, &["setfacl", "-R", "-b", "disk.img:/"]);
    quietly(&image, &["chown", "-R", "3:3", "disk.img:/var"]);
    quietly(&image, &["chmod", "-R", "700", "disk.img:/var"]);
    quietly(&image, &["setfacl", "--restore", "acls", "disk.img"]);
    assert_eq!(said(&image, &["getfacl", "-R", "disk.img"]), before);
    sound(&image);
    std::fs::write(image.scratch().join("bad"), "# file: etc\nuser::rwx\ngroup::rx\nother::z\n")
        .expect("a file");
    let errors =
        untouched(&image, || failed(&extern4(&image, ["setfacl", "--restore", "bad", "disk.img"]), 1));
    assert!(errors.contains("bad:4: "), "{errors}");
}

#[test]
fn attributes_are_set_and_removed() {
    let image = machine();
    let place = "disk.img:/etc/hostname";
    quietly(&image, &["setfattr", "-n", "user.text", "-v", "plain", place]);
    quietly(&image, &["setfattr", "-n", "user.quoted", "-v", "\"quoted\\012b\"", place]);
    quietly(&image, &["setfattr", "-n", "user.hex", "-v", "0x00ff01", place]);
    quietly(&image, &["setfattr", "-n", "trusted.base64", "-v", "0sAP8B", place]);
    quietly(&image, &["setfattr", "-n", "user.empty", place]);
    quietly(&image, &["setfattr", "-n", "user.text", "-v", "again", place]);
    let dump = said(&image, &["getfattr", "-d", "-m", "-", place]);
    for line in [
        "user.text=\"again\"",
        "user.quoted=\"quoted\\012b\"",
        "user.hex=0sAP8B",
        "trusted.base64=0sAP8B",
        "user.empty=\"\"",
    ] {
        assert!(dump.lines().any(|found| found == line), "{line}: {dump}");
    }
    assert!(image.debugfs("ea_get /etc/hostname user.text").contains("again"));
    quietly(&image, &["setfattr", "-x", "user.text", place]);
    let errors = failed(&extern4(&image, ["setfattr", "-x", "user.text", place]), 1);
    assert!(errors.contains("No data available") || errors.contains("No such attribute"), "{errors}");
    // What getfattr writes is brought back.
    let dump = said(&image, &["getfattr", "-d", "-m", "-", place]);
    std::fs::write(image.scratch().join("attributes"), &dump).expect("a file");
    for name in ["user.quoted", "user.hex", "trusted.base64", "user.empty"] {
        quietly(&image, &["setfattr", "-x", name, place]);
    }
    quietly(&image, &["setfattr", "--restore", "attributes", "disk.img"]);
    assert_eq!(said(&image, &["getfattr", "-d", "-m", "-", place]), dump);
    untouched(&image, || {
        failed(&extern4(&image, ["setfattr", "-n", "user.x", "-v", "0xg", place]), 2);
        failed(&extern4(&image, ["setfattr", place]), 2);
    });
    sound(&image);
}

/// A directory of the host with everything a copy keeps.
fn host_tree(image: &Image) -> bool {
    let root = image.scratch().join("tree");
    std::fs::create_dir(&root).expect("a directory");
    // Only root can make some of it.
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
        && plan::TREE.iter().all(|plan| plan(&root).is_ok())
}

#[test]
fn an_archive_copy_into_a_volume_is_the_same_tree() {
    let image = ImageSpec::new("disk", 128 << 20, &["-t", "ext4", "-b", "4096", "-I", "256"]).build();
    if !host_tree(&image) {
        return;
    }
    quietly(&image, &["cp", "-a", "tree", "disk.img:/"]);
    sound(&image);
    let original = copied(&image.scratch().join("tree"));
    {
        let mount = image.mount("ro,noatime");
        tree::assert_same("cp -a into a volume", &copied(&mount.path.join("tree")), &original);
    }
    // Again over the first copy: everything is replaced. Then within the volume.
    quietly(&image, &["cp", "-a", "tree", "disk.img:/"]);
    quietly(&image, &["cp", "-a", "disk.img:/tree", "disk.img:/twin"]);
    sound(&image);
    // And to another volume.
    let other = ImageSpec::new("other", 128 << 20, &["-t", "ext3", "-b", "4096", "-I", "256"]).build();
    let place = format!("{}:/", other.path.display());
    quietly(&image, &["cp", "-a", "disk.img:/twin", &place]);
    let (mount, other) = (image.mount("ro,noatime"), other.mount("ro,noatime"));
    for copy in [mount.path.join("tree"), mount.path.join("twin"), other.path.join("twin")] {
        tree::assert_same("cp -a again", &copied(&copy), &original);
    }
}

/// What `find` sees below a directory, sorted; without the sizes of directories, which are the file systems' own.
fn listed(directory: &Path) -> Vec<String> {
    let directories = ["(", "-type", "d", "-printf", "%y %m %U %T@ %P\n", ")"];
    let others = ["-o", "-printf", "%y %m %U %n %s %T@ %P\n"];
    sorted(&tool(directory, "find", ["."].into_iter().chain(directories).chain(others)))
}

#[test]
fn trees_are_copied_with_few_open_files() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096", "-N", "8192"]).build();
    let root = image.scratch().join("tree");
    // Deeper than there may be open files, with something on both sides of each way down.
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
        std::fs::File::create(&path).and_then(|file| file.set_len(8192)).expect("a file with a hole");
        std::fs::hard_link(&path, root.join(format!("link{number}"))).expect("a link");
        std::fs::create_dir(root.join(format!("dir{number}"))).expect("a directory");
    }
    let copy = "ulimit -n 200 && exec \"$0\" cp -a tree disk.img:/";
    tool(image.scratch(), "sh", ["-c", copy, env!("CARGO_BIN_EXE_extern4")]);
    sound(&image);
    let Ok(mount) = image.try_mount("ro,noatime") else { return };
    assert_same("cp -a", &listed(&mount.path.join("tree")), &listed(&root));
}

#[test]
fn what_cannot_be_read_or_made_is_said_and_the_rest_is_copied() {
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
            "extern4: cp: tree/a: there is a file of this name where the directory would go",
            "extern4: cp: tree/c/file: there is a directory of this name where the file would go",
        ]
    );
    assert_eq!(said(&image, &["cat", "disk.img:/tree/a", "disk.img:/tree/b/file"]), "in the way\ntree/b");
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
    assert_eq!(said(&image, &["cat", "disk.img:/etc/one", "disk.img:/etc/uno"]), "1\n1\n");
    assert_eq!(stat(&image, "%a %u:%g", "disk.img:/etc/uno"), "755 0:0");
    quietly(&image, &["cp", "-r", "dir", "disk.img:/"]);
    quietly(&image, &["cp", "-r", "dir", "disk.img:/new"]);
    quietly(&image, &["cp", "-r", "dir/.", "disk.img:/home"]);
    for path in ["disk.img:/dir/sub/file", "disk.img:/new/sub/file", "disk.img:/home/sub/file"] {
        assert_eq!(said(&image, &["cat", path]), "contents\n", "{path}");
    }
    // Over a file that is there: its inode stays, and a link is written through.
    let inode = stat(&image, "%i", "disk.img:/home/ann/notes.txt");
    quietly(&image, &["cp", "one", "disk.img:/home/ann/todo"]);
    assert_eq!(said(&image, &["cat", "disk.img:/home/ann/notes.txt"]), "1\n");
    assert_eq!(stat(&image, "%i %a", "disk.img:/home/ann/notes.txt"), format!("{inode} 640"));
    // Within the volume, and of a file with holes.
    quietly(&image, &["cp", "disk.img:/etc/passwd", "disk.img:/passwd"]);
    assert_eq!(said(&image, &["cat", "disk.img:/passwd"]), said(&image, &["cat", "disk.img:/etc/passwd"]));
    let sparse = std::fs::File::create(at("sparse")).expect("a file");
    sparse.set_len(64 << 20).expect("a hole");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 32 << 20).expect("data");
    quietly(&image, &["cp", "sparse", "disk.img:/sparse"]);
    assert_eq!(stat(&image, "%s", "disk.img:/sparse"), (64 << 20).to_string());
    assert!(stat(&image, "%b", "disk.img:/sparse").parse::<u64>().expect("a number") < 1024);
    let refused = |args: &[&str], says: &str| {
        let errors = failed(&extern4(&image, args), 1);
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    refused(&["cp", "dir", "disk.img:/x"], "dir: is a directory; copy it with -r");
    refused(&["cp", "gone", "disk.img:/x"], "gone: No such file or directory");
    refused(&["cp", "one", "sparse", "disk.img:/nowhere"], "disk.img:/nowhere: not a directory");
    refused(&["cp", "one", "disk.img:/nowhere/x"], "No such file or directory");
    refused(&["cp", "one", "gone.img:/x"], "gone.img: No such file or directory");
    refused(&["cp", "disk.img:/passwd", "disk.img:/passwd"], "the same file");
    refused(&["cp", "-r", "disk.img:/home", "disk.img:/home/copy"], "into itself");
    refused(&["cp", "disk.img", "disk.img:/copy"], "into itself");
    refused(&["cp", "-r", "dir", "disk.img:/passwd"], "where the directory would go");
    quietly(&image, &["mkdir", "disk.img:/etc/sub"]);
    refused(&["cp", "-r", "disk.img:/passwd", "one", "disk.img:/gone"], "not a directory");
    sound(&image);
}

#[test]
fn a_full_volume_says_so_and_stays_sound() {
    let image = ImageSpec::new("disk", 8 << 20, &["-t", "ext4", "-b", "1024"]).build();
    std::fs::write(image.scratch().join("first"), vec![b'a'; 1 << 20]).expect("a file");
    std::fs::write(image.scratch().join("large"), vec![b'b'; 16 << 20]).expect("a file");
    let errors = failed(&extern4(&image, ["cp", "first", "large", "disk.img:/"]), 1);
    assert!(errors.contains("No space left on device"), "{errors}");
    // What was done before stays.
    assert_eq!(ok(extern4(&image, ["cat", "disk.img:/first"])), vec![b'a'; 1 << 20]);
    sound(&image);
}

#[test]
fn what_is_put_has_the_acl_and_attributes_of_what_was_there() {
    let image = empty();
    let large = vec![b'x'; (1 << 20) + 1];
    for contents in [&b"short"[..], &large] {
        ok(fed(&image, &["put", "disk.img:/file"], b"old"));
        quietly(&image, &["chmod", "755", "disk.img:/file"]);
        quietly(&image, &["setfacl", "-m", "u:1000:rwx,g:2000:r", "disk.img:/file"]);
        quietly(&image, &["setfattr", "-n", "user.a", "-v", "1", "disk.img:/file"]);
        quietly(&image, &["setfattr", "-n", "trusted.b", "-v", "2", "disk.img:/file"]);
        let kept = || {
            let acl = said(&image, &["getfacl", "-n", "disk.img:/file"]);
            acl + &said(&image, &["getfattr", "-d", "-m", "-", "disk.img:/file"])
        };
        let before = kept();
        assert!(["user:1000:rwx", "group::r-x", "trusted.b", "user.a"].iter().all(|it| before.contains(it)));
        ok(fed(&image, &["put", "disk.img:/file"], contents));
        assert_eq!(kept(), before);
    }
    sound(&image);
}

#[test]
fn the_help_of_script_says_when_it_ends() {
    let help = said(&empty(), &["script", "--help"]).replace('\n', " ");
    assert!(help.contains("The first line that fails ends the script"), "{help}");
}

/// What GNU's `cp` refuses, or would write somewhere else.
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
            assert!(errors.contains(why) && errors.contains(to.trim_end_matches('/')), "{to}: {errors}");
        }
    }
    assert!(!dir.join("none").exists() && dir.join("dangling").is_symlink());
    assert_eq!(said(&image, &["ls", "disk.img"]), "dangling\nf\nlost+found\npipe\n");
    assert_eq!(stat(&image, "%F", "disk.img:/pipe"), "fifo");
    // A link is replaced by a link, and a directory may have its slash.
    quietly(&image, &["cp", "-aq", "dangling", "disk.img:/dangling"]);
    std::fs::create_dir(dir.join("d")).expect("a directory");
    quietly(&image, &["cp", "-rq", "d", "disk.img:/new/"]);
    quietly(&image, &["cp", "-rq", "disk.img:/new", "back/"]);
    assert!(dir.join("back").is_dir());
    sound(&image);
}

/// `rename(2)` does nothing where both names are of one file; `mv` and `ln` of GNU say so.
#[test]
fn names_of_one_file_are_told_from_the_same_name() {
    let image = empty();
    let dir = image.scratch().join("gnu");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::write(dir.join("a"), "").expect("a file");
    ok(fed(&image, &["put", "disk.img:/a"], b""));
    for (at, words) in [
        "ln a b",
        "mv a a",
        "ln -f a a",
        "ln -f a b",
        "mv a b",
        "ln -f b ./b",
        "mv -n b b",
        "ln b c",
        "mv -n b c",
        "mv b c",
        "mv c c",
    ]
    .into_iter()
    .enumerate()
    {
        let words: Vec<&str> = words.split(' ').collect();
        let gnu = std::process::Command::new(words[0])
            .args(&words[1..])
            .current_dir(&dir)
            .output()
            .expect("it runs");
        let ours = words.iter().map(|word| match *word {
            "mv" | "ln" | "-f" | "-n" => (*word).to_owned(),
            name => format!("disk.img:/{}", name.trim_start_matches("./")),
        });
        let ours = extern4(&image, ours);
        assert_eq!(
            ours.status.code(),
            gnu.status.code(),
            "{at}: {words:?} {}",
            String::from_utf8_lossy(&ours.stderr)
        );
        if !gnu.status.success() {
            assert!(failed(&ours, 1).contains("are the same file"), "{words:?}");
        }
        let there = String::from_utf8(tool(&dir, "ls", [""; 0])).expect("text");
        assert_eq!(said(&image, &["ls", "disk.img"]).replace("lost+found\n", ""), there, "{at}: {words:?}");
    }
    sound(&image);
}

#[test]
fn standard_input_becomes_a_file() {
    let image = ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "4096"]).build();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(5_000_001).collect();
    for contents in [&b""[..], b"hello\n", &large, b"short again\n", &large[..1 << 20]] {
        assert!(ok(fed(&image, &["put", "disk.img:/file"], contents)).is_empty());
        assert!(ok(extern4(&image, ["get", "disk.img:/file"])) == contents);
        // Owner and mode stay from one to the next.
        ok(extern4(&image, ["chmod", "640", "disk.img:/file"]));
        ok(extern4(&image, ["chown", "5:6", "disk.img:/file"]));
    }
    assert!(ok(fed(&image, &["put", "disk.img:/file"], &large)).is_empty());
    assert_eq!(stat(&image, "%a %u:%g", "disk.img:/file"), "640 5:6");
    quietly(&image, &["ln", "-s", "file", "disk.img:/link"]);
    ok(fed(&image, &["put", "disk.img:/link"], b"through\n"));
    assert_eq!(said(&image, &["cat", "disk.img:/file"]), "through\n");
    assert_eq!(stat(&image, "%F", "disk.img:/link"), "symbolic link");
    let errors = failed(&fed(&image, &["put", "disk.img:/lost+found"], b"x"), 1);
    assert!(errors.contains("is not a regular file"), "{errors}");
    failed(&fed(&image, &["put", "disk.img:/gone/file"], b"x"), 1);
    failed(&extern4(&image, ["get", "disk.img:/gone"]), 1);
    assert_eq!(said(&image, &["ls", "-a", "disk.img"]), ".\n..\nfile\nlink\nlost+found\n");
    sound(&image);
}

#[test]
fn a_script_does_it_all() {
    let image = machine();
    std::fs::write(image.scratch().join("from host"), "of the host\n").expect("a file");
    let script = r"
        # A comment, and an empty line

        mkdir -p '/srv/my files' /srv/x   # behind a command
        cp 'host:from host' '/srv/my files/a'
        cp -a /home/ann /srv
        cp /etc/hostname host:hostname
        ln -s a /srv/my\ files/b
        chmod 600 '/srv/my files/a'
        chown ann:staff '/srv/my files/a'
        setfacl -m u:ann:rwx /srv/x
        setfattr -n user.x -v '0x0102' /srv/x
        touch -d @1000 /srv/x
        truncate -s 1K /srv/zeroes
        mv /srv/zeroes /srv/x
        rm -r /var
    ";
    assert!(ok(fed(&image, &["script", "disk.img"], script.as_bytes())).is_empty());
    assert_eq!(said(&image, &["cat", "disk.img:/srv/my files/b"]), "of the host\n");
    assert_eq!(stat(&image, "%a %U:%G", "disk.img:/srv/my files/a"), "600 ann:staff");
    assert_eq!(said(&image, &["ls", "disk.img:/srv/x"]), "zeroes\n");
    assert_eq!(said(&image, &["cat", "disk.img:/srv/ann/notes.txt"]), "buy milk\n");
    assert_eq!(std::fs::read_to_string(image.scratch().join("hostname")).expect("a copy"), "tiny\n");
    assert!(said(&image, &["getfattr", "-d", "disk.img:/srv/x"]).contains("user.x"));
    failed(&extern4(&image, ["ls", "disk.img:/var"]), 1);
    sound(&image);
}

#[test]
fn a_line_of_a_script_leaves_nothing_for_the_next() {
    let image = empty();
    let script = "mkdir -p /a/b\nmkdir /c /c/d\nchmod -R 700 /a\nchmod 755 /a\nchmod 750 /c\nchmod 711 /c/d\n\
                  cp -a /a /e\nmkdir /gone/f\n";
    let output = fed(&image, &["script", "disk.img"], script.as_bytes());
    let errors = failed(&output, 1);
    assert_eq!(
        errors, "extern4: script: standard input:8: disk.img:/gone/f: No such file or directory\n",
        "only the first line had -p"
    );
    assert_eq!(stat(&image, "%a", "disk.img:/a"), "755");
    assert_eq!(stat(&image, "%a", "disk.img:/a/b"), "700", "-R is of the line before");
    assert_eq!(stat(&image, "%a", "disk.img:/c"), "750");
    sound(&image);
}

#[test]
fn a_script_stops_at_its_first_failure() {
    let image = machine();
    let script = "mkdir /one\nmkdir /two\nmkdir /gone/three\nmkdir /four\n";
    std::fs::write(image.scratch().join("lines"), script).expect("a script");
    let errors = failed(&extern4(&image, ["script", "disk.img", "lines"]), 1);
    assert_eq!(errors, "extern4: script: lines:3: disk.img:/gone/three: No such file or directory\n");
    let said = said(&image, &["ls", "disk.img"]);
    assert!(said.contains("one\n") && said.contains("two\n") && !said.contains("four"), "{said}");
    sound(&image);
    // One that makes no sense changes nothing.
    let script = "mkdir /five\nmkdir --nonsense /six\nchmod 999 /\nmkdir '/seven\n";
    let errors = untouched(&image, || failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 2));
    for says in ["standard input:2: ", "--nonsense", "standard input:3: ", "standard input:4: a quote"] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(errors.lines().count(), 3, "{errors}");
    untouched(&image, || {
        failed(&extern4(&image, ["script", "disk.img", "gone"]), 1);
        failed(&extern4(&image, ["script", "disk.img:/etc", "lines"]), 2);
        failed(&extern4(&image, ["script", "lines", "lines"]), 3);
    });
}

#[test]
fn journals_are_replayed() {
    let image = machine();
    let text = untouched(&image, || said(&image, &["recover", "disk.img"]));
    assert_eq!(text, "disk.img: there is nothing to replay\n");
    for name in ["ordered", "data_journal"] {
        let spec = extern4_testkit::crash::spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let kernel = image.copy();
        let path = image.path.to_str().expect("a path");
        let json = ok(extern4(&image, ["recover", "--json", path]));
        let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
        assert_eq!(json["replayed"], true);
        assert!(json["transactions"].as_u64() > Some(0), "{json}");
        extern4_testkit::tools::run("e2fsck", [OsStr::new("-fn"), image.path.as_os_str()]);
        assert!(said(&image, &["recover", path]).contains("nothing to replay"));
        let theirs = kernel.mount("rw,noatime");
        let ours = image.mount("ro,noatime");
        tree::assert_same(name, &copied(&ours.path), &copied(&theirs.path));
    }
}

/// What `dumpe2fs` says of the superblock in a block, without what each opening changes.
fn header(image: &Image, superblock: &[&str]) -> Vec<String> {
    let mut args = vec!["-h"];
    args.extend(superblock);
    args.push(image.path.to_str().expect("a path"));
    let text = tool(image.scratch(), "dumpe2fs", args);
    let changing =
        ["Last mount time", "Last write time", "Mount count", "Lifetime writes", "Checksum:", "Journal"];
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !changing.iter().any(|start| line.starts_with(start)));
    lines.map(ToOwned::to_owned).collect()
}

#[test]
fn volumes_are_tuned_as_tune2fs_does() {
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    let image = ImageSpec::new(
        "disk",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,metadata_csum_seed", "-L", "old"],
    )
    .build();
    for (ours, theirs) in [
        (&["--label", "new label"][..], &["-L", "new label"][..]),
        (&["--label", ""], &["-L", ""]),
        (&["--uuid", UUID], &["-U", UUID]),
        (&["--uuid", "clear"], &["-U", "clear"]),
        (&["--errors", "continue"], &["-e", "continue"]),
        (&["--errors", "remount-ro"], &["-e", "remount-ro"]),
        (&["--errors", "panic"], &["-e", "panic"]),
        (&["--reserved-blocks", "1234"], &["-r", "1234"]),
        (&["--reserved-percent", "3.7"], &["-m", "3.7"]),
        (&["--reserved-blocks", "0"], &["-r", "0"]),
        (&["--label", "both", "--errors", "panic"], &["-L", "both", "-e", "panic"]),
    ] {
        let oracle = image.copy();
        let tuned = image.copy();
        tool(oracle.scratch(), "tune2fs", [theirs, &["disk.img"]].concat());
        quietly(&tuned, &[&["tune", "disk.img"], ours].concat());
        assert_eq!(header(&tuned, &[]), header(&oracle, &[]), "{ours:?}");
        let backup = ["-o", "superblock=8193", "-o", "blocksize=1024"];
        let label = |image: &Image| {
            let of_backup = header(image, &backup).into_iter();
            of_backup.filter(|line| line.starts_with("Filesystem volume name")).collect::<Vec<_>>()
        };
        assert_eq!(label(&tuned), label(&oracle), "{ours:?}");
        sound(&tuned);
    }
    quietly(&image, &["tune", "disk.img", "--uuid", "random"]);
    sound(&image);
    untouched(&image, || {
        failed(&extern4(&image, ["tune", "disk.img"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--label", "seventeen bytes n"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--uuid", "1"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--reserved-percent", "51"]), 2);
    });
    let errors = failed(&extern4(&image, ["tune", "disk.img", "--reserved-blocks", "20000"]), 1);
    assert!(errors.contains("half of them can, "), "{errors}");
    sound(&image);
}

#[test]
fn a_uuid_that_checksums_hang_on_stays() {
    let image =
        ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "metadata_csum,^metadata_csum_seed"]).build();
    let before = header(&image, &[]);
    let errors = failed(&extern4(&image, ["tune", "disk.img", "--uuid", "random", "--label", "x"]), 3);
    assert!(errors.contains("metadata_csum"), "{errors}");
    assert_eq!(header(&image, &[]), before);
    sound(&image);
}

#[test]
fn operations_are_measured_on_a_copy() {
    let image = machine();
    let ops = ["create-unlink", "rename", "chmod", "setxattr", "link-unlink", "open-close", "fsync"];
    for op in ops.into_iter().chain(["create-write-fsync"]) {
        for shared in [&[][..], &["--shared"]] {
            let args = [
                "bench",
                "ops",
                "disk.img:/home",
                "--op",
                op,
                "--threads",
                "2",
                "--seconds",
                "0.02",
                "--json",
            ];
            let json = untouched(&image, || ok(extern4(&image, [&args, shared].concat())));
            let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
            assert_eq!(json["op"], op);
            assert!(json["ops_per_s"].as_f64() > Some(0.0), "{json}");
        }
    }
    let text = said(&image, &["bench", "ops", "disk.img", "--op", "chmod", "--seconds", "0.01"]);
    assert!(text.starts_with("chmod, 1 threads: "), "{text}");
    let left: Vec<_> = std::fs::read_dir(image.scratch()).expect("a directory").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    failed(&extern4(&image, ["bench", "ops", "disk.img:/gone", "--op", "chmod"]), 1);
}

#[test]
fn wrong_command_lines_change_nothing() {
    let image = machine();
    let wrong = |args: &[&str], code| {
        untouched(&image, || failed(&extern4(&image, args), code));
    };
    wrong(&["mkdir"], 2);
    wrong(&["mkdir", "-m", "999", "disk.img:/x"], 2);
    wrong(&["rm", "--nonsense", "disk.img:/etc"], 2);
    wrong(&["mv", "disk.img:/etc"], 2);
    wrong(&["ln", "disk.img:/etc"], 2);
    wrong(&["touch", "-d", "yesterday", "disk.img:/x"], 2);
    wrong(&["truncate", "disk.img:/x"], 2);
    wrong(&["truncate", "-s", "x", "disk.img:/x"], 2);
    wrong(&["chmod", "u+q", "disk.img:/etc"], 2);
    wrong(&["chown", "", "disk.img:/etc"], 2);
    wrong(&["put"], 2);
    wrong(&["cp", "disk.img:/etc/passwd"], 2);
    wrong(&["bench", "ops", "disk.img", "--op", "nonsense"], 2);
    std::fs::write(image.scratch().join("zeroes"), vec![0; 1 << 20]).expect("a file");
    wrong(&["mkdir", "zeroes:/x"], 3);
    wrong(&["touch", "gone.img:/x"], 1);
}

#[test]
fn partitions_are_written() {
    let image = machine();
    crate::run::partitioned(&image);
    quietly(&image, &["mkdir", "sdcard.img#2:/new"]);
    quietly(&image, &["cp", "-a", "sdcard.img#2:/home", "sdcard.img#2:/new"]);
    assert_eq!(said(&image, &["cat", "sdcard.img#2:/new/home/ann/notes.txt"]), "buy milk\n");
    assert_eq!(said(&image, &["cat", "sdcard.img@1M:/new/home/ann/notes.txt"]), "buy milk\n");
    let said = said(&image, &["check", "sdcard.img#2"]);
    assert!(said.contains("nothing is wrong"), "{said}");
    assert!(Path::new(&image.path).exists());
}

#[test]
fn one_partition_is_copied_into_another_of_the_disk() {
    let image = machine();
    let path = crate::run::partitioned(&image);
    // The same volume once more, behind the second partition.
    let mut disk = std::fs::read(&path).expect("a disk");
    let volume = std::fs::read(&image.path).expect("an image");
    let (first, len) = (disk.len() / 512, volume.len() / 512);
    let entry = &mut disk[478..494];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&u32::to_le_bytes(first as u32));
    entry[12..16].copy_from_slice(&u32::to_le_bytes(len as u32));
    disk.extend_from_slice(&volume);
    std::fs::write(&path, disk).expect("a disk");
    quietly(&image, &["cp", "-a", "sdcard.img#2:/home", "sdcard.img#3:/copy"]);
    assert_eq!(said(&image, &["cat", "sdcard.img#3:/copy/ann/notes.txt"]), "buy milk\n");
    for partition in ["sdcard.img#2", "sdcard.img#3"] {
        let said = said(&image, &["check", partition]);
        assert!(said.contains("nothing is wrong"), "{said}");
    }
}
