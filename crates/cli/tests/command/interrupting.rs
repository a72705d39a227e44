//! Signals that end commands: no file is left half copied, the volume is closed and sound, and the
//! exit code tells of the signal.
//!
//! The moments are chosen by a seed, and counted by the lines that a command prints for its files.
//! `EXTERN4_INTERRUPTS` sets how many moments there are for each command.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::plan;
use extern4_testkit::tools;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{command, extern4, failed, machine, ok};
use crate::writing::{said, sound};

/// Files of a tree to copy.
const FILES: usize = 60;
/// The bytes of a long file, which is copied in several steps, and of the others.
const LONG_BYTES: usize = 3 << 20;
const SHORT_BYTES: usize = 20_000;

/// Waits until a command handles signals.
pub(crate) fn wait_until_listening(child: &Child) {
    let listens = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id()))
            .into_iter()
            .flatten()
            .flatten();
        let name =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.map(name).any(|name| name.trim() == "signals")
    };
    let start = Instant::now();
    while !listens() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it does not wait for signals"
        );
        std::thread::yield_now();
    }
}

/// Starts a command whose output goes to a pipe that holds a page, so that the command is never far
/// ahead of its reader.
pub(crate) fn start(image: &Image, args: &[&str]) -> (Child, std::io::PipeReader) {
    start_as(command(), image, args)
}

/// Starts a program as [`start`] starts the command.
fn start_as(mut command: Command, image: &Image, args: &[&str]) -> (Child, std::io::PipeReader) {
    let (output, end) = std::io::pipe().expect("a pipe");
    fcntl_setpipe_size(&end, 4096).expect("a small pipe");
    command
        .current_dir(image.scratch())
        .args(args)
        .stdin(Stdio::null())
        .stdout(end)
        .stderr(Stdio::piped());
    (command.spawn().expect("the command runs"), output)
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it has not been waited for");
}

/// Runs a command that prints a line for each file, and interrupts it after this many lines.
/// Returns whether the signal ended it, and the messages; the signal may have come too late.
#[track_caller]
fn interrupted(image: &Image, args: &[&str], lines: usize) -> (bool, String) {
    let (child, output) = start(image, args);
    wait_until_listening(&child);
    let mut output = BufReader::with_capacity(256, output);
    for _ in 0..lines {
        output.read_line(&mut String::new()).expect("a line");
    }
    signal(&child, Signal::INT);
    output.read_to_end(&mut Vec::new()).expect("the rest");
    let ended = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    match ended.status.code() {
        Some(130) => assert!(errors.contains("interrupted: "), "{args:?}: {errors}"),
        code => assert!(
            code == Some(0) && errors.is_empty(),
            "{args:?}: {code:?} {errors}"
        ),
    }
    (ended.status.code() == Some(130), errors)
}

/// Calls `run` with moments that a seed chooses: how many files are done before a signal. Returns
/// how many signals came in time.
fn at_moments(seed: u64, mut run: impl FnMut(usize) -> bool) {
    let moments = std::env::var("EXTERN4_INTERRUPTS").map_or(6, |text| {
        text.parse().expect("EXTERN4_INTERRUPTS is a number")
    });
    let random = plan::pattern(seed, 0, moments);
    // A command can be ahead of its reader by the lines in the pipe, about ten.
    let ended = random
        .iter()
        .filter(|byte| run(usize::from(**byte) % (FILES - 15)))
        .count();
    assert!(
        ended * 2 > moments,
        "{ended} of {moments} signals came in time"
    );
}

/// Returns the name of a file: a long one, so that a pipe holds few lines.
fn name(at: usize) -> String {
    format!("{at:03}{}", "x".repeat(180))
}

fn contents(at: usize) -> Vec<u8> {
    plan::pattern(
        at as u64,
        0,
        if at.is_multiple_of(10) {
            LONG_BYTES
        } else {
            SHORT_BYTES
        },
    )
}

/// Makes an empty volume, and a tree on the host next to it.
fn volume() -> Image {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"]).build();
    let tree = image.scratch().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for at in 0..FILES {
        fs::write(tree.join(name(at)), contents(at)).expect("a file");
    }
    image
}

