//! The options of commands that change files, next to the namesakes of GNU coreutils and e2fsprogs
//! on the kernel's mount.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{find, run};

use crate::run::{command, extern4, failed, machine, ok, sorted};
use crate::writing::sound;

/// A volume with files of all kinds, old times and users in the volume. The names of users are the
/// names of Debian's machines, so that both sides print the same.
const SPEC: ImageSpec =
    ImageSpec::new("disk", 4 << 20, &["-t", "ext4", "-b", "1024", "-N", "256"]).mounted(&[fill]);

fn fill(root: &Path) -> io::Result<()> {
    for dir in ["etc", "d/sub/deep", "empty", "other"] {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\ndaemon:x:1:1::/:/bin/sh\nbin:x:2:2::/:/bin/sh\n",
    )?;
    fs::write(
        root.join("etc/group"),
        "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\n",
    )?;
    for (name, contents) in [
        ("f", "first\n"),
        ("g", "second\n"),
        ("d/one", "1\n"),
        ("d/sub/two", "2\n"),
        ("d/sub/deep/three", "3\n"),
        ("other/x", "x\n"),
        ("none", ""),
    ] {
        fs::write(root.join(name), contents)?;
    }
    fs::write(root.join("odd\nname"), "odd\n")?;
    fs::hard_link(root.join("f"), root.join("d/f-too"))?;
    for (target, name) in [
        ("f", "link"),
        ("d", "dlink"),
        ("gone", "dangling"),
        ("../f", "d/up"),
        ("../../other", "d/sub/away"),
        ("..", "d/sub/back"),
    ] {
        symlink(target, root.join(name))?;
    }
    fs::set_permissions(root.join("g"), fs::Permissions::from_mode(0o4751))?;
    chown(root.join("g"), Some(1), Some(3))?;
    chown(root.join("d/one"), Some(2), Some(2))?;
    for (name, time) in [
        ("f", "1000000000"),
        ("g", "1100000000"),
        ("d/one", "900000000"),
        ("d/sub/two", "800000000"),
    ] {
        run(
            "touch",
            [
                OsStr::new("-d"),
                OsStr::new(&format!("@{time}")),
                root.join(name).as_os_str(),
            ],
        );
    }
    Ok(())
}

/// A command line; `@/` begins paths in the volume.
type Words<'a> = &'a [&'a str];

/// Returns whether this machine has the namesakes and can mount.
fn can_compare() -> bool {
    SPEC.can_run() && find("chown").is_some()
}

/// The tree that a command left, and the lines that it printed.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    success: bool,
    printed: Vec<String>,
    tree: Vec<String>,
}

fn words(line: Words<'_>, root: &str) -> Vec<String> {
    line.iter().map(|word| word.replace("@/", root)).collect()
}

/// Runs a command with `input`. Returns whether it succeeded, and the lines that it printed.
fn fed(mut command: Command, input: &str) -> (bool, Vec<u8>, String) {
    let mut child = command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    // The write fails if the command reads nothing.
    let _ = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the command ends");
    (
        output.status.success(),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Lists a tree: times of long ago as they are, present times as such.
fn listed(root: &Path) -> Vec<String> {
    let format = "%P|%y|%m|%U:%G|%n|%l|%s|%T@|%A@\\0";
    let mut find = Command::new("find");
    find.current_dir(root).args([
        ".",
        "-path",
        "./lost+found",
        "-prune",
        "-o",
        "-printf",
        format,
    ]);
    let (_, printed, errors) = fed(find, "");
    assert_eq!(errors, "");
    let is_long_ago = |time: &str| {
        time.split('.')
            .next()
            .and_then(|sec| sec.parse().ok())
            .is_some_and(|sec: i64| sec < 1_700_000_000)
    };
    let mut lines: Vec<String> = Vec::new();
    for file in printed
        .split(|byte| *byte == 0)
        .filter(|file| !file.is_empty())
    {
        let text = file.escape_ascii().to_string();
        let mut fields: Vec<&str> = text.split('|').collect();
        // The size of a directory is its own affair.
        if fields[1] == "d" {
            fields[6] = "";
        }
        for field in &mut fields[7..] {
            if !is_long_ago(field) {
                *field = "now";
            }
        }
        let path = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
        let whole = [
            path,
            b"/",
            file.split(|byte| *byte == b'|').next().unwrap_or_default(),
        ]
        .concat();
        let whole =
            Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&whole)).to_owned();
        let contents = if fields[1] == "f" {
            fs::read(whole).expect("a file")
        } else {
            Vec::new()
        };
        lines.push(format!("{} {}", fields.join("|"), contents.escape_ascii()));
    }
    lines.sort();
    lines
}

/// Runs the namesake on a mount of a copy.
fn theirs(pattern: &Image, line: Words<'_>, input: &str) -> Outcome {
    let image = pattern.copy();
    let mount = image.mount("rw,relatime");
    let words = words(line, "");
    let mut command = Command::new(&words[0]);
    command.current_dir(&mount.path).args(&words[1..]);
    let (success, printed, _) = fed(command, input);
    Outcome {
        success,
        printed: sorted(&printed),
        tree: listed(&mount.path),
    }
}

