//! Input that another user controls: the process that serves a mount, and names in a volume. Root's
//! command neither waits for that process for long nor prints its texts unescaped.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::mounting::{EMPTY, Served, can_mount_as_root};
use crate::run::{command, extern4, failed, ok};
use crate::terminal::on_terminal;
use crate::watching::socket;

/// Text that controls a terminal, and that the author of a name can choose: colours, the bell, a
/// new line, C1 controls, the direction of text.
const EVIL: &str = "\u{1b}[31m\u{7}\r\n\u{9b}2J\u{202e}\u{200b}";

/// Asserts that the output may go to a terminal.
#[track_caller]
fn harmless(what: &str, output: &[u8]) {
    let mut text = String::from_utf8(output.to_vec()).expect("valid UTF-8");
    // Progress clears its own line; errors of the command line have colours.
    for own in ["[2K", "[0m", "[1m", "[4m", "[31merror", "[32m", "[33m"] {
        text = text.replace(&format!("\u{1b}{own}"), "");
    }
    let bad = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{200b}' | '\u{202e}')
    };
    assert!(!text.contains(bad), "{what}: {text:?}");
}

/// Runs the command, which has to end by itself.
#[track_caller]
fn ends(image: &Image, args: &[&str]) -> Output {
    let mut run = command();
    let run = run
        .current_dir(image.scratch())
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = run.spawn().expect("the command runs");
    let start = Instant::now();
    while run.try_wait().expect("a child").is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            run.kill().expect("it is killed");
            panic!("{args:?} waits for ever");
        }
        thread::sleep(Duration::from_millis(10));
    }
    run.wait_with_output().expect("its output")
}

/// Returns an answer in which every text is hostile and every number is as large as can be.
fn evil_report() -> String {
    let text = serde_json::Value::from(EVIL);
    let most = u64::MAX;
    let operation = |name: &str| {
        serde_json::json!({"name": format!("{name}{EVIL}"), "errors": most, "total_ns": most, "max_ns": most,
            "buckets": [0, most, 1, most, most, most]})
    };
    let counters: Vec<_> = [
        "block_hits",
        "block_misses",
        "block_waits",
        "rcu_walks",
        "handles",
        "transactions",
        EVIL,
    ]
    .map(|name| serde_json::json!({"name": name, "count": most}))
    .into();
    serde_json::json!({"version": 1, "image": text, "daemon": 7, "uptime_ms": most, "options": text, "data": text,
        "commit_seconds": most, "metrics": text, "transport": text, "counters": counters,
        "operations": [operation("a"), operation("b")]})
    .to_string()
}

/// One way to answer: its name, a handler of a connection, and the expected error; `None` if the
/// command accepts the answer.
type Form = (
    &'static str,
    fn(UnixStream, &AtomicBool),
    Option<&'static str>,
);

const FORMS: &[Form] = &[
    (
        "evil texts",
        |mut stream, _| drop(stream.write_all(format!("{}\n", evil_report()).as_bytes())),
        None,
    ),
    (
        "an evil error",
        |mut stream, _| {
            let error = serde_json::json!({"version": 1, "error": EVIL});
            drop(stream.write_all(format!("{error}\n").as_bytes()));
        },
        Some("the answer makes no sense: \\033[31m\\007\\r\\n\\302\\2332J"),
    ),
    (
        "no JSON",
        |mut stream, _| drop(stream.write_all(b"\x1b[31m{[\n")),
        Some("the answer makes no sense: "),
    ),
    (
        "another kind of JSON",
        |mut stream, _| drop(stream.write_all(b"[1]\n")),
        Some("another version"),
    ),
    (
        "without end",
        |mut stream, _| while stream.write_all(&[b' '; 4096]).is_ok() {},
        Some("the answer makes no sense: it is longer than 1 MiB"),
    ),
    (
        "huge",
        |mut stream, _| drop(stream.write_all(&[&vec![b'['; 8 << 20][..], b"\n"].concat())),
        Some("the answer makes no sense: it is longer than 1 MiB"),
    ),
    (
        "a byte now and then",
        |mut stream, done| {
            while !done.load(Ordering::Relaxed) && stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        },
        Some("has not answered within 5 s"),
    ),
    (
        "silent",
        |_stream, done| {
            while !done.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
        },
        Some("has not answered within 5 s"),
    ),
    (
        "closed at once",
        |stream, _| drop(stream),
        Some("has ended, or listens nowhere"),
    ),
    (
        "closed early",
        |mut stream, _| drop(stream.write_all(b"{\"version\":1,")),
        Some("the answer makes no sense: it ends before it is complete"),
    ),
];

