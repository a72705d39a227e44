//! Mounts by FUSE in tests: their needs of the machine, and their end.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::image::{Image, ImageSpec};
use crate::tools::{self, Need, can_run, skip};

/// A volume with nothing in it.
pub const EMPTY: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"]);

/// Returns whether this machine can run these tests; prints a note if not.
pub fn can_mount() -> bool {
    can_run(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Fuse])
}

/// Returns whether this machine can run tests that also work in mounts as other users, or do in
/// them what only root may; prints a note if not.
pub fn can_mount_as_root() -> bool {
    can_run(&[Need::Root]) && can_mount()
}

/// Returns the transports of requests on this machine, as options.
pub fn transports() -> Vec<&'static str> {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    if fs::read_to_string(SWITCH).is_ok_and(|switch| switch.trim() == "Y") {
        return vec!["transport=device", "transport=ring"];
    }
    skip(
        "mounting through rings",
        &format!("{SWITCH} does not say Y"),
    );
    vec!["transport=device"]
}

/// Runs a command on the mount in `dir`, again as long as that is busy: a process that another test
/// starts has its files for a moment.
#[track_caller]
pub fn patiently(command: &[&str], dir: &Path) {
    let start = Instant::now();
    loop {
        let run = Command::new(command[0])
            .args(&command[1..])
            .arg(dir)
            .output();
        let run = run.expect("the command runs");
        let said = String::from_utf8_lossy(&run.stderr);
        if said.contains("busy") && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        assert!(
            run.status.success() && said.is_empty(),
            "{command:?}: {said}"
        );
        return;
    }
}

/// Asserts that `e2fsck` finds nothing.
#[track_caller]
pub fn sound(image: &Image) {
    tools::run("e2fsck", [OsStr::new("-fn"), image.path.as_os_str()]);
}

/// Returns a command that runs a shell script in `scratch` as a user without other groups.
pub fn as_user(uid: u32, scratch: &Path, script: &str) -> Command {
    let ids = [
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".to_owned(),
    ];
    let mut run = Command::new("setpriv");
    run.args(ids)
        .args(["sh", "-ec", script])
        .current_dir(scratch);
    run
}
