//! Changing the settings and the quotas of volumes through the library, in the order that keeps
//! them whole. `e2fsck` judges each result.

use std::path::{Path, PathBuf};

use extern4::quota::{GraceChange, Kind, LimitChange};
use extern4::tune::{
    Changes, Features, Fields, JournalSize, NewJournal, QuotaChange, addable_features,
    check_rewritable, is_rewriting_interrupted, removable_features,
};
use extern4::{Errno, ErrorKind, Volume};
use extern4_testkit::tools::{self, Need};
use tempfile::TempDir;

const HAS_JOURNAL: Features = Features::from_bits(4, 0, 0);

fn image() -> (TempDir, PathBuf) {
    let dir = tools::temporary("tuning");
    let path = dir.path().join("disk.img");
    let volume = Volume::create_new(&path, 32 << 20).expect("a volume");
    volume
        .superuser()
        .write("/file", "contents")
        .expect("a file");
    volume.close().expect("closed");
    (dir, path)
}

fn run(changes: &Changes, path: &Path) -> extern4::Result<()> {
    changes.run(&Volume::options(), path).map(drop)
}

fn judge(path: &Path) {
    if tools::can_run(&[Need::Tool("e2fsck")]) {
        tools::e2fsck(path).unwrap_or_else(|complaint| panic!("{complaint}"));
    }
    let volume = Volume::open(path).expect("a volume");
    let contents = volume.superuser().read("/file").expect("a file");
    assert_eq!(contents, b"contents");
}

#[test]
fn a_journal_goes_and_comes() {
    let (_dir, path) = image();
    let has_journal = || {
        let volume = Volume::open(&path).expect("a volume");
        volume.ext4().superblock().journal().is_some()
    };
    let without = Fields {
        without: HAS_JOURNAL,
        ..Fields::default()
    };
    let without = Changes {
        fields: without,
        ..Changes::default()
    };
    run(&without, &path).expect("no journal");
    judge(&path);
    assert!(!has_journal());
    // Nothing is left to take away.
    run(&without, &path).expect("no journal");
    let with = Changes {
        journal: Some(NewJournal {
            size: Some(JournalSize::Mebibytes(4)),
            ..NewJournal::default()
        }),
        ..Changes::default()
    };
    run(&with, &path).expect("a journal");
    judge(&path);
    assert!(has_journal());
    let again = run(&with, &path).expect_err("two journals");
    assert_eq!(again.kind(), ErrorKind::Os(Errno::EEXIST));
}

#[test]
fn a_contradiction_changes_nothing() {
    let (_dir, path) = image();
    let before = std::fs::read(&path).expect("an image");
    let fields = Fields {
        label: Some(b"new".to_vec()),
        ..Fields::default()
    };
    let wrong = [
        Changes {
            fields: Fields {
                without: HAS_JOURNAL,
                ..fields.clone()
            },
            journal: Some(NewJournal::default()),
            ..Changes::default()
        },
        Changes {
            // 64bit moves descriptors.
            fields: Fields {
                features: Features::from_bits(0, 0x80, 0),
                ..fields.clone()
            },
            ..Changes::default()
        },
        Changes {
            fields: Fields {
                // extents
                without: Features::from_bits(0, 0x40, 0),
                ..fields.clone()
            },
            ..Changes::default()
        },
        Changes {
            fields: fields.clone(),
            reserved_percent: Some(51.0),
            ..Changes::default()
        },
    ];
    for changes in &wrong {
        let error = changes.check().expect_err("a contradiction");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{changes:?}");
        let volume = Volume::open(&path).expect("a volume");
        let error = changes.apply(&volume).expect_err("a contradiction");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{changes:?}");
    }
    let too_many = Changes {
        fields: Fields {
            reserved_blocks: Some(1 << 20),
            ..fields
        },
        ..Changes::default()
    };
    let volume = Volume::open(&path).expect("a volume");
    let error = too_many.apply(&volume).expect_err("too many blocks");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    drop(volume);
    let after = std::fs::read(&path).expect("an image");
    assert!(before == after, "the image was written to");
}

#[test]
fn a_volume_that_is_open_for_reading_stays() {
    let (_dir, path) = image();
    let volume = Volume::open(&path).expect("a volume");
    let changes = Changes {
        reserved_percent: Some(1.0),
        ..Changes::default()
    };
    let error = changes.apply(&volume).expect_err("for reading");
    assert_eq!(error.errno(), Errno::EROFS);
}

