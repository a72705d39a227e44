//! `extern4 mount` and `extern4 umount`: ordinary programs work in the mount. Then `e2fsck` and the
//! kernel's own mount of the same image show the state of the volume.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
pub(crate) use extern4_testkit::mounts::{
    EMPTY, as_user, can_mount, can_mount_as_root, patiently, sound, transports,
};
use extern4_testkit::tools::{Need, can_run, skip};
use extern4_testkit::{plan, tools};
use rustix::mount::OpenTreeFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{command, extern4, failed, ok, tool};

/// Returns the options with which a user that is not root acts as root in a mount.
fn as_root_on_the_volume() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["-o", "fakeroot"]
    }
}

/// A mount of ours.
pub(crate) struct Served {
    pub(crate) dir: PathBuf,
    mounted: bool,
}

impl Served {
    /// Mounts `image` on `mnt` next to it.
    #[track_caller]
    pub(crate) fn new(image: &Image, options: &[&str]) -> Self {
        let (served, output) = Self::mount(image, options);
        let said = ok(output);
        assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
        served
    }

    /// Mounts `image` as [`new`](Self::new) does; the command warns of `damage`.
    #[track_caller]
    pub(crate) fn warned(image: &Image, damage: &str) -> Self {
        let (served, output) = Self::mount(image, &[]);
        let said = failed(&output, 0);
        assert!(said.contains(damage), "{said}");
        served
    }

    fn mount(image: &Image, options: &[&str]) -> (Self, Output) {
        let dir = image.scratch().join("mnt");
        fs::create_dir_all(&dir).expect("a directory");
        let options = [options, as_root_on_the_volume()].concat();
        let output = extern4(
            image,
            [&["mount"], &options[..], &["disk.img", "mnt"]].concat(),
        );
        (Self { dir, mounted: true }, output)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    #[track_caller]
    pub(crate) fn umount(mut self) {
        patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], &self.dir);
        self.mounted = false;
    }

    /// Notes that another process has unmounted it.
    pub(crate) fn forget(mut self) {
        self.mounted = false;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.mounted {
            // The test has failed already.
            let _ = tools::try_run("umount", [OsStr::new("-l"), self.dir.as_os_str()]);
        }
    }
}

/// Returns whether anything of the image's directory is mounted.
pub(crate) fn is_mounted(image: &Image) -> bool {
    let path = image.scratch().to_str().expect("a plain name");
    fs::read_to_string("/proc/self/mountinfo")
        .expect("mounts")
        .contains(path)
}

/// Contents that the kernel cannot get directly from the device: inside inodes, only in the
/// journal, and in a journal that was not replayed on the device.
#[test]
fn contents_that_stand_elsewhere_are_read() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    const SIZES: [usize; 7] = [0, 1, 60, 61, 200, 300, 5000];
    fn bytes(size: usize) -> Vec<u8> {
        plan::pattern(size as u64, 0, size)
    }
    fn fill(root: &Path) -> std::io::Result<()> {
        SIZES
            .iter()
            .try_for_each(|size| fs::write(root.join(size.to_string()), bytes(*size)))
    }
    const INLINE: &[&str] = &["-t", "ext4", "-I", "512", "-O", "inline_data"];
    for transport in transports() {
        let image = ImageSpec::new("disk", 16 << 20, INLINE)
            .mounted(&[fill])
            .build();
        let small =
            String::from_utf8(ok(extern4(&image, ["inode", "disk.img:/200"]))).expect("text");
        assert!(small.contains("Inline_Data"), "{small}");
        let served = Served::new(&image, &["-o", transport, "-o", "ro"]);
        for size in SIZES {
            assert!(
                fs::read(served.path(&size.to_string())).expect("it is read") == bytes(size),
                "{size}"
            );
        }
        served.umount();

        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport, "-o", "data=journal,commit=3600"]);
        fs::write(served.path("file"), bytes(400_000)).expect("there is room");
        tool(&served.dir, "sync", ["file"]);
        // Past the kernel's cache.
        let read = tool(
            &served.dir,
            "dd",
            ["if=file", "iflag=direct", "bs=64k", "status=none"],
        );
        assert!(read == bytes(400_000));
        // A crash now leaves them in the journal.
        let crashed = image.copy();
        let after = Served::new(&crashed, &["-o", transport, "-o", "ro"]);
        assert!(fs::read(after.path("file")).expect("it is read") == bytes(400_000));
        after.umount();
        served.umount();
        sound(&image);
    }
}