/// Checks that the files of a copy are whole. Returns how many there are.
#[track_caller]
fn whole(copy: &Path) -> usize {
    let Ok(files) = fs::read_dir(copy) else {
        return 0;
    };
    let files = files.map(|file| file.expect("a file").path());
    files
        .map(|file| {
            let at = file
                .file_name()
                .and_then(|name| name.to_str()?.get(..3)?.parse().ok())
                .expect("its number");
            assert!(
                fs::read(&file).expect("its contents") == contents(at),
                "{} is whole",
                file.display()
            );
        })
        .count()
}

/// Checks the volume, and that the files in `/tree` are whole, by e2fsprogs. Returns how many there
/// are.
#[track_caller]
fn whole_in(image: &Image) -> usize {
    sound(image);
    if !said(image, &["ls", "disk.img"]).contains("tree") {
        return 0;
    }
    let back = image.scratch().join("back");
    fs::create_dir(&back).expect("a directory");
    // rdump would also set the owners, as only root can.
    let dump = |name: &str| format!("dump /tree/{name} {}/{name}\n", back.display());
    let names = said(image, &["ls", "disk.img:/tree"]);
    tools::debugfs(
        &image.path,
        false,
        &names.lines().map(dump).collect::<String>(),
    );
    let files = whole(&back);
    fs::remove_dir_all(back).expect("the copy goes");
    files
}

#[test]
fn an_interrupted_copy_into_a_volume_leaves_whole_files() {
    let image = volume();
    at_moments(1, |lines| {
        let (is_ended, errors) = interrupted(&image, &["cp", "-rv", "tree", "disk.img:/"], lines);
        let files = whole_in(&image);
        if is_ended {
            assert!(
                errors.contains(&format!("interrupted: {files} file")),
                "{files} are there: {errors}"
            );
        }
        ok(extern4(&image, ["rm", "-rf", "disk.img:/tree"]));
        is_ended
    });
}

#[test]
fn an_interrupted_copy_out_of_a_volume_leaves_whole_files() {
    let image = volume();
    ok(extern4(&image, ["cp", "-r", "tree", "disk.img:/"]));
    at_moments(2, |lines| {
        let (is_ended, errors) =
            interrupted(&image, &["cp", "-rv", "disk.img:/tree", "out"], lines);
        let out = image.scratch().join("out");
        let files = whole(&out);
        if is_ended {
            assert!(
                errors.contains(&format!("interrupted: {files} file")),
                "{files} are there: {errors}"
            );
        }
        let _ = fs::remove_dir_all(out);
        is_ended
    });
}

#[test]
fn an_interrupted_removal_leaves_whole_files() {
    let image = volume();
    ok(extern4(&image, ["cp", "-r", "tree", "disk.img:/"]));
    let full = image.scratch().join("full.img");
    fs::copy(&image.path, &full).expect("a copy");
    at_moments(3, |lines| {
        fs::copy(&full, &image.path).expect("a copy");
        let (is_ended, errors) = interrupted(&image, &["rm", "-rv", "disk.img:/tree"], lines);
        let files = whole_in(&image);
        if is_ended {
            let removed = FILES - files;
            assert!(
                errors.contains(&format!("interrupted: {removed} file")),
                "{files} are left: {errors}"
            );
        }
        is_ended
    });
}

/// Writes a script that copies the files of the tree, with a line before and one after.
fn script(image: &Image, before: &str, after: &str) {
    let copies: String = (0..FILES)
        .map(|at| format!("cp -v host:tree/{0} /tree/{0}\n", name(at)))
        .collect();
    let text = format!("{before}\nmkdir /tree\n{copies}{after}\n");
    fs::write(image.scratch().join("changes"), text).expect("a script");
}

#[test]
fn an_interrupted_script_leaves_what_its_commands_did() {
    let image = volume();
    script(&image, "# The files", "");
    at_moments(4, |lines| {
        let (is_ended, errors) = interrupted(&image, &["script", "disk.img", "changes"], lines);
        let files = whole_in(&image);
        if is_ended {
            // One is that which makes the directory.
            let commands = files + 1;
            let said = format!("interrupted: {commands} of {} commands done", FILES + 1);
            let in_copy = format!("interrupted: {files} of {} commands done", FILES + 1);
            assert!(
                errors.contains(&said) || errors.contains(&in_copy),
                "{files} are there: {errors}"
            );
        }
        ok(extern4(&image, ["rm", "-rf", "disk.img:/tree"]));
        is_ended
    });
}