/// Answers on `path` in this way as long as `asks` runs.
fn answered(path: &Path, form: &Form, asks: impl FnOnce()) {
    let listener = UnixListener::bind(path).expect("a socket");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok((stream, _)) = listener.accept()
                && !done.load(Ordering::Relaxed)
            {
                let mut request = String::new();
                let _ = BufReader::new(&stream).read_line(&mut request);
                (form.1)(stream, &done);
            }
        });
        // It ends the other thread if `asks` panics, too.
        struct End<'a>(&'a AtomicBool, &'a Path);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
                let _ = UnixStream::connect(self.1);
            }
        }
        let _end = End(&done, path);
        asks();
    });
    fs::remove_file(path).expect("it was there");
}

#[test]
fn whatever_a_socket_answers_harms_no_one_that_asks() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let path = socket(&served.dir);
    let kept = path.with_file_name(format!("kept-{}", std::process::id()));
    fs::rename(&path, &kept).expect("its name");
    for form in FORMS {
        answered(&path, form, || {
            for args in [
                &["stats", "mnt"][..],
                &["stats", "--json", "mnt"],
                &["top", "-n1", "-i0.01", "mnt"],
            ] {
                let output = ends(&image, args);
                let what = format!("{}: {args:?}", form.0);
                harmless(&what, &output.stdout);
                harmless(&what, &output.stderr);
                match form.2 {
                    None => assert!(!ok(output).is_empty(), "{what}"),
                    Some(says) => {
                        let said = failed(&output, 1);
                        assert!(
                            said.contains(says) && said.lines().count() == 1,
                            "{what}: {said}"
                        );
                    }
                }
            }
        });
    }
    // A socket that accepts no connection: the queue is full.
    let deaf = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK,
        None,
    )
    .expect("a socket");
    bind(&deaf, &SocketAddrUnix::new(&path).expect("an address")).expect("a name");
    listen(&deaf, 0).expect("it listens");
    let _queued = UnixStream::connect(&path).expect("room for one");
    let said = failed(&ends(&image, &["stats", "mnt"]), 1);
    assert!(said.contains("has not answered within 5 s"), "{said}");
    fs::rename(&kept, &path).expect("its name");
    ok(extern4(&image, ["stats", "mnt"]));
    served.umount();
}

/// Makes names, link targets, attributes and users that are hostile.
fn evil_tree(root: &Path) -> std::io::Result<()> {
    fs::create_dir_all(root)?;
    let dir = root.join(format!("dir{EVIL}"));
    fs::create_dir(&dir)?;
    fs::write(dir.join(EVIL), "text")?;
    std::os::unix::fs::symlink(EVIL, root.join(format!("link{EVIL}")))?;
    let file = root.join("file");
    fs::write(&file, "text")?;
    rustix::fs::setxattr(
        &file,
        format!("user.name{EVIL}"),
        EVIL.as_bytes(),
        rustix::fs::XattrFlags::empty(),
    )?;
    fs::create_dir(root.join("etc"))?;
    // A newline or a colon would end the name.
    let user = EVIL.replace(['\r', '\n', ':'], "");
    fs::write(
        root.join("etc/passwd"),
        format!("{user}:x:0:0::/:/bin/sh\n"),
    )?;
    fs::write(root.join("etc/group"), format!("{user}:x:0:\n"))
}

