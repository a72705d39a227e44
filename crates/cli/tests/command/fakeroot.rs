//! `-o fakeroot`, `-o allow_root` and user namespaces: mounts of ordinary users.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run, skip};

use crate::mounting::{
    EMPTY, Served, as_user, can_mount_as_root, copy_command, sound, transports, users_can_mount,
};
use crate::run::{extern4, ok};

const USER: u32 = 1000;

/// Makes a user's image in a directory that all users may use, with the command next to it.
fn users_image() -> Image {
    let image = EMPTY.build();
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o777)).expect("its mode");
    std::os::unix::fs::chown(&image.path, Some(USER), Some(USER)).expect("its owner");
    copy_command(image.scratch());
    image
}

fn run_as(uid: u32, dir: &Path, script: &str) -> Output {
    as_user(uid, dir, script)
        .env("LC_ALL", "C")
        .output()
        .expect("setpriv")
}

#[track_caller]
fn succeeds(uid: u32, dir: &Path, script: &str) -> String {
    let run = run_as(uid, dir, script);
    assert!(
        run.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[track_caller]
fn is_refused(uid: u32, dir: &Path, script: &str, why: &str) {
    let run = run_as(uid, dir, script);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && said.contains(why),
        "{script}: {said}"
    );
}

/// Scripts that root may run on the volume, each with its output.
const ROOT_S: &[(&str, &str)] = &[
    ("ls lost+found", ""),
    ("test -w lost+found", ""),
    ("echo text > file; stat -c %u:%g file", "1000:1000\n"),
    (
        "chown 0:0 file; chmod 600 file; cat file; echo more >> file; stat -c '%a %u:%g' file",
        "text\n600 0:0\n",
    ),
    (
        "chown 12345:54321 file; chmod 6755 file; echo more >> file; stat -c '%a %u:%g' file",
        "6755 12345:54321\n",
    ),
    (
        "mkdir sticky; chmod 1777 sticky; touch sticky/f; chown 7:7 sticky sticky/f; rm sticky/f",
        "",
    ),
    ("ln file hard; mv hard soft; rm soft", ""),
    (
        "touch own; chown 5 own; mv own lost+found; rm lost+found/own",
        "",
    ),
    ("touch -d @7 file; stat -c %Y file", "7\n"),
    ("mkfifo fifo; stat -c %F fifo", "fifo\n"),
];

/// Scripts with ACLs, which tools set on other users' files, too.
const ACL_S: &[(&str, &str)] = &[
    ("touch a; setfacl -m u:5:rwx a; stat -c %a a", "674\n"),
    (
        "chmod 640 a; getfacl -cn a | grep user:5",
        "user:5:rwx\t#effective:r--\n",
    ),
    (
        "chown 0:0 a; setfacl -m u:6:r a; getfacl -cn a | grep user:6",
        "user:6:r--\n",
    ),
    (
        "mkdir d; setfacl -d -m u:5:rwx d; chown 0 d; umask 077; touch d/x; getfacl -cn d/x | grep user:5",
        "user:5:rwx\t#effective:rw-\n",
    ),
];

#[test]
fn a_user_acts_as_root_on_the_volume_where_that_is_asked_for() {
    if !users_can_mount() {
        return;
    }
    for transport in transports() {
        let image = users_image();
        let scratch = image.scratch();
        // Other users are not served, whatever the other options are.
        succeeds(
            USER,
            scratch,
            &format!("mkdir mnt; ./extern4 mount -o fakeroot,allow_other,{transport} disk.img mnt"),
        );
        let dir = scratch.join("mnt");
        let inside = |script: &str| succeeds(USER, scratch, &format!("cd mnt; {script}"));
        for (script, printed) in ROOT_S {
            assert_eq!(inside(script), *printed, "{script}");
        }
        if can_run(&[Need::Tool("setfacl")]) {
            ACL_S
                .iter()
                .for_each(|(script, printed)| assert_eq!(inside(script), *printed, "{script}"));
        }
        // The README's example, with files that root owns.
        inside(
            "cp -a /usr/include/linux linux; diff -r /usr/include/linux linux; stat -c %u:%g linux/fs.h | grep -qx 0:0",
        );
        is_refused(USER, scratch, "mknod mnt/null c 1 3", "not permitted");
        is_refused(
            USER,
            scratch,
            "setfattr -n trusted.a -v 1 mnt/file",
            "not permitted",
        );
        for other in [2000, 0] {
            is_refused(other, scratch, "ls mnt", "Permission denied");
        }
        assert_eq!(
            fs::metadata(&dir)
                .expect_err("root is another user")
                .raw_os_error(),
            Some(13)
        );
        succeeds(USER, scratch, "./extern4 umount mnt");
        sound(&image);
        let stat = ok(extern4(
            &image,
            [
                "stat",
                "-c",
                "%a %u:%g",
                "disk.img:/file",
                "disk.img:/linux/fs.h",
            ],
        ));
        assert_eq!(
            String::from_utf8_lossy(&stat),
            "6755 12345:54321\n644 0:0\n"
        );
    }
}

/// Root's mount with the option serves only root, and set-id bits have no effect there.
#[test]
fn root_s_mount_with_fakeroot_serves_root_only() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("setpriv")]) {
        return;
    }
    for option in ["fakeroot", "fakeroot,allow_other", "allow_root"] {
        let image = users_image();
        let served = Served::new(&image, &["-o", option]);
        fs::write(served.path("file"), "text").expect("a file");
        std::os::unix::fs::chown(served.path("file"), Some(7), Some(8)).expect("its owner");
        let found = fs::metadata(served.path("file")).expect("attributes");
        assert_eq!((found.uid(), found.gid()), (7, 8), "{option}");
        is_refused(USER, image.scratch(), "ls mnt", "Permission denied");
        served.umount();
        sound(&image);
    }
}

/// As in the manual: in new namespaces, an ordinary user is root, and needs no fusermount3.
#[test]
fn a_user_mounts_in_namespaces_of_its_own() {
    if !users_can_mount() {
        return;
    }
    let image = users_image();
    let scratch = image.scratch();
    let mut tried = Command::new("setpriv");
    tried.args([
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "unshare",
        "-Urm",
        "true",
    ]);
    if !tried.status().expect("setpriv").success() {
        skip("user namespaces", "this machine has no namespaces of users");
        return;
    }
    let script = "mkdir mnt; unshare -Urm sh -ec './extern4 mount disk.img mnt; ls mnt/lost+found; echo text > mnt/file; \
        chmod 600 mnt/file; stat -c %u:%g mnt/file; ./extern4 umount mnt'";
    assert_eq!(succeeds(USER, scratch, script), "0:0\n");
    sound(&image);
    assert_eq!(
        ok(extern4(
            &image,
            ["stat", "-c", "%a %u:%g", "disk.img:/file"]
        )),
        b"600 0:0\n"
    );
}
