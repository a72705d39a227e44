//! Disks with partitions: cut off, with long sectors, and with odd tables; and the hint at a copy
//! of the superblock.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run, run_with_input};

use crate::in_use::Shell;
use crate::run::{extern4, failed, machine, ok, partitioned, wipe_superblock};

const MIB: u64 = 1 << 20;

/// Writes a boot record into sector `lba`: type, first sector and number of sectors of each entry.
fn put(disk: &File, sector: u64, lba: u64, entries: &[(u8, u32, u32)]) {
    let mut record = [0; 66];
    record[64..].copy_from_slice(&[0x55, 0xaa]);
    for (entry, &(kind, first, count)) in record.chunks_exact_mut(16).zip(entries) {
        entry[4] = kind;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&count.to_le_bytes());
    }
    disk.write_all_at(&record, lba * sector + 446)
        .expect("written");
}

/// Makes `d.img`, a disk of zeroes with the volume of `image` at each of these bytes.
fn disk(image: &Image, len: u64, volumes: &[u64]) -> File {
    let path = image.scratch().join("d.img");
    let disk = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .expect("a disk");
    disk.set_len(len).expect("its length");
    let volume = fs::read(&image.path).expect("an image");
    volumes
        .iter()
        .for_each(|at| disk.write_all_at(&volume, *at).expect("a volume"));
    disk
}

/// Has `sfdisk` partition `d.img`.
fn sfdisk(image: &Image, script: &str) {
    let path = image.scratch().join("d.img");
    let ran = run_with_input(
        "sfdisk",
        ["-q".into(), path.into_os_string()],
        script.as_bytes(),
    );
    assert!(ran.is_ok(), "{ran:?}");
}

fn info(image: &Image, place: &str) -> String {
    String::from_utf8(ok(extern4(image, ["info", place]))).expect("text")
}

/// Asserts that a cut-off volume is reported: it is at byte 8 MiB, in partition `number`, and the
/// disk ends 4 MiB behind that.
#[track_caller]
fn is_cut_off(image: &Image, disk: &File, number: u32) {
    let place = format!("d.img#{number}");
    let hostname = format!("{place}:/etc/hostname");
    assert_eq!(ok(extern4(image, ["cat", &hostname])), b"tiny\n");
    disk.set_len(12 * MIB).expect("cut off");
    let says = format!("partition {number} is cut off: it has");
    // It is read as far as it goes, and a warning, a fault or an error says so.
    for args in [
        &["ls", &place][..],
        &["cat", &hostname],
        &["check", &place],
        &["info", &place],
    ] {
        let output = extern4(image, args);
        let said = [output.stdout, output.stderr].concat();
        assert!(
            String::from_utf8_lossy(&said).contains("the volume is cut off"),
            "{args:?}"
        );
    }
    for args in [
        &["mkdir", &format!("{place}:/d")][..],
        &["tune", &place, "--label", "x"],
        &["mount", &place, "."],
    ] {
        let errors = failed(&extern4(image, args), 4);
        assert!(
            errors.contains(&says) && !errors.contains("copy of a superblock"),
            "{args:?}: {errors}"
        );
    }
    let text = info(image, "d.img");
    assert!(text.contains(&place) && text.contains(&says), "{text}");
    let row = text
        .lines()
        .find(|line| line.starts_with(&place))
        .expect("its row");
    assert!(row.ends_with("cut off"), "{row}");
    let json = ok(extern4(image, ["info", "--json", "d.img"]));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    let rows = json["partitions"].as_array().expect("rows");
    assert!(
        rows.iter()
            .any(|row| row["number"] == number && row["cut_off"] == true),
        "{json}"
    );
}

