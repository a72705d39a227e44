//! Runs other programs, and says what a machine lacks.
//!
//! A test that needs a loop mount cannot run for an ordinary user. It then says so on standard
//! error and passes, and `scripts/test` counts it. Continuous integration sets
//! `EXTERN4_REQUIRE_ORACLES=1`, which makes a missing oracle a failure, never a silent success.
//!
//! The other modules and most tests run programs through it. A program that fails is a panic, or an
//! error with its output from the functions that begin with `try`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Something a test needs from the machine it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A program that must be found by [`find`].
    Tool(&'static str),
    /// The right to attach loop devices and mount them.
    Mount,
    /// The rights of root.
    Root,
    /// The right to mount by FUSE, and a kernel that can. A user that is not root needs a device
    /// that is open to all.
    Fuse,
    /// The kernel's ext4 driver must know this feature (a file of `/sys/fs/ext4/features`).
    KernelFeature(&'static str),
    /// The kernel must be built to change quota files.
    KernelQuota,
}

impl Need {
    /// Returns what the machine lacks, as the end of "skipped: ", or `None` if the need is met.
    fn lack(self) -> Option<String> {
        match self {
            Need::Tool(name) => find(name)
                .is_none()
                .then(|| format!("the program {name} is not installed")),
            Need::Mount => mount_lack().clone(),
            Need::Root => (!rustix::process::geteuid().is_root()).then(|| "needs root".into()),
            Need::Fuse => fuse_lack(),
            Need::KernelFeature(name) => (!Path::new("/sys/fs/ext4/features").join(name).exists())
                .then(|| format!("the kernel's ext4 lacks the feature {name}")),
            Need::KernelQuota => quota_lack().clone(),
        }
    }
}

/// Returns whether all `needs` are met; otherwise says loudly that the calling test is skipped.
///
/// # Panics
/// When a need is not met and `EXTERN4_REQUIRE_ORACLES` is `1`. A kernel built without a feature is
/// no reason to panic: no installation step could repair it.
pub fn can_run(needs: &[Need]) -> bool {
    for need in needs {
        let Some(lack) = need.lack() else { continue };
        let repairable = !matches!(
            need,
            Need::KernelFeature(_) | Need::KernelQuota | Need::Fuse
        );
        if repairable && std::env::var_os("EXTERN4_REQUIRE_ORACLES").is_some_and(|v| v == "1") {
            panic!("EXTERN4_REQUIRE_ORACLES=1, but {lack}");
        }
        skip("", &lack);
        return false;
    }
    true
}

/// Says that the calling test is skipped, or a part of it, which is then named. The file that
/// `EXTERN4_SKIPS` names gets a line with the reason and the test.
pub fn skip(part: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let comma = if part.is_empty() { "" } else { ", " };
    // The test harness swallows `eprintln!` of passing tests. A skip must be seen, so this writes
    // to standard error directly.
    let _ = writeln!(std::io::stderr(), "{test}{comma}{part} skipped: {reason}");
    let Some(list) = std::env::var_os("EXTERN4_SKIPS") else {
        return;
    };
    let list = std::fs::File::options()
        .append(true)
        .create(true)
        .open(list);
    let noted = list.and_then(|mut list| list.write_all(format!("{reason}\t{test}\n").as_bytes()));
    noted.expect("the list of skipped tests");
}

/// Returns why this process cannot mount by FUSE.
fn fuse_lack() -> Option<String> {
    const DEVICE: &str = "/dev/fuse";
    let opened = std::fs::File::options().read(true).write(true).open(DEVICE);
    let is_root = rustix::process::geteuid().is_root();
    let helper = (!is_root)
        .then(|| Need::Tool("fusermount3").lack())
        .flatten();
    opened.err().map(|e| format!("{DEVICE}: {e}")).or(helper)
}

/// Returns why this process cannot mount loop devices, tried once with a tiny image.
fn mount_lack() -> &'static Option<String> {
    static LACK: OnceLock<Option<String>> = OnceLock::new();
    LACK.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Some("needs root to mount".into());
        }
        try_mount("ro", &[])
            .err()
            .map(|e| format!("cannot mount here: {e}"))
    })
}

/// Returns why the kernel does not mount a volume with quotas for writing, tried once.
fn quota_lack() -> &'static Option<String> {
    static LACK: OnceLock<Option<String>> = OnceLock::new();
    LACK.get_or_init(|| {
        let tried = try_mount("rw", &["-O", "quota"]);
        tried
            .err()
            .map(|_| "the kernel does not change volumes with quotas".into())
    })
}