/// Runs the command on a copy.
fn ours(pattern: &Image, line: Words<'_>, input: &str) -> (Outcome, String) {
    let image = pattern.copy();
    let mut command = command();
    command
        .current_dir(image.scratch())
        .args(words(line, "disk.img:/"));
    let (success, printed, errors) = fed(command, input);
    sound(&image);
    let mut printed = String::from_utf8_lossy(&printed).replace("disk.img:/", "");
    if line[0] == "lsattr" {
        let lines = printed
            .lines()
            .map(|line| line.strip_prefix('/').unwrap_or(line));
        // A long line begins with the name, which the slash made one column longer.
        let is_long = line
            .iter()
            .any(|word| word.starts_with('-') && word.contains('l'));
        let lines = lines.map(|line| {
            if is_long {
                line.replacen("  ", "   ", 1)
            } else {
                line.to_owned()
            }
        });
        printed = lines.map(|line| line.replace(" /", " ") + "\n").collect();
    }
    let mount = image.mount("ro,noatime");
    (
        Outcome {
            success,
            printed: sorted(printed.as_bytes()),
            tree: listed(&mount.path),
        },
        errors,
    )
}

/// Asserts that lines do what the namesakes do, each on the same tree.
#[track_caller]
fn same(cases: &[(Words<'_>, &str)]) {
    if !can_compare() {
        return;
    }
    let pattern = SPEC.build();
    let mut differing = String::new();
    for (line, input) in cases {
        let ((ours, errors), theirs) = (ours(&pattern, line, input), theirs(&pattern, line, input));
        let only = |a: &[String], b: &[String]| {
            a.iter()
                .filter(|line| !b.contains(line))
                .cloned()
                .collect::<Vec<_>>()
        };
        if ours != theirs {
            differing += &format!(
                "{line:?}: success {} {}\nprinted {:?} {:?}\ntree {:#?} {:#?}\n{errors}\n",
                ours.success,
                theirs.success,
                ours.printed,
                theirs.printed,
                only(&ours.tree, &theirs.tree),
                only(&theirs.tree, &ours.tree),
            );
        }
    }
    assert!(differing.is_empty(), "ours and theirs:\n{differing}");
}

/// Cases without input.
fn silent<'a>(lines: &'a [&'a [&'a str]]) -> Vec<(Words<'a>, &'a str)> {
    lines.iter().map(|line| (*line, "")).collect()
}

#[test]
fn removals_are_those_of_gnu() {
    same(&silent(&[
        &["rm", "-v", "@/f", "@/odd\nname"],
        &["rm", "-rv", "@/d", "@/dlink"],
        &["rm", "-dv", "@/empty"],
        &["rm", "-dv", "@/d"],
        &["rm", "-f", "@/nothing"],
        &["rm", "-f"],
        &["rm", "-v", "@/nothing", "@/g"],
        &["rm", "-rf", "--one-file-system", "--preserve-root", "@/d"],
        &["rmdir", "-v", "@/empty", "@/d"],
        &["rmdir", "--ignore-fail-on-non-empty", "@/d", "@/empty"],
        &["rm", "--interactive=never", "@/f"],
        &["rm", "-i", "-f", "@/f"],
    ]));
    same(&[
        (&["rm", "-i", "@/f", "@/g", "@/none"], "y\nn\ny\n"),
        (&["rm", "-ri", "@/d/sub/deep"], "y\ny\ny\n"),
        (&["rm", "-ri", "@/d/sub/deep"], "y\ny\nn\n"),
        (&["rm", "-ri", "@/d/sub/deep"], "n\n"),
        (&["rm", "-rvi", "@/empty"], "y\n"),
        (&["rm", "-I", "@/f", "@/g"], ""),
        (&["rm", "-I", "@/f", "@/g", "@/none", "@/link"], "n\n"),
        (&["rm", "-rI", "@/d"], "yes\n"),
        (&["rm", "--interactive=once", "-r", "@/d"], "no\n"),
        (&["rm", "-f", "-i", "@/f"], "n\n"),
    ]);
}

#[test]
fn directories_and_nodes_are_those_of_gnu() {
    same(&silent(&[
        &["mkdir", "-v", "@/a", "@/d"],
        &["mkdir", "-pv", "@/a/b/c", "@/d/sub/new"],
        &["mkdir", "-pv", "-m", "1770", "@/a/b"],
        &["mkdir", "-m", "u=rwx,go=", "@/a"],
        &["rmdir", "-pv", "@/d/sub/deep"],
        &["mknod", "@/n", "c", "5", "0x10"],
        &["mknod", "-m", "600", "@/n", "b", "010", "1"],
        &["mknod", "@/n", "p"],
        &["mknod", "@/f", "p"],
        &["mkfifo", "@/p", "@/q"],
        &["mkfifo", "-m", "a=rw", "@/p"],
    ]));
}

#[test]
fn new_names_are_those_of_gnu() {
    same(&silent(&[
        &["mv", "-v", "@/f", "@/g"],
        &["mv", "-v", "@/f", "@/g", "@/d"],
        &["mv", "-v", "-t", "@/d", "@/f", "@/g"],
        &["mv", "-v", "-t", "@/f", "@/g"],
        &["mv", "-T", "@/other", "@/empty"],
        &["mv", "-T", "@/empty", "@/d"],
        &["mv", "-n", "@/f", "@/g"],
        &["mv", "-vu", "@/f", "@/g"],
        &["mv", "-vu", "@/g", "@/f"],
        &["mv", "-vb", "@/f", "@/g"],
        &["mv", "-v", "--backup=numbered", "@/f", "@/g"],
        &["mv", "-v", "-S", ".old", "@/f", "@/g"],
        &["mv", "-v", "--strip-trailing-slashes", "@/d/", "@/moved"],
        &["mv", "-i", "-f", "@/f", "@/g"],
    ]));
    same(&[
        (&["mv", "-iv", "@/f", "@/g"], "y\n"),
        (&["mv", "-iv", "@/f", "@/g"], "n\n"),
        (&["mv", "-f", "-i", "@/f", "@/g"], "n\n"),
    ]);
}