#[test]
fn users_walk_through_a_mount_without_acls() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("setpriv")]) {
        return;
    }
    let image = EMPTY.build();
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let served = Served::new(&image, &["-o", "noacl"]);
    fs::write(served.path("file"), "read").expect("a file");
    let path = served.path("file");
    let cat = |uid: &str| {
        let ids = [
            format!("--reuid={uid}"),
            "--regid=1000".to_owned(),
            "--clear-groups".to_owned(),
        ];
        let cat = std::process::Command::new("setpriv")
            .args(ids)
            .arg("cat")
            .arg(&path)
            .output();
        String::from_utf8_lossy(&cat.expect("setpriv").stdout).into_owned()
    };
    assert_eq!(cat("1000"), "read");
    fs::set_permissions(&served.dir, fs::Permissions::from_mode(0o700)).expect("its mode");
    assert_eq!((cat("1000"), cat("0")), (String::new(), "read".to_owned()));
    served.umount();
    sound(&image);
}

/// Returns how many requests of one kind the mount has answered.
fn requests(image: &Image, name: &str) -> u64 {
    let stats = ok(extern4(image, ["stats", "--json", "mnt"]));
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("an object");
    let mut operations = stats["operations"].as_array().expect("operations").iter();
    let operation = operations.find(|operation| operation["name"] == name);
    operation.map_or(0, |operation| operation["count"].as_u64().expect("a count"))
}

#[test]
fn the_kernel_asks_again_only_for_the_acl_of_the_root() {
    const WALKS: u64 = 100;
    let tools = ["setpriv", "unshare"].map(Need::Tool);
    if !can_mount_as_root() || !can_run(&tools) {
        return;
    }
    let image = EMPTY.build();
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
    fs::create_dir(image.scratch().join("view")).expect("a directory");
    for (option, through_root) in [("acl", 0..=WALKS + 2), ("noacl", 0..=0)] {
        let served = Served::new(&image, &["-o", option]);
        fs::create_dir_all(served.path("dir")).expect("a directory");
        fs::write(served.path("dir/file"), "text").expect("a file");
        // A mount of a directory below has another root, whose ACL the kernel keeps.
        for (path, bounds) in [("mnt/dir/file", through_root), ("view/file", 0..=2)] {
            let walks = format!(
                "mount --bind mnt/dir view; setpriv --reuid=1000 --regid=1000 --clear-groups \
                 sh -ec 'for walk in $(seq {WALKS}); do test -e {path}; done'"
            );
            let before = requests(&image, "getxattr");
            tool(image.scratch(), "unshare", ["-m", "sh", "-ec", &walks]);
            let asked = requests(&image, "getxattr") - before;
            assert!(bounds.contains(&asked), "{option}, {path}: {asked}");
        }
        served.umount();
    }
    sound(&image);
}

#[test]
fn mount_finds_its_helper() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let helper = image.scratch().join("mount.extern4");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extern4"), &helper).expect("a link");
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    let run = |words: &[&str]| {
        let mut run = std::process::Command::new(&helper);
        ok(run
            .current_dir(image.scratch())
            .args(words)
            .output()
            .expect("the helper runs"));
    };
    run(&["disk.img", "mnt", "-f"]);
    run(&[
        "disk.img",
        "mnt",
        "-sn",
        "-o",
        "rw,noauto,nosuid,x-systemd.automount",
    ]);
    let served = Served { dir, mounted: true };
    fs::write(served.path("file"), "text").expect("a file");
    run(&["disk.img", "mnt", "-o", "remount,ro"]);
    assert_eq!(
        fs::write(served.path("file"), "more")
            .unwrap_err()
            .raw_os_error(),
        Some(30)
    );
    run(&["disk.img", "mnt", "-o", "remount,rw"]);
    fs::write(served.path("file"), "more").expect("a file");
    served.umount();
    sound(&image);
}

/// Returns whether this machine lets users mount; prints a note if not.
pub(crate) fn users_can_mount() -> bool {
    let tools = [Need::Tool("setpriv"), Need::Tool("fusermount3")];
    if !can_mount_as_root() || !can_run(&tools) {
        return false;
    }
    if fs::metadata("/dev/fuse").expect("a device").mode() & 0o006 != 0o006 {
        skip("", "/dev/fuse is for root only");
        return false;
    }
    true
}

