//! `bench IMAGE`: its measures and sides, and that it leaves nothing behind.

use std::fs;
use std::io::Result;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};
use serde_json::Value;

use crate::mounting::{Served, as_user, copy_command, is_mounted, users_can_mount};
use crate::run::{command, extern4, failed, ok, partitioned, tool};

const MEASURES: [&str; 11] = [
    "stat",
    "open-close",
    "missing-name",
    "readdir",
    "walk",
    "read",
    "create-unlink",
    "rename",
    "chmod",
    "setxattr",
    "write-fsync",
];
/// The measures that change nothing.
const READING: &[&str] = MEASURES.split_at(6).0;
/// Options for a short run.
pub(crate) const SHORT: [&str; 6] = ["--seconds", "0.002", "--rounds", "2", "--threads", "1,2"];

/// Makes a volume with a few files, one of them large.
fn volume() -> Image {
    fn fill(root: &Path) -> Result<()> {
        fs::create_dir_all(root.join("usr/include"))?;
        for number in 0..200 {
            fs::write(root.join(format!("usr/include/{number}.h")), "text")?;
        }
        fs::write(root.join("large"), vec![b'x'; 5 << 20])
    }
    ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"])
        .from_directory(&[fill])
        .build()
}

/// Runs the suite on `place`, with the options for a short run.
fn bench(image: &Image, place: &str, more: &[&str]) -> Output {
    extern4(image, [&["bench", place], &SHORT[..], more].concat())
}

fn json(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asserts that every row has figures of every available side, or the reason why not; the rows
/// named have them.
#[track_caller]
fn complete(report: &Value, measured: &[&str], sides: &[&str]) {
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows
        .iter()
        .map(|row| (row["measure"].as_str(), row["threads"].as_u64()))
        .collect();
    let expected = MEASURES
        .iter()
        .flat_map(|name| [(Some(*name), Some(1)), (Some(*name), Some(2))]);
    assert_eq!(names, expected.collect::<Vec<_>>());
    for row in rows {
        let name = row["measure"].as_str().expect("a name");
        assert_eq!(row["lacks"].is_null(), measured.contains(&name), "{row}");
        for side in row["sides"].as_array().expect("sides") {
            let there =
                measured.contains(&name) && sides.iter().any(|known| side["side"] == *known);
            assert_eq!(
                side["median"].as_f64().is_some_and(|figure| figure > 0.0),
                there,
                "{name}: {side}"
            );
            assert_eq!(
                side["samples"].as_array().map(Vec::len),
                Some(if there { 2 } else { 0 }),
                "{side}"
            );
            assert!(side["failure"].is_null(), "{side}");
            let compared = there && sides.contains(&"kernel") && side["side"] != "kernel";
            assert_eq!(side["ratio_to_kernel"].is_f64(), compared, "{name}: {side}");
        }
    }
    for side in report["sides"].as_array().expect("sides") {
        assert_eq!(
            side["lacks"].is_null(),
            sides.iter().any(|known| side["side"] == *known),
            "{side}"
        );
    }
}

/// Asserts that only these names are in the image's directory, and no mount or loop device of
/// anything there.
#[track_caller]
fn nothing_is_left(image: &Image, names: &[&str]) {
    let entries = fs::read_dir(image.scratch()).expect("a directory");
    let mut left: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, names);
    assert!(!is_mounted(image) && !is_attached(image));
}

/// Returns the sides that this user has on this machine; prints a note if some are missing.
fn sides() -> Vec<&'static str> {
    let mut sides = vec!["library"];
    if can_run(&[Need::Fuse]) {
        sides.push("mount");
    }
    if can_run(&[Need::Mount]) {
        sides.push("kernel");
    }
    sides
}

#[test]
fn the_suite_compares_all_there_is_and_leaves_nothing() {
    let image = volume();
    let before = fs::read(&image.path).expect("an image");
    let report = json(&ok(bench(&image, "disk.img", &["--json"])));
    complete(&report, &MEASURES, &sides());
    assert_eq!(report["faults"], 0);
    assert!(
        report["volume"]["file"]
            .as_str()
            .is_some_and(|path| path.starts_with("usr/include/"))
    );
    assert_eq!(report["volume"]["directory"], "./usr/include");
    assert_eq!(report["volume"]["large_file"], "large");
    assert!(
        report["volume"]["features"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == "extent"))
    );
    assert!(fs::read(&image.path).expect("an image") == before);
    nothing_is_left(&image, &["disk.img"]);
}

