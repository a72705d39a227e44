//! Commands that change volumes: each end to end, `e2fsck` and `debugfs` afterwards, and their
//! errors.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::find;
use extern4_testkit::tree;

use crate::copying::copied;
use crate::run::{command, extern4, failed, machine, ok, tool};

/// Makes a volume with a journal and nothing in it.
pub(crate) fn empty() -> Image {
    ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "1024"]).build()
}

/// Makes a volume without a journal, of the oldest kind.
pub(crate) fn old() -> Image {
    ImageSpec::new("disk", 16 << 20, &["-t", "ext2", "-b", "1024"]).build()
}

/// Runs a command that has to succeed and print nothing.
#[track_caller]
pub(crate) fn quietly(image: &Image, args: &[&str]) {
    let output = ok(extern4(image, args));
    assert!(
        output.is_empty(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output)
    );
}

/// Returns the output of a command.
#[track_caller]
pub(crate) fn said(image: &Image, args: &[&str]) -> String {
    String::from_utf8(ok(extern4(image, args))).expect("text")
}

/// Runs extern4 with this standard input.
pub(crate) fn fed(image: &Image, args: &[&str], input: &[u8]) -> Output {
    let mut command = command();
    command.current_dir(image.scratch()).args(args);
    output_of(command, input)
}

/// Runs a command with this standard input.
pub(crate) fn output_of(mut command: Command, input: &[u8]) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the command runs");
    // The write fails if the command reads nothing; its output tells the reason.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("the command ends")
}

/// Asserts that `e2fsck` finds nothing.
#[track_caller]
pub(crate) fn sound(image: &Image) {
    extern4_testkit::tools::run("e2fsck", [OsStr::new("-fn"), image.path.as_os_str()]);
    let said = said(image, &["check", "disk.img"]);
    assert!(said.contains("nothing is wrong"), "{said}");
}

/// Runs something that must not change a byte of the image.
#[track_caller]
pub(crate) fn untouched<T>(image: &Image, run: impl FnOnce() -> T) -> T {
    let before = std::fs::read(&image.path).expect("an image");
    let result = run();
    assert!(
        before == std::fs::read(&image.path).expect("an image"),
        "the image has changed"
    );
    result
}

/// Returns `%a %U:%G %s` and so on of a file.
#[track_caller]
pub(crate) fn stat(image: &Image, format: &str, path: &str) -> String {
    said(image, &["stat", "-c", format, path])
        .trim_end()
        .to_owned()
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
        let errors = failed(
            &extern4(&image, ["mkdir", "disk.img:/a", "disk.img:/new"]),
            1,
        );
        assert_eq!(errors, "extern4: mkdir: 'disk.img:/a': File exists\n");
        // The rest is done.
        assert_eq!(stat(&image, "%F", "disk.img:/new"), "directory");
        let errors = failed(&extern4(&image, ["mkdir", "disk.img:/x/y"]), 1);
        assert_eq!(
            errors,
            "extern4: mkdir: 'disk.img:/x/y': No such file or directory\n"
        );
        sound(&image);
        let errors = failed(&extern4(&image, ["rm", "disk.img:/a"]), 1);
        assert_eq!(
            errors,
            "extern4: rm: 'disk.img:/a': is a directory; remove it with -r\n"
        );
        let errors = failed(&extern4(&image, ["rm", "-r", "disk.img"]), 1);
        assert!(errors.contains("is not removed"), "{errors}");
        quietly(
            &image,
            &["rm", "-r", "disk.img:/a", "disk.img:/b", "disk.img:/new/"],
        );
        let errors = failed(&extern4(&image, ["rm", "disk.img:/a"]), 1);
        assert_eq!(
            errors,
            "extern4: rm: 'disk.img:/a': No such file or directory\n"
        );
        quietly(&image, &["rm", "-f", "disk.img:/a", "disk.img:/a/b"]);
        let left = said(&image, &["ls", "disk.img"]);
        assert!(
            !left.lines().any(|name| ["a", "b", "new"].contains(&name)),
            "{left}"
        );
        sound(&image);
    }
}