#[test]
fn a_partition_behind_the_end_of_the_image_is_cut_off() {
    let image = machine();
    let sectors =
        u32::try_from(fs::metadata(&image.path).expect("an image").len() / 512).expect("small");
    assert!(
        sectors > 4 * 2048,
        "the volume is longer than what is left of it"
    );
    // A primary partition; one that starts behind the end; and a logical one.
    let whole = || disk(&image, 64 * MIB, &[8 * MIB]);
    let primary = whole();
    put(
        &primary,
        512,
        0,
        &[(0x83, 8 * 2048, sectors), (0x83, 60 * 2048, 2048)],
    );
    is_cut_off(&image, &primary, 1);
    let errors = failed(&extern4(&image, ["ls", "d.img#2"]), 4);
    assert!(errors.contains("partition 2 is cut off"), "{errors}");
    let logical = whole();
    put(
        &logical,
        512,
        0,
        &[(0x83, 64, 64), (0x0f, 4 * 2048, 50 * 2048)],
    );
    put(&logical, 512, 4 * 2048, &[(0x83, 4 * 2048, sectors)]);
    is_cut_off(&image, &logical, 5);
    if !can_run(&[Need::Tool("sfdisk")]) {
        return;
    }
    let gpt = whole();
    sfdisk(&image, &format!("label: gpt\nstart=16384,size={sectors}\n"));
    is_cut_off(&image, &gpt, 1);
    assert!(info(&image, "d.img").contains("the backup of the GPT should be in sector 131071"));
}

#[test]
fn a_volume_behind_the_end_of_the_image_is_cut_off() {
    let image = machine();
    let len = fs::metadata(&image.path).expect("an image").len();
    File::options()
        .write(true)
        .open(&image.path)
        .expect("the image")
        .set_len(len / 2)
        .expect("cut off");
    let says = format!(
        "the volume is cut off: it has {len} bytes, and the device {}",
        len / 2
    );
    // It is read as far as it goes, and not written.
    for args in [&["ls", "disk.img"][..], &["info", "disk.img"]] {
        let output = extern4(&image, args);
        let warned = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && warned.contains(&says),
            "{args:?}: {warned}"
        );
    }
    let checked = extern4(&image, ["check", "disk.img"]);
    assert_eq!(checked.status.code(), Some(4), "{checked:?}");
    assert!(
        String::from_utf8_lossy(&checked.stdout).contains(&says),
        "{checked:?}"
    );
    let errors = failed(&extern4(&image, ["mkdir", "disk.img:/d"]), 4);
    assert!(errors.contains(&says), "{errors}");
}

#[test]
fn an_mbr_may_count_in_sectors_of_4_kib() {
    let image = machine();
    let sectors =
        u32::try_from(fs::metadata(&image.path).expect("an image").len() / 4096).expect("small");
    let disk = disk(&image, 64 * MIB, &[MIB, 33 * MIB]);
    put(
        &disk,
        4096,
        0,
        &[(0x83, 256, sectors), (0x05, 32 * 256, 20 * 256)],
    );
    put(&disk, 4096, 32 * 256, &[(0x83, 256, sectors)]);
    for place in ["d.img#1:/etc/hostname", "d.img#5:/etc/hostname"] {
        assert_eq!(ok(extern4(&image, ["cat", place])), b"tiny\n", "{place}");
    }
    ok(extern4(&image, ["mkdir", "d.img#5:/made"]));
    ok(extern4(
        &image,
        ["stat", &format!("d.img@{}:/made", 33 * MIB)],
    ));
    assert!(
        info(&image, "d.img")
            .lines()
            .any(|line| line.starts_with("d.img#5") && line.ends_with("tiny"))
    );
    // Where volumes are at both places, sectors have 512 bytes, as on all disks whose images do not
    // tell the sector size.
    let volume = fs::read(&image.path).expect("an image");
    let both = self::disk(&image, 64 * MIB, &[32 * MIB]);
    both.write_all_at(&volume[..8192], 4 * MIB)
        .expect("the head of another");
    put(&both, 512, 0, &[(0x83, 8 * 1024, 16)]);
    let errors = failed(&extern4(&image, ["ls", "d.img#1"]), 1);
    assert!(errors.contains("the device has 8192 bytes"), "{errors}");
}