/// Returns a volume on which all texts are hostile, including its superblock's.
fn evil_volume() -> Image {
    const SPEC: ImageSpec = ImageSpec::new(
        "disk",
        8 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,mmp"],
    )
    .from_directory(&[evil_tree]);
    let image = SPEC.build();
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("an image");
    let put = |field: u64, len: usize, text: &[u8]| {
        let text: Vec<u8> = text.iter().copied().cycle().take(len).collect();
        file.write_all_at(&text, 1024 + field)
            .expect("a superblock");
    };
    // Label, last mounted on, error count, and functions and options as texts.
    put(0x78, 16, EVIL.as_bytes());
    put(0x88, 64, EVIL.as_bytes());
    put(0x194, 4, &[1, 0, 0, 0]);
    put(0x1a8, 32, EVIL.as_bytes());
    put(0x1e0, 32, EVIL.as_bytes());
    put(0x200, 64, EVIL.as_bytes());
    // The times of the first and the last error.
    put(0x198, 4, &[1]);
    put(0x1cc, 4, &[1]);
    image
}

/// Makes `mmp.img` next to the image. Its block of the multiple mount protection tells that a check
/// runs, on which host and through which device.
fn evil_protection(image: &Image) {
    let copy = image.scratch().join("mmp.img");
    fs::copy(&image.path, &copy).expect("a copy");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(copy)
        .expect("an image");
    let mut block = [0; 8];
    file.read_exact_at(&mut block, 1024 + 0x168)
        .expect("a superblock");
    let mmp = u64::from_le_bytes(block) * 1024;
    for (field, bytes) in [
        (4, &0xe24d_4d50_u32.to_le_bytes()[..]),
        (16, EVIL.as_bytes()),
        (80, EVIL.as_bytes()),
    ] {
        file.write_all_at(bytes, mmp + field)
            .expect("it is written");
    }
}

/// Shell arguments for the command; `$EVIL` is a name. All of their output on a terminal is
/// harmless.
const LINES: &[&str] = &[
    "info disk.img",
    "info --json disk.img",
    "df disk.img",
    "ls -laR --color=never disk.img",
    "ls -aR --color=never disk.img",
    "ls --json -R disk.img",
    "tree --color=never disk.img",
    "find disk.img",
    "find disk.img -ls",
    r"find disk.img -printf '%p %l %f %u\n'",
    "stat \"disk.img:/dir$EVIL\" \"disk.img:/link$EVIL\"",
    "du -a disk.img",
    "getfattr -Rdm- disk.img",
    "getfattr disk.img:/file",
    "getfacl -R disk.img",
    "check disk.img",
    "inode \"disk.img:/dir$EVIL\"",
    "block disk.img 100",
    "stats disk.img",
    "touch mmp.img:/new",
    "cat \"disk.img:/$EVIL\"",
    "cat \"$EVIL\"",
    "cp \"disk.img:/dir$EVIL\" .",
    "cp -r \"disk.img:/dir$EVIL\" \"nowhere$EVIL/x\"",
    "cp \"$EVIL\" disk.img:/",
    "cp -r \"disk.img:/dir$EVIL\" out",
    "cp -r evil plain.img:/",
    "find disk.img \"$EVIL\"",
    "find disk.img -user \"$EVIL\"",
    "chown \"$EVIL\" disk.img:/file",
    "chmod \"$EVIL\" disk.img:/file",
    "setfattr -n \"user.$EVIL\" disk.img:/file",
    "getfattr -n \"user.$EVIL\" disk.img:/file",
    "setfacl -m \"u:$EVIL:r\" disk.img:/file",
    "script \"plain.img$EVIL\" -",
    "rm \"disk.img:/$EVIL\"",
    "mount \"disk.img\" \"$EVIL\"",
    "mount -o \"$EVIL\" disk.img .",
    "umount \"$EVIL\"",
    "stats \"$EVIL\"",
    "top \"$EVIL\"",
    "--journal \"$EVIL\" touch disk.img:/new",
    "mount -f --log \"$EVIL/x\" disk.img .",
    "\"$EVIL\"",
    "ls \"--$EVIL\" disk.img",
    "tune --label x \"$EVIL\"",
];

