//! Volumes whose journal is on a separate device.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools::{self, LoopDevice, Need, can_run};

use crate::mounting::{EMPTY, Served, can_mount};
use crate::run::{extern4, extern4_in, failed, ok, tool};

/// A volume with its journal in `journal.img`, in the same directory.
const ELSEWHERE: ImageSpec = ImageSpec::new(
    "disk",
    64 << 20,
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
)
.then(&[Step::Run(add_journal)]);

fn add_journal(image: &Image) {
    let journal = image.scratch().join("journal.img");
    File::create(&journal)
        .and_then(|file| file.set_len(16 << 20))
        .expect("a file");
    tools::run(
        "mke2fs",
        [
            "-q",
            "-F",
            "-b",
            "4096",
            "-O",
            "journal_dev",
            journal.to_str().expect("a plain name"),
        ],
    );
    let device = LoopDevice::attach(&journal);
    let option = format!("device={}", device.path.display());
    tools::run(
        "tune2fs",
        ["-J".as_ref(), option.as_ref(), image.path.as_os_str()],
    );
}

pub(crate) fn can_use() -> bool {
    can_run(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Mount])
}

/// Asserts that `e2fsck` finds nothing.
#[track_caller]
fn sound(image: &Image) {
    let journal = image.scratch().join("journal.img");
    tools::run(
        "e2fsck",
        [
            OsStr::new("-fn"),
            OsStr::new("-j"),
            journal.as_os_str(),
            image.path.as_os_str(),
        ],
    );
}

/// Mounts the volume with its journal by the kernel, and returns the result of `each` in it.
fn in_the_kernel<T>(image: &Image, each: impl FnOnce(&Path) -> T) -> T {
    let journal = LoopDevice::attach(&image.scratch().join("journal.img"));
    let mount = image.mount(&format!("journal_path={}", journal.path.display()));
    let found = each(&mount.path);
    mount.unmount();
    found
}

/// Copies both files, as a crash would leave them now.
pub(crate) fn crashed(image: &Image) -> Image {
    let copy = image.copy();
    let journal = "journal.img";
    fs::copy(image.scratch().join(journal), copy.scratch().join(journal)).expect("a copy");
    copy
}

/// Makes a volume with its journal in `journal.img`, as a crash leaves it after `fill` has worked
/// in a mount of it.
pub(crate) fn crashed_with_journal_elsewhere(fill: &dyn Fn(&Path)) -> Image {
    let image = ELSEWHERE.build();
    let served = Served::new(&image, &["--journal", "journal.img"]);
    fill(&served.dir);
    tools::run("sync", [OsStr::new("-f"), served.dir.as_os_str()]);
    let crashed = crashed(&image);
    served.umount();
    crashed
}

/// Makes a file with this text, durably.
fn write(path: &Path, text: &str) {
    let mut file = File::create(path).expect("a file");
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .expect("it is written");
}

/// The bytes of a file of `mkfs -O journal_dev`, without the times of making.
fn without_times(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("a journal");
    // s_wtime, s_lastcheck and s_mkfs_time.
    for offset in [0x30, 0x40, 0x108] {
        bytes[1024 + offset..][..4].fill(0);
    }
    bytes
}