/// A name that two partitions have names neither: the message says which have it.
#[test]
fn a_name_of_two_partitions_names_neither() {
    let image = machine();
    let sectors =
        u32::try_from(fs::metadata(&image.path).expect("an image").len() / 512).expect("small");
    let disk = disk(&image, 64 * MIB, &[8 * MIB, 32 * MIB]);
    let uuid = "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11";
    put(
        &disk,
        512,
        0,
        &[(0x83, 16384, sectors), (0x83, 65536, sectors)],
    );
    let is_refused = |name: &str| {
        for args in [
            &["ls"][..],
            &["info"],
            &["mkdir", "-p"],
            &["check"],
            &["df"],
        ] {
            let place = format!("d.img#{name}");
            let errors = failed(&extern4(&image, [args, &[&place]].concat()), 1);
            let says = format!("'{place}': several partitions have this name: d.img#1, d.img#2\n");
            assert!(errors.ends_with(&says), "{args:?}: {errors}");
        }
    };
    is_refused("tiny");
    is_refused(uuid);
    // Its label names a partition again.
    ok(extern4(&image, ["tune", "d.img#2", "-L", "second"]));
    for name in ["tiny", "second"] {
        assert_eq!(
            ok(extern4(
                &image,
                ["cat", &format!("d.img#{name}:/etc/hostname")]
            )),
            b"tiny\n"
        );
    }
    is_refused(uuid);
    // One that is in use has its name as well.
    let shell = Shell::new(&image, "d.img#2");
    let errors = failed(&extern4(&image, ["ls", "d.img#second:/"]), 1);
    assert!(
        errors.starts_with("extern4: ls: 'd.img#2': process ") && errors.contains("--wait"),
        "{errors}"
    );
    shell.end();
    if !can_run(&[Need::Tool("sfdisk")]) {
        return;
    }
    sfdisk(
        &image,
        &format!(
            "label: gpt\nstart=16384,size={sectors},name=twin\nstart=65536,size={sectors},name=twin\n"
        ),
    );
    is_refused("twin");
}

#[test]
fn an_odd_partition_table_is_reported() {
    let image = machine();
    let sectors =
        u32::try_from(fs::metadata(&image.path).expect("an image").len() / 512).expect("small");
    let fails = |args: &[&str], code: i32, says: &str| {
        let errors = failed(&extern4(&image, args), code);
        assert!(errors.contains(says), "{args:?}: {errors}");
    };
    let disk = disk(&image, 64 * MIB, &[8 * MIB]);
    put(
        &disk,
        512,
        0,
        &[
            (0x83, 16384, sectors),
            (0x83, 20000, 64),
            (0x83, 5, 0),
            (0x0f, 100_000, 20_000),
        ],
    );
    put(&disk, 512, 100_000, &[(0x83, 100, 100)]);
    let text = info(&image, "d.img");
    assert!(
        text.contains("warning: partitions 1 and 2 overlap"),
        "{text}"
    );
    assert!(
        text.contains("warning: partition 3 has no sectors"),
        "{text}"
    );
    fails(&["ls", "d.img#3"], 1, "partition 3 has no sectors");
    fails(
        &["ls", "d.img#4"],
        3,
        "partition 4 is an extended one, a frame for logical partitions: 5",
    );
    for number in ["0", "6", "4294967295"] {
        fails(
            &["ls", &format!("d.img#{number}")],
            1,
            "; there are: 1, 2, 4, 5",
        );
    }
    fails(
        &["ls", "d.img#1#2"],
        1,
        "'d.img#1#2': d.img#1 is a part of an image and has no parts itself",
    );
    fails(
        &["ls", "d.img@8M#2:/x"],
        1,
        "d.img@8388608 is a part of an image",
    );
    // A partition that has a partition table.
    put(&disk, 512, 20_000, &[(0x83, 8, 8), (0x83, 16, 8)]);
    fails(
        &["ls", "d.img#2"],
        3,
        "has partitions of its own, which start at byte 10244096, 10248192",
    );
    // A protective MBR, and nothing behind it.
    disk.write_all_at(&[0; 66], 446).expect("written");
    put(&disk, 512, 0, &[(0xee, 1, 131_071)]);
    for args in [&["ls", "d.img"][..], &["info", "d.img"]] {
        fails(
            args,
            3,
            "the partition table is damaged: sector 1 holds no GPT header; its backup: sector 131071",
        );
    }
    fails(
        &["ls", "d.img#1"],
        1,
        "the partition table is damaged: sector 1 holds no GPT header",
    );
    if !can_run(&[Need::Tool("sfdisk")]) {
        return;
    }
    sfdisk(&image, &format!("label: gpt\nstart=16384,size={sectors}\n"));
    put(&disk, 512, 0, &[(0xee, 1, 16383), (0x83, 16384, sectors)]);
    assert!(
        info(&image, "d.img").contains("warning: the MBR names partitions, too (a hybrid MBR)")
    );
    assert_eq!(
        ok(extern4(&image, ["cat", "d.img#1:/etc/hostname"])),
        b"tiny\n"
    );
    // Only its backup is left.
    disk.write_all_at(&[0; 34 * 512], 0).expect("written");
    assert_eq!(
        ok(extern4(&image, ["cat", "d.img#1:/etc/hostname"])),
        b"tiny\n"
    );
    let text = info(&image, "d.img");
    assert!(
        text.contains("warning: there is no protective MBR"),
        "{text}"
    );
    assert!(
        text.contains("warning: sector 1 holds no GPT header"),
        "{text}"
    );
}