/// Mounts a tiny image, made with these arguments.
fn try_mount(how: &str, mke2fs: &[&str]) -> Result<Vec<u8>, String> {
    let dir = temporary("extern4-probe-");
    let image = dir.path().join("probe.img");
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).expect("a mount point");
    let made = ["-q", "-F", "-t", "ext4"]
        .iter()
        .chain(mke2fs)
        .map(OsStr::new);
    try_run("mke2fs", made.chain([image.as_os_str(), OsStr::new("1M")]))?;
    let options = format!("loop,{how}");
    try_run(
        "mount",
        [
            OsStr::new("-o"),
            OsStr::new(&options),
            image.as_os_str(),
            point.as_os_str(),
        ],
    )?;
    try_unmount(&point)?;
    Ok(Vec::new())
}

/// Unmounts the file system at `point`, and waits for a moment if it is busy. Another thread may be
/// about to close a file, or to start a program. A child process has all files of this process open
/// until it executes its program.
///
/// # Panics
/// If it stays busy, or cannot be unmounted.
#[track_caller]
pub fn unmount(point: &Path) {
    try_unmount(point).unwrap_or_else(|e| panic!("{e}"));
}

/// Unmounts like [`unmount`], but returns a failure as a sentence.
pub fn try_unmount(point: &Path) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match try_run("umount", [point]) {
            Err(error) if error.contains("busy") && start.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done.map(drop),
        }
    }
}

/// Makes a temporary directory, which is removed when it is dropped.
///
/// Images are written, synced and thrown away, so memory serves them best. The directory is in
/// `/dev/shm`, if that has room and keeps user attributes (Linux 6.6), else in the usual place
/// (`TMPDIR`).
///
/// # Panics
/// When there is no place for one.
pub fn temporary(prefix: &str) -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    let made = match memory() {
        Some(memory) => builder.tempdir_in(memory),
        None => builder.tempdir(),
    };
    made.expect("a temporary directory")
}

/// Returns the directory of a file system in memory that can hold images and the sources of images.
fn memory() -> Option<&'static Path> {
    static FITS: OnceLock<bool> = OnceLock::new();
    const MEMORY: &str = "/dev/shm";
    const ROOM_BYTES: u64 = 4 << 30;
    let fits = FITS.get_or_init(|| {
        let room = rustix::fs::statvfs(MEMORY)
            .is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES);
        room && tempfile::NamedTempFile::new_in(MEMORY).is_ok_and(|f| {
            rustix::fs::fsetxattr(f.as_file(), "user.x", b"x", rustix::fs::XattrFlags::empty())
                .is_ok()
        })
    });
    fits.then(|| Path::new(MEMORY))
}

/// Returns the path of a program, looked for in `PATH` and in the system directories that an
/// ordinary user's `PATH` leaves out.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Runs a program to its end and returns what it wrote to standard output.
///
/// # Panics
/// When it is missing or exits with an error; the message has the whole command and its standard
/// error.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = A>) -> Vec<u8> {
    try_run(tool, args).unwrap_or_else(|e| panic!("{e}"))
}

/// Sets an environment in which all output is the same anywhere.
pub fn plain(command: &mut Command) {
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env_remove("LS_COLORS")
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR");
}

