//! Tests of fast commit areas that the kernel wrote: the records are the ones that debugfs prints.

use extern4_disk::fast_commit::{Dentry, Record};
use extern4_testkit::crash;

use crate::oracle;

/// Returns the record as `logdump` prints it. `logdump` prints block numbers with a sign, and bytes
/// of the next record behind a name.
fn line(record: &Record) -> String {
    let signed = |number: u32| number.cast_signed();
    let dentry = |word: &str, dentry: &Dentry| {
        let name = String::from_utf8_lossy(&dentry.name);
        format!(
            "tag {word}, parent {}, ino {}, name \"{name}",
            dentry.parent, dentry.ino
        )
    };
    match record {
        Record::Inode { ino, .. } => format!("tag INODE, inode {ino}"),
        Record::AddRange { ino, range } => {
            let logical = signed(range.logical);
            let physical = range.physical;
            format!(
                "tag ADD_RANGE, inode {ino}, lblk {logical}, pblk {physical}, len {}",
                range.len
            )
        }
        Record::DelRange { ino, logical, len } => {
            format!(
                "tag DEL_RANGE, inode {ino}, lblk {}, len {}",
                signed(*logical),
                signed(*len)
            )
        }
        Record::Create(entry) => dentry("CREAT_DENTRY", entry),
        Record::Link(entry) => dentry("ADD_ENTRY", entry),
        Record::Unlink(entry) => dentry("DEL_ENTRY", entry),
        Record::Head { .. } | Record::Pad | Record::Tail { .. } => {
            panic!("{record:?} has no meaning")
        }
    }
}

#[test]
fn records_are_those_that_debugfs_prints() {
    let mut seen = 0;
    for spec in crash::SPECS
        .iter()
        .filter(|spec| spec.name.contains("fast_commit") && spec.can_run())
    {
        let image = spec.build();
        let (superblock, journal) = oracle::open(&image.path);
        let journal = journal.expect("a sound journal");
        let recovered = journal
            .recover(oracle::volume_blocks(&superblock))
            .expect("a sound log");
        let commits = recovered.fast_commits();
        let dump = oracle::debugfs(&image.path, "logdump");
        let area = dump
            .split_once("*** Fast Commit Area ***")
            .map_or("", |(_, area)| area);
        // Behind the last commit that goes with the log, there may be older ones.
        let tail = format!("tag TAIL, tid {}\n", commits.tid);
        let tails = area.matches(&tail).count();
        let area = area.rsplit_once(&tail).map_or("", |(valid, _)| valid);
        let structure = |line: &&str| {
            ["tag HEAD", "tag TAIL", "tag PAD"]
                .iter()
                .any(|tag| line.starts_with(tag))
        };
        let expected: Vec<_> = area
            .lines()
            .filter(|line| line.starts_with("tag ") && !structure(line))
            .collect();
        let records = commits.commits.concat();
        assert_eq!(records.len(), expected.len(), "{}", spec.name);
        for (record, expected) in records.iter().zip(expected) {
            assert!(
                expected.starts_with(&line(record)),
                "{}: {expected}, found {record:?}",
                spec.name
            );
        }
        assert_eq!(commits.commits.len(), tails, "{}", spec.name);
        println!(
            "{}: {} records in {tails} fast commits",
            spec.name,
            records.len()
        );
        seen += records.len();
    }
    assert!(
        seen > 0 || !crash::spec("fast_commit").can_run(),
        "no image has fast commits"
    );
}