#[test]
fn links_are_those_of_gnu() {
    same(&silent(&[
        &["ln", "-v", "@/f", "@/new"],
        &["ln", "-v", "@/f", "@/g", "@/empty"],
        &["ln", "-vt", "@/empty", "@/f", "@/g"],
        &["ln", "-sv", "anything", "@/new"],
        &["ln", "-sv", "anything", "@/f"],
        &["ln", "-sfv", "anything", "@/f"],
        &["ln", "-snv", "x", "@/dlink"],
        &["ln", "-snfv", "x", "@/dlink"],
        &["ln", "-sv", "x", "@/dlink"],
        &["ln", "-sTv", "x", "@/dlink"],
        &["ln", "-sfTv", "x", "@/dlink"],
        &["ln", "-sfTv", "x", "@/d"],
        &["ln", "-srv", "@/f", "@/d/sub/rel"],
        &["ln", "-srv", "@/d/sub/nothing", "@/dlink/rel"],
        &["ln", "-sbv", "x", "@/f"],
        &["ln", "-fv", "@/f", "@/g"],
        &["ln", "-v", "@/link", "@/new"],
        &["ln", "-Lv", "@/link", "@/new"],
        &["ln", "-v", "@/nothing", "@/new"],
    ]));
    same(&[
        (&["ln", "-siv", "x", "@/f"], "y\n"),
        (&["ln", "-siv", "x", "@/f"], "n\n"),
    ]);
}

#[test]
fn times_are_those_of_gnu() {
    same(&silent(&[
        &["touch", "@/f", "@/new"],
        &["touch", "-c", "@/f", "@/new"],
        &["touch", "-t", "202001020304.05", "@/f"],
        &["touch", "-t", "01020304", "@/f"],
        &["touch", "-d", "@1234567890.25", "@/f"],
        &["touch", "-d", "2001-02-03 04:05:06", "@/f"],
        &["touch", "-d", "2001-02-03T04:05:06.7+02:00", "@/f"],
        &["touch", "-d", "3 Feb 2001 04:05", "@/f"],
        &["touch", "-d", "2001-02-03 2 days ago", "@/f"],
        &["touch", "-r", "@/g", "@/f"],
        &["touch", "-r", "@/g", "-d", "2 days ago", "@/f"],
        &["touch", "-r", "@/g", "-d", "1 hour", "@/f"],
        &["touch", "-a", "-d", "@1", "@/f"],
        &["touch", "-m", "-d", "@1", "@/f"],
        &["touch", "--time=atime", "-d", "@1", "@/f"],
        &["touch", "--time=modify", "-d", "@1", "@/f"],
        &["touch", "-h", "-d", "@1", "@/link", "@/dangling"],
        &["touch", "-d", "@1", "@/link"],
        &["touch", "-d", "yesterday", "@/f"],
        &["touch", "-d", "Thu, 1 Mar 2001 12:00:00 +0100", "@/f"],
        &["touch", "-d", "2001/03/01", "@/f"],
        &["touch", "-d", "20010301 1200", "@/f"],
        &["touch", "-d", "2001-01-31 +1 month", "@/f"],
        &["touch", "-d", "2001-03-01 noon", "@/f"],
        &["touch", "-d", "next monday", "@/f"],
        &["touch", "-d", "last friday 10:00", "@/f"],
        &["touch", "-d", "", "@/f"],
        &["touch", "-d", "2001-02-30", "@/f"],
        &["touch", "-d", "2001-02-03 25:00", "@/f"],
        &["touch", "-d", "nonsense", "@/f"],
        &["touch", "-t", "200102301200", "@/f"],
        &["touch", "-d", "2 days ago", "-a", "@/new"],
    ]));
}

#[test]
fn modes_are_those_of_gnu() {
    same(&silent(&[
        &["chmod", "-v", "600", "@/f", "@/g"],
        &["chmod", "-c", "644", "@/f", "@/g"],
        &["chmod", "-Rv", "u+x,go-r", "@/d"],
        &["chmod", "-Rc", "755", "@/d"],
        &["chmod", "-v", "--reference=@/g", "@/f", "@/d"],
        &["chmod", "-v", "-x", "@/g"],
        &["chmod", "-v", "600", "@/link"],
        &["chmod", "-f", "600", "@/nothing"],
        &["chmod", "--preserve-root", "-R", "700", "@/d"],
        &["chmod", "-v", "600", "@/nothing", "@/f"],
        &["chmod", "-v", "+600", "@/f", "@/g", "@/d"],
        &["chmod", "-v", "-600", "@/f", "@/g"],
        &["chmod", "-v", "=4755", "@/f", "@/g", "@/d"],
        &["chmod", "+6000,u-x", "@/f"],
        &["chmod", "u+600", "@/f"],
        &["chmod", "+9", "@/f"],
    ]));
}

