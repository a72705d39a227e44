//! Signals that end commands which change volumes: no file is left half copied, the volume is
//! closed, and the exit code tells of the signal.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use extern4_testkit::image::{Image, ImageSpec};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{command, extern4, failed, machine, ok};
use crate::writing::{fed, said, sound};

/// Files of a tree to copy, and the bytes of each.
const FILES: usize = 60;
const BYTES: usize = 300_000;

fn start(image: &Image, args: &[&str]) -> Child {
    let mut command = command();
    command.current_dir(image.scratch()).args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
}

fn signal(child: &Child, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Runs a command and sends it a signal after some time. Returns whether the signal ended it in
/// order; it may have come too late, or before the command was ready for it.
#[track_caller]
fn interrupted(image: &Image, args: &[&str], after: Duration) -> bool {
    let child = start(image, args);
    std::thread::sleep(after);
    signal(&child, Signal::INT);
    let output: Output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(130) => assert!(errors.contains("interrupted: "), "{args:?}: {errors}"),
        code => assert!(matches!(code, Some(0) | None) && errors.is_empty(), "{args:?}: {code:?} {errors}"),
    }
    output.status.code() == Some(130)
}

fn contents(at: usize) -> Vec<u8> {
    vec![b'a' + (at % 26) as u8; BYTES]
}

fn volume() -> Image {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"]).build();
    let tree = image.scratch().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for at in 0..FILES {
        fs::write(tree.join(format!("{at}")), contents(at)).expect("a file");
    }
    image
}

/// Checks that the files of a copy that are there are whole. Returns how many there are.
fn whole(copy: &Path) -> usize {
    let Ok(files) = fs::read_dir(copy) else { return 0 };
    let files = files.map(|file| file.expect("a file").path());
    files
        .map(|file| {
            let at = file.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("its number");
            assert!(fs::read(&file).expect("its contents") == contents(at), "{} is whole", file.display());
        })
        .count()
}

#[test]
fn a_copy_that_is_interrupted_leaves_whole_files() {
    let image = volume();
    let (scratch, mut ended) = (image.scratch(), 0);
    for round in 0..8 {
        let after = Duration::from_millis(3 + round * 23);
        ended += usize::from(interrupted(&image, &["cp", "-r", "tree", "disk.img:/"], after));
        sound(&image);
        // All of the copy is whole: a copy of it says so.
        let _ = fs::remove_dir_all(scratch.join("back"));
        if !said(&image, &["find", "disk.img:/", "-name", "tree"]).is_empty() {
            ok(extern4(&image, ["cp", "-r", "disk.img:/tree", "back"]));
            whole(&scratch.join("back"));
            ended += usize::from(interrupted(&image, &["cp", "-r", "disk.img:/tree", "out"], after));
            whole(&scratch.join("out"));
            let _ = fs::remove_dir_all(scratch.join("out"));
            ended += usize::from(interrupted(&image, &["rm", "-r", "disk.img:/tree"], after / 4));
            sound(&image);
            ok(extern4(&image, ["rm", "-rf", "disk.img:/tree"]));
        }
    }
    println!("{ended} commands were ended by their signal");
}

#[test]
fn a_file_that_is_half_copied_goes() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4"]).build();
    let pipe = image.scratch().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let child = start(&image, &["cp", "pipe", "disk.img:/copy"]);
        let mut file = fs::OpenOptions::new().write(true).open(&pipe).expect("the command reads it");
        file.write_all(&vec![b'x'; 3 << 20]).expect("it is read");
        signal(&child, name);
        // The command looks whether it goes on each time that it has read some.
        while file.write_all(&[b'x'; 1 << 16]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(failed(&output, code), "extern4: cp: interrupted: 0 files copied\n");
        assert!(!said(&image, &["ls", "disk.img"]).contains("copy"));
        sound(&image);
    }
}

#[test]
fn a_script_that_is_interrupted_stops_between_commands() {
    let image = machine();
    let script = "mkdir /a\n! kill -TERM $PPID; sleep 1\nmkdir /b\n";
    let errors = failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 143);
    assert!(
        errors.starts_with("extern4: script: interrupted: ") && errors.contains("of 3 commands done"),
        "{errors}"
    );
    let listed = said(&image, &["ls", "disk.img"]);
    assert!(listed.starts_with("a\n") && !listed.contains("b\n"), "{listed}");
    let script = "begin\nmkdir /first\n! kill -INT $PPID; sleep 1\nmkdir /second\ncommit\n";
    let errors = failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 130);
    assert!(errors.contains("nothing between begin and commit was done"), "{errors}");
    let listed = said(&image, &["ls", "disk.img"]);
    assert!(!listed.contains("first") && !listed.contains("second"), "{listed}");
    sound(&image);
}
