//! `check` with the options of e2fsck, and the progress that both write.

use std::fs;
use std::process::{Command, Output};

use extern4_testkit::image::Image;
use extern4_testkit::tools::find;

use crate::run::{extern4, failed, machine, ok, plain};

/// Runs the command in a shell, for its open files. `name` is the one it is called by.
fn shell(image: &Image, name: &str, line: &str) -> Output {
    let mut shell = Command::new("bash");
    plain(&mut shell);
    let line = format!("exec -a {name} {} {line}", env!("CARGO_BIN_EXE_extern4"));
    shell
        .current_dir(image.scratch())
        .args(["-c", &line])
        .output()
        .expect("a shell")
}

/// Checks lines of progress: the lines of each pass count up to its parts, and passes follow each
/// other.
fn complete(text: &str) {
    let mut last = (0, 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [pass, done, all, name] = words[..] else {
            panic!("{text}")
        };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let now = (number(pass), number(done), number(all));
        assert!(
            (now.0, now.1) > (last.0, last.1) && now.1 <= now.2 && name == "disk.img",
            "{text}"
        );
        last = now;
    }
    assert!(last.0 == 5 && last.1 == last.2, "{text}");
}

#[test]
fn progress_goes_to_an_open_file() {
    let image = machine();
    let at = image.scratch();
    ok(shell(&image, "extern4", "check -C 3 disk.img 3>progress"));
    complete(&fs::read_to_string(at.join("progress")).expect("a file"));
    let piped = shell(&image, "extern4", "check -q -C5 disk.img 5>&1 | cat");
    complete(&String::from_utf8_lossy(&piped.stdout));
    ok(shell(
        &image,
        "fsck.extern4",
        "-n -f -C 3 disk.img 3>checked",
    ));
    complete(&fs::read_to_string(at.join("checked")).expect("a file"));
    ok(extern4(&image, ["check", "-C", "-3", "disk.img"]));
    let bar = extern4(&image, ["check", "-C0", "disk.img"]);
    assert!(bar.status.success());
    let said = failed(&extern4(&image, ["check", "-C", "99", "disk.img"]), 2);
    assert!(said.contains("-C 99: No such file or directory"), "{said}");
}

#[test]
fn numbers_are_those_of_e2fsck() {
    if find("e2fsck").is_none() {
        return;
    }
    let image = machine();
    let theirs = Command::new("e2fsck")
        .arg("-fnv")
        .arg(&image.path)
        .output()
        .expect("e2fsck runs");
    let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
    let ours = ok(extern4(&image, ["check", "-fnv", "disk.img"]));
    let ours = String::from_utf8_lossy(&ours).into_owned();
    for what in ["inodes used", "blocks used", "directories"] {
        let line = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("  ") && line.contains(what))
                .map(|line| line.trim().to_owned())
        };
        let theirs = if what == "directories" {
            theirs
                .lines()
                .map(str::trim)
                .find(|line| line.ends_with(" directories") && !line.contains('('))
                .map(str::to_owned)
        } else {
            line(&theirs)
        };
        assert_eq!(line(&ours), theirs, "{what}");
    }
}

#[test]
fn options_that_would_repair_name_what_does() {
    let image = machine();
    for option in ["-p", "-a", "-y"] {
        let said = failed(&extern4(&image, ["check", option, "disk.img"]), 2);
        let expected = format!(
            "extern4: check: {option}: it changes nothing: recover replays the journal, and e2fsck -p or -y repairs\n"
        );
        assert_eq!(said, expected);
    }
}