/// A copy of the superblock helps where the superblock is damaged, and nowhere else.
#[test]
fn a_copy_of_the_superblock_is_named_where_it_helps() {
    const HINT: &str = "there is a copy of a superblock that it can be read by: --superblock 8193";
    let spec =
        extern4_testkit::image::ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let hurt = |image: &Image, at: u64, bytes: &[u8]| {
        File::options()
            .write(true)
            .open(&image.path)
            .expect("the image")
            .write_all_at(bytes, at)
            .expect("hurt");
    };
    let hints = |image: &Image, args: &[&str]| {
        let output = extern4(image, args);
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).contains(HINT)
    };
    // Wiped, an impossible value, a wrong checksum.
    let wiped = image.copy();
    wipe_superblock(&wiped);
    let impossible = image.copy();
    let checksum = image.copy();
    hurt(&impossible, 1024 + 0x18, &[99]);
    hurt(&checksum, 1024 + 0x78, b"another label");
    for image in [&wiped, &impossible, &checksum] {
        assert!(hints(image, &["ls", "disk.img"]));
    }
    let bmap = image.debugfs("bmap <8> 0\n");
    let journal: u64 = bmap
        .trim()
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .expect("a block");
    let bad_journal = image.copy();
    hurt(&bad_journal, journal * 1024, &[0; 64]);
    assert!(!hints(&bad_journal, &["mkdir", "disk.img:/d"]));
    let unsupported = image.copy();
    let cut_off = image.copy();
    unsupported.debugfs("feature FEATURE_I31\n");
    assert!(!hints(&unsupported, &["ls", "disk.img"]));
    File::options()
        .write(true)
        .open(&cut_off.path)
        .expect("the image")
        .set_len(12 << 20)
        .expect("cut off");
    assert!(!hints(&cut_off, &["mkdir", "disk.img:/d"]));
    partitioned(&image);
    assert!(!hints(&image, &["ls", "sdcard.img#1"]), "no volume at all");
    assert!(!hints(&image, &["ls", "sdcard.img"]));
}

/// Returns the bytes of `d.img` outside of a range.
fn outside(image: &Image, range: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = fs::read(image.scratch().join("d.img")).expect("a disk");
    bytes.drain(
        usize::try_from(range.start).expect("small")..usize::try_from(range.end).expect("small"),
    );
    bytes
}

