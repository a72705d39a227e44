//! `info`, `inode`, `block` and `bench`.

use extern4_testkit::tools::debugfs;
use serde_json::Value;

use crate::run::{extern4, failed, machine, ok};

fn json(output: &[u8]) -> Value {
    serde_json::from_slice(output)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(output)))
}

#[test]
fn info_tells_what_dumpe2fs_tells() {
    let image = machine();
    let theirs = extern4_testkit::tools::run("dumpe2fs", ["-h".as_ref(), image.path.as_os_str()]);
    let theirs = String::from_utf8_lossy(&theirs).into_owned();
    let field = |name: &str| {
        let line = theirs
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("dumpe2fs tells {name}"))
            .trim()
            .to_owned()
    };
    let ours = json(&ok(extern4(&image, ["info", "--json", "disk.img"])));
    for (key, name) in [
        ("label", "Filesystem volume name"),
        ("uuid", "Filesystem UUID"),
        ("blocks", "Block count"),
        ("reserved_blocks", "Reserved block count"),
        ("free_blocks", "Free blocks"),
        ("inodes", "Inode count"),
        ("free_inodes", "Free inodes"),
        ("block_size", "Block size"),
        ("first_block", "First block"),
        ("blocks_per_group", "Blocks per group"),
        ("inodes_per_group", "Inodes per group"),
        ("groups_per_flex", "Flex block group size"),
        ("first_inode", "First inode"),
        ("inode_size", "Inode size"),
        ("journal_inode", "Journal inode"),
        ("directory_hash", "Default directory hash"),
        ("hash_seed", "Directory Hash Seed"),
        ("state", "Filesystem state"),
    ] {
        let ours = match &ours[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(ours, field(name), "{key}");
    }
    let features: Vec<_> = ours["features"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|name| name.as_str().unwrap_or(""))
        .collect();
    assert_eq!(features.join(" "), field("Filesystem features"));
    let options: Vec<_> = ours["default_mount_options"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|name| name.as_str().unwrap_or(""))
        .collect();
    assert_eq!(options.join(" "), field("Default mount options"));
    let text = String::from_utf8(ok(extern4(&image, ["info", "-g", "disk.img"]))).expect("text");
    assert!(
        text.lines()
            .any(|line| line.starts_with("Label:") && line.ends_with(" tiny")),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("0 ") && line.contains("ITABLE_ZEROED")),
        "{text}"
    );
}

#[test]
fn inode_shows_the_blocks_debugfs_shows() {
    let image = machine();
    let ours = json(&ok(extern4(
        &image,
        ["inode", "--json", "disk.img:/etc/passwd"],
    )));
    let theirs = debugfs(&image.path, false, "blocks /etc/passwd\n");
    let block = ours["blocks"][0]["physical"].as_u64().expect("a block");
    assert!(
        theirs
            .split_whitespace()
            .any(|word| word == block.to_string()),
        "{block} and {theirs}"
    );
    let text =
        String::from_utf8(ok(extern4(&image, ["inode", "-n", "8", "disk.img"]))).expect("text");
    assert!(
        text.contains("regular file") && text.contains("Extents"),
        "{text}"
    );
    failed(&extern4(&image, ["inode", "-n", "99999999", "disk.img"]), 1);
}

#[test]
fn block_knows_its_owner() {
    let image = machine();
    let inode = json(&ok(extern4(
        &image,
        ["inode", "--json", "disk.img:/etc/passwd"],
    )));
    let block = inode["blocks"][0]["physical"]
        .as_u64()
        .expect("a block")
        .to_string();
    let ours = json(&ok(extern4(
        &image,
        ["block", "--json", "disk.img", &block],
    )));
    assert_eq!(ours["path"], "/etc/passwd");
    assert_eq!(ours["use"], "data");
    assert_eq!(ours["in_use"], true);
    let text = String::from_utf8(ok(extern4(
        &image,
        ["block", "disk.img", "0", &block, "-x"],
    )))
    .expect("text");
    assert!(
        text.starts_with("block 0: group 0, in use: superblock or group descriptors\n"),
        "{text}"
    );
    assert!(text.contains("72 6f 6f 74 3a 78 3a 30"), "{text}");
    let raw = ok(extern4(&image, ["block", "--raw", "disk.img", &block]));
    assert!(raw.starts_with(b"root:x:0:0:") && raw.len() == 4096);
    let record = inode["record_block"].as_u64().expect("a block").to_string();
    let ours = json(&ok(extern4(
        &image,
        ["block", "--json", "disk.img", &record],
    )));
    assert_eq!(ours["use"], "inode_table");
    failed(&extern4(&image, ["block", "disk.img", "999999"]), 1);
}