#[test]
fn lengths_are_those_of_gnu() {
    same(&silent(&[
        &["truncate", "-s", "3", "@/f", "@/new"],
        &["truncate", "-c", "-s", "3", "@/f", "@/new"],
        &["truncate", "-s", "+3", "@/f"],
        &["truncate", "-s", "-3", "@/f"],
        &["truncate", "-s", "<4", "@/f", "@/none"],
        &["truncate", "-s", ">6", "@/f", "@/none", "@/g"],
        &["truncate", "-s", "/4", "@/f"],
        &["truncate", "--size=%4", "@/f"],
        &["truncate", "-s", "%0", "@/f"],
        &["truncate", "-s", "1K", "@/f"],
        &["truncate", "-s", "1KB", "@/f"],
        &["truncate", "-s", "1mB", "@/f"],
        &["truncate", "-s", "2KiB", "@/f"],
        &["truncate", "-s", "K", "@/f"],
        &["truncate", "-s", "1R", "@/f"],
        &["truncate", "-s", "1E", "@/f"],
        &["truncate", "-s", "", "@/f"],
        &["truncate", "-s", "5", "-s", "+2", "@/f"],
        &["truncate", "-o", "-s", "2", "@/f"],
        &["truncate", "-o", "@/f"],
        &["truncate", "-r", "@/g", "@/f", "@/new"],
        &["truncate", "-r", "@/link", "-s", "+3", "@/none"],
        &["truncate", "-r", "@/g", "-s", "%4", "@/none"],
        &["truncate", "-r", "@/g", "-s", "4", "@/none"],
        &["truncate", "-r", "@/g", "-o", "-s", "+1", "@/none"],
        &["truncate", "-r", "@/nothing", "@/f"],
        &["truncate", "@/f"],
        &["truncate", "-s", "1", "@/d", "@/f"],
    ]));
    let image = machine();
    std::fs::write(image.scratch().join("six"), "123456").expect("a file");
    ok(extern4(
        &image,
        ["truncate", "-r", "six", "disk.img:/etc/hostname"],
    ));
    assert_eq!(
        ok(extern4(
            &image,
            ["stat", "-c", "%s", "disk.img:/etc/hostname"]
        )),
        b"6\n"
    );
}

#[test]
fn owners_are_those_of_gnu() {
    same(&silent(&[
        &["chown", "-v", "daemon", "@/f", "@/g"],
        &["chown", "-v", "daemon:", "@/f"],
        &["chown", "-v", "bin:sys", "@/f", "@/d/one"],
        &["chown", "-v", ":3", "@/f", "@/g"],
        &["chown", "-v", ":", "@/f"],
        &["chown", "-v", "7:8", "@/f"],
        &["chown", "-c", "1:3", "@/f", "@/g"],
        &["chown", "-v", "--from=daemon", "2:2", "@/f", "@/g"],
        &["chown", "-v", "--from=:sys", "2:2", "@/f", "@/g"],
        &["chown", "-v", "--reference=@/g", "@/f"],
        &["chown", "-v", "1", "@/link"],
        &["chown", "-hv", "1", "@/link"],
        &["chown", "-Rv", "1:2", "@/d"],
        &["chown", "-Rv", "1:2", "@/dlink"],
        &["chown", "-RH", "1:2", "@/dlink"],
        &["chown", "-RPv", "1:2", "@/dlink"],
        &["chown", "-RLv", "1:2", "@/d/sub/deep", "@/other"],
        &["chown", "-RHhv", "1:2", "@/dlink"],
        &["chown", "-f", "1", "@/nothing"],
        &["chown", "-R", "--dereference", "1", "@/d"],
        &["chgrp", "-v", "sys", "@/f", "@/g"],
        &["chgrp", "-c", "3", "@/f", "@/g"],
        &["chgrp", "-v", "--reference=@/g", "@/f", "@/g"],
        &["chgrp", "-Rv", "bin", "@/d"],
        &["chgrp", "-hv", "bin", "@/dangling"],
        &["chown", "-v", "+1001:+50", "@/f", "@/g"],
        &["chown", "-v", "--from=+1:+3", "+7", "@/f", "@/g"],
        &["chown", "+bin", "@/f"],
        &["chown", "-v", "bin.sys", "@/f", "@/g"],
        &["chown", "bin.nothing", "@/f"],
        &["chown", "+7:", "@/f"],
        &["chgrp", "+7", "@/f"],
        &["chgrp", "++7", "@/f"],
    ]));
}

#[test]
fn links_are_read_as_by_gnu() {
    same(&silent(&[
        &["readlink", "@/link"],
        &["readlink", "@/link", "@/f", "@/d/up"],
        &["readlink", "-n", "@/link"],
        &["readlink", "-z", "@/link", "@/dlink"],
    ]));
    if !can_compare() {
        return;
    }
    let image = SPEC.build();
    let mount = image.mount("ro");
    let root = mount.path.to_str().expect("text").to_owned();
    for path in [
        "link",
        "dangling",
        "nothing/x",
        "nothing",
        "d/sub/back/one",
        "dlink/up",
        "f/x",
        "./d/../f",
    ] {
        for option in ["-f", "-e", "-m"] {
            let mut gnu = Command::new("readlink");
            gnu.args([option, &format!("{root}/{path}")]);
            let (success, theirs, _) = fed(gnu, "");
            let mut command = command();
            command.current_dir(image.scratch()).args([
                "readlink",
                option,
                &format!("disk.img:/{path}"),
            ]);
            let (ours_success, ours, _) = fed(command, "");
            let theirs = String::from_utf8_lossy(&theirs).replace(&root, "");
            assert_eq!(
                (ours_success, String::from_utf8_lossy(&ours).into_owned()),
                (success, theirs),
                "{option} {path}"
            );
        }
    }
}