/// A volume at a byte of a disk ends before the next thing on the disk.
fn ends_at_borders(image: &Image, fresh: &dyn Fn(), cases: &[(&str, u64, &str)]) {
    for &(place, end, says) in cases {
        for make in [
            &["mkfs", "-q", place][..],
            &["mkfs", "-q", "-O", "journal_dev", place],
            &["mkfs", "-q", "-d", "tree", place],
            &["build", "-q", place, "tree"],
        ] {
            fresh();
            let (_, start) = place.split_once('@').expect("a place");
            let start = start
                .strip_suffix('K')
                .and_then(|start| start.parse::<u64>().ok())
                .expect("KiB")
                << 10;
            let before = outside(image, start..end);
            ok(extern4(image, make));
            assert!(
                outside(image, start..end) == before,
                "{make:?} wrote outside"
            );
            if !make.contains(&"journal_dev") {
                ok(extern4(image, ["check", place]));
            }
            // A size that goes across is refused, by the plan alone, too.
            let across = MIB.min(64 * MIB - end);
            let size = format!("{}K", (end - start + across) >> 10);
            let sized: Vec<&str> = match make[0] {
                "build" => vec!["build", "-q", "-n", "--size", &size, place, "tree"],
                _ => [make, &["-n", &size]].concat(),
            };
            let errors = failed(&extern4(image, &sized), 1);
            assert!(
                errors.contains(says) && errors.contains("--force"),
                "{sized:?}: {errors}"
            );
            let written: Vec<&str> = sized.iter().copied().filter(|word| *word != "-n").collect();
            fresh();
            failed(&extern4(image, &written), 1);
            assert!(
                outside(image, start..end) == before,
                "{written:?} wrote outside"
            );
            ok(extern4(
                image,
                [&written[..1], &["--force"], &written[1..]].concat(),
            ));
        }
    }
}

#[test]
fn a_new_volume_at_an_offset_ends_before_the_next_partition() {
    let image = machine();
    fs::create_dir(image.scratch().join("tree")).expect("a directory");
    fs::write(image.scratch().join("tree/file"), [7; 70_000]).expect("a file");
    // Two primary partitions, and a frame with a logical one.
    let mbr = || {
        let disk = disk(&image, 64 * MIB, &[]);
        let mib = |mib: u32| mib * 2048;
        let frame = (0x0f, mib(34), mib(20));
        put(
            &disk,
            512,
            0,
            &[(0x83, mib(1), mib(8)), (0x83, mib(16), mib(8)), frame],
        );
        put(&disk, 512, 34 * 2048, &[(0x83, mib(1), mib(8))]);
        for mib in [16, 35] {
            disk.write_all_at(b"contents", mib * MIB).expect("written");
        }
    };
    ends_at_borders(
        &image,
        &mbr,
        &[
            (
                "d.img@1024K",
                9 * MIB,
                "go past the end of partition 1 at byte 9437184",
            ),
            (
                "d.img@2048K",
                9 * MIB,
                "go past the end of partition 1 at byte",
            ),
            (
                "d.img@9216K",
                16 * MIB,
                "overwrite partition 2, which begins at byte 16777216",
            ),
            (
                "d.img@24576K",
                34 * MIB,
                "overwrite the partition table at byte 35651584",
            ),
            (
                "d.img@44032K",
                54 * MIB,
                "go past the end of partition 3 at byte",
            ),
        ],
    );
    // To the end, where nothing is behind; and without a table.
    for (place, end) in [("d.img@56320K", 64 * MIB), ("e.img@2048K", 12 * MIB)] {
        mbr();
        File::create(image.scratch().join("e.img"))
            .expect("a file")
            .set_len(12 * MIB)
            .expect("its length");
        ok(extern4(
            &image,
            ["mkfs", "-q", "-b", "4096", "-O", "^has_journal", place],
        ));
        let json: serde_json::Value =
            serde_json::from_slice(&ok(extern4(&image, ["info", "--json", place])))
                .expect("an object");
        let start = place
            .split_once('@')
            .expect("a place")
            .1
            .trim_end_matches('K');
        let start: u64 = start.parse().expect("a number");
        assert_eq!(json["size_bytes"], end - (start << 10), "{place}: {json}");
    }
    // The table itself.
    mbr();
    for place in ["d.img@0", "d.img@34M"] {
        for args in [
            &["mkfs", "-q", place][..],
            &["build", "-q", place, "tree"],
            &["mkfs", "-n", place],
        ] {
            let errors = failed(&extern4(&image, args), 1);
            assert!(errors.contains("partition table"), "{args:?}: {errors}");
        }
    }
    ok(extern4(&image, ["mkfs", "-q", "--force", "d.img@0"]));
    if !can_run(&[Need::Tool("sfdisk")]) {
        return;
    }
    let gpt = || {
        drop(disk(&image, 64 * MIB, &[]));
        let ids = "label-id: 6C1F4B52-3A0E-4D0C-9C55-0D2A4F6B7E11\n";
        let id = "uuid=6C1F4B52-3A0E-4D0C-9C55-0D2A4F6B7E1";
        sfdisk(
            &image,
            &format!(
                "label: gpt\n{ids}start=2048,size=16384,{id}1\nstart=32768,size=16384,{id}2\n"
            ),
        );
    };
    let copy = 64 * MIB - 33 * 512;
    ends_at_borders(
        &image,
        &gpt,
        &[
            ("d.img@1024K", 9 * MIB, "go past the end of partition 1"),
            ("d.img@9216K", 16 * MIB, "overwrite partition 2"),
            (
                "d.img@24576K",
                copy,
                "overwrite the partition table at byte 67091968",
            ),
        ],
    );
    // A disk with nothing but the copy of its table is not empty.
    gpt();
    let disk = File::options()
        .write(true)
        .open(image.scratch().join("d.img"))
        .expect("the disk");
    disk.write_all_at(&vec![0; 1 << 20], 0).expect("written");
    let errors = failed(&extern4(&image, ["mkfs", "d.img"]), 1);
    assert!(errors.contains("the copy of a partition table"), "{errors}");
}