#[test]
fn many_files_are_removed_and_links_are_not_followed() {
    let image = empty();
    let source = image.scratch().join("many");
    std::fs::create_dir_all(source.join("deep/er")).expect("directories");
    for number in 0..500 {
        std::fs::write(source.join(format!("file with a long name {number}")), "x")
            .expect("a file");
    }
    symlink("/kept", source.join("deep/er/link")).expect("a link");
    quietly(&image, &["mkdir", "disk.img:/kept"]);
    quietly(&image, &["touch", "disk.img:/kept/file"]);
    quietly(&image, &["cp", "-r", "many", "disk.img:/"]);
    assert_eq!(
        said(&image, &["find", "disk.img:/many", "-type", "f"])
            .lines()
            .count(),
        500
    );
    sound(&image);
    quietly(&image, &["rm", "-r", "disk.img:/many"]);
    assert_eq!(said(&image, &["ls", "disk.img"]), "kept\nlost+found\n");
    assert_eq!(said(&image, &["ls", "disk.img:/kept"]), "file\n");
    sound(&image);
}

#[test]
fn files_are_renamed() {
    let image = machine();
    quietly(
        &image,
        &["mv", "disk.img:/etc/hostname", "disk.img:/etc/name"],
    );
    assert_eq!(said(&image, &["cat", "disk.img:/etc/name"]), "tiny\n");
    quietly(
        &image,
        &[
            "mv",
            "disk.img:/etc/name",
            "disk.img:/etc/group",
            "disk.img:/home",
        ],
    );
    assert_eq!(
        said(&image, &["ls", "disk.img:/home"]),
        "ann\ngroup\nname\n"
    );
    quietly(&image, &["mv", "disk.img:/home/ann", "disk.img:/var/ann"]);
    quietly(
        &image,
        &["mv", "-n", "disk.img:/home/name", "disk.img:/home/group"],
    );
    assert_eq!(said(&image, &["cat", "disk.img:/home/name"]), "tiny\n");
    quietly(
        &image,
        &["mv", "disk.img:/home/name", "disk.img:/home/group"],
    );
    assert_eq!(said(&image, &["cat", "disk.img:/home/group"]), "tiny\n");
    let errors = failed(
        &extern4(&image, ["mv", "disk.img:/var", "disk.img:/var/ann"]),
        1,
    );
    assert!(errors.contains("'disk.img:/var': "), "{errors}");
    let errors = failed(
        &extern4(
            &image,
            [
                "mv",
                "disk.img:/bin",
                "disk.img:/root",
                "disk.img:/home/group",
            ],
        ),
        1,
    );
    assert_eq!(
        errors,
        "extern4: mv: 'disk.img:/home/group': not a directory\n"
    );
    let other = image.scratch().join("other.img");
    std::fs::copy(&image.path, &other).expect("a copy");
    quietly(&image, &["mv", "disk.img:/bin", "other.img:/x"]);
    failed(&extern4(&image, ["ls", "disk.img:/bin"]), 1);
    assert_eq!(said(&image, &["cat", "other.img:/x/true"]), "#!/bin/sh\n");
    sound(&image);
}

#[test]
fn links_are_made() {
    let image = machine();
    quietly(&image, &["ln", "disk.img:/etc/hostname", "disk.img:/name"]);
    assert_eq!(stat(&image, "%h", "disk.img:/etc/hostname"), "2");
    assert_eq!(said(&image, &["cat", "disk.img:/name"]), "tiny\n");
    quietly(&image, &["ln", "-s", "etc/hostname", "disk.img:/link"]);
    quietly(
        &image,
        &[
            "ln",
            "-s",
            "../etc/passwd",
            "../etc/group",
            "disk.img:/home",
        ],
    );
    assert_eq!(
        stat(&image, "%N", "disk.img:/link"),
        "'/link' -> 'etc/hostname'"
    );
    assert!(said(&image, &["cat", "disk.img:/home/passwd"]).starts_with("root"));
    let errors = failed(&extern4(&image, ["ln", "-s", "x", "disk.img:/link"]), 1);
    assert_eq!(errors, "extern4: ln: 'disk.img:/link': File exists\n");
    quietly(&image, &["ln", "-s", "-f", "elsewhere", "disk.img:/link"]);
    assert_eq!(
        stat(&image, "%N", "disk.img:/link"),
        "'/link' -> 'elsewhere'"
    );
    quietly(
        &image,
        &["ln", "-f", "disk.img:/etc/hostname", "disk.img:/name"],
    );
    assert_eq!(stat(&image, "%h", "disk.img:/etc/hostname"), "2");
    failed(
        &extern4(&image, ["ln", "disk.img:/etc", "disk.img:/directory"]),
        1,
    );
    sound(&image);
}

