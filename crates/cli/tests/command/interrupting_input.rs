//! Signals to a command that waits for its input: the first one ends it, with the volume closed.
//!
//! Each input is a pipe whose writing end stays open. A command that reads on after a signal would
//! wait for ever, and the test fails then.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4_testkit::image::Image;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::interrupting::signal;
use crate::run::{machine, plain, tool};
use crate::writing::{said, sound};

/// The longest time in which a command gets to its input, or ends.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The functions of the kernel in which a process waits for a pipe: to be read, and for a writer.
const WAITS: [&str; 3] = ["pipe_read", "poll_schedule_timeout", "wait_for_partner"];

/// Returns the command with no signal ignored: a shell's background job ignores SIGINT, and so do
/// all processes below it.
fn listening() -> Command {
    let mut command = Command::new("env");
    plain(&mut command);
    command.args(["--default-signal", env!("CARGO_BIN_EXE_extern4")]);
    command
}

/// Waits until a thread of the command waits for a pipe. Returns false if it ends instead.
#[track_caller]
fn comes_to_wait(child: &mut Child) -> bool {
    let start = Instant::now();
    loop {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id()))
            .into_iter()
            .flatten()
            .flatten();
        let place =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        if tasks
            .map(place)
            .any(|place| WAITS.iter().any(|wait| place.contains(wait)))
        {
            return true;
        }
        if child.try_wait().expect("a child").is_some() {
            return false;
        }
        if start.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("it does not wait for its input");
        }
        sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a command.
#[track_caller]
fn end(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("it still waits for its input");
        }
        sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

/// Runs a command up to where it waits for its standard input, after it has taken `start`, and
/// sends it each signal. Returns the messages. `held` is the writing end of its other inputs.
#[track_caller]
fn interrupt(image: &Image, args: &[&str], start: &[u8]) -> String {
    let names = || {
        let names = fs::read_dir(image.scratch()).expect("a directory");
        let mut names: Vec<_> = names
            .map(|name| name.expect("a name").file_name())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let mut errors = String::new();
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = listening();
        command.current_dir(image.scratch()).args(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command runs");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(start).expect("it reads");
        if comes_to_wait(&mut child) {
            signal(&child, name);
        }
        let output = end(child);
        drop(input);
        errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // A shell reports either in the same way.
        let ended = output
            .status
            .code()
            .or(output.status.signal().map(|signal| 128 + signal));
        assert_eq!(ended, Some(code), "{args:?}: {errors}");
        assert!(names() == before, "{args:?}: {:?} were {before:?}", names());
        sound(image);
        let journal = tool(image.scratch(), "dumpe2fs", ["-h", "disk.img"]);
        assert!(
            !String::from_utf8_lossy(&journal).contains("needs_recovery"),
            "{args:?}"
        );
    }
    errors
}

/// Makes a pipe with a name.
fn fifo(image: &Image) -> PathBuf {
    let pipe = image.scratch().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    pipe
}

/// Returns the first half of an archive, which ends in the contents of its second member.
fn half_archive(image: &Image, compression: &str) -> Vec<u8> {
    let dir = image.scratch().join("half");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("first"), "whole").expect("a file");
    fs::write(
        dir.join("second"),
        extern4_testkit::plan::pattern(1, 0, 300_000),
    )
    .expect("a file");
    let archive = tool(&dir, "tar", ["-c", compression, "first", "second"]);
    fs::remove_dir_all(&dir).expect("it goes");
    archive[..archive.len() / 2].to_vec()
}

#[test]
fn signals_end_the_wait_for_an_archive() {
    let image = machine();
    for start in [
        &[][..],
        &half_archive(&image, "--sort=none"),
        &half_archive(&image, "--gzip"),
    ] {
        let errors = interrupt(
            &image,
            &["tar", "-xf", "-", "-C", "disk.img:/", "first", "none"],
            start,
        );
        assert_eq!(errors, "extern4: tar: interrupted: nothing was changed\n");
        assert!(!said(&image, &["ls", "disk.img"]).contains("first"));
        interrupt(&image, &["tar", "-t"], start);
        let errors = interrupt(&image, &["build", "--update", "disk.img", "-"], start);
        assert_eq!(errors, "extern4: build: interrupted: nothing was changed\n");
        let errors = interrupt(&image, &["build", "new.img", "-"], start);
        assert_eq!(errors, "extern4: build: interrupted: no volume was made\n");
        let errors = interrupt(&image, &["mkfs", "-d", "-", "new.img", "64M"], start);
        assert_eq!(errors, "extern4: mkfs: interrupted: no volume was made\n");
    }
}