#[test]
fn an_interrupted_transaction_leaves_nothing() {
    let image = volume();
    script(&image, "begin", "commit");
    at_moments(5, |lines| {
        let (is_ended, errors) = interrupted(&image, &["script", "disk.img", "changes"], lines);
        assert_eq!(
            whole_in(&image),
            if is_ended { 0 } else { FILES },
            "{errors}"
        );
        if is_ended {
            // A signal at the start comes before the transaction.
            let texts = [
                "nothing between begin and commit was done",
                "interrupted: 0 of ",
            ];
            assert!(texts.iter().any(|text| errors.contains(text)), "{errors}");
            assert!(!said(&image, &["ls", "disk.img"]).contains("tree"));
        }
        ok(extern4(&image, ["rm", "-rf", "disk.img:/tree"]));
        is_ended
    });
}

#[test]
fn an_interrupted_update_leaves_whole_files() {
    let image = volume();
    let update = ["build", "--update", "-v", "disk.img", "tree:/tree"];
    at_moments(6, |lines| {
        let (is_ended, errors) = interrupted(&image, &update, lines);
        let files = whole_in(&image);
        assert_eq!(files == FILES, !is_ended, "{files} are there: {errors}");
        ok(extern4(&image, update));
        assert_eq!(whole_in(&image), FILES);
        ok(extern4(&image, ["rm", "-rf", "disk.img:/tree"]));
        is_ended
    });
}

#[test]
fn an_interrupted_archive_gets_no_name() {
    let image = volume();
    ok(extern4(&image, ["cp", "-r", "tree", "disk.img:/"]));
    at_moments(7, |lines| {
        let (is_ended, errors) =
            interrupted(&image, &["tar", "-cvf", "out.tar", "disk.img:/tree"], lines);
        let archive = image.scratch().join("out.tar");
        assert_eq!(archive.exists(), !is_ended, "{errors}");
        let _ = fs::remove_file(archive);
        is_ended
    });
}

fn pipe(image: &Image) -> std::path::PathBuf {
    let pipe = image.scratch().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    pipe
}

/// Feeds a copy that has got a signal, byte by byte, until it goes no further.
fn feed_until_closed(file: &mut fs::File) {
    while file.write_all(b"x").is_ok() {}
}

#[test]
fn a_file_that_is_half_copied_goes() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4"]).build();
    let pipe = pipe(&image);
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (child, _output) = start(&image, &["cp", "pipe", "disk.img:/copy"]);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&pipe)
            .expect("the command reads it");
        file.write_all(&vec![b'x'; 3 << 20]).expect("it is read");
        signal(&child, name);
        feed_until_closed(&mut file);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(
            failed(&output, code),
            "extern4: cp: interrupted: 0 files copied\n"
        );
        assert!(!said(&image, &["ls", "disk.img"]).contains("copy"));
        sound(&image);
    }
}

#[test]
fn a_script_that_is_interrupted_stops_between_commands() {
    let image = machine();
    let pipe = pipe(&image);
    for (before, after, name, code) in [
        ("", "", Signal::TERM, 143),
        ("begin\n", "commit\n", Signal::INT, 130),
    ] {
        let text = format!("{before}mkdir /first\ncp host:pipe /copy\nmkdir /second\n{after}");
        fs::write(image.scratch().join("changes"), text).expect("a script");
        let (child, _output) = start(&image, &["script", "disk.img", "changes"]);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&pipe)
            .expect("the command reads it");
        signal(&child, name);
        feed_until_closed(&mut file);
        let errors = failed(&child.wait_with_output().expect("it ends"), code);
        let listed = said(&image, &["ls", "disk.img"]);
        assert!(
            !listed.contains("second") && !listed.contains("copy"),
            "{listed}"
        );
        let is_transaction = !before.is_empty();
        assert_eq!(listed.contains("first"), !is_transaction, "{listed}");
        assert!(
            errors.contains("script: interrupted: ") && errors.contains("commands done"),
            "{errors}"
        );
        assert_eq!(
            errors.contains("nothing between begin and commit was done"),
            is_transaction,
            "{errors}"
        );
        sound(&image);
        ok(extern4(&image, ["rm", "-rf", "disk.img:/first"]));
    }
}

