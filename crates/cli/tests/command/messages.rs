//! The message for every wrong input: it names the faulty thing once, with the reason and no
//! internal name.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};

use crate::mounting::{EMPTY, Served, can_mount, copy_command};
use crate::run::{command, extern4, failed, machine, ok};

/// Texts that no message may contain: numbers of the system, and names that only the program knows.
const NEVER: &[&str] = &["(os error", ".extern4", ".new0", "cannot use", "\u{1b}"];

/// Asserts the form of a message of this command about one thing.
#[track_caller]
fn decent(args: &[&str], said: &str) {
    let command = args
        .iter()
        .find(|arg| !arg.starts_with('-') && !arg.contains(':'))
        .expect("a command");
    for line in said.lines() {
        assert!(
            line.starts_with(&format!("extern4: {command}: ")),
            "{args:?}: {said}"
        );
        for image in ["disk.img", "text", "src", "full.img", "gone.img"] {
            let names = line
                .split([' ', ':', '\''])
                .filter(|word| *word == image)
                .count();
            // A message may also tell how to name it otherwise. A line of a script may contain the
            // name of its file.
            assert!(
                names <= 1
                    || line.contains("; its root is ")
                    || line.contains("unrecognized subcommand"),
                "{args:?} names {image} {names} times: {said}"
            );
        }
    }
    for never in NEVER {
        assert!(!said.contains(never), "{args:?}: {said}");
    }
}

/// Makes a scratch directory with `disk.img` (a small machine), `src/f`, the file `text`, and no
/// more.
fn ground() -> Image {
    let image = machine();
    fs::create_dir(image.scratch().join("src")).expect("a directory");
    fs::write(image.scratch().join("src/f"), "text\n").expect("a file");
    fs::write(image.scratch().join("text"), "text\n").expect("a file");
    image
}