#[test]
fn times_and_sizes_are_set() {
    for image in [empty(), old()] {
        quietly(&image, &["touch", "disk.img:/new"]);
        assert_eq!(
            stat(&image, "%a %s %F", "disk.img:/new"),
            "644 0 regular empty file"
        );
        quietly(&image, &["touch", "-c", "disk.img:/none"]);
        failed(&extern4(&image, ["ls", "disk.img:/none"]), 1);
        quietly(
            &image,
            &["touch", "-d", "2024-02-29T12:00:00Z", "disk.img:/new"],
        );
        assert_eq!(
            stat(&image, "%X %Y", "disk.img:/new"),
            "1709208000 1709208000"
        );
        quietly(&image, &["touch", "-m", "-d", "@1000", "disk.img:/new"]);
        assert_eq!(stat(&image, "%X %Y", "disk.img:/new"), "1709208000 1000");
        quietly(&image, &["touch", "-r", "disk.img:/new", "disk.img:/twin"]);
        assert_eq!(stat(&image, "%X %Y", "disk.img:/twin"), "1709208000 1000");
        quietly(
            &image,
            &["truncate", "-s", "3M", "disk.img:/new", "disk.img:/long"],
        );
        assert_eq!(stat(&image, "%s %b", "disk.img:/long"), "3145728 0");
        quietly(&image, &["truncate", "-s", "-1M", "disk.img:/long"]);
        quietly(&image, &["truncate", "-s", "+5", "disk.img:/long"]);
        assert_eq!(stat(&image, "%s", "disk.img:/long"), "2097157");
        quietly(&image, &["truncate", "-c", "-s", "0", "disk.img:/none"]);
        failed(&extern4(&image, ["ls", "disk.img:/none"]), 1);
        let errors = failed(
            &extern4(&image, ["truncate", "-s", "0", "disk.img:/lost+found"]),
            1,
        );
        assert_eq!(
            errors,
            "extern4: truncate: 'disk.img:/lost+found': Is a directory\n"
        );
        sound(&image);
    }
    let image = empty();
    quietly(
        &image,
        &["touch", "-d", "@1709208000.123456789", "disk.img:/a"],
    );
    assert_eq!(
        stat(&image, "%y", "disk.img:/a"),
        "2024-02-29 12:00:00.123456789 +0000"
    );
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
    assert_eq!(
        stat(&image, "%u:%g %U:%G", "disk.img:/etc/hostname"),
        "1000:50 ann:staff"
    );
    quietly(&image, &["chown", ":7", "disk.img:/etc/hostname"]);
    assert_eq!(stat(&image, "%u:%g", "disk.img:/etc/hostname"), "1000:7");
    quietly(&image, &["chown", "-R", "5:6", "disk.img:/home"]);
    for path in [
        "disk.img:/home",
        "disk.img:/home/ann/todo",
        "disk.img:/home/ann/notes.txt",
    ] {
        assert_eq!(stat(&image, "%u:%g", path), "5:6", "{path}");
    }
    // Through a link, or the link itself.
    quietly(&image, &["chown", "8", "disk.img:/home/ann/todo"]);
    assert_eq!(stat(&image, "%u", "disk.img:/home/ann/notes.txt"), "8");
    quietly(&image, &["chown", "-h", "9", "disk.img:/home/ann/todo"]);
    assert_eq!(stat(&image, "%u", "disk.img:/home/ann/todo"), "9");
    let inode = image.debugfs("stat /home/ann/notes.txt");
    assert!(
        inode.contains("User:     8") && inode.contains("Mode:  0644"),
        "{inode}"
    );
    let errors = untouched(&image, || {
        failed(&extern4(&image, ["chown", "nobody", "disk.img:/etc"]), 1)
    });
    assert_eq!(
        errors,
        "extern4: chown: nobody is not a user of 'disk.img'\n"
    );
    let errors = failed(
        &extern4(
            &image,
            ["chmod", "644", "disk.img:/gone", "disk.img:/bin/true"],
        ),
        1,
    );
    assert_eq!(
        errors,
        "extern4: chmod: 'disk.img:/gone': No such file or directory\n"
    );
    assert_eq!(stat(&image, "%a", "disk.img:/bin/true"), "644");
    sound(&image);
}