/// Makes a volume with damaged inodes, whose faults are more than a pipe holds.
fn damaged() -> Option<Image> {
    fn fill(root: &Path) -> std::io::Result<()> {
        (0..DAMAGED).try_for_each(|at| fs::write(root.join(format!("{at}")), ""))
    }
    const DAMAGED: u64 = 2000;
    const SPEC: ImageSpec = ImageSpec::new(
        "disk",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-I",
            "256",
            "-N",
            "4096",
            "-O",
            "metadata_csum",
        ],
    )
    .from_directory(&[fill]);
    if !SPEC.can_run() {
        return None;
    }
    let image = SPEC.build();
    let place = image.debugfs("imap <12>\n");
    let number = |text: &str| {
        let digits = text.trim_start_matches("0x");
        u64::from_str_radix(digits, if digits.len() < text.len() { 16 } else { 10 })
            .expect("a number")
    };
    let words: Vec<_> = place
        .split([' ', ',', '\n'])
        .filter(|word| !word.is_empty())
        .collect();
    let after = |name: &str| words[words.iter().rposition(|word| *word == name).expect(name) + 1];
    let first = number(after("block")) * 4096 + number(after("offset"));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    for at in 0..DAMAGED {
        file.write_all_at(&[0xa5, 0x5a], first + at * 256 + 0x7c)
            .expect("a checksum");
    }
    Some(image)
}

/// Sends a program a signal when it runs, reads its output to the end, and returns its messages.
#[track_caller]
fn ended(command: Command, image: &Image, args: &[&str], name: Signal, code: i32) -> String {
    let (child, mut output) = start_as(command, image, args);
    wait_until_listening(&child);
    signal(&child, name);
    output.read_to_end(&mut Vec::new()).expect("the output");
    failed(&child.wait_with_output().expect("it ends"), code)
}

#[test]
fn a_check_ends_on_signals_and_changes_nothing() {
    let Some(image) = damaged() else { return };
    let before = fs::read(&image.path).expect("an image");
    let checker = image.scratch().join("fsck.extern4");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extern4"), &checker).expect("a link");
    // The faults of the first pass do not fit into the pipe, so there is a pass left to end.
    for (name, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let errors = ended(
            command(),
            &image,
            &["check", "--json", "disk.img"],
            name,
            code,
        );
        assert_eq!(
            errors,
            "extern4: check: interrupted: 0 of 1 volume checked\n"
        );
        let errors = ended(
            Command::new(&checker),
            &image,
            &["-nf", "disk.img"],
            name,
            32,
        );
        assert_eq!(
            errors,
            "extern4: fsck.extern4: interrupted: disk.img is not checked\n"
        );
    }
    assert!(
        before == fs::read(&image.path).expect("an image"),
        "the image has changed"
    );
}

#[test]
fn a_recovery_ends_between_two_volumes() {
    let image = machine();
    // Their reports are more than the pipe holds.
    let args = [&["recover"][..], &["disk.img"; 300]].concat();
    let errors = ended(command(), &image, &args, Signal::TERM, 143);
    let rest = errors
        .strip_prefix("extern4: recover: interrupted: ")
        .expect("a message");
    assert!(
        rest.ends_with(" of 300 volumes done\n") && !rest.starts_with("300 "),
        "{errors}"
    );
    sound(&image);
}

#[test]
fn an_interrupted_layout_leaves_nothing() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4"]).build();
    let scratch = image.scratch();
    fs::write(scratch.join("long"), plan::pattern(1, 0, 40 << 20)).expect("a file");
    ok(extern4(&image, ["cp", "long", "disk.img:/long"]));
    for directory in ["new/lay", "there"] {
        if directory == "there" {
            fs::create_dir(scratch.join("there")).expect("a directory");
        }
        let output = format!("oci:{directory}:1");
        let (child, _output) = start(&image, &["export", "disk.img", "-o", &output]);
        wait_until_listening(&child);
        signal(&child, Signal::INT);
        let ended = child.wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&ended.stderr);
        match ended.status.code() {
            Some(130) => assert!(errors.contains("is not made"), "{errors}"),
            code => {
                assert!(code == Some(0), "{code:?} {errors}");
                continue;
            }
        }
        assert!(!scratch.join("new").exists());
        assert!(
            fs::read_dir(scratch.join("there"))
                .into_iter()
                .flatten()
                .next()
                .is_none()
        );
    }
}