/// A command line, its exit code, and its message after `extern4: COMMAND: `.
const CASES: &[(&[&str], i32, &str)] = &[
    (
        &["cp", "gone", "disk.img:/"],
        1,
        "'gone': No such file or directory",
    ),
    (
        &["cp", "src/f", "disk.img:/no/such"],
        1,
        "'disk.img:/no/such': No such file or directory",
    ),
    (
        &["cp", "src/f", "disk.img:/no/"],
        1,
        "'disk.img:/no/': there is no directory of this name",
    ),
    (
        &["cp", "src/f", "disk.img:/etc/hostname/x"],
        1,
        "'disk.img:/etc/hostname/x': Not a directory",
    ),
    (
        &["cp", "-r", "src", "disk.img:/etc/hostname"],
        1,
        "'disk.img:/etc/hostname': there is a file of this name",
    ),
    (
        &["cp", "src", "disk.img:/"],
        1,
        "'src': is a directory; copy it with -r",
    ),
    (
        &["cp", "src/f", "gone.img:/"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["cp", "src/f", "text:/x"],
        3,
        "'text': not an ext2, ext3 or ext4 file system",
    ),
    (
        &["cp", "text", "copy"],
        3,
        "'text': not an ext2, ext3 or ext4 file system",
    ),
    (
        &["cp", "-r", "src", "copy"],
        1,
        "'src': it is a directory, and neither an image nor a device",
    ),
    (
        &["cp", "disk.img:/gone", "."],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "no/such"],
        1,
        "'no/such': No such file or directory",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "no/"],
        1,
        "'no': there is no directory of this name",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "text/x"],
        1,
        "'text/x': Not a directory",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "disk.img:/bin/true", "no"],
        1,
        "'no': not a directory",
    ),
    (
        &["cp", "disk.img:/etc", "copy"],
        1,
        "'disk.img:/etc': is a directory; copy it with -r",
    ),
    (
        &["cp", "-r", "disk.img:/etc", "text"],
        1,
        "'text': Not a directory",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "/dev/full"],
        1,
        "'/dev/full': No space left on device",
    ),
    (
        &["cp", "disk.img:/etc/hostname", "disk.img"],
        1,
        "'disk.img': this is the image itself",
    ),
    (
        &["get", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["get", "disk.img:/etc"],
        1,
        "'disk.img:/etc': Is a directory",
    ),
    (
        &["put", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["put", "disk.img:/etc"],
        1,
        "'disk.img:/etc': is not a regular file",
    ),
    (
        &["put", "gone.img:/x"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["mkdir", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["mkdir", "disk.img:/etc/hostname/x"],
        1,
        "'disk.img:/etc/hostname/x': Not a directory",
    ),
    (
        &["mkdir", "disk.img:/etc"],
        1,
        "'disk.img:/etc': File exists",
    ),
    (
        &["rm", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["rm", "disk.img:/etc"],
        1,
        "'disk.img:/etc': is a directory; remove it with -r",
    ),
    (
        &["mv", "disk.img:/gone", "disk.img:/x"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["mv", "disk.img:/etc/hostname", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["mv", "disk.img:/etc/hostname", "disk.img:/no/"],
        1,
        "'disk.img:/no/': Not a directory",
    ),
    (
        &["mv", "disk.img:/etc/hostname", "disk.img:/bin/true/x"],
        1,
        "'disk.img:/bin/true/x': Not a directory",
    ),
    (
        &["mv", "disk.img:/etc", "disk.img:/etc/sub"],
        1,
        "'disk.img:/etc': a directory is not moved into itself",
    ),
    (
        &["mv", "disk.img:/etc", "disk.img:/bin/true"],
        1,
        "'disk.img:/bin/true': Not a directory",
    ),
    (
        &["ln", "disk.img:/gone", "disk.img:/x"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["ln", "disk.img:/etc/hostname", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["ln", "disk.img:/etc/hostname", "disk.img:/bin/true"],
        1,
        "'disk.img:/bin/true': File exists",
    ),
    (
        &["ln", "-f", "disk.img:/etc/hostname", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["ln", "-s", "target", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["ln", "disk.img:/etc", "disk.img:/x"],
        1,
        "'disk.img:/etc': Operation not permitted",
    ),
    (
        &["touch", "disk.img:/no/x"],
        1,
        "'disk.img:/no/x': No such file or directory",
    ),
    (
        &["truncate", "-s", "5", "disk.img:/etc"],
        1,
        "'disk.img:/etc': Is a directory",
    ),
    (
        &["chmod", "644", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["chown", "gone", "disk.img:/etc"],
        1,
        "gone is not a user of 'disk.img'",
    ),
    (
        &["chown", ":gone", "disk.img:/etc"],
        1,
        "gone is not a group of 'disk.img'",
    ),
    (
        &["setfacl", "-m", "u:gone:r", "disk.img:/etc"],
        1,
        "gone is not a user of 'disk.img'",
    ),
    (
        &["setfacl", "--restore=gone", "disk.img"],
        1,
        "'gone': No such file or directory",
    ),
    (
        &["getfacl", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["getfattr", "-n", "user.no", "disk.img:/etc"],
        1,
        "'disk.img:/etc': user.no: No such attribute",
    ),
    (
        &["getfattr", "-n", "user.no", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["getfattr", "-n", "bogus", "disk.img:/etc"],
        1,
        "'disk.img:/etc': bogus: there are no attributes of this kind",
    ),
    (
        &["setfattr", "-x", "user.no", "disk.img:/etc"],
        1,
        "'disk.img:/etc': user.no: No such attribute",
    ),
    (
        &["setfattr", "-x", "user.no", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["setfattr", "-n", "bogus", "disk.img:/etc"],
        1,
        "'disk.img:/etc': bogus: there are no attributes of this kind",
    ),
    (
        &["setfattr", "--restore", "gone", "disk.img"],
        1,
        "'gone': No such file or directory",
    ),
    (
        &["ls", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["ls", "src"],
        1,
        "'src': it is a directory, and neither an image nor a device",
    ),
    (
        &["ls", "/dev/null"],
        1,
        "'/dev/null': it is neither a regular file nor a block device",
    ),
    (
        &["info", "text"],
        3,
        "'text': not an ext2, ext3 or ext4 file system",
    ),
    (&["check", "src"], 1, "'src': it is a directory"),
    (
        &["tree", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["stat", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["du", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["df", "gone.img"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["find", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["inode", "disk.img:/gone"],
        1,
        "'disk.img:/gone': No such file or directory",
    ),
    (
        &["block", "disk.img", "99999999"],
        1,
        "'disk.img': there is no block 99999999",
    ),
    (
        &["script", "disk.img", "gone"],
        1,
        "'gone': No such file or directory",
    ),
    (&["script", "gone.img", "text"], 2, "text:1: "),
    (
        &["recover", "gone.img"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["tune", "gone.img", "--label", "x"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["bench", "gone.img"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["mount", "gone.img", "src"],
        1,
        "'gone.img': No such file or directory",
    ),
    (
        &["mount", "text", "src"],
        3,
        "'text': not an ext2, ext3 or ext4 file system",
    ),
    (&["mount", "src", "src"], 1, "'src': Is a directory"),
    (
        &["mount", "--log", "no/log", "disk.img", "src"],
        1,
        "'no/log': cannot keep a log there: No such file or directory",
    ),
    (&["umount", "gone"], 1, "'gone': "),
    (
        &["stats", "src"],
        3,
        "'src': no volume is mounted here by extern4",
    ),
    (&["top", "gone"], 1, "'gone': No such file or directory"),
];

#[test]
fn errors_name_what_is_wrong() {
    let image = ground();
    for (args, code, says) in CASES {
        let mut run = command();
        let output = run
            .current_dir(image.scratch())
            .args(*args)
            .stdin(Stdio::null())
            .output();
        let said = failed(&output.expect("the command runs"), *code);
        let expected = format!("extern4: {}: {says}", args[0]);
        assert!(said.starts_with(&expected), "{args:?}: {said}");
        decent(args, &said);
    }
}

/// A wrong command line is reported as everything else is, and the message ends with the way to the
/// help.
#[test]
fn wrong_usage_has_the_form_of_all_messages() {
    let image = ground();
    for (args, reason, help) in [
        (
            &["ls", "--bogus"][..],
            "extern4: ls: unexpected argument '--bogus' found\n",
            "ls ",
        ),
        (
            &["stat"],
            "extern4: stat: the following required arguments were not provided: <IMAGE:/PATH>...\n",
            "stat ",
        ),
        (
            &["mount", "-o", "no", "disk.img", "src"],
            "extern4: mount: invalid value 'no' for '-o",
            "mount ",
        ),
        (
            &["find", "disk.img", "-bogus"],
            "extern4: find: -bogus is not known\n",
            "find ",
        ),
        (&["bogus"], "extern4: unrecognized subcommand 'bogus'\n", ""),
    ] {
        let said = failed(&extern4(&image, args), 2);
        assert!(said.starts_with(reason), "{args:?}: {said}");
        let end = format!("\nTry 'extern4 {help}--help' for more information.\n");
        assert!(
            said.ends_with(&end) && !said.contains("Usage"),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn names_with_quotes_are_quoted_as_gnu_does() {
    let image = ground();
    let said = failed(&extern4(&image, ["cat", "disk.img:/it's"]), 1);
    assert_eq!(
        said,
        "extern4: cat: \"disk.img:/it's\": No such file or directory\n"
    );
}

#[test]
fn a_value_that_is_too_long_is_said_to_be() {
    let image = ground();
    let value = "x".repeat(100_000);
    let args = ["setfattr", "-n", "user.a", "-v", &value, "disk.img:/etc"];
    let said = failed(&extern4(&image, args), 1);
    assert_eq!(
        said,
        "extern4: setfattr: 'disk.img:/etc': user.a: the value is too long\n"
    );
}

/// A full volume, a full host, and an image on a full host.
#[test]
fn errors_of_full_places_name_the_copy() {
    let image = ground();
    let scratch = image.scratch();
    let full = scratch.join("full.img");
    fs::write(&full, vec![0; 2 << 20]).expect("an image");
    crate::run::tool(
        scratch,
        "mke2fs",
        ["-q", "-t", "ext4", "-m", "0", "full.img"],
    );
    fs::create_dir(scratch.join("tree")).expect("a directory");
    for name in ["big", "tree/big"] {
        fs::write(scratch.join(name), vec![b'x'; 4 << 20]).expect("a file");
    }
    let check = |args: &[&str], says: &str| {
        let mut run = command();
        let run = run
            .current_dir(scratch)
            .args(args)
            .stdin(fs::File::open(scratch.join("big")).expect("a file"));
        let said = failed(&run.output().expect("the command runs"), 1);
        assert!(
            said.starts_with(&format!("extern4: {}: {says}", args[0])),
            "{args:?}: {said}"
        );
        decent(args, &said);
    };
    check(
        &["put", "full.img:/put"],
        "'full.img:/put': No space left on device\n",
    );
    check(
        &["cp", "-r", "tree", "full.img:/"],
        "'full.img:/tree/big': No space left on device\n",
    );
    check(
        &["cp", "big", "full.img:/"],
        "'full.img:/big': No space left on device\n",
    );
    if !can_run(&[Need::Mount]) {
        return;
    }
    fs::create_dir(scratch.join("small")).expect("a directory");
    crate::run::tool(
        scratch,
        "mount",
        ["-t", "tmpfs", "-o", "size=1M", "tmpfs", "small"],
    );
    let on_host = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // More than the host has room for, in a hole of the image.
        fs::write(scratch.join("small/disk.img"), "").expect("a file");
        fs::File::options()
            .write(true)
            .open(scratch.join("small/disk.img"))
            .and_then(|file| file.set_len(16 << 20))
            .expect("a size");
        crate::run::tool(
            scratch,
            "mke2fs",
            [
                "-q",
                "-t",
                "ext4",
                "-N",
                "64",
                "-O",
                "^has_journal",
                "small/disk.img",
            ],
        );
        check(
            &["cp", "big", "small/disk.img:/"],
            "'small/disk.img:/big': ",
        );
        let mut cat = command();
        let run = cat
            .current_dir(scratch)
            .args(["cat", "disk.img:/etc/hostname"])
            .stdout(
                fs::File::options()
                    .write(true)
                    .open("/dev/full")
                    .expect("a device"),
            );
        assert_eq!(
            failed(&run.output().expect("it runs"), 1),
            "extern4: cat: cannot write: No space left on device\n"
        );
    }));
    crate::run::tool(scratch, "umount", ["-l", "small"]);
    on_host.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn the_process_that_holds_the_image_is_named() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let stats = ok(extern4(&image, ["stats", "--json", "mnt"]));
    let daemon =
        serde_json::from_slice::<serde_json::Value>(&stats).expect("an object")["daemon"].clone();
    fs::create_dir(image.scratch().join("other")).expect("a directory");
    for (args, what) in [
        (&["ls", "disk.img"][..], "has it open for writing"),
        (&["touch", "disk.img:/x"], "has it open"),
        (&["mount", "disk.img", "other"], "has it open"),
        (&["check", "disk.img"], "has it open for writing"),
        (&["tune", "disk.img", "--label", "x"], "has it open"),
    ] {
        let said = failed(&extern4(&image, args), 1);
        let holder = format!("process {daemon} (extern4) {what}; --wait waits until it is free");
        assert_eq!(
            said,
            format!("extern4: {}: 'disk.img': {holder}\n", args[0])
        );
    }
    served.umount();
}

#[test]
fn where_metrics_cannot_be_served_is_named() {
    let image = ground();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let said = failed(
        &extern4(&image, ["mount", "--metrics", &address, "disk.img", "src"]),
        1,
    );
    assert_eq!(
        said,
        format!(
            "extern4: mount: '{address}': cannot serve metrics there: Address already in use\n"
        )
    );
}

#[test]
fn a_volume_that_can_only_be_read_is_mounted_for_reading() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    image.debugfs("ssv feature_ro_compat 0x80000000\n");
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    let said = failed(&extern4(&image, ["mount", "disk.img", "mnt"]), 3);
    assert!(
        said.contains("it can only be read: ") && said.contains("use -o ro"),
        "{said}"
    );
    decent(&["mount"], &said);
    Served::new(&image, &["-o", "ro"]).umount();
}

#[test]
fn a_user_without_rights_gets_the_reason() {
    if !can_run(&[Need::Root, Need::Tool("setpriv")]) {
        return;
    }
    let image = ground();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o755)).expect("its mode");
    copy_command(scratch);
    fs::set_permissions(&image.path, fs::Permissions::from_mode(0o644)).expect("its mode");
    fs::write(scratch.join("closed.img"), "x").expect("a file");
    fs::set_permissions(
        scratch.join("closed.img"),
        fs::Permissions::from_mode(0o600),
    )
    .expect("its mode");
    for (args, says) in [
        (
            &["touch", "disk.img:/x"][..],
            "'disk.img': Permission denied\n",
        ),
        (&["ls", "closed.img"], "'closed.img': Permission denied\n"),
        (
            &["cp", "disk.img:/etc/hostname", "out"],
            "'out': Permission denied\n",
        ),
        (
            &["cp", "disk.img:/etc/hostname", "/root/out"],
            "'/root/out': Permission denied\n",
        ),
        (
            &["--as", "7:7", "mkdir", "disk.img:/etc/x"],
            "'disk.img': Permission denied\n",
        ),
    ] {
        let mut user = Command::new("setpriv");
        user.current_dir(scratch)
            .args([
                "--reuid=1000",
                "--regid=1000",
                "--clear-groups",
                "./extern4",
            ])
            .args(args);
        let said = failed(&user.output().expect("setpriv"), 1);
        assert!(said.ends_with(says), "{args:?}: {said}");
        decent(args, &said);
    }
    let said = failed(
        &extern4(&image, ["--as", "7:7", "mkdir", "disk.img:/etc/x"]),
        1,
    );
    assert_eq!(
        said,
        "extern4: mkdir: 'disk.img:/etc/x': Permission denied\n"
    );
}

/// The magic numbers of other images: offset, bytes, and the message.
const FORMS: &[(u64, &[u8], &str)] = &[
    (
        0,
        b"QFI\xfb",
        "a qcow2 image; make a plain one of it with qemu-img convert -O raw",
    ),
    (0, b"KDMV", "a VMDK image; make a plain one"),
    (0, b"vhdxfile", "a VHDX image; make a plain one"),
    (0, b"conectix", "a VHD image; make a plain one"),
    (
        (4 << 20) - 512,
        b"conectix",
        "a VHD image; make a plain one",
    ),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image; make a plain one"),
    (
        0,
        b"\x3a\xff\x26\xed",
        "a sparse image of Android; make a plain one of it with simg2img",
    ),
    (
        0,
        b"\x1f\x8b\x08",
        "a compressed image; make a plain one of it with gzip -d",
    ),
    (
        0,
        b"\xfd7zXZ\0",
        "a compressed image; make a plain one of it with xz -d",
    ),
    (
        0,
        b"\x28\xb5\x2f\xfd",
        "a compressed image; make a plain one of it with zstd -d",
    ),
    (0, b"PK\x03\x04", "a zip archive; unzip unpacks it"),
    (257, b"ustar", "a tar archive; tar -xf unpacks it"),
    (
        0,
        b"LUKS\xba\xbe\0\x02",
        "a LUKS container, which is encrypted; cryptsetup open makes a device of it",
    ),
    (3, b"-FVE-FS-", "a BitLocker container"),
    (
        512,
        b"LABELONE",
        "a physical volume of LVM; vgchange -ay makes a device of it",
    ),
    (
        4096,
        b"\xfc\x4e\x2b\xa9",
        "a member of a Linux RAID; mdadm --assemble makes a device of it",
    ),
    (0, b"XFSB", "an xfs file system, and not ext2, ext3 or ext4"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"hsqs", "a squashfs file system; unsquashfs unpacks it"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT16   ", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (4086, b"SWAPSPACE2", "swap space"),
    (
        0x2_0000 + 4096,
        b"\x0c\xb1\xba\0\0\0\0\0",
        "a member of a ZFS pool",
    ),
    (32, b"NXSB", "an APFS container"),
];

#[test]
fn images_of_other_forms_are_named() {
    let image = machine();
    for (offset, magic, says) in FORMS {
        let file = fs::File::create(image.scratch().join("other.img")).expect("a file");
        file.set_len(4 << 20).expect("a size");
        file.write_all_at(magic, *offset).expect("it is written");
        for command in ["ls", "mount", "touch", "check"] {
            let args: &[&str] = if command == "mount" {
                &["mount", "other.img", "."]
            } else {
                &[command, "other.img"]
            };
            let said = failed(&extern4(&image, args), 3);
            let expected = format!("extern4: {command}: 'other.img': this is {says}");
            assert!(
                said.starts_with(&expected) && said.lines().count() == 1,
                "{expected}: {said}"
            );
        }
        // Likewise in a partition, or at an offset, unless the magic is near the end.
        if *offset < 1 << 20 {
            let disk = crate::run::partitioned(&image);
            let disk = fs::File::options().write(true).open(disk).expect("a disk");
            disk.write_all_at(&vec![0; 1 << 20], 1 << 20)
                .expect("it is written");
            disk.write_all_at(magic, (1 << 20) + offset)
                .expect("it is written");
            for place in ["sdcard.img#2", "sdcard.img@1M"] {
                let said = failed(&extern4(&image, ["ls", place]), 3);
                assert!(
                    said.contains(&format!(": this is {says}")),
                    "{place}: {said}"
                );
            }
        }
    }
    fs::write(image.scratch().join("empty"), "").expect("a file");
    assert_eq!(
        failed(&extern4(&image, ["ls", "empty"]), 3),
        "extern4: ls: 'empty': this is empty\n"
    );
}

/// Images of such forms that this machine can make, as their own tools make them.
#[test]
fn real_images_of_other_forms_are_named() {
    let image = ImageSpec::new("disk", 1 << 20, &["-t", "ext4"]).build();
    for (make, says) in [
        ("mkfs.vfat other.img", "a FAT file system"),
        ("mkfs.vfat -F 32 other.img", "a FAT file system"),
        ("mkfs.xfs -q other.img", "an xfs file system"),
        ("mkfs.btrfs -q other.img", "a btrfs file system"),
        ("mkswap other.img", "swap space"),
        ("mkfs.ntfs -qF other.img", "an NTFS file system"),
        ("mkfs.exfat other.img", "an exFAT file system"),
        ("mkfs.f2fs -q other.img", "an F2FS file system"),
        (
            "rm other.img; mksquashfs . other.img -quiet",
            "a squashfs file system",
        ),
        (
            "cryptsetup luksFormat -q --pbkdf-force-iterations 1000 --pbkdf pbkdf2 other.img disk.img",
            "a LUKS container",
        ),
        ("qemu-img create -f qcow2 other.img 1M", "a qcow2 image"),
        ("qemu-img create -f vpc other.img 1M", "a VHD image"),
        ("tar -cf other.img disk.img", "a tar archive"),
        ("gzip -c disk.img > other.img", "a compressed image"),
    ] {
        let tool = make
            .trim_start_matches("rm other.img; ")
            .split(' ')
            .next()
            .unwrap_or(make);
        if extern4_testkit::tools::find(tool).is_none() {
            continue;
        }
        let file = fs::File::create(image.scratch().join("other.img")).expect("a file");
        file.set_len(400 << 20).expect("a size");
        drop(file);
        let mut run = Command::new("sh");
        let made = run
            .current_dir(image.scratch())
            .args(["-c", &format!("{{ {make}; }} > made 2>&1")])
            .status();
        if !made.expect("a shell").success() {
            continue;
        }
        let said = failed(&extern4(&image, ["ls", "other.img"]), 3);
        assert!(
            said.starts_with(&format!("extern4: ls: 'other.img': this is {says}")),
            "{make}: {said}"
        );
    }
}

/// A mistake that is often made is told with the way out.
#[test]
fn hints_tell_what_was_meant() {
    let image = ground();
    fs::create_dir(image.scratch().join("empty")).expect("a directory");
    for (args, code, says) in [
        (
            &["ls", "disk.img/etc/hostname"][..],
            1,
            "'disk.img/etc/hostname': a path in an image stands behind a colon: 'disk.img:/etc/hostname'\n",
        ),
        (
            &["cp", "disk.img/etc", "x"],
            1,
            "'disk.img/etc': a path in an image stands behind a colon: 'disk.img:/etc'\n",
        ),
        (
            &["cp", "text", "disk.img/etc/"],
            1,
            "'disk.img/etc/': a path in an image stands behind a colon: 'disk.img:/etc'\n",
        ),
        (
            &["cp", "disk.img/etc", "disk.img:/"],
            1,
            "'disk.img/etc': a path in an image stands behind a colon: 'disk.img:/etc'\n",
        ),
        (
            &["build", "new.img", "disk.img/etc"],
            1,
            "'disk.img/etc': a path in an image stands behind a colon: 'disk.img:/etc'\n",
        ),
        (
            &["cp", "text", "disk.img"],
            1,
            "'disk.img': this is an image; its root is 'disk.img:/'\n",
        ),
        (
            &["cp", "-r", "src", "disk.img"],
            1,
            "'disk.img': this is an image; its root is 'disk.img:/'\n",
        ),
        (&["ls", "text/x"], 1, "'text/x': Not a directory\n"),
        (
            &["ls", "LABEL=root:/x"],
            1,
            "'LABEL=root': labels and UUIDs are not looked up; name the device: '/dev/disk/by-label/root', or what blkid(8) prints\n",
        ),
        (
            &["mount", "UUID=6c1f-4b52", "empty"],
            1,
            "'UUID=6c1f-4b52': labels and UUIDs are not looked up; name the device: '/dev/disk/by-uuid/6c1f-4b52', or",
        ),
        (
            &["info", "PARTUUID=1"],
            1,
            "'PARTUUID=1': labels and UUIDs are not looked up; name the device: '/dev/disk/by-partuuid/1', or",
        ),
        (
            &["export", "disk.img", "-"],
            2,
            "'-': the output follows -o: extern4 export IMAGE:/PATH -o -\n",
        ),
        (
            &["export", "disk.img:/etc", "out.tar"],
            2,
            "'out.tar': the output follows -o: extern4 export IMAGE:/PATH -o out.tar\n",
        ),
        (
            &["get", "disk.img:/etc/hostname", "x"],
            2,
            "'x': the contents go to standard output: extern4 get IMAGE:/PATH > x\n",
        ),
        (
            &["put", "disk.img", "text"],
            2,
            "'text': the contents come from standard input: extern4 put IMAGE:/PATH < text\n",
        ),
        (
            &["put", "disk.img"],
            1,
            "'disk.img:/': the file needs a name: disk.img:/PATH\n",
        ),
        (
            &["tune", "disk.img", "label"],
            2,
            "'label': each setting has an option: extern4 tune IMAGE -L LABEL\n",
        ),
        (
            &["build", "src", "new.img"],
            1,
            "'src': it is a directory; OUT stands before the sources: extern4 build OUT.img DIR\n",
        ),
    ] {
        let said = failed(&extern4(&image, args), code);
        assert!(
            said.starts_with(&format!("extern4: {}: {says}", args[0])),
            "{args:?}: {said}"
        );
    }
    // Files of these names are images all the same.
    fs::copy(&image.path, image.scratch().join("LABEL=root")).expect("a copy");
    ok(extern4(&image, ["ls", "LABEL=root:/etc"]));
}

/// The name of another program gives the line that does the same.
#[test]
fn names_of_other_programs_give_a_line() {
    let image = ground();
    for (args, lines) in [
        (
            &["wc", "-l", "disk.img:/etc/passwd"][..],
            "  extern4 cat IMG:/f | wc\n",
        ),
        (
            &["tune2fs", "-l", "disk.img"],
            "  extern4 info IMG   # the settings, as -l shows them\n",
        ),
        (
            &["vi", "disk.img:/etc/passwd"],
            "  extern4 get IMG:/f > FILE && vi FILE && extern4 put IMG:/f < FILE\n",
        ),
        (
            &["debugfs"],
            "  extern4 shell IMG   # knows most words of debugfs\n",
        ),
    ] {
        let said = failed(&extern4(&image, args), 2);
        let start = format!(
            "extern4: unrecognized subcommand '{}'\nWith extern4:\n{lines}",
            args[0]
        );
        assert!(said.starts_with(&start), "{args:?}: {said}");
        assert!(
            said.ends_with("\nTry 'extern4 --help' for more information.\n"),
            "{args:?}: {said}"
        );
        for help in ["help", "man"] {
            let said = failed(&extern4(&image, [help, args[0]]), 2);
            assert!(said.contains(lines), "{help} {args:?}: {said}");
        }
    }
}
