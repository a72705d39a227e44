//! Volumes that another process has open: one message for each, and `--wait`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use extern4_testkit::image::{Image, ImageSpec};
use rustix::process::Signal;

use crate::interrupting::signal;
use crate::run::{command, extern4, failed, ok};

const VOLUME: ImageSpec = ImageSpec::new("disk", 8 << 20, &["-t", "ext4"]);

/// The number of files in [`MANY`]: their paths take more than is kept in memory.
const FILES: usize = 2400;

/// A volume with many files with long names.
const MANY: ImageSpec =
    ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-N", "8192"]).from_directory(&[many]);

fn many(root: &Path) -> std::io::Result<()> {
    let long = "n".repeat(240);
    for directory in 0..6 {
        std::fs::create_dir(root.join(format!("{directory}{long}")))?;
    }
    (0..FILES).try_for_each(|file| {
        std::fs::write(root.join(format!("{}{long}/{file}{long}", file % 6)), "")
    })
}

/// A shell that has a volume open for writing.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
}

impl Shell {
    pub(crate) fn new(image: &Image, place: &str) -> Self {
        let mut shell = command();
        shell.current_dir(image.scratch()).args(["shell", place]);
        let mut child = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut input = child.stdin.take().expect("its input");
        input
            .write_all(b"touch /held\nls -d /held\n")
            .expect("a line");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("its output"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "/held\n");
        Self { child, input }
    }

    pub(crate) fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// Starts the command and returns it when it has told that it waits.
fn waiting(image: &Image, args: &[&str]) -> Child {
    let mut started = command();
    started
        .current_dir(image.scratch())
        .args(args)
        .stderr(Stdio::piped());
    let mut child = started.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().expect("its messages"))
        .read_line(&mut line)
        .expect("a line");
    assert!(
        line.contains("'disk.img': waits for process ") && line.contains(" (extern4), which"),
        "{line}"
    );
    child
}

/// Runs a line of bash in which `$X` is the command.
fn line(image: &Image, text: &str) -> Output {
    let mut shell = Command::new("bash");
    crate::run::plain(&mut shell);
    shell
        .current_dir(image.scratch())
        .args(["-c", text])
        .env("X", env!("CARGO_BIN_EXE_extern4"));
    shell.output().expect("a shell")
}

#[test]
fn a_volume_in_use_is_told_once() {
    let image = VOLUME.build();
    std::fs::copy(&image.path, image.scratch().join("other.img")).expect("a copy");
    let shell = Shell::new(&image, "disk.img");
    for args in [
        &[
            "touch",
            "disk.img:/a",
            "other.img:/a",
            "disk.img:/b",
            "other.img:/b",
        ][..],
        &[
            "chmod",
            "700",
            "disk.img:/*",
            "other.img:/a",
            "disk.img:/[ab]",
            "disk.img:/a",
        ],
        &["rm", "disk.img:/a", "disk.img:/b", "other.img:/a"],
        &["ls", "-d", "other.img:/b", "disk.img:/a", "disk.img:/b"],
        &["find", "disk.img:/a", "disk.img:/b", "other.img:/b"],
        &["cat", "disk.img:/a", "disk.img:/b"],
        &["chown", "0:0", "disk.img:/a", "disk.img:/b"],
        &["cp", "disk.img:/a", "disk.img:/b", "."],
    ] {
        let said = failed(&extern4(&image, args), 1);
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(
            said.contains(" has it open") && said.contains("; --wait waits"),
            "{said}"
        );
    }
    let output = ok(extern4(&image, ["stat", "-c", "%n", "other.img:/b"]));
    assert_eq!(output, b"/b\n", "the other volume was not passed over");
    let said = failed(&extern4(&image, ["stat", "other.img:/a"]), 1);
    assert!(said.contains("No such file"), "{said}");
    shell.end();
}

