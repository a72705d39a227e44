//! Signals to a daemon: none ends it without an unmount but signals that cannot be handled.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run};

use crate::mounting::{EMPTY, can_mount_as_root, in_foreground, is_mounted, patiently, sound};
use crate::run::{extern4, ok, tool};

/// The outcome of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The volume is unmounted and closed.
    Ends,
    /// The daemon goes on.
    GoesOn,
    /// The process ends at once, for this reason.
    Dies(&'static str),
}

/// Returns the outcome of every signal of Linux, but signals that stop a process.
fn outcome(signal: i32) -> Option<Outcome> {
    const FAULT: Outcome =
        Outcome::Dies("its memory may be damaged, and must not get to the volume");
    Some(match signal {
        4 | 6 | 7 | 8 | 11 => FAULT,
        9 => Outcome::Dies("no process can handle it"),
        // The C library keeps these for itself, so no process can handle them; a parent may have
        // had them ignored.
        32 | 33 => return None,
        // PIPE, XFSZ: the write that met them fails. CHLD, CONT, URG, WINCH do nothing by default.
        13 | 25 | 17 | 18 | 23 | 28 => Outcome::GoesOn,
        // The daemon outlives its terminal, as nohup(1) asks.
        1 if is_hangup_ignored() => Outcome::GoesOn,
        // STOP, TSTP, TTIN, TTOU.
        19..=22 => return None,
        _ => Outcome::Ends,
    })
}

/// Returns whether nohup(1) started these tests, and so the daemon.
fn is_hangup_ignored() -> bool {
    is_in_mask("self", "SigIgn:", 1)
}

/// Returns whether a signal is in a mask of a process, as proc(5) calls both.
fn is_in_mask(pid: &str, name: &str, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("proc(5)");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("hexadecimal digits") & 1 << (signal - 1) != 0
}

fn send(image: &Image, signal: i32, pid: u32) {
    tool(
        image.scratch(),
        "perl",
        [
            "-e",
            "kill $ARGV[0], $ARGV[1] or die $!",
            &signal.to_string(),
            &pid.to_string(),
        ],
    );
}

/// Returns the exit status of a process; panics if it does not end.
#[track_caller]
fn end_of(child: &mut Child, signal: i32) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("it goes on after signal {signal}");
        }
        sleep(Duration::from_millis(5));
    }
}

fn start(image: &Image, dir: &Path) -> Child {
    let child = in_foreground(image, dir, "commit=3600");
    fs::write(dir.join("file"), "not synced").expect("a file");
    child
}

#[test]
fn no_signal_ends_a_mount_without_closing_the_volume() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("perl")]) {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    let mut daemon = None;
    for (signal, outcome) in (1..=64).filter_map(|signal| Some((signal, outcome(signal)?))) {
        let mut child: Child = daemon.take().unwrap_or_else(|| start(&image, &dir));
        send(&image, signal, child.id());
        match outcome {
            Outcome::GoesOn => {
                assert_eq!(
                    fs::read(dir.join("file")).expect("it is served"),
                    b"not synced",
                    "{signal}"
                );
                assert!(child.try_wait().expect("a child").is_none(), "{signal}");
                daemon = Some(child);
                continue;
            }
            Outcome::Ends => {
                let status = end_of(&mut child, signal);
                assert!(
                    status.success() && !is_mounted(&image),
                    "{signal}: {status}"
                );
                assert_eq!(
                    ok(extern4(&image, ["cat", "disk.img:/file"])),
                    b"not synced",
                    "{signal}"
                );
            }
            Outcome::Dies(why) => {
                if matches!(signal, 7 | 11) {
                    // Rust's stack overflow handler only restores the default action at the first
                    // signal: it expects a fault to come again. A signal that comes before that
                    // would be lost.
                    let pid = child.id().to_string();
                    while is_in_mask(&pid, "SigCgt:", signal) {
                        sleep(Duration::from_millis(5));
                    }
                    send(&image, signal, child.id());
                }
                let status = end_of(&mut child, signal);
                assert_eq!(status.signal(), Some(signal), "{why}");
                patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], &dir);
                ok(extern4(&image, ["recover", "disk.img"]));
            }
        }
        sound(&image);
        let _ = extern4(&image, ["rm", "disk.img:/file"]);
    }
    if let Some(mut child) = daemon {
        send(&image, 15, child.id());
        assert!(end_of(&mut child, 15).success());
    }
}

/// The terminal's process group and session get a signal when it goes; the daemon is in neither.
#[test]
fn a_daemon_survives_its_terminal() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("script")]) {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    let mount = format!("{} mount disk.img mnt", env!("CARGO_BIN_EXE_extern4"));
    // The shell ends at once, and its terminal with it.
    let mut terminal = Command::new("script");
    terminal
        .current_dir(image.scratch())
        .args(["-qec", &mount, "/dev/null"]);
    assert!(terminal.output().expect("script runs").status.success());
    assert!(is_mounted(&image));
    fs::write(dir.join("file"), "text").expect("it is served");
    patiently(&["umount"], &dir);
    assert_eq!(ok(extern4(&image, ["cat", "disk.img:/file"])), b"text");
    // Under nohup(1) a process in the foreground outlives its terminal, too.
    let start = "trap '' HUP; \"$0\" mount -f disk.img mnt 2>/dev/null & until mountpoint -q mnt; do sleep 0.01; done; \
                 kill -HUP $!; sleep 0.1; ls mnt; kill -TERM $!; wait $!";
    let mut shell = Command::new("bash");
    shell
        .current_dir(image.scratch())
        .args(["-c", start, env!("CARGO_BIN_EXE_extern4")]);
    assert_eq!(
        ok(shell.output().expect("bash runs")),
        b"file\nlost+found\n"
    );
    assert!(!is_mounted(&image));
    sound(&image);
}