#[test]
fn people_get_a_table_and_a_chart() {
    let image = volume();
    let text =
        |more: &[&str]| String::from_utf8(ok(bench(&image, "disk.img", more))).expect("text");
    let shown = text(&["--on", "library"]);
    for expected in [
        "in process",
        "readdir, 200 names",
        "MiB/s",
        "####",
        "nothing is wrong with it",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(
        !shown.contains('\x1b')
            && !shown.contains("/ kernel")
            && !shown.contains("kernel")
            && !shown.contains("failed"),
        "{shown}"
    );
    assert!(text(&["--on", "library", "--color"]).contains("\x1b[32m####"));
}

#[test]
fn a_partition_is_measured_and_one_without_files() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4"]).build();
    let disk = partitioned(&image);
    let before = fs::read(&disk).expect("a disk");
    let report = json(&ok(bench(&image, "sdcard.img#2", &["--json"])));
    complete(&report, &MEASURES, &sides());
    assert_eq!(report["volume"]["bytes"], 64 << 20);
    assert!(fs::read(&disk).expect("a disk") == before);
    nothing_is_left(&image, &["disk.img", "sdcard.img"]);
}

/// Returns the report of a run where there is room for 1 MiB.
#[track_caller]
fn bench_without_room(image: &Image) -> Value {
    let small = image.scratch().join("small");
    fs::create_dir(&small).expect("a directory");
    tool(
        image.scratch(),
        "mount",
        ["-t", "tmpfs", "-o", "size=1M", "none", "small"],
    );
    let mut run = command();
    run.current_dir(image.scratch())
        .env("TMPDIR", &small)
        .args(["bench", "disk.img", "--json"])
        .args(SHORT);
    let run = run.output();
    let left = fs::read_dir(&small).expect("a directory").count();
    tool(image.scratch(), "umount", ["small"]);
    assert_eq!(left, 0);
    json(&ok(run.expect("the command runs")))
}