#[test]
fn a_caller_changes_what_he_may() {
    let image = machine();
    let as_ann = |args: &[&str]| extern4(&image, [&["--as", "1000:1000,50"], args].concat());
    ok(as_ann(&["touch", "disk.img:/home/ann/mine"]));
    assert_eq!(
        stat(&image, "%u:%g", "disk.img:/home/ann/mine"),
        "1000:1000"
    );
    ok(as_ann(&["chown", ":50", "disk.img:/home/ann/mine"]));
    let refused = |args: &[&str], says: &str| {
        let errors = failed(&as_ann(args), 1);
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    refused(
        &["touch", "disk.img:/etc/new"],
        "'disk.img:/etc/new': Permission denied",
    );
    refused(
        &["rm", "disk.img:/etc/hostname"],
        "'disk.img:/etc/hostname': Permission denied",
    );
    refused(
        &["chmod", "777", "disk.img:/etc/hostname"],
        "Operation not permitted",
    );
    refused(
        &["chown", "0", "disk.img:/home/ann/mine"],
        "Operation not permitted",
    );
    refused(&["tune", "disk.img", "--label", "x"], "only the superuser");
    sound(&image);
}

#[test]
fn access_lists_are_those_of_linux() {
    let image = empty();
    let host = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    let file = host.path().join("file");
    let dir = host.path().join("dir");
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
    let errors = failed(
        &extern4(&image, ["setfacl", "-d", "-m", "u:5:r", "disk.img:/file"]),
        1,
    );
    assert!(errors.contains("only directories"), "{errors}");
    untouched(&image, || {
        failed(
            &extern4(&image, ["setfacl", "-m", "u:nobody:r", "disk.img:/file"]),
            1,
        );
        failed(
            &extern4(&image, ["setfacl", "-m", "u:5:q", "disk.img:/file"]),
            2,
        );
        failed(&extern4(&image, ["setfacl", "disk.img:/file"]), 2);
    });
}

#[test]
fn access_lists_are_brought_back() {
    let image = machine();
    quietly(
        &image,
        &[
            "setfacl",
            "-R",
            "-m",
            "u:ann:rwX,d:g:staff:rx",
            "disk.img:/var",
        ],
    );
    quietly(&image, &["chmod", "g+s", "disk.img:/var/log"]);
    let before = said(&image, &["getfacl", "-R", "disk.img"]);
    assert!(
        before.contains("default:group:staff:r-x") && before.contains("user:ann:rw-"),
        "{before}"
    );
    std::fs::write(image.scratch().join("acls"), &before).expect("a file");
    quietly(&image, &["setfacl", "-R", "-b", "disk.img:/"]);
    quietly(&image, &["chown", "-R", "3:3", "disk.img:/var"]);
    quietly(&image, &["chmod", "-R", "700", "disk.img:/var"]);
    quietly(&image, &["setfacl", "--restore", "acls", "disk.img"]);
    assert_eq!(said(&image, &["getfacl", "-R", "disk.img"]), before);
    sound(&image);
    std::fs::write(
        image.scratch().join("bad"),
        "# file: etc\nuser::rwx\ngroup::rx\nother::z\n",
    )
    .expect("a file");
    let errors = untouched(&image, || {
        failed(
            &extern4(&image, ["setfacl", "--restore", "bad", "disk.img"]),
            1,
        )
    });
    assert!(errors.contains("bad:4: "), "{errors}");
}

#[test]
fn attributes_are_set_and_removed() {
    let image = machine();
    let place = "disk.img:/etc/hostname";
    quietly(
        &image,
        &["setfattr", "-n", "user.text", "-v", "plain", place],
    );
    quietly(
        &image,
        &[
            "setfattr",
            "-n",
            "user.quoted",
            "-v",
            "\"quoted\\012b\"",
            place,
        ],
    );
    quietly(
        &image,
        &["setfattr", "-n", "user.hex", "-v", "0x00ff01", place],
    );
    quietly(
        &image,
        &["setfattr", "-n", "trusted.base64", "-v", "0sAP8B", place],
    );
    quietly(&image, &["setfattr", "-n", "user.empty", place]);
    quietly(
        &image,
        &["setfattr", "-n", "user.text", "-v", "again", place],
    );
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
    assert!(
        image
            .debugfs("ea_get /etc/hostname user.text")
            .contains("again")
    );
    quietly(&image, &["setfattr", "-x", "user.text", place]);
    let errors = failed(&extern4(&image, ["setfattr", "-x", "user.text", place]), 1);
    assert!(
        errors.contains("No data available") || errors.contains("No such attribute"),
        "{errors}"
    );
    // `setfattr` restores the output of getfattr.
    let dump = said(&image, &["getfattr", "-d", "-m", "-", place]);
    std::fs::write(image.scratch().join("attributes"), &dump).expect("a file");
    for name in ["user.quoted", "user.hex", "trusted.base64", "user.empty"] {
        quietly(&image, &["setfattr", "-x", name, place]);
    }
    quietly(&image, &["setfattr", "--restore", "attributes", "disk.img"]);
    assert_eq!(said(&image, &["getfattr", "-d", "-m", "-", place]), dump);
    untouched(&image, || {
        failed(
            &extern4(&image, ["setfattr", "-n", "user.x", "-v", "0xg", place]),
            2,
        );
        failed(&extern4(&image, ["setfattr", place]), 2);
    });
    sound(&image);
}

#[test]
fn put_keeps_the_acl_and_attributes_of_the_file() {
    let image = empty();
    let large = vec![b'x'; (1 << 20) + 1];
    for contents in [&b"short"[..], &large] {
        ok(fed(&image, &["put", "disk.img:/file"], b"old"));
        quietly(&image, &["chmod", "755", "disk.img:/file"]);
        quietly(
            &image,
            &["setfacl", "-m", "u:1000:rwx,g:2000:r", "disk.img:/file"],
        );
        quietly(
            &image,
            &["setfattr", "-n", "user.a", "-v", "1", "disk.img:/file"],
        );
        quietly(
            &image,
            &["setfattr", "-n", "trusted.b", "-v", "2", "disk.img:/file"],
        );
        let kept = || {
            let acl = said(&image, &["getfacl", "-n", "disk.img:/file"]);
            acl + &said(&image, &["getfattr", "-d", "-m", "-", "disk.img:/file"])
        };
        let before = kept();
        assert!(
            ["user:1000:rwx", "group::r-x", "trusted.b", "user.a"]
                .iter()
                .all(|it| before.contains(it))
        );
        ok(fed(&image, &["put", "disk.img:/file"], contents));
        assert_eq!(kept(), before);
    }
    sound(&image);
}

/// `rename(2)` does nothing where both names are of one file; `mv` and `ln` of GNU report that.
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
        assert_eq!(
            said(&image, &["ls", "disk.img"]).replace("lost+found\n", ""),
            there,
            "{at}: {words:?}"
        );
    }
    sound(&image);
}