/// Runs another tool in `dir`, which has to succeed.
pub fn run_in<A: AsRef<OsStr>>(
    dir: &Path,
    tool: &str,
    args: impl IntoIterator<Item = A>,
) -> Vec<u8> {
    let mut command = Command::new(tool);
    plain(&mut command);
    let output = command
        .current_dir(dir)
        .args(args)
        .output()
        .expect("the tool runs");
    assert!(
        output.status.success(),
        "{tool}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Runs a program like [`run`], but returns a failure as a sentence.
pub fn try_run<A: AsRef<OsStr>>(
    tool: &str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, String> {
    run_with_input(tool, args, b"")
}

/// Runs a program like [`try_run`], with `input` as its standard input.
pub fn run_with_input<A: AsRef<OsStr>>(
    tool: &str,
    args: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Result<Vec<u8>, String> {
    let path = find(tool).ok_or_else(|| format!("the program {tool} is not installed"))?;
    let mut command = Command::new(path);
    command.args(args).env("LC_ALL", "C").env("TZ", "UTC");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let output = std::thread::scope(|scope| {
        // A program may close its input early; its exit status tells whether that was an error.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    });
    let output = output.map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{command:?} failed ({}): {}",
        output.status,
        said.trim()
    ))
}

/// Runs a line of Perl, for the few ioctls that have no tool. `args` are its `@ARGV`.
///
/// # Panics
/// When [`run`] would.
#[track_caller]
pub fn perl<A: AsRef<OsStr>>(script: &str, args: impl IntoIterator<Item = A>) -> Vec<u8> {
    try_perl(script, args).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a line of Perl like [`perl`], but returns a failure as a sentence.
pub fn try_perl<A: AsRef<OsStr>>(
    script: &str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, String> {
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    try_run(
        "perl",
        ["-e".into(), script.into()]
            .into_iter()
            .chain(args)
            .collect::<Vec<OsString>>(),
    )
}

/// Asks `e2fsck` what is wrong with the volume in `image`, and changes nothing.
///
/// # Errors
/// The output of e2fsck, if it finds a fault.
pub fn e2fsck(image: &Path) -> Result<(), String> {
    let output = std::process::Command::new(find("e2fsck").unwrap_or_else(|| "e2fsck".into()))
        .args(["-fn".as_ref(), image.as_os_str()])
        .env("LC_ALL", "C")
        .output()
        .map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "e2fsck finds fault:\n{}",
            String::from_utf8_lossy(&output.stdout)
        ))
    }
}

/// Returns the changes that `e2fsck -fn` would make, one sentence a line; its output where it
/// cannot work at all.
///
/// # Panics
/// If e2fsck is not installed.
pub fn e2fsck_complaints(path: &Path) -> Vec<String> {
    let tool = find("e2fsck").expect("e2fsck is installed");
    let output = Command::new(tool)
        .arg("-fn")
        .arg(path)
        .output()
        .expect("e2fsck runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The question is often a whole line, or is the first line.
    let lines: Vec<&str> = std::iter::once("").chain(text.lines()).collect();
    let asks = |line: &str| line.contains("? no") || line.contains("IGNORED");
    // That e2fsck finds times of the far future wrong is only its guess.
    let guesses = |line: &str| line.starts_with("Timestamp(s) on inode");
    let mut said: Vec<String> = lines
        .windows(2)
        .filter(|two| asks(two[1]) && !guesses(two[0]))
        .map(|two| two.join(" "))
        .collect();
    if output.status.code().is_none_or(|code| code >= 4) {
        said.push(text);
    }
    said
}

/// Runs a script of debugfs commands, one a line, on an image and returns its output.
///
/// # Panics
/// When a command fails. debugfs reports that on standard error and exits successfully
/// nevertheless. So any text there but its version is a failure.
#[track_caller]
pub fn debugfs(image: &Path, write: bool, script: &str) -> String {
    String::from_utf8_lossy(&debugfs_bytes(image, write, script)).into_owned()
}

/// Runs a script like [`debugfs`], and returns output that is not text.
///
/// # Panics
/// When [`debugfs`] would.
#[track_caller]
pub fn debugfs_bytes(image: &Path, write: bool, script: &str) -> Vec<u8> {
    let path = find("debugfs").unwrap_or_else(|| panic!("the program debugfs is not installed"));
    let mut command = Command::new(path);
    command
        .arg(if write { "-wf" } else { "-f" })
        .arg("-")
        .arg(image);
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("DEBUGFS_PAGER", "cat")
        .env("PAGER", "cat");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(script.as_bytes()));
        child.wait_with_output()
    });
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = said
        .lines()
        .filter(|l| !l.starts_with("debugfs 1.") && !l.is_empty())
        .collect();
    assert!(
        output.status.success() && complaints.is_empty(),
        "{command:?} of {script:.400}: {complaints:?}"
    );
    output.stdout
}

/// A loop device; dropping it detaches the file.
#[derive(Debug)]
pub struct LoopDevice {
    /// The device node.
    pub path: PathBuf,
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn attach(file: &Path) -> LoopDevice {
        Self::attach_with(&[], file)
    }

    /// Attaches a file, as [`attach`](Self::attach) does, to a read-only loop device.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn attach_read_only(file: &Path) -> LoopDevice {
        Self::attach_with(&["--read-only"], file)
    }

    /// Attaches `len_bytes` of a file from `offset_bytes` on to a free loop device.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn attach_part(file: &Path, offset_bytes: u64, len_bytes: u64) -> LoopDevice {
        let offset = offset_bytes.to_string();
        let len = len_bytes.to_string();
        Self::attach_with(&["--offset", &offset, "--sizelimit", &len], file)
    }

    fn attach_with(options: &[&str], file: &Path) -> LoopDevice {
        let options = ["--find", "--show"].iter().chain(options).map(OsStr::new);
        let said = run("losetup", options.chain([file.as_os_str()]));
        LoopDevice {
            path: String::from_utf8_lossy(&said).trim().into(),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(e) = try_run("losetup", [OsStr::new("--detach"), self.path.as_os_str()]) {
            eprintln!("a loop device is left behind: {e}");
        }
    }
}