/// For a partition that is not there, or holds no volume, the message lists the partitions.
#[test]
fn a_part_that_is_not_there_lists_the_partitions() {
    let image = machine();
    partitioned(&image);
    fs::write(image.scratch().join("plain.img"), [0; 4096]).expect("a file");
    let fails = |place: &str, code: i32, says: &str| {
        let errors = failed(&extern4(&image, ["ls", place]), code);
        assert_eq!(errors, format!("extern4: ls: {says}\n"), "{place}");
    };
    let are = "sdcard.img#1, sdcard.img#2";
    fails(
        "sdcard.img#boot:/x",
        1,
        &format!(
            "'sdcard.img#boot': no partition has the name, label or UUID 'boot'; the partitions: {are}"
        ),
    );
    fails(
        "sdcard.img@3MiB:/",
        3,
        &format!(
            "'sdcard.img@3145728': no ext2, ext3 or ext4 file system starts at byte 3145728; the partitions: {are}"
        ),
    );
    fails(
        "sdcard.img@1X:/",
        1,
        &format!(
            "'sdcard.img@1X': '1X' is no offset: write a number of bytes, or one with K, M, G or T; the partitions: {are}"
        ),
    );
    fails(
        "plain.img#boot",
        1,
        "'plain.img#boot': no partition has the name, label or UUID 'boot'",
    );
    assert_eq!(
        ok(extern4(&image, ["cat", "sdcard.img@1MiB:/etc/hostname"])),
        b"tiny\n"
    );
    if !can_run(&[Need::Tool("sfdisk")]) {
        return;
    }
    disk(&image, 64 * MIB, &[8 * MIB]);
    sfdisk(
        &image,
        "label: gpt\nstart=16384,size=16384,name=\"the root\"\nstart=65536,size=2048\n",
    );
    fails(
        "d.img#boot",
        1,
        "'d.img#boot': no partition has the name, label or UUID 'boot'; the partitions: d.img#1 (the root), d.img#2",
    );
    // The list of a disk has the names, too.
    let row = |number: u32| {
        let text = info(&image, "d.img");
        text.lines()
            .find(|line| line.starts_with(&format!("d.img#{number}")))
            .expect("a row")
            .to_owned()
    };
    assert!(
        row(1).contains("  the root  ") && row(1).ends_with("  tiny"),
        "{}",
        row(1)
    );
    assert!(row(2).contains("  -  "), "{}", row(2));
    let json = ok(extern4(&image, ["info", "--json", "d.img"]));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    assert_eq!(json["partitions"][0]["name"], "the root");
}
