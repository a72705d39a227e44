//! Lines as four kinds of people type them, next to the same lines of GNU on the kernel's mount.
//!
//! Each line of `typed_lines/*.txt` runs twice. `extern4 LINE` has the image `v.img`. The line as
//! it stands has the kernel's mount of a copy in the directory `v.img:`, so no word of it changes.
//! Both have a directory `host`. A line is equal if both runs print the same and leave the same
//! volume and the same `host`. It may also be refused: nothing changes, and the message helps. An
//! indented line below says so of lines that are not equal:
//!
//! ```text
//! stat -f v.img:/
//!   refused: extern4: what it says
//! ls -lZ v.img:/usr/bin
//!   differs: why that is right
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4_testkit::image::{Image, ImageSpec, Mount};
use extern4_testkit::tools::{self, Need};
use extern4_testkit::tree::{self, Kind, Time, Tree};
use regex_lite::Regex;

use crate::run::{plain, sorted, tool};

/// The lists, by the people that type their lines.
const LISTS: [(&str, &str); 4] = [
    ("sysadmin", include_str!("typed_lines/sysadmin.txt")),
    ("ci", include_str!("typed_lines/ci.txt")),
    ("forensics", include_str!("typed_lines/forensics.txt")),
    ("embedded", include_str!("typed_lines/embedded.txt")),
];

/// Programs that change no volume: their lines share one mount.
const READING: &str =
    "ls stat cat head tail grep tree du df cmp diff sha256sum readlink getfattr getfacl lsattr";

/// Programs whose exit codes mean more than success and failure.
const WITH_CODES: &str = "cmp diff grep";

/// The seed of hashes gives directories the same order in each run.
const VOLUME: ImageSpec = ImageSpec::new(
    "v",
    16 << 20,
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-L",
        "typed",
        "-E",
        "hash_seed=6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11",
    ],
)
.needing(&[
    Need::Tool("bash"),
    Need::Tool("setfacl"),
    Need::Tool("setfattr"),
    Need::Tool("chattr"),
    Need::Tool("tree"),
    Need::Tool("unshare"),
]);

/// The volume and the files of the host with which each line begins.
struct Start {
    image: Image,
    /// The mount of the image, for lines that only read.
    mount: Mount,
    volume: Tree,
    host: Tree,
    /// When the run began, in seconds since 1970: the run itself has set any later time.
    begun: i64,
}

impl Start {
    fn make() -> Self {
        let image = VOLUME.build();
        let mount = image.mount("noatime");
        tool(
            &mount.path,
            "bash",
            ["-c", include_str!("typed_lines/volume.sh")],
        );
        mount.unmount();
        let mount = image.mount("ro,noatime");
        symlink(&mount.path, image.scratch().join("v.img:")).expect("a link");
        tool(
            image.scratch(),
            "bash",
            ["-c", include_str!("typed_lines/host.sh")],
        );
        let begun = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock")
            .as_secs();
        let begun = i64::try_from(begun).expect("a time");
        let volume = tree_of(&mount.path, begun);
        let host = tree_of_host(&image.scratch().join("host"), begun);
        Start {
            image,
            mount,
            volume,
            host,
            begun,
        }
    }

    /// Returns a copy of the image with a copy of `host` next to it.
    fn copy(&self) -> Image {
        let image = self.image.copy();
        let host = self.image.scratch().join("host");
        tool(
            image.scratch(),
            "cp",
            ["-a".as_ref(), host.as_os_str(), "host".as_ref()],
        );
        image
    }

    fn has_volume(&self, image: &Image) -> bool {
        fs::read(&image.path).expect("an image") == fs::read(&self.image.path).expect("an image")
    }
}

/// Returns the tree below `dir` without what differs from copy to copy.
fn tree_of(dir: &Path, begun: i64) -> Tree {
    let mut tree = tree::from_mount(dir);
    for entry in tree.entries.values_mut() {
        (
            entry.ino,
            entry.blocks,
            entry.ctime,
            entry.btime,
            entry.atime,
        ) = Default::default();
        if entry.kind == Kind::Directory {
            entry.size = 0;
        }
        if entry.mtime.is_some_and(|time| time.sec >= begun) {
            entry.mtime = Some(Time {
                sec: i64::MAX,
                nsec: 0,
            });
        }
    }
    tree
}

/// Returns the tree of a `host`. The members of an archive that a line made take its place.
fn tree_of_host(dir: &Path, begun: i64) -> Tree {
    let mut tree = tree_of(dir, begun);
    let is_new = |entry: &tree::Entry| entry.mtime.is_some_and(|time| time.sec == i64::MAX);
    let archives = tree
        .entries
        .iter()
        .filter(|(_, entry)| entry.kind == Kind::File && is_new(entry));
    let archives: Vec<_> = archives
        .map(|(path, _)| path.clone())
        .filter(|path| is_archive(path))
        .collect();
    for path in archives {
        let unpacked = tools::temporary("extern4-");
        let name = String::from_utf8_lossy(&path).into_owned();
        let words = [
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "-xpf",
            &format!("{}{name}", dir.display()),
            "-C",
        ];
        tools::run(
            "tar",
            words
                .map(OsStr::new)
                .into_iter()
                .chain([unpacked.path().as_os_str()]),
        );
        tree.entries.remove(&path);
        for (inner, mut entry) in tree_of(unpacked.path(), begun).entries {
            // An archive of GNU tar has whole seconds.
            entry.mtime = entry.mtime.map(|time| Time { nsec: 0, ..time });
            tree.entries.insert([&path[..], &inner].concat(), entry);
        }
    }
    tree
}

