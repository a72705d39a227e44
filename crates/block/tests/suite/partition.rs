//! Partition tables written by sfdisk and sgdisk, read by us and by sfdisk, and tables with bytes turned over.
//!
//! The tools come from Debian's packages `fdisk` and `gdisk`. A test whose tool is missing says so and passes.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extern4_block::partition::{DiskId, Fault, Kind, Table};
use extern4_block::{BlockDevice, FileDevice, MemoryDevice};
use proptest::prelude::*;

/// An image file in the temporary directory, gone when this is dropped.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, mebibytes: u64) -> Self {
        let path = std::env::temp_dir().join(format!("extern4-partition-{}-{name}.raw", std::process::id()));
        fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        Self(path)
    }

    fn table(&self) -> Table {
        Table::read(&FileDevice::open(&self.0).unwrap()).unwrap().expect("a table")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The tool, if this machine has it.
fn tool(name: &str) -> Option<Command> {
    let found = ["/usr/sbin", "/sbin", "/usr/bin"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|p| p.exists());
    if found.is_none() {
        eprintln!("not tested: {name} is not installed");
    }
    found.map(Command::new)
}

/// Has sfdisk write the table that `script` describes; false if there is no sfdisk.
fn sfdisk(image: &Image, script: &str) -> bool {
    let Some(mut command) = tool("sfdisk") else { return false };
    let mut child = command.arg("-q").arg(&image.0).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    true
}

/// A line of sfdisk's dump: number, first sector, sectors, type, identifier, name.
type Row = (u32, u64, u64, String, Option<String>, Option<String>);

/// Text with sfdisk's `\\xc3` for each byte beyond ASCII put back.
fn unescape(text: &str) -> String {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

/// The table as sfdisk reads it.
fn dump(image: &Image) -> Vec<Row> {
    let output = tool("sfdisk").unwrap().arg("-d").arg(&image.0).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let prefix = image.0.to_str().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(" : "));
    rows.map(|(number, fields)| {
        let field = |key: &str| {
            let value =
                fields.split(", ").find_map(|field| field.trim().strip_prefix(key)?.strip_prefix('='));
            value.map(|value| unescape(value.trim().trim_matches('"')).to_lowercase())
        };
        let count = |key| field(key).unwrap().parse().unwrap();
        (
            number.trim().parse().unwrap(),
            count("start"),
            count("size"),
            field("type").unwrap(),
            field("uuid"),
            field("name"),
        )
    })
    .collect()
}

fn ours(table: &Table) -> Vec<Row> {
    let unit = u64::from(table.sector_bytes);
    let rows = table.partitions.iter().map(|partition| {
        let kind = match partition.kind {
            Kind::Mbr(byte) => format!("{byte:x}"),
            Kind::Gpt(id) => id.to_string(),
        };
        let id = partition.id.map(|id| id.to_string());
        let name = partition.name.as_ref().map(|name| name.to_lowercase());
        (partition.number, partition.start_bytes / unit, partition.len_bytes / unit, kind, id, name)
    });
    rows.collect()
}

#[test]
fn mbr_with_logical_partitions_reads_as_sfdisk_does() {
    for (name, script) in [
        ("primary", "label: dos\nlabel-id: 0x12345678\n2048,4096,L,*\n8192,2048,82\n,,7\n"),
        ("gap", "label: dos\n3: start=2048, size=4096, type=83\n"),
        (
            "logical",
            "label: dos\n2048,4096,83\n8192,90000,5\n10240,2048,83\n14336,4096,82\n20480,8192,83\n40960,2048,8e\n",
        ),
        ("lba", "label: dos\n4: start=4096, size=100000, type=f\n5: start=8192, size=2048, type=83\n"),
        // A logical partition before the others on the disk: the chain runs backwards.
        ("backwards", "label: dos\n2048,100000,5\n40960,2048,83\n20480,2048,83\n4096,2048,83\n"),
    ] {
        let image = Image::new(name, 64);
        if !sfdisk(&image, script) {
            return;
        }
        let table = image.table();
        assert!(table.faults.is_empty(), "{name}: {:?}", table.faults);
        assert_eq!(ours(&table), dump(&image), "{name}");
        if name == "primary" {
            assert_eq!(table.id, DiskId::Mbr(0x1234_5678));
        }
    }
}

#[test]
fn gpt_reads_as_sfdisk_does() {
    let image = Image::new("gpt", 64);
    let script = "label: gpt\nstart=2048,size=4096,type=U,name=\"EFI\"\n5: start=8192,size=2048,type=L,name=\"Größe 1\"\ntype=L\n";
    if !sfdisk(&image, script) {
        return;
    }
    let table = image.table();
    assert!(table.faults.is_empty(), "{:?}", table.faults);
    assert_eq!(ours(&table), dump(&image));
    assert_eq!(table.partition(1).unwrap().kind.name(), Some("EFI system"));
    assert_eq!(table.partition(5).unwrap().kind.to_string(), "Linux");
    assert!(matches!(table.id, DiskId::Gpt(_)));
}

#[test]
fn a_lost_first_gpt_is_read_from_its_backup() {
    let image = Image::new("backup", 16);
    let Some(mut sgdisk) = tool("sgdisk") else { return };
    let status = sgdisk
        .args(["-n", "1:2048:+4M", "-n", "2:0:0", "-c", "2:last"])
        .arg(&image.0)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let whole = image.table();
    assert_eq!((whole.partitions.len(), whole.faults.len()), (2, 0));
    let mut bytes = fs::read(&image.0).unwrap();
    bytes[512..34 * 512].fill(0);
    let table = Table::read(&MemoryDevice::new(bytes)).unwrap().unwrap();
    assert_eq!(table.partitions, whole.partitions);
    assert!(matches!(table.faults[..], [Fault::NoHeader { lba: 1 }]));
}

/// Where the samples have their tables: the record, the header, entries, and the chain of records.
const TABLES: [Range<usize>; 4] = [440..512, 512..604, 1024..1280, 33 * 1024..52 * 1024];

/// A small image with a table of each kind.
fn samples() -> Vec<Vec<u8>> {
    let scripts = [
        "label: dos\ngrain: 512\nstart=2,size=64,type=83\nstart=66,type=5\nstart=68,size=32,type=83\nstart=102,size=32,type=83\n",
        "label: gpt\ngrain: 512\nsize=32,type=L\nsize=32,type=U\n",
    ];
    let samples = scripts.iter().enumerate().filter_map(|(i, script)| {
        let image = Image::new(&format!("sample{i}"), 1);
        sfdisk(&image, script).then(|| fs::read(&image.0).unwrap())
    });
    samples.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn turned_over_bytes_never_yield_a_partition_outside(
        sample in any::<prop::sample::Index>(),
        turns in prop::collection::vec((0..TABLES.len(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop_oneof![3 => Just(usize::MAX), 1 => 0..1usize << 20],
    ) {
        static SAMPLES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let samples = SAMPLES.get_or_init(samples);
        if samples.is_empty() {
            return Ok(());
        }
        let mut bytes = sample.get(samples).clone();
        for (table, at, byte) in turns {
            bytes[TABLES[table].start + at.index(TABLES[table].len())] ^= byte;
        }
        bytes.truncate(cut);
        let device = MemoryDevice::new(bytes);
        if let Ok(Some(table)) = Table::read(&device) {
            for partition in table.partitions {
                prop_assert!(partition.len_bytes > 0);
                prop_assert!(partition.start_bytes + partition.len_bytes <= device.size_bytes());
            }
        }
    }
}