#[test]
fn attributes_are_those_of_e2fsprogs() {
    same(&silent(&[
        &["chattr", "+A", "@/f", "@/d"],
        &["chattr", "+Ad", "-S", "@/f"],
        &["chattr", "=Ae", "@/f"],
        &["chattr", "-R", "+d", "@/d/sub/deep"],
        &["chattr", "+q", "@/f"],
        &["chattr", "+E", "@/f"],
        &["chattr", "+A", "-A", "@/f"],
        &["chattr", "@/f"],
        &["chattr", "+A", "@/nothing"],
        &["chattr", "-f", "+A", "@/nothing"],
        &["lsattr", "@/f", "@/g"],
        &["lsattr", "-d", "@/d"],
        &["lsattr", "@/d/sub/deep"],
        &["lsattr", "-p", "@/f"],
        &["lsattr", "-v", "@/f"],
        &["lsattr", "-R", "@/other"],
        &["lsattr", "-a", "@/d/sub"],
        &["lsattr", "-Ra", "@/d"],
        &["lsattr", "-Rl", "@/d"],
        &["lsattr", "-dpv", "@/d", "@/f"],
        &["lsattr", "-al", "@/empty"],
        &["lsattr", "@/nothing"],
    ]));
    if !can_compare() {
        return;
    }
    // The flags themselves, which no list of files shows.
    let image = SPEC.build();
    for change in [
        &["+ad", "disk.img:/f"][..],
        &["-R", "+iS", "disk.img:/other"],
        &["+DAT", "disk.img:/empty"],
    ] {
        let mut command = command();
        command
            .current_dir(image.scratch())
            .arg("chattr")
            .args(change);
        assert_eq!(fed(command, ""), (true, Vec::new(), String::new()));
    }
    sound(&image);
    let paths = ["f", "other", "other/x", "empty"];
    let mount = image.mount("ro");
    let mut theirs = Command::new("lsattr");
    theirs.current_dir(&mount.path).arg("-d").args(paths);
    let (_, theirs, _) = fed(theirs, "");
    drop(mount);
    let mut ours = command();
    ours.current_dir(image.scratch())
        .args(["lsattr", "-d"])
        .args(paths.map(|path| format!("disk.img:/{path}")));
    let (_, ours, _) = fed(ours, "");
    let ours = String::from_utf8_lossy(&ours).replace(" /", " ");
    assert_eq!(ours, String::from_utf8_lossy(&theirs));
    let mut command = command();
    command
        .current_dir(image.scratch())
        .args(["rm", "disk.img:/f"]);
    assert!(!fed(command, "").0, "an append-only file is not removed");
}

#[test]
fn copies_in_a_volume_are_those_of_gnu() {
    same(&silent(&[
        &["cp", "-v", "@/f", "@/new"],
        &["cp", "-v", "@/f", "@/g", "@/empty"],
        &["cp", "-vt", "@/empty", "@/f", "@/g"],
        &["cp", "-vt", "@/f", "@/g"],
        &["cp", "-T", "@/f", "@/empty"],
        &["cp", "-rT", "@/other", "@/empty"],
        &["cp", "-rvT", "@/other", "@/fresh"],
        &["cp", "-vn", "@/f", "@/g"],
        &["cp", "-vu", "@/f", "@/g"],
        &["cp", "-vu", "@/g", "@/f"],
        &["cp", "-vb", "@/f", "@/none"],
        &["cp", "-v", "--backup=numbered", "@/f", "@/none"],
        &["cp", "-v", "-S", ".old", "@/f", "@/none"],
        &["cp", "-lv", "@/f", "@/new"],
        &["cp", "-l", "@/f", "@/g"],
        &["cp", "-lf", "@/f", "@/g"],
        &["cp", "-l", "@/link", "@/new"],
        &["cp", "-rl", "@/other", "@/new"],
        &["cp", "-P", "@/link", "@/new"],
        &["cp", "-d", "@/link", "@/new"],
        &["cp", "-d", "@/f", "@/d/f-too", "@/empty"],
        &["cp", "@/link", "@/new"],
        &["cp", "-L", "@/dangling", "@/new"],
        &["cp", "-r", "@/dlink", "@/new"],
        &["cp", "-rH", "@/dlink", "@/new"],
        &["cp", "-rL", "@/d/sub/away", "@/link", "@/empty"],
        &["cp", "-rv", "@/d", "@/new"],
        &["cp", "-av", "@/d", "@/new"],
        &["cp", "-a", "@/d", "@/f", "@/g", "@/empty"],
        &["cp", "-p", "@/g", "@/new"],
        &["cp", "--preserve", "@/g", "@/new"],
        &["cp", "--preserve=mode", "@/g", "@/new"],
        &["cp", "--preserve=timestamps", "@/g", "@/new"],
        &["cp", "--preserve=links", "@/f", "@/d/f-too", "@/empty"],
        &[
            "cp",
            "-r",
            "--preserve=all",
            "--no-preserve=timestamps",
            "@/d",
            "@/new",
        ],
        &["cp", "--no-preserve=mode", "@/g", "@/new"],
        &["cp", "--attributes-only", "--preserve=mode", "@/g", "@/new"],
        &["cp", "--attributes-only", "@/g", "@/f"],
        &["cp", "-v", "--parents", "@/d/sub/two", "@/empty"],
        &["cp", "-a", "--parents", "@/d/sub", "@/g", "@/empty"],
        &["cp", "--parents", "@/d/sub/two", "@/new"],
        &["cp", "-rx", "@/other", "@/new"],
        &["cp", "-r", "--strip-trailing-slashes", "@/other/", "@/new"],
        &["cp", "--remove-destination", "@/f", "@/none"],
        &["cp", "--remove-destination", "@/f", "@/link"],
        &["cp", "--sparse=always", "@/f", "@/new"],
        &["cp", "--sparse=never", "@/f", "@/new"],
        &["cp", "--reflink=auto", "@/f", "@/new"],
        &["cp", "-f", "@/f", "@/none"],
        &["cp", "@/f"],
    ]));
    same(&[
        (&["cp", "-iv", "@/f", "@/none"], "y\n"),
        (&["cp", "-iv", "@/f", "@/none"], "n\n"),
        (&["cp", "-n", "-i", "@/f", "@/none"], "n\n"),
    ]);
}

