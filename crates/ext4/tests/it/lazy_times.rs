//! Times that are changed in memory only: what makes them durable here and with the kernel's
//! `lazytime`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extern4_block::{BlockDevice, FileDevice, MemoryDevice};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_vfs::*;

use crate::{memory, walk};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const OLD: Timespec = Timespec { sec: 1000, nsec: 0 };
/// More inodes than share a block with another one.
const BETWEEN: usize = 8;

/// The step after a file has been read or written over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// Nothing but that the running transaction becomes durable.
    Commit,
    Fdatasync,
    Fsync,
    Chmod,
    Sync,
    Evict,
}

/// And whether the times are durable then.
const EVENTS: [(Then, bool); 6] = [
    (Then::Commit, false),
    (Then::Fdatasync, false),
    (Then::Fsync, true),
    (Then::Chmod, true),
    (Then::Sync, true),
    (Then::Evict, true),
];

fn name(at: usize) -> String {
    format!("f{at}")
}

/// A volume with a file for each event, far from the others, and one for the operations that make
/// transactions durable.
fn image() -> Option<Image> {
    let spec = ImageSpec::new(
        "lazy",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    )
    .mounted(&[|root| {
        for at in 0..(EVENTS.len() + 2) * BETWEEN {
            std::fs::write(root.join(name(at)), [1; 5000])?;
            make_old(&File::options().write(true).open(root.join(name(at)))?)?;
        }
        Ok(())
    }]);
    spec.can_run().then(|| spec.build())
}

fn make_old(file: &File) -> std::io::Result<()> {
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1000);
    file.set_times(
        std::fs::FileTimes::new()
            .set_accessed(old)
            .set_modified(old),
    )
}

/// The times of last reading and writing, as they would be after a crash now.
fn durable(device: Arc<dyn BlockDevice>, at: usize) -> (i64, i64) {
    let options = OpenOptions {
        shared: true,
        ..OpenOptions::default()
    };
    let fs = Ext4::open(device, &options).expect("the volume opens");
    let found = walk::resolve(&fs, &name(at)).expect("the file").attr();
    (found.atime.sec, found.mtime.sec)
}

fn check(subject: &str, then: Then, wanted: bool, times: (i64, i64)) {
    let new = (times.0 > OLD.sec, times.1 > OLD.sec);
    assert_eq!(new, (wanted, wanted), "{subject}: {then:?}");
}

#[test]
fn times_become_durable_when_they_do_with_the_kernel() {
    let Some(image) = image() else { return };
    let copy = image.copy();
    let mount = copy.mount("lazytime,strictatime");
    for (at, (then, wanted)) in (1..).map(|at| at * BETWEEN).zip(EVENTS) {
        if then == Then::Evict {
            // The kernel evicts when memory is short.
            continue;
        }
        by_kernel(&mount.path, at, then);
        let device = FileDevice::open(&copy.path).expect("a device");
        let (atime, _) = durable(Arc::new(device), at);
        assert_eq!(atime > OLD.sec, wanted, "kernel: {then:?}");
    }
    mount.unmount();

    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let (fs, session) = open(&device, Some(DAY));
    for (at, (then, wanted)) in (1..).map(|at| at * BETWEEN).zip(EVENTS) {
        by_us(&session, at, then);
        check("extern4", then, wanted, durable(copied(&device), at));
        let path = name(at);
        let seen = session.stat(&path, LookupFlags::FOLLOW).expect("the file");
        assert!(seen.atime > OLD && seen.mtime > OLD, "{then:?}: {seen:?}");
    }
    drop(session);
    fs.close().expect("close");
    check(
        "closed",
        Then::Commit,
        true,
        durable(copied(&device), BETWEEN),
    );
    memory::fsck("lazy", &device);
}