#[test]
fn signals_end_the_wait_for_a_named_pipe() {
    let image = machine();
    fs::create_dir(image.scratch().join("tree")).expect("a directory");
    let pipe = fifo(&image);
    let mut writer = None;
    for _ in 0..2 {
        for args in [
            &["build", "new.img", "pipe"][..],
            &["build", "new.img", "tree", "--manifest", "pipe"],
            &["build", "new.img", "tree", "--selinux", "pipe"],
            &["build", "--update", "disk.img", "pipe"],
            &["tar", "-xf", "pipe", "-C", "disk.img:/"],
            &["cp", "pipe", "disk.img:/copy"],
            &["cp", "/dev/stdin", "disk.img:/copy"],
        ] {
            interrupt(&image, args, b"");
            assert!(!said(&image, &["ls", "disk.img"]).contains("copy"));
        }
        // The second time with a writer that writes nothing.
        writer.get_or_insert_with(|| {
            let both: File = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&pipe)
                .expect("a pipe");
            both
        });
    }
}

#[test]
fn signals_end_the_wait_for_commands() {
    let image = machine();
    interrupt(&image, &["script", "disk.img"], b"mkdir /new\n");
    assert!(!said(&image, &["ls", "disk.img"]).contains("new"));
    let errors = interrupt(&image, &["shell", "disk.img"], b"mkdir -p /made\n");
    assert_eq!(errors, "extern4: shell: interrupted: 1 lines read\n");
    assert!(said(&image, &["ls", "disk.img"]).contains("made"));
}

#[test]
fn signals_end_the_wait_of_a_command_in_a_script() {
    let image = machine();
    let pipe = fifo(&image);
    let held = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("a pipe");
    for line in [
        "cat -",
        "sha256sum -",
        "grep -f - /etc/hostname",
        "grep x -",
        "head -",
        "tail -",
        "cmp /etc/hostname -",
        "setfacl -M - /etc/hostname",
        "setfacl --restore=- /",
        "setfattr --restore=- /",
        "setfattr --restore=pipe /",
        "rm -i /etc/hostname",
        "cp host:pipe /copy",
        "du -X - /",
        "tar -t",
        "tar -xf - -C /",
    ] {
        fs::write(
            image.scratch().join("changes"),
            format!("mkdir -p /first\n{line}\nmkdir /last\n"),
        )
        .expect("a script");
        let errors = interrupt(&image, &["script", "disk.img", "changes"], b"");
        assert!(
            errors.ends_with("interrupted: 1 of 3 commands done\n"),
            "{line}: {errors}"
        );
        let listed = said(&image, &["ls", "disk.img"]);
        assert!(
            listed.contains("first") && !listed.contains("last"),
            "{line}: {listed}"
        );
        assert_eq!(
            said(&image, &["cat", "disk.img:/etc/hostname"]),
            "tiny\n",
            "{line}"
        );
    }
    drop(held);
}

#[test]
fn signals_end_the_wait_for_new_contents() {
    let image = machine();
    // Nothing, a part of a piece, and more than one piece.
    for start in [0, 1000, 3 << 20] {
        let errors = interrupt(
            &image,
            &["put", "disk.img:/etc/hostname"],
            &vec![b'x'; start],
        );
        assert_eq!(errors, "extern4: put: interrupted: nothing was changed\n");
        assert_eq!(said(&image, &["cat", "disk.img:/etc/hostname"]), "tiny\n");
        assert_eq!(
            said(&image, &["ls", "-A", "disk.img:/etc"]),
            "group\nhostname\nos-release\npasswd\n"
        );
    }
}

#[test]
fn signals_end_the_wait_for_an_answer() {
    let image = machine();
    fs::write(image.scratch().join("new"), "new").expect("a file");
    for args in [
        &["rm", "-i", "disk.img:/etc/hostname", "disk.img:/etc/group"][..],
        &["mv", "-i", "disk.img:/etc/group", "disk.img:/etc/hostname"],
        &["ln", "-i", "disk.img:/etc/group", "disk.img:/etc/hostname"],
        &["cp", "-i", "new", "disk.img:/etc/hostname"],
    ] {
        // An answer counts when its line has ended.
        for start in [&b""[..], b"y"] {
            let errors = interrupt(&image, args, start);
            assert!(errors.contains("interrupted: "), "{args:?}: {errors}");
            assert_eq!(
                said(&image, &["cat", "disk.img:/etc/hostname"]),
                "tiny\n",
                "{args:?}"
            );
            assert!(
                said(&image, &["ls", "disk.img:/etc"]).contains("group"),
                "{args:?}"
            );
        }
    }
}