/// Options of copies to the host and from it, each with its sources.
const ACROSS: &[(Words<'_>, Words<'_>)] = &[
    (&["-v"], &["f", "g"]),
    (&["-rv"], &["d"]),
    (&["-rP"], &["dlink", "link"]),
    (&["-rH"], &["dlink"]),
    (&["-rL"], &["d/sub/away", "link"]),
    (&["-rL"], &["d"]),
    (&["-a"], &["d", "f", "odd\nname"]),
    (&["-d"], &["f", "d/f-too", "link"]),
    (&["-p"], &["g", "d/one"]),
    (&["--preserve=mode"], &["g"]),
    (&["--preserve=ownership"], &["d/one"]),
    (&["--preserve=timestamps"], &["f", "g"]),
    (&["-r", "--no-preserve=mode"], &["g", "d/sub"]),
    (&["-a", "--no-preserve=ownership,timestamps"], &["g", "d"]),
    (&["--attributes-only"], &["f", "g"]),
    (&["-v", "--parents"], &["d/sub/two", "d/one"]),
    (&["-a", "--parents"], &["d/sub/deep", "d/one"]),
    (&["-n"], &["f", "other/x"]),
    (&["-u"], &["f", "other/x"]),
    (&["-vb"], &["f", "other/x"]),
    (&["-b", "--suffix=.old"], &["f"]),
    (&["--backup=t"], &["f"]),
    (&["--remove-destination"], &["f"]),
    (&["-f"], &["f"]),
    (&["--sparse=always"], &["f", "none"]),
    (&["--sparse=never"], &["f", "none"]),
    (&["-T"], &["f"]),
    (&["-rT"], &["d/sub"]),
];

/// Makes a destination with files that are in the way.
fn destination(root: &Path) {
    fs::create_dir(root).expect("a directory");
    for name in ["f", "x"] {
        fs::write(root.join(name), "there\n").expect("a file");
    }
    run(
        "touch",
        [
            OsStr::new("-md"),
            OsStr::new("@1050000000"),
            root.join("f").as_os_str(),
        ],
    );
}

#[test]
fn copies_to_the_host_are_those_of_gnu() {
    if !can_compare() {
        return;
    }
    let image = SPEC.build();
    let mount = image.mount("ro,noatime");
    let mut differing = String::new();
    for (options, sources) in ACROSS {
        let scratch = tempfile::tempdir().expect("a directory");
        let ours = scratch.path().join("ours");
        let theirs = scratch.path().join("theirs");
        destination(&ours);
        destination(&theirs);
        let mut gnu = Command::new("cp");
        gnu.current_dir(&mount.path)
            .args(*options)
            .args(*sources)
            .arg(&theirs);
        let (success, printed, _) = fed(gnu, "");
        let mut command = command();
        command
            .current_dir(image.scratch())
            .arg("cp")
            .args(*options);
        command
            .args(sources.iter().map(|source| format!("disk.img:/{source}")))
            .arg(&ours);
        let (ours_success, ours_printed, errors) = fed(command, "");
        let line = |printed: &[u8], root: &Path| {
            let text = String::from_utf8_lossy(printed).replace(root.to_str().expect("text"), "TO");
            sorted(text.replace("disk.img:/", "").as_bytes())
        };
        let ours = (ours_success, line(&ours_printed, &ours), listed(&ours));
        let theirs = (success, line(&printed, &theirs), listed(&theirs));
        if ours != theirs {
            differing += &format!("{options:?} {sources:?}: {errors}\n{ours:#?}\n{theirs:#?}\n");
        }
    }
    assert!(differing.is_empty(), "ours and theirs:\n{differing}");
}