#[test]
fn a_command_waits_for_a_volume() {
    let image = VOLUME.build();
    let shell = Shell::new(&image, "disk.img");
    let said = failed(
        &extern4(
            &image,
            ["touch", "--wait=0.3", "disk.img:/a", "disk.img:/b"],
        ),
        1,
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.contains("waits for") && said.ends_with("has it open\n"),
        "{said}"
    );
    let mut stopped = waiting(&image, &["touch", "--wait", "disk.img:/a"]);
    signal(&stopped, Signal::TERM);
    assert!(!stopped.wait().expect("it ends").success());
    for name in [Signal::INT, Signal::TERM] {
        let mut stopped = waiting(&image, &["rm", "--wait", "disk.img:/held"]);
        signal(&stopped, name);
        assert_eq!(
            stopped.wait().expect("it ends").code(),
            Some(128 + name.as_raw())
        );
    }
    let first = waiting(&image, &["touch", "--wait=60", "disk.img:/first"]);
    let rest = [
        &["chmod", "--wait", "700", "disk.img:/h*"][..],
        &["tune", "--wait", "disk.img", "-L", "x"],
    ]
    .map(|args| waiting(&image, args));
    sleep(Duration::from_millis(300));
    shell.end();
    for mut child in rest.into_iter().chain([first]) {
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(
        ok(extern4(&image, ["stat", "-c", "%a", "disk.img:/held"])),
        b"700\n"
    );
    ok(extern4(&image, ["stat", "disk.img:/first"]));
}

#[test]
fn the_option_is_checked() {
    let image = VOLUME.build();
    for args in [
        &["ls", "--wait=x", "disk.img"][..],
        &["ls", "--wait=-1", "disk.img"],
        &["umount", "--wait", "."],
        &["mkfs", "--wait", "made.img", "1M"],
    ] {
        let said = failed(&extern4(&image, args), 2);
        assert!(said.contains("--wait"), "{said}");
    }
    ok(extern4(&image, ["ls", "--wait", "disk.img"]));
    ok(extern4(
        &image,
        ["--wait=5", "build", "built.img", "disk.img:/"],
    ));
}

#[test]
fn what_is_found_can_be_changed_by_a_command_behind_a_pipe() {
    let image = MANY.build();
    let found = |test: &str| {
        let output = line(
            &image,
            &format!("$X find disk.img:/ -type f {test} -printf '%i\\n'"),
        );
        ok(output).iter().filter(|byte| **byte == b'\n').count()
    };
    for (mode, text) in [
        (
            "601",
            "$X find disk.img:/ -type f -print0 | xargs -0 $X chmod 601",
        ),
        (
            "602",
            "$X find disk.img:/ -type f | xargs $X chmod --wait 602",
        ),
        (
            "603",
            "$X find disk.img:/ -type f -printf '%p\\n' | xargs -d '\\n' $X chmod 603",
        ),
        (
            "604",
            "$X find disk.img:/ -type f -fprint0 >(xargs -0 $X chmod --wait 604); wait $!",
        ),
        ("605", "$X find disk.img:/ -type f -exec $X chmod 605 {} +"),
        (
            "606",
            "$X ls --full-paths -d 'disk.img:/*/*' | xargs $X chmod 606",
        ),
        (
            "607",
            "(! $X grep -rLZ x disk.img:/) | xargs -0 $X chmod 607",
        ),
    ] {
        let output = line(&image, &format!("set -o pipefail; {text}"));
        assert_eq!(
            (
                String::from_utf8_lossy(&ok(output)),
                found(&format!("-perm {mode}"))
            ),
            ("".into(), FILES),
            "{text}"
        );
    }
    let output = line(
        &image,
        "$X find disk.img:/ -print0 | head -c 20; echo ${PIPESTATUS[0]}",
    );
    assert_eq!(ok(output), b"disk.img:/\0disk.img:141\n");
}

#[test]
fn a_command_that_find_runs_does_not_wait_for_find() {
    let image = VOLUME.build();
    ok(extern4(&image, ["touch", "disk.img:/a1", "disk.img:/a2"]));
    ok(line(
        &image,
        "$X find disk.img:/ -name 'a?' -exec $X chmod 640 {} \\;",
    ));
    assert_eq!(
        ok(extern4(&image, ["stat", "-c", "%a", "disk.img:/a*"])),
        b"640\n640\n"
    );
    for option in ["", "--wait"] {
        let script = format!("\"$X\" chmod {option} 600 \"$1\" \"$1\"; echo $?");
        let output = line(
            &image,
            &format!("$X find disk.img:/a1 -exec sh -c '{script}' _ {{}} \\;"),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (said.lines().count(), &output.stdout[..]),
            (1, &b"1\n"[..]),
            "{said}"
        );
        assert!(
            said.contains(" has it open; process ")
                && said.contains(" (extern4 find) runs this command"),
            "{said}"
        );
        assert!(
            said.contains(": use extern4 find ... -print0 | xargs -0 extern4 chmod ..."),
            "{said}"
        );
    }
    // A command behind a pipe may wait for find as well.
    let output = line(
        &image,
        "$X find disk.img:/ -name 'a?' -exec echo {} \\; -exec sleep 1 \\; | xargs -n 1 $X chmod --wait=0.3 600",
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("waits for process ") && said.contains(" (extern4 find), which has it open"),
        "{said}"
    );
    assert!(
        said.contains("; if it waits for this command, use extern4 find ... -print0 | xargs"),
        "{said}"
    );
    // It can be read meanwhile.
    let output = line(
        &image,
        "$X find disk.img:/a1 -exec sh -c '\"$X\" stat -c %a \"$1\"' _ {} \\;",
    );
    assert_eq!(ok(output), b"640\n");
}

#[test]
fn a_program_of_the_host_that_gets_a_path_is_told_of_copies() {
    let image = VOLUME.build();
    ok(extern4(&image, ["touch", "disk.img:/a1", "disk.img:/a2"]));
    let output = line(
        &image,
        "$X find disk.img:/ -name 'a?' -exec wc -c {} \\; 2>&1 | grep '^extern4'",
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("extern4: find: 'wc' failed: ") && said.contains("-extract"),
        "{said}"
    );
    ok(line(
        &image,
        "$X find disk.img:/ -name 'a?' -exec false \\; -o -exec sh -c 'exit 1 # extern4' {} \\;",
    ));
}