fn without_mount_point(path: Vec<u8>) -> Vec<u8> {
    path.strip_prefix(b"/v.img:")
        .map(<[u8]>::to_vec)
        .unwrap_or(path)
}

fn is_archive(path: &[u8]) -> bool {
    path.ends_with(b".tar") || path.ends_with(b".tgz")
}

/// The outcome of a run of a line.
struct Outcome {
    output: Output,
    printed: String,
    volume: Tree,
    host: Tree,
}

/// Runs a line in `dir`, with its output as if the volume were in `v.img:`.
fn run(mut command: Command, dir: &Path, mount: &Path) -> (Output, String) {
    plain(&mut command);
    let bin = Path::new(env!("CARGO_BIN_EXE_extern4"))
        .parent()
        .expect("a directory");
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = command
        .current_dir(dir)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output();
    let output = output.expect("bash runs");
    let printed = output
        .stdout
        .escape_ascii()
        .to_string()
        .replace("\\n", "\n");
    // df names the volume and no mount point.
    let device = Regex::new("/dev/loop[0-9]+ *").expect("a pattern");
    let printed = device.replace_all(&printed, |found: &regex_lite::Captures<'_>| {
        format!("{:len$}", "v.img", len = found[0].len())
    });
    let printed = printed.replace(&format!("% {}", mount.display()), "% -");
    let printed = printed.replace(&mount.display().to_string(), "");
    let printed = printed
        .replace(&format!("{}/", dir.display()), "")
        .replace("v.img:/", "/");
    // The loop device, and the volume in its place.
    let device = Regex::new("Device: [^ \\\\]+").expect("a pattern");
    let printed = device.replace_all(&printed, "Device: -").into_owned();
    // getfacl and getfattr leave out the slash that a path begins with.
    let printed = printed.replace("# file: /", "# file: ");
    (output, printed)
}

fn ours(line: &str, start: &Start) -> (Outcome, Result<(), String>) {
    let image = start.copy();
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", &format!("extern4 {line}")]);
    let (output, printed) = run(command, image.scratch(), &start.mount.path);
    let is_sound = tools::e2fsck(&image.path);
    let volume = if start.has_volume(&image) {
        start.volume.clone()
    } else {
        tree_of(&image.mount("ro,noatime").path, start.begun)
    };
    let host = tree_of_host(&image.scratch().join("host"), start.begun);
    (
        Outcome {
            output,
            printed,
            volume,
            host,
        },
        is_sound,
    )
}