#[test]
fn copies_from_the_host_are_those_of_gnu() {
    if !can_compare() {
        return;
    }
    let source = SPEC.build();
    let from = source.mount("ro,noatime");
    let empty = ImageSpec::new("disk", 4 << 20, &["-t", "ext4", "-b", "1024", "-N", "256"]);
    let pattern = empty.mounted(&[|root| {
        destination(&root.join("to"));
        Ok(())
    }]);
    let pattern = pattern.build();
    let mut differing = String::new();
    for (options, sources) in ACROSS {
        let ours = pattern.copy();
        let theirs = pattern.copy();
        let to = theirs.mount("rw,noatime");
        let mut gnu = Command::new("cp");
        gnu.current_dir(&from.path)
            .args(*options)
            .args(*sources)
            .arg(to.path.join("to"));
        let (success, printed, _) = fed(gnu, "");
        let mut command = command();
        let destination = format!("{}:/to", ours.path.display());
        command
            .current_dir(&from.path)
            .arg("cp")
            .args(*options)
            .args(*sources)
            .arg(&destination);
        let (ours_success, ours_printed, errors) = fed(command, "");
        let line = |printed: &[u8], root: &str| {
            sorted(
                String::from_utf8_lossy(printed)
                    .replace(root, "TO")
                    .as_bytes(),
            )
        };
        let theirs_root = to.path.join("to");
        let shown = theirs_root.to_str().expect("text");
        sound(&ours);
        let mounted = ours.mount("ro,noatime");
        let ours = (
            ours_success,
            line(&ours_printed, &destination),
            listed(&mounted.path.join("to")),
        );
        let theirs = (success, line(&printed, shown), listed(&theirs_root));
        if ours != theirs {
            differing += &format!("{options:?} {sources:?}: {errors}\n{ours:#?}\n{theirs:#?}\n");
        }
    }
    assert!(differing.is_empty(), "ours and theirs:\n{differing}");
}

/// Options of moves to the host and from it, each with its sources.
const MOVED: &[(Words<'_>, Words<'_>)] = &[
    (&[], &["f"]),
    (&[], &["f", "g", "odd\nname"]),
    (&[], &["d"]),
    (&[], &["link", "dangling", "dlink"]),
    (&[], &["d", "f"]),
    (&["-n"], &["f", "other/x"]),
    (&["-u"], &["f", "other/x"]),
    (&["-f"], &["f"]),
    (&["-b"], &["f", "other/x"]),
    (&["--backup=numbered"], &["f"]),
    (&["-S", ".old"], &["f"]),
    (&["-T"], &["f"]),
    (&["-T"], &["empty"]),
    (&["--strip-trailing-slashes"], &["other/"]),
    (&[], &["nothing", "g"]),
    (&[], &["empty", "full"]),
];

#[test]
fn moves_to_the_host_are_those_of_gnu() {
    if !can_compare() {
        return;
    }
    let pattern = SPEC.build();
    let mut differing = String::new();
    for (options, sources) in MOVED {
        let scratch = tempfile::tempdir().expect("a directory");
        let ours = scratch.path().join("ours");
        let theirs = scratch.path().join("theirs");
        let image = pattern.copy();
        let other = pattern.copy();
        for root in [&ours, &theirs] {
            destination(root);
            fs::create_dir_all(root.join("full/inside")).expect("a directory");
            fs::create_dir(root.join("empty")).expect("a directory");
        }
        let mount = other.mount("rw,relatime");
        let mut gnu = Command::new("mv");
        gnu.current_dir(&mount.path)
            .args(*options)
            .args(*sources)
            .arg(&theirs);
        let (success, ..) = fed(gnu, "");
        let mut command = command();
        command
            .current_dir(image.scratch())
            .arg("mv")
            .args(*options);
        command
            .args(sources.iter().map(|source| format!("disk.img:/{source}")))
            .arg(&ours);
        let (ours_success, _, errors) = fed(command, "");
        sound(&image);
        let left = image.mount("ro,noatime");
        let ours = (ours_success, listed(&ours), listed(&left.path));
        let theirs = (success, listed(&theirs), listed(&mount.path));
        if ours != theirs {
            differing += &format!("{options:?} {sources:?}: {errors}\n{ours:#?}\n{theirs:#?}\n");
        }
    }
    assert!(differing.is_empty(), "ours and theirs:\n{differing}");
}

#[test]
fn moves_from_the_host_are_those_of_gnu() {
    if !can_compare() {
        return;
    }
    let empty = ImageSpec::new("disk", 4 << 20, &["-t", "ext4", "-b", "1024", "-N", "256"]);
    let pattern = empty.mounted(&[|root| {
        destination(&root.join("to"));
        fs::create_dir_all(root.join("to/full/inside"))?;
        fs::create_dir(root.join("to/empty"))
    }]);
    let pattern = pattern.build();
    let mut differing = String::new();
    for (options, sources) in MOVED {
        let scratch = tempfile::tempdir().expect("a directory");
        let ours = scratch.path().join("ours");
        let theirs = scratch.path().join("theirs");
        let image = pattern.copy();
        let other = pattern.copy();
        for root in [&ours, &theirs] {
            fs::create_dir(root)
                .and_then(|()| fill(root))
                .expect("files");
        }
        let mount = other.mount("rw,relatime");
        let mut gnu = Command::new("mv");
        gnu.current_dir(&theirs)
            .args(*options)
            .args(*sources)
            .arg(mount.path.join("to"));
        let (success, ..) = fed(gnu, "");
        let mut command = command();
        command
            .current_dir(&ours)
            .arg("mv")
            .args(*options)
            .args(*sources);
        command.arg(format!("{}:/to", image.path.display()));
        let (ours_success, _, errors) = fed(command, "");
        sound(&image);
        let to = image.mount("ro,noatime");
        let ours = (ours_success, listed(&ours), listed(&to.path));
        let theirs = (success, listed(&theirs), listed(&mount.path));
        if ours != theirs {
            differing += &format!("{options:?} {sources:?}: {errors}\n{ours:#?}\n{theirs:#?}\n");
        }
    }
    assert!(differing.is_empty(), "ours and theirs:\n{differing}");
}