#[test]
fn names_by_another_user_are_never_printed_raw() {
    if !can_run(&[Need::Tool("mke2fs"), Need::Tool("script")]) {
        return;
    }
    let image = evil_volume();
    evil_protection(&image);
    evil_tree(&image.scratch().join("evil")).expect("a tree of the host");
    let mut shown = 0;
    for line in LINES {
        let line = format!("{line}; true").replace(
            "$EVIL",
            "$(printf '\\033[31m\\007\\r\\nx\\302\\2332J\\342\\200\\256\\342\\200\\213')",
        );
        let Some(output) = on_terminal(image.scratch(), &line) else {
            return;
        };
        // The command showed the name, in escaped form.
        shown += usize::from(output.windows(4).any(|part| part == b"\\033"));
        harmless(&line, &output);
    }
    assert!(
        shown * 2 > LINES.len(),
        "only {shown} have shown such a name"
    );
}

/// A FIFO that another user has put in the place of an image: no writer ever opens it.
#[test]
fn a_fifo_in_place_of_an_image_holds_no_command() {
    if !can_run(&[Need::Tool("mke2fs"), Need::Tool("mkfifo")]) {
        return;
    }
    let image = EMPTY.build();
    crate::run::tool(image.scratch(), "mkfifo", ["fifo"]);
    fs::create_dir(image.scratch().join("dir")).expect("a directory");
    crate::run::tool(image.scratch(), "mkfifo", ["dir/fifo"]);
    for args in [
        &["ls", "fifo"][..],
        &["touch", "fifo"],
        &["info", "fifo"],
        &["check", "fifo"],
        &["stats", "fifo"],
        &["bench", "fifo"],
        &["mount", "fifo", "dir"],
        &["tune", "fifo", "--label", "x"],
    ] {
        let said = failed(&ends(&image, args), 1);
        let expected = format!(
            "extern4: {}: 'fifo': it is neither a regular file nor a block device\n",
            args[0]
        );
        assert_eq!(said, expected);
    }
    failed(&ends(&image, &["umount", "fifo"]), 1);
    failed(&ends(&image, &["top", "fifo"]), 3);
    // In a tree it is copied as a FIFO.
    ok(ends(&image, &["cp", "-r", "dir", "disk.img:/"]));
    let said = ok(ends(&image, &["stat", "-c", "%F", "disk.img:/dir/fifo"]));
    assert_eq!(said, b"fifo\n");
}

/// A mount of user 1000 whose process takes no request. It is open to other users, root among them,
/// and ends when this is dropped.
struct Mute {
    dir: std::path::PathBuf,
    _device: fs::File,
}

impl Mute {
    fn new(dir: std::path::PathBuf) -> Self {
        fs::create_dir(&dir).expect("a directory");
        let device = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("a device");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
        let data = format!(
            "fd={fd},rootmode=40000,user_id=1000,group_id=1000,default_permissions,allow_other"
        );
        let data = std::ffi::CString::new(data).expect("no zero byte");
        let flags = rustix::mount::MountFlags::NOSUID;
        rustix::mount::mount("x", &dir, "fuse.extern4", flags, &*data).expect("it is mounted");
        Self {
            dir,
            _device: device,
        }
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // A failed test leaves the mount. Where the mount is gone, this does nothing.
        let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn root_waits_for_no_process_of_a_user() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let mute = Mute::new(image.scratch().join("mnt"));
    for command in ["stats", "top"] {
        let said = failed(&ends(&image, &[command, "mnt"]), 1);
        assert!(said.contains("has ended, or listens nowhere"), "{said}");
    }
    ok(ends(&image, &["umount", "mnt"]));
    assert!(!crate::mounting::is_mounted(&image));
    drop(mute);
}