fn theirs(line: &str, start: &Start) -> Outcome {
    let image = start.copy();
    let reads = READING
        .split(' ')
        .any(|name| line.split(' ').next() == Some(name));
    let own = (!reads).then(|| image.mount("noatime"));
    let mount = own.as_ref().unwrap_or(&start.mount);
    symlink(&mount.path, image.scratch().join("v.img:")).expect("a link");
    // The tools know the users of the volume, as the command does.
    let mut command = Command::new("unshare");
    let users = "mount --bind v.img:/etc/passwd /etc/passwd && mount --bind v.img:/etc/group /etc/group && exec";
    command.args([
        "-m",
        "bash",
        "-c",
        &format!("{users} bash -o pipefail -c \"$1\""),
        "-",
        line,
    ]);
    let (output, printed) = run(command, image.scratch(), &mount.path);
    let volume = own.as_ref().map_or_else(
        || start.volume.clone(),
        |mount| tree_of(&mount.path, start.begun),
    );
    let mut host = tree_of_host(&image.scratch().join("host"), start.begun);
    // With --parents the mount point is made, too.
    host.entries.remove(&b"/v.img:"[..]);
    host.entries = host
        .entries
        .into_iter()
        .map(|(path, entry)| (without_mount_point(path), entry))
        .collect();
    if let Some(mount) = own {
        mount.unmount();
    }
    Outcome {
        output,
        printed,
        volume,
        host,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Equal,
    Refused(String),
    Differs(String),
}

fn judge(line: &str, start: &Start) -> Verdict {
    let (ours, is_sound) = ours(line, start);
    if let Err(fault) = is_sound {
        return Verdict::Differs(fault);
    }
    let theirs = theirs(line, start);
    let said = String::from_utf8_lossy(&ours.output.stderr).into_owned();
    let Some(difference) = difference(line, &ours, &theirs) else {
        return Verdict::Equal;
    };
    let unchanged = ours.volume == start.volume && ours.host == start.host;
    match ours.output.status.code() {
        Some(2) if unchanged && ours.printed.is_empty() => {
            Verdict::Refused(said.trim_end().to_owned())
        }
        _ => Verdict::Differs(format!(
            "{difference}ours said: {said}theirs said: {}",
            String::from_utf8_lossy(&theirs.output.stderr)
        )),
    }
}

/// Returns whether two outputs are the same. Some lines come in the order of directories, which no
/// tool promises.
fn is_same_text(line: &str, ours: &str, theirs: &str) -> bool {
    let lines = |text: &str| sorted(text.as_bytes());
    let is_unordered = ["cp", "chown", "lsattr"]
        .iter()
        .any(|name| line.split(' ').next() == Some(name));
    ours == theirs || is_unordered && lines(ours) == lines(theirs)
}

/// Returns how two outcomes of a line differ.
fn difference(line: &str, ours: &Outcome, theirs: &Outcome) -> Option<String> {
    if !is_same_text(line, &ours.printed, &theirs.printed) {
        return Some(format!(
            "ours printed:\n{}theirs printed:\n{}",
            ours.printed, theirs.printed
        ));
    }
    let has_codes = WITH_CODES
        .split(' ')
        .any(|name| line.split(' ').next() == Some(name));
    let [our, their] = [ours, theirs].map(|outcome| outcome.output.status.code());
    if our != their && (has_codes || our == Some(0) || their == Some(0)) {
        return Some(format!("exit codes: ours {our:?}, theirs {their:?}\n"));
    }
    if let Some(difference) = tree::diff(&ours.volume, &theirs.volume, 12) {
        return Some(format!("the volume:\n{difference}"));
    }
    if let Some(difference) = tree::diff(&ours.host, &theirs.host, 12) {
        return Some(format!("the host:\n{difference}"));
    }
    // A message about a file is one of ours, too.
    let path = Regex::new(r"[ '‘]((v\.img:|host)/[^'’:]*)").expect("a pattern");
    let [our, their] =
        [ours, theirs].map(|outcome| String::from_utf8_lossy(&outcome.output.stderr));
    let is_named = |line: &str| {
        path.captures_iter(line)
            .any(|found| our.contains(&found[1]))
    };
    let silent = their
        .lines()
        .find(|line| path.is_match(line) && !is_named(line));
    silent.map(|line| format!("nothing like the message {line}\n"))
}

/// A line of a list with what is said below it.
struct Typed {
    place: String,
    line: &'static str,
    told: Verdict,
}

fn typed() -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    for (name, list) in LISTS {
        for (index, text) in list.lines().enumerate() {
            match (text.strip_prefix("  "), all.last_mut()) {
                (Some(told), Some(last)) => last.told.tell(told),
                _ => {
                    let place = format!("{name}.txt:{}", index + 1);
                    all.push(Typed {
                        place,
                        line: text,
                        told: Verdict::Equal,
                    });
                }
            }
        }
    }
    all
}

impl Verdict {
    /// Reads a line below a typed line. A message may have several.
    fn tell(&mut self, told: &str) {
        if let Some(message) = told.strip_prefix("refused: ") {
            *self = Verdict::Refused(message.to_owned());
        } else if let Some(reason) = told.strip_prefix("differs: ") {
            *self = Verdict::Differs(reason.to_owned());
        } else if let Verdict::Refused(text) | Verdict::Differs(text) = self {
            *text = format!("{text}\n{}", told.trim_start());
        }
    }

    /// Returns whether this is what a list tells: a reason to differ is for readers.
    fn is_as(&self, told: &Verdict) -> bool {
        let trimmed = |text: &str| {
            text.lines()
                .map(|line| line.trim().to_owned())
                .collect::<Vec<_>>()
        };
        match (self, told) {
            (Verdict::Differs(_), Verdict::Differs(_)) => true,
            (Verdict::Refused(said), Verdict::Refused(told)) => trimmed(said) == trimmed(told),
            _ => self == told,
        }
    }
}

#[test]
fn lines_do_what_their_namesakes_do() {
    if !VOLUME.can_run() || !tools::can_run(&[Need::Tool("e2fsck")]) {
        return;
    }
    let start = Start::make();
    let all = typed();
    let next = AtomicUsize::new(0);
    let changed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(typed) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge(typed.line, &start);
                    if !verdict.is_as(&typed.told) {
                        changed.lock().expect("a list").push((typed, verdict));
                    }
                }
            });
        }
    });
    let changed = changed.into_inner().expect("a list");
    let shown = changed
        .iter()
        .map(|(typed, verdict)| format!("{}: {}\n{verdict:?}", typed.place, typed.line));
    assert!(
        changed.is_empty(),
        "{} verdicts changed\n{}",
        changed.len(),
        shown.collect::<Vec<_>>().join("\n\n")
    );
}

#[test]
fn nineteen_of_twenty_lines_are_equal_or_refused() {
    let all = typed();
    let differ = all
        .iter()
        .filter(|typed| matches!(typed.told, Verdict::Differs(_)))
        .count();
    assert!(
        differ * 20 <= all.len(),
        "{differ} of {} lines differ",
        all.len()
    );
}