#[test]
fn a_source_stays_unless_all_of_it_is_moved() {
    let image = machine();
    let at = |name: &str| image.scratch().join(name);
    fs::create_dir_all(at("tree/sub")).expect("directories");
    fs::write(at("tree/sub/file"), [1; 4096]).expect("a file");
    fs::write(at("big"), vec![1; 9 << 20]).expect("a file");
    // The volume has no room for all of it.
    fs::rename(at("big"), at("tree/sub/big")).expect("a rename");
    let errors = failed(&extern4(&image, ["mv", "tree", "disk.img:/srv"]), 1);
    assert!(errors.contains("No space left"), "{errors}");
    assert!(at("tree/sub/big").exists() && at("tree/sub/file").exists());
    sound(&image);
    ok(extern4(&image, ["rm", "-r", "disk.img:/srv"]));
    // Roots, and a file that is to stay.
    for (args, says) in [
        (
            &["mv", "disk.img:/", "out"][..],
            "a root or '.' or '..' is not moved",
        ),
        (
            &["mv", ".", "disk.img:/"],
            "a root or '.' or '..' is not moved",
        ),
        (
            &["mv", "disk.img:/etc/hostname", "disk.img:/bin/true", "none"],
            "'none': not a directory",
        ),
        (
            &["mv", "disk.img:/etc", "disk.img"],
            "this is the image itself",
        ),
    ] {
        let errors = failed(&extern4(&image, args), 1);
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    let said = ok(extern4(&image, ["mv", "-v", "disk.img:/home", "moved"]));
    assert_eq!(
        String::from_utf8_lossy(&said),
        "renamed 'disk.img:/home' -> 'moved'\n"
    );
    assert_eq!(
        fs::read_to_string(at("moved/ann/notes.txt")).expect("a file"),
        "buy milk\n"
    );
    // From one volume to another.
    fs::copy(&image.path, at("other.img")).expect("a copy");
    ok(extern4(&image, ["mv", "disk.img:/etc", "other.img:/var"]));
    assert_eq!(
        ok(extern4(&image, ["ls", "disk.img:/"])),
        b"bin\nlost+found\nroot\nvar\n"
    );
    assert_eq!(
        ok(extern4(&image, ["cat", "other.img:/var/etc/hostname"])),
        b"tiny\n"
    );
    sound(&image);
}

#[test]
fn copies_take_options_of_their_own() {
    let image = machine();
    let tree = image.scratch().join("tree");
    fs::create_dir_all(tree.join("src/.git")).expect("directories");
    for name in ["src/a.c", "src/a.o", "src/.git/x", "b.o"] {
        fs::write(tree.join(name), [0; 8192]).expect("a file");
    }
    let run = |args: &[&str]| String::from_utf8(ok(extern4(&image, args))).expect("text");
    run(&[
        "cp",
        "-r",
        "--exclude=*.o",
        "--exclude=.git/",
        "--chown=ann:staff",
        "tree",
        "disk.img:/srv",
    ]);
    assert_eq!(
        run(&["find", "disk.img:/srv"]),
        "disk.img:/srv\ndisk.img:/srv/src\ndisk.img:/srv/src/a.c\n"
    );
    let owners = run(&[
        "stat",
        "-c",
        "%U:%G",
        "disk.img:/srv",
        "disk.img:/srv/src/a.c",
    ]);
    assert_eq!(owners, "ann:staff\nann:staff\n");
    let group = if rustix::process::geteuid().is_root() {
        "--chown=:7"
    } else {
        "--no-preserve=ownership"
    };
    run(&[
        "cp",
        "-r",
        "--exclude=/src/a.*",
        group,
        "disk.img:/srv",
        "out",
    ]);
    assert_eq!(listed(&image.scratch().join("out")).len(), 2);
    for sparse in ["always", "never", "auto"] {
        let sparse = format!("--sparse={sparse}");
        run(&["cp", &sparse, "tree/b.o", "disk.img:/zeroes"]);
        let blocks = run(&["stat", "-c", "%b", "disk.img:/zeroes"]);
        assert_eq!(
            blocks == "0\n",
            sparse == "--sparse=always",
            "{sparse}: {blocks}"
        );
        run(&["cp", &sparse, "disk.img:/zeroes", "zeroes"]);
        assert_eq!(
            fs::read(image.scratch().join("zeroes")).expect("a copy"),
            [0; 8192]
        );
    }
    let errors = failed(
        &extern4(&image, ["cp", "-r", "--chown=joe", "tree", "disk.img:/x"]),
        1,
    );
    assert!(errors.contains("joe is not a user of"), "{errors}");
    let errors = failed(&extern4(&image, ["cp", "-l", "tree/b.o", "disk.img:/x"]), 1);
    assert!(
        errors.contains("a link leads only to files of its own volume"),
        "{errors}"
    );
    let errors = failed(&extern4(&image, ["cp", "-Z", "tree/b.o", "disk.img:/x"]), 2);
    assert!(errors.contains("setfattr"), "{errors}");
    run(&["cp", "-sv", "disk.img:/etc/hostname", "disk.img:/name"]);
    assert_eq!(run(&["readlink", "disk.img:/name"]), "/etc/hostname\n");
    sound(&image);
}