#[test]
fn standard_input_becomes_a_file() {
    let image = ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-b", "4096"]).build();
    let large: Vec<u8> = (0..3_000_000_u32)
        .flat_map(u32::to_le_bytes)
        .take(5_000_001)
        .collect();
    for contents in [
        &b""[..],
        b"hello\n",
        &large,
        b"short again\n",
        &large[..1 << 20],
    ] {
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
    assert_eq!(
        said(&image, &["ls", "-a", "disk.img"]),
        ".\n..\nfile\nlink\nlost+found\n"
    );
    sound(&image);
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

#[test]
fn operations_are_measured_on_a_copy() {
    let image = machine();
    let ops = [
        "create-unlink",
        "rename",
        "chmod",
        "setxattr",
        "link-unlink",
        "open-close",
        "fsync",
    ];
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
    let text = said(
        &image,
        &[
            "bench",
            "ops",
            "disk.img",
            "--op",
            "chmod",
            "--seconds",
            "0.01",
        ],
    );
    assert!(text.starts_with("chmod, 1 thread: "), "{text}");
    let left: Vec<_> = std::fs::read_dir(image.scratch())
        .expect("a directory")
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    failed(
        &extern4(&image, ["bench", "ops", "disk.img:/gone", "--op", "chmod"]),
        1,
    );
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
    wrong(&["touch", "-d", "someday", "disk.img:/x"], 2);
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
    quietly(
        &image,
        &["cp", "-a", "sdcard.img#2:/home", "sdcard.img#2:/new"],
    );
    assert_eq!(
        said(&image, &["cat", "sdcard.img#2:/new/home/ann/notes.txt"]),
        "buy milk\n"
    );
    assert_eq!(
        said(&image, &["cat", "sdcard.img@1M:/new/home/ann/notes.txt"]),
        "buy milk\n"
    );
    let said = said(&image, &["check", "sdcard.img#2"]);
    assert!(said.contains("nothing is wrong"), "{said}");
    assert!(Path::new(&image.path).exists());
}
