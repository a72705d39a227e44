//! The journal of a volume that was made over another one, whose log is still there: no record of
//! that is replayed. Also, how journals get checksums, and that opening a volume does not read its
//! log.

use std::sync::Arc;

use extern4_block::{FileDevice, FileOptions, RecordDevice};
use extern4_disk::journal::{ChecksumVersion, Compat, Incompat, JournalSuperblock};
use extern4_ext4::{DataMode, Ext4, OpenOptions};
use extern4_testkit::tools::{self, LoopDevice, Need};
use extern4_vfs::{FileSystem, OpenFlags};

use crate::memory::number;
use crate::model::{Random, open, session};
use crate::recovery::{Pair, can_run, format, names, utf8};

/// Makes files, each durable at once, and calls `each` with the number of files that are there.
fn fill(pair: &Pair, prefix: &str, data: Option<DataMode>, count: u64, each: &mut dyn FnMut(u64)) {
    let options = OpenOptions {
        data,
        ..pair.options()
    };
    let fs =
        Ext4::open_for_writing(Arc::clone(&pair.volume) as _, &options).expect("the volume opens");
    let fs = Arc::new(fs);
    let root = session(Arc::clone(&fs) as _);
    for at in 1..=count {
        let path = format!("/{prefix}{at}");
        let file =
            open(&root, &path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("there is room");
        file.write_at(path.repeat(40).as_bytes(), 0)
            .expect("there is room");
        drop(file);
        fs.sync().expect("durable");
        each(at);
    }
}

/// A new volume where `former` was, whose log is left as it was.
fn over(former: &Pair, features: &str, same_uuid: bool) -> Pair {
    let dir = tools::temporary("extern4-");
    let (volume, journal) = former.save(dir.path());
    let uuid = Ext4::open(Arc::clone(&former.volume) as _, &former.options()).expect("it opens");
    let [a, b, c, d, rest @ ..] = uuid.superblock().uuid();
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let uuid = format!(
        "{}-{}-{}-{}-{}",
        hex(&[a, b, c, d]),
        hex(&rest[..2]),
        hex(&rest[2..4]),
        hex(&rest[4..6]),
        hex(&rest[6..])
    );
    let uuid = if same_uuid { uuid } else { "random".to_owned() };
    let more = ["-E", "lazy_journal_init=1,nodiscard", "-U", &uuid];
    format(&volume, features, journal.is_some(), &more);
    let pair = Pair::load(&volume, journal.as_deref());
    if journal.is_some() {
        // A device of a journal that was formatted again, too.
        pair.edit_journal(|journal| {
            (journal.start, journal.sequence) = (None, extern4_disk::journal::Tid(1));
            (journal.incompat, journal.compat) = (Incompat::empty(), Compat::empty());
        });
    }
    pair
}

/// One volume over another: after each file that was made durable, a crash leaves these files and
/// no others.
fn replace(features: &str, external: bool, data: Option<DataMode>, seed: u64) {
    let mut random = Random::new(seed);
    let former = Pair::new(features, external);
    let mut last = former.copy();
    fill(&former, "old", data, 10 + random.below(25), &mut |_| {
        last = former.copy()
    });
    // Half of them end as a crash does.
    let former = if random.below(2) == 0 { last } else { former };
    let new = over(&former, features, random.below(2) == 0);
    fill(&new, "new", data, 1 + random.below(8), &mut |count| {
        let fs = new.copy().read_by(None).expect("it opens");
        let mut want: Vec<_> = (1..=count).map(|at| format!("new{at}")).collect();
        want.extend([".", "..", "lost+found"].map(str::to_owned));
        want.sort_unstable();
        assert_eq!(
            names(&fs),
            want,
            "{features}, external: {external}, {data:?}, seed {seed}"
        );
    });
}

/// All day: EXTERN4_FORMER=100
#[test]
fn a_volume_is_not_mixed_with_the_one_before_it() {
    if !can_run() {
        return;
    }
    for seed in 1..=number("EXTERN4_FORMER", 2) {
        for (features, external, data) in [
            ("metadata_csum", false, None),
            ("metadata_csum", true, None),
            ("^metadata_csum", false, None),
            ("^metadata_csum,^64bit", true, None),
            ("^metadata_csum", false, Some(DataMode::Journal)),
            ("metadata_csum", false, Some(DataMode::Journal)),
            ("metadata_csum,fast_commit", false, None),
        ] {
            replace(features, external, data, seed);
        }
    }
}

/// The features of the journal when the volume is opened for writing, and what they are then.
type Case = (&'static str, (Compat, Incompat), (Compat, Incompat));

const NONE: (Compat, Incompat) = (Compat::empty(), Incompat::empty());
const V1: (Compat, Incompat) = (Compat::CHECKSUM, Incompat::empty());
const V2: (Compat, Incompat) = (Compat::empty(), Incompat::CSUM_V2);
const V3: (Compat, Incompat) = (Compat::empty(), Incompat::CSUM_V3);

/// As Linux does, which never takes the new ones away.
const CASES: [Case; 7] = [
    ("metadata_csum", NONE, V3),
    ("metadata_csum", V1, V3),
    ("metadata_csum", V2, V3),
    ("metadata_csum", V3, V3),
    ("^metadata_csum", NONE, NONE),
    ("^metadata_csum", V1, V1),
    ("^metadata_csum", V3, V3),
];

#[test]
fn journals_of_volumes_with_checksums_have_them_too() {
    if !can_run() {
        return;
    }
    for ((features, before, after), external) in CASES
        .into_iter()
        .flat_map(|case| [(case, false), (case, true)])
    {
        let pair = Pair::new(features, external);
        pair.edit_journal(|journal| {
            journal.set_checksum(ChecksumVersion::V3);
            (journal.compat, journal.incompat) = before;
        });
        let what = format!("{features}, external: {external}, {before:?}");
        fill(&pair, "one", None, 3, &mut |count| {
            let crashed = pair.copy();
            if count == 3 {
                judge(&crashed, &what);
            }
            // A log that is not empty is recovered first. Later transactions have checksums.
            fill(&crashed, "two", None, 2, &mut |_| {});
            assert_eq!(checksums(&crashed), after, "{what}");
            let fs = crashed.write();
            assert!(fs.replayed().is_some(), "it was not closed");
            fs.close().expect("close");
            assert_eq!(checksums(&crashed), after, "{what}");
            judge(&crashed, &what);
        });
    }
}

fn checksums(pair: &Pair) -> (Compat, Incompat) {
    let mut found = None;
    pair.edit_journal(|journal: &mut JournalSuperblock| {
        found = Some((
            journal.compat,
            journal.incompat & (Incompat::CSUM_V2 | Incompat::CSUM_V3),
        ));
    });
    found.expect("a journal")
}

/// e2fsck finds no fault, and Linux mounts it.
fn judge(pair: &Pair, what: &str) {
    if !tools::can_run(&[Need::Mount, Need::Tool("losetup"), Need::Tool("e2fsck")]) {
        return;
    }
    let dir = tools::temporary("extern4-");
    let (volume, journal) = pair.save(dir.path());
    let journal = journal.map(|path| (LoopDevice::attach(&path), path));
    let mut options = "loop".to_owned();
    let mut words = vec!["-fp".to_owned()];
    if let Some((device, path)) = &journal {
        options += &format!(",journal_path={}", device.path.display());
        words.extend(["-j".to_owned(), utf8(path).to_owned()]);
    }
    let point = dir.path().join("point");
    std::fs::create_dir(&point).expect("a directory");
    tools::run("mount", ["-o", &options, utf8(&volume), utf8(&point)]);
    let seen = point.join("one1").exists();
    tools::unmount(&point);
    assert!(seen, "{what}: Linux sees the first file");
    drop(journal);
    words.push(utf8(&volume).to_owned());
    tools::try_run("e2fsck", words).unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn opening_for_writing_does_not_read_the_log() {
    if !can_run() {
        return;
    }
    let dir = tools::temporary("extern4-");
    let path = dir.path().join("large");
    let file = std::fs::File::create_new(&path).expect("a file");
    file.set_len(4 << 30).expect("a sparse file");
    tools::run(
        "mke2fs",
        ["-q", "-F", "-t", "ext4", "-J", "size=1024", utf8(&path)],
    );
    let opened = |name: &str, close: bool| {
        let options = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        let device = FileDevice::open_with(&path, &options).expect("a device");
        let device = Arc::new(RecordDevice::new(Arc::new(device)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
            .expect("it opens");
        let read = device.counts();
        let fs = Arc::new(fs);
        session(Arc::clone(&fs) as _)
            .mkdir(name, 0o755)
            .expect("there is room");
        fs.sync().expect("durable");
        let after = device.counts();
        if close {
            fs.close().expect("close");
        }
        println!("{read:?}, then {after:?}");
        (read.bytes_read, after.bytes_read - read.bytes_read)
    };
    for (name, close) in [("/new", true), ("/clean", false), ("/dirty", true)] {
        let (opening, changing) = opened(name, close);
        assert!(
            opening < 2 << 20 && changing < 1 << 20,
            "{opening}, {changing} bytes"
        );
    }
}
