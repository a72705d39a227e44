//! Transactions: after a crash at any write of one, the volume has all of its changes or none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extern4::block::{CrashDevice, MemoryDevice};
use extern4::{Errno, ErrorKind, File, Session, Volume, XattrFlags};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;

/// A small volume, whose journal has room for a thousand blocks.
const SPEC: ImageSpec = ImageSpec::new(
    "library",
    12 << 20,
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
);

/// The states that a crash may leave at one moment, as far as a test looks at them.
const KINDS: usize = 12;

/// A file as a test compares it: its mode, its links, and its contents.
type Found = (u32, u32, Vec<u8>);

fn tree(session: &Session) -> BTreeMap<PathBuf, Found> {
    let file = |entry: extern4::DirEntry| {
        let metadata = entry.metadata().expect("its attributes");
        let path = entry.into_path();
        let contents = if metadata.is_file() {
            session.read(&path).expect("its contents")
        } else {
            Vec::new()
        };
        (path, (metadata.mode(), metadata.nlink(), contents))
    };
    session
        .walk("/")
        .map(|entry| file(entry.expect("a file")))
        .collect()
}

/// Opens a volume for writing whose commits come as soon as they can.
fn open(device: &Arc<CrashDevice>) -> Volume {
    let mut options = Volume::options();
    options
        .write(true)
        .commit_interval(Duration::from_millis(1))
        .discard(true);
    options
        .open_device(Arc::clone(device) as _)
        .expect("it opens")
}

fn device() -> Arc<CrashDevice> {
    Arc::new(CrashDevice::new(
        std::fs::read(SPEC.build().path).expect("the image is read"),
    ))
}

/// Makes the files that a transaction changes.
fn populate(session: &Session) {
    session.create_dir("/gone").unwrap();
    for (path, len) in [
        ("/old", 5000),
        ("/gone/a", 20_000),
        ("/gone/b", 3),
        ("/cut", 9000),
        ("/grows", 700),
        ("/moved", 10),
    ] {
        session.write(path, vec![b'o'; len]).unwrap();
    }
}

/// Changes everything, in more blocks than the journal takes at once as a rule.
fn change(volume: &Volume, session: &Session) {
    session.remove_dir_all("/gone").unwrap();
    session.write("/old", vec![b'n'; 70_000]).unwrap();
    session.truncate("/cut", 100).unwrap();
    let grows = session
        .open_with("/grows", File::options().write(true))
        .unwrap();
    grows.write_all_at(&[b'g'; 4000], 700).unwrap();
    grows.sync_all().expect("it does not wait for the commit");
    session.rename("/moved", "/old2").unwrap();
    volume.sync().expect("it does not wait for the commit");
    session.set_permissions("/old2", 0o600).unwrap();
    session
        .setxattr("/old2", "user.x", &[b'x'; 300], XattrFlags::empty())
        .unwrap();
    session.symlink("old", "/link").unwrap();
    session.hard_link("/old", "/other").unwrap();
    // The interval of commits passes.
    std::thread::sleep(Duration::from_millis(20));
    for at in 0..250 {
        session.create_dir(format!("/directory {at}")).unwrap();
    }
    session
        .replace_file("/cut", |file| file.write_all_at(b"replaced", 0))
        .unwrap();
    session.write("/new", vec![b'w'; 200_000]).unwrap();
    let new = session
        .open_with("/new", File::options().write(true))
        .unwrap();
    new.write_all_at(b"over what the transaction wrote", 5)
        .unwrap();
}

/// Returns the tree of a volume after a crash, as it is once its journal is replayed.
fn recovered(bytes: Vec<u8>) -> BTreeMap<PathBuf, Found> {
    let volume = Volume::options()
        .open_device(Arc::new(MemoryDevice::new(bytes)))
        .expect("it opens");
    tree(&volume.superuser())
}

/// Returns whether a crash keeps a sector that it may lose, in the states of this kind. The two
/// sectors of the superblock are written as one.
fn keeps(kind: usize, event: usize, sector: u64) -> bool {
    let sector = if sector == 3 { 2 } else { sector };
    match kind {
        0 => false,
        1 => true,
        // By chance: of the sectors, about half or seven eighths.
        kind => {
            let number = (kind as u64) << 48 | (event as u64) << 32 | sector;
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            if kind % 2 == 0 {
                hash.is_multiple_of(2)
            } else {
                !hash.is_multiple_of(8)
            }
        }
    }
}

#[test]
fn a_crash_at_any_write_leaves_all_or_nothing() {
    if !SPEC.can_run() {
        return;
    }
    let device = device();
    let volume = open(&device);
    let session = volume.superuser();
    populate(&session);
    let before = tree(&session);
    let transaction = volume.transaction().expect("it begins");
    let start = device.moment();
    change(&volume, &session);
    let after = tree(&session);
    let written = device.moment();
    transaction.commit().expect("it fits");
    let end = device.moment();
    assert!(
        before != after && written > start && end > written,
        "{start} {written} {end}"
    );
    session.create_dir("/later").expect("changes go on");
    drop(session);
    volume.close().expect("it closes");

    let mut left = [0_u32; 2];
    for moment in start..=end {
        for kind in 0..KINDS {
            let bytes = device
                .crash(moment, |pending| keeps(kind, pending.event, pending.sector))
                .into_bytes();
            let found = recovered(bytes);
            let is_after = found == after;
            assert!(
                is_after || found == before,
                "moment {moment} of {start}, {written}, {end}: {kind}"
            );
            assert!(
                !is_after || moment > written,
                "moment {moment} of {written}: it was not yet committed"
            );
            assert!(
                is_after || moment < end,
                "it is durable when it has returned"
            );
            left[usize::from(is_after)] += 1;
        }
    }
    assert!(left.iter().all(|count| *count > 0), "{left:?}");
    for moment in (start..=end)
        .step_by(usize::max((end - start) / 12, 1))
        .chain([end])
    {
        judge(&device, moment);
    }
}