/// Copies the command next to an image: the build's own directory may be closed to users. Another
/// process makes the copy. A program that this process has open for writing cannot be run. A
/// process that another test starts just then would keep it open for a moment.
pub(crate) fn copy_command(scratch: &Path) {
    tool(scratch, "cp", [env!("CARGO_BIN_EXE_extern4"), "extern4"]);
}

#[test]
fn users_mount_their_own_images() {
    const USER: u32 = 1000;
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    fs::rename(&image.path, scratch.join("disk,1.img")).expect("a name with a comma");
    std::os::unix::fs::chown(scratch.join("disk,1.img"), Some(USER), None).expect("its owner");
    let user = |script: &str| {
        let run = as_user(USER, scratch, script).output().expect("setpriv");
        assert!(
            run.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    };
    // Root owns its root directory, as everything in it.
    tools::run(
        "debugfs",
        ["-w", "-R", "set_inode_field / uid 1000"]
            .iter()
            .map(OsStr::new)
            .chain([scratch.join("disk,1.img").as_os_str()]),
    );
    user("mkdir mnt; ./extern4 mount disk,1.img mnt");
    let mut served = Served {
        dir: scratch.join("mnt"),
        mounted: true,
    };
    user(
        "cp /bin/true mnt/true; chmod 4755 mnt/true; grep ' fuse.extern4 ' /proc/mounts | grep disk,1.img | grep -q nosuid,nodev",
    );
    // Not even root may look into it without `allow_other`.
    assert_eq!(
        fs::metadata(served.path("true"))
            .unwrap_err()
            .raw_os_error(),
        Some(13)
    );
    user(
        "./extern4 umount mnt; test ! -e mnt/true; ./extern4 stat -c %a disk,1.img:/true | grep -qx 4755",
    );
    served.mounted = false;
    tools::run(
        "e2fsck",
        [OsStr::new("-fn"), scratch.join("disk,1.img").as_os_str()],
    );
}

#[test]
fn changes_that_cannot_be_made_are_refused() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::write(served.path("fixed"), "fixed").expect("a file");
    fs::write(served.path("log"), "log\n").expect("a file");
    tool(&served.dir, "chattr", ["+i", "fixed"]);
    tool(&served.dir, "chattr", ["+a", "log"]);
    let eperm = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(1);
    assert!(
        eperm(fs::write(served.path("fixed"), "x")) && eperm(fs::remove_file(served.path("fixed")))
    );
    assert!(
        eperm(fs::write(served.path("log"), "x"))
            && eperm(fs::rename(served.path("log"), served.path("old")))
    );
    let mut log = File::options()
        .append(true)
        .open(served.path("log"))
        .expect("it opens");
    log.write_all(b"more\n").expect("it is appended to");
    assert_eq!(
        fs::read_to_string(served.path("log")).expect("a file"),
        "log\nmore\n"
    );
    drop(log);
    served.umount();
    sound(&image);
    let served = Served::new(&image, &["-o", "ro"]);
    assert_eq!(
        fs::write(served.path("new"), "")
            .unwrap_err()
            .raw_os_error(),
        Some(30)
    );
    assert_eq!(
        fs::read_to_string(served.path("log")).expect("a file"),
        "log\nmore\n"
    );
    served.umount();
}