#[test]
fn check_finds_nothing_wrong_with_a_sound_volume() {
    let image = machine();
    let text = String::from_utf8(ok(extern4(&image, ["check", "disk.img"]))).expect("text");
    assert!(
        text.starts_with("disk.img: nothing is wrong: ") && text.lines().count() == 1,
        "{text}"
    );
    let summary = json(&ok(extern4(&image, ["check", "--json", "disk.img"])));
    let info = json(&ok(extern4(&image, ["info", "--json", "disk.img"])));
    let number = |object: &Value, key: &str| {
        object[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} is a number"))
    };
    assert_eq!(number(&summary, "faults"), 0);
    assert_eq!(
        number(&summary, "inodes_used"),
        number(&info, "inodes") - number(&info, "free_inodes")
    );
    assert_eq!(
        number(&summary, "blocks_used"),
        number(&info, "blocks") - number(&info, "free_blocks")
    );
}

#[test]
fn check_tells_the_place_of_a_fault() {
    let image = machine();
    let inode = json(&ok(extern4(&image, ["inode", "--json", "disk.img:/etc"])));
    let block = inode["blocks"][0]["physical"].as_u64().expect("a block");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 64], block * 4096 + 100)
        .expect("a directory block");
    let output = extern4(&image, ["check", "disk.img"]);
    assert_eq!(failed(&output, 4), "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("block {block}")), "{text}");
    let output = extern4(&image, ["check", "--json", "disk.img"]);
    failed(&output, 4);
    let lines: Vec<_> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(json)
        .collect();
    let (summary, faults) = lines.split_last().expect("a summary");
    assert!(
        faults
            .iter()
            .any(|fault| fault["block"] == block && fault["ino"] == inode["ino"]),
        "{faults:?}"
    );
    assert_eq!(summary["faults"].as_u64(), Some(faults.len() as u64));
    let output = extern4(&image, ["check", "-q", "disk.img"]);
    failed(&output, 4);
    assert_eq!(output.stdout, b"");
}

#[test]
fn bench_measures_walks() {
    let image = machine();
    let args = [
        "bench",
        "walk",
        "disk.img:/home/ann/notes.txt",
        "--seconds",
        "0.05",
        "--threads",
        "2",
        "--json",
    ];
    let ours = json(&ok(extern4(&image, args)));
    assert_eq!(ours["op"], "walk");
    assert_eq!(ours["threads"], 2);
    assert!(ours["ops_per_s"].as_f64().expect("a number") > 1000.0);
    assert!(ours["ns_per_op"].as_f64().expect("a number") > 1.0);
    for key in ["allocs_per_op", "fast_exec_hit_rate", "restarts"] {
        assert!(ours[key].is_number(), "{key}");
    }
    failed(
        &extern4(
            &image,
            ["bench", "walk", "disk.img:/gone", "--seconds", "0.05"],
        ),
        1,
    );
    let gone = [
        "bench",
        "walk",
        "disk.img:/gone",
        "--seconds",
        "0.05",
        "--missing",
        "--json",
    ];
    assert_eq!(json(&ok(extern4(&image, gone)))["missing"], true);
    let there = [
        "bench",
        "walk",
        "disk.img:/home",
        "--seconds",
        "0.05",
        "--missing",
    ];
    failed(&extern4(&image, there), 1);
}