#[test]
fn checksums_are_rewritten_once_the_volume_is_closed() {
    let (_dir, path) = image();
    let seed = || {
        let volume = Volume::open(&path).expect("a volume");
        check_rewritable(&volume).expect("fit for it");
        let features = volume.ext4().superblock().features().to_string();
        features.contains("metadata_csum_seed")
    };
    let fields = Fields {
        uuid: Some([7; 16]),
        ..Fields::default()
    };
    let rewriting = Changes {
        fields: fields.clone(),
        rewrites_checksums: true,
        ..Changes::default()
    };
    let keeping = Changes {
        fields: Fields {
            uuid: Some([8; 16]),
            ..fields
        },
        ..Changes::default()
    };
    run(&keeping, &path).expect("a UUID");
    assert!(seed());
    run(&rewriting, &path).expect("a UUID");
    assert!(!seed());
    assert!(!is_rewriting_interrupted(&Volume::options(), &path));
    assert_eq!(Volume::open(&path).expect("a volume").uuid(), [7; 16]);
    judge(&path);
}

#[test]
fn the_rest_waits_until_the_volume_is_free() {
    let (_dir, path) = image();
    let options = Volume::options();
    let changes = Changes {
        fields: Fields {
            without: HAS_JOURNAL,
            ..Fields::default()
        },
        ..Changes::default()
    };
    let volume = Volume::options().write(true).open(&path).expect("a volume");
    let applied = changes.apply(&volume).expect("applied");
    assert!(applied.is_unfinished(&options) && applied.read_only_features().is_empty());
    let busy = applied.finish(&options, &path).expect_err("it is in use");
    assert_eq!(busy.errno(), Errno::EBUSY);
    volume.close().expect("closed");
    applied.finish(&options, &path).expect("finished");
    judge(&path);
}

#[test]
fn limits_and_times_of_owners_are_set_one_by_one() {
    let (_dir, path) = image();
    let changes = Changes {
        quotas: QuotaChange {
            with: vec![Kind::User, Kind::Group],
            ..QuotaChange::default()
        },
        ..Changes::default()
    };
    run(&changes, &path).expect("quotas");
    let volume = Volume::options().write(true).open(&path).expect("a volume");
    let quotas = volume.quotas();
    assert_eq!(quotas.kinds(), [Kind::User, Kind::Group]);
    let space = LimitChange {
        space_soft: Some(1 << 20),
        ..LimitChange::default()
    };
    let inodes = LimitChange {
        inodes_hard: Some(9),
        ..LimitChange::default()
    };
    quotas.set_limits(Kind::User, 1000, &space).expect("set");
    quotas.set_limits(Kind::User, 1000, &inodes).expect("set");
    let found = quotas.of(Kind::User, 1000).expect("an entry");
    assert_eq!((found.space.soft, found.inodes.hard), (1 << 20, 9));
    let ids: Vec<u32> = quotas
        .all(Kind::User)
        .map(|entry| entry.expect("an entry").id)
        .collect();
    assert_eq!(ids, [0, 1000]);
    let change = GraceChange {
        inodes: Some(60),
        ..GraceChange::default()
    };
    quotas.set_grace(Kind::Group, change).expect("set");
    let grace = quotas.grace(Kind::Group).expect("read").expect("kept");
    assert_eq!((grace.space, grace.inodes), (7 * 86_400, 60));
    // Projects have no quota here.
    assert!(quotas.grace(Kind::Project).expect("read").is_none());
    quotas.set_grace(Kind::Project, change).expect("nothing");
    assert!(quotas.set_limits(Kind::Project, 5, &inodes).is_err());
    assert_eq!(quotas.of(Kind::Project, 5).expect("zeroes").id, 5);
    let used = quotas.of(Kind::User, 0).expect("an entry");
    quotas
        .correct_usage(Kind::User, 0, Some(used.space.used), None)
        .expect("corrected");
    assert_eq!(quotas.of(Kind::User, 0).expect("an entry"), used);
    volume.close().expect("closed");
    judge(&path);
}

#[test]
fn features_that_go_can_come_back() {
    let addable: Vec<&str> = addable_features().collect();
    assert!(removable_features().all(|name| addable.contains(&name)));
}