#[test]
fn external_journals_are_made_as_mke2fs_makes_them() {
    if !can_run(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let uuid = "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11";
    let seed = format!("hash_seed={uuid}");
    for (options, size) in [
        (&["-b", "1024"][..], "8M"),
        (
            &["-b", "4096", "-L", "log", "-I", "512", "-e", "panic"],
            "16M",
        ),
        (&["-t", "ext2", "-m", "9", "-N", "77"], "5M"),
        (&["-T", "news"], "600M"),
    ] {
        let common = [
            &["-q", "-F", "-O", "journal_dev", "-U", uuid, "-E", &seed],
            options,
        ]
        .concat();
        ok(extern4_in(
            dir,
            [&["mkfs"], &common[..], &["ours", size]].concat(),
        ));
        tool(dir, "mke2fs", [&common[..], &["theirs", size]].concat());
        let [ours, theirs] = ["ours", "theirs"].map(|name| without_times(&dir.join(name)));
        assert!(ours == theirs, "{options:?}");
        // Old contents of the device do not stay in the log.
        File::options()
            .write(true)
            .open(dir.join("ours"))
            .and_then(|mut file| file.write_all(&[9; 1 << 20]))
            .unwrap();
        ok(extern4_in(
            dir,
            [&["mkfs"], &common[..], &["ours"]].concat(),
        ));
        assert!(
            without_times(&dir.join("ours")) == theirs,
            "{options:?}, made again"
        );
        for name in ["ours", "theirs"] {
            fs::remove_file(dir.join(name)).expect("a file");
        }
    }
}

#[test]
fn a_volume_is_made_with_its_journal_elsewhere() {
    if !can_use() {
        return;
    }
    let image = Image::in_directory(tools::temporary("extern4-journal-"), "disk.img");
    let dir = image.scratch();
    let uuid = "0e3f5a52-3a0e-4d0c-9c55-0d2a4f6b7e12";
    let label = format!("log {}", std::process::id());
    let journal = [
        "mkfs",
        "-q",
        "-O",
        "journal_dev",
        "-b",
        "1024",
        "-U",
        uuid,
        "-L",
        &label,
    ];
    ok(extern4_in(
        dir,
        [&journal[..], &["journal.img", "16M"]].concat(),
    ));
    let make = |device: &str, more: &[&str]| {
        let device = format!("device={device}");
        extern4_in(
            dir,
            [&["mkfs", "-q", "-J", &device, "disk.img", "64M"], more].concat(),
        )
    };
    let fields = |name: &str| -> Vec<String> {
        let text = String::from_utf8(tool(dir, "dumpe2fs", ["-h", name])).expect("a text");
        let of = [
            "Filesystem UUID",
            "Filesystem features",
            "Journal",
            "Block size",
            "Overhead",
        ];
        text.lines()
            .filter(|line| of.iter().any(|start| line.starts_with(start)))
            .map(str::to_owned)
            .collect()
    };
    ok(make("journal.img", &[]));
    let id = |fields: Vec<String>, name: &str| {
        let line = fields
            .into_iter()
            .find(|line| line.starts_with(name))
            .expect("a line");
        line.rsplit(' ').next().expect("a word").to_owned()
    };
    assert_eq!(
        id(fields("journal.img"), "Journal users"),
        id(fields("disk.img"), "Filesystem UUID")
    );
    sound(&image);
    // A separate volume has the journal now.
    let told = failed(&make("journal.img", &["-t", "ext3"]), 1);
    assert!(told.contains("uses it; --force takes it"), "{told}");
    for (device, more, code, says) in [
        (
            "journal.img",
            &["-F", "-b", "4096"][..],
            2,
            "the external journal has blocks of 1024",
        ),
        ("journal.img,size=8", &["-F"], 2, "that of its device"),
        ("disk.img", &["-F"], 1, "there is no external journal on it"),
    ] {
        let told = failed(&make(device, more), code);
        assert!(told.contains(says), "{told}");
    }
    for how in ["path", "UUID", "LABEL"] {
        let device = LoopDevice::attach(&dir.join("journal.img"));
        let name = match how {
            "path" => device.path.display().to_string(),
            "UUID" => format!("UUID={uuid}"),
            _ => format!("LABEL={label}"),
        };
        ok(make(&name, &["-F"]));
        let ours = fields("disk.img");
        let uses = fields("journal.img");
        // mke2fs adds a user to the users that are there, so it gets a new journal.
        let other = dir.join("other.img");
        tool(
            dir,
            "mke2fs",
            [
                "-q",
                "-F",
                "-O",
                "journal_dev",
                "-b",
                "1024",
                "-U",
                uuid,
                "other.img",
                "16M",
            ],
        );
        drop(device);
        let device = LoopDevice::attach(&other);
        let theirs = format!("device={}", device.path.display());
        let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/../mkfs/src/mke2fs.conf");
        let config = format!("MKE2FS_CONFIG={conf}");
        tool(
            dir,
            "env",
            [
                &config,
                "mke2fs",
                "-q",
                "-F",
                "-t",
                "ext4",
                "-J",
                &theirs,
                "theirs.img",
                "64M",
            ],
        );
        let same = |fields: &[String]| -> Vec<String> {
            let differs =
                |line: &&String| !line.starts_with("Filesystem UUID") && !line.contains("users:");
            fields
                .iter()
                .filter(differs)
                .filter(|line| !line.contains("device:"))
                .cloned()
                .collect()
        };
        assert_eq!(same(&ours), same(&fields("theirs.img")));
        assert_eq!(same(&uses), same(&fields("other.img")));
        assert!(
            ours.iter()
                .any(|line| line.starts_with("Journal device:") && line.contains("0x07")),
            "{ours:?}"
        );
    }
    sound(&image);
    in_the_kernel(&image, |root| write(&root.join("kernel"), "text"));
    ok(extern4_in(
        dir,
        ["--journal", "journal.img", "mkdir", "disk.img:/dir"],
    ));
    sound(&image);
    assert_eq!(ok(extern4_in(dir, ["cat", "disk.img:/kernel"])), b"text");
}

#[test]
fn commands_change_a_volume_whose_journal_is_elsewhere() {
    if !can_use() {
        return;
    }
    let image = ELSEWHERE.build();
    let said = failed(&extern4(&image, ["mkdir", "disk.img:/dir"]), 3);
    assert!(said.contains("--journal"), "{said}");
    ok(extern4(
        &image,
        ["--journal", "journal.img", "mkdir", "disk.img:/dir"],
    ));
    ok(extern4(
        &image,
        [
            "ln",
            "-s",
            "target",
            "disk.img:/dir/link",
            "--journal=journal.img",
        ],
    ));
    // Files that hold no journal, or another volume's, or are missing.
    fs::write(image.scratch().join("text"), "text").expect("a file");
    let other = ELSEWHERE.build();
    fs::copy(
        other.scratch().join("journal.img"),
        image.scratch().join("other.img"),
    )
    .expect("a copy");
    fs::copy(EMPTY.build().path, image.scratch().join("volume.img")).expect("a copy");
    for (file, says) in [
        ("text", "there is no external journal on it"),
        ("volume.img", "there is no external journal on it"),
        ("other.img", "it is the journal of another volume"),
    ] {
        let said = failed(
            &extern4(&image, ["mkdir", "disk.img:/no", "--journal", file]),
            3,
        );
        assert_eq!(
            said,
            format!("extern4: mkdir: 'disk.img': its journal {file}: {says}\n")
        );
    }
    failed(
        &extern4(&image, ["mkdir", "disk.img:/no", "--journal=disk.img"]),
        1,
    );
    let said = failed(
        &extern4(&image, ["mkdir", "disk.img:/no", "--journal=nowhere"]),
        1,
    );
    assert!(said.contains("nowhere"), "{said}");
    sound(&image);
    in_the_kernel(&image, |root| {
        assert_eq!(
            fs::read_link(root.join("dir/link")).expect("a link"),
            Path::new("target")
        )
    });
    // A clean volume is readable without its journal.
    assert_eq!(ok(extern4(&image, ["ls", "disk.img:/dir"])), b"link\n");
    sound(&image);
}

#[test]
fn an_external_journal_of_the_kernel_is_replayed() {
    if !can_use() {
        return;
    }
    let image = ELSEWHERE.build();
    let left = in_the_kernel(&image, |root| {
        write(&root.join("file"), "text");
        crashed(&image)
    });
    let said = failed(&extern4(&left, ["cat", "disk.img:/file"]), 3);
    assert!(
        said.contains("its journal is on another device") && said.contains("--journal"),
        "{said}"
    );
    let before = fs::read(left.scratch().join("journal.img")).expect("a journal");
    assert_eq!(
        ok(extern4(
            &left,
            ["cat", "disk.img:/file", "--journal", "journal.img"]
        )),
        b"text"
    );
    assert!(
        fs::read(left.scratch().join("journal.img")).expect("a journal") == before,
        "reading writes nothing"
    );
    let recovered = crashed(&left);
    ok(extern4(
        &recovered,
        ["recover", "disk.img", "--journal", "journal.img"],
    ));
    sound(&recovered);
    ok(extern4(
        &left,
        [
            "mv",
            "disk.img:/file",
            "disk.img:/moved",
            "--journal",
            "journal.img",
        ],
    ));
    sound(&left);
    in_the_kernel(&left, |root| {
        assert_eq!(fs::read(root.join("moved")).expect("a file"), b"text")
    });
}

#[test]
fn a_mount_has_its_journal_elsewhere() {
    if !can_use() || !can_mount() {
        return;
    }
    let image = ELSEWHERE.build();
    for options in [
        ["-o", "journal_path=journal.img"],
        ["--journal", "journal.img"],
    ] {
        let served = Served::new(&image, &options);
        write(&served.path("file"), options[0]);
        let left = crashed(&image);
        served.umount();
        sound(&image);
        // The kernel replays the journal that a crash leaves.
        let found = in_the_kernel(&left, |root| {
            fs::read_to_string(root.join("file")).expect("a file")
        });
        assert_eq!(found, options[0]);
        sound(&left);
    }
}