/// Lets e2fsck recover a volume after a crash, and compares.
fn judge(device: &CrashDevice, moment: usize) {
    for kind in 0..3 {
        let bytes = device
            .crash(moment, |pending| keeps(kind, pending.event, pending.sector))
            .into_bytes();
        let ours = recovered(bytes.clone());
        let folder = tools::temporary("extern4-transaction-");
        let file = folder.path().join("crashed.img");
        std::fs::write(&file, &bytes).expect("it is written");
        // Its status says that it has replayed the journal.
        let _ = tools::try_run("e2fsck", ["-p".as_ref(), file.as_os_str()]);
        tools::run("e2fsck", ["-fn".as_ref(), file.as_os_str()]);
        assert!(
            tree(&Volume::open(&file).expect("it opens").superuser()) == ours,
            "moment {moment}: {kind}"
        );
    }
}

#[test]
fn an_abandoned_transaction_leaves_nothing() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = Volume::options()
        .write(true)
        .open(&image.path)
        .expect("it opens");
    let session = volume.superuser();
    populate(&session);
    let before = tree(&session);
    let transaction = volume.transaction().expect("it begins");
    change(&volume, &session);
    drop(transaction);
    session
        .create_dir("/more")
        .expect_err("nothing can be changed any more");
    drop(session);
    volume.close().expect_err("it was not closed in order");
    let volume = Volume::options()
        .write(true)
        .open(&image.path)
        .expect("it opens again");
    assert!(tree(&volume.superuser()) == before);
    volume.close().expect("it closes");
    tools::run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]);
}

#[test]
fn what_a_crash_could_not_undo_is_refused() {
    if !SPEC.can_run() {
        return;
    }
    let device = device();
    let volume = open(&device);
    let session = volume.superuser();
    populate(&session);
    let transaction = volume.transaction().expect("it begins");
    let old = session
        .open_with("/old", File::options().write(true))
        .unwrap();
    let refused = |result: extern4::Result<()>| {
        assert_eq!(
            result.map_err(|error| error.errno()),
            Err(Errno::EOPNOTSUPP)
        );
    };
    refused(old.write_all_at(b"x", 4999));
    old.write_all_at(b"x", 5000).expect("behind its end");
    session.truncate("/cut", 100).unwrap();
    refused(session.truncate("/cut", 200));
    session.truncate("/cut", 0).unwrap();
    session
        .truncate("/cut", 200)
        .expect("nothing is left of it");
    assert!(volume.ext4().transaction().is_err(), "there is one already");
    transaction.commit().expect("it is committed");
    old.write_all_at(b"x", 4999)
        .expect("the transaction has ended");
    let mut bytes = [0; 4];
    old.read_exact_at(&mut bytes, 4997)
        .expect_err("it was opened for writing only");
    assert_eq!(session.read("/old").unwrap()[4997..], *b"ooxx");
    assert_eq!(session.read("/cut").unwrap(), vec![0; 200]);
}

#[test]
fn a_transaction_that_is_too_large_says_so() {
    if !SPEC.can_run() {
        return;
    }
    let device = device();
    let volume = open(&device);
    let session = volume.superuser();
    populate(&session);
    let before = tree(&session);
    let transaction = volume.transaction().expect("it begins");
    for at in 0..1200 {
        session.create_dir(format!("/directory {at}")).unwrap();
    }
    let error = transaction.commit().expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::Os(Errno::ENOSPC), "{error}");
    assert!(
        error
            .to_string()
            .contains("blocks does not fit into a log of"),
        "{error}"
    );
    drop((session, volume));
    let bytes = device.crash(device.moment(), |_| true).into_bytes();
    assert!(recovered(bytes) == before);
    judge(&device, device.moment());
}

#[test]
fn another_thread_waits_for_the_transaction() {
    if !SPEC.can_run() {
        return;
    }
    let device = device();
    let volume = open(&device);
    let session = volume.superuser();
    let transaction = volume.transaction().expect("it begins");
    session.create_dir("/a").unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            volume.sync().expect("sync");
            recovered(device.crash(device.moment(), |_| false).into_bytes())
        });
        std::thread::sleep(Duration::from_millis(20));
        session.create_dir("/b").unwrap();
        transaction.commit().expect("it is committed");
        let found = other.join().expect("it has synced");
        assert!(
            found.contains_key(&PathBuf::from("/b")),
            "its sync waits for the commit"
        );
    });
    let next = volume.transaction().expect("the next one begins");
    session.create_dir("/c").unwrap();
    next.commit().expect("it is committed");
}