#[test]
fn without_room_for_a_copy_only_reading_is_measured() {
    if !can_run(&[Need::Mount]) {
        return;
    }
    let report = bench_without_room(&volume());
    complete(&report, READING, &sides());
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("nothing is written: a copy takes") && notes.contains("TMPDIR"),
        "{notes}"
    );
    assert_eq!(
        (&report["faults"], &report["copy_in"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn a_crashed_image_stays_as_it_is() {
    if !can_run(&[Need::Mount, Need::Fuse]) {
        return;
    }
    let image = volume();
    let served = Served::new(&image, &[]);
    fs::write(served.path("file"), "text").expect("a file");
    tool(&served.dir, "sync", ["-f", "."]);
    let crashed = image.copy();
    served.umount();
    let before = fs::read(&crashed.path).expect("an image");
    // The side that opens a copy first recovers it.
    complete(
        &json(&ok(bench(&crashed, "disk.img", &["--json"]))),
        &MEASURES,
        &sides(),
    );
    // On the image itself the kernel would have to replay the journal.
    let report = bench_without_room(&crashed);
    complete(&report, READING, &["library", "mount"]);
    assert!(
        report["sides"][2]["lacks"]
            .as_str()
            .is_some_and(|why| why.contains("journal")),
        "{report}"
    );
    assert!(fs::read(&crashed.path).expect("an image") == before);
}

#[test]
fn a_volume_that_cannot_be_written_is_only_read() {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-O", "bigalloc"]).build();
    let report = json(&ok(bench(
        &image,
        "disk.img",
        &["--json", "--on", "library"],
    )));
    assert!(
        report["notes"].to_string().contains("bigalloc"),
        "{}",
        report["notes"]
    );
    assert!(
        report["rows"][6]["sides"][0]["median"].is_f64() && report["rows"][16]["lacks"].is_string()
    );
    nothing_is_left(&image, &["disk.img"]);
}

#[test]
fn a_damaged_volume_is_not_given_to_the_kernel() {
    let image = volume();
    // The group's bitmap marks all blocks as free.
    let stats = image.debugfs("stats");
    let bitmap: u64 = stats
        .lines()
        .find_map(|line| {
            line.split_once("block bitmap at ")?
                .1
                .split(',')
                .next()?
                .trim()
                .parse()
                .ok()
        })
        .expect("debugfs tells where");
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("an image");
    file.write_all_at(&[0; 4096], bitmap * 4096)
        .expect("it is damaged");
    drop(file);
    let run = bench(&image, "disk.img", &["--json"]);
    let said = failed(&run, 4);
    assert!(said.contains("damaged"), "{said}");
    let report = json(&run.stdout);
    let there: Vec<_> = sides()
        .into_iter()
        .filter(|side| *side != "kernel")
        .collect();
    complete(&report, READING, &there);
    nothing_is_left(&image, &["disk.img"]);
}

#[test]
fn a_user_has_no_column_of_the_kernel() {
    if !users_can_mount() {
        return;
    }
    let image = volume();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    chown(&image.path, Some(1000), None).expect("its owner");
    let script = format!("./extern4 bench disk.img --json {}", SHORT.join(" "));
    let report = json(&ok(as_user(1000, scratch, &script)
        .output()
        .expect("setpriv")));
    complete(&report, &MEASURES, &["library", "mount"]);
    assert!(
        report["sides"][2]["lacks"]
            .as_str()
            .is_some_and(|why| why.contains("root")),
        "{report}"
    );
    nothing_is_left(&image, &["disk.img", "extern4"]);
}

/// Returns whether a loop device is attached to a file in the image's directory.
fn is_attached(image: &Image) -> bool {
    let path = image.scratch().to_str().expect("a plain name");
    let backing =
        |device: fs::DirEntry| fs::read_to_string(device.path().join("loop/backing_file"));
    let mut devices = fs::read_dir("/sys/block").expect("devices").flatten();
    devices.any(|device| backing(device).is_ok_and(|file| file.contains(path)))
}

#[test]
fn a_benchmark_that_is_ended_leaves_no_mount() {
    if !can_run(&[Need::Root]) {
        return;
    }
    let ends = [
        ("-TERM", "mount"),
        ("-INT", "mount"),
        ("-KILL", "mount"),
        ("-TERM", "kernel"),
        ("-KILL", "kernel"),
    ];
    let sides = sides();
    for (signal, side) in ends.into_iter().filter(|(_, side)| sides.contains(side)) {
        let is_there = if side == "mount" {
            is_mounted
        } else {
            is_attached
        };
        let image = volume();
        let mut child = command();
        child.current_dir(image.scratch()).args([
            "bench",
            "disk.img",
            "--seconds",
            "2",
            "--on",
            side,
        ]);
        let child = child
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        within_a_minute("it is mounted", || is_there(&image));
        tool(image.scratch(), "kill", [signal, &child.id().to_string()]);
        let output = child.wait_with_output().expect("it ends");
        if signal == "-KILL" {
            // The kernel and the process that serves the mount do that.
            within_a_minute("it is unmounted", || {
                !is_mounted(&image) && !is_attached(&image)
            });
        } else {
            let said = failed(&output, 1);
            assert!(said.contains("ended before all was measured"), "{said}");
            nothing_is_left(&image, &["disk.img"]);
        }
    }
}

#[track_caller]
fn within_a_minute(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let image = volume();
    fs::write(image.scratch().join("zeroes"), [0; 8192]).expect("a file");
    let check =
        |args: &[&str], code| drop(failed(&extern4(&image, [&["bench"], args].concat()), code));
    check(&[], 2);
    check(&["disk.img:/usr"], 2);
    check(&["disk.img", "--as", "1000:1000"], 2);
    check(&["disk.img", "--threads", "0"], 2);
    check(&["disk.img", "--on", "nowhere"], 2);
    check(&["gone.img"], 1);
    check(&["zeroes"], 3);
    nothing_is_left(&image, &["disk.img", "zeroes"]);
}