/// Starts the command in the foreground and waits until it serves.
pub(crate) fn in_foreground(image: &Image, dir: &Path, transport: &str) -> Child {
    fs::create_dir_all(dir).expect("a directory");
    let before = fs::metadata(dir).expect("attributes").dev();
    let mut child = command();
    let child = child
        .args(["mount", "-f", "-o", transport])
        .arg(&image.path)
        .arg(dir)
        .stderr(Stdio::piped());
    let mut child = child.spawn().expect("the command runs");
    let start = Instant::now();
    while fs::metadata(dir).expect("attributes").dev() == before {
        if child.try_wait().expect("a child").is_some() {
            let output = child.wait_with_output().expect("its messages");
            panic!("it has ended: {}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it does not serve"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_signal_ends_it_cleanly_also_while_it_is_used() {
    if !can_mount_as_root() {
        return;
    }
    let ends = [("-TERM", false), ("-INT", false), ("-TERM", true)];
    for (transport, (signal, used)) in transports()
        .into_iter()
        .flat_map(|way| ends.map(|end| (way, end)))
    {
        let image = EMPTY.build();
        let dir = image.scratch().join("mnt");
        let child = in_foreground(&image, &dir, transport);
        let mut file = File::create(dir.join("file")).expect("a file");
        file.write_all(b"not synced").expect("it is written");
        let used = used.then_some(file);
        tool(image.scratch(), "kill", [signal, &child.id().to_string()]);
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{signal}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(fs::read_dir(&dir).expect("the directory below").count(), 0);
        drop(used);
        sound(&image);
        assert_eq!(
            ok(extern4(&image, ["cat", "disk.img:/file"])),
            b"not synced"
        );
    }
}

/// A signal also ends it before it serves: any process that sees the mount may end it.
#[test]
fn a_signal_ends_it_as_soon_as_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    for round in 0..20 {
        let child = command()
            .args(["mount", "-f"])
            .arg(&image.path)
            .arg(&dir)
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.expect("the command runs");
        while !is_mounted(&image) {
            assert!(child.try_wait().expect("a child").is_none(), "it has ended");
        }
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it is told");
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{round}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!is_mounted(&image), "{round}");
    }
    sound(&image);
}

/// It also ends if that process has ended before the command could ask to be told of its end.
#[test]
fn it_ends_with_the_process_that_it_is_to_end_with() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir(&dir).expect("a directory");
    let within = |seconds, program: &[&str]| {
        let mut run = std::process::Command::new("timeout");
        run.arg(seconds)
            .args(program)
            .current_dir(image.scratch())
            .output()
            .expect("timeout runs")
    };
    let extern4_itself = env!("CARGO_BIN_EXE_extern4");
    let not_its_parent = [
        extern4_itself,
        "mount",
        "-f",
        "--with-parent",
        "1",
        "disk.img",
        "mnt",
    ];
    let said = failed(&within("60", &not_its_parent), 1);
    assert!(said.contains("process 1") && !is_mounted(&image), "{said}");
    let start = "$0 mount -f --with-parent $$ disk.img mnt >/dev/null 2>&1 & until mountpoint -q mnt; do sleep 0.01; done; echo it > mnt/file";
    assert!(
        within("60", &["sh", "-c", start, extern4_itself])
            .status
            .success()
    );
    let ended = Instant::now();
    // As long as the process has the volume open, this read fails.
    while is_mounted(&image) || extern4(&image, ["cat", "disk.img:/file"]).stdout != b"it\n" {
        assert!(ended.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    sound(&image);
}

/// Returns the lines from a pipe, until it is closed.
fn lines_of(pipe: ChildStderr) -> Receiver<String> {
    let (line, lines) = channel();
    let mut found = BufReader::new(pipe).lines().map_while(Result::ok);
    std::thread::spawn(move || found.try_for_each(|found| line.send(found)));
    lines
}

/// The parent of the daemon may be gone, and the pipe of its messages closed.
#[test]
fn a_signal_ends_a_mount_whose_messages_have_no_reader() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    let mut child = in_foreground(&image, &dir, "transport=auto");
    drop(child.stderr.take());
    fs::write(dir.join("file"), "not synced").expect("a file");
    tool(image.scratch(), "kill", ["-TERM", &child.id().to_string()]);
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    sound(&image);
    assert_eq!(
        ok(extern4(&image, ["cat", "disk.img:/file"])),
        b"not synced"
    );
}

/// The directory then holds another user's mount.
#[test]
fn a_signal_ends_no_other_mount() {
    if !can_mount_as_root() {
        return;
    }
    for (transport, detached) in transports()
        .into_iter()
        .flat_map(|way| [(way, false), (way, true)])
    {
        let image = EMPTY.build();
        let dir = image.scratch().join("mnt");
        let mut child = in_foreground(&image, &dir, transport);
        let mut file = File::create(dir.join("file")).expect("a file");
        file.write_all(b"not synced").expect("it is written");
        if detached {
            tool(image.scratch(), "umount", ["-l", "mnt"]);
        }
        tool(image.scratch(), "mount", ["-t", "tmpfs", "none", "mnt"]);
        fs::write(dir.join("theirs"), "theirs").expect("a file");
        let id = child.id().to_string();
        let end = || tool(image.scratch(), "kill", ["-TERM", &id]);
        end();
        let log = lines_of(child.stderr.take().expect("a pipe"));
        let next = || {
            log.recv_timeout(Duration::from_secs(60))
                .expect("it says so")
        };
        while !next().contains("cannot unmount") {}
        assert_eq!(
            fs::read(dir.join("theirs")).expect("it is there"),
            b"theirs"
        );
        patiently(&["umount"], &dir);
        if !detached {
            assert_eq!(
                fs::read(dir.join("file")).expect("it is served"),
                b"not synced"
            );
            end();
        }
        drop(file);
        assert!(
            child.wait().expect("it ends").success(),
            "detached: {detached}"
        );
        assert_eq!(log.iter().find(|line| line.contains("ERROR")), None);
        sound(&image);
        assert_eq!(
            ok(extern4(&image, ["cat", "disk.img:/file"])),
            b"not synced"
        );
    }
}

/// As in containers: `io_uring_setup` is refused, whatever the kernel's FUSE would do.
#[test]
#[cfg(target_arch = "x86_64")]
fn without_rings_a_mount_does_without() {
    // seccomp(2): a filter that looks at the number of the call, in a process without new
    // privileges.
    const REFUSED: &str = r#"
        my $filter = pack("SCCL" x 4, 0x20,0,0,0, 0x15,0,1,425, 6,0,0,0x50001, 6,0,0,0x7fff0000);
        my $program = pack("S x6 P", 4, $filter);
        syscall(157, 38, 1, 0, 0, 0) == 0 && syscall(157, 22, 2, $program) == 0 or die "no filter: $!";
        exec @ARGV or die;
    "#;
    if !can_mount_as_root() || !can_run(&[Need::Tool("perl")]) {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    fs::create_dir_all(&dir).expect("a directory");
    let mount = |options: &str| {
        let command = [
            "-e",
            REFUSED,
            env!("CARGO_BIN_EXE_extern4"),
            "mount",
            "-o",
            options,
            "disk.img",
            "mnt",
        ];
        let mut perl = std::process::Command::new("perl");
        perl.current_dir(image.scratch())
            .args(command)
            .output()
            .expect("perl runs")
    };
    let said = failed(&mount("transport=ring"), 1);
    assert!(
        said.contains("io_uring") && said.contains("seccomp"),
        "{said}"
    );
    assert!(!said.contains("no longer mounted"), "{said}");
    assert_eq!(fs::read_dir(&dir).expect("nothing is mounted").count(), 0);
    ok(mount("rw"));
    fs::write(dir.join("file"), "written").expect("it is written");
    patiently(&[env!("CARGO_BIN_EXE_extern4"), "umount"], &dir);
    sound(&image);
}

#[test]
fn a_killed_mount_keeps_what_was_synced() {
    if !can_mount_as_root() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let dir = image.scratch().join("mnt");
        let mut child = in_foreground(&image, &dir, transport);
        let file = File::create(dir.join("file")).expect("a file");
        file.write_all_at(b"synced", 0)
            .and_then(|()| file.sync_all())
            .expect("it is synced");
        child
            .kill()
            .and_then(|()| child.wait())
            .expect("it is killed");
        drop(file);
        patiently(&["umount"], &dir);
        assert_eq!(ok(extern4(&image, ["cat", "disk.img:/file"])), b"synced");
        ok(extern4(&image, ["recover", "disk.img"]));
        sound(&image);
    }
}

#[test]
fn a_failed_mount_has_a_reason() {
    let image = EMPTY.build();
    let said = failed(&extern4(&image, ["mount", "disk.img", "nowhere"]), 1);
    assert!(said.contains("nowhere"), "{said}");
    failed(
        &extern4(&image, ["mount", "-o", "quickly", "disk.img", "."]),
        2,
    );
    fs::write(image.scratch().join("zeroes"), [0; 8192]).expect("a file");
    failed(&extern4(&image, ["mount", "zeroes", "."]), 3);
    let said = failed(&extern4(&image, ["umount", "."]), 1);
    assert!(said.contains("not mounted"), "{said}");
    if !can_mount() {
        return;
    }
    let served = Served::new(&image, &[]);
    // Only one process at a time writes to a volume.
    fs::create_dir(image.scratch().join("second")).expect("a directory");
    failed(&extern4(&image, ["mount", "disk.img", "second"]), 1);
    let file = File::create(served.path("file")).expect("a file");
    let busy = failed(&extern4(&image, ["umount", "mnt"]), 1);
    assert!(busy.contains("busy"), "{busy}");
    drop(file);
    served.umount();
    sound(&image);
}

#[test]
fn umount_reports_that_it_waits_for_other_mounts() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    // As in another mount namespace, no mount table that this process can read has it.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let other =
        rustix::mount::open_tree(rustix::fs::CWD, &served.dir, flags).expect("one more mount");
    let mut umount = std::process::Command::new(env!("CARGO_BIN_EXE_extern4"));
    let umount = umount
        .args(["umount", "mnt"])
        .current_dir(image.scratch())
        .stderr(Stdio::piped());
    let mut umount = umount.spawn().expect("the command runs");
    let mut said = BufReader::new(umount.stderr.take().expect("its messages")).lines();
    let first = said.next().expect("a message").expect("text");
    assert!(
        first.starts_with("extern4: umount: 'mnt': waits for the volume: "),
        "{first}"
    );
    assert!(
        umount.try_wait().expect("its state").is_none(),
        "it is still mounted"
    );
    drop(other);
    assert!(umount.wait().expect("it ends").success() && said.next().is_none());
    served.forget();
    sound(&image);
}

#[test]
fn umount_ends_its_wait_when_it_is_told() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let file = File::create(served.path("file")).expect("a file");
    failed(&extern4(&image, ["umount", "--timeout", "soon", "mnt"]), 2);
    failed(
        &extern4(&image, ["umount", "--timeout", "1", "--lazy", "mnt"]),
        2,
    );
    let said = failed(&extern4(&image, ["umount", "--timeout", "1", "mnt"]), 1);
    assert!(said.contains("busy"), "{said}");
    // A mount in use goes at once, and ends with its last user.
    ok(extern4(&image, ["umount", "--lazy", "mnt"]));
    assert!(!is_mounted(&image));
    served.forget();
    drop(file);
    if !can_run(&[Need::Root, Need::Tool("unshare")]) {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::write(served.path("file"), "text").expect("a file");
    let mut other = std::process::Command::new("unshare");
    let mut other = other
        .args([
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo; exec sleep 600",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process in another namespace");
    let mut said = BufReader::new(other.stdout.take().expect("its output"));
    said.read_line(&mut String::new()).expect("a line");
    let said = failed(&extern4(&image, ["umount", "--timeout", "0.1", "mnt"]), 1);
    let name = format!("{} (", other.id());
    assert!(
        said.contains("still served") && said.contains(&name),
        "{said}"
    );
    other.kill().expect("it runs");
    other.wait().expect("it ends");
    served.forget();
    // With its last user, the volume is complete.
    let start = Instant::now();
    while !extern4(&image, ["touch", "disk.img:/more"])
        .status
        .success()
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it is still served"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    sound(&image);
}

/// The device that a mount needs is missing, or closed: the message says so, and what to do.
#[test]
fn a_missing_or_closed_device_is_named() {
    if !can_mount_as_root()
        || !can_run(&[
            Need::Tool("unshare"),
            Need::Tool("setpriv"),
            Need::Tool("fusermount3"),
        ])
    {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    fs::create_dir(scratch.join("mnt")).expect("a directory");
    for path in [&image.path, &scratch.join("mnt")] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).expect("its owner");
    }
    let fails = |devices: &str, run: &str, says: &str| {
        // The scratch directory may be in /dev/shm.
        let script = format!(
            "mkdir -p dev; mount -t tmpfs dev dev; mkdir dev/shm; mount --rbind /dev/shm dev/shm
             mknod -m 666 dev/null c 1 3; {devices}; mount --rbind dev /dev; exec {run}"
        );
        let mut unshare = std::process::Command::new("unshare");
        let tried = unshare
            .args(["-m", "sh", "-ec", &script])
            .current_dir(scratch)
            .output()
            .expect("unshare");
        let said = failed(&tried, 1);
        assert!(
            said.contains(&format!("extern4: mount: 'mnt': cannot mount: {says}")),
            "{run}: {said}"
        );
    };
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    let mount = "./extern4 mount disk.img mnt";
    fails(":", mount, "there is no /dev/fuse: 'modprobe fuse'");
    let closed = "mknod -m 600 dev/fuse c 10 229";
    fails(
        closed,
        &format!("{user} {mount}"),
        "this user may not open /dev/fuse: 'chmod 666 /dev/fuse'",
    );
    fails(
        closed,
        &format!("{user} unshare -Urm {mount}"),
        "this user may not open /dev/fuse: 'chmod 666 /dev/fuse'",
    );
}
