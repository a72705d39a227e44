//! Mounts for which the kernel maps users, and the rights of users there.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use extern4_testkit::mounts::{EMPTY, as_user, can_mount_as_root, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{self, Need, can_run, skip};

use crate::served::Served;

/// Shows directory `$ARGV[1]` at `$ARGV[2]` with the users of the process `$ARGV[0]`'s namespace.
/// The numbers are open_tree(2), mount_setattr(2) and move_mount(2), which are the same on all
/// machines.
const MAP: &str = r#"
    my ($pid, $from, $to) = @ARGV;
    open(my $users, "<", "/proc/$pid/ns/user") or die "namespace: $!";
    my $empty = "";
    my $tree = syscall(428, -100, $from, 0x80001);
    $tree >= 0 or die "open_tree: $!";
    my $how = pack("Q4", 0x100000, 0, 0, fileno($users));
    syscall(442, $tree, $empty, 0x1000, $how, 32) == 0 or die "mount_setattr: $!";
    syscall(429, $tree, $empty, -100, $to, 4) == 0 or die "move_mount: $!";
"#;

/// A user namespace in which user 0 is user 100000 of this one.
struct Users(Child);

impl Users {
    fn new() -> Self {
        let users = Self(
            Command::new("unshare")
                .args(["-U", "sleep", "600"])
                .spawn()
                .expect("a namespace"),
        );
        let pid = users.0.id();
        let own = fs::read_link("/proc/self/ns/user").expect("a namespace");
        while fs::read_link(format!("/proc/{pid}/ns/user")).is_ok_and(|namespace| namespace == own)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{pid}/{map}"), "0 100000 65536").expect("a map");
        }
        users
    }

    /// Shows `mnt` at `mapped`, both in `scratch`, with its users; returns the error message if
    /// that is refused.
    fn map(&self, scratch: &Path) -> Option<String> {
        let pid = self.0.id().to_string();
        let mut perl = Command::new("perl");
        let run = perl
            .current_dir(scratch)
            .args(["-e", MAP, &pid, "mnt", "mapped"])
            .output()
            .expect("perl");
        (!run.status.success()).then(|| String::from_utf8_lossy(&run.stderr).into_owned())
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Returns whether the kernel is too old to map users, and prints that; panics on any other
/// refusal.
fn is_too_old(refused: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    assert!(version < (Some(6), Some(12)), "{release}: {refused}");
    skip(
        "idmap",
        &format!(
            "Linux {} does not map users through FUSE",
            release.trim_end()
        ),
    );
    true
}

fn can_map() -> bool {
    can_mount_as_root() && can_run(&[Need::Tool("perl"), Need::Tool("unshare")])
}

#[test]
fn users_are_mapped_for_a_mount_of_the_mount() {
    if !can_map() {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::create_dir(scratch.join("mapped")).expect("a directory");
    let users = Users::new();
    let served = Served::new(&image, &["-o", "idmap"]);
    fs::write(served.path("file"), "text").expect("a file");
    match users.map(scratch) {
        None => {
            let found = fs::metadata(scratch.join("mapped/file")).expect("attributes");
            assert_eq!((found.uid(), found.gid()), (100_000, 100_000));
            assert_eq!(
                fs::read_to_string(scratch.join("mapped/file")).expect("a file"),
                "text"
            );
            tool(scratch, "umount", ["mapped"]);
            served.umount();
            // Only a mount with the option supports mapped users.
            let served = Served::new(&image, &[]);
            assert!(
                users
                    .map(scratch)
                    .is_some_and(|said| said.contains("mount_setattr"))
            );
            served.umount();
        }
        Some(refused) => {
            assert!(is_too_old(&refused));
            served.umount();
        }
    }
    sound(&image);
}

/// `perl -e SHUT DIR`: `EXT4_IOC_SHUTDOWN`.
const SHUT: &str = r#"sysopen(my $dir, $ARGV[0], 0) or die; my $how = pack("L", 1); ioctl($dir, 0x8004587d, $how) or die "$!\n""#;

/// Privileges of root that the kernel leaves to the file system to check. Each row is a script, and
/// whether it succeeds for root and for the owner of all files.
const PRIVILEGED: &[(&str, bool, bool)] = &[
    (
        "getfattr -m - --absolute-names file | grep -q trusted.note",
        true,
        false,
    ),
    ("fstrim .", true, false),
    ("chattr +j file; chattr -j file", true, false),
    (
        "chmod 4755 file; fallocate -l 8192 file; test -u file",
        true,
        false,
    ),
    (
        "chmod 4755 file; fallocate -l 8192 file; test -x file",
        true,
        true,
    ),
    ("perl -e \"$SHUT\" .", true, false),
];

#[test]
fn root_keeps_its_privileges_where_users_are_mapped() {
    let tools = [
        "getfattr",
        "setfattr",
        "fstrim",
        "chattr",
        "fallocate",
        "setpriv",
    ]
    .map(Need::Tool);
    if !can_map() || !can_run(&tools) {
        return;
    }
    let users = Users::new();
    for transport in transports() {
        for (owner, owner_there, place) in [(1000, 1000, "mnt"), (0, 100_000, "mapped")] {
            let image = EMPTY.build();
            let scratch = image.scratch();
            fs::create_dir(scratch.join("mapped")).expect("a directory");
            tools::run("chmod", ["755".as_ref(), scratch.as_os_str()]);
            let served = Served::new(&image, &["-o", transport, "-o", "idmap"]);
            if users
                .map(scratch)
                .is_some_and(|refused| is_too_old(&refused))
            {
                return served.umount();
            }
            tool(
                &served.dir,
                "sh",
                [
                    "-ec",
                    "echo text > first; setfattr -n trusted.note -v x first; cp -a first file",
                ],
            );
            tool(
                &served.dir,
                "chown",
                ["-R", &format!("{owner}:{owner}"), "."],
            );
            let dir = scratch.join(place);
            for &(script, for_root, for_owner) in PRIVILEGED {
                // The owner first: the last script shuts the volume down.
                for (uid, expected) in [(owner_there, for_owner), (0, for_root)] {
                    let run = as_user(uid, &dir, script)
                        .env("SHUT", SHUT)
                        .output()
                        .expect("setpriv");
                    assert_eq!(
                        run.status.success(),
                        expected,
                        "{transport} {place} {uid}: {script}: {run:?}"
                    );
                }
            }
            let refused = fs::write(dir.join("file"), "").expect_err("it is shut down");
            assert_eq!(refused.raw_os_error(), Some(5));
            tool(scratch, "umount", ["mapped"]);
            drop(served);
        }
    }
}

/// A user that makes files as the volume's root is not root, and gets no reserved blocks.
#[test]
fn reserved_blocks_are_for_root_where_users_are_mapped() {
    if !can_map() || !can_run(&[Need::Tool("setpriv"), Need::Tool("tune2fs")]) {
        return;
    }
    let users = Users::new();
    for transport in transports() {
        for opens in ["opens", "noopens"] {
            let image = EMPTY.build();
            let scratch = image.scratch();
            tool(scratch, "tune2fs", ["-m", "50", "disk.img"]);
            fs::create_dir(scratch.join("mapped")).expect("a directory");
            tools::run("chmod", ["755".as_ref(), scratch.as_os_str()]);
            let served = Served::new(&image, &["-o", transport, "-o", "idmap", "-o", opens]);
            if users
                .map(scratch)
                .is_some_and(|refused| is_too_old(&refused))
            {
                return served.umount();
            }
            fs::set_permissions(&served.dir, fs::Permissions::from_mode(0o777)).expect("its mode");
            let mapped = scratch.join("mapped");
            let can = |uid, dir: &Path, script: &str| {
                as_user(uid, dir, script)
                    .status()
                    .expect("setpriv")
                    .success()
            };
            assert!(
                !can(1000, &served.dir, "cat /dev/zero > all 2> /dev/null"),
                "until it is full"
            );
            let more = |name: &str| format!("head -c 64K /dev/zero > {name} 2> /dev/null");
            assert!(
                !can(1000, &served.dir, &more("users")),
                "{transport} {opens}"
            );
            // In the mapped mount, this user's files belong to the volume's root.
            assert!(
                !can(100_000, &mapped, &more("mapped")),
                "{transport} {opens}"
            );
            assert_eq!(
                fs::metadata(served.path("mapped"))
                    .expect("attributes")
                    .uid(),
                0
            );
            assert!(can(0, &served.dir, &more("roots")), "{transport} {opens}");
            assert!(
                can(0, &served.dir, "head -c 64K /dev/zero >> all"),
                "{transport} {opens}"
            );
            tool(scratch, "umount", ["mapped"]);
            served.umount();
            sound(&image);
        }
    }
}