fn by_kernel(root: &Path, at: usize, then: Then) {
    use std::os::unix::fs::PermissionsExt;
    let file = File::options()
        .read(true)
        .write(true)
        .open(root.join(name(at)))
        .expect("the file");
    // Linux 6.18 was seen to store the inode with every write through its page cache, so that only
    // reads are lazy there.
    file.read_exact_at(&mut [0; 10], 0).expect("read");
    match then {
        Then::Commit | Then::Evict => {}
        Then::Fdatasync => file.sync_data().expect("sync"),
        Then::Fsync => file.sync_all().expect("sync"),
        Then::Chmod => file
            .set_permissions(std::fs::Permissions::from_mode(0o600))
            .expect("chmod"),
        Then::Sync => rustix::fs::syncfs(&file).expect("sync"),
    }
    // Something else that has to be durable takes the running transaction with it.
    let other = File::create(root.join(format!("other{at}"))).expect("a file");
    other.sync_all().expect("sync");
}

fn open(device: &Arc<MemoryDevice>, lazy_times: Option<Duration>) -> (Arc<Ext4>, Session) {
    let options = OpenOptions {
        lazy_times,
        ..OpenOptions::default()
    };
    let fs = Arc::new(
        Ext4::open_for_writing(Arc::clone(device) as _, &options).expect("the volume opens"),
    );
    let options = SuperOptions {
        atime: Atime::Strict,
        ..SuperOptions::default()
    };
    let sb = SuperBlock::new(Arc::clone(&fs) as _, options).expect("the root");
    (fs, Session::new(&Namespace::new(sb), Cred::root()))
}

fn copied(device: &Arc<MemoryDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::read_only(memory::contents(device)))
}

fn touch(session: &Session, at: usize) -> OpenFile {
    let file = session
        .open(name(at), OpenFlags::READ | OpenFlags::WRITE)
        .expect("the file");
    file.read_at(&mut [0; 10], 0).expect("read");
    file.write_at(b"over", 0).expect("write");
    file
}

fn by_us(session: &Session, at: usize, then: Then) {
    let file = touch(session, at);
    let root = session.namespace().root();
    let sb = root.superblock();
    match then {
        Then::Commit => {}
        Then::Fdatasync => file.sync(true).expect("sync"),
        Then::Fsync => file.sync(false).expect("sync"),
        Then::Chmod => session
            .chmod(name(at), 0o600, LookupFlags::FOLLOW)
            .expect("chmod"),
        Then::Sync => sb.sync().expect("sync"),
        Then::Evict => {}
    }
    drop(file);
    if then == Then::Evict {
        sb.drop_caches();
    }
    let other = session
        .open(format!("other{at}"), OpenFlags::WRITE | OpenFlags::CREATE)
        .expect("a file");
    other.sync(false).expect("sync");
}

#[test]
fn times_are_stored_at_once_unless_asked() {
    let Some(image) = image() else { return };
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let (fs, session) = open(&device, None);
    by_us(&session, BETWEEN, Then::Commit);
    check(
        "at once",
        Then::Commit,
        true,
        durable(copied(&device), BETWEEN),
    );
    drop(session);
    fs.close().expect("close");
}

#[test]
fn times_that_have_waited_for_long_are_stored_with_the_next() {
    let Some(image) = image() else { return };
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let (fs, session) = open(&device, Some(Duration::from_millis(300)));
    by_us(&session, BETWEEN, Then::Commit);
    std::thread::sleep(Duration::from_millis(400));
    by_us(&session, 2 * BETWEEN, Then::Commit);
    check("old", Then::Commit, true, durable(copied(&device), BETWEEN));
    drop(session);
    fs.close().expect("close");
    memory::fsck("lazy", &device);
}

#[test]
fn a_change_of_the_inode_stores_its_lazy_times() {
    let Some(image) = image() else { return };
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let (fs, session) = open(&device, Some(DAY));
    drop(touch(&session, BETWEEN));
    // Times that are set are no older than the times that waited, and stay.
    let set = Timespec { sec: 5000, nsec: 0 };
    session
        .utimens(
            name(BETWEEN),
            SetTime::At(set),
            SetTime::At(set),
            LookupFlags::FOLLOW,
        )
        .expect("utimens");
    by_us(&session, 2 * BETWEEN, Then::Sync);
    assert_eq!(durable(copied(&device), BETWEEN), (5000, 5000));
    // A file that goes does not come back.
    drop(touch(&session, 3 * BETWEEN));
    session.unlink(name(3 * BETWEEN)).expect("unlink");
    drop(session);
    fs.close().expect("close");
    memory::fsck("lazy", &device);
}
